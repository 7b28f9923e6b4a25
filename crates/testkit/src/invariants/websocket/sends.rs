//! What a client sends: texts with a meaning, in frames that are as they should be, or nearly.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use wire::Version;

use super::super::{Dice, samples};
use super::{Answer, Meaning};

#[derive(Default)]
pub(super) struct Sends {
    requests: u64,
    /// What the texts mean that were sent.
    meanings: BTreeMap<Vec<u8>, Meaning>,
}

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// The bit of the last piece.
const LAST: u8 = 0x80;

impl Sends {
    /// Nothing else in these games has such an id.
    const FIRST_ID: u64 = 1_000_000;

    pub(super) fn meaning(&self, text: &[u8]) -> Meaning {
        self.meanings.get(text).copied().unwrap_or(Meaning::Vague)
    }

    /// A message, or what should be one, whole or in pieces.
    pub(super) fn text(&mut self, dice: &mut Dice<'_>, out: &mut Vec<u8>) {
        let (mut text, meaning) = self.message(dice);
        let spaces = if dice.once_in(8) { dice.pick(&[100, 60, 300, 2000, 66_000]) } else { 0 };
        text.extend(std::iter::repeat_n(' ', spaces));
        self.meanings.insert(text.clone().into_bytes(), meaning);
        pieces(dice, TEXT, text.as_bytes(), out);
    }

    pub(super) fn binary(&self, dice: &mut Dice<'_>, out: &mut Vec<u8>) {
        let bytes = dice.bytes();
        let kind = if dice.once_in(2) { BINARY } else { TEXT };
        pieces(dice, kind, bytes, out);
    }

    pub(super) fn control(&self, dice: &mut Dice<'_>, out: &mut Vec<u8>) {
        let kind = dice.pick(&[PING, PONG, PING, CLOSE]);
        let mut payload = Vec::new();
        if kind == CLOSE && !dice.once_in(8) {
            payload.extend(dice.pick(&CODES).to_be_bytes());
        }
        payload.extend_from_slice(dice.bytes());
        // Mostly as long as may be.
        if !dice.once_in(8) {
            payload.truncate(125);
        }
        frame(dice, kind, &payload, out);
    }

    pub(super) fn ping(&self, payload: &[u8], out: &mut Vec<u8>) {
        write(Length::Short, PING, Some([1, 2, 3, 4]), payload, out);
    }

    pub(super) fn goodbye(&self, out: &mut Vec<u8>) {
        write(Length::Short, CLOSE, Some([0; 4]), &1000_u16.to_be_bytes(), out);
    }

    fn message(&mut self, dice: &mut Dice<'_>) -> (String, Meaning) {
        let id = Self::FIRST_ID + self.requests;
        let newest = Version::NEWEST.as_str();
        let mut text = String::new();
        let (method, params, answer) = match dice.below(16) {
            0..=3 => ("ping", "{}".to_owned(), Answer::AtOnce),
            4..=8 => {
                let script = dice.pick(&["", "l", "w", "lwl", "f", "s", "pwwp", "z"]);
                let waits = script.contains(['w', 's']);
                let meta = if dice.once_in(2) { meta(newest) } else { r#"{"progressToken":1}"#.into() };
                let params =
                    format!(r#"{{"name":"t","arguments":{{"n":{id},"script":"{script}"}},"_meta":{meta}}}"#);
                ("tools/call", params, if waits { Answer::InTime } else { Answer::AtOnce })
            }
            9 => {
                let version = dice.pick(&Version::ALL).1;
                let params = format!(
                    r#"{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}"#
                );
                ("initialize", params, Answer::AtOnce)
            }
            10 => {
                let params =
                    format!(r#"{{"notifications":{{"toolsListChanged":true}},"_meta":{}}}"#, meta(newest));
                ("subscriptions/listen", params, Answer::Perhaps)
            }
            11 => {
                let id = id.saturating_sub(u64::from(dice.byte() % 4) + 1);
                let _ = write!(
                    text,
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                );
                return (text, Meaning::Cancels(id));
            }
            12 => {
                text.push_str(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
                return (text, Meaning::Notice);
            }
            13 => return (dice.pick(&GIBBERISH).into(), Meaning::Gibberish),
            14 => return (dice.text(), Meaning::Vague),
            _ => return (samples::message(dice), Meaning::Vague),
        };
        self.requests += 1;
        let _ = write!(text, r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        (text, Meaning::Request(id, answer))
    }
}

fn meta(version: &str) -> String {
    const META: &str = "io.modelcontextprotocol/";
    format!(r#"{{"{META}protocolVersion":"{version}","{META}clientCapabilities":{{}}}}"#)
}

const GIBBERISH: [&str; 6] = ["", "hello", "{", "{}{}", r#"{"a":1,"a":2}"#, "\u{feff}\u{1d11e}"];

const CODES: [u16; 16] =
    [1000, 1001, 1003, 1011, 1014, 3000, 4999, 0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000];

/// A message in one frame or in several, with control frames in between.
fn pieces(dice: &mut Dice<'_>, kind: u8, message: &[u8], out: &mut Vec<u8>) {
    let count = if dice.once_in(3) { dice.below(5) } else { 0 };
    let (mut kind, mut rest) = (kind, message);
    for _ in 0..count {
        let (piece, after) = rest.split_at(usize::from(dice.byte()).min(rest.len()));
        frame(dice, kind & !LAST, piece, out);
        if dice.once_in(3) {
            frame(dice, dice_kind(piece), b"between", out);
        }
        (kind, rest) = (LAST, after);
    }
    frame(dice, kind, rest, out);
}

/// A ping, or a pong that nobody asked for.
fn dice_kind(piece: &[u8]) -> u8 {
    if piece.len().is_multiple_of(2) { PING } else { PONG }
}

/// A frame as a client sends it; now and then not quite.
fn frame(dice: &mut Dice<'_>, first: u8, payload: &[u8], out: &mut Vec<u8>) {
    let mask = if dice.once_in(4) { [0; 4] } else { [dice.byte(), 0xfa, 0x21, 0x3d] };
    if !dice.once_in(16) {
        return write(Length::Short, first, Some(mask), payload, out);
    }
    match dice.below(8) {
        // Longer than need be: no server minds.
        0 => write(Length::In16Bits, first, Some(mask), payload, out),
        1 => write(Length::In64Bits, first, Some(mask), payload, out),
        2 => write(Length::Short, first, None, payload, out),
        3 => write(Length::Short, first ^ dice.pick(&[0x40, 0x20, 0x10, 0x70]), Some(mask), payload, out),
        4 => write(Length::Short, first ^ LAST, Some(mask), payload, out),
        5 => write(Length::Short, first ^ (dice.byte() & 0x0f), Some(mask), payload, out),
        6 => {
            let length = dice.pick(&[u64::MAX, i64::MAX as u64, 1 << 32, 70_001, 2001, 1, 0]);
            write(Length::Said(length), first, Some(mask), payload, out);
        }
        _ => {
            let end = out.len();
            write(Length::Short, first, Some(mask), payload, out);
            let cut = usize::from(dice.byte()) % (out.len() - end);
            out.truncate(end + cut);
        }
    }
}

/// How the length of a frame is written.
enum Length {
    Short,
    In16Bits,
    In64Bits,
    /// Something else is written, in 64 bits.
    Said(u64),
}

fn write(length: Length, first: u8, mask: Option<[u8; 4]>, payload: &[u8], out: &mut Vec<u8>) {
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
        Length::Said(length) => {
            out.push(masked | 127);
            out.extend(length.to_be_bytes());
        }
    }
    out.extend(mask.into_iter().flatten());
    let mask = mask.unwrap_or_default();
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}
