//! How a WebSocket closes, seen from the server.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use upstream::{Connection, ConnectionOptions, NoopClientHandler, Target};

/// Sends these bytes after the handshake and returns the client's close code.
async fn close_code_for(sent: &[u8]) -> Option<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("ws://{}/", listener.local_addr().expect("an address"));
    let client = tokio::spawn(async move {
        let target = Target::parse(&url).expect("an address");
        // The connection fails; the close code shows how.
        let _ = Connection::open(&target, ConnectionOptions::default(), Arc::new(NoopClientHandler)).await;
    });
    let (stream, _) = listener.accept().await.expect("a client");
    #[expect(clippy::result_large_err, reason = "the library wants it so")]
    let speaks = |_: &Request, mut response: Response| {
        response.headers_mut().insert("Sec-WebSocket-Protocol", "mcp".parse().expect("a header"));
        Ok(response)
    };
    let mut socket = tokio_tungstenite::accept_hdr_async(stream, speaks).await.expect("a handshake");
    socket.get_mut().write_all(sent).await.expect("it is read");
    let mut code = None;
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Close(Some(frame)) = message {
            code = Some(frame.code.into());
        }
    }
    drop(socket);
    client.await.expect("it does not panic");
    code
}

#[tokio::test]
async fn close_is_answered_and_violations_get_a_close_code() {
    for (what, sent, expected) in [
        ("a close", &[0x88, 2, 0x03, 0xe8][..], 1000),
        ("a close that says why", b"\x88\x05\x03\xe9bye", 1001),
        ("an unknown frame", &[0x83, 0], 1002),
        ("a reserved bit", &[0xc1, 0], 1002),
        ("a masked frame", &[0x81, 0x80, 1, 2, 3, 4], 1002),
        ("a piece of nothing", &[0x80, 0], 1002),
        ("a close code that is none", &[0x88, 2, 0x03, 0xed], 1002),
        ("no UTF-8", &[0x81, 2, 0xc0, 0xaf], 1007),
        ("more than it takes", &[0x81, 0x7f, 0, 0, 0, 0, 0x40, 0, 0, 0], 1009),
    ] {
        assert_eq!(close_code_for(sent).await, Some(expected), "{what}");
    }
}
