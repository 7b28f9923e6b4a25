//! What a child is given, what it says, and why one does not start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use upstream::process::{Command, Options};

use crate::{code, helper, kinds, options, output, read_all, signal, start};

#[tokio::test]
async fn what_is_written_arrives_and_what_is_answered_comes_back() {
    let mut child = start(&Command::new(helper()).arg("serve")).await;
    kinds::ready(&mut child).await;
    child.stdin.as_mut().unwrap().write_all(b"one\ntwo\n").await.unwrap();
    let stdout = child.stdout.as_mut().unwrap();
    assert_eq!((kinds::line(stdout).await, kinds::line(stdout).await), ("one".into(), "two".into()));
    drop(child.stdin.take());
    assert_eq!(child.wait().await, code(0));
    assert_eq!(child.wait().await, code(0), "it may be asked again");
}

#[tokio::test]
async fn arguments_arrive_as_they_were_given() {
    let line = format!("'{}' print 'a b' '' '$HOME' '*' \"it's\" ü", helper().display());
    let mut child = start(&Command::parse(&line).unwrap()).await;
    assert_eq!(read_all(&mut child).await, "a b\n\n$HOME\n*\nit's\nü\n");
}

#[tokio::test]
async fn a_program_is_found_on_the_path_that_the_child_has() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "server-of-mine", "#!/bin/sh\necho \"$0 $*\"\n", 0o755);
    let path = format!("/nowhere:{}:/usr/bin:/bin", folder.path().display());
    let mut child = start(&Command::new("server-of-mine").arg("x").env("PATH", path)).await;
    assert!(read_all(&mut child).await.ends_with("/server-of-mine x\n"));
}

#[tokio::test]
async fn a_relative_program_is_looked_for_where_the_child_runs() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "server", "#!/bin/sh\npwd -P\n", 0o755);
    let mut child = start(&Command::new("./server").cwd(folder.path())).await;
    assert_eq!(
        read_all(&mut child).await.trim_end(),
        folder.path().canonicalize().unwrap().to_str().unwrap()
    );
}

#[tokio::test]
async fn the_name_as_typed_is_the_first_argument() {
    let mut child = start(&Command::new("sh").arg("-c").arg("tr '\\0' '\\n' </proc/$$/cmdline")).await;
    assert_eq!(read_all(&mut child).await.lines().next(), Some("sh"));
}

#[tokio::test]
async fn nothing_of_our_environment_leaks() {
    let output = tokio::task::spawn_blocking(|| {
        std::process::Command::new(helper())
            .arg("start-env")
            .env_clear()
            .envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("HOME", "/h"), ("TERM", "() { :;}")])
            .envs([("SPILE_TOKEN", "secret"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("LD_BIND_NOW", "1")])
            .output()
            .unwrap()
    });
    let seen = String::from_utf8(output.await.unwrap().stdout).unwrap();
    let mut seen: Vec<_> = seen.lines().collect();
    seen.sort_unstable();
    assert_eq!(seen, ["DECLARED=yes", "HOME=/h", "LC_ALL=C", "PATH=/usr/bin:/bin"]);
}

#[tokio::test]
async fn a_child_has_three_files_and_none_of_ours() {
    let _ours = (start(&Command::new("cat")).await, tempfile::tempfile().unwrap());
    let mut child = start(&Command::new(helper()).arg("serve")).await;
    kinds::ready(&mut child).await;
    let listed = fs::read_dir(format!("/proc/{}/fd", child.id().unwrap())).unwrap();
    // Whoever started the test may have left files open for everybody; nobody closes what he does not know.
    let is_passed_on = |fd: &String| {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("02000000");
        !"012".contains(&**fd) && u32::from_str_radix(flags.trim(), 8).unwrap() & 0o2_000_000 == 0
    };
    let mut listed: Vec<String> =
        listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    listed.retain(|fd| !is_passed_on(fd));
    listed.sort_unstable();
    assert_eq!(listed, ["0", "1", "2"]);
}

#[tokio::test]
async fn nobody_else_holds_the_pipes() {
    let mut child = start(&kinds::shell("exec >&-; read line", helper())).await;
    assert_eq!(child.stdout.as_mut().unwrap().read(&mut [0]).await.unwrap(), 0, "the end, while it lives");
    assert_eq!(child.stop().await, code(1));

    let mut child = start(&kinds::shell("exec <&-; echo ready; exec \"$0\" deaf", helper())).await;
    kinds::ready(&mut child).await;
    let error = child.stdin.as_mut().unwrap().write_all(b"x").await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn a_child_is_away_from_our_terminal_and_leads_a_group() {
    let seen = output(
        "read pid comm state parent group session rest </proc/$$/stat; echo $pid $group $session $parent",
    )
    .await;
    let [pid, group, session, parent] = seen.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{seen}")
    };
    assert_eq!(pid, group);
    assert_eq!(session, parent, "the supervisor's own");
    assert_ne!(parent, std::process::id().to_string());
}

#[tokio::test]
async fn the_last_lines_of_stderr_are_kept_and_passed_on() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let inside = seen.clone();
    let on_line = Arc::new(move |line: &str| inside.lock().unwrap().push(line.to_owned()));
    let options = Options { on_stderr_line: Some(on_line), ..options() };
    let script = r"printf 'one\n\033[31mtwo\033[0m\r\nthr\007ee' >/dev/stderr; exit 3";
    let mut child = kinds::shell(script, helper()).start(&options).await.unwrap();
    let exit = child.wait().await;
    assert_eq!(child.stderr_tail(), "one\ntwo\nthr\\u{7}ee");
    assert_eq!(*seen.lock().unwrap(), ["one", "two", "thr\\u{7}ee"]);
    let told = "`sh` exited with code 3; its last words on stderr:\n  one\n  two\n  thr\\u{7}ee";
    assert_eq!(child.describe_exit(&exit), told);
}

#[tokio::test]
async fn a_flood_on_stderr_neither_blocks_nor_stays() {
    let mut child = start(&Command::new(helper()).arg("flood").arg("64")).await;
    assert_eq!(child.wait().await, code(0));
    let tail = child.stderr_tail();
    assert!(tail.len() <= 17 << 10, "{}", tail.len());
    assert!(tail.ends_with("xxx…\nthe last line"));
}

#[tokio::test]
async fn who_exits_at_once_is_told_with_code_and_last_words() {
    let mut child = start(&kinds::shell("echo 'no such module' >&2; exit 127", helper())).await;
    let exit = child.wait().await;
    let told = "`sh` exited with code 127 (program not found); its last words on stderr:\n  no such module";
    assert_eq!(child.describe_exit(&exit), told);

    let mut child = start(&kinds::shell("kill -SEGV $$", helper())).await;
    let exit = child.wait().await;
    assert_eq!(exit, signal(11));
    assert_eq!(
        child.describe_exit(&exit),
        "`sh` was ended by SIGSEGV (signal 11) and wrote nothing to stderr"
    );
}

/// What is told when it does not start, with `{}` for the folder.
async fn expect_start_error(command: Command, folder: &Path, expected: &str) {
    let told = match command.start(&options()).await {
        Ok(_) => panic!("{command:?} started"),
        Err(error) => error.to_string(),
    };
    assert_eq!(told.replace(folder.to_str().expect("text"), "{}"), expected);
}

fn script(folder: &Path, name: &str, text: &str, mode: u32) {
    let file = folder.join(name);
    fs::write(&file, text).expect("a folder of ours");
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a file of ours");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_with_where_it_was_looked_for() {
    let nowhere = Path::new("/nowhere");
    let told = "`npx-of-nobody` is in no folder of PATH (/bin:/usr/bin); install it, or give its full path";
    expect_start_error(Command::new("npx-of-nobody").env("PATH", "/bin:/usr/bin"), nowhere, told).await;
    expect_start_error(Command::new("/nowhere/server"), nowhere, "`{}/server` does not exist").await;
    let told = "`` is in no folder of PATH (/bin); install it, or give its full path";
    expect_start_error(Command::new("").env("PATH", "/bin"), nowhere, told).await;
}

#[tokio::test]
async fn a_file_that_is_no_program_is_told_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    script(path, "plain", "#!/bin/sh\n", 0o644);
    script(path, "empty", "echo\n", 0o755);
    script(path, "odd", "#!/nowhere/python -u\n", 0o755);
    script(path, "dos", "#!/bin/sh\r\n", 0o755);
    let server = |name: &str| Command::new(path.join(name));
    expect_start_error(
        server("plain"),
        path,
        "`{}/plain` may not be executed; `chmod +x {}/plain` allows it",
    )
    .await;
    let told = "`{}/plain` may not be executed; `chmod +x {}/plain` allows it";
    expect_start_error(Command::new("plain").env("PATH", path), path, told).await;
    expect_start_error(server(""), path, "`{}/` is a folder, not a program").await;
    expect_start_error(
        server("empty"),
        path,
        "`{}/empty` is neither a program for this machine nor a script that begins with `#!`",
    )
    .await;
    let told = |name: &str, interpreter: &str| {
        format!(
            "`{{}}/{name}` wants to be run by `{interpreter}`, which does not exist; install it, or change the script's first line"
        )
    };
    expect_start_error(server("odd"), path, &told("odd", "/nowhere/python")).await;
    expect_start_error(server("dos"), path, &told("dos", "/bin/sh\\r")).await;
}

#[tokio::test]
async fn a_folder_that_is_none_is_told() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "file", "", 0o644);
    let cat = |cwd: &str| Command::new("cat").cwd(folder.path().join(cwd));
    expect_start_error(cat("nowhere"), folder.path(), "the folder to run in, `{}/nowhere`, does not exist")
        .await;
    expect_start_error(cat("file"), folder.path(), "the folder to run in, `{}/file`, is not a folder").await;
}

#[tokio::test]
async fn what_no_program_can_be_given_is_refused() {
    let nowhere = Path::new("/nowhere");
    let told = "an argument of `cat` has a zero byte, which no program can be given";
    expect_start_error(Command::new("cat").arg("a\0b"), nowhere, told).await;
    let long = "x".repeat(1 << 20);
    let told = "`cat` could not be started: Argument list too long (os error 7)";
    expect_start_error(Command::new("cat").arg(long), nowhere, told).await;
    let told = "the environment variable `A=B` cannot be passed on: a name has no `=`, and neither it nor its value a zero byte";
    expect_start_error(Command::new("cat").env("A=B", ""), nowhere, told).await;
}

#[tokio::test]
async fn a_supervisor_that_is_none_is_told() {
    for (binary, told) in [
        (
            "/bin/true",
            "`/bin/true` was started as a supervisor and is none: its `main` has to begin with `supervise_if_asked`",
        ),
        ("/nowhere", "nothing could be made ready to start `cat`: No such file or directory (os error 2)"),
    ] {
        let options = Options { supervisor: Some(binary.into()), ..options() };
        let refused = Command::new("cat").start(&options).await.err().expect("no supervisor");
        assert_eq!(refused.to_string(), told);
    }
}
