//! Which rows exist for a role, and what the server sets in the rows that it writes.
//!
//! Conditions are compiled once. For each call, the claims of its caller become values, and the conditions become filters.
//! A claim that is missing, or that is not a value of its column, drops its alternative. Where none is left, the call is refused: a
//! missing claim never widens what a caller sees, and is not the same as having no rows.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use json::{Json, Node, NodeKind};
use ring::digest;

use super::claims::Claims;
use super::identity::IdentityRules;
use crate::TimeZone;
use crate::bind::{BoundFilter, BoundValue, bind_bound, bind_comparable, bind_stored};
use crate::data_type::DataType;
use crate::field::Field;
use crate::source::{ColumnShape, Comparison, Filter, KeySet, SourceError, SourceIdentity, all_pass};
use crate::value::ValueRef;

/// The rules of a collection for one role.
#[derive(Debug, Clone, PartialEq)]
pub struct RowRules {
    pub role: String,
    /// Conditions that a row must fulfil together; one of these sets is enough. `None`: all rows.
    pub(crate) alternatives: Option<Vec<Vec<RuleCondition>>>,
    pub(crate) set: Vec<RuleValue>,
    pub(crate) time_zone: Option<TimeZone>,
    /// Who callers are in the source, if it decides by itself which rows exist.
    pub identity: Option<Arc<IdentityRules>>,
}

/// What one column of a row must fulfil.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleCondition {
    /// The index in the shape's columns.
    pub(crate) column: usize,
    pub(crate) field: Field,
    pub(crate) comparison: Comparison,
    /// Empty for a comparison without operands.
    pub(crate) operands: Vec<RuleOperand>,
}

/// A value that the server sets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleValue {
    pub(crate) column: usize,
    pub(crate) field: Field,
    pub(crate) operand: RuleOperand,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RuleOperand {
    /// A value of the manifest, as JSON.
    Value(Json),
    /// A JSON pointer into the claims.
    Claim(String),
}

/// A claim that a rule needs and that does not serve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimProblem {
    pub pointer: String,
    /// Whether there is a claim, but not with a value of the column's type.
    pub is_invalid: bool,
}

/// A claim may have no more values than this.
const CLAIM_VALUES_MAX: usize = 1000;

/// How many filters alternatives of so many conditions become: each combination of one condition of each.
pub(crate) fn clause_count(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.fold(1, |clauses, conditions| clauses.saturating_mul(conditions.max(1)))
}

/// Which rows there are, for people: `tenant_id = claim /tenant and deleted_at is null`.
impl fmt::Display for RowRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alternatives = match (&self.alternatives, &self.identity) {
            (None, None) => return f.write_str("all"),
            (None, Some(identity)) => return identity.fmt(f),
            (Some(alternatives), identity) => {
                if let Some(identity) = identity {
                    write!(f, "{identity}, and ")?;
                }
                alternatives
            }
        };
        for (at, conditions) in alternatives.iter().enumerate() {
            f.write_str(if at > 0 { " or " } else { "" })?;
            for (at, condition) in conditions.iter().enumerate() {
                write!(f, "{}{condition}", if at > 0 { " and " } else { "" })?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for RuleCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.comparison {
            Comparison::Equals => "=",
            Comparison::NotEquals => "is not",
            Comparison::AtLeast => ">=",
            Comparison::AtMost => "<=",
            Comparison::IsNull => "is null",
            Comparison::IsNotNull => "is not null",
            Comparison::Contains
            | Comparison::StartsWith
            | Comparison::OneOfKeys
            | Comparison::NoneOfKeys => "?",
        };
        write!(f, "{} {operator}", self.field.name)?;
        for (at, operand) in self.operands.iter().enumerate() {
            write!(f, "{}{operand}", if at > 0 { " | " } else { " " })?;
        }
        Ok(())
    }
}

impl fmt::Display for RuleOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(json) => f.write_str(json.as_str()),
            Self::Claim(pointer) => write!(f, "claim {pointer}"),
        }
    }
}

/// The rules of a collection with the claims of one caller.
#[derive(Debug, Clone)]
pub struct BoundRows {
    /// Each with whether the next filter is an alternative.
    filters: Vec<(BoundFilter<'static>, bool)>,
    /// Whether every alternative lacks a claim: the caller may not read at all.
    lacks_claim: bool,
    /// The set that no value is in.
    no_keys: KeySet,
    identity: BoundIdentity,
    digest: [u8; 32],
}

/// Who the caller is in the source.
#[derive(Debug, Clone)]
enum BoundIdentity {
    /// The source does not ask.
    NotNeeded,
    /// A claim is missing or not usable.
    Missing,
    Known(Arc<SourceIdentity>),
}

impl RowRules {
    /// Without roles: which rows exist is the decision of the source.
    pub(crate) fn of_source(identity: Arc<IdentityRules>) -> Self {
        let role = String::new();
        Self { role, alternatives: None, set: Vec::new(), time_zone: None, identity: Some(identity) }
    }

    /// Whether not all rows exist for the role.
    pub fn restricts_rows(&self) -> bool {
        self.alternatives.is_some() || self.identity.is_some()
    }

    /// What the server sets, for people: `edited_by = claim /sub`.
    pub fn describe_set(&self) -> Vec<String> {
        self.set.iter().map(|one| format!("{} = {}", one.field.name, one.operand)).collect()
    }

    /// The filters for a caller, and the claims that some of them lack.
    pub fn bind(&self, claims: &Claims<'_>) -> (BoundRows, Vec<ClaimProblem>) {
        let mut problems = Vec::new();
        let mut alternatives: Vec<Vec<BoundFilter<'static>>> = Vec::new();
        for conditions in self.alternatives.iter().flatten() {
            let bound: Result<Vec<_>, ClaimProblem> =
                conditions.iter().map(|condition| self.bind_condition(condition, claims)).collect();
            match bound {
                Ok(bound) => alternatives.push(bound),
                Err(problem) => problems.push(problem),
            }
        }
        let lacks_claim = self.alternatives.is_some() && alternatives.is_empty();
        let filters = to_clauses(&alternatives);
        let identity = match self.identity.as_ref().map(|identity| identity.bind(claims)) {
            None => BoundIdentity::NotNeeded,
            Some(Ok(identity)) => BoundIdentity::Known(Arc::new(identity)),
            Some(Err(problem)) => {
                problems.push(problem);
                BoundIdentity::Missing
            }
        };
        let mut rows =
            BoundRows { filters, lacks_claim, no_keys: KeySet::default(), identity, digest: [0; 32] };
        rows.digest = rows.compute_digest(&self.role);
        (rows, problems)
    }

    fn bind_condition(
        &self,
        condition: &RuleCondition,
        claims: &Claims<'_>,
    ) -> Result<BoundFilter<'static>, ClaimProblem> {
        let RuleCondition { column, field, comparison, operands } = condition;
        let mut values = Vec::new();
        for operand in operands {
            operand.bind(claims, &mut |node| {
                let bound = match comparison {
                    Comparison::AtLeast => bind_bound(field, &field.name, node, f64::ceil),
                    Comparison::AtMost => bind_bound(field, &field.name, node, f64::floor),
                    _ => bind_comparable(field, &field.name, node),
                };
                values.push(bound.ok()?.into_owned());
                Some(())
            })?;
        }
        let mut values = values.into_iter();
        let (value, more) = (values.next().unwrap_or_default(), values.collect());
        let mut filter = BoundFilter { column: *column, comparison: *comparison, value, more };
        if let Some(zone) = self.time_zone {
            filter.count_days_in(zone, field.data_type);
        }
        Ok(filter)
    }

    /// The values that the server sets, by their indexes in the shape's columns.
    pub fn set_values(
        &self,
        claims: &Claims<'_>,
    ) -> Result<Vec<(usize, &Field, BoundValue<'static>)>, ClaimProblem> {
        let mut all = Vec::with_capacity(self.set.len());
        for RuleValue { column, field, operand } in &self.set {
            let mut value = None;
            operand.bind(claims, &mut |node| {
                let bound = bind_stored(field, &field.name, node).ok()?.into_owned();
                value.replace(bound).is_none().then_some(())
            })?;
            all.push((*column, field, value.unwrap_or_default()));
        }
        Ok(all)
    }
}

impl RuleOperand {
    /// Passes the values to `bind`, which says whether it can use one. There is at least one.
    fn bind(
        &self,
        claims: &Claims<'_>,
        bind: &mut dyn FnMut(Node<'_>) -> Option<()>,
    ) -> Result<(), ClaimProblem> {
        let pointer = match self {
            // The compiler has tried it. If it fails all the same, the call is refused.
            Self::Value(json) => {
                let invalid = || ClaimProblem { pointer: String::new(), is_invalid: true };
                return bind(json.to_doc().root()).ok_or_else(invalid);
            }
            Self::Claim(pointer) => pointer,
        };
        let problem = |is_invalid| ClaimProblem { pointer: pointer.clone(), is_invalid };
        let claim = claims.get(pointer).ok_or_else(|| problem(false))?;
        let root = claim.root();
        if root.kind() != NodeKind::Array {
            return bind(root).ok_or_else(|| problem(true));
        }
        let mut count = 0;
        for element in root.elements() {
            count += 1;
            bind(element).filter(|()| count <= CLAIM_VALUES_MAX).ok_or_else(|| problem(true))?;
        }
        // Nothing is one of no values. `not` of them would be every row.
        if count == 0 { Err(problem(true)) } else { Ok(()) }
    }
}

/// Sources take filters of which all must pass, where some are alternatives of each other.
fn to_clauses(alternatives: &[Vec<BoundFilter<'static>>]) -> Vec<(BoundFilter<'static>, bool)> {
    if let [only] = alternatives {
        return only.iter().map(|filter| (filter.clone(), false)).collect();
    }
    let mut clauses: Vec<Vec<&BoundFilter<'static>>> = vec![Vec::new()];
    for conditions in alternatives {
        let mut longer = Vec::with_capacity(clauses.len() * conditions.len());
        for clause in &clauses {
            for condition in conditions {
                let mut clause = clause.clone();
                if !clause.contains(&condition) {
                    clause.push(condition);
                }
                longer.push(clause);
            }
        }
        clauses = longer;
    }
    let mut filters = Vec::new();
    for clause in clauses {
        let last = clause.len().saturating_sub(1);
        filters.extend(clause.into_iter().enumerate().map(|(at, filter)| (filter.clone(), at < last)));
    }
    filters
}

impl BoundRows {
    /// The filters that only the caller's rows pass. Without a claim that they need, no row passes.
    pub fn filters(&self) -> impl Iterator<Item = Filter<'_>> {
        let nothing = self.lacks_claim.then(|| Filter::one_of(0, &self.no_keys));
        let filters =
            self.filters.iter().map(|(filter, or_next)| Filter { or_next: *or_next, ..filter.as_filter() });
        nothing.into_iter().chain(filters)
    }

    /// Whether a row exists for the caller. `columns` are those of the shape.
    pub fn pass(&self, columns: &[ColumnShape], row: &[ValueRef<'_>]) -> bool {
        if self.lacks_claim {
            return false;
        }
        let passes = |_, (filter, _): &(BoundFilter<'static>, bool)| {
            let (Some(column), Some(value)) = (columns.get(filter.column), row.get(filter.column)) else {
                return Ok::<_, Infallible>(false);
            };
            // A text column of SQLite may hold numbers, which are read as text.
            let number = match (column.data_type, value) {
                (DataType::Text, ValueRef::Integer(n)) => Some(n.to_string()),
                (DataType::Text, ValueRef::Real(n)) => Some(n.to_string()),
                _ => None,
            };
            let value = number.as_deref().map_or(*value, ValueRef::Text);
            Ok(filter.as_filter().matches(column.data_type, value))
        };
        let Ok(passes) = all_pass(&self.filters, |(_, or_next)| *or_next, passes);
        passes
    }

    /// Who the caller is in the source, for a source that asks; `Err` if the rules of the rows or the source need a claim that the
    /// caller does not have.
    pub fn identity(&self) -> Result<Option<&Arc<SourceIdentity>>, SourceError> {
        if self.lacks_claim {
            return Err(SourceError::Refused {
                message: "which rows you may use depends on a claim that your token does not have; ask the operator of this server"
                    .into(),
                detail: "a claim that `where` needs is missing or not usable".into(),
            });
        }
        match &self.identity {
            BoundIdentity::NotNeeded => Ok(None),
            BoundIdentity::Known(identity) => Ok(Some(identity)),
            BoundIdentity::Missing => Err(SourceError::Refused {
                message: "the source needs to know more about you than your token says; ask the operator of this server"
                    .into(),
                detail: "a claim that the source needs is missing or not usable".into(),
            }),
        }
    }

    /// Identifies the role and the rows: what a client keeps from one call to the next is bound to it.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    fn compute_digest(&self, role: &str) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        let mut part = |tag: u8, bytes: &[u8]| {
            context.update(&[tag]);
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        };
        part(b'R', role.as_bytes());
        part(if self.lacks_claim { b'0' } else { b'1' }, &[]);
        match &self.identity {
            BoundIdentity::NotNeeded => {}
            BoundIdentity::Missing => part(b'-', &[]),
            BoundIdentity::Known(identity) => {
                part(b'I', identity.role.as_deref().unwrap_or_default().as_bytes());
                for (name, value) in &identity.settings {
                    part(b'N', name.as_bytes());
                    part(b'V', value.as_bytes());
                }
            }
        }
        for (filter, or_next) in &self.filters {
            filter.write_bytes(&mut part);
            part(if *or_next { b'|' } else { b'&' }, &[]);
        }
        let mut out = [0; 32];
        out.copy_from_slice(context.finish().as_ref());
        out
    }
}
