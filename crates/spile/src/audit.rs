//! `spile audit`: finds, prints and follows the lines of an audit log.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use contract::humanize::pluralize;
use host::SystemPlatform;
use permissions::audit::reader::{AuditEntry, AuditFilter, AuditReader, Field};
use spile_core::Platform;
use spile_core::calendar::{CivilDate, DateTime, Temporal};

use crate::client::output_style::OutputStyle;
use crate::keys::{parse_duration_ms, state_folder};
use crate::{notice, sanitize};

#[derive(Debug, Args)]
pub struct AuditArgs {
    /// The log; default: spile/audit.jsonl in XDG_STATE_HOME or ~/.local/state
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print new lines as they come, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Only calls that ended later: a time before now (90s, 15m, 8h, 2d), a date, or a timestamp (UTC unless it has an offset)
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Since>,
    /// Only calls of this server; * stands for any text
    #[arg(long, value_name = "PATTERN")]
    server: Option<String>,
    /// Only calls of this tool, prompt or resource; * stands for any text
    #[arg(long, value_name = "PATTERN")]
    tool: Option<String>,
    /// Only calls by this caller; * stands for any text
    #[arg(long, value_name = "PATTERN")]
    principal: Option<String>,
    /// Only calls that ended like this
    #[arg(long, value_name = "OUTCOME", value_parser = OUTCOMES)]
    outcome: Option<String>,
    /// Print the lines as they are in the log: JSON
    #[arg(long)]
    json: bool,
}

const OUTCOMES: [&str; 6] = ["ok", "error", "refused", "asked", "task", "cancelled"];

#[derive(Debug, Clone, Copy)]
enum Since {
    Ago(u64),
    At(u64),
}

fn parse_since(text: &str) -> Result<Since, String> {
    if let Ok(ms) = parse_duration_ms(text) {
        return Ok(Since::Ago(ms));
    }
    let seconds = match CivilDate::parse(text.as_bytes()) {
        Some(date) => Some(date.days().saturating_mul(86_400)),
        None => match Temporal::parse(text.as_bytes()) {
            Some(_) => DateTime::parse(text.as_bytes()).map(|time| time.sort_key().0),
            None => None,
        },
    };
    let ms =
        seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(|seconds| seconds.saturating_mul(1000));
    ms.map(Since::At).ok_or_else(|| {
        format!("`{text}` is not a time; expected e.g. 8h, 2026-11-16 or 2026-11-16T09:30:00Z")
    })
}

/// Where the audit log is if nobody names another place.
pub fn default_path() -> Option<PathBuf> {
    Some(state_folder()?.join("audit.jsonl"))
}

/// How often a log is looked at for new lines.
const POLL: Duration = Duration::from_millis(250);

pub fn run(args: &AuditArgs) -> anyhow::Result<ExitCode> {
    let default =
        || default_path().context("neither XDG_STATE_HOME nor HOME is set; name a file with --file");
    let path = args.file.clone().map_or_else(default, Ok)?;
    let shown = sanitize::lines(&path.display().to_string()).into_owned();
    let filter = filter(args, SystemPlatform::default().now_ms());
    let style = OutputStyle::stdout();
    let mut reader = AuditReader::new(&path);
    let mut printer = Printer { style, is_json: args.json, has_printed: false };
    loop {
        let mut read = |entry: &AuditEntry| match filter.matches(entry) {
            true => printer.print(entry),
            false => Ok(()),
        };
        match reader.read(&mut read) {
            Ok(false) if !args.follow => {
                bail!("there is no audit log at `{shown}`; `audit` in a gateway's settings turns it on")
            }
            Ok(_) => {}
            // Whoever reads our output has enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error).context(format!("cannot read `{shown}`")),
        }
        if !args.follow {
            break;
        }
        std::thread::sleep(POLL);
    }
    if !printer.has_printed {
        notice::info("no call of the log matches");
    }
    if reader.invalid_lines() > 0 {
        let lines = pluralize(reader.invalid_lines(), "line");
        notice::info(&format!("`{shown}` has {lines} that cannot be read"));
    }
    Ok(ExitCode::SUCCESS)
}

fn filter(args: &AuditArgs, now_ms: u64) -> AuditFilter {
    let mut filter = AuditFilter::default();
    if let Some(since) = args.since {
        filter = filter.since(match since {
            Since::Ago(ms) => now_ms.saturating_sub(ms),
            Since::At(ms) => ms,
        });
    }
    let fields = [
        (Field::Server, &args.server),
        (Field::Target, &args.tool),
        (Field::Principal, &args.principal),
        (Field::Outcome, &args.outcome),
    ];
    fields.into_iter().fold(filter, |filter, (field, pattern)| match pattern {
        Some(pattern) => filter.with(field, pattern),
        None => filter,
    })
}

/// Prints entries one by one: a log may be larger than memory, and has no end while it is followed.
struct Printer {
    style: OutputStyle,
    is_json: bool,
    has_printed: bool,
}

/// The widths of all columns but the last.
const COLUMNS: [usize; 5] = [19, 9, 9, 12, 32];
const HEADER: [&str; 6] = ["time (UTC)", "outcome", "ms", "caller", "server and tool", "decision"];

impl Printer {
    fn print(&mut self, entry: &AuditEntry) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        let is_first = !std::mem::replace(&mut self.has_printed, true);
        if self.is_json {
            let text =
                if self.style.is_terminal { sanitize::json(entry.text()) } else { entry.text().into() };
            return writeln!(out, "{text}");
        }
        if is_first {
            let line = self.format(HEADER.map(str::to_owned));
            writeln!(out, "{}", self.style.bold(&line))?;
        }
        let line = self.format(cells(entry));
        let line = match entry.str("outcome").as_deref() {
            Some("refused" | "error") => self.style.red(&line),
            _ => line,
        };
        writeln!(out, "{line}")
    }

    fn format(&self, cells: [String; 6]) -> String {
        let mut line = String::new();
        for (index, cell) in cells.iter().enumerate() {
            let cell = sanitize::lines(cell).replace(['\n', '\t'], " ");
            match COLUMNS.get(index) {
                Some(columns) => {
                    let cell = sanitize::truncate(&cell, *columns);
                    let gap = " ".repeat(columns - sanitize::width(&cell));
                    // Numbers are aligned at their end.
                    let cell = if index == 2 { format!("{gap}{cell}") } else { format!("{cell}{gap}") };
                    line.push_str(&format!("{cell}  "));
                }
                None => {
                    let left =
                        self.style.columns.map(|all| all.saturating_sub(sanitize::width(&line)).max(10));
                    line.push_str(&match left {
                        Some(left) => sanitize::truncate(&cell, left),
                        None => cell.into(),
                    });
                }
            }
        }
        line.trim_end().to_owned()
    }
}

fn cells(entry: &AuditEntry) -> [String; 6] {
    let text = |key: &str| entry.str(key).unwrap_or_default().into_owned();
    let time = text("time").replace('T', " ");
    let time = time.split('.').next().unwrap_or_default().to_owned();
    if let Some(lost) = entry.number("lines").filter(|_| text("event") == "audit.lost") {
        let lost = format!("{} could not be written", pluralize(lost, "line"));
        return [time, "lost".to_owned(), String::new(), String::new(), String::new(), lost];
    }
    let target = match (entry.str("server"), text("target")) {
        (Some(server), target) => format!("{server} {target}"),
        (None, target) => target,
    };
    let mut decision = text("decision");
    for (key, gap) in [("reason", ": "), ("hook", "; hook ")] {
        if let Some(value) = entry.str(key) {
            decision = format!("{decision}{gap}{value}");
        }
    }
    let decision = match (decision.as_str(), entry.str("code")) {
        ("", Some(code)) => code.into_owned(),
        _ => decision,
    };
    let ms = entry.number("duration_ms").map(|ms| ms.to_string()).unwrap_or_default();
    [time, text("outcome"), ms, entry.subject().unwrap_or_default().into_owned(), target, decision]
}

#[cfg(test)]
mod tests {
    use super::{Since, parse_since};

    #[test]
    fn a_time_is_a_duration_a_date_or_a_timestamp() {
        for (text, expected) in [
            ("90s", Some(-90_000)),
            ("2d", Some(-172_800_000)),
            ("1970-01-02", Some(86_400_000)),
            ("1970-01-01T01:00:00Z", Some(3_600_000)),
            ("1970-01-01T02:00:00+01:00", Some(3_600_000)),
            ("1970-01-01 00:00:01", Some(1000)),
            ("1969-12-31", None),
            ("yesterday", None),
            ("8", None),
            ("", None),
        ] {
            let found = parse_since(text).ok().map(|since| match since {
                Since::Ago(ms) => -(ms as i64),
                Since::At(ms) => ms as i64,
            });
            assert_eq!(found, expected, "{text}");
        }
    }
}
