//! Opens the sources of a project and introspects them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use contract::diagnostic::Diagnostic;
use contract::humanize::{join_truncated, pluralize};
use contract::manifest::{
    DatabaseSettings, FormulaPolicy, Manifest, SourceKind, SourceSettings, ToolBody, WorkbookFormat,
};
use contract::request::RequestShape;
use contract::source::{
    ColumnFacts, DatabaseEngine, PreparedRequest, PreparedStatement, Query, Reader, RowFlow, Source,
    SourceError, SourceFacts, SourceLocation, StatementShape, TableFacts, TableOptions, TableShape, Writer,
};
use contract::{Collection, Contract, Request, Statement};
use host::{ContractBackends, UnavailableSource};
use source::backups::{BackupPolicy, FILE_BYTES_MAX};
use source::{TablesOptions, csv, json, parquet, sheets, sqlite};

use super::backends::is_collection_written;
use super::databases;
use super::rest_sources;
use super::unavailable::SourceFailure;
use super::{file_name, known_facts, memory, not_found};
use crate::progress::ProgressLine;
use crate::report::SourceSummary;

/// An open source and the facts about its tables.
pub(super) struct LoadedSource {
    pub(super) name: String,
    /// The name that the user knows it by.
    pub(super) display_name: String,
    pub(super) settings: SourceSettings,
    pub(super) source: Arc<dyn Source>,
    pub(super) facts: SourceFacts,
    /// Why the source cannot be read now. The facts are then those of the last time it could.
    pub(super) stale: Option<SourceFailure>,
    /// What the lock file says about the database, if its facts are from there.
    pub(super) locked: Option<serde_json::Value>,
}

/// The code of the error of a database that does not answer.
pub(super) const UNREACHABLE: &str = "unreachable";

pub(super) fn default_settings(kind: SourceKind) -> SourceSettings {
    match kind {
        SourceKind::Sqlite => SourceSettings::Sqlite,
        SourceKind::Csv => SourceSettings::Csv {
            delimiter: None,
            encoding: None,
            null_texts: Vec::new(),
            formulas: FormulaPolicy::default(),
        },
        SourceKind::Xlsx => SourceSettings::Workbook(WorkbookFormat::Xlsx),
        SourceKind::Xls => SourceSettings::Workbook(WorkbookFormat::Xls),
        SourceKind::Ods => SourceSettings::Workbook(WorkbookFormat::Ods),
        SourceKind::Json => SourceSettings::Json { pointer: None },
        SourceKind::JsonLines => SourceSettings::JsonLines,
        SourceKind::Parquet => SourceSettings::Parquet,
        SourceKind::Postgres => SourceSettings::Database(DatabaseSettings::new(DatabaseEngine::Postgres)),
        SourceKind::MySql => SourceSettings::Database(DatabaseSettings::new(DatabaseEngine::MySql)),
        SourceKind::Rest => SourceSettings::Rest(Box::default()),
    }
}

/// The settings to try when the default settings of a file without a manifest do not work: the records of a JSON
/// document may be nested.
pub(super) fn fallback_settings(kind: SourceKind, path: &Path) -> Option<SourceSettings> {
    match kind {
        SourceKind::Json => Some(SourceSettings::Json { pointer: Some(json::find_records(path)?) }),
        SourceKind::Sqlite
        | SourceKind::Csv
        | SourceKind::Xlsx
        | SourceKind::Xls
        | SourceKind::Ods
        | SourceKind::JsonLines
        | SourceKind::Parquet
        | SourceKind::Postgres
        | SourceKind::MySql
        | SourceKind::Rest => None,
    }
}

/// Everything needed to open a source.
pub(super) struct SourceSpec<'a> {
    pub(super) name: &'a str,
    pub(super) location: &'a SourceLocation,
    /// The name that the user knows it by.
    pub(super) display_name: &'a str,
    pub(super) settings: &'a SourceSettings,
    /// How collections declare their tables to be read.
    pub(super) tables: Vec<DeclaredTable<'a>>,
    /// Columns that collections declare, for a file that has no records to infer them from.
    pub(super) declared_columns: Vec<ColumnFacts>,
    pub(super) backups: BackupPolicy,
    /// A larger file is served from an import, if its kind can be.
    pub(super) memory_bytes_max: u64,
    /// The folder of the manifest, which files with secrets are relative to.
    pub(super) folder: &'a Path,
    /// What the manifest says about the collections and requests of a REST API.
    pub(super) rest: Option<rest_sources::DeclaredApi<'a>>,
}

impl SourceSpec<'_> {
    /// Whether the file is too large for memory.
    fn is_large(&self) -> bool {
        let bytes_max = match self.settings {
            SourceSettings::Csv { .. } => self.memory_bytes_max.min(csv::FILE_BYTES_MAX),
            SourceSettings::JsonLines => self.memory_bytes_max.min(json::FILE_BYTES_MAX),
            // It is compressed, so that its size says little.
            SourceSettings::Parquet => {
                let SourceLocation::File(path) = self.location else { return false };
                let bytes_max = self.memory_bytes_max.min(json::FILE_BYTES_MAX);
                return parquet::decoded_bytes(path).is_some_and(|bytes| bytes > bytes_max);
            }
            SourceSettings::Sqlite
            | SourceSettings::Json { .. }
            | SourceSettings::Workbook(_)
            | SourceSettings::Database(_)
            | SourceSettings::Rest(_) => {
                return false;
            }
        };
        self.location.size_bytes().is_some_and(|bytes| bytes > bytes_max)
    }
}

/// A table as a collection declares it to be read.
pub(super) struct DeclaredTable<'a> {
    /// `table` or `sheet`. `None`: the collection's name, or the only table.
    pub(super) table: Option<&'a str>,
    pub(super) collection: &'a str,
    pub(super) options: TableOptions,
}

/// The open sources. A reload reuses them: two sources on one file would see each other's writes late, and would hold
/// its data twice.
#[derive(Clone, Default)]
pub struct Sources {
    open: Vec<OpenSource>,
    collections: Vec<CollectionBackends>,
    /// Statements by their name and shape.
    statements: Vec<StatementBackend>,
    requests: Vec<RequestBackend>,
}

#[derive(Clone)]
struct OpenSource {
    name: String,
    /// The name that the user knows it by.
    display_name: String,
    key: SourceKey,
    source: Arc<dyn Source>,
    /// The facts of the last time it could be read.
    facts: SourceFacts,
    /// [`Source::generation`] at that time.
    generation: u64,
}

/// The reader and writer of a served collection, for a reload while its source cannot be read.
#[derive(Clone)]
pub(super) struct CollectionBackends {
    /// The name and shape of the collection.
    name: String,
    shape: TableShape,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) writer: Option<Arc<dyn Writer>>,
}

/// A statement, and what runs it.
#[derive(Clone)]
struct StatementBackend {
    name: String,
    shape: StatementShape,
    prepared: Arc<dyn PreparedStatement>,
}

/// A request, and what sends it.
#[derive(Clone)]
struct RequestBackend {
    shape: RequestShape,
    prepared: Arc<dyn PreparedRequest>,
}

/// Everything that opening a source depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceKey {
    location: SourceLocation,
    settings: SourceSettings,
    tables: TablesOptions,
    backups: BackupPolicy,
    is_large: bool,
    rest: Option<rest_sources::ApiDeclaration>,
}

impl Sources {
    /// The open sources.
    pub(crate) fn by_name(&self) -> Vec<(String, Arc<dyn Source>)> {
        self.open.iter().map(|one| (one.name.clone(), one.source.clone())).collect()
    }

    /// Opens a source, unless it is open already, and introspects the file as it is now.
    pub(super) fn open(&mut self, served: &Self, spec: &SourceSpec<'_>) -> Result<LoadedSource, Diagnostic> {
        let SourceSpec { name, location, display_name, settings, .. } = *spec;
        let key = SourceKey::from_spec(spec);
        let open = self.open.iter().chain(&served.open).find(|one| one.key == key);
        let source = open.map_or_else(|| open_source(spec), |one| Arc::clone(&one.source));
        let _progress = ProgressLine::reading(display_name, location.size_bytes());
        let mut facts = source.introspect().map_err(|cause| {
            let not_found = not_found::location_diagnostic(display_name, location);
            not_found.unwrap_or_else(|| {
                let error = explain_error(&*source, None, &cause, &location.short_name());
                match (location, &cause) {
                    (SourceLocation::File(path), _) => with_kind_help(error, settings.kind(), path),
                    (SourceLocation::Database(_), SourceError::Unavailable { .. }) => error.code(UNREACHABLE),
                    (SourceLocation::Database(_) | SourceLocation::Rest(_), _) => error,
                }
            })
        })?;
        // After the last record is deleted, the declared fields still allow a new one to be created.
        let has_records = matches!(settings, SourceSettings::Json { .. } | SourceSettings::JsonLines);
        for table in facts.tables.iter_mut().filter(|table| has_records && table.columns.is_empty()) {
            table.columns.clone_from(&spec.declared_columns);
            // A served file that has lost its last record keeps its columns: its calls return no rows, not an error.
            let served = served.open.iter().find(|one| one.key == key && one.name == name);
            let last = served.and_then(|one| one.facts.tables.iter().find(|last| last.name == table.name));
            if let (true, Some(last)) = (table.columns.is_empty(), last) {
                table.columns.clone_from(&last.columns);
                table.key.clone_from(&last.key);
            }
            if let (true, Some(error)) = (table.columns.is_empty(), source.diagnose(None)) {
                return Err(error);
            }
        }
        let open = OpenSource {
            name: name.into(),
            display_name: display_name.into(),
            key,
            source: Arc::clone(&source),
            facts: facts.clone(),
            generation: source.generation(),
        };
        known_facts::store(spec.display_name, settings, &open.facts);
        self.open.push(open);
        Ok(LoadedSource {
            name: name.into(),
            display_name: display_name.into(),
            settings: settings.clone(),
            source,
            facts,
            stale: None,
            locked: None,
        })
    }

    /// Closes the source that was opened before the last one.
    pub(super) fn forget_last_but_one(&mut self) {
        if let Some(at) = self.open.len().checked_sub(2) {
            self.open.remove(at);
        }
    }

    /// A served source that cannot be read any more, with its last known facts; `None` if it is not served.
    pub(super) fn open_stale(
        &mut self,
        served: &Self,
        spec: &SourceSpec<'_>,
        failure: SourceFailure,
    ) -> Option<LoadedSource> {
        let key = SourceKey::from_spec(spec);
        let open = served.open.iter().find(|one| one.key == key && one.name == spec.name)?.clone();
        let loaded = LoadedSource {
            name: open.name.clone(),
            display_name: spec.display_name.into(),
            settings: spec.settings.clone(),
            source: Arc::clone(&open.source),
            facts: open.facts.clone(),
            stale: Some(failure),
            locked: None,
        };
        self.open.push(open);
        Some(loaded)
    }

    /// A database that cannot be reached, with the facts that an earlier process has read, else those of the lock file; `None` if there
    /// are none.
    pub(super) fn open_known(
        &mut self,
        spec: &SourceSpec<'_>,
        locked: Option<serde_json::Value>,
        failure: SourceFailure,
    ) -> Option<LoadedSource> {
        let (facts, locked) = match known_facts::load(spec.display_name, spec.settings) {
            Some(facts) => (facts, None),
            None => (known_facts::from_lock(locked.as_ref()?)?, locked),
        };
        let source = open_source(spec);
        self.open.push(OpenSource {
            name: spec.name.into(),
            display_name: spec.display_name.into(),
            key: SourceKey::from_spec(spec),
            source: Arc::clone(&source),
            facts: facts.clone(),
            generation: source.generation(),
        });
        Some(LoadedSource {
            name: spec.name.into(),
            display_name: spec.display_name.into(),
            settings: spec.settings.clone(),
            source,
            facts,
            stale: Some(failure),
            locked,
        })
    }

    /// What the lock file says about the databases, by the name of the source.
    pub(crate) fn facts_to_lock(&self, manifest: &Manifest) -> BTreeMap<String, serde_json::Value> {
        let settings = |name: &str| manifest.sources.iter().find(|source| source.name.value == name);
        let is_database = |open: &&OpenSource| {
            settings(&open.name).is_some_and(|one| matches!(one.settings, SourceSettings::Database(_)))
        };
        let facts = |open: &OpenSource| {
            let own = manifest.tools.iter().filter_map(|tool| match &tool.body {
                ToolBody::Statement(statement) if statement.source.value == open.name => {
                    let sql = statement.sql.value.as_str();
                    Some((sql, open.source.describe_statement(sql).ok()?))
                }
                _ => None,
            });
            (open.name.clone(), known_facts::to_lock(&open.facts, &own.collect::<Vec<_>>()))
        };
        self.open.iter().filter(is_database).map(facts).collect()
    }

    /// Whether a source should be read again although no file has changed.
    pub(crate) fn take_suspicion(&self) -> bool {
        // Each is asked, because asking resets it.
        self.open.iter().filter(|one| one.source.take_suspicion()).count() > 0
    }

    /// Remembers the backends of a contract that is about to be served.
    pub(super) fn keep_backends(&mut self, contract: &Contract, backends: &ContractBackends) {
        self.collections.clear();
        self.statements.clear();
        self.requests.clear();
        self.add_backends(contract, backends);
        let roles = contract.roles.iter().flat_map(|roles| &roles.roles);
        for (role, backends) in roles.zip(&backends.roles) {
            self.add_backends(&role.contract, backends);
        }
    }

    fn add_backends(&mut self, contract: &Contract, backends: &ContractBackends) {
        let pairs = backends.readers.iter().zip(&backends.writers);
        for (collection, (reader, writer)) in contract.collections.iter().zip(pairs) {
            if self.kept_collection(collection).is_none() {
                self.collections.push(CollectionBackends {
                    name: collection.name.clone(),
                    shape: collection.shape.clone(),
                    reader: Arc::clone(reader),
                    writer: writer.clone(),
                });
            }
        }
        for (statement, prepared) in contract.statements.iter().zip(&backends.statements) {
            if self.kept_statement(statement).is_none() {
                self.statements.push(StatementBackend {
                    name: statement.result.name.clone(),
                    shape: statement.shape.clone(),
                    prepared: Arc::clone(prepared),
                });
            }
        }
        for (request, prepared) in contract.requests.iter().zip(&backends.requests) {
            if self.requests.iter().all(|one| one.shape != request.shape) {
                self.requests
                    .push(RequestBackend { shape: request.shape.clone(), prepared: Arc::clone(prepared) });
            }
        }
    }

    /// APIs whose last requests failed, with the reason. Sends nothing.
    pub(crate) fn failing_apis(&self) -> Vec<UnavailableSource> {
        let apis = self.open.iter().filter(|one| one.key.settings.kind() == SourceKind::Rest);
        let failing = |one: &OpenSource| {
            let error = one.source.diagnose(None)?;
            Some(UnavailableSource {
                name: one.display_name.clone(),
                reason: error.message,
                is_readable: false,
            })
        };
        apis.filter_map(failing).collect()
    }

    /// Sources with a served collection that cannot be listed any more, with the reason.
    pub(crate) fn unreadable(&self, contract: &Contract) -> Vec<UnavailableSource> {
        let mut found = self.failing_apis();
        for collection in &contract.collections {
            let Some(open) = self.open.iter().find(|one| one.name == collection.source) else { continue };
            let Some(kept) = self.kept_collection(collection) else { continue };
            // A list of an API may be hundreds of requests; the last one says enough.
            if open.key.settings.kind() == SourceKind::Rest {
                continue;
            }
            // Not by creating a reader, which is strict: a served one lists what it can, a duplicate key for example.
            let query = Query { rows_max: 1, ..Query::default() };
            let Err(error) = kept.reader.list(&query, &mut |_, _| RowFlow::Stop) else { continue };
            let reason = error_message(&error, &file_name(open.display_name.as_ref()));
            if found.iter().all(|one| one.name != open.display_name) {
                let name = open.display_name.clone();
                found.push(UnavailableSource { name, reason, is_readable: false });
            }
        }
        found
    }

    /// Notes about databases that are written, and are too large for a copy before that.
    pub(super) fn without_backups(&self, contract: &Contract) -> Vec<Diagnostic> {
        let is_large = |one: &&OpenSource| {
            one.key.settings == SourceSettings::Sqlite
                && one.key.backups == BackupPolicy::Daily
                && one.key.location.size_bytes().is_some_and(|bytes| bytes > FILE_BYTES_MAX)
        };
        let large = self.open.iter().filter(is_large).filter(|one| is_written(contract, &one.name));
        large.map(|one| without_backups_note(&one.display_name)).collect()
    }

    pub(super) fn kept_collection(&self, collection: &Collection) -> Option<&CollectionBackends> {
        self.collections.iter().find(|one| one.name == collection.name && one.shape == collection.shape)
    }

    pub(super) fn kept_statement(&self, statement: &Statement) -> Option<Arc<dyn PreparedStatement>> {
        let is_same =
            |one: &&StatementBackend| one.name == statement.result.name && one.shape == statement.shape;
        self.statements.iter().find(is_same).map(|one| Arc::clone(&one.prepared))
    }

    pub(super) fn kept_request(&self, request: &Request) -> Option<Arc<dyn PreparedRequest>> {
        let kept = self.requests.iter().find(|one| one.shape == request.shape);
        kept.map(|one| Arc::clone(&one.prepared))
    }

    /// Whether these are the same sources under the same names, with the same tables.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let keys = |sources: &Self| -> Vec<(String, SourceKey, u64)> {
            sources.open.iter().map(|one| (one.name.clone(), one.key.clone(), one.generation)).collect()
        };
        keys(self) == keys(other)
    }
}

impl SourceKey {
    fn from_spec(spec: &SourceSpec<'_>) -> Self {
        Self {
            location: spec.location.clone(),
            settings: spec.settings.clone(),
            tables: tables_options(spec),
            backups: spec.backups,
            is_large: spec.is_large(),
            rest: spec.rest.as_ref().map(rest_sources::DeclaredApi::declaration),
        }
    }
}

/// Creates the source. Nothing is read yet.
fn open_source(spec: &SourceSpec<'_>) -> Arc<dyn Source> {
    match spec.location {
        SourceLocation::File(path) => open_file(path, spec),
        SourceLocation::Database(url) => databases::open(url, spec),
        SourceLocation::Rest(url) => rest_sources::open(url, spec),
    }
}

fn open_file(path: &Path, spec: &SourceSpec<'_>) -> Arc<dyn Source> {
    let backups = spec.backups;
    match spec.settings {
        SourceSettings::Csv { delimiter, encoding, null_texts, formulas } => {
            let mut table = only_table_options(spec);
            if table.null_texts.is_empty() {
                table.null_texts.clone_from(null_texts);
            }
            let options = csv::Options {
                delimiter: *delimiter,
                encoding: *encoding,
                table,
                formulas: *formulas,
                backups,
                ..csv::Options::default()
            };
            match spec.is_large() {
                true => Arc::new(csv::LargeCsv::open(path, options, &memory::import_folder())),
                false => Arc::new(csv::Csv::open(path, options)),
            }
        }
        SourceSettings::Sqlite => {
            Arc::new(sqlite::Sqlite::new(path, sqlite::Options { backups, ..sqlite::Options::default() }))
        }
        SourceSettings::Json { pointer } => {
            let layout = json::JsonLayout::Document { pointer: pointer.clone() };
            let options =
                json::Options { table: only_table_options(spec), backups, ..json::Options::new(layout) };
            Arc::new(json::open(path, options))
        }
        SourceSettings::JsonLines if spec.is_large() => {
            Arc::new(json::open_large_lines(path, only_table_options(spec), &memory::import_folder()))
        }
        SourceSettings::JsonLines => {
            let layout = json::JsonLayout::Lines;
            let options =
                json::Options { table: only_table_options(spec), backups, ..json::Options::new(layout) };
            Arc::new(json::open(path, options))
        }
        SourceSettings::Parquet if spec.is_large() => {
            Arc::new(parquet::open_large(path, only_table_options(spec), &memory::import_folder()))
        }
        SourceSettings::Parquet => Arc::new(parquet::open(path, only_table_options(spec))),
        SourceSettings::Workbook(workbook) => {
            let mut options = sheets::Options { backups, ..sheets::Options::new(*workbook) };
            options.tables = tables_options(spec);
            Arc::new(sheets::open(path, options))
        }
        // A URL is not a file: its location is another one.
        SourceSettings::Database(_) => Arc::new(databases::Unusable::not_a_url()),
        SourceSettings::Rest(_) => Arc::new(databases::Unusable::not_an_api()),
    }
}

/// The options of a file that is one table. If several collections use it, the first with options decides.
fn only_table_options(spec: &SourceSpec<'_>) -> TableOptions {
    let mut declared = spec.tables.iter().map(|table| &table.options);
    declared.find(|options| **options != TableOptions::default()).cloned().unwrap_or_default()
}

/// The options of each table, by the name that its collection refers to it with.
fn tables_options(spec: &SourceSpec<'_>) -> TablesOptions {
    // Without options, a table is read the same under any name: the file is opened once.
    let declared = spec.tables.iter().filter(|one| one.options != TableOptions::default());
    let named = declared.map(|one| (one.table.unwrap_or(one.collection).to_owned(), one.options.clone()));
    // Without a name, it is the only table, whatever that is called.
    let others = match &spec.tables[..] {
        [one] if one.table.is_none() => one.options.clone(),
        _ => TableOptions::default(),
    };
    TablesOptions { named: named.collect(), others }
}

/// Suggests the kind that the extension names, if the manifest names another.
fn with_kind_help(error: Diagnostic, kind: SourceKind, path: &Path) -> Diagnostic {
    let Some(meant) = SourceKind::from_path(&file_name(path)).filter(|meant| *meant != kind) else {
        return error;
    };
    let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
    let suggestion = format!("set `kind = \"{}\"`: the extension is `.{extension}`", meant.as_str());
    let help = match &error.help {
        Some(help) => format!("{help}, or {suggestion}"),
        None => suggestion,
    };
    error.help(help)
}

/// Why a source cannot be read: the diagnosis of the source if it has one, otherwise the error.
pub(super) fn explain_error(
    source: &dyn Source,
    shape: Option<&TableShape>,
    error: &SourceError,
    file: &str,
) -> Diagnostic {
    source.diagnose(shape).unwrap_or_else(|| Diagnostic::error(error_message(error, file)))
}

/// An error as the operator sees it, with the name of the file, which callers do not get.
pub(crate) fn error_message(error: &SourceError, file: &str) -> String {
    match error {
        SourceError::Busy { .. } => {
            format!("`{file}` is locked by another program; try again when that program has finished")
        }
        SourceError::Timeout => format!("reading `{file}` took too long"),
        SourceError::Unavailable { detail, .. } | SourceError::Refused { detail, .. } => {
            with_detail(error, detail)
        }
        SourceError::Cancelled
        | SourceError::WouldBlock
        | SourceError::StaleCursor
        | SourceError::TooManyGroups { .. }
        | SourceError::TooMuchToRead { .. }
        | SourceError::InvalidArgument { .. }
        | SourceError::Overloaded { .. }
        | SourceError::Incompatible { .. } => error.to_string(),
    }
}

/// The operator learns what the driver of a database said; callers do not.
fn with_detail(error: &SourceError, detail: &str) -> String {
    let message = error.to_string();
    if detail.is_empty() || detail == message { message } else { format!("{message}: {detail}") }
}

/// The report lists at most this many links of one table.
const LINKS_SHOWN_MAX: usize = 6;
/// The report lists at most this many tables of one source.
const TABLES_SHOWN_MAX: usize = 30;

/// Describes a source with the keys that are served, which the manifest may have chosen.
/// `declares_key` tells whether the author chose the key of a collection.
pub(super) fn describe_source(
    one: &LoadedSource,
    contract: Option<&Contract>,
    declares_key: &dyn Fn(&str) -> bool,
) -> SourceSummary {
    let tables = &one.facts.tables;
    let describe = |table| describe_table(one, table, contract, declares_key);
    let mut lines: Vec<String> = tables.iter().take(TABLES_SHOWN_MAX).map(describe).collect();
    if let Some(more) = tables.len().checked_sub(TABLES_SHOWN_MAX).filter(|more| *more > 0) {
        lines.push(format!("and {more} more tables"));
    }
    lines.extend(one.facts.notes.iter().cloned());
    SourceSummary { name: one.display_name.clone(), lines }
}

fn describe_table(
    one: &LoadedSource,
    table: &TableFacts,
    contract: Option<&Contract>,
    declares_key: &dyn Fn(&str) -> bool,
) -> String {
    let is_it = |c: &&Collection| c.source == one.name && c.shape.table == table.name;
    let served = contract.and_then(|contract| contract.collections.iter().find(is_it));
    let key: Vec<usize> = match served {
        Some(served) => {
            served.shape.key.iter().map(|column| served.shape.columns[*column].source_index).collect()
        }
        None => table.key.clone(),
    };
    let rows = table.row_count.map_or_else(|| "rows not counted".into(), |rows| pluralize(rows, "row"));
    let field_name = |index: &usize| {
        let columns = &served?.shape.columns;
        let at = columns.iter().position(|column| column.source_index == *index)?;
        Some(served?.fields[at].name.clone())
    };
    let column_name = |index: &usize| {
        let name = table.columns[*index].name.trim();
        let is_repeated = table.columns.iter().filter(|column| column.name.trim() == name).count() > 1;
        match name {
            "" => format!("column {}", index + 1),
            name if is_repeated => {
                let name = field_name(index).unwrap_or_else(|| name.to_owned());
                format!("{name} (column {})", index + 1)
            }
            name => name.to_owned(),
        }
    };
    let names: Vec<String> = key.iter().map(column_name).collect();
    let is_chosen = table.key_is_declared || served.is_some_and(|served| declares_key(&served.name));
    let guessed = if is_chosen { "" } else { " (guessed)" };
    let key = if names.is_empty() { "no key".into() } else { format!("key {}{guessed}", names.join(" + ")) };
    let links: Vec<&str> =
        served.iter().flat_map(|served| &served.links).map(|link| link.name.as_str()).collect();
    let links = match links.is_empty() {
        true => String::new(),
        false => format!(", links {}", join_truncated(&links, LINKS_SHOWN_MAX)),
    };
    format!("{}: {rows}, {}, {key}{links}", table.name, pluralize(table.columns.len() as u64, "column"))
}

/// Whether a collection or a statement of the source writes.
fn is_written(contract: &Contract, source: &str) -> bool {
    let mut collections = contract.collections.iter().enumerate();
    collections.any(|(at, one)| one.source == source && is_collection_written(contract, at))
        || contract.statements.iter().any(|one| one.source == source && one.shape.writes)
}

/// What the role of a database could do beyond what is served. A role that only may write, where writes are served, is as it should be.
pub(super) fn role_warning(one: &LoadedSource, contract: &Contract) -> Option<Diagnostic> {
    let role = one.facts.role.as_ref()?;
    let needed = if is_written(contract, &one.name) { &[][..] } else { &role.writes };
    let clauses: Vec<&str> = role.powers.iter().chain(needed).map(String::as_str).collect();
    if clauses.is_empty() {
        return None;
    }
    let message = format!(
        "the role `{}` of `{}` can do more than it is needed for: {}",
        role.name,
        one.display_name,
        clauses.join(", ")
    );
    let help = "connect with a role that has only the rights that are served; `require_readonly_role = true` refuses one that \
                could write";
    Some(Diagnostic::warning(message).code("role").help(help))
}

fn without_backups_note(file: &str) -> Diagnostic {
    let max_mb = FILE_BYTES_MAX >> 20;
    let message = format!("`{file}` is larger than {max_mb} MB, so no copy is kept before it is written");
    let help = "back it up yourself; `[server] backups = false` silences this note";
    Diagnostic::note(message).code("no_backup").help(help)
}
