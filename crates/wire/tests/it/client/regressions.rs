//! Bugs that the tests of client and server as a pair have found.

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
fn a_server_that_starts_slowly_still_negotiates_the_newest_version() {
    on_pipe(
        r#"
        wait 3000
        > {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        < {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
        < {"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no such method"}}
    "#,
    );
    // A server without a handshake is probed once more, with the longer timeout.
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
fn a_client_of_the_newest_version_only_waits_for_the_probe() {
    let script = format!(
        "{DISCOVER}
        wait 29999
        wait 1
        ! closed no response within 30000 ms"
    );
    check(TransportKind::Pipe, VersionPolicy::Only(Version::V2026_07_28), &with_meta(&script));
}

#[test]
fn a_server_without_a_handshake_is_an_unsupported_version() {
    for (error, reason) in [
        (
            r#"{"code":-32601,"message":"no such method"}"#,
            "the server does not support `initialize`: no such method (-32601)",
        ),
        (r#"{"code":-32602,"message":"?"}"#, "the server does not support `initialize`: ? (-32602)"),
        (
            r#"{"code":-32022,"message":"?","data":{"supported":["2026-07-28"]}}"#,
            "the server supports only protocol version 2026-07-28, which this client does not allow",
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
                ! closed {reason}
            "#
            ),
        );
    }
}

#[test]
fn calls_made_before_the_server_is_ready_use_the_negotiated_version() {
    on_pipe(
        r#"
        level debug
        ping
        < {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}
        > {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        < {"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-06-18","capabilities":{"logging":{}},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"}
        > {"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"debug"}}
        > {"jsonrpc":"2.0","id":4,"method":"ping"}
        ! ready 2025-06-18 s
        < {"jsonrpc":"2.0","id":4,"result":{}}
        ! done 0 {}
    "#,
    );
    on_modern_pipe(
        r#"
        ping
        > {"jsonrpc":"2.0","id":2,"method":"server/discover","params":{"_meta":{META}}}
        < {"jsonrpc":"2.0","id":2,"result":{}}
        ! done 0 {}
    "#,
    );
}

#[test]
fn cancelling_an_unsent_subscription_sends_nothing() {
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
fn a_late_notification_of_a_cancelled_subscription_is_no_warning() {
    on_modern_pipe(
        r#"
        listen
        > {"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{META}}}
        cancel 0
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the caller cancelled the request"}}
        ! failed 0 cancelled
        < {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}
    "#,
    );
}

#[test]
fn progress_is_reported_only_if_requested_and_increasing() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        call_with_progress tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":2}}}
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}
        ! progress 0 1 None None
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":0.5}}
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1.5}}
        ! progress 0 1.5 None None
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}
        < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":3,"progress":1}}
    "#,
    );
}

#[test]
fn one_frame_causes_at_most_one_warning() {
    on_initialized_pipe(
        "2025-03-26",
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}
        < [{},{},7,{"jsonrpc":"2.0","id":2,"result":{}},{}]
        ! done 0 {}
        ! warning skipped a message that is neither a request nor a response: `[{},{},7,{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}},{}]`
    "#,
    );
}

#[test]
fn a_closed_client_ignores_everything() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        closed the server left
        ! closed the server left
        < {"jsonrpc":"2.0","id":1,"method":"ping"}
        < {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hi"}}
        < what?
        closed again
        wait 100000
    "#,
    );
}

#[test]
fn a_background_request_times_out() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        level debug
        > {"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}
        wait 30000
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the request timed out"}}
        ! warning `logging/setLevel` failed: no response within 30000 ms
    "#,
    );
}

/// A call in the newest version whose headers are wrong.
const MISMATCHED: &str = r#"
    < 200 {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
    ! ready 2026-07-28
    call tools/call {"name":"t"}
    > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/call] [Mcp-Name: t]
    < 400 {"jsonrpc":"2.0","id":2,"error":{"code":-32020,"message":"header Mcp-Param-R is missing"}}
"#;

const TOOLS: &str = r#"> {"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/list]"#;

#[test]
fn a_call_whose_tools_refresh_fails_fails_once() {
    for (response, error) in [
        (r#"< 200 {"jsonrpc":"2.0","id":3,"result":{}}"#, "the result of `tools/list` has no array `tools`"),
        (r#"< 200 {"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}"#, "no (-1)"),
        ("wait 30000\n> abort 3", "no response within 30000 ms"),
    ] {
        // Nothing more happens after the timeout.
        over_http(&format!("{MISMATCHED}{TOOLS}\n{response}\n! failed 0 {error}\nwait 100000"));
    }
}

#[test]
fn a_call_whose_tools_refresh_exceeds_the_limit_fails() {
    let script = HTTP.to_owned() + MISMATCHED + "! failed 0 too many pending calls";
    check_with(TransportKind::Http, ClientOptions { calls_max: 1, ..options() }, &with_meta(&script));
}

#[test]
fn the_session_header_is_sent_in_every_version() {
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
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}} [Mcp-Session-Id: S]
        ended 7 500
        > GET after 500 from Some("7") [Mcp-Session-Id: S]
    "#,
    );
}

#[test]
fn a_started_call_is_not_repeated_in_a_new_session() {
    in_session(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        ended 7 500
        > GET after 500 from Some("7") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        ! failed 0 HTTP 404
    "#,
    );
}

#[test]
fn all_calls_of_a_lost_session_continue_in_the_new_one() {
    in_session(
        r#"
        listen file:///a
        > {"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"file:///a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 200 {"jsonrpc":"2.0","id":2,"result":{}}
        ! listening 0 true ["file:///a"]
        call tools/call {"name":"a"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        call tools/call {"name":"b"}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"b"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        > {"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        at 3
        < 404
        at 5
        session T
        < 200 {"jsonrpc":"2.0","id":5,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > abort x1
        > GET after 0 from None [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":6,"method":"resources/subscribe","params":{"uri":"file:///a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"b"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        ! ready 2025-11-25 s
        at 6
        < 200 {"jsonrpc":"2.0","id":6,"result":{}}
        ! listening 0 true ["file:///a"]
    "#,
    );
}

#[test]
fn input_requests_end_with_their_call_and_session() {
    let caps = ClientCapabilities::ELICITATION_FORM;
    let script = r#"
        > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{}}},"clientInfo":{"name":"c","version":"1"}}}
        session S
        < 200 {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        > GET after 0 from None [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        ! ready 2025-11-25 s
        call tools/call {"name":"a"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < event {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}
        ! input_requested Elicitation {}
        < event {"jsonrpc":"2.0","id":2,"result":{}}
        ! input_cancelled
        ! done 0 {}
        answer {"action":"accept"}
        call tools/call {"name":"b"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"b"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < event {"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{}}
        ! input_requested Elicitation {}
        call tools/call {"name":"c"}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"c"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        > {"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{}}},"clientInfo":{"name":"c","version":"1"}}}
        ! input_cancelled
        at 3
        < event {"jsonrpc":"2.0","id":3,"method":"elicitation/create","params":{}}
    "#;
    check_with(
        TransportKind::Http,
        ClientOptions { capabilities: caps, version_policy: VersionPolicy::HandshakeOnly, ..options() },
        script,
    );
}

#[test]
fn a_subscription_of_the_handshake_era_starts_once_every_resource_has_a_response() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        listen file:///a file:///b
        > {"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"file:///a"}}
        > {"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"file:///b"}}
        < {"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"no such resource"}}
        ! warning cannot subscribe to `file:///b`: no such resource (-32602)
        < {"jsonrpc":"2.0","id":2,"result":{}}
        ! listening 0 true ["file:///a"]
        cancel 0
        > {"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}
        ! failed 0 cancelled
        < {"jsonrpc":"2.0","id":4,"result":{}}
        listen file:///c
        > {"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"file:///c"}}
        cancel 1
        > {"jsonrpc":"2.0","id":6,"method":"resources/unsubscribe","params":{"uri":"file:///c"}}
        ! failed 1 cancelled
        < {"jsonrpc":"2.0","id":5,"result":{}}
        listen
        ! listening 2 true []
    "#,
    );
}

#[test]
fn the_stream_position_survives_empty_connections() {
    in_session(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        ended 7 500
        > GET after 500 from Some("7") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        ended
        > GET after 500 from Some("7") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        cut
        > GET after 500 from Some("7") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < event {"jsonrpc":"2.0","id":2,"result":{}}
        ! done 0 {}
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        cut
        ! failed 1 cut
        at x1
        ended 0-4
        > GET after 1000 from Some("0-4") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        at x1
        cut
        > GET after 1000 from Some("0-4") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
    "#,
    );
}

#[test]
fn a_stream_of_a_lost_session_is_not_resumed() {
    in_session(
        r#"
        call tools/call {"name":"a"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        call tools/call {"name":"b"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"b"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        > {"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        session T
        < 200 {"jsonrpc":"2.0","id":4,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > abort x1
        > GET after 0 from None [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"b"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        ! ready 2025-11-25 s
        at 2
        ended 1-1 500
        ! failed 0 the stream ended before the response
    "#,
    );
}

#[test]
fn only_the_latest_log_level_is_sent_in_a_new_session() {
    let session =
        SESSION.replace(r#""capabilities":{},"serverInfo""#, r#""capabilities":{"logging":{}},"serverInfo""#);
    let script = r#"
        level error
        > {"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        level debug
        > {"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"debug"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        > {"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        session T
        < 200 {"jsonrpc":"2.0","id":4,"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > abort x1
        > GET after 0 from None [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"debug"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        ! ready 2025-11-25 s
        at 2
        < 404
    "#;
    check(TransportKind::Http, VersionPolicy::HandshakeOnly, &format!("{session}{script}"));
}

#[test]
fn an_error_without_a_request_explains_a_closed_connection() {
    let report = r#"
        < {"jsonrpc":"2.0","id":null,"error":{"code":-31004,"message":"a token is required"}}
        ! warning the server reports: a token is required (-31004)"#;
    on_pipe(&format!(
        "{report}
        closed the server closed its output
        ! closed a token is required (-31004)"
    ));
    // If the server continues, so does the client.
    on_pipe(&format!(
        r#"{report}
        < {{"jsonrpc":"2.0","id":1,"result":{{"supportedVersions":["2026-07-28"],"capabilities":{{}}}}}}
        ! ready 2026-07-28
        closed the server closed its output
        ! closed the server closed its output"#
    ));
}

#[test]
fn unsupported_versions_are_listed_in_the_error() {
    for (versions, error) in [
        (
            r#"["1999-01-01"]"#,
            "the server supports only protocol version 1999-01-01, which this client does not allow",
        ),
        (
            r#"["1999-01-01","1999-02-01"]"#,
            "the server supports only protocol versions 1999-01-01, 1999-02-01, none of which this client allows",
        ),
        ("[]", "the server names no protocol version"),
    ] {
        on_pipe(&format!(
            r#"
            < {{"jsonrpc":"2.0","id":1,"result":{{"supportedVersions":{versions},"capabilities":{{}}}}}}
            ! closed {error}"#
        ));
    }
}
