//! A connection that remembers the ticket of a session is answered as one that does not.

use std::sync::Arc;

use host::{Config, Keyring, Server, TicketMemo};
use spile_core::Limits;
use testkit::FakePlatform;
use wire::{Decoded, HeaderField, Headers};

use super::ANONYMOUS;
use super::replicas::new_session;

const MINUTE_MS: u64 = 60_000;

struct Fixture {
    server: Arc<Server>,
    keyring: Arc<Keyring>,
    platform: Arc<FakePlatform>,
}

/// Uses a session, lets `change` happen, and uses it again: with a ticket that was remembered, and without.
fn check(change: impl FnOnce(&Fixture, &str), is_alive: bool) {
    let platform = Arc::new(FakePlatform::new(1));
    let keyring = Arc::new(Keyring::for_this_run(&*platform));
    let config = Config::new("t", "1", Limits::default(), platform.clone());
    let server = Server::new(Config { keyring: keyring.clone(), ..config }, Vec::new());
    let fixture = Fixture { server, keyring, platform };
    let (session, _) = new_session(&fixture.server);
    let memo = TicketMemo::default();
    let is_accepted = |memo: &TicketMemo| {
        let headers = Headers { version: HeaderField::Single(b"2025-11-25"), ..Headers::default() };
        let id = HeaderField::Single(session.as_bytes());
        let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_vec();
        let message = fixture.server.decode_post(ping, headers, id, &ANONYMOUS, memo);
        assert_eq!(message.ticket.is_some(), matches!(message.decoded, Decoded::Request(_)));
        message.ticket.is_some()
    };
    assert!(is_accepted(&memo), "a new session");
    assert!(is_accepted(&memo), "the ticket is remembered now");
    change(&fixture, &session);
    let again = [is_accepted(&memo), is_accepted(&TicketMemo::default())];
    assert_eq!(again, [is_alive, is_alive], "with and without a remembered ticket");
}

#[test]
fn a_session_goes_on() {
    check(|_, _| {}, true);
    check(|fixture, _| fixture.platform.advance_ms(Limits::default().session_ttl_ms - 1), true);
}

#[test]
fn a_session_that_was_ended_is_refused() {
    check(
        |fixture, session| {
            let ticket = fixture.server.verify_session(session, &ANONYMOUS).expect("alive");
            fixture.server.end_session(&ticket);
        },
        false,
    );
}

#[test]
fn a_session_that_expired_is_refused() {
    check(|fixture, _| fixture.platform.advance_ms(Limits::default().session_ttl_ms), false);
}

#[test]
fn a_session_of_a_key_that_was_withdrawn_is_refused() {
    let rotate = |overlap_ms: u64| {
        move |fixture: &Fixture, _: &str| {
            fixture.keyring.rotate(overlap_ms, &*fixture.platform).expect("keys of this run");
        }
    };
    check(rotate(0), false);
    check(rotate(MINUTE_MS), true);
}

#[test]
fn a_session_of_a_key_whose_overlap_has_passed_is_refused() {
    let wait = |wait_ms: u64| {
        move |fixture: &Fixture, session: &str| {
            fixture.keyring.rotate(MINUTE_MS, &*fixture.platform).expect("keys of this run");
            fixture.server.verify_session(session, &ANONYMOUS).expect("the overlap has begun");
            fixture.platform.advance_ms(wait_ms);
        }
    };
    check(wait(MINUTE_MS - 1), true);
    check(wait(MINUTE_MS), false);
}
