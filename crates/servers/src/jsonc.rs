//! Edits one member of a JSON file that people edit by hand, and keeps comments, trailing commas, indentation and
//! everything else.

use std::borrow::Cow;
use std::ops::Range;

use json::{Json, Node};

/// No settings file is nested deeper.
const DEPTH_MAX: usize = 64;

/// What an edit did.
#[derive(Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// The whole file after the edit.
    Changed(String),
    /// The member already has this value.
    Unchanged,
    /// The member has another value.
    Conflict,
}

/// Why a file cannot be edited, and on which line.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct JsoncError {
    pub line: usize,
    pub message: &'static str,
}

/// Sets the member at `path` and creates missing objects on the way. Replaces another value only if `replace` is set.
pub fn set_member(text: &str, path: &[&str], value: &Json, replace: bool) -> Result<SetOutcome, JsoncError> {
    let edited = edit(text, path, value, replace)?;
    if let SetOutcome::Changed(new) = &edited {
        // Proves that the result parses: a settings file that its program cannot read is worse than no edit.
        let whole = blank_comments(new)
            .and_then(|plain| Json::parse(&plain).map_err(|_| error_at(new, 0, NOT_JSON)))?;
        let doc = whole.to_doc();
        let found = path.iter().try_fold(doc.root(), |node, key| node.get(key));
        if found.is_none_or(|found| compact_bytes(found) != compact_bytes(value.to_doc().root())) {
            return Err(error_at(text, 0, CANNOT_EDIT));
        }
    }
    Ok(edited)
}

/// Removes the member at `path` with its comma and the comment behind it; `None` if it is not there.
pub fn remove_member(text: &str, path: &[&str]) -> Result<Option<String>, JsoncError> {
    let Some(mut position) = value_start(text)? else { return Ok(None) };
    for (depth, key) in path.iter().enumerate() {
        let object = JsoncParser { text, position, depth: 0 }.parse_object()?;
        let Some(index) = object.members.iter().position(|member| member.key == *key) else {
            return Ok(None);
        };
        if depth + 1 < path.len() {
            position = object.members[index].value.start;
            continue;
        }
        let new = object.without_member(text, index)?;
        // Proves that nothing else was removed.
        let expected = blank_comments(text)
            .and_then(|plain| Json::parse(&plain).map_err(|_| error_at(text, 0, NOT_JSON)))?;
        let found = blank_comments(&new).ok().and_then(|plain| Json::parse(&plain).ok());
        let is_right = found.is_some_and(|found| {
            let (found, expected) = (found.to_doc(), expected.to_doc());
            path.iter().try_fold(found.root(), |node, key| node.get(key)).is_none()
                && compact_without(found.root(), path) == compact_without(expected.root(), path)
        });
        return if is_right { Ok(Some(new)) } else { Err(error_at(text, 0, CANNOT_EDIT)) };
    }
    Ok(None)
}

/// The whole file as JSON; an empty file is an empty object.
pub fn parse(text: &str) -> Result<Json, JsoncError> {
    let Some(position) = value_start(text)? else { return Ok(Json::object(|_| {})) };
    // For the line of an error.
    JsoncParser { text, position, depth: 0 }.parse_object()?;
    Json::parse(&blank_comments(text)?).map_err(|error| {
        let message = match error.kind {
            json::JsonErrorKind::DuplicateKey => "a key occurs twice in one object",
            json::JsonErrorKind::TooManyValues | json::JsonErrorKind::TooLong => "the file is too large",
            _ => NOT_JSON,
        };
        error_at(text, 0, message)
    })
}

/// The members of the object at `key`, or none if there is no such object.
pub fn members(text: &str, key: &str) -> Result<Vec<(String, Json)>, JsoncError> {
    let Some(position) = value_start(text)? else { return Ok(Vec::new()) };
    // For the line of an error.
    JsoncParser { text, position, depth: 0 }.parse_object()?;
    let plain = blank_comments(text)?;
    let json = Json::parse(&plain).map_err(|_| error_at(text, 0, NOT_JSON))?;
    let doc = json.to_doc();
    let members = doc.root().get(key).into_iter().flat_map(|object| object.members());
    Ok(members.map(|(key, value)| (key.str().unwrap_or_default().into_owned(), Json::from(value))).collect())
}

/// Where the file's value starts; `None` if it has only white space and comments.
fn value_start(text: &str) -> Result<Option<usize>, JsoncError> {
    let mut reader =
        JsoncParser { text, position: if text.starts_with('\u{feff}') { 3 } else { 0 }, depth: 0 };
    reader.skip_whitespace()?;
    Ok((reader.position < text.len()).then_some(reader.position))
}

const CANNOT_EDIT: &str = "cannot edit this file without rewriting it";
const NOT_JSON: &str = "this is not JSON";

fn edit(text: &str, path: &[&str], value: &Json, replace: bool) -> Result<SetOutcome, JsoncError> {
    let style = Style::detect(text);
    let Some(mut position) = value_start(text)? else {
        let mut new = text.to_owned();
        if !new.is_empty() && !new.ends_with('\n') {
            new.push_str(style.newline);
        }
        new.push_str(&style.render_nested(path, value, ""));
        new.push_str(style.newline);
        return Ok(SetOutcome::Changed(new));
    };
    for (depth, key) in path.iter().enumerate() {
        let object = JsoncParser { text, position, depth: 0 }.parse_object()?;
        let Some(member) = object.members.iter().find(|member| member.key == *key) else {
            return Ok(SetOutcome::Changed(object.insert_member(text, &path[depth..], value, &style)?));
        };
        if depth + 1 < path.len() {
            position = member.value.start;
            continue;
        }
        let current = blank_comments(&text[member.value.clone()])?;
        let current = Json::parse(&current).map_err(|_| error_at(text, member.value.start, NOT_JSON))?;
        if compact_bytes(current.to_doc().root()) == compact_bytes(value.to_doc().root()) {
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

/// The same without the member at `path`.
fn compact_without(node: Node<'_>, path: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = json::write::ObjectWriter::new(&mut out);
    for (key, value) in node.members() {
        let name = key.str().unwrap_or_default();
        match path {
            [last] if *last == name => {}
            [first, rest @ ..] if *first == name => {
                object.raw(&name, &String::from_utf8_lossy(&compact_without(value, rest)));
            }
            _ => {
                object.raw(&name, &String::from_utf8_lossy(&compact_bytes(value)));
            }
        }
    }
    object.end();
    out
}

/// The text with blanks in place of comments and trailing commas: JSON, with every value where it was.
pub fn blank_comments(text: &str) -> Result<String, JsoncError> {
    let mut out = String::with_capacity(text.len());
    let mut reader =
        JsoncParser { text, position: if text.starts_with('\u{feff}') { 3 } else { 0 }, depth: 0 };
    // Where a comma is that follows a value, and that no value follows yet.
    let mut comma = None;
    let mut previous = b'{';
    loop {
        reader.skip_whitespace()?;
        let skipped = &text[out.len()..reader.position];
        skipped.bytes().for_each(|byte| out.push(if byte == b'\n' { '\n' } else { ' ' }));
        let from = reader.position;
        match reader.peek() {
            None => return Ok(out),
            Some(b'"') => drop(reader.parse_string()?),
            Some(_) => reader.position += text[from..].chars().next().map_or(0, char::len_utf8),
        }
        let byte = text.as_bytes()[from];
        if let (b'}' | b']', Some(at)) = (byte, comma) {
            out.replace_range(at..at + 1, " ");
        }
        comma = (byte == b',' && !b"{[,:".contains(&previous)).then_some(from);
        previous = byte;
        out.push_str(&text[from..reader.position]);
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

    fn error(&self, message: &'static str) -> JsoncError {
        error_at(self.text, self.position, message)
    }

    /// Skips white space and comments.
    fn skip_whitespace(&mut self) -> Result<(), JsoncError> {
        loop {
            let rest = &self.text[self.position..];
            self.position += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            let rest = &self.text[self.position..];
            if !rest.starts_with("//") && !rest.starts_with("/*") {
                return Ok(());
            }
            self.skip_comment()?;
        }
    }

    fn skip_comment(&mut self) -> Result<(), JsoncError> {
        let rest = &self.text[self.position..];
        self.position += match rest.strip_prefix("/*") {
            Some(comment) => comment.find("*/").ok_or_else(|| self.error("a comment is not closed"))? + 4,
            None => rest.find('\n').unwrap_or(rest.len()),
        };
        Ok(())
    }

    fn parse_string(&mut self) -> Result<Cow<'a, str>, JsoncError> {
        let (text, from) = (self.text, self.position);
        let mut is_escaped = false;
        for (index, c) in text[from..].char_indices().skip(1) {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '\n' => break,
                '"' => {
                    self.position = from + index + 1;
                    let quoted = Json::parse(&text[from..self.position])
                        .map_err(|_| error_at(text, from, NOT_JSON))?;
                    return Ok(quoted.to_doc().root().str().unwrap_or_default().into_owned().into());
                }
                _ => {}
            }
        }
        Err(self.error("a string has no closing quote"))
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
                    return Err(self.error("expected a value"));
                }
                self.position += length;
            }
        }
        Ok(from..self.position)
    }

    fn parse_object(&mut self) -> Result<ObjectSpan<'a>, JsoncError> {
        if self.peek() != Some(b'{') {
            return Err(self.error("expected an object `{…}`"));
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
                Some(b'"') => return Err(self.error("expected a comma")),
                _ => return Err(self.error("expected a name in quotes")),
            }
            let key_start = self.position;
            let key = self.parse_string()?;
            self.skip_whitespace()?;
            if self.peek() != Some(b':') {
                return Err(self.error("expected a colon"));
            }
            self.position += 1;
            self.skip_whitespace()?;
            let value = self.parse_value()?;
            members.push(MemberSpan { key, key_start, value });
            self.skip_whitespace()?;
            ends_with_comma = self.peek() == Some(b',');
            self.position += usize::from(ends_with_comma);
        }
        let close = self.position;
        self.position += 1;
        self.depth -= 1;
        Ok(ObjectSpan { open, close, members })
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
                _ => return Err(self.error("an array is not closed")),
            }
        }
    }

    fn enter(&mut self) -> Result<(), JsoncError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(self.error("nested too deeply")) } else { Ok(()) }
    }
}

impl ObjectSpan<'_> {
    /// The text with one more member in this object.
    fn insert_member(
        &self,
        text: &str,
        path: &[&str],
        value: &Json,
        style: &Style,
    ) -> Result<String, JsoncError> {
        let is_one_line = !text[self.open..self.close].contains('\n');
        let around = indent_at(text, self.open);
        let close = |is_line_end: bool| match is_line_end {
            true => String::new(),
            false => format!("{}{around}", style.newline),
        };
        let mut new = text.to_owned();
        let Some(last) = self.members.last() else {
            let inside = format!("{around}{}", style.indent_unit);
            let member = style.render_member(path, value, &inside);
            // After a comment on the opening line.
            let (end, is_line_end) = comments_end(text, self.open + 1)?;
            new.insert_str(end, &format!("{}{inside}{member}{}", style.newline, close(is_line_end)));
            return Ok(new);
        };
        let comma = comma_after(text, last.value.end)?;
        if is_one_line {
            let separator = if comma.is_some() { " " } else { ", " };
            let behind = if comma.is_some() { self.close } else { last.value.end };
            new.insert_str(behind, &format!("{separator}{}", style.render_compact_member(path, value)));
            return Ok(new);
        }
        let inside = indent_at(text, last.key_start);
        let member = style.render_member(path, value, inside);
        // A comment after the last member belongs to it.
        let (end, is_line_end) = comments_end(text, comma.map_or(last.value.end, |comma| comma + 1))?;
        let own_comma = if comma.is_some() { "," } else { "" };
        new.insert_str(end, &format!("{}{inside}{member}{own_comma}{}", style.newline, close(is_line_end)));
        if comma.is_none() {
            new.insert(last.value.end, ',');
        }
        Ok(new)
    }
}

impl ObjectSpan<'_> {
    /// The text without one member of this object.
    fn without_member(&self, text: &str, index: usize) -> Result<String, JsoncError> {
        let member = &self.members[index];
        let is_last = index + 1 == self.members.len();
        let comma = comma_after(text, member.value.end)?;
        let end = comma.map_or(member.value.end, |comma| comma + 1);
        let line_start = text[..member.key_start].rfind('\n').map_or(0, |line| line + 1);
        let behind = &text[end..line_end(text, end)];
        let owns_its_lines = text[line_start..member.key_start].trim().is_empty()
            && line_start > self.open
            && (behind.trim().is_empty() || behind.trim_start().starts_with("//"));
        let mut new = text.to_owned();
        if owns_its_lines {
            let line_break = text[line_end(text, end)..].find('\n').map_or(0, |at| at + 1);
            new.replace_range(line_start..line_end(text, end) + line_break, "");
        } else {
            // With the blanks behind it, but not with the comment of the next member.
            let blanks = self.members.get(index + 1).map_or(0, |next| {
                let between = &text[end..next.key_start];
                between.len() - between.trim_start().len()
            });
            new.replace_range(member.key_start..end + blanks, "");
        }
        // The member before is the last one now, and takes no comma.
        if is_last
            && comma.is_none()
            && let Some(before) = index.checked_sub(1).map(|before| &self.members[before])
            && let Some(comma) = comma_after(text, before.value.end)?
        {
            let between = &text[comma + 1..member.key_start];
            // A comment in between stays.
            let blanks = if owns_its_lines || !between.trim().is_empty() { 0 } else { between.len() };
            new.replace_range(comma..comma + 1 + blanks, "");
        }
        Ok(new)
    }
}

/// The comma behind a member, past white space and comments.
fn comma_after(text: &str, position: usize) -> Result<Option<usize>, JsoncError> {
    let mut reader = JsoncParser { text, position, depth: 0 };
    reader.skip_whitespace()?;
    Ok((reader.peek() == Some(b',')).then_some(reader.position))
}

/// The end of the comments that begin on the line at `position`, and whether a line ends there.
fn comments_end(text: &str, position: usize) -> Result<(usize, bool), JsoncError> {
    let mut end = position;
    loop {
        let rest = &text[end..];
        let comment = rest.trim_start_matches([' ', '\t']);
        let start = end + rest.len() - comment.len();
        if comment.starts_with("//") {
            return Ok((line_end(text, start), true));
        } else if comment.starts_with("/*") {
            let mut reader = JsoncParser { text, position: start, depth: 0 };
            reader.skip_comment()?;
            end = reader.position;
        } else {
            let is_line_end = comment.is_empty() || comment.starts_with(['\r', '\n']);
            return Ok((if is_line_end { start } else { end }, is_line_end));
        }
    }
}

/// The end of the line at `position`, before its line break.
fn line_end(text: &str, position: usize) -> usize {
    let end = text[position..].find('\n').map_or(text.len(), |length| position + length);
    if text[..end].ends_with('\r') { end - 1 } else { end }
}

/// The indentation of the line at `position`.
fn indent_at(text: &str, position: usize) -> &str {
    let from = text[..position].rfind('\n').map_or(0, |line| line + 1);
    let line = &text[from..position];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn error_at(text: &str, position: usize, message: &'static str) -> JsoncError {
    JsoncError { line: text[..position.min(text.len())].matches('\n').count() + 1, message }
}

/// The formatting of a file.
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
        format!("{}: {}", Json::string(path[0]), self.render_nested(&path[1..], value, indent))
    }

    fn render_compact_member(&self, path: &[&str], value: &Json) -> String {
        let inner = match &path[1..] {
            [] => value.as_str().to_owned(),
            rest => format!("{{{}}}", self.render_compact_member(rest, value)),
        };
        format!("{}: {inner}", Json::string(path[0]))
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
        // An array of strings reads best on one line.
        if !is_object && parts.iter().all(|(_, value)| value.str().is_some()) {
            let words: Vec<&str> = parts.iter().map(|(_, value)| value.raw()).collect();
            out.push_str(&format!("[{}]", words.join(", ")));
            return;
        }
        out.push(if is_object { '{' } else { '[' });
        for (index, (key, value)) in parts.into_iter().enumerate() {
            if index > 0 {
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

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{JsoncError, SetOutcome, blank_comments, remove_member, set_member};

    #[test]
    fn comments_and_trailing_commas_become_blanks_and_nothing_moves() {
        for (before, after) in [
            ("{\"a\": 1, // é\n}", "{\"a\": 1       \n}"),
            ("/* x\ny */{\"a\": [1, 2,],}", "    \n    {\"a\": [1, 2 ] }"),
            ("{\"//\": \"/* , } */\"}", "{\"//\": \"/* , } */\"}"),
            ("\u{feff}{}", "   {}"),
            // These are errors, and stay so.
            ("{,}", "{,}"),
            ("[1,,]", "[1,,]"),
            ("{\"a\":,}", "{\"a\":,}"),
        ] {
            assert_eq!(blank_comments(before).as_deref(), Ok(after), "{before}");
        }
    }

    fn entry() -> Json {
        Json::parse(r#"{"command":"/bin/spile","args":["serve","/data/crm"]}"#).expect("valid JSON")
    }

    /// Sets a member and compares the file.
    fn check(before: &str, after: &str) {
        let got = set_member(before, &["mcpServers", "crm"], &entry(), false).expect("an editable file");
        assert_eq!(got, SetOutcome::Changed(after.to_owned()), "{before}");
        let again = set_member(after, &["mcpServers", "crm"], &entry(), false);
        assert_eq!(again, Ok(SetOutcome::Unchanged), "setting it again changes nothing: {after}");
    }

    #[test]
    fn a_new_member_keeps_everything_else() {
        let lone = "{\n  \"mcpServers\": {\n    \"crm\": {\n      \"command\": \"/bin/spile\",\n      \"args\": [\"serve\", \"/data/crm\"]\n    }\n  }\n}\n";
        check("", lone);
        check("// nothing yet", &format!("// nothing yet\n{lone}"));
        check("{}", lone.trim_end());
        check("{}\n", lone);
        // Another server, other settings and comments.
        check(
            "{\n  \"theme\": \"dark\", // at night\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" } // mine\n  }\n}\n",
            "{\n  \"theme\": \"dark\", // at night\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" }, // mine\n    \"crm\": {\n      \"command\": \"/bin/spile\",\n      \"args\": [\"serve\", \"/data/crm\"]\n    }\n  }\n}\n",
        );
        // Tabs, Windows line ends, a trailing comma.
        check(
            "{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {},\r\n\t},\r\n}",
            "{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {},\r\n\t\t\"crm\": {\r\n\t\t\t\"command\": \"/bin/spile\",\r\n\t\t\t\"args\": [\"serve\", \"/data/crm\"]\r\n\t\t},\r\n\t},\r\n}",
        );
        // A file on one line stays on one line.
        check(
            r#"{"mcpServers":{"a":{}},"b":1}"#,
            r#"{"mcpServers":{"a":{}, "crm": {"command":"/bin/spile","args":["serve","/data/crm"]}},"b":1}"#,
        );
        check(
            r#"{"b":1}"#,
            r#"{"b":1, "mcpServers": {"crm": {"command":"/bin/spile","args":["serve","/data/crm"]}}}"#,
        );
        // An object with nothing but a comment.
        check(
            "{\n    \"mcpServers\": { // none\n    }\n}",
            "{\n    \"mcpServers\": { // none\n        \"crm\": {\n            \"command\": \"/bin/spile\",\n            \"args\": [\"serve\", \"/data/crm\"]\n        }\n    }\n}",
        );
        // A blank before the comma, comments over several lines, a byte order mark.
        let member = "\"crm\": {\n      \"command\": \"/bin/spile\",\n      \"args\": [\"serve\", \"/data/crm\"]\n    }";
        check(
            "{\n  \"mcpServers\": {\n    \"a\": 1 , }\n}",
            &format!("{{\n  \"mcpServers\": {{\n    \"a\": 1 ,\n    {member},\n   }}\n}}"),
        );
        check(
            "{\n  \"mcpServers\": {\n    \"a\": 1 /* one\n  two */ }\n}",
            &format!("{{\n  \"mcpServers\": {{\n    \"a\": 1, /* one\n  two */\n    {member}\n   }}\n}}"),
        );
        check(
            "{\n  \"mcpServers\": { /* one\n  two */ }\n}",
            &format!("{{\n  \"mcpServers\": {{ /* one\n  two */\n    {member}\n   }}\n}}"),
        );
        check("\u{feff}{}\n", &format!("\u{feff}{lone}"));
        // The closing brace follows the last member on its line.
        check(
            "{\n  \"mcpServers\": {\n    \"a\": 1 } }",
            "{\n  \"mcpServers\": {\n    \"a\": 1,\n    \"crm\": {\n      \"command\": \"/bin/spile\",\n      \"args\": [\"serve\", \"/data/crm\"]\n    }\n   } }",
        );
    }

    #[test]
    fn removing_a_member_keeps_everything_else() {
        for (before, after) in [
            // On its own lines, at the end, in the middle, with a trailing comma.
            (
                "{\n  \"s\": {\n    \"a\": 1, // mine\n    \"crm\": {\n      \"b\": 2\n    }\n  }\n}\n",
                "{\n  \"s\": {\n    \"a\": 1 // mine\n  }\n}\n",
            ),
            (
                "{\n  \"s\": {\n    \"crm\": {}, // ours\n    \"a\": 1\n  }\n}",
                "{\n  \"s\": {\n    \"a\": 1\n  }\n}",
            ),
            (
                "{\r\n\t\"s\": {\r\n\t\t\"a\": 1,\r\n\t\t\"crm\": {},\r\n\t},\r\n}",
                "{\r\n\t\"s\": {\r\n\t\t\"a\": 1,\r\n\t},\r\n}",
            ),
            (
                "{\n  \"s\": {\n    // about crm\n    \"crm\": 1\n  }\n}",
                "{\n  \"s\": {\n    // about crm\n  }\n}",
            ),
            // On one line.
            (r#"{"s":{"a":1, "crm": {"b":2}},"t":3}"#, r#"{"s":{"a":1},"t":3}"#),
            (r#"{"s":{"crm": {"b":2}, "a":1}}"#, r#"{"s":{"a":1}}"#),
            (r#"{"s":{"crm":1}}"#, r#"{"s":{}}"#),
            (r#"{"s": { "crm": 1, }}"#, r#"{"s": {  }}"#),
            // Comments about other members.
            (r#"{"s":{"crm": 1, /* about a */ "a":1}}"#, r#"{"s":{/* about a */ "a":1}}"#),
            (
                "{\n  \"s\": {\n    \"a\": 1, // about a\n    \"crm\": 2 } }",
                "{\n  \"s\": {\n    \"a\": 1 // about a\n     } }",
            ),
            ("\u{feff}{\"s\":{\"crm\":1}}", "\u{feff}{\"s\":{}}"),
            // The closing brace follows on the same line.
            ("{\n  \"s\": {\n    \"a\": 1,\n    \"crm\": 2 } }", "{\n  \"s\": {\n    \"a\": 1 } }"),
        ] {
            assert_eq!(remove_member(before, &["s", "crm"]), Ok(Some(after.to_owned())), "{before}");
        }
        for missing in ["", "{}", r#"{"s":{}}"#, "// nothing", r#"{"s":{"a":1}}"#] {
            assert_eq!(remove_member(missing, &["s", "crm"]), Ok(None), "{missing}");
        }
        assert!(remove_member("{\"s\": [", &["s", "crm"]).is_err());
    }

    #[test]
    fn a_different_member_is_replaced_only_on_request() {
        let before = "{ /* x */ \"mcpServers\": { \"crm\": { \"command\": \"other\" } } }";
        let path = ["mcpServers", "crm"];
        assert_eq!(set_member(before, &path, &entry(), false), Ok(SetOutcome::Conflict));
        let Ok(SetOutcome::Changed(after)) = set_member(before, &path, &entry(), true) else {
            panic!("not replaced")
        };
        assert!(after.starts_with("{ /* x */ \"mcpServers\": { \"crm\": {") && after.contains("/bin/spile"));
        let same = "{\"mcpServers\":{\"crm\":{ \"command\" : \"/bin/spile\", // it\n \"args\":[\"serve\",\"/data/crm\",],}}}";
        assert_eq!(set_member(same, &path, &entry(), false), Ok(SetOutcome::Unchanged));
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_an_error_with_its_line() {
        let deep = "[".repeat(100);
        for (text, line, message) in [
            ("[]", 1, "expected an object `{…}`"),
            ("{\n  \"mcpServers\": []\n}", 2, "expected an object `{…}`"),
            ("{\"a\": 1 \"b\": 2}", 1, "expected a comma"),
            ("{\n\n  a: 1}", 3, "expected a name in quotes"),
            ("{\"a\" 1}", 1, "expected a colon"),
            ("{\"a\": }", 1, "expected a value"),
            ("{\"a\": [1}", 1, "an array is not closed"),
            ("{\"a\": \"x\n\"}", 1, "a string has no closing quote"),
            ("{ /* never", 1, "a comment is not closed"),
            ("{\"a\": 01e}", 1, "this is not JSON"),
            ("{\"a\": 1} trailing", 1, "this is not JSON"),
            (&format!("{{\"a\": {deep}"), 1, "nested too deeply"),
        ] {
            let got = set_member(text, &["mcpServers", "crm"], &entry(), false);
            assert_eq!(got, Err(JsoncError { line, message }), "{text}");
        }
    }
}
