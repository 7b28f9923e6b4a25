//! Sealed text: a session id or a `requestState` opens only unchanged, for the caller it was sealed for, for its purpose,
//! and until it expires.

use std::sync::Arc;

use host::{CallerIdentity, Config, Dispatched, OutgoingMessage, PendingResponse, ReplyChannel, Server};
use serde_json::{Value, json};
use spile_core::{Limits, Platform as _, Principal};
use wire::{Decoded, Headers, HttpDefaults, MessageContext, SessionError, Version};

use super::FuzzInput;
use super::scripted_provider::ScriptedProvider;
use crate::FakePlatform;

pub fn seal(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let platform = Arc::new(FakePlatform::new(u64::from(input.byte())));
    let limits = Limits::default();
    let config = Config::new("s", "1", limits.clone(), platform.clone());
    let server = Server::new(config, vec![Arc::new(ScriptedProvider::default())]);
    let (owner, other) = (random_identity(&mut input), random_identity(&mut input));
    let (session, state) = (new_session_id(&server, &owner), new_request_state(&server, &owner));
    let same_owner = owner.principal == other.principal;

    let forged = tamper(&mut input, &session, &state);
    assert_eq!(server.verify_session(&forged, &other).is_ok(), forged == session && same_owner);
    let arguments =
        input.choose(&[r#"{"n":1,"script":"a"}"#, r#"{"n": 1, "script": "a"}"#, r#"{"n":2,"script":"a"}"#]);
    let same_call = Value::is_object(&parse_json(arguments.as_bytes())) && !arguments.contains('2');
    let opens = is_state_accepted(&server, &other, &forged, arguments);
    assert_eq!(opens, forged == state && same_owner && same_call, "{forged} for {arguments}");

    platform.advance_ms(limits.input_timeout_ms);
    assert!(!is_state_accepted(&server, &owner, &state, r#"{"n":1,"script":"a"}"#), "too old");
    assert!(server.verify_session(&session, &owner).is_ok());
    platform.advance_ms(limits.session_ttl_ms - limits.input_timeout_ms);
    assert_eq!(server.verify_session(&session, &owner).err(), Some(SessionError::Expired));
    assert!(platform.now_ms() > FakePlatform::START_MS);
}

/// A genuine seal, one with a change, or any text.
fn tamper(input: &mut FuzzInput<'_>, session: &str, state: &str) -> String {
    let real = input.choose(&[session, state]);
    let mut text = real.as_bytes().to_vec();
    match input.below(8) {
        0 => return input.text(),
        1 => return real.to_owned(),
        2 => text.truncate(usize::from(input.byte())),
        3 => text.extend_from_slice(input.bytes()),
        4 => text.splice(..0, input.bytes().iter().copied()).for_each(drop),
        _ => {
            for _ in 0..=input.below(3) {
                let index = usize::from(input.byte()) % text.len().max(1);
                if let Some(byte) = text.get_mut(index) {
                    *byte ^= 1 << input.below(8);
                }
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn random_identity(input: &mut FuzzInput<'_>) -> CallerIdentity {
    let principal = match input.below(3) {
        0 => Principal::Anonymous,
        1 => Principal::local("a").expect("a short name"),
        _ => Principal::local("ab").expect("a short name"),
    };
    CallerIdentity { principal, address: None, request_head: None }
}

fn new_session_id(server: &Arc<Server>, identity: &CallerIdentity) -> String {
    let params = json!({"protocolVersion": Version::NEWEST_WITH_HANDSHAKE.as_str(), "capabilities": {}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let defaults =
        HttpDefaults { headers: Headers::default(), lookup_session: &|| wire::SessionLookup::NotNamed };
    let Decoded::Request(request) =
        server.decode(message.to_string().into_bytes(), MessageContext::Http(defaults), &server.snapshot())
    else {
        panic!("a handshake is a request");
    };
    match server.dispatch(request, identity, ReplyChannel::NoSession, server.snapshot()) {
        Dispatched::Initialized { session, .. } => session,
        Dispatched::Ready { .. } | Dispatched::Call(_) | Dispatched::Subscription(_) => {
            panic!("a handshake makes a session")
        }
    }
}

fn new_request_state(server: &Arc<Server>, identity: &CallerIdentity) -> String {
    let response = call(server, identity, None, r#"{"n":1,"script":"a"}"#);
    response["result"]["requestState"].as_str().expect("a call that asks gives a state").to_owned()
}

/// Whether a call continues from this state instead of being refused.
fn is_state_accepted(server: &Arc<Server>, identity: &CallerIdentity, state: &str, arguments: &str) -> bool {
    let response = call(server, identity, Some(state), arguments);
    assert!(response["error"].is_null() || response["error"]["code"] == -32602);
    // The state alone proves that a round is over.
    response["error"].is_null()
}

fn call(server: &Arc<Server>, identity: &CallerIdentity, state: Option<&str>, arguments: &str) -> Value {
    let mut params = json!({"name": "t", "arguments": parse_json(arguments.as_bytes()), "_meta": {
        "io.modelcontextprotocol/protocolVersion": Version::NEWEST.as_str(),
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }});
    if let Some(state) = state {
        params["requestState"] = state.into();
    }
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let Decoded::Request(request) =
        server.decode(message.to_string().into_bytes(), MessageContext::Pipe(None), &server.snapshot())
    else {
        panic!("a call is a request");
    };
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match server.dispatch(request, identity, ReplyChannel::NoSession, server.snapshot()) {
        Dispatched::Ready { body, .. } => parse_json(&body),
        Dispatched::Call(in_flight) => match PendingResponse::Single(in_flight).poll_next(&mut cx) {
            std::task::Poll::Ready(OutgoingMessage::Response { body, .. }) => parse_json(&body),
            _ => panic!("nothing in this call waits"),
        },
        Dispatched::Initialized { .. } | Dispatched::Subscription(_) => panic!("a call is no handshake"),
    }
}

fn parse_json(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("JSON")
}
