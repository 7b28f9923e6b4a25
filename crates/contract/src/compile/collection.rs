//! A table with what the author says of it: shape, fields, key, and what its tools may choose from.

use super::field::ColumnInputs;
use super::writes::WritableFields;
use super::{Compiler, DEFAULT_FIELDS_MAX, suggest};
use crate::contract::Collection;
use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, Located};
use crate::field::Field;
use crate::manifest::{self, FieldSelection, Operation};
use crate::names;
use crate::source::{ColumnShape, SearchFacts, SourceFacts, TableFacts, TableShape};

/// What was chosen for a collection's tools.
pub(super) struct ToolFields {
    /// What a list takes.
    pub(super) filters: Vec<usize>,
    pub(super) sorts: Vec<usize>,
    /// What a search looks into.
    pub(super) search: Vec<usize>,
    /// What can be written.
    pub(super) writable: WritableFields,
    /// Why there is no key, if there is none.
    pub(super) missing_key_reason: String,
}

/// What a collection can do: what is said, else reading.
pub(super) fn has_operation(wanted: &manifest::Collection, operation: Operation) -> bool {
    match &wanted.operations {
        Some(said) => said.iter().any(|one| one.value == operation),
        None => Operation::DEFAULT.contains(&operation),
    }
}

impl<'m> Compiler<'m> {
    pub(super) fn compile_collection(
        &mut self,
        wanted: &'m manifest::Collection,
        facts: &SourceFacts,
    ) -> Option<(Collection, ToolFields)> {
        let table = self.find_table(wanted, facts)?;
        let errors = self.error_count();
        for field in &wanted.fields {
            self.check_column(&field.column, table);
        }
        let headers: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let names = names::argument_names(&headers);
        let fields = self.compile_fields(&ColumnInputs {
            declared: &wanted.fields,
            facts: &table.columns,
            names: &names,
            row_count: table.row_count,
            null_text: wanted.null_text.as_deref(),
            has_native_numbers: table.columns.iter().any(|column| column.possible_types.is_some()),
        });
        let key = self.resolve_key(wanted, table, &fields);
        let columns = column_shapes(&fields, &wanted.fields, wanted.null_text.as_deref());
        let shape = TableShape { table: table.name.clone(), columns, key };
        let why_no_key = missing_key_reason(table, &fields);
        let fields: Vec<Field> = fields.into_iter().map(|(_, field)| field).collect();
        if fields.is_empty() {
            let message = format!("`{}` has no field to show", wanted.name.value);
            self.error(
                &wanted.name.location,
                message,
                "leave `hidden = true` out for one of its columns".into(),
            );
        }
        let filters = self.resolve_selection(wanted, &wanted.filters, "filters", &fields);
        let sorts = self.resolve_selection(wanted, &wanted.sort, "sort", &fields);
        let search = self.resolve_search_fields(wanted, table, &shape, &fields);
        let mut collection = Collection {
            name: wanted.name.value.clone(),
            source: wanted.source.value.clone(),
            shape,
            fields,
            rows_max: wanted.rows_max as usize,
            bytes_max: wanted.bytes_max as usize,
            write_policy: None,
        };
        let settable = self.compile_writes(wanted, table, &mut collection);
        let chosen =
            ToolFields { filters, sorts, search, writable: settable, missing_key_reason: why_no_key };
        (self.error_count() == errors).then_some((collection, chosen))
    }

    /// The table that a collection means: the one it names, the one of its own name, or the only one.
    fn find_table<'f>(
        &mut self,
        wanted: &manifest::Collection,
        facts: &'f SourceFacts,
    ) -> Option<&'f TableFacts> {
        let (name, at) = match &wanted.table {
            Some(table) => (&table.value, &table.location),
            None => (&wanted.name.value, &wanted.name.location),
        };
        if let Some(found) = facts.tables.iter().find(|table| table.name == *name) {
            return Some(found);
        }
        if let ([only], None) = (&*facts.tables, &wanted.table) {
            return Some(only);
        }
        if let Some(left_out) = facts.skipped_tables.iter().find(|one| one.table == *name) {
            let message = format!("the table `{name}` cannot be served: {}", left_out.reason);
            self.error(at, message, "leave the collection out, or make a table that can be read".into());
            return None;
        }
        let names = facts.tables.iter().map(|table| table.name.as_str());
        let message = format!("no table `{name}` in source `{}`", wanted.source.value);
        self.error(at, message, suggest(name, names));
        None
    }

    fn check_column(&mut self, column: &Located<String>, table: &TableFacts) -> bool {
        let names = || table.columns.iter().map(|one| one.name.as_str());
        if names().any(|name| name == column.value) {
            return true;
        }
        let message = format!("no column `{}` in `{}`", column.value, table.name);
        self.error(&column.location, message, suggest(&column.value, names()));
        false
    }

    /// Places in `fields` of the columns that tell rows apart.
    fn resolve_key(
        &mut self,
        wanted: &manifest::Collection,
        table: &TableFacts,
        fields: &[(usize, Field)],
    ) -> Vec<usize> {
        if wanted.key.is_empty() {
            let shown = |column: &usize| {
                fields.iter().position(|(at, field)| at == column && field.data_type.is_scalar())
            };
            let key: Option<Vec<usize>> = table.key.iter().map(shown).collect();
            let key = key.unwrap_or_default();
            if let Some(at) = key.iter().find(|at| fields[**at].1.sensitive) {
                let message = format!("the key `{}` is sensitive", fields[*at].1.column);
                let help = "a key is in every call, cursor and question; choose another with `key`, or leave \
                            `sensitive` out";
                self.error(&wanted.name.location, message, help.into());
            }
            return key;
        }
        let mut key = Vec::new();
        for part in &wanted.key {
            let named = |field: &Field| field.column == part.value || field.name == part.value;
            match fields.iter().position(|(_, field)| named(field)) {
                Some(at) if !fields[at].1.data_type.is_scalar() => {
                    let message = format!(
                        "`{}` cannot be a key: it is {}",
                        part.value,
                        fields[at].1.data_type.as_str()
                    );
                    self.error(&part.location, message, "choose a column that callers can write down".into());
                }
                Some(at) => key.push(at),
                None if self.check_column(part, table) => {
                    let message = format!("the key `{}` is hidden", part.value);
                    let help = "a key must be seen to be asked for; show it, or choose another";
                    self.error(&part.location, message, help.into());
                }
                None => {}
            }
        }
        key
    }

    /// Places in `fields` that a list can be filtered or sorted by.
    fn resolve_selection(
        &mut self,
        wanted: &manifest::Collection,
        choice: &FieldSelection,
        what: &str,
        fields: &[Field],
    ) -> Vec<usize> {
        let scalar = || fields.iter().enumerate().filter(|(_, field)| field.data_type.is_scalar());
        match choice {
            FieldSelection::None => Vec::new(),
            FieldSelection::All => scalar().map(|(at, _)| at).collect(),
            FieldSelection::Default => {
                let rest: Vec<&str> =
                    scalar().skip(DEFAULT_FIELDS_MAX).map(|(_, field)| field.name.as_str()).collect();
                if !rest.is_empty() && what == "filters" {
                    let name = &wanted.name.value;
                    let message = format!("`{name}` cannot be filtered by: {}", rest.join(", "));
                    let help = format!(
                        "there are more than {DEFAULT_FIELDS_MAX} columns; choose with filters = [\"…\"]"
                    );
                    self.diagnostics.push(Diagnostic::note(message).at(&wanted.name.location).help(help));
                }
                scalar().take(DEFAULT_FIELDS_MAX).map(|(at, _)| at).collect()
            }
            FieldSelection::Only(names) => {
                names.iter().filter_map(|name| self.resolve_scalar_field(name, what, fields)).collect()
            }
        }
    }

    fn resolve_scalar_field(
        &mut self,
        name: &Located<String>,
        what: &str,
        fields: &[Field],
    ) -> Option<usize> {
        let at = self.find_field(name, fields)?;
        if fields[at].data_type.is_scalar() {
            return Some(at);
        }
        let message = format!("`{}` is {}: no use in {what}", name.value, fields[at].data_type.as_str());
        self.error(&name.location, message, "leave it out".into());
        None
    }

    /// A field as callers or as the source names it.
    pub(super) fn find_field(&mut self, name: &Located<String>, fields: &[Field]) -> Option<usize> {
        let found = fields.iter().position(|field| field.name == name.value || field.column == name.value);
        if found.is_none() {
            let names = fields.iter().map(|field| field.name.as_str());
            self.error(&name.location, format!("no field `{}`", name.value), suggest(&name.value, names));
        }
        found
    }

    /// Places in `fields` that a search looks into: those of the index if there is one, else all texts.
    fn resolve_search_fields(
        &mut self,
        wanted: &manifest::Collection,
        table: &TableFacts,
        shape: &TableShape,
        fields: &[Field],
    ) -> Vec<usize> {
        let operation = wanted.operations.iter().flatten().find(|one| one.value == Operation::Search);
        let Some(operation) = operation else { return Vec::new() };
        let texts = || (0..fields.len()).filter(|at| fields[*at].data_type == DataType::Text);
        let chosen: Vec<usize> = match (&wanted.search, &table.search) {
            (FieldSelection::None, _) => {
                let message = format!("`{}` is to be searched, and nothing in it may be", wanted.name.value);
                let help = "choose fields with search = [\"…\"], or leave the operation out";
                self.error(&operation.location, message, help.into());
                return Vec::new();
            }
            (FieldSelection::Only(names), _) => {
                return names.iter().filter_map(|name| self.find_text_field(name, fields)).collect();
            }
            (FieldSelection::Default, SearchFacts::Indexed(columns)) => {
                let indexed: Vec<usize> =
                    texts().filter(|at| columns.contains(&shape.columns[*at].source_index)).collect();
                if indexed.is_empty() { texts().collect() } else { indexed }
            }
            (FieldSelection::Default | FieldSelection::All, _) => texts().collect(),
        };
        if chosen.is_empty() {
            let message = format!("`{}` has no text to be searched", wanted.name.value);
            let help = "leave \"search\" out, or say `as = \"text\"` for one of its fields";
            self.error(&operation.location, message, help.into());
        }
        chosen
    }

    fn find_text_field(&mut self, name: &Located<String>, fields: &[Field]) -> Option<usize> {
        let at = self.find_field(name, fields)?;
        let kind = fields[at].data_type;
        if kind != DataType::Text {
            let message = format!("`{}` is {}, and words are looked for in text", name.value, kind.as_str());
            self.error(&name.location, message, "leave it out; a list can filter by it".into());
        }
        (kind == DataType::Text).then_some(at)
    }
}

/// Why a collection has no key, for whoever wonders.
fn missing_key_reason(table: &TableFacts, fields: &[(usize, Field)]) -> String {
    let is_shown = |at: &usize| fields.iter().any(|(shown, _)| shown == at);
    match table.key.iter().find(|at| !is_shown(at)) {
        Some(hidden) => format!("its key `{}` is hidden", table.columns[*hidden].name),
        None if table.row_count == Some(0) => "it has no rows in which one could be found".into(),
        None if table.row_count.is_none() => "none is declared, and not all rows were seen".into(),
        None => "no column of text or whole numbers has a value in every row and none twice".into(),
    }
}

/// The columns that fields are read from.
pub(super) fn column_shapes(
    fields: &[(usize, Field)],
    said: &[manifest::Field],
    null: Option<&str>,
) -> Vec<ColumnShape> {
    let column = |(at, field): &(usize, Field)| ColumnShape {
        source_index: *at,
        name: field.column.clone(),
        data_type: field.data_type,
        nullable: field.nullable,
        mixed: field.mixed,
        null_text: null_text(said, null, &field.column),
    };
    fields.iter().map(column).collect()
}

/// Text that means "no value" in a column.
pub(super) fn null_text(said: &[manifest::Field], of_all: Option<&str>, column: &str) -> Option<String> {
    let field = said.iter().find(|field| field.column.value == column);
    field.and_then(|field| field.null_text.clone()).or_else(|| of_all.map(str::to_owned))
}
