//! The floor: what HTTP or a pipe costs when there is no work to do.
//!
//! Reads each request to its end and sends one canned response, of the size of a real `tools/call` response. It is
//! not an MCP server: it never parses a request.
//!
//! `peer-floor --bind ADDR` or `peer-floor --stdio`

use std::io::{Read, Write};

use bench_peers::{CANNED_ANSWER, Transport};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match bench_peers::parse_transport(&args)? {
        Transport::Http(address) => bench_peers::block_on(bench_peers::serve(address, canned_response)),
        Transport::Stdio => answer_lines(),
    }
}

async fn canned_response(request: Request<Incoming>) -> Response<Full<Bytes>> {
    // Reads the body and discards it: the floor pays for reading and nothing else.
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    let mut response = Response::new(Full::new(Bytes::from_static(CANNED_ANSWER.as_bytes())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Writes one line for every line read; answers all lines of one read in one write.
fn answer_lines() -> anyhow::Result<()> {
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    let mut buffer = vec![0; 64 * 1024];
    let mut answers = Vec::new();
    loop {
        let read = input.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        answers.clear();
        for _ in buffer[..read].iter().filter(|&&byte| byte == b'\n') {
            answers.extend_from_slice(CANNED_ANSWER.as_bytes());
            answers.push(b'\n');
        }
        output.write_all(&answers)?;
        output.flush()?;
    }
}
