//! Unix sockets: `--socket`, the banner, cleanup, and the fallback where TCP is forbidden.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use crate::harness::{HttpServer, SPILE, TEST_TIMEOUT, TestProject};

const PEOPLE: (&str, &[u8]) = ("people.csv", b"id,name\n1,Ada\n2,Bea\n");
const ORDERS: (&str, &[u8]) = ("orders.csv", b"no,total\n7,9.50\n8,12.00\n");

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout can be set");
    stream
}

/// Head and body of the answer to a POST of the handshake era.
fn post(socket: &Path, path: &str, headers: &str) -> String {
    let mut stream = connect(socket);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
         {headers}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it accepts input");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is closed in time");
    answer
}

/// Sends one line on a plain pipe and returns the response.
fn ask(socket: &Path) -> String {
    let mut stream = connect(socket);
    stream.write_all(format!("{LIST}\n").as_bytes()).expect("it accepts input");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("it is text");
    line
}

/// Serves on the socket, stops, asserts that no file is left, and snapshots stderr.
#[track_caller]
fn check(name: &str, args: &[&str], env: &[(&str, &str)], tries: impl FnOnce(&Path)) {
    let place = TestProject::new(&[PEOPLE, ORDERS]);
    let before = place.files();
    let socket = place.folder.join("a.sock");
    let served = HttpServer::start_and_wait_for(place.spile(args).envs(env.iter().copied()), "unix:");
    assert_eq!(std::fs::metadata(&socket).expect("exists").mode() & 0o777, 0o600);
    tries(&socket);
    let port = served.port().map(|port| format!("127.0.0.1:{port}"));
    let (stdout, stderr, code) = served.stop();
    let stderr = port.map_or(stderr.clone(), |port| stderr.replace(&port, "127.0.0.1:PORT"));
    assert_eq!((code, &*stdout), (Some(0), ""), "{name}: stdout stays empty");
    assert_eq!(place.files(), before, "{name}: the files are as they were, and the socket is gone");
    insta::assert_snapshot!(name, place.normalize(stderr.as_bytes()));
}

#[test]
fn a_socket_accepts_http_and_plain_messages() {
    check("socket", &["serve", "people.csv", "--socket", "a.sock"], &[], |socket| {
        assert!(post(socket, "/mcp", "").contains("list_people"));
        assert!(ask(socket).contains("list_people"));
    });
    let both = &["serve", "people.csv", "--socket", "a.sock", "--bind", "127.0.0.1:0"];
    check("socket_and_http", both, &[], |socket| {
        assert!(post(socket, "/mcp", "").contains("list_people"));
    });
    let several = &["serve", "people.csv", "orders.csv", "--socket", "a.sock"];
    check("socket_several", several, &[], |socket| {
        assert!(post(socket, "/mcp/orders", "").contains("list_orders"));
        assert!(ask(socket).contains("/mcp/NAME"));
    });
    let token = [("SPILE_TOKEN", "s3cret")];
    check("socket_token", &["serve", "people.csv", "--socket", "a.sock"], &token, |socket| {
        assert!(post(socket, "/mcp", "").starts_with("HTTP/1.1 401 "));
        assert!(post(socket, "/mcp", "Authorization: Bearer s3cret\r\n").contains("list_people"));
        assert!(ask(socket).contains("bearer token"));
    });
}

#[test]
fn socket_paths_that_are_refused() {
    let place = TestProject::new(&[PEOPLE]);
    let _live = UnixListener::bind(place.folder.join("live.sock")).expect("a socket");
    place.write("file", b"precious");
    for (name, socket) in [
        ("socket_in_use", "live.sock"),
        ("socket_is_a_file", "file"),
        ("socket_is_a_folder", "."),
        ("socket_in_no_folder", "no/such/a.sock"),
        ("socket_path_too_long", &"long".repeat(40)),
    ] {
        let output = place.run(&["serve", "people.csv", "--socket", socket]);
        assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{name}: {output}");
        insta::assert_snapshot!(name, output);
    }
    assert_eq!(std::fs::read(place.folder.join("file")).expect("exists"), b"precious");
    assert!(UnixStream::connect(place.folder.join("live.sock")).is_ok(), "it lives");
}

/// A stale socket file of a killed server is replaced.
#[test]
fn a_stale_socket_is_replaced() {
    let place = TestProject::new(&[PEOPLE]);
    let args = ["serve", "people.csv", "--socket", "a.sock"];
    drop(HttpServer::start_and_wait_for(&mut place.spile(&args), "unix:"));
    let socket = place.folder.join("a.sock");
    assert!(socket.exists(), "it was killed");
    let _served = HttpServer::start_and_wait_for(&mut place.spile(&args), "unix:");
    assert!(ask(&socket).contains("list_people"));
}

/// The program without permission to listen on low ports; `None` where every process has it.
fn without_tcp(place: &TestProject, args: &[&str]) -> Option<Command> {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").ok()?;
    if first.trim().parse::<u16>().ok()? <= 1 {
        return None;
    }
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_bind_service", SPILE]);
        Command::new("setpriv").arg("--version").output().ok()?;
        command
    } else {
        Command::new(SPILE)
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    command
        .args(args)
        .current_dir(&place.folder)
        .env_clear()
        .env("XDG_STATE_HOME", crate::harness::state_folder())
        .env("PATH", path)
        .stdin(std::process::Stdio::null());
    Some(command)
}

#[test]
fn a_socket_replaces_tcp_where_tcp_is_forbidden() {
    let place = TestProject::new(&[PEOPLE]);
    let folder = place.folder.to_string_lossy().into_owned();
    let own = format!("spile-{}", rustix::process::geteuid().as_raw());
    for (name, args, env, socket) in [
        ("forbidden_named", &["--bind", "127.0.0.1:1"][..], ("SPILE_SOCKET", "b.sock"), "b.sock".to_owned()),
        ("forbidden_runtime", &["--bind", "1"], ("XDG_RUNTIME_DIR", &*folder), "spile-people.sock".into()),
        ("forbidden_temp", &["--http"], ("TMPDIR", &*folder), format!("{own}/spile-people.sock")),
        (
            "forbidden_beside",
            &["--bind", "1", "--socket", "c.sock"],
            ("SPILE_SOCKET", "b.sock"),
            "c.sock".into(),
        ),
    ] {
        let Some(mut command) = without_tcp(&place, &[&["serve", "people.csv"], args].concat()) else {
            return;
        };
        let served = HttpServer::start_and_wait_for(command.env("PORT", "1").env(env.0, env.1), "unix:");
        let socket = place.folder.join(socket);
        assert!(ask(&socket).contains("list_people"), "{name}");
        assert!(post(&socket, "/mcp", "").contains("list_people"), "{name}");
        let (stdout, stderr, code) = served.stop();
        assert_eq!((code, &*stdout), (Some(0), ""), "{name}");
        assert!(!socket.exists(), "{name}");
        let stderr = stderr.replace(&own, "spile-UID");
        insta::assert_snapshot!(name, place.normalize(stderr.as_bytes()));
    }
}

/// A folder with an `mcp.json` was written for another runtime, whose clients look for the socket where it puts it.
#[test]
fn the_socket_of_a_folder_with_an_mcp_json_is_where_its_clients_look() {
    let server_file: (&str, &[u8]) = ("mcp.json", br#"{"name":"demo","version":"1.0.0"}"#);
    let tool: (&str, &[u8]) = ("tools/greet.ts", b"export default () => 'hello';\n");
    let place = TestProject::new(&[server_file, tool]);
    let folder = place.folder.to_string_lossy().into_owned();
    for (env, socket) in [
        (&[("DZX_SOCKET", "own.sock")][..], "own.sock"),
        (&[("TMPDIR", &*folder)], "dzx-demo.sock"),
        (&[("TMPDIR", &*folder), ("XDG_RUNTIME_DIR", "/nonexistent")], "dzx-demo.sock"),
        (&[("DZX_SOCKET", "theirs.sock"), ("SPILE_SOCKET", "ours.sock")], "ours.sock"),
    ] {
        for args in [&["serve", ".", "--http"][..], &["dev", "."]] {
            let Some(mut command) = without_tcp(&place, args) else { return };
            command.env("PORT", "1").envs(env.iter().copied());
            let served = HttpServer::start_and_wait_for(&mut command, "unix:");
            let socket = place.folder.join(socket);
            let mode = std::fs::metadata(&socket).expect("exists").mode() & 0o777;
            assert_eq!(mode, 0o600, "{args:?} {env:?}");
            for path in ["/mcp/demo", "/mcp"] {
                let answer = post(&socket, path, "");
                assert!(answer.contains(r#""name":"greet""#), "{args:?} {env:?} {path}: {answer}");
            }
            assert!(ask(&socket).contains("greet"), "{args:?} {env:?}");
            let (_, stderr, code) = served.stop();
            let is_told = stderr.contains("using a unix socket instead");
            assert!(code == Some(0) && is_told, "{args:?} {env:?}: {stderr}");
            assert!(!socket.exists(), "{args:?} {env:?}");
        }
    }
}

/// Without an `mcp.json`, the variables of the other runtime mean nothing.
#[test]
fn a_folder_of_ours_ignores_the_variables_of_the_other_runtime() {
    let place = TestProject::new(&[("tools/greet.ts", b"export default () => 'hello';\n")]);
    let Some(mut command) = without_tcp(&place, &["serve", ".", "--http"]) else { return };
    command.env("PORT", "1").env("DZX_SOCKET", "theirs.sock").env("SPILE_SOCKET", "ours.sock");
    let served = HttpServer::start_and_wait_for(&mut command, "unix:");
    assert!(ask(&place.folder.join("ours.sock")).contains("greet"));
    assert!(!place.folder.join("theirs.sock").exists());
    served.stop();
    let Some(mut command) = without_tcp(&place, &["serve", ".", "--http"]) else { return };
    let folder = place.folder.to_string_lossy().into_owned();
    command.env("PORT", "1").env("DZX_SOCKET", "theirs.sock").env("XDG_RUNTIME_DIR", &folder);
    let served = HttpServer::start_and_wait_for(&mut command, "unix:");
    assert!(!place.folder.join("theirs.sock").exists());
    served.stop();
}

#[test]
fn a_socket_with_a_token_refuses_plain_messages_and_names_the_url() {
    let place = TestProject::new(&[PEOPLE]);
    place.write("token", b"s3cret");
    let mut command = place.spile(&["serve", "people.csv", "--socket", "a.sock"]);
    let served = HttpServer::start_and_wait_for(command.env("SPILE_TOKEN", "s3cret"), "unix:");
    let way_out = "--url http+unix://a.sock/mcp --token-file FILE";
    let output = place.run(&["ping", "--url", "unix:a.sock"]);
    assert_eq!(output.code, Some(5), "{output}");
    assert!(
        output.stderr.contains("a bearer token is required") && output.stderr.contains(way_out),
        "{output}"
    );
    let output = place.run(&["ping", "--url", "unix:a.sock", "--token-file", "token"]);
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains(way_out), "{output}");
    let path = place.folder.join("a.sock").display().to_string().replace('/', "%2F");
    let url = format!("http+unix://{path}/mcp");
    let output = place.run(&["ping", "--url", &url, "--token-file", "token"]);
    assert_eq!(output.code, Some(0), "{output}");
    served.stop();
}
