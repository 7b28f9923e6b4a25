//! The keyring of the user's desktop: GNOME Keyring, KWallet, KeePassXC and whatever else implements the Secret Service.
//!
//! It runs `secret-tool`, which comes with libsecret. A secret is passed on standard input, never as an argument, because
//! other users can read arguments. A D-Bus library would add more code to the binary than all of this saves (ADR 0154).

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "secret-tool";
/// The user may have to unlock the keyring first.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Of a secret, and of an error message.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// Stores secrets by name, for this program only.
#[derive(Debug, Clone)]
pub struct OsKeyring {
    program: PathBuf,
    timeout: Duration,
}

/// Why the keyring did not do what it should.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeyringError {
    #[error("cannot run `{PROGRAM}`: {reason}")]
    CannotRun { reason: String },
    #[error("`{PROGRAM}` failed: {reason}")]
    Failed { reason: String },
    #[error("`{PROGRAM}` did not answer within {} seconds; is the keyring locked?", .timeout.as_secs())]
    TimedOut { timeout: Duration },
}

impl OsKeyring {
    /// The keyring of this desktop session; `None` if there is no session, or `secret-tool` is not installed.
    pub fn detect(env: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let has_address = env("DBUS_SESSION_BUS_ADDRESS").is_some_and(|address| !address.is_empty());
        let has_socket =
            || env("XDG_RUNTIME_DIR").is_some_and(|folder| Path::new(&folder).join("bus").exists());
        if !has_address && !has_socket() {
            return None;
        }
        let path = env("PATH")?;
        let program = std::env::split_paths(&path)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(PROGRAM))
            .find(|program| program.is_file())?;
        Some(Self { program, timeout: TIMEOUT })
    }

    /// The secret of this name; `None` if there is none.
    pub fn get(&self, name: &str) -> Result<Option<String>, KeyringError> {
        let run = self.run(&["lookup", "application", "spile", "name", name], None)?;
        match run {
            Finished { succeeded: true, output, .. } => Ok(Some(output)),
            // An unknown secret is a failure without a word.
            Finished { errors, .. } if errors.trim().is_empty() => Ok(None),
            Finished { errors, .. } => Err(failed(&errors)),
        }
    }

    /// Stores a secret, and replaces the one that was there. `label` is what the user sees in their keyring.
    pub fn set(&self, name: &str, label: &str, secret: &str) -> Result<(), KeyringError> {
        let label = format!("--label={label}");
        let run = self.run(&["store", &label, "application", "spile", "name", name], Some(secret))?;
        if run.succeeded { Ok(()) } else { Err(failed(&run.errors)) }
    }

    fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<Finished, KeyringError> {
        let cannot_run = |error: std::io::Error| KeyringError::CannotRun { reason: error.to_string() };
        let mut child = Command::new(&self.program)
            .args(arguments)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot_run)?;
        // Each is far smaller than the buffer of a pipe, so none of these waits for the others.
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            // Whoever does not read its input fails, and says why.
            let _ = stdin.write_all(input.as_bytes());
        }
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let output = std::thread::spawn(move || read_text(stdout));
        let errors = std::thread::spawn(move || read_text(stderr));
        let succeeded = self.wait(&mut child)?;
        let join = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
        Ok(Finished { succeeded, output: join(output), errors: join(errors) })
    }

    /// Waits until the program has ended; returns whether it succeeded.
    fn wait(&self, child: &mut Child) -> Result<bool, KeyringError> {
        let started = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status.success()),
                Ok(None) if started.elapsed() < self.timeout => std::thread::sleep(POLL_INTERVAL),
                Ok(None) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(KeyringError::TimedOut { timeout: self.timeout });
                }
                Err(error) => return Err(KeyringError::CannotRun { reason: error.to_string() }),
            }
        }
    }
}

struct Finished {
    succeeded: bool,
    output: String,
    errors: String,
}

fn failed(errors: &str) -> KeyringError {
    let line = errors.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    let line = line.trim().strip_prefix("secret-tool:").unwrap_or(line).trim();
    KeyringError::Failed { reason: line.chars().take(200).collect() }
}

fn read_text(pipe: Option<impl std::io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What was read before an error is what there is.
        let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{Duration, KeyringError, OsKeyring, OsString};

    /// A keyring whose program is this shell script.
    fn scripted(script: &str, timeout: Duration) -> (tempfile::TempDir, OsKeyring) {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("secret-tool");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a script");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        (folder, OsKeyring { program, timeout })
    }

    #[test]
    fn detect_needs_a_session_bus_and_the_program() {
        let (folder, _) = scripted("exit 1", Duration::from_secs(1));
        let bus_folder = tempfile::tempdir().expect("a folder");
        std::fs::write(bus_folder.path().join("bus"), "").expect("a file");
        let (path, runtime) = (folder.path().as_os_str(), bus_folder.path().as_os_str());
        for (variables, expected) in [
            (vec![("PATH", path), ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x".as_ref())], true),
            (vec![("PATH", path), ("XDG_RUNTIME_DIR", runtime)], true),
            (vec![("PATH", path), ("DBUS_SESSION_BUS_ADDRESS", "".as_ref())], false),
            (vec![("PATH", path)], false),
            (vec![("PATH", runtime), ("XDG_RUNTIME_DIR", runtime)], false),
            (vec![("PATH", ".".as_ref()), ("XDG_RUNTIME_DIR", runtime)], false),
        ] {
            let env = |name: &str| {
                let found = variables.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(OsKeyring::detect(env).is_some(), expected, "{variables:?}");
        }
    }

    #[test]
    fn a_secret_is_not_an_argument() {
        let (folder, keyring) =
            scripted("printf '%s\\n' \"$@\" > \"$0.args\"; cat > \"$0.input\"", Duration::from_secs(30));
        keyring.set("one", "Spile: one", "s3cret").expect("stored");
        let read = |end: &str| std::fs::read_to_string(folder.path().join(format!("secret-tool{end}")));
        let arguments = read(".args").expect("arguments");
        assert_eq!(arguments, "store\n--label=Spile: one\napplication\nspile\nname\none\n");
        assert_eq!(read(".input").expect("input"), "s3cret");
    }

    #[test]
    fn every_failure_has_its_reason() {
        let get = |script: &str, timeout: Duration| {
            let (_folder, keyring) = scripted(script, timeout);
            keyring.get("one").map_err(|error| error.to_string())
        };
        let long = Duration::from_secs(30);
        assert_eq!(get("printf s3cret", long), Ok(Some("s3cret".into())));
        assert_eq!(get("exit 1", long), Ok(None));
        let locked =
            get("echo 'secret-tool: Cannot create an item in a locked collection' >&2; exit 1", long);
        let message = "`secret-tool` failed: Cannot create an item in a locked collection";
        assert_eq!(locked, Err(message.into()));
        let hung = get("exec sleep 1000", Duration::ZERO);
        assert_eq!(hung, Err("`secret-tool` did not answer within 0 seconds; is the keyring locked?".into()));
        let missing = OsKeyring { program: "/nonexistent/secret-tool".into(), timeout: long }.get("one");
        assert!(matches!(missing, Err(KeyringError::CannotRun { .. })), "{missing:?}");
    }
}
