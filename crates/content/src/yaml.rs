//! YAML values with their positions, for front matter and for documents that others write in YAML.
//!
//! YAML 1.2 with the core schema. Anchors, aliases and tags are refused, so a value is never larger than its text; a key
//! may occur once.

use std::borrow::Cow;
use std::ops::Range;

use json::write;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

/// A value, and its bytes in the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct YamlNode {
    pub(crate) value: Yaml,
    pub(crate) span: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Yaml {
    Null,
    Bool(bool),
    /// As JSON writes it.
    Number(String),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlMember>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct YamlMember {
    pub(crate) key: String,
    pub(crate) key_span: Range<usize>,
    pub(crate) value: YamlNode,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct YamlError {
    pub(crate) message: String,
    pub(crate) help: &'static str,
    pub(crate) span: Range<usize>,
}

/// Of front matter.
const DEPTH_MAX: usize = 16;

impl Yaml {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl YamlNode {
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        match &self.value {
            Yaml::Null => out.extend_from_slice(b"null"),
            Yaml::Bool(true) => out.extend_from_slice(b"true"),
            Yaml::Bool(false) => out.extend_from_slice(b"false"),
            Yaml::Number(text) => out.extend_from_slice(text.as_bytes()),
            Yaml::Text(text) => write::string(out, text),
            Yaml::List(items) => write::array(out, items, |out, item| item.write_json(out)),
            Yaml::Map(members) => write_members(out, members),
        }
    }
}

/// Writes a mapping as a JSON object.
pub(crate) fn write_members(out: &mut Vec<u8>, members: &[YamlMember]) {
    let mut object = write::ObjectWriter::new(out);
    for member in members {
        member.value.write_json(object.key(&member.key));
    }
    object.end();
}

/// Parses the mapping that `text[range]` has. Spans count from the start of `text`. An empty document has no members.
pub(crate) fn parse_mapping(text: &str, range: Range<usize>) -> Result<Vec<YamlMember>, YamlError> {
    let source = &text[range.clone()];
    let offsets: Vec<usize> = source.char_indices().map(|(at, _)| at).chain([source.len()]).collect();
    let mut reader = YamlReader {
        parser: Parser::new_from_str(source),
        offsets,
        start: range.start,
        depth_max: DEPTH_MAX,
    };
    let root = reader.document()?;
    match root {
        None => Ok(Vec::new()),
        Some(YamlNode { value: Yaml::Map(members), .. }) => Ok(members),
        Some(YamlNode { value: Yaml::Null, .. }) => Ok(Vec::new()),
        Some(YamlNode { value, span }) => {
            let message = format!("the front matter is {}, not a mapping", value.kind());
            Err(YamlError { message, help: "write one `key: value` per line", span })
        }
    }
}

/// A YAML document as JSON. An error says what is wrong, and in which line.
pub fn yaml_to_json(text: &str, depth_max: usize) -> Result<String, String> {
    let offsets: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let mut reader = YamlReader { parser: Parser::new_from_str(text), offsets, start: 0, depth_max };
    let root = reader.document().map_err(|error| {
        let line = text.get(..error.span.start).unwrap_or(text).matches('\n').count() + 1;
        format!("line {line}: {}", error.message)
    })?;
    let mut out = Vec::new();
    match root {
        Some(root) => root.write_json(&mut out),
        None => out.extend_from_slice(b"null"),
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

struct YamlReader<'t> {
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    /// The byte offset of each character: the parser counts characters.
    offsets: Vec<usize>,
    start: usize,
    depth_max: usize,
}

impl<'t> YamlReader<'t> {
    /// The only document of the text; `None` if it is empty.
    fn document(&mut self) -> Result<Option<YamlNode>, YamlError> {
        let mut root = None;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
                Event::StreamEnd => break,
                _ if root.is_some() => {
                    return Err(error("a second document", "keep one front matter", span));
                }
                event => root = Some(self.node(event, span, 0)?),
            }
        }
        Ok(root)
    }

    fn next(&mut self) -> Result<Option<(Event<'t>, Range<usize>)>, YamlError> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, span))) => Ok(Some((event, self.span(span)))),
            Some(Err(scan_error)) => {
                let at = self.offset(scan_error.marker());
                let message = format!("invalid YAML: {}", scan_error.info());
                let help = "quote texts that contain `: `, `#`, `[`, `{` or begin with `*`, `&`, `!`, `@`";
                Err(YamlError { message, help, span: at..at + 1 })
            }
        }
    }

    fn span(&self, span: Span) -> Range<usize> {
        self.offset(&span.start)..self.offset(&span.end)
    }

    fn offset(&self, marker: &Marker) -> usize {
        let last = self.offsets.last().copied().unwrap_or_default();
        self.start + self.offsets.get(marker.index()).copied().unwrap_or(last)
    }

    fn required(&mut self, span: &Range<usize>) -> Result<(Event<'t>, Range<usize>), YamlError> {
        self.next()?.ok_or_else(|| error("the value ends too early", "complete it", span.clone()))
    }

    fn node(&mut self, event: Event<'t>, span: Range<usize>, depth: usize) -> Result<YamlNode, YamlError> {
        if depth > self.depth_max {
            return Err(error("nested too deeply", "use fewer levels", span));
        }
        let (anchor, has_tag) = match &event {
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => (*anchor, tag.is_some()),
            Event::Alias(anchor) => (*anchor, false),
            _ => (0, false),
        };
        if anchor != 0 {
            return Err(error("anchors and aliases are not supported", "write the value out", span));
        }
        if has_tag {
            return Err(error(
                "tags are not supported",
                "remove the tag, and quote the value if it is a text",
                span,
            ));
        }
        let start = span.start;
        match event {
            Event::Scalar(text, style, _, _) => Ok(YamlNode { value: scalar(text, style, &span)?, span }),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    let (event, at) = self.required(&span)?;
                    if event == Event::SequenceEnd {
                        return Ok(YamlNode { value: Yaml::List(items), span: start..at.end.max(start) });
                    }
                    items.push(self.node(event, at, depth + 1)?);
                }
            }
            Event::MappingStart(..) => {
                let mut members: Vec<YamlMember> = Vec::new();
                loop {
                    let (event, key_span) = self.required(&span)?;
                    if event == Event::MappingEnd {
                        let end = members.last().map_or(key_span.end, |member| member.value.span.end);
                        return Ok(YamlNode { value: Yaml::Map(members), span: start..end.max(start) });
                    }
                    let Event::Scalar(key, _, 0, None) = event else {
                        return Err(error("a key must be a string", "write `key: value`", key_span));
                    };
                    if members.iter().any(|member| member.key == key) {
                        let message = format!("`{key}` occurs twice");
                        return Err(YamlError { message, help: "remove one of them", span: key_span });
                    }
                    let (event, at) = self.required(&key_span)?;
                    let value = self.node(event, at, depth + 1)?;
                    members.push(YamlMember { key: key.into_owned(), key_span, value });
                }
            }
            _ => Err(error("unexpected content", "write one `key: value` per line", span)),
        }
    }
}

fn error(message: &str, help: &'static str, span: Range<usize>) -> YamlError {
    YamlError { message: message.to_owned(), help, span }
}

/// Only a plain scalar can be anything but a text.
fn scalar(text: Cow<'_, str>, style: ScalarStyle, span: &Range<usize>) -> Result<Yaml, YamlError> {
    if style != ScalarStyle::Plain {
        return Ok(Yaml::Text(text.into_owned()));
    }
    Ok(match &*text {
        "" | "~" | "null" | "Null" | "NULL" => Yaml::Null,
        "true" | "True" | "TRUE" => Yaml::Bool(true),
        "false" | "False" | "FALSE" => Yaml::Bool(false),
        _ => match number(&text) {
            Some(Ok(number)) => Yaml::Number(number),
            Some(Err(())) => {
                return Err(error("JSON cannot represent this number", "quote it", span.clone()));
            }
            None => Yaml::Text(text.into_owned()),
        },
    })
}

/// The number that the core schema reads, as JSON writes it.
fn number(text: &str) -> Option<Result<String, ()>> {
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|digit| digit.is_digit(radix))
        {
            return Some(u64::from_str_radix(digits, radix).map(|value| value.to_string()).map_err(drop));
        }
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(Err(()));
    }
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_digits = !whole.is_empty() || fraction.is_some_and(|fraction| !fraction.is_empty());
    let exponent_digits = exponent.map(|exponent| exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
    if !has_digits
        || !is_digits(whole)
        || !fraction.is_none_or(is_digits)
        || !exponent_digits.is_none_or(|digits| !digits.is_empty() && is_digits(digits))
    {
        return None;
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    let whole = whole.trim_start_matches('0');
    let mut json = format!("{sign}{}", if whole.is_empty() { "0" } else { whole });
    if let Some(fraction) = fraction.filter(|fraction| !fraction.is_empty()) {
        json = format!("{json}.{fraction}");
    }
    if let Some(exponent) = exponent {
        json = format!("{json}e{exponent}");
    }
    Some(Ok(json))
}

#[cfg(test)]
mod tests {
    use super::{parse_mapping, write_members};

    fn check(yaml: &str, expected: &str) {
        let actual = match parse_mapping(yaml, 0..yaml.len()) {
            Ok(members) => {
                let mut out = Vec::new();
                write_members(&mut out, &members);
                String::from_utf8(out).expect("UTF-8")
            }
            Err(error) => format!("{} at `{}`", error.message, yaml.get(error.span).unwrap_or_default()),
        };
        assert_eq!(actual, expected, "{yaml}");
    }

    #[test]
    fn values_become_json_by_the_core_schema() {
        check("", "{}");
        check("# a comment", "{}");
        check("a: 1", r#"{"a":1}"#);
        check("a: +1\nb: 007\nc: -0x", r#"{"a":1,"b":7,"c":"-0x"}"#);
        check("a: 0x1f\nb: 0o17", r#"{"a":31,"b":15}"#);
        check("a: 1.\nb: .5\nc: 1e3\nd: -2.50", r#"{"a":1,"b":0.5,"c":1e3,"d":-2.50}"#);
        check("a: yes\nb: no\nc: on", r#"{"a":"yes","b":"no","c":"on"}"#);
        check("a: true\nb: ~\nc:\nd: null", r#"{"a":true,"b":null,"c":null,"d":null}"#);
        check("a: '1'\nb: \"true\"", r#"{"a":"1","b":"true"}"#);
        check("a: 2026-01-02\nb: 12:30", r#"{"a":"2026-01-02","b":"12:30"}"#);
        check("a: 1.2.3\nb: 1e\nc: .\nd: '-'", r#"{"a":"1.2.3","b":"1e","c":".","d":"-"}"#);
        check("a: [1, x, {b: 2}]", r#"{"a":[1,"x",{"b":2}]}"#);
        check("a:\n  - b: 1\n    c: 2\n  - d", r#"{"a":[{"b":1,"c":2},"d"]}"#);
        check("a: |\n  one\n  two\nb: >\n  one\n  two\n", r#"{"a":"one\ntwo\n","b":"one two\n"}"#);
        check("größe: ü", r#"{"größe":"ü"}"#);
    }

    #[test]
    fn what_front_matter_does_not_need_is_refused_with_its_place() {
        check("a: 1\na: 2", "`a` occurs twice at `a`");
        check("a: &x 1", "anchors and aliases are not supported at `&x 1`");
        check("a: !!str 1", "tags are not supported at `!!str 1`");
        check("- a", "the front matter is a list, not a mapping at `- a`");
        check("just a text", "the front matter is a text, not a mapping at `just a text`");
        check("a: .inf", "JSON cannot represent this number at `.inf`");
        check("[a]: 1", "a key must be a string at `[`");
        check(&format!("a: {}1{}", "[".repeat(30), "]".repeat(30)), "nested too deeply at `[`");
        for broken in ["a: [1", "a: \"x", "a: 1\n b: 2", "a: *x", "a: b: c", "a: @x", "{a: 1"] {
            assert!(parse_mapping(broken, 0..broken.len()).is_err(), "{broken:?}");
        }
    }
}
