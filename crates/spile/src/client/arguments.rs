//! From what was typed to what is sent: `key=value` words, read by what the tool says it takes.

use contract::nearest;
use contract::words::some;
use json::{Json, Kind, Node};

use super::schema::{Kinds, Others, Schema, Shape, spoken};
use super::trouble::Trouble;

/// The arguments of a call, as an object.
pub(crate) fn from_words(words: &[String], schema: &Schema) -> Result<Json, Trouble> {
    let mut given: Vec<(&str, Vec<&str>)> = Vec::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| no_pair(word, schema))?;
        match given.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => given.push((name, vec![value])),
        }
    }
    let mut values = Vec::with_capacity(given.len());
    for (name, texts) in given {
        let shape = match schema.find(name) {
            Some(argument) => &argument.shape,
            None if schema.others == Others::Welcome
                || schema.arguments.is_empty() && schema.others == Others::Unsaid =>
            {
                &Shape::default()
            }
            None => return Err(unknown(name, schema)),
        };
        values.push((name, value(name, &texts, shape)?));
    }
    Ok(Json::object(|out| {
        for (name, value) in &values {
            out.raw(name, value.as_str());
        }
    }))
}

/// Words whose values are texts, whatever they look like.
pub(crate) fn texts(words: &[String]) -> Result<Json, Trouble> {
    let pairs = words
        .iter()
        .map(|word| word.split_once('=').ok_or_else(|| Trouble::usage(format!("`{word}` is no key=value"))))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Json::object(|out| {
        for (name, value) in pairs {
            out.str(name, value);
        }
    }))
}

/// Whether the server is worth asking: what it needs is there, and what is there it knows. Types and choices
/// only on the surface; the server knows better.
pub(crate) fn check(arguments: &Json, schema: &Schema) -> Result<(), Trouble> {
    let doc = arguments.doc();
    let given = doc.root();
    for (key, value) in given.members() {
        let name = key.str().unwrap_or_default();
        match schema.find(&name) {
            Some(argument) => fits(&name, value, &argument.shape)?,
            None if schema.others == Others::Forbidden => return Err(unknown(&name, schema)),
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
        [one] => Err(Trouble::usage(format!("{one} is missing"))),
        several => Err(Trouble::usage(format!("{} are missing", several.join(", ")))),
    }
}

/// What was given as JSON.
pub(crate) fn from_json(text: &str) -> Result<Json, Trouble> {
    let json = Json::parse(text).map_err(|bad| Trouble::usage(format!("--json: {bad}")).help(JSON_HELP))?;
    if json.is_object() {
        Ok(json)
    } else {
        Err(Trouble::usage("--json: the arguments of a call are an object").help(JSON_HELP))
    }
}

const JSON_HELP: &str = r#"one looks like --json '{"name":"value"}'; --json - reads it from stdin"#;

fn no_pair(word: &str, schema: &Schema) -> Trouble {
    let trouble = Trouble::usage(format!("`{word}` is no key=value"));
    let needed: Vec<&str> = schema
        .arguments
        .iter()
        .filter(|argument| argument.is_required)
        .map(|argument| argument.name.as_str())
        .collect();
    match &*needed {
        _ if word.trim_start().starts_with('{') => trouble.help("JSON goes behind --json"),
        [only] => trouble.help(format!("did you mean `{only}={word}`?")),
        _ => trouble.help(known(schema)),
    }
}

fn unknown(name: &str, schema: &Schema) -> Trouble {
    let trouble = Trouble::usage(format!("there is no argument `{name}`"));
    match nearest(name, schema.arguments.iter().map(|argument| argument.name.as_str())) {
        Some(meant) => trouble.help(format!("did you mean `{meant}`? {}", known(schema))),
        None => trouble.help(known(schema)),
    }
}

fn known(schema: &Schema) -> String {
    let names: Vec<&str> = schema.arguments.iter().map(|argument| argument.name.as_str()).collect();
    if names.is_empty() {
        "it takes no arguments".to_owned()
    } else {
        format!("it takes {}", some(&names, 20))
    }
}

/// The value of one argument, from all that was given for it.
fn value(name: &str, texts: &[&str], shape: &Shape) -> Result<Json, Trouble> {
    let is_list = shape.kinds.has(Kinds::ARRAY) && !shape.kinds.has(Kinds::STRING);
    match texts {
        [text] if is_list && text.trim_start().starts_with('[') => single(name, text, shape),
        [text] if !is_list => single(name, text, shape),
        several if is_list || shape.kinds.has(Kinds::ARRAY) => {
            let anything = Shape::default();
            let item = shape.item.as_deref().unwrap_or(&anything);
            let items = several.iter().map(|text| single(name, text, item)).collect::<Result<Vec<_>, _>>()?;
            let mut out = Vec::new();
            json::write::array(&mut out, &items, |out, item| out.extend_from_slice(item.as_str().as_bytes()));
            Ok(Json::written(out))
        }
        _ => Err(Trouble::usage(format!("`{name}` is given {} times, and is no list", texts.len()))),
    }
}

fn single(name: &str, text: &str, shape: &Shape) -> Result<Json, Trouble> {
    if !shape.choices.is_empty() {
        return chosen(name, text, shape);
    }
    let kinds = shape.kinds;
    let as_text = || {
        let mut out = Vec::new();
        json::write::string(&mut out, text);
        Json::written(out)
    };
    // Text stays text, whatever it looks like.
    if kinds.without(Kinds::NULL) == Kinds::STRING {
        return Ok(as_text());
    }
    let read = Json::parse(text).ok().filter(|json| kinds.is_unsaid() || is_of(json.doc().root(), kinds));
    match read {
        Some(json) => Ok(json),
        None if kinds.is_unsaid() || kinds.has(Kinds::STRING) => Ok(as_text()),
        None => Err(misfit(name, text, shape)),
    }
}

fn chosen(name: &str, text: &str, shape: &Shape) -> Result<Json, Trouble> {
    if let Some(choice) = shape.choices.iter().find(|choice| spoken(choice) == text) {
        return Ok(choice.clone());
    }
    if text == "null" && shape.kinds.has(Kinds::NULL) && !shape.kinds.has(Kinds::STRING) {
        return Ok(Json::parse("null").expect("it is JSON"));
    }
    Err(not_chosen(name, text, shape))
}

fn not_chosen(name: &str, text: &str, shape: &Shape) -> Trouble {
    let choices: Vec<String> = shape.choices.iter().map(spoken).collect();
    let trouble = Trouble::usage(format!("`{name}`: `{text}` is none of {}", some(&choices, 20)));
    match nearest(text, choices.iter().map(String::as_str)) {
        Some(meant) => trouble.help(format!("did you mean `{meant}`?")),
        None => trouble,
    }
}

fn misfit(name: &str, text: &str, shape: &Shape) -> Trouble {
    let trouble = Trouble::usage(format!("`{name}`: `{text}` is not {}", with_article(&shape.in_words())));
    let kinds = shape.kinds.without(Kinds::NULL);
    if kinds == Kinds::BOOLEAN {
        trouble.help("give true or false")
    } else if kinds.has(Kinds::OBJECT) || kinds.has(Kinds::ARRAY) {
        trouble.help(format!("give JSON, in quotes for the shell: {name}='…'"))
    } else {
        trouble
    }
}

fn with_article(words: &str) -> String {
    let vowel = words.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {words}", if vowel { "an" } else { "a" })
}

fn fits(name: &str, value: Node<'_>, shape: &Shape) -> Result<(), Trouble> {
    let raw = || value.str().map_or_else(|| value.raw().to_owned(), |text| text.into_owned());
    if !shape.kinds.is_unsaid() && !is_of(value, shape.kinds) {
        return Err(misfit(name, value.raw(), shape));
    }
    let is_choice = |choice: &Json| *choice == Json::from(value) || spoken(choice) == raw();
    if !shape.choices.is_empty() && value.kind() != Kind::Null && !shape.choices.iter().any(is_choice) {
        return Err(not_chosen(name, &raw(), shape));
    }
    Ok(())
}

fn is_of(value: Node<'_>, kinds: Kinds) -> bool {
    match value.kind() {
        Kind::Null => kinds.has(Kinds::NULL),
        Kind::True | Kind::False => kinds.has(Kinds::BOOLEAN),
        Kind::Number => kinds.has(Kinds::NUMBER) || kinds.has(Kinds::INTEGER) && is_whole(value),
        Kind::String => kinds.has(Kinds::STRING),
        Kind::Array => kinds.has(Kinds::ARRAY),
        Kind::Object => kinds.has(Kinds::OBJECT),
    }
}

/// JSON Schema: a number whose fraction is zero is an integer. What has an exponent is for the server to judge.
fn is_whole(number: Node<'_>) -> bool {
    let raw = number.raw();
    match raw.split_once('.') {
        _ if raw.contains(['e', 'E']) => true,
        Some((_, fraction)) => fraction.bytes().all(|digit| digit == b'0'),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{Schema, check, from_json, from_words};
    use json::Json;

    const SCHEMA: &str = r#"{"properties":{
        "name":{"type":"string"},"maybe":{"type":["string","null"]},"n":{"type":"integer"},
        "x":{"type":"number"},"on":{"type":"boolean"},"tags":{"type":"array","items":{"type":"string"}},
        "sizes":{"type":"array","items":{"type":"integer"}},"o":{"type":"object"},"any":{},
        "plan":{"enum":["free","ruby"]},"level":{"enum":[1,2,null]},"opt":{"type":["integer","null"]},
        "mixed":{"type":["string","integer"]}},"required":["name"]}"#;

    #[track_caller]
    fn typed(words: &[&str], expected: &str) {
        let json = Json::parse(SCHEMA).expect("JSON");
        let doc = json.doc();
        let words: Vec<String> = words.iter().map(|&word| word.into()).collect();
        let got = match from_words(&words, &Schema::read(doc.root())) {
            Ok(json) => json.to_string(),
            Err(trouble) => trouble.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn words_become_what_the_tool_takes() {
        typed(&[], "{}");
        typed(&["name=007"], r#"{"name":"007"}"#);
        typed(&["name="], r#"{"name":""}"#);
        typed(&["name=a=b"], r#"{"name":"a=b"}"#);
        typed(&["name=[1]"], r#"{"name":"[1]"}"#);
        typed(&["maybe=null"], r#"{"maybe":"null"}"#);
        typed(&["n=-5", "x=1.50", "on=true"], r#"{"n":-5,"x":1.50,"on":true}"#);
        typed(&["n=1.0"], r#"{"n":1.0}"#);
        typed(&["tags=a", "tags=2"], r#"{"tags":["a","2"]}"#);
        typed(&["tags=a,b"], r#"{"tags":["a,b"]}"#);
        typed(&["tags=[\"a\", \"b\"]"], r#"{"tags":["a","b"]}"#);
        typed(&["sizes=1", "sizes=2"], r#"{"sizes":[1,2]}"#);
        typed(&[r#"o={"a": {"b": 1}}"#], r#"{"o":{"a":{"b":1}}}"#);
        typed(&["any=5", "plan=ruby", "level=2"], r#"{"any":5,"plan":"ruby","level":2}"#);
        typed(&["any=five"], r#"{"any":"five"}"#);
        typed(&["opt=null", "mixed=5"], r#"{"opt":null,"mixed":5}"#);
        typed(&["mixed=five"], r#"{"mixed":"five"}"#);
    }

    #[test]
    fn digits_are_kept() {
        typed(&["n=123456789012345678901234567890"], r#"{"n":123456789012345678901234567890}"#);
        typed(&["x=0.1000000000000000000000001"], r#"{"x":0.1000000000000000000000001}"#);
        typed(&["x=1e400"], r#"{"x":1e400}"#);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        typed(&["n=five"], "`n`: `five` is not an integer");
        typed(&["n=1.5"], "`n`: `1.5` is not an integer");
        typed(&["n="], "`n`: `` is not an integer");
        typed(&["n=0x10"], "`n`: `0x10` is not an integer");
        typed(&["x=NaN"], "`x`: `NaN` is not a number");
        typed(&["x=01"], "`x`: `01` is not a number");
        typed(&["on=yes"], "`on`: `yes` is not a boolean; give true or false");
        typed(&["o=[]"], "`o`: `[]` is not an object; give JSON, in quotes for the shell: o='…'");
        typed(&["sizes=1", "sizes=b"], "`sizes`: `b` is not an integer");
        typed(
            &["sizes=[1"],
            "`sizes`: `[1` is not an array of integer; give JSON, in quotes for the shell: sizes='…'",
        );
        typed(&["plan=rubi"], "`plan`: `rubi` is none of free, ruby; did you mean `ruby`?");
        typed(&["name=a", "name=b"], "`name` is given 2 times, and is no list");
        typed(&["dana@acme.test"], "`dana@acme.test` is no key=value; did you mean `name=dana@acme.test`?");
        typed(&["{}"], "`{}` is no key=value; JSON goes behind --json");
        let all = "it takes name, maybe, n, x, on, tags, sizes, o, any, plan, level, opt, mixed";
        typed(&["nam=x"], &format!("there is no argument `nam`; did you mean `name`? {all}"));
        typed(&["zebra=x"], &format!("there is no argument `zebra`; {all}"));
    }

    #[track_caller]
    fn sent(text: &str, expected: &str) {
        let json = Json::parse(SCHEMA).expect("JSON");
        let doc = json.doc();
        let checked = from_json(text).and_then(|json| check(&json, &Schema::read(doc.root())).map(|()| json));
        let got = match checked {
            Ok(json) => json.to_string(),
            Err(trouble) => trouble.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn json_is_looked_at_before_it_is_sent() {
        sent(
            r#"{"name": "x", "new": 12345678901234567890123}"#,
            r#"{"name":"x","new":12345678901234567890123}"#,
        );
        sent(r#"{"name":"x","level":null,"plan":"free"}"#, r#"{"name":"x","level":null,"plan":"free"}"#);
        sent("{}", "`name` is missing");
        sent(r#"{"name":7}"#, "`name`: `7` is not a string");
        sent(r#"{"name":"x","plan":"rubi"}"#, "`plan`: `rubi` is none of free, ruby; did you mean `ruby`?");
    }
}
