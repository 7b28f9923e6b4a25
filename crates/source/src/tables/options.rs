//! How to read the tables of a file, where the file itself does not tell.

use contract::source::TableOptions;

/// The options of each table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TablesOptions {
    /// By the table's name.
    pub named: Vec<(String, TableOptions)>,
    /// Of the tables that are not named.
    pub others: TableOptions,
}

impl TablesOptions {
    pub(crate) fn of_table(&self, name: &str) -> &TableOptions {
        self.named.iter().find(|(one, _)| one == name).map_or(&self.others, |(_, options)| options)
    }
}
