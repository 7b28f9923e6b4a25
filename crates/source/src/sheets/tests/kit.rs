//! Workbooks made of their parts, and what is read from them in a line for each row.

use std::io::Write;

use contract::manifest::Workbook;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

use super::super::Options;
use crate::rows::{Edit, Format, Held, Loaded, Put, Table};

pub(super) const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const RELS: &str = "http://schemas.openxmlformats.org/package/2006/relationships";
const DOC: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";

pub(super) fn options(workbook: Workbook) -> Options {
    Options::new(workbook)
}

pub(super) fn xlsx() -> Options {
    options(Workbook::Xlsx)
}

/// The parts of a workbook, by name.
#[derive(Clone)]
pub(super) struct Parts(pub(super) Vec<(String, Vec<u8>)>);

impl Parts {
    /// A workbook with one sheet, whose part has this inside of `<worksheet>`.
    pub(super) fn new(inside: &str) -> Self {
        Self::of(&[("Sheet1", inside)])
    }

    /// Styles 0 to 6: general, date, date and time, time, hours that go on, `yyyy"y"`, text.
    pub(super) fn of(sheets: &[(&str, &str)]) -> Self {
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

    pub(super) fn packed(&self) -> Vec<u8> {
        let entries: Vec<Entry> = self.0.iter().map(|(name, content)| Entry::new(name, content)).collect();
        pack(&entries, b"")
    }
}

/// One part of a package, as a writer that means harm could write it.
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
    /// Sizes stand behind the data and not before it.
    pub(super) is_described: bool,
    /// Instead of where it is.
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
            is_described: false,
            offset: None,
        }
    }
}

pub(super) fn pack(entries: &[Entry], comment: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = entry.offset.unwrap_or(out.len() as u32);
        let flags = entry.flags | if entry.is_described { 8 } else { 0 };
        let sizes =
            if entry.is_described { [0; 3] } else { [entry.crc, entry.data.len() as u32, entry.size] };
        out.extend(b"PK\x03\x04\x14\x00");
        [flags, entry.method, 0x6c20, 0x5b4f].iter().for_each(|n| out.extend(n.to_le_bytes()));
        sizes.iter().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend((entry.local_name.len() as u16).to_le_bytes());
        out.extend((entry.extra.len() as u16).to_le_bytes());
        out.extend(entry.local_name.as_bytes());
        out.extend(&entry.extra);
        out.extend(&entry.data);
        if entry.is_described {
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

/// Everything that was read: a line for each table's header, and one for each row.
pub(super) fn told(bytes: &[u8], options: &Options) -> String {
    match options.load(bytes) {
        Ok(loaded) => told_of(&loaded),
        Err(why) => format!("unreadable: {} ({})", why.why, why.help.unwrap_or_default()),
    }
}

fn told_of(loaded: &Loaded) -> String {
    let mut out = Vec::new();
    for table in &loaded.tables {
        out.push(format!("{}: {}", table.name, table.header.join("|")));
        out.extend(
            rows(table).iter().map(|row| row.iter().map(Shown::to_string).collect::<Vec<_>>().join("|")),
        );
    }
    out.extend(loaded.left_out.iter().map(ToString::to_string));
    out.extend(loaded.notes.iter().map(|note| format!("({note})")));
    out.join("\n")
}

/// A value that can be kept.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shown {
    Null,
    Text(String),
    Moment(String),
    Integer(i64),
    Real(f64),
    Boolean(bool),
}

impl Shown {
    pub(super) fn of(held: Held<'_>) -> Self {
        match held {
            Held::Null => Self::Null,
            Held::Text(text) => Self::Text(text.to_owned()),
            Held::Moment(text) => Self::Moment(text.to_owned()),
            Held::Integer(n) => Self::Integer(n),
            Held::Real(n) => Self::Real(n),
            Held::Boolean(yes) => Self::Boolean(yes),
            Held::Digits(_) | Held::Json(_) | Held::Blob(_) => panic!("no workbook has those"),
        }
    }

    pub(super) fn held(&self) -> Held<'_> {
        match self {
            Self::Null => Held::Null,
            Self::Text(text) => Held::Text(text),
            Self::Moment(text) => Held::Moment(text),
            Self::Integer(n) => Held::Integer(*n),
            Self::Real(n) => Held::Real(*n),
            Self::Boolean(yes) => Held::Boolean(*yes),
        }
    }
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => write!(f, "-"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Moment(text) => write!(f, "@{text}"),
            Self::Integer(n) => write!(f, "{n}"),
            Self::Real(n) => write!(f, "{n:?}"),
            Self::Boolean(yes) => write!(f, "{yes}"),
        }
    }
}

pub(super) fn rows(table: &Table) -> Vec<Vec<Shown>> {
    let row = |row| (0..table.header.len()).map(|column| Shown::of(table.held(row, column))).collect();
    (0..table.len()).map(row).collect()
}

pub(super) fn put(column: usize, value: Held<'_>) -> Put<'_> {
    Put { column, name: "", value }
}

/// The file after a change of its first table, or why not.
pub(super) fn edited(bytes: &[u8], edit: &Edit<'_>) -> Result<Vec<u8>, String> {
    xlsx().rewrite(bytes, 0, edit).map_err(|fault| fault.to_string())
}
