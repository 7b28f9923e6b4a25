//! Writes test files: the actual result as an expectation, into the file of a test or at the end of one.

use json::{Json, Node, NodeKind, exact_f64};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

use super::matching::KIND_KEY;

/// A shorter expectation stands on one line.
const INLINE_CHARS_MAX: usize = 90;

/// The keys of an expectation.
const EXPECTATION_KEYS: [&str; 5] = ["expect", "exact", "error", "text", "contains"];

/// What a test expects from now on.
#[derive(Debug, Clone)]
pub(crate) enum NewExpectation {
    /// Replaces `expect`, and leaves the other keys.
    Value(Json),
    /// Replaces `text`, and leaves the other keys.
    Text(String),
    /// Replaces everything.
    OnlyValue(Json),
    OnlyText(String),
    OnlyError(Json),
    OnlyRpcError(i64),
}

/// Changes the expectations of some tests, by their position, and keeps the rest of the text as it is.
pub(super) fn update_toml(text: &str, changes: &[(usize, NewExpectation)]) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let tests = document.get_mut("test")?;
    for (index, change) in changes {
        match tests {
            Item::ArrayOfTables(tables) => apply_to_table(tables.get_mut(*index)?, change),
            Item::Value(Value::Array(array)) => {
                let table = array.get_mut(*index)?.as_inline_table_mut()?;
                let mut changed = Table::new();
                apply_to_table(&mut changed, change);
                for key in removed_keys(change) {
                    table.remove(key);
                }
                for (key, item) in changed.iter() {
                    table.insert(key, item.clone().into_value().ok()?);
                }
            }
            Item::None | Item::Value(_) | Item::Table(_) => return None,
        }
    }
    Some(document.to_string())
}

/// A JSON file is written anew: it has nothing but values.
pub(super) fn update_json(text: &str, changes: &[(usize, NewExpectation)]) -> Option<String> {
    let root = Json::parse(text).ok()?;
    let doc = root.to_doc();
    let mut out = Vec::new();
    let mut object = json::write::ObjectWriter::new(&mut out);
    for (name, value) in doc.root().members() {
        let name = name.str()?;
        if name != "test" {
            object.raw(&name, value.raw());
            continue;
        }
        object.array("test", value.elements().enumerate(), |out, (index, test)| {
            let mut entry = json::write::ObjectWriter::new(out);
            let change = changes.iter().find(|(changed, _)| *changed == index).map(|(_, change)| change);
            for (key, value) in test.members() {
                let key = key.str().unwrap_or_default();
                if !change.is_some_and(|change| removed_keys(change).contains(&&*key)) {
                    entry.raw(&key, value.raw());
                }
            }
            if let Some((key, value)) = change.map(new_member) {
                entry.raw(key, value.as_str());
            }
            entry.end();
        });
    }
    object.end();
    let mut pretty = String::new();
    write_pretty(&mut pretty, Json::from_written_bytes(out).to_doc().root(), 0);
    pretty.push('\n');
    Some(pretty)
}

/// Adds a test to a file. `text` is empty for a new one.
pub(crate) fn append_toml(text: &str, test: &RecordedTest) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let tests = document.entry("test").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let Item::ArrayOfTables(tests) = tests else { return None };
    let mut table = Table::new();
    table.insert("name", Item::Value(test.name.as_str().into()));
    table.insert("call", Item::Value(test.tool.as_str().into()));
    if test.arguments.to_doc().root().members().next().is_some() {
        table.insert("arguments", toml_item(test.arguments.to_doc().root()));
    }
    if !test.answers.is_empty() {
        let mut answers = Array::new();
        answers.extend(test.answers.iter().map(|answer| toml_value(answer.to_doc().root())));
        table.insert("answers", Item::Value(Value::Array(answers)));
    }
    apply_to_table(&mut table, &test.expectation);
    if !tests.is_empty() {
        table.decor_mut().set_prefix("\n");
    }
    tests.push(table);
    Some(document.to_string())
}

/// The names of the tests in a file.
pub(crate) fn test_names(text: &str) -> Option<Vec<String>> {
    let document: DocumentMut = text.parse().ok()?;
    let Some(tests) = document.get("test") else { return Some(Vec::new()) };
    let tests = tests.as_array_of_tables()?;
    Some(tests.iter().filter_map(|test| Some(test.get("name")?.as_str()?.to_owned())).collect())
}

/// A call that was made, as a test.
pub(crate) struct RecordedTest {
    pub(crate) name: String,
    pub(crate) tool: String,
    pub(crate) arguments: Json,
    /// As the answers of a test file.
    pub(crate) answers: Vec<Json>,
    pub(crate) expectation: NewExpectation,
}

fn removed_keys(change: &NewExpectation) -> &'static [&'static str] {
    match change {
        NewExpectation::Value(_) => &["expect"],
        NewExpectation::Text(_) => &["text", "contains"],
        NewExpectation::OnlyValue(_)
        | NewExpectation::OnlyText(_)
        | NewExpectation::OnlyError(_)
        | NewExpectation::OnlyRpcError(_) => &EXPECTATION_KEYS,
    }
}

fn new_member(change: &NewExpectation) -> (&'static str, Json) {
    match change {
        NewExpectation::Value(value) | NewExpectation::OnlyValue(value) => ("expect", value.clone()),
        NewExpectation::Text(text) | NewExpectation::OnlyText(text) => ("text", Json::string(text)),
        NewExpectation::OnlyError(value) => ("error", value.clone()),
        NewExpectation::OnlyRpcError(code) => {
            ("error", Json::parse(&code.to_string()).expect("a number is JSON"))
        }
    }
}

fn apply_to_table(table: &mut Table, change: &NewExpectation) {
    let (key, value) = new_member(change);
    for removed in removed_keys(change).iter().filter(|removed| **removed != key) {
        table.remove(removed);
    }
    let mut item = toml_item(value.to_doc().root());
    // A comment behind the old value stays.
    if let (Some(old), Item::Value(new)) = (table.get(key).and_then(Item::as_value), &mut item) {
        *new.decor_mut() = old.decor().clone();
    }
    table.insert(key, item);
}

/// A table of its own for what is too long for one line.
fn toml_item(node: Node<'_>) -> Item {
    let value = toml_value(node);
    if node.kind() != NodeKind::Object || value.to_string().chars().count() <= INLINE_CHARS_MAX {
        return Item::Value(value);
    }
    let mut table = Table::new();
    for (name, member) in node.members() {
        table.insert(&name.str().unwrap_or_default(), Item::Value(long_value(member)));
    }
    Item::Table(table)
}

/// A long list has one element on a line.
fn long_value(node: Node<'_>) -> Value {
    let value = toml_value(node);
    match value {
        Value::Array(mut array) if array.to_string().chars().count() > INLINE_CHARS_MAX => {
            array.iter_mut().for_each(|element| element.decor_mut().set_prefix("\n  "));
            array.set_trailing("\n");
            array.set_trailing_comma(true);
            Value::Array(array)
        }
        value => value,
    }
}

/// TOML has neither null nor numbers of any size: these become `{ is = "…" }`.
fn toml_value(node: Node<'_>) -> Value {
    let kind = |word: &str| {
        let mut table = InlineTable::new();
        table.insert(KIND_KEY, word.into());
        Value::InlineTable(table)
    };
    match node.kind() {
        NodeKind::Null => kind("null"),
        NodeKind::True => true.into(),
        NodeKind::False => false.into(),
        NodeKind::String => node.str().unwrap_or_default().as_ref().into(),
        NodeKind::Number => match (node.raw().parse::<i64>(), exact_f64(node.raw())) {
            (Ok(integer), _) => integer.into(),
            (Err(_), Some(float)) => float.into(),
            (Err(_), None) => kind("number"),
        },
        NodeKind::Array => Value::Array(node.elements().map(toml_value).collect()),
        NodeKind::Object => {
            let mut table = InlineTable::new();
            for (name, value) in node.members() {
                table.insert(&*name.str().unwrap_or_default(), toml_value(value));
            }
            Value::InlineTable(table)
        }
    }
}

fn write_pretty(out: &mut String, node: Node<'_>, depth: usize) {
    let indent = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    let mut compact = Vec::new();
    node.write_compact(&mut compact);
    let compact = String::from_utf8_lossy(&compact).into_owned();
    let is_container = matches!(node.kind(), NodeKind::Object | NodeKind::Array) && !node.is_empty();
    if !is_container || depth > 2 && compact.chars().count() <= INLINE_CHARS_MAX {
        out.push_str(&compact);
        return;
    }
    let (open, close) = if node.kind() == NodeKind::Object { ('{', '}') } else { ('[', ']') };
    out.push(open);
    for (i, (name, value)) in node.members().enumerate() {
        if i > 0 {
            out.push(',');
        }
        indent(out, depth + 1);
        out.push_str(name.raw());
        out.push_str(": ");
        write_pretty(out, value, depth + 1);
    }
    for (i, value) in node.elements().enumerate() {
        if i > 0 {
            out.push(',');
        }
        indent(out, depth + 1);
        write_pretty(out, value, depth + 1);
    }
    indent(out, depth);
    out.push(close);
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{NewExpectation, RecordedTest, append_toml, test_names, update_json, update_toml};

    fn json(text: &str) -> Json {
        Json::parse(text).expect("valid JSON")
    }

    #[test]
    fn an_update_keeps_comments_and_the_other_tests() {
        let text = "# mine\n[[test]]\nname = \"a\" # why\ncall = \"t\"\nexpect = { x = 1 } # now\n\n[[test]]\nname = \"b\"\ncall = \"t\"\nerror = \"conflict\"\n";
        let changes = [
            (0, NewExpectation::Value(json(r#"{"x":2,"y":null,"z":1.50}"#))),
            (1, NewExpectation::OnlyText("fine".to_owned())),
        ];
        insta::assert_snapshot!(update_toml(text, &changes).expect("valid TOML"), @r#"
        # mine
        [[test]]
        name = "a" # why
        call = "t"
        expect = { x = 2, y = { is = "null" }, z = 1.5 } # now

        [[test]]
        name = "b"
        call = "t"
        text = "fine"
        "#);
    }

    #[test]
    fn a_json_file_is_updated_too() {
        let text = r#"{"test":[{"name":"a","call":"t","expect":{"x":1},"exact":true}]}"#;
        let changes = [(0, NewExpectation::OnlyError(json(r#""not_found""#)))];
        insta::assert_snapshot!(update_json(text, &changes).expect("valid JSON"), @r#"
        {
          "test": [
            {
              "name": "a",
              "call": "t",
              "error": "not_found"
            }
          ]
        }
        "#);
    }

    #[test]
    fn a_recorded_call_is_added_at_the_end() {
        let rows: Vec<String> =
            (0..4).map(|n| format!(r#"{{"email":"person-{n}@acme.test","plan":"ruby"}}"#)).collect();
        let recorded = |name: &str, expectation| RecordedTest {
            name: name.to_owned(),
            tool: "list".to_owned(),
            arguments: json(r#"{"plan":"ruby"}"#),
            answers: vec![json(r#"{"question":"Sure?","accept":{"confirm":true}}"#)],
            expectation,
        };
        let long = json(&format!(r#"{{"items":[{}],"truncated":false}}"#, rows.join(",")));
        let text = append_toml("", &recorded("first", NewExpectation::OnlyValue(long))).expect("valid TOML");
        let text = append_toml(&text, &recorded("second", NewExpectation::OnlyRpcError(-32602)))
            .expect("valid TOML");
        assert_eq!(test_names(&text).expect("tests"), ["first", "second"]);
        insta::assert_snapshot!(text);
    }
}
