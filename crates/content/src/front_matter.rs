//! Front matter: the YAML between two `---` lines at the start of a Markdown file, read into typed values.

use std::ops::Range;
use std::sync::Arc;

use contract::diagnostic::{Diagnostic, FileLocation, FileText};
use json::Json;
use json::write::ObjectWriter;
use spile_core::calendar::{CivilDate, DateTime};

use crate::yaml::{Yaml, YamlMember, YamlNode, parse_mapping, write_members};

/// The parts of a Markdown file, as byte ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FrontMatter {
    Absent,
    /// It starts with `---`, but no other `---` line follows.
    Unclosed,
    Present {
        yaml: Range<usize>,
        body_start: usize,
    },
}

/// Finds the front matter of a file.
pub(crate) fn find_front_matter(text: &str) -> FrontMatter {
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let Some(first) = text[start..].split_inclusive('\n').next() else { return FrontMatter::Absent };
    if first.trim_end() != "---" || !first.ends_with('\n') {
        return FrontMatter::Absent;
    }
    let yaml_start = start + first.len();
    let mut at = yaml_start;
    for line in text[yaml_start..].split_inclusive('\n') {
        if line.trim_end() == "---" {
            return FrontMatter::Present { yaml: yaml_start..at, body_start: at + line.len() };
        }
        at += line.len();
    }
    FrontMatter::Unclosed
}

/// The front matter of a file as a JSON object; `None` if there is none, or if it is not valid.
pub fn front_matter_json(text: &str) -> Option<Json> {
    let FrontMatter::Present { yaml, .. } = find_front_matter(text) else { return None };
    let members = parse_mapping(text, yaml).ok()?;
    let mut out = Vec::new();
    write_members(&mut out, &members);
    Json::parse(&String::from_utf8(out).ok()?).ok()
}

/// Collects the diagnostics of one file.
pub(crate) struct Reporter {
    pub(crate) file: Arc<FileText>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Reporter {
    pub(crate) fn new(file_name: &str, text: &str) -> Self {
        Self { file: Arc::new(FileText::new(file_name, text)), diagnostics: Vec::new() }
    }

    pub(crate) fn error(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.report(Diagnostic::error(message), span, help);
    }

    pub(crate) fn warning(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.report(Diagnostic::warning(message), span, help);
    }

    fn report(&mut self, diagnostic: Diagnostic, span: Range<usize>, help: impl Into<String>) {
        self.diagnostics.push(diagnostic.at(&FileLocation::new(&self.file, span)).help(help));
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|one| one.severity == contract::diagnostic::Severity::Error)
    }
}

/// Parses the YAML of a file's front matter.
pub(crate) fn parse_front_matter(
    reporter: &mut Reporter,
    yaml: Range<usize>,
    bytes_max: usize,
) -> Option<Vec<YamlMember>> {
    if yaml.len() > bytes_max {
        let message = format!("the front matter exceeds the limit of {bytes_max} bytes");
        reporter.error(yaml.start..yaml.start + 1, message, "move the text into the body");
        return None;
    }
    match parse_mapping(&reporter.file.clone().text, yaml) {
        Ok(members) => Some(members),
        Err(error) => {
            reporter.error(error.span, error.message, error.help);
            None
        }
    }
}

/// The members of a mapping that nobody has read yet. Every read removes one.
pub(crate) struct Fields<'r> {
    members: Vec<YamlMember>,
    known: Vec<&'static str>,
    pub(crate) reporter: &'r mut Reporter,
}

impl<'r> Fields<'r> {
    pub(crate) fn new(members: Vec<YamlMember>, reporter: &'r mut Reporter) -> Self {
        Self { members, known: Vec::new(), reporter }
    }

    pub(crate) fn take(&mut self, key: &'static str) -> Option<YamlNode> {
        self.known.push(key);
        let at = self.members.iter().position(|member| member.key == key)?;
        // An empty value means the same as a missing key.
        Some(self.members.remove(at).value).filter(|node| node.value != Yaml::Null)
    }

    fn wrong_kind(&mut self, key: &str, expected: &str, node: &YamlNode) {
        let message = format!("`{key}`: expected {expected}, found {}", node.value.kind());
        self.reporter.error(node.span.clone(), message, format!("write {expected}"));
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<String> {
        self.located_text(key).map(|(text, _)| text)
    }

    /// A number or `true` is meant as a text where only a text can be meant.
    pub(crate) fn located_text(&mut self, key: &'static str) -> Option<(String, Range<usize>)> {
        let node = self.take(key)?;
        match scalar_text(&node, &self.reporter.file.text) {
            Some(text) => Some((text, node.span)),
            None => {
                self.wrong_kind(key, "a text", &node);
                None
            }
        }
    }

    pub(crate) fn bool(&mut self, key: &'static str) -> Option<bool> {
        let node = self.take(key)?;
        match node.value {
            Yaml::Bool(value) => Some(value),
            _ => {
                self.wrong_kind(key, "`true` or `false`", &node);
                None
            }
        }
    }

    /// A list of texts, or one text.
    pub(crate) fn texts(&mut self, key: &'static str) -> Option<Vec<(String, Range<usize>)>> {
        let node = self.take(key)?;
        let text = self.reporter.file.clone();
        let items = match &node.value {
            Yaml::List(items) => items.as_slice(),
            _ => std::slice::from_ref(&node),
        };
        let texts: Option<Vec<_>> =
            items.iter().map(|item| Some((scalar_text(item, &text.text)?, item.span.clone()))).collect();
        if texts.is_none() {
            self.wrong_kind(key, "a list of texts", &node);
        }
        texts
    }

    pub(crate) fn map(&mut self, key: &'static str) -> Option<Vec<YamlMember>> {
        let node = self.take(key)?;
        match node.value {
            Yaml::Map(members) => Some(members),
            _ => {
                self.wrong_kind(key, "a mapping", &node);
                None
            }
        }
    }

    pub(crate) fn list(&mut self, key: &'static str) -> Option<Vec<YamlNode>> {
        let node = self.take(key)?;
        match node.value {
            Yaml::List(items) => Some(items),
            _ => {
                self.wrong_kind(key, "a list", &node);
                None
            }
        }
    }

    /// `icons`, as the protocol has them: a list of mappings with `src`.
    pub(crate) fn icons(&mut self) -> Option<Json> {
        let items = self.list("icons")?;
        let mut out = Vec::from(b"[");
        for (index, item) in items.into_iter().enumerate() {
            let span = item.span.clone();
            let Yaml::Map(members) = item.value else {
                self.reporter.error(
                    span,
                    "an icon is a mapping",
                    "write `src: https://…` and, if known, `mimeType`",
                );
                return None;
            };
            let mut icon = Fields::new(members, self.reporter);
            let src = icon.text("src");
            let mime_type = icon.text("mimeType");
            let sizes = icon.texts("sizes");
            let theme = icon.text("theme");
            icon.refuse_unknown();
            let Some(src) = src.filter(|src| src.starts_with("https://") || src.starts_with("data:image/"))
            else {
                let message = "an icon needs `src`, an https:// or data:image/ URI";
                self.reporter.error(span, message, "add `src: https://…`");
                return None;
            };
            if index > 0 {
                out.push(b',');
            }
            let mut object = ObjectWriter::new(&mut out);
            object.str("src", &src).maybe_str("mimeType", mime_type.as_deref());
            if let Some(sizes) = sizes {
                object.array("sizes", &sizes, |out, (size, _)| json::write::string(out, size));
            }
            object.maybe_str("theme", theme.as_deref());
            object.end();
        }
        out.push(b']');
        Some(Json::from_written_bytes(out))
    }

    /// Reports every key that nobody asked for.
    pub(crate) fn refuse_unknown(self) {
        for (message, help, span) in self.unknown() {
            self.reporter.error(span, message, help);
        }
    }

    /// The same as warnings, which say what follows from it.
    pub(crate) fn warn_unknown(self, consequence: &str) {
        for (message, help, span) in self.unknown() {
            self.reporter.warning(span, format!("{message}: {consequence}"), help);
        }
    }

    fn unknown(&self) -> Vec<(String, String, Range<usize>)> {
        let describe = |member: &YamlMember| {
            let help = match contract::nearest(&member.key, self.known.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("known keys: {}", self.known.join(", ")),
            };
            (format!("unknown key `{}`", member.key), help, member.key_span.clone())
        };
        self.members.iter().map(describe).collect()
    }
}

/// The text of a scalar, as its author wrote it.
fn scalar_text(node: &YamlNode, file: &str) -> Option<String> {
    match &node.value {
        Yaml::Text(text) => Some(text.clone()),
        Yaml::Number(_) | Yaml::Bool(_) => file.get(node.span.clone()).map(str::to_owned),
        Yaml::Null | Yaml::List(_) | Yaml::Map(_) => None,
    }
}

/// Who a resource is for, how much it matters, and when it changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations {
    pub audience: Vec<spile_core::Role>,
    /// From 0 to 1, as a JSON number.
    pub priority: Option<String>,
    pub last_modified: Option<LastModified>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LastModified {
    /// ISO 8601: a date, or a date and time.
    At(String),
    /// The modification time of the file.
    OfFile,
}

impl Annotations {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        let mut annotations = Self::default();
        for (name, span) in fields.texts("audience").unwrap_or_default() {
            match name.as_str() {
                "user" => annotations.audience.push(spile_core::Role::User),
                "assistant" => annotations.audience.push(spile_core::Role::Assistant),
                _ => {
                    let message = format!("`audience`: unknown role `{name}`");
                    fields.reporter.error(span, message, "write `user`, `assistant` or both");
                }
            }
        }
        if let Some(node) = fields.take("priority") {
            match &node.value {
                Yaml::Number(number)
                    if number.parse::<f64>().is_ok_and(|value| (0.0..=1.0).contains(&value)) =>
                {
                    annotations.priority = Some(number.clone());
                }
                _ => {
                    fields.reporter.error(
                        node.span,
                        "`priority`: expected a number from 0 to 1",
                        "write `0.5`",
                    );
                }
            }
        }
        annotations.last_modified = fields.located_text("last_modified").and_then(|(text, span)| match text
            .as_str()
        {
            "file" => Some(LastModified::OfFile),
            _ if is_date_or_time(&text) => Some(LastModified::At(text)),
            _ => {
                let message = format!("`last_modified`: `{text}` is not a date");
                let help = "write `2026-05-01`, `2026-05-01T12:00:00Z`, or `file` for the time of the file";
                fields.reporter.error(span, message, help);
                None
            }
        });
        annotations
    }

    /// The `annotations` member of a resource; `None` if there is nothing to say.
    pub(crate) fn to_json(&self, modified_ms: Option<u64>) -> Option<Json> {
        let last_modified = match &self.last_modified {
            None => None,
            Some(LastModified::At(text)) => Some(text.clone()),
            Some(LastModified::OfFile) => {
                modified_ms.and_then(DateTime::from_unix_ms).map(|time| time.to_string())
            }
        };
        if self.audience.is_empty() && self.priority.is_none() && last_modified.is_none() {
            return None;
        }
        Some(Json::object(|object| {
            if !self.audience.is_empty() {
                object.array("audience", &self.audience, |out, role| {
                    json::write::string(
                        out,
                        match role {
                            spile_core::Role::User => "user",
                            spile_core::Role::Assistant => "assistant",
                        },
                    );
                });
            }
            object.maybe_raw("priority", self.priority.as_deref());
            object.maybe_str("lastModified", last_modified.as_deref());
        }))
    }
}

fn is_date_or_time(text: &str) -> bool {
    CivilDate::parse(text.as_bytes()).is_some() || DateTime::parse(text.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::{FrontMatter, find_front_matter};

    #[test]
    fn front_matter_is_between_two_lines_of_three_dashes() {
        for (text, expected) in [
            ("---\na: 1\n---\nbody", Some(("a: 1\n", "body"))),
            ("---\r\na: 1\r\n---\r\nbody", Some(("a: 1\r\n", "body"))),
            ("\u{feff}---\na: 1\n---\nbody", Some(("a: 1\n", "body"))),
            ("---  \na: 1\n--- \nbody", Some(("a: 1\n", "body"))),
            ("---\n---\nbody", Some(("", "body"))),
            ("---\na: 1\n---", Some(("a: 1\n", ""))),
            ("---\na: 1\n---\n---\nx", Some(("a: 1\n", "---\nx"))),
            ("body", None),
            ("", None),
            ("---", None),
            ("----\na: 1\n----\n", None),
            ("\n---\na: 1\n---\n", None),
            (" ---\na: 1\n---\n", None),
            ("--- a\n---\n", None),
        ] {
            let found = match find_front_matter(text) {
                FrontMatter::Present { yaml, body_start } => Some((&text[yaml], &text[body_start..])),
                FrontMatter::Absent | FrontMatter::Unclosed => None,
            };
            assert_eq!(found, expected, "{text:?}");
        }
        assert_eq!(find_front_matter("---\na: 1\n"), FrontMatter::Unclosed);
        assert_eq!(find_front_matter("---\na: 1\n----\n"), FrontMatter::Unclosed);
    }
}
