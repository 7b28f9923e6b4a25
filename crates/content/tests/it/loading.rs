//! Diagnostics: every problem has its place and a way out, and one broken file never takes the others along.

use content::{Annotations, ResourceSettings, TemplateSettings, TemplateSource};
use contract::diagnostic::render_all;

use crate::harness::TestFolder;

/// The diagnostics of one prompt, beside one that is fine.
fn check(text: &str, expected: &str) {
    let folder = TestFolder::new(&[("prompts/p.md", text), ("prompts/fine.md", "fine")]);
    let (loaded, diagnostics) = folder.load();
    let one_line = |diagnostic: &contract::diagnostic::Diagnostic| {
        let at = diagnostic.location.as_ref().map(|at| format!("{at:?}")).unwrap_or_default();
        let help = diagnostic.help.as_deref().expect("a way out");
        format!("{at} {}: {} ({help})", diagnostic.severity.as_str(), diagnostic.message)
    };
    let found = diagnostics.iter().map(one_line).collect::<Vec<_>>().join("\n");
    assert_eq!(found, expected, "{text}");
    let is_served = loaded.catalog().prompts.iter().any(|prompt| prompt.name == "p");
    assert_eq!(is_served, !found.contains(" error: "), "{found}");
    assert!(loaded.catalog().prompts.iter().any(|prompt| prompt.name == "fine"));
}

#[test]
fn front_matter_is_checked() {
    check(
        "---\ntitle: x\n",
        "prompts/p.md:1:1 error: the front matter is not closed (add a line with `---` after it)",
    );
    check("---\ntitel: x\n---\ny", "prompts/p.md:2:1 error: unknown key `titel` (did you mean `title`?)");
    check(
        "---\nzzzzzzz: x\n---\ny",
        "prompts/p.md:2:1 error: unknown key `zzzzzzz` (known keys: title, description, icons, arguments)",
    );
    check(
        "---\ntitle: [x]\n---\ny",
        "prompts/p.md:2:8 error: `title`: expected a text, found a list (write a text)",
    );
    check(
        "---\ntitle: x\ntitle: y\n---\nz",
        "prompts/p.md:3:1 error: `title` occurs twice (remove one of them)",
    );
    check(
        "---\ntitle: *x\n---\nz",
        "prompts/p.md:2:8 error: invalid YAML: while parsing node, found unknown anchor (quote texts that contain `: `, `#`, `[`, `{` or begin with `*`, `&`, `!`, `@`)",
    );
    check(
        "---\nicons: [{src: 'javascript:alert(1)'}]\n---\ny",
        "prompts/p.md:2:9 error: an icon needs `src`, an https:// or data:image/ URI (add `src: https://…`)",
    );
    check("---\ntitle: 7\n---\ny", "");
    check("---\ntitle:\n---\ny", "");
    check("", "prompts/p.md:1:1 error: the prompt has no text (write it after the front matter)");
    check(
        "---\ntitle: x\n---\n \n",
        "prompts/p.md:5:1 error: the prompt has no text (write it after the front matter)",
    );
}

#[test]
fn arguments_are_checked() {
    let with = |arguments: &str| format!("---\narguments: {arguments}\n---\n{{{{a}}}}");
    check(&with("[a]"), "");
    check(
        &with("a"),
        "prompts/p.md:2:12 error: `arguments`: expected a list, found a text (write a list)\nprompts/p.md:4:1 error: unknown argument `a` (add it to `arguments` in the front matter, or write `\\{{` for two braces)",
    );
    check(
        &with("[a, 7]"),
        "prompts/p.md:2:16 error: an argument is a name or a mapping, not a number (write `- name: topic`)",
    );
    check(&with("[a, {title: x}]"), "prompts/p.md:2:16 error: an argument needs a `name` (add `name: …`)");
    check(
        &with("[a, a]"),
        "prompts/p.md:2:16 error: two arguments have the name `a` (choose another name, such as `topic`)",
    );
    check(
        &with("[a, 'b c']"),
        "prompts/p.md:2:16 error: `b c` is not a name: letters, digits, `_`, `-` and `.` are (choose another name, such as `topic`)",
    );
    check(
        &with("[a, this]"),
        "prompts/p.md:2:16 error: `this` has a meaning in templates (choose another name, such as `topic`)",
    );
    check(
        &with("[{name: a, required: maybe}]"),
        "prompts/p.md:2:33 error: `required`: expected `true` or `false`, found a text (write `true` or `false`)",
    );
    check(
        &with("[{name: a, enum: []}]"),
        "prompts/p.md:2:13 error: `enum` is empty (list the values, or remove `enum`)",
    );
    check(
        &with("[{name: a, complete: x}]"),
        "prompts/p.md:2:33 error: `complete`: expected a list or a mapping, found a text (list the values, or name a collection and a field)",
    );
    check(
        &with("[{name: a, complete: {collection: c}}]"),
        "prompts/p.md:2:33 error: `complete` needs a collection and a field, or files (write `{ collection: customers, field: email }` or `{ files: guides }`)",
    );
    check(
        &with("[{name: a, reqired: true}]"),
        "prompts/p.md:2:23 error: unknown key `reqired` (did you mean `required`?)",
    );
    check(
        &with("[a, b]"),
        "prompts/p.md:2:16 warning: argument `b` is not used (write `{{b}}` where its value belongs, or remove it)",
    );
}

#[test]
fn templates_are_checked() {
    let with = |body: &str| {
        format!(
            "---\narguments: [a, {{name: xs, list: true}}]\n---\n{{{{! {{a}} }}}}{{{{a}}}}{{{{#each xs}}}}{{{{/each}}}}\n{body}"
        )
    };
    check(
        &with("{{b}}"),
        "prompts/p.md:5:1 error: unknown argument `b` (add it to `arguments` in the front matter, or write `\\{{` for two braces)",
    );
    check(
        &with("{{}}"),
        "prompts/p.md:5:1 error: the tag names no argument (name an argument, or write `\\{{` for two braces)",
    );
    check(
        &with("x {{a"),
        "prompts/p.md:5:3 error: `{{` without `}}` (close the tag, or write `\\{{` for two braces)",
    );
    check(&with("{{#if a}}x"), "prompts/p.md:5:1 error: `{{#if}}` is not closed (add `{{/if}}`)");
    check(&with("{{#each xs}}x"), "prompts/p.md:5:1 error: `{{#each}}` is not closed (add `{{/each}}`)");
    check(
        &with("{{/if}}"),
        "prompts/p.md:5:1 error: `{{/if}}` closes nothing (remove it, or open the block first)",
    );
    check(
        &with("{{#if a}}{{/each}}{{/if}}"),
        "prompts/p.md:5:10 error: `{{/each}}` closes nothing (the open block is closed by `{{/if}}`)",
    );
    check(
        &with("{{else}}"),
        "prompts/p.md:5:1 error: `{{else}}` outside `{{#if}}` (write it between `{{#if …}}` and `{{/if}}`)",
    );
    check(
        &with("{{#if a}}{{else}}{{else}}{{/if}}"),
        "prompts/p.md:5:1 error: this block has two `{{else}}` (remove one)",
    );
    check(
        &with("{{#each xs}}{{else}}{{/each}}"),
        "prompts/p.md:5:1 error: `{{#each}}` has no `{{else}}` (put `{{#if}}` around the loop)",
    );
    check(
        &with("{{#each a}}{{/each}}"),
        "prompts/p.md:5:1 error: `a` is one text, not a list (add `list: true` to the argument in the front matter)",
    );
    check(
        &with("{{#for a}}"),
        "prompts/p.md:5:1 error: unknown block `#for` (known blocks: `{{#if name}}` and `{{#each name}}`)",
    );
    check(
        &with("{{this}}"),
        "prompts/p.md:5:1 error: `this` is the item of a loop (use it between `{{#each name}}` and `{{/each}}`)",
    );
    check(
        &with("{{role system}}"),
        "prompts/p.md:5:1 error: unknown role `system` (write `{{role user}}` or `{{role assistant}}`; MCP prompts have no other role)",
    );
    check(
        &with("{{resource resource://x}}"),
        "prompts/p.md:5:1 error: unknown resource `resource://x` (name a resource of this folder by its URI or path, or an argument that has one)",
    );
    check(
        &with(&("{{#if a}}".repeat(17) + &"{{/if}}".repeat(17))),
        "prompts/p.md:5:145 error: blocks are nested too deeply (use fewer levels)",
    );
}

#[test]
fn other_files_are_checked() {
    let folder = TestFolder::new(&[
        ("resources/a.md", "---\nuri: docs://x\n---\nA"),
        ("resources/b.md", "---\nuri: docs://x\n---\nB"),
        ("resources/c.md", "---\nuri: not a uri\n---\nC"),
        (
            "resources/d.md",
            "---\npriority: 2\naudience: everyone\nlast_modified: yesterday\nlisted: nope\n---\nD",
        ),
        ("resources/fine.md", "fine"),
        ("prompts", "a file where a folder should be"),
    ]);
    folder.write("resources/large.txt", vec![b'x'; (8 << 20) + 1]);
    let mut settings = folder.folder();
    settings.resources = vec![ResourceSettings { path: "fina.md".into(), ..ResourceSettings::default() }];
    let template = |uri_template: &str| TemplateSettings {
        uri_template: uri_template.into(),
        name: "t".into(),
        title: None,
        description: None,
        mime_type: None,
        annotations: Annotations::default(),
        icons: None,
        source: TemplateSource::Collection { collection: "c".into() },
        listed: true,
        completions: vec![("idd".into(), content::CompletionSource::Values(Vec::new()))],
        location: None,
    };
    settings.templates = vec![template("t://{#id}"), template("t://{id}"), template("t://{id}")];
    let (loaded, diagnostics) = settings.load();
    insta::assert_snapshot!("other_files", render_all(&diagnostics, false));
    let uris: Vec<&str> = loaded.catalog().resources.iter().map(|resource| resource.uri.as_str()).collect();
    assert_eq!(uris, ["docs://x", "resource://fine"]);
}

#[test]
fn folders_are_bounded() {
    let folder =
        TestFolder::new(&[("resources/a/b/c/x.md", "x"), ("resources/1.md", "1"), ("resources/2.md", "2")]);
    folder.write("prompts/large.md", "x".repeat(300 << 10));
    folder.write("prompts/latin.md", b"gr\xf6\xdfe");
    let mut settings = folder.folder();
    settings.limits.folder_depth_max = 2;
    settings.limits.files_max = 1;
    let (_, diagnostics) = settings.load();
    insta::assert_snapshot!("bounded_folders", render_all(&diagnostics, false));
}

#[test]
fn a_folder_without_content_is_empty() {
    let (loaded, diagnostics) = TestFolder::new(&[("readme.md", "x")]).load();
    assert!(loaded.is_empty() && diagnostics.is_empty());
    assert!(!loaded.catalog().resource_subscriptions && !loaded.catalog().completions);
}
