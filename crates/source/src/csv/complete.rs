//! Completes the text of a file before it is read, where the author of a manifest says how: `short_rows` adds the fields
//! that a record lacks at its end, `fill_down` repeats a value in the rows below it. Records stay on their lines.

use super::splitter::{FieldSplitter, Terminator, skip_blank_lines};

/// Adds delimiters to the records from `from` on that have fewer fields than `width`.
pub(super) fn pad_records(text: &str, from: usize, splitter: &FieldSplitter, width: usize) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    let (mut copied, mut at) = (0, skip_blank_lines(bytes, from));
    while at < bytes.len() {
        let (mut fields, mut end) = (0, at);
        loop {
            let field = splitter.field_at(bytes, at);
            fields += 1;
            end = field.raw_span(at).end.max(end);
            at = field.next;
            if field.terminator != Terminator::Delimiter {
                break;
            }
        }
        if fields < width {
            out.push_str(&text[copied..end]);
            out.extend(std::iter::repeat_n(char::from(splitter.delimiter), width - fields));
            copied = end;
        }
        at = skip_blank_lines(bytes, at);
    }
    out.push_str(&text[copied..]);
    out
}

/// Repeats the values of some columns in the rows below that have none there. A value in one of the columns ends what the
/// columns after it repeat. `rows` and `left_out` are where records start, ascending; of those that are left out, only the
/// line ends stay.
pub(super) fn fill_down(
    text: &str,
    splitter: &FieldSplitter,
    rows: &[u32],
    left_out: &[u32],
    columns: &[usize],
) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut copied = 0;
    let mut above: Vec<&str> = vec![""; columns.len()];
    let mut left_out = left_out.iter().copied().peekable();
    for row in rows.iter().copied().chain([u32::MAX]) {
        while let Some(start) = left_out.next_if(|start| *start < row) {
            let end = record_end(bytes, start as usize, splitter);
            out.push_str(&text[copied..start as usize]);
            out.extend(text[start as usize..end].chars().filter(|c| matches!(c, '\n' | '\r')));
            copied = end;
        }
        if row == u32::MAX {
            break;
        }
        let (mut at, mut position) = (row as usize, 0);
        for (index, column) in columns.iter().enumerate() {
            let span = loop {
                let field = splitter.field_at(bytes, at);
                let span = field.raw_span(at);
                if position == *column {
                    break Some(span);
                }
                if field.terminator != Terminator::Delimiter {
                    break None;
                }
                at = field.next;
                position += 1;
            };
            let Some(span) = span else { break };
            let raw = &text[span.clone()];
            let is_blank = raw.trim_matches(|c: char| c.is_whitespace() || c == '"').is_empty();
            if !is_blank {
                above[index] = raw;
                above[index + 1..].fill("");
            } else if !above[index].is_empty() {
                out.push_str(&text[copied..span.start]);
                out.push_str(above[index]);
                copied = span.end;
            }
        }
    }
    out.push_str(&text[copied..]);
    out
}

/// Where the record that starts here ends, with its line end.
fn record_end(bytes: &[u8], mut at: usize, splitter: &FieldSplitter) -> usize {
    loop {
        let field = splitter.field_at(bytes, at);
        at = field.next;
        if field.terminator != Terminator::Delimiter {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{fill_down, pad_records};
    use crate::csv::splitter::FieldSplitter;

    #[test]
    fn short_records_get_the_fields_that_they_lack() {
        for (text, expected) in [
            ("a,b,c\n1,2,3\n4\n5,6\r\n\n7,8,9", "a,b,c\n1,2,3\n4,,\n5,6,\r\n\n7,8,9"),
            ("a,b,c\n\"x,y\",2\n1", "a,b,c\n\"x,y\",2,\n1,,"),
            ("a,b,c\n1,2,3,4\n", "a,b,c\n1,2,3,4\n"),
            ("a,b,c\n", "a,b,c\n"),
        ] {
            assert_eq!(pad_records(text, 6, &FieldSplitter::new(b','), 3), expected, "{text}");
        }
    }

    #[test]
    fn values_count_for_the_rows_below_until_an_outer_one_changes() {
        let text = "r,p,n\nNorth,\"A, B\",1\n,,2\n , C,3\nSouth,,4\ntotal,,10\n,D,5\n";
        let rows: Vec<u32> = vec![6, 21, 25, 32, 51];
        let filled = fill_down(text, &FieldSplitter::new(b','), &rows, &[41], &[0, 1]);
        let expected = "r,p,n\nNorth,\"A, B\",1\nNorth,\"A, B\",2\nNorth, C,3\nSouth,,4\n\nSouth,D,5\n";
        assert_eq!(filled, expected);
    }
}
