//! Error messages for files that are not tables.

use contract::source::{Source, SourceError};

use super::kit::{TestFile, table};

fn error_text(disk: &TestFile, delimiter: Option<u8>) -> String {
    match disk.csv_with(delimiter, None).introspect() {
        Err(
            SourceError::Unavailable { message: expected_message, detail: log }
            | SourceError::Incompatible { message: expected_message, detail: log },
        ) => {
            assert!(log.contains(disk.path.to_str().unwrap()), "{log}");
            assert!(
                !expected_message.contains(disk.path.parent().unwrap().to_str().unwrap()),
                "{expected_message}"
            );
            let (problem, help) =
                expected_message.split_once("; the server's owner can ").expect("help for the owner");
            format!("{problem}; {help}")
        }
        other => panic!("{other:?}"),
    }
}

fn check(content: impl AsRef<[u8]>, expected: &str) {
    assert_eq!(error_text(&TestFile::new("people.csv", content), None), expected);
}

/// The text in another encoding.
fn encoded(label: &str, text: &str) -> Vec<u8> {
    let (bytes, _, is_lossy) = encoding_rs::Encoding::for_label(label.as_bytes()).unwrap().encode(text);
    assert!(!is_lossy, "{text}");
    bytes.into_owned()
}

#[test]
fn a_file_that_is_neither_utf8_nor_windows_1252_is_refused_with_likely_encodings() {
    for (label, content, expected) in [
        (
            "shift_jis",
            "氏名,住所\n山田太郎,東京都千代田区\nすずき,大阪\n",
            "`encoding = \"shift_jis\"` (`氏名,住所`)",
        ),
        ("shift_jis", "id,name\n1,ソニー\n", "`encoding = \"shift_jis\"` (`1,ソニー`)"),
        ("euc-jp", "氏名,住所\n山田さん,東京へ\n", "`encoding = \"euc-jp\"` (`氏名,住所`)"),
        (
            "windows-1251",
            "Фамилия;Имя;Город\nИванов;Пётр;Москва\n",
            "`encoding = \"windows-1251\"` (`Фамилия;Имя;Город`)",
        ),
        (
            "koi8-r",
            "Фамилия;Имя;Город\nИванов;Пётр;Москва\n",
            "`encoding = \"koi8-r\"` (`Фамилия;Имя;Город`)",
        ),
        ("gb18030", "姓名,城市\n张伟,北京\n王芳,上海\n", "`encoding = \"gb18030\"` (`姓名,城市`)"),
        ("euc-kr", "이름,도시\n김민수,서울\n", "`encoding = \"euc-kr\"` (`이름,도시`)"),
        ("windows-1253", "Όνομα,Πόλη\nΜαρία,Αθήνα\n", "`encoding = \"windows-1253\"` (`Όνομα,Πόλη`)"),
        ("windows-1255", "שם,עיר\nדוד,חיפה\n", "`encoding = \"windows-1255\"` (`שם,עיר`)"),
    ] {
        let text = error_text(&TestFile::new("people.csv", encoded(label, content)), None);
        assert!(text.starts_with("`people.csv` line "), "{text}");
        assert!(text.contains("is neither UTF-8 nor Windows-1252"), "{text}");
        let first = text.find("`encoding").map_or("", |at| &text[at..]);
        assert!(first.starts_with(expected), "{label}: {text}");
    }
    // Bytes that Windows-1252 does not have, in no other encoding either.
    let text = error_text(&TestFile::new("people.csv", b"a,b\n1,\xff\x81\xff\n"), None);
    assert!(text.starts_with("`people.csv` line 2 is neither UTF-8 nor Windows-1252"), "{text}");
    // Western European with a damaged character: that encoding reads every byte, and no other one fits.
    let text = error_text(&TestFile::new("people.csv", b"name,city\nAnn\xe9,W\xc5\x81adys\n"), None);
    assert!(text.contains("`encoding = \"windows-1252\"` (`Ann\u{e9},W\u{c5}adys`)"), "{text}");
    // Beyond the part of a large file that is looked at, there is no line to show.
    let long = [b"name,city\n".as_slice(), &b"Ann,Bonn\n".repeat(10_000), b"Ren\xe9 \x81,Rome\n"].concat();
    let text = error_text(&TestFile::new("people.csv", long), None);
    assert!(text.ends_with("in the manifest: `encoding = \"windows-1252\"`"), "{text}");
}

#[test]
fn files_that_are_not_tables_are_named() {
    check("", "`people.csv` is empty; name the columns in its first line");
    check("\n\r\n", "`people.csv` is empty; name the columns in its first line");
    check("\u{FEFF}", "`people.csv` is empty; name the columns in its first line");
    check("sep=;\n", "`people.csv` is empty; name the columns in its first line");
    let zip = "`people.csv` looks like an Excel workbook or another ZIP archive; save the sheet as CSV, or unpack it";
    check(b"PK\x03\x04rest", zip);
    check(
        b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1rest",
        "`people.csv` looks like an old Excel workbook; save the sheet as CSV",
    );
    check(
        b"SQLite format 3\0rest",
        "`people.csv` looks like a SQLite database; serve it as one, or export a table as CSV",
    );
    check(b"\x1F\x8Brest", "`people.csv` looks like a gzip archive; unpack it first");
    check("%PDF-1.7", "`people.csv` looks like a PDF; export the table as CSV");
    check("PAR1", "`people.csv` looks like a Parquet file; name it `.parquet`, or set `kind = \"parquet\"`");
    let nul = |line| {
        format!("`people.csv` line {line} has a NUL byte, so it is not text; save it again as CSV in UTF-8")
    };
    check(b"a,b\n1,\0\n", &nul(2));
    check(b"\xFF\xFEa\0\n\0\0\0", &nul(2));
    check(b"\xFF\xFEa\0\n", "`people.csv` is not valid UTF-16; save it again as UTF-8");
    check(b"\xFF\xFE\x00\xD8a\0", "`people.csv` is not valid UTF-16; save it again as UTF-8");
    let utf8 = |line| {
        format!(
            "`people.csv` line {line} is not valid UTF-8, but the lines before are; save it again as UTF-8"
        )
    };
    check(b"\xEF\xBB\xBFa,b\n1,caf\xE9\n", &utf8(2));
    check(b"a,b\n\xC3\xA9,x\n1,\xE2\x82", &utf8(3));
}

#[test]
fn rows_that_do_not_fit_the_header_name_their_line() {
    let more = "quote fields that contain `,`";
    let fewer = "add what is missing, with `,` for each empty field; or set `short_rows = true` in `[collections.people]`";
    let first =
        "remove line 1 if it is a comment (it begins with `#`), so that the first line names the columns";
    check(
        "# people\nid,name\n1,Ann\n2,Bob,x\n",
        &format!("`people.csv` line 4 has 3 fields, the header has 2; {first}"),
    );
    check(
        "id,name\n# old\n1,Ann\n",
        "`people.csv` line 2 has 1 field, the header has 2; remove the line: a CSV has no comments",
    );
    check("a,b\n1,2,3\n", &format!("`people.csv` line 2 has 3 fields, the header has 2; {more}"));
    check("a,b\n1\n", &format!("`people.csv` line 2 has 1 field, the header has 2; {fewer}"));
    check(
        "a,b,c\n1,2,3\n\n\"x\ny\",2,3\n1,2\n",
        &format!("`people.csv` line 6 has 2 fields, the header has 3; {fewer}"),
    );
    check("a,b\r\n1,2\r\n3\r\n", &format!("`people.csv` line 3 has 1 field, the header has 2; {fewer}"));
    check("a,b\r1,2\r3\r", &format!("`people.csv` line 3 has 1 field, the header has 2; {fewer}"));
    check("text\nhello, you\n", &format!("`people.csv` line 2 has 2 fields, the header has 1; {more}"));
    check(
        "a;b\n1;2\n3;4;5\n",
        "`people.csv` line 3 has 3 fields, the header has 2; quote fields that contain `;`",
    );
    check(
        "a\tb\n1\t2\n3\t4\t5\n",
        "`people.csv` line 3 has 3 fields, the header has 2; quote fields that contain a tab",
    );
}

#[test]
fn lines_before_and_after_a_table_are_named() {
    let rows = |rows: usize| (1..=rows).map(|n| format!("{n};x;\"{n},50\"\r\n")).collect::<String>();
    let left_out = |content: String, rows: u64, expected: &str| {
        let table = table(&content);
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!((names, table.row_count), (vec!["day", "text", "amount"], Some(rows)), "{content}");
        let notes: Vec<&str> = table.layout_notes.iter().map(|note| note.message.as_str()).collect();
        assert_eq!(notes, [expected], "{content}");
    };
    left_out(
        format!("\"Account:\";\"DE12\"\r\n\r\n\"From:\";\"1.1.2026\"\r\nday;text;amount\r\n{}", rows(9)),
        9,
        "has 2 rows above the table (lines 1 to 3, first `Account:`), which are left out",
    );
    left_out(
        format!("EXTF;700;21;Batch;13;;\r\nday;text;amount\r\n{}", rows(3)),
        3,
        "has a title above the table (line 1: `EXTF`), which is left out",
    );
    left_out(
        format!("day;text;amount\r\n{}\r\n\"By stage\"\r\n\"Copyright\"\r\n", rows(5)),
        5,
        "has 2 rows below the table (from line 8: `By stage`), which are left out",
    );
    // One bad line in a table is neither.
    let fewer = "add what is missing, with `;` for each empty field; or set `short_rows = true` in `[collections.people]`";
    check(
        format!("day;text;amount\r\n{}9;x\r\n{}", rows(3), rows(9)),
        &format!("`people.csv` line 5 has 2 fields, the header has 3; {fewer}"),
    );
}

#[test]
fn an_unclosed_quote_names_the_line_where_it_began() {
    let expected_message = |line| {
        format!(
            "`people.csv` line {line} opens a quote that is never closed; close it, or write `\"\"` for a quote in a field"
        )
    };
    check("a,b\n1,\"x\n2,y\n3,z\n", &expected_message(2));
    check("a,\"b\n1,2\n", &expected_message(1));
    check("a,b\n1,\"x\ny\"\n2,\"\"\"\n", &expected_message(4));
    check("a,b\n\"1\n2\",\"x", &expected_message(3));
}

#[test]
fn a_file_that_is_too_large_is_refused_before_reading() {
    let names: Vec<String> = (0..1025).map(|i| format!("c{i}")).collect();
    check(names.join(","), "`people.csv` has 1025 columns, which exceeds the limit of 1024; remove some");
    check(names[..1024].join(",") + "\n1", {
        "`people.csv` line 2 has 1 field, the header has 1024; add what is missing, with `,` for each empty field; or set `short_rows = true` in `[collections.people]`"
    });
    let disk = TestFile::new("people.csv", "");
    std::fs::File::options().write(true).open(&disk.path).unwrap().set_len(5 << 30).unwrap();
    assert_eq!(
        error_text(&disk, None),
        "`people.csv` has 5.0 GiB, which exceeds the limit of 4; split it, or load it into SQLite"
    );
}

#[test]
fn a_file_that_cannot_be_opened_says_why() {
    let disk = TestFile::new("people.csv", "a\n1\n");
    std::fs::remove_file(&disk.path).unwrap();
    assert_eq!(error_text(&disk, None), "`people.csv` was not found; check its name, or put it back");
    std::fs::create_dir(&disk.path).unwrap();
    assert_eq!(error_text(&disk, None), "`people.csv` is not a file; give the path of a CSV file");
}

#[test]
fn invalid_delimiters_are_refused() {
    let disk = TestFile::new("people.csv", "a,b\n1,2\n");
    for (byte, shown) in [(b'"', "\\\""), (b'\n', "\\n"), (b'\r', "\\r"), (0, "\\x00"), (0xE9, "\\xe9")] {
        let help = "cannot separate fields; use a comma, a semicolon, a tab or `|`";
        assert_eq!(error_text(&disk, Some(byte)), format!("`{shown}` {help}"));
    }
}

/// What the diagnostic shows below the message.
fn check_diagnostic(content: impl AsRef<[u8]>, expected: [&str; 4]) {
    let disk = TestFile::new("people.csv", content);
    let wrong = disk.csv().diagnose(None).expect("something is wrong");
    let folder = disk.path.parent().unwrap().display().to_string() + "/";
    let rendered = contract::diagnostic::render(&wrong, false).replace(&folder, "");
    let lines: Vec<&str> = rendered.lines().collect();
    assert_eq!([lines[1], lines[3], lines[4], lines[5]], expected, "{rendered}");
}

#[test]
fn errors_about_a_line_show_the_line() {
    check_diagnostic(
        "id,name\n1,Ann\n2,Bob,\"Berlin, Mitte\",x\n",
        [
            " --> people.csv:3:7",
            "3 | 2,Bob,\"Berlin, Mitte\",x",
            "  |       ^^^^^^^^^^^^^^^",
            "  = help: quote fields that contain `,`",
        ],
    );
    check_diagnostic(
        "id,name\n1,Ann\n\"2\"\n",
        [
            " --> people.csv:3:4",
            "3 | \"2\"",
            "  |    ^",
            "  = help: add what is missing, with `,` for each empty field; or set `short_rows = true` in `[collections.people]`",
        ],
    );
    check_diagnostic(
        "id,name\n1,\"Ann\n2,Bob\n",
        [
            " --> people.csv:2:3",
            "2 | 1,\"Ann",
            "  |   ^^^^",
            "  = help: close it, or write `\"\"` for a quote in a field",
        ],
    );
    check_diagnostic(
        "id,name\n1,A\0n\n",
        [" --> people.csv:2:4", r"2 | 1,A\u{0}n", "  |    ^^^^^", "  = help: save it again as CSV in UTF-8"],
    );
    assert_eq!(TestFile::new("people.csv", "id,name\n1,Ann\n").csv().diagnose(None), None);
}

#[test]
fn a_value_that_does_not_match_the_declared_type_is_shown() {
    let disk = TestFile::new("people.csv", "id,age\n1,30\n2,\"forty, or so\"\n");
    let csv = disk.csv();
    let mut shape = super::kit::shape(&csv);
    shape.columns[1].data_type = contract::DataType::Integer;
    assert!(csv.reader(&shape).is_err());
    let wrong = csv.diagnose(Some(&shape)).expect("something is wrong");
    let at = wrong.location.expect("a place");
    assert_eq!((at.line(), at.column()), (3, 3));
    assert_eq!(
        wrong.help.as_deref(),
        Some("correct the value, or declare another type with `as` in the manifest")
    );
}
