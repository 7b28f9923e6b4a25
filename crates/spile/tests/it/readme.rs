//! The commands in the README do what it says they do.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::harness::{SPILE, TestProject, state_folder};

const README: &str = include_str!("../../../../README.md");

/// A command and what it prints; `…` stands for anything.
pub(crate) struct ReadmeCommand {
    pub(crate) command: String,
    pub(crate) expected_output: String,
}

/// The commands in the `console` blocks of a document. One with `<< 'END'` goes on to the line `END`.
pub(crate) fn console_commands(document: &str) -> Vec<ReadmeCommand> {
    let mut steps: Vec<ReadmeCommand> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, line) if steps.last().is_some_and(|step| in_here_document(&step.command)) => {
                let step = steps.last_mut().expect("just looked at");
                step.command.push('\n');
                step.command.push_str(line);
            }
            (true, line) => match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => {
                    steps.push(ReadmeCommand { command: command.into(), expected_output: String::new() });
                }
                (None, Some(step)) => {
                    step.expected_output.push_str(line);
                    step.expected_output.push('\n');
                }
                (None, None) => panic!("output before any command: {line}"),
            },
            (false, _) => {}
        }
    }
    steps
}

fn in_here_document(command: &str) -> bool {
    command.contains("<< 'END'") && !command.ends_with("\nEND")
}

/// Columns may be wider or narrower than they were.
fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn matches(expected: &str, got: &str) -> bool {
    let (expected, got) = (collapse_whitespace(expected), collapse_whitespace(got));
    let mut rest = got.as_str();
    let mut pieces = expected.split('…').map(str::trim).peekable();
    let mut first = true;
    while let Some(piece) = pieces.next() {
        let Some(at) = rest.find(piece) else { return false };
        if first && at != 0 {
            return false;
        }
        rest = &rest[at + piece.len()..];
        if pieces.peek().is_none() && !piece.is_empty() && !rest.trim().is_empty() {
            return false;
        }
        first = false;
    }
    true
}

#[test]
fn anything_is_anything_and_nothing_else_is() {
    for (expected, got, yes) in [
        ("a … c", "a b c", true),
        ("a   c", "a c", true),
        ("a …", "a b\nc", true),
        ("a", "a b", false),
        ("b …", "a b c", false),
        ("a … d", "a b c", false),
    ] {
        assert_eq!(matches(expected, got), yes, "{expected} / {got}");
    }
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn shell(command: &str, folder: &Path) -> Command {
    let bin = Path::new(env!("CARGO_BIN_EXE_spile")).parent().expect("a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(bin.to_path_buf()).chain(std::env::split_paths(&path));
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder).stdin(Stdio::null());
    shell.env("PATH", std::env::join_paths(paths).expect("paths"));
    shell
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("the example") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(std::fs::copy(&path, target).expect("a copy")),
        }
    }
}

#[test]
fn every_command_does_what_it_says() {
    let clone = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for example in ["customers", "stock", "verbs"] {
        copy(&root.join("examples").join(example), &clone.path().join("examples").join(example));
    }
    // Both at once, so that they differ.
    let listeners = [3333, 3334].map(|port| (port, TcpListener::bind("127.0.0.1:0").expect("a port")));
    let ports = listeners.map(|(port, listener)| (port, listener.local_addr().expect("an address").port()));
    let here = |text: &str| {
        ports.iter().fold(text.to_owned(), |text, (printed, port)| {
            text.replace(&format!("127.0.0.1:{printed}"), &format!("127.0.0.1:{port}"))
        })
    };
    let state = clone.path().join("state");
    let shell = |command: &str| {
        let mut shell = shell(command, clone.path());
        shell.env("XDG_STATE_HOME", &state).env("XDG_CONFIG_HOME", &state);
        shell
    };
    let steps = console_commands(README);
    assert!(steps.len() >= 6, "the tour is gone");
    let mut serving = Vec::new();
    for ReadmeCommand { command, expected_output: printed } in &steps {
        let (command, printed) = (here(command), here(printed));
        if let Some(command) = command.strip_suffix('&') {
            let mut child = shell(&format!("exec {command}"));
            let mut child = child.stderr(Stdio::piped()).spawn().expect("a shell");
            let first = BufReader::new(child.stderr.take().expect("piped")).lines().next();
            serving.push(KillOnDrop(child));
            let first = first.expect("a banner").expect("text");
            assert!(matches(printed.lines().next().expect("a banner"), &first), "{command}\n{first}");
            continue;
        }
        let done = shell(&format!("{{ {command}\n}} 2>&1")).output().expect("a shell");
        let got = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{command}\n{got}");
        assert!(matches(&printed, &got), "{command}\nexpected\n{printed}\ngot\n{got}");
    }
}

#[test]
fn the_questions_of_the_sales_example_have_the_answers_on_its_page() {
    check_example_page("sales", 10);
}

#[test]
fn the_commands_of_the_tutor_example_print_what_its_page_says() {
    check_example_page("tutor", 5);
}

/// Runs the commands of the README of an example.
fn check_example_page(name: &str, commands: usize) {
    let clone = tempfile::tempdir().expect("a folder");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    copy(&example, &clone.path().join("examples").join(name));
    let page = std::fs::read_to_string(example.join("README.md")).expect("a page");
    let questions = console_commands(&page);
    assert_eq!(questions.len(), commands);
    for ReadmeCommand { command, expected_output } in &questions {
        let done = shell(&format!("({command}) 2>&1"), clone.path()).output().expect("a shell");
        let got = String::from_utf8_lossy(&done.stdout);
        assert!(matches(expected_output, &got), "{command}\nexpected\n{expected_output}\ngot\n{got}");
    }
}

/// Writes the files of a page (blocks with a language and a path), runs its commands in order, and compares what they
/// print. Returns the number of commands.
pub(crate) fn run_guide(document: &str) -> usize {
    let project = TestProject::new(&[]);
    let bin = Path::new(SPILE).parent().expect("a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut folder = project.folder.clone();
    let run = |command: &str, folder: &Path| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("({command}) 2>&1")]).current_dir(folder).stdin(Stdio::null());
        let output =
            shell.env("PATH", &path).env("XDG_STATE_HOME", state_folder()).output().expect("a shell");
        String::from_utf8(output.stdout).expect("text")
    };
    let mut commands = 0;
    for block in document.split("\n```").skip(1).step_by(2) {
        let (info, text) = block.split_once('\n').expect("a block has lines");
        if let Some((_, name)) = info.split_once(' ') {
            let file = folder.join(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder can be made");
            std::fs::write(file, format!("{text}\n")).expect("a file can be written");
        } else if info == "console" {
            for step in text.strip_prefix("$ ").expect("a command comes first").split("\n$ ") {
                let (command, printed) = step.split_once('\n').unwrap_or((step, ""));
                if let Some(name) = command.strip_prefix("cd ") {
                    folder = folder.join(name);
                    continue;
                }
                let got = run(command, &folder);
                assert!(matches(printed, &got), "{command}\nexpected\n{printed}\ngot\n{got}");
                commands += 1;
            }
        }
    }
    commands
}
