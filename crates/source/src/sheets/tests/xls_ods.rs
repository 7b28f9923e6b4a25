//! XLS and ODS: read, but not written.

use std::io::Cursor;

use calamine::{Data, Reader, Xls};
use contract::manifest::WorkbookFormat;
use contract::source::WriteError;

use super::super::cfb::is_compound_file;
use super::kit::{Entry, OwnedValue, describe, options, pack, rows, xlsx};
use crate::tables::{FileFormat, RowEdit};

/// Written by xlwt: every kind of cell, a hidden sheet, an empty one.
pub(super) const XLS_FILE: &[u8] = include_bytes!("people.xls");

pub(super) const CONTENT: &str = r#"<?xml version="1.0"?><office:document-content xmlns:office="o" xmlns:table="t" xmlns:text="x" xmlns:style="s" xmlns:calcext="c">
<office:automatic-styles><style:style style:name="ta1"><style:table-properties table:display="true"/></style:style>
<style:style style:name="ta2"><style:table-properties table:display="false"/></style:style></office:automatic-styles>
<office:body><office:spreadsheet>
<table:table table:name="People" table:style-name="ta1"><table:table-column table:number-columns-repeated="16384"/>
<table:table-header-rows><table:table-row><table:table-cell office:value-type="string"><text:p>id</text:p></table:table-cell><table:table-cell office:value-type="string"><text:p>what</text:p></table:table-cell><table:table-cell table:number-columns-repeated="16382"/></table:table-row></table:table-header-rows>
<table:table-row><table:table-cell office:value-type="float" office:value="1"><text:p>1.00</text:p></table:table-cell><table:table-cell office:value-type="date" office:date-value="2026-02-11"><text:p>11.02.26</text:p></table:table-cell></table:table-row>
<table:table-row><table:table-cell office:value-type="float" office:value="2"/><table:table-cell office:value-type="date" office:date-value="2026-02-11T10:00:00"/></table:table-row>
<table:table-row><table:table-cell office:value-type="float" office:value="3"/><table:table-cell office:value-type="time" office:time-value="PT12H30M15S"/></table:table-row>
<table:table-row><table:table-cell office:value-type="currency" office:value="4.5"/><table:table-cell office:value-type="boolean" office:boolean-value="true"/></table:table-row>
<table:table-row table:number-rows-repeated="2"><table:table-cell office:value-type="percentage" office:value="0.5"/><table:table-cell office:value-type="string" table:formula="of:=1"><text:p>a <text:span>b</text:span>  c</text:p><text:p>d<text:s text:c="3"/>e<text:tab/>f</text:p><office:annotation><text:p>a comment</text:p></office:annotation></table:table-cell></table:table-row>
<table:table-row table:number-rows-repeated="3"><table:table-cell table:number-columns-repeated="2"/></table:table-row>
<table:table-row><table:table-cell office:value-type="float" office:value="7"/><table:table-cell office:value-type="string" calcext:value-type="error"><text:p>#N/A</text:p></table:table-cell></table:table-row>
<table:table-row table:number-rows-repeated="1048560"><table:table-cell table:number-columns-repeated="16384"/></table:table-row>
</table:table><table:table table:name="Gone" table:style-name="ta2"/><table:table table:name="Empty"/>
</office:spreadsheet></office:body></office:document-content>"#;

pub(super) fn ods(content: &str) -> Vec<u8> {
    let mime = Entry::new("mimetype", b"application/vnd.oasis.opendocument.spreadsheet");
    pack(&[mime, Entry::new("content.xml", content.as_bytes())], b"")
}

#[test]
fn an_ods_workbook_is_read() {
    insta::assert_snapshot!(describe(&ods(CONTENT), &options(WorkbookFormat::Ods)), @r#"
    People: id|what
    1|@2026-02-11
    2|@2026-02-11T10:00:00
    3|@12:30:15
    4.5|true
    0.5|"a b c\nd   e\tf"
    0.5|"a b c\nd   e\tf"
    7|-
    `Gone` is not served: it is hidden in the workbook
    `Empty` is not served: it has no header row
    (`People` has 1 cell with an error such as `#N/A` (B11 first): they have no value)
    "#);
}

#[test]
fn hostile_ods_workbooks_are_refused() {
    let check = |from: &str, to: &str, expected: &str| {
        assert!(CONTENT.contains(from), "{from}");
        let message = describe(&ods(&CONTENT.replace(from, to)), &options(WorkbookFormat::Ods));
        assert!(
            message.starts_with("unreadable: ") && message.contains(expected),
            "{message}, not {expected}"
        );
    };
    let rows = r#"<table:table-row table:number-rows-repeated="2">"#;
    check(rows, r#"<table:table-row table:number-rows-repeated="4294967295">"#, "more rows than");
    check(rows, r#"<table:table-row table:number-rows-repeated="0">"#, "damaged");
    check(rows, r#"<table:table-row table:number-rows-repeated="-1">"#, "damaged");
    let cell = r#"<table:table-cell office:value-type="float" office:value="1">"#;
    check(
        cell,
        r#"<table:table-cell table:number-columns-repeated="16385" office:value-type="float" office:value="1">"#,
        "more columns than",
    );
    let many = r#"<table:table-row table:number-rows-repeated="1000000"><table:table-cell table:number-columns-repeated="16384" office:value-type="float" office:value="1"/></table:table-row>"#;
    check(rows, &format!("{many}{rows}"), "more than 10000000 cells");
    let long = "x".repeat(1 << 20);
    let many = format!(
        r#"<table:table-row table:number-rows-repeated="1000000"><table:table-cell office:value-type="string"><text:p>{long}</text:p></table:table-cell></table:table-row>"#
    );
    check(rows, &format!("{many}{rows}"), "more than 1024 MiB of text");
    check(r#"text:c="3""#, r#"text:c="4000000000""#, "damaged");
    check(r#"office:value="1""#, r#"office:value="inf""#, "damaged");
    check(r#"office:boolean-value="true""#, r#"office:boolean-value="yes""#, "damaged");
    check(r#"office:value-type="time""#, r#"office:value-type="void""#, "damaged");
    let locked = pack(
        &[Entry::new("content.xml", b"x"), Entry::new("META-INF/manifest.xml", b"<m:encryption-data/>")],
        b"",
    );
    assert!(describe(&locked, &options(WorkbookFormat::Ods)).contains("password"));
    assert!(describe(&pack(&[], b""), &options(WorkbookFormat::Ods)).contains("not an ODS workbook"));
}

#[test]
fn an_xls_workbook_is_read() {
    insta::assert_snapshot!(describe(XLS_FILE, &options(WorkbookFormat::Xls)).replace("after a blank row ", "x"), @r#"
    People: id|name|born|seen|at|ok|price|total
    1|"Ada"|@1999-12-01|@2026-02-11T10:00:01|@12:30:01|true|0.1|""
    2|"Grüße"|@1999-12-02|@2026-02-11T10:00:02|@12:30:02|false|12.34|""
    3|"日本語 😀"|@1999-12-03|@2026-02-11T10:00:03|@12:30:03|true|10000000000|""
    4|-|@1999-12-04|@2026-02-11T10:00:04|@12:30:04|false|-7|""
    99|"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"|-|-|-|-|-|-
    7|-|-|-|-|-|-|-
    `Hidden` is not served: it is hidden in the workbook
    `Empty` is not served: it has no header row
    (`People` has merged cells (such as A9:A10): the first of them has the value, the others have none)
    "#);
}

/// Another library reads the same from the same file.
#[test]
fn another_reader_agrees_about_an_xls_workbook() {
    let mut other: Xls<_> = Xls::new(Cursor::new(XLS_FILE)).unwrap();
    let range = other.worksheet_range("People").unwrap();
    let parsed = options(WorkbookFormat::Xls).load(XLS_FILE).unwrap_or_else(|reason| panic!("{reason:?}"));
    let theirs = range.rows().skip(1).filter(|row| row.iter().any(|cell| *cell != Data::Empty));
    for (ours, theirs) in rows(&parsed.tables[0]).iter().zip(theirs) {
        for (ours, theirs) in ours.iter().zip(theirs) {
            match (ours, theirs) {
                (OwnedValue::DateTime(_), Data::DateTime(_)) => {}
                (OwnedValue::Integer(n), Data::Float(m)) => assert_eq!(*n as f64, *m),
                (OwnedValue::Integer(n), Data::Int(m)) => assert_eq!(n, m),
                (OwnedValue::Real(n), Data::Float(m)) => assert_eq!(n, m),
                (OwnedValue::Text(a), Data::String(b)) => assert_eq!(a, b),
                (OwnedValue::Boolean(a), Data::Bool(b)) => assert_eq!(a, b),
                (OwnedValue::Null, Data::Empty) | (OwnedValue::Text(_), Data::Empty) => {}
                (ours, theirs) => panic!("{ours:?} is {theirs:?}"),
            }
        }
    }
}

#[test]
fn inconsistent_containers_are_refused() {
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = XLS_FILE.to_vec();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        describe(&bad, &options(WorkbookFormat::Xls))
    };
    assert!(is_compound_file(XLS_FILE));
    for (at, bytes) in [
        // The sizes of sectors, and where the directory, the mini FAT and further FAT sectors start.
        (30, &[20, 0][..]),
        (48, &[0xff, 0xff, 0, 0]),
        (60, &[0xff, 0xff, 0, 0]),
        (68, &[0, 0, 0, 0]),
        (68, &[1, 0, 0, 0]),
        (76, &[0xff, 0xff, 0xff, 0x7f]),
        (0, &[0]),
    ] {
        let message = with(at, bytes);
        assert!(message.starts_with("unreadable: "), "{at}: {message}");
    }
    // The number of FAT sectors is not trusted, so a wrong one does no harm.
    assert!(with(44, &[0xff; 4]).starts_with("People: "));
    assert!(with(72, &[0xff; 4]).starts_with("People: "));
    assert!(describe(&XLS_FILE[..600], &options(WorkbookFormat::Xls)).starts_with("unreadable: "));
    assert!(describe(b"", &options(WorkbookFormat::Xls)).starts_with("unreadable: "));
    assert!(describe(XLS_FILE, &xlsx()).contains("old workbook (XLS) under another name"));
}

/// The XLS workbook with another name for its stream.
fn with_stream_name(name: &str) -> Vec<u8> {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let old = utf16("Workbook");
    let at = XLS_FILE.windows(old.len()).position(|bytes| bytes == old).expect("an entry of the directory");
    let mut bytes = XLS_FILE.to_vec();
    bytes[at..at + 64].fill(0);
    let new = utf16(name);
    bytes[at..at + new.len()].copy_from_slice(&new);
    bytes[at + 64..at + 66].copy_from_slice(&(new.len() as u16 + 2).to_le_bytes());
    bytes
}

/// Some programs name the stream of an Excel 97 workbook as Excel 95 did.
#[test]
fn the_version_of_an_xls_workbook_is_in_its_first_record() {
    let xls = options(WorkbookFormat::Xls);
    let expected = describe(XLS_FILE, &xls);
    for name in ["Workbook", "WORKBOOK", "Book", "BOOK"] {
        assert_eq!(describe(&with_stream_name(name), &xls), expected, "{name}");
    }
    let missing = describe(&with_stream_name("Books"), &xls);
    assert!(missing.contains("the file is not a workbook"), "{missing}");
    let mut old = with_stream_name("Book");
    let first =
        old.windows(6).position(|bytes| bytes == [0x09, 0x08, 0x10, 0, 0, 6]).expect("a first record");
    old[first + 5] = 5;
    let old = describe(&old, &xls);
    assert!(old.contains("the workbook was saved by Excel 95 or older"), "{old}");
}

#[test]
fn xls_and_ods_are_not_written() {
    for (workbook, bytes) in [(WorkbookFormat::Xls, XLS_FILE.to_vec()), (WorkbookFormat::Ods, ods(CONTENT))] {
        let options = options(workbook);
        let parsed = options.load(&bytes).unwrap_or_else(|reason| panic!("{reason:?}"));
        let reason = parsed.tables[0].read_only_reason.as_deref();
        assert_eq!(reason, Some("only XLSX workbooks can be written; save the file as XLSX"));
        let error = options.rewrite(&bytes, 0, &RowEdit::Remove { row: 0 }).unwrap_err();
        assert!(matches!(error, WriteError::Source(_)), "{error}");
    }
}
