//! The tools of a collection: one for each operation, under its generated name or the names the author gives it.

use super::collection::{ToolFields, has_operation};
use super::links::CollectionEntry;
use super::{CompiledTool, Compiler};
use crate::bind::{self, FilterSuffix, Scope};
use crate::contract::{Collection, Confirm, Tool, ToolOperation};
use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, Located};
use crate::humanize::{capitalize, join_or_truncated};
use crate::manifest::{self, CollectionOperation, Manifest, Operation, SourceKind};
use crate::names;
use crate::schemas::{self, OfferedFilters};
use crate::source::{AggregateFunction, WordMatching, WriteCapabilities};

impl<'m> Compiler<'m> {
    pub(super) fn compile_tools(
        &mut self,
        entry: &CollectionEntry<'m>,
        collections: &[Collection],
        collection_index: usize,
        tools: &mut Vec<CompiledTool<'m>>,
    ) {
        let (collection, tool_fields) = (&collections[collection_index], &entry.tool_fields);
        let declared = entry.declared;
        let builder = ToolBuilder {
            declared,
            collection,
            collections,
            tool_fields,
            collection_index,
            labels: CollectionLabels::new(self.manifest, collection),
        };
        for operation in Operation::ALL {
            let renamed: Vec<(&manifest::Tool, &Located<CollectionOperation>)> = self
                .renamed_tools()
                .filter(|(_, uses)| {
                    uses.value.collection == collection.name && uses.value.operation == operation
                })
                .collect();
            if !has_operation(declared, operation) {
                for (_, uses) in renamed {
                    let message =
                        format!("`{}` does not have the operation `{}`", collection.name, operation.as_str());
                    self.error(&uses.location, message, "add it to the collection's `operations`".into());
                }
                continue;
            }
            // Only a default operation has nothing to search.
            if operation == Operation::Search
                && tool_fields.search.is_empty()
                && declared.operations.is_none()
            {
                for (_, uses) in renamed {
                    let message = format!("`{}` has no text field to search", collection.name);
                    self.error(&uses.location, message, "remove the tool".into());
                }
                continue;
            }
            let needs_key = matches!(operation, Operation::Get | Operation::Update | Operation::Delete);
            if needs_key && collection.shape.key.is_empty() {
                self.report_missing_key(declared, &tool_fields.missing_key_reason, operation, &renamed);
                continue;
            }
            if renamed.is_empty() {
                let name = names::tool_name(operation.as_str(), &collection.name);
                tools.push(CompiledTool { tool: builder.build(name, operation), name_location: None });
            }
            for (declared_tool, _) in renamed.into_iter().filter(|(tool, _)| !tool.hidden) {
                let name = &declared_tool.name;
                if operation.writes() {
                    let capabilities = collection.write_capabilities();
                    self.check_tool_confirm(declared_tool, &collection.source, capabilities);
                }
                let mut tool = builder.build(name.value.clone(), operation);
                tool.title = Some(title_from_name(&name.value));
                Self::apply_tool_settings(&mut tool, declared_tool, operation.writes());
                let template = declared_tool.text_template.as_ref();
                tool.text_template = template.and_then(|text| self.parse_template(text, collection));
                tools.push(CompiledTool { tool, name_location: Some(&name.location) });
            }
        }
    }

    /// Checks that the source can roll back a change until the user agrees to it, if the tool demands that.
    pub(super) fn check_tool_confirm(
        &mut self,
        declared: &manifest::Tool,
        source: &str,
        capabilities: WriteCapabilities,
    ) {
        if declared.confirm == Some(Confirm::Ask) {
            let at = &declared.name.location;
            self.require(source, capabilities, capabilities.confirmation(), "confirm", at);
        }
    }

    /// Applies the settings that every kind of tool has.
    pub(super) fn apply_tool_settings(tool: &mut Tool, declared: &manifest::Tool, writes: bool) {
        if let Some(title) = &declared.title {
            tool.title = Some(title.clone());
        }
        if let Some(description) = &declared.description {
            tool.description.clone_from(description);
        }
        tool.rate_limit = declared.rate_limit;
        tool.call_timeout_ms = declared.call_timeout_ms;
        tool.long_running = declared.long_running;
        if writes {
            tool.confirm = declared.confirm.unwrap_or(tool.confirm);
        }
    }

    /// An error where the author names an operation that needs a key; a note where the operation is a default.
    fn report_missing_key(
        &mut self,
        declared: &manifest::Collection,
        reason: &str,
        operation: Operation,
        renamed: &[(&manifest::Tool, &Located<CollectionOperation>)],
    ) {
        let requested = declared.operations.iter().flatten().find(|one| one.value == operation);
        let message = format!("`{}` has no key: {reason}", declared.name.value);
        let help = "name the key column with `key = \"…\"`, or several with `key = [\"…\", \"…\"]`";
        let location = requested.map(|one| &one.location).or(renamed.first().map(|(_, uses)| &uses.location));
        match location {
            Some(location) => self.error(location, message, help.into()),
            None => {
                let note = Diagnostic::note(format!("{message}; it has no `get`"));
                self.diagnostics.push(note.at(&declared.name.location).help(help));
            }
        }
    }
}

/// `Top plans` for a tool that its author calls `top_plans`.
pub(super) fn title_from_name(name: &str) -> String {
    capitalize(&name.replace(['_', '-'], " "))
}

/// Everything that the tools of one collection are built from.
struct ToolBuilder<'a> {
    declared: &'a manifest::Collection,
    collection: &'a Collection,
    /// All collections of the contract.
    collections: &'a [Collection],
    tool_fields: &'a ToolFields,
    /// The collection's place in the contract.
    collection_index: usize,
    labels: CollectionLabels,
}

/// What the owner of the data calls a collection.
pub(super) struct CollectionLabels {
    /// For a title: `Stock List`, `customers`.
    short: String,
    /// For a description: `"Stock List" (inventory.xlsx)`, `customers.csv`.
    pub(super) full: String,
    /// The name of its file.
    pub(super) file: String,
}

impl CollectionLabels {
    pub(super) fn new(manifest: &Manifest, collection: &Collection) -> Self {
        let table = || schemas::plain_text(&collection.shape.table);
        let source = manifest.sources.iter().find(|source| source.name.value == collection.source);
        let Some(source) = source else {
            return Self { short: table(), full: table(), file: collection.source.clone() };
        };
        let file = schemas::plain_text(&source.location.value.short_name());
        match source.settings.kind() {
            SourceKind::Sqlite
            | SourceKind::Postgres
            | SourceKind::MySql
            | SourceKind::Xlsx
            | SourceKind::Xls
            | SourceKind::Ods => {
                let is_same = |one: &&manifest::Collection| {
                    let name = one.table.as_ref().unwrap_or(&one.name);
                    name.value == collection.shape.table && one.source.value != collection.source
                };
                // Every workbook has a "Sheet1".
                let short = match manifest.collections.iter().find(is_same) {
                    Some(_) => format!("{} ({file})", table()),
                    None => table(),
                };
                Self { full: format!("\"{}\" ({file})", table()), short, file }
            }
            SourceKind::Rest => Self { short: table(), full: format!("{} ({file})", table()), file },
            // Such a file is one table.
            SourceKind::Csv | SourceKind::Json | SourceKind::JsonLines | SourceKind::Parquet => {
                let stem = file.rsplit_once('.').map_or(file.as_str(), |(stem, _)| stem);
                Self { short: stem.to_owned(), full: file.clone(), file }
            }
        }
    }

    /// A short phrase in sentence case, for people who choose from a list of tools.
    fn title(&self, operation: Operation) -> String {
        let short = &self.short;
        match operation {
            Operation::Get => format!("Get a row of {short}"),
            Operation::List => format!("List rows of {short}"),
            Operation::Search => format!("Search {short}"),
            Operation::Aggregate => format!("Summarize {short}"),
            Operation::Create => format!("Add a row to {short}"),
            Operation::Update => format!("Update a row of {short}"),
            Operation::Delete => format!("Delete a row of {short}"),
        }
    }
}

impl ToolBuilder<'_> {
    fn build(&self, name: String, operation: Operation) -> Tool {
        let description = match &self.declared.description {
            Some(about) => format!("{} {about}", self.description(operation)),
            None => self.description(operation),
        };
        let (schemas, tool_operation) = self.interface(operation);
        let title = self.labels.title(operation);
        let asks = matches!(operation, Operation::Update | Operation::Delete);
        let confirm = if asks { self.declared.confirm } else { Confirm::Never };
        Tool { confirm, ..new_tool(name, title, description, schemas, tool_operation) }
    }

    /// What the tool does, to which data, and what a model must know to call it well.
    fn description(&self, operation: Operation) -> String {
        let data = &self.labels.full;
        match operation {
            Operation::Get => format!("Get one row of {data} by {}.", self.key_names()),
            Operation::List => format!("List rows of {data}, one page at a time.{}", self.filter_sentence()),
            Operation::Aggregate => {
                let functions = match (self.has_numbers(), self.has_measures()) {
                    (true, _) => "counts, sums, averages, minima and maxima",
                    (false, true) => "counts, minima and maxima",
                    (false, false) => "counts",
                };
                let list = match self.has_list() {
                    true => format!(" Use it instead of paging through {}.", self.list_name()),
                    false => String::new(),
                };
                let zone = match self.collection.time_zone {
                    _ if !self.has_time_zones() => String::new(),
                    None => " Dates are in UTC.".to_owned(),
                    Some(zone) => format!(" Dates are in {}.", zone.name()),
                };
                let filters = self.short_filter_sentence();
                format!(
                    "Get {functions} over all rows of {data} that match, in total or by group.{list}{zone}{filters}"
                )
            }
            Operation::Search => {
                let fields = &self.tool_fields.search;
                let names: Vec<&str> =
                    fields.iter().map(|at| self.collection.fields[*at].name.as_str()).collect();
                let names = join_or_truncated(&names, FIELDS_NAMED_MAX);
                let filters = self.short_filter_sentence();
                match &self.tool_fields.word_matching {
                    None => {
                        format!("Search {data}: rows that contain every word of `query` in {names}.{filters}")
                    }
                    Some(WordMatching::Beginnings) => format!(
                        "Search {data}: rows in which words of {names} begin with every word of `query`.{filters}"
                    ),
                    Some(WordMatching::Dictionary(name)) => format!(
                        "Search {data}: rows that have every word of `query` as a whole word in {names}. Forms of a word \
                         match each other, and very common words do not count, by the dictionary `{name}`.{filters}"
                    ),
                }
            }
            Operation::Create => format!("Add one row to {data}."),
            Operation::Update => {
                let asks = self.confirmation_sentence();
                let key = self.key_names();
                format!(
                    "Update one row of {data}, found by {key}. Columns that are not given keep their values.{asks}"
                )
            }
            Operation::Delete => {
                let asks = self.confirmation_sentence();
                format!("Delete one row of {data}, found by {}.{asks}", self.key_names())
            }
        }
    }

    fn key_names(&self) -> String {
        self.collection.key_fields().map(|field| field.name.as_str()).collect::<Vec<_>>().join(" and ")
    }

    fn confirmation_sentence(&self) -> &'static str {
        match self.declared.confirm {
            Confirm::Ask => " The user is asked first.",
            Confirm::Never => "",
        }
    }

    /// Which columns the rows can be filtered by, and how filters compare, with columns of this table as examples.
    fn filter_sentence(&self) -> String {
        let filters = &self.tool_fields.filters;
        if filters.is_empty() {
            return String::new();
        }
        let examples: Vec<String> = FilterSuffix::ALL
            .into_iter()
            .filter_map(|suffix| {
                let note = match suffix {
                    FilterSuffix::Max => " (both inclusive)",
                    FilterSuffix::Null => " (true or false)",
                    FilterSuffix::Min | FilterSuffix::Not | FilterSuffix::Contains | FilterSuffix::Starts => {
                        ""
                    }
                };
                Some(format!("{}{}{note}", self.filter_example(suffix)?, suffix.as_str()))
            })
            .collect();
        let mut linked = match self.linked_example() {
            Some(example) => format!(" Columns of linked rows filter too: {example}."),
            None => String::new(),
        };
        if let Some(link) = bind::countable(self.collection).find(|link| !link.is_to_one()) {
            linked += &format!(" {}_null: true for rows without {0}.", link.name);
        }
        format!(
            " Filter by {} with a value, or an array of values of which one must match. \
             Suffixes compare otherwise: {}.{linked}",
            self.filter_columns(),
            examples.join(", ")
        )
    }

    /// The same for a tool beside a list, which describes them.
    fn short_filter_sentence(&self) -> String {
        if self.tool_fields.filters.is_empty() {
            return String::new();
        }
        if !self.has_list() {
            return self.filter_sentence();
        }
        format!(" Filters are as in {}.", self.list_name())
    }

    /// `any column`, or their names.
    fn filter_columns(&self) -> String {
        let fields = &self.collection.fields;
        let filters = &self.tool_fields.filters;
        if fields.iter().filter(|field| field.data_type.is_scalar()).count() == filters.len() {
            return "any column".to_owned();
        }
        let names: Vec<&str> = filters.iter().map(|at| fields[*at].name.as_str()).collect();
        join_or_truncated(&names, FIELDS_NAMED_MAX)
    }

    /// A column that takes the suffix, preferably not the key: nobody asks for a range of keys.
    fn filter_example(&self, suffix: FilterSuffix) -> Option<&str> {
        let fields = &self.collection.fields;
        let applies = |at: &&usize| suffix.applies_to(&fields[**at]);
        let is_key = |at: &&usize| self.collection.shape.key.contains(*at);
        let filters = || self.tool_fields.filters.iter().filter(applies);
        let at = filters().find(|at| !is_key(at)).or_else(|| filters().next())?;
        Some(&fields[*at].name)
    }

    /// A field behind a link, as an argument: `customer.country`.
    fn linked_example(&self) -> Option<String> {
        schemas::linked_example(self.scope())
    }

    fn scope(&self) -> Scope<'_> {
        Scope::new(self.collections, self.collection_index)
    }

    fn list_name(&self) -> String {
        names::tool_name("list", &self.collection.name)
    }

    fn offered_filters(&self) -> OfferedFilters<'_> {
        let ToolFields { filters, listed_filters, .. } = self.tool_fields;
        OfferedFilters { listed: listed_filters, has_others: listed_filters.len() < filters.len() }
    }

    fn has_list(&self) -> bool {
        has_operation(self.declared, Operation::List)
    }

    /// Whether a column can be added up.
    fn has_numbers(&self) -> bool {
        let mut fields = self.collection.fields.iter();
        fields.any(|field| bind::is_measurable(field, AggregateFunction::Sum))
    }

    /// Whether anything but rows can be counted.
    fn has_measures(&self) -> bool {
        let mut fields = self.collection.fields.iter();
        fields.any(|field| bind::is_measurable(field, AggregateFunction::Min))
    }

    fn has_time_zones(&self) -> bool {
        self.collection.fields.iter().any(|field| field.data_type == DataType::Timestamp)
    }

    /// The input and output schemas, and the operation they belong to.
    fn interface(&self, operation: Operation) -> ((json::Json, json::Json), ToolOperation) {
        let Self { collection, tool_fields, collection_index: index, .. } = *self;
        let writable = &tool_fields.writable;
        match operation {
            Operation::Get => {
                let input = schemas::get_input_schema(self.scope());
                let schemas = (input, schemas::get_output_schema(collection));
                (schemas, ToolOperation::Get { collection: index })
            }
            Operation::List => {
                let (filters, sorts) = (tool_fields.filters.clone(), tool_fields.sorts.clone());
                let input = schemas::list_input_schema(self.scope(), self.offered_filters(), &sorts);
                let operation = ToolOperation::List { collection: index, filters, sorts };
                ((input, schemas::list_output_schema(collection)), operation)
            }
            Operation::Aggregate => {
                let filters = tool_fields.filters.clone();
                let input =
                    schemas::aggregate_input_schema(self.scope(), self.offered_filters(), self.has_list());
                let output = schemas::aggregate_output_schema(collection);
                ((input, output), ToolOperation::Aggregate { collection: index, filters })
            }
            Operation::Search => {
                let (fields, filters) = (tool_fields.search.clone(), tool_fields.filters.clone());
                let input =
                    schemas::search_input_schema(self.scope(), self.offered_filters(), self.has_list());
                let output = schemas::search_output_schema(collection);
                let scan_rows_max = self.declared.search_rows_max as usize;
                ((input, output), ToolOperation::Search { collection: index, fields, filters, scan_rows_max })
            }
            Operation::Create => {
                let input = schemas::create_input_schema(collection, &writable.create, &writable.required);
                let output = schemas::write_output_schema(collection, &["created"]);
                let fields = writable.create.clone();
                ((input, output), ToolOperation::Create { collection: index, fields })
            }
            Operation::Update => {
                let input = schemas::update_input_schema(collection, &writable.update);
                let output = schemas::write_output_schema(collection, &["updated", "unchanged"]);
                let fields = writable.update.clone();
                ((input, output), ToolOperation::Update { collection: index, fields })
            }
            Operation::Delete => {
                let output = schemas::write_output_schema(collection, &["deleted"]);
                let schemas = (schemas::delete_input_schema(collection), output);
                (schemas, ToolOperation::Delete { collection: index })
            }
        }
    }
}

/// A tool with the default settings.
pub(super) fn new_tool(
    name: String,
    title: String,
    description: String,
    (input, output): (json::Json, json::Json),
    operation: ToolOperation,
) -> Tool {
    Tool {
        name,
        title: Some(title),
        description,
        input_schema: input,
        output_schema: output,
        operation,
        text_template: None,
        rate_limit: None,
        call_timeout_ms: None,
        long_running: false,
        confirm: Confirm::Never,
    }
}

/// A description names no more fields than this.
const FIELDS_NAMED_MAX: usize = 6;
