//! Rows that are in memory already, as an API returned them: read by the same engine as a file.
//!
//! Nothing is watched and nothing is written. Who has newer rows makes new [`MemoryRows`].

use std::path::Path;
use std::sync::Arc;

use contract::source::{Reader, SourceError, SourceFacts, TableOptions, TableShape};

use crate::csv;
use crate::json::JsonDocument;
use crate::snapshot_reader::SnapshotReader;
use crate::tables::{TableFile, TablesOptions};
use crate::watch::WatchedFile;

/// A table in memory.
pub struct MemoryRows(Rows);

enum Rows {
    Json(TableFile),
    Csv(csv::Csv),
}

impl MemoryRows {
    /// The objects of a JSON array. Messages call the table `name`.
    pub fn json(name: &str, array: Vec<u8>, options: TableOptions) -> Result<Self, SourceError> {
        let format = Box::new(JsonDocument { name: name.to_owned(), pointer: None });
        let options = TablesOptions { named: Vec::new(), others: options };
        TableFile::in_memory(name, format, options, array).map(|file| Self(Rows::Json(file)))
    }

    /// The rows of a CSV text. Messages call the table `name`.
    pub fn csv(name: &str, text: Vec<u8>, options: TableOptions) -> Result<Self, SourceError> {
        let options = csv::Options { table: options, ..csv::Options::default() };
        csv::Csv::in_memory(name, options, text).map(|file| Self(Rows::Csv(file)))
    }

    /// What the rows say about their columns.
    pub fn facts(&self) -> Result<SourceFacts, SourceError> {
        match &self.0 {
            Rows::Json(file) => file.snapshot_facts(),
            Rows::Csv(file) => file.snapshot_facts(),
        }
    }

    /// Reads the rows in this shape, whose table must have the name of these rows. A value that does not fit is an error of the
    /// calls that meet it.
    pub fn reader(&self, shape: &TableShape) -> Result<Arc<dyn Reader>, SourceError> {
        match &self.0 {
            Rows::Json(file) => file.snapshot_reader(shape),
            Rows::Csv(file) => file.snapshot_reader(shape),
        }
    }
}

/// A file that is only in memory.
pub(crate) fn watched<C: crate::watch::FileLoader>(
    name: &str,
    loader: C,
    bytes: Vec<u8>,
) -> Result<Arc<WatchedFile<C>>, SourceError> {
    let file = WatchedFile::in_memory(Path::new(name), loader, bytes);
    file.map(Arc::new)
}

/// A reader of a file that is only in memory.
pub(crate) fn reader<C: crate::snapshot_reader::TableLoader>(
    file: &Arc<WatchedFile<C>>,
    shape: &TableShape,
) -> Result<Arc<dyn Reader>, SourceError> {
    Ok(SnapshotReader::open_partial(file, shape)?)
}

#[cfg(test)]
mod tests {
    use contract::source::{ColumnShape, Query, RowFlow, TableOptions, TableShape};
    use contract::{DataType, Value};

    use super::MemoryRows;

    fn column(source_index: usize, name: &str, data_type: DataType, nullable: bool) -> ColumnShape {
        let (null_texts, format) = (Vec::new(), None);
        ColumnShape { source_index, name: name.into(), data_type, nullable, mixed: false, null_texts, format }
    }

    fn shape() -> TableShape {
        let columns = vec![
            column(0, "id", DataType::Integer, false),
            column(1, "city", DataType::Text, true),
            column(2, "total", DataType::Decimal, true),
        ];
        TableShape { table: "orders".into(), columns, key: vec![0] }
    }

    fn ids(rows: &MemoryRows) -> Result<Vec<i64>, String> {
        let reader = rows.reader(&shape()).map_err(|error| error.to_string())?;
        let mut ids = Vec::new();
        let listed = reader.list(&Query { rows_max: 10, ..Query::default() }, &mut |row, _| {
            ids.extend(match row[0].to_value() {
                Value::Integer(id) => Some(id),
                // A CSV file keeps the digits of its numbers.
                Value::Text(digits) => digits.parse().ok(),
                _ => None,
            });
            RowFlow::Continue
        });
        listed.map(|_| ids).map_err(|error| error.to_string())
    }

    fn json(text: &str) -> Result<MemoryRows, String> {
        MemoryRows::json("orders", text.into(), TableOptions::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_are_read_in_the_shape_of_a_contract() {
        for (text, expected) in [
            (r#"[{"id":2,"city":"Bern","total":1.50},{"id":1}]"#, Ok(vec![1, 2])),
            ("[]", Ok(vec![])),
            (r#"[{"id":1,"more":{"a":1}}]"#, Ok(vec![1])),
            (
                r#"[{"id":1,"total":"x"}]"#,
                Err("`orders` element 1, column `total`: expected a number, such as `12.50`"),
            ),
            (r#"[{"city":"Bern"}]"#, Err("`orders` element 1 has no `id`, which is a key")),
        ] {
            let got = json(text).and_then(|rows| ids(&rows));
            match (&got, expected) {
                (Ok(got), Ok(expected)) => assert_eq!(*got, expected, "{text}"),
                (Err(got), Err(expected)) => assert!(got.contains(expected), "{text}: {got}"),
                (got, expected) => panic!("{text}: {got:?}, expected {expected:?}"),
            }
        }
        for text in ["", "{", "7", "[1]", r#"[{"id":1,"id":2}]"#] {
            assert!(json(text).is_err(), "{text}");
        }
        let rows =
            MemoryRows::csv("orders", b"id;city;total\n2;Bern;1.50\n1;;\n".to_vec(), TableOptions::default());
        assert_eq!(rows.map_err(|error| error.to_string()).and_then(|rows| ids(&rows)), Ok(vec![1, 2]));
    }
}
