//! Turns `key=value` words into a JSON object, typed by the tool's input schema.

use contract::humanize::join_truncated;
use contract::{CompiledSchema, nearest};
use json::{Json, Node, NodeKind};

use super::error::CommandError;
use super::schema::{AdditionalProperties, PatternProperty, Schema, TypeSet, ValueSchema, display_text};

/// Whether arguments must match the input schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validation {
    Strict,
    /// Sends everything that can be written as JSON, to test how a server handles invalid input.
    Off,
}

/// Types each value by the schema of its argument. Without validation, a value that does not match its schema is sent
/// as the JSON that it is, or else as a string.
pub(crate) fn from_key_values(
    words: &[String],
    schema: &Schema,
    validation: Validation,
) -> Result<Json, CommandError> {
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
        let value_schema = match schema.find(name) {
            Some(argument) => argument.schema.clone(),
            None => match schema.find_by_pattern(name) {
                Some(value_schema) => value_schema,
                None if validation == Validation::Off || allows_other_names(schema) => {
                    schema.extended_argument(name).unwrap_or_default()
                }
                None => return Err(unknown_argument_error(name, schema)),
            },
        };
        let value = match (argument_value(name, &texts, &value_schema), validation) {
            (Err(_), Validation::Off) => untyped_value(&texts),
            (value, Validation::Off | Validation::Strict) => value?,
        };
        values.push((name, value));
    }
    Ok(Json::object(|out| {
        for (name, value) in &values {
            out.raw(name, value.as_str());
        }
    }))
}

/// Whether a name that the schema does not have may be meant.
fn allows_other_names(schema: &Schema) -> bool {
    let is_empty = schema.arguments.is_empty() && schema.patterns.is_empty();
    schema.additional == AdditionalProperties::Allowed
        || is_empty && schema.additional == AdditionalProperties::Unspecified
}

/// Every value is a string, whatever it looks like.
pub(crate) fn text_arguments(words: &[String]) -> Result<Json, CommandError> {
    let pairs = words
        .iter()
        .map(|word| {
            word.split_once('=')
                .ok_or_else(|| CommandError::usage(format!("`{word}` is not in the form key=value")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Json::object(|out| {
        for (name, value) in pairs {
            out.str(name, value);
        }
    }))
}

/// Catches the usual mistakes with the words of a command line: a missing or unknown argument, a wrong type, a value that
/// is not in the enum. [`check_schema`] checks the rest.
pub(crate) fn check(arguments: &Json, schema: &Schema) -> Result<(), CommandError> {
    let doc = arguments.to_doc();
    let object = doc.root();
    for (key, value) in object.members() {
        let name = key.str().unwrap_or_default();
        match schema.find(&name) {
            Some(argument) => check_value(&name, value, &argument.schema)?,
            None => match schema.find_by_pattern(&name) {
                Some(value_schema) => check_value(&name, value, &value_schema)?,
                None if schema.additional == AdditionalProperties::Forbidden => {
                    return Err(unknown_argument_error(&name, schema));
                }
                None => {}
            },
        }
    }
    let missing: Vec<String> = schema
        .arguments
        .iter()
        .filter(|argument| argument.is_required && object.get(&argument.name).is_none())
        .map(|argument| format!("`{}`", argument.name))
        .collect();
    match &*missing {
        [] => Ok(()),
        [one] => Err(CommandError::usage(format!("missing argument {one}"))),
        several => Err(CommandError::usage(format!("missing arguments {}", join_truncated(several, 20)))),
    }
}

/// Validates the arguments against the whole input schema, as the server will. A schema that cannot be compiled is left
/// to the server.
pub(crate) fn check_schema(arguments: &Json, input_schema: &Json) -> Result<(), CommandError> {
    let Ok(schema) = CompiledSchema::compile(input_schema) else { return Ok(()) };
    schema
        .validate(Some(arguments.to_doc().root()))
        .map_err(|error| CommandError::usage(error.message).help("add --unchecked to send it as it is"))
}

/// Parses the text of `--args`. Without validation it may be any JSON value.
pub(crate) fn from_json(text: &str, validation: Validation) -> Result<Json, CommandError> {
    let json =
        Json::parse(text).map_err(|bad| CommandError::usage(format!("--args: {bad}")).help(JSON_HELP))?;
    if json.is_object() || validation == Validation::Off {
        Ok(json)
    } else {
        Err(CommandError::usage("--args: the arguments must be a JSON object").help(JSON_HELP))
    }
}

const JSON_HELP: &str = r#"for example --args '{"name":"value"}', or --args - to read stdin"#;

fn not_key_value_error(word: &str, schema: &Schema) -> CommandError {
    let error = CommandError::usage(format!("`{word}` is not in the form key=value"));
    let required: Vec<&str> = schema
        .arguments
        .iter()
        .filter(|argument| argument.is_required)
        .map(|argument| argument.name.as_str())
        .collect();
    match &*required {
        _ if word.trim_start().starts_with('{') => error.help("pass JSON with --args"),
        [only] => error.help(format!("did you mean `{only}={word}`?")),
        _ => error.help(known_arguments(schema)),
    }
}

fn unknown_argument_error(name: &str, schema: &Schema) -> CommandError {
    let error = CommandError::usage(format!("unknown argument `{name}`"));
    // `price_mni` is near `price`, but a price is not what was meant.
    let is_extended = !schema.patterns.is_empty() && schema.extended_argument(name).is_some();
    match nearest(name, schema.arguments.iter().map(|argument| argument.name.as_str())) {
        Some(near) if !is_extended => error.help(format!("did you mean `{near}`?")),
        _ => error.help(known_arguments(schema)),
    }
}

fn known_arguments(schema: &Schema) -> String {
    let names = schema.arguments.iter().map(|argument| argument.name.clone());
    let mut names: Vec<String> = names.collect();
    if names.is_empty() && schema.patterns.is_empty() {
        return "it takes no arguments".to_owned();
    }
    // Names by pattern come after a list that may be cut.
    let named_max = 20;
    if names.len() > named_max {
        names = vec![join_truncated(&names, named_max)];
    }
    names.extend(schema.patterns.iter().map(PatternProperty::placeholder));
    format!("known arguments: {}", names.join(", "))
}

/// One argument's value. An argument that is given several times is an array.
fn argument_value(name: &str, texts: &[&str], schema: &ValueSchema) -> Result<Json, CommandError> {
    let scalar_types = schema.types.without(TypeSet::NULL).without(TypeSet::ARRAY);
    let is_array = schema.types.contains(TypeSet::ARRAY) && scalar_types.is_empty();
    match texts {
        [text] if is_array && text.trim_start().starts_with('[') => parse_value(name, text, schema),
        [text] if !is_array => parse_value(name, text, schema),
        several if is_array || schema.types.contains(TypeSet::ARRAY) => {
            // A value or an array of values: the items are typed like the value.
            let scalar = ValueSchema { types: scalar_types, ..ValueSchema::default() };
            let item = schema.item.as_deref().unwrap_or(&scalar);
            let items =
                several.iter().map(|text| parse_value(name, text, item)).collect::<Result<Vec<_>, _>>()?;
            Ok(json_array(&items))
        }
        _ => {
            Err(CommandError::usage(format!("`{name}` is given {} times, but it is not a list", texts.len())))
        }
    }
}

/// The value of an argument whose schema does not apply: JSON if it is JSON, else a string.
fn untyped_value(texts: &[&str]) -> Json {
    let values: Vec<Json> =
        texts.iter().map(|text| Json::parse(text).unwrap_or_else(|_| Json::string(text))).collect();
    match &*values {
        [value] => value.clone(),
        several => json_array(several),
    }
}

fn json_array(items: &[Json]) -> Json {
    let mut out = Vec::new();
    json::write::array(&mut out, items, |out, item| out.extend_from_slice(item.as_str().as_bytes()));
    Json::from_written_bytes(out)
}

fn parse_value(name: &str, text: &str, schema: &ValueSchema) -> Result<Json, CommandError> {
    if !schema.choices.is_empty() {
        return parse_choice(name, text, schema);
    }
    let types = schema.types;
    // `007` stays a string where the schema says string.
    if types.without(TypeSet::NULL) == TypeSet::STRING {
        return Ok(Json::string(text));
    }
    let parsed =
        Json::parse(text).ok().filter(|json| types.is_empty() || matches_types(json.to_doc().root(), types));
    match parsed {
        Some(json) => Ok(json),
        None if types.is_empty() || types.contains(TypeSet::STRING) => Ok(Json::string(text)),
        None => Err(type_mismatch_error(name, text, schema)),
    }
}

fn parse_choice(name: &str, text: &str, schema: &ValueSchema) -> Result<Json, CommandError> {
    if let Some(choice) = schema.choices.iter().find(|choice| display_text(choice) == text) {
        return Ok(choice.clone());
    }
    if text == "null" && schema.types.contains(TypeSet::NULL) && !schema.types.contains(TypeSet::STRING) {
        return Ok(Json::parse("null").expect("valid JSON"));
    }
    Err(invalid_choice_error(name, text, schema))
}

fn invalid_choice_error(name: &str, text: &str, schema: &ValueSchema) -> CommandError {
    let choices: Vec<String> = schema.choices.iter().map(display_text).collect();
    let error =
        CommandError::usage(format!("`{name}`: `{text}` is not one of {}", join_truncated(&choices, 20)));
    match nearest(text, choices.iter().map(String::as_str)) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error,
    }
}

fn type_mismatch_error(name: &str, text: &str, schema: &ValueSchema) -> CommandError {
    let error =
        CommandError::usage(format!("`{name}`: `{text}` is not {}", with_article(&schema.describe())));
    let types = schema.types.without(TypeSet::NULL);
    if types == TypeSet::BOOLEAN {
        error.help("expected true or false")
    } else if types.contains(TypeSet::OBJECT) || types.contains(TypeSet::ARRAY) {
        error.help(format!("expected JSON, quoted for the shell: {name}='…'"))
    } else {
        error
    }
}

fn with_article(words: &str) -> String {
    let vowel = words.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {words}", if vowel { "an" } else { "a" })
}

fn check_value(name: &str, value: Node<'_>, schema: &ValueSchema) -> Result<(), CommandError> {
    let raw = || value.str().map_or_else(|| value.raw().to_owned(), |text| text.into_owned());
    if !schema.types.is_empty() && !matches_types(value, schema.types) {
        return Err(type_mismatch_error(name, value.raw(), schema));
    }
    let is_choice = |choice: &Json| *choice == Json::from(value) || display_text(choice) == raw();
    if !schema.choices.is_empty() && value.kind() != NodeKind::Null && !schema.choices.iter().any(is_choice) {
        return Err(invalid_choice_error(name, &raw(), schema));
    }
    Ok(())
}

fn matches_types(value: Node<'_>, types: TypeSet) -> bool {
    match value.kind() {
        NodeKind::Null => types.contains(TypeSet::NULL),
        NodeKind::True | NodeKind::False => types.contains(TypeSet::BOOLEAN),
        NodeKind::Number => {
            types.contains(TypeSet::NUMBER) || types.contains(TypeSet::INTEGER) && is_integer(value)
        }
        NodeKind::String => types.contains(TypeSet::STRING),
        NodeKind::Array => types.contains(TypeSet::ARRAY),
        NodeKind::Object => types.contains(TypeSet::OBJECT),
    }
}

/// JSON Schema: a number with a zero fraction is an integer. The server judges numbers with an exponent.
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
    use super::{Schema, Validation, check, check_schema, from_json, from_key_values};
    use json::Json;

    const SCHEMA: &str = r#"{"properties":{
        "name":{"type":"string"},"maybe":{"type":["string","null"]},"n":{"type":"integer"},
        "x":{"type":"number"},"on":{"type":"boolean"},"tags":{"type":"array","items":{"type":"string"}},
        "sizes":{"type":"array","items":{"type":"integer"}},"o":{"type":"object"},"any":{},
        "plan":{"enum":["free","ruby"]},"level":{"enum":[1,2,null]},"opt":{"type":["integer","null"]},
        "mixed":{"type":["string","integer"]}},"required":["name"]}"#;

    #[track_caller]
    fn check_key_values(words: &[&str], expected: &str) {
        check_validated(words, Validation::Strict, expected);
    }

    #[track_caller]
    fn check_validated(words: &[&str], validation: Validation, expected: &str) {
        let json = Json::parse(SCHEMA).expect("valid JSON");
        let doc = json.to_doc();
        let words: Vec<String> = words.iter().map(|&word| word.into()).collect();
        let got = match from_key_values(&words, &Schema::parse(doc.root()), validation) {
            Ok(json) => json.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn values_are_typed_by_the_schema() {
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
    fn numbers_keep_their_digits() {
        check_key_values(&["n=123456789012345678901234567890"], r#"{"n":123456789012345678901234567890}"#);
        check_key_values(&["x=0.1000000000000000000000001"], r#"{"x":0.1000000000000000000000001}"#);
        check_key_values(&["x=1e400"], r#"{"x":1e400}"#);
    }

    #[test]
    fn values_that_do_not_match_the_schema_are_errors() {
        check_key_values(&["n=five"], "`n`: `five` is not an integer");
        check_key_values(&["n=1.5"], "`n`: `1.5` is not an integer");
        check_key_values(&["n="], "`n`: `` is not an integer");
        check_key_values(&["n=0x10"], "`n`: `0x10` is not an integer");
        check_key_values(&["x=NaN"], "`x`: `NaN` is not a number");
        check_key_values(&["x=01"], "`x`: `01` is not a number");
        check_key_values(&["on=yes"], "`on`: `yes` is not a boolean; expected true or false");
        check_key_values(&["o=[]"], "`o`: `[]` is not an object; expected JSON, quoted for the shell: o='…'");
        check_key_values(&["sizes=1", "sizes=b"], "`sizes`: `b` is not an integer");
        check_key_values(
            &["sizes=[1"],
            "`sizes`: `[1` is not an array of integer; expected JSON, quoted for the shell: sizes='…'",
        );
        check_key_values(&["plan=rubi"], "`plan`: `rubi` is not one of free, ruby; did you mean `ruby`?");
        check_key_values(&["name=a", "name=b"], "`name` is given 2 times, but it is not a list");
        check_key_values(
            &["dana@acme.test"],
            "`dana@acme.test` is not in the form key=value; did you mean `name=dana@acme.test`?",
        );
        check_key_values(&["{}"], "`{}` is not in the form key=value; pass JSON with --args");
        let all = "known arguments: name, maybe, n, x, on, tags, sizes, o, any, plan, level, opt, mixed";
        check_key_values(&["nam=x"], "unknown argument `nam`; did you mean `name`?");
        check_key_values(&["zebra=x"], &format!("unknown argument `zebra`; {all}"));
    }

    #[test]
    fn names_that_match_a_pattern_are_arguments() {
        let schema = r#"{"type":"object","properties":{"plan":{"type":["string","array"]},"price":{"type":["number","array"]},
            "paid":{"type":["string","array"],"format":"date"},"limit":{"type":"integer"}},
            "patternProperties":{"_(min|max|not|contains|starts|null)$":{}},"additionalProperties":false}"#;
        let schema = Json::parse(schema).expect("valid JSON");
        let parsed = Schema::parse(schema.to_doc().root());
        let known = "known arguments: plan, price, paid, limit, NAME_min|_max|_not|_contains|_starts|_null";
        for (words, expected) in [
            (&["paid_min=2026-01-01", "price_max=9.50"][..], r#"{"paid_min":"2026-01-01","price_max":9.50}"#),
            (&["paid_null=true", "plan_not=a", "plan_not=b"], r#"{"paid_null":true,"plan_not":["a","b"]}"#),
            (&["plan_contains=12"], r#"{"plan_contains":"12"}"#),
            (&["plan=12", "plan=b", "price=1", "price=2.5"], r#"{"plan":["12","b"],"price":[1,2.5]}"#),
            (&["paid_null=yes"], "`paid_null`: `yes` is not a boolean; expected true or false"),
            (
                &["price_min=cheap"],
                "`price_min`: `cheap` is not a number or array; expected JSON, quoted for the shell: price_min='…'",
            ),
            (&["price_mni=1"], &format!("unknown argument `price_mni`; {known}")),
            (&["pln=1"], "unknown argument `pln`; did you mean `plan`?"),
        ] {
            let words: Vec<String> = words.iter().map(|&word| word.into()).collect();
            let given = from_key_values(&words, &parsed, Validation::Strict);
            let checked = given.and_then(|given| check(&given, &parsed).map(|()| given));
            let checked = checked.and_then(|given| check_schema(&given, &schema).map(|()| given));
            let got = checked.map_or_else(|error| error.to_string(), |given| given.to_string());
            assert_eq!(got, expected);
        }
        for (text, expected) in [
            (r#"{"paid_min":"2026-01-01","price_null":false}"#, None),
            (r#"{"price_min":"cheap"}"#, Some("`price_min`: `\"cheap\"` is not a number or array; expected JSON, quoted for the shell: price_min='…'".to_owned())),
            (r#"{"price_null":1}"#, Some("`price_null`: `1` is not a boolean; expected true or false".to_owned())),
            (r#"{"price_mni":1}"#, Some(format!("unknown argument `price_mni`; {known}"))),
        ] {
            let given = Json::parse(text).expect("valid JSON");
            assert_eq!(check(&given, &parsed).err().map(|error| error.to_string()), expected);
        }
    }

    #[test]
    fn without_validation_values_of_any_type_and_name_are_sent() {
        for (words, expected) in [
            (&["n=five"][..], r#"{"n":"five"}"#),
            (&["n=1.5", "x=NaN", "on=yes"], r#"{"n":1.5,"x":"NaN","on":"yes"}"#),
            (&["n=12"], r#"{"n":12}"#),
            (&["name=12"], r#"{"name":"12"}"#),
            (&["plan=rubi", "level=7"], r#"{"plan":"rubi","level":7}"#),
            (&["o=[]", "tags={}"], r#"{"o":[],"tags":["{}"]}"#),
            (&["name=a", "name=2"], r#"{"name":["a",2]}"#),
            (&["zebra=x", "lion=3"], r#"{"zebra":"x","lion":3}"#),
            (&["sizes=1", "sizes=b"], r#"{"sizes":[1,"b"]}"#),
        ] {
            check_validated(words, Validation::Off, expected);
        }
        check_validated(
            &["dana"],
            Validation::Off,
            "`dana` is not in the form key=value; did you mean `name=dana`?",
        );
        assert_eq!(from_json("[1]", Validation::Off).expect("any JSON").as_str(), "[1]");
    }

    #[track_caller]
    fn check_json(text: &str, expected: &str) {
        let json = Json::parse(SCHEMA).expect("valid JSON");
        let doc = json.to_doc();
        let checked = from_json(text, Validation::Strict)
            .and_then(|json| check(&json, &Schema::parse(doc.root())).map(|()| json));
        let got = match checked {
            Ok(json) => json.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn the_whole_schema_is_checked() {
        let schema = r#"{"properties":{"limit":{"type":"integer","maximum":100},
            "email":{"type":"string","format":"email"},"code":{"type":"string","pattern":"^[A-Z]$"},
            "o":{"type":"object","required":["x"]}}}"#;
        let help = "; add --unchecked to send it as it is";
        for (arguments, expected) in [
            (r#"{"limit":100,"email":"dana@acme.test","code":"A","o":{"x":1}}"#, None),
            (r#"{"limit":101}"#, Some("`limit` must be at most 100")),
            (r#"{"email":"dana"}"#, Some("`email` is not a valid email address, such as `dana@acme.test`")),
            (r#"{"code":"AB"}"#, Some("`code` must match the pattern `^[A-Z]$`")),
            (r#"{"o":{}}"#, Some("`o.x` is required")),
        ] {
            let [schema, arguments] = [schema, arguments].map(|text| Json::parse(text).expect("valid JSON"));
            let got = check_schema(&arguments, &schema).err().map(|error| error.to_string());
            assert_eq!(got, expected.map(|text| format!("{text}{help}")));
        }
        // JavaScript allows this pattern. The server may, too.
        let foreign = Json::parse(r#"{"properties":{"a":{"pattern":"(?<!b)a"}}}"#).expect("valid JSON");
        assert!(check_schema(&Json::parse(r#"{"a":"x"}"#).expect("valid JSON"), &foreign).is_ok());
    }

    #[test]
    fn json_arguments_are_checked_against_the_schema() {
        check_json(
            r#"{"name": "x", "new": 12345678901234567890123}"#,
            r#"{"name":"x","new":12345678901234567890123}"#,
        );
        check_json(
            r#"{"name":"x","level":null,"plan":"free"}"#,
            r#"{"name":"x","level":null,"plan":"free"}"#,
        );
        check_json("{}", "missing argument `name`");
        check_json(r#"{"name":7}"#, "`name`: `7` is not a string");
        check_json(
            r#"{"name":"x","plan":"rubi"}"#,
            "`plan`: `rubi` is not one of free, ruby; did you mean `ruby`?",
        );
    }
}
