//! Parses `[roles.NAME]` and the tables named `access`: who has a role, and what each role may do.
//!
//! Conditions are data, not expressions: everything in them has a location and can be checked before anybody calls.

use toml::de::DeValue;

use super::collections::parse_operations;
use super::reader::{Entry, ManifestReader, TomlTable, quoted, suggest};
use super::sections::{located_text, parse_collection_name};
use super::{Collection, Literal, Manifest, Operation};
use crate::diagnostic::{Diagnostic, FileLocation, Located};
use crate::names;

/// The rows of a collection are described by no more tables than this, of which one is enough.
pub const ALTERNATIVES_MAX: usize = 8;
/// A manifest has no more roles than this: each has a contract of its own.
pub const ROLES_MAX: usize = 32;

/// `[roles.NAME]`
#[derive(Debug, Clone)]
pub struct Role {
    pub name: Located<String>,
    /// `None`: only other roles include it.
    pub when: Option<RoleCondition>,
    /// The caller must have all of them.
    pub scopes: Vec<String>,
    pub includes: Vec<Located<String>>,
}

/// Who has a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleCondition {
    Anyone,
    /// All of them must hold.
    Claims(Vec<ClaimCondition>),
}

/// A claim that has one of these values, or that is an array with one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimCondition {
    /// A JSON pointer into the claims.
    pub pointer: String,
    pub values: Vec<Literal>,
}

/// `[collections.NAME.access.ROLE]`
#[derive(Debug, Clone)]
pub struct CollectionAccess {
    pub role: Located<String>,
    pub operations: Option<Vec<Located<Operation>>>,
    pub fields: FieldAccess,
    /// Tables of conditions, of which one is enough; empty for all rows. `None`: the author omits it.
    pub rows: Option<Vec<Vec<RowCondition>>>,
    pub set: Vec<Assignment>,
}

/// The fields that exist for a role.
#[derive(Debug, Clone)]
pub enum FieldAccess {
    /// The author omits it.
    Unspecified,
    AllBut(Vec<Located<String>>),
    Only(Vec<Located<String>>),
}

/// What a field of a row must fulfil.
#[derive(Debug, Clone)]
pub struct RowCondition {
    pub field: Located<String>,
    pub test: RowTest,
}

#[derive(Debug, Clone)]
pub enum RowTest {
    OneOf(Vec<Located<Operand>>),
    NoneOf(Vec<Located<Operand>>),
    /// At least one of them is there; both are inclusive.
    Range {
        min: Option<Located<Operand>>,
        max: Option<Located<Operand>>,
    },
    IsNull,
    IsNotNull,
}

/// A value that the manifest has, or the claims of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    Literal(Literal),
    /// A JSON pointer into the claims.
    Claim(String),
}

/// A field that the server sets.
#[derive(Debug, Clone)]
pub struct Assignment {
    pub field: Located<String>,
    pub value: Located<Operand>,
}

/// `[tools.NAME.access]`, and the same of resources and prompts.
#[derive(Debug, Clone)]
pub struct ItemAccess {
    pub name: Located<String>,
    pub roles: Vec<Located<String>>,
}

impl ItemAccess {
    pub fn has(&self, role: &str) -> bool {
        self.roles.iter().any(|one| one.value == role)
    }
}

pub(super) fn parse_roles(reader: &mut ManifestReader<'_>, root: &mut TomlTable<'_>) -> Vec<Role> {
    let named = reader.named_tables(root, "roles");
    let mut roles = Vec::new();
    for (entry, mut table) in named {
        let t = &mut table;
        let name = parse_collection_name(reader, &entry, "role");
        let when = reader.raw(t, "when").and_then(|entry| parse_condition(reader, &entry));
        let scopes = reader.names(t, "scopes").into_iter().map(|text| text.value).collect();
        let includes = reader.names(t, "includes").into_iter().map(located_text).collect();
        reader.finish(table);
        roles.extend(name.map(|name| Role { name, when, scopes, includes }));
    }
    if let Some(first) = roles.get(ROLES_MAX) {
        let message = format!("there are more than {ROLES_MAX} roles");
        reader.error(&first.name.location, message, "describe who sees which rows with `where` and claims");
    }
    roles
}

fn parse_condition(reader: &mut ManifestReader<'_>, entry: &Entry<'_>) -> Option<RoleCondition> {
    let help = "write `when = \"anyone\"` or `when = { \"/groups\" = \"sales\" }`";
    match entry.value.get_ref() {
        DeValue::String(word) if word == "anyone" => Some(RoleCondition::Anyone),
        DeValue::Table(table) if !table.is_empty() => {
            let mut claims = Vec::new();
            for claim in reader.members(table) {
                check_pointer(reader, claim.key, &claim.key_location)?;
                let items = match claim.value.get_ref() {
                    DeValue::Array(_) => reader.items(&claim, "a value or an array of values")?,
                    _ => vec![claim.clone()],
                };
                let mut values = Vec::new();
                for item in &items {
                    values.push(reader.entry_literal(item)?.value);
                }
                claims.push(ClaimCondition { pointer: claim.key.to_owned(), values });
            }
            Some(RoleCondition::Claims(claims))
        }
        _ => {
            let at = entry.value_location(reader);
            reader.error(&at, "`when` is not a condition", help);
            None
        }
    }
}

pub(super) fn check_pointer(reader: &mut ManifestReader<'_>, pointer: &str, at: &FileLocation) -> Option<()> {
    let is_escaped = |part: &str| part.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if pointer.len() > 1 && pointer.starts_with('/') && pointer.split('/').all(is_escaped) {
        return Some(());
    }
    let message = format!("{} is not a JSON pointer into the claims", quoted(pointer));
    let help = match pointer.starts_with('/') || pointer.is_empty() {
        true => "write a `/` and the name of the claim: `/tenant`".to_owned(),
        false => format!("write `\"/{}\"`", pointer.replace('.', "/")),
    };
    reader.error(at, message, help);
    None
}

pub(super) fn parse_collection_access(
    reader: &mut ManifestReader<'_>,
    table: &mut TomlTable<'_>,
) -> Vec<CollectionAccess> {
    let named = reader.named_tables(table, "access");
    let mut all = Vec::new();
    for (entry, mut table) in named {
        let t = &mut table;
        let operations = reader.some_of(t, "operations").map(|all| parse_operations(reader, &all));
        let (hidden_at, fields_at) = (t.key_location("hidden"), t.key_location("fields"));
        let hidden: Vec<_> = reader.names(t, "hidden").into_iter().map(located_text).collect();
        let only: Vec<_> = reader.names(t, "fields").into_iter().map(located_text).collect();
        let fields = match (hidden_at, fields_at) {
            (Some(_), Some(at)) => {
                reader.error(&at, "`fields` and `hidden` exclude each other", "keep one of them");
                FieldAccess::Unspecified
            }
            (Some(_), None) => FieldAccess::AllBut(hidden),
            (None, Some(_)) => FieldAccess::Only(only),
            (None, None) => FieldAccess::Unspecified,
        };
        let rows = reader.raw(t, "where").and_then(|entry| parse_rows(reader, &entry));
        let set = reader.raw(t, "set").map(|entry| parse_set(reader, &entry)).unwrap_or_default();
        reader.finish(table);
        let role = Located::new(entry.key.to_owned(), entry.key_location.clone());
        all.push(CollectionAccess { role, operations, fields, rows, set });
    }
    all
}

fn parse_rows(reader: &mut ManifestReader<'_>, entry: &Entry<'_>) -> Option<Vec<Vec<RowCondition>>> {
    match entry.value.get_ref() {
        DeValue::Table(_) => Some(vec![parse_conditions(reader, entry)?]),
        DeValue::Array(items) if items.iter().all(|item| item.get_ref().is_table()) => {
            let items = reader.items(entry, "a table or an array of tables")?;
            if let Some(first) = items.get(ALTERNATIVES_MAX) {
                let at = first.value_location(reader);
                let message = format!("`where` has more than {ALTERNATIVES_MAX} tables");
                reader.error(&at, message, "describe the rows with fewer of them");
                return None;
            }
            let all: Option<Vec<_>> = items.iter().map(|item| parse_conditions(reader, item)).collect();
            if let Some(empty) = all.as_ref().and_then(|all| all.iter().position(Vec::is_empty)) {
                let at = items[empty].value_location(reader);
                let help = "remove it, or write `where = {}` for all rows";
                reader.error(&at, "this table is empty, so that every row matches", help);
                return None;
            }
            all
        }
        DeValue::String(_) => {
            let at = entry.value_location(reader);
            let help =
                "write the fields with their values: `where = { tenant_id = { claim = \"/tenant\" } }`";
            reader.error(&at, "`where` is data, not an expression", help);
            None
        }
        _ => {
            reader.type_error(entry, "a table or an array of tables");
            None
        }
    }
}

fn parse_conditions(reader: &mut ManifestReader<'_>, entry: &Entry<'_>) -> Option<Vec<RowCondition>> {
    let DeValue::Table(table) = entry.value.get_ref() else { return None };
    let mut conditions = Vec::new();
    for member in reader.members(table) {
        let test = parse_test(reader, &member)?;
        let field = Located::new(member.key.to_owned(), member.key_location.clone());
        conditions.push(RowCondition { field, test });
    }
    Some(conditions)
}

const TEST_KEYS: [&str; 5] = ["claim", "min", "max", "not", "is"];

fn parse_test(reader: &mut ManifestReader<'_>, entry: &Entry<'_>) -> Option<RowTest> {
    let DeValue::Table(table) = entry.value.get_ref() else {
        return Some(RowTest::OneOf(parse_operands(reader, entry)?));
    };
    let members = reader.members(table);
    let find = |name: &str| members.iter().find(|member| member.key == name);
    if let Some(unknown) = members.iter().find(|member| !TEST_KEYS.contains(&member.key)) {
        let message = format!("unknown key {}", quoted(unknown.key));
        reader.error(&unknown.key_location, message, suggest(unknown.key, "key", &TEST_KEYS));
        return None;
    }
    match members.as_slice() {
        [only] => match only.key {
            "claim" => Some(RowTest::OneOf(vec![parse_operand(reader, entry)?])),
            "not" => Some(RowTest::NoneOf(parse_operands(reader, only)?)),
            "is" => match only.value.get_ref() {
                DeValue::String(word) if word == "null" => Some(RowTest::IsNull),
                DeValue::String(word) if word == "not null" => Some(RowTest::IsNotNull),
                _ => {
                    let at = only.value_location(reader);
                    reader.error(&at, "`is` must be `null` or `not null`", "write `{ is = \"null\" }`");
                    None
                }
            },
            _ => parse_range(reader, find("min"), find("max")),
        },
        [_, _] if find("min").is_some() && find("max").is_some() => {
            parse_range(reader, find("min"), find("max"))
        }
        _ => {
            let at = entry.value_location(reader);
            let help = "write one of `claim`, `not` and `is`, or `min`, `max` or both";
            reader.error(&at, format!("{} needs one condition", quoted(entry.key)), help);
            None
        }
    }
}

fn parse_range(
    reader: &mut ManifestReader<'_>,
    min: Option<&Entry<'_>>,
    max: Option<&Entry<'_>>,
) -> Option<RowTest> {
    let mut bound = |entry: Option<&Entry<'_>>| match entry {
        Some(entry) => parse_operand(reader, entry).map(Some),
        None => Some(None),
    };
    Some(RowTest::Range { min: bound(min)?, max: bound(max)? })
}

/// A value, or an array of values.
fn parse_operands(reader: &mut ManifestReader<'_>, entry: &Entry<'_>) -> Option<Vec<Located<Operand>>> {
    let items = match entry.value.get_ref() {
        DeValue::Array(_) => reader.items(entry, "a value or an array of values")?,
        _ => vec![entry.clone()],
    };
    let mut operands = Vec::new();
    for item in &items {
        operands.push(parse_operand(reader, item)?);
    }
    Some(operands)
}

/// A value, or `{ claim = "/tenant" }`.
fn parse_operand(reader: &mut ManifestReader<'_>, entry: &Entry<'_>) -> Option<Located<Operand>> {
    let DeValue::Table(table) = entry.value.get_ref() else {
        let literal = reader.entry_literal(entry)?;
        return Some(Located::new(Operand::Literal(literal.value), literal.location));
    };
    let members = reader.members(table);
    let at = entry.value_location(reader);
    let [Entry { key: "claim", value, .. }] = members.as_slice() else {
        reader.error(&at, "expected a value or a claim", "write `{ claim = \"/tenant\" }`");
        return None;
    };
    let DeValue::String(pointer) = value.get_ref() else {
        reader.error(&at, "`claim` must be a JSON pointer", "write `{ claim = \"/tenant\" }`");
        return None;
    };
    check_pointer(reader, pointer, &at)?;
    Some(Located::new(Operand::Claim(pointer.to_string()), at))
}

pub(super) fn parse_set(reader: &mut ManifestReader<'_>, entry: &Entry<'_>) -> Vec<Assignment> {
    let DeValue::Table(table) = entry.value.get_ref() else {
        reader.type_error(entry, "a table such as `{ edited_by = { claim = \"/sub\" } }`");
        return Vec::new();
    };
    let mut all = Vec::new();
    for member in reader.members(table) {
        let field = Located::new(member.key.to_owned(), member.key_location.clone());
        all.extend(parse_operand(reader, &member).map(|value| Assignment { field, value }));
    }
    all
}

/// The roles of `access`; `None` if the table is not there.
pub(super) fn parse_item_access(
    reader: &mut ManifestReader<'_>,
    entry: &Entry<'_>,
    table: &mut TomlTable<'_>,
) -> Option<ItemAccess> {
    let (access, mut table) = reader.table(table, "access")?;
    let roles: Vec<_> = reader.names(&mut table, "roles").into_iter().map(located_text).collect();
    if roles.is_empty() {
        let help = "write `access = { roles = [\"…\"] }`";
        reader.error(&access.key_location, "`access` names no role", help);
    }
    reader.finish(table);
    Some(ItemAccess { name: Located::new(entry.key.to_owned(), entry.key_location.clone()), roles })
}

pub(super) fn parse_prompts(reader: &mut ManifestReader<'_>, root: &mut TomlTable<'_>) -> Vec<ItemAccess> {
    let mut prompts = Vec::new();
    for (entry, mut table) in reader.named_tables(root, "prompts") {
        if !names::is_tool_name(entry.key) {
            let message = format!("{} is not a valid name for a prompt", quoted(entry.key));
            reader.error(&entry.key_location, message, "use letters, digits, `_` and `-`");
        }
        prompts.extend(parse_item_access(reader, &entry, &mut table));
        reader.finish(table);
    }
    prompts
}

/// Checks that the roles that are named exist, and that none includes itself.
pub(super) fn check_roles(reader: &mut ManifestReader<'_>, manifest: &Manifest) {
    let names: Vec<&str> = manifest.roles.iter().map(|role| role.name.value.as_str()).collect();
    let accesses = manifest.collections.iter().flat_map(|one: &Collection| &one.access);
    let items = manifest.tool_access.iter().chain(&manifest.resource_access).chain(&manifest.prompt_access);
    let named = accesses
        .map(|access| &access.role)
        .chain(items.flat_map(|item| &item.roles))
        .chain(manifest.roles.iter().flat_map(|role| &role.includes));
    for name in named.filter(|name| !names.contains(&name.value.as_str())) {
        let help = match names.is_empty() {
            true => format!("declare it: `[roles.{}]` with `when = …`", name.value),
            false => suggest(&name.value, "role", &names),
        };
        reader.error(&name.location, format!("unknown role {}", quoted(&name.value)), help);
    }
    for role in &manifest.roles {
        if manifest.included_roles(role).is_none() {
            let message = format!("the role `{}` includes itself", role.name.value);
            reader.error(&role.name.location, message, "remove one of the `includes`");
        }
    }
    let anyone = manifest
        .roles
        .iter()
        .position(|role| role.when == Some(RoleCondition::Anyone) && role.scopes.is_empty());
    let later = anyone.map(|at| &manifest.roles[at + 1..]).unwrap_or_default();
    for role in later.iter().filter(|role| role.when.is_some()) {
        let message = format!("nobody has the role `{}`: a role above it is for anyone", role.name.value);
        let warning = Diagnostic::warning(message).at(&role.name.location);
        reader.diagnostics.push(warning.help("the first role that matches is the caller's; move it up"));
    }
}

impl Manifest {
    /// The role and all roles that it includes, the nearest first. `None` if it includes itself.
    pub fn included_roles<'m>(&'m self, role: &'m Role) -> Option<Vec<&'m Role>> {
        let mut all = vec![role];
        let mut next = 0;
        while let Some(current) = all.get(next).copied() {
            for include in &current.includes {
                if include.value == role.name.value {
                    return None;
                }
                let found = self.roles.iter().find(|one| one.name.value == include.value);
                if let Some(found) =
                    found.filter(|found| all.iter().all(|one| one.name.value != found.name.value))
                {
                    all.push(found);
                }
            }
            next += 1;
        }
        Some(all)
    }
}
