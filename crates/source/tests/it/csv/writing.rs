//! Creating, updating and deleting rows, compared byte for byte.

use std::sync::Arc;

use contract::cursor::KEY_BYTES_MAX;
use contract::manifest::FormulaPolicy;
use contract::source::{RowChange, Source, SourceError, TableShape, WriteError, Writer};
use contract::{DataType, Value, ValueRef};
use source::csv::{Csv, Options};

use super::kit::{TestFile, all_rows, get, list, query_all, reader, rows, shape};
use crate::driver::{WriteRequest, WriteRow};
use crate::write_checks::{RecordingChecks, idempotency_key, outcome_text, plain_write, write_outcome};

fn writer(csv: &Csv) -> Arc<dyn Writer> {
    csv.writer(&shape(csv)).unwrap()
}

fn text(text: &str) -> ValueRef<'_> {
    ValueRef::Text(text)
}

/// Compares the file after one change, or the error. No other file may be left behind.
fn check(before: impl AsRef<[u8]>, change: RowChange<'_>, expected: Result<&[u8], &str>) {
    let before = before.as_ref();
    let disk = TestFile::new("people.csv", before);
    let csv = disk.csv();
    let answer = write_outcome(writer(&csv).as_ref(), change);
    let after = std::fs::read(&disk.path).unwrap();
    match expected {
        Ok(bytes) => {
            assert_eq!(answer, "done", "{}", before.escape_ascii());
            assert_eq!(after.escape_ascii().to_string(), bytes.escape_ascii().to_string());
        }
        Err(words) => {
            assert_eq!(answer, words);
            assert_eq!(after, before);
        }
    }
    assert_eq!(std::fs::read_dir(disk.path.parent().unwrap()).unwrap().count(), 1);
}

fn create(before: impl AsRef<[u8]>, cells: &[(usize, ValueRef<'_>)], expected: Result<&[u8], &str>) {
    check(before, RowChange::Create { values: cells }, expected);
}

fn update(
    before: impl AsRef<[u8]>,
    key: ValueRef<'_>,
    cells: &[(usize, ValueRef<'_>)],
    expected: Result<&[u8], &str>,
) {
    check(before, RowChange::Update { key: &[key], values: cells }, expected);
}

fn delete(before: impl AsRef<[u8]>, key: ValueRef<'_>, expected: Result<&[u8], &str>) {
    check(before, RowChange::Delete { key: &[key] }, expected);
}

#[test]
fn a_new_row_is_appended_with_the_same_line_ending() {
    let cells = [(0, ValueRef::Integer(2)), (1, text("Bob"))];
    for (before, after) in [
        ("id,name\n1,Ann\n", "id,name\n1,Ann\n2,Bob\n"),
        ("id,name\r\n1,Ann\r\n", "id,name\r\n1,Ann\r\n2,Bob\r\n"),
        ("id,name\r1,Ann\r", "id,name\r1,Ann\r2,Bob\r"),
        ("id,name\n1,Ann", "id,name\n1,Ann\n2,Bob"),
        ("id,name\r\n1,Ann", "id,name\r\n1,Ann\r\n2,Bob"),
        ("id,name\n1,Ann\n\n\n", "id,name\n1,Ann\n2,Bob\n\n\n"),
        ("\u{feff}id,name\n1,Ann\n", "\u{feff}id,name\n1,Ann\n2,Bob\n"),
        ("sep=;\nid;name\n1;Ann\n", "sep=;\nid;name\n1;Ann\n2;Bob\n"),
        ("id\tname\n1\tAnn\n", "id\tname\n1\tAnn\n2\tBob\n"),
        ("id|name\n1|Ann\n", "id|name\n1|Ann\n2|Bob\n"),
        // Quoted as the rows before.
        ("id,name\n1,\"Ann\"\n", "id,name\n1,\"Ann\"\n2,\"Bob\"\n"),
        ("\"id\",\"name\"\n\"1\",\"Ann\"\n", "\"id\",\"name\"\n\"1\",\"Ann\"\n\"2\",\"Bob\"\n"),
    ] {
        create(before, &cells, Ok(after.as_bytes()));
    }
}

#[test]
fn unset_fields_of_a_new_row_are_null_where_allowed() {
    let cells = [(0, ValueRef::Integer(3))];
    create("id,name,age\n1,Ann,\n2,,5\n", &cells, Ok(b"id,name,age\n1,Ann,\n2,,5\n3,,\n"));
    create("id,age\n1,\"\"\n2,\"5\"\n", &cells, Ok(b"id,age\n1,\"\"\n2,\"5\"\n3,\"\"\n"));
    create("id,age\n1,5\n", &cells, Err("1: expected a value"));
    create("id,age\n1,5\n", &[(1, ValueRef::Integer(5))], Err("0: expected a value"));
}

#[test]
fn fields_are_quoted_where_needed() {
    let before = "id,name\n1,Ann\n";
    for (name, field) in [
        ("a,b", "\"a,b\""),
        ("say \"hi\"", "\"say \"\"hi\"\"\""),
        ("\"", "\"\"\"\""),
        ("two\nlines", "\"two\nlines\""),
        ("two\r\nlines", "\"two\r\nlines\""),
        ("a\rb", "\"a\rb\""),
        (" padded ", " padded "),
        ("a;b\tc|d", "a;b\tc|d"),
        ("'single'", "'single'"),
        ("# no comment", "# no comment"),
        ("🦀 Zoë\u{301}", "🦀 Zoë\u{301}"),
        ("\u{feff}", "\u{feff}"),
    ] {
        let after = format!("id,name\n1,Ann\n2,{field}\n");
        create(before, &[(0, ValueRef::Integer(2)), (1, text(name))], Ok(after.as_bytes()));
        let after = format!("id,name\n1,{field}\n");
        update(before, ValueRef::Integer(1), &[(1, text(name))], Ok(after.as_bytes()));
    }
    // An empty line would not be a row.
    let disk = TestFile::new("one.csv", "name\nAnn\n");
    let csv = disk.csv();
    let mut keyless = shape(&csv);
    keyless.key.clear();
    let writer = csv.writer(&keyless).unwrap();
    assert_eq!(write_outcome(writer.as_ref(), RowChange::Create { values: &[(0, text(""))] }), "done");
    assert_eq!(std::fs::read(&disk.path).unwrap(), b"name\nAnn\n\"\"\n");
}

#[test]
fn only_changed_fields_are_rewritten() {
    let before = "id, name ,age,\"note\"\r\n\"1\", Ann ,\"30\",\"a \"\"b\"\" c\"x\r\n\r\n2,Bob,,\r\n";
    for (key, cells, from, to) in [
        (1, &[(2, ValueRef::Integer(31))][..], "\"30\"", "\"31\""),
        (1, &[(2, ValueRef::Null)], "\"30\"", "\"\""),
        (1, &[(1, text("Eve"))], " Ann ", "Eve"),
        (1, &[(3, text("n"))], "\"a \"\"b\"\" c\"x", "\"n\""),
        (1, &[(1, text("Eve")), (3, text(""))], " Ann ,\"30\",\"a \"\"b\"\" c\"x", "Eve,\"30\",\"\""),
        // Quoted as the rows before.
        (2, &[(2, ValueRef::Integer(40))], "Bob,,", "Bob,\"40\","),
        (2, &[(0, ValueRef::Integer(7))], "2,Bob", "7,Bob"),
        // An equal value keeps its spelling.
        (1, &[(0, ValueRef::Integer(1)), (1, text(" Ann ")), (3, text("a \"b\" cx"))], "", ""),
        (2, &[(2, ValueRef::Null), (3, text(""))], "", ""),
        (2, &[], "", ""),
    ] {
        let after = before.replacen(from, to, 1);
        update(before, ValueRef::Integer(key), cells, Ok(after.as_bytes()));
    }
}

#[test]
fn a_deleted_row_takes_its_line_end() {
    for (before, key, after) in [
        ("id,n\n1,a\n2,b\n3,c\n", 2, "id,n\n1,a\n3,c\n"),
        ("id,n\n1,a\n2,b\n", 2, "id,n\n1,a\n"),
        ("id,n\n1,a\n2,b", 2, "id,n\n1,a"),
        ("id,n\r\n1,a\r\n2,b", 2, "id,n\r\n1,a"),
        ("id,n\r\n1,\"a\r\nb\"\r\n2,b\r\n", 1, "id,n\r\n2,b\r\n"),
        ("id,n\n\n1,a\n\n2,b\n", 1, "id,n\n\n\n2,b\n"),
        ("id,n\n1,a\n", 1, "id,n\n"),
        ("id,n\n1,a", 1, "id,n"),
    ] {
        delete(before, ValueRef::Integer(key), Ok(after.as_bytes()));
    }
}

/// The same text in each encoding.
fn encodings(text: &str) -> Vec<Vec<u8>> {
    let le = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let be = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    let marked = format!("\u{feff}{text}");
    vec![text.into(), marked.clone().into(), le(&marked), be(&marked), le(text), be(text)]
}

#[test]
fn the_encoding_is_preserved() {
    let before = "id,name\r\n1,Zoë 🦀\r\n2,Ann\r\n";
    let after = "id,name\r\n1,Łódź 🦀🦀\r\n2,Ann\r\n";
    for (before, after) in encodings(before).into_iter().zip(encodings(after)) {
        update(&before, ValueRef::Integer(1), &[(1, text("Łódź 🦀🦀"))], Ok(&after));
    }
    let after = "id,name\r\n2,Ann\r\n";
    for (before, after) in encodings(before).into_iter().zip(encodings(after)) {
        delete(&before, ValueRef::Integer(1), Ok(&after));
    }
    let after = "id,name\r\n1,Zoë 🦀\r\n2,Ann\r\n3,Ü\r\n";
    for (before, after) in encodings(before).into_iter().zip(encodings(after)) {
        create(&before, &[(0, ValueRef::Integer(3)), (1, text("Ü"))], Ok(&after));
    }
}

#[test]
fn a_declared_encoding_is_preserved_within_its_characters() {
    let encode = |label: &str, text: &str| {
        let (bytes, _, is_lossy) = encoding_rs::Encoding::for_label(label.as_bytes()).unwrap().encode(text);
        assert!(!is_lossy);
        bytes.into_owned()
    };
    for (label, name, old, new, foreign) in [
        ("shift_jis", "Shift_JIS", "ソニー,東京", "大阪ソ Ж", 'é'),
        ("shift_jis", "Shift_JIS", "ソニー,東京", "大阪", '€'),
        ("windows-1251", "windows-1251", "Москва", "Пётр", 'é'),
        ("gb18030", "gb18030", "北京", "上海 Ж é €", '\u{e5e5}'),
        ("euc-kr", "EUC-KR", "서울", "김", 'é'),
        ("iso-8859-2", "ISO-8859-2", "Łódź", "Kraków", '€'),
    ] {
        let text = |name: &str| format!("id,name\r\n1,\"{old}\"\r\n2,{name}\r\n3,\"{old}\"\r\n");
        let disk = TestFile::new("people.csv", encode(label, &text("x")));
        let encoding = encoding_rs::Encoding::for_label(label.as_bytes());
        let csv = Csv::open(&disk.path, Options { encoding, poll_interval_ms: 0, ..Options::default() });
        let write = |value: &str| {
            let cells = [(1, ValueRef::Text(value))];
            write_outcome(
                writer(&csv).as_ref(),
                RowChange::Update { key: &[ValueRef::Integer(2)], values: &cells },
            )
        };
        write(new);
        assert_eq!(std::fs::read(&disk.path).unwrap(), encode(label, &text(new)), "{label}");
        let refused = format!(
            "1: `{}` does not exist in {name}, the encoding of the file; save the file as UTF-8",
            foreign.escape_debug()
        );
        assert_eq!(write(&format!("a{foreign}")), refused);
        assert_eq!(std::fs::read(&disk.path).unwrap(), encode(label, &text(new)), "{label}");
    }
    // The last special character of a file may go, since nothing is detected.
    let disk = TestFile::new("people.csv", b"id,name\n1,\xc3\xa9\n2,\xeb\n");
    let encoding = encoding_rs::Encoding::for_label(b"windows-1252");
    let csv = Csv::open(&disk.path, Options { encoding, poll_interval_ms: 0, ..Options::default() });
    write_outcome(writer(&csv).as_ref(), RowChange::Delete { key: &[ValueRef::Integer(2)] });
    assert_eq!(std::fs::read(&disk.path).unwrap(), b"id,name\n1,\xc3\xa9\n");
}

#[test]
fn windows_1252_is_preserved_within_its_characters() {
    let before = b"id,name\n1,Zo\xeb\n2,\x80\x82\n";
    update(
        before,
        ValueRef::Integer(2),
        &[(1, text("Œuvre €"))],
        Ok(b"id,name\n1,Zo\xeb\n2,\x8cuvre \x80\n"),
    );
    create(
        before,
        &[(0, ValueRef::Integer(3)), (1, text("é"))],
        Ok(b"id,name\n1,Zo\xeb\n2,\x80\x82\n3,\xe9\n"),
    );
    let reason = "1: `Ł` does not exist in Windows-1252, the encoding of the file; save the file as UTF-8";
    update(before, ValueRef::Integer(2), &[(1, text("aŁ"))], Err(reason));
    // Without its only non-ASCII byte, the rest would be read as UTF-8 and change its meaning.
    let other = "the file would be read in another encoding; save it as UTF-8";
    let before = b"id,name\n1,\xc3\xa9\n2,\xeb\n";
    delete(before, ValueRef::Integer(2), Err(other));
    update(before, ValueRef::Integer(2), &[(1, text("e"))], Err(other));
    // If only ASCII is left, the encoding does not matter.
    delete(b"id,name\n1,e\n2,\xeb\n", ValueRef::Integer(2), Ok(b"id,name\n1,e\n"));
}

#[test]
fn a_formula_is_rejected_unless_the_manifest_allows_it() {
    for bad in ["=1+1", "+1 555", "-x", "-5", "@SUM(A1)", "\tx", "\r=1", "\n=1", "＝1"] {
        let disk = TestFile::new("people.csv", "id,name,age\n1,Ann,3\n");
        let csv = disk.csv();
        let cells = [(1, text(bad))];
        let change = || RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells };
        let message = write_outcome(writer(&csv).as_ref(), change());
        let first = bad.chars().next().unwrap().escape_debug();
        let expected = format!(
            "1: a text that begins with `{first}` is a formula to spreadsheets; the server's owner can allow it \
             with `formulas = \"keep\"` for the source"
        );
        assert_eq!(message, expected);
        let keep = Options { formulas: FormulaPolicy::Keep, poll_interval_ms: 0, ..Options::default() };
        let csv = Csv::open(&disk.path, keep);
        assert_eq!(write_outcome(writer(&csv).as_ref(), change()), "done");
        let row = get(reader(&csv).as_ref(), &[ValueRef::Integer(1)]).unwrap().unwrap();
        assert_eq!(row[1].as_deref(), Some(bad));
    }
    update("id,age\n1,3\n", ValueRef::Integer(1), &[(1, ValueRef::Integer(-5))], Ok(b"id,age\n1,-5\n"));
    update("id,age\n1,3.5\n", ValueRef::Integer(1), &[(1, text("-5.00"))], Ok(b"id,age\n1,-5.00\n"));
    // A spreadsheet that expects semicolons would split the text there.
    let reason = "1: a spreadsheet may split the text at `;` and run what follows as a formula; the server's owner \
                  can allow it with `formulas = \"keep\"` for the source";
    update("id,name\n1,x\n", ValueRef::Integer(1), &[(1, text("x;=1+1"))], Err(reason));
    // A column that has phone numbers or user names takes more of them, but no formula.
    let before = "id,phone,user\n1,+49 30,@bob\n2,,\n";
    update(
        before,
        ValueRef::Integer(2),
        &[(1, text("+49 151 7"))],
        Ok(b"id,phone,user\n1,+49 30,@bob\n2,+49 151 7,\n"),
    );
    create(
        before,
        &[(0, ValueRef::Integer(3)), (1, text("")), (2, text("@anna"))],
        Ok(b"id,phone,user\n1,+49 30,@bob\n2,,\n3,,@anna\n"),
    );
    for (place, bad) in [(1, "+SUM(A1)"), (2, "@x|y"), (2, "+49 151"), (1, "@anna"), (1, "=1")] {
        let first = bad.chars().next().unwrap();
        let reason = format!(
            "{place}: a text that begins with `{first}` is a formula to spreadsheets; the server's owner can allow it \
             with `formulas = \"keep\"` for the source"
        );
        update(before, ValueRef::Integer(2), &[(place, text(bad))], Err(&reason));
    }
    // An existing text is not checked again.
    update("id,f,n\n1,=A1,x\n", ValueRef::Integer(1), &[(2, text("y"))], Ok(b"id,f,n\n1,=A1,y\n"));
}

#[test]
fn a_csv_value_that_would_not_read_back_is_rejected() {
    let before = "id,name,whole,exact,day,yes\n1,Ann,1,1.5,2026-02-28,true\n2,,,,,\n";
    let key = ValueRef::Integer(1);
    let table: &[(usize, ValueRef<'_>, &str)] = &[
        (1, text("a\0b"), "a CSV file cannot hold a NUL character"),
        (1, ValueRef::Null, "expected a value"),
        (1, ValueRef::Blob(b"x"), "a CSV file cannot hold bytes"),
        (2, text("one"), "expected an integer, such as `42`"),
        (2, text("007"), "expected an integer, such as `42`"),
        (2, text(""), "an empty text would read back as null"),
        (2, ValueRef::Integer(i64::MAX), "expected an integer, such as `42`"),
        (2, ValueRef::Real(1.5), "expected an integer, such as `42`"),
        (3, text("1e5"), "expected a number, such as `12.50`"),
        (3, ValueRef::Real(f64::INFINITY), "a CSV file cannot hold a number that is not finite"),
        (3, ValueRef::Real(f64::NAN), "a CSV file cannot hold a number that is not finite"),
        (4, text("28.02.2026"), "expected a date, such as `2026-02-28`"),
        (5, ValueRef::Integer(2), "expected `true` or `false`"),
        (5, text("yes"), "expected `true` or `false`"),
        (0, ValueRef::Null, "expected a value"),
        (0, text("x"), "expected an integer, such as `42`"),
    ];
    for (place, cell, reason) in table {
        update(before, key, &[(*place, *cell)], Err(&format!("{place}: {reason}")));
    }
    for (place, cell, field) in [
        (1, text(""), "1,,1,1.5,2026-02-28,true"),
        (2, ValueRef::Null, "1,Ann,,1.5,2026-02-28,true"),
        (2, ValueRef::Integer(-9_007_199_254_740_991), "1,Ann,-9007199254740991,1.5,2026-02-28,true"),
        (3, text("12345678901234567890.1234"), "1,Ann,1,12345678901234567890.1234,2026-02-28,true"),
        (3, text("-0.0"), "1,Ann,1,-0.0,2026-02-28,true"),
        (5, ValueRef::Integer(0), "1,Ann,1,1.5,2026-02-28,false"),
    ] {
        let after = before.replace("1,Ann,1,1.5,2026-02-28,true", field);
        update(before, key, &[(place, cell)], Ok(after.as_bytes()));
    }
}

/// A shape whose second column has another type than the inferred one.
fn as_kind(csv: &Csv, kind: DataType) -> TableShape {
    let mut shape = shape(csv);
    shape.columns[1].data_type = kind;
    shape
}

#[test]
fn numbers_are_written_to_read_back() {
    for (n, field) in [
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (1e21, "1000000000000000000000"),
        (5e-324, &format!("{}", 5e-324)),
        (f64::MAX, &format!("{}", f64::MAX)),
    ] {
        let disk = TestFile::new("n.csv", "id,n\n1,2.50\n");
        let csv = disk.csv();
        let shape = as_kind(&csv, DataType::Number);
        let (writer, reader) = (csv.writer(&shape).unwrap(), csv.reader(&shape).unwrap());
        let change = |cell| plain_write(RowChange::Update { key: &[ValueRef::Integer(1)], values: cell });
        // An equal number keeps its spelling.
        assert_eq!(
            outcome_text(writer.write(&change(&[(1, ValueRef::Real(2.5))]), &mut RecordingChecks::default())),
            "done"
        );
        assert_eq!(std::fs::read(&disk.path).unwrap(), b"id,n\n1,2.50\n");
        assert_eq!(
            outcome_text(writer.write(&change(&[(1, ValueRef::Real(n))]), &mut RecordingChecks::default())),
            "done"
        );
        let read = get(reader.as_ref(), &[ValueRef::Integer(1)]).unwrap().unwrap()[1].clone().unwrap();
        assert_eq!(read, *field);
        assert_eq!(read.parse::<f64>().unwrap().to_bits(), n.to_bits());
    }
}

#[test]
fn null_and_empty_text_are_distinguished_or_rejected() {
    let content = "id,name\n1,Ann\n2,\n3,NA\n";
    let check = |null: Option<&str>, cell: ValueRef<'_>, expected: &str| {
        let disk = TestFile::new("people.csv", content);
        let csv = disk.csv();
        let mut shape = shape(&csv);
        shape.columns[1].nullable = true;
        shape.columns[1].null_texts = null.map(str::to_owned).into_iter().collect();
        let writer = csv.writer(&shape).unwrap();
        let cells = [(1, cell)];
        let message = write_outcome(
            writer.as_ref(),
            RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells },
        );
        if message == "done" {
            let after = std::fs::read_to_string(&disk.path).unwrap();
            assert_eq!(after, content.replace("Ann", expected));
            let row = get(csv.reader(&shape).unwrap().as_ref(), &[ValueRef::Integer(1)]).unwrap().unwrap();
            assert_eq!(row[1].as_deref().map_or(ValueRef::Null, ValueRef::Text), cell);
        } else {
            assert_eq!(message, expected);
        }
    };
    check(Some("NA"), ValueRef::Null, "NA");
    check(Some("NA"), text(""), "");
    check(Some("NA"), text("NA"), "1: `NA` would read back as null");
    check(Some(""), ValueRef::Null, "");
    check(Some(""), text(""), "1: an empty text would read back as null");
    check(Some("-"), ValueRef::Null, "-");
    check(None, text(""), "");
    check(
        None,
        ValueRef::Null,
        "1: a CSV file cannot distinguish null from an empty text; set `null` for the source or the field in the manifest \
         to a text that means null",
    );
}

#[test]
fn keys_stay_keys() {
    let before = "id,name\n1,Ann\n2,Bob\n";
    let exists = "a row with this key already exists";
    create(before, &[(0, ValueRef::Integer(2)), (1, text("x"))], Err(exists));
    update(before, ValueRef::Integer(1), &[(0, ValueRef::Integer(2))], Err(exists));
    update(before, ValueRef::Integer(1), &[(0, ValueRef::Integer(3))], Ok(b"id,name\n3,Ann\n2,Bob\n"));
    let nothing = "no row has this key";
    update(before, ValueRef::Integer(3), &[(1, text("x"))], Err(nothing));
    update(before, ValueRef::Null, &[(1, text("x"))], Err(nothing));
    delete(before, text("x"), Err(nothing));
    let mails = "mail\na@b\n";
    create(mails, &[(0, text(""))], Err("0: expected a value, because it is the key"));
    let long = "x".repeat(KEY_BYTES_MAX);
    create(mails, &[(0, text(&long))], Ok(format!("{mails}{long}\n").as_bytes()));
    let too_long = format!("0: a key must not exceed {KEY_BYTES_MAX} bytes");
    create(mails, &[(0, text(&format!("{long}x")))], Err(&too_long));
    // Two columns that are a key only together.
    let disk = TestFile::new("pairs.csv", "a,b,c\n1,x,one\n1,y,two\n2,x,three\n");
    let csv = disk.csv();
    let mut pairs = shape(&csv);
    pairs.key = vec![0, 1];
    let writer = csv.writer(&pairs).unwrap();
    let (one, y) = (ValueRef::Integer(1), text("y"));
    assert_eq!(write_outcome(writer.as_ref(), RowChange::Delete { key: &[one, y] }), "done");
    assert_eq!(write_outcome(writer.as_ref(), RowChange::Delete { key: &[one] }), nothing);
    let cells = [(0, ValueRef::Integer(2)), (1, text("x")), (2, text("again"))];
    assert_eq!(write_outcome(writer.as_ref(), RowChange::Create { values: &cells }), exists);
    assert_eq!(std::fs::read(&disk.path).unwrap(), b"a,b,c\n1,x,one\n2,x,three\n");
}

#[test]
fn write_checks_see_the_row_before_and_after() {
    let disk = TestFile::new("people.csv", "id,name,rev\n1,Ann,7\n2,Bob,1\n");
    let csv = disk.csv();
    let writer = writer(&csv);
    let one = [ValueRef::Integer(1)];
    let cells = [(1, text("Eve"))];
    let update = plain_write(RowChange::Update { key: &one, values: &cells });
    let mut checks =
        RecordingChecks { extra_values: vec![(2, Value::Integer(8))], ..RecordingChecks::default() };
    assert_eq!(outcome_text(writer.write(&update, &mut checks)), "done");
    assert_eq!((checks.before.as_deref(), checks.after.as_deref()), (Some("1|Ann|7"), Some("1|Eve|8")));
    let delete = plain_write(RowChange::Delete { key: &[ValueRef::Integer(2)] });
    let mut checks = RecordingChecks::default();
    assert_eq!(outcome_text(writer.write(&delete, &mut checks)), "done");
    assert_eq!((checks.before.as_deref(), checks.after.as_deref()), (Some("2|Bob|1"), Some("2|Bob|1")));
    let cells = [(0, ValueRef::Integer(3)), (1, text("C")), (2, text("1"))];
    let create = plain_write(RowChange::Create { values: &cells });
    let mut checks = RecordingChecks::default();
    assert_eq!(outcome_text(writer.write(&create, &mut checks)), "done");
    assert_eq!((checks.before, checks.after.as_deref()), (None, Some("3|C|1")));
    let content = std::fs::read(&disk.path).unwrap();
    assert_eq!(content, b"id,name,rev\n1,Eve,8\n3,C,1\n");
    // If the checks object, nothing is written.
    let mut checks = RecordingChecks { is_stale: true, ..RecordingChecks::default() };
    assert_eq!(outcome_text(writer.write(&update, &mut checks)), "the row has changed since it was read");
    let cells = [(1, text("Mallory"))];
    let update = plain_write(RowChange::Update { key: &one, values: &cells });
    let mut checks = RecordingChecks { unwritable_text: Some("Mallory"), ..RecordingChecks::default() };
    assert!(matches!(writer.write(&update, &mut checks), Err(WriteError::ContractViolation)));
    assert_eq!(std::fs::read(&disk.path).unwrap(), content);
}

#[test]
fn a_write_is_visible_to_the_next_call() {
    let disk = TestFile::new("people.csv", "id,name\n1,Ann\n");
    // The poll interval is too long to notice the change.
    let csv = Csv::open(&disk.path, Options { poll_interval_ms: u64::MAX, ..Options::default() });
    let (writer, reader) = (writer(&csv), reader(&csv));
    for number in 2..20 {
        let (id, name) = (ValueRef::Integer(number), format!("N{number}"));
        let cells = [(0, id), (1, text(&name))];
        assert_eq!(write_outcome(writer.as_ref(), RowChange::Create { values: &cells }), "done");
        assert_eq!(get(reader.as_ref(), &[id]).unwrap().unwrap()[1].as_deref(), Some(&*name));
        assert_eq!(
            write_outcome(writer.as_ref(), RowChange::Delete { key: &[ValueRef::Integer(number - 1)] }),
            "done"
        );
        assert_eq!(all_rows(reader.as_ref()).len(), 1);
    }
    // Changes by other programs are seen then too.
    disk.write("id,name\n1,Zoe\n");
    let cells = [(0, ValueRef::Integer(2)), (1, text("Bob"))];
    assert_eq!(write_outcome(writer.as_ref(), RowChange::Create { values: &cells }), "done");
    assert_eq!(all_rows(reader.as_ref()), rows(&[&["1", "Zoe"], &["2", "Bob"]]));
}

#[test]
fn a_dry_run_leaves_no_trace_and_a_key_creates_one_row() {
    let content = "id,name\n1,Ann\n";
    let disk = TestFile::new("people.csv", content);
    let csv = disk.csv();
    let writer = writer(&csv);
    let cells = [(0, ValueRef::Integer(2)), (1, text("Bob"))];
    let ask = |dry_run| {
        let change = RowChange::Create { values: &cells };
        let write = WriteRequest {
            change,
            idempotency_key: Some(idempotency_key(1)),
            dry_run,
            now_ms: 5,
            cancelled: None,
        };
        outcome_text(writer.write(&write, &mut RecordingChecks::default()))
    };
    let files = || std::fs::read_dir(disk.path.parent().unwrap()).unwrap().count();
    assert_eq!(ask(true), "done");
    assert_eq!((std::fs::read_to_string(&disk.path).unwrap().as_str(), files()), (content, 1));
    assert_eq!(ask(false), "done");
    assert_eq!(ask(false), "replayed 2|Bob");
    assert_eq!(std::fs::read_to_string(&disk.path).unwrap(), "id,name\n1,Ann\n2,Bob\n");
    let other = WriteRequest {
        change: RowChange::Delete { key: &[ValueRef::Integer(1)] },
        idempotency_key: Some(contract::source::IdempotencyKey {
            request_digest: [9; 32],
            ..idempotency_key(1)
        }),
        dry_run: false,
        now_ms: 5,
        cancelled: None,
    };
    let message = outcome_text(writer.write(&other, &mut RecordingChecks::default()));
    assert_eq!(message, "this idempotency key was already used for a different request");
}

#[test]
fn a_change_that_breaks_another_reader_is_rejected() {
    // One delimiter is detected until another one looks better.
    let reason =
        "the file would be read with another delimiter; set `delimiter` for the source in the manifest";
    check(
        "a;b;c,d\nx,y\n",
        RowChange::Update { key: &[text("x")], values: &[(0, text("p;q;r"))] },
        Err(reason),
    );
    // Another contract reads a column that this one does not have.
    let disk = TestFile::new("people.csv", "id,name,age\n1,Ann,30\n");
    let csv = disk.csv();
    let whole = shape(&csv);
    let names = TableShape { columns: whole.columns[..2].to_vec(), ..whole.clone() };
    let writer = csv.writer(&names).unwrap();
    let reader = csv.reader(&whole).unwrap();
    let cells = [(0, ValueRef::Integer(2)), (1, text("Bob"))];
    let message = write_outcome(writer.as_ref(), RowChange::Create { values: &cells });
    assert!(
        message.starts_with("the file would no longer fit its contract: `people.csv` line 3, column `age`"),
        "{message}"
    );
    drop(reader);
    assert_eq!(write_outcome(writer.as_ref(), RowChange::Create { values: &cells }), "done");
    assert_eq!(std::fs::read(&disk.path).unwrap(), b"id,name,age\n1,Ann,30\n2,Bob,\n");
}

#[test]
fn a_csv_that_violates_the_contract_is_not_written() {
    let disk = TestFile::new("people.csv", "id,age\n1,30\n");
    let csv = disk.csv();
    let writer = writer(&csv);
    for content in
        ["id,age\n1,x\n", "id,age\n1\n", "id,age\n1,2\n1,3\n", "id\n1\n", "", "PK\x03\x04", "id,age\n\"1,2\n"]
    {
        disk.write(content);
        let cells = [(1, ValueRef::Integer(5))];
        let update = plain_write(RowChange::Update { key: &[ValueRef::Integer(1)], values: &cells });
        let error = writer.write(&update, &mut RecordingChecks::default()).unwrap_err();
        assert!(matches!(&error, WriteError::Source(SourceError::Incompatible { .. })), "{error:?}");
        assert_eq!(std::fs::read_to_string(&disk.path).unwrap(), content);
    }
    std::fs::remove_file(&disk.path).unwrap();
    let message = write_outcome(writer.as_ref(), RowChange::Delete { key: &[ValueRef::Integer(1)] });
    assert!(
        message.ends_with("it was not found; the server's owner can check its name, or put it back"),
        "{message}"
    );
    assert!(!disk.path.exists());
    assert!(
        csv.writer(&TableShape { table: "people".into(), columns: Vec::new(), key: Vec::new() }).is_err()
    );
}

#[cfg(unix)]
#[test]
fn facts_name_why_a_file_is_read_only() {
    use std::os::unix::fs::PermissionsExt;
    let read_only =
        |disk: &TestFile| disk.csv().introspect().unwrap().tables[0].read_only_reason().map(str::to_owned);
    let disk = TestFile::new("people.csv", "id\n1\n");
    assert_eq!(read_only(&disk), None);
    std::fs::hard_link(&disk.path, disk.path.with_extension("twin")).unwrap();
    assert_eq!(read_only(&disk).as_deref(), Some("it has hard links, which a new file would break"));
    std::fs::set_permissions(&disk.path, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(read_only(&disk).as_deref(), Some("it is marked read-only"));
}

#[test]
fn concurrent_csv_writers_lose_nothing() {
    let disk = TestFile::new("people.csv", "id,n\n0,0\n");
    let shared = disk.csv();
    let (before, shared_writer) = (shape(&shared), writer(&shared));
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let (disk, before, shared_writer) = (&disk, &before, &shared_writer);
            scope.spawn(move || {
                let own = disk.csv();
                let writer = match thread % 2 {
                    0 => shared_writer.clone(),
                    _ => own.writer(before).unwrap(),
                };
                for number in 1..=8 {
                    let id = ValueRef::Integer(10 * thread + number);
                    let cells = [(0, id), (1, ValueRef::Integer(number))];
                    assert_eq!(write_outcome(writer.as_ref(), RowChange::Create { values: &cells }), "done");
                    if number > 4 {
                        let gone = [ValueRef::Integer(10 * thread + number - 4)];
                        assert_eq!(write_outcome(writer.as_ref(), RowChange::Delete { key: &gone }), "done");
                    }
                }
            });
        }
    });
    let (found, _) = list(reader(&shared).as_ref(), &query_all()).unwrap();
    let ids: Vec<i64> = found.iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect();
    let expected = [0].into_iter().chain((0..4).flat_map(|thread| (5..9).map(move |n| 10 * thread + n)));
    assert_eq!(ids, expected.collect::<Vec<i64>>());
}
