//! Who may do what: the role of a caller, the contract that it sees, and the rows that exist for it.
//!
//! A contract with roles has one compiled contract for each of them. What a role may not do is not in its contract, and
//! what it may not see is not in its collections. [`RowRules`] restrict the rows; [`RestrictedReader`] applies them to
//! every read, for every kind of source.

mod claims;
mod identity;
mod reader;
mod rules;

use spile_core::{CallerRoles, Principal};

use crate::contract::Contract;
use crate::manifest::{ClaimCondition, Literal, RoleCondition};

pub use claims::Claims;
pub use identity::IdentityRules;
pub use reader::{CallReader, RestrictedReader};
pub use rules::{BoundRows, ClaimProblem, RowRules};
pub(crate) use rules::{RuleCondition, RuleOperand, RuleValue, clause_count};

/// The roles of a contract. The first one that a caller has is the caller's role.
#[derive(Debug, Clone, PartialEq)]
pub struct Roles {
    pub roles: Vec<Role>,
}

/// A role, and what callers with it see.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    pub name: String,
    /// `None`: nobody has it by itself.
    pub when: Option<RoleCondition>,
    pub scopes: Vec<String>,
    /// The contract without roles that its callers see.
    pub contract: Contract,
    pub items: ItemGrants,
}

/// The tools, prompts and resources of a role that are not in its contract: those of code, and files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemGrants {
    pub tools: ItemSet,
    pub prompts: ItemSet,
    /// By their names in the manifest.
    pub resources: ItemSet,
    /// Resources of the manifest that the role may not read: URIs and templates.
    pub withheld_uris: Vec<String>,
}

/// Items that the manifest names: those that a role may use, and those that only other roles may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemSet {
    pub granted: Vec<String>,
    pub withheld: Vec<String>,
}

/// What the manifest says about an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    Granted,
    Withheld,
    /// The manifest names no role for it.
    Unspecified,
}

impl ItemSet {
    pub fn grant(&self, name: &str) -> Grant {
        let has = |names: &[String]| names.iter().any(|one| one == name);
        match (has(&self.granted), has(&self.withheld)) {
            (true, _) => Grant::Granted,
            (false, true) => Grant::Withheld,
            (false, false) => Grant::Unspecified,
        }
    }
}

impl CallerRoles for Roles {
    fn names(&self) -> Vec<&str> {
        self.roles.iter().map(|role| role.name.as_str()).collect()
    }

    fn role_of(&self, principal: &Principal) -> Option<usize> {
        let claims = Claims::new(principal);
        self.roles.iter().position(|role| role.is_of(principal, &claims))
    }
}

impl Role {
    /// Who has the role, for people: `/groups = "support" | "sales"`.
    pub fn describe_condition(&self) -> String {
        let value = |literal: &Literal| match literal {
            Literal::Text(text) => format!("\"{text}\""),
            Literal::Integer(n) => n.to_string(),
            Literal::Number(digits) => digits.clone(),
            Literal::Boolean(value) => value.to_string(),
        };
        let claim = |one: &ClaimCondition| {
            let values: Vec<String> = one.values.iter().map(value).collect();
            format!("{} = {}", one.pointer, values.join(" | "))
        };
        let mut parts = match &self.when {
            None => return "nobody by itself".to_owned(),
            Some(RoleCondition::Anyone) if self.scopes.is_empty() => return "anyone".to_owned(),
            Some(RoleCondition::Anyone) => Vec::new(),
            Some(RoleCondition::Claims(conditions)) => conditions.iter().map(claim).collect(),
        };
        parts.extend(self.scopes.iter().map(|scope| format!("scope {scope}")));
        parts.join(" and ")
    }

    fn is_of(&self, principal: &Principal, claims: &Claims<'_>) -> bool {
        let has_scopes = self.scopes.iter().all(|scope| match principal {
            Principal::Anonymous => false,
            Principal::Named(identity) => identity.has_scope(scope),
        });
        has_scopes
            && match &self.when {
                None => false,
                Some(RoleCondition::Anyone) => true,
                Some(RoleCondition::Claims(conditions)) => conditions.iter().all(|one| holds(one, claims)),
            }
    }
}

fn holds(condition: &ClaimCondition, claims: &Claims<'_>) -> bool {
    let Some(claim) = claims.get(&condition.pointer) else { return false };
    let claim = claim.root();
    let is_one = |node: json::Node<'_>| condition.values.iter().any(|value| equals(node, value));
    is_one(claim) || claim.elements().any(is_one)
}

fn equals(node: json::Node<'_>, literal: &Literal) -> bool {
    match literal {
        Literal::Text(text) => node.str().is_some_and(|own| own == text.as_str()),
        Literal::Integer(number) => node.decimal().and_then(|own| own.to_i64()) == Some(*number),
        Literal::Number(number) => {
            json::Decimal::parse_lenient(number).is_some_and(|number| node.decimal() == Some(number))
        }
        Literal::Boolean(value) => node.bool() == Some(*value),
    }
}

#[cfg(test)]
mod tests;
