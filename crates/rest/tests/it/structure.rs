//! Whatever callers pass and whatever an API returns, the requests that are sent have the structure of the manifest: origin, prefix,
//! parameters and headers.

use std::sync::atomic::{AtomicBool, Ordering};

use contract::request::{Method, ResponseShape, TextPattern};
use contract::{DataType, ValueRef};
use proptest::prelude::*;
use test_api::{ApiRequest, ApiResponse, ApiServer};

use crate::kit::{ids, local};
use crate::requests::{LIST, send, shape};

/// What every request of the source has.
const SOURCE: &str = "query = { key = \"k\" }\nheaders = { X-App = \"a\" }\nauth = { bearer = \"secret\" }";
const OWN_HEADERS: [&str; 6] = ["accept", "accept-encoding", "authorization", "host", "user-agent", "x-app"];

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[./\\\\%2eEfF?#&=:@ \r\n\t-]{0,12}",
        "(\\.\\.|%2e%2e|/|\\\\|@|//evil.test|http:|\\?|#|&after=1|\r\n|x){0,6}",
    ]
}

fn names(pairs: &[(String, String)]) -> Vec<&str> {
    let mut names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names
}

fn with(more: &[&'static str]) -> Vec<&'static str> {
    let mut all = [&OWN_HEADERS[..], more].concat();
    all.sort_unstable();
    all
}

/// An API whose first page names the next one, and whose other pages are empty.
fn pages(first: ApiResponse) -> ApiServer {
    let is_first = AtomicBool::new(true);
    ApiServer::start(move |_: &ApiRequest| match is_first.swap(false, Ordering::SeqCst) {
        true => first.clone(),
        false => ApiResponse::json(r#"{"rows":[]}"#),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_cursor_of_the_api_is_one_value_of_one_parameter(cursor in any_text()) {
        let mut text = Vec::new();
        json::write::string(&mut text, &cursor);
        let text = String::from_utf8(text).expect("JSON is text");
        let api = pages(ApiResponse::json(format!(r#"{{"rows":[{{"id":1}}],"next":{text}}}"#)));
        let list = "list = { path = \"/orders\", items = \"/rows\", page = { style = \"cursor\", next = \"/next\", parameter = \"after\" } }";
        // An error is fine, too.
        let _ = ids(&local(&format!("{}/v1", api.url()), SOURCE, list));
        for (at, request) in api.requests().iter().enumerate() {
            prop_assert_eq!(&request.path, "/v1/orders");
            prop_assert_eq!(names(&request.query), if at == 0 { vec!["key"] } else { vec!["after", "key"] });
            prop_assert_eq!(names(&request.headers), with(&[]));
            if at > 0 {
                prop_assert_eq!(request.parameter("after"), Some(cursor.as_str()));
            }
        }
    }

    #[test]
    fn a_link_of_the_api_stays_below_the_source(link in any_text(), is_absolute in any::<bool>()) {
        let link: String = link.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect();
        let other = ApiServer::start(|_| ApiResponse::json(r#"{"rows":[]}"#));
        let link = if is_absolute { format!("{}{link}", other.url()) } else { link };
        let first = ApiResponse::json(r#"{"rows":[{"id":1}]}"#).with_header("Link", format!("<{link}>; rel=\"next\""));
        let api = pages(first);
        let list = "list = { path = \"/orders\", items = \"/rows\", page = { style = \"link\" } }";
        let _ = ids(&local(&format!("{}/v1", api.url()), SOURCE, list));
        prop_assert!(other.requests().is_empty(), "{link}");
        for request in api.requests() {
            prop_assert!(request.path == "/v1" || request.path.starts_with("/v1/"), "{} {link}", request.path);
            prop_assert!(!request.path.split('/').any(|segment| segment == ".."), "{}", request.path);
            prop_assert_eq!(request.query.iter().filter(|(name, value)| name == "key" && value == "k").count(), 1);
            prop_assert_eq!(names(&request.headers), with(&[]));
        }
    }

    #[test]
    fn arguments_and_keys_of_callers_are_values(id in any::<i64>(), note in any_text(), key in any::<u8>()) {
        let api = ApiServer::start(|_| ApiResponse::json("{}"));
        let fields = [("refund", DataType::Integer)];
        let mut refund = shape(Method::Post, "/orders/{id}/n{note}", ResponseShape::Object(String::new()), &fields);
        let pattern = |text: &str| TextPattern::parse(text).expect("a pattern");
        refund.template.query = vec![("why".into(), pattern("{note}"))];
        refund.template.headers = vec![("X-Reason".into(), pattern("because {note}"))];
        let arguments = [ValueRef::Integer(id), ValueRef::Text("1.5"), ValueRef::Text(&note)];
        let source = local(&format!("{}/v1", api.url()), SOURCE, LIST);
        let _ = send(&source, &refund, arguments, Some(key));
        for request in api.requests() {
            let segments: Vec<&str> = request.path.split('/').collect();
            prop_assert_eq!((segments.len(), segments[1], segments[2]), (5, "v1", "orders"));
            prop_assert_eq!(names(&request.query), vec!["key", "why"]);
            let own = ["content-length", "content-type", "idempotency-key", "x-reason"];
            prop_assert_eq!(names(&request.headers), with(&own));
            prop_assert_eq!(request.parameter("why"), Some(note.as_str()));
        }
    }
}
