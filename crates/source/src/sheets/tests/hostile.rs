//! Hostile and damaged workbooks.

use std::sync::LazyLock;
use std::time::Duration;

use contract::manifest::WorkbookFormat;
use proptest::prelude::*;

use super::super::budget::Budget;
use super::super::xlsx as xlsx_format;
use super::kit::{Entry, PackageParts, describe, options, pack, xlsx};
use crate::tables::FileFormat;

fn parts() -> PackageParts {
    PackageParts::new(
        r#"<sheetData><row r="1"><c r="A1" t="s"><v>0</v></c></row><row r="2"><c r="A2"><v>1</v></c></row></sheetData>"#,
    )
}

fn entries() -> Vec<Entry> {
    parts().0.iter().map(|(name, content)| Entry::new(name, content)).collect()
}

fn check(bytes: &[u8], expected: &str) {
    let message = describe(bytes, &xlsx());
    assert!(message.starts_with("unreadable: ") && message.contains(expected), "{message}, not {expected}");
}

#[test]
fn the_valid_package_is_read() {
    assert_eq!(describe(&pack(&entries(), b"a comment"), &xlsx()), "Sheet1: id\n1");
}

#[test]
fn inconsistent_packages_are_refused() {
    let last = entries().len() - 1;
    let with = |change: &dyn Fn(&mut Vec<Entry>)| {
        let mut entries = entries();
        change(&mut entries);
        pack(&entries, b"")
    };
    check(b"", "not a workbook");
    check(b"id,name\n1,2\n", "not a workbook");
    check(&pack(&[], b""), "ZIP archive, but not a workbook");
    check(&parts().to_zip()[..500], "not a workbook");
    check(&with(&|all| all[last].flags = 1), "password");
    check(&with(&|all| all[last].local_name = "xl/worksheets/sheet2.xml".into()), "directory is damaged");
    check(&with(&|all| all.push(all[last].clone())), "same name");
    check(&with(&|all| all[last].name = "XL/Styles.xml".into()), "directory is damaged");
    check(
        &with(&|all| {
            let name = "XL/Styles.xml".to_owned();
            all.push(Entry { local_name: name.clone(), name, ..all[last].clone() });
        }),
        "same name",
    );
    check(&with(&|all| all[last].offset = Some(0)), "directory is damaged");
    check(
        &with(&|all| {
            // Both names lead to the same bytes.
            let size = all[0].data.len() as u32;
            all.push(Entry { offset: Some(0), ..all[0].clone() });
            all[0].data.truncate(size as usize);
            let name = "xl/twin.xml".to_owned();
            let twin = all.len() - 1;
            all[twin].name = name;
        }),
        "directory is damaged",
    );
    check(&with(&|all| all[last].crc ^= 1), "damaged");
    check(&with(&|all| all[last].size += 1), "damaged");
    check(&with(&|all| all[last].size = 10), "more than it says");
    check(&with(&|all| all[last].method = 12), "unsupported compression method");
    check(&with(&|all| all[last].data[0] = 0xff), "damaged");
    check(&with(&|all| all[last].size = u32::MAX - 1), "implausible size");
    check(&with(&|all| all[last].offset = Some(u32::MAX)), "directory is damaged");
}

/// Entries that share one body of compressed bytes, as in ZIP bombs that grow with the square of their size.
#[test]
fn parts_that_share_bytes_are_refused() {
    let mut bytes = pack(&entries(), b"");
    let end = bytes.len() - 22;
    let start = u32::from_le_bytes(bytes[end + 16..end + 20].try_into().unwrap()) as usize;
    // The first part claims to extend to the directory.
    let local = 30 + "[Content_Types].xml".len();
    let long = (start - local) as u32;
    bytes[start + 20..start + 24].copy_from_slice(&long.to_le_bytes());
    check(&bytes, "share the same bytes");
}

#[test]
fn inconsistent_directories_are_refused() {
    let good = parts().to_zip();
    let end = good.len() - 22;
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[end + at..end + at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    check(&with(4, &[1, 0]), "directory is damaged");
    check(&with(8, &[1, 0]), "directory is damaged");
    check(&with(8, &[0xff; 4]), "directory is damaged");
    check(&with(8, &[6, 0, 6, 0]), "directory is damaged");
    check(&with(12, &[0xff; 4]), "directory is damaged");
    check(&with(16, &[0xff; 4]), "directory is damaged");
    check(&with(16, &[0, 0, 0, 0]), "directory is damaged");
    check(&with(20, &[1, 0]), "not a workbook");
}

#[test]
fn zip_bombs_are_refused_before_inflating() {
    let zeros = vec![b' '; 6 << 20];
    check(&parts().with("xl/sharedStrings.xml", zeros).to_zip(), "implausible size");
    let deep = "<a>".repeat(100_000);
    check(
        &parts().with("xl/worksheets/sheet1.xml", format!("<worksheet>{deep}")).to_zip(),
        "nested too deeply",
    );
    let laughs = r#"<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;">]><worksheet><sheetData><row><c t="str"><v>&lol2;</v></c></row></sheetData></worksheet>"#;
    check(&parts().with("xl/worksheets/sheet1.xml", laughs).to_zip(), "document type");
    let entity = "<worksheet><sheetData><row><c t=\"str\"><v>&lol;</v></c></row></sheetData></worksheet>";
    check(&parts().with("xl/worksheets/sheet1.xml", entity).to_zip(), "not valid XML");
    let sheets: String = (0..2000).map(|n| format!(r#"<sheet name="{n}" r:id="rId1"/>"#)).collect();
    check(
        &parts().replacing("xl/workbook.xml", "<sheets>", &format!("<sheets>{sheets}")).to_zip(),
        "more than 1000 sheets",
    );
}

/// A table has a copy of a shared text for each cell that refers to it.
#[test]
fn memory_is_bounded_by_the_size_of_the_file() {
    let text = "x".repeat(1 << 20);
    let rows = |count: u32| -> String {
        (2..2 + count)
            .map(|row| format!(r#"<row r="{row}"><c r="A{row}" t="s"><v>0</v></c></row>"#))
            .collect()
    };
    let book = |count: u32| {
        let header = r#"<row r="1"><c r="A1" t="inlineStr"><is><t>a</t></is></c></row>"#;
        let sheet = format!("<sheetData>{header}{}</sheetData>", rows(count));
        let strings = format!("<sst><si><t>{text}</t></si></sst>");
        PackageParts::new(&sheet).with("xl/sharedStrings.xml", strings).to_zip()
    };
    assert!(describe(&book(3), &xlsx()).starts_with("Sheet1: a"));
    check(&book(200), "the workbook takes more than 128 MiB of memory to read");
}

#[test]
fn the_memory_limit_follows_the_file() {
    for (file_mib, limit_mib) in [(0, 128), (1, 128), (4, 512), (100, 1024)] {
        let mut budget = Budget::for_file(file_mib << 20);
        assert!(budget.charge_part(limit_mib << 19).is_ok());
        // Parts are inflated one after another: only the largest counts.
        assert!(budget.charge_part(limit_mib << 19).is_ok());
        assert!(budget.charge_text(limit_mib as usize * (1 << 19)).is_ok());
        let error = budget.charge_cells(1).expect_err("all of it is used");
        assert!(error.message.contains(&format!("{limit_mib} MiB")), "{}", error.message);
    }
}

#[test]
fn reading_time_is_bounded() {
    let mut spent = Budget::with_time_limit(Duration::ZERO);
    let bytes = parts().to_zip();
    let reason = xlsx_format::load(&bytes, &xlsx(), &mut spent).err().expect("there is no time");
    assert_eq!(reason.message, "cannot be read: the workbook takes longer than 60 seconds to read");
}

#[test]
fn inconsistent_sheets_are_refused() {
    for (inside, expected) in [
        (r#"<sheetData><row r="2"/><row r="2"/></sheetData>"#, "not in order"),
        (r#"<sheetData><row r="0"/></sheetData>"#, "not in order"),
        (r#"<sheetData><row r="1048577"/></sheetData>"#, "not in order"),
        (r#"<sheetData><row r="99999999999"/></sheetData>"#, "not in order"),
        (r#"<sheetData><row r="1048576"/><row/></sheetData>"#, "not in order"),
        (r#"<sheetData><row r="1"><c r="A2"/></row></sheetData>"#, "not in order"),
        (r#"<sheetData><row r="1"><c r="B1"/><c r="A1"/></row></sheetData>"#, "not in order"),
        (r#"<sheetData><row r="1"><c r="XFD1"/><c/></row></sheetData>"#, "not in order"),
        (r#"<sheetData><row r="1"><c r="XFE1"/></row></sheetData>"#, "not in order"),
        (r#"<sheetData><row><c t="s"><v>999</v></c></row></sheetData>"#, "a cell in row 1 is damaged"),
        (r#"<sheetData><row><c t="s"><v>-1</v></c></row></sheetData>"#, "damaged"),
        (r#"<sheetData><row><c><v>NaN</v></c></row></sheetData>"#, "damaged"),
        (r#"<sheetData><row><c><v>inf</v></c></row></sheetData>"#, "damaged"),
        (r#"<sheetData><row><c><v>1e999</v></c></row></sheetData>"#, "damaged"),
        (r#"<sheetData><row><c><v>1 2</v></c></row></sheetData>"#, "damaged"),
        (r#"<sheetData><row><c t="b"><v>2</v></c></row></sheetData>"#, "damaged"),
        (r#"<sheetData><row><c t="x"><v>2</v></c></row></sheetData>"#, "damaged"),
        (r#"<sheetData/><sheetData/>"#, "damaged"),
        (r#"<sheetData><row>"#, "not valid XML"),
        (r#"<sheetData></row>"#, "not valid XML"),
        (r#"<sheetData><row r=1/></sheetData>"#, "not valid XML"),
    ] {
        check(&PackageParts::new(inside).to_zip(), expected);
    }
    let utf16: Vec<u8> = "<worksheet/>".encode_utf16().flat_map(u16::to_le_bytes).collect();
    check(
        &parts().with("xl/worksheets/sheet1.xml", [&b"\xff\xfe"[..], &utf16].concat()).to_zip(),
        "not in UTF-8",
    );
    check(
        &parts().with("xl/worksheets/sheet1.xml", "<html/>").to_zip(),
        "a sheet of the workbook is damaged",
    );
    check(&parts().without("xl/worksheets/sheet1.xml").to_zip(), "a sheet is missing");
    check(&parts().without("xl/workbook.xml").to_zip(), "not a workbook");
    let binary = parts().replacing("_rels/.rels", "workbook.xml", "workbook.bin");
    check(&binary.with("xl/workbook.bin", "").to_zip(), "binary workbook");
}

#[test]
fn sheets_with_too_many_columns_are_skipped() {
    let cells: String = (0..1025).map(|n| format!(r#"<c t="inlineStr"><is><t>c{n}</t></is></c>"#)).collect();
    let inside = format!("<sheetData><row>{cells}</row><row><c><v>1</v></c></row></sheetData>");
    let message = describe(&PackageParts::new(&inside).to_zip(), &xlsx());
    assert_eq!(message, "`Sheet1` is not served: it has more than 1024 columns");
}

/// A part cannot lead out of the file: its name is only compared with other names.
#[test]
fn part_names_are_not_paths() {
    let parts = parts().with("../../etc/passwd", "x").replacing(
        "xl/_rels/workbook.xml.rels",
        "worksheets/sheet1.xml",
        "../../../../xl/worksheets/sheet1.xml",
    );
    assert_eq!(describe(&parts.to_zip(), &xlsx()), "Sheet1: id\n1");
}

static SEEDS: LazyLock<[(WorkbookFormat, Vec<u8>); 3]> = LazyLock::new(|| {
    [
        (WorkbookFormat::Xlsx, parts().to_zip()),
        (WorkbookFormat::Xls, super::xls_ods::XLS_FILE.to_vec()),
        (WorkbookFormat::Ods, super::xls_ods::ods(super::xls_ods::CONTENT)),
    ]
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens to the bytes of a file, it is read or refused.
    #[test]
    fn changed_bytes_are_read_or_refused(
        seed in 0..3_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
        is_cut in prop::bool::weighted(0.2),
    ) {
        let (workbook, mut bytes) = SEEDS[seed].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        _ = options(workbook).load(&bytes);
    }

    /// The same for bytes inside of the archive, where a checksum would not notice.
    #[test]
    fn changed_parts_are_read_or_refused(
        is_ods: bool,
        part in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[<>/=\"a-z0-9&; ]{0,8}"), 1..6),
    ) {
        let (workbook, mut parts) = match is_ods {
            true => (WorkbookFormat::Ods, PackageParts(vec![("content.xml".into(), super::xls_ods::CONTENT.into())])),
            false => (WorkbookFormat::Xlsx, parts()),
        };
        let at = part.index(parts.0.len());
        let content = &mut parts.0[at].1;
        for (at, new) in changes {
            let at = at.index(content.len());
            content.splice(at..(at + new.len() / 2).min(content.len()), new.into_bytes());
        }
        _ = options(workbook).load(&parts.to_zip());
    }
}
