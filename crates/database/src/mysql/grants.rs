//! What the user may do, from the statements that the server says would grant it.
//!
//! The tables of `information_schema` know neither roles nor patterns such as `shop\_%`.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Row};

use super::introspect::text;
use crate::idempotency;

/// Rights that do not allow changes.
const HARMLESS: [&str; 12] = [
    "USAGE",
    "SELECT",
    "SHOW VIEW",
    "SHOW DATABASES",
    "SHOW CREATE ROUTINE",
    "PROCESS",
    "REPLICATION CLIENT",
    "BINLOG MONITOR",
    "SLAVE MONITOR",
    "REPLICA MONITOR",
    "REFERENCES",
    "SHOW_ROUTINE",
];
/// Rights that serving writes needs.
const WRITES: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "CREATE"];
const ALL: &str = "ALL PRIVILEGES";
/// So many roles of roles are asked for their rights.
const ROLES_MAX: usize = 64;

/// One granted statement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    /// In upper case, without the columns that they are limited to.
    rights: Vec<String>,
    scope: Scope,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    Server,
    /// A pattern, as for `LIKE`.
    Database(String),
    Table(String, String),
    /// As it is written.
    Routine(String),
}

/// What a line of `SHOW GRANTS` says.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Rights(Grant),
    /// Roles, as they are written.
    Roles(Vec<String>),
}

#[derive(Debug, Default)]
pub(super) struct Grants {
    database: String,
    /// Of the user and of active roles.
    effective: Vec<Grant>,
    /// Of roles that the user may activate.
    further: Vec<Grant>,
    unknown_roles: Vec<String>,
}

impl Grants {
    pub(super) async fn read(conn: &mut Conn, database: String) -> Result<Self, Error> {
        let mut grants = Self { database, ..Self::default() };
        let mut roles = Vec::new();
        for line in lines(conn.query("SHOW GRANTS").await?) {
            match line {
                Line::Rights(grant) => grants.effective.push(grant),
                Line::Roles(names) => roles.extend(names),
            }
        }
        // The rights of active roles are shown with those of the user.
        let active = match conn.query_first::<Row, _>("SELECT CURRENT_ROLE()").await {
            Ok(row) => row.and_then(|row| text(&row, 0)).unwrap_or_default(),
            Err(Error::Server(_)) => String::new(),
            Err(error) => return Err(error),
        };
        roles.retain(|role| unquoted(role) != active && !parts(&active).contains(role));
        let mut at = 0;
        while let Some(role) = roles.get(at).cloned().filter(|_| at < ROLES_MAX) {
            at += 1;
            let shown = match conn.query(format!("SHOW GRANTS FOR {role}")).await {
                Ok(rows) => rows,
                Err(Error::Server(_)) => {
                    grants.unknown_roles.push(role);
                    continue;
                }
                Err(error) => return Err(error),
            };
            for line in lines(shown) {
                match line {
                    Line::Rights(grant) => grants.further.push(grant),
                    Line::Roles(names) => {
                        let new = names.into_iter().filter(|name| !roles.contains(name));
                        roles.extend(new.collect::<Vec<_>>());
                    }
                }
            }
        }
        Ok(grants)
    }

    /// Whether the user has a right to all of a table of the current database. The empty table stands for new ones.
    pub(super) fn allow(&self, table: &str, right: &str) -> bool {
        self.effective.iter().any(|grant| {
            let has_right = grant.rights.iter().any(|one| one == right || one == ALL);
            has_right
                && match &grant.scope {
                    Scope::Server => true,
                    Scope::Database(pattern) => is_like(pattern, &self.database),
                    Scope::Table(database, of) => *database == self.database && of == table,
                    Scope::Routine(_) => false,
                }
        })
    }

    /// What the user could do beyond reading: what serving writes needs, and everything else, as clauses.
    pub(super) fn powers(&self) -> (Vec<String>, Vec<String>) {
        let (mut writes, mut powers): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for grant in self.effective.iter().chain(&self.further) {
            let own = match &grant.scope {
                Scope::Table(_, table) if table == idempotency::TABLE => continue,
                Scope::Database(pattern) => is_like(pattern, &self.database),
                Scope::Table(database, _) => *database == self.database,
                Scope::Server | Scope::Routine(_) => false,
            };
            let harmful = grant.rights.iter().filter(|right| !HARMLESS.contains(&right.as_str()));
            let (needed, others): (Vec<&String>, Vec<&String>) =
                harmful.partition(|right| own && WRITES.contains(&right.as_str()));
            for (rights, clauses) in [(needed, &mut writes), (others, &mut powers)] {
                clauses.extend((!rights.is_empty()).then(|| clause(&grant.scope, &self.database, &rights)));
            }
        }
        powers.extend(
            self.unknown_roles
                .iter()
                .map(|role| format!("it may take the role {role}, whose rights it cannot see")),
        );
        for clauses in [&mut writes, &mut powers] {
            let mut seen = Vec::new();
            clauses.retain(|clause| {
                !seen.contains(clause) && {
                    seen.push(clause.clone());
                    true
                }
            });
        }
        (shortened(writes), shortened(powers))
    }
}

/// Many grants are counted.
fn shortened(mut clauses: Vec<String>) -> Vec<String> {
    const SHOWN_MAX: usize = 3;
    if clauses.len() > SHOWN_MAX + 1 {
        let more = clauses.split_off(SHOWN_MAX).len();
        clauses.push(format!("it has {more} more such rights"));
    }
    clauses
}

fn clause(scope: &Scope, database: &str, rights: &[&String]) -> String {
    const SHOWN_MAX: usize = 3;
    let shown: Vec<String> = rights.iter().take(SHOWN_MAX).map(|right| right.to_lowercase()).collect();
    let more = if rights.len() > SHOWN_MAX { " …" } else { "" };
    let rights = format!("({}{more})", shown.join(", "));
    match scope {
        Scope::Server => format!("it has rights on the whole server {rights}"),
        Scope::Database(pattern) => format!("it may write to the database `{pattern}` {rights}"),
        Scope::Table(of, table) if of == database => format!("it may write to `{table}` {rights}"),
        Scope::Table(of, table) => format!("it may write to `{of}.{table}` {rights}"),
        Scope::Routine(name) => format!("it may run {name} {rights}"),
    }
}

fn lines(rows: Vec<Row>) -> Vec<Line> {
    rows.iter().filter_map(|row| parse(&text(row, 0)?)).collect()
}

/// `None` for what grants nothing: a default role, or another user to connect as.
fn parse(line: &str) -> Option<Line> {
    let rest = line.strip_prefix("GRANT ")?;
    let (granted, rest) = split_outside(rest, " TO ")?;
    let Some((rights, scope)) = split_outside(granted, " ON ") else {
        return Some(Line::Roles(parts(granted)));
    };
    let mut rights: Vec<String> = parts(rights).iter().map(|right| right_name(right)).collect();
    if rights.iter().any(|right| right == "PROXY") {
        return None;
    }
    if rest.ends_with("WITH GRANT OPTION") {
        rights.push("GRANT OPTION".into());
    }
    let scope = match split_outside(scope, ".") {
        _ if ["PROCEDURE ", "FUNCTION ", "PACKAGE "].iter().any(|kind| scope.starts_with(kind)) => {
            Scope::Routine(scope.to_owned())
        }
        Some(("*", "*")) => Scope::Server,
        Some((database, "*")) => Scope::Database(unquoted(database)),
        Some((database, table)) => Scope::Table(unquoted(database), unquoted(table)),
        None => return None,
    };
    Some(Line::Rights(Grant { rights, scope }))
}

/// `INSERT (a, b)` is `INSERT`.
fn right_name(right: &str) -> String {
    right.split('(').next().unwrap_or(right).trim().to_uppercase()
}

fn unquoted(name: &str) -> String {
    let inner = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
    inner.map_or_else(|| name.to_owned(), |inner| inner.replace("``", "`"))
}

/// Splits at the first separator that is in neither quotes nor parentheses.
fn split_outside<'t>(text: &'t str, separator: &str) -> Option<(&'t str, &'t str)> {
    let (mut quote, mut depth) = (None, 0_usize);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, _) if depth == 0 && text[at..].starts_with(separator) => {
                return Some((&text[..at], &text[at + separator.len()..]));
            }
            (None, '`' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// What commas separate.
fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((part, after)) = split_outside(rest, ",") {
        parts.push(part.trim().to_owned());
        rest = after;
    }
    parts.push(rest.trim().to_owned());
    parts
}

/// Whether a name is like a pattern with `%`, `_` and `\`.
fn is_like(pattern: &str, name: &str) -> bool {
    let mut pattern_chars = pattern.chars();
    match pattern_chars.next() {
        None => name.is_empty(),
        Some('%') => {
            let rest = pattern_chars.as_str();
            is_like(rest, name)
                || name.chars().next().is_some_and(|c| is_like(pattern, &name[c.len_utf8()..]))
        }
        Some(wanted) => {
            let is_any = wanted == '_';
            let wanted = if wanted == '\\' { pattern_chars.next().unwrap_or('\\') } else { wanted };
            let mut chars = name.chars();
            chars.next().is_some_and(|c| is_any || c == wanted)
                && is_like(pattern_chars.as_str(), chars.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Grant, Grants, Line, Scope, is_like, parse};

    fn granted(rights: &[&str], scope: Scope) -> Option<Line> {
        Some(Line::Rights(Grant { rights: rights.iter().map(|right| (*right).to_owned()).collect(), scope }))
    }

    #[test]
    fn every_kind_of_grant_is_understood() {
        let table = |database: &str, table: &str| Scope::Table(database.into(), table.into());
        for (line, expected) in [
            (
                "GRANT USAGE ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*81F5'",
                granted(&["USAGE"], Scope::Server),
            ),
            (
                "GRANT ALL PRIVILEGES ON `shop\\_%`.* TO `a`@`%`",
                granted(&["ALL PRIVILEGES"], Scope::Database("shop\\_%".into())),
            ),
            (
                "GRANT SELECT, INSERT (`x`, `y`) ON `shop`.`t` TO `a`@`%`",
                granted(&["SELECT", "INSERT"], table("shop", "t")),
            ),
            (
                "GRANT DELETE ON `a ON b`.`c``d` TO `a`@`%` WITH GRANT OPTION",
                granted(&["DELETE", "GRANT OPTION"], table("a ON b", "c`d")),
            ),
            (
                "GRANT EXECUTE ON PROCEDURE `s`.`p` TO `a`@`%`",
                granted(&["EXECUTE"], Scope::Routine("PROCEDURE `s`.`p`".into())),
            ),
            ("GRANT `writer` TO `a`@`%`", Some(Line::Roles(vec!["`writer`".into()]))),
            (
                "GRANT `r1`@`%`,`r2`@`%` TO `a`@`%`",
                Some(Line::Roles(vec!["`r1`@`%`".into(), "`r2`@`%`".into()])),
            ),
            ("GRANT PROXY ON ''@'%' TO 'root'@'localhost' WITH GRANT OPTION", None),
            ("SET DEFAULT ROLE `writer` FOR `a`@`%`", None),
        ] {
            assert_eq!(parse(line), expected, "{line}");
        }
    }

    #[test]
    fn patterns_of_databases_are_those_of_the_server() {
        for (pattern, name, expected) in [
            ("shop", "shop", true),
            ("shop\\_%", "shop_eu", true),
            ("shop\\_%", "shopxeu", false),
            ("shop_", "shop1", true),
            ("%", "", true),
            ("s%p", "shop", true),
            ("s%x", "shop", false),
            ("", "shop", false),
        ] {
            assert_eq!(is_like(pattern, name), expected, "{pattern} {name}");
        }
    }

    /// The rights of a line, in the database `shop`.
    fn powers(line: &str) -> (Vec<String>, Vec<String>) {
        let Some(Line::Rights(grant)) = parse(line) else { panic!("{line}") };
        Grants { database: "shop".into(), effective: vec![grant], ..Grants::default() }.powers()
    }

    #[test]
    fn rights_that_serving_writes_needs_are_apart_from_others() {
        for (line, writes, others) in [
            ("GRANT SELECT, SHOW VIEW ON `shop`.* TO x", "", ""),
            ("GRANT INSERT ON `shop`.`t` TO x", "it may write to `t` (insert)", ""),
            (
                "GRANT INSERT, DROP ON `shop`.* TO x",
                "it may write to the database `shop` (insert)",
                "it may write to the database `shop` (drop)",
            ),
            ("GRANT UPDATE ON `other`.`t` TO x", "", "it may write to `other.t` (update)"),
            ("GRANT ALL PRIVILEGES ON *.* TO x", "", "it has rights on the whole server (all privileges)"),
            ("GRANT SELECT, INSERT, UPDATE, DELETE ON `shop`.`_spile_idempotency` TO x", "", ""),
        ] {
            let (found, found_others) = powers(line);
            assert_eq!(
                (found.join("; ").as_str(), found_others.join("; ").as_str()),
                (writes, others),
                "{line}"
            );
        }
    }
}
