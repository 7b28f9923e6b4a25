//! The values of a field that start with what a user has typed.

use contract::source::{CancelFlag, Comparison, Filter, Query, RowFlow, Sort, SourceError};
use contract::{DataType, ValueRef, order};
use spile_core::{CallError, Caller};

use super::ContractProvider;

/// A column in which fewer values than wanted are found after so many rows has enough repetitions to choose from.
const ROWS_SCANNED_MAX: usize = 100_000;
/// Longer values are not something to choose from.
const VALUE_CHARS_MAX: usize = 200;

impl ContractProvider {
    /// Values of a field, in the caller's rows, that start with `prefix`, in order and each once, at most `values_max`. Blocks.
    pub fn field_values(
        &self,
        caller: &Caller,
        collection: &str,
        field: &str,
        prefix: &str,
        values_max: usize,
        cancelled: &CancelFlag,
    ) -> Result<Vec<String>, CallError> {
        // Whoever may not list rows cannot have their values suggested either.
        let Some(Self(inner)) = self.of_caller(&caller.principal) else { return Ok(Vec::new()) };
        let missing = |what: String| CallError::Internal { detail: format!("completion: {what}") };
        let index = inner.contract.collections.iter().position(|one| one.name == collection);
        let Some(index) = index else {
            let is_known = self.0.contract.collections.iter().any(|one| one.name == collection);
            return match is_known {
                true => Ok(Vec::new()),
                false => Err(missing(format!("there is no collection `{collection}`"))),
            };
        };
        if self.0.contract.roles.is_some() && inner.list_tool(index).is_none() {
            return Ok(Vec::new());
        }
        let fields = &inner.contract.collections[index].fields;
        let column = fields.iter().position(|one| one.name == field);
        let Some(column) = column else {
            return match self.0.contract.roles.is_some() {
                true => Ok(Vec::new()),
                false => Err(missing(format!("`{collection}` has no field `{field}`"))),
            };
        };
        if fields[column].sensitive {
            return Err(missing(format!("`{field}` of `{collection}` is sensitive")));
        }
        let prefix = order::to_lowercase(prefix);
        // A source can look for a text itself; values of other types are compared as they are shown.
        let is_text = fields[column].data_type == DataType::Text && !fields[column].mixed;
        let filters = match is_text && !prefix.is_empty() {
            true => vec![Filter::new(column, Comparison::StartsWith, ValueRef::Text(&prefix))],
            false => Vec::new(),
        };
        let query = Query {
            filters,
            sort: vec![Sort { column, descending: false }],
            rows_max: ROWS_SCANNED_MAX,
            cancelled: Some(cancelled),
            ..Query::default()
        };
        let mut values: Vec<String> = Vec::new();
        let mut scanned = 0;
        let listed = inner.reader(index, caller).list(&query, &mut |cells, _| {
            scanned += 1;
            if let Some(value) = cells.get(column).and_then(|cell| shown(*cell))
                && order::to_lowercase(&value).starts_with(&prefix)
                && !values.contains(&value)
            {
                values.push(value);
            }
            if values.len() >= values_max || scanned >= ROWS_SCANNED_MAX {
                RowFlow::Stop
            } else {
                RowFlow::Continue
            }
        });
        match listed {
            Ok(_) => Ok(values),
            // Nothing may be read, so there is nothing to complete. A call says why.
            Err(SourceError::Refused { .. }) => Ok(Vec::new()),
            Err(error) => {
                Err(CallError::Internal { detail: format!("completion from `{collection}`: {error}") })
            }
        }
    }
}

fn shown(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Text(text) if text.chars().count() <= VALUE_CHARS_MAX => Some(text.to_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(_) | ValueRef::Null | ValueRef::Blob(_) => None,
    }
}
