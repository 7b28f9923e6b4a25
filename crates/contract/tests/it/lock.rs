//! `spile.lock`: writing, parsing and detecting changes.

use std::collections::BTreeMap;

use contract::Confirm;
use contract::compatibility::{Compatibility, ContractInterface, ToolInterface};
use contract::diagnostic::render;
use contract::lock::{ContractVersion, Lock, TEXT_BYTES_MAX};
use proptest::prelude::*;
use serde_json::{Value, json};
use spile_core::{TaskSupport, ToolAnnotations};

fn lock() -> Lock {
    let get = ToolInterface {
        text_digest: "0123456789abcdef".into(),
        annotations: ToolAnnotations {
            read_only: Some(true),
            open_world: Some(false),
            ..ToolAnnotations::default()
        },
        confirm: Confirm::Never,
        task_support: TaskSupport::Forbidden,
        input_schema: json!({"type": "object", "properties": {"email": {"type": "string", "format": "email"}}}),
        output_schema: json!({"type": "object", "properties": {"plan": {"enum": ["it's '''free'''", "ru\u{7f}by\n"]}}}),
    };
    let odd = ToolInterface {
        annotations: ToolAnnotations::default(),
        task_support: TaskSupport::Required,
        ..get.clone()
    };
    let tools = BTreeMap::from([("get_customers".to_owned(), get), ("odd. \"name\"".to_owned(), odd)]);
    let promises =
        ContractInterface { instructions_digest: "fedcba".into(), tools, ..ContractInterface::default() };
    Lock::new(ContractVersion { major: 1, minor: 2, patch: 3 }, promises)
}

#[test]
fn lock_file_snapshot() {
    insta::assert_snapshot!(lock().to_toml(), @r#"
    # The published interface of this server, written by `spile compile`. Keep it in version control.
    # `spile diff` reports what a change means for clients.

    format = 1
    version = "1.2.3"
    instructions = "fedcba"

    [tools.get_customers]
    hash = "f143d564f768c33d03460f05fbcd4cae"
    text_digest = "0123456789abcdef"
    hints = { readOnlyHint = true, openWorldHint = false }
    input = '''
    {
      "properties": {
        "email": {
          "format": "email",
          "type": "string"
        }
      },
      "type": "object"
    }
    '''
    output = '''
    {
      "properties": {
        "plan": {
          "enum": [
            "it\u0027s \u0027\u0027\u0027free\u0027\u0027\u0027",
            "ru\u007fby\n"
          ]
        }
      },
      "type": "object"
    }
    '''

    [tools."odd. \"name\""]
    hash = "761eb8e8642a2d5f21dded10f9ecfd4f"
    text_digest = "0123456789abcdef"
    hints = {  }
    task = "required"
    input = '''
    {
      "properties": {
        "email": {
          "format": "email",
          "type": "string"
        }
      },
      "type": "object"
    }
    '''
    output = '''
    {
      "properties": {
        "plan": {
          "enum": [
            "it\u0027s \u0027\u0027\u0027free\u0027\u0027\u0027",
            "ru\u007fby\n"
          ]
        }
      },
      "type": "object"
    }
    '''
    "#);
}

#[test]
fn parse_reverses_to_toml() {
    let written = lock().to_toml();
    assert_eq!(Lock::parse("spile.lock", &written).expect("it is ours"), lock());
    // With the line endings of git on Windows.
    assert_eq!(Lock::parse("spile.lock", &written.replace('\n', "\r\n")).expect("it is ours"), lock());
    let empty = Lock::new(ContractVersion::FIRST, ContractInterface::default());
    assert_eq!(Lock::parse("spile.lock", &empty.to_toml()).expect("it is ours"), empty);
}

#[test]
fn confirm_is_stored() {
    let never = lock();
    let mut asks = lock();
    asks.interface.tools.get_mut("get_customers").expect("it is there").confirm = Confirm::Ask;
    let written = asks.to_toml();
    assert_eq!(Lock::parse("spile.lock", &written).expect("it is ours"), asks);
    // A file without `confirm` means `never`.
    assert!(written.contains("confirm = \"ask\"\n") && !never.to_toml().contains("confirm"), "{written}");
    let altered = written.replace("confirm = \"ask\"\n", "");
    let altered = Lock::parse("spile.lock", &altered).expect("it is readable");
    assert_eq!(
        (altered.interface, &altered.hash_mismatches[..]),
        (never.interface, &["get_customers".to_owned()][..])
    );
    insta::assert_snapshot!(parse_error(&written.replace("\"ask\"", "\"maybe\"")), @r#"
    error: `spile.lock` is not valid: expected "ask"
      --> spile.lock:12:11
       |
    12 | confirm = "maybe"
       |           ^^^^^^^
       = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    "#);
}

#[test]
fn each_tool_has_its_own_table() {
    let lines = lock().to_toml();
    let (before, after) = lines.split_once("\n[tools.\"odd").expect("in the order of their names");
    assert!(before.contains("[tools.get_customers]") && !after.contains("get_customers"));
}

#[test]
fn a_hash_mismatch_names_the_tool() {
    let changed = lock().to_toml().replacen("\"email\"", "\"phone\"", 1);
    let lock = Lock::parse("spile.lock", &changed).expect("it is readable");
    assert_eq!(lock.hash_mismatches, ["get_customers"]);
}

/// The diagnostic for an invalid lock file.
#[track_caller]
fn parse_error(text: &str) -> String {
    render(&Lock::parse("spile.lock", text).expect_err("it cannot be used"), false)
}

#[test]
fn parse_errors_have_a_reason_and_help() {
    let good = lock().to_toml();
    let merged = good.replace(
        "version = \"1.2.3\"",
        "<<<<<<< HEAD\nversion = \"1.2.3\"\n=======\nversion = \"1.3.0\"\n>>>>>>> other",
    );
    insta::assert_snapshot!(parse_error(&merged), @r"
    error: this file has an unresolved merge conflict
     --> spile.lock:5:1
      |
    5 | <<<<<<< HEAD
      | ^^^^^^^^^^^^
      = help: keep the side with the higher `version`, then run `spile compile`
    ");
    insta::assert_snapshot!(parse_error("format = 1\nversion = \"1.2\"\n"), @r#"
    error: `spile.lock` is not valid: expected a version such as "1.0.0"
     --> spile.lock:2:11
      |
    2 | version = "1.2"
      |           ^^^^^
      = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    "#);
    insta::assert_snapshot!(parse_error("format = 2\n"), @r"
    error: `spile.lock` is not valid: this version of spile does not support this lock file format
     --> spile.lock:1:10
      |
    1 | format = 2
      |          ^
      = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    ");
    insta::assert_snapshot!(parse_error("version = \"1.0.0\"\n"), @r#"
    error: `spile.lock` is not valid: `format` is missing
     --> spile.lock:1:1
      |
    1 | version = "1.0.0"
      | ^
      = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    "#);
    insta::assert_snapshot!(parse_error("format = 1\nversion = \n"), @r"
    error: `spile.lock` is not valid: string values must be quoted, expected literal string
     --> spile.lock:2:11
      |
    2 | version =
      |           ^
      = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    ");
    insta::assert_snapshot!(parse_error("format = 1\nversion = 1\n"), @r"
    error: `spile.lock` is not valid: expected a string
     --> spile.lock:2:11
      |
    2 | version = 1
      |           ^
      = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    ");
    insta::assert_snapshot!(parse_error("format = 1\nversion = \"1.0.0\"\ntools = 3\n"), @r"
    error: `spile.lock` is not valid: expected a table
     --> spile.lock:3:9
      |
    3 | tools = 3
      |         ^
      = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    ");
    insta::assert_snapshot!(parse_error("format = 1\nversion = \"1.0.0\"\n[tools.x]\nhash = \"\"\n"), @r"
    error: `spile.lock` is not valid: `text_digest` is missing
     --> spile.lock:3:8
      |
    3 | [tools.x]
      |        ^
      = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    ");
    insta::assert_snapshot!(parse_error(&good.replacen("readOnlyHint = true", "readOnlyHint = 1", 1)), @r"
    error: `spile.lock` is not valid: expected true or false
      --> spile.lock:11:26
       |
    11 | hints = { readOnlyHint = 1, openWorldHint = false }
       |                          ^
       = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    ");
    insta::assert_snapshot!(parse_error(&good.replacen("readOnlyHint", "readonly", 1)), @r"
    error: `spile.lock` is not valid: unknown hint
      --> spile.lock:11:11
       |
    11 | hints = { readonly = true, openWorldHint = false }
       |           ^^^^^^^^
       = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    ");
    insta::assert_snapshot!(parse_error(&good.replacen("'''\n{", "'''\n[", 1)), @r"
    error: `spile.lock` is not valid: invalid JSON in a schema: expected `,` or `]` at line 2 column 15
      --> spile.lock:12:9
       |
    12 | input = '''
       |         ^^^
       = help: `spile compile` writes this file; restore it from version control, or delete it and compile again
    ");
    assert!(parse_error(&" ".repeat(TEXT_BYTES_MAX + 1)).contains("exceeds the limit of 16 MiB"));
}

#[test]
fn versions_are_plain_numbers() {
    for bad in [
        "",
        "1",
        "1.0",
        "1.0.0.0",
        "01.0.0",
        "1.00.0",
        "-1.0.0",
        "+1.0.0",
        "1.0.x",
        "1..0",
        "4294967296.0.0",
        " 1.0.0",
    ] {
        let text = format!("format = 1\nversion = \"{bad}\"\n");
        assert!(parse_error(&text).contains("expected a version such as"), "{bad}");
    }
}

#[test]
fn bump_follows_the_compatibility() {
    let number = ContractVersion { major: 1, minor: 2, patch: 3 };
    for (verdict, then) in [
        (Compatibility::Same, "1.2.3"),
        (Compatibility::TextOnly, "1.2.4"),
        (Compatibility::Compatible, "1.3.0"),
        (Compatibility::Breaking, "2.0.0"),
    ] {
        assert_eq!(number.bump(verdict).to_string(), then);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(|members| json!(members)),
        ]
    })
}

proptest! {
    #[test]
    fn parse_reverses_to_toml_for_any_interface(name in any::<String>(), input in any_json(), output in any_json(), asks in any::<bool>()) {
        let confirm = if asks { Confirm::Ask } else { Confirm::Never };
        let promise = ToolInterface { text_digest: "w".into(), annotations: ToolAnnotations::default(), confirm, task_support: TaskSupport::Optional, input_schema: input, output_schema: output };
        let promises = ContractInterface { instructions_digest: String::new(), tools: BTreeMap::from([(name, promise)]), ..ContractInterface::default() };
        let lock = Lock::new(ContractVersion::FIRST, promises);
        let read = Lock::parse("spile.lock", &lock.to_toml());
        prop_assert_eq!(read.map_err(|why| render(&why, false)), Ok(lock));
    }

    #[test]
    fn parse_never_panics(text in any::<String>(), at in 0..2000usize, put in "[\\PC\n]{0,4}") {
        let _ = Lock::parse("spile.lock", &text);
        let mut written = lock().to_toml();
        if written.is_char_boundary(at) {
            written.insert_str(at, &put);
        }
        let _ = Lock::parse("spile.lock", &written);
    }
}
