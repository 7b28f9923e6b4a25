//! The names under which rules and hooks know a tool.
//!
//! A tool of a configured server has a public name (`mcp__my_server__get_issue`) and the name that Claude Code gives it
//! (`mcp__my-server__get-issue`). Rules may use either.

use std::sync::Arc;

use servers::names;
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
    /// Whether a server other than its own may have chosen `listed`.
    is_listed_shared: bool,
    /// Whether Claude Code's name leads to the server.
    is_claude_clear: bool,
    /// Claude Code's name, then others.
    other: Vec<OtherName>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OtherName {
    name: String,
    /// Whether another tool may have it too. `a.b` and `a_b` of one server are both `a_b` in Claude Code, and the tool `x` of
    /// the server `a__b` has the name that the tool `b__x` of the server `a` has.
    is_shared: bool,
}

impl ToolNames {
    pub fn new(listed: &str, origin: Option<Origin>) -> Self {
        let Some(Origin { server, name: tool }) = &origin else {
            return Self {
                listed: listed.to_owned(),
                is_listed_shared: false,
                is_claude_clear: false,
                origin,
                other: Vec::new(),
            };
        };
        let claude_server = claude_part(server);
        let claude_tool = claude_part(tool);
        let claude = format!("{PREFIX}{claude_server}{SEPARATOR}{claude_tool}");
        let own_part = names::server_part(server);
        // Servers whose parts of public names are equal do not exist, and only one server has exactly this name.
        let is_own_server = names::server_part_of(&claude) == Some(&*claude_server)
            && (claude_server == *server || sanitize(&claude_server) == own_part);
        let is_own_tool = claude_tool == *tool || sanitize(&claude) == listed;
        let mut other = vec![OtherName { name: claude, is_shared: !(is_own_server && is_own_tool) }];
        // In a catalog of one server, tools are listed under the names that the server chose.
        let is_listed_shared = listed == tool || names::server_part_of(listed) != Some(&*own_part);
        let mut public = names::possible_names(server, tool);
        let exact = public.pop().map(|name| OtherName { name, is_shared: false });
        let mut more: Vec<OtherName> = exact.into_iter().collect();
        if is_listed_shared {
            // It is not known which of these the tool has elsewhere; where the part of the server has a hash, people may leave
            // it out.
            public.push(format!("{PREFIX}{}{SEPARATOR}{}", sanitize(server), sanitize(tool)));
            more.extend(public.into_iter().map(|name| OtherName { name, is_shared: true }));
        }
        for one in more {
            if one.name != listed && !other.iter().any(|known| known.name == one.name) {
                other.push(one);
            }
        }
        Self { listed: listed.to_owned(), is_listed_shared, is_claude_clear: is_own_server, origin, other }
    }

    /// The name that hooks get: Claude Code's, so that its scripts work unchanged, unless another server may be meant.
    pub fn for_hooks(&self) -> &str {
        match self.other.first().filter(|_| self.is_claude_clear) {
            Some(claude) => &claude.name,
            None => self.rule(),
        }
    }

    /// Every name, for a rule that restricts.
    pub fn all(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(&*self.listed).chain(self.other.iter().map(|other| &*other.name))
    }

    /// The names that no other tool has, for a rule that allows.
    pub fn unambiguous(&self) -> impl Iterator<Item = &str> + Clone {
        let listed = Some(&*self.listed).filter(|_| !self.is_listed_shared);
        let own = self.other.iter().filter(|other| !other.is_shared);
        listed.into_iter().chain(own.map(|other| &*other.name))
    }

    /// The name for a rule that allows this tool.
    pub fn rule(&self) -> &str {
        self.unambiguous().next().unwrap_or(&self.listed)
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

/// What the names of a server's tools start with, for a rule that restricts.
pub(crate) fn server_prefixes(server: &str) -> [String; 3] {
    let prefix = |part: &str| format!("{PREFIX}{part}{SEPARATOR}");
    [names::prefix(server), prefix(&claude_part(server)), prefix(&sanitize(server))]
}

/// Claude Code keeps letters, digits, `_` and `-`.
fn claude_part(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// As public names have it.
fn sanitize(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
