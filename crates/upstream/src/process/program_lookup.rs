//! Finds the file of a program, so that a missing program gets a clear error instead of an error number.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::command::Command;
use super::error::StartError;

/// What `execvp` searches if there is no PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file to execute, as an absolute path; `path` is the PATH of the child.
pub fn resolve_program(command: &Command, path: Option<&OsStr>) -> Result<PathBuf, StartError> {
    let folder = working_directory(command.cwd.as_deref())?;
    let name = &command.program;
    if name.as_bytes().contains(&b'/') {
        let file = folder.join(name);
        return match check_executable(&file) {
            ProgramFile::Executable => Ok(file),
            ProgramFile::Directory => Err(StartError::IsDirectory { path: file }),
            ProgramFile::NotExecutable => Err(not_executable_error(command, file)),
            ProgramFile::Missing => Err(StartError::Missing { path: file }),
        };
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut refused = None;
    if !name.is_empty() {
        for listed in std::env::split_paths(path) {
            let file = folder.join(listed).join(name);
            match check_executable(&file) {
                ProgramFile::Executable => return Ok(file),
                ProgramFile::NotExecutable => refused = refused.or(Some(file)),
                ProgramFile::Directory | ProgramFile::Missing => {}
            }
        }
    }
    Err(match refused {
        Some(file) => not_executable_error(command, file),
        None => StartError::NotFound {
            program: name.to_string_lossy().into_owned(),
            path: path.to_string_lossy().into_owned(),
        },
    })
}

/// Explains the error of `exec`.
pub fn explain_exec_error(command: &Command, file: &Path, cause: io::Error) -> StartError {
    let path = file.to_owned();
    match Errno::from_io_error(&cause) {
        Some(Errno::NOEXEC) => StartError::NotAProgram { path },
        // The file exists, so its interpreter is missing.
        Some(Errno::NOENT) if file.exists() => match interpreter(file) {
            Some(interpreter) => StartError::NoInterpreter { path, interpreter },
            None => StartError::NotAProgram { path },
        },
        _ => StartError::SpawnFailed { program: command.program.to_string_lossy().into_owned(), cause },
    }
}

enum ProgramFile {
    Executable,
    Directory,
    NotExecutable,
    Missing,
}

fn check_executable(file: &Path) -> ProgramFile {
    match file.metadata() {
        Ok(meta) if meta.is_dir() => ProgramFile::Directory,
        Ok(_) if access(file, Access::EXEC_OK).is_ok() => ProgramFile::Executable,
        Ok(_) => ProgramFile::NotExecutable,
        Err(_) => ProgramFile::Missing,
    }
}

/// `chmod` does not help for another user's program, or on a file system mounted `noexec`.
fn not_executable_error(command: &Command, path: PathBuf) -> StartError {
    match path.metadata() {
        Ok(meta) if meta.mode() & 0o111 != 0 => StartError::SpawnFailed {
            program: command.program.to_string_lossy().into_owned(),
            cause: Errno::ACCESS.into(),
        },
        _ => StartError::NotExecutable { path },
    }
}

fn working_directory(cwd: Option<&Path>) -> Result<PathBuf, StartError> {
    let folder = cwd.unwrap_or(Path::new("."));
    let fault = |reason| StartError::InvalidCwd { path: folder.to_owned(), reason };
    match folder.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(fault("does not exist")),
        Err(_) => return Err(fault("cannot be accessed")),
        Ok(meta) if !meta.is_dir() => return Err(fault("is not a folder")),
        Ok(_) if access(folder, Access::EXEC_OK).is_err() => {
            return Err(fault("cannot be entered: permission denied"));
        }
        Ok(_) => {}
    }
    std::path::absolute(folder).map_err(|_| fault("cannot be accessed"))
}

/// The interpreter in a script's first line.
fn interpreter(file: &Path) -> Option<String> {
    // As much as Linux reads.
    let mut head = Vec::with_capacity(256);
    std::fs::File::open(file).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let text = String::from_utf8_lossy(line);
    // A script with Windows line ends names `/bin/sh\r`: keep the `\r` in the error.
    let name = text.trim_matches([' ', '\t']).split([' ', '\t']).next()?;
    Some(name.escape_debug().to_string())
}
