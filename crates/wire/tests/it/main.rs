//! Tests of framing, headers and decoding. The property tests check the same invariants as `cargo xtask fuzz`.

mod client;

use json::ParseLimits;
use proptest::prelude::*;
use testkit::invariants;
use wire::HeaderField;
use wire::frame::{Frame, FrameDecoder, Framing};
use wire::headers::check_matches_argument;

#[test]
fn numbers_in_headers_are_compared_by_digits() {
    for (header, argument, is_equal) in [
        ("42", "42", true),
        ("42.0", "42", true),
        ("4.2e1", "42", true),
        ("-0", "0", true),
        ("123456789012345678901234567890", "123456789012345678901234567890", true),
        ("1e99999999999999999999", "1e99999999999999999999", true),
        ("43", "42", false),
        ("-42", "42", false),
        // Equal as `f64`.
        ("18446744073709551616", "18446744073709551615", false),
        ("9007199254740992.0", "9007199254740993", false),
        ("0", "1e-400", false),
        // Not JSON numbers, although other parsers accept them.
        ("+42", "42", false),
        (" 42", "42", false),
        ("42\t", "42.0", false),
        ("042", "42", false),
        ("42.", "42", false),
        ("inf", "1e400", false),
        ("", "0", false),
    ] {
        let doc = json::parse(argument.as_bytes().to_vec(), &ParseLimits::default()).expect("JSON");
        let got = check_matches_argument(HeaderField::Single(header.as_bytes()), Some(doc.root()));
        assert_eq!(got.is_ok(), is_equal, "`{header}` for {argument}: {got:?}");
    }
}

#[test]
fn the_line_limit_does_not_depend_on_how_a_line_arrives() {
    for (line, frames_max_7) in [
        ("1234567\n", Frame::Message(b"1234567".to_vec())),
        ("12345 \r\n", Frame::Message(b"12345".to_vec())),
        ("1234567\r\n", Frame::TooLong),
        ("12       \n", Frame::TooLong),
    ] {
        for cut in 0..line.len() {
            let mut frames = FrameDecoder::new(7);
            let mut found = Vec::new();
            for piece in [&line[..cut], &line[cut..]] {
                frames.read_buffer()[..piece.len()].copy_from_slice(piece.as_bytes());
                frames.advance(piece.len());
                found.extend(&mut frames);
            }
            assert_eq!(found, std::slice::from_ref(&frames_max_7), "{line:?} cut at {cut}");
        }
    }
}

fn decode_all(mut frames: FrameDecoder, stream: &str) -> Vec<Frame> {
    frames.read_buffer()[..stream.len()].copy_from_slice(stream.as_bytes());
    frames.advance(stream.len());
    let mut found: Vec<Frame> = frames.by_ref().collect();
    found.extend(frames.finish());
    found
}

#[test]
fn a_known_framing_is_not_detected_again() {
    let frames = FrameDecoder::with_framing(Framing::Lines, 100);
    let expected = ["Content-Length: unknown", "{}"].map(|line| Frame::Message(line.into()));
    assert_eq!(decode_all(frames, "Content-Length: unknown\n{}\n"), expected);
}

#[test]
fn framing_is_detected_by_header_names() {
    let message = |text: &str| Frame::Message(text.into());
    for (stream, expected) in [
        ("Cfoo\n{}\n", vec![message("Cfoo"), message("{}")]),
        ("c\n", vec![message("c")]),
        ("Content-", vec![message("Content-")]),
        ("Content-Language: en\n", vec![message("Content-Language: en")]),
        ("cOnTent-LENGTH: 2\r\n\r\n{}", vec![message("{}")]),
        ("Content-Length: 2\n\r\n{}\r\nContent-Length: 2\r\n\n{}", vec![message("{}"), message("{}")]),
        (" \r\nContent-Type: a/b\nContent-Length:2\n\n{}", vec![message("{}")]),
        // A message without headers is an error at once.
        ("Content-Length: 2\n\n{}{\"id\":1}\n", vec![message("{}"), Frame::Desynchronized]),
        ("Content-Length: 2\n\n{}no colon\n", vec![message("{}"), Frame::Desynchronized]),
        ("Content-Length: 2\n\n{}X-A: b\r\nContent-Length: 1\r\n\r\n7", vec![message("{}"), message("7")]),
        ("Content-Length: 2\nX{}: 1\n\n{}", vec![Frame::Desynchronized]),
        // A line that starts with a carriage return has no header name.
        ("Content-Length: 2\r\n\r: x\r\n\r\n{}", vec![Frame::Desynchronized]),
    ] {
        assert_eq!(decode_all(FrameDecoder::new(100), stream), expected, "{stream:?}");
    }
}

#[test]
fn the_seeds_of_the_fuzz_targets_hold_the_invariants() {
    invariants::check_seeds("frames", invariants::frames);
    invariants::check_seeds("scan", invariants::scan);
    invariants::check_seeds("decode", invariants::decode_message);
    invariants::check_seeds("headers", invariants::headers);
    invariants::check_seeds("sse", invariants::sse);
    invariants::check_seeds("client", invariants::client);
}

/// Bytes, mostly from `alphabet`.
fn bytes(alphabet: &'static [u8], len_max: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => prop::sample::select(alphabet), 1 => any::<u8>()];
    prop::collection::vec(byte, 0..len_max)
}

/// A limit, chunk sizes, and a stream with many lines and headers.
fn framed_stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"Content-Length: ".to_vec()),
        Just(b"\r\n\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"{}".to_vec()),
        "[0-9]{1,4}".prop_map(String::into_bytes),
        bytes(b"\r\n {}Cc:1", 12),
    ];
    let cuts = prop::collection::vec(any::<u8>(), 0..6);
    let stream = prop::collection::vec(piece, 0..12);
    (any::<u8>(), cuts, stream)
        .prop_map(|(limit, cuts, stream)| [vec![limit, cuts.len() as u8], cuts, stream.concat()].concat())
}

/// A limit, chunk sizes, and a stream with many events.
fn sse_stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"id: ".to_vec()),
        Just(b"event: message".to_vec()),
        Just(b"retry: ".to_vec()),
        prop::sample::select(vec!["\n", "\n\n", "\r\n", "\r", "\r\n\r\n"])
            .prop_map(|end| end.as_bytes().to_vec()),
        bytes(b"\r\n :abc1\0", 12),
    ];
    let cuts = prop::collection::vec(any::<u8>(), 0..6);
    let stream = prop::collection::vec(piece, 0..16);
    (any::<u8>(), cuts, stream)
        .prop_map(|(limit, cuts, stream)| [vec![limit, cuts.len() as u8], cuts, stream.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn frames_do_not_depend_on_chunk_sizes(data in framed_stream()) {
        invariants::frames(&data);
    }

    #[test]
    fn events_do_not_depend_on_chunk_sizes(data in sse_stream()) {
        invariants::sse(&data);
    }

    #[test]
    fn each_call_ends_once_whatever_the_server_sends(data in prop::collection::vec(any::<u8>(), 0..400)) {
        invariants::client(&data);
    }

    #[test]
    fn a_message_is_rejected_or_decoded_faithfully(
        data in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        invariants::decode_message(&data);
    }

    #[test]
    fn a_header_matches_only_its_own_value(data in bytes(b"=?base64?MQ=-+.e0123456789\x02", 60)) {
        invariants::headers(&data);
    }
}
