//! The initial file of a crash test, and readers of it that are not our own.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use calamine::{Reader, Xlsx, open_workbook};

use super::kill::StorageFormat;

/// Two columns and one row, so that every format knows its columns.
pub fn initial_file(format: StorageFormat) -> Result<Vec<u8>> {
    match format {
        StorageFormat::Csv => Ok(b"id,word\nfirst,one\n".to_vec()),
        StorageFormat::JsonLines => Ok(b"{\"id\":\"first\",\"word\":\"one\"}\n".to_vec()),
        StorageFormat::Sqlite => {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("log.db");
            let database = rusqlite::Connection::open(&path)?;
            database.execute_batch(
                "CREATE TABLE log (id TEXT PRIMARY KEY NOT NULL, word TEXT NOT NULL);
                 INSERT INTO log VALUES ('first', 'one');",
            )?;
            database.close().map_err(|(_, error)| error)?;
            Ok(std::fs::read(path)?)
        }
        StorageFormat::Xlsx => workbook(),
    }
}

/// The ids in a file, in file order.
pub fn read_ids(format: StorageFormat, path: &Path) -> Result<Vec<String>> {
    match format {
        StorageFormat::Csv => {
            let text = std::fs::read_to_string(path)?;
            let first = |line: &str| line.split(',').next().unwrap_or_default().to_owned();
            Ok(text.lines().skip(1).map(first).collect())
        }
        StorageFormat::JsonLines => std::fs::read_to_string(path)?
            .lines()
            .map(|line| {
                let row: serde_json::Value = serde_json::from_str(line)?;
                Ok(row["id"].as_str().context("an id")?.to_owned())
            })
            .collect(),
        StorageFormat::Sqlite => {
            let database = rusqlite::Connection::open(path)?;
            database.query_row("PRAGMA integrity_check", (), |row| {
                let told: String = row.get(0)?;
                if told == "ok" { Ok(()) } else { Err(rusqlite::Error::InvalidQuery) }
            })?;
            let mut statement = database.prepare("SELECT id FROM log ORDER BY rowid")?;
            let ids = statement.query_map((), |row| row.get(0))?;
            Ok(ids.collect::<Result<_, _>>()?)
        }
        StorageFormat::Xlsx => {
            let mut book: Xlsx<_> = open_workbook(path)?;
            let range = book.worksheet_range("log")?;
            Ok(range.rows().skip(1).map(|row| row[0].to_string()).collect())
        }
    }
}

/// The smallest workbook that every program opens.
fn workbook() -> Result<Vec<u8>> {
    let parts = [
        (
            "[Content_Types].xml",
            r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>"#,
        ),
        (
            "_rels/.rels",
            r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#,
        ),
        (
            "xl/workbook.xml",
            r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?><workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="log" sheetId="1" r:id="rId1"/></sheets></workbook>"#,
        ),
        (
            "xl/_rels/workbook.xml.rels",
            r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>"#,
        ),
        (
            "xl/worksheets/sheet1.xml",
            r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?><worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><dimension ref="A1:B2"/><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>id</t></is></c><c r="B1" t="inlineStr"><is><t>word</t></is></c></row><row r="2"><c r="A2" t="inlineStr"><is><t>first</t></is></c><c r="B2" t="inlineStr"><is><t>one</t></is></c></row></sheetData></worksheet>"#,
        ),
    ];
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in parts {
        archive.start_file(name, zip::write::SimpleFileOptions::default())?;
        archive.write_all(text.as_bytes())?;
    }
    Ok(archive.finish()?.into_inner())
}
