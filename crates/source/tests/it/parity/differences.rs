//! Every case in which one kind of file answers differently from the others, and why.

use contract::DataType;

struct Difference {
    sources: &'static [&'static str],
    kind: DifferenceKind,
    reason: &'static str,
}

enum DifferenceKind {
    /// A column whose inferred type differs.
    ColumnKind(&'static str, DataType),
    /// A search that finds other rows, by their positions.
    SearchResult(&'static [&'static str], &'static [usize]),
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        sources: &["csv", "csv, imported"],
        kind: DifferenceKind::ColumnKind("score", DataType::Decimal),
        reason: "who cannot tell a binary fraction from a decimal one says the latter",
    },
    Difference {
        sources: &["xlsx"],
        kind: DifferenceKind::ColumnKind("big", DataType::Text),
        reason: "a workbook keeps whole numbers beyond 53 bits as text, and texts of digits are codes",
    },
    Difference {
        sources: &["sqlite, indexed"],
        kind: DifferenceKind::SearchResult(&["ed"], &[]),
        reason: "an index has words by how they begin",
    },
    Difference {
        sources: &["sqlite, indexed"],
        kind: DifferenceKind::SearchResult(&["ext"], &[]),
        reason: "an index has words by how they begin",
    },
    Difference {
        sources: &["sqlite, indexed"],
        kind: DifferenceKind::SearchResult(&["00"], &[8]),
        reason: "an index has words by how they begin",
    },
];

/// The type that a kind of file infers for a column, and why.
pub fn kind(by: &str, column: &str) -> Option<(DataType, &'static str)> {
    differences_of(by).find_map(|Difference { kind: what, reason: cause, .. }| match what {
        DifferenceKind::ColumnKind(name, kind) if *name == column => Some((*kind, *cause)),
        DifferenceKind::ColumnKind(..) | DifferenceKind::SearchResult(..) => None,
    })
}

/// The positions of the rows that a search finds, and why.
pub fn search_result(by: &str, words: &[&str]) -> Option<(&'static [usize], &'static str)> {
    differences_of(by).find_map(|Difference { kind: what, reason: cause, .. }| match what {
        DifferenceKind::SearchResult(question, places) if *question == words => Some((*places, *cause)),
        DifferenceKind::ColumnKind(..) | DifferenceKind::SearchResult(..) => None,
    })
}

fn differences_of(by: &str) -> impl Iterator<Item = &'static Difference> {
    DIFFERENCES.iter().filter(move |difference| difference.sources.contains(&by))
}
