//! A client of a server on stdio that sends calls without waiting for their responses.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Far longer than anything here takes.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The most responses that are buffered.
const BUFFERED_RESPONSES_MAX: usize = 1024;

pub(super) struct StdioClient {
    child: Child,
    input: Option<ChildStdin>,
    responses: Receiver<Value>,
    /// Responses that arrived before they were asked for.
    received: BTreeMap<u64, Value>,
    next_id: u64,
}

impl StdioClient {
    pub(super) fn start(spile: &Path, folder: &Path) -> Result<Self> {
        let mut child = Command::new(spile)
            .arg("serve")
            .current_dir(folder)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("`{}` cannot be started", spile.display()))?;
        let output = child.stdout.take().context("its stdout is a pipe")?;
        // When it is full, the server has to wait, as with a client that does not read.
        let (send, answers) = sync_channel(BUFFERED_RESPONSES_MAX);
        std::thread::spawn(move || {
            // A line cut off by the end of the process is not a response.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(answer) = serde_json::from_str(&line) else { break };
                if send.send(answer).is_err() {
                    break;
                }
            }
        });
        let input = child.stdin.take();
        Ok(Self { child, input, responses: answers, received: BTreeMap::new(), next_id: 1 })
    }

    /// Calls a tool and returns the request id; `None` if the server reads no more.
    pub(super) fn send(&mut self, tool: &str, arguments: &Value) -> Option<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": wire::Version::NEWEST.as_str(),
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let input = self.input.as_mut()?;
        writeln!(input, "{call}").and_then(|()| input.flush()).ok()?;
        Some(id)
    }

    /// The structured result of a call.
    pub(super) fn wait_for_result(&mut self, id: u64) -> Result<Value> {
        loop {
            if let Some(answer) = self.received.remove(&id) {
                return structured_result(&answer);
            }
            match self.responses.recv_timeout(RESPONSE_TIMEOUT) {
                Ok(answer) => self.store_response(answer),
                Err(RecvTimeoutError::Timeout) => bail!("no answer to call {id}"),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the server ended before call {id} was answered")
                }
            }
        }
    }

    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let id = self.send(tool, arguments).context("the server reads no more")?;
        self.wait_for_result(id)
    }

    /// Kills the server and returns all its responses by id.
    pub(super) fn kill(mut self) -> Result<BTreeMap<u64, Result<Value>>> {
        self.child.kill()?;
        self.child.wait()?;
        while let Ok(answer) = self.responses.recv() {
            self.store_response(answer);
        }
        Ok(self.received.iter().map(|(id, answer)| (*id, structured_result(answer))).collect())
    }

    /// Closes stdin and waits for the server to exit, as clients do.
    pub(super) fn close(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { bail!("the server ended with {status}") }
    }

    fn store_response(&mut self, answer: Value) {
        if let Some(id) = answer["id"].as_u64() {
            self.received.insert(id, answer);
        }
    }
}

fn structured_result(answer: &Value) -> Result<Value> {
    let result = &answer["result"];
    if result["isError"].as_bool() == Some(true) || !result["structuredContent"].is_object() {
        bail!("refused: {answer}");
    }
    Ok(result["structuredContent"].clone())
}
