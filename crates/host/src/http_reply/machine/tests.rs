//! Every transition of the machine, for every client and every kind of response it accepts.

use std::sync::Arc;

use wire::frame::sse::EventId;

use super::*;

const SILENCE_MS: u64 = 100;
const KEEP_ALIVE_MS: u64 = 1000;

const PRIMING: &str = "id: 7-3\ndata: \n\n";

/// What a client of this version can do after a disconnect.
#[derive(Debug, Clone, Copy)]
enum Client {
    /// No session, or the stateless era.
    CannotResume,
    /// A session of a version without priming events.
    Resumes,
    ResumesWithPriming,
}

impl Client {
    fn resumption(self) -> Resumption {
        match self {
            Self::CannotResume => Resumption::No,
            Self::Resumes => Resumption::Yes { priming: None },
            Self::ResumesWithPriming => Resumption::Yes { priming: Some(EventId { stream: 7, event: 3 }) },
        }
    }

    /// The id of the next event.
    fn next_id(self) -> Option<EventId> {
        match self {
            Self::CannotResume => None,
            Self::Resumes | Self::ResumesWithPriming => Some(EventId { stream: 7, event: 4 }),
        }
    }

    /// The event that carries this message.
    fn event(self, message: &str) -> String {
        let id = self.next_id().map_or("", |_| "id: 7-4\n");
        format!("event: message\n{id}data: {message}\n\n")
    }
}

const CLIENTS: [Client; 3] = [Client::CannotResume, Client::Resumes, Client::ResumesWithPriming];

fn message(client: Client) -> Input {
    // A session's stream shares its messages; a call outside of a session owns them.
    let body = match client {
        Client::CannotResume => MessageBody::Owned(b"m".to_vec()),
        Client::Resumes | Client::ResumesWithPriming => MessageBody::Shared(Arc::from(&b"m"[..])),
    };
    Input::Message { id: client.next_id(), body }
}

fn response(client: Client, status: u16) -> Input {
    Input::Response { id: client.next_id(), status, body: MessageBody::Owned(b"r".to_vec()) }
}

const PAUSE: Input = Input::Pause { retry_ms: 500 };
const RETRY: &str = "retry: 500\n\n";

/// What the machine did, in words.
fn begin(client: Client, accepted: AcceptedTypes, input: Input, now_ms: u64) -> String {
    let state = WaitingState {
        accepted,
        resumption: client.resumption(),
        stream_after_silence_ms: SILENCE_MS,
        keep_alive_ms: KEEP_ALIVE_MS,
    };
    match state.advance(input, now_ms) {
        None => "waits".to_owned(),
        Some(ResponseStart::Json { status, body }) => format!("json {status} {}", text(body)),
        Some(ResponseStart::Events(bytes)) => format!("events {}", text(bytes)),
        Some(ResponseStart::Stream(bytes, stream)) => {
            assert_eq!(stream.wake_at_ms(), Some(now_ms + KEEP_ALIVE_MS), "a keep-alive is due then");
            format!("stream {}", text(bytes))
        }
        Some(ResponseStart::Accepted) => "accepted".to_owned(),
    }
}

/// What a stream that was opened at 0 sends, and whether it is open after that.
fn advance(client: Client, input: Input, now_ms: u64) -> (String, StreamState) {
    let mut stream = StreamState::new(client.resumption(), KEEP_ALIVE_MS, 0);
    let sent = match stream.advance(input, now_ms) {
        None => "nothing".to_owned(),
        Some(Step::Send(bytes)) => text(bytes),
        Some(Step::Finish) => "finish".to_owned(),
    };
    (sent, stream)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

fn check_begin(client: Client, accepted: AcceptedTypes, input: Input, now_ms: u64, expected: &str) {
    let label = format!("{client:?}, {accepted:?}, {input:?} at {now_ms}");
    assert_eq!(begin(client, accepted, input, now_ms), expected, "{label}");
}

fn check_open(client: Client, input: Input, now_ms: u64, expected: &str) {
    let label = format!("{client:?}, {input:?} at {now_ms}");
    let (sent, stream) = advance(client, input, now_ms);
    assert_eq!(sent, expected, "{label}");
    assert!(!stream.has_ended(), "{label}: it stays open");
    let keep_alive_at_ms = if expected == "nothing" { KEEP_ALIVE_MS } else { now_ms + KEEP_ALIVE_MS };
    assert_eq!(stream.wake_at_ms(), Some(keep_alive_at_ms), "{label}");
}

fn check_ended(client: Client, input: Input, now_ms: u64, expected: &str) {
    let label = format!("{client:?}, {input:?} at {now_ms}");
    let (sent, stream) = advance(client, input, now_ms);
    assert_eq!(sent, expected, "{label}");
    assert!(stream.has_ended() && stream.wake_at_ms().is_none(), "{label}: it is over");
}

/// What comes before the first event.
fn opening(client: Client) -> &'static str {
    match client {
        Client::CannotResume | Client::Resumes => "",
        Client::ResumesWithPriming => PRIMING,
    }
}

#[test]
fn response_without_events_is_json_for_a_client_that_accepts_json() {
    for client in CLIENTS {
        for accepted in [AcceptedTypes::JSON, AcceptedTypes::BOTH] {
            // However late: until the silence is noticed, the head is not sent.
            for now_ms in [0, SILENCE_MS, u64::MAX] {
                check_begin(client, accepted, response(client, 200), now_ms, "json 200 r");
            }
        }
    }
}

#[test]
fn response_is_the_only_event_for_a_client_that_accepts_only_streams() {
    for client in CLIENTS {
        let expected = format!("events {}{}", opening(client), client.event("r"));
        check_begin(client, AcceptedTypes::STREAM, response(client, 200), 0, &expected);
    }
}

#[test]
fn error_status_is_sent_as_json_to_every_client() {
    for client in CLIENTS {
        for accepted in [AcceptedTypes::JSON, AcceptedTypes::STREAM, AcceptedTypes::BOTH] {
            check_begin(client, accepted, response(client, 503), 0, "json 503 r");
            check_begin(client, accepted, response(client, 400), 0, "json 400 r");
        }
        let expected = format!("events {}{}", opening(client), client.event("r"));
        check_begin(client, AcceptedTypes::STREAM, response(client, 399), 0, &expected);
    }
}

#[test]
fn first_event_starts_a_stream() {
    for client in CLIENTS {
        for accepted in [AcceptedTypes::STREAM, AcceptedTypes::BOTH] {
            let expected = format!("stream {}{}", opening(client), client.event("m"));
            check_begin(client, accepted, message(client), 0, &expected);
            check_begin(client, accepted, message(client), SILENCE_MS + 1, &expected);
        }
    }
}

#[test]
fn silence_starts_a_stream_with_a_byte_for_the_proxies() {
    for accepted in [AcceptedTypes::STREAM, AcceptedTypes::BOTH] {
        for (client, first) in [
            (Client::CannotResume, ":\n\n"),
            (Client::Resumes, ":\n\n"),
            (Client::ResumesWithPriming, PRIMING),
        ] {
            check_begin(client, accepted, Input::Silence, 0, "waits");
            check_begin(client, accepted, Input::Silence, SILENCE_MS - 1, "waits");
            check_begin(client, accepted, Input::Silence, SILENCE_MS, &format!("stream {first}"));
            check_begin(client, accepted, Input::Silence, SILENCE_MS + 1, &format!("stream {first}"));
        }
    }
}

#[test]
fn client_that_accepts_only_json_waits_for_the_response_alone() {
    for client in CLIENTS {
        for now_ms in [0, SILENCE_MS, 1 << 40] {
            check_begin(client, AcceptedTypes::JSON, message(client), now_ms, "waits");
            check_begin(client, AcceptedTypes::JSON, PAUSE, now_ms, "waits");
            check_begin(client, AcceptedTypes::JSON, Input::Silence, now_ms, "waits");
        }
    }
}

#[test]
fn pause_before_the_first_event_needs_a_priming_event() {
    for accepted in [AcceptedTypes::STREAM, AcceptedTypes::BOTH] {
        let expected = format!("events {PRIMING}{RETRY}");
        check_begin(Client::ResumesWithPriming, accepted, PAUSE, 0, &expected);
        check_begin(Client::Resumes, accepted, PAUSE, 0, "waits");
        check_begin(Client::CannotResume, accepted, PAUSE, 0, "waits");
    }
}

#[test]
fn cancelled_request_is_accepted_without_a_response() {
    for client in CLIENTS {
        for accepted in [AcceptedTypes::JSON, AcceptedTypes::STREAM, AcceptedTypes::BOTH] {
            check_begin(client, accepted, Input::End, 0, "accepted");
            check_begin(client, accepted, Input::End, SILENCE_MS, "accepted");
        }
    }
}

#[test]
fn only_a_client_that_accepts_streams_needs_a_timer() {
    for (accepted, expected) in [
        (AcceptedTypes::JSON, None),
        (AcceptedTypes::STREAM, Some(SILENCE_MS)),
        (AcceptedTypes::BOTH, Some(SILENCE_MS)),
    ] {
        let state = WaitingState {
            accepted,
            resumption: Resumption::No,
            stream_after_silence_ms: SILENCE_MS,
            keep_alive_ms: KEEP_ALIVE_MS,
        };
        assert_eq!(state.wake_at_ms(), expected, "{accepted:?}");
    }
}

#[test]
fn stream_sends_each_message_with_its_id_and_stays_open() {
    for client in CLIENTS {
        check_open(client, message(client), 0, &client.event("m"));
        check_open(client, message(client), KEEP_ALIVE_MS * 5, &client.event("m"));
    }
}

#[test]
fn stream_ends_with_the_response_whatever_its_status() {
    for client in CLIENTS {
        for status in [200, 400, 503] {
            check_ended(client, response(client, status), 5, &client.event("r"));
        }
    }
}

#[test]
fn stream_pauses_only_if_the_client_can_resume() {
    check_ended(Client::ResumesWithPriming, PAUSE, 5, RETRY);
    check_open(Client::Resumes, PAUSE, 5, "nothing");
    check_open(Client::CannotResume, PAUSE, 5, "nothing");
}

#[test]
fn stream_of_a_cancelled_call_ends_without_an_event() {
    for client in CLIENTS {
        check_ended(client, Input::End, 5, "finish");
    }
}

#[test]
fn keep_alive_is_sent_after_each_silence() {
    for client in CLIENTS {
        check_open(client, Input::Silence, 0, "nothing");
        check_open(client, Input::Silence, KEEP_ALIVE_MS - 1, "nothing");
        check_open(client, Input::Silence, KEEP_ALIVE_MS, ":\n\n");
        // A timer that fires late does not make up for what it missed.
        check_open(client, Input::Silence, KEEP_ALIVE_MS * 9, ":\n\n");
    }
}

#[test]
fn events_postpone_the_keep_alive_and_ignored_ones_do_not() {
    let client = Client::CannotResume;
    let mut stream = StreamState::new(client.resumption(), KEEP_ALIVE_MS, 0);
    assert!(stream.advance(message(client), 600).is_some());
    assert_eq!(stream.advance(Input::Silence, 1000), None);
    assert_eq!(stream.advance(PAUSE, 1500), None);
    assert_eq!(stream.advance(Input::Silence, 1599), None);
    assert_eq!(stream.advance(Input::Silence, 1600), Some(Step::Send(b":\n\n".to_vec())));
    assert_eq!(stream.wake_at_ms(), Some(2600));
}

#[test]
fn nothing_follows_the_end_of_a_stream() {
    for client in CLIENTS {
        for last in [response(client, 200), Input::End] {
            let (_, mut stream) = advance(client, last, 5);
            let inputs =
                [message(client), response(client, 200), PAUSE, Input::End, Input::Silence, Input::Silence];
            for (input, now_ms) in inputs.into_iter().zip([5, 6, 7, 8, 9, u64::MAX]) {
                assert_eq!(stream.advance(input, now_ms), Some(Step::Finish), "{client:?}");
            }
        }
    }
}

#[test]
fn times_near_the_end_of_the_clock_do_not_overflow() {
    let mut stream = StreamState::new(Resumption::No, u64::MAX, 1);
    assert_eq!(stream.advance(Input::Silence, u64::MAX - 1), None);
    assert!(stream.advance(message(Client::CannotResume), u64::MAX).is_some());
    assert_eq!(stream.wake_at_ms(), Some(u64::MAX));
}

#[test]
fn reply_that_is_ready_at_once_follows_the_same_rule() {
    for (status, accepted, is_json) in [
        (200, AcceptedTypes::JSON, true),
        (200, AcceptedTypes::BOTH, true),
        (200, AcceptedTypes::STREAM, false),
        (399, AcceptedTypes::STREAM, false),
        (400, AcceptedTypes::STREAM, true),
        (503, AcceptedTypes::STREAM, true),
    ] {
        let expected = match is_json {
            true => CompleteReply::Json { status, body: b"r".to_vec(), retry_after_ms: Some(9) },
            false => CompleteReply::Events(b"event: message\ndata: r\n\n".to_vec()),
        };
        let reply = CompleteReply::new(status, b"r".to_vec(), Some(9), accepted);
        assert_eq!(reply, expected, "{status} {accepted:?}");
        // The same as for a call that had to wait.
        let began = begin(Client::CannotResume, accepted, response(Client::CannotResume, status), 0);
        assert_eq!(began.starts_with("json"), is_json, "{status} {accepted:?}");
    }
}
