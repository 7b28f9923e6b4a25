//! What an API cannot make Spile do: reach other hosts, leak credentials, wait or read without an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::source::SourceError;
use test_api::{ApiResponse, ApiServer};

use crate::kit::{ids, local, manifest, open};

const LIST: &str = "list = { path = \"/orders\" }";

#[test]
fn addresses_of_this_machine_and_its_network_are_refused_unless_allowed() {
    let server = ApiServer::start(|_| ApiResponse::json("[]"));
    let port = server.address().port();
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
    ] {
        let source = open(&manifest(&format!("http://{host}:{port}"), "", LIST));
        let error = match source {
            Ok(source) => ids(&source).expect_err(host),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("cannot be used") || error.contains("does not answer"), "{host}: {error}");
    }
    // The metadata service of a cloud is refused even then.
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "[fe80::1]"] {
        let source = open(&manifest(&format!("http://{host}"), "allow_private_addresses = true", LIST));
        assert!(source.is_err(), "{host}");
    }
    assert!(server.requests().is_empty(), "nothing was sent");
}

#[test]
fn credentials_go_to_the_host_of_the_source_only() {
    let other = ApiServer::start(|_| ApiResponse::json("[]"));
    let target = other.url();
    let server = ApiServer::start(move |_| ApiResponse::new(302, "").with_header("Location", target.clone()));
    for auth in [
        "auth = { bearer = \"secret\" }",
        "auth = { basic = { user = \"eve\", password = \"secret\" } }",
        "auth = { header = { name = \"X-Key\", value = \"secret\" } }",
        "headers = { X-Key = \"secret\" }",
        "query = { key = \"secret\" }",
    ] {
        let source = local(&server.url(), auth, LIST);
        let error = ids(&source).expect_err(auth);
        assert!(error.contains("redirects to an address outside") && !error.contains("secret"), "{error}");
        let request = server.take_requests().pop().expect("a request");
        let all = format!("{request:?}");
        assert!(all.contains("secret") || all.contains("ZXZlOnNlY3JldA=="), "{auth}: {all}");
    }
    assert!(other.requests().is_empty(), "nothing reached the other host");
    // A redirect below the URL of the source is followed.
    let server = ApiServer::start(|request| match request.path.as_str() {
        "/v1/orders" => ApiResponse::new(301, "").with_header("Location", "/v1/orders/all"),
        "/v1/orders/all" => ApiResponse::json(r#"[{"id":1}]"#),
        _ => ApiResponse::new(500, ""),
    });
    let source = local(&format!("{}/v1", server.url()), "auth = { bearer = \"secret\" }", LIST);
    assert_eq!(ids(&source).as_deref(), Ok("1"));
}

#[test]
fn a_response_is_bounded_in_bytes_and_time() {
    let large = ApiServer::start(|_| ApiResponse::json(format!("[{}]", " ".repeat(5000))));
    let error = ids(&local(&large.url(), "response_bytes_max = 2000", LIST)).expect_err("too large");
    assert!(error.contains("exceeds the limit of 2000 bytes"), "{error}");
    let silent = ApiServer::start(|_| {
        loop {
            std::thread::park();
        }
    });
    let error = ids(&local(&silent.url(), "timeout_ms = 30", LIST)).expect_err("no answer");
    assert!(error.contains("does not answer"), "{error}");
    // Compressed, it is small.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut gzip, format!("[{}]", " ".repeat(50_000)).as_bytes()).expect("memory");
    let gzip = gzip.finish().expect("memory");
    let compressed = ApiServer::start(move |request| {
        assert_eq!(request.header("accept-encoding"), Some("gzip"));
        ApiResponse::json(gzip.clone()).with_header("Content-Encoding", "gzip")
    });
    let error = ids(&local(&compressed.url(), "response_bytes_max = 2000", LIST)).expect_err("too large");
    assert!(error.contains("exceeds the limit of 2000 bytes"), "{error}");
    assert_eq!(ids(&local(&compressed.url(), "", LIST)).as_deref(), Ok(""));
    let short = ApiServer::start(|_| ApiResponse { cut_at: Some(5), ..ApiResponse::json(r#"[{"id":1}]"#) });
    let error = ids(&local(&short.url(), "", LIST)).expect_err("cut");
    assert!(error.contains("does not answer"), "{error}");
}

/// Answers with these statuses, one after the other, then with a list.
fn failing(statuses: &'static [u16], headers: &'static [(&'static str, &'static str)]) -> ApiServer {
    let count = Arc::new(AtomicUsize::new(0));
    ApiServer::start(move |_| match statuses.get(count.fetch_add(1, Ordering::SeqCst)) {
        Some(status) => {
            headers.iter().fold(ApiResponse::new(*status, "secret detail"), |response, (name, value)| {
                response.with_header(name, *value)
            })
        }
        None => ApiResponse::json(r#"[{"id":1}]"#),
    })
}

#[test]
fn a_reading_request_is_repeated_where_that_helps() {
    for (statuses, headers, expected, requests) in [
        (&[503][..], &[("Retry-After", "0")][..], Ok("1"), 2),
        (&[429, 502], &[("Retry-After", "0")], Ok("1"), 3),
        (&[503, 503, 503], &[("Retry-After", "0")], Err("the API failed (status 503)"), 3),
        // A pause that is too long is the caller's to wait for.
        (&[429], &[("Retry-After", "3600")], Err("too many calls use this source now"), 1),
        (&[500], &[], Err("the API failed (status 500)"), 1),
        (&[404], &[], Err("has no such endpoint"), 1),
        (&[403], &[], Err("does not allow this (status 403)"), 1),
        (&[400], &[], Err("refused the request (status 400)"), 1),
    ] {
        let server = failing(statuses, headers);
        let got = ids(&local(&server.url(), "", LIST));
        match (got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{statuses:?}"),
            (Err(got), Err(expected)) => {
                assert!(got.contains(expected) && !got.contains("secret"), "{statuses:?}: {got}")
            }
            (got, expected) => panic!("{statuses:?}: {got:?}, expected {expected:?}"),
        }
        assert_eq!(server.requests().len(), requests, "{statuses:?}");
    }
}

#[test]
fn an_api_that_is_down_is_left_alone_and_heals_by_itself() {
    let address = {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        gone.local_addr().expect("an address")
    };
    let source = local(&format!("http://{address}"), "", LIST);
    for _ in 0..3 {
        let error =
            crate::kit::list(&source, &contract::source::Query::default()).expect_err("nobody listens");
        assert!(matches!(error, SourceError::Unavailable { .. }), "{error:?}");
    }
    let diagnosis = contract::source::Source::diagnose(&source, None).expect("a diagnosis");
    assert!(diagnosis.message.contains("does not answer"), "{}", diagnosis.message);
    let server =
        ApiServer::start_at(&address.to_string(), |_| ApiResponse::json(r#"[{"id":1}]"#)).expect("the port");
    while ids(&source).is_err() {
        std::thread::yield_now();
    }
    assert!(contract::source::Source::diagnose(&source, None).is_none());
    drop(server);
}

#[test]
fn an_endpoint_that_fails_does_not_stop_the_others() {
    let server = ApiServer::start(|request| match request.path.as_str() {
        "/orders" => ApiResponse::json(r#"[{"id":1}]"#),
        _ => ApiResponse::new(500, ""),
    });
    let source = local(
        &server.url(),
        "",
        "operations = [\"get\", \"list\"]\nlist = { path = \"/orders\" }\nget = { path = \"/orders/{id}\" }",
    );
    let reader = crate::kit::reader(&source);
    let get = |id| match reader.get(&[contract::ValueRef::Integer(id)], &mut |_| {}) {
        Err(SourceError::Unavailable { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    for id in 0..5 {
        assert_eq!(get(id), "the API failed (status 500); try again later", "{id}");
    }
    assert_eq!(get(5), "this part of the API fails again and again; try again later");
    assert_eq!(server.take_requests().len(), 5, "it is left alone, whatever the key is");
    for _ in 0..6 {
        assert_eq!(ids(&source).as_deref(), Ok("1"));
    }
    let diagnosis = contract::source::Source::diagnose(&source, None).expect("it still fails");
    assert_eq!(diagnosis.message, "an endpoint of the API fails: `GET /orders/{id}` answers with status 500");
}

#[test]
fn a_token_is_fetched_once_and_again_when_it_is_refused() {
    let (tokens, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (issued, rejections) = (Arc::clone(&tokens), Arc::clone(&refused));
    let server = ApiServer::start(move |request| {
        if request.path == "/token" {
            assert_eq!(request.header("authorization"), Some("Basic bWU6cyUzQWM="), "me:s%3Ac");
            assert_eq!(String::from_utf8_lossy(&request.body), "grant_type=client_credentials&scope=read");
            let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
            return ApiResponse::json(format!(r#"{{"access_token":"t{number}","expires_in":3600}}"#));
        }
        match request.header("authorization") {
            Some("Bearer t1") if rejections.load(Ordering::SeqCst) == 0 => ApiResponse::json(r#"[{"id":1}]"#),
            Some("Bearer t2") => ApiResponse::json(r#"[{"id":2}]"#),
            _ => ApiResponse::new(401, ""),
        }
    });
    let auth = format!(
        "auth.client_credentials = {{ token_url = \"{}/token\", client_id = \"me\", client_secret = \"s:c\", scope = \"read\" }}",
        server.url()
    );
    let source = local(&server.url(), &auth, LIST);
    if let Err(error) = ids(&source) {
        panic!("{error}");
    }
    assert_eq!((ids(&source).as_deref(), tokens.load(Ordering::SeqCst)), (Ok("1"), 1));
    refused.store(1, Ordering::SeqCst);
    assert_eq!((ids(&source).as_deref(), tokens.load(Ordering::SeqCst)), (Ok("2"), 2));
}
