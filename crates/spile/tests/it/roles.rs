//! Roles with the whole program: what `spile access` prints, what each caller of `examples/tenants` can do, and that no protocol
//! version is a way around it.

use serde_json::{Value, json};

use crate::harness::{HttpServer, TestProject, examples};

const VERSIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

fn serve(project: &TestProject) -> HttpServer {
    HttpServer::start(&mut project.spile(&[
        "serve",
        ".",
        "--bind",
        "127.0.0.1:0",
        "--token-file",
        "tokens.json",
    ]))
}

fn request(server: &HttpServer, caller: &str, version: &str, method: &str, params: Value) -> String {
    request_at(server, "/mcp", caller, version, method, params)
}

fn request_at(
    server: &HttpServer,
    path: &str,
    caller: &str,
    version: &str,
    method: &str,
    mut params: Value,
) -> String {
    let mut headers =
        format!("Authorization: Bearer example-token-of-{caller}\r\nMCP-Protocol-Version: {version}\r\n");
    if version == "2026-07-28" {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        headers += &format!("Mcp-Method: {method}\r\n");
        if let Some(name) = params["name"].as_str().or(params["uri"].as_str()) {
            headers += &format!("Mcp-Name: {name}\r\n");
        }
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    server.post(path, &headers, &body).1
}

fn call(server: &HttpServer, caller: &str, tool: &str, arguments: Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments });
    request(server, caller, "2025-06-18", "tools/call", params)
}

/// A folder with roles and one without, at the common endpoint of a gateway.
#[test]
fn a_gateway_offers_each_caller_what_their_role_has() {
    let project = TestProject::example("tenants");
    project.write("servers.json", b"{\"mcpServers\": {}}");
    let customers = examples().join("customers").display().to_string();
    let gateway = HttpServer::start(&mut project.spile(&[
        "gateway",
        ".",
        &customers,
        "--config",
        "servers.json",
        "--bind",
        "127.0.0.1:0",
        "--token-file",
        "tokens.json",
    ]));
    let tools = |path: &str, caller: &str, version: &str| -> Vec<Value> {
        let text = request_at(&gateway, path, caller, version, "tools/list", json!({}));
        let list: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("JSON: {text}"));
        list["result"]["tools"].as_array().unwrap_or_else(|| panic!("a list: {text}")).clone()
    };
    let mut counts = Vec::new();
    for caller in ["ann", "gus", "zoe"] {
        for version in ["2025-06-18", "2026-07-28"] {
            let own = tools("/mcp/tenants", caller, version);
            let all = tools("/mcp", caller, version);
            let joined: Vec<Value> = all
                .iter()
                .filter_map(|tool| {
                    let name = tool["name"].as_str()?.strip_prefix("mcp__tenants__")?;
                    let mut tool = tool.clone();
                    tool["name"] = name.into();
                    Some(tool)
                })
                .collect();
            // With the schemas and descriptions of the role.
            assert_eq!(joined, own, "{caller}");
            assert!(
                all.iter()
                    .any(|tool| tool["name"].as_str().is_some_and(|name| name.contains("lookup_customer")))
            );
            counts.push(own.len());
        }
        for (path, prefix) in [("/mcp/tenants", ""), ("/mcp", "mcp__tenants__")] {
            let call = |tool: &str, arguments: Value| {
                let params = json!({"name": format!("{prefix}{tool}"), "arguments": arguments});
                request_at(&gateway, path, caller, "2025-06-18", "tools/call", params)
            };
            let listed = call("list_customers", json!({}));
            for (name, of) in [("Dana", "ann"), ("Fay", "gus")] {
                assert_eq!(listed.contains(name), caller == of, "{path} {caller}: {listed}");
            }
        }
    }
    assert!(counts[..4].iter().all(|count| *count > 0), "{counts:?}");
    assert_eq!(counts[4..], [0, 0], "zoe has no role");
}

#[test]
fn access_prints_who_may_do_what() {
    let project = TestProject::example("tenants");
    let all = project.run(&["access", ".", "--token-file", "tokens.json"]).to_string();
    for expected in [
        "owner: /groups = \"owners\"",
        "member: /groups = \"sales\" | \"support\"",
        "tenant = claim /tenant",
        "edited_by = claim /sub",
        "get, list, search, aggregate, create, update",
        "zoe",
        "none: may do nothing",
    ] {
        assert!(all.contains(expected), "{expected}\n{all}");
    }
    let one = project.run(&["access", "--as", "member"]).to_string();
    assert!(one.contains("member:") && !one.contains("owner:"), "{one}");
    let unknown = project.run(&["access", "--as", "boss"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("there is no role `boss`"), "{unknown}");
    let none = TestProject::customers().run(&["access"]).to_string();
    assert!(none.contains("no roles"), "{none}");
}

#[test]
fn linked_rows_that_a_caller_may_not_see_do_not_count() {
    let access = |collection: &str| {
        format!(
            "[collections.{collection}.access.member]\noperations = ['list', 'aggregate']\nwhere = {{ tenant = {{ claim = '/tenant' }} }}\n"
        )
    };
    let manifest = format!(
        "[sources.orders]\npath = 'orders.csv'\n[sources.customers]\npath = 'customers.csv'\n\
         [collections.orders]\nsource = 'orders'\nkey = 'id'\n[collections.customers]\nsource = 'customers'\nkey = 'id'\n\
         [collections.customers.related.orders]\ncollection = 'orders'\nby = {{ id = 'customer' }}\n\
         [roles.member]\nwhen = {{ '/groups' = 'sales' }}\n{}{}\
         [roles.clerk]\nwhen = {{ '/groups' = 'clerks' }}\n[collections.customers.access.clerk]\noperations = ['list']\n",
        access("orders"),
        access("customers")
    );
    let tokens = json!({ "tokens": [
        { "token": "example-token-of-ann", "subject": "ann", "claims": { "tenant": "acme", "groups": ["sales"] } },
        { "token": "example-token-of-cat", "subject": "cat", "claims": { "groups": ["clerks"] } },
    ] });
    let project = TestProject::new(&[
        ("spile.toml", manifest.as_bytes()),
        ("tokens.json", tokens.to_string().as_bytes()),
        ("customers.csv", b"id,tenant,name\n1,acme,Dana\n2,acme,Eli\n3,globex,Fay\n"),
        // Eli's only order belongs to others.
        ("orders.csv", b"id,tenant,customer\n10,acme,1\n11,globex,2\n12,globex,3\n"),
    ]);
    let server = serve(&project);
    for (caller, tool, arguments, has, has_not) in [
        ("ann", "list_customers", json!({ "orders_null": true }), "Eli", "Dana"),
        ("ann", "list_customers", json!({ "orders_null": false }), "Dana", "Eli"),
        ("ann", "list_customers", json!({ "orders_null": true }), "\"total\":1", "Fay"),
        ("ann", "aggregate_customers", json!({ "orders_null": true }), "\"count\":1", "isError\":true"),
        ("cat", "list_customers", json!({ "orders_null": true }), "unknown argument", "Eli"),
    ] {
        let answer = call(&server, caller, tool, arguments.clone());
        assert!(answer.contains(has), "{caller} {tool} {arguments}: {answer}");
        assert!(!answer.contains(has_not), "{caller} {tool} {arguments}: {answer}");
    }
}

#[test]
fn every_caller_sees_the_tools_fields_and_rows_of_their_role() {
    let project = TestProject::example("tenants");
    let server = serve(&project);
    for (caller, tool, arguments, has, has_not) in [
        ("ann", "list_customers", json!({}), "dana@example.com", "fay@example.com"),
        ("abe", "list_customers", json!({}), "Dana", "dana@example.com"),
        ("abe", "list_orders", json!({ "include": ["customer"] }), "lamp", "sofa"),
        ("gus", "list_orders", json!({}), "sofa", "lamp"),
        ("abe", "get_orders", json!({ "id": 4 }), "not_found", "globex"),
        ("abe", "list_customers", json!({ "email": "dana@example.com" }), "unknown argument", "Dana"),
        ("ann", "list_customers", json!({ "email": "dana@example.com" }), "Dana", "Eli"),
        ("abe", "aggregate_orders", json!({ "measures": ["count"] }), "3", "5"),
        ("gus", "update_orders", json!({ "id": 1, "item": "x" }), "not_found", "acme"),
        ("gus", "update_orders", json!({ "id": 4, "item": "bench" }), "bench", "globex"),
        ("zoe", "list_orders", json!({}), "unknown tool", "sofa"),
    ] {
        let answer = call(&server, caller, tool, arguments);
        assert!(answer.contains(has) && !answer.contains(has_not), "{caller} {tool}\n{answer}");
    }
    let created = json!({ "id": 6, "customer_id": 3, "item": "rug", "total": "20.00" });
    let answer = call(&server, "gus", "create_orders", created);
    assert!(answer.contains("rug"), "{answer}");
    let orders = std::fs::read_to_string(project.folder.join("orders.csv")).expect("the file is there");
    assert!(
        orders.contains("6,globex,3,rug,20.00,gus\n") && orders.contains("4,globex,3,bench,210.00,gus\n"),
        "{orders}"
    );
}

#[test]
fn no_protocol_version_is_a_way_around_roles() {
    let project = TestProject::example("tenants");
    project.write(
        "spile.toml",
        b"[sources.orders]\npath = \"orders.csv\"\n[collections.orders]\nkey = \"id\"\noperations = [\"get\", \"list\"]\n\
          [roles.owner]\nwhen = { \"/groups\" = \"owners\" }\n[roles.other]\nwhen = { \"/groups\" = [\"sales\"] }\n\
          [collections.orders.access.owner]\n[collections.orders.access.other]\noperations = [\"list\"]\n",
    );
    let server = serve(&project);
    for version in VERSIONS {
        for (caller, listed, may_get, may_list) in
            [("ann", 2, true, true), ("abe", 1, false, true), ("zoe", 0, false, false)]
        {
            let tools = request(&server, caller, version, "tools/list", json!({}));
            assert_eq!(tools.matches("_orders\"").count(), listed, "{version} {caller}\n{tools}");
            for (tool, may) in [("get_orders", may_get), ("list_orders", may_list)] {
                let arguments = if tool == "get_orders" { json!({ "id": 1 }) } else { json!({}) };
                let params = json!({ "name": tool, "arguments": arguments });
                let answer = request(&server, caller, version, "tools/call", params);
                let is_unknown = answer.contains(&format!("unknown tool `{tool}`"));
                assert_eq!(
                    (answer.contains("desk"), is_unknown),
                    (may, !may),
                    "{version} {caller}\n{answer}"
                );
            }
            let read =
                request(&server, caller, version, "resources/read", json!({ "uri": "spile://overview" }));
            assert_eq!(read.contains("get_orders"), may_get, "{version} {caller}\n{read}");
        }
    }
}

#[test]
fn code_and_prompts_are_for_the_roles_that_the_manifest_names() {
    let project = TestProject::example("tenants");
    let manifest = std::fs::read_to_string(project.folder.join("spile.toml")).expect("the example is there");
    project.write(
        "spile.toml",
        format!("{manifest}\n[tools.count_mine.access]\nroles = [\"member\"]\n[prompts.secret.access]\nroles = [\"owner\"]\n")
            .as_bytes(),
    );
    project.write(
        "tools/count_mine.ts",
        b"/** Counts orders. */\nexport default async function count_mine(_: {}, ctx: any) {\n  \
          const page = await ctx.collection(\"orders\").list({});\n  return `${page.items.map((row: any) => row.item).join()}`;\n}\n",
    );
    project.write(
        "tools/hidden_one.ts",
        b"/** Does nothing. */\nexport default function hidden_one() {\n  return \"x\";\n}\n",
    );
    project.write("prompts/hello.md", b"---\ndescription: Greets.\n---\nHello.\n");
    project.write("prompts/secret.md", b"---\ndescription: Tells.\n---\nSecret.\n");
    let server = serve(&project);
    let list = |caller: &str, what: &str| request(&server, caller, "2025-06-18", what, json!({}));
    assert!(list("abe", "tools/list").contains("count_mine"), "{}", list("abe", "tools/list"));
    for caller in ["ann", "abe", "zoe"] {
        assert!(!list(caller, "tools/list").contains("hidden_one"), "{caller}");
        assert!(call(&server, caller, "hidden_one", json!({})).contains("unknown tool"), "{caller}");
    }
    let mine = call(&server, "gus", "count_mine", json!({}));
    assert!(mine.contains("sofa") && !mine.contains("lamp"), "code has the rights of its caller: {mine}");
    let of_owner = call(&server, "ann", "count_mine", json!({}));
    assert!(of_owner.contains("lamp"), "an owner includes a member: {of_owner}");
    for (caller, hello, secret) in [("ann", true, true), ("abe", true, false), ("zoe", false, false)] {
        let prompts = list(caller, "prompts/list");
        assert_eq!(
            (prompts.contains("hello"), prompts.contains("secret")),
            (hello, secret),
            "{caller} {prompts}"
        );
        let get = request(&server, caller, "2025-06-18", "prompts/get", json!({ "name": "secret" }));
        assert_eq!(get.contains("Secret."), secret, "{caller} {get}");
    }
}

#[test]
fn a_right_that_is_taken_away_is_gone_when_the_manifest_is_saved() {
    let project = TestProject::example("tenants");
    let mut server = serve(&project);
    assert!(call(&server, "abe", "list_orders", json!({})).contains("desk"));
    let manifest = std::fs::read_to_string(project.folder.join("spile.toml")).expect("the example is there");
    let less = manifest
        .replace("when = { \"/groups\" = [\"sales\", \"support\"] }", "when = { \"/groups\" = \"support\" }");
    project.write(
        "spile.toml",
        less.replace("hidden = [\"tenant\", \"email\"]", "hidden = [\"tenant\", \"email\", \"name\"]")
            .as_bytes(),
    );
    server.wait_for("reloaded");
    assert!(call(&server, "abe", "list_orders", json!({})).contains("unknown tool"));
    assert!(!call(&server, "gus", "list_customers", json!({})).contains("Fay"));
}
