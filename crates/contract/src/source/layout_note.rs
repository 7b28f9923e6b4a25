//! What the reader of a file decided about its rows, and how its owner says otherwise.

/// How a table was found among other rows, for the owner of the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutNote {
    pub kind: LayoutNoteKind,
    /// A clause after the table's name: ``has a title above the table (row 1: `Report`), which is left out``.
    pub message: String,
    /// The setting of the collection or of a field that says otherwise or decides: `footer_rows = 0`. May be empty.
    pub setting: String,
}

impl LayoutNote {
    /// Whether another reading has other rows or other names.
    pub fn is_about_rows(&self) -> bool {
        match self.kind {
            LayoutNoteKind::LeftOut
            | LayoutNoteKind::SecondTable
            | LayoutNoteKind::Doubt
            | LayoutNoteKind::DoubtfulHeader => true,
            LayoutNoteKind::Gaps
            | LayoutNoteKind::DoubtfulYears
            | LayoutNoteKind::DoubtfulNumbers
            | LayoutNoteKind::DoubtfulDates
            | LayoutNoteKind::DoubtfulValues
            | LayoutNoteKind::DoubtfulPoints
            | LayoutNoteKind::AssumedNull
            | LayoutNoteKind::AssumedShortRows => false,
        }
    }

    /// Whether the setting belongs to a field.
    pub fn is_about_field(&self) -> bool {
        match self.kind {
            LayoutNoteKind::Gaps
            | LayoutNoteKind::DoubtfulYears
            | LayoutNoteKind::DoubtfulNumbers
            | LayoutNoteKind::DoubtfulDates
            | LayoutNoteKind::AssumedNull => true,
            LayoutNoteKind::LeftOut
            | LayoutNoteKind::SecondTable
            | LayoutNoteKind::Doubt
            | LayoutNoteKind::DoubtfulValues
            | LayoutNoteKind::DoubtfulHeader
            | LayoutNoteKind::DoubtfulPoints
            | LayoutNoteKind::AssumedShortRows => false,
        }
    }

    /// Whether the setting is in force already, without anybody having declared it.
    pub fn is_assumed(&self) -> bool {
        matches!(self.kind, LayoutNoteKind::AssumedNull | LayoutNoteKind::AssumedShortRows)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutNoteKind {
    /// The rows are not read.
    LeftOut,
    /// The rows are not read, because they are another table. `setting` reads that one instead; `footer_rows = 0` reads all rows.
    SecondTable,
    /// The rows are read, and perhaps should not be.
    Doubt,
    /// The same, where no setting leaves them out: `setting` is advice.
    DoubtfulValues,
    /// A row is taken for column names, and perhaps is data.
    DoubtfulHeader,
    /// Two-digit years are read as years in the future, and perhaps are in the past.
    DoubtfulYears,
    /// A number that is far below all others is read as a number, and perhaps stands for a missing value.
    DoubtfulNumbers,
    /// A column has integers that perhaps are dates without separators.
    DoubtfulDates,
    /// Points are read as decimal points, and perhaps separate thousands.
    DoubtfulPoints,
    /// A column has few values, each of which perhaps counts for the rows below it.
    Gaps,
    /// A text such as `NA` in a column of numbers is read as no value.
    AssumedNull,
    /// Lines that lack fields at their end are completed.
    AssumedShortRows,
}
