//! The catalog of a database, for every engine.

use contract::source::{DatabaseRole, SourceError, TableShape};

use crate::column::Storage;

/// What the role can see.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Schema {
    pub(crate) tables: Vec<TableInfo>,
    pub(crate) role: RoleInfo,
    /// The quoted name of the table of idempotency records, if the role may use or create it, and whether it exists.
    pub(crate) idempotency: Option<(String, bool)>,
    /// The name and version of the server.
    pub(crate) server: String,
}

/// What the role of the connection could do.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RoleInfo {
    pub(crate) name: String,
    /// What it could write, as clauses: what serving writes needs.
    pub(crate) writes: Vec<String>,
    /// What else it could do beyond reading, as clauses.
    pub(crate) powers: Vec<String>,
    /// Whether row-level security does not apply to it.
    pub(crate) ignores_policies: bool,
}

impl RoleInfo {
    /// Which of so many tables it may write to, as a clause.
    pub(crate) fn may_write_to(first: &str, count: usize) -> String {
        match count {
            0 | 1 => format!("it may write to `{first}`"),
            _ => format!("it may write to `{first}` and {} more", count - 1),
        }
    }
}

impl From<RoleInfo> for DatabaseRole {
    fn from(role: RoleInfo) -> Self {
        Self { name: role.name, writes: role.writes, powers: role.powers }
    }
}

/// A table or view.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TableInfo {
    /// The name in facts: with the schema where it is needed.
    pub(crate) name: String,
    /// The quoted name in statements.
    pub(crate) quoted: String,
    pub(crate) is_view: bool,
    pub(crate) columns: Vec<ColumnInfo>,
    /// Indexes of columns. Empty without a key.
    pub(crate) key: Vec<usize>,
    /// Further sets of columns whose values are unique and not NULL.
    pub(crate) unique: Vec<Vec<usize>>,
    /// The constraint that keeps the key unique.
    pub(crate) key_constraint: Option<String>,
    pub(crate) foreign_keys: Vec<contract::source::ForeignKey>,
    pub(crate) comment: Option<String>,
    /// An estimate.
    pub(crate) row_count: Option<u64>,
    pub(crate) may_insert: bool,
    pub(crate) may_update: bool,
    pub(crate) may_delete: bool,
    /// Whether row-level security is enabled and applies to the role of the connection.
    pub(crate) has_policies: bool,
    /// Full-text indexes; the one with the most columns comes first.
    pub(crate) text_indexes: Vec<TextIndex>,
}

impl TableInfo {
    /// Whether a column is in the key, in another unique set of columns, or in a foreign key.
    pub(crate) fn is_in_a_key(&self, column: usize) -> bool {
        let foreign = self.foreign_keys.iter().map(|key| &key.columns);
        std::iter::once(&self.key).chain(&self.unique).chain(foreign).any(|columns| columns.contains(&column))
    }

    /// `columns` is `None` if one of them cannot be read.
    pub(crate) fn add_text_index(&mut self, columns: Option<Vec<usize>>, kind: TextIndexKind) {
        let Some(mut columns) = columns.filter(|columns| !columns.is_empty()) else { return };
        columns.sort_unstable();
        let is_text = |at: &usize| self.columns[*at].storage == Storage::Text;
        if columns.iter().all(is_text) && !self.text_indexes.iter().any(|index| index.columns == columns) {
            self.text_indexes.push(TextIndex { columns, kind });
            self.text_indexes.sort_by_key(|index| std::cmp::Reverse(index.columns.len()));
        }
    }
}

/// A full-text index that finds the words of some columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TextIndex {
    /// Indexes of columns, in ascending order.
    pub(crate) columns: Vec<usize>,
    pub(crate) kind: TextIndexKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TextIndexKind {
    /// MySQL and MariaDB: the words themselves.
    Words,
    /// PostgreSQL: what is indexed, and the dictionary that made it. Both are SQL as the catalog prints it.
    Vector { vector: String, dictionary: String },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnInfo {
    pub(crate) name: String,
    pub(crate) storage: Storage,
    /// The engine's number of the type.
    pub(crate) native_type: u32,
    /// The type as the database prints it, which a statement may cast to.
    pub(crate) type_name: String,
    pub(crate) nullable: bool,
    pub(crate) has_default: bool,
    pub(crate) read_only_reason: Option<String>,
    /// Whether equal texts have equal bytes, and whether texts are ordered by their bytes.
    pub(crate) collation: Collation,
    /// The values of an enum.
    pub(crate) labels: Vec<String>,
    pub(crate) comment: Option<String>,
    /// How many digits of a second are stored.
    pub(crate) fraction_digits: u8,
    /// Whether an integer may have more digits than every JSON reader keeps.
    pub(crate) is_wide: bool,
    /// Whether an integer is declared as people declare booleans.
    pub(crate) is_boolean: bool,
}

impl ColumnInfo {
    /// A column of a statement's result.
    pub(crate) fn computed(name: &str, storage: Storage) -> Self {
        Self {
            name: name.to_owned(),
            storage,
            native_type: 0,
            type_name: String::new(),
            nullable: true,
            has_default: false,
            read_only_reason: None,
            collation: Collation::Other,
            labels: Vec::new(),
            comment: None,
            fraction_digits: 0,
            is_wide: false,
            is_boolean: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collation {
    /// Compares bytes.
    Bytes,
    /// Orders otherwise, but different bytes are different texts.
    Deterministic,
    /// Different bytes may be equal.
    Other,
}

impl TextIndex {
    /// With the indexes of a shape's columns; `None` if the shape does not have all of them.
    pub(crate) fn in_shape(&self, table: &TableInfo, shape: &TableShape) -> Option<Self> {
        let place =
            |at: &usize| shape.columns.iter().position(|column| column.name == table.columns[*at].name);
        let mut columns = self.columns.iter().map(place).collect::<Option<Vec<usize>>>()?;
        columns.sort_unstable();
        Some(Self { columns, kind: self.kind.clone() })
    }
}

impl Schema {
    /// Whether the tables are the same, however many rows they have.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let without_rows = |schema: &Self| {
            let mut schema = schema.clone();
            schema.tables.iter_mut().for_each(|table| table.row_count = None);
            // Created with the first record.
            schema.idempotency = schema.idempotency.map(|(name, _)| (name, true));
            schema
        };
        without_rows(self) == without_rows(other)
    }

    pub(crate) fn table(&self, name: &str) -> Result<&TableInfo, SourceError> {
        self.tables.iter().find(|table| table.name == name).ok_or_else(|| SourceError::Incompatible {
            message: format!("the database has no table `{name}`, or does not permit reading it"),
            detail: format!("no table `{name}` among {}", self.tables.len()),
        })
    }
}
