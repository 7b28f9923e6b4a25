//! A trace as people read it, or the bytes themselves.

use std::io::Write;

use contract::words::counted;
use json::{Json, Kind, Node};
use upstream::Direction;

use super::entry::{Entry, What};
use crate::client::screen::{Screen, print_bytes};
use crate::plain;

pub(crate) struct Printer {
    raw: bool,
    screen: Screen,
}

/// As wide as the times in front.
const INDENT: &str = "             ";

impl Printer {
    pub(crate) fn new(raw: bool) -> Self {
        Self { raw, screen: Screen::stdout() }
    }

    pub(crate) fn print(&mut self, entry: &Entry) {
        let text = if self.raw { self.chunk(entry) } else { self.line(entry) };
        // There is no more that could be told about it; the recording and the conversation go on.
        let _ = print_bytes(&text);
    }

    /// The bytes below a line with their direction and number. What is no bytes goes to stderr.
    fn chunk(&self, entry: &Entry) -> Vec<u8> {
        let What::Bytes { to, bytes } = &entry.what else {
            if !matches!(entry.what, What::Message { .. }) {
                let _ = std::io::stderr().write_all(&self.line(entry));
            }
            return Vec::new();
        };
        let mut out =
            format!("{} {}\n", arrow(*to), counted(bytes.len() as u64, "byte").replace(',', "")).into_bytes();
        if self.screen.is_terminal {
            out.extend(plain::lines(&String::from_utf8_lossy(bytes)).bytes());
        } else {
            out.extend(bytes);
        }
        if !out.ends_with(b"\n") {
            out.push(b'\n');
        }
        out
    }

    fn line(&self, entry: &Entry) -> Vec<u8> {
        let screen = &self.screen;
        let (head, below) = match &entry.what {
            What::Opened(text) | What::Ended(text) => (format!("* {}", plain::line(text)), String::new()),
            What::InputClosed => ("* input closed".to_owned(), String::new()),
            What::Stderr(text) => (screen.faint(&format!("! {}", plain::line(text))), String::new()),
            What::Head { to, text, .. } => {
                let mut lines = text.lines();
                let first = lines.next().unwrap_or_default();
                let rest: Vec<String> = lines.map(|line| screen.faint(&plain::line(line))).collect();
                (format!("{} {}", self.arrow(*to), plain::line(first)), rest.join("\n"))
            }
            What::Message { to, bytes, exchange: _ } => {
                let text = String::from_utf8_lossy(bytes);
                let json = Json::parse(&text).ok();
                let what = json.as_ref().map_or("no JSON".to_owned(), |json| summary(json.doc().root()));
                let size = counted(bytes.len() as u64, "byte");
                let text = if json.is_some() { plain::json(&text) } else { plain::line(&text) };
                (format!("{} {}, {size}", self.arrow(*to), screen.bold(&what)), text.into_owned())
            }
            What::Bytes { .. } => return Vec::new(),
        };
        let time = format!("{:>8.1} ms", entry.us as f64 / 1000.0);
        let mut out = format!("{}  {head}\n", screen.faint(&time));
        for line in below.lines() {
            out.push_str(INDENT);
            out.push_str(line);
            out.push('\n');
        }
        out.into_bytes()
    }

    fn arrow(&self, to: Direction) -> String {
        match to {
            Direction::Out => self.screen.cyan(arrow(to)),
            Direction::In => self.screen.green(arrow(to)),
        }
    }
}

fn arrow(to: Direction) -> &'static str {
    match to {
        Direction::Out => "→",
        Direction::In => "←",
    }
}

/// `tools/call #3`, `answer #3`, `error #3 (-32602)`
fn summary(message: Node<'_>) -> String {
    if message.kind() == Kind::Array {
        return format!("batch of {}", message.len());
    }
    let id =
        message.get("id").map(|id| format!(" #{}", plain::line(id.str().as_deref().unwrap_or(id.raw()))));
    let id = id.unwrap_or_default();
    if let Some(method) = message.get("method").and_then(|method| method.str()) {
        return format!("{}{id}", plain::line(&method));
    }
    match message.get("error") {
        Some(error) => {
            let code =
                error.get("code").map(|code| format!(" ({})", plain::line(code.raw()))).unwrap_or_default();
            format!("error{id}{code}")
        }
        None if message.get("result").is_some() => format!("answer{id}"),
        None => "no message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::summary;
    use json::Json;

    #[test]
    fn a_message_in_short() {
        for (message, expected) in [
            (r#"{"id":1,"method":"tools/list"}"#, "tools/list #1"),
            (r#"{"method":"notifications/initialized"}"#, "notifications/initialized"),
            (r#"{"id":"a\u001b","result":{}}"#, "answer #a\\u{1b}"),
            (r#"{"id":1,"error":{"code":-32602}}"#, "error #1 (-32602)"),
            (r#"{"error":7}"#, "error"),
            (r#"[{},{}]"#, "batch of 2"),
            ("7", "no message"),
            (r#"{"method":"a\u202eb"}"#, "a\\u{202e}b"),
        ] {
            let json = Json::parse(message).expect("JSON");
            assert_eq!(summary(json.doc().root()), expected);
        }
    }
}
