//! Compares a line with its expectation, and binds names.

use serde_json::Value;

/// Names bound so far, with their texts.
pub type Bindings = Vec<(String, String)>;

/// Substitutes all names in a line; later names win.
pub fn substitute(text: &str, lets: &[(String, String)]) -> String {
    let mut out = text.to_owned();
    // The text of a name may contain earlier names.
    for (name, stands_for) in lets.iter().rev() {
        out = out.replace(&format!("<{name}>"), stands_for);
    }
    out
}

/// Compares a line with its expectation; `Err` says where they differ.
pub fn match_message(expected: &str, said: &str) -> Result<Bindings, String> {
    let wanted: Value =
        serde_json::from_str(expected).map_err(|error| format!("what is expected is no JSON: {error}"))?;
    let got: Value = serde_json::from_str(said).map_err(|error| format!("not JSON: {error}"))?;
    let mut learned = Bindings::new();
    match_value("", &wanted, &got, &mut learned)?;
    check_same_id(expected, said)?;
    Ok(learned)
}

/// Ids are compared byte by byte: `9007199254740993`, `"a\u0062"`.
fn check_same_id(expected: &str, said: &str) -> Result<(), String> {
    let id = |line: &str| {
        let doc = json::parse(line.as_bytes().to_vec(), &json::ParseLimits::default()).ok()?;
        doc.root().get("id").map(|id| id.raw().to_owned())
    };
    match (id(expected), id(said)) {
        (Some(expected), Some(said)) if expected != said && !expected.starts_with("\"<") => {
            Err(format!("/id: {said} is not {expected}, byte by byte"))
        }
        _ => Ok(()),
    }
}

/// A string that may bind a name: `<name=…>`, with or without text around it.
pub fn match_text(expected: &str, said: &str) -> Result<Bindings, String> {
    let mut learned = Bindings::new();
    if text_matches(expected, said, &mut learned) {
        return Ok(learned);
    }
    Err(format!("`{said}` is not `{expected}`"))
}

fn match_value(location: &str, wanted: &Value, got: &Value, learned: &mut Bindings) -> Result<(), String> {
    match (wanted, got) {
        (Value::String(text), _) if text == "<any>" => Ok(()),
        (Value::String(text), Value::Number(number)) if text == "<int>" && !number.is_f64() => Ok(()),
        (Value::String(text), Value::String(said)) if text_matches(text, said, learned) => Ok(()),
        // A number binds a name, too: `{"id":<name>}` sends it back.
        (Value::String(text), Value::Number(said))
            if text.ends_with("=…>") && text_matches(text, &said.to_string(), learned) =>
        {
            Ok(())
        }
        (Value::Object(wanted), Value::Object(got)) => {
            for (key, value) in wanted.iter().filter(|(key, _)| *key != "…") {
                let Some(said) = got.get(key) else { return Err(format!("{location}/{key} is missing")) };
                match_value(&format!("{location}/{key}"), value, said, learned)?;
            }
            match got.keys().find(|key| !wanted.contains_key(*key)) {
                Some(extra) if !wanted.contains_key("…") => {
                    Err(format!("{location}/{extra} was not expected"))
                }
                _ => Ok(()),
            }
        }
        (Value::Array(wanted), Value::Array(got)) => {
            let open = wanted.last().is_some_and(|last| last == "…");
            let wanted = if open { &wanted[..wanted.len() - 1] } else { &wanted[..] };
            if got.len() < wanted.len() || (got.len() > wanted.len() && !open) {
                return Err(format!("{location} has {} elements, not {}", got.len(), wanted.len()));
            }
            let mut pairs = wanted.iter().zip(got).enumerate();
            pairs.try_for_each(|(i, (wanted, got))| {
                match_value(&format!("{location}/{i}"), wanted, got, learned)
            })
        }
        _ if wanted == got => Ok(()),
        _ => Err(format!("{location} is {got}, not {wanted}")),
    }
}

fn text_matches(wanted: &str, said: &str, learned: &mut Bindings) -> bool {
    if wanted == said || wanted == "<string>" {
        return true;
    }
    // At most one name: the text before and after it must match.
    let Some((before, rest)) = wanted.split_once('<') else { return false };
    let Some((name, after)) = rest.split_once("=…>") else { return false };
    let between = said.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    between.is_some_and(|between| {
        learned.push((name.to_owned(), between.to_owned()));
        !between.is_empty()
    })
}
