//! What playing client and server as a pair brought to light, each sentence by itself.

use spile_core::ClientCapabilities;
use wire::Version;
use wire::client::{ClientOptions, TransportKind, VersionPolicy};

use super::over_http::{HTTP, SESSION, in_session, over_http};
use super::{check, check_with, on_initialized_pipe, on_modern_pipe, options, with_meta};

const DISCOVER: &str = r#"
    > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
"#;

fn on_pipe(rest: &str) {
    check(TransportKind::Pipe, VersionPolicy::Any, &with_meta(&format!("{DISCOVER}{rest}")));
}

#[test]
fn a_server_that_is_slow_to_start_is_still_spoken_to_in_the_newest_version() {
    on_pipe(
        r#"
        wait 3000
        > {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        < {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
        < {"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no such method"}}
    "#,
    );
    // The other way round: what knows no handshake is asked once more, and waited for.
    on_pipe(
        r#"
        wait 3000
        > {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        < {"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no such method"}}
        > {"jsonrpc":"2.0","id":3,"method":"server/discover","params":{"_meta":{META}}}
        wait 10000
        < {"jsonrpc":"2.0","id":3,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
    "#,
    );
}

#[test]
fn whoever_takes_the_newest_version_only_waits_for_it() {
    let script = format!(
        "{DISCOVER}
        wait 29999
        wait 1
        ! over no answer within 30000 ms"
    );
    check(TransportKind::Pipe, VersionPolicy::Only(Version::V2026_07_28), &with_meta(&script));
}

#[test]
fn a_server_without_a_handshake_has_no_version_in_common() {
    for (error, why) in [
        (
            r#"{"code":-32601,"message":"no such method"}"#,
            "the server takes no handshake: no such method (-32601)",
        ),
        (r#"{"code":-32602,"message":"?"}"#, "the server takes no handshake: ? (-32602)"),
        (
            r#"{"code":-32022,"message":"?","data":{"supported":["2026-07-28"]}}"#,
            "the server speaks protocol 2026-07-28, which will not do here",
        ),
        (r#"{"code":-32603,"message":"broken"}"#, "broken (-32603)"),
    ] {
        check(
            TransportKind::Pipe,
            VersionPolicy::HandshakeOnly,
            &format!(
                r#"
                > {{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}}}
                < {{"jsonrpc":"2.0","id":1,"error":{error}}}
                ! over {why}
            "#
            ),
        );
    }
}

#[test]
fn what_is_asked_before_the_server_is_ready_fits_the_version_that_it_turns_out_to_speak() {
    on_pipe(
        r#"
        level debug
        ping
        < {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}
        > {"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        < {"jsonrpc":"2.0","id":3,"result":{"protocolVersion":"2025-06-18","capabilities":{"logging":{}},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"}
        > {"jsonrpc":"2.0","id":6,"method":"logging/setLevel","params":{"level":"debug"}}
        > {"jsonrpc":"2.0","id":7,"method":"ping"}
        ! ready 2025-06-18 s
        < {"jsonrpc":"2.0","id":7,"result":{}}
        ! done 0 {}
    "#,
    );
    on_modern_pipe(
        r#"
        ping
        > {"jsonrpc":"2.0","id":3,"method":"server/discover","params":{"_meta":{META}}}
        < {"jsonrpc":"2.0","id":3,"result":{}}
        ! done 0 {}
    "#,
    );
}

#[test]
fn a_subscription_that_waits_is_cancelled_without_a_word() {
    check(
        TransportKind::Pipe,
        VersionPolicy::HandshakeOnly,
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        listen file:///a
        cancel 0
        ! failed 0 cancelled
        < {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"}
        ! ready 2025-11-25 s
    "#,
    );
}

#[test]
fn what_was_on_its_way_when_somebody_stopped_listening_is_no_surprise() {
    on_modern_pipe(
        r#"
        listen
        > {"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{META}}}
        cancel 0
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"nobody waits for it any more"}}
        ! failed 0 cancelled
        < {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":3}}}
    "#,
    );
}

#[test]
fn progress_is_heard_by_whoever_asked_and_goes_forward() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        follow tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":4}}}
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":4,"progress":1}}
        ! progress 0 1 None None
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":4,"progress":1}}
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":4,"progress":0.5}}
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":4,"progress":1.5}}
        ! progress 0 1.5 None None
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"t"}}
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":6,"progress":1}}
    "#,
    );
}

#[test]
fn nonsense_in_one_frame_is_told_once() {
    on_initialized_pipe(
        "2025-03-26",
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}}
        < [{},{},7,{"jsonrpc":"2.0","id":4,"result":{}},{}]
        ! done 0 {}
        ! odd skipped a message that is neither a request nor a response: `[{},{},7,{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}},{}]`
    "#,
    );
}

#[test]
fn after_the_end_nothing_is_said_and_nothing_heard() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        closed the server left
        ! over the server left
        < {"jsonrpc":"2.0","id":1,"method":"ping"}
        < {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hi"}}
        < what?
        closed again
        wait 100000
    "#,
    );
}

#[test]
fn a_request_that_nobody_waits_for_is_given_up_all_the_same() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        level debug
        > {"jsonrpc":"2.0","id":4,"method":"logging/setLevel","params":{"level":"debug"}}
        wait 30000
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4,"reason":"it took too long"}}
        ! odd a request of our own failed: no answer within 30000 ms
    "#,
    );
}

/// A call in the newest version whose headers are wrong.
const MISMATCHED: &str = r#"
    < 200 {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
    ! ready 2026-07-28
    call tools/call {"name":"t"}
    > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/call] [Mcp-Name: t]
    < 400 {"jsonrpc":"2.0","id":3,"error":{"code":-32020,"message":"header Mcp-Param-R is missing"}}
"#;

const TOOLS: &str = r#"> {"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/list]"#;

#[test]
fn a_call_whose_headers_cannot_be_learned_fails_once() {
    for (answer, why) in [
        (
            r#"< 200 {"jsonrpc":"2.0","id":5,"result":{}}"#,
            "`tools/list` was answered without a list of `tools`",
        ),
        (r#"< 200 {"jsonrpc":"2.0","id":5,"error":{"code":-1,"message":"no"}}"#, "no (-1)"),
        ("wait 30000\n> abandon 5", "no answer within 30000 ms"),
    ] {
        // Long after it would have taken too long.
        over_http(&format!("{MISMATCHED}{TOOLS}\n{answer}\n! failed 0 {why}\nwait 100000"));
    }
}

#[test]
fn a_call_whose_headers_cannot_be_asked_for_fails() {
    let script = HTTP.to_owned() + MISMATCHED + "! failed 0 too much is under way already";
    check_with(TransportKind::Http, ClientOptions { calls_max: 1, ..options() }, &with_meta(&script));
}

#[test]
fn a_session_is_named_whatever_version_is_spoken_in_it() {
    check(
        TransportKind::Http,
        VersionPolicy::Only(Version::V2024_11_05),
        r#"
        > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        session S
        < 200 {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"} [Mcp-Session-Id: S]
        > GET after 0 from None [Mcp-Session-Id: S]
        ! ready 2024-11-05 s
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t"}} [Mcp-Session-Id: S]
        ended 7 500
        > GET after 500 from Some("7") [Mcp-Session-Id: S]
    "#,
    );
}

#[test]
fn what_the_server_has_begun_is_not_begun_again_in_another_session() {
    in_session(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        ended 7 500
        > GET after 500 from Some("7") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        ! failed 0 HTTP 404
    "#,
    );
}

#[test]
fn everybody_who_is_told_that_the_session_is_gone_goes_on_in_the_next() {
    in_session(
        r#"
        listen file:///a
        > {"jsonrpc":"2.0","id":6,"method":"resources/subscribe","params":{"uri":"file:///a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 200 {"jsonrpc":"2.0","id":6,"result":{}}
        ! listening 0 true ["file:///a"]
        call tools/call {"name":"a"}
        > {"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        call tools/call {"name":"b"}
        > {"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"b"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        > {"jsonrpc":"2.0","id":11,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        at 8
        < 404
        at 11
        session T
        < 200 {"jsonrpc":"2.0","id":11,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > abandon 3
        > GET after 0 from None [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":15,"method":"resources/subscribe","params":{"uri":"file:///a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":16,"method":"tools/call","params":{"name":"a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"b"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        ! ready 2025-11-25 s
        at 15
        < 200 {"jsonrpc":"2.0","id":15,"result":{}}
        ! listening 0 true ["file:///a"]
    "#,
    );
}

#[test]
fn a_question_goes_with_its_call_and_with_its_session() {
    let caps = ClientCapabilities::ELICITATION_FORM;
    let script = r#"
        > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{}}},"clientInfo":{"name":"c","version":"1"}}}
        session S
        < 200 {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        > GET after 0 from None [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        ! ready 2025-11-25 s
        call tools/call {"name":"a"}
        > {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < event {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}
        ! asked Elicitation {}
        < event {"jsonrpc":"2.0","id":5,"result":{}}
        ! withdrawn
        ! done 0 {}
        answer {"action":"accept"}
        call tools/call {"name":"b"}
        > {"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"b"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < event {"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{}}
        ! asked Elicitation {}
        call tools/call {"name":"c"}
        > {"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"c"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        > {"jsonrpc":"2.0","id":12,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{}}},"clientInfo":{"name":"c","version":"1"}}}
        ! withdrawn
        at 8
        < event {"jsonrpc":"2.0","id":3,"method":"elicitation/create","params":{}}
    "#;
    check_with(
        TransportKind::Http,
        ClientOptions { capabilities: caps, version_policy: VersionPolicy::HandshakeOnly, ..options() },
        script,
    );
}

#[test]
fn a_subscription_of_the_handshake_era_stands_when_every_resource_is_answered_for() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        listen file:///a file:///b
        > {"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"file:///a"}}
        > {"jsonrpc":"2.0","id":7,"method":"resources/subscribe","params":{"uri":"file:///b"}}
        < {"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such resource"}}
        ! odd `file:///b` cannot be subscribed to: no such resource (-32602)
        < {"jsonrpc":"2.0","id":5,"result":{}}
        ! listening 0 true ["file:///a"]
        cancel 0
        > {"jsonrpc":"2.0","id":9,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}
        ! failed 0 cancelled
        < {"jsonrpc":"2.0","id":9,"result":{}}
        listen file:///c
        > {"jsonrpc":"2.0","id":12,"method":"resources/subscribe","params":{"uri":"file:///c"}}
        cancel 1
        > {"jsonrpc":"2.0","id":14,"method":"resources/unsubscribe","params":{"uri":"file:///c"}}
        ! failed 1 cancelled
        < {"jsonrpc":"2.0","id":12,"result":{}}
        listen
        ! listening 2 true []
    "#,
    );
}

#[test]
fn the_place_in_a_stream_is_kept_over_connections_that_bring_nothing() {
    in_session(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        ended 7 500
        > GET after 500 from Some("7") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        ended
        > GET after 500 from Some("7") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        cut
        > GET after 500 from Some("7") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < event {"jsonrpc":"2.0","id":5,"result":{}}
        ! done 0 {}
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        cut
        ! failed 1 cut
        at 3
        ended 0-4
        > GET after 1000 from Some("0-4") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        at 3
        cut
        > GET after 1000 from Some("0-4") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
    "#,
    );
}

#[test]
fn a_stream_of_a_session_that_is_gone_is_not_looked_for_in_the_next() {
    in_session(
        r#"
        call tools/call {"name":"a"}
        > {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        call tools/call {"name":"b"}
        > {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"b"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        > {"jsonrpc":"2.0","id":8,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        session T
        < 200 {"jsonrpc":"2.0","id":8,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > abandon 3
        > GET after 0 from None [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"b"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        ! ready 2025-11-25 s
        at 5
        ended 1-1 500
        ! failed 0 the stream ended before the answer
    "#,
    );
}

#[test]
fn a_level_that_was_refused_with_its_session_is_not_said_after_a_newer_one() {
    let session =
        SESSION.replace(r#""capabilities":{},"serverInfo""#, r#""capabilities":{"logging":{}},"serverInfo""#);
    let script = r#"
        level error
        > {"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"error"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        level debug
        > {"jsonrpc":"2.0","id":7,"method":"logging/setLevel","params":{"level":"debug"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        > {"jsonrpc":"2.0","id":8,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        session T
        < 200 {"jsonrpc":"2.0","id":8,"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > abandon 3
        > GET after 0 from None [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":12,"method":"logging/setLevel","params":{"level":"debug"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        ! ready 2025-11-25 s
        at 5
        < 404
    "#;
    check(TransportKind::Http, VersionPolicy::HandshakeOnly, &format!("{session}{script}"));
}

#[test]
fn an_error_of_no_request_is_why_a_server_hangs_up() {
    let told = r#"
        < {"jsonrpc":"2.0","id":null,"error":{"code":-31004,"message":"a token is required"}}
        ! odd the server reports: a token is required (-31004)"#;
    on_pipe(&format!(
        "{told}
        closed the server closed its output
        ! over a token is required (-31004)"
    ));
    // Who goes on all the same is spoken to.
    on_pipe(&format!(
        r#"{told}
        < {{"jsonrpc":"2.0","id":1,"result":{{"supportedVersions":["2026-07-28"],"capabilities":{{}}}}}}
        ! ready 2026-07-28
        closed the server closed its output
        ! over the server closed its output"#
    ));
}

#[test]
fn one_version_and_several_that_will_not_do() {
    for (versions, why) in [
        (r#"["1999-01-01"]"#, "the server speaks protocol 1999-01-01, which will not do here"),
        (
            r#"["1999-01-01","1999-02-01"]"#,
            "the server speaks protocol 1999-01-01, 1999-02-01, none of which will do here",
        ),
        ("[]", "the server names no protocol version that it speaks"),
    ] {
        on_pipe(&format!(
            r#"
            < {{"jsonrpc":"2.0","id":1,"result":{{"supportedVersions":{versions},"capabilities":{{}}}}}}
            ! over {why}"#
        ));
    }
}
