//! Lets the user choose operations at a terminal.

use std::io::Write;

use anyhow::bail;

use super::convert;
use super::document::Document;
use super::operations::{self, Operation};
use crate::sanitize::escape_line;

const SUMMARY_CHARS_MAX: usize = 60;

/// One line for each operation, with the reason for one that cannot be imported.
pub(super) fn lines(document: &Document, operations: &[Operation]) -> Vec<String> {
    let line = |(at, operation): (usize, &Operation)| {
        let note = match convert::tool(document, operation, &[]) {
            Err(reason) => format!("  [{reason}]"),
            Ok(_) if operation.is_deprecated => "  [deprecated]".to_owned(),
            Ok(_) => String::new(),
        };
        let summary: String = operation.summary.chars().take(SUMMARY_CHARS_MAX).collect();
        let text = format!("{:>4}  {}  {summary}{note}", at + 1, operation.label());
        // The document is somebody else's text.
        escape_line(&text).into_owned()
    };
    operations.iter().enumerate().map(line).collect()
}

/// Asks which operations to import: numbers, ranges, or patterns.
pub(super) fn pick<'o>(
    document: &Document,
    operations: &'o [Operation],
) -> anyhow::Result<Vec<&'o Operation>> {
    let mut out = std::io::stderr().lock();
    for line in lines(document, operations) {
        writeln!(out, "{line}")?;
    }
    loop {
        write!(
            out,
            "Which operations? Numbers and ranges (1 4-6), operationIds or patterns (get*); empty to stop: "
        )?;
        out.flush()?;
        let mut answer = String::new();
        if std::io::stdin().read_line(&mut answer)? == 0 || answer.trim().is_empty() {
            bail!("nothing was chosen");
        }
        match chosen(operations, &answer) {
            Ok(chosen) => return Ok(chosen),
            Err(error) => writeln!(out, "{error}")?,
        }
    }
}

fn chosen<'o>(operations: &'o [Operation], answer: &str) -> anyhow::Result<Vec<&'o Operation>> {
    let mut patterns = Vec::new();
    for word in answer.split([' ', ',', '\n', '\r', '\t']).filter(|word| !word.is_empty()) {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => {
                if first == 0 || last > operations.len() || first > last {
                    bail!("`{word}` is not in 1 to {}", operations.len());
                }
                patterns.extend(operations[first - 1..last].iter().map(|one| one.id.clone()));
            }
            _ => patterns.push(word.to_owned()),
        }
    }
    operations::select(operations, &patterns)
}

#[cfg(test)]
mod tests {
    use contract::request::Method;

    use super::{Operation, chosen};

    #[test]
    fn numbers_ranges_and_patterns_choose_operations() {
        let operation = |id: &str| Operation {
            id: id.to_owned(),
            method: Method::Get,
            path: format!("/{id}"),
            summary: String::new(),
            tags: Vec::new(),
            is_deprecated: false,
        };
        let all: Vec<Operation> = ["a", "b", "c", "listD", "listE"].map(operation).to_vec();
        for (answer, expected) in [
            ("1", Ok("a")),
            ("2-3, 1\n", Ok("a b c")),
            ("list*", Ok("listD listE")),
            ("c 5 c", Ok("c listE")),
            ("0", Err("`0` is not in 1 to 5")),
            ("4-9", Err("`4-9` is not in 1 to 5")),
            ("nothing", Err("no operation matches `nothing`; --list shows all")),
        ] {
            let got = chosen(&all, answer);
            let got = got.map(|all| all.iter().map(|one| one.id.as_str()).collect::<Vec<_>>().join(" "));
            assert_eq!(
                got.map_err(|error| error.to_string()),
                expected.map(str::to_owned).map_err(str::to_owned),
                "{answer}"
            );
        }
    }
}
