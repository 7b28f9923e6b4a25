//! Who a call acts as in a source.

use super::SourceError;

/// The role and the settings of one transaction, for a database that decides by itself which rows exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceIdentity {
    /// `None`: that of the connection.
    pub role: Option<String>,
    /// Names with their values.
    pub settings: Vec<(String, String)>,
}

impl SourceIdentity {
    /// The error of a source that does not know callers.
    pub(super) fn unsupported() -> SourceError {
        SourceError::Refused {
            message: "this source cannot act as its callers".into(),
            detail: "only PostgreSQL can".into(),
        }
    }
}
