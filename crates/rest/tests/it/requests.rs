//! Requests of tools: what is sent, what comes back, and what a failure means.

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

fn shape(method: Method, path: &str, result: ResponseShape, columns: &[(&str, DataType)]) -> RequestShape {
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
fn send(
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

const LIST: &str = "list = { path = \"/orders\" }";

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

    for (status, is_known, repeated) in [(500, false, 1), (503, true, 1), (502, false, 1)] {
        let failing = ApiServer::start(move |_| ApiResponse::new(status, "").with_header("Retry-After", "0"));
        let source = local(&failing.url(), "", LIST);
        let error = send(&source, &refund, [ValueRef::Integer(1), ValueRef::Null, ValueRef::Null], None)
            .expect_err("a failure");
        match is_known {
            true => assert!(
                matches!(error, WriteError::Source(SourceError::Unavailable { .. })),
                "{status}: {error:?}"
            ),
            false => assert!(matches!(error, WriteError::OutcomeUnknown), "{status}: {error:?}"),
        }
        assert_eq!(failing.take_requests().len(), repeated, "{status}: without a key it is sent once");
        let _ = send(&source, &refund, [ValueRef::Integer(1), ValueRef::Null, ValueRef::Null], Some(1));
        let expected = if status == 500 { 1 } else { 3 };
        assert_eq!(failing.requests().len(), expected, "{status}: with a key it is sent again");
    }
}
