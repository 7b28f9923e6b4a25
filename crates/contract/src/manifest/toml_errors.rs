//! Slips in TOML, in words for people who do not know it, each with its way out. What the parser calls things is
//! for those who know the grammar: it helps to tell slips apart, and is never shown.

use std::ops::Range;

/// What is wrong, and the way out.
pub(super) type Explanation = (String, String);

/// Where the parser stopped.
pub(super) struct ErrorContext<'a> {
    /// What it minds. Often nothing: the place is all there is.
    token: &'a str,
    /// Its line up to there, and from there on.
    line_before: &'a str,
    line_rest: &'a str,
}

impl<'a> ErrorContext<'a> {
    pub(super) fn new(text: &'a str, span: &Range<usize>) -> Self {
        let token = text.get(span.clone()).unwrap_or_default();
        let (before, rest) = text.split_at_checked(span.start).unwrap_or((text, ""));
        let line_before = before.rsplit('\n').next().unwrap_or_default();
        Self { token, line_before, line_rest: rest.split('\n').next().unwrap_or_default() }
    }

    fn is_in_header(&self) -> bool {
        self.line_before.trim_start().starts_with('[') && !self.line_before.contains('=')
    }
}

/// A text that is no TOML at all.
pub(super) fn explain_other_format(text: &str) -> Option<Explanation> {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let first = text.lines().next().unwrap_or_default().trim_end();
    let is_array = || text.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'));
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let is_yaml = || first == "---" || first.strip_suffix(':').is_some_and(|name| name.chars().all(is_name));
    let format = match text.chars().next()? {
        '{' => "JSON",
        '[' if is_array() => "JSON",
        '<' => "XML",
        _ if is_yaml() => "YAML",
        _ => return None,
    };
    let help = "write `[sources.NAME]` and below it `path = \"…\"`; `spile init` writes one for your data";
    Some((format!("this looks like {format}, and a manifest is TOML"), help.to_owned()))
}

/// What the parser minds, in our words.
pub(super) fn explain(message: &str, spot: &ErrorContext<'_>) -> Explanation {
    let (what, _) = message.split_once(", expected").unwrap_or((message, ""));
    if let Some(words) = explain_character(spot) {
        return words;
    }
    let (what, help) = match what {
        "unexpected key or value" | "unexpected content" => return explain_trailing(spot),
        "string values must be quoted" | "invalid boolean" | "invalid float" => {
            return explain_unquoted(spot);
        }
        "invalid unquoted key"
        | "unquoted keys cannot be empty"
        | "key with no value"
        | "missing assignment between key-value pairs"
        | "extra `=`"
        | "unclosed table" => return explain_key(what, spot),
        "invalid basic string" => (
            "this text does not end on its line",
            "end it with `\"`; a text of several lines stands in `\"\"\"`",
        ),
        "invalid literal string" => {
            ("this text does not end on its line", "end it with `'`; a text of several lines stands in `'''`")
        }
        "invalid multi-line basic string" => ("this text has no end", "end it with `\"\"\"`"),
        "invalid multi-line literal string" => ("this text has no end", "end it with `'''`"),
        "missing escaped value" | "too few unicode value digits" | "invalid value" => (
            "a `\\` in double quotes must be followed by one of its letters",
            "write the text in single quotes, as in `'C:\\data'`, or each `\\` twice",
        ),
        "missing comma between array elements" => {
            ("a `,` is missing in an array", "or is it the `]` of the line before?")
        }
        "missing comma between key-value pairs" => {
            ("a `,` is missing between `{` and `}`", "write it before the next key")
        }
        "extra comma in array" | "extra comma in inline table" => ("a `,` too many", "leave it out"),
        "unexpected `=` in array" => {
            ("an array has values without keys", "write `[\"a\", \"b\"]`; keys stand between `{` and `}`")
        }
        "unclosed array" => ("an array has no `]`", "write `]` behind its last value"),
        "unclosed array table" => ("a header has no `]`", "write `]` behind its name"),
        "unclosed inline table" => ("a `{` has no `}`", "write `}` behind the last value"),
        "missing value" | "missing value for key" => ("there is no value", "write one behind the `=`"),
        "unexpected leading zero" => (
            "a number does not begin with `0`",
            "leave the `0` out; a text such as a postal code needs quotes",
        ),
        "cannot recurse further; max recursion depth met" => {
            ("too many brackets within brackets", "no manifest needs that many; leave some out")
        }
        "keys cannot be multi-line basic strings" | "keys cannot be multi-line literal strings" => {
            ("a key stands on one line", "write it in `\"`, once before and once behind it")
        }
        _ if what.starts_with("invalid date") || what.starts_with("invalid time") => {
            ("this is no date or time", "write it as in `2026-01-31`; a text needs quotes")
        }
        _ if what.starts_with("cannot extend") => {
            ("this has a value already", "give it a value or keys of its own, not both")
        }
        // All else that is said of one word is about numbers.
        _ if spot.line_rest.starts_with(|c: char| c.is_ascii_digit() || "+-._".contains(c))
            || what.starts_with("invalid fraction") =>
        {
            ("this is no number", "write digits, as in `100` or `0.5`; a text needs quotes")
        }
        _ => (
            "this cannot be read as TOML",
            "a line is a `[header]`, a `key = value` or a `# remark`; `spile init` writes an example",
        ),
    };
    (what.to_owned(), help.to_owned())
}

/// Characters that are wrong wherever they stand.
fn explain_character(spot: &ErrorContext<'_>) -> Option<Explanation> {
    let c = spot.line_rest.chars().next()?;
    match c {
        '\u{feff}' | '\u{200b}' | '\u{a0}' => Some((
            format!("there is an invisible character here (U+{:04X})", u32::from(c)),
            "take it out, and write the line again if you do not find it".to_owned(),
        )),
        _ if c.is_control() && c != '\t' && c != '\r' => Some((
            format!("there is a control character here (U+{:04X})", u32::from(c)),
            format!("take it out; a text in double quotes has it as `\\u{:04X}`", u32::from(c)),
        )),
        '“' | '”' | '„' | '‘' | '’' | '‚' | '«' | '»' | '`' => Some((
            format!(
                "{} is no quote of TOML",
                if c == '`' { "a backtick".to_owned() } else { format!("`{c}`") }
            ),
            "write plain quotes: `\"…\"`".to_owned(),
        )),
        _ => None,
    }
}

/// A value without quotes that is neither a number nor anything else.
fn explain_unquoted(spot: &ErrorContext<'_>) -> Explanation {
    let word = spot.token.trim();
    let (what, help) = match word.to_ascii_lowercase().as_str() {
        "" => ("there is no value".into(), "write one behind the `=`".into()),
        "null" | "none" | "nil" | "undefined" => ("TOML has no null".into(), "leave the line out".to_owned()),
        small @ ("true" | "false") => {
            (format!("`{word}` is written in small letters"), format!("write `{small}`"))
        }
        "yes" | "on" => {
            (format!("`{word}` is no value of TOML"), "write `true`, or quotes if it is a text".into())
        }
        "no" | "off" => {
            (format!("`{word}` is no value of TOML"), "write `false`, or quotes if it is a text".into())
        }
        _ if word.starts_with('(') => {
            ("an array stands between `[` and `]`".into(), "write `[\"a\", \"b\"]`".into())
        }
        _ if word.starts_with(|c: char| c.is_ascii_digit()) => (
            "this is no number, and a text needs quotes".into(),
            "write digits alone, or quotes: `\"…\"`".into(),
        ),
        _ => ("a text needs quotes".into(), "write it in quotes: `\"…\"`".into()),
    };
    (what, help)
}

/// What stands behind a value or a header on its line.
fn explain_trailing(spot: &ErrorContext<'_>) -> Explanation {
    let (before, rest) = (spot.line_before.trim_end(), spot.line_rest.trim_end());
    let is_grouped = before.ends_with(|c: char| c.is_ascii_digit())
        && rest.strip_prefix(',').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let (what, help) = match rest.chars().next() {
        _ if spot.is_in_header() => ("something stands behind a header", "write it on a line of its own"),
        _ if is_grouped => ("a number has no `,` between its digits", "write `1000`, or `1_000`"),
        _ if rest.starts_with("//") || rest.starts_with("--") => return explain_comment(),
        Some(',' | ';') if rest.len() == 1 => ("a line needs no sign at its end", "leave it out"),
        Some(',') => ("several values are an array", "write `[` before the first and `]` behind the last"),
        _ if before.ends_with('"') => (
            "a text ends at its next `\"`, and here it goes on",
            "write a text that has quotes in it between `'''` and `'''`; a text in SQL has single quotes",
        ),
        _ if before.ends_with('\'') => (
            "a text ends at its next `'`, and here it goes on",
            "write a text that has a `'` in it in double quotes: `\"it's\"`",
        ),
        _ => ("something stands behind a value", "write it on a line of its own, or a `#` before a remark"),
    };
    (what.to_owned(), help.to_owned())
}

fn explain_comment() -> Explanation {
    ("a remark begins with `#`".to_owned(), "write `# …`".to_owned())
}

/// A key, or what stands between it and its value.
fn explain_key(message: &str, spot: &ErrorContext<'_>) -> Explanation {
    let (before, rest) = (spot.line_before.trim(), spot.line_rest);
    let (what, help) = match message {
        _ if rest.starts_with("//") || before.starts_with("--") => return explain_comment(),
        _ if rest.starts_with(':') || before.ends_with(':') => {
            ("a `:` where a `=` belongs", "write `key = value`")
        }
        "extra `=`" => ("a `=` too many", "write `key = value`"),
        "unclosed table" if rest.contains(']') => {
            ("a name with a blank in it needs quotes", "write it in `\"…\"`, or `_` in place of the blank")
        }
        "unclosed table" => ("a header has no `]`", "write `]` behind its name"),
        "unquoted keys cannot be empty" if before.ends_with('[') => {
            ("a header without a name", "write one, as in `[sources.crm]`")
        }
        "unquoted keys cannot be empty" if rest.starts_with('=') => {
            ("a value without a key", "write `key = value`")
        }
        "invalid unquoted key" | "unquoted keys cannot be empty" => (
            "this cannot stand in a key",
            "write `key = value`; a key with other characters than letters, digits, `-` and `_` needs quotes",
        ),
        _ => ("a key without a value", "write `key = value`"),
    };
    (what.to_owned(), help.to_owned())
}
