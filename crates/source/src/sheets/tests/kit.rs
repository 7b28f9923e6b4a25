//! Builds workbooks from parts, and shows what is read from them, one line per row.

use std::io::Write;

use contract::manifest::WorkbookFormat;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

use super::super::Options;
use crate::tables::{CellUpdate, FileFormat, ParsedFile, RowEdit, StoredValue, Table};

pub(super) const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const RELS: &str = "http://schemas.openxmlformats.org/package/2006/relationships";
const DOC: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";

pub(super) fn options(workbook: WorkbookFormat) -> Options {
    Options::new(workbook)
}

pub(super) fn xlsx() -> Options {
    options(WorkbookFormat::Xlsx)
}

/// The parts of a workbook, by name.
#[derive(Clone)]
pub(super) struct PackageParts(pub(super) Vec<(String, Vec<u8>)>);

impl PackageParts {
    /// A workbook with one sheet, with this XML inside of `<worksheet>`.
    pub(super) fn new(inside: &str) -> Self {
        Self::with_sheets(&[("Sheet1", inside)])
    }

    /// Styles 0 to 6: general, date, date and time, time, elapsed hours, `yyyy"y"`, text.
    pub(super) fn with_sheets(sheets: &[(&str, &str)]) -> Self {
        let mut list = String::new();
        let mut relations = String::new();
        let mut parts = Vec::new();
        for (at, (name, inside)) in sheets.iter().enumerate() {
            let id = at + 1;
            list += &format!(r#"<sheet name="{name}" sheetId="{id}" r:id="rId{id}"/>"#);
            relations += &format!(
                r#"<Relationship Id="rId{id}" Type="{DOC}/worksheet" Target="worksheets/sheet{id}.xml"/>"#
            );
            let xml = format!(r#"<worksheet xmlns="{MAIN}" xmlns:r="{DOC}">{inside}</worksheet>"#);
            parts.push((format!("xl/worksheets/sheet{id}.xml"), xml.into_bytes()));
        }
        let styles = format!(
            r#"<styleSheet xmlns="{MAIN}"><numFmts><numFmt numFmtId="164" formatCode="yyyy&quot;y&quot;"/></numFmts>
            <cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>
            <cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="22"/><xf numFmtId="21"/><xf numFmtId="46"/>
            <xf numFmtId="164"/><xf numFmtId="49"/></cellXfs></styleSheet>"#
        );
        let shared = format!(
            r#"<sst xmlns="{MAIN}"><si><t>id</t></si><si><t>name</t></si>
            <si><r><t>rich</t></r><r><t xml:space="preserve"> text</t></r><rPh sb="0" eb="1"><t>aloud</t></rPh></si>
            <si><t> trimmed </t></si><si><t xml:space="preserve"> kept </t></si><si><t>a_x000D_b &amp; &#60;c&gt;</t></si>
            <si/></sst>"#
        );
        let mut all = vec![
            (
                "[Content_Types].xml".to_owned(),
                br#"<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/></Types>"#.to_vec(),
            ),
            (
                "_rels/.rels".to_owned(),
                format!(r#"<Relationships xmlns="{RELS}"><Relationship Id="rId1" Type="{DOC}/officeDocument" Target="xl/workbook.xml"/></Relationships>"#).into_bytes(),
            ),
            (
                "xl/workbook.xml".to_owned(),
                format!(r#"<workbook xmlns="{MAIN}" xmlns:r="{DOC}"><sheets>{list}</sheets></workbook>"#).into_bytes(),
            ),
            (
                "xl/_rels/workbook.xml.rels".to_owned(),
                format!(
                    r#"<Relationships xmlns="{RELS}">{relations}<Relationship Id="rIdS" Type="{DOC}/styles" Target="styles.xml"/><Relationship Id="rIdT" Type="{DOC}/sharedStrings" Target="/xl/sharedStrings.xml"/></Relationships>"#
                )
                .into_bytes(),
            ),
            ("xl/styles.xml".to_owned(), styles.into_bytes()),
            ("xl/sharedStrings.xml".to_owned(), shared.into_bytes()),
        ];
        all.append(&mut parts);
        Self(all)
    }

    /// With the names of parts as some programs write them.
    pub(super) fn with_back_slashes(mut self) -> Self {
        self.0.iter_mut().for_each(|(name, _)| *name = name.replace('/', "\\"));
        self
    }

    pub(super) fn with(mut self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        self.0.retain(|(one, _)| one != name);
        self.0.push((name.to_owned(), content.into()));
        self
    }

    pub(super) fn replacing(mut self, name: &str, from: &str, to: &str) -> Self {
        let part = self.0.iter_mut().find(|(one, _)| one == name).expect("there is such a part");
        let text = String::from_utf8(part.1.clone()).unwrap();
        assert!(text.contains(from), "{text}");
        part.1 = text.replace(from, to).into_bytes();
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(one, _)| one != name);
        self
    }

    pub(super) fn to_zip(&self) -> Vec<u8> {
        let entries: Vec<Entry> = self.0.iter().map(|(name, content)| Entry::new(name, content)).collect();
        pack(&entries, b"")
    }
}

/// One part of a package, as a hostile writer could write it.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) local_name: String,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc: u32,
    pub(super) size: u32,
    pub(super) data: Vec<u8>,
    pub(super) extra: Vec<u8>,
    /// Writes the sizes after the data instead of before it.
    pub(super) has_data_descriptor: bool,
    /// Overrides the offset in the directory.
    pub(super) offset: Option<u32>,
}

impl Entry {
    pub(super) fn new(name: &str, content: &[u8]) -> Self {
        let mut crc = Crc::new();
        crc.update(content);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        Self {
            name: name.to_owned(),
            local_name: name.to_owned(),
            flags: 0,
            method: 8,
            crc: crc.sum(),
            size: content.len() as u32,
            data: encoder.finish().unwrap(),
            extra: Vec::new(),
            has_data_descriptor: false,
            offset: None,
        }
    }
}

pub(super) fn pack(entries: &[Entry], comment: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = entry.offset.unwrap_or(out.len() as u32);
        let flags = entry.flags | if entry.has_data_descriptor { 8 } else { 0 };
        let sizes =
            if entry.has_data_descriptor { [0; 3] } else { [entry.crc, entry.data.len() as u32, entry.size] };
        out.extend(b"PK\x03\x04\x14\x00");
        [flags, entry.method, 0x6c20, 0x5b4f].iter().for_each(|n| out.extend(n.to_le_bytes()));
        sizes.iter().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend((entry.local_name.len() as u16).to_le_bytes());
        out.extend((entry.extra.len() as u16).to_le_bytes());
        out.extend(entry.local_name.as_bytes());
        out.extend(&entry.extra);
        out.extend(&entry.data);
        if entry.has_data_descriptor {
            out.extend(b"PK\x07\x08");
            [entry.crc, entry.data.len() as u32, entry.size].iter().for_each(|n| out.extend(n.to_le_bytes()));
        }
        directory.extend(b"PK\x01\x02\x14\x03\x14\x00");
        [flags, entry.method, 0x6c20, 0x5b4f].iter().for_each(|n| directory.extend(n.to_le_bytes()));
        [entry.crc, entry.data.len() as u32, entry.size]
            .iter()
            .for_each(|n| directory.extend(n.to_le_bytes()));
        let lens = [entry.name.len() as u16, entry.extra.len() as u16, 0, 0, 0];
        lens.iter().for_each(|n| directory.extend(n.to_le_bytes()));
        directory.extend(0_u32.to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(entry.name.as_bytes());
        directory.extend(&entry.extra);
    }
    let (start, count) = (out.len() as u32, entries.len() as u16);
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    [count, count].iter().for_each(|n| out.extend(n.to_le_bytes()));
    [directory.len() as u32, start].iter().for_each(|n| out.extend(n.to_le_bytes()));
    out.extend((comment.len() as u16).to_le_bytes());
    out.extend(comment);
    out
}

/// Everything that was read: one line per table header and per row.
pub(super) fn describe(bytes: &[u8], options: &Options) -> String {
    match options.load(bytes) {
        Ok(parsed) => describe_parsed(&parsed),
        Err(reason) => format!("unreadable: {} ({})", reason.message, reason.help.unwrap_or_default()),
    }
}

fn describe_parsed(parsed: &ParsedFile) -> String {
    let mut out = Vec::new();
    for table in &parsed.tables {
        out.push(format!("{}: {}", table.name, table.header.join("|")));
        out.extend(
            rows(table).iter().map(|row| row.iter().map(OwnedValue::to_string).collect::<Vec<_>>().join("|")),
        );
    }
    out.extend(parsed.skipped_tables.iter().map(ToString::to_string));
    out.extend(parsed.notes.iter().map(|note| format!("({note})")));
    out.join("\n")
}

/// A stored value that owns its data.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OwnedValue {
    Null,
    Text(String),
    DateTime(String),
    Integer(i64),
    Real(f64),
    Boolean(bool),
}

impl OwnedValue {
    pub(super) fn from_stored(stored: StoredValue<'_>) -> Self {
        match stored {
            StoredValue::Null => Self::Null,
            StoredValue::Text(text) => Self::Text(text.to_owned()),
            StoredValue::DateTime(text) => Self::DateTime(text.to_owned()),
            StoredValue::Integer(n) => Self::Integer(n),
            StoredValue::Real(n) => Self::Real(n),
            StoredValue::Boolean(yes) => Self::Boolean(yes),
            StoredValue::NumberText(_) | StoredValue::Json(_) | StoredValue::Blob(_) => {
                panic!("no workbook has those")
            }
        }
    }

    pub(super) fn as_stored(&self) -> StoredValue<'_> {
        match self {
            Self::Null => StoredValue::Null,
            Self::Text(text) => StoredValue::Text(text),
            Self::DateTime(text) => StoredValue::DateTime(text),
            Self::Integer(n) => StoredValue::Integer(*n),
            Self::Real(n) => StoredValue::Real(*n),
            Self::Boolean(yes) => StoredValue::Boolean(*yes),
        }
    }
}

impl std::fmt::Display for OwnedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => write!(f, "-"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::DateTime(text) => write!(f, "@{text}"),
            Self::Integer(n) => write!(f, "{n}"),
            Self::Real(n) => write!(f, "{n:?}"),
            Self::Boolean(yes) => write!(f, "{yes}"),
        }
    }
}

pub(super) fn rows(table: &Table) -> Vec<Vec<OwnedValue>> {
    let row = |row| {
        (0..table.header.len()).map(|column| OwnedValue::from_stored(table.value(row, column))).collect()
    };
    (0..table.len()).map(row).collect()
}

pub(super) fn cell_update(column: usize, value: StoredValue<'_>) -> CellUpdate<'_> {
    CellUpdate { column, name: "", value }
}

/// The file after a change of its first table, or the error.
pub(super) fn apply_edit(bytes: &[u8], edit: &RowEdit<'_>) -> Result<Vec<u8>, String> {
    xlsx().rewrite(bytes, 0, edit).map_err(|error| error.to_string())
}
