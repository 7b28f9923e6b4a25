//! `spile.lock`: the interface that a server last published, and its version.
//!
//! Designed for version control: one table per tool, sorted by name, and one line per member of its schemas, so that
//! branches that change different tools merge without conflicts. Branches that change the same tool both change its
//! hash, which is a conflict. The hash also detects a bad merge.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use spile_core::{TaskSupport, ToolAnnotations};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::compatibility::{
    Compatibility, ContractInterface, RoleInterface, ToolInterface, annotation_hints, task_support_name,
};
use crate::contract::Confirm;
use crate::diagnostic::{Diagnostic, FileLocation, FileText};
use crate::toml_text::{toml_key, toml_quote};

/// The maximum size of a lock file.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// The version of the file format.
const FORMAT_VERSION: i64 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub version: ContractVersion,
    pub interface: ContractInterface,
    /// What the databases looked like that the interface was made from, by the name of the source, as JSON. A server whose database is
    /// down starts with it.
    pub databases: BTreeMap<String, Value>,
    /// Tools whose hash does not match their schemas.
    pub hash_mismatches: Vec<String>,
}

/// The semantic version of a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContractVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl ContractVersion {
    pub const FIRST: Self = Self { major: 1, minor: 0, patch: 0 };

    /// The next version for a change of this compatibility.
    #[must_use]
    pub fn bump(self, compatibility: Compatibility) -> Self {
        let Self { major, minor, patch } = self;
        match compatibility {
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
        Self { version, interface, databases: BTreeMap::new(), hash_mismatches: Vec::new() }
    }

    /// The text of the lock file.
    pub fn to_toml(&self) -> String {
        let mut out = String::from(
            "# The published interface of this server, written by `spile compile`. Keep it in version control.\n\
             # `spile diff` reports what a change means for clients.\n\n",
        );
        let _ = writeln!(out, "format = {FORMAT_VERSION}\nversion = \"{}\"", self.version);
        if !self.interface.instructions_digest.is_empty() {
            let _ = writeln!(out, "instructions = \"{}\"", self.interface.instructions_digest);
        }
        for (name, interface) in &self.interface.tools {
            let _ = writeln!(out, "\n[tools.{}]\nhash = \"{}\"", toml_key(name), interface.hash());
            let _ = writeln!(out, "text_digest = \"{}\"", interface.text_digest);
            let hints = annotation_hints(&interface.annotations).into_iter();
            let hints = hints.filter_map(|(hint, value)| Some(format!("{hint} = {}", value?)));
            let _ = writeln!(out, "hints = {{ {} }}", hints.collect::<Vec<_>>().join(", "));
            if interface.confirm == Confirm::Ask {
                let _ = writeln!(out, "confirm = \"ask\"");
            }
            if let Some(task) = task_support_name(interface.task_support) {
                let _ = writeln!(out, "task = \"{task}\"");
            }
            for (side, schema) in [("input", &interface.input_schema), ("output", &interface.output_schema)] {
                let _ = writeln!(out, "{side} = '''\n{}'''", pretty_schema(schema));
            }
        }
        for (role, tools) in &self.interface.roles {
            let _ = writeln!(out, "\n[roles.{}]", toml_key(role));
            for (tool, fields) in tools {
                let fields: Vec<String> = fields.iter().map(|field| toml_quote(field)).collect();
                let _ = writeln!(out, "{} = [{}]", toml_key(tool), fields.join(", "));
            }
        }
        for (source, facts) in &self.databases {
            let facts = pretty_schema(facts);
            let _ = writeln!(out, "\n[databases.{}]\nfacts = '''\n{facts}'''", toml_key(source));
        }
        out
    }

    /// Parses the text of a lock file.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Diagnostic> {
        if text.len() > TEXT_BYTES_MAX {
            let mebibytes = TEXT_BYTES_MAX >> 20;
            return Err(Diagnostic::error(format!("`{file_name}` exceeds the limit of {mebibytes} MiB")));
        }
        let origin = Arc::new(FileText::new(file_name, text));
        if let Some(at) = conflict_marker(text) {
            let error = Diagnostic::error("this file has an unresolved merge conflict");
            let help = "keep the side with the higher `version`, then run `spile compile`";
            return Err(error.at(&FileLocation::new(&origin, at)).help(help));
        }
        LockParser { file_text: origin }.parse_lock(text)
    }
}

/// The first conflict marker of `git merge`.
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

/// One member per line, in the order of their names: a lock file does not change when a schema lists its properties in
/// another order. A TOML literal string must not contain `'''` or a control character; inside JSON strings these
/// are escaped, and outside of them they do not occur.
fn pretty_schema(schema: &Value) -> String {
    let mut sorted = schema.clone();
    sorted.sort_all_objects();
    let text = serde_json::to_string_pretty(&sorted).expect("a JSON value can be serialized");
    text.replace('\'', "\\u0027").replace('\u{7f}', "\\u007f") + "\n"
}

struct LockParser {
    file_text: Arc<FileText>,
}

const HELP: &str =
    "`spile compile` writes this file; restore it from version control, or delete it and compile again";

impl LockParser {
    fn error(&self, at: Range<usize>, message: impl Into<String>) -> Diagnostic {
        let location = FileLocation::new(&self.file_text, at);
        let message = format!("`{}` is not valid: {}", location.file_name(), message.into());
        Diagnostic::error(message).at(&location).help(HELP)
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
                let message = "this version of spile does not support this lock file format";
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
            ContractInterface { instructions_digest: instructions, ..ContractInterface::default() },
        );
        for (name, tool) in self.table(top, "tools")?.iter().flat_map(|tools| tools.iter()) {
            let DeValue::Table(tool) = tool.get_ref() else {
                return Err(self.error(name.span(), "expected a table"));
            };
            let interface = self.tool_interface(tool, name.span())?;
            let (hash, _) = self.string(tool, "hash", name.span())?;
            if hash != interface.hash() {
                lock.hash_mismatches.push(name.get_ref().to_string());
            }
            lock.interface.tools.insert(name.get_ref().to_string(), interface);
        }
        for (name, role) in self.table(top, "roles")?.iter().flat_map(|roles| roles.iter()) {
            let DeValue::Table(tools) = role.get_ref() else {
                return Err(self.error(name.span(), "expected a table"));
            };
            let mut interface = RoleInterface::new();
            for (tool, fields) in tools {
                interface.insert(tool.get_ref().to_string(), self.strings(fields)?);
            }
            lock.interface.roles.insert(name.get_ref().to_string(), interface);
        }
        for (name, database) in self.table(top, "databases")?.iter().flat_map(|all| all.iter()) {
            let DeValue::Table(database) = database.get_ref() else {
                return Err(self.error(name.span(), "expected a table"));
            };
            let (facts, at) = self.string(database, "facts", name.span())?;
            let facts = serde_json::from_str(facts).map_err(|error| self.error(at, error.to_string()))?;
            lock.databases.insert(name.get_ref().to_string(), facts);
        }
        Ok(lock)
    }

    fn strings(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Diagnostic> {
        let text = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(self.error(item.span(), "expected a string")),
        };
        match value.get_ref() {
            DeValue::Array(items) => items.iter().map(text).collect(),
            _ => Err(self.error(value.span(), "expected an array of strings")),
        }
    }

    fn tool_interface(&self, tool: &DeTable<'_>, at: Range<usize>) -> Result<ToolInterface, Diagnostic> {
        let mut annotations = ToolAnnotations::default();
        for (hint, value) in self.table(tool, "hints")?.iter().flat_map(|hints| hints.iter()) {
            let DeValue::Boolean(is) = *value.get_ref() else {
                return Err(self.error(value.span(), "expected true or false"));
            };
            let annotation = match &**hint.get_ref() {
                "readOnlyHint" => &mut annotations.read_only,
                "destructiveHint" => &mut annotations.destructive,
                "idempotentHint" => &mut annotations.idempotent,
                "openWorldHint" => &mut annotations.open_world,
                _ => return Err(self.error(hint.span(), "unknown hint")),
            };
            *annotation = Some(is);
        }
        let schema = |side| {
            let (text, at) = self.string(tool, side, at.clone())?;
            let read: Result<Value, _> = serde_json::from_str(text);
            read.map_err(|error| self.error(at, format!("invalid JSON in a schema: {error}")))
        };
        Ok(ToolInterface {
            text_digest: self.string(tool, "text_digest", at.clone())?.0.to_owned(),
            annotations,
            confirm: self.confirm(tool, at.clone())?,
            task_support: self.task_support(tool, at.clone())?,
            input_schema: schema("input")?,
            output_schema: schema("output")?,
        })
    }

    /// Absent means `never`.
    fn confirm(&self, tool: &DeTable<'_>, at: Range<usize>) -> Result<Confirm, Diagnostic> {
        if !tool.contains_key("confirm") {
            return Ok(Confirm::Never);
        }
        match self.string(tool, "confirm", at)? {
            ("ask", _) => Ok(Confirm::Ask),
            (_, at) => Err(self.error(at, "expected \"ask\"")),
        }
    }

    /// Absent means that calls do not become tasks.
    fn task_support(&self, tool: &DeTable<'_>, at: Range<usize>) -> Result<TaskSupport, Diagnostic> {
        if !tool.contains_key("task") {
            return Ok(TaskSupport::Forbidden);
        }
        let (name, at) = self.string(tool, "task", at)?;
        let known = [TaskSupport::Optional, TaskSupport::Required];
        let found = known.into_iter().find(|support| task_support_name(*support) == Some(name));
        found.ok_or_else(|| self.error(at, "expected \"optional\" or \"required\""))
    }

    fn string<'t>(
        &self,
        table: &'t DeTable<'_>,
        key: &str,
        at: Range<usize>,
    ) -> Result<(&'t str, Range<usize>), Diagnostic> {
        match table.get(key).map(|value| (value.span(), value.get_ref())) {
            Some((at, DeValue::String(text))) => Ok((text, at)),
            Some((at, _)) => Err(self.error(at, "expected a string")),
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
