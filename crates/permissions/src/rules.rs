//! Permission rules: allow, ask, deny, in Claude Code's syntax for MCP tools.
//!
//! | rule | matches |
//! |---|---|
//! | `mcp__github` | every tool of the server `github`, and for `deny` its prompts and resources |
//! | `mcp__github__*` | the same |
//! | `mcp__github__get_*` | its tools whose names start with `get_` |
//! | `mcp__github__create_issue` | that tool |
//! | `mcp__*`, `*` | every tool (`deny` and `ask` only) |
//! | `mcp__github__create_issue(repo:acme/*)` | calls with such an argument (`deny` and `ask` only) |
//!
//! Deny is evaluated before ask, and ask before allow. Within a list all rules count the same.

use std::collections::HashMap;

use json::{Node, NodeKind};
use spile_core::ItemKind;

use crate::glob::Glob;
use crate::names::{self, Origin, PREFIX, SEPARATOR, ToolNames};

/// A list has no more rules.
pub const RULES_MAX: usize = 10_000;
/// A rule is not longer.
pub const RULE_BYTES_MAX: usize = 512;

/// What a rule does with the calls that it matches. In the order of evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleKind {
    Deny,
    Ask,
    Allow,
}

impl RuleKind {
    pub const ALL: [Self; 3] = [Self::Deny, Self::Ask, Self::Allow];

    /// The key of its list in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Ask => "ask",
            Self::Allow => "allow",
        }
    }
}

/// A rule that matched a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleMatch<'r> {
    pub kind: RuleKind,
    /// As it is written.
    pub text: &'r str,
    /// Whether it names this one tool.
    pub is_exact: bool,
}

/// All rules, ready to be matched.
#[derive(Debug, Default)]
pub struct Rules {
    lists: [RuleList; 3],
}

/// Why a rule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    /// Whether it is safe to go on without the rule: it would only have allowed something.
    pub is_ignored: bool,
    pub message: String,
    pub help: Option<String>,
}

impl Rules {
    /// Adds a rule. One that cannot be used changes nothing.
    pub fn add(&mut self, kind: RuleKind, text: &str) -> Result<(), RuleError> {
        let list = &mut self.lists[kind as usize];
        if list.len() >= RULES_MAX {
            let message = format!("`{}` exceeds the limit of {RULES_MAX} rules", kind.as_str());
            return Err(RuleError { is_ignored: false, message, help: None });
        }
        list.add(parse(kind, text)?, text);
        Ok(())
    }

    /// The first rule that matches: deny, then ask, then allow. An allow rule that names exactly this tool comes before
    /// the other allow rules, because it says more.
    pub fn first_match(&self, names: &ToolNames, arguments: Option<Node<'_>>) -> Option<RuleMatch<'_>> {
        RuleKind::ALL.into_iter().find_map(|kind| {
            let (text, is_exact) = self.lists[kind as usize].find(kind, names, arguments)?;
            Some(RuleMatch { kind, text, is_exact })
        })
    }

    /// The rule that hides a tool: one that denies every call of it.
    pub fn hides_tool(&self, names: &ToolNames) -> Option<&str> {
        let list = &self.lists[RuleKind::Deny as usize];
        list.find_unscoped(RuleKind::Deny, names).map(|(text, _)| text)
    }

    /// The rule that hides a prompt or resource: one that denies everything of its server.
    pub fn hides_server(&self, origin: &Origin) -> Option<&str> {
        // No tool has an empty name: what matches it, matches all tools of the server.
        let prefixes = names::server_prefixes(&origin.server);
        let list = &self.lists[RuleKind::Deny as usize];
        list.globs
            .iter()
            .find(|(glob, _)| prefixes.iter().any(|prefix| glob.matches(prefix)))
            .map(|(_, text)| &**text)
    }

    /// Whether any tool may be hidden.
    pub fn hides_anything(&self) -> bool {
        let list = &self.lists[RuleKind::Deny as usize];
        !list.exact.is_empty() || !list.globs.is_empty()
    }

    /// Whether an item of the catalog exists for callers.
    pub fn is_visible(&self, kind: ItemKind, listed: &str, origin: Option<Origin>) -> bool {
        match (kind, origin) {
            (ItemKind::Tool, origin) => self.hides_tool(&ToolNames::new(listed, origin)).is_none(),
            (ItemKind::Prompt | ItemKind::Resource, Some(origin)) => self.hides_server(&origin).is_none(),
            (ItemKind::Prompt | ItemKind::Resource, None) | (ItemKind::Task, _) => true,
        }
    }
}

/// The rules of one kind.
#[derive(Debug, Default)]
struct RuleList {
    /// By the whole name; the value is the rule as it is written.
    exact: HashMap<Box<str>, Box<str>>,
    globs: Vec<(Glob, Box<str>)>,
    scoped: Vec<ScopedRule>,
}

/// A rule with `(param:value)`.
#[derive(Debug)]
struct ScopedRule {
    name: Glob,
    parameter: Box<str>,
    value: Glob,
    text: Box<str>,
}

enum ParsedRule {
    Exact(Box<str>),
    Glob(Glob),
    Scoped { name: Glob, parameter: Box<str>, value: Glob },
}

impl RuleList {
    fn len(&self) -> usize {
        self.exact.len() + self.globs.len() + self.scoped.len()
    }

    fn add(&mut self, rule: ParsedRule, text: &str) {
        let text = text.into();
        match rule {
            ParsedRule::Exact(name) => {
                self.exact.entry(name).or_insert(text);
            }
            ParsedRule::Glob(glob) => self.globs.push((glob, text)),
            ParsedRule::Scoped { name, parameter, value } => {
                self.scoped.push(ScopedRule { name, parameter, value, text });
            }
        }
    }

    fn find(&self, kind: RuleKind, names: &ToolNames, arguments: Option<Node<'_>>) -> Option<(&str, bool)> {
        self.find_unscoped(kind, names).or_else(|| {
            let scoped = self.scoped.iter().find(|rule| {
                names.all().any(|name| rule.name.matches(name))
                    && arguments
                        .and_then(|arguments| arguments.get(&rule.parameter))
                        .is_some_and(|value| matches_value(&rule.value, value))
            });
            scoped.map(|rule| (&*rule.text, false))
        })
    }

    fn find_unscoped(&self, kind: RuleKind, names: &ToolNames) -> Option<(&str, bool)> {
        match kind {
            RuleKind::Deny | RuleKind::Ask => self.find_name(names.all()),
            RuleKind::Allow => self.find_name(names.unambiguous()),
        }
    }

    fn find_name<'n>(&self, names: impl Iterator<Item = &'n str> + Clone) -> Option<(&str, bool)> {
        if let Some(text) = names.clone().find_map(|name| self.exact.get(name)) {
            return Some((text, true));
        }
        let found = self.globs.iter().find(|(glob, _)| names.clone().any(|name| glob.matches(name)));
        found.map(|(_, text)| (&**text, false))
    }
}

/// A scalar at the top of the arguments. A text is compared unquoted, everything else as it is written.
fn matches_value(pattern: &Glob, value: Node<'_>) -> bool {
    match value.kind() {
        NodeKind::Object | NodeKind::Array => false,
        _ => match value.str() {
            Some(text) => pattern.matches(&text),
            None => pattern.matches(value.raw()),
        },
    }
}

fn parse(kind: RuleKind, text: &str) -> Result<ParsedRule, RuleError> {
    let problem = |message: String| RuleError { is_ignored: false, message, help: None };
    if text.len() > RULE_BYTES_MAX {
        return Err(problem(format!("the rule exceeds the limit of {RULE_BYTES_MAX} bytes")));
    }
    let (name, parameter) = match text.split_once('(') {
        None => (text, None),
        Some((name, rest)) => {
            let inside = rest.strip_suffix(')').and_then(|inside| inside.split_once(':'));
            let Some((parameter, value)) = inside.filter(|(parameter, _)| !parameter.trim().is_empty())
            else {
                return Err(RuleError {
                    is_ignored: false,
                    message: format!("`{text}` is not in the form tool(argument:value)"),
                    help: Some("for example: mcp__github__create_issue(repo:acme/*)".to_owned()),
                });
            };
            (name, Some((parameter.trim(), value.trim())))
        }
    };
    check_name(name, text)?;
    if kind == RuleKind::Allow {
        if let Some((parameter, _)) = parameter {
            return Err(RuleError {
                is_ignored: true,
                message: format!("`{text}` is ignored: an allow rule cannot depend on the argument `{parameter}`"),
                help: Some(
                    "allow the tool, and put what is not allowed into `deny` or `ask`: they are evaluated first"
                        .to_owned(),
                ),
            });
        }
        check_allow_glob(name, text)?;
    }
    let glob = name_glob(name);
    Ok(match parameter {
        Some((parameter, value)) => ParsedRule::Scoped {
            name: Glob::new(&glob),
            parameter: parameter.into(),
            value: Glob::new(value),
        },
        None if glob.contains('*') => ParsedRule::Glob(Glob::new(&glob)),
        None => ParsedRule::Exact(glob.into()),
    })
}

/// A rule with only a server means all its tools.
pub(crate) fn name_glob(name: &str) -> String {
    let is_server =
        name.strip_prefix(PREFIX).is_some_and(|rest| !rest.contains(SEPARATOR) && !rest.contains('*'));
    if is_server { format!("{name}{SEPARATOR}*") } else { name.to_owned() }
}

fn check_name(name: &str, text: &str) -> Result<(), RuleError> {
    let invalid = |message: String| Err(RuleError { is_ignored: false, message, help: None });
    if name.is_empty() {
        return invalid(format!("`{text}` names no tool"));
    }
    if let Some(c) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || "_-.*".contains(*c))) {
        return invalid(format!("`{}` has a character that no tool name has: {c:?}", text.escape_debug()));
    }
    if name == PREFIX {
        return invalid(format!("`{text}` names no server"));
    }
    Ok(())
}

/// A glob that allows must name its server: `mcp__*__get_user` would also allow a server that is added later.
fn check_allow_glob(name: &str, text: &str) -> Result<(), RuleError> {
    let Some(star) = name.find('*') else { return Ok(()) };
    let server =
        name.strip_prefix(PREFIX).and_then(|rest| rest.split_once(SEPARATOR)).map(|(server, _)| server);
    if server.is_some_and(|server| !server.is_empty() && PREFIX.len() + server.len() < star) {
        return Ok(());
    }
    Err(RuleError {
        is_ignored: true,
        message: format!(
            "`{text}` is ignored: a pattern that allows must start with a server, as mcp__github__*"
        ),
        help: Some("name each server; or choose the mode `permissive` or `bypass`".to_owned()),
    })
}
