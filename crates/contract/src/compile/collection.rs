//! One collection: its table, fields and key, and the fields that its tools offer.

use super::field::ColumnInputs;
use super::writes::WritableFields;
use super::{Compiler, LISTED_FILTERS_MAX, suggest};
use crate::column_format::ColumnFormat;
use crate::contract::{Collection, NoticeSupport};
use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, Located};
use crate::field::Field;
use crate::humanize::{join_truncated, pluralize};
use crate::manifest::{self, FieldSelection, Operation, SourceKind};
use crate::names;
use crate::source::{
    ColumnFacts, ColumnShape, SearchFacts, SourceFacts, TableFacts, TableShape, WordMatching,
};

/// The fields that a collection's tools offer, by index.
pub(super) struct ToolFields {
    pub(super) filters: Vec<usize>,
    /// Those of `filters` that the schemas list.
    pub(super) listed_filters: Vec<usize>,
    pub(super) sorts: Vec<usize>,
    pub(super) search: Vec<usize>,
    /// How the terms of a search match, if not anywhere in a text.
    pub(super) word_matching: Option<WordMatching>,
    pub(super) writable: WritableFields,
    /// For the error message, if the collection has no key.
    pub(super) missing_key_reason: String,
}

/// Whether the collection has an operation: the declared ones, else the default ones.
pub(super) fn has_operation(declared: &manifest::Collection, operation: Operation) -> bool {
    match &declared.operations {
        Some(operations) => operations.iter().any(|one| one.value == operation),
        None => Operation::DEFAULT.contains(&operation),
    }
}

/// A note names no more fields than this.
const FIELDS_NAMED_MAX: usize = 8;

impl<'m> Compiler<'m> {
    pub(super) fn compile_collection(
        &mut self,
        declared: &'m manifest::Collection,
        facts: &SourceFacts,
    ) -> Option<(Collection, ToolFields)> {
        let table = self.find_table(declared, facts)?;
        let errors = self.error_count();
        if !facts.reads_texts && declared.null_texts.len() > 1 {
            let message = format!("`{}` has several texts that mean NULL", declared.name.value);
            let help = "a database has one at most; correct the values, or write one text";
            self.error(&declared.name.location, message, help.into());
        }
        let source = self.manifest.sources.iter().find(|one| one.name.value == declared.source.value);
        let is_rest = source.is_some_and(|source| source.settings.kind() == SourceKind::Rest);
        for field in &declared.fields {
            for (name, setting) in [("required", &field.required), ("read_only", &field.read_only)] {
                if let (Some(setting), false) = (setting, is_rest) {
                    let message = format!("`{name}` is only for sources of the kind `rest`");
                    self.error(&setting.location, message, "remove it: the data says it".into());
                }
            }
            // Only files without rows of names have nested values.
            if let Some(path) = field.path.as_ref().filter(|_| !facts.reads_texts || table.header.is_some()) {
                let message = "`path` is only for sources of the kind `json`, `jsonl`, `parquet` or `rest`";
                let help = "remove it; for SQLite, make a view with `json_extract`";
                self.error(&path.location, message.into(), help.into());
                continue;
            }
            self.check_column(&field.column, table);
            if field.fill_down && table.header.is_none() {
                let message =
                    format!("`{}` has no cells to fill: `fill_down` has no effect", field.column.value);
                self.error(
                    &field.column.location,
                    message,
                    "remove it; it is for CSV files and workbooks".into(),
                );
            }
        }
        let headers: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let names = names::argument_names(&headers);
        let fields = self.compile_fields(&ColumnInputs {
            declared: &declared.fields,
            facts: &table.columns,
            names: &names,
            row_count: table.row_count,
            null_texts: &declared.null_texts,
            reads_texts: facts.reads_texts,
            has_native_numbers: table.columns.iter().any(|column| column.possible_types.is_some()),
        });
        let key = self.resolve_key(declared, table, &fields);
        self.report_layout(declared, table);
        self.report_ambiguous_formats(declared, table, &names);
        self.report_near_misses(declared, table, &names);
        let columns = column_shapes(&fields, &declared.fields, &table.columns, &declared.null_texts);
        let shape = TableShape { table: table.name.clone(), columns, key };
        let missing_key_reason = missing_key_reason(table, &fields);
        let mut fields: Vec<Field> = fields.into_iter().map(|(_, field)| field).collect();
        if fields.is_empty() {
            let message = format!("`{}` has no visible field", declared.name.value);
            self.error(
                &declared.name.location,
                message,
                "remove `hidden = true` from one of its columns".into(),
            );
        }
        let groups = self.resolve_selection(&declared.group, "group", &fields);
        let measures = self.resolve_selection(&declared.measures, "measures", &fields);
        for (at, field) in fields.iter_mut().enumerate() {
            field.in_groups = groups.contains(&at);
            field.in_measures = measures.contains(&at);
        }
        let filters = self.resolve_selection(&declared.filters, "filters", &fields);
        let listed_filters = self.listed_filters(declared, &filters, &fields);
        let sorts = self.resolve_selection(&declared.sort, "sort", &fields);
        let search = self.resolve_search_fields(declared, table, &shape, &fields);
        let mut searched: Vec<usize> = search.iter().map(|at| shape.columns[*at].source_index).collect();
        searched.sort_unstable();
        let word_matching = table.search.word_matching(&searched).cloned();
        let mut collection = Collection {
            name: declared.name.value.clone(),
            source: declared.source.value.clone(),
            shape,
            fields,
            rows_max: declared.rows_max as usize,
            bytes_max: declared.bytes_max as usize,
            write_policy: None,
            notices: NoticeSupport {
                in_reads: table.may_be_outdated,
                in_writes: facts.tables.iter().any(|table| table.may_be_outdated),
            },
            links: Vec::new(),
            time_zone: self.manifest.server.time_zone,
            rules: None,
        };
        let writable = self.compile_writes(declared, table, &mut collection);
        let tool_fields = ToolFields {
            filters,
            listed_filters,
            sorts,
            search,
            word_matching,
            writable,
            missing_key_reason,
        };
        (self.error_count() == errors).then_some((collection, tool_fields))
    }

    /// The collection's table: the declared one, else the one with the collection's name, else the only one.
    fn find_table<'f>(
        &mut self,
        declared: &manifest::Collection,
        facts: &'f SourceFacts,
    ) -> Option<&'f TableFacts> {
        let (name, at) = match &declared.table {
            Some(table) => (&table.value, &table.location),
            None => (&declared.name.value, &declared.name.location),
        };
        if let Some(found) = facts.tables.iter().find(|table| table.name == *name) {
            return Some(found);
        }
        if let ([only], None) = (&*facts.tables, &declared.table) {
            return Some(only);
        }
        if let Some(skipped) = facts.skipped_tables.iter().find(|one| one.table == *name) {
            let message = format!("cannot serve the table `{name}`: {}", skipped.reason);
            self.error(
                at,
                message,
                "remove the collection, or change the table so that it can be read".into(),
            );
            return None;
        }
        let names = facts.tables.iter().map(|table| table.name.as_str());
        let message = format!("the source `{}` has no table `{name}`", declared.source.value);
        self.error(at, message, suggest(name, "table", names));
        None
    }

    fn check_column(&mut self, column: &Located<String>, table: &TableFacts) -> bool {
        let names = || table.columns.iter().map(|one| one.name.as_str());
        if names().any(|name| name == column.value) {
            return true;
        }
        let message = format!("`{}` has no column `{}`", table.name, column.value);
        self.error(&column.location, message, suggest(&column.value, "column", names()));
        false
    }

    /// The key, as indexes into `fields`.
    fn resolve_key(
        &mut self,
        declared: &manifest::Collection,
        table: &TableFacts,
        fields: &[(usize, Field)],
    ) -> Vec<usize> {
        if declared.key.is_empty() {
            let visible_index = |column: &usize| {
                fields.iter().position(|(at, field)| at == column && field.data_type.is_scalar())
            };
            let key: Option<Vec<usize>> = table.key.iter().map(visible_index).collect();
            let key = key.unwrap_or_default();
            if let Some(at) = key.iter().find(|at| fields[**at].1.sensitive) {
                let message = format!("the key `{}` is sensitive", fields[*at].1.column);
                let help = "a key appears in calls, cursors and confirmations; choose another with `key`, or remove \
                            `sensitive`";
                self.error(&declared.name.location, message, help.into());
            }
            return key;
        }
        let mut key = Vec::new();
        for part in &declared.key {
            let is_part = |field: &Field| field.column == part.value || field.name == part.value;
            match fields.iter().position(|(_, field)| is_part(field)) {
                Some(at) if !fields[at].1.data_type.is_scalar() => {
                    let message = format!(
                        "`{}` cannot be a key: its type is {}",
                        part.value,
                        fields[at].1.data_type.as_str()
                    );
                    self.error(&part.location, message, "choose a column of texts, numbers or dates".into());
                }
                Some(at) => key.push(at),
                None if self.check_column(part, table) => {
                    let message = format!("the key `{}` is hidden", part.value);
                    let help = "callers need the key to get a row; remove `hidden`, or choose another key";
                    self.error(&part.location, message, help.into());
                }
                None => {}
            }
        }
        key
    }

    /// The fields that a list can be filtered or sorted by, as indexes into `fields`.
    fn resolve_selection(
        &mut self,
        selection: &FieldSelection,
        setting: &str,
        fields: &[Field],
    ) -> Vec<usize> {
        let scalar = || fields.iter().enumerate().filter(|(_, field)| field.data_type.is_scalar());
        match selection {
            FieldSelection::None => Vec::new(),
            FieldSelection::All | FieldSelection::Default => scalar().map(|(at, _)| at).collect(),
            FieldSelection::Only(names) => {
                names.iter().filter_map(|name| self.resolve_scalar_field(name, setting, fields)).collect()
            }
        }
    }

    /// The filters that schemas list: all that the author chooses, else the first ones and those that must not be logged.
    fn listed_filters(
        &mut self,
        declared: &manifest::Collection,
        filters: &[usize],
        fields: &[Field],
    ) -> Vec<usize> {
        if declared.filters != FieldSelection::Default || filters.len() <= LISTED_FILTERS_MAX {
            return filters.to_vec();
        }
        let is_listed =
            |(position, at): &(usize, &usize)| *position < LISTED_FILTERS_MAX || fields[**at].sensitive;
        let listed: Vec<usize> = filters.iter().enumerate().filter(is_listed).map(|(_, at)| *at).collect();
        let rest: Vec<String> = filters
            .iter()
            .filter(|at| !listed.contains(at))
            .map(|at| format!("`{}`", fields[*at].name))
            .collect();
        let message = format!(
            "the tools of `{}` do not list {} as filters: {}",
            declared.name.value,
            pluralize(rest.len() as u64, "column"),
            join_truncated(&rest, FIELDS_NAMED_MAX)
        );
        let help = "rows can be filtered by them all the same; to choose what is listed: `filters = [\"…\"]`";
        self.diagnostics.push(Diagnostic::note(message).at(&declared.name.location).help(help));
        listed
    }

    fn resolve_scalar_field(
        &mut self,
        name: &Located<String>,
        setting: &str,
        fields: &[Field],
    ) -> Option<usize> {
        let at = self.find_field(name, fields)?;
        if fields[at].data_type.is_scalar() {
            return Some(at);
        }
        let message = format!(
            "`{}` cannot be in `{setting}`: its type is {}",
            name.value,
            fields[at].data_type.as_str()
        );
        self.error(&name.location, message, "remove it".into());
        None
    }

    /// Finds a field by its name or by its column's name.
    pub(super) fn find_field(&mut self, name: &Located<String>, fields: &[Field]) -> Option<usize> {
        let found = fields.iter().position(|field| field.name == name.value || field.column == name.value);
        if found.is_none() {
            let names = fields.iter().map(|field| field.name.as_str());
            self.error(
                &name.location,
                format!("unknown field `{}`", name.value),
                suggest(&name.value, "field", names),
            );
        }
        found
    }

    /// The fields that a search looks into: the declared ones, else the indexed ones, else every text field.
    fn resolve_search_fields(
        &mut self,
        declared: &manifest::Collection,
        table: &TableFacts,
        shape: &TableShape,
        fields: &[Field],
    ) -> Vec<usize> {
        if !has_operation(declared, Operation::Search) {
            return Vec::new();
        }
        let operation = declared.operations.iter().flatten().find(|one| one.value == Operation::Search);
        let texts = || (0..fields.len()).filter(|at| fields[*at].data_type == DataType::Text);
        let indexed = |columns: &[usize]| -> Vec<usize> {
            let indexed: Vec<usize> =
                texts().filter(|at| columns.contains(&shape.columns[*at].source_index)).collect();
            if indexed.is_empty() { texts().collect() } else { indexed }
        };
        let searched: Vec<usize> = match (&declared.search, &table.search) {
            (FieldSelection::None, _) => {
                // Without `operations` this is how a search is switched off.
                let Some(operation) = operation else { return Vec::new() };
                let message =
                    format!("`{}` has the operation `search` and `search = false`", declared.name.value);
                let help = "choose fields with `search = [\"…\"]`, or remove the operation";
                self.error(&operation.location, message, help.into());
                return Vec::new();
            }
            (FieldSelection::Only(names), _) => {
                return names.iter().filter_map(|name| self.find_text_field(name, fields)).collect();
            }
            (FieldSelection::Default, SearchFacts::Indexed(columns)) => indexed(columns),
            (FieldSelection::Default, SearchFacts::Words(indexes)) => {
                indexed(indexes.first().map_or(&[], |index| &index.columns))
            }
            (FieldSelection::Default | FieldSelection::All, _) => texts().collect(),
        };
        if let (true, Some(operation)) = (searched.is_empty(), operation) {
            let message = format!("`{}` has no text field to search", declared.name.value);
            let help = "remove the operation `search`, or declare a field with `as = \"text\"`";
            self.error(&operation.location, message, help.into());
        }
        searched
    }

    fn find_text_field(&mut self, name: &Located<String>, fields: &[Field]) -> Option<usize> {
        let at = self.find_field(name, fields)?;
        let kind = fields[at].data_type;
        if kind != DataType::Text {
            let message =
                format!("`{}` is {}, and only text fields can be searched", name.value, kind.as_str());
            self.error(&name.location, message, "remove it; a list can filter by it".into());
        }
        (kind == DataType::Text).then_some(at)
    }
}

/// Why a collection has no key.
fn missing_key_reason(table: &TableFacts, fields: &[(usize, Field)]) -> String {
    let is_visible = |at: &usize| fields.iter().any(|(visible, _)| visible == at);
    match table.key.iter().find(|at| !is_visible(at)) {
        Some(hidden) => format!("its key `{}` is hidden", table.columns[*hidden].name),
        None if table.row_count == Some(0) => "it has no rows, so none could be detected".into(),
        None if table.row_count.is_none() => "none is declared, and not all rows were scanned".into(),
        None => "no column of texts, integers or plain dates has a unique value in every row".into(),
    }
}

/// The columns that the fields are read from.
pub(super) fn column_shapes(
    fields: &[(usize, Field)],
    declared: &[manifest::Field],
    facts: &[ColumnFacts],
    null_texts: &[String],
) -> Vec<ColumnShape> {
    let column = |(at, field): &(usize, Field)| ColumnShape {
        source_index: *at,
        name: field.column.clone(),
        data_type: field.data_type,
        nullable: field.nullable,
        mixed: field.mixed,
        null_texts: null_texts_of(declared, null_texts, &field.column).to_vec(),
        format: column_format(declared, &facts[*at], field.data_type),
    };
    fields.iter().map(column).collect()
}

/// The texts that mean NULL in a column.
pub(super) fn null_texts_of<'a>(
    declared: &'a [manifest::Field],
    of_table: &'a [String],
    column: &str,
) -> &'a [String] {
    let field = declared.iter().find(|field| field.column.value == column);
    field.and_then(|field| field.null_texts.as_deref()).unwrap_or(of_table)
}

/// The format of a column: the declared one, else the inferred one, if values of the field's type can be in it.
fn column_format(
    declared: &[manifest::Field],
    facts: &ColumnFacts,
    data_type: DataType,
) -> Option<ColumnFormat> {
    let field = declared.iter().find(|field| field.column.value == facts.name);
    let own = field.and_then(|field| field.formats.as_ref()).and_then(|formats| formats.value.iter().next());
    own.or_else(|| facts.format.clone()).filter(|format| format.is_for(data_type))
}
