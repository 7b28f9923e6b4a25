//! One member of a JSON file that people edit by hand: comments, trailing commas, indentation and everything else
//! that was there stay as they are.

use std::borrow::Cow;
use std::ops::Range;

use json::{Json, Node};

/// Deeper files are nobody's settings.
const DEPTH_MAX: usize = 64;

/// What became of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SetOutcome {
    /// The whole file, with the member in it.
    Changed(String),
    /// It says just this already.
    Unchanged,
    /// It says something else under this name.
    Conflict,
}

/// Why a file was left alone, and on which line.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) struct JsoncError {
    pub(super) line: usize,
    pub(super) message: &'static str,
}

/// Sets the member at `path`; objects on the way are made where they are missing. What is there under this name is
/// replaced only if `replace` says so.
pub(super) fn set_member(
    text: &str,
    path: &[&str],
    value: &Json,
    replace: bool,
) -> Result<SetOutcome, JsoncError> {
    let edited = edit(text, path, value, replace)?;
    if let SetOutcome::Changed(new) = &edited {
        // A settings file that its program cannot read any more is worse than none.
        let whole = strip_comments(new)
            .and_then(|plain| Json::parse(&plain).map_err(|_| error_at(new, 0, NOT_JSON)))?;
        let doc = whole.to_doc();
        let found = path.iter().try_fold(doc.root(), |node, key| node.get(key));
        if found.is_none_or(|found| compact_bytes(found) != compact_bytes(value.to_doc().root())) {
            return Err(error_at(text, 0, "it cannot be changed without rewriting it"));
        }
    }
    Ok(edited)
}

const NOT_JSON: &str = "this is not JSON";

fn edit(text: &str, path: &[&str], value: &Json, replace: bool) -> Result<SetOutcome, JsoncError> {
    let style = Style::detect(text);
    let mut reader =
        JsoncParser { text, position: if text.starts_with('\u{feff}') { 3 } else { 0 }, depth: 0 };
    reader.skip_whitespace()?;
    if reader.position == text.len() {
        let mut new = text.to_owned();
        if !new.is_empty() && !new.ends_with('\n') {
            new.push_str(style.newline);
        }
        new.push_str(&style.render_nested(path, value, ""));
        new.push_str(style.newline);
        return Ok(SetOutcome::Changed(new));
    }
    let mut at = reader.position;
    for (depth, key) in path.iter().enumerate() {
        let object = JsoncParser { text, position: at, depth: 0 }.parse_object()?;
        let Some(member) = object.members.iter().find(|member| member.key == *key) else {
            return Ok(SetOutcome::Changed(object.insert_member(text, &path[depth..], value, &style)));
        };
        if depth + 1 < path.len() {
            at = member.value.start;
            continue;
        }
        let there = strip_comments(&text[member.value.clone()])?;
        let there = Json::parse(&there).map_err(|_| error_at(text, member.value.start, NOT_JSON))?;
        if compact_bytes(there.to_doc().root()) == compact_bytes(value.to_doc().root()) {
            return Ok(SetOutcome::Unchanged);
        }
        if !replace {
            return Ok(SetOutcome::Conflict);
        }
        let indent = indent_at(text, member.key_start);
        let mut new = text.to_owned();
        new.replace_range(member.value.clone(), &style.render_pretty(value, indent));
        return Ok(SetOutcome::Changed(new));
    }
    Ok(SetOutcome::Unchanged)
}

fn compact_bytes(node: Node<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    node.write_compact(&mut out);
    out
}

/// The text without comments and without commas before a closing bracket.
fn strip_comments(text: &str) -> Result<String, JsoncError> {
    let mut out = String::with_capacity(text.len());
    let mut reader =
        JsoncParser { text, position: if text.starts_with('\u{feff}') { 3 } else { 0 }, depth: 0 };
    loop {
        reader.skip_whitespace()?;
        match reader.peek() {
            None => return Ok(out),
            Some(b'"') => {
                let from = reader.position;
                reader.parse_string()?;
                out.push_str(&text[from..reader.position]);
            }
            Some(b'}' | b']') if out.trim_end().ends_with(',') => {
                out.truncate(out.trim_end().len() - 1);
            }
            Some(_) => {
                let c = text[reader.position..].chars().next().unwrap_or_default();
                out.push(c);
                reader.position += c.len_utf8();
                // `1 2` must not become `12`.
                if text[reader.position..].starts_with(|c: char| c.is_whitespace() || c == '/') {
                    out.push(' ');
                }
            }
        }
    }
}

struct JsoncParser<'a> {
    text: &'a str,
    position: usize,
    depth: usize,
}

struct ObjectSpan<'a> {
    open: usize,
    close: usize,
    members: Vec<MemberSpan<'a>>,
    /// Whether a comma follows the last member.
    ends_with_comma: bool,
}

struct MemberSpan<'a> {
    key: Cow<'a, str>,
    key_start: usize,
    value: Range<usize>,
}

impl<'a> JsoncParser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn error(&self, why: &'static str) -> JsoncError {
        error_at(self.text, self.position, why)
    }

    /// Passes over white space and comments.
    fn skip_whitespace(&mut self) -> Result<(), JsoncError> {
        loop {
            let rest = &self.text[self.position..];
            self.position += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            let rest = &self.text[self.position..];
            if rest.starts_with("//") {
                self.position += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let end = comment.find("*/").ok_or_else(|| self.error("a comment has no end"))?;
                self.position += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn parse_string(&mut self) -> Result<Cow<'a, str>, JsoncError> {
        let (text, from) = (self.text, self.position);
        let mut is_escaped = false;
        for (at, c) in text[from..].char_indices().skip(1) {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '\n' => break,
                '"' => {
                    self.position = from + at + 1;
                    let quoted = Json::parse(&text[from..self.position])
                        .map_err(|_| error_at(text, from, NOT_JSON))?;
                    return Ok(quoted.to_doc().root().str().unwrap_or_default().into_owned().into());
                }
                _ => {}
            }
        }
        Err(self.error("a text has no closing quote"))
    }

    fn parse_value(&mut self) -> Result<Range<usize>, JsoncError> {
        let from = self.position;
        match self.peek() {
            Some(b'{') => drop(self.parse_object()?),
            Some(b'[') => self.skip_array()?,
            Some(b'"') => drop(self.parse_string()?),
            _ => {
                let rest = &self.text[from..];
                let length = rest
                    .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')))
                    .unwrap_or(rest.len());
                if length == 0 {
                    return Err(self.error("a value is missing"));
                }
                self.position += length;
            }
        }
        Ok(from..self.position)
    }

    fn parse_object(&mut self) -> Result<ObjectSpan<'a>, JsoncError> {
        if self.peek() != Some(b'{') {
            return Err(self.error("there should be an object `{…}`"));
        }
        self.enter()?;
        let open = self.position;
        self.position += 1;
        let mut members = Vec::new();
        let mut ends_with_comma = false;
        loop {
            self.skip_whitespace()?;
            match self.peek() {
                Some(b'}') => break,
                Some(b'"') if members.is_empty() || ends_with_comma => {}
                Some(b'"') => return Err(self.error("a comma is missing")),
                _ => return Err(self.error("there should be a name in quotes")),
            }
            let key_at = self.position;
            let key = self.parse_string()?;
            self.skip_whitespace()?;
            if self.peek() != Some(b':') {
                return Err(self.error("a colon is missing"));
            }
            self.position += 1;
            self.skip_whitespace()?;
            let value = self.parse_value()?;
            members.push(MemberSpan { key, key_start: key_at, value });
            self.skip_whitespace()?;
            ends_with_comma = self.peek() == Some(b',');
            self.position += usize::from(ends_with_comma);
        }
        let close = self.position;
        self.position += 1;
        self.depth -= 1;
        Ok(ObjectSpan { open, close, members, ends_with_comma })
    }

    fn skip_array(&mut self) -> Result<(), JsoncError> {
        self.enter()?;
        self.position += 1;
        loop {
            self.skip_whitespace()?;
            if self.peek() == Some(b']') {
                self.position += 1;
                self.depth -= 1;
                return Ok(());
            }
            self.parse_value()?;
            self.skip_whitespace()?;
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b']') => {}
                _ => return Err(self.error("a list has no end")),
            }
        }
    }

    fn enter(&mut self) -> Result<(), JsoncError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(self.error("it is nested too deeply")) } else { Ok(()) }
    }
}

impl ObjectSpan<'_> {
    /// The text with a member more in this object.
    fn insert_member(&self, text: &str, path: &[&str], value: &Json, style: &Style) -> String {
        let is_one_line = !text[self.open..self.close].contains('\n');
        let around = indent_at(text, self.open);
        let Some(last) = self.members.last() else {
            let inside = format!("{around}{}", style.indent_unit);
            let member = style.render_member(path, value, &inside);
            // Behind a comment that stands on the opening line.
            let from = if is_one_line { self.open + 1 } else { line_end(text, self.open) };
            let close = if is_one_line { format!("{}{around}", style.newline) } else { String::new() };
            let mut new = text.to_owned();
            new.insert_str(from, &format!("{}{inside}{member}{close}", style.newline));
            return new;
        };
        let mut new = text.to_owned();
        if is_one_line {
            let comma = if self.ends_with_comma { " " } else { ", " };
            let behind = if self.ends_with_comma { self.close } else { last.value.end };
            new.insert_str(behind, &format!("{comma}{}", style.render_compact_member(path, value)));
            return new;
        }
        let inside = indent_at(text, last.key_start);
        let member = style.render_member(path, value, inside);
        // A comment behind the last member is about that member, and stays with it.
        let end = line_end(text, last.value.end).min(self.close);
        let (end, close) = if end == self.close {
            (last.value.end + usize::from(self.ends_with_comma), style.newline.to_owned() + around)
        } else {
            (end, String::new())
        };
        let comma = if self.ends_with_comma { "," } else { "" };
        new.insert_str(end, &format!("{}{inside}{member}{comma}{close}", style.newline));
        if !self.ends_with_comma {
            new.insert(last.value.end, ',');
        }
        new
    }
}

/// Where the line ends on which `at` stands, without its line break.
fn line_end(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
    if text[..end].ends_with('\r') { end - 1 } else { end }
}

/// What stands before the first word of the line.
fn indent_at(text: &str, at: usize) -> &str {
    let from = text[..at].rfind('\n').map_or(0, |line| line + 1);
    let line = &text[from..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn error_at(text: &str, at: usize, why: &'static str) -> JsoncError {
    JsoncError { line: text[..at.min(text.len())].matches('\n').count() + 1, message: why }
}

/// How the file is written.
struct Style {
    newline: &'static str,
    indent_unit: String,
}

impl Style {
    fn detect(text: &str) -> Self {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let indented = text.lines().find(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty());
        let unit = indented.map_or("  ", |line| indent_at(line, line.len()));
        Self { newline, indent_unit: unit.to_owned() }
    }

    fn render_nested(&self, path: &[&str], value: &Json, indent: &str) -> String {
        if path.is_empty() {
            return self.render_pretty(value, indent);
        }
        let inside = format!("{indent}{}", self.indent_unit);
        let member = self.render_member(path, value, &inside);
        format!("{{{0}{inside}{member}{0}{indent}}}", self.newline)
    }

    fn render_member(&self, path: &[&str], value: &Json, indent: &str) -> String {
        format!("{}: {}", json_string(path[0]), self.render_nested(&path[1..], value, indent))
    }

    fn render_compact_member(&self, path: &[&str], value: &Json) -> String {
        let inner = match &path[1..] {
            [] => value.as_str().to_owned(),
            rest => format!("{{{}}}", self.render_compact_member(rest, value)),
        };
        format!("{}: {inner}", json_string(path[0]))
    }

    fn render_pretty(&self, value: &Json, indent: &str) -> String {
        let mut out = String::new();
        self.write_value(&mut out, value.to_doc().root(), indent);
        out
    }

    fn write_value(&self, out: &mut String, node: Node<'_>, indent: &str) {
        let inside = format!("{indent}{}", self.indent_unit);
        let is_object = node.is_object();
        let parts: Vec<(Option<String>, Node<'_>)> = if is_object {
            node.members().map(|(key, value)| (Some(key.raw().to_owned()), value)).collect()
        } else {
            node.elements().map(|value| (None, value)).collect()
        };
        if parts.is_empty() {
            out.push_str(node.raw());
            return;
        }
        // A list of words reads best in one line.
        if !is_object && parts.iter().all(|(_, value)| value.str().is_some()) {
            let words: Vec<&str> = parts.iter().map(|(_, value)| value.raw()).collect();
            out.push_str(&format!("[{}]", words.join(", ")));
            return;
        }
        out.push(if is_object { '{' } else { '[' });
        for (at, (key, value)) in parts.into_iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            out.push_str(self.newline);
            out.push_str(&inside);
            if let Some(key) = key {
                out.push_str(&format!("{key}: "));
            }
            self.write_value(out, value, &inside);
        }
        out.push_str(&format!("{}{indent}", self.newline));
        out.push(if is_object { '}' } else { ']' });
    }
}

fn json_string(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::write::string(&mut out, text);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{JsoncError, SetOutcome, set_member};

    fn entry() -> Json {
        Json::parse(r#"{"command":"/bin/spile","args":["serve","/data/crm"]}"#).expect("JSON")
    }

    /// What comes of a file.
    fn check(before: &str, after: &str) {
        let got =
            set_member(before, &["mcpServers", "crm"], &entry(), false).expect("a file that can be changed");
        assert_eq!(got, SetOutcome::Changed(after.to_owned()), "{before}");
        let again = set_member(after, &["mcpServers", "crm"], &entry(), false);
        assert_eq!(again, Ok(SetOutcome::Unchanged), "the same again changes nothing: {after}");
    }

    #[test]
    fn a_member_joins_what_is_there() {
        let lone = "{\n  \"mcpServers\": {\n    \"crm\": {\n      \"command\": \"/bin/spile\",\n      \"args\": [\"serve\", \"/data/crm\"]\n    }\n  }\n}\n";
        check("", lone);
        check("// nothing yet", &format!("// nothing yet\n{lone}"));
        check("{}", lone.trim_end());
        check("{}\n", lone);
        // Another server, and settings beside.
        check(
            "{\n  \"theme\": \"dark\", // at night\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" } // mine\n  }\n}\n",
            "{\n  \"theme\": \"dark\", // at night\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" }, // mine\n    \"crm\": {\n      \"command\": \"/bin/spile\",\n      \"args\": [\"serve\", \"/data/crm\"]\n    }\n  }\n}\n",
        );
        // Tabs, line ends of Windows, a comma behind the last.
        check(
            "{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {},\r\n\t},\r\n}",
            "{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {},\r\n\t\t\"crm\": {\r\n\t\t\t\"command\": \"/bin/spile\",\r\n\t\t\t\"args\": [\"serve\", \"/data/crm\"]\r\n\t\t},\r\n\t},\r\n}",
        );
        // One line stays one line.
        check(
            r#"{"mcpServers":{"a":{}},"b":1}"#,
            r#"{"mcpServers":{"a":{}, "crm": {"command":"/bin/spile","args":["serve","/data/crm"]}},"b":1}"#,
        );
        check(
            r#"{"b":1}"#,
            r#"{"b":1, "mcpServers": {"crm": {"command":"/bin/spile","args":["serve","/data/crm"]}}}"#,
        );
        // The object begins on one line and ends on another, with nothing in it but a comment.
        check(
            "{\n    \"mcpServers\": { // none\n    }\n}",
            "{\n    \"mcpServers\": { // none\n        \"crm\": {\n            \"command\": \"/bin/spile\",\n            \"args\": [\"serve\", \"/data/crm\"]\n        }\n    }\n}",
        );
        // The closing brace stands behind the last member.
        check(
            "{\n  \"mcpServers\": {\n    \"a\": 1 } }",
            "{\n  \"mcpServers\": {\n    \"a\": 1,\n    \"crm\": {\n      \"command\": \"/bin/spile\",\n      \"args\": [\"serve\", \"/data/crm\"]\n    }\n   } }",
        );
    }

    #[test]
    fn what_is_there_under_the_name_is_replaced_only_when_asked() {
        let before = "{ /* x */ \"mcpServers\": { \"crm\": { \"command\": \"other\" } } }";
        let path = ["mcpServers", "crm"];
        assert_eq!(set_member(before, &path, &entry(), false), Ok(SetOutcome::Conflict));
        let Ok(SetOutcome::Changed(after)) = set_member(before, &path, &entry(), true) else {
            panic!("replaced")
        };
        assert!(after.starts_with("{ /* x */ \"mcpServers\": { \"crm\": {") && after.contains("/bin/spile"));
        let same = "{\"mcpServers\":{\"crm\":{ \"command\" : \"/bin/spile\", // it\n \"args\":[\"serve\",\"/data/crm\",],}}}";
        assert_eq!(set_member(same, &path, &entry(), false), Ok(SetOutcome::Unchanged));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_left_alone() {
        let deep = "[".repeat(100);
        for (text, line, why) in [
            ("[]", 1, "there should be an object `{…}`"),
            ("{\n  \"mcpServers\": []\n}", 2, "there should be an object `{…}`"),
            ("{\"a\": 1 \"b\": 2}", 1, "a comma is missing"),
            ("{\n\n  a: 1}", 3, "there should be a name in quotes"),
            ("{\"a\" 1}", 1, "a colon is missing"),
            ("{\"a\": }", 1, "a value is missing"),
            ("{\"a\": [1}", 1, "a list has no end"),
            ("{\"a\": \"x\n\"}", 1, "a text has no closing quote"),
            ("{ /* never", 1, "a comment has no end"),
            ("{\"a\": 01e}", 1, "this is not JSON"),
            ("{\"a\": 1} trailing", 1, "this is not JSON"),
            (&format!("{{\"a\": {deep}"), 1, "it is nested too deeply"),
        ] {
            let got = set_member(text, &["mcpServers", "crm"], &entry(), false);
            assert_eq!(got, Err(JsoncError { line, message: why }), "{text}");
        }
    }
}
