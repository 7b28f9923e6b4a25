//! The programs of MariaDB.

use std::path::Path;
use std::process::Command;

pub(crate) fn prepare(folder: &Path) -> Command {
    let mut command = Command::new("mariadb-install-db");
    command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    command.arg(format!("--datadir={}", folder.join("data").display()));
    // Two servers that are prepared at the same time would take each other's files.
    command.env("TMPDIR", folder);
    command
}

pub(crate) fn start(folder: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = "exec mariadbd --no-defaults --datadir=\"$1/data\" --socket=\"$1/socket\" --pid-file=\"$1/pid\" \
                  --skip-networking --innodb-flush-log-at-trx-commit=2 --max-connections=300 \
                  --character-set-server=utf8mb4 $(cat \"$1/arguments\" 2>/dev/null) >>\"$1/server.log\" 2>&1";
    command.args(["-c", script, "start"]).arg(folder).env("TMPDIR", folder);
    command
}

pub(crate) fn stop(folder: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = "kill -9 $(cat \"$1/pid\")";
    command.args(["-c", script, "stop"]).arg(folder);
    command
}

/// Runs what comes in.
pub(crate) fn client(folder: &Path, database: Option<&str>) -> Command {
    let mut command = Command::new("mariadb");
    command.args(["--no-defaults", "--default-character-set=utf8mb4", "-u", "root"]);
    command.arg(format!("--socket={}", folder.join("socket").display())).args(database);
    command
}

/// Prints all tables and rows.
pub(crate) fn dump(folder: &Path, database: &str) -> Command {
    let mut command = Command::new("mariadb-dump");
    command.args(["--no-defaults", "--skip-comments", "-u", "root"]);
    command.arg(format!("--socket={}", folder.join("socket").display())).arg(database);
    command
}
