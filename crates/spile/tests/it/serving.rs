//! Where `serve` listens, its banner, and when it refuses to start.

use crate::harness::{HttpServer, TestProject};

const PEOPLE: (&str, &[u8]) = ("people.csv", b"id,name\n1,Ada\n2,Bea\n");
const ORDERS: (&str, &[u8]) = ("orders.csv", b"no,total\n7,9.50\n8,12.00\n");
const OTHERS: (&str, &[u8]) = ("old/people.csv", b"id,name\n1,Cem\n");

type Env = [(&'static str, &'static str)];

/// Starts it on a free port, stops it, and snapshots stderr.
#[track_caller]
fn check(name: &str, args: &[&str], env: &Env) {
    let place = TestProject::new(&[PEOPLE, ORDERS, OTHERS]);
    let before = place.files();
    let served = HttpServer::start(place.spile(args).envs(env.iter().copied()));
    let port = format!(":{}", served.address.port());
    let (stdout, stderr, code) = served.stop();
    assert_eq!((code, &*stdout), (Some(0), ""), "{name}: stdout stays empty");
    assert_eq!(place.files(), before, "{name}: the files are as they were");
    insta::assert_snapshot!(name, place.normalize(stderr.replace(&port, ":PORT").as_bytes()));
}

/// Asserts that it refuses to start, and snapshots the output.
#[track_caller]
fn check_refused(name: &str, args: &[&str], env: &Env) {
    let output = TestProject::new(&[PEOPLE, ORDERS, OTHERS]).run_with(args, env);
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{name}: {output}");
    insta::assert_snapshot!(name, output);
}

#[test]
fn the_banner_over_http() {
    check("http_bind", &["serve", "people.csv", "--bind", "127.0.0.1:0"], &[]);
    check(
        "http_by_environment",
        &["serve", "people.csv", "--http"],
        &[("PORT", "0"), ("SPILE_HOST", "127.0.0.1")],
    );
    check("http_by_name", &["serve", "people.csv", "--http"], &[("PORT", "0"), ("SPILE_HOST", "localhost")]);
    check("http_bind_and_http", &["serve", "people.csv", "--http", "--bind", ":0"], &[]);
    check("http_folder", &["serve", "--bind", "0"], &[]);
    check("http_several", &["serve", "people.csv", "orders.csv", "--bind", "localhost:0"], &[]);
    check("http_open", &["serve", "people.csv", "--bind", "0.0.0.0:0", "--no-auth"], &[]);
    check("http_open_token", &["serve", "people.csv", "--bind", "0.0.0.0:0"], &[("SPILE_TOKEN", "s3cret")]);
    check("http_token", &["serve", "people.csv", "--bind", "127.0.0.1:0"], &[("SPILE_TOKEN", "s3cret")]);
}

#[test]
fn addresses_that_are_refused_over_http() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let output = TestProject::new(&[PEOPLE]).run(&["serve", "people.csv", "--bind", &address.to_string()]);
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output}");
    let port = format!(":{}", address.port());
    insta::assert_snapshot!("http_port_in_use", output.to_string().replace(&port, ":PORT"));

    check_refused("http_open_without_a_token", &["serve", "people.csv", "--bind", "0.0.0.0:0"], &[]);
    check_refused("http_two_of_one_name", &["serve", "people.csv", "old/people.csv", "--bind", "0"], &[]);
    check_refused("http_one_is_missing", &["serve", "people.csv", "gone.csv", "--bind", "0"], &[]);
    let by_environment = &["serve", "people.csv", "--http"];
    check_refused("http_port_is_no_number", by_environment, &[("PORT", "http")]);
    check_refused("http_port_is_too_large", by_environment, &[("PORT", "65536")]);
    check_refused("http_port_is_empty", by_environment, &[("PORT", "")]);
    check_refused("http_host_is_nowhere", by_environment, &[("PORT", "0"), ("SPILE_HOST", "no such host")]);
    check_refused("http_host_has_a_port", by_environment, &[("PORT", "0"), ("SPILE_HOST", "127.0.0.1:80")]);
}

/// The name of a file may have characters that URLs and clients do not allow.
#[test]
fn a_name_with_blanks_and_umlauts_has_a_percent_encoded_path() {
    let umlauts = ("meine k\u{fc}che.csv", PEOPLE.1);
    let place = TestProject::new(&[umlauts, ORDERS]);
    let served = HttpServer::start(&mut place.spile(&["serve", umlauts.0, "orders.csv", "--bind", "0"]));
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let (_, body) = served.post("/mcp/meine%20k%C3%BCche", "", list);
    assert!(body.contains("list_meine_kueche"), "{body}");
    let (head, _) = served.post("/mcp/meine%20kueche", "", list);
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let port = format!(":{}", served.address.port());
    let (_, stderr, _) = served.stop();
    insta::assert_snapshot!(
        "http_names_with_umlauts",
        place.normalize(stderr.replace(&port, ":PORT").as_bytes())
    );
}

#[test]
fn several_servers_have_a_path_each() {
    let place = TestProject::new(&[PEOPLE, ORDERS]);
    let served = HttpServer::start(&mut place.spile(&["serve", "people.csv", "orders.csv", "--bind", "0"]));
    for (path, then) in [
        ("/mcp/people", Ok("list_people")),
        ("/mcp/orders", Ok("list_orders")),
        ("/mcp", Err("HTTP/1.1 404 ")),
        ("/mcp/others", Err("HTTP/1.1 404 ")),
        ("/mcp/people/", Err("HTTP/1.1 404 ")),
    ] {
        let (head, body) = served.post(path, "", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        match then {
            Ok(tool) => {
                assert!(body.contains(tool) && head.starts_with("HTTP/1.1 200 "), "{path}: {head}\n{body}")
            }
            Err(status) => assert!(head.starts_with(status), "{path}: {head}\n{body}"),
        }
    }
}

#[test]
fn the_banner_over_stdio() {
    let place = TestProject::new(&[PEOPLE, ORDERS]);
    for (name, args, env) in [
        ("stdio", &["serve", "people.csv"][..], &[][..]),
        // These variables matter only with `--http`.
        (
            "stdio_ignores_the_port",
            &["serve", "people.csv"],
            &[("PORT", "http"), ("SPILE_HOST", "no such host")],
        ),
        ("stdio_verbose", &["serve", "people.csv", "-v", "--log-format", "json"], &[]),
        ("stdio_folder", &["serve"], &[]),
    ] {
        let output = place.run_with(args, env);
        assert_eq!((output.code, &*output.stdout), (Some(0), ""), "{name}: {output}");
        insta::assert_snapshot!(name, output);
    }
}

#[test]
fn options_that_are_refused_over_stdio() {
    check_refused("stdio_several", &["serve", "people.csv", "orders.csv"], &[]);
    check_refused("stdio_with_a_token_file", &["serve", "people.csv", "--token-file", "token"], &[]);
}
