//! Log lines, on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::args::{LogFormat, ServeArgs};
use crate::log_writer::LogWriter;
use crate::notice;
use crate::reload::RECOVERED_TARGET;

/// Starts the log of a serving process. With `--log-format json`, stderr gets nothing but log lines from now on.
pub fn start_logging(args: &ServeArgs) {
    if args.log_format == LogFormat::Json {
        notice::use_json();
    }
    let default = match args.verbose {
        0 => format!("warn,{RECOVERED_TARGET}=info"),
        1 => "info".to_owned(),
        _ => "debug".to_owned(),
    };
    log_to_stderr(&default, args.log_format);
}

/// Starts the log of a client command, which prints its own messages: only `-vv` needs the log.
pub(crate) fn start_client_logging(verbose: u8) {
    log_to_stderr(if verbose > 1 { "debug" } else { "error" }, LogFormat::Text);
}

const NOTICES: &str = "spile::notice=info";

fn log_to_stderr(default: &str, format: LogFormat) {
    let filter = EnvFilter::try_from_env("SPILE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    // Notices are no log lines in text format, so no setting of the log suppresses them in JSON either.
    let filter = filter.add_directive(NOTICES.parse().expect("a valid directive"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    // A process that starts the log twice, such as a test, keeps the first.
    let _ = match format {
        LogFormat::Text => {
            builder.with_ansi(std::io::stderr().is_terminal()).with_writer(LogWriter::Text).try_init()
        }
        LogFormat::Json => builder.json().with_writer(LogWriter::Json).try_init(),
    };
}
