//! Lock files of other programs that have the data file open.
//!
//! Excel and LibreOffice keep a file open in memory and write all of it when the user saves. What was written meanwhile
//! is then lost, or the program refuses to save. While they have a file open, a lock file is next to it:
//! `~$book.xlsx` (Excel) or `.~lock.book.xlsx#` (LibreOffice). A program that crashed leaves its lock file behind, and
//! nothing in the file tells; so the message names it, for the user to delete.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use contract::source::SourceError;

use super::target::TargetFile;

/// A lock file is a few hundred bytes long.
const LOCK_BYTES_MAX: u64 = 4096;
const USER_CHARS_MAX: usize = 100;

struct EditorLock {
    file_name: String,
    program: &'static str,
    /// Who has the file open, where the lock file tells.
    user: Option<String>,
}

/// Fails if another program has the file open. `path` is the configured path; the program may have opened the file by
/// that name, or by the name that links lead to.
pub(super) fn check_not_open(target: &TargetFile, path: &Path) -> Result<(), SourceError> {
    match find(target.path()).or_else(|| find(path)) {
        None => Ok(()),
        Some(EditorLock { file_name, program, user }) => {
            let open = match user {
                Some(user) => format!("{user} has it open in {program}"),
                None => format!("it is open in {program}"),
            };
            let message = format!(
                "cannot write `{}`: {open}; nothing was changed. Close it and try again. If it is not open, delete \
                 `{file_name}`",
                target.file_name()
            );
            let detail = format!("{}: locked by {file_name}", target.path().display());
            Err(SourceError::Unavailable { message, detail })
        }
    }
}

fn find(path: &Path) -> Option<EditorLock> {
    let (folder, name) = (path.parent()?, path.file_name()?);
    let excel = lock_name("~$", name, "");
    let libre_office = lock_name(".~lock.", name, "#");
    let lock = |name: OsString, program, read_user: fn(&[u8]) -> Option<String>| {
        let content = read_lock(&folder.join(&name))?;
        let user = read_user(&content).map(|user| printable(&user)).filter(|user| !user.is_empty());
        Some(EditorLock { file_name: name.to_string_lossy().into_owned(), program, user })
    };
    lock(excel, "Excel", excel_user).or_else(|| lock(libre_office, "LibreOffice", libre_office_user))
}

fn lock_name(prefix: &str, name: &OsStr, suffix: &str) -> OsString {
    let mut lock = OsString::from(prefix);
    lock.push(name);
    lock.push(suffix);
    lock
}

/// The content of a lock file; empty if it may not be read. `None` if there is no such file.
fn read_lock(path: &Path) -> Option<Vec<u8>> {
    let is_file = std::fs::symlink_metadata(path).ok()?.is_file();
    let mut content = Vec::new();
    if is_file && let Ok(file) = File::open(path) {
        // Excel may deny others to read it; then the user is unknown.
        let _ = file.take(LOCK_BYTES_MAX).read_to_end(&mut content);
    }
    is_file.then_some(content)
}

/// The length of the user's name and the name, padded to 55 bytes; then the same in UTF-16.
fn excel_user(content: &[u8]) -> Option<String> {
    const WIDE_AT: usize = 55;
    let wide = content.get(WIDE_AT..).and_then(|wide| {
        let (length, rest) = wide.split_first_chunk::<2>()?;
        let units = rest.get(..2 * usize::from(u16::from_le_bytes(*length)))?;
        let units = units.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
        char::decode_utf16(units).collect::<Result<String, _>>().ok().filter(|name| !name.is_empty())
    });
    wide.or_else(|| {
        let (length, rest) = content.split_first()?;
        let name = rest.get(..usize::from(*length))?;
        Some(String::from_utf8_lossy(name).into_owned())
    })
}

/// `full name,login,host,date,profile;` with `\,` for a comma.
fn libre_office_user(content: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(content);
    let mut fields = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => fields.last_mut()?.extend(chars.next()),
            ',' => fields.push(String::new()),
            ';' => break,
            c => fields.last_mut()?.push(c),
        }
    }
    let [full_name, login, host, ..] = &fields[..] else { return None };
    let user = if full_name.trim().is_empty() { login } else { full_name };
    Some(if host.trim().is_empty() { user.clone() } else { format!("{user} on {host}") })
}

/// A name that is fit for a message: one line, of bounded length.
fn printable(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(USER_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::{excel_user, libre_office_user};

    fn excel_lock(narrow: &[u8], wide: &str) -> Vec<u8> {
        let mut content = vec![narrow.len() as u8];
        content.extend_from_slice(narrow);
        content.resize(55, b' ');
        content.extend((wide.encode_utf16().count() as u16).to_le_bytes());
        content.extend(wide.encode_utf16().flat_map(u16::to_le_bytes));
        content.resize(165, 0);
        content
    }

    #[test]
    fn lock_files_tell_the_user() {
        assert_eq!(excel_user(&excel_lock(b"J\xfcrgen", "Jürgen")).as_deref(), Some("Jürgen"));
        assert_eq!(excel_user(b"\x04Anna").as_deref(), Some("Anna"));
        assert_eq!(excel_user(b"\x09Anna"), None);
        assert_eq!(excel_user(b""), None);
        let lock = b"Anna Smith,anna,laptop,15.11.2026 10:20,file:///home/anna/.config/libreoffice/4;";
        assert_eq!(libre_office_user(lock).as_deref(), Some("Anna Smith on laptop"));
        assert_eq!(libre_office_user(b",anna,laptop,,;").as_deref(), Some("anna on laptop"));
        assert_eq!(libre_office_user(b"Smith\\, Anna,anna,,,;").as_deref(), Some("Smith, Anna"));
        assert_eq!(libre_office_user(b""), None);
        assert_eq!(libre_office_user(b"\xff\xfe"), None);
    }
}
