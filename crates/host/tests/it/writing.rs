//! Writes through the whole host, on an in-memory table: results, conflicts, confirmations, idempotency, progress.

pub mod client;
pub mod table;

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use serde_json::{Value, json};

use self::client::{Client, ERAS, Era, accept};

const ALL_OPERATIONS: &str =
    "operations = [\"get\", \"list\", \"search\", \"create\", \"update\", \"delete\"]\n";
const DANA: &str = r#"{"id":"d","name":"Dana","age":36}"#;

/// A client of a server with all operations; its table holds Dana and Bob.
fn people(era: Era, manifest: &str) -> Client {
    let client = Client::new(era, &format!("{ALL_OPERATIONS}{manifest}"));
    client.table.insert_person("d", "Dana");
    client.table.insert_person("b", "Bob");
    client
}

/// A member of a JSON result.
fn member(result: &str, name: &str) -> Value {
    let result: Value = serde_json::from_str(result).unwrap_or_else(|_| panic!("{result}"));
    result[name].clone()
}

async fn get(client: &mut Client, id: &str) -> Value {
    let result = client.call("get_people", &json!({"id": id}).to_string()).await;
    serde_json::from_str(&result).unwrap_or_else(|_| panic!("{result}"))
}

#[tokio::test]
async fn a_record_is_created_changed_and_deleted() {
    let mut client = Client::new(Era::Newest, ALL_OPERATIONS);
    let result = client.call("create_people", DANA).await;
    assert_eq!(member(&result, "outcome"), "created");
    let created = member(&result, "record");
    assert_eq!((&created["name"], &created["age"], &created["rev"]), (&json!("Dana"), &json!(36), &json!(0)));
    assert_eq!(get(&mut client, "d").await, created);

    let result = client.call("update_people", r#"{"id":"d","name":"Diana","age":null}"#).await;
    assert_eq!(member(&result, "outcome"), "updated");
    let updated = member(&result, "record");
    assert_eq!((&updated["name"], &updated["age"]), (&json!("Diana"), &Value::Null));
    assert_ne!(updated["_version"], created["_version"]);
    assert_eq!(get(&mut client, "d").await, updated);

    let result = client.call("update_people", r#"{"id":"d","name":"Diana"}"#).await;
    assert_eq!(
        (member(&result, "outcome"), member(&result, "record")),
        (json!("unchanged"), updated.clone())
    );

    let result = client.call("delete_people", r#"{"id":"d"}"#).await;
    assert_eq!((member(&result, "outcome"), member(&result, "record")), (json!("deleted"), updated));
    assert_eq!(
        client.call("get_people", r#"{"id":"d"}"#).await,
        "not_found id no row of `people` has id `d`"
    );
}

#[tokio::test]
async fn a_missing_or_duplicate_key_or_an_empty_change_is_refused() {
    let mut client = people(Era::Newest, "");
    let exists = "conflict id a row with this key already exists; use update_people to change it";
    let missing = "not_found id no row of `people` has id `x`";
    let nothing = "invalid_arguments - no field to update was given; set at least one of: name, age, balance, score, born, \
                   seen, big, active, extra, photo, secret, rev, loose";
    for (tool, arguments, expected) in [
        ("create_people", DANA, exists),
        ("update_people", r#"{"id":"x","name":"X"}"#, missing),
        ("delete_people", r#"{"id":"x"}"#, missing),
        ("update_people", r#"{"id":"d"}"#, nothing),
        ("update_people", r#"{"id":"d","dry_run":true}"#, nothing),
        ("create_people", r#"{"id":"x"}"#, "invalid_arguments name `name` is required"),
        ("update_people", r#"{"id":"d","name":null}"#, "invalid_arguments name `name` must be a string"),
        (
            "update_people",
            r#"{"id":"d","nmae":"X"}"#,
            "invalid_arguments nmae unknown argument `nmae`; did you mean `name`?",
        ),
    ] {
        assert_eq!(client.call(tool, arguments).await, expected, "{tool} {arguments}");
    }
    assert_eq!(client.table.state().writes, 0);
}

#[tokio::test]
async fn a_value_that_the_source_would_alter_is_refused() {
    let mut client = people(Era::Newest, "");
    let decimal = " must be a decimal without leading zeros, such as `-12.50`";
    for (value, field, message) in [
        (json!({"name": "a\0b"}), "name", ": a text here cannot have a NUL character"),
        (
            json!({"loose": "007"}),
            "loose",
            ": the source would store another value than this; nothing was written",
        ),
        (
            json!({"age": 9_007_199_254_740_993_i64}),
            "age",
            " must be an integer between -(2^53 - 1) and 2^53 - 1",
        ),
        (
            json!({"score": 9_007_199_254_740_993_i64}),
            "score",
            " cannot be stored exactly: it is too large or has too many digits",
        ),
        (json!({"balance": "1.50.0"}), "balance", decimal),
        (json!({"balance": "007"}), "balance", decimal),
        (json!({"balance": 1.5}), "balance", " must be null or a string"),
        (json!({"born": "2026-02-30"}), "born", " is not a valid date, such as `2026-02-28`"),
        (
            json!({"seen": "2026-02-11T10:00:60Z"}),
            "seen",
            " is not a valid date and time with a time zone, such as `2026-02-28T10:00:00Z`",
        ),
        (
            json!({"seen": "2026-02-11t10:00:00z"}),
            "seen",
            " must be a date and time with a time zone, such as `2026-02-11T10:00:00Z`",
        ),
        (
            json!({"big": "9223372036854775808"}),
            "big",
            " must be a 64-bit integer without leading zeros, such as `-12`",
        ),
        (json!({"active": "yes"}), "active", " must be null or a boolean"),
        (json!({"photo": "AP8"}), "photo", " must be base64 (RFC 4648, with padding, on one line)"),
        (json!({"photo": "AP8Q\n"}), "photo", " must be base64 (RFC 4648, with padding, on one line)"),
    ] {
        let mut arguments = value.clone();
        arguments["id"] = "d".into();
        let expected = format!("invalid_arguments {field} `{field}`{message}");
        assert_eq!(client.call("update_people", &arguments.to_string()).await, expected, "{value}");
    }
    assert_eq!(client.table.state().writes, 0);
}

#[tokio::test]
async fn a_stale_expected_version_is_a_conflict() {
    let mut client = people(Era::Newest, "");
    let old = get(&mut client, "d").await["_version"].clone();
    let arguments = |version: &Value, name: &str| {
        json!({"id": "d", "name": name, "expected_version": version}).to_string()
    };
    let result = client.call("update_people", &arguments(&old, "Di")).await;
    assert_eq!(member(&result, "outcome"), "updated");
    let conflict = "conflict expected_version the row has changed since it was read; read it again before you \
                 change it";
    assert_eq!(client.call("update_people", &arguments(&old, "Do")).await, conflict);
    let delete = json!({"id": "d", "expected_version": old}).to_string();
    assert_eq!(client.call("delete_people", &delete).await, conflict);
    // Lists have `_version` too; a list of some fields has it only on request.
    let listed = member(&client.call("list_people", "{}").await, "items");
    let version = get(&mut client, "d").await["_version"].clone();
    assert_eq!(listed[0]["_version"], version);
    let partial = member(&client.call("list_people", r#"{"fields":["name","_version"]}"#).await, "items");
    assert_eq!(partial[0], json!({"name": "Di", "_version": version}));
    let partial = member(&client.call("list_people", r#"{"fields":["name"]}"#).await, "items");
    assert_eq!(partial[0], json!({"name": "Di"}));
    assert_eq!(client.table.state().writes, 1);
}

#[tokio::test]
async fn a_version_field_grows_with_every_change() {
    let mut client = people(Era::Newest, "version = \"rev\"\nversion_required = true\n");
    let required = "invalid_arguments expected_version `expected_version` is required";
    assert_eq!(client.call("update_people", r#"{"id":"d","name":"Di"}"#).await, required);
    assert_eq!(client.call("delete_people", r#"{"id":"d"}"#).await, required);
    let result = client.call("update_people", r#"{"id":"d","name":"Di","expected_version":1}"#).await;
    assert_eq!(member(&result, "record")["rev"], 2);
    assert_eq!(member(&result, "record").get("_version"), None);
    let result = client.call("update_people", r#"{"id":"d","name":"Di","expected_version":2}"#).await;
    assert_eq!(
        (member(&result, "outcome"), &member(&result, "record")["rev"]),
        (json!("unchanged"), &json!(2))
    );
    let result = client.call("update_people", r#"{"id":"d","name":"Do","expected_version":1}"#).await;
    assert!(result.starts_with("conflict expected_version "), "{result}");
    let result = client.call("create_people", r#"{"id":"n","name":"New"}"#).await;
    assert_eq!(member(&result, "record")["rev"], 1);
    let result = client.call("create_people", r#"{"id":"m","name":"New","rev":7}"#).await;
    assert!(result.starts_with("invalid_arguments rev unknown argument `rev`"), "{result}");
}

#[tokio::test]
async fn a_repeated_idempotency_key_replays_the_first_result() {
    let mut client = people(Era::Newest, "");
    let request = r#"{"id":"n","name":"New","idempotency_key":"k"}"#;
    let first = client.call("create_people", request).await;
    // The order of the arguments does not matter.
    let again = client.call("create_people", r#"{"idempotency_key":"k","name":"New","id":"n"}"#).await;
    assert_eq!(member(&again, "replayed"), true);
    assert_eq!(member(&again, "record"), member(&first, "record"));
    let conflict = client.call("create_people", r#"{"id":"o","name":"New","idempotency_key":"k"}"#).await;
    assert_eq!(
        conflict,
        "conflict idempotency_key this idempotency key was already used for a different request; use a new key, or repeat the \
         call with the same arguments"
    );
    // Neither does the notation of a number; another number does.
    let scored = |score: &str| format!(r#"{{"id":"d","score":{score},"age":7,"idempotency_key":"s"}}"#);
    assert_eq!(member(&client.call("update_people", &scored("1")).await, "outcome"), "updated");
    for same in ["1e0", "1.0", "10E-1"] {
        assert_eq!(member(&client.call("update_people", &scored(same)).await, "replayed"), true, "{same}");
    }
    assert_eq!(client.call("update_people", &scored("1.5")).await, conflict);
    // A repeated delete replays its result although the record is gone.
    let delete = r#"{"id":"n","idempotency_key":"k"}"#;
    assert_eq!(member(&client.call("delete_people", delete).await, "outcome"), "deleted");
    assert_eq!(member(&client.call("delete_people", delete).await, "replayed"), true);
    // Keys belong to their caller.
    client.become_user("eve");
    assert_eq!(member(&client.call("create_people", request).await, "outcome"), "created");
    assert_eq!(client.table.state().writes, 4);
}

/// The id of a call is chosen for its record; nothing repeats the call under it.
#[tokio::test]
async fn an_observer_that_needs_ids_does_not_make_writes_store_their_responses() {
    struct NeedsIds;
    impl host::CallObserver for NeedsIds {
        fn on_call_finished(&self, record: &host::CallRecord<'_>) {
            assert!(record.call_id.is_some());
        }

        fn needs_call_id(&self) -> bool {
            true
        }
    }
    let mut client = people(Era::Newest, "");
    client.server.set_observer(std::sync::Arc::new(NeedsIds));
    let result = client.call("create_people", r#"{"id":"n","name":"New"}"#).await;
    assert_eq!(member(&result, "outcome"), "created");
    assert_eq!(client.table.state().idempotency_records.len(), 0);
    client.call("create_people", r#"{"id":"o","name":"New","idempotency_key":"k"}"#).await;
    assert_eq!(client.table.state().idempotency_records.len(), 1);
}

#[tokio::test]
async fn a_dry_run_leaves_no_trace() {
    let mut client = people(Era::Newest, "confirm = \"ask\"\n").without_forms();
    let before = client.table.state().rows.clone();
    for (tool, arguments, outcome) in [
        ("create_people", r#"{"id":"n","name":"New","dry_run":true,"idempotency_key":"k"}"#, "created"),
        ("update_people", r#"{"id":"d","name":"Di","dry_run":true,"idempotency_key":"k"}"#, "updated"),
        ("delete_people", r#"{"id":"d","dry_run":true}"#, "deleted"),
    ] {
        let result = client.call(tool, arguments).await;
        assert_eq!(
            (member(&result, "outcome"), member(&result, "dry_run")),
            (json!(outcome), json!(true)),
            "{result}"
        );
    }
    let result = client.call("create_people", r#"{"id":"d","name":"D","dry_run":true}"#).await;
    assert!(result.starts_with("conflict id "), "{result}");
    let state = client.table.state();
    assert_eq!((&state.rows, state.idempotency_records.len(), state.writes), (&before, 0, 0));
}

const ASK: &str = "confirm = \"ask\"\n[collections.people.fields]\nsecret = { sensitive = true }\n";

#[tokio::test]
async fn the_user_is_asked_before_a_destructive_write() {
    for era in ERAS {
        let mut client = people(era, ASK);
        let change = r#"{"id":"d","name":"Di","age":7,"secret":"hush"}"#;
        let result = client.call_with_user("update_people", change, &mut |_| accept()).await;
        assert_eq!(member(&result, "outcome"), "updated", "{era:?}");
        assert_eq!(
            client.questions,
            [
                "Update this row of people?\nid: d\nname: Dana → Di\nage: (no value) → 7\nsecret: (no value) → ***"
            ]
        );
        let result = client.call_with_user("delete_people", r#"{"id":"d"}"#, &mut |_| accept()).await;
        assert_eq!(member(&result, "outcome"), "deleted", "{era:?}");
        assert_eq!(
            client.questions[1],
            "Delete this row of people?\nid: d\nname: Di\nage: 7\nsecret: ***\nrev: 1"
        );
        // A create, a change that changes nothing and a replay need no confirmation.
        client.call("create_people", DANA).await;
        client.call("update_people", r#"{"id":"b","name":"Bob"}"#).await;
        let request = r#"{"id":"b","idempotency_key":"k"}"#;
        client.call_with_user("delete_people", request, &mut |_| accept()).await;
        assert_eq!(member(&client.call("delete_people", request).await, "replayed"), true);
    }
}

#[tokio::test]
async fn a_declined_confirmation_writes_nothing() {
    for era in ERAS {
        let mut client = people(era, ASK);
        for (answer, message) in [
            (json!({"action": "decline"}), "the user declined"),
            (
                json!({"action": "cancel"}),
                "the user did not answer, or the client could not ask (it cancelled the elicitation)",
            ),
            (json!({"action": "accept", "content": {"confirm": false}}), "the user declined"),
            (json!({"action": "accept"}), "the answer has no `confirm`"),
            (json!({"action": "accept", "content": {}}), "the answer has no `confirm`"),
        ] {
            let result =
                client.call_with_user("delete_people", r#"{"id":"d"}"#, &mut |_| answer.clone()).await;
            assert_eq!(result, format!("input_refused - {message}; nothing was written"), "{era:?}");
        }
        assert_eq!((client.questions.len(), client.table.state().writes), (5, 0), "each call asks once");
    }
}

#[tokio::test]
async fn a_declined_confirmation_cannot_be_accepted_afterwards() {
    let mut client = people(Era::Newest, ASK);
    let decline = json!({"action": "decline"});
    let refused = client.call_with_user("delete_people", r#"{"id":"d"}"#, &mut |_| decline.clone()).await;
    assert_eq!(refused, "input_refused - the user declined; nothing was written");
    let error = client.answer_again(&accept()).await;
    assert!(error.contains("already used"), "{error}");
    // The same answer again has the same result: a client may have lost the first one.
    assert_eq!(client.resend().await, refused);
    assert_eq!(client.table.state().writes, 0);
}

#[tokio::test]
async fn a_confirmation_holds_only_for_the_record_that_was_shown() {
    for era in ERAS {
        let mut client = people(era, ASK);
        let table = client.table.clone();
        let mut rounds = 0;
        let result = client
            .call_with_user("delete_people", r#"{"id":"d"}"#, &mut |_| {
                rounds += 1;
                if rounds == 1 {
                    // Another client changes the record before the user answers.
                    table.state().rows[0][1] = contract::Value::Text("Diana".into());
                }
                accept()
            })
            .await;
        assert_eq!(member(&result, "record")["name"], "Diana", "{era:?}");
        assert_eq!(client.questions.len(), 2, "{era:?}");
        assert!(client.questions[0].contains("name: Dana") && client.questions[1].contains("name: Diana"));
    }
}

#[tokio::test]
async fn an_invalid_answer_is_asked_for_again() {
    for era in ERAS {
        let mut client = people(era, ASK);
        let mut answers = [
            json!({"action": "perhaps"}),
            json!({"action": "accept", "content": {"confirm": "true"}}),
            json!({"action": "accept", "content": "yes"}),
            accept(),
        ]
        .into_iter();
        let result = client
            .call_with_user("delete_people", r#"{"id":"d"}"#, &mut |_| answers.next().expect("four times"))
            .await;
        assert_eq!((member(&result, "outcome"), client.questions.len()), (json!("deleted"), 4), "{era:?}");
        // The user reads what was wrong with the answer before.
        let question = client.questions[0].clone();
        for (asked_again, reason) in [
            (1, "`action` must be `accept`, `decline` or `cancel`"),
            (2, "`confirm` must be a boolean"),
            (3, "must be an object"),
        ] {
            let again = &client.questions[asked_again];
            let expected = format!("{question}\n\nThe previous answer was not accepted: ");
            assert!(again.starts_with(&expected) && again.contains(reason), "{era:?}: {again}");
        }
    }
}

#[tokio::test]
async fn a_client_that_never_answers_validly_is_refused_with_the_reason() {
    for era in ERAS {
        let mut client = people(era, ASK);
        let wrong = || json!({"action": "accept", "content": {"confirm": "yes"}});
        let result = client.call_with_user("delete_people", r#"{"id":"d"}"#, &mut |_| wrong()).await;
        let expected = "input_refused - the client's answers do not match the requested form: `confirm` must be a \
                        boolean";
        assert_eq!(result, expected, "{era:?}");
        assert_eq!((client.questions.len(), client.table.state().writes), (16, 0), "{era:?}");
    }
}

#[tokio::test]
async fn a_client_without_elicitation_is_refused() {
    for era in ERAS {
        let mut client = people(era, ASK).without_forms();
        assert_eq!(
            client.call("delete_people", r#"{"id":"d"}"#).await,
            "forbidden - this write needs the user's confirmation, and the client does not support elicitation; use a \
             client that does, or preview the change with `dry_run`",
            "{era:?}"
        );
        assert_eq!(client.table.state().writes, 0);
    }
}

#[tokio::test]
async fn search_finds_records_with_all_terms() {
    let mut client = people(Era::Newest, "search_rows_max = 2\n");
    client.table.insert_person("x", "Dana Scully");
    let found = async |client: &mut Client, arguments: &str| {
        let result = client.call("search_people", arguments).await;
        let result: Value = serde_json::from_str(&result).unwrap_or_else(|_| panic!("{result}"));
        (result["items"].clone(), result["truncated"].clone(), result["searched"].clone())
    };
    let dana = json!([{"id": "d"}]);
    assert_eq!(
        found(&mut client, r#"{"query":" dAn  ","fields":["id"]}"#).await,
        (dana, json!(true), json!("first 2 rows"))
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
        let result = client.call("search_people", &json!({"query": blank}).to_string()).await;
        assert_eq!(result, "invalid_arguments query `query` is empty; give at least one search term");
    }
}

const RENAME: &str = "[tools.rename]\nsql = \"rename\"\nwrites = true\nchanges_max = 2\narguments.old = {}\narguments.new = {}\n";

#[tokio::test]
async fn a_write_of_unknown_durability_is_retryable_only_with_an_idempotency_key() {
    let mut client = people(Era::Newest, "");
    for (key, advice, retryable) in [
        ("", "read the row before you try again, and pass an `idempotency_key` next time", false),
        (r#","idempotency_key":"k""#, "repeat the call with the same `idempotency_key`", true),
    ] {
        let result = client.call("create_people", &format!(r#"{{"id":"n","name":"unsure"{key}}}"#)).await;
        assert_eq!(result, format!("source_unavailable - the disk did not confirm it; {advice}"));
        assert_eq!(client.last_error["retryable"], retryable);
    }
}

#[tokio::test]
async fn a_statement_returns_rows() {
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
    // `null` equals a missing argument.
    assert_eq!(client.call("count", r#"{"name":null}"#).await, client.call("count", "{}").await);
    let result = client.call("count", r#"{"name":7}"#).await;
    assert_eq!(result, "invalid_arguments name `name` must be null or a string");
}

#[tokio::test]
async fn a_statement_can_return_one_record() {
    let one = "[tools.one]\nsql = \"count\"\nreturns = \"one\"\narguments.name = {}\n";
    let mut client = people(Era::Newest, one);
    assert_eq!(client.call("one", r#"{"name":"Bob"}"#).await, r#"{"name":"Bob","people":1}"#);
    assert_eq!(
        client.call("one", r#"{"name":"Zoe"}"#).await,
        "not_found - `one` found no row for these arguments"
    );
}

/// A client may send the same `requestState` twice; the confirmed write is applied once.
#[tokio::test]
async fn a_confirmed_call_sent_twice_is_applied_once() {
    let mut client = people(Era::Newest, &format!("{RENAME}confirm = \"ask\"\n"));
    let result = client.call_with_user("rename", r#"{"old":"Dana","new":"Di"}"#, &mut |_| accept()).await;
    assert_eq!(member(&result, "changed"), 1);
    // Restore the state that the user was asked about.
    client.table.insert_person("d", "Dana");
    assert_eq!(member(&client.resend().await, "replayed"), true);
    assert_eq!(client.table.state().writes, 1);
    // A new call asks again and is applied.
    let result = client.call_with_user("rename", r#"{"old":"Dana","new":"Di"}"#, &mut |_| accept()).await;
    assert_eq!(member(&result, "changed"), 1);
    assert_eq!((client.questions.len(), client.table.state().writes), (2, 2));
}

/// The number of rows is the same, but they are other rows.
#[tokio::test]
async fn a_confirmation_of_other_rows_is_asked_again() {
    for era in ERAS {
        let mut client = people(era, &format!("{RENAME}confirm = \"ask\"\n"));
        let table = client.table.clone();
        let mut rounds = 0;
        let result = client
            .call_with_user("rename", r#"{"old":"Dana","new":"Di"}"#, &mut |_| {
                rounds += 1;
                if rounds == 1 {
                    table.state().rows[0][1] = contract::Value::Text("Dora".into());
                    table.insert_person("z", "Dana");
                }
                accept()
            })
            .await;
        assert_eq!(result, r#"{"changed":1,"items":[{"id":"z"}],"truncated":false}"#, "{era:?}");
        assert_eq!((client.questions.len(), client.table.state().writes), (2, 1), "{era:?}");
    }
}

#[tokio::test]
async fn an_argument_that_the_source_would_alter_is_named() {
    let mut client = people(Era::Newest, RENAME);
    let result = client.call("rename", r#"{"old":"Dana","new":"007"}"#).await;
    assert_eq!(result, "invalid_arguments new `new`: it would be kept as 7");
    assert_eq!(client.table.state().writes, 0);
}

#[tokio::test]
async fn a_statement_writes_once_and_within_changes_max() {
    for era in ERAS {
        let mut client = people(era, &format!("{RENAME}confirm = \"ask\"\n"));
        client.table.insert_person("e", "Dana");
        let dry = client.call("rename", r#"{"old":"Dana","new":"Di","dry_run":true}"#).await;
        assert_eq!(member(&dry, "dry_run"), true);
        assert_eq!(client.table.state().writes, 0);
        let request = r#"{"old":"Dana","new":"Di","idempotency_key":"k"}"#;
        let result = client.call_with_user("rename", request, &mut |_| accept()).await;
        assert_eq!(result, r#"{"changed":2,"items":[{"id":"d"},{"id":"e"}],"truncated":false}"#);
        assert_eq!(client.questions, ["Run rename? It would change 2 rows.\nold: Dana\nnew: Di"]);
        assert_eq!(member(&client.call("rename", request).await, "replayed"), true);
        client.table.insert_person("f", "Di");
        let result = client.call("rename", r#"{"old":"Di","new":"Do"}"#).await;
        assert_eq!(
            result,
            "forbidden - this would change 3 rows, which exceeds the limit of 2; nothing was changed"
        );
        let other = r#"{"old":"Bob","new":"Rob"}"#;
        let result = client.call_with_user("rename", other, &mut |_| json!({"action": "decline"})).await;
        assert_eq!(result, "input_refused - the user declined; nothing was written");
        assert_eq!(client.table.state().writes, 1, "{era:?}");
    }
}

#[tokio::test]
async fn results_are_truncated_at_their_limits() {
    let mut client = people(Era::Newest, "rows_max = 3\nbytes_max = 1024\n");
    for i in 0..5 {
        client.table.insert_person(&format!("long {i}"), &"x".repeat(400));
    }
    // `call` validates every result against the output schema.
    for (tool, arguments) in [("list_people", "{}"), ("search_people", r#"{"query":"x"}"#)] {
        let result = client.call(tool, arguments).await;
        assert_eq!(member(&result, "truncated"), true, "{result}");
        assert!(member(&result, "items").as_array().is_some_and(|items| (1..=3).contains(&items.len())));
    }
}

#[tokio::test]
async fn a_long_running_tool_reports_its_start_and_end() {
    let long = "[tools.all]\nuses = \"people.list\"\nlong_running = true\n";
    let mut client = people(Era::Newest, long);
    client.call("all", "{}").await;
    assert_eq!(client.progress, ["0 started", "1000 done"]);
    client.call("get_people", r#"{"id":"d"}"#).await;
    assert_eq!(client.progress.len(), 2, "a short call reports no progress");
}

/// Calls a tool of a table that is slow for 600 ms, and then for another second.
async fn call_slowly(client: &mut Client, tool: &str, arguments: &str) {
    let table = client.table.clone();
    table.slow.store(true, Ordering::SeqCst);
    let finish = async {
        while !table.entered.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        for elapsed_ms in [600, 1000] {
            tokio::time::advance(std::time::Duration::from_millis(elapsed_ms)).await;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        table.slow.store(false, Ordering::SeqCst);
        std::future::pending::<()>().await
    };
    tokio::select! {
        result = client.call(tool, arguments) => assert!(result.contains("Dana"), "{result}"),
        () = finish => unreachable!("it waits for ever"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_reports_progress_after_half_a_second() {
    let mut client = people(Era::Newest, "");
    call_slowly(&mut client, "list_people", "{}").await;
    assert_eq!(client.progress, ["1000 1000 rows scanned", "1001 1000 rows scanned"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_counts_no_rows_reports_how_long_it_has_been_running() {
    let mut client = people(Era::Newest, "");
    call_slowly(&mut client, "update_people", r#"{"id":"d","age":7}"#).await;
    assert_eq!(client.progress.len(), 2);
    for (progress, seconds) in client.progress.iter().zip(["1 running for 0.", "2 running for 1."]) {
        assert!(progress.starts_with(seconds), "{progress}");
    }
}

#[tokio::test]
async fn a_read_that_would_block_runs_on_the_blocking_pool() {
    let mut client = people(Era::Newest, "");
    let here = std::thread::current().id();
    for (tool, arguments) in [("get_people", r#"{"id":"d"}"#), ("count", "{}")] {
        client.call(tool, arguments).await;
        assert_eq!(client.table.last_read_thread(), Some(here), "{tool}: a free table is read inline");
        client.table.locked.store(true, Ordering::SeqCst);
        let result = client.call(tool, arguments).await;
        assert!(result.contains("Dana"), "{result}");
        let thread = client.table.last_read_thread();
        assert!(
            thread.is_some() && thread != Some(here),
            "{tool}: a locked table must not block the caller's thread"
        );
        client.table.locked.store(false, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_write_that_times_out_is_cancelled_and_says_that_it_may_have_been_applied() {
    let timed = |tool: &str, uses: &str| format!("[tools.{tool}]\n{uses}\ncall_timeout_ms = 50\n");
    let unknown = "timeout - no result within 50 ms; the write may have been applied: read the row before you try \
                   again, or pass an `idempotency_key`";
    for (manifest, tool, arguments, expected) in [
        (timed("add", "uses = \"people.create\""), "add", r#"{"id":"n","name":"New"}"#, unknown),
        (timed("drop", "uses = \"people.delete\""), "drop", r#"{"id":"d"}"#, unknown),
        (format!("{RENAME}call_timeout_ms = 50\n"), "rename", r#"{"old":"Dana","new":"D"}"#, unknown),
        (timed("all", "uses = \"people.list\""), "all", "{}", "timeout - no result within 50 ms"),
    ] {
        let mut client = people(Era::Newest, &manifest);
        client.table.slow.store(true, Ordering::SeqCst);
        assert_eq!(client.call(tool, arguments).await, expected, "{tool}");
        // Ends only if the source was told to cancel.
        while !client.table.stopped.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.table.state().writes, 0, "{tool}");
    }
}

#[tokio::test]
async fn a_read_is_cancelled_when_its_caller_goes_away() {
    let mut client = people(Era::Newest, "");
    client.table.slow.store(true, Ordering::SeqCst);
    let table = client.table.clone();
    let entered = async {
        while !table.entered.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        result = client.call("list_people", "{}") => unreachable!("{result}"),
        () = entered => {}
    }
    // The call was dropped; this ends only if the source was told to cancel.
    while !table.stopped.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Get, list and the write itself return the same record.
    #[test]
    fn a_written_record_reads_back_identical(
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
            // A quote or a backslash makes it invalid JSON.
            Err(_) => Value::Null,
        };
        let record = json!({
            "id": "p", "name": name, "age": age, "balance": balance, "score": score,
            "big": big.map(|n| n.to_string()), "active": active, "extra": extra,
            "photo": photo.map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes)),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut client = Client::new(Era::Newest, ALL_OPERATIONS);
            let result = client.call("create_people", &record.to_string()).await;
            let created = member(&result, "record");
            for (field, value) in record.as_object().expect("an object") {
                // Numbers may differ in notation.
                let same = match (created[field].as_f64(), value.as_f64()) {
                    (Some(a), Some(b)) => a.to_bits() == b.to_bits(),
                    _ => &created[field] == value,
                };
                assert!(same, "{field}: {value} is {}", created[field]);
            }
            assert_eq!(get(&mut client, "p").await, created);
            assert_eq!(member(&client.call("list_people", "{}").await, "items")[0], created);
            let result = client.call("update_people", &record.to_string()).await;
            assert_eq!((member(&result, "outcome"), member(&result, "record")), (json!("unchanged"), created));
        });
    }
}
