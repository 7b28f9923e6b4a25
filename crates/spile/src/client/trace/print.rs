//! Prints a trace: a summary of each message, or the raw bytes.

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

/// The width of the time column.
const INDENT: &str = "             ";

impl TracePrinter {
    pub(crate) fn new(raw: bool) -> Self {
        Self { raw, style: OutputStyle::stdout() }
    }

    pub(crate) fn print(&mut self, entry: &TraceEntry) {
        let text = if self.raw { self.format_raw(entry) } else { self.format_entry(entry) };
        // If stdout is closed, the session and its recording go on.
        let _ = print_bytes(&text);
    }

    /// A line with direction and length, then the bytes. All other events go to stderr.
    fn format_raw(&self, entry: &TraceEntry) -> Vec<u8> {
        let RecordedEvent::Bytes { direction, bytes } = &entry.event else {
            if !matches!(entry.event, RecordedEvent::Message { .. }) {
                let _ = std::io::stderr().write_all(&self.format_entry(entry));
            }
            return Vec::new();
        };
        let mut out =
            format!("{} {}\n", arrow(*direction), pluralize(bytes.len() as u64, "byte").replace(',', ""))
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
        let style = &self.style;
        let (heading, body) = match &entry.event {
            RecordedEvent::Opened(text) | RecordedEvent::Ended(text) => {
                (format!("* {}", sanitize::escape_line(text)), String::new())
            }
            RecordedEvent::InputClosed => ("* input closed".to_owned(), String::new()),
            RecordedEvent::Stderr(text) => {
                (style.faint(&format!("! {}", sanitize::escape_line(text))), String::new())
            }
            RecordedEvent::HttpHead { direction, text, .. } => {
                let mut lines = text.lines();
                let first = lines.next().unwrap_or_default();
                let rest: Vec<String> = lines.map(|line| style.faint(&sanitize::escape_line(line))).collect();
                (
                    format!("{} {}", self.colored_arrow(*direction), sanitize::escape_line(first)),
                    rest.join("\n"),
                )
            }
            RecordedEvent::Message { direction, bytes, exchange: _ } => {
                let text = String::from_utf8_lossy(bytes);
                let json = Json::parse(&text).ok();
                let summary =
                    json.as_ref().map_or("not JSON".to_owned(), |json| message_summary(json.to_doc().root()));
                let size = pluralize(bytes.len() as u64, "byte");
                let text = if json.is_some() { sanitize::json(&text) } else { sanitize::escape_line(&text) };
                (
                    format!("{} {}, {size}", self.colored_arrow(*direction), style.bold(&summary)),
                    text.into_owned(),
                )
            }
            RecordedEvent::Bytes { .. } => return Vec::new(),
        };
        let time = format!("{:>8.1} ms", entry.elapsed_us as f64 / 1000.0);
        let mut out = format!("{}  {heading}\n", style.faint(&time));
        for line in body.lines() {
            out.push_str(INDENT);
            out.push_str(line);
            out.push('\n');
        }
        out.into_bytes()
    }

    fn colored_arrow(&self, direction: Direction) -> String {
        match direction {
            Direction::Out => self.style.cyan(arrow(direction)),
            Direction::In => self.style.green(arrow(direction)),
        }
    }
}

fn arrow(direction: Direction) -> &'static str {
    match direction {
        Direction::Out => "→",
        Direction::In => "←",
    }
}

/// `tools/call #3`, `response #3`, `error #3 (-32602)`
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
        None if message.get("result").is_some() => format!("response{id}"),
        None => "not a message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::message_summary;
    use json::Json;

    #[test]
    fn a_message_is_summarized_by_kind_and_id() {
        for (message, expected) in [
            (r#"{"id":1,"method":"tools/list"}"#, "tools/list #1"),
            (r#"{"method":"notifications/initialized"}"#, "notifications/initialized"),
            (r#"{"id":"a\u001b","result":{}}"#, "response #a\\u{1b}"),
            (r#"{"id":1,"error":{"code":-32602}}"#, "error #1 (-32602)"),
            (r#"{"error":7}"#, "error"),
            (r#"[{},{}]"#, "batch of 2"),
            ("7", "not a message"),
            (r#"{"method":"a\u202eb"}"#, "a\\u{202e}b"),
        ] {
            let json = Json::parse(message).expect("valid JSON");
            assert_eq!(message_summary(json.to_doc().root()), expected);
        }
    }
}
