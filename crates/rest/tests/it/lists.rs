//! Lists: pages of every style, filters, limits, and APIs that do not keep their word.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use contract::bind::BoundValue;
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
}

#[test]
fn a_page_of_several_is_not_a_list() {
    let server = shop();
    let error = ids(&orders(&server, "", "")).expect_err("its `Link` header says that there are more");
    assert!(error.contains("one page of several, but the manifest declares no `page`"), "{error}");
    let last = r#"<http://localhost/v1/orders>; rel="first""#;
    let next = r#"</v1/orders?page=2>; rel="next""#;
    for (response, page, expected) in [
        (ApiResponse::json("[{\"id\":1}]").with_header("Link", last), "", Ok("1")),
        (
            ApiResponse::json("[{\"id\":1}]").with_header("Link", last).with_header("Link", next),
            "",
            Err("one page of several"),
        ),
        (ApiResponse::json("[{\"id\":1}]").with_header("Link", "</v1/orders>"), "", Ok("1")),
        (
            ApiResponse::json("[{\"id\":1}]").with_header("Link", "/v1/orders; rel=next"),
            "",
            Err("one page of several"),
        ),
        (ApiResponse::json("[{\"id\":1}]").with_header("Link", "</style.css"), "", Ok("1")),
        (ApiResponse { status: 206, ..ApiResponse::json("[{\"id\":1}]") }, "", Err("one page of several")),
        (ApiResponse { status: 202, ..ApiResponse::json("[]") }, "", Err("has not made the list yet")),
        (ApiResponse::new(204, ""), "", Ok("")),
        (ApiResponse::new(204, ""), "page = { style = \"page\" }", Ok("")),
        (
            ApiResponse::json("[{\"id\":1}]").with_header("Link", "<broken"),
            "page = { style = \"link\" }",
            Err("cannot be read"),
        ),
    ] {
        let server = ApiServer::start(move |_| response.clone());
        let source =
            local(&format!("{}/v1", server.url()), "", &format!("list = {{ path = \"/orders\", {page} }}"));
        match (ids(&source), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected),
            (Err(got), Err(expected)) => assert!(got.contains(expected), "{expected}: {got}"),
            (got, expected) => panic!("{got:?}, expected {expected:?}"),
        }
    }
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
            vec![r#"{"items":[{"id":1}],"more":true}"#, r#"{"items":[],"more":true}"#],
            r#"items = "/items", page = { style = "page", more = "/more" }"#,
            "says that there are more pages (`more`), but this page is empty",
        ),
        (
            vec![r#"{"items":[{"id":1}],"more":true}"#],
            r#"items = "/items", page = { style = "cursor", next = "/next", more = "/more" }"#,
            "(`more`), but gives no cursor",
        ),
        (
            vec![r#"{"items":[{"id":1}],"more":true}"#],
            r#"items = "/items", page = { style = "link", more = "/more" }"#,
            "(`more`), but gives no link",
        ),
        (
            vec![r#"{"items":[{"id":1}],"total":"3"}"#, r#"{"items":[],"total":"3"}"#],
            r#"items = "/items", page = { style = "page", total = "/total" }"#,
            "do not fit together: the API says that there are 3 records (`total`), but its pages have 1",
        ),
        (
            vec![r#"{"items":[{"id":1}],"total":3}"#],
            r#"items = "/items", page = { style = "cursor", next = "/next", total = "/total" }"#,
            "3 records (`total`), but its pages have 1",
        ),
        (
            vec![r#"{"items":[{"id":1}],"more":false,"total":2}"#],
            r#"items = "/items", page = { style = "page", more = "/more", total = "/total" }"#,
            "2 records (`total`), but its pages have 1",
        ),
        (
            vec![r#"{"items":[{"id":1}],"next":{"id":7}}"#],
            r#"items = "/items", page = { style = "cursor", next = "/next" }"#,
            "the next cursor is neither text nor a number",
        ),
        (
            vec![r#"{"items":[{"id":1}],"next":true}"#],
            r#"items = "/items", page = { style = "link", next = "/next" }"#,
            "the link to the next page is neither text nor a number",
        ),
        // It does not know the parameter, or repeats its last page for ever.
        (vec![full], r#"page = { style = "page" }"#, "the same page twice"),
        (vec![full], r#"page = { style = "offset" }"#, "the same page twice"),
        (
            vec![r#"[{"id":1},{"id":2}]"#, r#"[{"id":2},{"id":3}]"#, "[]"],
            r#"page = { style = "page" }"#,
            "do not fit together: two pages have the record with the `id` 2",
        ),
        (
            vec![r#"[{"id":1,"status":"open"}]"#, r#"[{"id":1,"status":"paid"}]"#, "[]"],
            r#"page = { style = "page" }"#,
            "two pages have different records with the same `id` 1",
        ),
        (vec!["<!doctype html><title>Log in</title>"], "", "returned HTML instead of JSON"),
        (vec!["<HTML>"], r#"format = "csv""#, "returned HTML instead of CSV"),
        (vec!["{\"id\":1}\n{\"id\":2}\n"], "", "returned JSON Lines"),
        (vec!["{\"id\":1}\n[2]\n"], r#"format = "jsonl""#, "not an object"),
        (vec![""], "", "returned nothing instead of JSON"),
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
}

/// Answers each request for a list with the next of these responses, and then with the last.
fn in_turn(answers: &[&str]) -> ApiServer {
    let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let next = AtomicUsize::new(0);
    ApiServer::start(move |_| {
        let at = next.fetch_add(1, Ordering::SeqCst);
        ApiResponse::json(answers[at.min(answers.len() - 1)].clone())
    })
}

#[test]
fn a_list_that_changes_while_it_is_read_is_read_again() {
    let page = "page = { style = \"page\" }";
    let total = "items = \"/items\", page = { style = \"page\", total = \"/total\" }";
    let cursor = "items = \"/items\", page = { style = \"cursor\", next = \"/next\" }";
    for (answers, list, expected) in [
        // Somebody added the record 0 after the first page.
        (
            &[
                "[{\"id\":1},{\"id\":2}]",
                "[{\"id\":2},{\"id\":3}]",
                "[{\"id\":0},{\"id\":1}]",
                "[{\"id\":2},{\"id\":3}]",
                "[]",
            ][..],
            page,
            Ok("0 1 2 3"),
        ),
        // Somebody removed the record 1, so that 3 is on no page that was read.
        (
            &[
                r#"{"items":[{"id":1},{"id":2}],"total":4}"#,
                r#"{"items":[{"id":4}],"total":3}"#,
                r#"{"items":[{"id":2},{"id":3}],"total":3}"#,
                r#"{"items":[{"id":4}],"total":3}"#,
            ],
            total,
            Ok("2 3 4"),
        ),
        // It never stops changing.
        (
            &[
                r#"{"items":[{"id":1}],"total":9}"#,
                r#"{"items":[{"id":2}],"total":8}"#,
                r#"{"items":[{"id":3}],"total":7}"#,
                r#"{"items":[{"id":4}],"total":6}"#,
                r#"{"items":[{"id":5}],"total":5}"#,
                r#"{"items":[{"id":6}],"total":4}"#,
            ],
            total,
            Err("the list changes while its pages are read: `total` was 5 and is 4; try again later"),
        ),
        // A cursor does not pass over records: what is on two pages is one record, also if a member that is no field differs.
        (
            &[
                r#"{"items":[{"id":1},{"id":2,"seen":1}],"next":"a"}"#,
                r#"{"items":[{"id":2,"seen":2},{"id":3}],"next":null}"#,
            ],
            cursor,
            Ok("1 2 3"),
        ),
        // At its end the API repeats the cursor that it was given.
        (
            &[
                r#"{"items":[{"id":1}],"next":"a"}"#,
                r#"{"items":[{"id":2}],"next":"b"}"#,
                r#"{"items":[],"next":"b"}"#,
            ],
            cursor,
            Ok("1 2"),
        ),
        (
            &[
                r#"{"items":[{"id":1}],"next":"a"}"#,
                r#"{"items":[{"id":2}],"next":"b"}"#,
                r#"{"items":[{"id":3}],"next":"a"}"#,
            ],
            cursor,
            Err("same page again"),
        ),
        // The last record is the first of the next page.
        (
            &["[{\"id\":1},{\"id\":2}]", "[{\"id\":2},{\"id\":3}]", "[{\"id\":3}]"],
            "page = { style = \"cursor\", last_item = \"/id\" }",
            Ok("1 2 3"),
        ),
    ] {
        let server = in_turn(answers);
        let source = local(&server.url(), "", &format!("list = {{ path = \"/orders\", {list} }}"));
        match (ids(&source), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{answers:?}"),
            (Err(got), Err(expected)) => assert!(got.contains(expected), "{answers:?}: {got}"),
            (got, expected) => panic!("{answers:?}: {got:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn records_without_a_key_are_all_different() {
    let server = in_turn(&["[{\"id\":1},{\"id\":1}]", "[{\"id\":1}]", "[]"]);
    let source = local(&server.url(), "", "list = { path = \"/orders\", page = { style = \"page\" } }");
    let reader = contract::source::Source::reader(&source, &kit::keyless_shape()).expect("a reader");
    let total = reader
        .list(&Query { rows_max: 10, ..Query::default() }, &mut |_, _| contract::source::RowFlow::Continue);
    assert_eq!(total.expect("a list"), Some(Total::Exact(3)));
}

#[test]
fn a_list_may_have_an_object_in_each_line() {
    let server =
        ApiServer::start(|_| ApiResponse::new(200, "\u{feff}{\"id\":2}\r\n\n{\"id\":1,\"total\":\"1.5\"}"));
    let source = local(&server.url(), "", "list = { path = \"/orders\", format = \"jsonl\" }");
    assert_eq!(ids(&source).as_deref(), Ok("1 2"));
    let limited =
        local(&server.url(), "read_rows_max = 1", "list = { path = \"/orders\", format = \"jsonl\" }");
    assert!(ids(&limited).expect_err("a limit").contains("1 rows (`read_rows_max`)"));
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
    // A key that a caller repeats is one record, and so is one that the API knows under two spellings.
    let repeated = [BoundValue::Integer(2), BoundValue::Integer(3)];
    let filter = Filter { more: &repeated, ..Filter::new(0, Comparison::Equals, ValueRef::Integer(3)) };
    let query = Query { filters: vec![filter], rows_max: 10, ..Query::default() };
    let (ids, total) = list(&source, &query).expect("a list");
    assert_eq!((ids.join(" "), total), ("2 3".to_owned(), Some(Total::Exact(2))));
    assert_eq!(server.take_requests().len(), 2);
    let reader = kit::reader(&source);
    let mut found = Vec::new();
    for id in [3, 99] {
        let is_there = reader.get(&[ValueRef::Integer(id)], &mut |row| found.push(kit::text(row[1])));
        found.push(is_there.expect("an answer").to_string());
    }
    assert_eq!(found, ["paid", "true", "false"]);
}

#[test]
fn progress_counts_requests_and_a_caller_who_has_gone_away_ends_the_reading() {
    let server = shop();
    let (progress, cancelled) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    let source = orders(&server, "", CURSOR);
    let query =
        Query { rows_max: 10, progress: Some(&progress), cancelled: Some(&cancelled), ..Query::default() };
    list(&source, &query).expect("a list");
    assert_eq!(progress.load(Ordering::Relaxed), 2, "two pages");
    // A server that never answers.
    let (stop, waiting) = (Arc::clone(&cancelled), Arc::new(AtomicBool::new(false)));
    let asked = Arc::clone(&waiting);
    let silent = ApiServer::start(move |_| {
        asked.store(true, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    });
    let source = local(&silent.url(), "", "list = { path = \"/orders\" }");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !waiting.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::SeqCst);
        });
        let query = Query { rows_max: 1, cancelled: Some(&cancelled), ..Query::default() };
        assert!(matches!(list(&source, &query), Err(SourceError::Cancelled)));
    });
}

#[test]
fn a_record_that_is_null_does_not_exist() {
    for (answer, expected) in [
        (r#"{"data":null}"#, Ok(false)),
        (r#"{"data":{"id":1}}"#, Ok(true)),
        (r#"{"error":"x"}"#, Err("no record where the manifest expects it")),
        (r#"{"data":[]}"#, Err("no record where the manifest expects it")),
        ("", Err("returned nothing instead of JSON")),
    ] {
        let server = ApiServer::start(move |_| ApiResponse::json(answer));
        let source = local(&server.url(), "", "get = { path = \"/orders/{id}\", item = \"/data\" }");
        let found = kit::reader(&source).get(&[ValueRef::Integer(1)], &mut |_| {});
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{answer}"),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{answer}: {error}"),
            (found, expected) => panic!("{answer}: {found:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn progress_of_a_fan_out_is_seen_while_requests_are_open() {
    let progress = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&progress);
    let server = ApiServer::start(move |request| {
        // Answered only after the caller has seen the others.
        while request.path == "/orders/3" && seen.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        ApiResponse::json(format!(r#"{{"id":{}}}"#, &request.path["/orders/".len()..]))
    });
    let source = local(&server.url(), "", "list = { path = \"/orders\" }\nget = { path = \"/orders/{id}\" }");
    let mut keys = KeySet::default();
    (1..=3).for_each(|id| keys.insert(DataType::Integer, ValueRef::Integer(id)));
    let query = Query {
        filters: vec![Filter::one_of(0, &keys)],
        rows_max: 10,
        progress: Some(&progress),
        ..Query::default()
    };
    assert_eq!(list(&source, &query).expect("a list").0, ["1", "2", "3"]);
    assert_eq!(progress.load(Ordering::SeqCst), 3);
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
