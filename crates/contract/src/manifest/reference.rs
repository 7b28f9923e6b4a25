//! `docs/manifest.md`: every key, printed from the [table of keys](super::keys).

use std::fmt::Write;

use super::keys::{Chars, Key, Naming, Only, SECTIONS, SQL_CHARS_MAX, Takes};
use super::rate;
use super::reader::{either, listed};

const HEAD: &str = "\
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
    let mut out = format!("{HEAD}{EXAMPLE}```\n");
    for section in SECTIONS {
        let _ = write!(out, "\n## `{}`\n\n{}\n\n", section.header, section.about);
        out += "| key | takes | without it | what it is |\n|---|---|---|---|\n";
        for key in section.keys {
            let unsaid = if key.unsaid.is_empty() { "–" } else { key.unsaid };
            let _ = writeln!(out, "| `{}` | {} | {unsaid} | {} |", key.name, takes(key), about(key));
        }
    }
    out
}

fn about(key: &Key) -> String {
    let mut about = key.about.to_owned();
    match key.only {
        Only::Everywhere => {}
        Only::Kinds(kinds) => {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            about += &format!(" Only for {}.", either(&kinds));
        }
        Only::Statements => about += " Only with `sql`.",
    }
    if !key.such_as.is_empty() {
        about += &format!(" `{} = {}`", key.name, key.such_as);
    }
    about.replace('|', "\\|")
}

fn takes(key: &Key) -> String {
    match key.takes {
        Takes::Text(Chars::Any(most) | Chars::Some(most) | Chars::Words(most)) => {
            format!("a text, at most {most} characters")
        }
        Takes::Sql => format!("a text, at most {SQL_CHARS_MAX} characters"),
        Takes::Word(words) => either(&words()),
        Takes::Words(words) => format!("an array of {}", listed(&words())),
        Takes::Boolean => "`true` or `false`".into(),
        Takes::Integer { least, most } => format!("an integer from {least} to {most}"),
        Takes::Rate => {
            format!("calls, `/` and `s`, `min`, `h` or `day`; at most {} calls", rate::CALLS_MOST)
        }
        Takes::Columns => "the name of a column, or an array of several".into(),
        Takes::Choice => "`true` (all), `false` (none) or an array of names".into(),
        Takes::Literals => "an array of texts or of integers".into(),
        Takes::Literal => "a text, a number, `true` or `false`".into(),
        Takes::Table(_) => "a table".into(),
        Takes::Named(_, naming) => match naming {
            Naming::Any => "tables by the names of columns".into(),
            Naming::Collection | Naming::Tool | Naming::Argument => {
                format!("tables by name (`{}`)", naming.pattern())
            }
        },
    }
}
