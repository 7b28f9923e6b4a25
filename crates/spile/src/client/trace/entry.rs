//! One trace entry, and its line in a recording.
//!
//! Bytes are recorded exactly: as text if they are UTF-8, else as base64. `docs/client.md` documents the format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::write::ObjectWriter;
use json::{Json, Node};
use upstream::redact::is_secret_name;
use upstream::{Direction, TraceEvent};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TraceEntry {
    /// Microseconds since the start.
    pub(crate) elapsed_us: u64,
    pub(crate) event: RecordedEvent,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RecordedEvent {
    Opened(String),
    Message { direction: Direction, bytes: Vec<u8>, exchange: Option<u64> },
    Bytes { direction: Direction, bytes: Vec<u8> },
    HttpHead { direction: Direction, text: String, exchange: u64 },
    Stderr(String),
    InputClosed,
    Ended(String),
}

impl From<TraceEvent<'_>> for RecordedEvent {
    fn from(event: TraceEvent<'_>) -> Self {
        match event {
            TraceEvent::Opened(text) => Self::Opened(text.to_owned()),
            TraceEvent::Message { direction, message, exchange } => {
                Self::Message { direction, bytes: message.to_vec(), exchange }
            }
            TraceEvent::Bytes { direction, bytes } => Self::Bytes { direction, bytes: bytes.to_vec() },
            TraceEvent::Head { direction, head, exchange } => {
                Self::HttpHead { direction, text: redact_headers(head), exchange }
            }
            TraceEvent::Stderr(line) => Self::Stderr(line.to_owned()),
            TraceEvent::InputClosed => Self::InputClosed,
            TraceEvent::Ended(text) => Self::Ended(text.to_owned()),
        }
    }
}

/// Masks credentials in headers. Upstream masks the headers that the user gave.
fn redact_headers(head: &str) -> String {
    // Its name says key, but it is a nonce of the handshake.
    let is_secret = |name: &str| is_secret_name(name) && !name.eq_ignore_ascii_case("sec-websocket-key");
    let lines = head.lines().map(|line| match line.split_once(':') {
        Some((name, _)) if is_secret(name) => format!("{name}: ***"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

const FORMAT: &str = "spile-trace";
const FORMAT_VERSION: i64 = 1;

/// The first line of a recording.
pub(crate) fn header_line(server: &str) -> String {
    let header = Json::object(|out| {
        out.str("format", FORMAT).int("version", FORMAT_VERSION).str("server", server);
    });
    header.to_string()
}

pub(crate) fn check_header_line(line: &str) -> Result<(), String> {
    let json = Json::parse(line).ok();
    let doc = json.map(|json| json.to_doc());
    let root = doc.as_ref().map(|doc| doc.root());
    if !root.and_then(|root| root.get("format")).is_some_and(|format| format.eq_str(FORMAT)) {
        return Err("not a recording of `spile trace --record`".to_owned());
    }
    match root.and_then(|root| root.get("version")).and_then(|version| version.u64()) {
        Some(1) => Ok(()),
        _ => Err("unsupported recording version; it was written by another version of spile".to_owned()),
    }
}

impl TraceEntry {
    pub(crate) fn to_line(&self) -> String {
        let line = Json::object(|out| {
            out.int("us", i64::try_from(self.elapsed_us).unwrap_or(i64::MAX));
            match &self.event {
                RecordedEvent::Opened(text) => out.str("kind", "opened").str("text", text),
                RecordedEvent::Message { direction, bytes, exchange } => {
                    out.str("kind", "message").str("to", recipient(*direction));
                    if let Some(exchange) = exchange {
                        out.int("exchange", *exchange as i64);
                    }
                    write_bytes(out, bytes)
                }
                RecordedEvent::Bytes { direction, bytes } => {
                    out.str("kind", "bytes").str("to", recipient(*direction));
                    write_bytes(out, bytes)
                }
                RecordedEvent::HttpHead { direction, text, exchange } => {
                    out.str("kind", "head")
                        .str("to", recipient(*direction))
                        .int("exchange", *exchange as i64);
                    out.str("text", text)
                }
                RecordedEvent::Stderr(text) => out.str("kind", "stderr").str("text", text),
                RecordedEvent::InputClosed => out.str("kind", "input_closed"),
                RecordedEvent::Ended(text) => out.str("kind", "ended").str("text", text),
            };
        });
        line.to_string()
    }

    pub(crate) fn from_line(line: &str) -> Result<Self, String> {
        let json = Json::parse(line).map_err(|error| error.to_string())?;
        let doc = json.to_doc();
        let root = doc.root();
        let text = |key: &str| {
            let text = root.get(key).and_then(|text| text.str()).map(|text| text.into_owned());
            text.ok_or_else(|| format!("`{key}` is missing or not a string"))
        };
        let number = |key: &str| root.get(key).and_then(|number| number.u64());
        let exchange = || number("exchange").ok_or("`exchange` is missing or not a number");
        let direction = || match &*text("to")? {
            "server" => Ok(Direction::Out),
            "client" => Ok(Direction::In),
            other => Err(format!("`to`: `{other}` is neither `server` nor `client`")),
        };
        let elapsed_us = number("us").ok_or("`us` is missing or not a number")?;
        let event = match &*text("kind")? {
            "opened" => RecordedEvent::Opened(text("text")?),
            "message" => RecordedEvent::Message {
                direction: direction()?,
                bytes: read_bytes(root)?,
                exchange: number("exchange"),
            },
            "bytes" => RecordedEvent::Bytes { direction: direction()?, bytes: read_bytes(root)? },
            "head" => RecordedEvent::HttpHead {
                direction: direction()?,
                text: text("text")?,
                exchange: exchange()?,
            },
            "stderr" => RecordedEvent::Stderr(text("text")?),
            "input_closed" => RecordedEvent::InputClosed,
            "ended" => RecordedEvent::Ended(text("text")?),
            other => return Err(format!("`kind`: unknown value `{other}`")),
        };
        Ok(Self { elapsed_us, event })
    }
}

fn recipient(direction: Direction) -> &'static str {
    match direction {
        Direction::Out => "server",
        Direction::In => "client",
    }
}

fn write_bytes<'a, 'o>(out: &'a mut ObjectWriter<'o>, bytes: &[u8]) -> &'a mut ObjectWriter<'o> {
    match std::str::from_utf8(bytes) {
        Ok(text) => out.str("text", text),
        Err(_) => out.str("base64", &STANDARD.encode(bytes)),
    }
}

fn read_bytes(root: Node<'_>) -> Result<Vec<u8>, String> {
    let text = |key: &str| root.get(key).and_then(|text| text.str());
    match (text("text"), text("base64")) {
        (Some(text), None) => Ok(text.into_owned().into_bytes()),
        (None, Some(text)) => STANDARD.decode(&*text).map_err(|error| format!("`base64`: {error}")),
        _ => Err("expected either `text` or `base64`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Direction, RecordedEvent, TraceEntry, check_header_line, header_line, redact_headers};

    #[test]
    fn every_event_survives_a_round_trip() {
        let everything = [
            RecordedEvent::Opened("started x".into()),
            RecordedEvent::Message {
                direction: Direction::Out,
                bytes: b"{\"a\":\"\\u00e9\"}".to_vec(),
                exchange: Some(7),
            },
            RecordedEvent::Message { direction: Direction::In, bytes: b"\xff\x00".to_vec(), exchange: None },
            RecordedEvent::Bytes { direction: Direction::In, bytes: "{}\r\n\u{1b}".into() },
            RecordedEvent::HttpHead { direction: Direction::Out, text: "POST /\nA: b".into(), exchange: 1 },
            RecordedEvent::Stderr("a line".into()),
            RecordedEvent::InputClosed,
            RecordedEvent::Ended("exited with code 0".into()),
        ];
        for event in everything {
            let entry = TraceEntry { elapsed_us: 1234, event };
            assert_eq!(TraceEntry::from_line(&entry.to_line()), Ok(entry));
        }
    }

    #[test]
    fn invalid_lines_are_errors() {
        for (line, expected) in [
            ("", "not valid JSON at byte 0"),
            ("[]", "`us` is missing or not a number"),
            (r#"{"us":1}"#, "`kind` is missing or not a string"),
            (r#"{"us":1,"kind":"smoke"}"#, "`kind`: unknown value `smoke`"),
            (r#"{"us":1,"kind":"bytes","to":"me","text":""}"#, "`to`: `me` is neither `server` nor `client`"),
            (r#"{"us":1,"kind":"bytes","to":"server"}"#, "expected either `text` or `base64`"),
            (
                r#"{"us":1,"kind":"bytes","to":"server","text":"","base64":""}"#,
                "expected either `text` or `base64`",
            ),
            (r#"{"us":1,"kind":"head","to":"server","text":""}"#, "`exchange` is missing or not a number"),
        ] {
            assert_eq!(TraceEntry::from_line(line), Err(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn the_header_line_names_format_and_version() {
        assert_eq!(check_header_line(&header_line("x")), Ok(()));
        assert!(check_header_line(r#"{"format":"spile-trace","version":2}"#).is_err());
        assert!(check_header_line("a,b,c").is_err());
    }

    #[test]
    fn credentials_in_headers_are_masked() {
        let head =
            "GET /\nauthorization: Bearer x\nSet-Cookie: a=b\nX-Api-Key: c\nX: y: z\nSec-WebSocket-Key: d";
        let shown =
            "GET /\nauthorization: ***\nSet-Cookie: ***\nX-Api-Key: ***\nX: y: z\nSec-WebSocket-Key: d";
        assert_eq!(redact_headers(head), shown);
    }
}
