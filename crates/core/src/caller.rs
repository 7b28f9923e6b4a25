//! The caller of a request and the capabilities of its client.

use crate::principal::Principal;

/// The caller of one request.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    pub principal: Principal,
    pub capabilities: ClientCapabilities,
}

/// The capabilities that the caller's client declared, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCapabilities(u16);

impl ClientCapabilities {
    pub const NONE: Self = Self(0);
    pub const ROOTS: Self = Self(1);
    pub const SAMPLING: Self = Self(1 << 1);
    pub const SAMPLING_TOOLS: Self = Self(1 << 2);
    pub const SAMPLING_CONTEXT: Self = Self(1 << 3);
    /// The client can show a form.
    pub const ELICITATION_FORM: Self = Self(1 << 4);
    /// The client can open a URL.
    pub const ELICITATION_URL: Self = Self(1 << 5);
    /// The client accepts a task instead of a result.
    pub const TASKS: Self = Self(1 << 6);
    /// The client says when its roots have changed.
    pub const ROOTS_LIST_CHANGED: Self = Self(1 << 7);

    pub fn bits(self) -> u16 {
        self.0
    }

    /// Ignores bits that this build does not know.
    pub fn from_bits(bits: u16) -> Self {
        Self(bits & 0xff)
    }

    #[must_use]
    pub fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub fn has(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

    /// The capabilities of `required` that this set lacks.
    #[must_use]
    pub fn missing(self, required: Self) -> Self {
        Self(required.0 & !self.0)
    }

    /// The names of the capabilities, for a message.
    pub fn describe(self) -> String {
        let names = [
            (Self::ROOTS, "`roots`"),
            (Self::SAMPLING, "`sampling`"),
            (Self::SAMPLING_TOOLS, "`sampling.tools`"),
            (Self::SAMPLING_CONTEXT, "`sampling.context`"),
            (Self::ELICITATION_FORM, "`elicitation.form`"),
            (Self::ELICITATION_URL, "`elicitation.url`"),
            (Self::TASKS, "the tasks extension"),
            (Self::ROOTS_LIST_CHANGED, "`roots.listChanged`"),
        ];
        let present: Vec<&str> =
            names.iter().filter(|(capability, _)| self.has(*capability)).map(|(_, name)| *name).collect();
        present.join(" and ")
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
