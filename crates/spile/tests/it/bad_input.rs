//! Data and manifests that cannot be served: the messages, and that no file changes.
//!
//! `check` and `serve` must print the same messages.

use crate::harness::{CommandOutput, TestProject};

/// Snapshots the messages.
#[track_caller]
fn check(name: &str, files: &[(&str, &[u8])], path: &str) {
    check_in(name, &TestProject::new(files), path, &[]);
}

#[track_caller]
fn check_in(name: &str, place: &TestProject, path: &str, env: &[(&str, &str)]) {
    let before = place.files();
    let checked = place.run_with(&["check", path], env);
    let served = place.run_with(&["serve", path], env);
    assert_eq!(place.files(), before, "{name}: the files are as they were");
    assert_eq!((checked.code, &*checked.stdout), (Some(1), ""), "{name}: {checked}");
    assert_eq!(
        served,
        CommandOutput { command_line: served.command_line.clone(), ..checked.clone() },
        "{name}"
    );
    insta::assert_snapshot!(name, checked);
}

/// Something odd that does not keep the data from being served. `serve` must print every note that `check` does, except
/// lint findings.
#[track_caller]
fn check_served(name: &str, files: &[(&str, &[u8])], path: &str) {
    let place = TestProject::new(files);
    let before = place.files();
    let checked = place.run(&["check", path]);
    let served = place.run(&["serve", path]);
    assert_eq!(place.files(), before, "{name}: the files are as they were");
    assert_eq!((checked.code, served.code), (Some(0), Some(0)), "{name}: {checked}\n{served}");
    let notes = served.stderr.split_once("\nfindings: ").map_or("", |(_, notes)| notes);
    for line in notes.lines().skip(1).filter(|line| !line.contains(" about the data: ")) {
        assert!(checked.stdout.contains(line), "{name}: {checked}\n{served}");
    }
    assert_eq!(served.stdout, "", "{name}: stdout belongs to the protocol");
    insta::assert_snapshot!(name, format!("{checked}\n\n{served}"));
}

#[test]
fn paths_that_do_not_exist() {
    check("missing_file", &[], "people.csv");
    check("missing_file_near", &[PEOPLE], "peopel.csv");
    check("missing_file_near_in_a_folder", &[("data/people.csv", PEOPLE.1)], "data/poeple.csv");
    check("missing_file_at_an_address", &[], "https://example.com/people.csv");
    check(
        "folder_of_folders",
        &[("b/people.csv", PEOPLE.1), ("a/spile.toml", b""), ("c/notes.txt", b"")],
        ".",
    );
    check("folder_of_folders_named", &[("old/a/people.csv", PEOPLE.1)], "old");
    check("missing_database", &[], "people.db");
    check("missing_folder", &[], "people");
    check("missing_manifest", &[], "people/spile.toml");
    check("folder_without_anything", &[], ".");
    check("folder_without_data", &[("README.md", b"# Hello\n"), (".hidden.csv", b"a\n1\n")], ".");
    check("file_of_another_kind", &[("people.xlsx", b"PK\x03\x04")], "people.xlsx");
}

#[test]
fn text_files_that_are_not_tables() {
    check("csv_empty", &[("people.csv", b"")], "people.csv");
    check("csv_blank", &[("people.csv", b"\n\n\n")], "people.csv");
    check("csv_ragged_long", &[("people.csv", b"id,name\n1,Ada\n2,Bea,Berlin\n")], "people.csv");
    check("csv_ragged_short", &[("people.csv", b"id,name\n1,Ada\n2\n")], "people.csv");
    check("csv_quote_left_open", &[("people.csv", b"id,name\n1,\"Ada\n2,Bea\n")], "people.csv");
    check(
        "csv_comment_first",
        &[("people.csv", b"# exported today\nid,name\n1,Ada\n2,Bea,x\n")],
        "people.csv",
    );
    check("csv_comment_between", &[("people.csv", b"id,name\n# new ones\n1,Ada\n")], "people.csv");
    let wide = [vec!["c"; 3000].join(","), "\n".into(), vec!["1"; 3000].join(","), "\n".into()].concat();
    check("csv_too_many_columns", &[("people.csv", wide.as_bytes())], "people.csv");
}

#[test]
fn json_that_is_invalid_or_not_a_table() {
    for (name, text) in [
        ("json_empty", ""),
        (
            "json_comma_at_the_end",
            "[\n  {\"id\": 1, \"name\": \"Ada\"},\n  {\"id\": 2, \"name\": \"Bea\"},\n]\n",
        ),
        ("json_single_quotes", "[{'id': 1}]"),
        ("json_names_without_quotes", "[{id: 1}]"),
        ("json_with_a_comment", "[\n  // people\n  {\"id\": 1}\n]"),
        ("json_cut_short", "[{\"id\": 1}, {\"id\": 2"),
        ("json_of_lines", "{\"id\": 1}\n{\"id\": 2}\n"),
        ("json_of_settings", "{\"theme\": \"dark\", \"zoom\": 2}"),
        ("json_of_two_lists", "{\"people\": [{\"id\": 1}], \"plans\": [{\"id\": 2}]}"),
    ] {
        check(name, &[("people.json", text.as_bytes())], "people.json");
    }
    let inside = ("api.json", &b"{\"data\": [{\"id\": 1}]}"[..]);
    let settings = ("theme.json", &b"{\"dark\": true}"[..]);
    check_served("json_among_others", &[PEOPLE, inside, settings], ".");
}

/// Common in first attempts, and valid.
#[test]
fn odd_but_valid_projects() {
    let manifest =
        b"[sources.crm]\r\npath = \"people.csv\"\r\n\r\n[collections.people]\r\nkey = \"name\"\r\n";
    check_served("manifest_with_windows_line_ends", &[PEOPLE, ("spile.toml", manifest)], ".");
    let umlauts = "meine kunden (\u{fc}bersicht).csv";
    check_served("file_name_with_blanks_and_umlauts", &[(umlauts, b"id,name\n1,Ada\n")], umlauts);
    check_served("two_files_of_one_stem", &[PEOPLE, ("people.json", b"[{\"no\": 1}]")], ".");
    check_served("header_with_blanks", &[("people.csv", b" id ,  full name\n1,Ada\n2,Bea\n")], "people.csv");
}

#[test]
fn files_that_are_not_text() {
    let mut noise = b"id,name\n".to_vec();
    noise.extend((0..=255).cycle().take(2048).collect::<Vec<u8>>());
    check("csv_binary", &[("people.csv", &noise)], "people.csv");
    check("csv_that_is_a_workbook", &[("people.csv", b"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0")], "people.csv");
    check("csv_that_is_a_database", &[("people.csv", b"SQLite format 3\0\x10\0\x01\x01\0")], "people.csv");
    check("csv_that_is_compressed", &[("people.csv", b"\x1f\x8b\x08\0\0\0\0\0\0\x03")], "people.csv");
    check("csv_utf16_cut_short", &[("people.csv", b"\xff\xfei\0d\0\n\x001\0\n\0\x32")], "people.csv");
}

#[test]
fn odd_tables_that_can_be_served() {
    check_served(
        "csv_header_twice",
        &[("people.csv", b"id,name,name\n1,Ada,Lovelace\n2,Bea,\n")],
        "people.csv",
    );
    check_served("csv_header_blank", &[("people.csv", b"id,,name\n1,x,Ada\n")], "people.csv");
    check_served("csv_header_only", &[("people.csv", b"id,name\n")], "people.csv");
    check_served("csv_without_a_key", &[("people.csv", b"name,city\nAda,Rome\nAda,Rome\n")], "people.csv");
    let utf16: Vec<u8> = "\u{feff}id,name\n1,Zoë\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    check_served("csv_utf16", &[("people.csv", &utf16)], "people.csv");
    let unmarked: Vec<u8> = "id,name\n1,Zoë\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    check_served("csv_utf16_without_mark", &[("people.csv", &unmarked)], "people.csv");
    check_served("csv_comment_as_header", &[("people.csv", b"# names\nAda\nBea\n")], "people.csv");
    check_served("csv_windows_1252", &[("people.csv", b"id,name\n1,Zo\xeb\n2,Ada\n")], "people.csv");
    let names: Vec<String> = (1..=80).map(|n| format!("column_{n}")).collect();
    let values: Vec<String> = (1..=80).map(|n| n.to_string()).collect();
    let wide = format!("{}\n{}\n", names.join(","), values.join(","));
    check_served("csv_80_columns", &[("people.csv", wide.as_bytes())], "people.csv");
}

#[test]
fn databases_that_cannot_be_read() {
    check("db_empty_file", &[("people.db", b"")], "people.db");
    check(
        "db_of_another_kind",
        &[("people.db", b"id,name\n1,Ada\n2,Bea\n3,Cem\n".repeat(40).as_slice())],
        "people.db",
    );
    let whole = database(
        "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO people VALUES (1, 'Ada')",
    );
    let mut damaged = whole.clone();
    // The second page is the table's.
    damaged[4096..4196].fill(0xaa);
    check("db_damaged", &[("people.db", &damaged)], "people.db");
    check("db_cut_short", &[("people.db", &whole[..4096])], "people.db");
    let virtual_only = database("CREATE VIRTUAL TABLE docs USING fts4(body); INSERT INTO docs VALUES ('x')");
    check("db_of_virtual_tables", &[("people.db", &virtual_only)], "people.db");
    let huge = database(
        "CREATE TABLE films (id INTEGER PRIMARY KEY, film BLOB); INSERT INTO films VALUES (1, zeroblob(70000000))",
    );
    check("db_with_a_huge_value", &[("people.db", &huge)], "people.db");
    check("db_without_tables", &[("people.db", &database("CREATE TABLE t (a); DROP TABLE t"))], "people.db");
}

#[test]
fn odd_databases_that_can_be_served() {
    let nulls = database(
        "CREATE TABLE people (id TEXT PRIMARY KEY, email TEXT UNIQUE, name TEXT);
         INSERT INTO people VALUES (NULL, 'ada@acme.test', 'Ada'), (NULL, 'bea@acme.test', 'Bea'), ('3', 'cem@acme.test', 'Cem');
         CREATE TABLE films (id INTEGER PRIMARY KEY, film BLOB); INSERT INTO films VALUES (1, zeroblob(70000000));
         CREATE VIRTUAL TABLE docs USING fts5(body);
         CREATE TABLE notes (name TEXT PRIMARY KEY, n INT); INSERT INTO notes VALUES ('a', 1), (cast(x'ff41' AS TEXT), 1)",
    );
    check_served("db_with_keys_of_no_use", &[("people.db", &nulls)], "people.db");
}

#[test]
fn a_database_locked_by_another_program() {
    let place = TestProject::new(&[(
        "people.db",
        &database("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)"),
    )]);
    let before = place.files();
    let other = rusqlite::Connection::open(place.folder.join("people.db")).expect("it opens");
    other.execute_batch("BEGIN EXCLUSIVE").expect("it can be locked");
    // Do not read the file in this process from here on: closing it would release the lock.
    let output = place.run(&["check", "people.db"]);
    other.execute_batch("ROLLBACK").expect("it can be unlocked");
    drop(other);
    assert_eq!(place.files(), before, "the files are as they were");
    assert_eq!((output.code, &*output.stdout), (Some(1), ""), "{output}");
    insta::assert_snapshot!("db_locked", output);
    // After the lock is released:
    assert_eq!(place.run(&["check", "people.db"]).code, Some(0));
}

fn database(sql: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("made.db");
    let made = rusqlite::Connection::open(&path).expect("it opens");
    made.execute_batch(&format!("PRAGMA page_size = 4096; {sql}")).expect("it is SQL");
    drop(made);
    std::fs::read(&path).expect("written")
}

const PEOPLE: (&str, &[u8]) = ("people.csv", b"id,name,city\n1,Ada,Rome\n2,Bea,Berlin\n2,Cem,Izmir\n");

/// A manifest for [`PEOPLE`], with more lines at its end.
#[track_caller]
fn check_manifest(name: &str, more: &str) {
    let manifest =
        format!("[sources.crm]\npath = \"people.csv\"\n\n[collections.people]\nsource = \"crm\"\n{more}");
    check(name, &[PEOPLE, ("spile.toml", manifest.as_bytes())], ".");
}

#[test]
fn invalid_manifests_are_rejected() {
    check("manifest_no_toml", &[("spile.toml", b"[sources.crm\n")], ".");
    check("manifest_not_text", &[("spile.toml", b"[server]\nname = \"\xff\"\n")], ".");
    check("manifest_empty", &[("spile.toml", b"")], ".");
    check(
        "manifest_missing_file",
        &[("spile.toml", b"[sources.crm]\npath = \"gone.csv\"\n\n[collections.people]\nsource = \"crm\"\n")],
        ".",
    );
    check(
        "manifest_unset_variable",
        &[(
            "spile.toml",
            b"[sources.crm]\npath = \"${CRM_FILE}\"\n\n[collections.people]\nsource = \"crm\"\n",
        )],
        ".",
    );
    check_manifest("manifest_unknown_key", "kye = \"name\"\n");
    check_manifest("manifest_unknown_column", "key = \"naem\"\n");
    check_manifest(
        "manifest_unknown_column_in_fields",
        "key = \"name\"\n\n[collections.people.fields]\nctiy = { description = \"Where they live.\" }\n",
    );
    check_manifest("manifest_key_repeats", "key = \"id\"\n");
    check_manifest(
        "manifest_enum_that_does_not_hold",
        "key = \"name\"\n\n[collections.people.fields]\ncity = { enum = [\"Rome\", \"Berlin\"] }\n",
    );
    check_manifest(
        "manifest_type_that_does_not_hold",
        "key = \"name\"\n\n[collections.people.fields]\ncity = { as = \"integer\" }\n",
    );
    check_manifest(
        "manifest_text_without_such_a_field",
        "key = \"name\"\n\n[tools.find]\nuses = \"people.get\"\ntext = \"Found {naem} in {city}.\"\n",
    );
    check_manifest("manifest_unknown_collection", "key = \"name\"\n\n[tools.find]\nuses = \"peeple.get\"\n");
    check_manifest(
        "manifest_several_mistakes",
        "key = \"naem\"\nfilter = [\"city\"]\n\n[tools.find]\nuses = \"people.gte\"\n",
    );
}

/// A manifest whose only source is at `path`, beside `people.csv`.
#[track_caller]
fn check_path(name: &str, path: &str) {
    let manifest = format!("[sources.crm]\npath = {path}\n");
    check(name, &[PEOPLE, ("spile.toml", manifest.as_bytes())], ".");
}

#[test]
fn source_paths_that_do_not_exist() {
    check_path("path_near", "\"peopel.csv\"");
    check_path("path_without_its_folder", "\"data/people.csv\"");
    check_path("path_like_nothing", "\"x.db\"");
    check_path("path_of_home", "\"~/people.csv\"");
    check_path("path_of_shell_variable", "\"$DATA_DIR/people.csv\"");
    check_path("path_of_address", "\"https://example.com/people.csv\"");
    check_path("path_with_a_tab", "\"data\\temp.csv\"");
}

#[test]
fn an_error_is_reported_once() {
    check_manifest("manifest_key_repeats_twice", "key = \"id\"\noperations = [\"get\", \"update\"]\n");
}

#[test]
fn manifests_without_a_visible_tool() {
    let csv = b"[sources.crm]\npath = \"people.csv\"\n";
    check("manifest_without_collection", &[PEOPLE, ("spile.toml", csv)], ".");
    let database = database("CREATE TABLE people (id INTEGER PRIMARY KEY);");
    let sqlite = b"[sources.crm]\npath = \"crm.db\"\n";
    check("manifest_without_table", &[("crm.db", &database), ("spile.toml", sqlite)], ".");
    let hidden = b"[sources.crm]\npath = \"people.csv\"\n\n[collections.people]\nsource = \"crm\"\n\
                   operations = [\"list\"]\n\n[tools.people]\nuses = \"people.list\"\nhidden = true\n";
    check_served("manifest_all_hidden", &[PEOPLE, ("spile.toml", hidden)], ".");
}

/// A table of emails and plans, and a manifest with a tool of this statement.
fn statement(sql: &str, more: &str) -> [(&'static str, Vec<u8>); 2] {
    let rows = "INSERT INTO people VALUES ('a@example.com', 'free'), ('b@example.com', 'ruby');";
    let database = database(&format!("CREATE TABLE people (email TEXT PRIMARY KEY, plan TEXT); {rows}"));
    let manifest = format!("[sources.crm]\npath = \"crm.db\"\n\n[tools.find]\nsql = '''{sql}'''\n{more}");
    [("crm.db", database), ("spile.toml", manifest.into_bytes())]
}

#[test]
fn mistakes_in_sql_are_reported() {
    let argument = "arguments.email = { type = \"string\" }\n";
    let [database, manifest] = statement("select plan from people where email = ':email'", argument);
    check("sql_quoted_parameter", &[(database.0, &database.1), (manifest.0, &manifest.1)], ".");
    let [database, manifest] = statement("select email from people where plan = \"silver\"", "");
    check("sql_text_in_double_quotes", &[(database.0, &database.1), (manifest.0, &manifest.1)], ".");
    let integer = "fields.e = { as = \"integer\" }\n";
    let [database, manifest] = statement("select email as e from people", integer);
    check_served("sql_type_that_does_not_hold", &[(database.0, &database.1), (manifest.0, &manifest.1)], ".");
}

#[test]
fn a_variable_that_is_set_is_used() {
    let manifest =
        b"[sources.crm]\npath = \"${CRM_FILE}\"\n\n[collections.people]\nsource = \"crm\"\nkey = \"name\"\n";
    let place = TestProject::new(&[PEOPLE, ("spile.toml", manifest)]);
    let output = place.run_with(&["check"], &[("CRM_FILE", "people.csv")]);
    assert_eq!(output.code, Some(0), "{output}");
    check_in("manifest_variable_names_nothing", &place, ".", &[("CRM_FILE", "people.tsv")]);
}

#[test]
fn folders_and_files_of_code_that_cannot_be_served() {
    check("code_mcp_json_without_folders", &[("mcp.json", b"{}")], ".");
    check("code_mcp_json_outside", &[("mcp.json", b"{\"toolsDir\":\"../tools\"}")], ".");
    check("code_mcp_json_broken", &[("mcp.json", b"{\"name\":")], "mcp.json");
    check("code_named", &[("hello.ts", b"export default {}")], "hello.ts");
    check_served("code_broken_beside_data", &[PEOPLE, ("tools/hello.ts", b"export default {}")], ".");
}
