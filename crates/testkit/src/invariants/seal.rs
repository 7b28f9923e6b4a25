//! What we hand out and get back: a session id or a `requestState` opens only as it was sealed, for whoever
//! it was sealed for, in the place it was sealed for, and until it is too old.

use std::sync::Arc;

use call::{Limits, Principal, World as _};
use host::{Begun, Config, Flow, Line, Out, Server, Who};
use serde_json::{Value, json};
use wire::{Bare, Heads, HttpBare, Opened, Version};

use super::Dice;
use super::script::Scripted;
use crate::FakeWorld;

pub fn seal(data: &[u8]) {
    let mut dice = Dice::new(data);
    let world = Arc::new(FakeWorld::new(u64::from(dice.byte())));
    let limits = Limits::default();
    let config =
        Config { name: "s".into(), version: "1".into(), limits: limits.clone(), world: world.clone() };
    let server =
        Server::new(config, vec![Arc::new(Scripted::default())]).expect("the script's catalog is good");
    let (owner, other) = (who(&mut dice), who(&mut dice));
    let (session, state) = (session_id(&server, &owner), request_state(&server, &owner));
    let same_owner = owner.principal == other.principal;

    let forged = forge(&mut dice, &session, &state);
    assert_eq!(server.session(&forged, &other).is_some(), forged == session && same_owner);
    let arguments =
        dice.pick(&[r#"{"n":1,"script":"a"}"#, r#"{"n": 1, "script": "a"}"#, r#"{"n":2,"script":"a"}"#]);
    let same_call = Value::is_object(&read(arguments.as_bytes())) && !arguments.contains('2');
    let opens = opens(&server, &other, &forged, arguments);
    assert_eq!(opens, forged == state && same_owner && same_call, "{forged} for {arguments}");

    world.advance_ms(limits.ask_timeout_ms);
    assert!(!self::opens(&server, &owner, &state, r#"{"n":1,"script":"a"}"#), "too old");
    assert!(server.session(&session, &owner).is_some());
    world.advance_ms(limits.session_age_ms - limits.ask_timeout_ms);
    assert!(server.session(&session, &owner).is_none(), "too old");
    assert!(world.now_ms() > FakeWorld::START_MS);
}

/// The real thing, one of the two with something changed, or anything at all.
fn forge(dice: &mut Dice<'_>, session: &str, state: &str) -> String {
    let real = dice.pick(&[session, state]);
    let mut text = real.as_bytes().to_vec();
    match dice.below(8) {
        0 => return dice.text(),
        1 => return real.to_owned(),
        2 => text.truncate(usize::from(dice.byte())),
        3 => text.extend_from_slice(dice.bytes()),
        4 => text.splice(..0, dice.bytes().iter().copied()).for_each(drop),
        _ => {
            for _ in 0..=dice.below(3) {
                let at = usize::from(dice.byte()) % text.len().max(1);
                if let Some(byte) = text.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn who(dice: &mut Dice<'_>) -> Who {
    let principal = match dice.below(3) {
        0 => Principal::Anonymous,
        1 => Principal::Named("a".into()),
        _ => Principal::Named("ab".into()),
    };
    Who { principal, address: None }
}

fn session_id(server: &Arc<Server>, who: &Who) -> String {
    let params = json!({"protocolVersion": Version::NEWEST_WITH_HANDSHAKE.as_str(), "capabilities": {}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let bare = HttpBare { heads: Heads::default(), session: &|| wire::Session::None };
    let Opened::Request(request) = server.open(message.to_string().into_bytes(), Bare::Http(bare)) else {
        panic!("a handshake is a request");
    };
    match server.begin(request, who, Line::Alone) {
        Begun::Welcome { session, .. } => session,
        Begun::Ready { .. } | Begun::Call(_) | Begun::Listen(_) => panic!("a handshake makes a session"),
    }
}

fn request_state(server: &Arc<Server>, who: &Who) -> String {
    let answer = call(server, who, None, r#"{"n":1,"script":"a"}"#);
    answer["result"]["requestState"].as_str().expect("a call that asks gives a state").to_owned()
}

/// Whether a call goes on from this state instead of refusing it.
fn opens(server: &Arc<Server>, who: &Who, state: &str, arguments: &str) -> bool {
    let answer = call(server, who, Some(state), arguments);
    assert!(answer["error"].is_null() || answer["error"]["code"] == -32602);
    // The state alone says that a round is over.
    answer["error"].is_null()
}

fn call(server: &Arc<Server>, who: &Who, state: Option<&str>, arguments: &str) -> Value {
    let mut params = json!({"name": "t", "arguments": read(arguments.as_bytes()), "_meta": {
        "io.modelcontextprotocol/protocolVersion": Version::NEWEST.as_str(),
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }});
    if let Some(state) = state {
        params["requestState"] = state.into();
    }
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let Opened::Request(request) = server.open(message.to_string().into_bytes(), Bare::Pipe(None)) else {
        panic!("a call is a request");
    };
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match server.begin(request, who, Line::Alone) {
        Begun::Ready { body, .. } => read(&body),
        Begun::Call(serving) => match Flow::One(serving).poll_next(&mut cx) {
            std::task::Poll::Ready(Out::Final { body, .. }) => read(&body),
            _ => panic!("nothing in this call waits"),
        },
        Begun::Welcome { .. } | Begun::Listen(_) => panic!("a call is no handshake"),
    }
}

fn read(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("JSON")
}
