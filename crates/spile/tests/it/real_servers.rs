//! Servers that people use, from npm and PyPI: configured, listed, called, killed, healed.
//!
//! They come from the development cache. Without it this test fails, because a skipped test proves nothing.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use json::Json;
use servers::config::files::ConfigDirs;
use servers::decisions::{Decisions, Permission};
use servers::manager::state::{RetryPolicy, Status};
use servers::manager::{Manager, ManagerHost, ManagerOptions, ServerCallError};

use crate::clients::{cached, node};
use crate::harness::SPILE;

struct TestHost;

impl ManagerHost for TestHost {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

const TIMEOUT: Duration = Duration::from_secs(120);

/// One page for every path, until the test ends.
fn serve_page() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let page = "<html><body><h1>Maple</h1><p>Sap flows in March.</p></body></html>";
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length:";
            let _ = write!(stream, "{head} {}\r\n\r\n{page}", page.len());
        }
    });
    format!("http://{address}/page")
}

/// The processes that have this text in their environment, but no supervisor of ours.
fn processes_with(mark: &str) -> Vec<u32> {
    let folders = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok());
    let is_marked = |pid: &u32| {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        program != Path::new(SPILE) && String::from_utf8_lossy(&read("environ")).contains(mark)
    };
    pids.filter(is_marked).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_people_use_are_configured_listed_called_killed_and_healed() {
    let folder = tempfile::tempdir().expect("a folder");
    let work = folder.path().canonicalize().expect("it exists");
    let work = work.to_str().expect("UTF-8");
    std::fs::write(folder.path().join("sap.txt"), "sweet").expect("written");
    assert!(Command::new("git").args(["init", "-q", work]).status().expect("git").success());
    let page = serve_page();
    let (node, python) = (node(), cached("python-servers/bin/python"));
    let npm = |name: &str| {
        cached(&format!("npm-servers/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"))
    };
    // Name, program, arguments; a tool with its arguments, and a part of the result.
    let all = [
        (
            "filesystem",
            &node,
            vec![npm("filesystem").display().to_string(), work.to_owned()],
            "list_directory",
            format!(r#"{{"path":"{work}"}}"#),
            "sap.txt",
        ),
        (
            "memory",
            &node,
            vec![npm("memory").display().to_string()],
            "create_entities",
            r#"{"entities":[{"name":"Spile","entityType":"tap","observations":["small"]}]}"#.to_owned(),
            "Spile",
        ),
        (
            "everything",
            &node,
            vec![npm("everything").display().to_string()],
            "echo",
            r#"{"message":"hello"}"#.to_owned(),
            "hello",
        ),
        (
            "time",
            &python,
            vec!["-m".to_owned(), "mcp_server_time".to_owned()],
            "get_current_time",
            r#"{"timezone":"Etc/UTC"}"#.to_owned(),
            "Etc/UTC",
        ),
        (
            "git",
            &python,
            vec!["-m".to_owned(), "mcp_server_git".to_owned(), "--repository".to_owned(), work.to_owned()],
            "git_status",
            format!(r#"{{"repo_path":"{work}"}}"#),
            "sap.txt",
        ),
        (
            "fetch",
            &python,
            vec![
                "-m".to_owned(),
                "mcp_server_fetch".to_owned(),
                "--ignore-robots-txt".to_owned(),
                "--allow-private-ips".to_owned(),
            ],
            "fetch",
            format!(r#"{{"url":"{page}"}}"#),
            "Sap flows in March",
        ),
    ];
    let mark = |name: &str| format!("SPILE_TEST_MARK={work}/{name}.");
    let entries: Vec<String> = all
        .iter()
        .map(|(name, program, args, ..)| {
            let args: Vec<String> = args.iter().map(|arg| Json::string(arg).to_string()).collect();
            let mark = mark(name).replace("SPILE_TEST_MARK=", "");
            format!(
                r#""{name}": {{"command": "{}", "args": [{}], "env": {{"SPILE_TEST_MARK": "{mark}", "MEMORY_FILE_PATH": "{work}/memory.json"}}}}"#,
                program.display(),
                args.join(", ")
            )
        })
        .collect();
    let file = folder.path().join("servers.json");
    std::fs::write(&file, format!(r#"{{"mcpServers": {{{}}}}}"#, entries.join(", "))).expect("written");
    let dirs = ConfigDirs { current_dir: folder.path().to_owned(), ..ConfigDirs::default() };
    let configuration = dirs.load(&[file]).expect("it is there");
    let servers = configuration.servers.into_iter().map(|server| {
        let permission = Decisions::default().permission(&server);
        assert_eq!(permission, Permission::Allowed);
        (server, permission)
    });
    let mut options = ManagerOptions {
        retry: RetryPolicy { backoff_min_ms: 50, ..RetryPolicy::default() },
        start_timeout_ms: 100_000,
        ..ManagerOptions::default()
    };
    options.connection.process.supervisor = Some(SPILE.into());
    let manager = Manager::start(servers, options, Arc::new(TestHost));
    tokio::time::timeout(TIMEOUT, manager.settled()).await.expect("in time");
    let call = async |name: &str, tool: &str, arguments: &str| {
        let arguments = Json::parse(arguments).expect("JSON");
        let name_of_tool = format!("mcp__{name}__{tool}");
        let mut result = manager.call_tool(&name_of_tool, &arguments, None).await;
        // The call that finds the connection broken fails, because it may have run; the next one waits for the new one.
        if let Err(ServerCallError::Lost { .. }) = result {
            result = manager.call_tool(&name_of_tool, &arguments, None).await;
        }
        result.unwrap_or_else(|error| panic!("{name}: {error}; {:?}", manager.status(name))).to_string()
    };
    for (name, _, _, tool, arguments, expected) in &all {
        let status = manager.status(name).expect("it is there");
        assert_eq!(status.status, Status::Connected, "{status:?}");
        let result = call(name, tool, arguments).await;
        assert!(result.contains(expected), "{name}: {result}");
        println!("{name}: {}, {} tools", status.server.unwrap_or_default(), status.tools);
    }
    // All are killed; they come back.
    for (name, ..) in &all {
        let found = processes_with(&mark(name));
        assert!(!found.is_empty(), "{name}");
        for pid in found {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process");
            // It may end together with another one.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    for (name, _, _, tool, arguments, expected) in &all {
        let (tool, arguments, expected) = if *name == "memory" {
            ("read_graph", "{}", "Spile")
        } else {
            (*tool, arguments.as_str(), *expected)
        };
        let result = call(name, tool, arguments).await;
        assert!(result.contains(expected), "{name}: {result}");
    }
    manager.close().await;
    for (name, ..) in &all {
        assert!(processes_with(&mark(name)).is_empty(), "{name} left a process");
    }
}
