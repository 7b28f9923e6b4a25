//! Runs other programs, with their output shown, captured, or logged and shown only on failure.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Variables to set for a command.
pub type Env = std::collections::BTreeMap<&'static str, std::ffi::OsString>;

/// The root of the clone that this xtask was built from.
pub fn repo_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask is one folder below the root").to_owned()
}

/// The `cargo` that runs xtask, in the root folder, so that the toolchain stays the same.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repo_root());
    // What `cargo run` says about xtask. ring's build script watches these: everything above it would be compiled again
    // whenever one command is run by xtask and the next from a shell.
    for (name, _) in std::env::vars_os() {
        let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if name.to_str().is_some_and(|name| of_package.iter().any(|prefix| name.starts_with(prefix))) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Runs a command whose output is for the person at the terminal.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| start_error(command))?;
    if !status.success() {
        bail!("`{}` failed ({status})", command_line(command));
    }
    Ok(())
}

/// Runs a command and returns what it wrote to stdout; its stderr goes to the terminal.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| start_error(command))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", command_line(command), output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` did not write UTF-8", command_line(command)))
}

/// Whether a command starts and succeeds; prints nothing.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs a slow command: prints its name, a dot per second and the time it took. Its output goes to `log` and is
/// shown only when it fails.
pub fn run_logged(what: &str, command: &mut Command, log: &Path) -> Result<()> {
    let status = run_with_timeout(what, command, log, Duration::from_secs(1200))?;
    if !status.success() {
        let output = fs::read_to_string(log).unwrap_or_default();
        bail!("`{}` failed ({status}):\n{}", command_line(command), last_lines(&output, 40));
    }
    Ok(())
}

/// Like [`run_logged`], but the caller judges the exit status. Kills the command after `limit`.
pub fn run_with_timeout(
    what: &str,
    command: &mut Command,
    log: &Path,
    limit: Duration,
) -> Result<ExitStatus> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let begun = Instant::now();
    print!("  {what} ");
    std::io::stdout().flush()?;

    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().with_context(|| start_error(command))?;
    let mut dots = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            println!();
            let output = fs::read_to_string(log).unwrap_or_default();
            bail!(
                "`{}` did not exit within {} s:\n{}",
                command_line(command),
                limit.as_secs(),
                last_lines(&output, 40)
            );
        }
        sleep(Duration::from_millis(50));
        if begun.elapsed().as_secs() > dots {
            dots += 1;
            print!(".");
            std::io::stdout().flush()?;
        }
    };
    println!(" {}", elapsed_seconds(begun));
    Ok(status)
}

pub fn expect_no_arguments(args: &[String]) -> Result<()> {
    match args.first() {
        None => Ok(()),
        Some(extra) => bail!("unexpected argument `{extra}`; `cargo xtask help` lists the commands"),
    }
}

pub fn elapsed_seconds(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f64())
}

pub fn last_lines(text: &str, lines_max: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(lines_max)..].join("\n")
}

/// The command as typed, with the program's name instead of its path.
fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words =
        std::iter::once(program.file_name().unwrap_or(command.get_program())).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn start_error(command: &Command) -> String {
    format!("cannot start `{}`", command_line(command))
}
