//! The helper program of the tests: a supervisor, or a server that does what its first argument says.

use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use json::{Json, Node};
use os_keyring::OsKeyring;
use outbound::{NetworkZone, OutboundOptions};
use ring::rand::{SecureRandom, SystemRandom};
use servers::oauth::{ClientAuth, ClientRegistration, CredentialStore, Credentials, Tokens};
use spile_core::Platform;
use upstream::process::run_supervisor_if_requested;

fn main() {
    run_supervisor_if_requested();
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", log] => serve(log),
        // Works from its nth start on.
        ["fail-until", count, log] => {
            let starts = std::fs::read_to_string(log).unwrap_or_default().matches("started").count() + 1;
            if starts < count.parse().expect("a number") {
                append(log, "started");
                eprintln!("not yet: start {starts}");
                std::process::exit(1);
            }
            serve(log);
        }
        // Reads and never answers.
        ["silent"] => io::stdin().lock().lines().for_each(drop),
        ["refresh", folder, resource, count] => refresh(folder, resource, count.parse().expect("a number")),
        ["keyring", folder] => use_keyring(Path::new(folder)),
        _ => panic!("the tests ask for something else: {args:?}"),
    }
}

/// The clock and randomness of this machine.
struct RealPlatform;

impl Platform for RealPlatform {
    fn now_ms(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        u64::try_from(now.as_millis()).expect("before the year 500,000,000")
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemRandom::new().fill(bytes).expect("randomness");
    }
}

/// Says of each token that the server rejected it, and wants another, so many times.
fn refresh(folder: &str, resource: &str, count: usize) {
    let store = CredentialStore::new(folder.into(), Arc::new(RealPlatform), OutboundOptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut last: Option<String> = None;
    for round in 0..count {
        let token = runtime.block_on(store.access_token(resource, last.as_deref())).expect("no error");
        assert!(token.is_some() && token != last, "round {round}: the credential is lost");
        last = token;
    }
}

/// Keeps credentials with the keyring of this desktop session, as four processes that start at once would.
fn use_keyring(folder: &Path) {
    let open = || {
        let store = CredentialStore::new(folder.into(), Arc::new(RealPlatform), OutboundOptions::default());
        store.with_keyring(OsKeyring::detect(|name| std::env::var_os(name)).expect("a keyring"))
    };
    let credentials = |resource: &str| Credentials {
        account: resource.to_owned(),
        resource: resource.to_owned(),
        issuer: "https://issuer.example".to_owned(),
        token_endpoint: "https://issuer.example/token".to_owned(),
        named_from: NetworkZone::Public,
        client: ClientRegistration { client_id: "c".to_owned(), client_secret: None, redirect_uri: None },
        client_auth: ClientAuth::None,
        dpop_key: None,
        tokens: Some(Tokens {
            access_token: "a-secret-token".to_owned(),
            refresh_token: None,
            expires_at_ms: None,
            scopes: Vec::new(),
            is_bound: false,
        }),
    };
    let resources = ["https://a.example", "https://b.example", "https://c.example", "https://d.example"];
    std::thread::scope(|scope| {
        for resource in resources {
            scope.spawn(move || open().save(&credentials(resource)).expect("saved"));
        }
    });
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a text");
        assert!(!text.contains("a-secret-token"), "{text}");
    }
    let later = open();
    for resource in resources {
        assert_eq!(later.load(resource).expect("no error"), Some(credentials(resource)), "{resource}");
    }
}

fn append(log: &str, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(log).expect("a log");
    file.write_all(format!("{line}\n").as_bytes()).expect("a log can be written");
}

fn send(message: &Json) {
    let mut out = io::stdout().lock();
    writeln!(out, "{message}").and_then(|()| out.flush()).expect("somebody reads");
}

fn serve(log: &str) {
    append(log, &format!("started {}", std::process::id()));
    let mut tools = vec!["echo", "exit", "hang", "freeze", "grow"];
    // Files beside the log say what else it has, and what is broken.
    let has = |what: &str| Path::new(&format!("{log}.{what}")).exists();
    if has("asks") {
        tools.push("ask");
    }
    // The call that waits for an answer of the user.
    let mut asked = None;
    for line in io::stdin().lock().lines() {
        let Ok(message) = Json::parse(&line.expect("text")) else { continue };
        let doc = message.to_doc();
        let method = doc.root().get("method").and_then(|method| method.str()).unwrap_or_default();
        if let (true, Some(answer), Some(call)) = (method.is_empty(), doc.root().get("result"), asked.take())
        {
            send_text(&call, answer.raw());
            continue;
        }
        let Some(id) = doc.root().get("id").map(Json::from) else { continue };
        let params = doc.root().get("params");
        let result = match &*method {
            "initialize" => Json::object(|out| {
                out.str("protocolVersion", "2025-11-25").str("instructions", "Be brief.");
                out.object("capabilities", |out| {
                    out.object("tools", |out| {
                        out.bool("listChanged", true);
                    });
                    if has("lists") {
                        out.raw("prompts", "{}").raw("resources", "{}");
                    }
                });
                out.object("serverInfo", |out| {
                    out.str("name", "helper").str("version", "1");
                });
            }),
            "ping" => Json::object(|_| {}),
            "tools/list" if !has("broken-tools") => {
                append(&format!("{log}.reads"), "tools/list");
                list(&tools, log)
            }
            "prompts/list" if !has("broken-lists") => {
                Json::parse(r#"{"prompts":[{"name":"p"}]}"#).expect("JSON")
            }
            "resources/list" if !has("broken-lists") => {
                Json::parse(r#"{"resources":[{"name":"r","uri":"file:///r"}]}"#).expect("JSON")
            }
            "resources/templates/list" if !has("broken-lists") => {
                Json::parse(r#"{"resourceTemplates":[{"name":"t","uriTemplate":"file:///{t}"}]}"#)
                    .expect("JSON")
            }
            "prompts/list" | "resources/list" | "resources/templates/list" | "tools/list" => {
                send_error(&id, -32603, "out of order");
                continue;
            }
            "tools/call" if is_call_of(params, "ask") => {
                send(&Json::object(|out| {
                    out.str("jsonrpc", "2.0").int("id", 1).str("method", "elicitation/create");
                    out.raw(
                        "params",
                        r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{"who":{"type":"string"}}}}"#,
                    );
                }));
                asked = Some(id);
                continue;
            }
            "tools/call" => match call(log, params, &mut tools) {
                Some(result) => result,
                None => continue,
            },
            _ => {
                send_error(&id, -32601, "unknown method");
                continue;
            }
        };
        send(&Json::object(|out| {
            out.str("jsonrpc", "2.0").raw("id", id.as_str()).raw("result", result.as_str());
        }));
    }
}

fn is_call_of(params: Option<Node<'_>>, tool: &str) -> bool {
    params.and_then(|params| params.get("name")).is_some_and(|name| name.eq_str(tool))
}

fn send_text(id: &Json, text: &str) {
    send(&Json::object(|out| {
        out.str("jsonrpc", "2.0").raw("id", id.as_str()).object("result", |out| {
            out.array("content", [()], |out, ()| {
                let mut block = json::write::ObjectWriter::new(out);
                block.str("type", "text").str("text", text);
                block.end();
            });
        });
    }));
}

fn send_error(id: &Json, code: i64, message: &str) {
    send(&Json::object(|out| {
        out.str("jsonrpc", "2.0").raw("id", id.as_str()).object("error", |out| {
            out.int("code", code).str("message", message);
        });
    }));
}

/// The tools are described by a file beside the log, if there is one.
fn list(tools: &[&str], log: &str) -> Json {
    let description = std::fs::read_to_string(format!("{log}.description")).unwrap_or_default();
    Json::object(|out| {
        out.array("tools", tools, |out, name| {
            let mut tool = json::write::ObjectWriter::new(out);
            tool.str("name", name).str("description", &description).object("inputSchema", |out| {
                out.str("type", "object");
            });
            tool.end();
        });
    })
}

/// `None`: the call is never answered.
fn call(log: &str, params: Option<Node<'_>>, tools: &mut Vec<&'static str>) -> Option<Json> {
    let name = params.and_then(|params| params.get("name")).and_then(|name| name.str());
    let name = name.unwrap_or_default();
    append(log, &format!("called {name}"));
    match &*name {
        "exit" => {
            eprintln!("boom");
            std::process::exit(3)
        }
        "hang" => return None,
        "freeze" => loop {
            std::thread::park();
        },
        // Nothing is read before all of it is written.
        "burst" => {
            tools.push("grown");
            for _ in 0..100 {
                send(&Json::object(|out| {
                    out.str("jsonrpc", "2.0").str("method", "notifications/tools/list_changed");
                }));
            }
        }
        "grow" => {
            tools.push("grown");
            send(&Json::object(|out| {
                out.str("jsonrpc", "2.0").str("method", "notifications/tools/list_changed");
            }));
        }
        _ => {}
    }
    let text = params.and_then(|params| params.get("arguments")).map(Json::from);
    Some(Json::object(|out| {
        out.array("content", [()], |out, ()| {
            let mut block = json::write::ObjectWriter::new(out);
            block.str("type", "text").str("text", text.as_ref().map_or("", Json::as_str));
            block.end();
        });
    }))
}
