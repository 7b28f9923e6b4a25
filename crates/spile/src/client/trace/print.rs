//! A trace as people read it, or the bytes themselves.

use std::io::Write;

use contract::humanize::pluralize;
use json::{Json, Node, NodeKind};
use upstream::Direction;

use super::entry::{RecordedEvent, TraceEntry};
use crate::client::output_style::{OutputStyle, print_bytes};
use crate::sanitize;

pub(crate) struct TracePrinter {
    raw: bool,
    style: OutputStyle,
}

/// As wide as the times in front.
const INDENT: &str = "             ";

impl TracePrinter {
    pub(crate) fn new(raw: bool) -> Self {
        Self { raw, style: OutputStyle::stdout() }
    }

    pub(crate) fn print(&mut self, entry: &TraceEntry) {
        let text = if self.raw { self.format_raw(entry) } else { self.format_entry(entry) };
        // There is no more that could be told about it; the recording and the conversation go on.
        let _ = print_bytes(&text);
    }

    /// The bytes below a line with their direction and number. What is no bytes goes to stderr.
    fn format_raw(&self, entry: &TraceEntry) -> Vec<u8> {
        let RecordedEvent::Bytes { direction: to, bytes } = &entry.event else {
            if !matches!(entry.event, RecordedEvent::Message { .. }) {
                let _ = std::io::stderr().write_all(&self.format_entry(entry));
            }
            return Vec::new();
        };
        let mut out = format!("{} {}\n", arrow(*to), pluralize(bytes.len() as u64, "byte").replace(',', ""))
            .into_bytes();
        if self.style.is_terminal {
            out.extend(sanitize::lines(&String::from_utf8_lossy(bytes)).bytes());
        } else {
            out.extend(bytes);
        }
        if !out.ends_with(b"\n") {
            out.push(b'\n');
        }
        out
    }

    fn format_entry(&self, entry: &TraceEntry) -> Vec<u8> {
        let screen = &self.style;
        let (head, below) = match &entry.event {
            RecordedEvent::Opened(text) | RecordedEvent::Ended(text) => {
                (format!("* {}", sanitize::escape_line(text)), String::new())
            }
            RecordedEvent::InputClosed => ("* input closed".to_owned(), String::new()),
            RecordedEvent::Stderr(text) => {
                (screen.faint(&format!("! {}", sanitize::escape_line(text))), String::new())
            }
            RecordedEvent::HttpHead { direction: to, text, .. } => {
                let mut lines = text.lines();
                let first = lines.next().unwrap_or_default();
                let rest: Vec<String> =
                    lines.map(|line| screen.faint(&sanitize::escape_line(line))).collect();
                (format!("{} {}", self.colored_arrow(*to), sanitize::escape_line(first)), rest.join("\n"))
            }
            RecordedEvent::Message { direction: to, bytes, exchange: _ } => {
                let text = String::from_utf8_lossy(bytes);
                let json = Json::parse(&text).ok();
                let what =
                    json.as_ref().map_or("no JSON".to_owned(), |json| message_summary(json.to_doc().root()));
                let size = pluralize(bytes.len() as u64, "byte");
                let text = if json.is_some() { sanitize::json(&text) } else { sanitize::escape_line(&text) };
                (format!("{} {}, {size}", self.colored_arrow(*to), screen.bold(&what)), text.into_owned())
            }
            RecordedEvent::Bytes { .. } => return Vec::new(),
        };
        let time = format!("{:>8.1} ms", entry.elapsed_us as f64 / 1000.0);
        let mut out = format!("{}  {head}\n", screen.faint(&time));
        for line in below.lines() {
            out.push_str(INDENT);
            out.push_str(line);
            out.push('\n');
        }
        out.into_bytes()
    }

    fn colored_arrow(&self, to: Direction) -> String {
        match to {
            Direction::Out => self.style.cyan(arrow(to)),
            Direction::In => self.style.green(arrow(to)),
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
fn message_summary(message: Node<'_>) -> String {
    if message.kind() == NodeKind::Array {
        return format!("batch of {}", message.len());
    }
    let id = message
        .get("id")
        .map(|id| format!(" #{}", sanitize::escape_line(id.str().as_deref().unwrap_or(id.raw()))));
    let id = id.unwrap_or_default();
    if let Some(method) = message.get("method").and_then(|method| method.str()) {
        return format!("{}{id}", sanitize::escape_line(&method));
    }
    match message.get("error") {
        Some(error) => {
            let code = error
                .get("code")
                .map(|code| format!(" ({})", sanitize::escape_line(code.raw())))
                .unwrap_or_default();
            format!("error{id}{code}")
        }
        None if message.get("result").is_some() => format!("answer{id}"),
        None => "no message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::message_summary;
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
            assert_eq!(message_summary(json.to_doc().root()), expected);
        }
    }
}
