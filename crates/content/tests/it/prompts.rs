//! Prompts on the wire: rendering, arguments, embedded resources, completion.

use std::sync::Arc;

use content::{NoBackend, TemplateSettings, TemplateSource};
use proptest::prelude::*;

use crate::harness::{PNG, TestBackend, TestFolder, TestServer, load_clean, pretty};

const REVIEW: &str = "---
title: Review code
description: Review a piece of code.
arguments:
  - name: code
    description: The code to review.
    required: true
  - name: language
    enum: [Rust, Python]
  - name: rules
    list: true
icons:
  - src: https://example.com/icon.png
    mimeType: image/png
    sizes: [48x48]
---
Review this {{#if language}}{{language}} {{/if}}code:

{{code}}

{{#if rules}}
Rules:
{{#each rules}}
- {{this}}
{{/each}}
{{else}}
Use your own judgement.
{{/if}}

{{role assistant}}

I will look at correctness first.
";

/// The messages of a prompt: `role: text`.
fn messages(server: &TestServer, name: &str, arguments: &str) -> String {
    let params = format!(r#""name":"{name}","arguments":{arguments}"#);
    let answer = server.modern("prompts/get", &params);
    let legacy = server.legacy("prompts/get", &params);
    let doc = json::Json::parse(&answer).expect("JSON").to_doc();
    let Some(found) = doc.root().get("messages") else {
        return doc.root().get("message").and_then(|message| message.str()).expect("an error").into_owned();
    };
    let legacy = json::Json::parse(&legacy).expect("JSON").to_doc();
    assert_eq!(legacy.root().get("messages").expect("messages").raw(), found.raw(), "both eras say the same");
    let message = |node: json::Node<'_>| {
        let content = node.get("content").expect("content");
        let role = node.get("role").and_then(|role| role.str()).expect("a role").into_owned();
        match content.get("text").and_then(|text| text.str()) {
            Some(text) => format!("{role}: {text}"),
            None => format!("{role}: {}", content.raw()),
        }
    };
    found.elements().map(message).collect::<Vec<_>>().join("\n---\n")
}

/// Renders the body of a prompt with the arguments `a`, `b` (texts) and `xs` (a list).
fn check(body: &str, arguments: &str, expected: &str) {
    let text = format!("---\narguments: [a, b, {{name: xs, list: true}}]\n---\n{body}");
    let folder = TestFolder::new(&[
        ("prompts/p.md", &text),
        ("resources/guide.md", "The guide."),
        ("resources/x/y.txt", "Y"),
    ]);
    folder.write("resources/dot.png", PNG);
    let (loaded, diagnostics) = folder.load();
    // Unused arguments are warnings.
    let rendered = contract::diagnostic::render_all(&diagnostics, false);
    assert!(!rendered.contains("error:"), "{rendered}");
    let server = TestServer::new(loaded, Arc::new(NoBackend));
    assert_eq!(messages(&server, "p", arguments), expected, "{body}");
}

#[test]
fn a_prompt_is_listed_and_rendered() {
    let server = TestFolder::new(&[("prompts/review.md", REVIEW)]).serve();
    insta::assert_snapshot!("prompts_list_modern", pretty(&server.modern("prompts/list", "")));
    insta::assert_snapshot!("prompts_list_legacy", pretty(&server.legacy("prompts/list", "")));
    let arguments =
        r#""name":"review","arguments":{"code":"fn main() {}","language":"Rust","rules":"short, clear"}"#;
    insta::assert_snapshot!("prompts_get", pretty(&server.modern("prompts/get", arguments)));
    assert_eq!(
        messages(&server, "review", r#"{"code":"x"}"#),
        "user: Review this code:\n\nx\n\nUse your own judgement.\n---\nassistant: I will look at correctness first."
    );
}

#[test]
fn tags_do_what_the_documentation_says() {
    check("{{a}}", r#"{"a":"1"}"#, "user: 1");
    check("{{ a }}-{{b}}", r#"{"a":"1","b":"2"}"#, "user: 1-2");
    check("[{{a}}]", "{}", "user: []");
    check("{{#if a}}yes{{else}}no{{/if}}", r#"{"a":"x"}"#, "user: yes");
    check("{{#if a}}yes{{else}}no{{/if}}", r#"{"a":""}"#, "user: no");
    check("{{#if a}}yes{{else}}no{{/if}}", "{}", "user: no");
    check("{{#if xs}}yes{{else}}no{{/if}}", r#"{"xs":" , "}"#, "user: no");
    check("{{#if a}}{{#if b}}both{{else}}one{{/if}}{{/if}}", r#"{"a":"x"}"#, "user: one");
    check("{{#each xs}}<{{this}}>{{/each}}", r#"{"xs":"1, 2,3"}"#, "user: <1><2><3>");
    check("{{#each xs}}{{#if a}}{{this}}{{/if}}{{/each}}.", r#"{"xs":"1"}"#, "user: .");
    check("{{#each xs}}{{#each xs}}{{this}}{{/each}};{{/each}}", r#"{"xs":"1,2"}"#, "user: 12;12;");
    check("{{xs}}", r#"{"xs":"1\n2"}"#, "user: 1, 2");
    check("a {{! a comment }}b", "{}", "user: a b");
    check(r"\{{a}} and {{a}}", r#"{"a":"1"}"#, "user: {{a}} and 1");
    check("single { braces } }} stay", "{}", "user: single { braces } }} stay");
    check("first\n{{#if a}}\nmiddle\n{{/if}}\nlast", r#"{"a":"x"}"#, "user: first\nmiddle\nlast");
    check("first\n  {{#if a}}  \nmiddle\n{{/if}}\nlast", "{}", "user: first\nlast");
    check("{{role assistant}}\nhello", "{}", "assistant: hello");
    check("q\n{{role assistant}}\na\n{{role user}}\nq2", "{}", "user: q\n---\nassistant: a\n---\nuser: q2");
    check(
        "{{#each xs}}{{role user}}{{this}}{{role assistant}}ok{{/each}}",
        r#"{"xs":"1,2"}"#,
        "user: 1\n---\nassistant: ok\n---\nuser: 2\n---\nassistant: ok",
    );
    check("text\r\nwith {{a}}\r\n", r#"{"a":"1"}"#, "user: text\r\nwith 1");
}

#[test]
fn a_value_is_inserted_as_it_is() {
    check("{{a}}", r#"{"a":"{{b}} {{#if a}} {{resource x}}"}"#, "user: {{b}} {{#if a}} {{resource x}}");
    check("{{a}}", r#"{"a":"![x](dot.png)"}"#, "user: ![x](dot.png)");
    check("{{a}}", r#"{"a":"\n  spaces stay \n"}"#, "user: \n  spaces stay \n");
    check("\n\n{{a}}\n\n", r#"{"a":" x "}"#, "user:  x ");
    check("{{#each xs}}{{this}}{{/each}}", r#"{"xs":"{{a}}"}"#, "user: {{a}}");
    check("---\n{{a}}", r#"{"a":"---\nname: x\n---"}"#, "user: ---\n---\nname: x\n---");
}

#[test]
fn resources_and_media_are_embedded() {
    let guide = r#"user: {"type":"resource","resource":{"uri":"resource://guide","mimeType":"text/markdown","text":"The guide."}}"#;
    check("{{resource resource://guide}}", "{}", guide);
    check("{{resource guide.md}}", "{}", guide);
    check("{{resource \"resources/guide.md\"}}", "{}", guide);
    check("{{resource a}}", r#"{"a":"resource://guide"}"#, guide);
    check("{{resource a}}before", "{}", "user: before");
    check(
        "before\n{{resource resource://guide}}\nafter",
        "{}",
        &format!("user: before\n---\n{guide}\n---\nuser: after"),
    );
    check(
        "{{resource a}}",
        r#"{"a":"x/y.txt"}"#,
        r#"user: {"type":"resource","resource":{"uri":"resource://x/y","mimeType":"text/plain","text":"Y"}}"#,
    );
    check(
        "{{resource a}}",
        r#"{"a":"../../etc/passwd"}"#,
        "`params.arguments.a`: unknown resource `../../etc/passwd`",
    );
    let image = "user: {\"type\":\"image\",\"data\":\"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ\",\"mimeType\":\"image/png\"}";
    check("![A dot](../resources/dot.png)", "{}", image);
    check(
        "Look:\n\n![A dot](../resources/dot.png \"title\")\n\nWell?",
        "{}",
        &format!("user: Look:\n---\n{image}\n---\nuser: Well?"),
    );
    // Not alone on its line, in code, or elsewhere: text.
    check("see ![A dot](../resources/dot.png)", "{}", "user: see ![A dot](../resources/dot.png)");
    check("```\n![A dot](../resources/dot.png)\n```", "{}", "user: ```\n![A dot](../resources/dot.png)\n```");
    check("![x](https://example.com/x.png)", "{}", "user: ![x](https://example.com/x.png)");
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    let server = TestFolder::new(&[("prompts/review.md", REVIEW)]).serve();
    for (arguments, expected) in [
        ("{}", "`params.arguments.code`: missing"),
        (r#"{"code":1}"#, "`params.arguments.code`: expected a string"),
        (r#"{"code":"x","rules":1}"#, "`params.arguments.rules`: expected a string"),
        (r#"{"code":"x","rules":["a"]}"#, "`params.arguments.rules`: expected a string"),
        (
            r#"{"code":"x","langauge":"Rust"}"#,
            "`params.arguments.langauge`: unknown argument; did you mean `language`?",
        ),
        (
            r#"{"code":"x","zzzzzz":"Rust"}"#,
            "`params.arguments.zzzzzz`: unknown argument; known arguments: code, language, rules",
        ),
        (r#"{"code":"x","language":"rust"}"#, "`params.arguments.language`: expected one of: Rust, Python"),
    ] {
        assert_eq!(messages(&server, "review", arguments), expected, "{arguments}");
        let error = server.modern("prompts/get", &format!(r#""name":"review","arguments":{arguments}"#));
        assert!(error.contains("-32602"), "{error}");
    }
    let unknown = server.modern("prompts/get", r#""name":"other""#);
    assert!(unknown.contains("-32602") && unknown.contains("unknown prompt `other`"), "{unknown}");
}

#[test]
fn what_rendering_may_take_is_bounded() {
    let loops = "{{#each xs}}".repeat(6) + "x" + &"{{/each}}".repeat(6);
    let text = format!("---\narguments: [{{name: xs, list: true}}]\n---\n{loops}");
    let server = TestFolder::new(&[("prompts/bomb.md", &text)]).serve();
    let items = "a,".repeat(1000);
    let answer = messages(&server, "bomb", &format!(r#"{{"xs":"{items}"}}"#));
    assert_eq!(answer, "`params.arguments`: the prompt exceeds the limit of 1048576 bytes");
}

#[test]
fn arguments_are_completed_from_enums_files_and_collections() {
    let prompt = "---
arguments:
  - {name: language, enum: [Rust, Python, Ruby]}
  - {name: topic, complete: [loops, lists]}
  - {name: guide, complete: {files: guides}}
  - {name: any, complete: {files: .}}
  - {name: email, complete: {collection: customers, field: email}}
  - {name: free}
---
{{language}}{{topic}}{{guide}}{{any}}{{email}}{{free}}";
    let folder = TestFolder::new(&[
        ("prompts/p.md", prompt),
        ("resources/guides/start.md", "x"),
        ("resources/guides/more/deep.md", "x"),
        ("resources/guidesbook.md", "x"),
        ("resources/hidden.md", "---\nlisted: false\n---\nx"),
    ]);
    let server = TestServer::new(load_clean(&folder.folder()), Arc::new(TestBackend));
    let complete = |argument: &str, value: &str| {
        let params = format!(
            r#""ref":{{"type":"ref/prompt","name":"p"}},"argument":{{"name":"{argument}","value":"{value}"}},"context":{{"arguments":{{"topic":"loops"}}}}"#
        );
        let answer = server.modern("completion/complete", &params);
        let legacy = server.legacy("completion/complete", &params);
        let doc = json::Json::parse(&answer).expect("JSON").to_doc();
        match doc.root().get("completion") {
            Some(found) => {
                assert!(legacy.contains(found.raw()), "{legacy}");
                found.raw().to_owned()
            }
            None => doc.root().get("message").and_then(|text| text.str()).expect("an error").into_owned(),
        }
    };
    for (argument, value, expected) in [
        ("language", "", r#"{"values":["Rust","Python","Ruby"],"total":3,"hasMore":false}"#),
        ("language", "ru", r#"{"values":["Rust","Ruby"],"total":2,"hasMore":false}"#),
        ("language", "x", r#"{"values":[],"total":0,"hasMore":false}"#),
        ("topic", "LO", r#"{"values":["loops"],"total":1,"hasMore":false}"#),
        ("guide", "", r#"{"values":["guides/more/deep.md","guides/start.md"],"total":2,"hasMore":false}"#),
        ("any", "guides/s", r#"{"values":["guides/start.md"],"total":1,"hasMore":false}"#),
        ("any", "h", r#"{"values":[],"total":0,"hasMore":false}"#),
        ("free", "x", r#"{"values":[],"hasMore":false}"#),
        ("nothing", "x", "`params.argument.name`: unknown argument `nothing`"),
    ] {
        assert_eq!(complete(argument, value), expected, "{argument} {value}");
    }
    let emails = complete("email", "d");
    assert!(emails.starts_with(r#"{"values":["dcustomers.email.0.1","#), "{emails}");
    assert!(emails.ends_with(r#""dcustomers.email.99.1"],"hasMore":true}"#), "{emails}");
}

#[test]
fn a_prompt_embeds_a_record() {
    let folder = TestFolder::new(&[(
        "prompts/p.md",
        "---\narguments: [{name: order, required: true}]\n---\nExplain:\n{{resource order}}\n{{resource orders://7}}",
    )]);
    let mut settings = folder.folder();
    settings.templates = vec![TemplateSettings {
        uri_template: "orders://{id}".into(),
        name: "order".into(),
        title: None,
        description: None,
        mime_type: Some("application/json".into()),
        annotations: content::Annotations::default(),
        icons: None,
        source: TemplateSource::Collection { collection: "orders".into() },
        listed: true,
        completions: Vec::new(),
        location: None,
    }];
    let server = TestServer::new(load_clean(&settings), Arc::new(TestBackend));
    insta::assert_snapshot!(
        "prompt_with_record",
        pretty(&server.modern("prompts/get", r#""name":"p","arguments":{"order":"orders://8"}"#))
    );
    assert_eq!(
        messages(&server, "p", r#"{"order":"orders://none"}"#),
        "`params.arguments.order`: unknown resource `orders://none`"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a value is, it arrives as it was sent.
    #[test]
    fn any_text_is_inserted_verbatim(value in "\\PC*|(\\{\\{[#/a-z ]*\\}\\}|[\\s\\S]){0,20}") {
        let folder = TestFolder::new(&[("prompts/p.md", "---\narguments: [a]\n---\n[{{a}}]")]);
        let server = folder.serve();
        let mut json = Vec::new();
        json::write::string(&mut json, &value);
        let arguments = format!(r#"{{"a":{}}}"#, String::from_utf8(json).expect("UTF-8"));
        prop_assert_eq!(messages(&server, "p", &arguments), format!("user: [{value}]"));
    }

    /// Whatever a file is, loading and rendering it end without a panic, and its neighbour is served.
    #[test]
    fn no_prompt_file_takes_the_others_down(
        body in "(\\{\\{(#if a|#each xs|/if|/each|else|this|a|xs|role user|resource a|! x)\\}\\}|---\n|!\\[x\\]\\(y\\.png\\)\n|```\n|\\\\|\n|[a-z \u{e9}{}]){0,30}",
        head in prop::option::of("(a|b|arguments|: |\\[|\\]|- |name|\n|\"|#|[a-z]){0,15}"),
    ) {
        let head = head.unwrap_or_else(|| "arguments: [a, {name: xs, list: true}]".into());
        let text = format!("---\n{head}\n---\n{body}");
        let folder = TestFolder::new(&[("prompts/p.md", &text), ("prompts/other.md", "fine")]);
        let (loaded, _) = folder.load();
        let server = TestServer::new(loaded, Arc::new(NoBackend));
        server.modern("prompts/get", r#""name":"p","arguments":{"a":"1","xs":"1,2"}"#);
        prop_assert_eq!(messages(&server, "other", "{}"), "user: fine");
    }
}
