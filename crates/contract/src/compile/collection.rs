//! A table with what the author says of it: shape, fields, key, and what its tools may choose from.

use super::field::Columns;
use super::writes::Settable;
use super::{CHOSEN_MAX, Compiler, instead};
use crate::contract::Collection;
use crate::diagnostic::{Diagnostic, Placed};
use crate::field::Field;
use crate::kind::Kind;
use crate::manifest::{self, Choice, Operation};
use crate::names;
use crate::source::{Facts, SearchFacts, Shape, ShapeColumn, TableFacts};

/// What was chosen for a collection's tools.
pub(super) struct Chosen {
    /// What a list takes.
    pub(super) filters: Vec<usize>,
    pub(super) sorts: Vec<usize>,
    /// What a search looks into.
    pub(super) search: Vec<usize>,
    /// What can be written.
    pub(super) settable: Settable,
    /// Why there is no key, if there is none.
    pub(super) why_no_key: String,
}

/// What a collection can do: what is said, else reading.
pub(super) fn has(wanted: &manifest::Collection, operation: Operation) -> bool {
    match &wanted.operations {
        Some(said) => said.iter().any(|one| one.value == operation),
        None => Operation::DEFAULT.contains(&operation),
    }
}

impl<'m> Compiler<'m> {
    pub(super) fn collection(
        &mut self,
        wanted: &'m manifest::Collection,
        facts: &Facts,
    ) -> Option<(Collection, Chosen)> {
        let table = self.table(wanted, facts)?;
        let errors = self.errors();
        for field in &wanted.fields {
            self.known_column(&field.column, table);
        }
        let headers: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let names = names::argument_names(&headers);
        let fields = self.fields(&Columns {
            said: &wanted.fields,
            facts: &table.columns,
            names: &names,
            rows: table.rows,
            null: wanted.null.as_deref(),
            has_numbers: table.columns.iter().any(|column| column.fits.is_some()),
        });
        let key = self.key(wanted, table, &fields);
        let columns = columns(&fields, &wanted.fields, wanted.null.as_deref());
        let shape = Shape { table: table.name.clone(), columns, key };
        let why_no_key = why_no_key(table, &fields);
        let fields: Vec<Field> = fields.into_iter().map(|(_, field)| field).collect();
        if fields.is_empty() {
            let message = format!("`{}` has no field to show", wanted.name.value);
            self.error(&wanted.name.at, message, "leave `hidden = true` out for one of its columns".into());
        }
        let filters = self.choice(wanted, &wanted.filters, "filters", &fields);
        let sorts = self.choice(wanted, &wanted.sort, "sort", &fields);
        let search = self.searched(wanted, table, &shape, &fields);
        let mut collection = Collection {
            name: wanted.name.value.clone(),
            source: wanted.source.value.clone(),
            shape,
            fields,
            rows_max: wanted.rows_max as usize,
            bytes_max: wanted.bytes_max as usize,
            writes: None,
        };
        let settable = self.writes(wanted, table, &mut collection);
        let chosen = Chosen { filters, sorts, search, settable, why_no_key };
        (self.errors() == errors).then_some((collection, chosen))
    }

    /// The table that a collection means: the one it names, the one of its own name, or the only one.
    fn table<'f>(&mut self, wanted: &manifest::Collection, facts: &'f Facts) -> Option<&'f TableFacts> {
        let (name, at) = match &wanted.table {
            Some(table) => (&table.value, &table.at),
            None => (&wanted.name.value, &wanted.name.at),
        };
        if let Some(found) = facts.tables.iter().find(|table| table.name == *name) {
            return Some(found);
        }
        if let ([only], None) = (&*facts.tables, &wanted.table) {
            return Some(only);
        }
        if let Some(left_out) = facts.left_out.iter().find(|one| one.table == *name) {
            let message = format!("the table `{name}` cannot be served: {}", left_out.why);
            self.error(at, message, "leave the collection out, or make a table that can be read".into());
            return None;
        }
        let names = facts.tables.iter().map(|table| table.name.as_str());
        let message = format!("no table `{name}` in source `{}`", wanted.source.value);
        self.error(at, message, instead(name, names));
        None
    }

    fn known_column(&mut self, column: &Placed<String>, table: &TableFacts) -> bool {
        let names = || table.columns.iter().map(|one| one.name.as_str());
        if names().any(|name| name == column.value) {
            return true;
        }
        let message = format!("no column `{}` in `{}`", column.value, table.name);
        self.error(&column.at, message, instead(&column.value, names()));
        false
    }

    /// Places in `fields` of the columns that tell rows apart.
    fn key(
        &mut self,
        wanted: &manifest::Collection,
        table: &TableFacts,
        fields: &[(usize, Field)],
    ) -> Vec<usize> {
        if wanted.key.is_empty() {
            let shown =
                |column: &usize| fields.iter().position(|(at, field)| at == column && field.kind.is_scalar());
            let key: Option<Vec<usize>> = table.key.iter().map(shown).collect();
            let key = key.unwrap_or_default();
            if let Some(at) = key.iter().find(|at| fields[**at].1.sensitive) {
                let message = format!("the key `{}` is sensitive", fields[*at].1.column);
                let help = "a key is in every call, cursor and question; choose another with `key`, or leave \
                            `sensitive` out";
                self.error(&wanted.name.at, message, help.into());
            }
            return key;
        }
        let mut key = Vec::new();
        for part in &wanted.key {
            let named = |field: &Field| field.column == part.value || field.name == part.value;
            match fields.iter().position(|(_, field)| named(field)) {
                Some(at) if !fields[at].1.kind.is_scalar() => {
                    let message =
                        format!("`{}` cannot be a key: it is {}", part.value, fields[at].1.kind.as_str());
                    self.error(&part.at, message, "choose a column that callers can write down".into());
                }
                Some(at) => key.push(at),
                None if self.known_column(part, table) => {
                    let message = format!("the key `{}` is hidden", part.value);
                    let help = "a key must be seen to be asked for; show it, or choose another";
                    self.error(&part.at, message, help.into());
                }
                None => {}
            }
        }
        key
    }

    /// Places in `fields` that a list can be filtered or sorted by.
    fn choice(
        &mut self,
        wanted: &manifest::Collection,
        choice: &Choice,
        what: &str,
        fields: &[Field],
    ) -> Vec<usize> {
        let scalar = || fields.iter().enumerate().filter(|(_, field)| field.kind.is_scalar());
        match choice {
            Choice::None => Vec::new(),
            Choice::All => scalar().map(|(at, _)| at).collect(),
            Choice::Unsaid => {
                let rest: Vec<&str> =
                    scalar().skip(CHOSEN_MAX).map(|(_, field)| field.name.as_str()).collect();
                if !rest.is_empty() && what == "filters" {
                    let name = &wanted.name.value;
                    let message = format!("`{name}` cannot be filtered by: {}", rest.join(", "));
                    let help =
                        format!("there are more than {CHOSEN_MAX} columns; choose with filters = [\"…\"]");
                    self.found.push(Diagnostic::note(message).at(&wanted.name.at).help(help));
                }
                scalar().take(CHOSEN_MAX).map(|(at, _)| at).collect()
            }
            Choice::Only(names) => names.iter().filter_map(|name| self.chosen(name, what, fields)).collect(),
        }
    }

    fn chosen(&mut self, name: &Placed<String>, what: &str, fields: &[Field]) -> Option<usize> {
        let at = self.field_named(name, fields)?;
        if fields[at].kind.is_scalar() {
            return Some(at);
        }
        let message = format!("`{}` is {}: no use in {what}", name.value, fields[at].kind.as_str());
        self.error(&name.at, message, "leave it out".into());
        None
    }

    /// A field as callers or as the source names it.
    pub(super) fn field_named(&mut self, name: &Placed<String>, fields: &[Field]) -> Option<usize> {
        let found = fields.iter().position(|field| field.name == name.value || field.column == name.value);
        if found.is_none() {
            let names = fields.iter().map(|field| field.name.as_str());
            self.error(&name.at, format!("no field `{}`", name.value), instead(&name.value, names));
        }
        found
    }

    /// Places in `fields` that a search looks into: those of the index if there is one, else all texts.
    fn searched(
        &mut self,
        wanted: &manifest::Collection,
        table: &TableFacts,
        shape: &Shape,
        fields: &[Field],
    ) -> Vec<usize> {
        let operation = wanted.operations.iter().flatten().find(|one| one.value == Operation::Search);
        let Some(operation) = operation else { return Vec::new() };
        let texts = || (0..fields.len()).filter(|at| fields[*at].kind == Kind::Text);
        let chosen: Vec<usize> = match (&wanted.search, &table.search) {
            (Choice::None, _) => {
                let message = format!("`{}` is to be searched, and nothing in it may be", wanted.name.value);
                let help = "choose fields with search = [\"…\"], or leave the operation out";
                self.error(&operation.at, message, help.into());
                return Vec::new();
            }
            (Choice::Only(names), _) => {
                return names.iter().filter_map(|name| self.text_named(name, fields)).collect();
            }
            (Choice::Unsaid, SearchFacts::Indexed(columns)) => {
                let indexed: Vec<usize> =
                    texts().filter(|at| columns.contains(&shape.columns[*at].at)).collect();
                if indexed.is_empty() { texts().collect() } else { indexed }
            }
            (Choice::Unsaid | Choice::All, _) => texts().collect(),
        };
        if chosen.is_empty() {
            let message = format!("`{}` has no text to be searched", wanted.name.value);
            let help = "leave \"search\" out, or say `as = \"text\"` for one of its fields";
            self.error(&operation.at, message, help.into());
        }
        chosen
    }

    fn text_named(&mut self, name: &Placed<String>, fields: &[Field]) -> Option<usize> {
        let at = self.field_named(name, fields)?;
        let kind = fields[at].kind;
        if kind != Kind::Text {
            let message = format!("`{}` is {}, and words are looked for in text", name.value, kind.as_str());
            self.error(&name.at, message, "leave it out; a list can filter by it".into());
        }
        (kind == Kind::Text).then_some(at)
    }
}

/// Why a collection has no key, for whoever wonders.
fn why_no_key(table: &TableFacts, fields: &[(usize, Field)]) -> String {
    let is_shown = |at: &usize| fields.iter().any(|(shown, _)| shown == at);
    match table.key.iter().find(|at| !is_shown(at)) {
        Some(hidden) => format!("its key `{}` is hidden", table.columns[*hidden].name),
        None if table.rows == Some(0) => "it has no rows in which one could be found".into(),
        None if table.rows.is_none() => "none is declared, and not all rows were seen".into(),
        None => "no column of text or whole numbers has a value in every row and none twice".into(),
    }
}

/// The columns that fields are read from.
pub(super) fn columns(
    fields: &[(usize, Field)],
    said: &[manifest::Field],
    null: Option<&str>,
) -> Vec<ShapeColumn> {
    let column = |(at, field): &(usize, Field)| ShapeColumn {
        at: *at,
        name: field.column.clone(),
        kind: field.kind,
        nullable: field.nullable,
        mixed: field.mixed,
        null: null_text(said, null, &field.column),
    };
    fields.iter().map(column).collect()
}

/// Text that means "no value" in a column.
pub(super) fn null_text(said: &[manifest::Field], of_all: Option<&str>, column: &str) -> Option<String> {
    let field = said.iter().find(|field| field.column.value == column);
    field.and_then(|field| field.null.clone()).or_else(|| of_all.map(str::to_owned))
}
