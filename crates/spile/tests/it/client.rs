//! The client commands: their output, their errors and their exit codes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{
    CommandOutput, HttpServer, SPILE, TEST_TIMEOUT, TestProject, scripted_server, spawn_line_reader,
};

/// Compares the output with its file in `snapshots/`.
#[track_caller]
fn check(name: &str, project: &TestProject, args: &[&str], code: i32) -> CommandOutput {
    let output = project.run(args);
    assert_eq!(output.code, Some(code), "{name}: {output}");
    insta::assert_snapshot!(name, output);
    output
}

#[test]
fn from_serves_a_file_in_this_process() {
    let project = TestProject::customers();
    for (name, args) in [
        ("tools", &["tools"][..]),
        ("tools_one", &["tools", "list_customers"]),
        ("tools_json", &["tools", "lookup_customer", "--json"]),
        ("call_record", &["call", "lookup_customer", "email=dana@acme.test"]),
        ("call_list", &["call", "list_customers", "plan=ruby", "fields=email", "fields=signup_date"]),
        ("call_by_json", &["call", "list_customers", "--args", r#"{"limit": 1, "sort": "-email"}"#]),
        ("call_json", &["call", "lookup_customer", "email=dana@acme.test", "--json"]),
        ("call_file", &["call", "get_customers", "email=dana@acme.test", "--from", "customers.csv"]),
        ("resources_none", &["resources"]),
        ("prompts_none", &["prompts"]),
    ] {
        let output = project.run(args);
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{name}: {output}");
        insta::assert_snapshot!(name, without_cursor(&output.to_string()));
    }
}

/// Cursors differ between runs.
fn without_cursor(text: &str) -> String {
    let lines =
        text.lines().map(|line| if line.starts_with("nextCursor ") { "nextCursor  <cursor>" } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_protocol_version_and_framing_works() {
    let project = TestProject::customers();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        for framing in ["lines", "headers"] {
            let output = project.run(&["ping", "--protocol", version, "--framing", framing]);
            assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
            assert!(output.stdout.contains(&format!(" · protocol {version} · ")), "{output}");
            let args = ["call", "lookup_customer", "email=dana@acme.test", "--protocol", version];
            let output = project.run(&args);
            assert!(
                output.stdout.contains("dana@acme.test") && output.stdout.contains("emerald"),
                "{output}"
            );
        }
    }
}

#[test]
fn url_connects_over_http_with_a_token() {
    let project = TestProject::customers();
    project.write("token", b"s3cret\n");
    let server =
        HttpServer::start(project.spile(&["serve", "--bind", "127.0.0.1:0"]).env("SPILE_TOKEN", "s3cret"));
    let url = format!("http://{}/mcp", server.address);
    for version in ["2024-11-05", "2025-11-25", "2026-07-28"] {
        let args = ["call", "lookup_customer", "email=dana@acme.test", "--url", &url, "--protocol", version];
        let output = project.run(&[&args[..], &["--token-file", "token"]].concat());
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
        assert!(output.stdout.contains("dana@acme.test") && output.stdout.contains("emerald"), "{output}");
        let output = project.run(&[&args[..], &["--header", "authorization: Bearer s3cret"]].concat());
        assert_eq!(output.code, Some(0), "{output}");
    }
    let shown = |output: CommandOutput| output.to_string().replace(&server.address.to_string(), "ADDRESS");
    let output = project.run(&["tools", "--url", &url]);
    assert_eq!(output.code, Some(5), "{output}");
    insta::assert_snapshot!("url_without_token", shown(output));
    let output = project.run(&["tools", "--url", &url, "--header", "Authorization: Bearer wrong"]);
    assert_eq!(output.code, Some(5), "{output}");
    insta::assert_snapshot!("url_with_a_wrong_token", shown(output));
}

#[test]
fn url_connects_over_every_transport() {
    let project = TestProject::customers();
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["localhost".into(), "127.0.0.1".into()];
    let certificate = rcgen::CertificateParams::new(names).expect("names").self_signed(&key);
    project.write("cert.pem", certificate.expect("a certificate").pem().as_bytes());
    project.write("key.pem", key.serialize_pem().as_bytes());
    let owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(project.folder.join("key.pem"), owner).expect("set permissions");
    let server =
        HttpServer::start(&mut project.spile(&["serve", "--bind", "127.0.0.1:0", "--socket", "s.sock"]));
    let tls = ["serve", "--bind", "127.0.0.1:0", "--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let secure = HttpServer::start(&mut project.spile(&tls));
    let (port, secure_port) = (server.address.port(), secure.address.port());
    let socket = project.folder.join("s.sock").display().to_string();
    let trusted = ["--cacert", "cert.pem"];
    for (url, more) in [
        (format!("http://127.0.0.1:{port}/mcp"), &[][..]),
        // The HTTP+SSE transport is detected.
        (format!("http://127.0.0.1:{port}/sse"), &[]),
        (format!("ws://127.0.0.1:{port}/mcp"), &[]),
        (format!("unix:{socket}"), &[]),
        (format!("http+unix://{}/mcp", socket.replace('/', "%2F")), &[]),
        (format!("https://127.0.0.1:{secure_port}/mcp"), &trusted),
        (format!("wss://localhost:{secure_port}/mcp"), &trusted),
    ] {
        let args = ["call", "lookup_customer", "email=dana@acme.test", "--url", &url];
        let output = project.run(&[&args[..], more].concat());
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
        assert!(output.stdout.contains("dana@acme.test") && output.stdout.contains("emerald"), "{output}");
    }
    let output = project.run(&["ping", "--url", &format!("https://127.0.0.1:{secure_port}/mcp")]);
    assert_eq!(output.code, Some(3), "{output}");
    assert!(output.stderr.contains("trust it or its issuer with --cacert FILE"), "{output}");
    let output = project.run(&["ping", "--url", &format!("https://127.0.0.1:{port}/mcp")]);
    assert_eq!(output.code, Some(3), "{output}");
    assert!(output.stderr.contains("the server does not use TLS"), "{output}");
    let output = project.run(&["ping", "--url", &format!("ws://127.0.0.1:{port}/nowhere")]);
    assert_eq!(output.code, Some(3), "{output}");
}

#[test]
fn command_starts_a_program() {
    let project = TestProject::customers();
    let command = format!("{SPILE} serve");
    check("command_tools", &project, &["tools", "--command", &command], 0);
    check(
        "command_call",
        &project,
        &["call", "lookup_customer", "email=dana@acme.test", "--command", &command],
        0,
    );
    // Its stderr is shown only with -v.
    let output = project.run(&["ping", "--command", &command, "-v"]);
    assert!(output.stderr.contains("stdin and stdout"), "{output}");
}

#[test]
fn a_program_that_exits_on_discover_is_restarted_with_initialize() {
    let project = scripted_server();
    let output = project.run(&["ping", "--command", "/bin/sh server.sh old"]);
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
    assert!(output.stdout.contains(" · protocol 2025-11-25 · "), "{output}");
}

#[test]
fn root_declares_the_roots_capability() {
    let project = scripted_server();
    let with = project.run(&["trace", "--root", ".", "--command", "/bin/sh server.sh", "ping"]);
    assert!(with.stdout.contains(r#""capabilities":{"roots":{},"#), "{with}");
    let without = project.run(&["trace", "--command", "/bin/sh server.sh", "ping"]);
    assert!(!without.stdout.contains("roots"), "{without}");
}

#[test]
fn json_arguments_are_read_from_stdin() {
    let project = TestProject::customers();
    let with = |input: &[u8]| {
        let mut command = project.spile(&["call", "lookup_customer", "--args", "-"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("spile starts");
        child.stdin.take().expect("a pipe").write_all(input).expect("spile reads stdin");
        let out = child.wait_with_output().expect("spile exits");
        (
            out.status.code(),
            String::from_utf8(out.stdout).expect("UTF-8"),
            String::from_utf8(out.stderr).expect("UTF-8"),
        )
    };
    let (code, stdout, _) = with(br#"{"email": "dana@acme.test"}"#);
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with("Found customer dana@acme.test"), "{stdout}");
    for (input, expected) in [
        (&b""[..], "--args: not valid JSON at byte 0"),
        (b"[]", "--args: the arguments must be a JSON object"),
        (b"\xff", "--args -: cannot read stdin"),
    ] {
        let (code, _, stderr) = with(input);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn invalid_command_lines_are_usage_errors() {
    let project = TestProject::customers();
    project.write("empty", b" \n");
    project.write("two", b"one\ntwo\n");
    for (name, args) in [
        ("unknown_tool", &["call", "lookup_custoner"][..]),
        ("unknown_tool_at_all", &["call", "zebra"]),
        ("unknown_tool_shown", &["tools", "list_customer"]),
        ("unknown_argument", &["call", "lookup_customer", "mail=x"]),
        ("missing_argument", &["call", "lookup_customer"]),
        ("missing_key", &["call", "lookup_customer", "dana@acme.test"]),
        ("misfit", &["call", "list_customers", "limit=ten"]),
        ("bad_json", &["call", "lookup_customer", "--args", "{email: 1}"]),
        ("json_misfit", &["call", "list_customers", "--args", r#"{"limit":"ten"}"#]),
        ("json_and_words", &["call", "lookup_customer", "--args", "{}", "email=x"]),
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
        let output = check(&format!("bad_{name}"), &project, args, 2);
        assert_eq!(output.stdout, "", "{output}");
    }
}

#[test]
fn a_tool_error_goes_to_stderr_and_exits_with_1() {
    let project = TestProject::customers();
    let output = project.run(&["call", "lookup_customer", "email=nobody@acme.test"]);
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output}");
    let at = output.stderr.find("ref ").expect("a reference");
    insta::assert_snapshot!("tool_fails", &output.stderr[..at]);
    // With JSON output, it is a result on stdout.
    let output = project.run(&["call", "lookup_customer", "email=nobody@acme.test", "--json"]);
    assert_eq!((output.code, &*output.stderr), (Some(1), ""), "{output}");
    assert!(output.stdout.contains(r#""isError":true"#), "{output}");
    // --unchecked sends the call without the required argument.
    let output = project.run(&["call", "lookup_customer", "--unchecked"]);
    assert_eq!(output.code, Some(1), "{output}");
    assert!(output.stderr.contains("Invalid arguments: `email` is required"), "{output}");
}

#[test]
fn unchecked_sends_calls_that_do_not_match_the_schema() {
    let project = TestProject::customers();
    for (args, expected) in [
        (&["list_customers", "limit=ten"][..], "`limit`"),
        (&["lookup_customer", "mail=dana@acme.test"], "`mail`"),
        (&["lookup_customer", "email=a", "email=b"], "`email`"),
        (&["lookup_customer", "--args", "[1]"], "arguments"),
        (&["no_such_tool"], "(-32602)"),
        (&["no_such_tool", "a=1"], "(-32602)"),
        (&["no_such_tool", "--args", r#"{"a":1}"#], "(-32602)"),
    ] {
        let output = project.run(&[&["call", "--unchecked"], args].concat());
        assert_eq!(output.code, Some(1), "{args:?}: {output}");
        assert!(output.stderr.contains(expected), "{args:?}: {output}");
    }
    let output = project.run(&["prompt", "greet", "name=x", "--unchecked"]);
    assert_eq!(output.code, Some(1), "the server answers: {output}");
}

#[test]
fn an_unreachable_server_is_an_error_with_help() {
    let project = TestProject::new(&[("notes.txt", b"x")]);
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
        let output = project.run(args);
        assert_eq!((output.code, &*output.stdout), (Some(3), ""), "{name}: {output}");
        let text = output.to_string();
        // PATH differs between machines.
        let path = text.find("PATH (").map(|at| at + 6..at + text[at..].find(')').expect("an end"));
        let text = path.map_or(text.clone(), |path| text.replace(&text[path], "…"));
        insta::assert_snapshot!(format!("unreachable_{name}"), text);
    }
}

/// The cause decides which help is printed, not the words of the message: here they are in the path.
#[test]
fn help_depends_on_the_cause_and_not_on_the_words_of_the_message() {
    let project = TestProject::new(&[("refused", b"x")]);
    let output = project.run(&["tools", "--url", "unix:refused/certificate-issuer-dns.sock"]);
    assert_eq!(output.code, Some(3), "{output}");
    assert!(output.stderr.contains("Not a directory") && !output.stderr.contains("help"), "{output}");
    for scheme in ["http", "ws"] {
        let url = format!("{scheme}://no-such-host.invalid:1/mcp");
        let output = project.run(&["tools", "--url", &url]);
        assert_eq!(output.code, Some(3), "{output}");
        assert!(output.stderr.contains("check the host name and the network connection"), "{output}");
    }
    let output = project.run(&["tools", "--url", "http+unix://gone.sock/mcp"]);
    assert!(output.stderr.contains("check that the server is running"), "{output}");
}

/// A tool that cannot be called over HTTP is missing from the list, so the warning is always printed, every time.
#[test]
fn every_skipped_tool_is_reported() {
    let tool = |name: &str| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{{"a":{{"type":"object","x-mcp-header":"A"}}}}}}}}"#
        )
    };
    let tools = format!(r#"{{"tools":[{},{},{}]}}"#, tool("one"), tool("two"), tool("three"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let tools = tools.clone();
            std::thread::spawn(move || answer_modern(stream, &tools));
        }
    });
    let output = TestProject::new(&[]).run(&["tools", "--url", &format!("http://{address}/mcp")]);
    assert_eq!(output.code, Some(0), "{output}");
    for name in ["one", "two", "three"] {
        assert!(output.stderr.contains(&format!("tool `{name}`")), "{output}");
    }
}

/// A server of 2026-07-28 with a tool list.
fn answer_modern(mut stream: TcpStream, tools: &str) {
    let mut received = String::new();
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        received.push_str(&String::from_utf8_lossy(&bytes[..read]));
        let Some((_, body)) = received.split_once("\r\n\r\n") else { continue };
        let Ok(message) = serde_json::from_str::<serde_json::Value>(body) else { continue };
        let result = match message["method"].as_str() {
            Some("tools/list") => tools,
            _ => r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#,
        };
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, message["id"]);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        if stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).is_err() {
            return;
        }
        received.clear();
    }
}

/// Sends the same response to every request, or none if it is empty.
fn start_canned_server(answer: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address");
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
fn a_server_that_does_not_speak_mcp_is_an_error() {
    let project = TestProject::new(&[]);
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
        let output = project.run(&["tools", "--url", &url, "--timeout", "1.5"]);
        assert_eq!((output.code, &*output.stdout), (Some(code), ""), "{name}: {output}");
        insta::assert_snapshot!(name, output.to_string().replace(&address.to_string(), "ADDRESS"));
    }
    let output = project.run(&["tools", "--command", "/bin/sleep 60", "--timeout", "0.5"]);
    assert_eq!(output.code, Some(4), "{output}");
    insta::assert_snapshot!("program_silence", output);
}

#[test]
fn tools_resources_prompts_and_results_are_printed() {
    let project = scripted_server();
    for (name, args) in [
        ("scripted_tools", &["tools"][..]),
        ("scripted_resources", &["resources"]),
        ("scripted_read", &["read", "note://one"]),
        ("scripted_read_bytes", &["read", "note://bytes"]),
        ("scripted_prompts", &["prompts"]),
        ("scripted_prompt", &["prompt", "greet", "name=Dana"]),
        ("scripted_complete", &["complete", "prompt", "greet", "name", "D"]),
        ("scripted_media", &["call", "media"]),
        ("scripted_table", &["call", "table", "--yes"]),
        ("scripted_big", &["call", "echo", "n=12345678901234567890123", "x=0.10"]),
        ("scripted_verbose", &["call", "chatty", "-v"]),
        ("scripted_quiet", &["call", "chatty"]),
    ] {
        check(name, &project, &[args, &["--command", "/bin/sh server.sh"]].concat(), 0);
    }
    let saved = ["read", "note://bytes", "--save", "out.bin", "--command", "/bin/sh server.sh"];
    check("scripted_save", &project, &saved, 0);
    assert_eq!(std::fs::read(project.folder.join("out.bin")).expect("the file was written"), b"\x00\xffpng");
}

#[test]
fn misbehaving_servers_are_handled() {
    let project = scripted_server();
    for (name, args, code) in [
        ("scripted_escapes", &["call", "escapes"][..], 0),
        ("scripted_escapes_json", &["call", "escapes", "--json"], 0),
        ("scripted_evil_name", &["tools", "evil"], 0),
        ("scripted_error", &["call", "error"], 1),
        ("scripted_failed", &["call", "failed"], 1),
        ("scripted_dies", &["call", "dies"], 3),
        ("scripted_hangs", &["call", "hangs", "--timeout", "0.3"], 4),
        ("scripted_unknown_resource", &["read", "note://gone"], 1),
        ("scripted_asks_nobody", &["call", "asks"], 0),
        ("scripted_noise", &["call", "noise", "-v"], 0),
        ("scripted_prompt_missing", &["prompt", "greet"], 2),
        ("scripted_nothing_to_save", &["call", "table", "--yes", "--save", "out.bin"], 1),
        ("scripted_only_newest", &["tools", "--protocol", "2026-07-28"], 3),
    ] {
        let output = check(name, &project, &[args, &["--command", "/bin/sh server.sh"]].concat(), code);
        for text in [&output.stdout, &output.stderr] {
            assert!(
                !text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}']) || name.ends_with("_json"),
                "{name}: {text:?}"
            );
        }
    }
}

#[test]
fn ctrl_c_cancels_the_call_and_notifies_the_server() {
    let project = scripted_server();
    let mut command = project.spile(&["call", "hangs", "--command", "/bin/sh server.sh"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spile starts");
    let log = project.folder.join("log");
    let has = |what: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(what));
    let start = Instant::now();
    while !has("\"hangs\"") {
        assert!(start.elapsed() < TEST_TIMEOUT, "the tool is not called");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("send a signal");
    let out = child.wait_with_output().expect("spile exits");
    assert_eq!(out.status.code(), Some(130));
    assert!(has("notifications/cancelled"), "the server is notified");
}

#[test]
fn a_second_ctrl_c_ends_at_once_and_says_so() {
    let project = scripted_server();
    let mut command = project.spile(&["call", "hangs", "--command", "/bin/sh server.sh stubborn"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spile starts");
    let stderr = spawn_line_reader(child.stderr.take().expect("a pipe"));
    let log = project.folder.join("log");
    let start = Instant::now();
    while !std::fs::read_to_string(&log).is_ok_and(|log| log.contains("\"hangs\"")) {
        assert!(start.elapsed() < TEST_TIMEOUT, "the tool is not called");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    let interrupt =
        || rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("send a signal");
    interrupt();
    let line = stderr.recv_timeout(TEST_TIMEOUT).expect("a hint while the server does not exit");
    assert_eq!(line, "interrupted; closing the connection (press Ctrl-C again to end at once)");
    interrupt();
    let line = stderr.recv_timeout(TEST_TIMEOUT).expect("a last message");
    assert_eq!(line, "interrupted twice; ended without closing the connection");
    assert_eq!(child.wait().expect("spile exits").code(), Some(130));
}

#[test]
fn a_closed_stdout_is_not_an_error() {
    let project = TestProject::customers();
    let mut command = project.spile(&["call", "list_customers"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spile starts");
    drop(child.stdout.take());
    let output = spawn_line_reader(child.stderr.take().expect("a pipe"));
    assert_eq!(child.wait().expect("spile exits").code(), Some(0));
    assert_eq!(output.iter().collect::<Vec<_>>(), [] as [&str; 0]);
}

#[test]
fn skipped_lines_are_reported_once_and_in_full_with_verbose() {
    let script = r#"while IFS= read -r line; do
        id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
        case "$line" in
        *server/discover*) echo one; echo two; echo three
          printf '{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}\n' "$id" ;;
        *tools/list*) printf '{"jsonrpc":"2.0","id":%s,"id":7}\n' "$id" ;;
        esac
    done"#;
    let project = TestProject::new(&[("server.sh", script.as_bytes())]);
    let server = ["--command", "/bin/sh server.sh"];
    let output = project.run(&[&["ping"], &server[..]].concat());
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.stderr.contains("`one`") && !output.stderr.contains("`two`"), "{output}");
    assert_eq!(output.stderr.matches("-v shows them all").count(), 1, "{output}");
    let output = project.run(&[&["ping", "-v"], &server[..]].concat());
    assert!(output.stderr.contains("`three`") && !output.stderr.contains("-v shows"), "{output}");
    // A response that cannot be read is not waited for.
    let output = project.run(&[&["tools", "--timeout", "600"], &server[..]].concat());
    assert_eq!(output.code, Some(3), "{output}");
    assert!(output.stderr.contains("the response is not readable: duplicate key"), "{output}");
}

#[test]
fn help_mentions_protocol_only_if_it_was_given() {
    let script = r#"read -r line
        printf '{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2031-01-01"],"capabilities":{}}}\n'
        read -r line"#;
    let project = TestProject::new(&[("server.sh", script.as_bytes())]);
    let output = project.run(&["ping", "--command", "/bin/sh server.sh"]);
    assert_eq!(output.code, Some(3), "{output}");
    assert!(
        output.stderr.contains("protocol version 2031-01-01, which this client does not allow"),
        "{output}"
    );
    assert!(
        output.stderr.contains("supported versions: 2024-11-05")
            || output.stderr.contains("supported versions: 2026-07-28"),
        "{output}"
    );
    assert!(!output.stderr.contains("--protocol"), "{output}");
}

#[test]
fn a_websocket_that_never_opens_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("ws://{}/mcp", listener.local_addr().expect("a bound address"));
    let output = TestProject::new(&[]).run(&["ping", "--url", &url, "--timeout", "0.3"]);
    assert_eq!(output.code, Some(4), "{output}");
    assert!(output.stderr.contains("no response within 0.3 s"), "{output}");
}

#[test]
fn filters_by_suffix_are_sent_as_the_schema_types_them() {
    let csv = "id,amount,paid_on,plan\n1,5.50,2026-01-05,ruby\n2,7.00,,free\n3,9.25,2026-02-11,ruby\n";
    let project = TestProject::new(&[("orders.csv", csv.as_bytes())]);
    for (arguments, ids) in [
        (&["amount_min=7", "sort=id"][..], "2\n3"),
        (&["paid_on_max=2026-01-31"], "1"),
        (&["paid_on_null=true"], "2"),
        (&["paid_on_null=false", "plan_starts=RU"], "1\n3"),
        (&["plan_not=ruby"], "2"),
        (&["--args", r#"{"amount_max":"5.50","plan_contains":"ub"}"#], "1"),
    ] {
        let args = [&["call", "list_orders", "--from", "orders.csv", "fields=id"], arguments].concat();
        let args = match arguments {
            ["--args", json] => vec!["call", "list_orders", "--from", "orders.csv", "--args", json],
            _ => args,
        };
        let output = project.run(&args);
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
        let column: Vec<&str> =
            output.stdout.lines().skip_while(|line| !line.starts_with("id")).skip(1).collect();
        let column: Vec<&str> =
            column.iter().take_while(|line| !line.is_empty()).map(|line| &line[..1]).collect();
        assert_eq!(column.join("\n"), ids, "{output}");
    }
    let output = project.run(&["call", "list_orders", "--from", "orders.csv", "amount_mim=7"]);
    assert_eq!(output.code, Some(2), "{output}");
    insta::assert_snapshot!("bad_suffix", output);
}

#[test]
fn filters_of_a_search_are_typed_as_in_the_list_that_its_description_names() {
    let csv = "id,name,zip,paid\n1,Ann Lee,02134,true\n2,Bob Lee,21234,false\n3,Kim Lee,21300,true\n";
    let project = TestProject::new(&[("people.csv", csv.as_bytes())]);
    for (filter, ids) in
        [("zip=21234", "2"), ("zip_starts=02", "1"), ("zip_starts=213", "3"), ("paid=true", "1\n3")]
    {
        let args =
            ["call", "search_people", "--from", "people.csv", "query=lee", "fields=id", filter, "--json"];
        let output = project.run(&args);
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
        let result: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
        let items = result["structuredContent"]["items"].as_array().expect("items").iter();
        let mut found: Vec<String> = items.map(|item| item["id"].to_string()).collect();
        found.sort();
        assert_eq!(found.join("\n"), ids, "{output}");
    }
}

#[test]
fn cursors_and_export_links_of_one_run_work_in_the_next() {
    let mut csv = String::from("id,name\n");
    (0..2000).for_each(|id| csv += &format!("{id},row {id}\n"));
    let project = TestProject::new(&[("big.csv", csv.as_bytes())]);
    let output = project.run(&["call", "list_big", "limit=2", "--from", "big.csv", "--json"]);
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
    let result: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    let cursor = result["structuredContent"]["nextCursor"].as_str().expect("a cursor");
    let cursor = format!("cursor={cursor}");
    let output = project.run(&["call", "list_big", "limit=2", &cursor, "--from", "big.csv"]);
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
    assert!(output.stdout.contains("row 2") && !output.stdout.contains("row 1\n"), "{output}");
    let links = result["content"].as_array().expect("content").iter();
    let uri = links.filter_map(|block| block["uri"].as_str()).next().expect("an export link");
    let output = project.run(&["read", uri, "--from", "big.csv", "--save", "all.csv"]);
    assert_eq!(output.code, Some(0), "{output}");
    let saved = std::fs::read_to_string(project.folder.join("all.csv")).expect("the file was written");
    assert_eq!(saved.lines().count(), 2001);

    // Without a place for keys, each run has its own, and the error says what that means.
    let run = |args: &[&str]| {
        let out = project.spile(args).env_remove("XDG_STATE_HOME").output().expect("the program starts");
        (String::from_utf8(out.stdout).expect("UTF-8"), String::from_utf8(out.stderr).expect("UTF-8"))
    };
    let (stdout, stderr) = run(&["call", "list_big", "limit=2", "--from", "big.csv", "--json"]);
    assert_eq!(stderr, "");
    let result: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let cursor = format!("cursor={}", result["structuredContent"]["nextCursor"].as_str().expect("a cursor"));
    let (_, stderr) = run(&["call", "list_big", "limit=2", &cursor, "--from", "big.csv"]);
    assert!(stderr.contains("another server issued it, or the key file was replaced"), "{stderr}");
}

#[test]
fn a_server_can_be_named_by_its_path_or_address_alone() {
    let project = TestProject::customers();
    for args in [
        &["tools", "customers.csv"][..],
        &["tools", "customers.csv", "get_customers"],
        &["tools", "get_customers", "customers.csv"],
        &["skills", "customers.csv"],
        &["ping", "customers.csv"],
        &["prompts", "./"],
        &["resources", "customers.csv"],
        &["call", "customers.csv", "get_customers", "email=dana@acme.test"],
        &["call", "get_customers", "email=dana@acme.test", "customers.csv"],
    ] {
        let output = project.run(args);
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
    }
    let server = HttpServer::start(&mut project.spile(&["serve", "--bind", "127.0.0.1:0"]));
    let url = format!("http://{}/mcp", server.address);
    let output = project.run(&["tools", &url]);
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
    for (args, expected) in [
        (
            &["ping", "nothing.csv"][..],
            "`nothing.csv` is not an address, and there is no such file or folder",
        ),
        (&["ping", "customers.csv", "--from", "."], "the server is named twice"),
        (&["tools", "customers.csv", "get_customers", "--from", "."], "the server is named twice"),
        (
            &["tools", "nothing.csv", "get_customers"],
            "`nothing.csv` is not an address, and there is no such file or folder",
        ),
        (&["call", "customers.csv", "email=x"], "name a tool of `customers.csv`"),
        (&["trace", "ping customers.csv"], "a step cannot name a server"),
    ] {
        let output = project.run(args);
        assert!(output.code == Some(2) && output.stderr.contains(expected), "{output}");
    }
}

/// Every call in the table of docs/filters-and-aggregates.md.
#[test]
fn the_documented_filters_and_aggregates_work() {
    let document = include_str!("../../../../docs/filters-and-aggregates.md");
    // Those about links need linked collections: the question set has them.
    let (document, _) = document.split_once("## Links").expect("links have a section");
    let mut csv = String::from("order_id,customer,status,region,total,ordered_on,paid_on\n");
    for id in 1..=12 {
        let (status, paid_on) = if id % 3 == 0 { ("open", "") } else { ("paid", "2026-03-01") };
        csv += &format!("{id},dana,{status},north,{id}.50,2026-{id:02}-01,{paid_on}\n");
    }
    let project = TestProject::new(&[("orders.csv", csv.as_bytes())]);
    let calls = document.lines().filter(|line| line.starts_with("| ") && line.contains("_orders "));
    let calls: Vec<&str> = calls.filter_map(|line| line.split('`').nth(1)).collect();
    assert!(calls.len() >= 6, "{calls:?}");
    for call in calls {
        let (words, json) =
            call.split_once(" '").map_or((call, None), |(words, json)| (words, json.strip_suffix('\'')));
        let words = words.split(' ').chain(json);
        let args: Vec<&str> = ["call", "orders.csv"].into_iter().chain(words).collect();
        let output = project.run(&args);
        assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{output}");
    }
    let open = project.run(&["call", "orders.csv", "list_orders", "paid_on_null=true", "--json"]);
    assert!(open.stdout.contains("\"total\":4"), "{open}");
}
