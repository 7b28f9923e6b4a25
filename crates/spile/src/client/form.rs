//! Elicitation at the terminal: a form, field by field, or a web page to visit.
//!
//! Each value is checked against the requested schema, and asked for again until it matches. `!` declines, Ctrl-D
//! cancels. A form is shown before it is sent, except one that only asks yes or no: there the answer is final.

use json::{Json, Node, NodeKind};

use super::schema::display_text;
use super::terminal::Terminal;
use crate::sanitize;

/// A result without content.
pub(crate) fn action_result(action: &str) -> Json {
    Json::object(|out| {
        out.str("action", action);
    })
}

/// Why a form was not filled in.
enum FormExit {
    Declined,
    Cancelled,
}

pub(crate) async fn run_elicitation(terminal: &Terminal, params: Node<'_>) -> Json {
    let text = |key: &str| params.get(key).and_then(|text| text.str()).unwrap_or_default().into_owned();
    terminal.print(&format!(
        "\n{} asks: {}",
        terminal.style.bold(terminal.server_name()),
        sanitize::lines(&text("message"))
    ));
    let result = if params.get("mode").is_some_and(|mode| mode.eq_str("url")) {
        visit_url(terminal, &text("url")).await
    } else {
        fill_form(terminal, params.get("requestedSchema")).await
    };
    match result {
        Ok(result) => result,
        Err(FormExit::Declined) => action_result("decline"),
        Err(FormExit::Cancelled) => action_result("cancel"),
    }
}

/// Shows the address and never opens it: the server may be hostile.
async fn visit_url(terminal: &Terminal, url: &str) -> Result<Json, FormExit> {
    let host = url::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    terminal.print(&format!("  open in a browser: {}", terminal.style.bold(&sanitize::escape_line(url))));
    terminal.print(&format!("  host: {}", sanitize::escape_line(host.as_deref().unwrap_or("unknown"))));
    match read_answer(terminal, "  Did you complete the page? [y]es, [n]o, Ctrl-D cancels: ").await?.as_str()
    {
        "y" | "Y" | "yes" => Ok(action_result("accept")),
        _ => Err(FormExit::Declined),
    }
}

async fn fill_form(terminal: &Terminal, schema: Option<Node<'_>>) -> Result<Json, FormExit> {
    let fields: Vec<FormField> = schema
        .and_then(|schema| schema.get("properties"))
        .into_iter()
        .flat_map(|all| all.members())
        .map(|(name, field)| FormField::parse(&name.str().unwrap_or_default(), field, schema))
        .collect();
    terminal.print(&terminal.style.faint("  an empty line takes the default, ! declines, Ctrl-D cancels"));
    // A confirmation: the answer is final, so there is nothing to show and send again.
    if let [field] = &*fields
        && matches!(field.input, InputKind::YesNo)
    {
        let value = field.prompt_until_valid(terminal).await?;
        return Ok(accept_result(&form_content(value.iter().map(|value| (field.name.as_str(), value)))));
    }
    loop {
        let mut values: Vec<(&str, Json)> = Vec::new();
        for field in &fields {
            if let Some(value) = field.prompt_until_valid(terminal).await? {
                values.push((&field.name, value));
            }
        }
        let content = form_content(values.iter().map(|(name, value)| (*name, value)));
        terminal.print(&format!("  {}", sanitize::json(content.as_str())));
        match read_answer(terminal, "  send this? [Y]es, [n]o, [a]gain: ").await?.as_str() {
            "" | "y" | "Y" | "yes" => return Ok(accept_result(&content)),
            "n" | "N" | "no" => return Err(FormExit::Declined),
            _ => {}
        }
    }
}

fn form_content<'a>(values: impl Iterator<Item = (&'a str, &'a Json)>) -> Json {
    Json::object(|out| {
        for (name, value) in values {
            out.raw(name, value.as_str());
        }
    })
}

fn accept_result(content: &Json) -> Json {
    Json::object(|out| {
        out.str("action", "accept").raw("content", content.as_str());
    })
}

async fn read_answer(terminal: &Terminal, prompt: &str) -> Result<String, FormExit> {
    terminal.prompt(prompt);
    match terminal.read_line().await {
        None => {
            terminal.print("");
            Err(FormExit::Cancelled)
        }
        Some(line) if line.trim() == "!" => Err(FormExit::Declined),
        Some(line) => Ok(line.trim().to_owned()),
    }
}

struct FormField {
    name: String,
    title: String,
    description: Option<String>,
    is_required: bool,
    default: Option<Json>,
    input: InputKind,
}

/// What a field accepts.
enum InputKind {
    Text { format: Option<String>, length_min: usize, length_max: usize },
    Number { is_whole: bool, min: Option<f64>, max: Option<f64> },
    YesNo,
    SingleChoice(Vec<Choice>),
    MultipleChoice { choices: Vec<Choice>, min: usize, max: usize },
}

struct Choice {
    value: String,
    title: String,
}

impl FormField {
    fn parse(name: &str, field: Node<'_>, schema: Option<Node<'_>>) -> Self {
        let text = |key: &str| field.get(key).and_then(|text| text.str()).map(|text| text.into_owned());
        let count = |node: Node<'_>, key: &str| node.get(key).and_then(|n| n.u64()).map(|n| n as usize);
        let number = |key: &str| field.get(key).and_then(|n| n.raw().parse::<f64>().ok());
        let required = schema.and_then(|schema| schema.get("required"));
        let kind = text("type").unwrap_or_default();
        let choices = choices(field);
        let input = match &*kind {
            "boolean" => InputKind::YesNo,
            "integer" | "number" => InputKind::Number {
                is_whole: kind == "integer",
                min: number("minimum"),
                max: number("maximum"),
            },
            "array" => {
                let choices = field.get("items").map(self::choices).unwrap_or_default();
                let (min, max) = (count(field, "minItems"), count(field, "maxItems"));
                InputKind::MultipleChoice { choices, min: min.unwrap_or(0), max: max.unwrap_or(usize::MAX) }
            }
            _ if !choices.is_empty() => InputKind::SingleChoice(choices),
            _ => InputKind::Text {
                format: text("format"),
                length_min: count(field, "minLength").unwrap_or(0),
                length_max: count(field, "maxLength").unwrap_or(usize::MAX),
            },
        };
        Self {
            name: name.to_owned(),
            title: sanitize::escape_line(&text("title").unwrap_or_else(|| name.to_owned())).into_owned(),
            description: text("description").map(|text| sanitize::escape_line(&text).into_owned()),
            is_required: required.is_some_and(|names| names.elements().any(|one| one.eq_str(name))),
            default: field.get("default").map(Json::from),
            input,
        }
    }

    async fn prompt_until_valid(&self, terminal: &Terminal) -> Result<Option<Json>, FormExit> {
        if let Some(description) = &self.description {
            terminal.print(&terminal.style.faint(&format!("  {description}")));
        }
        if let InputKind::SingleChoice(choices) | InputKind::MultipleChoice { choices, .. } = &self.input {
            for (index, choice) in choices.iter().enumerate() {
                terminal.print(&format!("    {}) {}", index + 1, sanitize::escape_line(&choice.title)));
            }
        }
        let prompt = self.prompt();
        loop {
            let line = read_answer(terminal, &prompt).await?;
            match self.parse_value(&line) {
                Ok(value) => return Ok(value),
                Err(reason) => terminal.print(&terminal.style.red(&format!("  {reason}"))),
            }
        }
    }

    /// `  age (integer) [30]: `
    fn prompt(&self) -> String {
        let kind = match &self.input {
            InputKind::Text { format: Some(format), .. } => format!(" ({})", sanitize::escape_line(format)),
            InputKind::Text { .. } => String::new(),
            InputKind::Number { is_whole: true, .. } => " (integer)".to_owned(),
            InputKind::Number { .. } => " (number)".to_owned(),
            InputKind::YesNo => " (yes or no)".to_owned(),
            InputKind::SingleChoice(_) => " (one)".to_owned(),
            InputKind::MultipleChoice { .. } => " (several, with commas)".to_owned(),
        };
        let default = match &self.default {
            Some(default) if matches!(self.input, InputKind::YesNo) => {
                let is_yes = default.to_doc().root().bool() == Some(true);
                format!(" [{}]", if is_yes { "yes" } else { "no" })
            }
            Some(default) => format!(" [{}]", sanitize::escape_line(&display_text(default))),
            None if self.is_required => String::new(),
            None => " []".to_owned(),
        };
        format!("  {}{kind}{default}: ", self.title)
    }

    /// `None` if an optional field is left empty.
    fn parse_value(&self, line: &str) -> Result<Option<Json>, String> {
        if line.is_empty() {
            return match (&self.default, self.is_required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, false) => Ok(None),
                (None, true) => Err("a value is required".to_owned()),
            };
        }
        let json = match &self.input {
            InputKind::Text { format, length_min, length_max } => {
                let length = line.chars().count();
                if length < *length_min {
                    return Err(format!("must have at least {length_min} characters"));
                }
                if length > *length_max {
                    return Err(format!("must have at most {length_max} characters"));
                }
                if let Some(format) = format {
                    check_format(line, format)?;
                }
                Json::string(line)
            }
            InputKind::Number { is_whole, min, max } => {
                let json =
                    Json::parse(line).ok().filter(|json| json.to_doc().root().kind() == NodeKind::Number);
                let json = json.ok_or_else(|| "expected a number, such as 42".to_owned())?;
                if *is_whole && !json.to_doc().root().is_plain_integer() {
                    return Err("expected an integer, such as 42".to_owned());
                }
                let number: f64 = line.parse().unwrap_or(f64::NAN);
                match (min, max) {
                    (Some(min), _) if number < *min => return Err(format!("must be at least {min}")),
                    (_, Some(max)) if number > *max => return Err(format!("must be at most {max}")),
                    _ => json,
                }
            }
            InputKind::YesNo => match &*line.to_ascii_lowercase() {
                "y" | "yes" | "true" => Json::parse("true").expect("valid JSON"),
                "n" | "no" | "false" => Json::parse("false").expect("valid JSON"),
                _ => return Err("expected yes or no".to_owned()),
            },
            InputKind::SingleChoice(choices) => Json::string(find_choice(line, choices)?),
            InputKind::MultipleChoice { choices, min, max } => {
                let chosen = line.split(',').map(|one| find_choice(one.trim(), choices));
                let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
                if chosen.len() < *min || chosen.len() > *max {
                    return Err(if *max == usize::MAX {
                        format!("choose at least {min}")
                    } else {
                        format!("choose {min} to {max}")
                    });
                }
                let mut out = Vec::new();
                json::write::array(&mut out, chosen, json::write::string);
                Json::from_written_bytes(out)
            }
        };
        Ok(Some(json))
    }
}

/// Finds a choice by its number, its value or its title.
fn find_choice<'c>(typed: &str, choices: &'c [Choice]) -> Result<&'c str, String> {
    let by_number = typed.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    let by_name = || choices.iter().find(|one| one.value == typed || one.title.eq_ignore_ascii_case(typed));
    match by_name().or(by_number) {
        Some(choice) => Ok(&choice.value),
        None => Err(format!("expected a number from 1 to {}, or a name from the list", choices.len())),
    }
}

/// The choices of a field: `enum` with or without `enumNames`, or `oneOf`/`anyOf` of titled constants.
fn choices(field: Node<'_>) -> Vec<Choice> {
    let text = |node: Node<'_>| node.str().map(|text| text.into_owned());
    if let Some(values) = field.get("enum") {
        let mut names = field.get("enumNames").map(|names| names.elements());
        return values
            .elements()
            .filter_map(text)
            .map(|value| {
                let name = names.as_mut().and_then(|names| names.next()).and_then(text);
                Choice { title: name.unwrap_or_else(|| value.clone()), value }
            })
            .collect();
    }
    let titled = field.get("oneOf").or_else(|| field.get("anyOf"));
    titled
        .into_iter()
        .flat_map(|all| all.elements())
        .filter_map(|one| {
            let value = one.get("const").and_then(text)?;
            Some(Choice { title: one.get("title").and_then(text).unwrap_or_else(|| value.clone()), value })
        })
        .collect()
}

fn check_format(text: &str, format: &str) -> Result<(), String> {
    let is_date = |text: &str| {
        let parts: Vec<&str> = text.split('-').collect();
        let digits =
            |part: &&str, count: usize| part.len() == count && part.bytes().all(|c| c.is_ascii_digit());
        matches!(&*parts, [y, m, d] if digits(y, 4) && digits(m, 2) && digits(d, 2)
            && (1..=12).contains(&m.parse().unwrap_or(0)) && (1..=31).contains(&d.parse().unwrap_or(0)))
    };
    let fits = match format {
        "email" => {
            text.split_once('@').is_some_and(|(user, domain)| !user.is_empty() && domain.contains('.'))
        }
        "uri" => url::Url::parse(text).is_ok(),
        "date" => is_date(text),
        "date-time" => text.split_once(['T', 't']).is_some_and(|(day, time)| is_date(day) && time.len() >= 9),
        _ => true,
    };
    match (fits, format) {
        (true, _) => Ok(()),
        (false, "email") => Err("expected an email address, such as dana@acme.test".to_owned()),
        (false, "uri") => Err("expected a URL, such as https://example.com".to_owned()),
        (false, "date") => Err("expected a date, such as 2026-02-11".to_owned()),
        (false, _) => Err("expected a date and time, such as 2026-02-11T09:30:00Z".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::FormField;
    use json::Json;

    #[track_caller]
    fn check(field: &str, typed: &str, expected: &str) {
        let (schema, field) = (Json::parse(r#"{"required":["f"]}"#), Json::parse(field));
        let (schema, field) = (schema.expect("valid JSON").to_doc(), field.expect("valid JSON").to_doc());
        let field = FormField::parse("f", field.root(), Some(schema.root()));
        let got = match field.parse_value(typed) {
            Ok(Some(json)) => json.to_string(),
            Ok(None) => "nothing".to_owned(),
            Err(reason) => reason,
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn values_that_match_the_schema_are_accepted() {
        check(r#"{"type":"string"}"#, "007", r#""007""#);
        check(r#"{"type":"integer","minimum":0}"#, "12345678901234567890", "12345678901234567890");
        check(r#"{"type":"number"}"#, "1.50", "1.50");
        check(r#"{"type":"boolean"}"#, "Yes", "true");
        check(r#"{"type":"boolean","default":true}"#, "", "true");
        check(r#"{"type":"string","enum":["a","b"],"enumNames":["Alpha","Beta"]}"#, "beta", r#""b""#);
        check(r#"{"type":"string","enum":["a","b"]}"#, "1", r#""a""#);
        check(r#"{"type":"string","oneOf":[{"const":"x","title":"The X"}]}"#, "the x", r#""x""#);
        check(r#"{"type":"array","items":{"enum":["a","b"]}}"#, "a, 2", r#"["a","b"]"#);
        check(r#"{"type":"string","format":"email"}"#, "d@a.test", r#""d@a.test""#);
    }

    #[test]
    fn values_that_do_not_match_the_schema_are_asked_for_again() {
        check(r#"{"type":"string"}"#, "", "a value is required");
        check(r#"{"type":"string","minLength":3}"#, "ab", "must have at least 3 characters");
        check(r#"{"type":"string","maxLength":1}"#, "ab", "must have at most 1 characters");
        check(
            r#"{"type":"string","format":"email"}"#,
            "d",
            "expected an email address, such as dana@acme.test",
        );
        check(r#"{"type":"string","format":"date"}"#, "2026-13-01", "expected a date, such as 2026-02-11");
        check(r#"{"type":"string","format":"uri"}"#, "x", "expected a URL, such as https://example.com");
        check(r#"{"type":"integer"}"#, "1.5", "expected an integer, such as 42");
        check(r#"{"type":"number","maximum":2}"#, "3", "must be at most 2");
        check(r#"{"type":"number"}"#, "[1]", "expected a number, such as 42");
        check(r#"{"type":"boolean"}"#, "maybe", "expected yes or no");
        check(
            r#"{"type":"string","enum":["a","b"]}"#,
            "3",
            "expected a number from 1 to 2, or a name from the list",
        );
        check(r#"{"type":"array","items":{"enum":["a","b"]},"minItems":2}"#, "a", "choose at least 2");
    }
}
