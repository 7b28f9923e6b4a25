//! `ctx.fetch` through the real client: what is declared is not enough to reach the network around the server.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{HttpServer, TestProject};
use crate::http_server::{self, Request, Response};

const FETCH: &[u8] = br#"
export default async ({ url }: { url: string }, ctx: any) => {
    const response = await ctx.fetch(url);
    return `${response.status} ${await response.text()}`;
};
"#;

/// Declared, and refused nevertheless: where clouds tell machines their keys.
const METADATA: [&str; 13] = [
    "http://169.254.169.254/latest/meta-data",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0xA9.0xFE.0xA9.0xFE/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://169.254.0.1/",
    "http://[::ffff:169.254.169.254]/",
    "http://[64:ff9b::169.254.169.254]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",
    "http://100.100.100.200/",
];
const DECLARED: [&str; 9] = [
    "http://169.254.169.254",
    "http://169.254.0.1",
    "http://[::ffff:169.254.169.254]",
    "http://[64:ff9b::169.254.169.254]",
    "http://[2002:a9fe:a9fe::1]",
    "http://[fe80::1]",
    "http://[fd00:ec2::254]",
    "http://100.100.100.200",
    "http://localhost:PORT",
];
/// This machine and its network in other words than those that are declared.
const UNDECLARED: [&str; 14] = [
    "http://127.0.0.1:PORT/secret",
    "http://127.1:PORT/secret",
    "http://2130706433:PORT/secret",
    "http://0x7f.1:PORT/secret",
    "http://017700000001:PORT/secret",
    "http://0:PORT/secret",
    "http://[::1]:PORT/secret",
    "http://[::]:PORT/secret",
    "http://[::ffff:127.0.0.1]:PORT/secret",
    "http://[::ffff:7f00:1]:PORT/secret",
    "http://localhost.:PORT/secret",
    "http://app.localhost:PORT/secret",
    "http://localhost:PORT@127.0.0.1:PORT/secret",
    "http://10.0.0.1/secret",
];

fn fetch(server: &HttpServer, url: &str) -> (bool, String) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "fetch", "arguments": {"url": url}, "_meta": meta});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: fetch\r\n";
    let (_, body) = server.post("/mcp", headers, &message.to_string());
    let response: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("JSON: {body}"));
    let result = &response["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("a text: {body}"));
    (result["isError"] == true, text.to_owned())
}

#[test]
fn no_spelling_and_no_redirect_leads_to_the_network_around_the_server() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let requested = seen.clone();
    let answer = move |request: Request| {
        requested.lock().expect("no panic before").push(request.target.clone());
        match request.target.split_once("?to=") {
            Some((_, to)) => Response::status(302).header("Location", to),
            None => Response::json(200, request.target),
        }
    };
    let origin = runtime.block_on(http_server::serve(answer));
    let port = origin.rsplit(':').next().expect("a port");
    let at = |url: &str| url.replace("PORT", port);

    let hosts: Vec<String> = DECLARED.iter().map(|host| at(host)).collect();
    let manifest = format!("[permissions]\nnetwork = {}\n", json!(hosts));
    let project = TestProject::new(&[("spile.toml", manifest.as_bytes()), ("tools/fetch.ts", FETCH)]);
    let mut command = project.spile(&["serve", ".", "--bind", "127.0.0.1:0"]);
    // A proxy would resolve names itself, and would be asked for what must not be asked for.
    command.env("http_proxy", &origin).env("HTTP_PROXY", &origin).env("ALL_PROXY", &origin);
    let server = HttpServer::start(&mut command);

    assert_eq!(fetch(&server, &at("http://localhost:PORT/open")), (false, "200 /open".into()));
    let moved = at("http://localhost:PORT/moved?to=/open");
    assert_eq!(fetch(&server, &moved), (false, "200 /open".into()), "redirects are followed");

    let redirect = |url: &str| format!("{}{}", at("http://localhost:PORT/away?to="), at(url));
    for url in METADATA {
        for url in [url.to_owned(), redirect(url)] {
            let (is_error, text) = fetch(&server, &url);
            assert!(is_error && text.contains("is an address that requests must not reach"), "{url}: {text}");
        }
    }
    for url in UNDECLARED {
        for url in [at(url), redirect(url)] {
            let (is_error, text) = fetch(&server, &url);
            let is_named = text.contains("is not declared in `permissions.network`")
                || text.contains("user name or password");
            assert!(is_error && is_named, "{url}: {text}");
        }
    }
    let seen = seen.lock().expect("no panic before");
    let known =
        |target: &String| ["/open", "/moved?", "/away?"].iter().any(|start| target.starts_with(start));
    assert!(seen.iter().all(known), "{seen:?}");
    assert_eq!(
        seen.iter().filter(|target| target.starts_with("/away?")).count(),
        METADATA.len() + UNDECLARED.len()
    );
}
