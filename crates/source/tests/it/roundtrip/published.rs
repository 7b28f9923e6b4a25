//! Tables in `docs/types.md`, each between two markers that name it.

use std::fmt::Write as _;

use ::json::Json;
use contract::field::{Field, SchemaUse};
use contract::{DataType, ValueRef};

use super::fixtures::Store;
use super::{RoundTrip, types_doc_path};

pub struct PublishedTable {
    name: &'static str,
    table: String,
    reasons: Vec<String>,
}

/// What became of a value in the columns of one kind of file.
#[derive(Default)]
pub struct StoreOutcomes(Vec<(&'static str, RoundTrip)>);

impl StoreOutcomes {
    pub fn add(&mut self, column: &'static str, outcome: RoundTrip) {
        self.0.push((column, outcome));
    }

    pub fn has_exact(&self) -> bool {
        self.0.iter().any(|(_, outcome)| *outcome == RoundTrip::Exact)
    }
}

impl PublishedTable {
    pub fn new(name: &'static str) -> Self {
        let names = Store::ALL.map(Store::name).join(" | ");
        let table = format!("| value | {names} |\n|---|---|---|---|---|---|\n");
        Self { name, table, reasons: Vec::new() }
    }

    pub fn push_row(&mut self, value: &str, cells: &[String]) {
        writeln!(self.table, "| {value} | {} |", cells.join(" | ")).unwrap();
    }

    pub fn push_outcomes(&mut self, value: &str, cells: &[StoreOutcomes]) {
        let message: Vec<String> = cells.iter().map(|cells| self.outcomes_text(cells)).collect();
        self.push_row(value, &message);
    }

    /// The outcome in the first column, and the columns in which it differs.
    fn outcomes_text(&mut self, StoreOutcomes(outcomes): &StoreOutcomes) -> String {
        let (first, rest) = outcomes.split_first().unwrap();
        let others: Vec<&(&str, RoundTrip)> =
            rest.iter().filter(|(_, outcome)| *outcome != first.1).collect();
        let mut out = self.outcome_text(&first.1);
        if !others.is_empty() && !first.0.is_empty() {
            out = format!("{}: {out}", first.0);
        }
        for (column, outcome) in others {
            let outcome = self.outcome_text(outcome);
            write!(out, "; {column}: {outcome}").unwrap();
        }
        out
    }

    fn outcome_text(&mut self, outcome: &RoundTrip) -> String {
        let RoundTrip::Rejected(reason) = outcome else { return "exact".to_owned() };
        let known = self.reasons.iter().position(|known| known == reason);
        let at = known.unwrap_or_else(|| {
            self.reasons.push(reason.clone());
            self.reasons.len() - 1
        });
        format!("refused ({})", at + 1)
    }

    /// Compares the published table with the results.
    pub fn check(self) {
        let (begin, end) = (format!("<!-- {} -->\n", self.name), format!("<!-- /{} -->", self.name));
        let mut found = self.table;
        if !self.reasons.is_empty() {
            found.push('\n');
            for (at, reason) in self.reasons.iter().enumerate() {
                writeln!(found, "{}. {reason}", at + 1).unwrap();
            }
        }
        let text = std::fs::read_to_string(types_doc_path()).unwrap();
        let from = text.find(&begin).expect("a mark where the table begins") + begin.len();
        let to = text.find(&end).expect("a mark where it ends");
        if std::env::var("GOLDEN").is_ok_and(|what| what == "write") {
            let text = format!("{}\n{found}\n{}", &text[..from], &text[to..]);
            std::fs::write(types_doc_path(), text).unwrap();
        } else {
            let published = text[from..to].trim();
            assert_eq!(published, found.trim(), "docs/types.md: GOLDEN=write writes the table down");
        }
    }
}

/// How results and arguments represent each type.
pub fn kinds() -> PublishedTable {
    let mut table =
        "| type | example | in a result | in an argument that is kept |\n|---|---|---|---|\n".to_owned();
    for kind in DataType::ALL {
        let field = Field::new("f", "f", kind);
        let schema = |side| Json::object(|out| field.write_schema(out, side, None)).as_str().to_owned();
        let cell = match kind {
            DataType::Text => ValueRef::Text("Ann"),
            DataType::Integer => ValueRef::Integer(42),
            DataType::Int64 => ValueRef::Integer(9_007_199_254_740_993),
            DataType::Decimal => ValueRef::Text("1234567890123456.7891"),
            DataType::Number => ValueRef::Real(1.5e-9),
            DataType::Boolean => ValueRef::Integer(1),
            DataType::Date => ValueRef::Text("2026-02-28"),
            DataType::Timestamp => ValueRef::Text("2026-02-11T10:00:00+02:00"),
            DataType::LocalTimestamp => ValueRef::Text("2026-02-11T10:00:00"),
            DataType::Json => ValueRef::Text(r#"{"a":[1,2.50]}"#),
            DataType::Blob => ValueRef::Blob(&[0, 255, 16, 10]),
        };
        let mut example = Vec::new();
        field.write_value(&mut example, cell).unwrap();
        let example = String::from_utf8(example).unwrap();
        // A bar would end the table cell.
        let code = |text: String| format!("`{}`", text.replace('|', "\\|"));
        let (name, example) = (kind.as_str(), code(example));
        let (output, input) = (code(schema(SchemaUse::Output)), code(schema(SchemaUse::Write)));
        writeln!(table, "| `{name}` | {example} | {output} | {input} |").unwrap();
    }
    PublishedTable { name: "kinds", table, reasons: Vec::new() }
}
