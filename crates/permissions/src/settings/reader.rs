//! Reads values of a settings file and collects what is wrong with them.

use std::ops::RangeInclusive;
use std::sync::Arc;

use contract::diagnostic::{Diagnostic, FileLocation, FileText};
use json::{Doc, Node, NodeKind, ParseLimits};
use servers::jsonc;

/// More problems are not collected.
const DIAGNOSTICS_MAX: usize = 100;
const LIST_MAX: usize = 10_000;
const FILE_BYTES_MAX: usize = 16 << 20;

pub(super) struct Reader {
    text: Arc<FileText>,
    diagnostics: Vec<Diagnostic>,
    /// Takes what exceeds the limit.
    overflow: Diagnostic,
}

impl Reader {
    pub(super) fn new(file_name: &str, text: &str) -> Self {
        Self {
            text: Arc::new(FileText::new(file_name, text)),
            diagnostics: Vec::new(),
            overflow: Diagnostic::error("too many problems"),
        }
    }

    pub(super) fn finish(self) -> Vec<Diagnostic> {
        self.diagnostics
    }

    /// The whole file. Its values are where they are in the text, because comments became blanks.
    pub(super) fn parse(&mut self) -> Option<Doc> {
        let text = &self.text.text;
        if text.len() > FILE_BYTES_MAX {
            self.add(Diagnostic::error(format!("the file exceeds the limit of {FILE_BYTES_MAX} bytes")));
            return None;
        }
        if text.trim().is_empty() {
            return json::parse(b"{}".to_vec(), &ParseLimits::default()).ok();
        }
        let parsed = match jsonc::blank_comments(text) {
            Err(error) => {
                let start: usize = text.split_inclusive('\n').take(error.line.max(1) - 1).map(str::len).sum();
                Err((start, error.message.to_owned()))
            }
            Ok(plain) => json::parse(plain.into_bytes(), &ParseLimits::default())
                .map_err(|error| (error.offset, error.to_string())),
        };
        match parsed {
            Ok(doc) if doc.root().is_object() => Some(doc),
            Ok(_) => {
                self.add(Diagnostic::error("the file is not a JSON object"));
                None
            }
            Err((offset, message)) => {
                let location = FileLocation::new(&self.text, offset..offset + 1);
                self.add(Diagnostic::error(message).at(&location));
                None
            }
        }
    }

    fn add(&mut self, diagnostic: Diagnostic) -> &mut Diagnostic {
        if self.diagnostics.len() >= DIAGNOSTICS_MAX {
            return &mut self.overflow;
        }
        self.diagnostics.push(diagnostic);
        self.diagnostics.last_mut().expect("one was pushed")
    }

    fn location(&self, node: Node<'_>) -> FileLocation {
        FileLocation::new(&self.text, node.span())
    }

    pub(super) fn error(&mut self, node: Node<'_>, message: String) -> &mut Diagnostic {
        let location = self.location(node);
        self.add(Diagnostic::error(message).at(&location))
    }

    pub(super) fn warning(&mut self, node: Node<'_>, message: String) -> &mut Diagnostic {
        let location = self.location(node);
        self.add(Diagnostic::warning(message).at(&location))
    }

    pub(super) fn unknown_key(&mut self, key: Node<'_>, name: &str, known: &[&str]) {
        let message = format!("unknown key `{}`; supported: {}", name.escape_debug(), known.join(", "));
        self.error(key, message);
    }

    /// A member that is an object; one that is `null` counts as absent.
    pub(super) fn object<'d>(&mut self, node: Node<'d>, key: &str) -> Option<Node<'d>> {
        let member = node.get(key).filter(|member| member.kind() != NodeKind::Null)?;
        if member.is_object() {
            return Some(member);
        }
        self.error(member, format!("`{key}` is not an object"));
        None
    }

    pub(super) fn list<'d>(&mut self, node: Node<'d>, name: &str) -> Vec<Node<'d>> {
        if node.kind() != NodeKind::Array {
            self.error(node, format!("`{name}` is not a list"));
            return Vec::new();
        }
        if node.len() > LIST_MAX {
            self.error(node, format!("`{name}` exceeds the limit of {LIST_MAX} entries"));
            return Vec::new();
        }
        node.elements().collect()
    }

    pub(super) fn text(&mut self, node: Node<'_>, name: &str) -> Option<String> {
        match node.str() {
            Some(text) if !text.is_empty() => return Some(text.into_owned()),
            Some(_) => self.error(node, format!("{} is empty", quoted(name))),
            None => self.error(node, format!("{} is not a text", quoted(name))),
        };
        None
    }

    pub(super) fn choice<T: Copy>(&mut self, node: Node<'_>, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(node, name)?;
        let found = choices.iter().find(|(choice, _)| *choice == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
            let message = format!(
                "unknown value `{}` of `{name}`; supported: {}",
                text.escape_debug(),
                known.join(", ")
            );
            self.error(node, message);
        }
        found
    }

    pub(super) fn number(&mut self, node: Node<'_>, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let number = node.u64().filter(|number| range.contains(number));
        if number.is_none() {
            let (low, high) = range.into_inner();
            self.error(node, format!("`{name}` is not a whole number from {low} to {high}"));
        }
        number
    }
}

/// A key is a literal; a description is not.
fn quoted(name: &str) -> String {
    if name.contains(' ') { name.to_owned() } else { format!("`{name}`") }
}
