//! What a client sends: messages in frames that are correct, or nearly.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use wire::Version;

use super::super::{FuzzInput, sample_messages};
use super::{AnswerTiming, MessageKind};

#[derive(Default)]
pub(super) struct ClientFrames {
    request_count: u64,
    /// The meaning of the texts that were sent.
    kinds: BTreeMap<Vec<u8>, MessageKind>,
}

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// The FIN bit.
const FIN: u8 = 0x80;

impl ClientFrames {
    /// No other message in these simulations has such an id.
    const FIRST_ID: u64 = 1_000_000;

    pub(super) fn kind_of(&self, text: &[u8]) -> MessageKind {
        self.kinds.get(text).copied().unwrap_or(MessageKind::Unknown)
    }

    /// A message, or something like one, whole or fragmented.
    pub(super) fn text(&mut self, input: &mut FuzzInput<'_>, out: &mut Vec<u8>) {
        let (mut text, meaning) = self.message(input);
        let spaces = if input.one_in(8) { input.choose(&[100, 60, 300, 2000, 66_000]) } else { 0 };
        text.extend(std::iter::repeat_n(' ', spaces));
        self.kinds.insert(text.clone().into_bytes(), meaning);
        write_fragments(input, TEXT, text.as_bytes(), out);
    }

    pub(super) fn binary(&self, input: &mut FuzzInput<'_>, out: &mut Vec<u8>) {
        let bytes = input.bytes();
        let kind = if input.one_in(2) { BINARY } else { TEXT };
        write_fragments(input, kind, bytes, out);
    }

    pub(super) fn control(&self, input: &mut FuzzInput<'_>, out: &mut Vec<u8>) {
        let kind = input.choose(&[PING, PONG, PING, CLOSE]);
        let mut payload = Vec::new();
        if kind == CLOSE && !input.one_in(8) {
            payload.extend(input.choose(&CLOSE_CODES).to_be_bytes());
        }
        payload.extend_from_slice(input.bytes());
        // Mostly as long as allowed.
        if !input.one_in(8) {
            payload.truncate(125);
        }
        write_frame_or_corrupt(input, kind, &payload, out);
    }

    pub(super) fn ping(&self, payload: &[u8], out: &mut Vec<u8>) {
        write_frame(Length::Short, PING, Some([1, 2, 3, 4]), payload, out);
    }

    pub(super) fn close(&self, out: &mut Vec<u8>) {
        write_frame(Length::Short, CLOSE, Some([0; 4]), &1000_u16.to_be_bytes(), out);
    }

    fn message(&mut self, input: &mut FuzzInput<'_>) -> (String, MessageKind) {
        let id = Self::FIRST_ID + self.request_count;
        let newest = Version::NEWEST.as_str();
        let mut text = String::new();
        let (method, params, answer) = match input.below(16) {
            0..=3 => ("ping", "{}".to_owned(), AnswerTiming::Immediate),
            4..=8 => {
                let script = input.choose(&["", "l", "w", "lwl", "f", "s", "pwwp", "z"]);
                let waits = script.contains(['w', 's']);
                let meta = if input.one_in(2) { meta(newest) } else { r#"{"progressToken":1}"#.into() };
                let params =
                    format!(r#"{{"name":"t","arguments":{{"n":{id},"script":"{script}"}},"_meta":{meta}}}"#);
                ("tools/call", params, if waits { AnswerTiming::Eventual } else { AnswerTiming::Immediate })
            }
            9 => {
                let version = input.choose(&Version::ALL).1;
                let params = format!(
                    r#"{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}"#
                );
                ("initialize", params, AnswerTiming::Immediate)
            }
            10 => {
                let params =
                    format!(r#"{{"notifications":{{"toolsListChanged":true}},"_meta":{}}}"#, meta(newest));
                ("subscriptions/listen", params, AnswerTiming::Optional)
            }
            11 => {
                let id = id.saturating_sub(u64::from(input.byte() % 4) + 1);
                let _ = write!(
                    text,
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                );
                return (text, MessageKind::Cancel(id));
            }
            12 => {
                text.push_str(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
                return (text, MessageKind::Notification);
            }
            13 => return (input.choose(&MALFORMED_TEXTS).into(), MessageKind::Malformed),
            14 => return (input.text(), MessageKind::Unknown),
            _ => return (sample_messages::message(input), MessageKind::Unknown),
        };
        self.request_count += 1;
        let _ = write!(text, r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        (text, MessageKind::Request(id, answer))
    }
}

fn meta(version: &str) -> String {
    const META: &str = "io.modelcontextprotocol/";
    format!(r#"{{"{META}protocolVersion":"{version}","{META}clientCapabilities":{{}}}}"#)
}

const MALFORMED_TEXTS: [&str; 6] = ["", "hello", "{", "{}{}", r#"{"a":1,"a":2}"#, "\u{feff}\u{1d11e}"];

const CLOSE_CODES: [u16; 16] =
    [1000, 1001, 1003, 1011, 1014, 3000, 4999, 0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000];

/// A message in one frame or several, with control frames in between.
fn write_fragments(input: &mut FuzzInput<'_>, kind: u8, message: &[u8], out: &mut Vec<u8>) {
    let count = if input.one_in(3) { input.below(5) } else { 0 };
    let (mut kind, mut rest) = (kind, message);
    for _ in 0..count {
        let (piece, after) = rest.split_at(usize::from(input.byte()).min(rest.len()));
        write_frame_or_corrupt(input, kind & !FIN, piece, out);
        if input.one_in(3) {
            write_frame_or_corrupt(input, interleaved_control(piece), b"between", out);
        }
        (kind, rest) = (FIN, after);
    }
    write_frame_or_corrupt(input, kind, rest, out);
}

/// A ping, or an unsolicited pong.
fn interleaved_control(piece: &[u8]) -> u8 {
    if piece.len().is_multiple_of(2) { PING } else { PONG }
}

/// A frame as a client sends it; sometimes not quite correct.
fn write_frame_or_corrupt(input: &mut FuzzInput<'_>, first: u8, payload: &[u8], out: &mut Vec<u8>) {
    let mask = if input.one_in(4) { [0; 4] } else { [input.byte(), 0xfa, 0x21, 0x3d] };
    if !input.one_in(16) {
        return write_frame(Length::Short, first, Some(mask), payload, out);
    }
    match input.below(8) {
        // Longer than necessary: servers accept it.
        0 => write_frame(Length::In16Bits, first, Some(mask), payload, out),
        1 => write_frame(Length::In64Bits, first, Some(mask), payload, out),
        2 => write_frame(Length::Short, first, None, payload, out),
        3 => write_frame(
            Length::Short,
            first ^ input.choose(&[0x40, 0x20, 0x10, 0x70]),
            Some(mask),
            payload,
            out,
        ),
        4 => write_frame(Length::Short, first ^ FIN, Some(mask), payload, out),
        5 => write_frame(Length::Short, first ^ (input.byte() & 0x0f), Some(mask), payload, out),
        6 => {
            let length = input.choose(&[u64::MAX, i64::MAX as u64, 1 << 32, 70_001, 2001, 1, 0]);
            write_frame(Length::Declared(length), first, Some(mask), payload, out);
        }
        _ => {
            let end = out.len();
            write_frame(Length::Short, first, Some(mask), payload, out);
            let cut = usize::from(input.byte()) % (out.len() - end);
            out.truncate(end + cut);
        }
    }
}

/// How the length of a frame is encoded.
enum Length {
    Short,
    In16Bits,
    In64Bits,
    /// A wrong length, in 64 bits.
    Declared(u64),
}

fn write_frame(length: Length, first: u8, mask: Option<[u8; 4]>, payload: &[u8], out: &mut Vec<u8>) {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let real = payload.len();
    out.push(first);
    match length {
        Length::Short if real < 126 => out.push(masked | real as u8),
        Length::Short | Length::In16Bits if real < 1 << 16 => {
            out.push(masked | 126);
            out.extend((real as u16).to_be_bytes());
        }
        Length::Short | Length::In16Bits | Length::In64Bits => {
            out.push(masked | 127);
            out.extend((real as u64).to_be_bytes());
        }
        Length::Declared(length) => {
            out.push(masked | 127);
            out.extend(length.to_be_bytes());
        }
    }
    out.extend(mask.into_iter().flatten());
    let mask = mask.unwrap_or_default();
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}
