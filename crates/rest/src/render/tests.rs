use contract::request::{BodyFormat, BodyTemplate, Method, PathTemplate, RequestTemplate, TextPattern};
use contract::{DataType, ValueRef};
use proptest::prelude::*;
use url::Url;

use super::{Parameters, is_below, request};

fn base() -> Url {
    "https://api.example.com/v2".parse().expect("a URL")
}

fn template() -> RequestTemplate {
    let pattern = |text: &str| TextPattern::parse(text).expect(text);
    RequestTemplate {
        query: vec![("q".into(), pattern("{text}")), ("t".into(), pattern("{tags|csv}"))],
        headers: vec![("X-Reason".into(), pattern("because {reason}")), ("X-Plain".into(), pattern("1"))],
        body: Some(BodyTemplate::Object(vec![
            ("amount".into(), BodyTemplate::Value("amount".into())),
            ("note".into(), BodyTemplate::Text(pattern("n: {text}"))),
        ])),
        ..RequestTemplate::new(Method::Post, PathTemplate::parse("/orders/{id}/x{text}").expect("a path"))
    }
}

const NAMES: [(&str, DataType); 5] = [
    ("id", DataType::Text),
    ("text", DataType::Text),
    ("tags", DataType::Json),
    ("reason", DataType::Text),
    ("amount", DataType::Decimal),
];

fn render(template: &RequestTemplate, values: [ValueRef<'_>; 5]) -> Result<super::HttpRequest, String> {
    let names: Vec<(String, DataType)> =
        NAMES.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
    request(&base(), template, &Parameters { names: &names, values: &values }, None)
        .map_err(|error| format!("{}: {}", error.name.unwrap_or_default(), error.reason))
}

#[test]
fn values_are_encoded_for_their_places() {
    let values = [
        ValueRef::Text("a/b?c#d e%2f"),
        ValueRef::Text("&x=1"),
        ValueRef::Text(r#"["a","b c"]"#),
        ValueRef::Text("it is so"),
        ValueRef::Text("12.50"),
    ];
    let sent = render(&template(), values).expect("a request");
    assert_eq!(
        sent.url.as_str(),
        "https://api.example.com/v2/orders/a%2Fb%3Fc%23d%20e%252f/x%26x=1?q=%26x%3D1&t=a%2Cb+c"
    );
    assert_eq!(String::from_utf8_lossy(&sent.body), r#"{"amount":12.50,"note":"n: &x=1"}"#);
    let headers: Vec<(&str, &str)> =
        sent.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [("X-Reason", "because it is so"), ("X-Plain", "1"), ("Content-Type", "application/json")];
    assert_eq!(headers, expected);
}

#[test]
fn omitted_values_leave_their_places_out() {
    let text = ValueRef::Text("t");
    let sent =
        render(&template(), [text, text, ValueRef::Null, ValueRef::Null, ValueRef::Null]).expect("a request");
    assert_eq!(sent.url.query(), Some("q=t"));
    assert_eq!(sent.headers[0], ("X-Reason".to_owned(), String::new()));
    assert_eq!(String::from_utf8_lossy(&sent.body), r#"{"note":"n: t"}"#);
    let form = RequestTemplate { body_format: BodyFormat::Form, ..template() };
    let sent =
        render(&form, [text, ValueRef::Text("a b&"), ValueRef::Null, ValueRef::Null, ValueRef::Text("1")]);
    assert_eq!(String::from_utf8_lossy(&sent.expect("a request").body), "amount=1&note=n%3A+a+b%26");
}

#[test]
fn null_is_sent_where_the_author_allows_it() {
    let text = ValueRef::Text("t");
    let nullable = RequestTemplate { nullable: vec!["amount".into()], ..template() };
    let null = [text, text, ValueRef::Null, ValueRef::Null, ValueRef::Null];
    let sent = render(&nullable, null).expect("a request");
    assert_eq!(String::from_utf8_lossy(&sent.body), r#"{"amount":null,"note":"n: t"}"#);
    let given = [text, text, ValueRef::Null, ValueRef::Null, ValueRef::Text("1")];
    let sent = render(&nullable, given).expect("a request");
    assert_eq!(String::from_utf8_lossy(&sent.body), r#"{"amount":1,"note":"n: t"}"#);
}

#[test]
fn a_value_that_would_change_the_request_is_refused() {
    let text = ValueRef::Text("t");
    for (id, reason, tags) in [
        ("..", "t", "[]"),
        (".", "t", "[]"),
        ("", "t", "[]"),
        ("a/../b", "t", "[]"),
        ("..\\x", "t", "[]"),
        ("%2e%2e", "t", "[]"),
        ("%252e%252e%252f", "t", "[]"),
        ("a\r\nb", "t", "[]"),
        ("a", "t\r\nX-Evil: 1", "[]"),
        ("a", "t\nb", "[]"),
        ("a", "é", "[]"),
        ("a", "t", r#"["a,b"]"#),
        ("a", "t", r#"[{"a":1}]"#),
    ] {
        let values = [ValueRef::Text(id), text, ValueRef::Text(tags), ValueRef::Text(reason), ValueRef::Null];
        assert!(render(&template(), values).is_err(), "{id:?} {reason:?} {tags:?}");
    }
    let null = render(&template(), [ValueRef::Null, text, ValueRef::Null, text, ValueRef::Null]);
    assert!(null.is_err());
}

#[test]
fn only_urls_of_the_source_are_below_it() {
    for (url, expected) in [
        ("https://api.example.com/v2", true),
        ("https://api.example.com/v2/", true),
        ("https://api.example.com:443/v2/orders?page=2", true),
        ("https://api.example.com/v2/../v3", false),
        ("https://api.example.com/v22", false),
        ("https://api.example.com/", false),
        ("http://api.example.com/v2", false),
        ("https://api.example.com:8443/v2", false),
        ("https://api.example.com.evil.test/v2", false),
        ("https://evil@api.example.com/v2", false),
        ("https://evil.test/v2", false),
    ] {
        assert_eq!(is_below(&base(), &url.parse().expect("a URL")), expected, "{url}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[./\\\\%2eEfF?#&=:@ \r\n\t-]{0,12}",
        "(\\.\\.|%2e%2e|%252e|/|\\\\|@|//evil.test|\\?|#|\r\n|x){0,6}",
    ]
}

proptest! {
    /// Whatever the arguments are, the URL keeps its origin and prefix, and the number of headers is fixed.
    #[test]
    fn values_never_change_the_structure(
        id in any_text(), text in any_text(), tag in any_text(), reason in any_text(), amount in any_text(),
    ) {
        let mut tags = b"[".to_vec();
        json::write::string(&mut tags, &tag);
        tags.push(b']');
        let tags = String::from_utf8(tags).expect("JSON is text");
        let values = [
            ValueRef::Text(&id), ValueRef::Text(&text), ValueRef::Text(&tags), ValueRef::Text(&reason),
            ValueRef::Text(&amount),
        ];
        let Ok(sent) = render(&template(), values) else { return Ok(()) };
        prop_assert!(is_below(&base(), &sent.url));
        let segments: Vec<&str> = sent.url.path_segments().expect("a path").collect();
        prop_assert_eq!(segments.len(), 4, "{}", sent.url);
        prop_assert_eq!((segments[0], segments[1]), ("v2", "orders"));
        let pairs: Vec<String> = sent.url.query_pairs().map(|(name, _)| name.into_owned()).collect();
        prop_assert_eq!(pairs, vec!["q".to_owned(), "t".to_owned()]);
        prop_assert!(sent.url.fragment().is_none());
        prop_assert_eq!(sent.headers.len(), 3);
        for (_, value) in &sent.headers {
            prop_assert!(!value.contains(['\r', '\n', '\0']));
        }
        let body = json::Json::parse(std::str::from_utf8(&sent.body).expect("text")).expect("JSON");
        prop_assert_eq!(body.to_doc().root().members().count(), 2);
    }
}
