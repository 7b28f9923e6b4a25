//! Operations of which every call would fail: they are not listed, and `check` says why.

use super::harness::{TestProject, examples};

/// An Excel table with a row of totals directly below its rows.
fn table_with_totals(operations: &str) -> TestProject {
    let book = examples().join("../crates/source/tests/it/sheets/tables/totals.xlsx");
    let manifest = format!(
        "[sources.book]\npath = \"totals.xlsx\"\n[collections.orders]\nsource = \"book\"\noperations = [{operations}]\n"
    );
    let book = std::fs::read(book).expect("a workbook");
    TestProject::new(&[("totals.xlsx", &book), ("spile.toml", manifest.as_bytes())])
}

#[test]
fn a_write_that_excel_would_have_to_do_more_for_is_not_listed() {
    let project = table_with_totals(r#""list", "create", "update", "delete""#);
    let checked = project.run(&["check", "."]);
    assert_eq!(checked.code, Some(0), "{checked}");
    for expected in [
        "2 tools",
        "`create` of collection `orders` in `totals.xlsx` is not served: the Excel table `Orders` has a totals row, which would have to move",
        "`delete` of collection `orders` in `totals.xlsx` is not served: the sheet has an Excel table that would have to shrink",
    ] {
        assert!(checked.stdout.contains(expected), "{expected}: {checked}");
    }
    let listed = project.run(&["tools", "--from", "."]);
    for (tool, is_listed) in
        [("list_orders", true), ("update_orders", true), ("create_orders", false), ("delete_orders", false)]
    {
        assert_eq!(listed.stdout.contains(tool), is_listed, "{tool}: {listed}");
    }
    let called = project.run(&["call", "create_orders", "item=fig", "--from", "."]);
    assert_ne!(called.code, Some(0), "{called}");
    assert!(called.stderr.contains("create_orders"), "{called}");
}

#[test]
fn a_collection_with_no_operation_left_is_an_error() {
    let project = table_with_totals(r#""create""#);
    let checked = project.run(&["check", "."]);
    assert_ne!(checked.code, Some(0), "{checked}");
    assert!(format!("{checked}").contains("has a totals row"), "{checked}");
}
