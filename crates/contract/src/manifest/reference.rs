//! `docs/manifest.md`: the reference of every key, generated from the [table of keys](super::keys).

use std::fmt::Write;

use super::keys::{AppliesTo, Key, NameRule, SECTIONS, SQL_CHARS_MAX, TextLength, ValueType};
use super::rate;
use super::reader::{join_and, join_or};

const HEADER: &str = "\
# The manifest

<!-- Printed by `cargo xtask docs` from crates/contract/src/manifest/keys.rs. Do not edit. -->

`spile.toml` declares the data that a server reads and the tools that it offers. `spile init` writes one for your data;
`spile check` reports what it compiles to and [what else it found](check.md).

- **Editors** complete and validate it: Even Better TOML, and every other editor based on taplo, reads the first line
  that `spile init` writes, `#:schema .spile/schema.json`. `spile schema` prints the schema;
  [spile.schema.json](spile.schema.json) is a copy.
- **An unknown key is an error** that suggests the nearest known key.
- **`${NAME}`** in a text is replaced from the environment, `${NAME:-default}` has a default, and `$${` is a literal
  `${`. An unset variable is an error. Variables are not replaced in `sql`: use arguments.
- **Paths** are relative to the manifest.
- **Types**, the values of `as`: [docs/types.md](types.md) explains how each is returned and stored.

```toml
";

/// A complete example manifest.
pub const EXAMPLE: &str = r#"[server]
name = "customers-lookup"
instructions = "Customer records by email. Plans: free, emerald, ruby."
rate_limit = "600/min"

[sources.crm]
kind = "sqlite"
path = "data/crm.db"

[collections.customers]
source = "crm"
table = "customers"
key = "email"
description = "People who bought something, one row each."
operations = ["get", "list", "update"]  # writing must be listed explicitly
filters = ["plan", "signup_date"]       # become typed arguments of the list tool
rows_max = 200
version = "rev"                         # an update fails if the row has changed
confirm = "ask"                         # the user must approve each update

[collections.customers.fields]
email = { format = "email", description = "Customer email, lowercase, no whitespace." }
plan = { enum = ["free", "emerald", "ruby"] }
phone = { sensitive = true }            # callers see it; logs do not
notes = { hidden = true }

[tools.lookup_customer]                 # rename or describe a generated tool
uses = "customers.get"
description = "Return the customer record for a given email address."
rate_limit = "60/min"

[tools.top_plans]                       # or run a statement, prepared and typed at compile time
source = "crm"
sql = "select plan, count(*) as customers from customers where signup_date >= :since group by plan"
description = "Count the customers of each plan who signed up since a date."
arguments.since = { type = "string", format = "date", description = "First signup date to count." }
"#;

pub fn reference() -> String {
    let mut out = format!("{HEADER}{EXAMPLE}```\n");
    for section in SECTIONS {
        let _ = write!(out, "\n## `{}`\n\n{}\n\n", section.header, section.description);
        out += "| key | type | default | description |\n|---|---|---|---|\n";
        for key in section.keys {
            let default = if key.default_text.is_empty() { "–" } else { key.default_text };
            let _ = writeln!(
                out,
                "| `{}` | {} | {default} | {} |",
                key.name,
                describe_value_type(key),
                describe_key(key)
            );
        }
    }
    out
}

fn describe_key(key: &Key) -> String {
    let mut text = key.description.to_owned();
    match key.applies_to {
        AppliesTo::Everywhere => {}
        AppliesTo::SourceKinds(kinds) => {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            text += &format!(" Only for {}.", join_or(&kinds));
        }
        AppliesTo::Statements => text += " Only with `sql`.",
        AppliesTo::StatementsAndRequests => text += " Only with `sql` or `request`.",
        AppliesTo::Requests => text += " Only with `request`.",
    }
    if !key.example.is_empty() {
        text += &format!(" `{} = {}`", key.name, key.example);
    }
    text.replace('|', "\\|")
}

fn describe_value_type(key: &Key) -> String {
    match key.value_type {
        ValueType::Text(TextLength::Any(max) | TextLength::NonEmpty(max) | TextLength::NonBlank(max)) => {
            format!("text, at most {max} characters")
        }
        ValueType::Sql => format!("text, at most {SQL_CHARS_MAX} characters"),
        ValueType::OneOf(words) => join_or(&words()),
        ValueType::SomeOf(words) => format!("array of {}", join_and(&words())),
        ValueType::Boolean => "`true` or `false`".into(),
        ValueType::Integer { min, max } => format!("integer from {min} to {max}"),
        ValueType::Rate => {
            format!("calls, `/` and `s`, `min`, `h` or `day`; at most {} calls", rate::CALLS_LIMIT)
        }
        ValueType::Columns => "column name, or an array of them".into(),
        ValueType::Texts => "string, or an array of them".into(),
        ValueType::FieldSelection => "`true` (all), `false` (none) or an array of names".into(),
        ValueType::ColumnPairs => "column names, each with a column name".into(),
        ValueType::TextPairs => "texts by name".into(),
        ValueType::JsonTemplate => "any value".into(),
        ValueType::Names => "array of texts".into(),
        ValueType::Folders => "array of folders, or `{ roots = \"client\" }`".into(),
        ValueType::Literals => "array of texts or of integers".into(),
        ValueType::Literal => "text, number, `true` or `false`".into(),
        ValueType::ClaimConditions => "`\"anyone\"`, or JSON pointers with values".into(),
        ValueType::RowConditions => "fields with conditions, or an array of such tables".into(),
        ValueType::Assignments => "fields with values".into(),
        ValueType::Table(_) => "table".into(),
        ValueType::NamedTables(_, naming) => match naming {
            NameRule::Any => "tables by column name".into(),
            NameRule::Collection | NameRule::Tool | NameRule::Argument => {
                format!("tables by name (`{}`)", naming.pattern())
            }
        },
    }
}
