//! The rules of a role for the rows of a collection, with the claims of a caller.

use contract::access::{BoundRows, CallReader, ClaimProblem, Claims, RestrictedReader, RowRules};
use contract::bind::BoundValue;
use contract::field::Field;
use contract::source::Reader;
use spile_core::Caller;

use super::ProviderInner;

impl ProviderInner {
    /// The reader of a collection, for which only the caller's rows exist. All reads of a call go through it.
    #[inline]
    pub(super) fn reader(&self, index: usize, caller: &Caller) -> CallReader<'_> {
        let reader = &*self.backends.readers[index];
        match &self.contract.collections[index].rules {
            None => CallReader::Whole(reader),
            Some(rules) => self.restricted_reader(index, rules, reader, caller),
        }
    }

    #[inline(never)]
    fn restricted_reader<'r>(
        &'r self,
        index: usize,
        rules: &'r RowRules,
        reader: &'r dyn Reader,
        caller: &Caller,
    ) -> CallReader<'r> {
        let collection = &self.contract.collections[index];
        let rows = bind_rows(rules, &collection.name, caller);
        CallReader::Restricted(RestrictedReader::new(reader, &collection.shape.columns, rows))
    }

    /// The caller's rows of a collection; `None` if all rows are.
    pub(super) fn rows(&self, index: usize, caller: &Caller) -> Option<BoundRows> {
        let collection = &self.contract.collections[index];
        collection.rules.as_ref().map(|rules| bind_rows(rules, &collection.name, caller))
    }

    /// Who the caller of a statement is in its source; `None` if the source does not ask.
    pub(super) fn statement_rows(&self, index: usize, caller: &Caller) -> Option<BoundRows> {
        let result = &self.contract.statements[index].result;
        result.rules.as_ref().map(|rules| bind_rows(rules, &result.name, caller))
    }

    /// Identifies the role and the rows of the caller, for what a client keeps from one call to the next.
    pub(super) fn rows_digest(&self, index: usize, caller: &Caller) -> Option<[u8; 32]> {
        self.rows(index, caller).map(|rows| *rows.digest())
    }
}

/// What identifies the rows of a reader; empty for all rows.
pub(super) fn reader_digest<'r>(reader: &'r CallReader<'_>) -> &'r [u8] {
    match reader {
        CallReader::Whole(_) => &[],
        CallReader::Restricted(reader) => reader.rows().digest(),
    }
}

fn bind_rows(rules: &RowRules, collection: &str, caller: &Caller) -> BoundRows {
    let (rows, problems) = rules.bind(&Claims::new(&caller.principal));
    for problem in &problems {
        log_problem(problem, &rules.role, collection, caller);
    }
    rows
}

/// A claim that the server must write is missing, or is not a value of its column.
pub(super) struct ClaimMissing;

/// The values that the server sets in a row of the caller; `Err` if a claim is missing.
pub(super) fn set_values<'r>(
    rules: &'r RowRules,
    collection: &str,
    caller: &Caller,
) -> Result<Vec<(usize, &'r Field, BoundValue<'static>)>, ClaimMissing> {
    let values = rules.set_values(&Claims::new(&caller.principal));
    values.map_err(|problem| {
        log_problem(&problem, &rules.role, collection, caller);
        ClaimMissing
    })
}

/// The caller learns at most that a claim is missing: which one is for the operator.
#[cold]
fn log_problem(problem: &ClaimProblem, role: &str, collection: &str, caller: &Caller) {
    let (pointer, caller) = (&*problem.pointer, caller.principal.display_name());
    match problem.is_invalid {
        false => {
            tracing::warn!(pointer, role, collection, caller, "a claim is missing: the rule does not apply")
        }
        true => tracing::warn!(
            pointer,
            role,
            collection,
            caller,
            "a claim is not a value of its column: the rule does not apply"
        ),
    }
}
