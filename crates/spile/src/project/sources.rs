//! The files that a project reads, opened and looked at.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::diagnostic::Diagnostic;
use contract::manifest::{Formulas, Settings, SourceKind, Workbook};
use contract::source::{ColumnFacts, Facts, Shape, Source, SourceFault};
use contract::words::counted;
use contract::{Collection, Contract};
use source::{csv, json, sheets, sqlite};

use super::{file_name, missing};
use crate::progress::Progress;

/// A source that was opened, and what it holds.
pub(super) struct Opened {
    pub(super) name: String,
    /// As people know it.
    pub(super) file: String,
    pub(super) settings: Settings,
    pub(super) source: Arc<dyn Source>,
    pub(super) facts: Facts,
}

pub(super) fn settings(kind: SourceKind) -> Settings {
    match kind {
        SourceKind::Sqlite => Settings::Sqlite,
        SourceKind::Csv => Settings::Csv { delimiter: None, null: None, formulas: Formulas::default() },
        SourceKind::Xlsx => Settings::Sheets(Workbook::Xlsx),
        SourceKind::Xls => Settings::Sheets(Workbook::Xls),
        SourceKind::Ods => Settings::Sheets(Workbook::Ods),
        SourceKind::Json => Settings::Json { at: None },
        SourceKind::JsonLines => Settings::JsonLines,
    }
}

/// As what a file is opened that nobody said anything about, if not as its ending says: a JSON document may have its
/// records inside.
pub(super) fn other_settings(kind: SourceKind, path: &Path) -> Option<Settings> {
    match kind {
        SourceKind::Json => Some(Settings::Json { at: Some(json::records_at(path)?) }),
        SourceKind::Sqlite
        | SourceKind::Csv
        | SourceKind::Xlsx
        | SourceKind::Xls
        | SourceKind::Ods
        | SourceKind::JsonLines => None,
    }
}

/// How a source is opened.
pub(super) struct Opening<'a> {
    pub(super) name: &'a str,
    pub(super) path: &'a Path,
    /// As people know it.
    pub(super) file: &'a str,
    pub(super) settings: &'a Settings,
    /// Collections that say which row of their sheet has the names: the sheet, if it is said, and the row.
    pub(super) header_rows: Vec<(Option<&'a str>, u32)>,
    /// What collections declare, for a file that says nothing itself.
    pub(super) declared: Vec<ColumnFacts>,
}

/// Sources that are open. What is served anew goes on with them: two on one file would each know of a write at their
/// own time, and hold the file twice.
#[derive(Clone, Default)]
pub struct Sources(Vec<Kept>);

#[derive(Clone)]
struct Kept {
    name: String,
    as_what: AsWhat,
    source: Arc<dyn Source>,
}

/// All that opening a source depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AsWhat {
    path: PathBuf,
    settings: Settings,
    header_rows: Vec<(Option<String>, u32)>,
}

impl Sources {
    /// Opens a source, unless it is open, and looks at what it holds now.
    pub(super) fn open(&mut self, served: &Self, opening: &Opening<'_>) -> Result<Opened, Diagnostic> {
        let Opening { name, path, file, settings, .. } = *opening;
        let as_what = AsWhat::of(opening);
        let open = self.0.iter().chain(&served.0).find(|one| one.as_what == as_what);
        let source = open.map_or_else(|| opened(opening), |one| Arc::clone(&one.source));
        let _progress = Progress::on(file, path);
        let mut facts = source.facts().map_err(|fault| match std::fs::metadata(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                missing::told(file, path)
            }
            Ok(_) | Err(_) => explained(&*source, None, &fault, &file_name(path)),
        })?;
        // The last record may be deleted, and whoever declared the fields can still make a new one.
        let are_records = matches!(settings, Settings::Json { .. } | Settings::JsonLines);
        for table in facts.tables.iter_mut().filter(|table| are_records && table.columns.is_empty()) {
            table.columns.clone_from(&opening.declared);
            if let (true, Some(error)) = (table.columns.is_empty(), source.explain(None)) {
                return Err(error);
            }
        }
        self.0.push(Kept { name: name.into(), as_what, source: Arc::clone(&source) });
        Ok(Opened { name: name.into(), file: file.into(), settings: settings.clone(), source, facts })
    }
}

/// Equal words are the same sources under the same names.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|one| (&one.name, &one.as_what))).finish()
    }
}

impl AsWhat {
    fn of(opening: &Opening<'_>) -> Self {
        let rows = opening.header_rows.iter();
        Self {
            path: opening.path.into(),
            settings: opening.settings.clone(),
            header_rows: rows.map(|(sheet, row)| (sheet.map(str::to_owned), *row)).collect(),
        }
    }
}

fn opened(opening: &Opening<'_>) -> Arc<dyn Source> {
    let Opening { path, settings, .. } = *opening;
    match settings {
        Settings::Csv { delimiter, null, formulas } => {
            let options = csv::Options {
                delimiter: *delimiter,
                null: null.clone(),
                formulas: *formulas,
                ..csv::Options::default()
            };
            Arc::new(csv::Csv::open(path, options))
        }
        Settings::Sqlite => Arc::new(sqlite::Sqlite::new(path, sqlite::Options::default())),
        Settings::Json { at } => {
            Arc::new(json::open(path, json::Options::new(json::Form::Document { at: at.clone() })))
        }
        Settings::JsonLines => Arc::new(json::open(path, json::Options::new(json::Form::Lines))),
        Settings::Sheets(workbook) => {
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
pub(super) fn explained(
    source: &dyn Source,
    shape: Option<&Shape>,
    fault: &SourceFault,
    file: &str,
) -> Diagnostic {
    source.explain(shape).unwrap_or_else(|| Diagnostic::error(told(fault, file)))
}

/// Callers need not know which file it is; whoever starts the server does.
pub(super) fn told(fault: &SourceFault, file: &str) -> String {
    match fault {
        SourceFault::Busy { .. } => {
            format!("`{file}` is locked by another program; try again when it is done")
        }
        SourceFault::TooSlow => format!("`{file}` takes too long to read"),
        SourceFault::Stopped
        | SourceFault::Moved
        | SourceFault::Unfit { .. }
        | SourceFault::Unavailable { .. }
        | SourceFault::Changed { .. } => fault.to_string(),
    }
}

/// A source as it is served: where the author chose another key, that one.
pub(super) fn described(one: &Opened, contract: Option<&Contract>) -> String {
    let tables = one.facts.tables.iter().map(|table| {
        let served = contract.and_then(|contract| {
            let is_it = |c: &&Collection| c.source == one.name && c.shape.table == table.name;
            contract.collections.iter().find(is_it)
        });
        let key: Vec<usize> = match served {
            Some(served) => served.shape.key.iter().map(|at| served.shape.columns[*at].at).collect(),
            None => table.key.clone(),
        };
        let rows = table.rows.map_or_else(|| "rows not counted".into(), |rows| counted(rows, "row"));
        let named = |at: &usize| match table.columns[*at].name.trim() {
            "" => format!("column {}", at + 1),
            name => name.to_owned(),
        };
        let names: Vec<String> = key.iter().map(named).collect();
        let key = if names.is_empty() { "no key".into() } else { format!("key {}", names.join(" + ")) };
        format!("{}: {rows}, {}, {key}", table.name, counted(table.columns.len() as u64, "column"))
    });
    let notes = one.facts.notes.iter().cloned();
    let parts: Vec<String> = tables.chain(notes).collect();
    format!("{}\n    {}", one.file, parts.join("\n    "))
}
