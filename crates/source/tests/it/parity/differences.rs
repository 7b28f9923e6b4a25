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
    /// Without a key, rows that the sort leaves equal are in the order of their values, not in that of the table.
    OrderByValues,
    /// A text that is returned in another spelling.
    Spelling(&'static str, &'static str, &'static str),
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
    Difference {
        sources: DATABASES,
        kind: DifferenceKind::Spelling("at", "2026-02-11T10:00:00+02:00", "2026-02-11T08:00:00Z"),
        reason: "a database stores a point in time, not how it was written",
    },
    Difference {
        sources: DATABASES,
        kind: DifferenceKind::Spelling("at", "2026-06-01T00:00:00-05:00", "2026-06-01T05:00:00Z"),
        reason: "a database stores a point in time, not how it was written",
    },
    Difference {
        sources: DATABASES,
        kind: DifferenceKind::Spelling("at", "2026-02-11T07:59:59.999999999Z", "2026-02-11T07:59:59.999999Z"),
        reason: "databases store microseconds",
    },
    Difference {
        sources: DATABASES,
        kind: DifferenceKind::Spelling("local", "2026-02-11 10:00:00.5", "2026-02-11T10:00:00.5"),
        reason: "a database stores a time, not how it was written",
    },
    Difference {
        sources: DATABASES,
        kind: DifferenceKind::Spelling("local", "2026-02-11 10:00:00", "2026-02-11T10:00:00"),
        reason: "a database stores a time, not how it was written",
    },
    Difference {
        sources: &["mariadb"],
        kind: DifferenceKind::Spelling("at", "1969-12-31T23:59:59Z", "1970-01-01T00:00:01Z"),
        reason: "a TIMESTAMP of MariaDB begins in 1970",
    },
    Difference {
        sources: &["mariadb"],
        kind: DifferenceKind::OrderByValues,
        reason: "MariaDB does not say where a row is in the table",
    },
];

const DATABASES: &[&str] = &["postgres", "mariadb"];

/// Why rows of a table without a key are ordered by their values.
pub fn orders_by_values(by: &str) -> Option<&'static str> {
    let mut found = differences_of(by).filter(|one| matches!(one.kind, DifferenceKind::OrderByValues));
    found.next().map(|one| one.reason)
}

/// How a source spells the text of a column, and why.
pub fn spelling(by: &str, column: &str, text: &str) -> Option<(&'static str, &'static str)> {
    differences_of(by).find_map(|Difference { kind: what, reason: cause, .. }| match what {
        DifferenceKind::Spelling(name, from, to) if (*name, *from) == (column, text) => Some((*to, *cause)),
        _ => None,
    })
}

/// The type that a kind of file infers for a column, and why.
pub fn kind(by: &str, column: &str) -> Option<(DataType, &'static str)> {
    differences_of(by).find_map(|Difference { kind: what, reason: cause, .. }| match what {
        DifferenceKind::ColumnKind(name, kind) if *name == column => Some((*kind, *cause)),
        _ => None,
    })
}

/// The positions of the rows that a search finds, and why.
pub fn search_result(by: &str, words: &[&str]) -> Option<(&'static [usize], &'static str)> {
    differences_of(by).find_map(|Difference { kind: what, reason: cause, .. }| match what {
        DifferenceKind::SearchResult(question, places) if *question == words => Some((*places, *cause)),
        _ => None,
    })
}

fn differences_of(by: &str) -> impl Iterator<Item = &'static Difference> {
    DIFFERENCES.iter().filter(move |difference| difference.sources.contains(&by))
}
