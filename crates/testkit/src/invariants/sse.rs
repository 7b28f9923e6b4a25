//! Server-sent events as a client reads them: a stream gives the same events however it is split; they are the events of
//! the standard; and the buffer stays within its limit.

use wire::frame::sse::{self, EventId};
use wire::frame::{SizeLimitExceeded, SseDecoder, SseEvent};

use super::FuzzInput;

/// Takes a limit and chunk sizes from `data`; the rest is the stream.
pub fn sse(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let event_bytes_max = input.choose(&[0, 1, 2, 7, 16, 40, 300, 4096]);
    let cuts: Vec<usize> = input.bytes().iter().map(|cut| usize::from(*cut).max(1)).collect();
    let stream = input.rest();

    let whole = parse_in_pieces(stream, &[], event_bytes_max);
    assert_eq!(parse_in_pieces(stream, &[1], event_bytes_max), whole, "byte by byte");
    assert_eq!(parse_in_pieces(stream, &cuts, event_bytes_max), whole, "in pieces of {cuts:?}");
    if whole.outcome.is_ok() {
        assert_eq!(whole, parse_by_standard(stream), "not what the standard says");
    }
    check_roundtrip(stream, &cuts);
}

/// Everything that was read from a stream.
#[derive(Debug, PartialEq, Eq)]
struct ParsedStream {
    events: Vec<SseEvent>,
    outcome: Result<(), SizeLimitExceeded>,
    last_id: Option<String>,
    retry_ms: Option<u64>,
}

fn parse_in_pieces(stream: &[u8], cuts: &[usize], event_bytes_max: usize) -> ParsedStream {
    let mut parser = SseDecoder::new(event_bytes_max);
    let (mut events, mut took) = (Vec::new(), Ok(()));
    let mut sizes = cuts.iter().copied().cycle();
    let mut rest = stream;
    while !rest.is_empty() && took.is_ok() {
        let (piece, after) = rest.split_at(sizes.next().unwrap_or(rest.len()).min(rest.len()));
        rest = after;
        took = parser.push(piece, |event| events.push(event));
        // The current line and event, its name and its id; invalid UTF-8 takes three times its size.
        assert!(parser.buffered_bytes() <= 10 * event_bytes_max, "holds {}", parser.buffered_bytes());
    }
    assert!(events.iter().all(|event| event.data.len() <= event_bytes_max));
    let (last_id, retry_ms) = (parser.last_event_id().map(str::to_owned), parser.retry_ms());
    ParsedStream { events, outcome: took, last_id, retry_ms }
}

/// HTML, "9.2.6 Interpreting an event stream", literally and without limits or chunks.
fn parse_by_standard(stream: &[u8]) -> ParsedStream {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut lines = Vec::new();
    let (mut line, mut bytes) = (Vec::new(), stream.iter().peekable());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' | b'\n' => {
                if *byte == b'\r' {
                    bytes.next_if(|next| **next == b'\n');
                }
                lines.push(std::mem::take(&mut line));
            }
            byte => line.push(*byte),
        }
    }
    let mut read = ParsedStream { events: Vec::new(), outcome: Ok(()), last_id: None, retry_ms: None };
    let (mut data, mut kind, mut id) = (Vec::new(), String::new(), String::new());
    for line in lines {
        let colon = line.iter().position(|c| *c == b':');
        let (field, value) = match colon {
            _ if line.is_empty() => {
                read.last_id = (!id.is_empty()).then(|| id.clone());
                let (mut data, event) = (std::mem::take(&mut data), std::mem::take(&mut kind));
                if data.pop().is_some() {
                    read.events.push(SseEvent { event_type: event, data });
                }
                continue;
            }
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (&line[..], &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => kind = String::from_utf8_lossy(value).into_owned(),
            b"data" => data.extend(value.iter().chain(b"\n")),
            b"id" if !value.contains(&0) => id = String::from_utf8_lossy(value).into_owned(),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                // A value beyond the range of numbers is not a number.
                read.retry_ms = String::from_utf8_lossy(value).parse().ok();
            }
            _ => {}
        }
    }
    read
}

/// A written event reads back unchanged, with its id.
fn check_roundtrip(data: &[u8], cuts: &[usize]) {
    let messages: Vec<&[u8]> = data.split(|c| matches!(c, b'\r' | b'\n')).collect();
    let mut written = Vec::new();
    sse::write_priming(&mut written, EventId { stream: 7, event: 0 });
    written.extend_from_slice(sse::KEEP_ALIVE);
    for (nth, message) in messages.iter().enumerate() {
        sse::write_message(&mut written, Some(EventId { stream: 7, event: nth as u64 + 1 }), message);
    }
    sse::write_retry(&mut written, 70);
    let back = parse_in_pieces(&written, cuts, data.len() + 100);
    assert_eq!((back.outcome, back.retry_ms), (Ok(()), Some(70)));
    assert_eq!(back.last_id, Some(format!("7-{}", messages.len())));
    let data: Vec<&[u8]> = back.events.iter().skip(1).map(|event| &event.data[..]).collect();
    assert_eq!(data, messages);
    assert!(back.events.iter().all(SseEvent::is_message));
}
