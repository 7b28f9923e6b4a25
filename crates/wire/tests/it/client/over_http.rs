//! The client over HTTP: headers, statuses, sessions and streams.

use wire::client::{TransportKind, VersionPolicy};

use super::{check, with_meta};

pub(super) const HTTP: &str = r#"
    > {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: server/discover]
"#;

pub(super) fn over_http(rest: &str) {
    check(TransportKind::Http, VersionPolicy::Any, &with_meta(&format!("{HTTP}{rest}")));
}

#[test]
fn headers_repeat_method_name_and_arguments() {
    over_http(
        r#"
        < 200 {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
        list tools
        > {"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/list]
        < 200 {"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"größe","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}},{"name":"bad","inputSchema":{"properties":{"r":{"type":"number","x-mcp-header":"R"}}}}]}}
        ! warning skipped tool `bad`: `x-mcp-header` of `r`: only a string, an integer or a boolean can be sent in a header
        ! listed 0 [{"name":"größe","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}}]
        call tools/call {"name":"größe","arguments":{"r":"x"}}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"größe","arguments":{"r":"x"},"_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/call] [Mcp-Name: =?base64?Z3LDtsOfZQ==?=] [Mcp-Param-R: x]
        < 200 {"jsonrpc":"2.0","id":3,"result":{}}
        ! done 1 {}
    "#,
    );
}

#[test]
fn a_header_mismatch_refreshes_the_tools_and_retries() {
    over_http(
        r#"
        < 200 {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
        call tools/call {"name":"t","arguments":{"r":7}}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{"r":7},"_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/call] [Mcp-Name: t]
        < 400 {"jsonrpc":"2.0","id":2,"error":{"code":-32020,"message":"header Mcp-Param-R is missing"}}
        > {"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/list]
        < 200 {"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"t","inputSchema":{"properties":{"r":{"type":"integer","x-mcp-header":"R"}}}}]}}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t","arguments":{"r":7},"_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/call] [Mcp-Name: t] [Mcp-Param-R: 7]
        < 400 {"jsonrpc":"2.0","id":4,"error":{"code":-32020,"message":"again"}}
        ! failed 0 again (-32020)
    "#,
    );
}

#[test]
fn over_http_only_a_client_error_without_a_modern_body_means_the_handshake_era() {
    let initialize = r#"> {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    for answer in [
        "400",
        "400 Bad Request: no valid session ID provided",
        r#"400 {"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Server not initialized"}}"#,
        r#"404 {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}"#,
        "405",
        "406",
        "415",
        r#"200 {"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}"#,
    ] {
        over_http(&format!("< {answer}\n{initialize}"));
    }
    for (response, error) in [
        ("401", "the server requires authentication (HTTP 401)"),
        ("403 no", "the server denies access (HTTP 403)"),
        ("500 oops", "HTTP 500: oops"),
        ("502", "HTTP 502"),
        ("503", "HTTP 503"),
        ("429", "HTTP 429"),
        ("301", "HTTP 301: redirects are not followed; use the address that this one leads to"),
        ("200 <html>", "the response is not readable: not valid JSON at byte 0: `<html>`"),
        ("200", "HTTP 200 without a body, in response to a request"),
        ("202", "HTTP 202 without a body, in response to a request"),
        (r#"400 {"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"caps"}}"#, "caps (-32021)"),
        (
            r#"400 {"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"?","data":{"supported":["2030-01-01"]}}}"#,
            "the server supports only protocol version 2030-01-01, which this client does not allow",
        ),
    ] {
        over_http(&format!("< {response}\n! closed {error}"));
    }
    // Over HTTP, no response means an outage.
    over_http("wait 30000\n! closed no response within 30000 ms");
}

pub(super) const SESSION: &str = r#"
    > {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
    session S
    < 200 {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
    > {"jsonrpc":"2.0","method":"notifications/initialized"} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
    > GET after 0 from None [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
    ! ready 2025-11-25 s
    < 202
"#;

pub(super) fn in_session(rest: &str) {
    check(TransportKind::Http, VersionPolicy::HandshakeOnly, &format!("{SESSION}{rest}"));
}

#[test]
fn a_broken_stream_is_resumed() {
    in_session(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        ended 7 500
        > GET after 500 from Some("7") [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < event {"jsonrpc":"2.0","id":2,"result":{"content":[]}}
        ! done 0 {"content":[]}
        ended 8
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        ended
        ! failed 1 the stream ended before the response
    "#,
    );
    // 2026-07-28 has no event ids to resume from.
    over_http(
        r#"
        < 200 {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/call] [Mcp-Name: t]
        ended 7 500
        ! failed 0 the stream ended before the response
    "#,
    );
}

#[test]
fn an_unknown_session_is_restarted_once() {
    in_session(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 404
        > {"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
        session T
        < 200 {"jsonrpc":"2.0","id":3,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"0"}}}
        > {"jsonrpc":"2.0","method":"notifications/initialized"} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > abort x1
        > GET after 0 from None [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: T]
        ! ready 2025-11-25 s
        < 404
        ! failed 0 HTTP 404
    "#,
    );
}

#[test]
fn cancelling_over_http_aborts_and_notifies_in_the_handshake_era() {
    in_session(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        cancel 0
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the caller cancelled the request"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        > abort 2
        ! failed 0 cancelled
    "#,
    );
    over_http(
        r#"
        < 200 {"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}
        ! ready 2026-07-28
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{META}}} [MCP-Protocol-Version: 2026-07-28] [Mcp-Method: tools/call] [Mcp-Name: t]
        cancel 0
        > abort 2
        ! failed 0 cancelled
    "#,
    );
}

#[test]
fn a_call_without_a_response_of_its_own_fails() {
    in_session(
        r#"
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 200 {"jsonrpc":"2.0","id":77,"result":{}}
        ! failed 0 the HTTP response does not contain the response to the request
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 503 down for a moment
        ! failed 1 HTTP 503: down for a moment
        call tools/call {"name":"t"}
        > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}} [MCP-Protocol-Version: 2025-11-25] [Mcp-Session-Id: S]
        < 400 {"jsonrpc":"2.0","error":{"code":-32600,"message":"no id here"}}
        ! failed 2 no id here (-32600)
    "#,
    );
}
