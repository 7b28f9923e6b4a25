//! Request ids, typed errors and warnings, and messages that the client skips.

use json::Json;
use wire::client::{
    Client, ClientCall, ClientError, ClientEvent, ClientOptions, CloseReason, TransportKind, VersionMismatch,
    VersionPolicy, WarningKind,
};
use wire::method::Method;

use super::{on_initialized_pipe, options};

#[test]
fn request_ids_count_from_one_without_gaps() {
    on_initialized_pipe(
        "2025-11-25",
        r#"
        call tools/call {"name":"a"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}
        level debug
        > {"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"debug"}}
        < {"jsonrpc":"2.0","id":"p","method":"ping"}
        > {"jsonrpc":"2.0","id":"p","result":{}}
        cancel 0
        > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"the caller cancelled the request"}}
        ! failed 0 cancelled
        list tools
        > {"jsonrpc":"2.0","id":4,"method":"tools/list"}
    "#,
    );
}

#[test]
fn errors_and_warnings_are_variants() {
    let mut client = Client::new(
        ClientOptions { version_policy: VersionPolicy::HandshakeOnly, ..options() },
        TransportKind::Pipe,
    );
    client.start(0);
    client.receive(b"a log line".to_vec(), None, 0);
    client.receive(
        br#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1999-01-01","capabilities":{}}}"#.to_vec(),
        None,
        0,
    );
    client.call(ClientCall::new(Method::ToolsCall, Json::object(|_| ())), 0);
    let events: Vec<ClientEvent> = std::iter::from_fn(|| client.next_event()).collect();
    let [ClientEvent::Warning(warning), ClientEvent::Closed(closed), ClientEvent::Failed { error, .. }] =
        &*events
    else {
        panic!("{events:?}")
    };
    assert_eq!(warning.kind, WarningKind::SkippedMessage);
    assert!(matches!(
        closed,
        ClientError::UnsupportedVersion(VersionMismatch::NoCommonVersion { supported }) if *supported == ["1999-01-01"]
    ));
    assert!(matches!(error, ClientError::ConnectionClosed(CloseReason::AlreadyClosed)));
}

#[test]
fn unexpected_messages_are_skipped() {
    on_initialized_pipe(
        "2025-03-26",
        r#"
        < Server listening on stdin
        ! warning skipped an unreadable message: not valid JSON at byte 0: `Server listening on stdin`
        < 7
        ! warning skipped a message that is not an object: `7`
        < {"jsonrpc":"2.0"}
        ! warning skipped a message that is neither a request nor a response: `{\"jsonrpc\":\"2.0\"}`
        < {"jsonrpc":"2.0","id":99,"result":{}}
        < {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}
        ! warning the server reports: parse error (-32700)
        < {"jsonrpc":"2.0","method":"notifications/unheard_of"}
        call tools/call {"name":"a"}
        > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}
        call tools/call {"name":"b"}
        > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"b"}}
        < [{"jsonrpc":"2.0","id":3,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]
        ! done 1 {}
        ! done 0 {}
    "#,
    );
}
