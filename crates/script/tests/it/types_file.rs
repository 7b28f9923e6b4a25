//! `spile.d.ts` says what there is, and nothing else.

use serde_json::Value;

use crate::harness::{App, folder};

const TYPES: &str = include_str!("../../../spile/src/new/templates/spile.d.ts");

/// The names that the types file declares as values.
fn declared_globals() -> Vec<&'static str> {
    let names = TYPES.lines().filter_map(|line| {
        let rest = line.strip_prefix("declare ")?;
        let (kind, rest) = rest.split_once(' ')?;
        let end = rest.find(|char: char| !char.is_ascii_alphanumeric())?;
        matches!(kind, "const" | "function" | "class").then(|| &rest[..end])
    });
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The members of an interface, of the lines with one more level of indentation.
fn declared_members(interface: &str) -> Vec<&'static str> {
    let (_, rest) = TYPES.split_once(&format!("  interface {interface} {{\n")).expect("the interface");
    let (body, _) = rest.split_once("\n  }\n").expect("its end");
    let names = body.lines().filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        let line = line.strip_prefix("readonly ").unwrap_or(line);
        let end = line.find(|char: char| !char.is_ascii_alphanumeric())?;
        (end > 0).then(|| &line[..end])
    });
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What ECMAScript has, and the types of its library therefore too.
const ECMASCRIPT: &str = "Object Function Error EvalError RangeError ReferenceError SyntaxError TypeError URIError \
    AggregateError Iterator Array parseInt parseFloat isNaN isFinite decodeURI decodeURIComponent encodeURI \
    encodeURIComponent escape unescape Infinity NaN undefined Number Boolean String Math Reflect Symbol eval \
    globalThis Date RegExp JSON Proxy Map Set WeakMap WeakSet ArrayBuffer Uint8ClampedArray Int8Array Uint8Array \
    Int16Array Uint16Array Int32Array Uint32Array BigInt64Array BigUint64Array Float16Array Float32Array Float64Array \
    DataView Promise BigInt InternalError Intl SuppressedError DisposableStack AsyncDisposableStack";

#[tokio::test]
async fn the_types_file_names_what_there_is() {
    let folder = folder(&[(
        "tools/names.js",
        r#"export default (_, ctx) => ({
            globals: Object.getOwnPropertyNames(globalThis),
            ctx: Object.getOwnPropertyNames(ctx),
            files: Object.keys(ctx.files),
            log: Object.keys(ctx.log),
        });"#,
    )]);
    let app = App::new(folder.path());
    let names = app.call("names", "{}").await["structuredContent"].clone();
    let sorted = |key: &str| {
        let mut names: Vec<String> = serde_json::from_value(names[key].clone()).expect("names");
        names.sort();
        names
    };
    let known: Vec<&str> = ECMASCRIPT.split_whitespace().collect();
    let globals: Vec<String> =
        sorted("globals").into_iter().filter(|name| !known.contains(&name.as_str())).collect();
    assert_eq!(globals, declared_globals());
    assert_eq!(sorted("ctx"), declared_members("Context"));
    assert_eq!(sorted("files"), declared_members("Files"));
    assert_eq!(sorted("log"), declared_members("Log"));
    assert!(matches!(names, Value::Object(_)));
}
