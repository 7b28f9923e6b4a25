//! Lists: pages of every style, filters, limits, and APIs that do not keep their word.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use contract::source::{Comparison, Filter, KeySet, Query, SourceError, Total};
use contract::{DataType, ValueRef};
use test_api::shop::{Shop, TOKEN};
use test_api::{ApiRequest, ApiResponse, ApiServer};

use crate::kit::{self, ids, list, local};

fn shop() -> ApiServer {
    let shop = Shop::default();
    ApiServer::start(move |request| shop.answer(request))
}

fn orders(server: &ApiServer, source: &str, list: &str) -> rest::RestSource {
    let auth = format!("auth = {{ bearer = \"{TOKEN}\" }}\n{source}");
    let collection = format!(
        "list = {{ path = \"/orders\", items = \"/data\", {list} }}\nget = {{ path = \"/orders/{{id}}\" }}"
    );
    local(&format!("{}/v1", server.url()), &auth, &collection)
}

const CURSOR: &str = "page = { style = \"cursor\", next = \"/meta/next_cursor\" }";

#[test]
fn every_style_of_pages_is_read_to_its_end() {
    let server = shop();
    for page in [
        CURSOR,
        "page = { style = \"cursor\", next = \"/meta/next_cursor\", more = \"/meta/has_more\" }",
        "page = { style = \"page\" }",
        "page = { style = \"page\", size = 3, size_parameter = \"per_page\" }",
        // The API returns at most four records, whatever is asked for.
        "page = { style = \"page\", size = 100, size_parameter = \"per_page\" }",
        "page = { style = \"page\", total = \"/meta/total\" }",
        "page = { style = \"offset\" }",
        "page = { style = \"offset\", more = \"/meta/has_more\", size = 2, size_parameter = \"per_page\" }",
        "page = { style = \"link\" }",
    ] {
        assert_eq!(ids(&orders(&server, "", page)).as_deref(), Ok("1 2 3 4 5 6 7"), "{page}");
    }
    assert_eq!(ids(&orders(&server, "", "")).as_deref(), Ok("1 2 3 4"), "without pages there is one");
}

/// Answers a list of orders with these pages.
fn pages(pages: &[&str]) -> ApiServer {
    let pages: Vec<String> = pages.iter().map(|page| (*page).to_owned()).collect();
    ApiServer::start(move |request: &ApiRequest| {
        let number: usize = request.parameter("page").and_then(|page| page.parse().ok()).unwrap_or(1);
        ApiResponse::json(pages[number.min(pages.len()) - 1].clone())
    })
}

#[test]
fn an_api_that_does_not_keep_its_word_is_an_error_and_never_a_wrong_answer() {
    let full = r#"[{"id":1}]"#;
    for (answers, page, expected) in [
        (vec!["{"], "", "not valid JSON"),
        (vec![r#"{"data":7}"#], "", "no array of records"),
        (vec!["[1]"], "", "not an object"),
        (vec![r#"[{"id":1,"id":2}]"#], "", "not valid JSON"),
        (vec![r#"[{"status":"open"}]"#], "", "has no `id`, which is a key"),
        (vec![r#"[{"id":1,"total":"much"}]"#], "", "column `total`: expected"),
        (
            vec![r#"{"items":[{"id":1}],"next":"a"}"#],
            r#"items = "/items", page = { style = "cursor", next = "/next" }"#,
            "same page again",
        ),
        (
            vec![full],
            r#"page = { style = "page", more = "/more" }"#,
            "does not say whether there are more pages",
        ),
        (vec![full], r#"page = { style = "page", total = "/total" }"#, "does not say how many records"),
        (
            vec![r#"{"items":[{"id":1}],"next":"https://evil.test/orders"}"#],
            r#"items = "/items", page = { style = "link", next = "/next" }"#,
            "leaves the URL of the source",
        ),
        (
            vec![r#"{"items":[{"id":1}],"next":"/v2/orders"}"#],
            r#"items = "/items", page = { style = "link", next = "/next" }"#,
            "leaves the URL of the source",
        ),
    ] {
        let server = pages(&answers);
        let source =
            local(&format!("{}/v1", server.url()), "", &format!("list = {{ path = \"/orders\", {page} }}"));
        let error = ids(&source).expect_err(expected);
        assert!(error.contains(expected), "{answers:?}: {error}");
    }
    // A list that never ends is cut by the number of pages, or of rows.
    let endless = ApiServer::start(|request| {
        let page = request.parameter("page").unwrap_or("1");
        ApiResponse::json(format!(r#"[{{"id":{page}}}]"#))
    });
    for (limit, expected) in
        [("pages_max = 5", "5 pages (`pages_max`)"), ("read_rows_max = 3", "3 rows (`read_rows_max`)")]
    {
        let source = local(
            &endless.url(),
            limit,
            "list = { path = \"/orders\", page = { style = \"page\" }, filters = { status = \"s\" } }",
        );
        let error = list(&source, &Query { rows_max: 1, ..Query::default() }).expect_err(limit);
        assert!(matches!(error, SourceError::TooMuchToRead { .. }), "{error:?}");
        assert!(error.to_string().contains(expected) && error.to_string().contains("`status`"), "{error}");
    }
    // A record that moved from one page to the next while it was read is one record.
    let shifted = pages(&[r#"[{"id":1},{"id":2}]"#, r#"[{"id":2},{"id":3}]"#, "[]"]);
    let source = local(&shifted.url(), "", "list = { path = \"/orders\", page = { style = \"page\" } }");
    assert_eq!(ids(&source).as_deref(), Ok("1 2 3"));
}

#[test]
fn filters_that_the_api_understands_narrow_the_request_and_are_checked_again() {
    let server = shop();
    let filters = "filters = { status = \"status\", total_min = \"ignored\" }";
    let source = orders(&server, "", &format!("{CURSOR}, {filters}"));
    server.take_requests();
    let open = Query {
        filters: vec![
            Filter::new(1, Comparison::Equals, ValueRef::Text("open")),
            Filter::new(2, Comparison::AtLeast, ValueRef::Text("6")),
        ],
        rows_max: 10,
        ..Query::default()
    };
    // The API ignores the second parameter; the answer does not.
    assert_eq!(list(&source, &open).expect("a list"), (vec!["7".to_owned()], Some(Total::Exact(1))));
    let queries: Vec<String> =
        server.requests().iter().map(|request| format!("{:?}", request.query)).collect();
    assert_eq!(queries, [r#"[("status", "open"), ("ignored", "6")]"#]);
    let unknown = local(&server.url(), "", "list = { path = \"/orders\", filters = { color = \"c\" } }");
    let error =
        contract::source::Source::reader(&unknown, &kit::shape()).map(drop).expect_err("an unknown field");
    assert!(error.to_string().contains("`color`"), "{error}");
}

#[test]
fn a_few_keys_are_read_one_by_one() {
    let server = shop();
    let source = orders(&server, "", CURSOR);
    server.take_requests();
    let mut keys = KeySet::default();
    for id in [7, 2, 99] {
        keys.insert(DataType::Integer, ValueRef::Integer(id));
    }
    let query = Query { filters: vec![Filter::one_of(0, &keys)], rows_max: 10, ..Query::default() };
    assert_eq!(list(&source, &query).expect("a list").0, ["2", "7"]);
    let mut paths: Vec<String> = server.take_requests().into_iter().map(|request| request.path).collect();
    paths.sort();
    assert_eq!(paths, ["/v1/orders/2", "/v1/orders/7", "/v1/orders/99"]);
    let reader = kit::reader(&source);
    let mut found = Vec::new();
    for id in [3, 99] {
        let is_there = reader.get(&[ValueRef::Integer(id)], &mut |row| found.push(kit::text(row[1])));
        found.push(is_there.expect("an answer").to_string());
    }
    assert_eq!(found, ["paid", "true", "false"]);
}

#[test]
fn progress_counts_rows_and_a_caller_who_has_gone_away_ends_the_reading() {
    let server = shop();
    let (progress, cancelled) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    let source = orders(&server, "", CURSOR);
    let query =
        Query { rows_max: 10, progress: Some(&progress), cancelled: Some(&cancelled), ..Query::default() };
    list(&source, &query).expect("a list");
    assert!(progress.load(std::sync::atomic::Ordering::Relaxed) >= 7);
    // A server that never answers.
    let (stop, waiting) = (Arc::clone(&cancelled), Arc::new(AtomicBool::new(false)));
    let asked = Arc::clone(&waiting);
    let silent = ApiServer::start(move |_| {
        asked.store(true, std::sync::atomic::Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    });
    let source = local(&silent.url(), "", "list = { path = \"/orders\" }");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !waiting.load(std::sync::atomic::Ordering::SeqCst) {
                std::thread::yield_now();
            }
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let query = Query { rows_max: 1, cancelled: Some(&cancelled), ..Query::default() };
        assert!(matches!(list(&source, &query), Err(SourceError::Cancelled)));
    });
}

#[test]
fn a_published_sheet_is_read_as_csv() {
    let server = ApiServer::start(|request| match request.path.as_str() {
        "/pub" => ApiResponse::new(302, "")
            .with_header("Location", format!("http://{}/file", request.header("host").unwrap_or_default())),
        _ => ApiResponse::new(200, "id,status,total\n2,open,1.50\n1,paid,\n")
            .with_header("Content-Type", "text/csv"),
    });
    let source = local(&server.url(), "", "list = { path = \"/pub\", format = \"csv\" }");
    assert_eq!(ids(&source).as_deref(), Ok("1 2"));
    let other = ApiServer::start({
        let target = format!("{}/file", server.url());
        move |_| ApiResponse::new(307, "").with_header("Location", target.clone())
    });
    let source = local(&other.url(), "redirects = \"any\"", "list = { path = \"/pub\", format = \"csv\" }");
    assert_eq!(ids(&source).as_deref(), Ok("1 2"));
    let source = local(&other.url(), "", "list = { path = \"/pub\", format = \"csv\" }");
    assert!(ids(&source).expect_err("another host").contains("redirects to an address outside"));
}
