//! How to reach a database, and what is allowed there.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::local_records::RecordStore;

/// The settings of one database.
#[derive(Clone)]
pub struct Options {
    /// With user, host and database; perhaps with a password.
    pub url: String,
    /// Instead of the password in the URL.
    pub password: Option<String>,
    /// Certificates of authorities to trust instead of those of the system, as PEM.
    pub ca_file: Option<PathBuf>,
    /// The schemas to serve. Empty: those that the role finds without naming them.
    pub schemas: Vec<String>,
    /// How many calls can use the database at the same time; others wait for a short time.
    pub connections_max: usize,
    /// How long a call may take that cannot be cancelled. The deadline of all others is their caller's.
    pub call_ms_max: u64,
    /// Whether a role that could write is refused.
    pub require_readonly_role: bool,
    /// Keeps idempotency records where the role may not create a table for them. `None`: keys are not offered there.
    pub record_store: Option<Arc<dyn RecordStore>>,
    /// Whether calls have an identity of their own in the database.
    pub callers: CallerMode,
}

/// Who calls are in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallerMode {
    /// The role of the connection.
    #[default]
    Connection,
    /// The role of the connection with settings of the caller. Nothing is read or written without them.
    Settings,
    /// A role of the caller, with settings. Nothing is read or written without it.
    Role,
}

impl Options {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            password: None,
            ca_file: None,
            schemas: Vec::new(),
            connections_max: 8,
            call_ms_max: 60_000,
            require_readonly_role: false,
            record_store: None,
            callers: CallerMode::default(),
        }
    }
}

/// Without anything that may be a password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("schemas", &self.schemas).finish_non_exhaustive()
    }
}
