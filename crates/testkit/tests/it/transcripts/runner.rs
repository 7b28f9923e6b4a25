//! Runs one transcript: sends the client's lines, reads the server's, compares.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::harness::Harness;
use super::http::{Response, TestHttpServer};
use super::matching::{Bindings, match_message, match_text, substitute};
use super::pipe::StdioClient;
use super::schema_checker::SchemaChecker;
use super::sse::SseClient;
use super::transcript::{Action, Expected, Step, Transcript, TransportKind};

/// `Err` says where the conversation differs, with everything before.
pub fn run_transcript(script: &Transcript) -> Result<(), String> {
    let harness = Harness::start(script);
    let mut player = TranscriptRunner {
        variables: script.variables.clone(),
        schema_checker: SchemaChecker::new(&script.version, script.transport),
        log: Vec::new(),
        connection: match script.transport {
            TransportKind::Stdio => Connection::Stdio(StdioClient::open(&harness, script.framing)),
            TransportKind::Sse => Connection::Sse(SseClient::open(&harness)?),
            TransportKind::Http => Connection::Http(HttpConnection {
                server: TestHttpServer::open(&harness),
                session: None,
                headers: Vec::new(),
                responses: HashMap::new(),
            }),
        },
        harness,
    };
    for step in &script.steps {
        player.step(step).map_err(|(line, reason)| player.report(&script.location(line), &reason))?;
    }
    player.finish().map_err(|reason| player.report("at the end", &reason))
}

struct TranscriptRunner {
    harness: Harness,
    connection: Connection,
    schema_checker: SchemaChecker,
    variables: Vec<(String, String)>,
    /// The conversation so far, for the error message.
    log: Vec<String>,
}

enum Connection {
    Stdio(StdioClient),
    Http(HttpConnection),
    Sse(SseClient),
}

struct HttpConnection {
    server: TestHttpServer,
    session: Option<String>,
    /// Headers of the next request.
    headers: Vec<(String, String)>,
    /// The last response on each connection.
    responses: HashMap<String, Response>,
}

/// What a transcript sends over HTTP on its main connection, as one client sends it that waits for no answer: in a session
/// with this id, if it opens one. Streams are not opened: they would never end.
pub fn http_conversation(script: &Transcript, session: &str) -> Vec<Vec<u8>> {
    let (mut requests, mut own_headers, mut in_session) = (Vec::new(), Vec::new(), false);
    let mut variables = script.variables.clone();
    variables.push(("session".into(), session.to_owned()));
    for step in script.steps.iter().filter(|step| step.connection.is_empty()) {
        let (method, message, body) = match &step.action {
            Action::Let { name, text } => {
                variables.push((name.clone(), substitute(text, &variables)));
                continue;
            }
            Action::Header { name, value } => {
                own_headers.push((name.clone(), substitute(value, &variables)));
                continue;
            }
            Action::Send { text, .. } => {
                let text = substitute(text, &variables);
                ("POST", serde_json::from_str(&text).unwrap_or_default(), text.into_bytes())
            }
            Action::Raw(bytes) => ("POST", Value::Null, bytes.clone()),
            Action::Request("DELETE") => ("DELETE", Value::Null, Vec::new()),
            _ => continue,
        };
        let mut headers = standard_headers(&message);
        if headers.len() == STANDARD_HEADERS_MIN && in_session {
            headers.push(("Mcp-Session-Id".into(), session.to_owned()));
            headers.push(("MCP-Protocol-Version".into(), script.version.clone()));
        }
        in_session |= message["method"] == "initialize";
        let headers = with_own_headers(headers, std::mem::take(&mut own_headers));
        let mut request = format!("{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        request += &format!("Content-Length: {}\r\n\r\n", body.len());
        requests.push([request.into_bytes(), body].concat());
    }
    requests
}

/// The headers of a request, with those that the transcript names for it, or without: `-Accept`.
fn with_own_headers(standard: Vec<(String, String)>, own: Vec<(String, String)>) -> Vec<(String, String)> {
    let replaced =
        |name: &str| own.iter().any(|(own, _)| own.trim_start_matches('-').eq_ignore_ascii_case(name));
    let mut headers: Vec<_> = standard.into_iter().filter(|(name, _)| !replaced(name)).collect();
    headers.extend(own.into_iter().filter(|(name, _)| !name.starts_with('-')));
    headers
}

/// `Content-Type` and `Accept`.
const STANDARD_HEADERS_MIN: usize = 2;

/// The headers of a message, without those of a session.
fn standard_headers(message: &Value) -> Vec<(String, String)> {
    let mut headers = vec![
        ("Content-Type".into(), "application/json".into()),
        ("Accept".into(), "application/json, text/event-stream".into()),
    ];
    let params = &message["params"];
    let Some(version) = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str() else {
        return headers;
    };
    headers.push(("MCP-Protocol-Version".into(), version.into()));
    headers.push(("Mcp-Method".into(), message["method"].as_str().unwrap_or_default().into()));
    let name = ["name", "uri", "taskId"].iter().find_map(|key| params[key].as_str());
    if let Some(name) = name {
        let plain = name.bytes().all(|c| c.is_ascii_graphic());
        let value = if plain { name.into() } else { format!("=?base64?{}?=", STANDARD.encode(name)) };
        headers.push(("Mcp-Name".into(), value));
    }
    headers
}

/// Where it differs, and why.
type StepError = (usize, String);

impl TranscriptRunner {
    fn report(&self, place: &str, reason: &str) -> String {
        let before = &self.log[self.log.len().saturating_sub(12)..];
        let before: Vec<String> = before.iter().map(|line| format!("    {line}")).collect();
        format!("  {place}: {reason}\n{}", before.join("\n"))
    }

    fn step(&mut self, step: &Step) -> Result<(), StepError> {
        let wrong = |reason: String| (step.line, reason);
        match &step.action {
            Action::Let { name, text } => {
                let text = self.substitute(text);
                self.variables.push((name.clone(), text));
                Ok(())
            }
            Action::Send { text, conforms } => {
                let text = self.substitute(text);
                self.log.push(format!("> {text}"));
                self.schema_checker.check_client(&text, *conforms).map_err(wrong)?;
                self.send(&step.connection, &text).map_err(wrong)
            }
            Action::Raw(bytes) => {
                self.log.push(format!(">raw {}", bytes.escape_ascii()));
                self.schema_checker.observe_raw(bytes);
                match &mut self.connection {
                    Connection::Stdio(pipe) => pipe.send_raw(bytes),
                    Connection::Http(http) => {
                        http.send(&step.connection, "POST", http.standard_headers(&Value::Null, ""), bytes)
                    }
                    Connection::Sse(posts) => posts.send(bytes.trim_ascii_end()),
                }
                .map_err(wrong)
            }
            Action::Header { name, value } => {
                let value = self.substitute(value);
                if let Connection::Http(http) = &mut self.connection {
                    http.headers.push((name.clone(), value));
                }
                Ok(())
            }
            Action::Request(method) => {
                self.log.push(format!(">{}", method.to_lowercase()));
                let Connection::Http(http) = &mut self.connection else { return Ok(()) };
                let mut headers = http.session_headers(&self.schema_checker.version);
                headers.push(("Accept".into(), "text/event-stream".into()));
                http.send(&step.connection, method, headers, b"").map_err(wrong)
            }
            Action::Expect(block) => self.expect(&step.connection, block),
            Action::Status(status) => {
                let Some(response) = self.response(&step.connection).map_err(wrong)? else { return Ok(()) };
                let said = response.status().map_err(wrong)?;
                if said == *status { Ok(()) } else { Err(wrong(format!("the status is {said}"))) }
            }
            Action::ExpectHeader { name, value } => {
                let value = self.substitute(value);
                let Some(response) = self.response(&step.connection).map_err(wrong)? else { return Ok(()) };
                let said = response.header(name).map_err(wrong)?.unwrap_or("-").to_owned();
                let learned = match_text(&value, &said).map_err(wrong)?;
                self.variables.extend(learned);
                Ok(())
            }
            Action::Event(field) => {
                let field = self.substitute(field);
                let Some(response) = self.response(&step.connection).map_err(wrong)? else { return Ok(()) };
                let said = response.next_field().map_err(wrong)?.unwrap_or_else(|| "the end".into());
                self.log.push(format!("<e {said}"));
                let learned = match_text(&field, said.trim_end()).map_err(wrong)?;
                self.variables.extend(learned);
                Ok(())
            }
            Action::End => match self.next(&step.connection).map_err(wrong)? {
                None => Ok(()),
                Some(more) => Err(wrong(format!("instead of the end came {more}"))),
            },
            Action::AdvanceTime { ms } => {
                self.harness.advance_time(Duration::from_millis(*ms));
                Ok(())
            }
            Action::Close => {
                match &mut self.connection {
                    Connection::Stdio(pipe) => pipe.close(),
                    Connection::Http(http) if step.connection.is_empty() => http.server.close(),
                    Connection::Http(http) => drop(http.responses.remove(&step.connection)),
                    Connection::Sse(posts) => posts.close(),
                }
                Ok(())
            }
        }
    }

    fn substitute(&self, text: &str) -> String {
        substitute(text, &self.variables)
    }

    fn send(&mut self, on: &str, text: &str) -> Result<(), String> {
        match &mut self.connection {
            Connection::Stdio(pipe) => pipe.send(text),
            Connection::Sse(posts) => posts.send(text.as_bytes()),
            Connection::Http(http) => {
                let message = serde_json::from_str(text).unwrap_or_default();
                let headers = http.standard_headers(&message, &self.schema_checker.version);
                http.send(on, "POST", headers, text.as_bytes())
            }
        }
    }

    /// Reads as many messages as the block has lines, in order except for `<*` lines.
    fn expect(&mut self, on: &str, block: &[Expected]) -> Result<(), StepError> {
        let mut open: Vec<&Expected> = block.iter().collect();
        while let Some(first) = open.first() {
            let line = first.line;
            let said = self.next(on).map_err(|reason| (line, reason))?;
            let Some(said) = said else { return Err((line, "the server has ended".into())) };
            self.schema_checker
                .check_server(&said)
                .map_err(|reason| (line, format!("{reason}\n    {said}")))?;
            let mut reason = String::new();
            let mut found: Option<(usize, Bindings)> = None;
            let next_in_order = open.iter().position(|expected| !expected.any_order);
            let floating = (0..open.len()).filter(|i| open[*i].any_order);
            for i in next_in_order.into_iter().chain(floating) {
                match match_message(&substitute(&open[i].text, &self.variables), &said) {
                    Ok(learned) => {
                        found = Some((i, learned));
                        break;
                    }
                    Err(differs) => reason += &format!("\n      line {}: {differs}", open[i].line),
                }
            }
            let Some((i, learned)) = found else { return Err((line, format!("unlike what came:{reason}"))) };
            open.remove(i);
            self.variables.extend(learned);
            if let Connection::Http(http) = &mut self.connection {
                http.remember_session(on);
            }
        }
        Ok(())
    }

    fn next(&mut self, on: &str) -> Result<Option<String>, String> {
        let said = match &mut self.connection {
            Connection::Stdio(pipe) => pipe.next(&self.harness),
            Connection::Sse(posts) => posts.next(&self.harness),
            Connection::Http(http) => http.response(on)?.next(),
        }?;
        if let Some(said) = &said {
            self.log.push(format!("< {said}"));
        }
        Ok(said)
    }

    /// The last response on a connection; `None` without HTTP.
    fn response(&mut self, on: &str) -> Result<Option<&mut Response>, String> {
        match &mut self.connection {
            Connection::Stdio(_) | Connection::Sse(_) => Ok(None),
            Connection::Http(http) => http.response(on).map(Some),
        }
    }

    /// Closes the client's end; unexpected messages after that are an error.
    fn finish(&mut self) -> Result<(), String> {
        match &mut self.connection {
            Connection::Http(http) => {
                // A named connection may end in any way.
                let mut wanted = http.responses.iter_mut().filter(|(on, r)| on.is_empty() || r.is_started());
                wanted.try_for_each(|(_, response)| check_unread(response))
            }
            Connection::Stdio(pipe) => {
                pipe.close();
                match pipe.next(&self.harness)? {
                    Some(more) => Err(format!("nothing more was expected, and then came {more}")),
                    None => pipe.exit_result(),
                }
            }
            Connection::Sse(posts) => {
                posts.close();
                match posts.next(&self.harness)? {
                    Some(more) => Err(format!("nothing more was expected, and then came {more}")),
                    None => Ok(()),
                }
            }
        }
    }
}

impl HttpConnection {
    fn response(&mut self, on: &str) -> Result<&mut Response, String> {
        self.responses.get_mut(on).ok_or_else(|| "nothing was asked on this connection".into())
    }

    fn send(
        &mut self,
        on: &str,
        method: &str,
        standard: Vec<(String, String)>,
        body: &[u8],
    ) -> Result<(), String> {
        if let Some(before) = self.responses.get_mut(on) {
            check_unread(before)?;
        }
        let headers = with_own_headers(standard, std::mem::take(&mut self.headers));
        let response = Response::send(self.server.address, method, "/mcp", &headers, body)?;
        self.responses.insert(on.to_owned(), response);
        Ok(())
    }

    /// The headers that a correct client sends with a message.
    fn standard_headers(&self, message: &Value, negotiated: &str) -> Vec<(String, String)> {
        let mut headers = standard_headers(message);
        if headers.len() == STANDARD_HEADERS_MIN {
            headers.extend(self.session_headers(negotiated));
        }
        headers
    }

    fn session_headers(&self, negotiated: &str) -> Vec<(String, String)> {
        let Some(session) = &self.session else { return Vec::new() };
        vec![("Mcp-Session-Id".into(), session.clone()), ("MCP-Protocol-Version".into(), negotiated.into())]
    }

    /// A handshake returns the session of the requests that follow.
    fn remember_session(&mut self, on: &str) {
        let given = self.responses.get_mut(on).map(|response| response.header("mcp-session-id"));
        if let Some(Ok(Some(session))) = given {
            self.session = Some(session.to_owned());
        }
    }
}

/// A response that the transcript does not read is unexpected; a stream may simply go on.
fn check_unread(response: &mut Response) -> Result<(), String> {
    match response.unread()? {
        None => Ok(()),
        Some(more) => Err(format!("an answer was not expected: {} {more}", response.status()?)),
    }
}
