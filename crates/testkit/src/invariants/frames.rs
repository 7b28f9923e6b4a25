//! Framing: a stream gives the same frames however it is split, and the buffer stays within its limit.

use wire::frame::{Frame, FrameDecoder, Framing};

use super::FuzzInput;

/// Takes a limit and chunk sizes from `data`; the rest is the stream.
pub fn frames(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let message_bytes_max = input.choose(&[0, 1, 2, 7, 16, 40, 300, 4096, 5000, 100_000]);
    let cuts: Vec<usize> = input.bytes().iter().map(|cut| usize::from(*cut).max(1)).collect();
    let stream = input.rest();

    let whole = read_frames(stream, &[], message_bytes_max);
    assert_eq!(read_frames(stream, &[1], message_bytes_max), whole, "byte by byte");
    assert_eq!(read_frames(stream, &cuts, message_bytes_max), whole, "in pieces of {cuts:?}");
    for frame in &whole.0 {
        if let Frame::Message(message) = frame {
            assert!(message.len() <= message_bytes_max);
        }
    }
    for framing in [Framing::Lines, Framing::ContentLength] {
        let known = || FrameDecoder::with_framing(framing, message_bytes_max);
        let whole = read_frames_with(known(), stream, &[], message_bytes_max);
        assert_eq!(
            read_frames_with(known(), stream, &[1], message_bytes_max),
            whole,
            "{framing:?} byte by byte"
        );
        assert_eq!(
            read_frames_with(known(), stream, &cuts, message_bytes_max),
            whole,
            "{framing:?} in pieces"
        );
        assert_eq!(whole.1, Some(framing), "what is known is not guessed");
    }
    check_roundtrip(stream, &cuts, message_bytes_max);
}

/// All frames of a stream that arrives in chunks of these sizes, repeated; without sizes, in one chunk.
fn read_frames(stream: &[u8], cuts: &[usize], message_bytes_max: usize) -> (Vec<Frame>, Option<Framing>) {
    read_frames_with(FrameDecoder::new(message_bytes_max), stream, cuts, message_bytes_max)
}

fn read_frames_with(
    mut frames: FrameDecoder,
    stream: &[u8],
    cuts: &[usize],
    message_bytes_max: usize,
) -> (Vec<Frame>, Option<Framing>) {
    let mut found = Vec::new();
    let mut sizes = cuts.iter().copied().cycle();
    let mut rest = stream;
    while !rest.is_empty() {
        let space = frames.read_buffer();
        assert!(!space.is_empty(), "there is always room to read into");
        let size = sizes.next().unwrap_or(rest.len()).min(rest.len()).min(space.len());
        space[..size].copy_from_slice(&rest[..size]);
        rest = &rest[size..];
        frames.advance(size);
        found.extend(&mut frames);
        assert!(
            frames.buffered_bytes() <= message_bytes_max.max(HEAD_BYTES_MAX),
            "holds {}",
            frames.buffered_bytes()
        );
        assert!(frames.read_buffer().len() <= message_bytes_max.max(HEAD_BYTES_MAX) + SPARE_BYTES_MAX);
    }
    found.extend(frames.finish());
    (found, frames.framing())
}

const HEAD_BYTES_MAX: usize = 4096;
const SPARE_BYTES_MAX: usize = 512 << 10;

/// A written message reads back unchanged, in both framings.
fn check_roundtrip(data: &[u8], cuts: &[usize], message_bytes_max: usize) {
    let short: Vec<&[u8]> = data.split(|c| *c == b'\n').filter(|m| m.len() <= message_bytes_max).collect();
    // Our messages are JSON: no whitespace around them, and no header in front.
    let lines = || short.iter().copied().filter(|m| m.trim_ascii() == *m && !m.is_empty());
    let is_header = |m: &[u8]| {
        let begins = |name: &[u8]| m.get(..name.len()).is_some_and(|m| m.eq_ignore_ascii_case(name));
        begins(b"content-length:") || begins(b"content-type:")
    };
    let json = lines().filter(|m| !is_header(m)).collect();
    for (framing, messages) in [(Framing::Lines, json), (Framing::ContentLength, short.clone())] {
        let mut written = Vec::new();
        for message in &messages {
            framing.write(&mut written, message);
        }
        let (found, _) = read_frames(&written, cuts, message_bytes_max);
        let messages: Vec<Frame> = messages.into_iter().map(|m| Frame::Message(m.to_vec())).collect();
        assert_eq!(found, messages, "{framing:?}");
    }
    // Once lines are detected, a line that looks like a header is a message too.
    let mut written = Vec::new();
    lines().for_each(|line| Framing::Lines.write(&mut written, line));
    let known = FrameDecoder::with_framing(Framing::Lines, message_bytes_max);
    let (found, _) = read_frames_with(known, &written, cuts, message_bytes_max);
    assert_eq!(found, lines().map(|m| Frame::Message(m.to_vec())).collect::<Vec<_>>());
}
