//! Resources on the wire: names, types, front matter, settings, templates.

use std::sync::Arc;

use content::{
    Annotations, CompletionSource, LastModified, NoBackend, ResourceSettings, TemplateSettings,
    TemplateSource,
};
use spile_core::Role;

use crate::harness::{PNG, TestBackend, TestFolder, TestServer, load_clean, pretty};

/// The contents that a reference has, or the error: `mime text`, or `mime base64:…`.
pub(crate) fn read(server: &TestServer, reference: &str) -> String {
    let mut json = Vec::new();
    json::write::string(&mut json, reference);
    let params = format!(r#""uri":{}"#, String::from_utf8(json).expect("UTF-8"));
    let answer = server.modern("resources/read", &params);
    let legacy = server.legacy("resources/read", &params);
    let doc = json::Json::parse(&answer).expect("JSON").to_doc();
    let text = |node: json::Node<'_>, key: &str| {
        node.get(key).and_then(|text| text.str()).map(|text| text.into_owned())
    };
    let Some(contents) = doc.root().get("contents") else {
        let code = doc.root().get("code").expect("a code").raw().to_owned();
        return format!("{code} {}", text(doc.root(), "message").expect("an error"));
    };
    assert!(legacy.contains(contents.raw()), "{legacy}");
    let contents = contents.elements().next().expect("one");
    let mime_type = text(contents, "mimeType").unwrap_or_default();
    match (text(contents, "text"), text(contents, "blob")) {
        (Some(found), None) => format!("{mime_type} {found}"),
        (None, Some(blob)) => format!("{mime_type} base64:{blob}"),
        other => panic!("{other:?}"),
    }
}

const GUIDE: &str = "---
title: Getting started
description: How to begin.
audience: [user, assistant]
priority: 0.8
last_modified: 2026-05-01
---
# Getting started
";

#[test]
fn files_are_listed_and_read() {
    let folder = TestFolder::new(&[
        ("resources/getting-started.md", GUIDE),
        ("resources/data/prices.csv", "a,b\n1,2\n"),
        ("resources/data/prices.json", "{}"),
        ("resources/with space.txt", "x"),
        ("resources/own.md", "---\nuri: docs://own\nname: Own\n---\nOwn"),
        ("resources/unlisted.md", "---\nlisted: false\n---\nsecret of a kind"),
        ("resources/.hidden", "x"),
        ("resources/backup.md~", "x"),
    ]);
    folder.write("resources/logo.png", PNG);
    let server = folder.serve();
    insta::assert_snapshot!("resources_list", pretty(&server.modern("resources/list", "")));
    for (reference, expected) in [
        ("resource://getting-started", "text/markdown # Getting started\n"),
        ("resource://getting-started.md", "text/markdown # Getting started\n"),
        ("getting-started.md", "text/markdown # Getting started\n"),
        ("resources/getting-started.md", "text/markdown # Getting started\n"),
        ("resource://data/prices.csv", "text/csv a,b\n1,2\n"),
        ("resource://data/prices.json", "application/json {}"),
        ("data/prices.csv", "text/csv a,b\n1,2\n"),
        ("resource://with%20space", "text/plain x"),
        ("with space.txt", "text/plain x"),
        ("resource://logo", "image/png base64:iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"),
        ("docs://own", "text/markdown Own"),
        ("own.md", "text/markdown Own"),
        ("resource://unlisted", "text/markdown secret of a kind"),
        ("resource://data/prices", "-32602 unknown resource `resource://data/prices`"),
        ("resource://nothing", "-32602 unknown resource `resource://nothing`"),
        ("resource://.hidden", "-32602 unknown resource `resource://.hidden`"),
    ] {
        assert_eq!(read(&server, reference), expected, "{reference}");
    }
    // Before 2026-07-28 an unknown resource has a code of its own.
    let legacy = server.legacy("resources/read", r#""uri":"resource://nothing""#);
    assert!(legacy.contains("-32002"), "{legacy}");
}

#[test]
fn content_is_text_only_if_nothing_is_lost() {
    let folder = TestFolder::new(&[("resources/empty.txt", "")]);
    folder.write("resources/latin.txt", b"gr\xf6\xdfe");
    folder.write("resources/bom.txt", "\u{feff}x");
    folder.write("resources/nul.json", "\"\0\"");
    folder.write("resources/image.txt", PNG);
    let server = folder.serve();
    for (reference, expected) in [
        ("resource://empty", "text/plain "),
        ("resource://latin", "text/plain base64:Z3L232U="),
        ("resource://bom", "text/plain \u{feff}x"),
        ("resource://nul", "application/json \"\0\""),
        ("resource://image", "image/png base64:iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"),
    ] {
        assert_eq!(read(&server, reference), expected, "{reference}");
    }
}

#[test]
fn a_large_file_is_read_on_another_thread_and_one_that_grew_too_large_is_refused() {
    let folder = TestFolder::new(&[]);
    folder.write("resources/large.txt", "x".repeat(1 << 20));
    folder.write("resources/grows.txt", "x");
    let server = folder.serve();
    assert_eq!(read(&server, "resource://large").len(), "text/plain ".len() + (1 << 20));
    folder.write("resources/grows.txt", vec![b'x'; (8 << 20) + 1]);
    assert_eq!(
        read(&server, "resource://grows"),
        "-32602 `params.uri`: the resource exceeds the limit of 8388608 bytes"
    );
    std::fs::remove_file(folder.path("resources/grows.txt")).expect("removed");
    assert_eq!(read(&server, "resource://grows"), "-32602 unknown resource `resource://grows`");
}

#[test]
fn the_manifest_wins_over_front_matter() {
    let folder = TestFolder::new(&[("resources/getting-started.md", GUIDE), ("resources/data.bin", "x")]);
    let mut settings = folder.folder();
    settings.resources = vec![
        ResourceSettings {
            path: "getting-started.md".into(),
            uri: Some("docs://start".into()),
            title: Some("Start here".into()),
            ..ResourceSettings::default()
        },
        ResourceSettings {
            path: "data.bin".into(),
            mime_type: Some("application/x-custom".into()),
            annotations: Annotations {
                audience: vec![Role::Assistant],
                priority: Some("1".into()),
                last_modified: Some(LastModified::At("2026-01-02".into())),
            },
            listed: Some(true),
            ..ResourceSettings::default()
        },
    ];
    let server = TestServer::new(load_clean(&settings), Arc::new(NoBackend));
    insta::assert_snapshot!("resources_list_with_settings", pretty(&server.modern("resources/list", "")));
    assert_eq!(read(&server, "docs://start"), "text/markdown # Getting started\n");
    assert_eq!(read(&server, "resource://data"), "application/x-custom base64:eA==");
}

#[test]
fn the_time_of_the_file_can_be_an_annotation() {
    let folder = TestFolder::new(&[("resources/a.md", "---\nlast_modified: file\n---\nx")]);
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    let file = std::fs::File::options().write(true).open(folder.path("resources/a.md")).expect("open");
    file.set_times(std::fs::FileTimes::new().set_modified(time)).expect("set");
    let list = folder.serve().modern("resources/list", "");
    assert!(list.contains(r#""annotations":{"lastModified":"2023-11-14T22:13:20Z"}"#), "{list}");
}

#[test]
fn front_matter_of_another_program_stays_in_the_text() {
    let text = "---\nlayout: post\ntitle: A post\n---\nHello";
    let folder = TestFolder::new(&[("resources/post.md", text), ("resources/rule.md", "---\nnot closed")]);
    let (loaded, diagnostics) = folder.load();
    insta::assert_snapshot!("foreign_front_matter", contract::diagnostic::render_all(&diagnostics, false));
    let server = TestServer::new(loaded, Arc::new(NoBackend));
    assert_eq!(read(&server, "resource://post"), format!("text/markdown {text}"));
    assert_eq!(read(&server, "resource://rule"), "text/markdown ---\nnot closed");
    assert!(server.modern("resources/list", "").contains(r#""title":"A post""#));
}

fn template(uri_template: &str, source: TemplateSource) -> TemplateSettings {
    TemplateSettings {
        uri_template: uri_template.into(),
        name: "order".into(),
        title: Some("One order".into()),
        description: Some("An order by its number.".into()),
        mime_type: Some("application/json".into()),
        annotations: Annotations::default(),
        icons: None,
        source,
        listed: true,
        completions: vec![(
            "id".into(),
            CompletionSource::Collection { collection: "orders".into(), field: "id".into() },
        )],
        location: None,
    }
}

#[test]
fn templates_read_collections_and_scripts() {
    let folder = TestFolder::new(&[("resources/a.md", "x")]);
    let mut settings = folder.folder();
    settings.templates = vec![
        template("orders://{id}", TemplateSource::Collection { collection: "orders".into() }),
        template("report://{id}/{+path}{?lang}", TemplateSource::Script { file: "report.ts".into() }),
    ];
    let server = TestServer::new(load_clean(&settings), Arc::new(TestBackend));
    insta::assert_snapshot!("templates_list", pretty(&server.modern("resources/templates/list", "")));
    let record = |text: &str| format!("application/json {text}");
    assert_eq!(read(&server, "orders://7"), record(r#"Collection { collection: "orders" } [("id", "7")]"#));
    assert_eq!(
        read(&server, "orders://a%2Fb"),
        record(r#"Collection { collection: "orders" } [("id", "a/b")]"#)
    );
    assert_eq!(
        read(&server, "report://7/a/b.pdf?lang=de"),
        record(r#"Script { file: "report.ts" } [("id", "7"), ("path", "a/b.pdf"), ("lang", "de")]"#)
    );
    for unknown in
        ["orders://none", "orders://", "orders://a/b", "report://7/../x", "orders://%00", "other://7"]
    {
        assert_eq!(read(&server, unknown), format!("-32602 unknown resource `{unknown}`"));
    }
    let complete = |variable: &str| {
        let params = format!(
            r#""ref":{{"type":"ref/resource","uri":"orders://{{id}}"}},"argument":{{"name":"{variable}","value":"1"}}"#
        );
        server.modern("completion/complete", &params)
    };
    assert!(complete("id").contains(r#""values":["1orders.id.0.0","#), "{}", complete("id"));
    assert!(complete("other").contains("unknown argument `other`"), "{}", complete("other"));
}
