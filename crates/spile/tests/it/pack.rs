//! `spile pack`: the packed file, alone in an empty folder with an empty environment, answers as `serve` does.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{CommandOutput, SPILE, TestProject};

const SESSION: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"lookup_customer","arguments":{"email":"dana@acme.test"}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"list_customers","arguments":{"limit":2}}}"#,
];

/// The answers of a server on stdin and stdout, without cursors, which differ for each process.
fn run_session(mut command: Command) -> Vec<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut input = child.stdin.take().expect("piped");
    for line in SESSION {
        writeln!(input, "{line}").expect("the server reads");
    }
    drop(input);
    let out = child.wait_with_output().expect("the server ends");
    let output = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{output}");
    // Responses to pipelined requests may come in any order.
    let mut lines: Vec<String> = String::from_utf8_lossy(&out.stdout).lines().map(without_cursor).collect();
    lines.sort();
    lines
}

fn without_cursor(line: &str) -> String {
    match line.split_once("\"nextCursor\":\"") {
        Some((before, rest)) => format!("{before}…{}", rest.split_once('"').map_or("", |(_, rest)| rest)),
        None => line.to_owned(),
    }
}

fn clean_command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("XDG_STATE_HOME", crate::harness::state_folder()).current_dir(folder);
    command
}

/// A packed example, alone in a folder.
fn pack_customers(args: &[&str]) -> (TestProject, PathBuf) {
    let place = TestProject::customers();
    let alone = TestProject::new(&[]);
    let program = alone.folder.join("customers");
    let output = program.to_string_lossy().into_owned();
    let output = place.run(&[&["pack", ".", "--output", &output], args].concat());
    assert_eq!(output.code, Some(0), "{output}");
    (alone, program)
}

#[test]
fn one_file_answers_as_serving_does() {
    let (alone, program) = pack_customers(&["--with-data"]);
    let mut serve = clean_command(Path::new(SPILE), &crate::harness::examples().join("customers"));
    serve.arg("serve");
    let expected = run_session(serve);
    assert_eq!(expected.len(), 4);
    assert_eq!(run_session(clean_command(&program, &alone.folder)), expected);
    // Again, from the extracted files.
    assert_eq!(run_session(clean_command(&program, &alone.folder)), expected);
    assert_eq!(alone.files().len(), 1, "nothing appears beside it");
}

#[test]
fn without_data_the_files_are_read_next_to_the_executable() {
    let (alone, program) = pack_customers(&[]);
    let out = clean_command(&program, &alone.folder).stdin(Stdio::null()).output().expect("it starts");
    let output = alone.normalize(&out.stderr);
    assert!(!out.status.success() && output.contains("customers.csv"), "{output}");
    let data = crate::harness::examples().join("customers").join("customers.csv");
    std::fs::copy(data, alone.folder.join("customers.csv")).expect("a copy");
    assert_eq!(run_session(clean_command(&program, &alone.folder)).len(), 4);
    // The current folder does not matter.
    assert_eq!(run_session(clean_command(&program, Path::new("/"))).len(), 4);
}

#[test]
fn help_and_version_name_the_packed_server() {
    let (alone, program) = pack_customers(&["--with-data"]);
    for (name, args) in [("packed_help", vec!["--help"]), ("packed_version", vec!["--version"])] {
        let out = clean_command(&program, &alone.folder).args(args).output().expect("it starts");
        insta::assert_snapshot!(name, alone.normalize(&out.stdout));
    }
    let out = clean_command(&program, &alone.folder).arg("--nonsense").output().expect("it starts");
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn a_damaged_file_is_reported() {
    let (alone, program) = pack_customers(&["--with-data"]);
    let whole = std::fs::read(&program).expect("packed");
    let damaged = |name: &str, bytes: &[u8]| {
        let path = alone.folder.join(name);
        std::fs::write(&path, bytes).expect("written");
        std::fs::set_permissions(&path, std::fs::metadata(&program).expect("there").permissions())
            .expect("mode");
        let out = clean_command(&path, &alone.folder).stdin(Stdio::null()).output().expect("it starts");
        assert!(!out.status.success());
        alone.normalize(&out.stderr)
    };
    // A changed byte, which only the digest detects.
    let mut other = whole.clone();
    let at = other.len() - 56 - 2000;
    other[at] ^= 1;
    let digest = other.len() - 56;
    other[digest] ^= 1;
    let output = damaged("flipped", &other);
    assert!(output.contains("download or copy"), "{output}");
    // The trailer claims a payload larger than the file.
    let mut other = whole.clone();
    let length = other.len() - 24;
    other[length + 6] = 0xff;
    let output = damaged("cut", &other);
    assert!(output.contains("incomplete"), "{output}");
}

#[test]
fn a_bundle_runs_by_its_own_manifest() {
    let place = TestProject::customers();
    let output = place.run(&[
        "pack",
        "--output",
        "customers.mcpb",
        "--format",
        "mcpb",
        "--with-data",
        "--author",
        "Acme",
    ]);
    assert_eq!(output.code, Some(0), "{output}");
    let unpacked = TestProject::new(&[]);
    let file = std::fs::File::open(place.folder.join("customers.mcpb")).expect("made");
    zip::ZipArchive::new(file).expect("a zip archive").extract(&unpacked.folder).expect("extracted");
    let manifest = std::fs::read_to_string(unpacked.folder.join("manifest.json")).expect("there");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    insta::assert_snapshot!("mcpb_manifest", serde_json::to_string_pretty(&manifest).expect("JSON"));
    let config = &manifest["server"]["mcp_config"];
    let folder = unpacked.folder.to_string_lossy();
    let command = config["command"].as_str().expect("a text").replace("${__dirname}", &folder);
    assert_eq!(config["args"], serde_json::json!([]));
    assert_eq!(run_session(clean_command(Path::new(&command), Path::new("/"))).len(), 4);
}

#[test]
fn server_json_describes_the_server() {
    let place = TestProject::customers();
    place.write("customers.mcpb", b"a bundle");
    let args =
        ["pack", "--output", "server.json", "--format", "server-json", "--id", "io.github.acme/customers"];
    let more = ["--bundle", "customers.mcpb", "--bundle-url", "https://acme.test/customers.mcpb"];
    let output = place.run(&[&args[..], &more].concat());
    assert_eq!(output.code, Some(0), "{output}");
    let text = std::fs::read_to_string(place.folder.join("server.json")).expect("made");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    insta::assert_snapshot!("server_json", serde_json::to_string_pretty(&value).expect("JSON"));
}

#[test]
fn what_cannot_be_packed_is_refused() {
    let place = TestProject::customers();
    place.write("there", b"");
    for (name, args) in [
        ("pack_there_already", vec!["pack", "--output", "there"]),
        ("pack_into_a_folder", vec!["pack", "--output", ".", "--force"]),
        ("pack_nothing", vec!["pack", "nothing", "--output", "x"]),
        ("pack_nowhere", vec!["pack", "--output", "no/such/folder/x"]),
        ("pack_without_id", vec!["pack", "--output", "x", "--format", "server-json"]),
        ("pack_odd_id", vec!["pack", "--output", "x", "--format", "server-json", "--id", "acme"]),
        ("pack_without_output", vec!["pack"]),
        ("pack_no_program", vec!["pack", "--output", "x", "--program", "nothing"]),
        ("pack_other_program", vec!["pack", "--output", "x", "--program", "customers.csv"]),
        ("pack_bundle_without_data", vec!["pack", "--output", "x", "--format", "mcpb"]),
    ] {
        insta::assert_snapshot!(name, place.run(&args));
    }
    assert!(!place.folder.join("x").exists());
    let names: Vec<PathBuf> = place.files().into_iter().map(|(path, _)| path).collect();
    assert_eq!(names.len(), 4, "no temporary file is left: {names:?}");
}

/// Two servers of the same name have separate data, and written data survives packing again.
#[test]
fn written_data_belongs_to_one_server_and_survives_packing_again() {
    let home = TestProject::new(&[]);
    let packed = |word: &str| {
        let place = TestProject::new(&[
            ("stock.csv", format!("sku,word\na,{word}\n").as_bytes()),
            ("spile.toml", b"[server]\nname = \"stock\"\n[sources.s]\npath = \"stock.csv\"\n[collections.stock]\nkey = \"sku\"\noperations = [\"get\", \"update\"]\n"),
        ]);
        let output = place.run(&["pack", "--with-data", "--output", "server"]);
        assert_eq!(output.code, Some(0), "{output}");
        place
    };
    let call = |place: &TestProject, words: &[&str]| {
        let command = place.folder.join("server").to_string_lossy().into_owned();
        let args = [&["call", "--yes"], words, &["--command", &command, "--json"]].concat();
        let output = home.run_with(&args, &[("HOME", &home.folder.to_string_lossy())]);
        assert_eq!(output.code, Some(0), "{output}");
        output.stdout
    };
    let (ours, theirs) = (packed("one"), packed("two"));
    assert!(call(&ours, &["update_stock", "sku=a", "word=changed"]).contains("changed"));
    assert!(call(&theirs, &["get_stock", "sku=a"]).contains("two"), "another server of the same name");
    // Packed again with other data: the written data stays.
    ours.write("stock.csv", b"sku,word\na,newer\n");
    assert_eq!(ours.run(&["pack", "--with-data", "--output", "server", "--force"]).code, Some(0));
    assert!(call(&ours, &["get_stock", "sku=a"]).contains("changed"));
}

/// A manifest may have another name than `spile.toml`; its lock file has the same stem.
#[test]
fn a_manifest_of_another_name_is_packed_with_its_own_lock() {
    let place = TestProject::customers();
    std::fs::rename(place.folder.join("spile.toml"), place.folder.join("crm.toml")).expect("exists");
    place.write("spile.lock", b"of something else");
    let output = place.run(&["compile", "crm.toml"]);
    assert_eq!(output.code, Some(0), "{output}");
    let output = place.run(&["pack", "crm.toml", "--with-data", "--output", "server"]);
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(run_session(clean_command(&place.folder.join("server"), Path::new("/"))).len(), 4);
}

/// A path with a variable becomes the name of the packed file.
#[test]
fn a_path_is_resolved_when_its_data_is_packed() {
    let place = TestProject::customers();
    let manifest = std::fs::read_to_string(place.folder.join("spile.toml")).expect("exists");
    let path = "path = \"customers.csv\"";
    assert!(manifest.contains(path), "{manifest}");
    let manifest =
        manifest.replace(path, "path = \"${CRM_DATA}/cu${CRM_NAME:-stom}ers.csv\" # where it lies");
    place.write("spile.toml", manifest.as_bytes());
    let folder = place.folder.to_string_lossy().into_owned();
    let pack = |args: &[&str]| {
        place.run_with(&[&["pack", "--force", "--output", "server"], args].concat(), &[("CRM_DATA", &folder)])
    };
    insta::assert_snapshot!("pack_variables", without_size(pack(&[])));
    insta::assert_snapshot!("pack_variables_with_data", without_size(pack(&["--with-data"])));
    assert_eq!(run_session(clean_command(&place.folder.join("server"), Path::new("/"))).len(), 4);
    let output = pack(&["--with-data", "--format", "mcpb"]);
    assert_eq!(output.code, Some(0), "{output}");
    let file = std::fs::File::open(place.folder.join("server")).expect("made");
    let mut archive = zip::ZipArchive::new(file).expect("a zip archive");
    let mut about = String::new();
    archive.by_name("manifest.json").expect("there").read_to_string(&mut about).expect("text");
    assert!(!about.contains("CRM") && !about.contains("user_config"), "{about}");
    // Variables outside of paths are still needed.
    place.write("spile.toml", manifest.replace("Customer records by email.", "For ${CRM_TEAM}.").as_bytes());
    let env = [("CRM_DATA", &*folder), ("CRM_TEAM", "sales")];
    let output = place.run_with(&["pack", "--force", "--output", "server", "--with-data"], &env);
    assert!(output.stderr.contains("it reads these environment variables at start: CRM_TEAM\n"), "{output}");
}

/// Replaces the size of the file.
fn without_size(output: CommandOutput) -> String {
    let text = output.to_string();
    let lines = text.lines().map(|line| match line.rsplit_once(" (") {
        Some((before, after)) if after.ends_with("iB)") => format!("{before} (SIZE)"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_database_is_packed_with_the_rows_in_its_write_ahead_log() {
    let place = TestProject::new(&[]);
    let path = place.folder.join("shop.db");
    let open = || rusqlite::Connection::open(&path).expect("a database");
    let database = open();
    database
        .execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (k TEXT PRIMARY KEY, v TEXT); INSERT INTO t VALUES ('a', 'b');")
        .expect("written");
    let alone = TestProject::new(&[]);
    let program = alone.folder.join("shop");
    let output = place.run(&["pack", "shop.db", "--with-data", "--output", &program.to_string_lossy()]);
    drop(database);
    assert_eq!(output.code, Some(0), "{output}");
    let mut child = clean_command(&program, &alone.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let ask = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"get_t","arguments":{"k":"a"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    writeln!(child.stdin.take().expect("piped"), "{ask}").expect("it accepts input");
    let mut out = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut out).expect("it answers");
    assert!(child.wait().expect("it ends").success());
    assert!(out.contains(r#"{"k":"a","v":"b"}"#), "{out}");
}

/// Without a home, and with the usual name in the temporary folder taken, the data is still private.
#[test]
fn extracted_data_is_private_in_the_last_fallback() {
    use std::os::unix::fs::MetadataExt;
    let (alone, program) = pack_customers(&["--with-data"]);
    let temporary = TestProject::new(&[]);
    let taken = format!("spile-packed-{}", rustix::process::getuid().as_raw());
    temporary.write(&taken, b"not a folder");
    let mut command = clean_command(&program, &alone.folder);
    command.env("TMPDIR", &temporary.folder);
    assert_eq!(run_session(command).len(), 4);
    let mut folders = vec![temporary.folder.clone()];
    let mut found = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let depth = path.strip_prefix(&temporary.folder).expect("below").components().count();
            if path.is_dir() {
                // Below a private folder the mode does not matter.
                if depth <= 2 {
                    let mode = std::fs::metadata(&path).expect("exists").mode() & 0o777;
                    assert_eq!(mode, 0o700, "{}", path.display());
                }
                found += 1;
                folders.push(path);
            }
        }
    }
    assert!(found >= 2, "it was extracted there");
}

/// A folder with everything that an author can write beside data.
fn folder_with_code() -> TestProject {
    TestProject::new(&[
        (
            "spile.toml",
            br#"
[server]
name = "tutor"

[sources.words]
path = "words.csv"

[collections.words]
source = "words"
key = "id"

[resources.word]
uri = "words://{id}"
script = "code/word.ts"

[permissions]
files = ["notes"]
"#,
        ),
        ("words.csv", b"id,word\n1,go\n2,eat\n"),
        ("tsconfig.json", br#"{"compilerOptions":{"paths":{"@lib/*":["./lib/*"]}}}"#),
        ("lib/types.ts", b"export type Args = { id: number };\n"),
        (
            "lib/shout.ts",
            b"import pad from 'pad';\nexport const shout = (text: string) => pad(text).toUpperCase();\n",
        ),
        (
            "tools/shout.ts",
            br#"
import { shout } from "@lib/shout";
import type { Args } from "../lib/types";
/** Shout a word. */
export default async ({ id }: Args, ctx: any) => {
  const { word } = await ctx.collection("words").get({ id });
  return { shouted: shout(word), note: (await ctx.files.read("notes/a.txt")).trim() };
};
"#,
        ),
        ("tools/unused.test.ts", b"throw new Error('not part of the server');\n"),
        ("code/word.ts", b"export default async ({ id }: { id: string }) => `word ${id}`;\n"),
        ("context.ts", b"export default () => ({});\n"),
        ("notes/a.txt", b"a note\n"),
        ("notes/.hidden", b"hidden\n"),
        ("prompts/ask.md", b"---\ndescription: Ask.\n---\nAsk me.\n"),
        ("resources/page.md", b"# Page\n"),
        ("skills/speak/SKILL.md", b"---\nname: speak\ndescription: Speak.\n---\nSpeak.\n"),
        ("apps/view.html", b"<!doctype html><title>View</title>"),
        (
            "node_modules/pad/package.json",
            br#"{"name":"pad","version":"1.0.0","exports":{"import":"./lib/main.mjs"}}"#,
        ),
        (
            "node_modules/pad/lib/main.mjs",
            b"import end from './end.cjs';\nexport default (text) => text + end.mark;\n",
        ),
        ("node_modules/pad/lib/end.cjs", b"exports.mark = require('bang');\n"),
        ("node_modules/bang/package.json", br#"{"name":"bang","main":"index.js"}"#),
        ("node_modules/bang/index.js", b"module.exports = '!';\n"),
    ])
}

#[test]
fn a_folder_with_code_needs_no_folder_and_no_packages_once_it_is_packed() {
    let place = folder_with_code();
    let alone = TestProject::new(&[]);
    let program = alone.folder.join("tutor").to_string_lossy().into_owned();
    let output = place.run(&["pack", ".", "--output", &program, "--with-data"]);
    assert_eq!(output.code, Some(0), "{output}");
    drop(place);
    for (args, expected) in [
        (&["call", "shout", "id=2"][..], r#""shouted":"EAT!","note":"a note""#),
        (&["tools"], "Shout a word."),
        (&["prompt", "ask"], "Ask me."),
        (&["read", "resource://page"], "# Page"),
        (&["read", "words://7"], "word 7"),
        (&["read", "ui://view"], "<title>View</title>"),
    ] {
        let output = alone.run(&[args, &["--json", "--command", &program]].concat());
        assert_eq!(output.code, Some(0), "{args:?}: {output}");
        let unescaped = output.stdout.replace("\\\"", "\"");
        assert!(unescaped.contains(expected), "{args:?}: {output}");
    }
    assert_eq!(alone.files().len(), 1, "nothing appears beside it");
}

#[test]
fn what_a_packed_server_cannot_do_is_said_before_it_is_packed() {
    let place = folder_with_code();
    let manifest = String::from_utf8(
        place.files().into_iter().find(|(path, _)| path.ends_with("spile.toml")).expect("a manifest").1,
    );
    let manifest = manifest.expect("text").replace("files = [", "writable_files = [");
    place.write("spile.toml", manifest.as_bytes());
    let output = place.run(&["pack", ".", "--output", "tutor", "--with-data"]);
    assert_eq!(output.code, Some(1), "{output}");
    assert!(output.stderr.contains("code may write to `notes`"), "{output}");
}
