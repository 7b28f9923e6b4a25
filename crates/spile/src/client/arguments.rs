//! From what was typed to what is sent: `key=value` words, read by what the tool says it takes.

use contract::humanize::join_truncated;
use contract::nearest;
use json::{Json, Node, NodeKind};

use super::error::CommandError;
use super::schema::{AdditionalProperties, Schema, TypeSet, ValueSchema, display_text};

/// The arguments of a call, as an object.
pub(crate) fn from_key_values(words: &[String], schema: &Schema) -> Result<Json, CommandError> {
    let mut given: Vec<(&str, Vec<&str>)> = Vec::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| not_key_value_error(word, schema))?;
        match given.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => given.push((name, vec![value])),
        }
    }
    let mut values = Vec::with_capacity(given.len());
    for (name, texts) in given {
        let shape = match schema.find(name) {
            Some(argument) => &argument.schema,
            None if schema.additional == AdditionalProperties::Allowed
                || schema.arguments.is_empty() && schema.additional == AdditionalProperties::Unspecified =>
            {
                &ValueSchema::default()
            }
            None => return Err(unknown_argument_error(name, schema)),
        };
        values.push((name, argument_value(name, &texts, shape)?));
    }
    Ok(Json::object(|out| {
        for (name, value) in &values {
            out.raw(name, value.as_str());
        }
    }))
}

/// Words whose values are texts, whatever they look like.
pub(crate) fn text_arguments(words: &[String]) -> Result<Json, CommandError> {
    let pairs = words
        .iter()
        .map(|word| {
            word.split_once('=').ok_or_else(|| CommandError::usage(format!("`{word}` is no key=value")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Json::object(|out| {
        for (name, value) in pairs {
            out.str(name, value);
        }
    }))
}

/// Whether the server is worth asking: what it needs is there, and what is there it knows. Types and choices
/// only on the surface; the server knows better.
pub(crate) fn check(arguments: &Json, schema: &Schema) -> Result<(), CommandError> {
    let doc = arguments.to_doc();
    let given = doc.root();
    for (key, value) in given.members() {
        let name = key.str().unwrap_or_default();
        match schema.find(&name) {
            Some(argument) => check_value(&name, value, &argument.schema)?,
            None if schema.additional == AdditionalProperties::Forbidden => {
                return Err(unknown_argument_error(&name, schema));
            }
            None => {}
        }
    }
    let missing: Vec<String> = schema
        .arguments
        .iter()
        .filter(|argument| argument.is_required && given.get(&argument.name).is_none())
        .map(|argument| format!("`{}`", argument.name))
        .collect();
    match &*missing {
        [] => Ok(()),
        [one] => Err(CommandError::usage(format!("{one} is missing"))),
        several => Err(CommandError::usage(format!("{} are missing", several.join(", ")))),
    }
}

/// What was given as JSON.
pub(crate) fn from_json(text: &str) -> Result<Json, CommandError> {
    let json =
        Json::parse(text).map_err(|bad| CommandError::usage(format!("--json: {bad}")).help(JSON_HELP))?;
    if json.is_object() {
        Ok(json)
    } else {
        Err(CommandError::usage("--json: the arguments of a call are an object").help(JSON_HELP))
    }
}

const JSON_HELP: &str = r#"one looks like --json '{"name":"value"}'; --json - reads it from stdin"#;

fn not_key_value_error(word: &str, schema: &Schema) -> CommandError {
    let trouble = CommandError::usage(format!("`{word}` is no key=value"));
    let needed: Vec<&str> = schema
        .arguments
        .iter()
        .filter(|argument| argument.is_required)
        .map(|argument| argument.name.as_str())
        .collect();
    match &*needed {
        _ if word.trim_start().starts_with('{') => trouble.help("JSON goes behind --json"),
        [only] => trouble.help(format!("did you mean `{only}={word}`?")),
        _ => trouble.help(known_arguments(schema)),
    }
}

fn unknown_argument_error(name: &str, schema: &Schema) -> CommandError {
    let trouble = CommandError::usage(format!("there is no argument `{name}`"));
    match nearest(name, schema.arguments.iter().map(|argument| argument.name.as_str())) {
        Some(meant) => trouble.help(format!("did you mean `{meant}`? {}", known_arguments(schema))),
        None => trouble.help(known_arguments(schema)),
    }
}

fn known_arguments(schema: &Schema) -> String {
    let names: Vec<&str> = schema.arguments.iter().map(|argument| argument.name.as_str()).collect();
    if names.is_empty() {
        "it takes no arguments".to_owned()
    } else {
        format!("it takes {}", join_truncated(&names, 20))
    }
}

/// The value of one argument, from all that was given for it.
fn argument_value(name: &str, texts: &[&str], shape: &ValueSchema) -> Result<Json, CommandError> {
    let is_list = shape.types.contains(TypeSet::ARRAY) && !shape.types.contains(TypeSet::STRING);
    match texts {
        [text] if is_list && text.trim_start().starts_with('[') => parse_value(name, text, shape),
        [text] if !is_list => parse_value(name, text, shape),
        several if is_list || shape.types.contains(TypeSet::ARRAY) => {
            let anything = ValueSchema::default();
            let item = shape.item.as_deref().unwrap_or(&anything);
            let items =
                several.iter().map(|text| parse_value(name, text, item)).collect::<Result<Vec<_>, _>>()?;
            let mut out = Vec::new();
            json::write::array(&mut out, &items, |out, item| out.extend_from_slice(item.as_str().as_bytes()));
            Ok(Json::from_written_bytes(out))
        }
        _ => Err(CommandError::usage(format!("`{name}` is given {} times, and is no list", texts.len()))),
    }
}

fn parse_value(name: &str, text: &str, shape: &ValueSchema) -> Result<Json, CommandError> {
    if !shape.choices.is_empty() {
        return parse_choice(name, text, shape);
    }
    let kinds = shape.types;
    let as_text = || {
        let mut out = Vec::new();
        json::write::string(&mut out, text);
        Json::from_written_bytes(out)
    };
    // Text stays text, whatever it looks like.
    if kinds.without(TypeSet::NULL) == TypeSet::STRING {
        return Ok(as_text());
    }
    let read =
        Json::parse(text).ok().filter(|json| kinds.is_empty() || matches_types(json.to_doc().root(), kinds));
    match read {
        Some(json) => Ok(json),
        None if kinds.is_empty() || kinds.contains(TypeSet::STRING) => Ok(as_text()),
        None => Err(type_mismatch_error(name, text, shape)),
    }
}

fn parse_choice(name: &str, text: &str, shape: &ValueSchema) -> Result<Json, CommandError> {
    if let Some(choice) = shape.choices.iter().find(|choice| display_text(choice) == text) {
        return Ok(choice.clone());
    }
    if text == "null" && shape.types.contains(TypeSet::NULL) && !shape.types.contains(TypeSet::STRING) {
        return Ok(Json::parse("null").expect("it is JSON"));
    }
    Err(invalid_choice_error(name, text, shape))
}

fn invalid_choice_error(name: &str, text: &str, shape: &ValueSchema) -> CommandError {
    let choices: Vec<String> = shape.choices.iter().map(display_text).collect();
    let trouble =
        CommandError::usage(format!("`{name}`: `{text}` is none of {}", join_truncated(&choices, 20)));
    match nearest(text, choices.iter().map(String::as_str)) {
        Some(meant) => trouble.help(format!("did you mean `{meant}`?")),
        None => trouble,
    }
}

fn type_mismatch_error(name: &str, text: &str, shape: &ValueSchema) -> CommandError {
    let trouble =
        CommandError::usage(format!("`{name}`: `{text}` is not {}", with_article(&shape.describe())));
    let kinds = shape.types.without(TypeSet::NULL);
    if kinds == TypeSet::BOOLEAN {
        trouble.help("give true or false")
    } else if kinds.contains(TypeSet::OBJECT) || kinds.contains(TypeSet::ARRAY) {
        trouble.help(format!("give JSON, in quotes for the shell: {name}='…'"))
    } else {
        trouble
    }
}

fn with_article(words: &str) -> String {
    let vowel = words.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {words}", if vowel { "an" } else { "a" })
}

fn check_value(name: &str, value: Node<'_>, shape: &ValueSchema) -> Result<(), CommandError> {
    let raw = || value.str().map_or_else(|| value.raw().to_owned(), |text| text.into_owned());
    if !shape.types.is_empty() && !matches_types(value, shape.types) {
        return Err(type_mismatch_error(name, value.raw(), shape));
    }
    let is_choice = |choice: &Json| *choice == Json::from(value) || display_text(choice) == raw();
    if !shape.choices.is_empty() && value.kind() != NodeKind::Null && !shape.choices.iter().any(is_choice) {
        return Err(invalid_choice_error(name, &raw(), shape));
    }
    Ok(())
}

fn matches_types(value: Node<'_>, kinds: TypeSet) -> bool {
    match value.kind() {
        NodeKind::Null => kinds.contains(TypeSet::NULL),
        NodeKind::True | NodeKind::False => kinds.contains(TypeSet::BOOLEAN),
        NodeKind::Number => {
            kinds.contains(TypeSet::NUMBER) || kinds.contains(TypeSet::INTEGER) && is_integer(value)
        }
        NodeKind::String => kinds.contains(TypeSet::STRING),
        NodeKind::Array => kinds.contains(TypeSet::ARRAY),
        NodeKind::Object => kinds.contains(TypeSet::OBJECT),
    }
}

/// JSON Schema: a number whose fraction is zero is an integer. What has an exponent is for the server to judge.
fn is_integer(number: Node<'_>) -> bool {
    let raw = number.raw();
    match raw.split_once('.') {
        _ if raw.contains(['e', 'E']) => true,
        Some((_, fraction)) => fraction.bytes().all(|digit| digit == b'0'),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{Schema, check, from_json, from_key_values};
    use json::Json;

    const SCHEMA: &str = r#"{"properties":{
        "name":{"type":"string"},"maybe":{"type":["string","null"]},"n":{"type":"integer"},
        "x":{"type":"number"},"on":{"type":"boolean"},"tags":{"type":"array","items":{"type":"string"}},
        "sizes":{"type":"array","items":{"type":"integer"}},"o":{"type":"object"},"any":{},
        "plan":{"enum":["free","ruby"]},"level":{"enum":[1,2,null]},"opt":{"type":["integer","null"]},
        "mixed":{"type":["string","integer"]}},"required":["name"]}"#;

    #[track_caller]
    fn check_key_values(words: &[&str], expected: &str) {
        let json = Json::parse(SCHEMA).expect("JSON");
        let doc = json.to_doc();
        let words: Vec<String> = words.iter().map(|&word| word.into()).collect();
        let got = match from_key_values(&words, &Schema::parse(doc.root())) {
            Ok(json) => json.to_string(),
            Err(trouble) => trouble.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn words_become_what_the_tool_takes() {
        check_key_values(&[], "{}");
        check_key_values(&["name=007"], r#"{"name":"007"}"#);
        check_key_values(&["name="], r#"{"name":""}"#);
        check_key_values(&["name=a=b"], r#"{"name":"a=b"}"#);
        check_key_values(&["name=[1]"], r#"{"name":"[1]"}"#);
        check_key_values(&["maybe=null"], r#"{"maybe":"null"}"#);
        check_key_values(&["n=-5", "x=1.50", "on=true"], r#"{"n":-5,"x":1.50,"on":true}"#);
        check_key_values(&["n=1.0"], r#"{"n":1.0}"#);
        check_key_values(&["tags=a", "tags=2"], r#"{"tags":["a","2"]}"#);
        check_key_values(&["tags=a,b"], r#"{"tags":["a,b"]}"#);
        check_key_values(&["tags=[\"a\", \"b\"]"], r#"{"tags":["a","b"]}"#);
        check_key_values(&["sizes=1", "sizes=2"], r#"{"sizes":[1,2]}"#);
        check_key_values(&[r#"o={"a": {"b": 1}}"#], r#"{"o":{"a":{"b":1}}}"#);
        check_key_values(&["any=5", "plan=ruby", "level=2"], r#"{"any":5,"plan":"ruby","level":2}"#);
        check_key_values(&["any=five"], r#"{"any":"five"}"#);
        check_key_values(&["opt=null", "mixed=5"], r#"{"opt":null,"mixed":5}"#);
        check_key_values(&["mixed=five"], r#"{"mixed":"five"}"#);
    }

    #[test]
    fn digits_are_kept() {
        check_key_values(&["n=123456789012345678901234567890"], r#"{"n":123456789012345678901234567890}"#);
        check_key_values(&["x=0.1000000000000000000000001"], r#"{"x":0.1000000000000000000000001}"#);
        check_key_values(&["x=1e400"], r#"{"x":1e400}"#);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        check_key_values(&["n=five"], "`n`: `five` is not an integer");
        check_key_values(&["n=1.5"], "`n`: `1.5` is not an integer");
        check_key_values(&["n="], "`n`: `` is not an integer");
        check_key_values(&["n=0x10"], "`n`: `0x10` is not an integer");
        check_key_values(&["x=NaN"], "`x`: `NaN` is not a number");
        check_key_values(&["x=01"], "`x`: `01` is not a number");
        check_key_values(&["on=yes"], "`on`: `yes` is not a boolean; give true or false");
        check_key_values(&["o=[]"], "`o`: `[]` is not an object; give JSON, in quotes for the shell: o='…'");
        check_key_values(&["sizes=1", "sizes=b"], "`sizes`: `b` is not an integer");
        check_key_values(
            &["sizes=[1"],
            "`sizes`: `[1` is not an array of integer; give JSON, in quotes for the shell: sizes='…'",
        );
        check_key_values(&["plan=rubi"], "`plan`: `rubi` is none of free, ruby; did you mean `ruby`?");
        check_key_values(&["name=a", "name=b"], "`name` is given 2 times, and is no list");
        check_key_values(
            &["dana@acme.test"],
            "`dana@acme.test` is no key=value; did you mean `name=dana@acme.test`?",
        );
        check_key_values(&["{}"], "`{}` is no key=value; JSON goes behind --json");
        let all = "it takes name, maybe, n, x, on, tags, sizes, o, any, plan, level, opt, mixed";
        check_key_values(&["nam=x"], &format!("there is no argument `nam`; did you mean `name`? {all}"));
        check_key_values(&["zebra=x"], &format!("there is no argument `zebra`; {all}"));
    }

    #[track_caller]
    fn check_json(text: &str, expected: &str) {
        let json = Json::parse(SCHEMA).expect("JSON");
        let doc = json.to_doc();
        let checked =
            from_json(text).and_then(|json| check(&json, &Schema::parse(doc.root())).map(|()| json));
        let got = match checked {
            Ok(json) => json.to_string(),
            Err(trouble) => trouble.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn json_is_looked_at_before_it_is_sent() {
        check_json(
            r#"{"name": "x", "new": 12345678901234567890123}"#,
            r#"{"name":"x","new":12345678901234567890123}"#,
        );
        check_json(
            r#"{"name":"x","level":null,"plan":"free"}"#,
            r#"{"name":"x","level":null,"plan":"free"}"#,
        );
        check_json("{}", "`name` is missing");
        check_json(r#"{"name":7}"#, "`name`: `7` is not a string");
        check_json(
            r#"{"name":"x","plan":"rubi"}"#,
            "`plan`: `rubi` is none of free, ruby; did you mean `ruby`?",
        );
    }
}
