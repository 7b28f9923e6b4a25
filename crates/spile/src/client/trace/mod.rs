//! `spile trace`: prints every message exchanged with a server, records a session, and replays a recording.

mod entry;
pub(crate) mod mask;
mod print;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::{Args, Parser};
use upstream::{TraceEvent, TraceSink, process};

use self::entry::{RecordedEvent, TraceEntry};
use self::mask::SensitiveFieldMask;
use self::print::TracePrinter;
use super::error::{CommandError, Exit};
use super::server_args::ServerArgs;
use super::steps::{ResultDisplay, Step};
use super::{exit_code, run_session};
use crate::sanitize;

#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Client commands to run, each in quotes, such as 'call lookup_customer email=dana@acme.test'
    #[arg(value_name = "STEP", default_value = "tools")]
    steps: Vec<String>,

    /// Print the exact bytes, each chunk below a line with its direction and length
    #[arg(long)]
    raw: bool,

    /// Also write everything to FILE, one JSON object per line; messages may contain confidential data
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Print a recording again, without a server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["steps", "record", "url", "command", "from", "server", "config"])]
    replay: Option<PathBuf>,

    #[command(flatten)]
    server: ServerArgs,
}

/// Parses a step typed in quotes.
#[derive(Debug, Parser)]
#[command(name = "", no_binary_name = true, disable_help_subcommand = true)]
struct StepParser {
    #[command(subcommand)]
    step: Step,
}

pub(crate) fn run(args: &TraceArgs) -> ExitCode {
    exit_code(match &args.replay {
        Some(file) => replay(file, args.raw),
        None => trace_session(args),
    })
}

fn trace_session(args: &TraceArgs) -> Result<Exit, CommandError> {
    let steps = args.steps.iter().map(|text| parse_step(text)).collect::<Result<Vec<_>, _>>()?;
    let endpoint = args.server.endpoint()?;
    let recording =
        args.record.as_deref().map(|file| Recording::create(file, &endpoint.label.address)).transpose()?;
    let tap = Arc::new(TraceTap {
        start: Instant::now(),
        outputs: Mutex::new(TraceOutputs { printer: TracePrinter::new(args.raw), recording }),
    });
    // The trace already contains the results; -v prints them as well.
    let display = if args.server.verbose > 0 {
        ResultDisplay::Print(args.server.output_format())
    } else {
        ResultDisplay::Hidden
    };
    let result = run_session(endpoint, &args.server, &steps, display, Some(tap.clone()));
    let write_error = tap
        .outputs
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .recording
        .take()
        .and_then(|recording| recording.write_error);
    match (write_error, args.record.as_deref()) {
        (Some(error), Some(file)) => Err(CommandError::new(
            Exit::Failed,
            format!("the recording `{}` is incomplete: {error}", file.display()),
        )),
        _ => result,
    }
}

fn parse_step(text: &str) -> Result<Step, CommandError> {
    let words =
        process::split_words(text).map_err(|error| CommandError::usage(format!("step `{text}`: {error}")))?;
    let help = "a step is a client command in quotes, such as 'call TOOL key=value'";
    if words.is_empty() {
        return Err(CommandError::usage("empty step").help(help));
    }
    match StepParser::try_parse_from(words) {
        Ok(line) if line.step.has_server_word() => {
            let error = CommandError::usage(format!("step `{text}`: a step cannot name a server"));
            Err(error.help("name it with --url, --server, --command or --from"))
        }
        Ok(line) => Ok(line.step),
        Err(error) => {
            let message = error.render().to_string();
            let first = message.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            Err(CommandError::usage(format!("step `{text}`: {first}")).help(help))
        }
    }
}

struct TraceTap {
    start: Instant,
    outputs: Mutex<TraceOutputs>,
}

struct TraceOutputs {
    printer: TracePrinter,
    recording: Option<Recording>,
}

impl TraceSink for TraceTap {
    fn record(&self, event: TraceEvent<'_>) {
        let elapsed_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let entry = TraceEntry { elapsed_us, event: RecordedEvent::from(event) };
        let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.printer.print(&entry);
        if let Some(recording) = &mut outputs.recording {
            recording.append(entry);
        }
    }
}

/// A file to which each entry is written at once, so that a crash loses nothing before it.
struct Recording {
    file: File,
    write_error: Option<std::io::Error>,
    mask: SensitiveFieldMask,
}

impl Recording {
    fn create(path: &Path, server: &str) -> Result<Self, CommandError> {
        let shown = path.display();
        if path.is_symlink() {
            return Err(CommandError::usage(format!("--record: `{shown}` is a symbolic link"))
                .help("name the file that it points to"));
        }
        let file = Self::open(path)
            .map_err(|error| CommandError::usage(format!("--record: cannot write `{shown}`: {error}")))?;
        let mut recording = Self { file, write_error: None, mask: SensitiveFieldMask::default() };
        recording.write_line(&entry::header_line(server));
        Ok(recording)
    }

    /// Opens an empty file that only its owner can read, even if it existed before: messages may be confidential.
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
        // Leaves a device or a pipe as it is.
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

    fn append(&mut self, entry: TraceEntry) {
        if let Some(entry) = self.mask.apply(entry) {
            self.write_line(&entry.to_line());
        }
    }

    fn write_line(&mut self, line: &str) {
        if self.write_error.is_none() {
            // The same JSON, but safe to print: recordings are read with `less` too.
            self.write_error = self.file.write_all(format!("{}\n", sanitize::json(line)).as_bytes()).err();
        }
    }
}

fn replay(file: &Path, raw: bool) -> Result<Exit, CommandError> {
    let shown = file.display();
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => CommandError::usage(format!("file `{shown}` not found")),
        _ => CommandError::usage(format!("cannot read `{shown}`: {error}")),
    };
    let mut lines = BufReader::new(File::open(file).map_err(failed)?);
    let mut printer = TracePrinter::new(raw);
    let (mut number, mut line) = (0, Vec::new());
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        number += 1;
        let is_whole = line.ends_with(b"\n");
        let invalid = |reason: String| {
            let cut = if is_whole { "" } else { "; the recording ends within a line" };
            CommandError::usage(format!("{shown}:{number}: {reason}{cut}"))
        };
        let text = std::str::from_utf8(&line).map_err(|_| "not UTF-8 text".to_owned());
        match (number, text) {
            (_, Err(reason)) => return Err(invalid(reason)),
            (1, Ok(text)) => entry::check_header_line(text).map_err(invalid)?,
            (_, Ok(text)) if text.trim().is_empty() => {}
            (_, Ok(text)) => printer.print(&TraceEntry::from_line(text).map_err(invalid)?),
        }
    }
    match number {
        0 => Err(CommandError::usage(format!(
            "`{shown}` is empty; `spile trace --record FILE` writes a recording"
        ))),
        _ => Ok(Exit::Success),
    }
}
