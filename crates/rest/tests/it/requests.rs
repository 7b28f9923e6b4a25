//! Requests of tools: what is sent, what comes back, and what a failure means.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

use contract::request::{
    BodyTemplate, Method, PathTemplate, RequestShape, RequestTemplate, ResponseShape, TextPattern,
};
use contract::source::{
    ColumnShape, IdempotencyKey, RowFlow, Source, SourceError, TableShape, TransactionOptions, WriteError,
};
use contract::{DataType, ValueRef};
use test_api::shop::{Shop, TOKEN};
use test_api::{ApiResponse, ApiServer};

use crate::kit::{local, text};

pub(crate) fn shape(
    method: Method,
    path: &str,
    result: ResponseShape,
    columns: &[(&str, DataType)],
) -> RequestShape {
    let mut template = RequestTemplate::new(method, PathTemplate::parse(path).expect("a path"));
    template.error_pointer = Some("/error/message".to_owned());
    if method.has_body() {
        template.body =
            Some(BodyTemplate::Object(vec![("amount".into(), BodyTemplate::Value("amount".into()))]));
        template.idempotency_header = Some("Idempotency-Key".to_owned());
    } else {
        template.query = vec![("note".into(), TextPattern::parse("{note}").expect("a pattern"))];
    }
    let column = |(source_index, (name, data_type)): (usize, &(&str, DataType))| ColumnShape {
        source_index,
        name: (*name).to_owned(),
        data_type: *data_type,
        nullable: true,
        mixed: false,
        null_texts: Vec::new(),
        format: None,
    };
    RequestShape {
        template,
        parameters: vec![
            ("id".into(), DataType::Integer),
            ("amount".into(), DataType::Decimal),
            ("note".into(), DataType::Text),
        ],
        writes: !method.is_safe(),
        result,
        table: TableShape {
            table: "tool".into(),
            columns: columns.iter().enumerate().map(column).collect(),
            key: Vec::new(),
        },
        timeout_ms: None,
    }
}

/// The rows of a response, as text.
pub(crate) fn send(
    source: &rest::RestSource,
    shape: &RequestShape,
    arguments: [ValueRef<'_>; 3],
    key: Option<u8>,
) -> Result<Vec<String>, WriteError> {
    let prepared = source.prepare_request(shape).expect("a request");
    let digest = |byte| IdempotencyKey { key_digest: [byte; 32], request_digest: [0; 32] };
    let options = TransactionOptions { idempotency_key: key.map(digest), ..TransactionOptions::default() };
    let mut rows = Vec::new();
    prepared.send(&arguments, &options, &mut |row| {
        rows.push(row.iter().map(|value| text(*value)).collect::<Vec<_>>().join("|"));
        RowFlow::Continue
    })?;
    Ok(rows)
}

pub(crate) const LIST: &str = "list = { path = \"/orders\" }";

#[test]
fn a_response_becomes_the_declared_rows() {
    let server = ApiServer::start(|request| match request.path.as_str() {
        "/object/1" => ApiResponse::json(r#"{"data":{"a":1,"b":[2],"secret":3}}"#),
        "/objects/1" => ApiResponse::json(r#"{"data":[{"a":1},{"b":{"c":2}}]}"#),
        "/empty/1" => ApiResponse::new(204, ""),
        _ => ApiResponse::json(format!(
            "{:?}",
            request.query.first().map(|(_, value)| value.as_str()).unwrap_or("none")
        )),
    });
    let source = local(&server.url(), "", LIST);
    let fields = [("a", DataType::Integer), ("b", DataType::Json)];
    let value = [("result", DataType::Json)];
    let data = || "/data".to_owned();
    let arguments = [ValueRef::Integer(1), ValueRef::Null, ValueRef::Text("x&y=1")];
    for (path, result, columns, expected) in [
        ("/object/{id}", ResponseShape::Object(data()), &fields[..], Ok(vec!["1|[2]"])),
        ("/objects/{id}", ResponseShape::Objects(data()), &fields[..], Ok(vec!["1|null", "null|{\"c\":2}"])),
        ("/object/{id}", ResponseShape::Value(data()), &value[..], Ok(vec![r#"{"a":1,"b":[2],"secret":3}"#])),
        ("/object/{id}", ResponseShape::Value("/nothing".into()), &value[..], Ok(vec!["null"])),
        ("/empty/{id}", ResponseShape::Value(String::new()), &value[..], Ok(vec!["null"])),
        ("/empty/{id}", ResponseShape::Objects(String::new()), &fields[..], Ok(vec![])),
        ("/query", ResponseShape::Value(String::new()), &value[..], Ok(vec![r#""x&y=1""#])),
        ("/object/{id}", ResponseShape::Objects(data()), &fields[..], Err("no array of objects")),
        ("/objects/{id}", ResponseShape::Object(data()), &fields[..], Err("no object")),
        ("/query", ResponseShape::Object(String::new()), &fields[..], Err("no object")),
    ] {
        let got = send(&source, &shape(Method::Get, path, result, columns), arguments, None);
        match (got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{path}"),
            (Err(got), Err(expected)) => assert!(got.to_string().contains(expected), "{path}: {got}"),
            (got, expected) => panic!("{path}: {got:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn an_argument_that_would_change_the_path_is_rejected_and_nothing_is_sent() {
    let server = ApiServer::start(|_| ApiResponse::json("{}"));
    let source = local(&format!("{}/v1", server.url()), "", LIST);
    let mut shape = shape(
        Method::Get,
        "/orders/{id}",
        ResponseShape::Value(String::new()),
        &[("result", DataType::Json)],
    );
    shape.parameters[0].1 = DataType::Text;
    for id in ["..", "../admin", "%2e%2e/admin", "", "a\r\nb"] {
        let error = send(&source, &shape, [ValueRef::Text(id), ValueRef::Null, ValueRef::Null], None);
        assert!(matches!(error, Err(WriteError::Rejected { column: Some(0), .. })), "{id:?}: {error:?}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn a_write_is_sent_once_unless_the_api_recognizes_it() {
    let shop = std::sync::Arc::new(Shop::default());
    let api = std::sync::Arc::clone(&shop);
    let server = ApiServer::start(move |request| api.answer(request));
    let source = local(&format!("{}/v1", server.url()), &format!("auth = {{ bearer = \"{TOKEN}\" }}"), LIST);
    let fields = [("refund", DataType::Integer), ("amount", DataType::Decimal)];
    let refund = shape(Method::Post, "/orders/{id}/refund", ResponseShape::Object("/data".into()), &fields);
    let call = |id, key| {
        send(&source, &refund, [ValueRef::Integer(id), ValueRef::Text("2.50"), ValueRef::Null], key)
    };
    assert_eq!(call(1, Some(7)).expect("a refund"), ["1|2.5"]);
    assert_eq!(call(1, Some(7)).expect("the same refund"), ["1|2.5"]);
    assert_eq!((call(3, None).expect("another"), shop.refunds()), (vec!["2|2.5".to_owned()], 2));
    let refused = call(2, None).expect_err("not paid");
    assert!(
        matches!(&refused, WriteError::Rejected { column: None, reason } if reason == "the API reports a conflict: order 2 is not paid"),
        "{refused:?}"
    );
    assert!(matches!(call(99, None), Err(WriteError::NotFound)));
}

/// What a failure says about what happened.
fn outcome(result: Result<Vec<String>, WriteError>) -> String {
    match result {
        Ok(rows) => rows.join(","),
        Err(WriteError::OutcomeUnknown) => "unknown".to_owned(),
        Err(WriteError::ResultUnreadable { message, .. }) => format!("accepted: {message}"),
        Err(WriteError::Source(SourceError::Unavailable { .. })) => "unavailable".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

const NO_ARGUMENTS: [ValueRef<'static>; 3] = [ValueRef::Integer(1), ValueRef::Null, ValueRef::Null];

#[test]
fn after_a_request_was_sent_only_a_plain_refusal_says_that_nothing_happened() {
    let fields = [("refund", DataType::Integer)];
    let refund = shape(Method::Post, "/orders/{id}/refund", ResponseShape::Object("/data".into()), &fields);
    let large = || format!(r#"{{"data":{{"refund":1,"note":"{}"}}}}"#, "x".repeat(3000));
    let see_other = |status| ApiResponse::new(status, "").with_header("Location", "/orders/1");
    let soon = |status| ApiResponse::new(status, "").with_header("Retry-After", "0");
    for (response, without_key, with_key, requests_with_key) in [
        (soon(500), "unknown", "unavailable", 1),
        (soon(502), "unknown", "unavailable", 3),
        (soon(503), "unknown", "unavailable", 3),
        (soon(408), "unknown", "unavailable", 1),
        (see_other(302), "unknown", "Source(Incompatible", 1),
        (see_other(303), "unknown", "unexpected status 303", 1),
        (see_other(307), "unknown", "Source(Incompatible", 1),
        (
            ApiResponse { cut_at: Some(5), ..ApiResponse::json(r#"{"data":{"refund":1}}"#) },
            "unknown",
            "unavailable",
            3,
        ),
        (
            ApiResponse::json(large()),
            "accepted: the API accepted the request (status 200), but its response exceeds",
            "accepted",
            1,
        ),
        (
            ApiResponse::json("<html>"),
            "accepted: the API accepted the request (status 200), but the API returned HTML",
            "accepted",
            1,
        ),
        (ApiResponse::json("{"), "accepted", "accepted", 1),
        (
            ApiResponse::json("{}"),
            "accepted: the API accepted the request (status 200), but the API returned no object at `/data`",
            "accepted",
            1,
        ),
        (ApiResponse::json(r#"{"data":{"refund":"x"}}"#), "accepted", "accepted", 1),
        (
            ApiResponse::new(204, ""),
            "accepted: the API accepted the request (status 204), but its response is empty",
            "accepted",
            1,
        ),
        (ApiResponse::json("{}").with_header("Content-Encoding", "br"), "accepted", "accepted", 1),
        // The body of a refusal is not needed to know that it is one.
        (ApiResponse::new(422, large()), "refused the request (status 422)", "refused the request", 1),
        (
            ApiResponse { cut_at: Some(5), ..ApiResponse::new(409, large()) },
            "reports a conflict",
            "conflict",
            1,
        ),
        (ApiResponse::new(404, ""), "NotFound", "NotFound", 1),
        (ApiResponse::new(403, ""), "Refused", "Refused", 1),
        (soon(429), "Overloaded", "Overloaded", 3),
    ] {
        let expected = format!("{response:?}");
        let server = ApiServer::start(move |_| response.clone());
        let source = local(&server.url(), "response_bytes_max = 2000", LIST);
        let got = outcome(send(&source, &refund, NO_ARGUMENTS, None));
        assert!(got.contains(without_key), "{expected}: {got}");
        assert_eq!(server.take_requests().len(), 1, "{expected}: without a key it is sent once");
        let got = outcome(send(&source, &refund, NO_ARGUMENTS, Some(1)));
        assert!(got.contains(with_key), "{expected}: {got}");
        assert_eq!(server.take_requests().len(), requests_with_key, "{expected}: with a key");
    }
}

#[test]
fn a_request_that_only_reads_has_plain_errors() {
    let fields = [("refund", DataType::Integer)];
    let mut search = shape(Method::Post, "/search", ResponseShape::Object("/data".into()), &fields);
    search.writes = false;
    for (response, expected) in [
        (ApiResponse::new(500, ""), "unavailable"),
        (ApiResponse::json("<html>"), "returned HTML instead of JSON"),
        (ApiResponse::new(204, ""), ""),
    ] {
        let server = ApiServer::start(move |_| response.clone());
        let got = outcome(send(&local(&server.url(), "", LIST), &search, NO_ARGUMENTS, None));
        assert!(got.contains(expected) && !got.contains("accepted"), "{got}");
    }
}

#[test]
fn a_request_that_was_sent_when_its_time_was_over_has_an_unknown_outcome() {
    let (asked, waiting) = mpsc::channel();
    let asked = Mutex::new(asked);
    let silent = ApiServer::start(move |_| {
        asked.lock().expect("no panic").send(()).expect("the test waits");
        loop {
            std::thread::park();
        }
    });
    let fields = [("refund", DataType::Integer)];
    let refund = |timeout_ms| RequestShape {
        timeout_ms,
        ..shape(Method::Post, "/refund", ResponseShape::Object("/data".into()), &fields)
    };
    // The deadline of the call, and that of the request.
    for (source, timeout_ms) in [("", Some(300)), ("timeout_ms = 300", None), ("timeout_ms = 300", Some(300))]
    {
        let source = local(&silent.url(), source, LIST);
        assert_eq!(
            outcome(send(&source, &refund(timeout_ms), NO_ARGUMENTS, None)),
            "unknown",
            "{timeout_ms:?}"
        );
        waiting.recv().expect("it was sent");
    }
    let source = local(&silent.url(), "requests_max = 1", LIST);
    std::thread::scope(|scope| {
        scope.spawn(|| send(&source, &refund(Some(2_000)), NO_ARGUMENTS, None));
        waiting.recv().expect("it was sent");
        // This one never gets its turn.
        let got = send(&source, &refund(Some(50)), NO_ARGUMENTS, None);
        assert!(matches!(got, Err(WriteError::Source(SourceError::Timeout))), "{got:?}");
    });
}

#[test]
fn a_refusal_after_an_attempt_that_was_lost_does_not_say_that_nothing_happened() {
    let fields = [("refund", DataType::Integer)];
    let refund = shape(Method::Post, "/refund", ResponseShape::Object("/data".into()), &fields);
    for (status, expected) in [(409, "unknown"), (404, "unknown"), (422, "unknown"), (403, "unknown")] {
        let count = AtomicUsize::new(0);
        let server = ApiServer::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => ApiResponse::new(503, "").with_header("Retry-After", "0"),
            _ => ApiResponse::new(status, ""),
        });
        let source = local(&server.url(), "", LIST);
        assert_eq!(outcome(send(&source, &refund, NO_ARGUMENTS, Some(1))), expected, "{status}");
        assert_eq!(server.requests().len(), 2);
    }
}
