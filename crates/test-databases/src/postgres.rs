//! The programs of PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian keeps the programs of each version in a folder of its own.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists());
    found.max().unwrap_or_else(|| name.into())
}

pub(crate) fn prepare(folder: &Path) -> Command {
    let mut command = Command::new(program("initdb"));
    command.args([
        "--auth=trust",
        "--username=postgres",
        "--encoding=UTF8",
        "--no-sync",
        "--locale=C.UTF-8",
        "-D",
    ]);
    command.arg(folder.join("data"));
    command
}

pub(crate) fn start(folder: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = "exec \"$1\" -D \"$2/data\" -k \"$2\" -c listen_addresses= -c fsync=off -c full_page_writes=off \
                  -c max_connections=300 -c shared_buffers=32MB $(cat \"$2/arguments\" 2>/dev/null) >>\"$2/server.log\" 2>&1";
    command.args(["-c", script, "start"]).arg(program("postgres")).arg(folder);
    command
}

pub(crate) fn stop(folder: &Path) -> Command {
    let mut command = Command::new(program("pg_ctl"));
    command.args(["stop", "-m", "immediate", "-w", "-D"]).arg(folder.join("data"));
    command
}

/// Runs what comes in.
pub(crate) fn client(folder: &Path, database: &str) -> Command {
    let mut command = Command::new(program("psql"));
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-h"]).arg(folder);
    // Of a server that also listens on the network.
    if let Ok(port) = std::fs::read_to_string(folder.join("port")) {
        command.args(["-p", &port]);
    }
    command.stdout(std::process::Stdio::null());
    command
}

/// Prints all tables and rows.
pub(crate) fn dump(folder: &Path, database: &str) -> Command {
    let mut command = Command::new(program("pg_dump"));
    command.args(["-U", "postgres", "--inserts", "-h"]).arg(folder).arg(database);
    command
}
