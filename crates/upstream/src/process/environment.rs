//! The environment of a child: a short list of inherited variables, and the declared ones.
//!
//! The list is that of the official SDKs (`DEFAULT_INHERITED_ENV_VARS`) plus what programs need for their files and the
//! user's language. Nothing else is inherited, because environments hold tokens. Proxy variables are not inherited
//! either: their URLs may contain passwords.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::error::StartError;

#[cfg(not(windows))]
const INHERITED: &[&str] =
    &["HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];
#[cfg(not(windows))]
const INHERITED_PREFIXES: &[&str] = &["LC_", "XDG_"];

#[cfg(windows)]
const INHERITED: &[&str] = &[
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];
#[cfg(windows)]
const INHERITED_PREFIXES: &[&str] = &[];

/// The whole environment of a child. Declared variables override inherited ones; the last of two wins.
pub fn for_child(
    ours: impl Iterator<Item = (OsString, OsString)>,
    declared: &[(OsString, OsString)],
) -> Result<BTreeMap<OsString, OsString>, StartError> {
    let mut all: BTreeMap<_, _> = ours.filter(|(name, value)| is_inherited(name, value)).collect();
    for (name, value) in declared {
        let is_name = !name.is_empty() && !contains_any_byte(name, b"=\0");
        if !is_name || contains_any_byte(value, b"\0") {
            return Err(StartError::InvalidVariable {
                name: name.to_string_lossy().escape_debug().to_string(),
            });
        }
        all.insert(name.clone(), value.clone());
    }
    Ok(all)
}

fn is_inherited(name: &OsStr, value: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    // On Windows, `Path` is PATH.
    let is_listed =
        |listed: &&str| if cfg!(windows) { listed.eq_ignore_ascii_case(name) } else { *listed == name };
    let listed =
        INHERITED.iter().any(is_listed) || INHERITED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    // As the SDKs do: such a value is a shell function, which has been used to run code (Shellshock).
    listed && !value.as_encoded_bytes().starts_with(b"()")
}

fn contains_any_byte(text: &OsStr, bytes: &[u8]) -> bool {
    text.as_encoded_bytes().iter().any(|byte| bytes.contains(byte))
}

#[cfg(all(test, unix))]
mod tests {
    use std::ffi::OsString;

    use super::for_child;

    fn pairs(text: &[&str]) -> Vec<(OsString, OsString)> {
        let pair = |text: &&str| {
            text.split_once('=').map(|(name, value)| (name.into(), value.into())).expect("a pair")
        };
        text.iter().map(pair).collect()
    }

    fn check(ours: &[&str], declared: &[&str], expected: &[&str]) {
        let all = for_child(pairs(ours).into_iter(), &pairs(declared)).expect("valid names");
        assert_eq!(all.into_iter().collect::<Vec<_>>(), pairs(expected));
    }

    #[test]
    fn what_programs_need_is_passed_on() {
        let ours = ["HOME=/h", "LANG=de_DE", "LC_TIME=C", "PATH=/bin", "TZ=UTC", "XDG_CACHE_HOME=/c"];
        check(&ours, &[], &ours);
    }

    #[test]
    fn what_is_declared_is_added_and_wins() {
        check(&["PATH=/bin"], &["TOKEN=t", "PATH=/usr/bin"], &["PATH=/usr/bin", "TOKEN=t"]);
        check(&[], &["A=1", "A=2", "B="], &["A=2", "B="]);
    }

    #[test]
    fn everything_else_stays_here() {
        let secrets =
            ["SPILE_TOKEN=x", "AWS_SECRET_ACCESS_KEY=x", "HTTPS_PROXY=http://u:p@h", "LD_PRELOAD=x"];
        check(&secrets, &[], &[]);
        check(&["path=x", "Home=x", "PATH_TOKEN=x", "LC=x", "XDG=x", "NODE_OPTIONS=x"], &[], &[]);
    }

    #[test]
    fn a_shell_function_is_no_value() {
        check(&["TERM=() { :;}; id", "LANG=()", "USER=(a)"], &[], &["USER=(a)"]);
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        for (name, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0")] {
            let refused = for_child(std::iter::empty(), &[(name.into(), value.into())]);
            assert!(refused.unwrap_err().to_string().contains("environment"), "{name:?}");
        }
    }
}
