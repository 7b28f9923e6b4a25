//! An answer of the user counts once, for the question that was asked, on the server that asked it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use host::{Config, Keyring, Server, SystemPlatform};
use spile_core::{Catalog, Limits, Outcome, Provider, RateLimit, Run, ToolResult};
use state::store::{MemoryStore, Store, StoreLimits};

use super::{
    FnProvider, answers, ask, error_of, form, provider, respond, server, state_of, stateless_call, text_of,
    tools,
};

/// Pays if the user says yes, and says how often it has paid.
fn payments() -> Arc<dyn Provider> {
    let paid = AtomicU32::new(0);
    provider(tools(&["pay"]), move |_, cx| {
        match cx.journal.response("sure").and_then(|answer| answer.text_field("value")).as_deref() {
            None => Run::Now(Outcome::InputRequired(ask("sure").as_consent())),
            Some("yes") => {
                Run::now(ToolResult::text(format!("paid {}", paid.fetch_add(1, Ordering::Relaxed) + 1)))
            }
            Some(_) => Run::now(ToolResult::text("not paid")),
        }
    })
}

fn replica(scope: &str, keyring: &Arc<Keyring>, store: &Arc<dyn Store>) -> Arc<Server> {
    let config = Config::new("t", "1", Limits::default(), Arc::new(SystemPlatform::default()));
    let (keyring, store, store_scope) = (keyring.clone(), store.clone(), scope.to_owned());
    Server::new(Config { keyring, store, store_scope, ..config }, vec![payments()])
}

fn keys() -> Arc<Keyring> {
    Arc::new(Keyring::for_this_run(&SystemPlatform::default()))
}

fn memory_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(StoreLimits::default()))
}

/// The state of a question that was asked again, because the client came back with `responses`, which are not an answer.
async fn asked_again(server: &Arc<Server>, state: &str, responses: &str) -> String {
    let params = format!(r#","requestState":"{state}","inputResponses":{responses}"#);
    state_of(&respond(server, &stateless_call("pay", &params)).await)
}

#[tokio::test]
async fn of_all_states_of_one_question_one_is_answered() {
    for (first_answer, result) in [("yes", "paid 1"), ("no", "not paid")] {
        for responses in ["{}", r#"{"sure":{"action":"perhaps"}}"#, r#"{"other":{"action":"accept"}}"#] {
            let server = replica("one", &keys(), &memory_store());
            let first = state_of(&respond(&server, &stateless_call("pay", "")).await);
            let second = asked_again(&server, &first, responses).await;
            let third = asked_again(&server, &second, responses).await;
            let answer = stateless_call("pay", &answers(&third, "sure", first_answer));
            assert_eq!(text_of(&respond(&server, &answer).await), result, "{responses}");
            for state in [first, second, third] {
                let answer = stateless_call("pay", &answers(&state, "sure", "yes"));
                let error = error_of(&respond(&server, &answer).await);
                assert!(error.contains("already used"), "{responses}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_never_answers_is_not_asked_for_ever() {
    let server = replica("one", &keys(), &memory_store());
    let mut state = state_of(&respond(&server, &stateless_call("pay", "")).await);
    for _ in 1..Limits::default().input_rounds_max {
        state = asked_again(&server, &state, "{}").await;
    }
    let params = format!(r#","requestState":"{state}","inputResponses":{{}}"#);
    let error = error_of(&respond(&server, &stateless_call("pay", &params)).await);
    assert!(error.contains("too many rounds"), "{error}");
}

#[tokio::test]
async fn a_state_is_for_the_server_that_asked() {
    let (keyring, store) = (keys(), memory_store());
    let [staging, production, replica_of_staging] =
        ["staging", "production", "staging"].map(|scope| replica(scope, &keyring, &store));
    let state = state_of(&respond(&staging, &stateless_call("pay", "")).await);
    let answer = stateless_call("pay", &answers(&state, "sure", "yes"));
    let error = error_of(&respond(&production, &answer).await);
    assert!(error.contains("by another server"), "{error}");
    assert_eq!(text_of(&respond(&replica_of_staging, &answer).await), "paid 1");
}

#[tokio::test]
async fn a_state_ends_with_the_store_that_knows_what_was_used() {
    let keyring = keys();
    let store = || -> Arc<dyn Store> {
        Arc::new(MemoryStore::for_this_run(StoreLimits::default(), &SystemPlatform::default()))
    };
    let (before, after) = (replica("one", &keyring, &store()), replica("one", &keyring, &store()));
    let state = state_of(&respond(&before, &stateless_call("pay", "")).await);
    let answer = stateless_call("pay", &answers(&state, "sure", "yes"));
    assert_eq!(text_of(&respond(&before, &answer).await), "paid 1");
    let error = error_of(&respond(&after, &answer).await);
    assert!(error.contains("it ended with the process that issued it"), "{error}");
}

#[tokio::test]
async fn consent_cannot_be_volunteered() {
    let server = server(vec![payments()]);
    let yes = r#","inputResponses":{"sure":{"action":"accept","content":{"value":"yes"}}}"#;
    let response = respond(&server, &stateless_call("pay", yes)).await;
    assert!(response.text().contains("input_required"), "{}", response.text());

    // Nor with the state of another question.
    let two = provider(tools(&["two"]), |_, cx| {
        match (cx.journal.response("name").is_some(), cx.journal.response("sure").is_some()) {
            (false, _) => Run::Now(Outcome::InputRequired(ask("name"))),
            (true, false) => Run::Now(Outcome::InputRequired(ask("sure").as_consent())),
            (true, true) => Run::now(ToolResult::text("done")),
        }
    });
    let server = super::server(vec![two]);
    let state = state_of(&respond(&server, &stateless_call("two", "")).await);
    let both = r#""name":{"action":"accept","content":{}},"sure":{"action":"accept","content":{}}"#;
    let both = format!(r#","requestState":"{state}","inputResponses":{{{both}}}"#);
    let asked = state_of(&respond(&server, &stateless_call("two", &both)).await);
    let answer = stateless_call("two", &answers(&asked, "sure", "yes"));
    assert_eq!(text_of(&respond(&server, &answer).await), "done");
}

#[tokio::test]
async fn two_questions_with_one_key_are_a_bug_of_the_tool() {
    let twice = || ask("sure").with("sure", form("Do you like tea?"));
    let server =
        server(vec![provider(tools(&["twice"]), move |_, _| Run::Now(Outcome::InputRequired(twice())))]);
    let response = respond(&server, &stateless_call("twice", "")).await;
    assert!(!response.text().contains("tea"), "{}", response.text());
}

#[tokio::test]
async fn coming_back_without_an_answer_counts_against_the_rate_limit() {
    let inner = payments();
    let catalog = Catalog {
        rate_limit: Some(RateLimit { calls: 2, per_ms: 60_000 }),
        ..Catalog::clone(&inner.catalog())
    };
    let run = move |call: &spile_core::Call, cx: &spile_core::CallContext<'_>| inner.run(call, cx);
    let server = server(vec![Arc::new(FnProvider { catalog: Arc::new(catalog), run })]);
    let state = state_of(&respond(&server, &stateless_call("pay", "")).await);
    let state = asked_again(&server, &state, "{}").await;
    let again = stateless_call("pay", &format!(r#","requestState":"{state}","inputResponses":{{}}"#));
    assert!(respond(&server, &again).await.text().contains("rate limit exceeded"));
    let answer = stateless_call("pay", &answers(&state, "sure", "yes"));
    assert_eq!(text_of(&respond(&server, &answer).await), "paid 1", "an answer is part of its call");
}

/// A client that knows what it will be asked sends the answers with its call.
#[tokio::test]
async fn a_call_that_brings_its_answers_counts_once_against_the_rate_limit() {
    let catalog = Catalog {
        tools: tools(&["order"]),
        rate_limit: Some(RateLimit { calls: 1, per_ms: 60_000 }),
        ..Catalog::default()
    };
    let run = |_: &spile_core::Call, cx: &spile_core::CallContext<'_>| {
        let answer = |key| cx.journal.response(key).and_then(|answer| answer.text_field("value"));
        match (answer("size"), answer("colour")) {
            (Some(size), Some(colour)) => Run::now(ToolResult::text(format!("{size} {colour}"))),
            (None, _) => Run::Now(Outcome::InputRequired(ask("size"))),
            (_, None) => Run::Now(Outcome::InputRequired(ask("colour"))),
        }
    };
    let server = server(vec![Arc::new(FnProvider { catalog: Arc::new(catalog), run })]);
    let answers = concat!(
        r#","inputResponses":{"size":{"action":"accept","content":{"value":"small"}},"#,
        r#""colour":{"action":"accept","content":{"value":"red"}}}"#
    );
    let call = stateless_call("order", answers);
    assert_eq!(text_of(&respond(&server, &call).await), "small red");
    assert!(
        respond(&server, &call).await.text().contains("rate limit exceeded"),
        "the next call is another one"
    );
}

/// A journal that was used frees its place in the store.
#[tokio::test]
async fn callers_do_not_fill_the_store_with_what_they_have_answered() {
    let memo = vec![7; 200 << 10];
    let large = provider(tools(&["large"]), move |_, cx| match cx.journal.response("sure") {
        None => Run::Now(Outcome::InputRequired(ask("sure").with_memo(memo.clone()))),
        Some(_) => Run::now(ToolResult::text("done")),
    });
    let server = server(vec![large]);
    for _ in 0..400 {
        let state = state_of(&respond(&server, &stateless_call("large", "")).await);
        let answer = stateless_call("large", &answers(&state, "sure", "yes"));
        assert_eq!(text_of(&respond(&server, &answer).await), "done");
        let error = error_of(&respond(&server, &answer).await);
        assert!(error.contains("already used"), "{error}");
    }
}
