//! What is written, by whom, and what they are told of it: over the real path, on a table that keeps its promises.

mod client;
mod table;

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use serde_json::{Value, json};

use self::client::{Client, ERAS, Era, accept};

const ALL_OPERATIONS: &str =
    "operations = [\"get\", \"list\", \"search\", \"create\", \"update\", \"delete\"]\n";
const DANA: &str = r#"{"id":"d","name":"Dana","age":36}"#;

/// A client of a server that can do everything, with Dana and Bob in its table.
fn people(era: Era, more: &str) -> Client {
    let client = Client::new(era, &format!("{ALL_OPERATIONS}{more}"));
    client.table.insert_person("d", "Dana");
    client.table.insert_person("b", "Bob");
    client
}

/// What is told under a name.
fn member(told: &str, name: &str) -> Value {
    let told: Value = serde_json::from_str(told).unwrap_or_else(|_| panic!("{told}"));
    told[name].clone()
}

async fn get(client: &mut Client, id: &str) -> Value {
    let told = client.call("get_people", &json!({"id": id}).to_string()).await;
    serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"))
}

#[tokio::test]
async fn a_record_is_created_changed_and_deleted() {
    let mut client = Client::new(Era::Newest, ALL_OPERATIONS);
    let told = client.call("create_people", DANA).await;
    assert_eq!(member(&told, "outcome"), "created");
    let created = member(&told, "record");
    assert_eq!((&created["name"], &created["age"], &created["rev"]), (&json!("Dana"), &json!(36), &json!(0)));
    assert_eq!(get(&mut client, "d").await, created);

    let told = client.call("update_people", r#"{"id":"d","name":"Diana","age":null}"#).await;
    assert_eq!(member(&told, "outcome"), "updated");
    let updated = member(&told, "record");
    assert_eq!((&updated["name"], &updated["age"]), (&json!("Diana"), &Value::Null));
    assert_ne!(updated["_version"], created["_version"]);
    assert_eq!(get(&mut client, "d").await, updated);

    let told = client.call("update_people", r#"{"id":"d","name":"Diana"}"#).await;
    assert_eq!((member(&told, "outcome"), member(&told, "record")), (json!("unchanged"), updated.clone()));

    let told = client.call("delete_people", r#"{"id":"d"}"#).await;
    assert_eq!((member(&told, "outcome"), member(&told, "record")), (json!("deleted"), updated));
    assert_eq!(client.call("get_people", r#"{"id":"d"}"#).await, "not_found id nothing in people has id d");
}

#[tokio::test]
async fn what_is_not_there_or_there_already_is_not_written() {
    let mut client = people(Era::Newest, "");
    let exists = "conflict id there is a record with this key already";
    let missing = "not_found id nothing in people has id x";
    for (tool, arguments, expected) in [
        ("create_people", DANA, exists),
        ("update_people", r#"{"id":"x","name":"X"}"#, missing),
        ("delete_people", r#"{"id":"x"}"#, missing),
        ("update_people", r#"{"id":"d"}"#, "invalid_arguments - too few arguments: at least 2 are required"),
        (
            "update_people",
            r#"{"id":"d","dry_run":true}"#,
            "invalid_arguments - nothing to change is said; there are: name, age, balance, score, born, seen, \
             big, active, extra, photo, secret, rev, loose",
        ),
        ("create_people", r#"{"id":"x"}"#, "invalid_arguments name `name` is required"),
        ("update_people", r#"{"id":"d","name":null}"#, "invalid_arguments name `name`: expected string"),
        (
            "update_people",
            r#"{"id":"d","nmae":"X"}"#,
            "invalid_arguments nmae `nmae`: unknown argument; did you mean `name`?",
        ),
    ] {
        assert_eq!(client.call(tool, arguments).await, expected, "{tool} {arguments}");
    }
    assert_eq!(client.table.state().writes, 0);
}

#[tokio::test]
async fn a_value_that_would_not_come_back_as_it_is_is_refused() {
    let mut client = people(Era::Newest, "");
    for (value, field, why) in [
        (json!({"name": "a\0b"}), "name", "a text here cannot have a NUL character"),
        (
            json!({"loose": "007"}),
            "loose",
            "the source would keep something else than this; nothing was written",
        ),
        (
            json!({"age": 9_007_199_254_740_993_i64}),
            "age",
            "a whole number between -(2^53 - 1) and 2^53 - 1 is wanted",
        ),
        (
            json!({"score": 9_007_199_254_740_993_i64}),
            "score",
            "cannot be kept exactly: too large, or too many digits",
        ),
        (json!({"balance": "1.50.0"}), "balance", r"does not match `^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`"),
        (json!({"balance": "007"}), "balance", r"does not match `^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`"),
        (json!({"balance": 1.5}), "balance", "expected null or string"),
        (json!({"born": "2026-02-30"}), "born", "is not a valid date"),
        (json!({"seen": "2026-02-11T10:00:60Z"}), "seen", "is not a valid date-time"),
        (
            json!({"seen": "2026-02-11t10:00:00z"}),
            "seen",
            "not a moment with a zone such as `2026-02-11T10:00:00Z`",
        ),
        (
            json!({"big": "9223372036854775808"}),
            "big",
            "a whole number of 64 bits is wanted, without zeros before it",
        ),
        (json!({"active": "yes"}), "active", "expected null or boolean"),
        (json!({"photo": "AP8"}), "photo", "not base64 (RFC 4648, with padding, on one line)"),
        (json!({"photo": "AP8Q\n"}), "photo", "not base64 (RFC 4648, with padding, on one line)"),
    ] {
        let mut arguments = value.clone();
        arguments["id"] = "d".into();
        let expected = format!("invalid_arguments {field} `{field}`: {why}");
        assert_eq!(client.call("update_people", &arguments.to_string()).await, expected, "{value}");
    }
    assert_eq!(client.table.state().writes, 0);
}

#[tokio::test]
async fn whoever_means_another_state_is_told_so() {
    let mut client = people(Era::Newest, "");
    let old = get(&mut client, "d").await["_version"].clone();
    let arguments = |version: &Value, name: &str| {
        json!({"id": "d", "name": name, "expected_version": version}).to_string()
    };
    let told = client.call("update_people", &arguments(&old, "Di")).await;
    assert_eq!(member(&told, "outcome"), "updated");
    let stale = "conflict expected_version the record changed since it was read; read it again, and decide what \
                 it should be now";
    assert_eq!(client.call("update_people", &arguments(&old, "Do")).await, stale);
    let delete = json!({"id": "d", "expected_version": old}).to_string();
    assert_eq!(client.call("delete_people", &delete).await, stale);
    // In a list too, and in a list of some fields only if it is asked for.
    let listed = member(&client.call("list_people", "{}").await, "items");
    let now = get(&mut client, "d").await["_version"].clone();
    assert_eq!(listed[0]["_version"], now);
    let some = member(&client.call("list_people", r#"{"fields":["name","_version"]}"#).await, "items");
    assert_eq!(some[0], json!({"name": "Di", "_version": now}));
    let some = member(&client.call("list_people", r#"{"fields":["name"]}"#).await, "items");
    assert_eq!(some[0], json!({"name": "Di"}));
    assert_eq!(client.table.state().writes, 1);
}

#[tokio::test]
async fn a_version_of_its_own_grows_with_every_change() {
    let mut client = people(Era::Newest, "version = \"rev\"\nversion_required = true\n");
    let must = "invalid_arguments expected_version `expected_version` is required";
    assert_eq!(client.call("update_people", r#"{"id":"d","name":"Di"}"#).await, must);
    assert_eq!(client.call("delete_people", r#"{"id":"d"}"#).await, must);
    let told = client.call("update_people", r#"{"id":"d","name":"Di","expected_version":1}"#).await;
    assert_eq!(member(&told, "record")["rev"], 2);
    assert_eq!(member(&told, "record").get("_version"), None);
    let told = client.call("update_people", r#"{"id":"d","name":"Di","expected_version":2}"#).await;
    assert_eq!((member(&told, "outcome"), &member(&told, "record")["rev"]), (json!("unchanged"), &json!(2)));
    let told = client.call("update_people", r#"{"id":"d","name":"Do","expected_version":1}"#).await;
    assert!(told.starts_with("conflict expected_version "), "{told}");
    let told = client.call("create_people", r#"{"id":"n","name":"New"}"#).await;
    assert_eq!(member(&told, "record")["rev"], 1);
    let told = client.call("create_people", r#"{"id":"m","name":"New","rev":7}"#).await;
    assert!(told.starts_with("invalid_arguments rev `rev`: unknown argument"), "{told}");
}

#[tokio::test]
async fn the_same_key_again_does_nothing_twice() {
    let mut client = people(Era::Newest, "");
    let once = r#"{"id":"n","name":"New","idempotency_key":"k"}"#;
    let first = client.call("create_people", once).await;
    // In another order, it is the same.
    let again = client.call("create_people", r#"{"idempotency_key":"k","name":"New","id":"n"}"#).await;
    assert_eq!(member(&again, "replayed"), true);
    assert_eq!(member(&again, "record"), member(&first, "record"));
    let other = client.call("create_people", r#"{"id":"o","name":"New","idempotency_key":"k"}"#).await;
    assert_eq!(
        other,
        "conflict idempotency_key this idempotency key was used for something else; choose another, or ask for \
         the same again"
    );
    // So is a number that is written in another way, and not another number.
    let scored = |score: &str| format!(r#"{{"id":"d","score":{score},"age":7,"idempotency_key":"s"}}"#);
    assert_eq!(member(&client.call("update_people", &scored("1")).await, "outcome"), "updated");
    for same in ["1e0", "1.0", "10E-1"] {
        assert_eq!(member(&client.call("update_people", &scored(same)).await, "replayed"), true, "{same}");
    }
    assert_eq!(client.call("update_people", &scored("1.5")).await, other);
    // A delete that was done is told again, though there is nothing any more.
    let gone = r#"{"id":"n","idempotency_key":"k"}"#;
    assert_eq!(member(&client.call("delete_people", gone).await, "outcome"), "deleted");
    assert_eq!(member(&client.call("delete_people", gone).await, "replayed"), true);
    // Somebody else's key is another key.
    client.become_user("eve");
    assert_eq!(member(&client.call("create_people", once).await, "outcome"), "created");
    assert_eq!(client.table.state().writes, 4);
}

#[tokio::test]
async fn a_try_leaves_no_trace() {
    let mut client = people(Era::Newest, "confirm = \"ask\"\n").without_forms();
    let before = client.table.state().rows.clone();
    for (tool, arguments, outcome) in [
        ("create_people", r#"{"id":"n","name":"New","dry_run":true,"idempotency_key":"k"}"#, "created"),
        ("update_people", r#"{"id":"d","name":"Di","dry_run":true,"idempotency_key":"k"}"#, "updated"),
        ("delete_people", r#"{"id":"d","dry_run":true}"#, "deleted"),
    ] {
        let told = client.call(tool, arguments).await;
        assert_eq!(
            (member(&told, "outcome"), member(&told, "dry_run")),
            (json!(outcome), json!(true)),
            "{told}"
        );
    }
    let told = client.call("create_people", r#"{"id":"d","name":"D","dry_run":true}"#).await;
    assert!(told.starts_with("conflict id "), "{told}");
    let state = client.table.state();
    assert_eq!((&state.rows, state.idempotency_records.len(), state.writes), (&before, 0, 0));
}

const ASK: &str = "confirm = \"ask\"\n[collections.people.fields]\nsecret = { sensitive = true }\n";

#[tokio::test]
async fn the_user_is_asked_before_anything_is_written() {
    for era in ERAS {
        let mut client = people(era, ASK);
        let change = r#"{"id":"d","name":"Di","age":7,"secret":"hush"}"#;
        let told = client.call_with_user("update_people", change, &mut |_| accept()).await;
        assert_eq!(member(&told, "outcome"), "updated", "{era:?}");
        assert_eq!(
            client.questions,
            [
                "Change this record of people?\nid: d\nname: Dana → Di\nage: (nothing) → 7\nsecret: (nothing) → •••"
            ]
        );
        let told = client.call_with_user("delete_people", r#"{"id":"d"}"#, &mut |_| accept()).await;
        assert_eq!(member(&told, "outcome"), "deleted", "{era:?}");
        assert_eq!(
            client.questions[1],
            "Delete this record of people?\nid: d\nname: Di\nage: 7\nsecret: •••\nrev: 1"
        );
        // What adds and destroys nothing is not asked for, nor what changes nothing, nor what was done before.
        client.call("create_people", DANA).await;
        client.call("update_people", r#"{"id":"b","name":"Bob"}"#).await;
        let once = r#"{"id":"b","idempotency_key":"k"}"#;
        client.call_with_user("delete_people", once, &mut |_| accept()).await;
        assert_eq!(member(&client.call("delete_people", once).await, "replayed"), true);
    }
}

#[tokio::test]
async fn who_says_no_has_nothing_written() {
    for era in ERAS {
        let mut client = people(era, ASK);
        for (answer, why) in [
            (json!({"action": "decline"}), "the user said no"),
            (json!({"action": "cancel"}), "the question was not answered"),
            (json!({"action": "accept", "content": {"confirm": false}}), "the user said no"),
            (json!({"action": "accept"}), "the form came back without `confirm`"),
            (json!({"action": "accept", "content": {}}), "the form came back without `confirm`"),
            (
                json!({"action": "accept", "content": {"confirm": "true"}}),
                "the form came back without `confirm`",
            ),
        ] {
            let told = client.call_with_user("delete_people", r#"{"id":"d"}"#, &mut |_| answer.clone()).await;
            assert_eq!(told, format!("input_refused - {why}; nothing was written"), "{era:?}");
        }
        assert_eq!((client.questions.len(), client.table.state().writes), (6, 0), "each is asked once");
    }
}

#[tokio::test]
async fn a_yes_is_for_the_record_that_was_shown() {
    for era in ERAS {
        let mut client = people(era, ASK);
        let table = client.table.clone();
        let mut times = 0;
        let told = client
            .call_with_user("delete_people", r#"{"id":"d"}"#, &mut |_| {
                times += 1;
                if times == 1 {
                    // While the user thinks about it, somebody else writes.
                    table.state().rows[0][1] = contract::Value::Text("Diana".into());
                }
                accept()
            })
            .await;
        assert_eq!(member(&told, "record")["name"], "Diana", "{era:?}");
        assert_eq!(client.questions.len(), 2, "{era:?}");
        assert!(client.questions[0].contains("name: Dana") && client.questions[1].contains("name: Diana"));
    }
}

#[tokio::test]
async fn an_answer_that_is_none_is_asked_for_again() {
    for era in ERAS {
        let mut client = people(era, ASK);
        let mut answers = [json!({"action": "perhaps"}), accept()].into_iter();
        let told = client
            .call_with_user("delete_people", r#"{"id":"d"}"#, &mut |_| answers.next().expect("twice"))
            .await;
        assert_eq!((member(&told, "outcome"), client.questions.len()), (json!("deleted"), 2), "{era:?}");
    }
}

#[tokio::test]
async fn a_client_that_cannot_ask_is_refused() {
    for era in ERAS {
        let mut client = people(era, ASK).without_forms();
        assert_eq!(
            client.call("delete_people", r#"{"id":"d"}"#).await,
            "forbidden - the user must be asked before this is written, and this client shows no questions; use \
             one that does (elicitation), or try it with `dry_run`",
            "{era:?}"
        );
        assert_eq!(client.table.state().writes, 0);
    }
}

#[tokio::test]
async fn a_record_is_found_by_its_words() {
    let mut client = people(Era::Newest, "search_rows_max = 2\n");
    client.table.insert_person("x", "Dana Scully");
    let found = async |client: &mut Client, arguments: &str| {
        let told = client.call("search_people", arguments).await;
        let told: Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"));
        (told["items"].clone(), told["truncated"].clone(), told["searched"].clone())
    };
    let dana = json!([{"id": "d"}]);
    assert_eq!(
        found(&mut client, r#"{"query":" dAn  ","fields":["id"]}"#).await,
        (dana, json!(false), json!("first 2 rows"))
    );
    client.table.state().rows.remove(1);
    assert_eq!(
        found(&mut client, r#"{"query":"dana","fields":["id"],"limit":1}"#).await,
        (json!([{"id": "d"}]), json!(true), json!("all"))
    );
    assert_eq!(
        found(&mut client, r#"{"query":"scully dana","fields":["id"]}"#).await,
        (json!([{"id": "x"}]), json!(false), json!("all"))
    );
    assert_eq!(found(&mut client, r#"{"query":"zebra"}"#).await, (json!([]), json!(false), json!("all")));
    for blank in ["", " ", "\u{a0}\u{2003}"] {
        let told = client.call("search_people", &json!({"query": blank}).to_string()).await;
        assert!(told.starts_with("invalid_arguments query `query`: "), "{told}");
    }
}

const RENAME: &str = "[tools.rename]\nsql = \"rename\"\nwrites = true\nchanges_max = 2\narguments.old = {}\narguments.new = {}\n";

#[tokio::test]
async fn what_may_have_been_done_is_tried_again_only_with_a_key() {
    let mut client = people(Era::Newest, "");
    for (key, words, retryable) in [
        ("", "read the record before you try again, and pass an idempotency_key next time", false),
        (r#","idempotency_key":"k""#, "ask for the same again, with the same idempotency_key", true),
    ] {
        let told = client.call("create_people", &format!(r#"{{"id":"n","name":"unsure"{key}}}"#)).await;
        assert_eq!(told, format!("source_unavailable - the disk did not confirm it; {words}"));
        assert_eq!(client.last_error["retryable"], retryable);
    }
}

#[tokio::test]
async fn a_statement_reads() {
    let mut client = people(Era::Newest, "");
    client.table.insert_person("e", "Dana");
    assert_eq!(
        client.call("count", "{}").await,
        r#"{"items":[{"name":"Dana","people":2},{"name":"Bob","people":1}],"truncated":false}"#
    );
    assert_eq!(
        client.call("count", r#"{"name":"Bob"}"#).await,
        r#"{"items":[{"name":"Bob","people":1}],"truncated":false}"#
    );
    assert_eq!(client.call("count", r#"{"name":"Zoe"}"#).await, r#"{"items":[],"truncated":false}"#);
    // Nothing is said, however that is written.
    assert_eq!(client.call("count", r#"{"name":null}"#).await, client.call("count", "{}").await);
    let told = client.call("count", r#"{"name":7}"#).await;
    assert_eq!(told, "invalid_arguments name `name`: expected null or string");
}

#[tokio::test]
async fn a_statement_that_is_for_one_record() {
    let one = "[tools.one]\nsql = \"count\"\nreturns = \"one\"\narguments.name = {}\n";
    let mut client = people(Era::Newest, one);
    assert_eq!(client.call("one", r#"{"name":"Bob"}"#).await, r#"{"name":"Bob","people":1}"#);
    assert_eq!(
        client.call("one", r#"{"name":"Zoe"}"#).await,
        "not_found - one found nothing for these arguments"
    );
}

/// A seal opens as often as it is brought back; what the user agreed to is done once.
#[tokio::test]
async fn a_yes_that_comes_twice_is_one() {
    let mut client = people(Era::Newest, &format!("{RENAME}confirm = \"ask\"\n"));
    let told = client.call_with_user("rename", r#"{"old":"Dana","new":"Di"}"#, &mut |_| accept()).await;
    assert_eq!(member(&told, "changed"), 1);
    // The same question would be asked of the same state.
    client.table.insert_person("d", "Dana");
    assert_eq!(member(&client.resend().await, "replayed"), true);
    assert_eq!(client.table.state().writes, 1);
    // Another call is another: it is asked about, and done.
    let told = client.call_with_user("rename", r#"{"old":"Dana","new":"Di"}"#, &mut |_| accept()).await;
    assert_eq!(member(&told, "changed"), 1);
    assert_eq!((client.questions.len(), client.table.state().writes), (2, 2));
}

/// As many rows, and other ones: whoever agreed did not agree to that.
#[tokio::test]
async fn a_yes_to_other_rows_is_asked_again() {
    for era in ERAS {
        let mut client = people(era, &format!("{RENAME}confirm = \"ask\"\n"));
        let table = client.table.clone();
        let mut rounds = 0;
        let told = client
            .call_with_user("rename", r#"{"old":"Dana","new":"Di"}"#, &mut |_| {
                rounds += 1;
                if rounds == 1 {
                    table.state().rows[0][1] = contract::Value::Text("Dora".into());
                    table.insert_person("z", "Dana");
                }
                accept()
            })
            .await;
        assert_eq!(told, r#"{"changed":1,"items":[{"id":"z"}],"truncated":false}"#, "{era:?}");
        assert_eq!((client.questions.len(), client.table.state().writes), (2, 1), "{era:?}");
    }
}

#[tokio::test]
async fn an_argument_that_would_be_kept_as_something_else_is_named() {
    let mut client = people(Era::Newest, RENAME);
    let told = client.call("rename", r#"{"old":"Dana","new":"007"}"#).await;
    assert_eq!(told, "invalid_arguments new `new`: it would be kept as 7");
    assert_eq!(client.table.state().writes, 0);
}

#[tokio::test]
async fn a_statement_writes_once_and_not_too_much() {
    for era in ERAS {
        let mut client = people(era, &format!("{RENAME}confirm = \"ask\"\n"));
        client.table.insert_person("e", "Dana");
        let dry = client.call("rename", r#"{"old":"Dana","new":"Di","dry_run":true}"#).await;
        assert_eq!(member(&dry, "dry_run"), true);
        assert_eq!(client.table.state().writes, 0);
        let once = r#"{"old":"Dana","new":"Di","idempotency_key":"k"}"#;
        let told = client.call_with_user("rename", once, &mut |_| accept()).await;
        assert_eq!(told, r#"{"changed":2,"items":[{"id":"d"},{"id":"e"}],"truncated":false}"#);
        assert_eq!(client.questions, ["Run rename? It would change 2 rows.\nold: Dana\nnew: Di"]);
        assert_eq!(member(&client.call("rename", once).await, "replayed"), true);
        client.table.insert_person("f", "Di");
        let told = client.call("rename", r#"{"old":"Di","new":"Do"}"#).await;
        assert_eq!(
            told,
            "forbidden - this would change 3 rows, and at most 2 are allowed; nothing was changed"
        );
        let other = r#"{"old":"Bob","new":"Rob"}"#;
        let told = client.call_with_user("rename", other, &mut |_| json!({"action": "decline"})).await;
        assert_eq!(told, "input_refused - the user said no; nothing was written");
        assert_eq!(client.table.state().writes, 1, "{era:?}");
    }
}

#[tokio::test]
async fn results_are_cut_at_their_bounds() {
    let mut client = people(Era::Newest, "rows_max = 3\nbytes_max = 1024\n");
    for i in 0..5 {
        client.table.insert_person(&format!("long {i}"), &"x".repeat(400));
    }
    // Whatever is told here was held against what the tool promised.
    for (tool, arguments) in [("list_people", "{}"), ("search_people", r#"{"query":"x"}"#)] {
        let told = client.call(tool, arguments).await;
        assert_eq!(member(&told, "truncated"), true, "{told}");
        assert!(member(&told, "items").as_array().is_some_and(|items| (1..=3).contains(&items.len())));
    }
}

#[tokio::test]
async fn long_work_says_how_far_it_is() {
    let long = "[tools.all]\nuses = \"people.list\"\nlong_running = true\n";
    let mut client = people(Era::Newest, long);
    client.call("all", "{}").await;
    assert_eq!(client.progress, ["0 begun", "1000 done"]);
    client.call("get_people", r#"{"id":"d"}"#).await;
    assert_eq!(client.progress.len(), 2, "what is short says nothing");
}

#[tokio::test(start_paused = true)]
async fn a_long_read_is_told_of() {
    let mut client = people(Era::Newest, "");
    client.table.slow.store(true, Ordering::SeqCst);
    let table = client.table.clone();
    let until = async {
        while !table.entered.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        for _ in 0..2 {
            tokio::time::advance(std::time::Duration::from_millis(1100)).await;
        }
        table.slow.store(false, Ordering::SeqCst);
        std::future::pending::<()>().await
    };
    tokio::select! {
        told = client.call("list_people", "{}") => assert!(told.contains("Dana"), "{told}"),
        () = until => unreachable!("it never ends"),
    }
    assert_eq!(client.progress, ["1000 1000 rows looked at"]);
}

#[tokio::test]
async fn a_write_out_of_time_is_stopped_and_says_what_cannot_be_known() {
    let timed = |tool: &str, uses: &str| format!("[tools.{tool}]\n{uses}\ncall_timeout_ms = 50\n");
    let unknowable = "timeout - no answer within 50 ms; it may have been done: read the record before you try again, \
                      or pass an idempotency_key";
    for (more, tool, arguments, expected) in [
        (timed("add", "uses = \"people.create\""), "add", r#"{"id":"n","name":"New"}"#, unknowable),
        (timed("drop", "uses = \"people.delete\""), "drop", r#"{"id":"d"}"#, unknowable),
        (format!("{RENAME}call_timeout_ms = 50\n"), "rename", r#"{"old":"Dana","new":"D"}"#, unknowable),
        (timed("all", "uses = \"people.list\""), "all", "{}", "timeout - no result within 50 ms"),
    ] {
        let mut client = people(Era::Newest, &more);
        client.table.slow.store(true, Ordering::SeqCst);
        assert_eq!(client.call(tool, arguments).await, expected, "{tool}");
        // Were it not told, this would never end.
        while !client.table.stopped.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.table.state().writes, 0, "{tool}");
    }
}

#[tokio::test]
async fn a_read_stops_when_nobody_waits() {
    let mut client = people(Era::Newest, "");
    client.table.slow.store(true, Ordering::SeqCst);
    let table = client.table.clone();
    let entered = async {
        while !table.entered.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        told = client.call("list_people", "{}") => unreachable!("{told}"),
        () = entered => {}
    }
    // The call was dropped; were the read not told, this would never end.
    while !table.stopped.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever is written is read back identical, by whichever way it is asked for; or it is refused.
    #[test]
    fn what_is_written_is_what_is_read(
        name in "[^\\x00]{0,12}",
        age in proptest::option::of(-9_007_199_254_740_991_i64..=9_007_199_254_740_991),
        balance in proptest::option::of("-?(0|[1-9][0-9]{0,22})(\\.[0-9]{1,6})?"),
        score in proptest::option::of(proptest::num::f64::NORMAL | proptest::num::f64::ZERO),
        big in proptest::option::of(any::<i64>()),
        active in proptest::option::of(any::<bool>()),
        extra in "(null|true|\"\\PC{0,5}\"|[0-9]\\.[0-9]{1,20}|\\[1, \\{\"a\" : \\[\\]\\}\\])",
        photo in proptest::option::of(prop::collection::vec(any::<u8>(), 0..40)),
    ) {
        use base64::Engine;
        let extra: Value = match serde_json::from_str(&extra) {
            Ok(extra) => extra,
            // A quote or a backslash in it: no JSON.
            Err(_) => Value::Null,
        };
        let said = json!({
            "id": "p", "name": name, "age": age, "balance": balance, "score": score,
            "big": big.map(|n| n.to_string()), "active": active, "extra": extra,
            "photo": photo.map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes)),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut client = Client::new(Era::Newest, ALL_OPERATIONS);
            let told = client.call("create_people", &said.to_string()).await;
            let created = member(&told, "record");
            for (field, value) in said.as_object().expect("an object") {
                // One number may be written in two ways.
                let same = match (created[field].as_f64(), value.as_f64()) {
                    (Some(a), Some(b)) => a.to_bits() == b.to_bits(),
                    _ => &created[field] == value,
                };
                assert!(same, "{field}: {value} is {}", created[field]);
            }
            assert_eq!(get(&mut client, "p").await, created);
            assert_eq!(member(&client.call("list_people", "{}").await, "items")[0], created);
            let told = client.call("update_people", &said.to_string()).await;
            assert_eq!((member(&told, "outcome"), member(&told, "record")), (json!("unchanged"), created));
        });
    }
}
