//! The client's commands as people meet them: what they read, what they are told, and how the shell hears of it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{
    CommandOutput, HttpServer, SPILE, TEST_TIMEOUT, TestProject, scripted_server, spawn_line_reader,
};

/// What is said is kept in `snapshots/`.
#[track_caller]
fn check(name: &str, place: &TestProject, args: &[&str], code: i32) -> CommandOutput {
    let said = place.run(args);
    assert_eq!(said.code, Some(code), "{name}: {said}");
    insta::assert_snapshot!(name, said);
    said
}

#[test]
fn a_file_is_asked_in_this_process() {
    let place = TestProject::customers();
    for (name, args) in [
        ("tools", &["tools"][..]),
        ("tools_one", &["tools", "list_customers"]),
        ("tools_json", &["tools", "lookup_customer", "--output", "json"]),
        ("call_record", &["call", "lookup_customer", "email=dana@acme.test"]),
        ("call_list", &["call", "list_customers", "plan=ruby", "fields=email", "fields=signup_date"]),
        ("call_by_json", &["call", "list_customers", "--json", r#"{"limit": 1, "sort": "-email"}"#]),
        ("call_json", &["call", "lookup_customer", "email=dana@acme.test", "--output", "json"]),
        ("call_file", &["call", "get_customers", "email=dana@acme.test", "--from", "customers.csv"]),
        ("resources_none", &["resources"]),
        ("prompts_none", &["prompts"]),
    ] {
        let said = place.run(args);
        assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{name}: {said}");
        insta::assert_snapshot!(name, without_cursor(&said.to_string()));
    }
}

/// Cursors are new each time.
fn without_cursor(text: &str) -> String {
    let lines =
        text.lines().map(|line| if line.starts_with("nextCursor ") { "nextCursor  <cursor>" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_version_answers_the_same() {
    let place = TestProject::customers();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        for framing in ["lines", "headers"] {
            let said = place.run(&["ping", "--protocol", version, "--framing", framing]);
            assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{said}");
            assert!(said.stdout.contains(&format!(" · protocol {version} · ")), "{said}");
            let args = ["call", "lookup_customer", "email=dana@acme.test", "--protocol", version];
            let said = place.run(&args);
            assert!(said.stdout.contains("dana@acme.test") && said.stdout.contains("emerald"), "{said}");
        }
    }
}

#[test]
fn a_server_at_an_address_is_asked() {
    let place = TestProject::customers();
    place.write("token", b"s3cret\n");
    let served =
        HttpServer::start(place.spile(&["serve", "--bind", "127.0.0.1:0"]).env("SPILE_TOKEN", "s3cret"));
    let url = format!("http://{}/mcp", served.address);
    for version in ["2024-11-05", "2025-11-25", "2026-07-28"] {
        let args = ["call", "lookup_customer", "email=dana@acme.test", "--url", &url, "--protocol", version];
        let said = place.run(&[&args[..], &["--token-file", "token"]].concat());
        assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{said}");
        assert!(said.stdout.contains("dana@acme.test") && said.stdout.contains("emerald"), "{said}");
        let said = place.run(&[&args[..], &["--header", "authorization: Bearer s3cret"]].concat());
        assert_eq!(said.code, Some(0), "{said}");
    }
    let shown = |said: CommandOutput| said.to_string().replace(&served.address.to_string(), "ADDRESS");
    let said = place.run(&["tools", "--url", &url]);
    assert_eq!(said.code, Some(5), "{said}");
    insta::assert_snapshot!("url_without_token", shown(said));
    let said = place.run(&["tools", "--url", &url, "--header", "Authorization: Bearer wrong"]);
    assert_eq!(said.code, Some(5), "{said}");
    insta::assert_snapshot!("url_with_a_wrong_token", shown(said));
}

#[test]
fn a_server_is_asked_at_every_door() {
    let place = TestProject::customers();
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["localhost".into(), "127.0.0.1".into()];
    let certificate = rcgen::CertificateParams::new(names).expect("names").self_signed(&key);
    place.write("cert.pem", certificate.expect("a certificate").pem().as_bytes());
    place.write("key.pem", key.serialize_pem().as_bytes());
    let owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(place.folder.join("key.pem"), owner).expect("it is ours");
    let served =
        HttpServer::start(&mut place.spile(&["serve", "--bind", "127.0.0.1:0", "--socket", "s.sock"]));
    let tls = ["serve", "--bind", "127.0.0.1:0", "--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let secure = HttpServer::start(&mut place.spile(&tls));
    let (port, secure_port) = (served.address.port(), secure.address.port());
    let socket = place.folder.join("s.sock").display().to_string();
    let trusted = ["--cacert", "cert.pem"];
    for (url, more) in [
        (format!("http://127.0.0.1:{port}/mcp"), &[][..]),
        // The address of the oldest kind is found out.
        (format!("http://127.0.0.1:{port}/sse"), &[]),
        (format!("ws://127.0.0.1:{port}/mcp"), &[]),
        (format!("unix:{socket}"), &[]),
        (format!("http+unix://{}/mcp", socket.replace('/', "%2F")), &[]),
        (format!("https://127.0.0.1:{secure_port}/mcp"), &trusted),
        (format!("wss://localhost:{secure_port}/mcp"), &trusted),
    ] {
        let args = ["call", "lookup_customer", "email=dana@acme.test", "--url", &url];
        let said = place.run(&[&args[..], more].concat());
        assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{said}");
        assert!(said.stdout.contains("dana@acme.test") && said.stdout.contains("emerald"), "{said}");
    }
    let said = place.run(&["ping", "--url", &format!("https://127.0.0.1:{secure_port}/mcp")]);
    assert_eq!(said.code, Some(3), "{said}");
    assert!(said.stderr.contains("trust it or its issuer with --cacert FILE"), "{said}");
    let said = place.run(&["ping", "--url", &format!("https://127.0.0.1:{port}/mcp")]);
    assert_eq!(said.code, Some(3), "{said}");
    assert!(said.stderr.contains("does not speak TLS"), "{said}");
    let said = place.run(&["ping", "--url", &format!("ws://127.0.0.1:{port}/nowhere")]);
    assert_eq!(said.code, Some(3), "{said}");
}

#[test]
fn a_program_is_started_and_asked() {
    let place = TestProject::customers();
    let command = format!("{SPILE} serve");
    check("command_tools", &place, &["tools", "--command", &command], 0);
    check(
        "command_call",
        &place,
        &["call", "lookup_customer", "email=dana@acme.test", "--command", &command],
        0,
    );
    // What it says on stderr is shown on request only.
    let said = place.run(&["ping", "--command", &command, "-v"]);
    assert!(said.stderr.contains("stdin and stdout"), "{said}");
}

#[test]
fn a_program_that_dies_of_the_first_question_is_greeted_the_old_way() {
    let place = scripted_server();
    let said = place.run(&["ping", "--command", "/bin/sh server.sh old"]);
    assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{said}");
    assert!(said.stdout.contains(" · protocol 2025-11-25 · "), "{said}");
}

#[test]
fn folders_are_told_when_they_are_given() {
    let place = scripted_server();
    let with = place.run(&["trace", "--root", ".", "--command", "/bin/sh server.sh", "ping"]);
    assert!(with.stdout.contains(r#""capabilities":{"roots":{},"#), "{with}");
    let without = place.run(&["trace", "--command", "/bin/sh server.sh", "ping"]);
    assert!(!without.stdout.contains("roots"), "{without}");
}

#[test]
fn json_is_read_from_stdin() {
    let place = TestProject::customers();
    let with = |input: &[u8]| {
        let mut command = place.spile(&["call", "lookup_customer", "--json", "-"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("a pipe").write_all(input).expect("it reads");
        let out = child.wait_with_output().expect("it ends");
        (
            out.status.code(),
            String::from_utf8(out.stdout).expect("text"),
            String::from_utf8(out.stderr).expect("text"),
        )
    };
    let (code, stdout, _) = with(br#"{"email": "dana@acme.test"}"#);
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with("Found customer dana@acme.test"), "{stdout}");
    for (input, expected) in [
        (&b""[..], "--json: not valid JSON at byte 0"),
        (b"[]", "--json: the arguments of a call are an object"),
        (b"\xff", "--json -: stdin cannot be read"),
    ] {
        let (code, _, stderr) = with(input);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn what_is_typed_is_judged_before_it_is_sent() {
    let place = TestProject::customers();
    place.write("empty", b" \n");
    place.write("two", b"one\ntwo\n");
    for (name, args) in [
        ("unknown_tool", &["call", "lookup_custoner"][..]),
        ("unknown_tool_at_all", &["call", "zebra"]),
        ("unknown_tool_shown", &["tools", "list_customer"]),
        ("path_for_a_tool", &["tools", "./customers.csv"]),
        ("path_behind_a_tool", &["call", "lookup_customer", "email=dana@acme.test", "customers.csv"]),
        ("address_for_a_tool", &["tools", "http://127.0.0.1:3333/mcp"]),
        ("unknown_argument", &["call", "lookup_customer", "mail=x"]),
        ("missing_argument", &["call", "lookup_customer"]),
        ("missing_key", &["call", "lookup_customer", "dana@acme.test"]),
        ("misfit", &["call", "list_customers", "limit=ten"]),
        ("not_chosen", &["call", "list_customers", "plan=rubi"]),
        ("bad_json", &["call", "lookup_customer", "--json", "{email: 1}"]),
        ("json_misfit", &["call", "list_customers", "--json", r#"{"limit":"ten"}"#]),
        ("json_and_words", &["call", "lookup_customer", "--json", "{}", "email=x"]),
        ("unknown_prompt", &["prompt", "greet"]),
        ("unknown_protocol", &["tools", "--protocol", "2023-01-01"]),
        ("bad_timeout", &["tools", "--timeout", "0"]),
        ("two_servers", &["tools", "--url", "http://127.0.0.1/", "--from", "."]),
        ("bad_url", &["tools", "--url", "localhost:3333/mcp"]),
        ("header_without_colon", &["tools", "--url", "http://127.0.0.1:1/", "--header", "secret"]),
        ("header_of_ours", &["tools", "--url", "http://127.0.0.1:1/", "--header", "Mcp-Name: x"]),
        ("header_for_a_pipe", &["tools", "--header", "X-Key: x"]),
        ("framing_for_http", &["tools", "--url", "http://127.0.0.1:1/", "--framing", "lines"]),
        ("token_file_missing", &["tools", "--url", "http://127.0.0.1:1/", "--token-file", "gone"]),
        ("token_file_empty", &["tools", "--url", "http://127.0.0.1:1/", "--token-file", "empty"]),
        ("token_file_of_two_lines", &["tools", "--url", "http://127.0.0.1:1/", "--token-file", "two"]),
        ("command_for_a_shell", &["tools", "--command", "a | b"]),
        ("command_empty", &["tools", "--command", " "]),
        ("root_missing", &["tools", "--root", "gone"]),
        ("ca_file", &["tools", "--url", "https://127.0.0.1:1/mcp", "--cacert", "customers.csv"]),
    ] {
        let said = check(&format!("bad_{name}"), &place, args, 2);
        assert_eq!(said.stdout, "", "{said}");
    }
}

#[test]
fn a_tool_that_fails_says_so_on_stderr() {
    let place = TestProject::customers();
    let said = place.run(&["call", "lookup_customer", "email=nobody@acme.test"]);
    assert_eq!((said.code, &*said.stdout), (Some(1), ""), "{said}");
    let at = said.stderr.find("ref ").expect("a reference");
    insta::assert_snapshot!("tool_fails", &said.stderr[..at]);
    // For scripts, it is an answer like any other.
    let said = place.run(&["call", "lookup_customer", "email=nobody@acme.test", "--output", "json"]);
    assert_eq!((said.code, &*said.stderr), (Some(1), ""), "{said}");
    assert!(said.stdout.contains(r#""isError":true"#), "{said}");
    // Whoever wants to see what the server says can have it.
    let said = place.run(&["call", "lookup_customer", "--unchecked"]);
    assert_eq!(said.code, Some(1), "{said}");
    assert!(said.stderr.contains("Invalid arguments: `email` is required"), "{said}");
}

#[test]
fn what_cannot_be_reached_or_started_is_told_with_a_way_out() {
    let place = TestProject::new(&[("notes.txt", b"x")]);
    for (name, args) in [
        ("nothing_here", &["tools"][..]),
        ("no_such_file", &["tools", "--from", "gone.csv"]),
        ("no_such_program", &["tools", "--command", "no-such-program"]),
        ("program_ends", &["tools", "--command", "/bin/sh -c 'echo out of tea >&2; exit 3'"]),
        ("program_ends_silently", &["tools", "--command", "/bin/sh -c 'exit 0'"]),
        ("nobody_listens", &["tools", "--url", "http://127.0.0.1:1/mcp"]),
        ("nobody_listens_to_websockets", &["tools", "--url", "ws://127.0.0.1:1/mcp"]),
        ("no_such_socket", &["tools", "--url", "unix:gone.sock"]),
    ] {
        let said = place.run(args);
        assert_eq!((said.code, &*said.stdout), (Some(3), ""), "{name}: {said}");
        let text = said.to_string();
        // Where programs are looked for is different everywhere.
        let path = text.find("PATH (").map(|at| at + 6..at + text[at..].find(')').expect("an end"));
        let text = path.map_or(text.clone(), |path| text.replace(&text[path], "…"));
        insta::assert_snapshot!(format!("unreachable_{name}"), text);
    }
}

/// Answers every request the same way, or not at all.
fn start_canned_server(answer: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer_once(stream, answer));
        }
    });
    address
}

fn answer_once(mut stream: TcpStream, answer: &str) {
    let mut request = [0; 4096];
    while stream.read(&mut request).is_ok_and(|read| read > 0) {
        if !answer.is_empty() && stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn what_answers_and_is_no_server_is_told() {
    let place = TestProject::new(&[]);
    for (name, path, answer, code) in [
        ("http_404_at_the_top", "/", "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", 3),
        ("http_404", "/mpc", "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnope", 3),
        ("http_403", "/mcp", "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", 5),
        ("http_503", "/mcp", "HTTP/1.1 503 Busy\r\ncontent-length: 3\r\n\r\n\x1b[2", 3),
        (
            "http_redirect",
            "/mcp",
            "HTTP/1.1 302 Found\r\nlocation: http://x/\r\ncontent-length: 0\r\n\r\n",
            3,
        ),
        (
            "http_page",
            "/mcp",
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>",
            3,
        ),
        ("http_nonsense", "/mcp", "SSH-2.0-OpenSSH_9.2\r\n", 3),
        ("http_silence", "/mcp", "", 4),
    ] {
        let address = start_canned_server(answer);
        let url = format!("http://{address}{path}");
        let said = place.run(&["tools", "--url", &url, "--timeout", "1.5"]);
        assert_eq!((said.code, &*said.stdout), (Some(code), ""), "{name}: {said}");
        insta::assert_snapshot!(name, said.to_string().replace(&address.to_string(), "ADDRESS"));
    }
    let said = place.run(&["tools", "--command", "/bin/sleep 60", "--timeout", "0.5"]);
    assert_eq!(said.code, Some(4), "{said}");
    insta::assert_snapshot!("program_silence", said);
}

#[test]
fn everything_a_server_can_have_is_shown() {
    let place = scripted_server();
    for (name, args) in [
        ("scripted_tools", &["tools"][..]),
        ("scripted_resources", &["resources"]),
        ("scripted_read", &["read", "note://one"]),
        ("scripted_read_bytes", &["read", "note://bytes"]),
        ("scripted_prompts", &["prompts"]),
        ("scripted_prompt", &["prompt", "greet", "name=Dana"]),
        ("scripted_complete", &["complete", "prompt", "greet", "name", "D"]),
        ("scripted_media", &["call", "media"]),
        ("scripted_table", &["call", "table"]),
        ("scripted_big", &["call", "echo", "n=12345678901234567890123", "x=0.10"]),
        ("scripted_verbose", &["call", "chatty", "-v"]),
        ("scripted_quiet", &["call", "chatty"]),
    ] {
        check(name, &place, &[args, &["--command", "/bin/sh server.sh"]].concat(), 0);
    }
    let saved = ["read", "note://bytes", "--save", "out.bin", "--command", "/bin/sh server.sh"];
    check("scripted_save", &place, &saved, 0);
    assert_eq!(std::fs::read(place.folder.join("out.bin")).expect("it was written"), b"\x00\xffpng");
}

#[test]
fn a_server_can_go_wrong_in_many_ways() {
    let place = scripted_server();
    for (name, args, code) in [
        ("scripted_escapes", &["call", "escapes"][..], 0),
        ("scripted_escapes_json", &["call", "escapes", "--output", "json"], 0),
        ("scripted_evil_name", &["tools", "evil"], 0),
        ("scripted_error", &["call", "error"], 1),
        ("scripted_failed", &["call", "failed"], 1),
        ("scripted_dies", &["call", "dies"], 3),
        ("scripted_hangs", &["call", "hangs", "--timeout", "0.3"], 4),
        ("scripted_unknown_resource", &["read", "note://gone"], 1),
        ("scripted_asks_nobody", &["call", "asks"], 0),
        ("scripted_noise", &["call", "noise", "-v"], 0),
        ("scripted_prompt_missing", &["prompt", "greet"], 2),
        ("scripted_nothing_to_save", &["call", "table", "--save", "out.bin"], 1),
        ("scripted_only_newest", &["tools", "--protocol", "2026-07-28"], 3),
    ] {
        let said = check(name, &place, &[args, &["--command", "/bin/sh server.sh"]].concat(), code);
        for text in [&said.stdout, &said.stderr] {
            assert!(
                !text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}']) || name.ends_with("_json"),
                "{name}: {text:?}"
            );
        }
    }
}

#[test]
fn ctrl_c_gives_up_the_call_and_tells_the_server() {
    let place = scripted_server();
    let mut command = place.spile(&["call", "hangs", "--command", "/bin/sh server.sh"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let log = place.folder.join("log");
    let has = |what: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(what));
    let start = Instant::now();
    while !has("\"hangs\"") {
        assert!(start.elapsed() < TEST_TIMEOUT, "it is called");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it can be signalled");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(130));
    assert!(has("notifications/cancelled"), "the server is told");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let place = TestProject::customers();
    let mut command = place.spile(&["call", "list_customers"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let said = spawn_line_reader(child.stderr.take().expect("a pipe"));
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(said.iter().collect::<Vec<_>>(), [] as [&str; 0]);
}

#[test]
fn what_is_skipped_is_told_once_and_all_of_it_when_asked_for() {
    let script = r#"while IFS= read -r line; do
        id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
        case "$line" in
        *server/discover*) echo one; echo two; echo three
          printf '{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}\n' "$id" ;;
        *tools/list*) printf '{"jsonrpc":"2.0","id":%s,"id":7}\n' "$id" ;;
        esac
    done"#;
    let place = TestProject::new(&[("server.sh", script.as_bytes())]);
    let server = ["--command", "/bin/sh server.sh"];
    let said = place.run(&[&["ping"], &server[..]].concat());
    assert_eq!(said.code, Some(0), "{said}");
    assert!(said.stderr.contains("`one`") && !said.stderr.contains("`two`"), "{said}");
    assert_eq!(said.stderr.matches("-v shows all of it").count(), 1, "{said}");
    let said = place.run(&[&["ping", "-v"], &server[..]].concat());
    assert!(said.stderr.contains("`three`") && !said.stderr.contains("-v shows"), "{said}");
    // An answer that cannot be read is the reason that none came.
    let said = place.run(&[&["tools", "--timeout", "0.5"], &server[..]].concat());
    assert_eq!(said.code, Some(4), "{said}");
    assert!(
        said.stderr.contains("no answer within 0.5 s; meanwhile the server sent what cannot be read: "),
        "{said}"
    );
}

#[test]
fn a_version_that_nobody_asked_for_is_not_to_be_left_out() {
    let script = r#"read -r line
        printf '{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2031-01-01"],"capabilities":{}}}\n'
        read -r line"#;
    let place = TestProject::new(&[("server.sh", script.as_bytes())]);
    let said = place.run(&["ping", "--command", "/bin/sh server.sh"]);
    assert_eq!(said.code, Some(3), "{said}");
    assert!(said.stderr.contains("protocol version 2031-01-01, which this client does not allow"), "{said}");
    assert!(
        said.stderr.contains("spoken here are 2024-11-05")
            || said.stderr.contains("spoken here are 2026-07-28"),
        "{said}"
    );
    assert!(!said.stderr.contains("--protocol"), "{said}");
}

#[test]
fn a_websocket_that_never_opens_is_no_answer_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("ws://{}/mcp", listener.local_addr().expect("it is bound"));
    let said = TestProject::new(&[]).run(&["ping", "--url", &url, "--timeout", "0.3"]);
    assert_eq!(said.code, Some(4), "{said}");
    assert!(said.stderr.contains("no answer within 0.3 s"), "{said}");
}
