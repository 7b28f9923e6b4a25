//! `spile trace`: everything that passes between us and a server, as it passes; recorded, and shown again.

mod entry;
mod mask;
mod print;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::{Args, Parser};
use upstream::{Seen, Tap, process};

use self::entry::{Entry, What};
use self::mask::Mask;
use self::print::Printer;
use super::steps::{Showing, Step};
use super::to::To;
use super::trouble::{Exit, Trouble};
use super::{converse, ended};

#[derive(Debug, Args)]
pub struct TraceArgs {
    /// What to ask, each a client command in quotes, such as 'call lookup_customer email=dana@acme.test'
    #[arg(value_name = "STEP", default_value = "tools")]
    steps: Vec<String>,

    /// Print the bytes exactly as they passed, each chunk below a line with its direction and length
    #[arg(long)]
    raw: bool,

    /// Write everything to FILE too, one JSON object a line; what is in messages may be confidential
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Show a recording again; no server is needed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["steps", "record", "url", "command", "from"])]
    replay: Option<PathBuf>,

    #[command(flatten)]
    to: To,
}

/// A step, as typed in quotes.
#[derive(Debug, Parser)]
#[command(name = "", no_binary_name = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    step: Step,
}

pub(crate) fn run(args: &TraceArgs) -> ExitCode {
    ended(match &args.replay {
        Some(file) => replay(file, args.raw),
        None => watch(args),
    })
}

fn watch(args: &TraceArgs) -> Result<Exit, Trouble> {
    let steps = args.steps.iter().map(|text| step(text)).collect::<Result<Vec<_>, _>>()?;
    let place = args.to.place()?;
    let record = args.record.as_deref().map(|file| Recording::create(file, &place.named.at)).transpose()?;
    let watcher = Arc::new(Watcher {
        start: Instant::now(),
        seen: Mutex::new(Outlets { printer: Printer::new(args.raw), record }),
    });
    // The messages are what there is to see; the answers once more only if asked for.
    let showing = if args.to.verbose > 0 { Showing::Printed(args.to.output) } else { Showing::Unseen };
    let done = converse(place, &args.to, &steps, showing, Some(watcher.clone()));
    let failed = watcher
        .seen
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .record
        .take()
        .and_then(|record| record.failed);
    match (failed, args.record.as_deref()) {
        (Some(error), Some(file)) => {
            Err(Trouble::new(Exit::Told, format!("`{}` is not complete: {error}", file.display())))
        }
        _ => done,
    }
}

fn step(text: &str) -> Result<Step, Trouble> {
    let words = process::words(text).map_err(|error| Trouble::usage(format!("step `{text}`: {error}")))?;
    let help = "a step is a client command in quotes, such as 'call TOOL key=value'";
    if words.is_empty() {
        return Err(Trouble::usage("a step is empty").help(help));
    }
    match Line::try_parse_from(words) {
        Ok(line) => Ok(line.step),
        Err(error) => {
            let said = error.render().to_string();
            let first = said.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            Err(Trouble::usage(format!("step `{text}`: {first}")).help(help))
        }
    }
}

struct Watcher {
    start: Instant,
    seen: Mutex<Outlets>,
}

struct Outlets {
    printer: Printer,
    record: Option<Recording>,
}

impl Tap for Watcher {
    fn saw(&self, seen: Seen<'_>) {
        let us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let entry = Entry { us, what: What::from(seen) };
        let mut outlets = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        outlets.printer.print(&entry);
        if let Some(record) = &mut outlets.record {
            record.add(entry);
        }
    }
}

/// A file that grows with every line, so that what was seen before an accident is there.
struct Recording {
    file: File,
    failed: Option<std::io::Error>,
    mask: Mask,
}

impl Recording {
    fn create(path: &Path, server: &str) -> Result<Self, Trouble> {
        let shown = path.display();
        if path.is_symlink() {
            return Err(Trouble::usage(format!("--record: `{shown}` is a link to another file"))
                .help("a recording is written to the file that is named; give that one"));
        }
        let file = Self::open(path)
            .map_err(|error| Trouble::usage(format!("--record: `{shown}` cannot be written: {error}")))?;
        let mut recording = Self { file, failed: None, mask: Mask::default() };
        recording.write(&entry::head(server));
        Ok(recording)
    }

    /// An empty file that is nobody else's to read, also where it was before: messages may be confidential.
    fn open(path: &Path) -> std::io::Result<File> {
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
            options.mode(0o600).custom_flags(no_link);
        }
        let file = options.open(path)?;
        // A device or a pipe is as it is.
        if file.metadata()?.is_file() {
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            }
            file.set_len(0)?;
        }
        Ok(file)
    }

    fn add(&mut self, entry: Entry) {
        if let Some(entry) = self.mask.recorded(entry) {
            self.write(&entry.to_line());
        }
    }

    fn write(&mut self, line: &str) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(format!("{line}\n").as_bytes()).err();
        }
    }
}

fn replay(file: &Path, raw: bool) -> Result<Exit, Trouble> {
    let shown = file.display();
    let bad = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Trouble::usage(format!("there is no file `{shown}`")),
        _ => Trouble::usage(format!("`{shown}` cannot be read: {error}")),
    };
    let mut lines = BufReader::new(File::open(file).map_err(bad)?);
    let mut printer = Printer::new(raw);
    let (mut number, mut line) = (0, Vec::new());
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(bad)? == 0 {
            break;
        }
        number += 1;
        let is_whole = line.ends_with(b"\n");
        let wrong = |why: String| {
            let cut = if is_whole { "" } else { "; the recording ends in the middle of a line" };
            Trouble::usage(format!("{shown}:{number}: {why}{cut}"))
        };
        let read = std::str::from_utf8(&line).map_err(|_| "no text".to_owned());
        match (number, read) {
            (_, Err(why)) => return Err(wrong(why)),
            (1, Ok(text)) => entry::check_head(text).map_err(wrong)?,
            (_, Ok(text)) if text.trim().is_empty() => {}
            (_, Ok(text)) => printer.print(&Entry::from_line(text).map_err(wrong)?),
        }
    }
    match number {
        0 => {
            Err(Trouble::usage(format!("`{shown}` is empty; `spile trace --record FILE` makes a recording")))
        }
        _ => Ok(Exit::Fine),
    }
}
