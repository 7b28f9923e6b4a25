//! What is answered otherwise than the others do, by whom, and why. Nothing else is.

use contract::Kind;

struct Difference {
    by: &'static [&'static str],
    what: What,
    why: &'static str,
}

enum What {
    /// A column that is found to be of another kind.
    Kind(&'static str, Kind),
    /// A search that finds other rows, by their places.
    Found(&'static [&'static str], &'static [usize]),
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        by: &["csv"],
        what: What::Kind("score", Kind::Decimal),
        why: "who cannot tell a binary fraction from a decimal one says the latter",
    },
    Difference {
        by: &["xlsx"],
        what: What::Kind("big", Kind::Text),
        why: "a workbook keeps whole numbers beyond 53 bits as text, and texts of digits are codes",
    },
    Difference {
        by: &["sqlite, indexed"],
        what: What::Found(&["ed"], &[]),
        why: "an index has words by how they begin",
    },
    Difference {
        by: &["sqlite, indexed"],
        what: What::Found(&["ext"], &[]),
        why: "an index has words by how they begin",
    },
    Difference {
        by: &["sqlite, indexed"],
        what: What::Found(&["00"], &[8]),
        why: "an index has words by how they begin",
    },
];

/// The kind that a column is found to have, and why.
pub fn kind(by: &str, column: &str) -> Option<(Kind, &'static str)> {
    own(by).find_map(|Difference { what, why, .. }| match what {
        What::Kind(name, kind) if *name == column => Some((*kind, *why)),
        What::Kind(..) | What::Found(..) => None,
    })
}

/// The places of the rows that a search finds, and why.
pub fn found(by: &str, words: &[&str]) -> Option<(&'static [usize], &'static str)> {
    own(by).find_map(|Difference { what, why, .. }| match what {
        What::Found(question, places) if *question == words => Some((*places, *why)),
        What::Kind(..) | What::Found(..) => None,
    })
}

fn own(by: &str) -> impl Iterator<Item = &'static Difference> {
    DIFFERENCES.iter().filter(move |difference| difference.by.contains(&by))
}
