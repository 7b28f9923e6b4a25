//! The Skills extension and MCP Apps on the wire.

use std::sync::Arc;

use content::NoBackend;

use crate::harness::{TestFolder, TestServer, pretty};
use crate::resources::read;

const WORKFLOW: &str = "---
name: git-workflow
description: Follow this team's Git conventions.
license: Apache-2.0
metadata:
  version: 2.10
  tags: [git, \"1.0\"]
---
# Git workflow

Pick a template from `templates/`.
";

fn skills_folder() -> TestFolder {
    TestFolder::new(&[
        ("skills/git-workflow/SKILL.md", WORKFLOW),
        ("skills/git-workflow/templates/commit.md", "feat: …\n"),
        ("skills/git-workflow/templates/deep/more.txt", "x"),
        ("skills/acme/billing/refunds/SKILL.md", "---\nname: refunds\ndescription: Refund.\n---\nx"),
    ])
}

#[test]
fn skills_are_declared_listed_and_read() {
    let folder = skills_folder();
    let server = folder.serve();
    let discovered = server.modern("server/discover", "");
    assert!(
        discovered.contains(r#""extensions":{"io.modelcontextprotocol/skills":{"directoryRead":true}}"#),
        "{discovered}"
    );
    assert!(discovered.contains(r#""resources":{"subscribe":true,"listChanged":true}"#), "{discovered}");
    insta::assert_snapshot!("skills_list", pretty(&server.modern("skills/list", "")));
    insta::assert_snapshot!(
        "skills_get",
        pretty(&server.modern("skills/get", r#""uri":"skill://acme/billing/refunds/SKILL.md""#))
    );
    insta::assert_snapshot!("skill_resources", pretty(&server.modern("resources/list", "")));
    // What the digest covers is what is read: the front matter is part of it.
    assert_eq!(read(&server, "skill://git-workflow/SKILL.md"), format!("text/markdown {WORKFLOW}"));
    assert_eq!(read(&server, "skill://git-workflow/templates/deep/more.txt"), "text/plain x");
    // The extension belongs to 2026-07-28.
    for method in ["skills/list", "skills/get", "resources/directory/read"] {
        let answer = server.legacy(method, r#""uri":"skill://git-workflow""#);
        assert!(answer.contains("-32601"), "{answer}");
    }
    let initialized = server.legacy("initialize", r#""protocolVersion":"2025-11-25","capabilities":{}"#);
    assert!(!initialized.contains("extensions"), "{initialized}");
}

#[test]
fn directories_are_read_level_by_level() {
    let folder = skills_folder();
    let server = folder.serve();
    let children = |uri: &str| {
        let answer = server.modern("resources/directory/read", &format!(r#""uri":"{uri}""#));
        let doc = json::Json::parse(&answer).expect("JSON").to_doc();
        let Some(resources) = doc.root().get("resources") else {
            assert!(answer.contains("-32602"), "{answer}");
            return "-32602".to_owned();
        };
        let text = |node: json::Node<'_>, key: &str| {
            node.get(key).and_then(|text| text.str()).expect("a text").into_owned()
        };
        let child = |node| format!("{} {} {}", text(node, "uri"), text(node, "name"), text(node, "mimeType"));
        resources.elements().map(child).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        children("skill://git-workflow"),
        "skill://git-workflow/SKILL.md SKILL.md text/markdown\n\
         skill://git-workflow/templates templates inode/directory"
    );
    assert_eq!(
        children("skill://git-workflow/templates"),
        "skill://git-workflow/templates/commit.md commit.md text/markdown\n\
         skill://git-workflow/templates/deep deep inode/directory"
    );
    assert_eq!(children("skill://acme"), "skill://acme/billing billing inode/directory");
    for uri in [
        "skill://git-workflow/SKILL.md",
        "skill://git-workflow/",
        "skill://git-workflow/templates/../templates",
        "skill://nothing",
        "skill://",
        "",
        "resource://x",
        "skills/git-workflow",
    ] {
        assert_eq!(children(uri), "-32602", "{uri}");
    }
    let cursor = server.modern("resources/directory/read", r#""uri":"skill://acme","cursor":"zzz""#);
    assert!(cursor.contains("-32602"), "{cursor}");
    for uri in
        ["skill://nothing/SKILL.md", "skill://git-workflow", "skill://git-workflow/templates/commit.md", ""]
    {
        let answer = server.modern("skills/get", &format!(r#""uri":"{uri}""#));
        assert!(answer.contains("-32602"), "{uri}: {answer}");
    }
    assert!(server.modern("skills/get", "").contains("-32602"));
}

/// Each skill is a folder `s` with this `SKILL.md`: the first line of its diagnostic.
#[test]
fn a_skill_that_breaks_the_format_is_not_served_and_says_why() {
    for (text, expected) in [
        ("no front matter", "error: a skill needs front matter with `name` and `description`"),
        ("---\nname: s\n", "error: a skill needs front matter with `name` and `description`"),
        ("---\nname: s\n---\n", "error: a skill needs `description`"),
        ("---\ndescription: d\n---\n", "error: a skill needs `name`"),
        ("---\nname: 7\ndescription: d\n---\n", "error: `name`: expected a text"),
        ("---\nname: s\ndescription: ''\n---\n", "error: `description`: expected a text"),
        ("---\nname: S\ndescription: d\n---\n", "error: `S` is not the name of a skill"),
        ("---\nname: other\ndescription: d\n---\n", "error: the skill is named `other`, but its folder `s`"),
        ("---\nname: s\nname: s\n---\n", "error: `name` occurs twice"),
        ("---\nname: [\n---\n", "error: invalid YAML"),
    ] {
        let folder = TestFolder::new(&[
            ("skills/s/SKILL.md", text),
            ("skills/s/extra.md", "x"),
            ("skills/fine/SKILL.md", "---\nname: fine\ndescription: d\n---\n"),
        ]);
        let (loaded, diagnostics) = folder.load();
        let rendered = contract::diagnostic::render_all(&diagnostics, false);
        assert!(rendered.starts_with(expected), "{text:?}: {rendered}");
        assert!(rendered.contains("--> skills/s/SKILL.md:"), "{rendered}");
        let server = TestServer::new(loaded, Arc::new(NoBackend));
        let list = server.modern("skills/list", "");
        assert!(list.contains("skill://fine/SKILL.md") && !list.contains("skill://s/"), "{list}");
        assert!(read(&server, "skill://s/extra.md").starts_with("-32602"));
    }
}

#[test]
fn skills_beyond_what_clients_accept_are_refused() {
    let folder = TestFolder::new(&[("skills/big/SKILL.md", "---\nname: big\ndescription: d\n---\n")]);
    for n in 0..512 {
        folder.write(&format!("skills/big/{n}.md"), "x");
    }
    folder.write("skills/SKILL.md", "x");
    let (loaded, diagnostics) = folder.load();
    insta::assert_snapshot!("large_skill", contract::diagnostic::render_all(&diagnostics, false));
    assert!(loaded.catalog().skills.is_empty());
    std::fs::remove_file(folder.path("skills/big/0.md")).expect("removed");
    assert_eq!(folder.load().0.catalog().skills.len(), 1);
}

#[test]
fn a_nested_skill_is_an_entry_of_its_own_and_a_part_of_the_outer_one() {
    let folder = TestFolder::new(&[
        ("skills/outer/SKILL.md", "---\nname: outer\ndescription: d\n---\n"),
        ("skills/outer/inner/SKILL.md", "---\nname: inner\ndescription: d\n---\n"),
        ("skills/outer/inner/x.md", "x"),
    ]);
    let (loaded, diagnostics) = folder.load();
    assert!(diagnostics.is_empty());
    let files = |skill: &spile_core::Skill| match &skill.files {
        spile_core::SkillFiles::Complete(files) => {
            files.iter().map(|file| file.uri.clone()).collect::<Vec<_>>()
        }
        spile_core::SkillFiles::Dynamic => panic!("complete"),
    };
    let skills: Vec<_> = loaded.catalog().skills.iter().map(files).collect();
    assert_eq!(skills.len(), 2);
    assert!(skills.contains(&vec!["skill://outer/inner/SKILL.md".into(), "skill://outer/inner/x.md".into()]));
    assert!(skills.contains(&vec![
        "skill://outer/SKILL.md".into(),
        "skill://outer/inner/SKILL.md".into(),
        "skill://outer/inner/x.md".into()
    ]));
}

const APP: &str = "<!-- app
title: Sales
description: Sales by month.
prefers_border: true
permissions: [clipboard_write]
domain: sales.example.com
csp:
  connect_domains: [https://api.example.com, wss://live.example.com]
  resource_domains: https://*.cdn.example.com
-->
<!doctype html>
<title>Sales</title>
";

#[test]
fn apps_are_ui_resources_with_their_policy() {
    let folder = TestFolder::new(&[
        ("apps/sales.html", APP),
        ("apps/plain.html", "<!doctype html><p>x"),
        ("apps/notes.txt", "not an app"),
    ]);
    let server = folder.serve();
    insta::assert_snapshot!("apps_list", pretty(&server.modern("resources/list", "")));
    // The policy must be in the contents: that is where hosts take it from.
    insta::assert_snapshot!("apps_read", pretty(&server.modern("resources/read", r#""uri":"ui://sales""#)));
    assert_eq!(read(&server, "ui://plain"), "text/html;profile=mcp-app <!doctype html><p>x");
    assert!(read(&server, "apps/notes.txt").starts_with("-32602"));
}

#[test]
fn a_broken_app_is_not_served() {
    for (text, expected) in [
        (
            "<!-- app\ncsp:\n  connect_domains: [\"https://a.com; script-src *\"]\n-->\n<!doctype html>",
            "error: `connect_domains`: `https://a.com; script-src *` is not an origin",
        ),
        ("<!-- app\npermissions: [usb]\n-->\n<!doctype html>", "error: unknown permission `usb`"),
        ("<!-- app\ntitel: X\n-->\n<!doctype html>", "error: unknown key `titel`"),
        (
            "<!-- app\nprefers_border: maybe\n-->\n<!doctype html>",
            "error: `prefers_border`: expected `true` or `false`, found a text",
        ),
        ("<!-- app\ncsp: none\n-->\n<!doctype html>", "error: `csp`: expected a mapping, found a text"),
    ] {
        let folder = TestFolder::new(&[("apps/a.html", text), ("apps/fine.html", "<html></html>")]);
        let (loaded, diagnostics) = folder.load();
        let rendered = contract::diagnostic::render_all(&diagnostics, false);
        assert!(rendered.starts_with(expected), "{rendered}");
        let uris: Vec<&str> =
            loaded.catalog().resources.iter().map(|resource| resource.uri.as_str()).collect();
        assert_eq!(uris, ["ui://fine"]);
    }
    let folder = TestFolder::new(&[("apps/part.html", "<p>only a part</p>")]);
    let (loaded, diagnostics) = folder.load();
    assert!(
        contract::diagnostic::render_all(&diagnostics, false)
            .starts_with("warning: not a whole HTML document")
    );
    assert_eq!(loaded.catalog().resources.len(), 1);
}
