//! What is assumed about files that no manifest describes, where no other reading makes sense: `NA` in a column of numbers is no
//! value. A file is opened once more with what is assumed, and the generated manifest says it.

use contract::init::assumed_null;
use contract::manifest::SourceKind;
use contract::source::{ColumnOptions, LayoutNote, LayoutNoteKind, SourceFacts, TableFacts, TableOptions};

use super::sources::DeclaredTable;

/// What is assumed about one table.
pub(super) struct AssumedTable {
    pub(super) table: String,
    pub(super) options: TableOptions,
    notes: Vec<LayoutNote>,
}

impl AssumedTable {
    /// As a manifest would declare it. A CSV file has one table, which needs no name.
    pub(super) fn declaration<'a>(&'a self, kind: SourceKind, collection: &'a str) -> DeclaredTable<'a> {
        let table = (kind != SourceKind::Csv).then_some(self.table.as_str());
        DeclaredTable { table, collection, options: self.options.clone() }
    }
}

/// The tables that read better with a setting. Only in these kinds of files is every value a text that somebody wrote.
pub(super) fn assumed_tables(kind: SourceKind, facts: &SourceFacts) -> Vec<AssumedTable> {
    match kind {
        SourceKind::Csv | SourceKind::Xlsx | SourceKind::Xls | SourceKind::Ods => {
            facts.tables.iter().filter_map(assumed_nulls).collect()
        }
        SourceKind::Sqlite
        | SourceKind::Json
        | SourceKind::JsonLines
        | SourceKind::Parquet
        | SourceKind::Postgres
        | SourceKind::MySql
        | SourceKind::Rest => Vec::new(),
    }
}

fn assumed_nulls(table: &TableFacts) -> Option<AssumedTable> {
    let (mut columns, mut notes) = (Vec::new(), Vec::new());
    for column in &table.columns {
        // A setting belongs to a name.
        let is_unique = table.columns.iter().filter(|other| other.name == column.name).count() == 1;
        let Some(assumed) = assumed_null(column).filter(|_| is_unique) else { continue };
        let null_texts = Some(vec![assumed.text.to_owned()]);
        columns.push(ColumnOptions { name: column.name.clone(), null_texts, ..ColumnOptions::default() });
        notes.push(LayoutNote {
            kind: LayoutNoteKind::AssumedNull,
            message: format!(
                "has `{}` in `{}` (first in {}), which is read as no value",
                assumed.text, column.name, assumed.first_location
            ),
            setting: assumed.setting(),
        });
    }
    (!columns.is_empty()).then(|| AssumedTable {
        table: table.name.clone(),
        options: TableOptions { columns, ..TableOptions::default() },
        notes,
    })
}

/// That the lines of a CSV file may lack fields at their end.
pub(super) fn short_rows(name: &str, reason: &str) -> AssumedTable {
    let mut options = TableOptions::default();
    options.layout.short_rows = true;
    let note = LayoutNote {
        kind: LayoutNoteKind::AssumedShortRows,
        message: format!("has lines that lack fields at their end ({reason}), which then have no value"),
        setting: "short_rows = true".into(),
    };
    AssumedTable { table: name.to_owned(), options, notes: vec![note] }
}

/// Adds what was assumed to the facts of a source that was opened so.
pub(super) fn add_notes(facts: &mut SourceFacts, assumed: Vec<AssumedTable>) {
    for one in assumed {
        if let Some(table) = facts.tables.iter_mut().find(|table| table.name == one.table) {
            table.layout_notes.extend(one.notes);
        }
    }
}
