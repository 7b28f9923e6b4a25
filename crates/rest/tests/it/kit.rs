//! Collections and requests of an API, from a manifest to answers.

use std::sync::Arc;

use contract::compile::declared_columns;
use contract::manifest::{self, Manifest, SourceSettings};
use contract::source::{
    ColumnFacts, ColumnShape, Query, Reader, RestUrl, RowFlow, Source, SourceError, SourceLocation,
    TableOptions, TableShape, Total,
};
use rest::{RestCollection, RestOptions, RestSource};

/// The manifest of an API with a collection `orders`: `source` are lines of the source, `collection` of the collection.
pub fn manifest(url: &str, source: &str, collection: &str) -> Manifest {
    let text = format!(
        "[sources.api]\nkind = \"rest\"\nurl = \"{url}\"\n{source}\n[collections.orders]\nsource = \"api\"\nkey = \"id\"\n\
         {collection}\n[collections.orders.fields]\nid = {{ as = \"integer\" }}\nstatus = {{}}\ntotal = {{ as = \"decimal\" }}\n"
    );
    match manifest::parse("spile.toml", &text, &|_| None) {
        Ok((manifest, _)) => manifest,
        Err(errors) => panic!("{}", contract::diagnostic::render_all(&errors, false)),
    }
}

/// An API on this machine.
pub fn local(url: &str, source: &str, collection: &str) -> RestSource {
    open(&manifest(url, &format!("allow_private_addresses = true\n{source}"), collection)).expect("a source")
}

pub fn open(manifest: &Manifest) -> Result<RestSource, SourceError> {
    let (declared, collection) = (&manifest.sources[0], &manifest.collections[0]);
    let (SourceLocation::Rest(url), SourceSettings::Rest(settings)) =
        (&declared.location.value, &declared.settings)
    else {
        panic!("not an API")
    };
    RestSource::new(RestOptions {
        url: RestUrl::clone(url),
        settings: (**settings).clone(),
        collections: vec![RestCollection {
            name: collection.name.value.clone(),
            endpoints: collection.endpoints.clone(),
            columns: columns(manifest),
            key: vec!["id".to_owned()],
            names: Vec::new(),
            options: TableOptions::default(),
        }],
        requests: Vec::new(),
    })
}

fn columns(manifest: &Manifest) -> Vec<ColumnFacts> {
    declared_columns(&manifest.collections[0].fields, &["id"])
}

/// The shape of `orders`.
pub fn shape() -> TableShape {
    let facts = columns(&manifest("https://api.example.com", "", "list = {}"));
    let column = |(source_index, facts): (usize, &ColumnFacts)| ColumnShape {
        source_index,
        name: facts.name.clone(),
        data_type: facts.data_type,
        nullable: facts.nullable,
        mixed: false,
        null_texts: Vec::new(),
        format: None,
    };
    TableShape {
        table: "orders".into(),
        columns: facts.iter().enumerate().map(column).collect(),
        key: vec![0],
    }
}

/// The shape of `orders` as a table without a key.
pub fn keyless_shape() -> TableShape {
    TableShape { key: Vec::new(), ..shape() }
}

pub fn reader(source: &RestSource) -> Arc<dyn Reader> {
    source.reader(&shape()).expect("a reader")
}

/// The ids that a query finds, and the total.
pub fn list(source: &RestSource, query: &Query<'_>) -> Result<(Vec<String>, Option<Total>), SourceError> {
    let mut ids = Vec::new();
    let total = reader(source).list(query, &mut |row, _| {
        ids.push(text(row[0]));
        RowFlow::Continue
    })?;
    Ok((ids, total))
}

/// The ids of all rows, with blanks between them; an error as its text.
pub fn ids(source: &RestSource) -> Result<String, String> {
    let listed = list(source, &Query { rows_max: 1000, ..Query::default() });
    listed.map(|(ids, _)| ids.join(" ")).map_err(|error| error.to_string())
}

pub fn text(value: contract::ValueRef<'_>) -> String {
    match value {
        contract::ValueRef::Null => "null".to_owned(),
        contract::ValueRef::Text(text) => text.to_owned(),
        contract::ValueRef::Integer(n) => n.to_string(),
        contract::ValueRef::Real(n) => n.to_string(),
        contract::ValueRef::Blob(_) => "bytes".to_owned(),
    }
}
