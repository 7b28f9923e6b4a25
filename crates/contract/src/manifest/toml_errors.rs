//! Explains TOML syntax errors to authors who may not know TOML, each with a fix. The parser's own messages are written
//! for readers of the grammar; they are used to recognize an error, and never shown.

use std::ops::Range;

/// The message and the help.
pub(super) type Explanation = (String, String);

/// Where the parser reported an error.
pub(super) struct ErrorContext<'a> {
    /// The reported text. Often empty: then only the position is known.
    token: &'a str,
    /// The line before the position, and from there on.
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

/// A text in another format than TOML.
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
    let help =
        "write `[sources.NAME]` and `path = \"…\"` below it; `spile init` writes a manifest for your data";
    Some((format!("this looks like {format}, but a manifest is TOML"), help.to_owned()))
}

/// Explains a message of the parser.
pub(super) fn explain(message: &str, context: &ErrorContext<'_>) -> Explanation {
    let (what, _) = message.split_once(", expected").unwrap_or((message, ""));
    if let Some(words) = explain_character(context) {
        return words;
    }
    let (what, help) = match what {
        "unexpected key or value" | "unexpected content" => return explain_trailing(context),
        "string values must be quoted" | "invalid boolean" | "invalid float" => {
            return explain_unquoted(context);
        }
        "invalid unquoted key"
        | "unquoted keys cannot be empty"
        | "key with no value"
        | "missing assignment between key-value pairs"
        | "extra `=`"
        | "unclosed table" => return explain_key(what, context),
        "invalid basic string" => (
            "this string is not closed on its line",
            "end it with `\"`; write a string of several lines in `\"\"\"`",
        ),
        "invalid literal string" => (
            "this string is not closed on its line",
            "end it with `'`; write a string of several lines in `'''`",
        ),
        "invalid multi-line basic string" => ("this string is not closed", "end it with `\"\"\"`"),
        "invalid multi-line literal string" => ("this string is not closed", "end it with `'''`"),
        "missing escaped value" | "too few unicode value digits" | "invalid value" => (
            "a `\\` in double quotes starts an escape, and this one is invalid",
            "write the string in single quotes, as in `'C:\\data'`, or double each `\\`",
        ),
        "missing comma between array elements" => {
            ("a `,` is missing in an array", "add it, or the `]` of the line before")
        }
        "missing comma between key-value pairs" => {
            ("a `,` is missing between `{` and `}`", "add it before the next key")
        }
        "extra comma in array" | "extra comma in inline table" => ("there is an extra `,`", "remove it"),
        "unexpected `=` in array" => {
            ("an array has no keys", "write `[\"a\", \"b\"]`; keys go between `{` and `}`")
        }
        "unclosed array" => ("this array is not closed", "add `]` after its last value"),
        "unclosed array table" => ("this header is not closed", "add `]` after its name"),
        "unclosed inline table" => ("a `{` has no `}`", "add `}` after the last value"),
        "missing value" | "missing value for key" => ("the value is missing", "write one after the `=`"),
        "unexpected leading zero" => {
            ("a number cannot start with `0`", "remove the `0`; a string such as a postal code needs quotes")
        }
        "cannot recurse further; max recursion depth met" => {
            ("brackets are nested too deeply", "remove some of them")
        }
        "keys cannot be multi-line basic strings" | "keys cannot be multi-line literal strings" => {
            ("a key must be on one line", "write it between `\"` and `\"`")
        }
        _ if what.starts_with("invalid date") || what.starts_with("invalid time") => {
            ("this is not a date or time", "write it like `2026-01-31`; a string needs quotes")
        }
        _ if what.starts_with("cannot extend") => {
            ("this key already has a value", "give it a value or keys of its own, not both")
        }
        // The other messages about a single word are about numbers.
        _ if context.line_rest.starts_with(|c: char| c.is_ascii_digit() || "+-._".contains(c))
            || what.starts_with("invalid fraction") =>
        {
            ("this is not a number", "write digits, as in `100` or `0.5`; a string needs quotes")
        }
        _ => (
            "this is not valid TOML",
            "a line is a `[header]`, a `key = value` or a `# comment`; `spile init` writes an example",
        ),
    };
    (what.to_owned(), help.to_owned())
}

/// Characters that are never valid.
fn explain_character(context: &ErrorContext<'_>) -> Option<Explanation> {
    let c = context.line_rest.chars().next()?;
    match c {
        '\u{feff}' | '\u{200b}' | '\u{a0}' => Some((
            format!("invisible character (U+{:04X})", u32::from(c)),
            "remove it; retype the line if you cannot find it".to_owned(),
        )),
        _ if c.is_control() && c != '\t' && c != '\r' => Some((
            format!("control character (U+{:04X})", u32::from(c)),
            format!("remove it; in double quotes, write it as `\\u{:04X}`", u32::from(c)),
        )),
        '“' | '”' | '„' | '‘' | '’' | '‚' | '«' | '»' | '`' => Some((
            format!(
                "{} is not a quotation mark in TOML",
                if c == '`' { "a backtick".to_owned() } else { format!("`{c}`") }
            ),
            "use plain quotes: `\"…\"`".to_owned(),
        )),
        _ => None,
    }
}

/// A value without quotes that is not valid TOML.
fn explain_unquoted(context: &ErrorContext<'_>) -> Explanation {
    let word = context.token.trim();
    let (what, help) = match word.to_ascii_lowercase().as_str() {
        "" => ("the value is missing".into(), "write one after the `=`".into()),
        "null" | "none" | "nil" | "undefined" => ("TOML has no null".into(), "remove the line".to_owned()),
        small @ ("true" | "false") => (format!("`{word}` must be in lower case"), format!("write `{small}`")),
        "yes" | "on" => {
            (format!("`{word}` is not a TOML value"), "write `true`, or add quotes if it is a string".into())
        }
        "no" | "off" => {
            (format!("`{word}` is not a TOML value"), "write `false`, or add quotes if it is a string".into())
        }
        _ if word.starts_with('(') => {
            ("an array goes between `[` and `]`".into(), "write `[\"a\", \"b\"]`".into())
        }
        _ if word.starts_with(|c: char| c.is_ascii_digit()) => (
            "this is not a number, and a string needs quotes".into(),
            "write digits only, or add quotes: `\"…\"`".into(),
        ),
        _ => ("a string needs quotes".into(), "add quotes: `\"…\"`".into()),
    };
    (what, help)
}

/// Text after a value or a header on the same line.
fn explain_trailing(context: &ErrorContext<'_>) -> Explanation {
    let (before, rest) = (context.line_before.trim_end(), context.line_rest.trim_end());
    let is_grouped = before.ends_with(|c: char| c.is_ascii_digit())
        && rest.strip_prefix(',').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let (what, help) = match rest.chars().next() {
        _ if context.is_in_header() => ("unexpected text after a header", "move it to its own line"),
        _ if is_grouped => ("a number cannot have a `,` between its digits", "write `1000` or `1_000`"),
        _ if rest.starts_with("//") || rest.starts_with("--") => return explain_comment(),
        Some(c @ (',' | ';')) if rest.len() == 1 => {
            return (format!("unexpected `{c}` at the end of the line"), "remove it".to_owned());
        }
        Some(',') => ("several values need an array", "write `[` before the first and `]` after the last"),
        _ if before.ends_with('"') => (
            "the string ends at this `\"`, but more text follows",
            "write a string that contains quotes between `'''` and `'''`; SQL strings have single quotes",
        ),
        _ if before.ends_with('\'') => (
            "the string ends at this `'`, but more text follows",
            "write a string that contains a `'` in double quotes: `\"it's\"`",
        ),
        _ => ("unexpected text after a value", "move it to its own line, or write `#` before a comment"),
    };
    (what.to_owned(), help.to_owned())
}

fn explain_comment() -> Explanation {
    ("a comment starts with `#`".to_owned(), "write `# …`".to_owned())
}

/// An error in a key, or between a key and its value.
fn explain_key(message: &str, context: &ErrorContext<'_>) -> Explanation {
    let (before, rest) = (context.line_before.trim(), context.line_rest);
    let (what, help) = match message {
        _ if rest.starts_with("//") || before.starts_with("--") => return explain_comment(),
        _ if rest.starts_with(':') || before.ends_with(':') => {
            ("found `:` where `=` is expected", "write `key = value`")
        }
        "extra `=`" => ("there is an extra `=`", "write `key = value`"),
        "unclosed table" if rest.contains(']') => {
            ("a name with a space needs quotes", "write it in `\"…\"`, or replace the space by `_`")
        }
        "unclosed table" => ("this header is not closed", "add `]` after its name"),
        "unquoted keys cannot be empty" if before.ends_with('[') => {
            ("the header has no name", "write one, as in `[sources.crm]`")
        }
        "unquoted keys cannot be empty" if rest.starts_with('=') => {
            ("the key is missing", "write `key = value`")
        }
        "invalid unquoted key" | "unquoted keys cannot be empty" => (
            "invalid character in a key",
            "write `key = value`; a key with characters other than letters, digits, `-` and `_` needs quotes",
        ),
        _ => ("the key has no value", "write `key = value`"),
    };
    (what.to_owned(), help.to_owned())
}
