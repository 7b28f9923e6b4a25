//! Who a caller is in the source: the role and the settings of a database that decides by itself which rows exist.
//!
//! Made from the caller's claims for each call. A claim that is missing refuses the call: without it the database would decide
//! for somebody else.

use std::fmt;

use json::{Node, NodeKind};

use super::claims::Claims;
use super::rules::ClaimProblem;
use crate::manifest::{IdentitySettings, Literal, Operand};
use crate::source::SourceIdentity;

/// The setting with all claims of the caller as JSON. Policies that were written for PostgREST read it.
const CLAIMS_SETTING: &str = "request.jwt.claims";
/// PostgreSQL's limit for names.
const ROLE_BYTES_MAX: usize = 63;

/// How the claims of a caller become a role and settings in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityRules(IdentitySettings);

impl IdentityRules {
    pub(crate) fn new(settings: &IdentitySettings) -> Self {
        Self(settings.clone())
    }

    /// The identity of a caller in the source; `Err` if a claim is missing or not usable.
    pub fn bind(&self, claims: &Claims<'_>) -> Result<SourceIdentity, ClaimProblem> {
        let IdentitySettings { role_from, settings } = &self.0;
        let role = role_from.as_ref().map(|pointer| role(claims, pointer)).transpose()?;
        let own = settings.iter().map(|(name, operand)| {
            let value = match operand {
                Operand::Literal(literal) => literal_text(literal),
                Operand::Claim(pointer) => setting(claims, pointer)?,
            };
            Ok((name.clone(), value))
        });
        let mut settings = own.collect::<Result<Vec<_>, ClaimProblem>>()?;
        settings.push((CLAIMS_SETTING.to_owned(), claims.to_json()));
        Ok(SourceIdentity { role, settings })
    }
}

/// For people: `as the database decides for role claim /db_role, app.tenant = claim /tenant`.
impl fmt::Display for IdentityRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as the database decides")?;
        let IdentitySettings { role_from, settings } = &self.0;
        let role = role_from.iter().map(|pointer| format!("role claim {pointer}"));
        let settings = settings.iter().map(|(name, operand)| match operand {
            Operand::Literal(literal) => format!("{name} = {}", literal_text(literal)),
            Operand::Claim(pointer) => format!("{name} = claim {pointer}"),
        });
        for (at, part) in role.chain(settings).enumerate() {
            write!(f, "{}{part}", if at == 0 { " for " } else { ", " })?;
        }
        Ok(())
    }
}

/// `none` is the word of PostgreSQL for the role of the connection, which may see more than any caller.
fn role(claims: &Claims<'_>, pointer: &str) -> Result<String, ClaimProblem> {
    let problem = |is_invalid| ClaimProblem { pointer: pointer.to_owned(), is_invalid };
    let claim = claims.get(pointer).ok_or_else(|| problem(false))?;
    let name = claim.root().str().map(|name| name.into_owned());
    let is_usable = |name: &String| {
        (1..=ROLE_BYTES_MAX).contains(&name.len())
            && !name.contains('\0')
            && !name.eq_ignore_ascii_case("none")
    };
    name.filter(is_usable).ok_or_else(|| problem(true))
}

/// A text, number or boolean as text, and anything else as JSON. An empty one says no more than a missing one.
fn setting(claims: &Claims<'_>, pointer: &str) -> Result<String, ClaimProblem> {
    let problem = |is_invalid| ClaimProblem { pointer: pointer.to_owned(), is_invalid };
    let claim = claims.get(pointer).ok_or_else(|| problem(false))?;
    let root: Node<'_> = claim.root();
    let text = match root.kind() {
        NodeKind::String => root.str().map(|text| text.into_owned()),
        NodeKind::Array if root.elements().next().is_none() => None,
        _ => Some(root.raw().to_owned()),
    };
    text.filter(|text| !text.is_empty() && !text.contains('\0')).ok_or_else(|| problem(true))
}

fn literal_text(literal: &Literal) -> String {
    match literal {
        Literal::Text(text) | Literal::Number(text) => text.clone(),
        Literal::Integer(n) => n.to_string(),
        Literal::Boolean(value) => value.to_string(),
    }
}
