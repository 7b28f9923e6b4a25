//! `spile skills` and `spile skill`, with a server of a folder.

use insta::assert_snapshot;
use serde_json::json;

use crate::gateway::{project_with, request, spile_serve, start};
use crate::harness::TestProject;

fn project() -> TestProject {
    TestProject::new(&[
        (
            "skills/invoices/SKILL.md",
            b"---\nname: invoices\ndescription: Write and check invoices\n---\n\nStart with `references/tax.md`.\n",
        ),
        ("skills/invoices/references/tax.md", b"19 % unless the goods are books.\n"),
        ("skills/invoices/logo.png", b"\x89PNG\r\n\x1a\n\x00\x00"),
    ])
}

#[test]
fn skills_are_listed_and_read() {
    let project = project();
    assert_snapshot!("skills", project.run(&["skills", "."]));
    assert_snapshot!("skill", project.run(&["skill", "invoices", "--from", "."]));
    assert_snapshot!("skill_file", project.run(&["skill", "invoices", "references/tax.md", "--from", "."]));
    assert_eq!(
        project.run(&["skill", "invoices", "logo.png", "--save", "x.png", "--from", "."]).code,
        Some(0)
    );
    let saved = std::fs::read(project.folder.join("x.png")).expect("written");
    assert_eq!(saved, b"\x89PNG\r\n\x1a\n\x00\x00");
}

#[test]
fn skills_pass_the_gateway() {
    let project = project();
    let gateway =
        project_with(&json!({"office": spile_serve(&project.folder.display().to_string())}), &json!({}));
    let served = start(&gateway, &[]);
    for path in ["/mcp", "/mcp/office"] {
        let url = format!("http://{}{path}", served.address);
        let run = |args: &[&str]| project.run(&[args, &["--url", &url]].concat());
        let listed = run(&["skills"]);
        assert!(listed.stdout.contains("invoices") && listed.code == Some(0), "{listed}");
        let read = run(&["skill", "invoices"]);
        assert!(read.stdout.contains("Start with `references/tax.md`."), "{read}");
        let file = run(&["skill", "invoices", "references/tax.md"]);
        assert!(file.stdout.contains("19 % unless"), "{file}");
        assert_ne!(run(&["skill", "other"]).code, Some(0));
        let list = |uri: &str| {
            request(&served, path, "resources/directory/read", uri, json!({"uri": uri})).to_string()
        };
        let root = list("skill://invoices");
        for expected in ["\"SKILL.md\"", "\"logo.png\"", "\"references\"", "inode/directory"] {
            assert!(root.contains(expected), "{expected}: {root}");
        }
        assert!(list("skill://invoices/references").contains("tax.md"));
        assert!(list("skill://none").contains("error"));
    }
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let project = project();
    for (words, expected) in [
        (&["skill", "invoice"][..], "did you mean `invoices`?"),
        (&["skill", "x"], "known skills: invoices"),
        (&["skill", "invoices", "tax.md"], "its files: "),
        (&["skill", "invoices", "../../x"], "the skill has no file `../../x`"),
        (&["skill", "invoices", "logo.png"], "is not text"),
    ] {
        let args: Vec<&str> = words.iter().copied().chain(["--from", "."]).collect();
        let output = project.run(&args);
        assert_ne!(output.code, Some(0), "{output}");
        assert!(output.to_string().contains(expected), "{output}");
    }
    let none = TestProject::example("customers");
    assert!(none.run(&["skills", "--from", "."]).to_string().contains("no skills"));
    assert!(
        none.run(&["skills", "--from", ".", "--protocol", "2025-06-18"]).to_string().contains("no skills")
    );
}
