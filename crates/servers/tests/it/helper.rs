//! The helper program of the tests: a supervisor, or a server that does what its first argument says.

use std::fs::OpenOptions;
use std::io::{self, BufRead, Write};

use json::{Json, Node};
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
        _ => panic!("the tests ask for something else: {args:?}"),
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
    for line in io::stdin().lock().lines() {
        let Ok(message) = Json::parse(&line.expect("text")) else { continue };
        let doc = message.to_doc();
        let method = doc.root().get("method").and_then(|method| method.str()).unwrap_or_default();
        let Some(id) = doc.root().get("id").map(Json::from) else { continue };
        let params = doc.root().get("params");
        let result = match &*method {
            "initialize" => Json::object(|out| {
                out.str("protocolVersion", "2025-11-25").str("instructions", "Be brief.");
                out.object("capabilities", |out| {
                    out.object("tools", |out| {
                        out.bool("listChanged", true);
                    });
                });
                out.object("serverInfo", |out| {
                    out.str("name", "helper").str("version", "1");
                });
            }),
            "ping" => Json::object(|_| {}),
            "tools/list" => list(&tools),
            "tools/call" => match call(log, params, &mut tools) {
                Some(result) => result,
                None => continue,
            },
            _ => {
                send(&Json::object(|out| {
                    out.str("jsonrpc", "2.0").raw("id", id.as_str()).object("error", |out| {
                        out.int("code", -32601).str("message", "unknown method");
                    });
                }));
                continue;
            }
        };
        send(&Json::object(|out| {
            out.str("jsonrpc", "2.0").raw("id", id.as_str()).raw("result", result.as_str());
        }));
    }
}

fn list(tools: &[&str]) -> Json {
    Json::object(|out| {
        out.array("tools", tools, |out, name| {
            let mut tool = json::write::ObjectWriter::new(out);
            tool.str("name", name).object("inputSchema", |out| {
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
