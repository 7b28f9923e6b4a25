//! The settings of permissions, hooks and audit, as they stand in a gateway's configuration file beside `mcpServers`.
//!
//! All problems are reported at once, each with its place. A problem that could let a call through is an error; what only
//! allows less than its author meant, or has no effect here, is a warning.

mod hooks;
mod reader;

use contract::diagnostic::{Diagnostic, Severity};
use json::Node;

use crate::audit::settings::{AuditSettings, LoggedArguments, OnAuditError};
use crate::hooks::Hook;
use crate::modes::Mode;
use crate::rules::{RuleKind, Rules};
use reader::Reader;

#[derive(Debug, Default)]
pub struct Settings {
    pub rules: Rules,
    pub mode: Mode,
    pub hooks: Vec<Hook>,
    /// `None` if there is no audit.
    pub audit: Option<AuditSettings>,
    /// Whether the file has any of it.
    pub is_present: bool,
}

impl Settings {
    /// Reads `permissions`, `hooks` and `audit` of a file with comments allowed, and leaves its other members alone. `Ok`
    /// has the warnings; `Err` has all problems.
    pub fn parse(file_name: &str, text: &str) -> Result<(Self, Vec<Diagnostic>), Vec<Diagnostic>> {
        let mut reader = Reader::new(file_name, text);
        let mut settings = Self::default();
        if let Some(doc) = reader.parse() {
            let root = doc.root();
            settings.is_present = ["permissions", "hooks", "audit"].iter().any(|key| root.get(key).is_some());
            if let Some(node) = reader.object(root, "permissions") {
                read_permissions(&mut reader, node, &mut settings);
            }
            if let Some(node) = reader.object(root, "hooks") {
                settings.hooks = hooks::read(&mut reader, node);
            }
            settings.audit = reader.object(root, "audit").map(|node| read_audit(&mut reader, node));
        }
        let diagnostics = reader.finish();
        if diagnostics.iter().any(|one| one.severity == Severity::Error) {
            return Err(diagnostics);
        }
        Ok((settings, diagnostics))
    }
}

/// What Claude Code has there too.
const CLAUDE_ONLY: &[&str] = &["additionalDirectories", "disableBypassPermissionsMode", "disableAutoMode"];

fn read_permissions(reader: &mut Reader, node: Node<'_>, settings: &mut Settings) {
    for (key, value) in node.members() {
        let name = key.str().unwrap_or_default();
        match &*name {
            "mode" | "defaultMode" => {
                let Some(text) = reader.text(value, &name) else { continue };
                match Mode::parse(&text) {
                    Some(mode) => settings.mode = mode,
                    None => {
                        let known = Mode::ALL.map(Mode::as_str).join(", ");
                        let help = match &*text {
                            "acceptEdits" | "auto" => "this mode of Claude Code has no counterpart here",
                            _ => {
                                "Claude Code's default, plan, dontAsk and bypassPermissions are accepted too"
                            }
                        };
                        let message = format!("unknown mode `{}`; supported: {known}", text.escape_debug());
                        reader.error(value, message).help = Some(help.to_owned());
                    }
                }
            }
            "allow" | "ask" | "deny" => {
                let kind = RuleKind::ALL.into_iter().find(|kind| kind.as_str() == name);
                let kind = kind.expect("the names of the lists are those of the kinds");
                for rule in reader.list(value, &name) {
                    let Some(text) = reader.text(rule, "a rule") else { continue };
                    if let Err(error) = settings.rules.add(kind, text.trim()) {
                        let diagnostic = if error.is_ignored {
                            reader.warning(rule, error.message)
                        } else {
                            reader.error(rule, error.message)
                        };
                        diagnostic.help = error.help;
                    }
                }
            }
            other if CLAUDE_ONLY.contains(&other) => {
                reader.warning(key, format!("`{other}` has no effect here"));
            }
            other => reader.unknown_key(key, other, &["mode", "allow", "ask", "deny"]),
        }
    }
    if node.get("mode").is_some()
        && let Some(second) = node.get("defaultMode")
    {
        reader.error(second, "`mode` and `defaultMode` are the same; remove one".to_owned());
    }
}

fn read_audit(reader: &mut Reader, node: Node<'_>) -> AuditSettings {
    const KEYS: &[&str] = &["path", "arguments", "redact", "file_bytes_max", "files_max", "on_error"];
    let mut audit = AuditSettings::default();
    for (key, value) in node.members() {
        let name = key.str().unwrap_or_default();
        match &*name {
            "path" => audit.path = reader.text(value, &name).map(Into::into),
            "arguments" => {
                let choices = LoggedArguments::ALL.map(|choice| (choice.as_str(), choice));
                if let Some(choice) = reader.choice(value, &name, &choices) {
                    audit.arguments = choice;
                }
            }
            "redact" => {
                for pattern in reader.list(value, &name) {
                    audit.redact.extend(reader.text(pattern, "a pattern"));
                }
            }
            "file_bytes_max" => {
                if let Some(bytes) = reader.number(value, &name, AuditSettings::FILE_BYTES_RANGE) {
                    audit.file_bytes_max = bytes;
                }
            }
            "files_max" => {
                if let Some(files) = reader.number(value, &name, AuditSettings::FILES_RANGE) {
                    audit.files_max = u32::try_from(files).unwrap_or(u32::MAX);
                }
            }
            "on_error" => {
                let choices = [("refuse", OnAuditError::Refuse), ("drop", OnAuditError::Drop)];
                if let Some(choice) = reader.choice(value, &name, &choices) {
                    audit.on_error = choice;
                }
            }
            other => reader.unknown_key(key, other, KEYS),
        }
    }
    audit
}
