//! One member of a JSON file that people edit by hand: comments, trailing commas, indentation and everything else
//! that was there stay as they are.

use std::borrow::Cow;
use std::ops::Range;

use json::{Json, Node};

/// Deeper files are nobody's settings.
const DEPTH_MAX: usize = 64;

/// What became of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// The whole file, with the member in it.
    Changed(String),
    /// It says just this already.
    Same,
    /// It says something else under this name.
    Other,
}

/// Why a file was left alone, and on which line.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) struct Bad {
    pub(super) line: usize,
    pub(super) why: &'static str,
}

/// Sets the member at `path`; objects on the way are made where they are missing. What is there under this name is
/// replaced only if `replace` says so.
pub(super) fn set(text: &str, path: &[&str], value: &Json, replace: bool) -> Result<Set, Bad> {
    let edited = edit(text, path, value, replace)?;
    if let Set::Changed(new) = &edited {
        // A settings file that its program cannot read any more is worse than none.
        let whole = plain(new).and_then(|plain| Json::parse(&plain).map_err(|_| bad(new, 0, NOT_JSON)))?;
        let doc = whole.doc();
        let found = path.iter().try_fold(doc.root(), |node, key| node.get(key));
        if found.is_none_or(|found| written(found) != written(value.doc().root())) {
            return Err(bad(text, 0, "it cannot be changed without rewriting it"));
        }
    }
    Ok(edited)
}

const NOT_JSON: &str = "this is not JSON";

fn edit(text: &str, path: &[&str], value: &Json, replace: bool) -> Result<Set, Bad> {
    let style = Style::of(text);
    let mut reader = Reader { text, at: if text.starts_with('\u{feff}') { 3 } else { 0 }, depth: 0 };
    reader.blank()?;
    if reader.at == text.len() {
        let mut new = text.to_owned();
        if !new.is_empty() && !new.ends_with('\n') {
            new.push_str(style.newline);
        }
        new.push_str(&style.nested(path, value, ""));
        new.push_str(style.newline);
        return Ok(Set::Changed(new));
    }
    let mut at = reader.at;
    for (depth, key) in path.iter().enumerate() {
        let object = Reader { text, at, depth: 0 }.object()?;
        let Some(member) = object.members.iter().find(|member| member.key == *key) else {
            return Ok(Set::Changed(object.with(text, &path[depth..], value, &style)));
        };
        if depth + 1 < path.len() {
            at = member.value.start;
            continue;
        }
        let there = plain(&text[member.value.clone()])?;
        let there = Json::parse(&there).map_err(|_| bad(text, member.value.start, NOT_JSON))?;
        if written(there.doc().root()) == written(value.doc().root()) {
            return Ok(Set::Same);
        }
        if !replace {
            return Ok(Set::Other);
        }
        let indent = indent_at(text, member.key_at);
        let mut new = text.to_owned();
        new.replace_range(member.value.clone(), &style.pretty(value, indent));
        return Ok(Set::Changed(new));
    }
    Ok(Set::Same)
}

fn written(node: Node<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    node.compact_into(&mut out);
    out
}

/// The text without comments and without commas before a closing bracket.
fn plain(text: &str) -> Result<String, Bad> {
    let mut out = String::with_capacity(text.len());
    let mut reader = Reader { text, at: if text.starts_with('\u{feff}') { 3 } else { 0 }, depth: 0 };
    loop {
        reader.blank()?;
        match reader.peek() {
            None => return Ok(out),
            Some(b'"') => {
                let from = reader.at;
                reader.string()?;
                out.push_str(&text[from..reader.at]);
            }
            Some(b'}' | b']') if out.trim_end().ends_with(',') => {
                out.truncate(out.trim_end().len() - 1);
            }
            Some(_) => {
                let c = text[reader.at..].chars().next().unwrap_or_default();
                out.push(c);
                reader.at += c.len_utf8();
                // `1 2` must not become `12`.
                if text[reader.at..].starts_with(|c: char| c.is_whitespace() || c == '/') {
                    out.push(' ');
                }
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

struct Object<'a> {
    open: usize,
    close: usize,
    members: Vec<Member<'a>>,
    /// Whether a comma follows the last member.
    ends_with_comma: bool,
}

struct Member<'a> {
    key: Cow<'a, str>,
    key_at: usize,
    value: Range<usize>,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn bad(&self, why: &'static str) -> Bad {
        bad(self.text, self.at, why)
    }

    /// Passes over white space and comments.
    fn blank(&mut self) -> Result<(), Bad> {
        loop {
            let rest = &self.text[self.at..];
            self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let end = comment.find("*/").ok_or_else(|| self.bad("a comment has no end"))?;
                self.at += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Bad> {
        let (text, from) = (self.text, self.at);
        let mut is_escaped = false;
        for (at, c) in text[from..].char_indices().skip(1) {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '\n' => break,
                '"' => {
                    self.at = from + at + 1;
                    let quoted = Json::parse(&text[from..self.at]).map_err(|_| bad(text, from, NOT_JSON))?;
                    return Ok(quoted.doc().root().str().unwrap_or_default().into_owned().into());
                }
                _ => {}
            }
        }
        Err(self.bad("a text has no closing quote"))
    }

    fn value(&mut self) -> Result<Range<usize>, Bad> {
        let from = self.at;
        match self.peek() {
            Some(b'{') => drop(self.object()?),
            Some(b'[') => self.array()?,
            Some(b'"') => drop(self.string()?),
            _ => {
                let rest = &self.text[from..];
                let length = rest
                    .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')))
                    .unwrap_or(rest.len());
                if length == 0 {
                    return Err(self.bad("a value is missing"));
                }
                self.at += length;
            }
        }
        Ok(from..self.at)
    }

    fn object(&mut self) -> Result<Object<'a>, Bad> {
        if self.peek() != Some(b'{') {
            return Err(self.bad("there should be an object `{…}`"));
        }
        self.deeper()?;
        let open = self.at;
        self.at += 1;
        let mut members = Vec::new();
        let mut ends_with_comma = false;
        loop {
            self.blank()?;
            match self.peek() {
                Some(b'}') => break,
                Some(b'"') if members.is_empty() || ends_with_comma => {}
                Some(b'"') => return Err(self.bad("a comma is missing")),
                _ => return Err(self.bad("there should be a name in quotes")),
            }
            let key_at = self.at;
            let key = self.string()?;
            self.blank()?;
            if self.peek() != Some(b':') {
                return Err(self.bad("a colon is missing"));
            }
            self.at += 1;
            self.blank()?;
            let value = self.value()?;
            members.push(Member { key, key_at, value });
            self.blank()?;
            ends_with_comma = self.peek() == Some(b',');
            self.at += usize::from(ends_with_comma);
        }
        let close = self.at;
        self.at += 1;
        self.depth -= 1;
        Ok(Object { open, close, members, ends_with_comma })
    }

    fn array(&mut self) -> Result<(), Bad> {
        self.deeper()?;
        self.at += 1;
        loop {
            self.blank()?;
            if self.peek() == Some(b']') {
                self.at += 1;
                self.depth -= 1;
                return Ok(());
            }
            self.value()?;
            self.blank()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {}
                _ => return Err(self.bad("a list has no end")),
            }
        }
    }

    fn deeper(&mut self) -> Result<(), Bad> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(self.bad("it is nested too deeply")) } else { Ok(()) }
    }
}

impl Object<'_> {
    /// The text with a member more in this object.
    fn with(&self, text: &str, path: &[&str], value: &Json, style: &Style) -> String {
        let is_one_line = !text[self.open..self.close].contains('\n');
        let around = indent_at(text, self.open);
        let Some(last) = self.members.last() else {
            let inside = format!("{around}{}", style.unit);
            let member = style.member(path, value, &inside);
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
            new.insert_str(behind, &format!("{comma}{}", style.compact_member(path, value)));
            return new;
        }
        let inside = indent_at(text, last.key_at);
        let member = style.member(path, value, inside);
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

fn bad(text: &str, at: usize, why: &'static str) -> Bad {
    Bad { line: text[..at.min(text.len())].matches('\n').count() + 1, why }
}

/// How the file is written.
struct Style {
    newline: &'static str,
    unit: String,
}

impl Style {
    fn of(text: &str) -> Self {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let indented = text.lines().find(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty());
        let unit = indented.map_or("  ", |line| indent_at(line, line.len()));
        Self { newline, unit: unit.to_owned() }
    }

    fn nested(&self, path: &[&str], value: &Json, indent: &str) -> String {
        if path.is_empty() {
            return self.pretty(value, indent);
        }
        let inside = format!("{indent}{}", self.unit);
        let member = self.member(path, value, &inside);
        format!("{{{0}{inside}{member}{0}{indent}}}", self.newline)
    }

    fn member(&self, path: &[&str], value: &Json, indent: &str) -> String {
        format!("{}: {}", quoted(path[0]), self.nested(&path[1..], value, indent))
    }

    fn compact_member(&self, path: &[&str], value: &Json) -> String {
        let inner = match &path[1..] {
            [] => value.as_str().to_owned(),
            rest => format!("{{{}}}", self.compact_member(rest, value)),
        };
        format!("{}: {inner}", quoted(path[0]))
    }

    fn pretty(&self, value: &Json, indent: &str) -> String {
        let mut out = String::new();
        self.write(&mut out, value.doc().root(), indent);
        out
    }

    fn write(&self, out: &mut String, node: Node<'_>, indent: &str) {
        let inside = format!("{indent}{}", self.unit);
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
            self.write(out, value, &inside);
        }
        out.push_str(&format!("{}{indent}", self.newline));
        out.push(if is_object { '}' } else { ']' });
    }
}

fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::write::string(&mut out, text);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{Bad, Set, set};

    fn entry() -> Json {
        Json::parse(r#"{"command":"/bin/spile","args":["serve","/data/crm"]}"#).expect("JSON")
    }

    /// What comes of a file.
    fn check(before: &str, after: &str) {
        let got = set(before, &["mcpServers", "crm"], &entry(), false).expect("a file that can be changed");
        assert_eq!(got, Set::Changed(after.to_owned()), "{before}");
        let again = set(after, &["mcpServers", "crm"], &entry(), false);
        assert_eq!(again, Ok(Set::Same), "the same again changes nothing: {after}");
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
        assert_eq!(set(before, &path, &entry(), false), Ok(Set::Other));
        let Ok(Set::Changed(after)) = set(before, &path, &entry(), true) else { panic!("replaced") };
        assert!(after.starts_with("{ /* x */ \"mcpServers\": { \"crm\": {") && after.contains("/bin/spile"));
        let same = "{\"mcpServers\":{\"crm\":{ \"command\" : \"/bin/spile\", // it\n \"args\":[\"serve\",\"/data/crm\",],}}}";
        assert_eq!(set(same, &path, &entry(), false), Ok(Set::Same));
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
            let got = set(text, &["mcpServers", "crm"], &entry(), false);
            assert_eq!(got, Err(Bad { line, why }), "{text}");
        }
    }
}
