//! `docs/manifest.md`: every key, printed from the [table of keys](super::keys).

use std::fmt::Write;

use super::keys::{AppliesTo, Key, NameRule, SECTIONS, SQL_CHARS_MAX, TextLength, ValueType};
use super::rate;
use super::reader::{join_and, join_or};

const HEADER: &str = "\
# The manifest

<!-- Printed by `cargo xtask docs` from crates/contract/src/manifest/keys.rs. Do not edit. -->

`spile.toml` says what a server offers and where it comes from. `spile init` writes one for your data, `spile check`
says what it makes, and [docs/check.md](check.md) says what else is looked at.

- **Editors** complete and check it: the first line that `spile init` writes, `#:schema .spile/schema.json`, is read
  by Even Better TOML and everything else that is built on taplo. `spile schema` prints the schema;
  [spile.schema.json](spile.schema.json) is the same.
- **An unknown key is an error** that names the nearest known one.
- **`${NAME}`** in a text is replaced from the environment, `${NAME:-default}` has a default, and `$${` is a literal
  `${`. A variable that is not set is an error. In `sql` nothing is replaced: values come as arguments.
- **A path** starts in the folder of the manifest.
- **Kinds**, which `as` names: how each is told and kept, and which values survive, is in [docs/types.md](types.md).

```toml
";

/// A whole manifest, as people write it. It must compile in the head of whoever reads it.
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
operations = ["get", "list", "update"]  # reading is the default; writing is named
filters = ["plan", "signup_date"]       # become typed arguments of the list tool
rows_max = 200
version = "rev"                         # nobody overwrites what they have not seen
confirm = "ask"                         # the user is asked before a record is changed

[collections.customers.fields]
email = { format = "email", description = "Customer email, lowercase, no whitespace." }
plan = { enum = ["free", "emerald", "ruby"] }
phone = { sensitive = true }            # callers see it; logs do not
notes = { hidden = true }

[tools.lookup_customer]                 # rename or describe what was generated
uses = "customers.get"
description = "Return the customer record for a given email address."
rate_limit = "60/min"

[tools.top_plans]                       # or write the statement: prepared, typed and checked before it is served
source = "crm"
sql = "select plan, count(*) as customers from customers where signup_date >= :since group by plan"
description = "How many customers each plan has won since a day."
arguments.since = { type = "string", format = "date", description = "First signup date to count." }
"#;

pub fn reference() -> String {
    let mut out = format!("{HEADER}{EXAMPLE}```\n");
    for section in SECTIONS {
        let _ = write!(out, "\n## `{}`\n\n{}\n\n", section.header, section.description);
        out += "| key | takes | without it | what it is |\n|---|---|---|---|\n";
        for key in section.keys {
            let unsaid = if key.default_text.is_empty() { "–" } else { key.default_text };
            let _ = writeln!(
                out,
                "| `{}` | {} | {unsaid} | {} |",
                key.name,
                describe_value_type(key),
                describe_key(key)
            );
        }
    }
    out
}

fn describe_key(key: &Key) -> String {
    let mut about = key.description.to_owned();
    match key.applies_to {
        AppliesTo::Everywhere => {}
        AppliesTo::SourceKinds(kinds) => {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            about += &format!(" Only for {}.", join_or(&kinds));
        }
        AppliesTo::Statements => about += " Only with `sql`.",
    }
    if !key.example.is_empty() {
        about += &format!(" `{} = {}`", key.name, key.example);
    }
    about.replace('|', "\\|")
}

fn describe_value_type(key: &Key) -> String {
    match key.value_type {
        ValueType::Text(TextLength::Any(most) | TextLength::NonEmpty(most) | TextLength::NonBlank(most)) => {
            format!("a text, at most {most} characters")
        }
        ValueType::Sql => format!("a text, at most {SQL_CHARS_MAX} characters"),
        ValueType::OneOf(words) => join_or(&words()),
        ValueType::SomeOf(words) => format!("an array of {}", join_and(&words())),
        ValueType::Boolean => "`true` or `false`".into(),
        ValueType::Integer { min: least, max: most } => format!("an integer from {least} to {most}"),
        ValueType::Rate => {
            format!("calls, `/` and `s`, `min`, `h` or `day`; at most {} calls", rate::CALLS_LIMIT)
        }
        ValueType::Columns => "the name of a column, or an array of several".into(),
        ValueType::FieldSelection => "`true` (all), `false` (none) or an array of names".into(),
        ValueType::Literals => "an array of texts or of integers".into(),
        ValueType::Literal => "a text, a number, `true` or `false`".into(),
        ValueType::Table(_) => "a table".into(),
        ValueType::NamedTables(_, naming) => match naming {
            NameRule::Any => "tables by the names of columns".into(),
            NameRule::Collection | NameRule::Tool | NameRule::Argument => {
                format!("tables by name (`{}`)", naming.pattern())
            }
        },
    }
}
