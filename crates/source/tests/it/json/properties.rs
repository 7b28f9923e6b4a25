//! Whatever the records are: they read back as they were, and a change affects only what it names.

use std::collections::BTreeMap;

use contract::ValueRef;
use contract::source::{Query, RowChange, Sort, Source};
use json::{Json as Text, ParseLimits, parse};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop, prop_oneof, proptest};
use source::json::JsonLayout;

use super::kit::{
    TestFile, all_rows, document, list, pages, plain_write, query_all, reader, recording_checks, shape, write,
};
use crate::driver::WriteRow;

/// A JSON value in one of its possible spellings.
fn value() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:?}")),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?",
    ];
    let text = prop_oneof!["[ -~é🦀\u{0}-\u{1f}]{0,12}", Just("2026-02-28".to_owned())];
    let text = text.prop_map(|text| {
        let mut out = Vec::new();
        json::write::string(&mut out, &text);
        String::from_utf8(out).unwrap()
    });
    let nested =
        prop_oneof![Just("[ ]"), Just("{\"a\" :[1.50, null]}"), Just("[[true]]")].prop_map(str::to_owned);
    prop_oneof![number, text, nested, Just("true".to_owned()), Just("null".to_owned())]
}

/// Members by name, without the key.
fn record() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("[a-d]", value(), 0..4)
}

fn record_text(id: i64, record: &BTreeMap<String, String>) -> String {
    let members = record.iter().map(|(name, value)| format!(", \"{name}\" :{value}"));
    format!("{{\"id\": {id}{}}}", members.collect::<String>())
}

fn file(form: &JsonLayout, records: &[String]) -> String {
    match form {
        JsonLayout::Lines => records.iter().map(|record| format!("{record}\n")).collect(),
        JsonLayout::Document { .. } => format!("[\n  {}\n]\n", records.join(",\n  ")),
    }
}

fn forms() -> impl Strategy<Value = JsonLayout> {
    prop_oneof![Just(JsonLayout::Lines), Just(document())]
}

/// Whether a value as read means what the file says: the same value, or its text.
fn is_same_json(raw: &str, message: &str) -> bool {
    let compact = |text: &str| Text::parse(text).unwrap();
    if compact(raw) == compact(message) {
        return true;
    }
    let doc = parse(message.as_bytes().to_vec(), &ParseLimits::default()).unwrap();
    let number = |text: &str| text.parse::<f64>().unwrap();
    match doc.root().str() {
        // The same digits, or those of the float they denote.
        Some(text) if text == raw => true,
        Some(text) if raw.contains(['e', 'E']) => number(&text) == number(raw),
        Some(text) => text == compact(raw).as_str(),
        None => doc.root().kind() == json::NodeKind::Number && number(message) == number(raw),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn records_read_back_as_written(records in prop::collection::vec(record(), 1..8), form in forms()) {
        let lines: Vec<String> = (0..).zip(&records).map(|(id, record)| record_text(id, record)).collect();
        let disk = TestFile::new(form.clone(), file(&form, &lines));
        let json = disk.json();
        let shape = shape(&json);
        assert_eq!(shape.key, [0]);
        let rows = all_rows(&json);
        assert_eq!(rows.len(), records.len());
        for (row, record) in rows.iter().zip(&records) {
            let row = Text::parse(row).unwrap();
            let doc = row.to_doc();
            for (name, message) in doc.root().members().skip(1) {
                let name = name.str().unwrap();
                let raw = record.get(&*name).map_or("null", String::as_str);
                assert!(is_same_json(raw, message.raw()), "`{name}` is {raw} and told as {}", message.raw());
            }
        }
    }

    #[test]
    fn an_edit_changes_one_record_and_reads_back(
        records in prop::collection::vec(record(), 2..7),
        form in forms(),
        at in 0..7_usize,
        change in 0..3_u8,
        text in "[ -~é\u{0}-\u{1f}]{0,8}",
    ) {
        let at = at % records.len();
        // The change is to a text column that every record has.
        let lines: Vec<String> = (0..).zip(&records).map(|(id, record)| {
            record_text(id, record).replacen(&format!("\"id\": {id}"), &format!("\"id\": {id}, \"t\":\"x{id}\""), 1)
        }).collect();
        let before = file(&form, &lines);
        let disk = TestFile::new(form.clone(), &before);
        let json = disk.json();
        let shape = shape(&json);
        let mut expected = all_rows(&json);
        let key = [ValueRef::Integer(at as i64)];
        let cells = [(1, ValueRef::Text(&text))];
        let new = [(0, ValueRef::Integer(99)), (1, ValueRef::Text(&text))];
        let mut lines = lines;
        let (_, checks) = match change {
            0 => {
                let done = write(&json, &shape, RowChange::Update { key: &key, values: &cells }).unwrap();
                let quoted = Text::parse(&{
                    let mut out = Vec::new();
                    json::write::string(&mut out, &text);
                    String::from_utf8(out).unwrap()
                }).unwrap();
                lines[at] = lines[at].replacen(&format!("\"t\":\"x{at}\""), &format!("\"t\":{quoted}"), 1);
                expected[at] = done.1.after.clone().unwrap();
                done
            }
            1 => {
                lines.remove(at);
                expected.remove(at);
                write(&json, &shape, RowChange::Delete { key: &key }).unwrap()
            }
            _ => {
                let done = write(&json, &shape, RowChange::Create { values: &new });
                match done {
                    // A column in which every record has a value must have one in the new record too.
                    Err(error) => {
                        assert_eq!(error.to_string(), "a value is required");
                        assert_eq!(disk.text(), before);
                        return Ok(());
                    }
                    Ok(done) => {
                        let text = disk.text();
                        let end = before.trim_end_matches(['\n', ']']);
                        assert!(text.starts_with(end), "{before:?} {text:?}");
                        expected.push(done.1.after.clone().unwrap());
                        done
                    }
                }
            }
        };
        assert!(checks.after.is_some());
        if change < 2 {
            assert_eq!(disk.text(), file(&form, &lines));
        }
        let keyless = contract::source::TableShape { key: Vec::new(), ..shape };
        let read = list(reader(&json, &keyless).as_ref(), &keyless, &query_all()).unwrap().0;
        assert_eq!(read, expected);
    }

    #[test]
    fn each_remaining_record_is_listed_once_while_others_come_and_go(
        count in 1..20_i64,
        changes in prop::collection::vec((0..25_i64, 0..5_i64, any::<bool>()), 0..12),
        rows_max in 1..4_usize,
        descending in any::<bool>(),
        sorted in any::<bool>(),
        form in forms(),
    ) {
        let lines: Vec<String> = (0..count).map(|id| format!("{{\"id\":{id},\"n\":{}}}", id % 3)).collect();
        let disk = TestFile::new(form.clone(), file(&form, &lines));
        let json = disk.json();
        let shape = shape(&json);
        let (reader, writer) = (reader(&json, &shape), json.writer(&shape).unwrap());
        let touched: Vec<i64> = changes.iter().map(|(id, _, _)| *id).collect();
        let mut changes = changes.into_iter();
        let sort = sorted.then_some(Sort { column: 1, descending });
        let read = pages(reader.as_ref(), &shape, &Query { sort: sort.into_iter().collect(), rows_max, ..Query::default() }, || {
            let Some((id, n, is_delete)) = changes.next() else { return };
            let (key, cells) = ([ValueRef::Integer(id)], [(0, ValueRef::Integer(id)), (1, ValueRef::Integer(n))]);
            let change = match is_delete {
                true => RowChange::Delete { key: &key },
                false => RowChange::Update { key: &key, values: &cells },
            };
            // If the record to delete or change does not exist, create it.
            if writer.write(&plain_write(change), &mut recording_checks(&shape)).is_err() {
                writer.write(&plain_write(RowChange::Create { values: &cells }), &mut recording_checks(&shape)).unwrap();
            }
        });
        for id in (0..count).filter(|id| !touched.contains(id)) {
            let row = format!("{{\"id\":{id},\"n\":{}}}", id % 3);
            assert_eq!(read.iter().filter(|one| **one == row).count(), 1, "{id} in {read:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), form in forms()) {
        let disk = TestFile::new(form, &bytes);
        let json = disk.json();
        if json.introspect().is_ok() {
            all_rows(&json);
        } else {
            json.diagnose(None).unwrap();
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[\\[\\]{}\":,ab1 \n\\\\]{0,40}", form in forms()) {
        let disk = TestFile::new(form.clone(), &text);
        let json = disk.json();
        match json.introspect() {
            Ok(_) => {
                all_rows(&json);
                if form == document() {
                    assert!(Text::parse(&text).is_ok(), "{text}");
                }
            }
            Err(_) => {
                json.diagnose(None).unwrap();
            }
        }
    }
}

#[test]
fn cursor_positions_of_every_type_resume() {
    let values =
        ["1.50", "9007199254740993", "-0", "2", "0.1000000000000000055511151231257827", "null", "1e2"];
    let lines: Vec<String> = (0..).zip(values).map(|(id, v)| format!("{{\"id\":{id},\"v\":{v}}}")).collect();
    let disk = TestFile::new(JsonLayout::Lines, lines.join("\n"));
    let json = disk.json();
    let shape = shape(&json);
    let reader = reader(&json, &shape);
    for descending in [false, true] {
        let query = Query { sort: vec![Sort { column: 1, descending }], ..query_all() };
        let whole = list(reader.as_ref(), &shape, &query).unwrap().0;
        assert_eq!(pages(reader.as_ref(), &shape, &Query { rows_max: 1, ..query }, || {}), whole);
    }
}
