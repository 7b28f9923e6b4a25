//! What collections declare about the tables and columns of a source.

use contract::DataType;
use contract::diagnostic::Located;
use contract::manifest::{self, Manifest};
use contract::source::{ColumnFacts, ColumnOptions, TableOptions};

use super::sources::DeclaredTable;

/// How collections declare the tables of a source to be read.
pub(super) fn table_options<'m>(manifest: &'m Manifest, source: &str) -> Vec<DeclaredTable<'m>> {
    let collections = manifest.collections.iter().filter(|one| one.source.value == source);
    let options = |one: &manifest::Collection| TableOptions {
        layout: one.layout.clone(),
        null_texts: one.null_texts.clone(),
        formats: one.formats.clone(),
        columns: collection_options(&one.fields),
    };
    let declared = collections.map(|one| DeclaredTable {
        table: one.table.as_ref().map(|table| table.value.as_str()),
        collection: &one.name.value,
        options: options(one),
    });
    declared.collect()
}

/// How columns are declared to be read.
pub(super) fn collection_options(fields: &[manifest::Field]) -> Vec<ColumnOptions> {
    fields.iter().filter_map(column_options).collect()
}

/// How a column is declared to be read, if that is said at all.
fn column_options(field: &manifest::Field) -> Option<ColumnOptions> {
    let is_declared = field.null_texts.is_some() || field.formats.is_some() || field.path.is_some();
    is_declared.then(|| ColumnOptions {
        name: field.column.value.clone(),
        null_texts: field.null_texts.clone(),
        formats: field.formats.as_ref().map(|formats| formats.value.clone()).unwrap_or_default(),
        path: field.path.as_ref().map(|path| path.value.clone()),
    })
}

/// The typed columns that collections declare for a source; none if a part of a key has no type. Every column counts as
/// having a value: records that lack it would otherwise make the column unknown again.
pub(super) fn declared_columns(manifest: &Manifest, source: &str) -> Vec<ColumnFacts> {
    let mut columns: Vec<ColumnFacts> = Vec::new();
    for one in manifest.collections.iter().filter(|one| one.source.value == source) {
        let typed = || one.fields.iter().filter_map(|field| Some((field, field.data_type.as_ref()?.value)));
        let is_typed = |part: &str| {
            let is_it = |name: &Located<String>| name.value == part;
            typed().any(|(field, _)| is_it(&field.column) || field.name.as_ref().is_some_and(is_it))
        };
        if !one.key.iter().all(|part| is_typed(&part.value)) {
            return Vec::new();
        }
        for (field, kind) in typed() {
            if columns.iter().all(|column| column.name != field.column.value) {
                let base64 = kind == DataType::Blob;
                columns
                    .push(ColumnFacts { is_base64: base64, ..ColumnFacts::new(&field.column.value, kind) });
            }
        }
    }
    columns
}
