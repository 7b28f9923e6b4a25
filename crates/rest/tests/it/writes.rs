//! Changes of records, by the steps of a transaction.

use std::sync::atomic::{AtomicUsize, Ordering};

use contract::source::{RowChange, Source, TransactionOptions, WriteCapabilities, WriteError, WriteSupport};
use contract::{Value, ValueRef};
use test_api::shop::{Shop, TOKEN};
use test_api::{ApiResponse, ApiServer};

use crate::kit::{ids, local, shape};

const WRITES: &str = "operations = [\"get\", \"list\", \"create\", \"update\", \"delete\"]\n\
    list = { path = \"/orders\", items = \"/data\", page = { style = \"page\" } }\nget = { path = \"/orders/{id}\" }\n\
    create = { path = \"/orders\", error = \"/error/message\" }\nupdate = { path = \"/orders/{id}\", error = \"/error/message\" }\n\
    delete = { path = \"/orders/{id}\" }";

fn shop(collection: &str) -> (ApiServer, rest::RestSource) {
    let shop = Shop::default();
    let server = ApiServer::start(move |request| shop.answer(request));
    let source =
        local(&format!("{}/v1", server.url()), &format!("auth = {{ bearer = \"{TOKEN}\" }}"), collection);
    (server, source)
}

/// Applies a change and reads it back.
fn apply(source: &rest::RestSource, change: &RowChange<'_>) -> Result<Option<Vec<Value>>, WriteError> {
    let writer = source.writer(&shape()).expect("a writer");
    let mut transaction = writer.begin(&TransactionOptions::default())?;
    if let RowChange::Update { key, .. } | RowChange::Delete { key } = change {
        transaction.row(key)?.ok_or(WriteError::NotFound)?;
    }
    transaction.apply(change)?;
    let row = transaction.read_back()?;
    transaction.commit()?;
    Ok(row)
}

#[test]
fn records_are_created_changed_and_deleted() {
    let without_response =
        WRITES.replace("update = { path", "update = { item = \"/nothing\", method = \"PUT\", path");
    for collection in [WRITES, without_response.as_str()] {
        let (server, source) = shop(collection);
        let key = [ValueRef::Integer(2)];
        let values = [(1, ValueRef::Text("paid")), (2, ValueRef::Text("6.75"))];
        let row = apply(&source, &RowChange::Update { key: &key, values: &values })
            .expect("updated")
            .expect("a row");
        assert_eq!(row[1], Value::Text("paid".into()));
        let sent =
            server.requests().into_iter().find(|request| matches!(request.method.as_str(), "PATCH" | "PUT"));
        let sent = String::from_utf8(sent.expect("a change").body).expect("text");
        match collection == WRITES {
            true => assert_eq!(sent, r#"{"status":"paid","total":6.75}"#),
            // A PUT replaces the whole record, also what no field declares.
            false => assert!(sent.contains("\"internal_note\"") && sent.contains("\"total\":6.75"), "{sent}"),
        }
        let deleted = apply(&source, &RowChange::Delete { key: &key }).expect("deleted");
        assert_eq!((deleted, ids(&source).as_deref()), (None, Ok("1 3 4 5 6 7")));
        assert!(matches!(apply(&source, &RowChange::Delete { key: &key }), Err(WriteError::NotFound)));
        let unknown = [(1, ValueRef::Text("lost"))];
        let refused = apply(&source, &RowChange::Update { key: &[ValueRef::Integer(1)], values: &unknown });
        let Err(WriteError::Rejected { reason, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(reason, "the API refused the request: unknown status");
    }
}

#[test]
fn an_api_that_returns_nothing_after_a_change_is_asked_again() {
    let server = ApiServer::start(|request| match request.method.as_str() {
        "GET" => ApiResponse::json(r#"{"id":5,"status":"open"}"#),
        "POST" => ApiResponse::new(201, ""),
        _ => ApiResponse::new(204, ""),
    });
    let source = local(&server.url(), "", WRITES);
    let create = RowChange::Create { values: &[(0, ValueRef::Integer(5)), (1, ValueRef::Text("open"))] };
    assert_eq!(apply(&source, &create).expect("created").expect("a row")[0], Value::Integer(5));
    let create = RowChange::Create { values: &[(1, ValueRef::Text("open"))] };
    let error = apply(&source, &create).expect_err("no key");
    assert!(
        matches!(&error, WriteError::ResultUnreadable { message, .. } if message.contains("created the record")),
        "{error:?}"
    );
    let conflict = ApiServer::start(|_| ApiResponse::new(409, "{}"));
    let source = local(&conflict.url(), "", WRITES);
    assert!(matches!(apply(&source, &create), Err(WriteError::AlreadyExists)));
}

#[test]
fn a_change_that_was_made_is_not_reported_as_a_failure_to_make_it() {
    let key = [ValueRef::Integer(5)];
    let create = RowChange::Create { values: &[(0, ValueRef::Integer(5)), (1, ValueRef::Text("open"))] };
    let update = RowChange::Update { key: &key, values: &[(1, ValueRef::Text("paid"))] };
    // What the API answers to the change, and when the record is read back.
    for (change, changed, read, expected) in [
        (&create, ApiResponse::new(201, ""), ApiResponse::new(500, ""), "reading it back failed"),
        (&create, ApiResponse::new(201, ""), ApiResponse::new(404, ""), "does not have the record now"),
        (&create, ApiResponse::json("<html>"), ApiResponse::json("<html>"), "reading it back failed"),
        (&create, ApiResponse::json("x".repeat(3000)), ApiResponse::new(403, ""), "reading it back failed"),
        (&update, ApiResponse::json(r#"{"id":7}"#), ApiResponse::new(500, ""), "reading it back failed"),
    ] {
        let reads = AtomicUsize::new(usize::from(matches!(change, RowChange::Create { .. })));
        let server = ApiServer::start(move |request| match request.method.as_str() {
            "GET" if reads.fetch_add(1, Ordering::SeqCst) == 0 => {
                ApiResponse::json(r#"{"id":5,"status":"open"}"#)
            }
            "GET" => read.clone(),
            _ => changed.clone(),
        });
        let source = local(&server.url(), "response_bytes_max = 2000", WRITES);
        let error = apply(&source, change).expect_err(expected);
        assert!(
            matches!(&error, WriteError::ResultUnreadable { message, .. } if message.contains(expected)),
            "{error:?}"
        );
    }
}

#[test]
fn a_record_that_a_lost_attempt_deleted_is_deleted() {
    let deletes = AtomicUsize::new(0);
    let server = ApiServer::start(move |request| match request.method.as_str() {
        "DELETE" => match deletes.fetch_add(1, Ordering::SeqCst) {
            0 => ApiResponse { cut_at: Some(1), ..ApiResponse::json("{}") },
            _ => ApiResponse::new(404, ""),
        },
        _ => ApiResponse::json(r#"{"id":5,"status":"open"}"#),
    });
    let source = local(&server.url(), "", WRITES);
    let deleted = apply(&source, &RowChange::Delete { key: &[ValueRef::Integer(5)] });
    assert_eq!(deleted.expect("deleted"), None);
}

#[test]
fn a_source_claims_only_what_its_endpoints_can_do() {
    let support = |collection: &str| {
        let source = local("http://127.0.0.1:1", "", collection);
        source.introspect().expect("facts without a request").tables[0].write_support.clone()
    };
    let key = |collection: &str| {
        collection.replace("path = \"/orders", "idempotency_header = \"K\", path = \"/orders")
    };
    let (keys, repeatable) = (WriteCapabilities::IDEMPOTENCY, WriteCapabilities::REPEATABLE);
    assert_eq!(support(WRITES), WriteSupport::Supported(WriteCapabilities::NONE));
    assert_eq!(
        support(&WRITES.replace("update = { path", "update = { method = \"PUT\", path")),
        WriteSupport::Supported(repeatable)
    );
    let endpoints = WRITES.split("create =").collect::<Vec<_>>();
    let with_keys = format!("{}create ={}", endpoints[0], key(endpoints[1]));
    assert_eq!(support(&with_keys), WriteSupport::Supported(keys.with(repeatable)));
    assert!(matches!(support("list = { path = \"/orders\" }"), WriteSupport::ReadOnly { .. }));
}
