//! The files that a project reads, opened and looked at.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::diagnostic::Diagnostic;
use contract::humanize::pluralize;
use contract::manifest::{FormulaPolicy, SourceKind, SourceSettings, WorkbookFormat};
use contract::source::{ColumnFacts, Source, SourceError, SourceFacts, TableShape};
use contract::{Collection, Contract};
use source::{csv, json, sheets, sqlite};

use super::{file_name, not_found};
use crate::progress::ProgressLine;

/// A source that was opened, and what it holds.
pub(super) struct LoadedSource {
    pub(super) name: String,
    /// As people know it.
    pub(super) display_name: String,
    pub(super) settings: SourceSettings,
    pub(super) source: Arc<dyn Source>,
    pub(super) facts: SourceFacts,
}

pub(super) fn default_settings(kind: SourceKind) -> SourceSettings {
    match kind {
        SourceKind::Sqlite => SourceSettings::Sqlite,
        SourceKind::Csv => {
            SourceSettings::Csv { delimiter: None, null_text: None, formulas: FormulaPolicy::default() }
        }
        SourceKind::Xlsx => SourceSettings::Workbook(WorkbookFormat::Xlsx),
        SourceKind::Xls => SourceSettings::Workbook(WorkbookFormat::Xls),
        SourceKind::Ods => SourceSettings::Workbook(WorkbookFormat::Ods),
        SourceKind::Json => SourceSettings::Json { pointer: None },
        SourceKind::JsonLines => SourceSettings::JsonLines,
    }
}

/// As what a file is opened that nobody said anything about, if not as its ending says: a JSON document may have its
/// records inside.
pub(super) fn fallback_settings(kind: SourceKind, path: &Path) -> Option<SourceSettings> {
    match kind {
        SourceKind::Json => Some(SourceSettings::Json { pointer: Some(json::find_records(path)?) }),
        SourceKind::Sqlite
        | SourceKind::Csv
        | SourceKind::Xlsx
        | SourceKind::Xls
        | SourceKind::Ods
        | SourceKind::JsonLines => None,
    }
}

/// How a source is opened.
pub(super) struct SourceSpec<'a> {
    pub(super) name: &'a str,
    pub(super) path: &'a Path,
    /// As people know it.
    pub(super) display_name: &'a str,
    pub(super) settings: &'a SourceSettings,
    /// Collections that say which row of their sheet has the names: the sheet, if it is said, and the row.
    pub(super) header_rows: Vec<(Option<&'a str>, u32)>,
    /// What collections declare, for a file that says nothing itself.
    pub(super) declared_columns: Vec<ColumnFacts>,
}

/// Sources that are open. What is served anew goes on with them: two on one file would each know of a write at their
/// own time, and hold the file twice.
#[derive(Clone, Default)]
pub struct Sources(Vec<OpenSource>);

#[derive(Clone)]
struct OpenSource {
    name: String,
    key: SourceKey,
    source: Arc<dyn Source>,
}

/// All that opening a source depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceKey {
    path: PathBuf,
    settings: SourceSettings,
    header_rows: Vec<(Option<String>, u32)>,
}

impl Sources {
    /// Opens a source, unless it is open, and looks at what it holds now.
    pub(super) fn open(
        &mut self,
        served: &Self,
        opening: &SourceSpec<'_>,
    ) -> Result<LoadedSource, Diagnostic> {
        let SourceSpec { name, path, display_name: file, settings, .. } = *opening;
        let as_what = SourceKey::from_spec(opening);
        let open = self.0.iter().chain(&served.0).find(|one| one.key == as_what);
        let source = open.map_or_else(|| open_source(opening), |one| Arc::clone(&one.source));
        let _progress = ProgressLine::reading_file(file, path);
        let mut facts = source.introspect().map_err(|fault| match std::fs::metadata(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                not_found::not_found_diagnostic(file, path)
            }
            Ok(_) | Err(_) => explain_error(&*source, None, &fault, &file_name(path)),
        })?;
        // The last record may be deleted, and whoever declared the fields can still make a new one.
        let are_records = matches!(settings, SourceSettings::Json { .. } | SourceSettings::JsonLines);
        for table in facts.tables.iter_mut().filter(|table| are_records && table.columns.is_empty()) {
            table.columns.clone_from(&opening.declared_columns);
            if let (true, Some(error)) = (table.columns.is_empty(), source.diagnose(None)) {
                return Err(error);
            }
        }
        self.0.push(OpenSource { name: name.into(), key: as_what, source: Arc::clone(&source) });
        Ok(LoadedSource {
            name: name.into(),
            display_name: file.into(),
            settings: settings.clone(),
            source,
            facts,
        })
    }
}

/// Equal words are the same sources under the same names.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|one| (&one.name, &one.key))).finish()
    }
}

impl SourceKey {
    fn from_spec(opening: &SourceSpec<'_>) -> Self {
        let rows = opening.header_rows.iter();
        Self {
            path: opening.path.into(),
            settings: opening.settings.clone(),
            header_rows: rows.map(|(sheet, row)| (sheet.map(str::to_owned), *row)).collect(),
        }
    }
}

fn open_source(opening: &SourceSpec<'_>) -> Arc<dyn Source> {
    let SourceSpec { path, settings, .. } = *opening;
    match settings {
        SourceSettings::Csv { delimiter, null_text: null, formulas } => {
            let options = csv::Options {
                delimiter: *delimiter,
                null_text: null.clone(),
                formulas: *formulas,
                ..csv::Options::default()
            };
            Arc::new(csv::Csv::open(path, options))
        }
        SourceSettings::Sqlite => Arc::new(sqlite::Sqlite::new(path, sqlite::Options::default())),
        SourceSettings::Json { pointer: at } => {
            Arc::new(json::open(path, json::Options::new(json::JsonLayout::Document { pointer: at.clone() })))
        }
        SourceSettings::JsonLines => Arc::new(json::open(path, json::Options::new(json::JsonLayout::Lines))),
        SourceSettings::Workbook(workbook) => {
            let mut options = sheets::Options::new(*workbook);
            for (sheet, row) in &opening.header_rows {
                match sheet {
                    Some(sheet) => drop(options.header_rows.insert((*sheet).to_owned(), *row)),
                    // It is the only one, or it is not found anyway.
                    None => options.header_row = Some(*row),
                }
            }
            Arc::new(sheets::open(path, options))
        }
    }
}

/// What keeps a source from being read: in its own words if it has some, else in those of the fault.
pub(super) fn explain_error(
    source: &dyn Source,
    shape: Option<&TableShape>,
    fault: &SourceError,
    file: &str,
) -> Diagnostic {
    source.diagnose(shape).unwrap_or_else(|| Diagnostic::error(error_message(fault, file)))
}

/// Callers need not know which file it is; whoever starts the server does.
pub(super) fn error_message(fault: &SourceError, file: &str) -> String {
    match fault {
        SourceError::Busy { .. } => {
            format!("`{file}` is locked by another program; try again when it is done")
        }
        SourceError::Timeout => format!("`{file}` takes too long to read"),
        SourceError::Cancelled
        | SourceError::StaleCursor
        | SourceError::WouldBlock
        | SourceError::InvalidArgument { .. }
        | SourceError::Unavailable { .. }
        | SourceError::Incompatible { .. } => fault.to_string(),
    }
}

/// A source as it is served: where the author chose another key, that one.
pub(super) fn describe_source(one: &LoadedSource, contract: Option<&Contract>) -> String {
    let tables = one.facts.tables.iter().map(|table| {
        let served = contract.and_then(|contract| {
            let is_it = |c: &&Collection| c.source == one.name && c.shape.table == table.name;
            contract.collections.iter().find(is_it)
        });
        let key: Vec<usize> = match served {
            Some(served) => {
                served.shape.key.iter().map(|at| served.shape.columns[*at].source_index).collect()
            }
            None => table.key.clone(),
        };
        let rows = table.row_count.map_or_else(|| "rows not counted".into(), |rows| pluralize(rows, "row"));
        let named = |at: &usize| match table.columns[*at].name.trim() {
            "" => format!("column {}", at + 1),
            name => name.to_owned(),
        };
        let names: Vec<String> = key.iter().map(named).collect();
        let key = if names.is_empty() { "no key".into() } else { format!("key {}", names.join(" + ")) };
        format!("{}: {rows}, {}, {key}", table.name, pluralize(table.columns.len() as u64, "column"))
    });
    let notes = one.facts.notes.iter().cloned();
    let parts: Vec<String> = tables.chain(notes).collect();
    format!("{}\n    {}", one.display_name, parts.join("\n    "))
}
