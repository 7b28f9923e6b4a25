//! What must hold whatever clients do, tried with chance. `cargo xtask fuzz` tries the same for longer.

use proptest::prelude::*;
use testkit::invariants;

fn run_websocket_case(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(invariants::websocket(data, tokio::time::advance));
}

fn run_http1_case(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(invariants::http1(data));
}

/// The seeds are the corpus of request smuggling, too.
#[test]
fn fuzzing_seeds_of_http1_hold_in_pieces_of_any_size() {
    invariants::check_seeds("http1", |data| {
        let Some((how, bytes)) = data.split_first() else { return };
        for piece_bytes in [0, 1, 2, 7, 40, 126] {
            run_http1_case(&[&[how & 0x80 | piece_bytes], bytes].concat());
        }
    });
}

/// A request as clients send it, with some of its parts replaced by what others send.
fn arb_request() -> impl Strategy<Value = String> {
    let part = |usual: &'static str, others: &'static [&'static str]| prop_oneof![6 => Just(usual), 1 => prop::sample::select(others)];
    let line = part(
        "POST /mcp HTTP/1.1\r\n",
        &[
            "GET /health HTTP/1.1\r\n",
            "POST /mcp HTTP/1.0\r\n",
            "POST /mcp?stream=1 HTTP/1.1\r\n",
            "POST /mcp HTTP/1.1\n",
        ],
    );
    let host = part(
        "Host: 127.0.0.1\r\n",
        &["", "Host: evil.example\r\n", "Host: localhost\r\nHost: a\r\n", "Host : a\r\n"],
    );
    let content_type = part("Content-Type: application/json\r\n", &["", "Content-Type: text/plain\r\n"]);
    let version = part(
        "MCP-Protocol-Version: 2025-11-25\r\n",
        &["", "MCP-Protocol-Version: 2026-07-28\r\n", "MCP-Protocol-Version: x\r\n"],
    );
    let other = part(
        "",
        &[
            "Connection: close\r\n",
            "Expect: 100-continue\r\n",
            "X: \u{e9}\r\n",
            " X: y\r\n",
            "X: y\n",
            "Upgrade: h2c\r\n",
        ],
    );
    let framing = part(
        "Content-Length: 40\r\n\r\n",
        &[
            "Content-Length: 4\r\n\r\n",
            "Content-Length: 41\r\n\r\n",
            "Content-Length: +40\r\n\r\n",
            "Content-Length: 040\r\n\r\n",
            "content-length:40\r\n\r\n",
            "Content-Length: 40\r\nContent-Length: 40\r\n\r\n",
            "Content-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n28\r\n",
            "Transfer-Encoding: chunked\r\n\r\n28\r\n",
            "\r\n",
        ],
    );
    let body = part(
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        &["{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r\n0\r\n\r\n", "0\r\n\r\n", "", "{}"],
    );
    (line, host, content_type, version, other, framing, body)
        .prop_map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g].concat())
}

#[test]
fn fuzzing_seeds_of_websocket_hold() {
    invariants::check_seeds("websocket", run_websocket_case);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_fast_path_and_hyper_answer_the_same(
        how in any::<u8>(),
        requests in prop::collection::vec(arb_request(), 1..4),
    ) {
        run_http1_case(&[&[how], requests.concat().as_bytes()].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_comes_over_a_websocket_it_keeps_the_rules(
        data in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        run_websocket_case(&data);
    }
}
