use std::fmt::Write as _;
use std::path::Path;

use contract::ValueRef;
use contract::source::{RowChange, TransactionOptions};

use super::{Compiled, MANIFEST, Project, Sources};

fn compile_folder(folder: &Path, description: &str, served: &Sources) -> Compiled {
    let read = std::fs::read_dir(folder).expect("a folder");
    let mut names = read.map(|entry| entry.expect("a file").file_name().into_string().expect("a name"));
    let file = names.find(|name| name.starts_with("t.")).expect("data");
    let kind = match file.as_str() {
        "t.db" => "sqlite",
        "t.jsonl" => "jsonl",
        other => other.strip_prefix("t.").expect("an ending"),
    };
    let manifest = format!(
        "[server]\nname = \"t\"\n[sources.data]\nkind = \"{kind}\"\npath = \"{file}\"\n[collections.t]\nsource = \
         \"data\"\nkey = \"id\"\ndescription = \"{description}\"\noperations = [\"get\", \"update\"]\n"
    );
    std::fs::write(folder.join(MANIFEST), manifest).expect("written");
    let looked = Project::find(folder).and_then(|project| project.rescan(served)).expect("a project");
    assert_eq!(looked.error_count(), 0, "{:?}", looked.diagnostics);
    looked.compiled.expect("nothing is wrong")
}

fn update(through: &Compiled, to: &str) {
    let writer = through.backends.writers[0].as_ref().expect("it is written to");
    let (key, cells) = ([ValueRef::Integer(1)], [(1, ValueRef::Text(to))]);
    let change = RowChange::Update { key: &key, values: &cells };
    let mut transaction = writer.begin(&TransactionOptions::default()).expect("begun");
    transaction.apply(&change).expect("applied");
    transaction.commit().expect("written");
}

fn read(through: &Compiled) -> String {
    let mut found = String::new();
    let row = &mut |cells: &[ValueRef<'_>]| match cells[1] {
        ValueRef::Text(text) => found = text.to_owned(),
        other => panic!("{other:?}"),
    };
    assert!(through.backends.readers[0].get(&[ValueRef::Integer(1)], row).expect("it answers"));
    found
}

/// What is written through either of two contracts on this file is read at once through both.
fn check(name: &str, bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name), bytes).expect("written");
    let old = compile_folder(folder.path(), "Old.", &Sources::default());
    let new = compile_folder(folder.path(), "New.", &old.sources);
    assert!(old.contract != new.contract);
    let mut turn = 0;
    for _ in 0..3 {
        for through in [&old, &new] {
            turn += 1;
            let to = format!("turn {turn}");
            update(through, &to);
            assert_eq!([read(&old), read(&new)], [to.as_str(), to.as_str()], "{name}");
        }
    }
    // A contract that is made now knows it too, also when the one before is gone.
    let sources = new.sources.clone();
    drop((old, new));
    assert_eq!(read(&compile_folder(folder.path(), "Newer.", &sources)), format!("turn {turn}"), "{name}");
}

const ROWS: usize = 10;

/// Rows with a long value make a large file.
fn csv(value_bytes: usize) -> String {
    let mut text = "id,v\n".to_owned();
    for id in 1..=ROWS {
        writeln!(text, "{id},{}", "x".repeat(value_bytes)).expect("a text grows");
    }
    text
}

fn lines(value_bytes: usize) -> String {
    let mut text = String::new();
    for id in 1..=ROWS {
        writeln!(text, r#"{{"id":{id},"v":"{}"}}"#, "x".repeat(value_bytes)).expect("a text grows");
    }
    text
}

/// A file that is read again behind, while what was read before answers.
const LARGE: usize = (3 << 20) / ROWS;

#[test]
fn a_write_through_one_contract_is_seen_through_the_other() {
    check("t.csv", csv(10).as_bytes());
    check("t.jsonl", lines(10).as_bytes());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.db");
    let made = rusqlite::Connection::open(&path).expect("a database");
    made.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES(1, 'x')")
        .expect("a table");
    drop(made);
    check("t.db", &std::fs::read(path).expect("it is there"));
}

#[test]
fn so_it_is_in_a_large_file() {
    check("t.csv", csv(LARGE).as_bytes());
    check("t.jsonl", lines(LARGE).as_bytes());
}

/// Facts are those of the file as it is now, even if another process read it before.
#[test]
fn a_source_that_is_open_is_looked_at_again() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("t.csv"), csv(1)).expect("written");
    let mut served = compile_folder(folder.path(), "Same.", &Sources::default());
    for columns in ["id,v,more\n1,x,1\n", "id,v,also\n1,x,2\n", "id,v\n1,x\n"] {
        std::fs::write(folder.path().join("t.csv"), columns).expect("written");
        served = compile_folder(folder.path(), "Same.", &served.sources);
        let fields: Vec<&str> =
            served.contract.collections[0].fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(fields.join(","), columns.lines().next().expect("a line"));
    }
}

/// Two sources that are one file are one source.
#[test]
fn a_file_that_is_named_twice_is_open_once() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("t.csv"), csv(LARGE)).expect("written");
    let mut manifest = "[server]\nname = \"t\"\n".to_owned();
    for name in ["a", "b"] {
        write!(
            manifest,
            "[sources.{name}]\nkind = \"csv\"\npath = \"t.csv\"\n[collections.{name}]\nsource = \"{name}\"\nkey = \
             \"id\"\noperations = [\"get\", \"update\"]\n"
        )
        .expect("a text grows");
    }
    std::fs::write(folder.path().join(MANIFEST), manifest).expect("written");
    let ready = Project::find(folder.path()).and_then(|project| project.scan()).expect("a project").compiled;
    let mut ready = ready.expect("nothing is wrong");
    update(&ready, "written");
    ready.backends.readers.swap(0, 1);
    assert_eq!(read(&ready), "written");
}

#[test]
fn a_folder_of_code_is_a_project_with_and_without_data() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        std::fs::write(&path, text).expect("written");
        path
    };
    let script = write("tools/conjugate.ts", "export default () => 'x'");
    let error = Project::find(&script).expect_err("one file").to_string();
    assert!(error.contains("serve the folder above"), "{error}");
    assert!(Project::find(folder.path()).expect("a project").author.is_some());
    let config = write("mcp.json", r#"{"name":"verbs"}"#);
    assert_eq!(Project::find(&config).expect("a project").name, "verbs");
    write("people.csv", "id,name\n1,Ada\n");
    let scan = Project::find(folder.path()).and_then(|project| project.scan()).expect("a project");
    let names: Vec<&str> =
        scan.author.iter().flat_map(|author| author.tools()).map(|tool| &*tool.name).collect();
    assert_eq!(names, ["conjugate"]);
    assert_eq!(scan.compiled.expect("data").contract.collections.len(), 1);
}
