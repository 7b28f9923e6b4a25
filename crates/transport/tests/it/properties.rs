//! What must hold whatever clients do, tried with chance. `cargo xtask fuzz` tries the same for longer.

use std::sync::LazyLock;

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

/// Requests with the same head but for the digits of its length: what a connection remembers of a head. With as much space
/// on that line as the strict reader just accepts, or just does not.
fn arb_repeated_head() -> impl Strategy<Value = String> {
    const BODIES: [&str; 3] = [
        "{}",
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"ping","params":{"filler":"so that the length of the body has three digits"}}"#,
    ];
    let request = (0..4_usize, prop::sample::select(&BODIES));
    (26..33_usize, any::<prop::sample::Index>(), prop::collection::vec(request, 2..6)).prop_map(
        |(space, before, requests)| {
            let before = before.index(space + 1);
            let (before, after) = (" ".repeat(before), "\t".repeat(space - before));
            let request = |(zeros, body): (usize, &str)| {
                let length = format!("{}{}", "0".repeat(zeros), body.len());
                format!(
                    "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                     Content-Length:{before}{length}{after}\r\n\r\n{body}"
                )
            };
            requests.into_iter().map(request).collect()
        },
    )
}

#[test]
fn fuzzing_seeds_of_websocket_hold() {
    invariants::check_seeds("websocket", run_websocket_case);
}

/// `PROPTEST_CASES` tries more of them.
fn http1_config() -> ProptestConfig {
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 500 };
    ProptestConfig::with_cases(cases)
}

/// What a mutation puts into a seed: what matters to readers of HTTP.
const SNIPPETS: [&str; 16] = [
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    " ",
    "\t",
    ":",
    "0",
    "\0",
    "\u{e9}",
    "Content-Length: 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: close\r\n",
    "Expect: 100-continue\r\n",
    "POST /mcp HTTP/1.1\r\n",
    "Host: x\r\n",
];

/// Replaces `removed` bytes at a place by a snippet.
type Mutation = (prop::sample::Index, usize, Option<usize>);

fn mutate(seed: &[u8], mutations: &[Mutation]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for (place, removed, snippet) in mutations {
        let start = place.index(bytes.len().max(2) - 1) + 1;
        let end = (start + removed).min(bytes.len());
        let snippet = snippet.map_or("", |index| SNIPPETS[index]);
        bytes.splice(start.min(end)..end, snippet.bytes());
    }
    bytes
}

proptest! {
    #![proptest_config(http1_config())]

    #[test]
    fn the_fast_path_and_hyper_answer_the_same(
        how in any::<u8>(),
        requests in prop::collection::vec(arb_request(), 1..4),
    ) {
        run_http1_case(&[&[how], requests.concat().as_bytes()].concat());
    }

    #[test]
    fn the_fast_path_and_hyper_answer_the_same_to_heads_that_repeat(
        // Mostly whole: a head in pieces is hyper's.
        how in prop_oneof![3 => Just(0), 1 => 0..0x80_u8],
        requests in arb_repeated_head(),
    ) {
        run_http1_case(&[&[how], requests.as_bytes()].concat());
    }

    #[test]
    fn the_fast_path_and_hyper_answer_the_same_to_mutated_seeds(
        how in any::<u8>(),
        seed in any::<prop::sample::Index>(),
        mutations in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..4_usize, prop::option::of(0..SNIPPETS.len())),
            1..4,
        ),
    ) {
        static SEEDS: LazyLock<Vec<Vec<u8>>> =
            LazyLock::new(|| invariants::seeds("http1").into_iter().map(|(_, seed)| seed).collect());
        let mut data = mutate(&SEEDS[seed.index(SEEDS.len())], &mutations);
        // Mostly whole, or in a few pieces.
        data[0] = data[0] & 0x80 | if how < 128 { 0 } else { how & 0x7f };
        run_http1_case(&data);
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
