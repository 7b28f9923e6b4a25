//! The raw floor: what a request costs on a socket when almost nothing is done with it.
//!
//! Reads with tokio, finds the end of each request with httparse, and writes one canned response. It is the limit that no
//! server with an HTTP library reaches, and neither an MCP server nor a safe HTTP server.
//!
//! `peer-raw-floor --bind ADDR`

use std::net::SocketAddr;

use anyhow::{Context, bail};
use bench_peers::{CANNED_ANSWER, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HEADERS_MAX: usize = 32;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match bench_peers::parse_transport(&args)? {
        Transport::Http(address) => bench_peers::block_on(serve(address)),
        Transport::Stdio => bail!("the raw floor has no pipe; use `peer-floor --stdio`"),
    }
}

async fn serve(address: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails is the client's concern.
        tokio::spawn(async move { drop(answer_requests(stream).await) });
    }
}

async fn answer_requests(mut stream: TcpStream) -> anyhow::Result<()> {
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{CANNED_ANSWER}",
        CANNED_ANSWER.len()
    );
    let mut buffer = vec![0; 16 << 10];
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        while let Some(end) = request_bytes(&buffer[..filled])? {
            if end > filled {
                break;
            }
            buffer.copy_within(end..filled, 0);
            filled -= end;
            stream.write_all(response.as_bytes()).await?;
        }
    }
}

/// The size of the first request, once its head is complete.
fn request_bytes(bytes: &[u8]) -> anyhow::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = request.parse(bytes)? else { return Ok(None) };
    let length = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.map_or(Ok("0"), |header| std::str::from_utf8(header.value))?;
    Ok(Some(head_bytes + length.parse::<usize>()?))
}
