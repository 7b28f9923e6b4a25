//! Who calls, and what their client can do.

use std::sync::Arc;

/// Whose request this is, as proven at the door; never taken from what a client says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Principal {
    /// Nobody proved anything: a local pipe, or a door without a token.
    #[default]
    Anonymous,
    Named(Arc<str>),
}

impl Principal {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Anonymous => "",
            Self::Named(name) => name,
        }
    }
}

/// The caller of one request.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    pub principal: Principal,
    pub capabilities: ClientCapabilities,
}

/// What the caller's client declared that it can do, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCapabilities(u16);

impl ClientCapabilities {
    pub const NONE: Self = Self(0);
    pub const ROOTS: Self = Self(1);
    pub const SAMPLING: Self = Self(1 << 1);
    pub const SAMPLING_TOOLS: Self = Self(1 << 2);
    pub const SAMPLING_CONTEXT: Self = Self(1 << 3);
    /// Questions answered by filling in a form.
    pub const ELICITATION_FORM: Self = Self(1 << 4);
    /// Questions answered by visiting a URL.
    pub const ELICITATION_URL: Self = Self(1 << 5);
    /// A call may go on as a task.
    pub const TASKS: Self = Self(1 << 6);

    pub fn bits(self) -> u16 {
        self.0
    }

    /// Bits that this build does not know are dropped.
    pub fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7f)
    }

    #[must_use]
    pub fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub fn has(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

    /// What of `wanted` is not here.
    #[must_use]
    pub fn missing(self, wanted: Self) -> Self {
        Self(wanted.0 & !self.0)
    }

    /// What a client with these can do, for a message.
    pub fn describe(self) -> String {
        let words = [
            (Self::ROOTS, "lists its roots"),
            (Self::SAMPLING, "lets its model complete (sampling)"),
            (Self::SAMPLING_TOOLS, "lets its model use tools (sampling.tools)"),
            (Self::SAMPLING_CONTEXT, "adds context (sampling.context)"),
            (Self::ELICITATION_FORM, "shows forms (elicitation.form)"),
            (Self::ELICITATION_URL, "opens pages (elicitation.url)"),
            (Self::TASKS, "takes tasks (the tasks extension)"),
        ];
        let can: Vec<&str> =
            words.iter().filter(|(cap, _)| self.has(*cap)).map(|(_, words)| *words).collect();
        can.join(" and ")
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
