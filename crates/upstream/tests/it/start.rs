//! Starting a child: arguments, environment, files, stderr, and start errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use upstream::process::{Command, ProcessOptions};

use crate::{code, helper, kinds, options, output, read_all, signal, start};

#[tokio::test]
async fn stdin_and_stdout_are_connected() {
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
async fn arguments_are_passed_unchanged() {
    let line = format!("'{}' print 'a b' '' '$HOME' '*' \"it's\" ü", helper().display());
    let mut child = start(&Command::parse(&line).unwrap()).await;
    assert_eq!(read_all(&mut child).await, "a b\n\n$HOME\n*\nit's\nü\n");
}

#[tokio::test]
async fn program_is_looked_up_in_the_childs_path() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "server-of-mine", "#!/bin/sh\necho \"$0 $*\"\n", 0o755);
    let path = format!("/nowhere:{}:/usr/bin:/bin", folder.path().display());
    let mut child = start(&Command::new("server-of-mine").arg("x").env("PATH", path)).await;
    assert!(read_all(&mut child).await.ends_with("/server-of-mine x\n"));
}

#[tokio::test]
async fn relative_program_starts_at_the_working_folder() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "server", "#!/bin/sh\npwd -P\n", 0o755);
    let mut child = start(&Command::new("./server").cwd(folder.path())).await;
    assert_eq!(
        read_all(&mut child).await.trim_end(),
        folder.path().canonicalize().unwrap().to_str().unwrap()
    );
}

#[tokio::test]
async fn argv0_is_the_program_as_typed() {
    let mut child = start(&Command::new("sh").arg("-c").arg("tr '\\0' '\\n' </proc/$$/cmdline")).await;
    assert_eq!(read_all(&mut child).await.lines().next(), Some("sh"));
}

#[tokio::test]
async fn environment_is_not_inherited_beyond_the_list() {
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
async fn child_inherits_only_three_files() {
    let _ours = (start(&Command::new("cat")).await, tempfile::tempfile().unwrap());
    let mut child = start(&Command::new(helper()).arg("serve")).await;
    kinds::ready(&mut child).await;
    let listed = fs::read_dir(format!("/proc/{}/fd", child.id().unwrap())).unwrap();
    // The parent of the test may have left files open without close-on-exec; those are inherited.
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
async fn pipes_have_no_other_holder() {
    let mut child = start(&kinds::shell("exec >&-; read line", helper())).await;
    assert_eq!(child.stdout.as_mut().unwrap().read(&mut [0]).await.unwrap(), 0, "the end, while it lives");
    assert_eq!(child.stop().await, code(1));

    let mut child = start(&kinds::shell("exec <&-; echo ready; exec \"$0\" deaf", helper())).await;
    kinds::ready(&mut child).await;
    let error = child.stdin.as_mut().unwrap().write_all(b"x").await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn child_has_its_own_session_and_process_group() {
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
async fn last_stderr_lines_are_kept_and_reported() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let inside = seen.clone();
    let on_line = Arc::new(move |line: &str| inside.lock().unwrap().push(line.to_owned()));
    let options = ProcessOptions { on_stderr_line: Some(on_line), ..options() };
    let script = r"printf 'one\n\033[31mtwo\033[0m\r\nthr\007ee' >/dev/stderr; exit 3";
    let mut child = kinds::shell(script, helper()).start(&options).await.unwrap();
    let exit = child.wait().await;
    assert_eq!(child.stderr_tail(), "one\ntwo\nthr\\u{7}ee");
    assert_eq!(*seen.lock().unwrap(), ["one", "two", "thr\\u{7}ee"]);
    let expected_error = "`sh` exited with code 3; its last lines on stderr:\n  one\n  two\n  thr\\u{7}ee";
    assert_eq!(child.describe_exit(&exit), expected_error);
}

#[tokio::test]
async fn stderr_flood_neither_blocks_nor_accumulates() {
    let mut child = start(&Command::new(helper()).arg("flood").arg("64")).await;
    assert_eq!(child.wait().await, code(0));
    let tail = child.stderr_tail();
    assert!(tail.len() <= 17 << 10, "{}", tail.len());
    assert!(tail.ends_with("xxx…\nthe last line"));
}

#[tokio::test]
async fn immediate_exit_is_described_with_code_and_stderr() {
    let mut child = start(&kinds::shell("echo 'no such module' >&2; exit 127", helper())).await;
    let exit = child.wait().await;
    let expected_error =
        "`sh` exited with code 127 (program not found); its last lines on stderr:\n  no such module";
    assert_eq!(child.describe_exit(&exit), expected_error);

    let mut child = start(&kinds::shell("kill -SEGV $$", helper())).await;
    let exit = child.wait().await;
    assert_eq!(exit, signal(11));
    assert_eq!(child.describe_exit(&exit), "`sh` was killed by SIGSEGV (signal 11) without output on stderr");
}

/// Checks the error of a failed start, with `{}` for the folder.
async fn expect_start_error(command: Command, folder: &Path, expected: &str) {
    let expected_error = match command.start(&options()).await {
        Ok(_) => panic!("{command:?} started"),
        Err(error) => error.to_string(),
    };
    assert_eq!(expected_error.replace(folder.to_str().expect("text"), "{}"), expected);
}

fn script(folder: &Path, name: &str, text: &str, mode: u32) {
    let file = folder.join(name);
    fs::write(&file, text).expect("a folder of ours");
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a file of ours");
}

#[tokio::test]
async fn missing_program_error_names_the_path() {
    let nowhere = Path::new("/nowhere");
    let expected_error = "`npx-of-nobody` was not found in PATH; install it, or give its full path";
    expect_start_error(Command::new("npx-of-nobody").env("PATH", "/bin:/usr/bin"), nowhere, expected_error)
        .await;
    expect_start_error(Command::new("/nowhere/server"), nowhere, "program `{}/server` not found").await;
    let expected_error = "`` was not found in PATH; install it, or give its full path";
    expect_start_error(Command::new("").env("PATH", "/bin"), nowhere, expected_error).await;
}

#[tokio::test]
async fn file_that_is_not_a_program_gets_a_helpful_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    script(path, "plain", "#!/bin/sh\n", 0o644);
    script(path, "empty", "echo\n", 0o755);
    script(path, "odd", "#!/nowhere/python -u\n", 0o755);
    script(path, "dos", "#!/bin/sh\r\n", 0o755);
    let server = |name: &str| Command::new(path.join(name));
    expect_start_error(server("plain"), path, "`{}/plain` is not executable; run `chmod +x {}/plain`").await;
    let expected_error = "`{}/plain` is not executable; run `chmod +x {}/plain`";
    expect_start_error(Command::new("plain").env("PATH", path), path, expected_error).await;
    expect_start_error(server(""), path, "`{}/` is a folder, not a program").await;
    expect_start_error(
        server("empty"),
        path,
        "`{}/empty` is neither a program for this machine nor a script that begins with `#!`",
    )
    .await;
    let expected_error = |name: &str, interpreter: &str| {
        format!(
            "`{{}}/{name}` needs the interpreter `{interpreter}`, which does not exist; install it, or change the script's first line"
        )
    };
    expect_start_error(server("odd"), path, &expected_error("odd", "/nowhere/python")).await;
    expect_start_error(server("dos"), path, &expected_error("dos", "/bin/sh\\r")).await;
}

#[tokio::test]
async fn invalid_working_folder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "file", "", 0o644);
    let cat = |cwd: &str| Command::new("cat").cwd(folder.path().join(cwd));
    expect_start_error(cat("nowhere"), folder.path(), "the working folder `{}/nowhere` does not exist").await;
    expect_start_error(cat("file"), folder.path(), "the working folder `{}/file` is not a folder").await;
}

#[tokio::test]
async fn nul_bytes_and_long_arguments_are_refused() {
    let nowhere = Path::new("/nowhere");
    let expected_error = "an argument of `cat` contains a NUL byte";
    expect_start_error(Command::new("cat").arg("a\0b"), nowhere, expected_error).await;
    let long = "x".repeat(1 << 20);
    let expected_error = "cannot start `cat`: Argument list too long (os error 7)";
    expect_start_error(Command::new("cat").arg(long), nowhere, expected_error).await;
    let expected_error = "the environment variable `A=B` is invalid: a name must not contain `=`, and neither name nor value a NUL byte";
    expect_start_error(Command::new("cat").env("A=B", ""), nowhere, expected_error).await;
}

#[tokio::test]
async fn binary_without_supervisor_support_is_an_error() {
    for (binary, expected_error) in [
        (
            "/bin/true",
            "`/bin/true` cannot run as a supervisor: its `main` must call `run_supervisor_if_requested` first",
        ),
        ("/nowhere", "cannot prepare to start `cat`: No such file or directory (os error 2)"),
    ] {
        let options = ProcessOptions { supervisor: Some(binary.into()), ..options() };
        let refused = Command::new("cat").start(&options).await.err().expect("no supervisor");
        assert_eq!(refused.to_string(), expected_error);
    }
}
