//! Workbooks: any bytes are read or refused.

use contract::manifest::WorkbookFormat;
use source::sheets::try_bytes;

const RELATIONSHIPS: &[u8] = br#"<Relationships><Relationship Id="a" Type="/officeDocument" Target="b"/><Relationship Id="r" Type="/worksheet" Target="s"/><Relationship Id="t" Type="/sharedStrings" Target="t"/><Relationship Id="y" Type="/styles" Target="y"/></Relationships>"#;
const BOOK: &[u8] = br#"<workbook><sheets><sheet name="S" r:id="r"/></sheets></workbook>"#;

/// The first byte chooses what `data` is: a whole file, or one part of an otherwise valid workbook.
pub fn sheets(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let (kind, bytes) = match first % 7 {
        0 => (WorkbookFormat::Xlsx, data.to_vec()),
        1 => (WorkbookFormat::Xls, data.to_vec()),
        2 => (WorkbookFormat::Ods, data.to_vec()),
        3 => (WorkbookFormat::Ods, zip_stored(&[("content.xml", data)])),
        4 => (WorkbookFormat::Xlsx, book(data, b"<sst/>", b"<styleSheet/>")),
        5 => (WorkbookFormat::Xlsx, book(b"<worksheet/>", data, b"<styleSheet/>")),
        _ => (WorkbookFormat::Xlsx, book(b"<worksheet/>", b"<sst/>", data)),
    };
    let told = try_bytes(&bytes, kind);
    // The same bytes give the same workbook.
    assert_eq!(told, try_bytes(&bytes, kind));
}

fn book(sheet: &[u8], texts: &[u8], styles: &[u8]) -> Vec<u8> {
    zip_stored(&[
        ("_rels/.rels", RELATIONSHIPS),
        ("_rels/b.rels", RELATIONSHIPS),
        ("b", BOOK),
        ("s", sheet),
        ("t", texts),
        ("y", styles),
    ])
}

/// A package whose parts are stored uncompressed.
fn zip_stored(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for (name, content) in parts {
        let (place, length) = ((out.len() as u32).to_le_bytes(), (content.len() as u32).to_le_bytes());
        let mut head = vec![0; 10];
        head.extend(crc32(content).to_le_bytes());
        head.extend([length, length].concat());
        head.extend((name.len() as u16).to_le_bytes());
        head.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&head);
        out.extend(name.as_bytes());
        out.extend(*content);
        directory.extend(b"PK\x01\x02\0\0");
        directory.extend(&head);
        directory.extend([0; 10]);
        directory.extend(place);
        directory.extend(name.as_bytes());
    }
    let (start, count) = (out.len() as u32, (parts.len() as u16).to_le_bytes());
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count, count].concat());
    out.extend([(directory.len() as u32).to_le_bytes(), start.to_le_bytes()].concat());
    out.extend([0, 0]);
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use contract::manifest::WorkbookFormat;
    use source::sheets::try_bytes;

    /// Parts get past the container; otherwise only the container would be tested.
    #[test]
    fn packages_are_sound() {
        let sheet = br#"<worksheet><sheetData><row><c t="str"><v>a</v></c></row><row><c t="s"><v>0</v></c></row></sheetData></worksheet>"#;
        let bytes = super::book(sheet, b"<sst><si><t>x</t></si></sst>", b"<styleSheet/>");
        assert_eq!(try_bytes(&bytes, WorkbookFormat::Xlsx), Ok(vec![1]));
    }
}
