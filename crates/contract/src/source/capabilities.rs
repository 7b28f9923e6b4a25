//! What a source can do with a write, beyond making the change.

use std::fmt;

/// A set of capabilities. The compiler offers callers only what the source can do, and rejects a manifest that demands
/// more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WriteCapabilities(u8);

impl WriteCapabilities {
    pub const NONE: Self = Self(0);
    /// Finds out what a change would do, and leaves no trace.
    pub const DRY_RUN: Self = Self(1);
    /// Compares the current row and changes it, with no other change in between.
    pub const ROW_VERSIONS: Self = Self(1 << 1);
    /// Stores the response together with the change: both, or neither.
    pub const IDEMPOTENCY: Self = Self(1 << 2);
    /// Undoes a change that was applied, before others see it.
    pub const ROLLBACK: Self = Self(1 << 3);
    /// A transaction that can do everything.
    pub const ALL: Self = Self(0b1111);
    /// Repeating a change has no further effect, without a record of it: an update or a delete by key.
    pub const REPEATABLE: Self = Self(1 << 4);
    /// Asking the user takes both: the change is rolled back until the user agrees, and what the user agreed to is done
    /// once, however often the client repeats the call.
    pub const CONFIRMATION: Self = Self(Self::ROLLBACK.0 | Self::IDEMPOTENCY.0);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::DRY_RUN, "dry runs"),
        (Self::ROW_VERSIONS, "row versions"),
        (Self::IDEMPOTENCY, "idempotency keys"),
        (Self::ROLLBACK, "rollback"),
        (Self::REPEATABLE, "repeatable changes"),
    ];

    #[must_use]
    pub const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub const fn has(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

    /// What asking the user takes of a source with these capabilities. One that cannot roll back is asked about before
    /// anything is sent; what the user agreed to must then be harmless to repeat.
    #[must_use]
    pub const fn confirmation(self) -> Self {
        match (self.has(Self::ROLLBACK), self.has(Self::REPEATABLE)) {
            (true, _) => Self::CONFIRMATION,
            (false, true) => Self::NONE,
            (false, false) => Self::IDEMPOTENCY,
        }
    }

    /// The capabilities of `required` that this set lacks.
    #[must_use]
    pub const fn missing(self, required: Self) -> Self {
        Self(required.0 & !self.0)
    }
}

/// The names, for a message: `row versions and rollback`.
impl fmt::Display for WriteCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            Self::NAMES.iter().filter(|(one, _)| self.has(*one)).map(|(_, name)| *name).collect();
        match names.split_last() {
            None => f.write_str("none"),
            Some((last, [])) => f.write_str(last),
            Some((last, rest)) => write!(f, "{} and {last}", rest.join(", ")),
        }
    }
}

impl fmt::Debug for WriteCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteCapabilities({self})")
    }
}

/// Whether a table can be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteSupport {
    /// `reason` is a clause for the owner of the data.
    ReadOnly {
        reason: String,
    },
    Supported(WriteCapabilities),
}

impl WriteSupport {
    pub fn read_only(reason: impl Into<String>) -> Self {
        Self::ReadOnly { reason: reason.into() }
    }

    /// Read-only for this reason, or everything that a transaction can do.
    pub fn transactional_unless(read_only_reason: Option<String>) -> Self {
        match read_only_reason {
            Some(reason) => Self::ReadOnly { reason },
            None => Self::Supported(WriteCapabilities::ALL),
        }
    }

    pub fn read_only_reason(&self) -> Option<&str> {
        match self {
            Self::ReadOnly { reason } => Some(reason),
            Self::Supported(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WriteCapabilities as Set;

    #[test]
    fn a_set_has_what_was_put_in_and_nothing_else() {
        let set = Set::DRY_RUN.with(Set::ROLLBACK);
        assert!(set.has(Set::DRY_RUN) && set.has(Set::ROLLBACK) && set.has(Set::NONE));
        assert!(!set.has(Set::ROW_VERSIONS) && !set.has(Set::CONFIRMATION) && !set.has(Set::ALL));
        assert_eq!(set.missing(Set::CONFIRMATION), Set::IDEMPOTENCY);
        assert_eq!(Set::ALL.missing(Set::ALL), Set::NONE);
        for (one, _) in Set::NAMES {
            assert_eq!(Set::ALL.has(one), one != Set::REPEATABLE);
        }
    }

    #[test]
    fn a_message_names_the_capabilities() {
        for (set, names) in [
            (Set::NONE, "none"),
            (Set::ROLLBACK, "rollback"),
            (Set::CONFIRMATION, "idempotency keys and rollback"),
            (Set::ALL, "dry runs, row versions, idempotency keys and rollback"),
        ] {
            assert_eq!(set.to_string(), names);
        }
    }
}
