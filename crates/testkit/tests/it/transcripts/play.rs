//! Plays one transcript: says the client's lines, hears the server's, compares.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::http::{Doorstep, Response};
use super::judge::Judge;
use super::like::{Learned, filled, like, like_text};
use super::pipe::Pipe;
use super::script::{Act, Door, Expected, Script, Step};
use super::sse::Posts;
use super::theatre::Theatre;

/// `Err` says where the conversation went another way, and what was said before.
pub fn play(script: &Script) -> Result<(), String> {
    let theatre = Theatre::open(script);
    let mut player = Player {
        lets: script.lets.clone(),
        judge: Judge::new(&script.version, script.door),
        said: Vec::new(),
        line: match script.door {
            Door::Stdio => Line::Pipe(Pipe::open(&theatre, script.framing)),
            Door::Sse => Line::Posts(Posts::open(&theatre)?),
            Door::Http => Line::Http(Http {
                site: Doorstep::open(&theatre),
                session: None,
                headers: Vec::new(),
                responses: HashMap::new(),
            }),
        },
        theatre,
    };
    for step in &script.steps {
        player.step(step).map_err(|(line, why)| player.report(&script.place(line), &why))?;
    }
    player.finish().map_err(|why| player.report("at the end", &why))
}

struct Player {
    theatre: Theatre,
    line: Line,
    judge: Judge,
    lets: Vec<(String, String)>,
    /// Everything so far, for whoever has to find out.
    said: Vec<String>,
}

enum Line {
    Pipe(Pipe),
    Http(Http),
    Posts(Posts),
}

struct Http {
    site: Doorstep,
    session: Option<String>,
    /// For the next request.
    headers: Vec<(String, String)>,
    /// The last response on each connection.
    responses: HashMap<String, Response>,
}

/// Where, and why.
type Wrong = (usize, String);

impl Player {
    fn report(&self, place: &str, why: &str) -> String {
        let before = &self.said[self.said.len().saturating_sub(12)..];
        let before: Vec<String> = before.iter().map(|line| format!("    {line}")).collect();
        format!("  {place}: {why}\n{}", before.join("\n"))
    }

    fn step(&mut self, step: &Step) -> Result<(), Wrong> {
        let wrong = |why: String| (step.line, why);
        match &step.act {
            Act::Let { name, text } => {
                let text = self.filled(text);
                self.lets.push((name.clone(), text));
                Ok(())
            }
            Act::Send { text, conforms } => {
                let text = self.filled(text);
                self.said.push(format!("> {text}"));
                self.judge.client(&text, *conforms).map_err(wrong)?;
                self.send(&step.on, &text).map_err(wrong)
            }
            Act::Raw(bytes) => {
                self.said.push(format!(">raw {}", bytes.escape_ascii()));
                self.judge.overhear(bytes);
                match &mut self.line {
                    Line::Pipe(pipe) => pipe.send_raw(bytes),
                    Line::Http(http) => http.send(&step.on, "POST", http.standard(&Value::Null, ""), bytes),
                    Line::Posts(posts) => posts.send(bytes.trim_ascii_end()),
                }
                .map_err(wrong)
            }
            Act::Header { name, value } => {
                let value = self.filled(value);
                if let Line::Http(http) = &mut self.line {
                    http.headers.push((name.clone(), value));
                }
                Ok(())
            }
            Act::Request(method) => {
                self.said.push(format!(">{}", method.to_lowercase()));
                let Line::Http(http) = &mut self.line else { return Ok(()) };
                let mut headers = http.of_session(&self.judge.version);
                headers.push(("Accept".into(), "text/event-stream".into()));
                http.send(&step.on, method, headers, b"").map_err(wrong)
            }
            Act::Expect(block) => self.expect(&step.on, block),
            Act::Status(status) => {
                let Some(response) = self.response(&step.on).map_err(wrong)? else { return Ok(()) };
                let said = response.status().map_err(wrong)?;
                if said == *status { Ok(()) } else { Err(wrong(format!("the status is {said}"))) }
            }
            Act::ExpectHeader { name, value } => {
                let value = self.filled(value);
                let Some(response) = self.response(&step.on).map_err(wrong)? else { return Ok(()) };
                let said = response.header(name).map_err(wrong)?.unwrap_or("-").to_owned();
                let learned = like_text(&value, &said).map_err(wrong)?;
                self.lets.extend(learned);
                Ok(())
            }
            Act::Event(field) => {
                let field = self.filled(field);
                let Some(response) = self.response(&step.on).map_err(wrong)? else { return Ok(()) };
                let said = response.field().map_err(wrong)?.unwrap_or_else(|| "the end".into());
                self.said.push(format!("<e {said}"));
                let learned = like_text(&field, said.trim_end()).map_err(wrong)?;
                self.lets.extend(learned);
                Ok(())
            }
            Act::End => match self.next(&step.on).map_err(wrong)? {
                None => Ok(()),
                Some(more) => Err(wrong(format!("instead of the end came {more}"))),
            },
            Act::Pass { ms } => {
                self.theatre.pass(Duration::from_millis(*ms));
                Ok(())
            }
            Act::Close => {
                match &mut self.line {
                    Line::Pipe(pipe) => pipe.close(),
                    Line::Http(http) if step.on.is_empty() => http.site.close(),
                    Line::Http(http) => drop(http.responses.remove(&step.on)),
                    Line::Posts(posts) => posts.close(),
                }
                Ok(())
            }
        }
    }

    fn filled(&self, text: &str) -> String {
        filled(text, &self.lets)
    }

    fn send(&mut self, on: &str, text: &str) -> Result<(), String> {
        match &mut self.line {
            Line::Pipe(pipe) => pipe.send(text),
            Line::Posts(posts) => posts.send(text.as_bytes()),
            Line::Http(http) => {
                let message = serde_json::from_str(text).unwrap_or_default();
                let headers = http.standard(&message, &self.judge.version);
                http.send(on, "POST", headers, text.as_bytes())
            }
        }
    }

    /// Reads as many messages as the block has lines, in their order but for those that float.
    fn expect(&mut self, on: &str, block: &[Expected]) -> Result<(), Wrong> {
        let mut open: Vec<&Expected> = block.iter().collect();
        while let Some(first) = open.first() {
            let line = first.line;
            let said = self.next(on).map_err(|why| (line, why))?;
            let Some(said) = said else { return Err((line, "the server has ended".into())) };
            self.judge.server(&said).map_err(|why| (line, format!("{why}\n    {said}")))?;
            let mut why = String::new();
            let mut found: Option<(usize, Learned)> = None;
            let next_in_order = open.iter().position(|expected| !expected.floats);
            let floating = (0..open.len()).filter(|i| open[*i].floats);
            for i in next_in_order.into_iter().chain(floating) {
                match like(&filled(&open[i].text, &self.lets), &said) {
                    Ok(learned) => {
                        found = Some((i, learned));
                        break;
                    }
                    Err(differs) => why += &format!("\n      line {}: {differs}", open[i].line),
                }
            }
            let Some((i, learned)) = found else { return Err((line, format!("unlike what came:{why}"))) };
            open.remove(i);
            self.lets.extend(learned);
            if let Line::Http(http) = &mut self.line {
                http.learn(on);
            }
        }
        Ok(())
    }

    fn next(&mut self, on: &str) -> Result<Option<String>, String> {
        let said = match &mut self.line {
            Line::Pipe(pipe) => pipe.next(&self.theatre),
            Line::Posts(posts) => posts.next(&self.theatre),
            Line::Http(http) => http.response(on)?.next(),
        }?;
        if let Some(said) = &said {
            self.said.push(format!("< {said}"));
        }
        Ok(said)
    }

    /// The last response on a connection; `None` where there is no HTTP.
    fn response(&mut self, on: &str) -> Result<Option<&mut Response>, String> {
        match &mut self.line {
            Line::Pipe(_) | Line::Posts(_) => Ok(None),
            Line::Http(http) => http.response(on).map(Some),
        }
    }

    /// Closes the client's end; what is said then, and was not expected, is wrong.
    fn finish(&mut self) -> Result<(), String> {
        match &mut self.line {
            Line::Http(http) => {
                // Of a connection with a name nobody may want to know how it ends.
                let mut wanted = http.responses.iter_mut().filter(|(on, r)| on.is_empty() || r.is_begun());
                wanted.try_for_each(|(_, response)| read_out(response))
            }
            Line::Pipe(pipe) => {
                pipe.close();
                match pipe.next(&self.theatre)? {
                    Some(more) => Err(format!("nothing more was expected, and then came {more}")),
                    None => pipe.ended(),
                }
            }
            Line::Posts(posts) => {
                posts.close();
                match posts.next(&self.theatre)? {
                    Some(more) => Err(format!("nothing more was expected, and then came {more}")),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Http {
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
            read_out(before)?;
        }
        let own = std::mem::take(&mut self.headers);
        let replaced =
            |name: &str| own.iter().any(|(own, _)| own.trim_start_matches('-').eq_ignore_ascii_case(name));
        let mut headers: Vec<_> = standard.into_iter().filter(|(name, _)| !replaced(name)).collect();
        headers.extend(own.into_iter().filter(|(name, _)| !name.starts_with('-')));
        let response = Response::to(self.site.address, method, "/mcp", &headers, body)?;
        self.responses.insert(on.to_owned(), response);
        Ok(())
    }

    /// What a well-behaved client sends with a message.
    fn standard(&self, message: &Value, negotiated: &str) -> Vec<(String, String)> {
        let mut headers = vec![
            ("Content-Type".into(), "application/json".into()),
            ("Accept".into(), "application/json, text/event-stream".into()),
        ];
        let params = &message["params"];
        let Some(version) = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str() else {
            headers.extend(self.of_session(negotiated));
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

    fn of_session(&self, negotiated: &str) -> Vec<(String, String)> {
        let Some(session) = &self.session else { return Vec::new() };
        vec![("Mcp-Session-Id".into(), session.clone()), ("MCP-Protocol-Version".into(), negotiated.into())]
    }

    /// A handshake names the session that what follows belongs to.
    fn learn(&mut self, on: &str) {
        let given = self.responses.get_mut(on).map(|response| response.header("mcp-session-id"));
        if let Some(Ok(Some(session))) = given {
            self.session = Some(session.to_owned());
        }
    }
}

/// An answer that nobody reads is one that nobody expected; a stream may simply go on.
fn read_out(response: &mut Response) -> Result<(), String> {
    match response.unread()? {
        None => Ok(()),
        Some(more) => Err(format!("an answer was not expected: {} {more}", response.status()?)),
    }
}
