//! Columns that are parts of nested JSON, at a path that the author of a manifest declares: `/address/city` is the member
//! `city` of the column `address`. They are read, filtered and grouped as other columns, and not written.

use contract::source::TableOptions;
use json::{Doc, Node, NodeKind, ParseLimits};

use super::table::{StoredValue, Table};
use crate::json::JsonValue;

/// A declared path.
struct PathColumn {
    name: String,
    /// The column that has the nested JSON.
    base: usize,
    /// Names of members, and positions in arrays.
    steps: Vec<String>,
}

/// Adds the columns that are declared with a path. Returns notes about those that have no value anywhere.
pub(super) fn add_path_columns(table: &mut Table, options: &TableOptions) -> Vec<String> {
    let declared = options.columns.iter().filter_map(|column| {
        let (base, steps) = split_path(column.path.as_deref()?)?;
        let base = table.header.iter().position(|name| *name == base);
        Some((column.name.clone(), base, steps))
    });
    let declared: Vec<_> = declared.filter(|(name, ..)| !table.header.contains(name)).collect();
    let mut notes = Vec::new();
    for (name, base, steps) in declared {
        let found = match base {
            Some(base) => add_column(table, PathColumn { name: name.clone(), base, steps }),
            None => {
                table.add_column(name.clone());
                false
            }
        };
        if !found {
            notes.push(format!("no record has a value for `{name}`: check its `path` in the manifest"));
        }
    }
    notes
}

/// The name of the column, and the steps inside its values.
fn split_path(pointer: &str) -> Option<(String, Vec<String>)> {
    let mut steps =
        pointer.strip_prefix('/')?.split('/').map(|step| step.replace("~1", "/").replace("~0", "~"));
    Some((steps.next()?, steps.collect()))
}

/// Returns whether some row has a value.
fn add_column(table: &mut Table, column: PathColumn) -> bool {
    let PathColumn { name, base, steps } = column;
    let docs: Vec<Option<Doc>> = (0..table.len())
        .map(|row| match table.value(row, base) {
            StoredValue::Json(text) => json::parse(text.as_bytes().to_vec(), &ParseLimits::default()).ok(),
            _ => None,
        })
        .collect();
    let base_name = table.header[base].clone();
    let is_decimal = table.decimal_paths.iter().any(|path| is_path_to(path, &base_name, &steps));
    table.add_column(name);
    let position = table.header.len() - 1;
    let mut has_values = false;
    for (row, doc) in docs.iter().enumerate() {
        let Some(node) = doc.as_ref().and_then(|doc| follow(doc.root(), &steps)) else { continue };
        let value = JsonValue::from_node(node);
        let value = match value.as_stored() {
            StoredValue::Text(digits) if is_decimal => StoredValue::NumberText(digits),
            value => value,
        };
        has_values |= value != StoredValue::Null;
        table.set_value(row as u32, position, value);
    }
    table.computed.push((position, format!("it is a part of `{base_name}`")));
    has_values
}

/// Whether a declared path leads where the path of a schema leads.
fn is_path_to(path: &[Option<String>], base: &str, steps: &[String]) -> bool {
    let declared = std::iter::once(base).chain(steps.iter().map(String::as_str));
    let is_same = |(known, step): (&Option<String>, &str)| known.as_deref().is_none_or(|known| known == step);
    path.len() == steps.len() + 1 && path.iter().zip(declared).all(is_same)
}

fn follow<'d>(node: Node<'d>, steps: &[String]) -> Option<Node<'d>> {
    steps.iter().try_fold(node, |node, step| match node.kind() {
        NodeKind::Object => node.get(step),
        NodeKind::Array => node.elements().nth(step.parse().ok()?),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use contract::source::{ColumnOptions, TableOptions};

    use super::add_path_columns;
    use crate::tables::{StoredValue, Table};

    #[test]
    fn a_text_that_the_schema_calls_a_decimal_is_one() {
        let mut table = Table::new("items", vec!["detail".into()]);
        let json = r#"{"net":"12.50","code":"12.50","lines":[{"tax":"0.10"}]}"#;
        table.push_row(1, [(0, StoredValue::Json(json))]);
        let path =
            |steps: &[&str]| steps.iter().map(|step| (*step != "*").then(|| (*step).to_owned())).collect();
        table.decimal_paths = vec![path(&["detail", "net"]), path(&["detail", "lines", "*", "tax"])];
        let column = |name: &str, path: &str| ColumnOptions {
            name: name.into(),
            path: Some(path.into()),
            ..ColumnOptions::default()
        };
        let columns = vec![
            column("net", "/detail/net"),
            column("code", "/detail/code"),
            column("tax", "/detail/lines/0/tax"),
        ];
        add_path_columns(&mut table, &TableOptions { columns, ..TableOptions::default() });
        let values = [1, 2, 3].map(|column| table.value(0, column));
        let decimal = StoredValue::NumberText;
        assert_eq!(values, [decimal("12.50"), StoredValue::Text("12.50"), decimal("0.10")]);
    }

    #[test]
    fn a_path_leads_to_members_and_elements() {
        let mut table = Table::new("people", vec!["id".into(), "address".into()]);
        table.push_row(
            1,
            [(0, StoredValue::Integer(1)), (1, StoredValue::Json(r#"{"city":"Köln","geo":[50.9,6.9]}"#))],
        );
        table.push_row(2, [(0, StoredValue::Integer(2))]);
        table.push_row(
            3,
            [(0, StoredValue::Integer(3)), (1, StoredValue::Json(r#"{"city":null,"a/b":{"c":true}}"#))],
        );
        let column = |name: &str, path: &str| ColumnOptions {
            name: name.into(),
            path: Some(path.into()),
            ..ColumnOptions::default()
        };
        let columns = vec![
            column("city", "/address/city"),
            column("lat", "/address/geo/0"),
            column("flag", "/address/a~1b/c"),
            column("none", "/adress/city"),
            // A column that the file has stays what it is.
            column("id", "/address/city"),
        ];
        let notes = add_path_columns(&mut table, &TableOptions { columns, ..TableOptions::default() });
        assert_eq!(table.header, ["id", "address", "city", "lat", "flag", "none"]);
        let row = |row| [2, 3, 4, 5].map(|column| table.value(row, column));
        let null = StoredValue::Null;
        assert_eq!(row(0), [StoredValue::Text("Köln"), StoredValue::Real(50.9), null, null]);
        assert_eq!(row(1), [null; 4]);
        assert_eq!(row(2), [null, null, StoredValue::Boolean(true), null]);
        assert_eq!(notes, ["no record has a value for `none`: check its `path` in the manifest"]);
        assert_eq!(table.computed.len(), 3);
    }
}
