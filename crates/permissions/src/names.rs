//! The names under which rules and hooks know a tool.
//!
//! A tool of a configured server has a public name (`mcp__my_server__get_issue`) and the name that Claude Code gives it
//! (`mcp__my-server__get-issue`). Rules may use either.

use std::sync::Arc;

use spile_core::ItemKind;

/// What stands behind an item of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The server's name, as it is configured.
    pub server: String,
    /// The item's own name at that server, or its URI.
    pub name: String,
}

/// Knows the servers behind a catalog. A gateway implements it with the table of its registry.
pub trait Origins: Send + Sync {
    /// `None` for an item of the gateway itself.
    fn origin(&self, kind: ItemKind, listed: &str) -> Option<Origin>;

    /// Why the policy need not decide about a tool of the gateway itself: it only calls another one, or asks by itself.
    fn runs_undecided(&self, _listed: &str) -> Option<&'static str> {
        None
    }

    /// How a server is reached, for the audit log: `stdio`, or an address without secrets.
    fn upstream(&self, _server: &str) -> Option<String> {
        None
    }
}

/// For a catalog with the items of one server under their own names.
pub struct SingleServer(pub Arc<str>);

impl Origins for SingleServer {
    fn origin(&self, _: ItemKind, listed: &str) -> Option<Origin> {
        Some(Origin { server: self.0.to_string(), name: listed.to_owned() })
    }
}

/// All names of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolNames {
    /// The name in the catalog.
    pub listed: String,
    pub origin: Option<Origin>,
    other: Vec<OtherName>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OtherName {
    name: String,
    /// Whether another tool of the same server may have it too. `a.b` and `a_b` are both `a_b` in Claude Code.
    is_shared: bool,
}

impl ToolNames {
    pub fn new(listed: &str, origin: Option<Origin>) -> Self {
        let other = match &origin {
            None => Vec::new(),
            Some(Origin { server, name }) => {
                let (claude_server, claude_name) = (claude_part(server), claude_part(name));
                let claude = format!("{PREFIX}{claude_server}{SEPARATOR}{claude_name}");
                let is_listed = sanitize(&claude) == listed;
                let claude = OtherName { name: claude, is_shared: !is_listed && claude_name != *name };
                let public = format!("{PREFIX}{}{SEPARATOR}{}", sanitize(server), sanitize(name));
                let public = OtherName { name: public, is_shared: sanitize(name) != *name };
                // In a catalog of one server, tools are listed under their own names.
                let has_public = !listed.starts_with(PREFIX) && public.name != claude.name;
                std::iter::once(claude).chain(has_public.then_some(public)).collect()
            }
        };
        Self { listed: listed.to_owned(), origin, other }
    }

    /// The name that hooks get: Claude Code's where there is one, so that its scripts work unchanged.
    pub fn for_hooks(&self) -> &str {
        self.other.first().map_or(&self.listed, |claude| &claude.name)
    }

    /// Every name, for a rule that restricts.
    pub fn all(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(&*self.listed).chain(self.other.iter().map(|other| &*other.name))
    }

    /// The names that no other tool has, for a rule that allows.
    pub fn unambiguous(&self) -> impl Iterator<Item = &str> + Clone {
        let own = self.other.iter().filter(|other| !other.is_shared);
        std::iter::once(&*self.listed).chain(own.map(|other| &*other.name))
    }

    /// How people know it: the server and the tool.
    pub fn display(&self) -> (Option<&str>, &str) {
        match &self.origin {
            Some(origin) => (Some(&origin.server), &origin.name),
            None => (None, &self.listed),
        }
    }
}

pub(crate) const PREFIX: &str = "mcp__";
pub(crate) const SEPARATOR: &str = "__";

/// Claude Code keeps letters, digits, `_` and `-`.
fn claude_part(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// As public names have it.
fn sanitize(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
