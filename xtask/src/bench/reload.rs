//! How long a changed tool takes: from the write of its file to the first answer of the new code, in `spile serve`, which
//! follows files as `spile dev` does.
//!
//! A client calls the tool again and again on one connection, so the time includes the look at the files, compiling, loading
//! and the call.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::peers::{Binaries, HttpPeer, Instrumentation};
use super::report::median;

/// Other tools of the folder, which do not change.
const OTHER_TOOLS: usize = 20;
const DEADLINE: Duration = Duration::from_secs(10);

/// The median, in milliseconds.
pub fn changed_tool_ms(binaries: &Binaries, rounds: u32) -> anyhow::Result<f64> {
    let folder = binaries.data.path().join("changing");
    std::fs::create_dir_all(folder.join("tools"))?;
    for n in 0..OTHER_TOOLS {
        write_tool(&folder.join(format!("tools/other_{n}.ts")), &format!("other {n}"))?;
    }
    let tool = folder.join("tools/changing.ts");
    write_tool(&tool, "version 0")?;
    let server = HttpPeer::start_product(&folder, binaries, Instrumentation::Uninstrumented(None))?;
    let mut client = Client::connect(&server)?;
    client.call_until("version 0")?;
    let mut times_ms = Vec::new();
    for round in 1..=rounds {
        let version = format!("version {round}");
        // Not always at the same moment between two looks.
        std::thread::sleep(Duration::from_millis(100 + u64::from(round * 7 % 20)));
        let begun = Instant::now();
        write_tool(&tool, &version)?;
        client.call_until(&version)?;
        times_ms.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    median(&times_ms).context("no rounds")
}

fn write_tool(path: &Path, text: &str) -> anyhow::Result<()> {
    let code = format!(
        "/** Says something. */\nexport default ({{ name }}: {{ name?: string }}) => `${{name ?? \"you\"}}: {text}`;\n"
    );
    std::fs::write(path, code).with_context(|| path.display().to_string())
}

/// One connection that stays open.
struct Client {
    reader: BufReader<TcpStream>,
    request: String,
}

impl Client {
    fn connect(server: &HttpPeer) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(server.address)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_nodelay(true)?;
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"changing","arguments":{{}},{meta}}}}}"#
        );
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: changing\r\nContent-Length: {}\r\n\r\n{body}",
            server.address,
            body.len()
        );
        Ok(Self { reader: BufReader::new(stream), request })
    }

    fn call_until(&mut self, expected: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        let expected = format!("{expected}\"");
        loop {
            let answer = self.call()?;
            if answer.contains(&expected) {
                return Ok(());
            }
            ensure!(begun.elapsed() < DEADLINE, "the change is never served: {answer}");
        }
    }

    fn call(&mut self) -> anyhow::Result<String> {
        self.reader.get_mut().write_all(self.request.as_bytes())?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            ensure!(self.reader.read_line(&mut line)? > 0, "the server closed the connection");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok(String::from_utf8(body)?)
    }
}
