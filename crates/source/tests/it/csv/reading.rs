//! How a file becomes a table: records, delimiters, encodings, types.

use contract::DataType::{self, Boolean, Date, Decimal, Int64, Integer, LocalTimestamp, Text, Timestamp};
use contract::source::{Source, SourceError};
use source::csv::{Csv, Options};

use super::kit::{TestFile, all_rows, only_table, reader, rows, table};

/// Compares the header and the rows of a file named `name`.
fn check(name: &str, content: impl AsRef<[u8]>, header: &[&str], expected: &[&[&str]], notes: &[&str]) {
    let shown = String::from_utf8_lossy(content.as_ref()).into_owned();
    let disk = TestFile::new(name, content);
    let csv = disk.csv();
    let facts = csv.introspect().unwrap_or_else(|error| panic!("{shown:?}: {error}"));
    assert_eq!(facts.notes, notes, "{shown:?}");
    let table = only_table(facts);
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, header, "{shown:?}");
    assert_eq!(table.row_count, Some(expected.len() as u64), "{shown:?}");
    assert!(!table.key_is_declared);
    let mut read = all_rows(reader(&csv).as_ref());
    let mut expected = rows(expected);
    // Rows come in key order if there is a key; these tests compare them unordered.
    read.sort();
    expected.sort();
    assert_eq!(read, expected, "{shown:?}");
}

#[test]
fn records_are_split_as_rfc_4180_says() {
    let header: &[&str] = &["a", "b"];
    let table: &[(&str, &[&[&str]])] = &[
        ("a,b\n1,x\n", &[&["1", "x"]]),
        ("a,b\r\n1,x\r\n2,y\r\n", &[&["1", "x"], &["2", "y"]]),
        ("a,b\r1,x\r2,y", &[&["1", "x"], &["2", "y"]]),
        ("a,b\n1,x", &[&["1", "x"]]),
        ("a,b\n1,x\n\n", &[&["1", "x"]]),
        ("\n\r\na,b\n\n\n1,x\n\r\n2,y\n", &[&["1", "x"], &["2", "y"]]),
        ("a,b\n", &[]),
        ("a,b", &[]),
        ("a,b\n1,\n", &[&["1", ""]]),
        ("a,b\n,\n1,x\n", &[&["1", "x"]]),
        ("a,b\n1,", &[&["1", ""]]),
        ("\"a\",\"b\"\n\"1\",\"x\"\n", &[&["1", "x"]]),
        ("a,b\n1,\"x, y\"\n", &[&["1", "x, y"]]),
        ("a,b\n1,\"x\ny\r\nz\"\n2,w\n", &[&["1", "x\ny\r\nz"], &["2", "w"]]),
        ("a,b\n1,\"say \"\"hi\"\"\"\n", &[&["1", "say \"hi\""]]),
        ("a,b\n1,\"\"\n", &[&["1", ""]]),
        ("a,b\n1,\"\"\"\"\n", &[&["1", "\""]]),
        ("a,b\n1,\"\"\"\"\"\"\n", &[&["1", "\"\""]]),
        ("a,b\n1,5\" pipe\n", &[&["1", "5\" pipe"]]),
        ("a,b\n1,x \"y\" z\n", &[&["1", "x \"y\" z"]]),
        ("a,b\n1,\"x\"y\n", &[&["1", "xy"]]),
        ("a,b\n1,\"x\"y\"z\"\n", &[&["1", "xy\"z\""]]),
        ("a,b\n1, \"x\"\n", &[&["1", " \"x\""]]),
        ("a,b\n1,\"x\"", &[&["1", "x"]]),
        ("a,b\n 1 ,\tx\n", &[&["1", "\tx"]]),
        ("a,b\n1,zażółć 🦀\n", &[&["1", "zażółć 🦀"]]),
        ("a,b\n1,\"zażółć, \"\"🦀\"\"\"\n", &[&["1", "zażółć, \"🦀\""]]),
        (
            "a,b\nlonger than eight bytes,exactly8\nexactly7,x\n",
            &[&["longer than eight bytes", "exactly8"], &["exactly7", "x"]],
        ),
    ];
    for (content, expected) in table {
        check("people.csv", content, header, expected, &[]);
    }
    check("people.csv", "a,a,,b\n1,2,3,4\n", &["a", "a", "", "b"], &[&["1", "2", "3", "4"]], &[]);
    check("people.csv", "\"a \"\"b\"\"\n\",c\n1,2\n", &["a \"b\"\n", "c"], &[&["1", "2"]], &[]);
    check("people.csv", "a\n1\n\n\"\"\n2\n", &["a"], &[&["1"], &["-"], &["2"]], &[]);
}

#[test]
fn the_delimiter_is_detected_from_the_first_records() {
    let (semicolon, tab, pipe) =
        ("fields are separated by `;`", "fields are separated by tabs", "fields are separated by `|`");
    let (two, none): (&[&str], &[&str]) = (&["a", "b"], &[]);
    check("x.csv", "a;b\n1;2\n", two, &[&["1", "2"]], &[semicolon]);
    check("x.csv", "a\tb\n1\t2\n", two, &[&["1", "2"]], &[tab]);
    check("x.csv", "a|b\n1|2\n", two, &[&["1", "2"]], &[pipe]);
    check("x.csv", "a;b\n1,5;2,5\n", two, &[&["1.5", "2.5"]], &[semicolon]);
    check("x.csv", "a;b,c;d\n1;2,5;3\n", &["a", "b,c", "d"], &[&["1", "2.5", "3"]], &[semicolon]);
    check("x.csv", "a,b\n1;2;3,4\n", two, &[&["1;2;3", "4"]], none);
    check("x.csv", "a,b\n1|2,3|4\n", two, &[&["1|2", "3|4"]], none);
    check("x.csv", "a;b\n\"x,y\n,z\";2\n", two, &[&["x,y\n,z", "2"]], &[semicolon]);
    check("x.csv", "\"a,b\";c\n\"1,2\";3\n", &["a,b", "c"], &[&["1.2", "3"]], &[semicolon]);
    check("x.csv", "a;b", two, &[], &[semicolon]);
    check("x.csv", "name\nAnn\nBob\n", &["name"], &[&["Ann"], &["Bob"]], none);
    check("x.csv", "name", &["name"], &[], none);
    check("x.tsv", "a\tb\n1,2\t3,4\n", two, &[&["1.2", "3.4"]], &[tab]);
    check("x.tsv", "a,b\tc,d\n1,2\t3,4\n", &["a,b", "c,d"], &[&["1.2", "3.4"]], &[tab]);
    check("x.TSV", "name\nAnn\n", &["name"], &[&["Ann"]], &[tab]);
    check("x.tsv", "a,b\n1,2\n", two, &[&["1", "2"]], none);
    check("x.tsv", "a;b\n1;2\n", two, &[&["1", "2"]], &[semicolon]);
    check("x.csv", "sep=|\na|b\n1|2\n", two, &[&["1", "2"]], &[pipe]);
    check("x.csv", "sep=;\r\na,b;c\r\n1;2\r\n", &["a,b", "c"], &[&["1", "2"]], &[semicolon]);
    check("x.csv", "sep=x,b\n1,2\n", &["sep=x", "b"], &[&["1", "2"]], none);
    // A record that the end of the sample cuts does not count.
    let long = format!("a;b\n{}", "x,y;z\n".repeat(20_000));
    assert_eq!(table(&long).columns.len(), 2);
    let cut = format!("a;b\n1;\"{}\"\n2;x\n", ",;".repeat(50_000));
    assert_eq!(table(&cut).columns.len(), 2);
}

#[test]
fn a_declared_delimiter_is_used() {
    let disk = TestFile::new("x.csv", "a;b,c\n1;2,3\n");
    let facts = disk.csv_with(Some(b','), None).introspect().unwrap();
    assert!(facts.notes.is_empty());
    assert_eq!(only_table(facts).columns[0].name, "a;b");
    let disk = TestFile::new("x.csv", "a^b\n1^2\n");
    let facts = disk.csv_with(Some(b'^'), None).introspect().unwrap();
    assert_eq!(facts.notes, ["fields are separated by `^`"]);
}

#[test]
fn encodings_are_detected() {
    let utf16 = |mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
        let text = "name,city\r\nZoë,Łódź 🦀\r\n";
        [mark.to_vec(), text.encode_utf16().flat_map(bytes).collect()].concat()
    };
    let header: &[&str] = &["name", "city"];
    let row: &[&[&str]] = &[&["Zoë", "Łódź 🦀"]];
    let note = "read as UTF-16, because it begins with a UTF-16 byte order mark";
    check("x.csv", "name,city\nZoë,Łódź 🦀\n", header, row, &[]);
    check("x.csv", "\u{FEFF}name,city\nZoë,Łódź 🦀\n", header, row, &[]);
    check("x.csv", "\u{FEFF}\"name\",city\nZoë,Łódź 🦀\n", header, row, &[]);
    check("x.csv", utf16(b"\xFF\xFE", u16::to_le_bytes), header, row, &[note]);
    check("x.csv", utf16(b"\xFE\xFF", u16::to_be_bytes), header, row, &[note]);
    let windows = "read as Windows-1252, because it is not UTF-8; if letters look wrong, set the encoding of its source in \
                   the manifest; if they are right, `encoding = \"windows-1252\"` makes sure of it";
    check("x.csv", b"name,city\nZo\xEB,\x80 \x93K\xF6ln\x94\n", header, &[&["Zoë", "€ “Köln”"]], &[windows]);
    check(
        "x.csv",
        b"name;city\nZo\xEB;K\xF6ln\n",
        header,
        &[&["Zoë", "Köln"]],
        &[windows, "fields are separated by `;`"],
    );
    check("x.csv", b"name,city\nZoe,caf\xE9", header, &[&["Zoe", "café"]], &[windows]);
}

#[test]
fn a_declared_encoding_is_used() {
    let check = |label: &str, content: &[u8], expected: Result<&str, &str>| {
        let disk = TestFile::new("x.csv", content);
        let encoding = encoding_rs::Encoding::for_label(label.as_bytes());
        assert!(encoding.is_some(), "{label}");
        let csv = Csv::open(&disk.path, Options { encoding, poll_interval_ms: 0, ..Options::default() });
        let read = match csv.introspect() {
            Ok(facts) => {
                assert!(facts.notes.is_empty(), "{:?}", facts.notes);
                let rows = all_rows(reader(&csv).as_ref());
                let rows = rows.into_iter().flatten().map(Option::unwrap_or_default);
                Ok(rows.collect::<Vec<_>>().join("|"))
            }
            Err(SourceError::Unavailable { message, .. } | SourceError::Incompatible { message, .. }) => {
                Err(message)
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(read.as_deref().map_err(String::as_str), expected, "{label}");
    };
    check("shift_jis", b"a,b\n1,\x83\x5c\x83\x6a\x81\x5b\n", Ok("1|ソニー"));
    // The second byte of a character may be a delimiter or a backslash.
    check("big5", b"a,b\n1,\xa5\x7c\n", Ok("1|四"));
    check("windows-1251", b"a,b\n1,\xcc\xee\xf1\xea\xe2\xe0\n", Ok("1|Москва"));
    check("latin1", b"a,b\n1,caf\xe9\n", Ok("1|café"));
    check("utf-8", "a,b\n1,café\n".as_bytes(), Ok("1|café"));
    check("utf-8", "\u{feff}a,b\n1,café\n".as_bytes(), Ok("1|café"));
    check("utf-16le", b"a\0,\0b\0\n\x001\0,\0\xe9\0\n\0", Ok("1|é"));
    check("utf-16le", b"\xff\xfea\0,\0b\0\n\x001\0,\0\xe9\0\n\0", Ok("1|é"));
    let wrong =
        "the server's owner can correct `encoding` in the manifest, or save the file again in that encoding";
    check("utf-8", b"a,b\n1,x\n2,caf\xe9\n", Err(&format!("`x.csv` line 3 is not valid UTF-8; {wrong}")));
    check(
        "shift_jis",
        b"a,b\n1,x\n2,\xff\n",
        Err(&format!("`x.csv` line 3 is not valid Shift_JIS; {wrong}")),
    );
    check(
        "shift_jis",
        "\u{feff}a,b\n1,é\n".as_bytes(),
        Err(
            "`x.csv` begins with the byte order mark of UTF-8, but `encoding` is Shift_JIS; the server's owner can remove `encoding` from the manifest",
        ),
    );
}

#[test]
fn a_column_is_nullable_where_a_value_is_missing() {
    let check = |content: &str, null: Option<&str>, expected: &[(DataType, bool)]| {
        let disk = TestFile::new("x.csv", content);
        let table = only_table(disk.csv_with(Some(b','), null).introspect().unwrap());
        let read: Vec<_> = table.columns.iter().map(|column| (column.data_type, column.nullable)).collect();
        assert_eq!(read, expected, "{content:?} {null:?}");
        assert!(table.columns.iter().all(|column| !column.mixed));
    };
    check("a,b\n1,x\n2,y\n", None, &[(Integer, false), (Text, false)]);
    check("a,b\n1,x\n,y\n", None, &[(Integer, true), (Text, false)]);
    check("a,b\n,\n,\n", None, &[(Text, false), (Text, false)]);
    check("a,b\n", None, &[(Text, false), (Text, false)]);
    check("a,b\n1,x\nNA,NA\n", None, &[(Text, false), (Text, false)]);
    check("a,b\n1,x\nNA,NA\n", Some("NA"), &[(Integer, true), (Text, true)]);
    check("a,b\n1,x\n\"NA\",y\n", Some("NA"), &[(Integer, true), (Text, false)]);
    check("a,b\n1,\nNA,NA\n", Some("NA"), &[(Integer, true), (Text, true)]);
    check("a,b\nNA,1\nNA,2\n", Some("NA"), &[(Text, true), (Integer, false)]);
    check("a,b\n1,x\n na,NA \n", Some("NA"), &[(Text, false), (Text, false)]);
    check("a,b\n1,1.5\n9007199254740992,-2\n", None, &[(Int64, false), (Decimal, false)]);
    check("a,b,c\ntrue,2026-02-28,x\n,,y\n", None, &[(Boolean, true), (Date, true), (Text, false)]);
    check(
        "a,b\n2026-02-28T10:00:00Z,2026-02-28 10:00:00\n",
        None,
        &[(Timestamp, false), (LocalTimestamp, false)],
    );
    check("a,b\n007,+1\n", None, &[(Text, false), (Text, false)]);
    // The last of many rows counts as much as the first.
    let late = format!("a,b\n{}x,\n", "1,2\n".repeat(10_000));
    check(&late, None, &[(Text, false), (Integer, true)]);
}

#[test]
fn few_distinct_texts_are_listed() {
    let values = |content: &str| table(content).columns.remove(1).distinct_values;
    assert_eq!(values("a,b\n1,free\n2,ruby\n3,free\n"), ["free", "ruby"]);
    assert_eq!(values("a,b\n1,free\n2,\n"), ["free", ""]);
    assert!(values("a,b\n1,2\n2,3\n").is_empty());
    assert!(values("a,b\n1,\n2,\n").is_empty());
    let many: String = (0..100).map(|i| format!("{i},text {i}\n")).collect();
    assert!(values(&format!("a,b\n{many}")).is_empty());
}

#[test]
fn a_table_is_named_after_its_file() {
    for (file, name) in [("people.csv", "people"), ("a.b.csv", "a.b"), ("people", "people"), (".csv", ".csv")]
    {
        assert_eq!(only_table(TestFile::new(file, "a\n1\n").csv().introspect().unwrap()).name, name);
    }
}
