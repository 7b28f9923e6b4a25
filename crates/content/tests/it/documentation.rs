//! Runs every example of docs/prompts-and-resources.md: a block with a path is a file, and each request is followed by its
//! result or error.

use json::{Node, NodeKind};

use crate::harness::TestFolder;

const DOCUMENT: &str = include_str!("../../../../docs/prompts-and-resources.md");

/// A fenced block: the word after its language, and its text.
struct Block {
    role: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let role = info.split_once(' ').map(|(_, role)| role.to_owned()).unwrap_or_default();
        let text: String =
            lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
        blocks.push(Block { role, text });
    }
    blocks
}

/// Whether `actual` has everything that `expected` has. A list must have exactly the same items.
fn assert_contains(actual: Node<'_>, expected: Node<'_>, path: &str) {
    match expected.kind() {
        NodeKind::Object => {
            for (key, value) in expected.members() {
                let key = key.str().expect("a key");
                let found =
                    actual.get(&key).unwrap_or_else(|| panic!("{path}.{key} is missing: {}", actual.raw()));
                assert_contains(found, value, &format!("{path}.{key}"));
            }
        }
        NodeKind::Array => {
            assert_eq!(actual.len(), expected.len(), "{path}: {}", actual.raw());
            for (index, (found, value)) in actual.elements().zip(expected.elements()).enumerate() {
                assert_contains(found, value, &format!("{path}[{index}]"));
            }
        }
        _ => assert_eq!(actual.raw(), expected.raw(), "{path}"),
    }
}

#[test]
fn every_example_works_as_written() {
    let blocks = blocks();
    let folder = TestFolder::new(&[]);
    for block in blocks.iter().filter(|block| block.role.contains('/')) {
        folder.write(&block.role, &block.text);
    }
    let server = folder.serve();
    let mut examples = 0;
    let mut rest = blocks.iter().filter(|block| !block.role.is_empty() && !block.role.contains('/'));
    while let Some(request) = rest.next() {
        assert_eq!(request.role, "request");
        let answer = rest.next().expect("a result follows each request");
        assert!(matches!(answer.role.as_str(), "result" | "error"), "{}", answer.role);
        let request = json::Json::parse(&request.text).expect("JSON").to_doc();
        let method = request.root().get("method").and_then(|method| method.str()).expect("a method");
        let params = request.root().get("params").expect("params").raw().trim();
        let params =
            params.strip_prefix('{').and_then(|params| params.strip_suffix('}')).expect("an object").trim();
        let expected = json::Json::parse(&answer.text).expect("JSON").to_doc();
        // Lists have the files of all sections: those of one folder are compared.
        let mut actual = json::Json::parse(&server.modern(&method, params)).expect("JSON").to_doc();
        if method == "resources/list" {
            let listed: Vec<String> = actual
                .root()
                .get("resources")
                .expect("a list")
                .elements()
                .filter(|item| item.raw().contains(r#""uri":"resource://"#))
                .map(|item| item.raw().to_owned())
                .collect();
            actual = json::Json::parse(&format!(r#"{{"resources":[{}]}}"#, listed.join(",")))
                .expect("JSON")
                .to_doc();
        }
        let is_error = actual.root().get("code").is_some();
        assert_eq!(is_error, answer.role == "error", "{}", actual.text());
        assert_contains(actual.root(), expected.root(), &method);
        examples += 1;
    }
    assert_eq!(examples, 8);
}
