//! A server in this process: the same one that `spile serve` is, at the other end of a pipe.

use std::path::Path;

use contract::diagnostic::Severity;
use tokio::io::DuplexStream;
use tokio::runtime::Builder;

use super::error::{CommandError, Exit};
use super::terminal::Terminal;
use crate::report::print_diagnostics;
use crate::serve::Service;

/// Looks at what is there and serves it until what is returned is closed.
pub(crate) fn serve(path: &Path, desk: &Terminal) -> Result<DuplexStream, CommandError> {
    let bad = |error: anyhow::Error| {
        let trouble = CommandError::new(Exit::Unreachable, format!("{error:#}"));
        if path == Path::new(".") {
            trouble.help("name a server: --url URL, --command \"CMD ARGS…\" or --from PATH")
        } else {
            trouble
        }
    };
    let (service, found) = Service::from_path(path).map_err(bad)?;
    let wanted = if desk.is_verbose { Severity::Note } else { Severity::Warning };
    let found: Vec<_> = found.into_iter().filter(|one| one.severity <= wanted).collect();
    print_diagnostics(&found);
    let Some(service) = service else { return Err(CommandError::silent(Exit::Unreachable)) };
    let server = service.into_server().map_err(bad)?;
    // A thread of its own: what is read from the data is read there, and meanwhile nobody here waits in vain for a
    // timeout or for Ctrl+C.
    let runtime = Builder::new_current_thread().enable_time().build().map_err(|error| bad(error.into()))?;
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    std::thread::spawn(move || runtime.block_on(transport::pipe::serve(server, theirs)));
    Ok(ours)
}

/// What is on its way in one direction.
const PIPE_BYTES: usize = 64 << 10;
