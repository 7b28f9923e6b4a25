//! What the operator chose for the audit log.

use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    /// The file; `None` for the default place.
    pub path: Option<PathBuf>,
    pub arguments: LoggedArguments,
    /// Names of arguments that are hidden, as patterns with `*`, in addition to those that are always hidden.
    pub redact: Vec<String>,
    /// A file that would become larger is rotated.
    pub file_bytes_max: u64,
    /// How many files are kept, the current one included.
    pub files_max: u32,
    pub on_error: OnAuditError,
}

impl AuditSettings {
    pub const FILE_BYTES_DEFAULT: u64 = 64 << 20;
    pub const FILE_BYTES_RANGE: std::ops::RangeInclusive<u64> = (64 << 10)..=(16 << 30);
    pub const FILES_DEFAULT: u32 = 10;
    pub const FILES_RANGE: std::ops::RangeInclusive<u64> = 2..=1000;
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            path: None,
            arguments: LoggedArguments::None,
            redact: Vec::new(),
            file_bytes_max: Self::FILE_BYTES_DEFAULT,
            files_max: Self::FILES_DEFAULT,
            on_error: OnAuditError::Refuse,
        }
    }
}

/// How much of the arguments is logged. Names of secrets are hidden in every form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedArguments {
    None,
    /// The names, without values.
    Names,
    /// Numbers, booleans and null; of texts and lists only their size.
    Redacted,
    All,
}

impl LoggedArguments {
    pub const ALL: [Self; 4] = [Self::None, Self::Names, Self::Redacted, Self::All];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Names => "names",
            Self::Redacted => "redacted",
            Self::All => "all",
        }
    }
}

/// What happens while the log cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnAuditError {
    /// New calls are refused.
    Refuse,
    /// Calls run, and their lines are counted as lost.
    Drop,
}
