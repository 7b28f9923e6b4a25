//! `spile skills` and `spile skill`, with a server of a folder.

use insta::assert_snapshot;

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
