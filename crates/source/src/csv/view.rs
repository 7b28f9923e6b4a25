//! A CSV table seen through the compiled shape.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use contract::infer::matches_type;
use contract::order::{self, SortRank};
use contract::source::TableShape;
use contract::{ColumnFormat, DataType, ValueRef};

use super::error::CsvError;
use super::index::{CsvKeyIndex, KeyField};
use super::load::{CsvLoader, CsvSnapshot};
use super::table::CsvTable;
use crate::key_index::DuplicateKey;
use crate::snapshot_reader::column_lookup::{self, Requirement};
use crate::snapshot_reader::{CowValue, SortOrders, SortableColumn, SortableTable, TableLoader, Violations};

/// The contract's columns by their names in the file. Outlives every single snapshot.
pub(super) struct CsvMapping {
    pub(super) columns: Vec<CsvColumnMapping>,
    /// Positions in `columns`.
    pub(super) key_columns: Vec<usize>,
    /// The text that means "no value" in the whole file.
    pub(super) null_text: Option<String>,
}

pub(super) struct CsvColumnMapping {
    pub(super) name: String,
    /// How many columns of this name come before it.
    occurrence: usize,
    pub(super) data_type: DataType,
    pub(super) nullable: bool,
    pub(super) mixed: bool,
    pub(super) null_texts: Vec<String>,
    pub(super) format: Option<ColumnFormat>,
}

/// One snapshot of the file, ready to be read.
pub(super) struct CsvView {
    pub(super) table: Arc<CsvTable>,
    /// In the order of the shape.
    pub(super) columns: Vec<CsvColumn>,
    /// Positions in the file, ascending, each with its position in the shape.
    pub(super) read_order: Vec<(usize, usize)>,
    pub(super) index: Option<Arc<CsvKeyIndex>>,
    pub(super) orders: SortOrders,
    pub(super) violations: Violations,
}

pub(super) struct CsvColumn {
    /// The position in the file.
    pub(super) field_index: usize,
    pub(super) data_type: DataType,
    mixed: bool,
    null_texts: Vec<String>,
    pub(super) format: Option<ColumnFormat>,
}

impl CsvColumnMapping {
    fn at_field(&self, field: usize) -> CsvColumn {
        CsvColumn {
            field_index: field,
            data_type: self.data_type,
            mixed: self.mixed,
            null_texts: self.null_texts.clone(),
            format: self.format.clone(),
        }
    }
}

impl CsvColumn {
    /// Whether a text means "no value".
    #[inline]
    pub(super) fn is_null(&self, text: &str) -> bool {
        is_null(text, self.data_type, &self.null_texts, self.format.is_some())
    }

    /// A field's text in the notation of the column's type. A text that is not in the column's format stays as it is.
    #[inline]
    pub(super) fn canonical<'a>(&self, text: Cow<'a, str>) -> Cow<'a, str> {
        match &self.format {
            None => text,
            Some(format) => format.parse(&text).map_or(text, Cow::Owned),
        }
    }

    /// Whether two texts in the column's format mean the same value.
    pub(super) fn is_same_value(&self, a: &str, b: &str) -> bool {
        let canonical = |text| self.canonical(Cow::Borrowed(text));
        let (a, b) = (canonical(a), canonical(b));
        a == b || matches!((order::decimal_parts(&a), order::decimal_parts(&b)), (Some(a), Some(b)) if a == b)
    }

    /// A caller's value in the notation of its type.
    pub(super) fn to_field_text<'a>(&self, cell: ValueRef<'a>) -> Option<Cow<'a, str>> {
        match cell {
            ValueRef::Text(text) => Some(Cow::Borrowed(text)),
            ValueRef::Integer(n) if self.data_type == DataType::Boolean => {
                Some(Cow::Borrowed(if n == 0 { "false" } else { "true" }))
            }
            ValueRef::Integer(n) => Some(Cow::Owned(n.to_string())),
            ValueRef::Real(n) => Some(Cow::Owned(n.to_string())),
            ValueRef::Null | ValueRef::Blob(_) => None,
        }
    }
}

/// Whether a text means "no value". In a column with a format, blanks alone are no value.
pub(super) fn is_null(text: &str, data_type: DataType, null_texts: &[String], has_format: bool) -> bool {
    (text.is_empty() && data_type != DataType::Text)
        || (has_format && text.trim().is_empty())
        || null_texts.iter().any(|null| null == text)
}

impl TableLoader for CsvLoader {
    type Mapping = CsvMapping;
    type View = CsvView;

    fn map_columns(&self, shape: &TableShape, snapshot: &CsvSnapshot) -> CsvMapping {
        CsvMapping::new(shape, &snapshot.table, &self.options.table.null_texts)
    }

    fn open_view(mapping: &CsvMapping, snapshot: &CsvSnapshot) -> Result<CsvView, CsvError> {
        mapping.open_view(snapshot)
    }

    fn open_partial_view(mapping: &CsvMapping, snapshot: &CsvSnapshot) -> Result<CsvView, CsvError> {
        mapping.open_partial_view(snapshot)
    }

    fn row_error(mapping: &CsvMapping, view: &CsvView, row: u32) -> Option<CsvError> {
        let check =
            |position: &usize| mapping.check_value(*position, &view.columns[*position], &view.table, row);
        view.violations.columns.iter().find_map(|position| check(position).err())
    }

    fn duplicate_error(mapping: &CsvMapping, view: &CsvView, row: u32) -> Option<CsvError> {
        let second = *view.violations.duplicates.get(&row)?;
        let key: Vec<KeyField> =
            mapping.key_columns.iter().map(|position| KeyField::of(&view.columns[*position])).collect();
        Some(mapping.duplicate_error(&view.table, &key, DuplicateKey { first: row, second }))
    }
}

impl SortableColumn for CsvColumn {
    type Rank = SortRank;

    fn data_type(&self) -> DataType {
        self.data_type
    }

    fn is_mixed(&self) -> bool {
        self.mixed
    }

    #[inline]
    fn rank(&self, value: ValueRef<'_>) -> SortRank {
        let ValueRef::Text(text) = value else { unreachable!("a CSV file holds texts only") };
        SortRank::new(self.data_type, text)
    }

    #[inline]
    fn normalize<'a>(&self, value: CowValue<'a>) -> CowValue<'a> {
        value
    }

    fn break_tie(&self, a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
        match (a, b) {
            (ValueRef::Text(a), ValueRef::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

impl SortableTable for CsvView {
    type Column = CsvColumn;

    fn len(&self) -> u32 {
        self.table.len()
    }

    fn columns(&self) -> &[CsvColumn] {
        &self.columns
    }

    fn orders(&self) -> &SortOrders {
        &self.orders
    }

    fn has_duplicate_keys(&self) -> bool {
        !self.violations.duplicates.is_empty()
    }

    /// The byte at which the field starts.
    #[inline]
    fn value_position(&self, row: u32, column: &CsvColumn) -> u32 {
        self.table.field_start(row, column.field_index)
    }

    #[inline]
    fn value_at(&self, position: u32, column: &CsvColumn) -> CowValue<'_> {
        match self.table.field_text_at(position) {
            text if column.is_null(&text) => CowValue::Borrowed(ValueRef::Null),
            text if column.format.is_some() => CowValue::Text(column.canonical(text).into_owned()),
            Cow::Borrowed(text) => CowValue::Borrowed(ValueRef::Text(text)),
            Cow::Owned(text) => CowValue::Text(text),
        }
    }
}

impl CsvMapping {
    fn new(shape: &TableShape, table: &CsvTable, null_texts: &[String]) -> Self {
        let columns = shape.columns.iter().map(|column| CsvColumnMapping {
            name: column.name.clone(),
            occurrence: column_lookup::occurrence_of(column, &table.header),
            data_type: column.data_type,
            nullable: column.nullable,
            mixed: column.mixed,
            null_texts: match column.null_texts.as_slice() {
                [] => null_texts.to_vec(),
                own => own.to_vec(),
            },
            format: column.format.clone(),
        });
        Self {
            columns: columns.collect(),
            key_columns: shape.key.clone(),
            null_text: null_texts.first().cloned(),
        }
    }

    /// A view of a snapshot that fits the shape.
    pub(super) fn open_view(&self, snapshot: &CsvSnapshot) -> Result<CsvView, CsvError> {
        self.open(snapshot, None)
    }

    /// A view of a snapshot that may have values or keys which do not fit the shape.
    fn open_partial_view(&self, snapshot: &CsvSnapshot) -> Result<CsvView, CsvError> {
        self.open(snapshot, Some(Violations::default()))
    }

    /// Collects violations if there is a list for them, and fails at the first one otherwise.
    fn open(&self, snapshot: &CsvSnapshot, mut violations: Option<Violations>) -> Result<CsvView, CsvError> {
        let table = &snapshot.table;
        let fields = self.columns.iter().map(|wanted| self.find_field(wanted, table));
        let fields = fields.collect::<Result<Vec<usize>, CsvError>>()?;
        for (position, field) in fields.iter().enumerate() {
            match (self.check_column(position, *field, table), &mut violations) {
                (Ok(()), _) => {}
                (Err(_), Some(violations)) => violations.columns.push(position),
                (Err(error), None) => return Err(error),
            }
        }
        let index = match &mut violations {
            None => self.build_index(&fields, snapshot)?,
            Some(_) if self.key_columns.is_empty() => None,
            Some(violations) => {
                let (index, duplicates) = CsvKeyIndex::build_with_duplicates(table, self.key_fields(&fields));
                violations.duplicates = duplicates;
                Some(Arc::new(index))
            }
        };
        let mut read_order: Vec<(usize, usize)> = fields.iter().copied().zip(0..).collect();
        read_order.sort_unstable();
        let columns = self.columns.iter().zip(&fields).map(|(wanted, field)| wanted.at_field(*field));
        Ok(CsvView {
            table: table.clone(),
            columns: columns.collect(),
            read_order,
            orders: SortOrders::new(
                &self.key_columns,
                if index.is_some() { 0 } else { snapshot.content_hash() },
            ),
            index,
            violations: violations.unwrap_or_default(),
        })
    }

    fn key_fields(&self, fields: &[usize]) -> Vec<KeyField> {
        let key_field = |position: &usize| KeyField {
            field_index: fields[*position],
            format: self.columns[*position].format.clone(),
        };
        self.key_columns.iter().map(key_field).collect()
    }

    fn find_field(&self, wanted: &CsvColumnMapping, table: &CsvTable) -> Result<usize, CsvError> {
        column_lookup::find_column(&wanted.name, wanted.occurrence, &table.header).ok_or_else(|| {
            let is_ours = |name: &str| self.columns.iter().any(|column| column.name == name);
            let suggestion = column_lookup::similar_column(&wanted.name, &table.header, is_ours);
            CsvError::ColumnNotFound { name: wanted.name.clone(), suggestion }
        })
    }

    /// The column's profile decides most cases. Otherwise every row is checked, so that the error can name the line.
    fn check_column(&self, position: usize, field: usize, table: &CsvTable) -> Result<(), CsvError> {
        let (wanted, requirement) = (&self.columns[position], self.requirement(position));
        let profile = &table.profiles[field];
        let same_null = wanted.null_texts == profile.null_texts;
        let knows_kind = same_null || profile.null_texts.is_empty();
        let fits = wanted.mixed
            || wanted.data_type == DataType::Text
            || (knows_kind && wanted.data_type == profile.data_type && wanted.format == profile.format);
        let no_empty =
            !profile.has_empty || (requirement == Requirement::Value && wanted.data_type == DataType::Text);
        if fits && (requirement == Requirement::Optional || (same_null && !profile.has_null && no_empty)) {
            return Ok(());
        }
        let column = wanted.at_field(field);
        (0..table.len()).try_for_each(|row| self.check_value(position, &column, table, row))
    }

    fn requirement(&self, position: usize) -> Requirement {
        Requirement::of(self.key_columns.contains(&position), self.columns[position].nullable)
    }

    fn check_value(
        &self,
        position: usize,
        column: &CsvColumn,
        table: &CsvTable,
        row: u32,
    ) -> Result<(), CsvError> {
        let (wanted, requirement) = (&self.columns[position], self.requirement(position));
        let text = table.field_text(row, column.field_index);
        let location = || table.field_location(row, column.field_index);
        let name = || wanted.name.clone();
        let is_absent = column.is_null(&text) || (requirement == Requirement::Key && text.is_empty());
        match requirement {
            Requirement::Key if is_absent => {
                return Err(CsvError::MissingKey { location: location(), column: name() });
            }
            Requirement::Value if is_absent => {
                return Err(CsvError::MissingValue { location: location(), column: name() });
            }
            Requirement::Key | Requirement::Value | Requirement::Optional => {}
        }
        let fits = || match &wanted.format {
            Some(format) => format.parse(&text).is_some_and(|text| matches_type(wanted.data_type, &text)),
            None => matches_type(wanted.data_type, &text),
        };
        if !is_absent && !wanted.mixed && !fits() {
            let (data_type, text) = (wanted.data_type, text.into_owned());
            return Err(CsvError::TypeMismatch { location: location(), column: name(), data_type, text });
        }
        Ok(())
    }

    fn build_index(
        &self,
        fields: &[usize],
        snapshot: &CsvSnapshot,
    ) -> Result<Option<Arc<CsvKeyIndex>>, CsvError> {
        if self.key_columns.is_empty() {
            return Ok(None);
        }
        let key = self.key_fields(fields);
        let index = snapshot
            .index(key.clone())
            .map_err(|duplicate| self.duplicate_error(&snapshot.table, &key, duplicate))?;
        Ok(Some(index))
    }

    fn duplicate_error(&self, table: &CsvTable, key: &[KeyField], duplicate: DuplicateKey) -> CsvError {
        let names = self.key_columns.iter().map(|position| self.columns[*position].name.clone());
        let values =
            key.iter().map(|field| table.field_text(duplicate.second, field.field_index).into_owned());
        CsvError::DuplicateKey {
            lines: [table.row_line(duplicate.first), table.row_line(duplicate.second)],
            columns: names.collect(),
            values: values.collect(),
        }
    }
}
