//! `spile.lock`: what a server promised last, and the number of that promise.
//!
//! A text for version control: a table for each tool in the order of their names, a line for each member of
//! its schemas, so that two branches that change different tools merge by themselves. Where they change the
//! same one, its hash is in both, and somebody has to look. What merges into nonsense is found by the hash.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use spile_core::ToolAnnotations;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::compatibility::{Compatibility, ContractInterface, ToolInterface, annotation_hints};
use crate::contract::Confirm;
use crate::diagnostic::{Diagnostic, FileLocation, FileText};

/// Longer lock files are not read.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// Of the file.
const FORMAT_VERSION: i64 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub version: ContractVersion,
    pub interface: ContractInterface,
    /// Tools whose hash does not belong to what stands beside it.
    pub hash_mismatches: Vec<String>,
}

/// The number of a contract. Who knows it knows whether another can stand in for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContractVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl ContractVersion {
    pub const FIRST: Self = Self { major: 1, minor: 0, patch: 0 };

    /// The number of a contract that is so different.
    #[must_use]
    pub fn bump(self, verdict: Compatibility) -> Self {
        let Self { major, minor, patch } = self;
        match verdict {
            Compatibility::Same => self,
            Compatibility::TextOnly => Self { patch: patch.saturating_add(1), ..self },
            Compatibility::Compatible => Self { major, minor: minor.saturating_add(1), patch: 0 },
            Compatibility::Breaking => Self { major: major.saturating_add(1), minor: 0, patch: 0 },
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let number = |part: &str| {
            let is_plain =
                part.bytes().all(|c| c.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
            if is_plain { part.parse().ok() } else { None }
        };
        let mut parts = text.split('.').map(number);
        let version = Self { major: parts.next()??, minor: parts.next()??, patch: parts.next()?? };
        parts.next().is_none().then_some(version)
    }
}

impl fmt::Display for ContractVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Lock {
    pub fn new(version: ContractVersion, interface: ContractInterface) -> Self {
        Self { version, interface, hash_mismatches: Vec::new() }
    }

    /// The file.
    pub fn to_toml(&self) -> String {
        let mut out = String::from(
            "# What this server promises, written by `spile compile`: keep it in version control.\n\
             # `spile diff` says what a change means to those who call.\n\n",
        );
        let _ = writeln!(out, "format = {FORMAT_VERSION}\nversion = \"{}\"", self.version);
        if !self.interface.instructions_digest.is_empty() {
            let _ = writeln!(out, "instructions = \"{}\"", self.interface.instructions_digest);
        }
        for (name, promise) in &self.interface.tools {
            let _ = writeln!(out, "\n[tools.{}]\nhash = \"{}\"", toml_key(name), promise.hash());
            let _ = writeln!(out, "words = \"{}\"", promise.text_digest);
            let hints = annotation_hints(&promise.annotations).into_iter();
            let hints = hints.filter_map(|(hint, said)| Some(format!("{hint} = {}", said?)));
            let _ = writeln!(out, "hints = {{ {} }}", hints.collect::<Vec<_>>().join(", "));
            if promise.confirm == Confirm::Ask {
                let _ = writeln!(out, "confirm = \"ask\"");
            }
            for (side, schema) in [("input", &promise.input_schema), ("output", &promise.output_schema)] {
                let _ = writeln!(out, "{side} = '''\n{}'''", pretty_schema(schema));
            }
        }
        out
    }

    /// Reads the file, whoever wrote it.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Diagnostic> {
        if text.len() > TEXT_BYTES_MAX {
            let mebibytes = TEXT_BYTES_MAX >> 20;
            return Err(Diagnostic::error(format!("`{file_name}` is longer than {mebibytes} MiB")));
        }
        let origin = Arc::new(FileText::new(file_name, text));
        if let Some(at) = conflict_marker(text) {
            let error = Diagnostic::error("two versions of this file were merged, and both are still here");
            let help = "keep one side, with the higher `version`; then `spile compile` makes it right";
            return Err(error.at(&FileLocation::new(&origin, at)).help(help));
        }
        LockParser { file_text: origin }.parse_lock(text)
    }
}

/// The first marker that `git merge` leaves.
fn conflict_marker(text: &str) -> Option<Range<usize>> {
    let mut from = 0;
    for line in text.split_inclusive('\n') {
        if ["<<<<<<< ", ">>>>>>> "].iter().any(|marker| line.starts_with(marker)) {
            return Some(from..from + line.trim_end().len());
        }
        from += line.len();
    }
    None
}

fn toml_key(name: &str) -> String {
    let is_bare = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
    if !name.is_empty() && name.bytes().all(is_bare) {
        return name.to_owned();
    }
    // Whatever JSON escapes, TOML reads; and it forbids one more.
    Value::String(name.to_owned()).to_string().replace('\u{7f}', "\\u007f")
}

/// A member in each line. Between three quotes there may be no three quotes, and no character that TOML
/// forbids; inside a string of JSON both can be written in another way, and outside of one there are none.
fn pretty_schema(schema: &Value) -> String {
    let text = serde_json::to_string_pretty(schema).expect("a value is JSON");
    text.replace('\'', "\\u0027").replace('\u{7f}', "\\u007f") + "\n"
}

struct LockParser {
    file_text: Arc<FileText>,
}

const HELP: &str =
    "`spile compile` writes this file; take it from version control, or delete it and begin again";

impl LockParser {
    fn error(&self, at: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(message).at(&FileLocation::new(&self.file_text, at)).help(HELP)
    }

    fn parse_lock(&self, text: &str) -> Result<Lock, Diagnostic> {
        let (document, errors) = DeTable::parse_recoverable(text);
        if let Some(error) = errors.first() {
            let end = text.len();
            return Err(self.error(error.span().unwrap_or(end..end), error.message()));
        }
        let (top, whole) = (document.get_ref(), 0..0);
        match top.get("format").map(|value| (value, value.get_ref())) {
            Some((_, DeValue::Integer(n)))
                if i64::from_str_radix(n.as_str(), n.radix()) == Ok(FORMAT_VERSION) => {}
            Some((value, _)) => {
                let message = "this lock file is of another kind than this version of spile knows";
                return Err(self.error(value.span(), message));
            }
            None => return Err(self.error(whole, "`format` is missing")),
        }
        let (version, at) = self.string(top, "version", whole.clone())?;
        let version = ContractVersion::parse(version);
        let version = version.ok_or_else(|| self.error(at, "expected a version such as \"1.0.0\""))?;
        let instructions = match top.get("instructions") {
            None => String::new(),
            Some(_) => self.string(top, "instructions", whole.clone())?.0.to_owned(),
        };
        let mut lock = Lock::new(
            version,
            ContractInterface { instructions_digest: instructions, tools: BTreeMap::new() },
        );
        for (name, tool) in self.table(top, "tools")?.iter().flat_map(|tools| tools.iter()) {
            let DeValue::Table(tool) = tool.get_ref() else {
                return Err(self.error(name.span(), "expected a table"));
            };
            let promise = self.tool_interface(tool, name.span())?;
            let (hash, _) = self.string(tool, "hash", name.span())?;
            if hash != promise.hash() {
                lock.hash_mismatches.push(name.get_ref().to_string());
            }
            lock.interface.tools.insert(name.get_ref().to_string(), promise);
        }
        Ok(lock)
    }

    fn tool_interface(&self, tool: &DeTable<'_>, at: Range<usize>) -> Result<ToolInterface, Diagnostic> {
        let mut annotations = ToolAnnotations::default();
        for (hint, said) in self.table(tool, "hints")?.iter().flat_map(|hints| hints.iter()) {
            let DeValue::Boolean(is) = *said.get_ref() else {
                return Err(self.error(said.span(), "expected true or false"));
            };
            let place = match &**hint.get_ref() {
                "readOnlyHint" => &mut annotations.read_only,
                "destructiveHint" => &mut annotations.destructive,
                "idempotentHint" => &mut annotations.idempotent,
                "openWorldHint" => &mut annotations.open_world,
                _ => return Err(self.error(hint.span(), "no such hint")),
            };
            *place = Some(is);
        }
        let schema = |side| {
            let (text, at) = self.string(tool, side, at.clone())?;
            let read: Result<Value, _> = serde_json::from_str(text);
            read.map_err(|why| self.error(at, format!("not a schema: {why}")))
        };
        Ok(ToolInterface {
            text_digest: self.string(tool, "words", at.clone())?.0.to_owned(),
            annotations,
            confirm: self.confirm(tool, at.clone())?,
            input_schema: schema("input")?,
            output_schema: schema("output")?,
        })
    }

    /// Unsaid: nobody is asked.
    fn confirm(&self, tool: &DeTable<'_>, at: Range<usize>) -> Result<Confirm, Diagnostic> {
        if !tool.contains_key("confirm") {
            return Ok(Confirm::Never);
        }
        match self.string(tool, "confirm", at)? {
            ("ask", _) => Ok(Confirm::Ask),
            (_, at) => Err(self.error(at, "expected \"ask\"")),
        }
    }

    fn string<'t>(
        &self,
        table: &'t DeTable<'_>,
        key: &str,
        at: Range<usize>,
    ) -> Result<(&'t str, Range<usize>), Diagnostic> {
        match table.get(key).map(|value| (value.span(), value.get_ref())) {
            Some((at, DeValue::String(text))) => Ok((text, at)),
            Some((at, _)) => Err(self.error(at, "expected a text in quotes")),
            None => Err(self.error(at, format!("`{key}` is missing"))),
        }
    }

    fn table<'t>(&self, table: &'t DeTable<'t>, key: &str) -> Result<Option<&'t DeTable<'t>>, Diagnostic> {
        match table.get(key).map(|value: &Spanned<DeValue<'_>>| (value.span(), value.get_ref())) {
            Some((_, DeValue::Table(table))) => Ok(Some(table)),
            Some((at, _)) => Err(self.error(at, "expected a table")),
            None => Ok(None),
        }
    }
}
