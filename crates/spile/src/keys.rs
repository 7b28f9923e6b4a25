//! `spile keys`: show and rotate the keys in a key file. Never prints a secret.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use contract::humanize::pluralize;
use host::SystemPlatform;
use spile_core::Platform;
use spile_core::calendar::DateTime;
use state::keyring::{KeyFileError, KeyInfo, KeySource, Keyring, create_key_folder, default_key_file};

use crate::client::output_style::OutputStyle;
use crate::layout::{ColumnFit, Table};
use crate::report::print;
use crate::sanitize;
use crate::settings;

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List the keys: id, age, and until when each is accepted
    Show(KeyFileArgs),
    /// Add a key that encrypts from now on; running servers follow, and accept the older keys for a while
    Rotate {
        #[command(flatten)]
        file: KeyFileArgs,
        /// How long the older keys are still accepted: a number with s, m, h or d; 0s revokes them immediately and so ends all sessions
        #[arg(long, value_name = "TIME", default_value = "8h", value_parser = parse_duration_ms)]
        overlap: u64,
    },
}

#[derive(Debug, Args)]
pub struct KeyFileArgs {
    /// The key file (or SPILE_KEY_FILE); default: spile/keys in XDG_STATE_HOME or ~/.local/state
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// Which key file to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyFileChoice {
    /// Named by the user.
    Named(PathBuf),
    /// `None` if the environment names no place for it.
    Default(Option<PathBuf>),
}

/// `--key-file`, `SPILE_KEY_FILE`, or the default.
pub(crate) fn choose_key_file(argument: Option<&Path>) -> anyhow::Result<KeyFileChoice> {
    if let Some(path) = argument {
        return Ok(KeyFileChoice::Named(path.to_owned()));
    }
    if let Some(path) = settings::env_text("SPILE_KEY_FILE")? {
        return Ok(KeyFileChoice::Named(path.into()));
    }
    Ok(KeyFileChoice::Default(user_key_file()))
}

/// The default key file of this user.
fn user_key_file() -> Option<PathBuf> {
    let (state, home) = (std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
    default_key_file(state.as_deref(), home.as_deref())
}

/// Where state of this user belongs: `spile` in `XDG_STATE_HOME` or `~/.local/state`.
pub(crate) fn state_folder() -> Option<PathBuf> {
    Some(user_key_file()?.parent()?.to_owned())
}

pub fn run(command: &KeysCommand) -> anyhow::Result<ExitCode> {
    let platform = SystemPlatform::default();
    match command {
        KeysCommand::Show(file) => show(file, &platform),
        KeysCommand::Rotate { file, overlap } => rotate(file, *overlap, &platform),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn show(args: &KeyFileArgs, platform: &dyn Platform) -> anyhow::Result<()> {
    let choice = choose_key_file(args.key_file.as_deref())?;
    let path = required_path(&choice)?;
    let keyring = match Keyring::open_existing(path) {
        Err(KeyFileError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
            bail!(
                "there is no key file `{}`; the first server that starts creates it, or `spile keys rotate` does",
                path.display()
            )
        }
        opened => opened?,
    };
    print_keys(path, &keyring.keys(), platform.now_ms())
}

fn rotate(args: &KeyFileArgs, overlap_ms: u64, platform: &dyn Platform) -> anyhow::Result<()> {
    let choice = choose_key_file(args.key_file.as_deref())?;
    let path = required_path(&choice)?;
    match &choice {
        KeyFileChoice::Default(_) => create_key_folder(path)?,
        KeyFileChoice::Named(_) => {}
    }
    let keyring = Keyring::open_file(path, platform)?;
    match keyring.origin() {
        // There was no key to replace.
        KeySource::NewFile(_) => {}
        KeySource::File(_) | KeySource::ThisRun => {
            keyring.rotate(overlap_ms, platform)?;
        }
    }
    print_keys(path, &keyring.keys(), platform.now_ms())
}

fn required_path(choice: &KeyFileChoice) -> anyhow::Result<&Path> {
    match choice {
        KeyFileChoice::Named(path) => Ok(path),
        KeyFileChoice::Default(path) => {
            path.as_deref().context("neither XDG_STATE_HOME nor HOME is set; name a file with --key-file")
        }
    }
}

fn print_keys(path: &Path, keys: &[KeyInfo], now_ms: u64) -> anyhow::Result<()> {
    let mut table = Table::new(&["id", "created", "use"]).fit(0, ColumnFit::Keep).fit(2, ColumnFit::Wrap);
    for (index, key) in keys.iter().enumerate() {
        let usage = match key.accept_until_ms {
            None if index == 0 => "current".to_owned(),
            None => "accepted".to_owned(),
            Some(until_ms) if now_ms < until_ms => format!("old, accepted until {}", utc_minute(until_ms)),
            Some(until_ms) => format!("old, not accepted since {}", utc_minute(until_ms)),
        };
        let created = match now_ms.checked_sub(key.created_ms) {
            Some(age_ms) => format!("{} ago", format_duration(age_ms)),
            None => "in the future".to_owned(),
        };
        table.rows.push(vec![key.id.to_string(), created, usage]);
    }
    let path = sanitize::escape_line(&path.display().to_string()).into_owned();
    Ok(print(&format!("{path}\n{}", table.render(&OutputStyle::stdout(), 2)))?)
}

/// `90s`, `15m`, `8h`, `2d`.
pub(crate) fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let expected = || format!("`{text}` is not a time; expected a number with s, m, h or d, e.g. 8h");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(expected)?;
    let (number, unit) = text.split_at(at);
    let unit_ms: u64 = match unit {
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return Err(expected()),
    };
    let number: u64 = number.parse().map_err(|_| expected())?;
    number.checked_mul(unit_ms).ok_or_else(expected)
}

/// `2026-11-16 20:07 UTC`
pub(crate) fn utc_minute(ms: u64) -> String {
    match DateTime::from_unix_ms(ms) {
        Some(DateTime { date, time, .. }) => {
            let (year, month, day) = (date.year(), date.month(), date.day());
            format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", time.hour(), time.minute())
        }
        None => "a time that has no date".to_owned(),
    }
}

/// In the largest unit that fits at least once.
pub(crate) fn format_duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => pluralize(seconds, "second"),
        60..3600 => pluralize(seconds / 60, "minute"),
        3600..86_400 => pluralize(seconds / 3600, "hour"),
        _ => pluralize(seconds / 86_400, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::{format_duration, parse_duration_ms};

    #[test]
    fn times_have_a_unit() {
        for (text, expected) in [
            ("0s", Some(0)),
            ("90s", Some(90_000)),
            ("15m", Some(900_000)),
            ("8h", Some(28_800_000)),
            ("2d", Some(172_800_000)),
            ("", None),
            ("8", None),
            ("h", None),
            ("-8h", None),
            ("8 h", None),
            ("8H", None),
            ("1.5h", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(parse_duration_ms(text).ok(), expected, "{text}");
        }
        assert!(parse_duration_ms("8").expect_err("no unit").contains("e.g. 8h"));
    }

    #[test]
    fn times_are_shown_in_one_unit() {
        for (ms, expected) in [
            (999, "0 seconds"),
            (1000, "1 second"),
            (119_000, "1 minute"),
            (7_199_000, "1 hour"),
            (28_800_000, "8 hours"),
            (200_000_000, "2 days"),
        ] {
            assert_eq!(format_duration(ms), expected);
        }
    }
}
