//! `--from`: the server that `spile serve` would start, in this process, at the other end of a pipe.

use std::path::Path;

use contract::diagnostic::Severity;
use tokio::io::DuplexStream;
use tokio::runtime::Builder;

use super::error::{CommandError, Exit};
use super::terminal::Terminal;
use crate::reload::BreakingChangePolicy;
use crate::report::print_diagnostics;
use crate::serve::Service;

/// Compiles the project at `path` and serves it until the returned stream is closed.
pub(crate) fn serve(path: &Path, terminal: &Terminal) -> Result<DuplexStream, CommandError> {
    let failed = |error: anyhow::Error| {
        let error = CommandError::new(Exit::Unreachable, format!("{error:#}"));
        if path == Path::new(".") {
            error.help("name a server: --url URL, --command \"CMD ARGS…\" or --from PATH")
        } else {
            error
        }
    };
    let (service, diagnostics) = Service::from_path(path).map_err(failed)?;
    let severity_max = if terminal.is_verbose { Severity::Note } else { Severity::Warning };
    let shown: Vec<_> = diagnostics.into_iter().filter(|one| one.severity <= severity_max).collect();
    print_diagnostics(&shown);
    let Some(service) = service else { return Err(CommandError::silent(Exit::Unreachable)) };
    let (server, author) = service.into_server(BreakingChangePolicy::KeepOld).map_err(failed)?;
    // The server reads its data on a thread of its own, so that a slow read does not delay timeouts here.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| failed(error.into()))?;
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    std::thread::spawn(move || {
        runtime.block_on(transport::pipe::serve(server, theirs));
        drop(author);
    });
    Ok(ours)
}

/// How much one direction of the pipe buffers.
const PIPE_BYTES: usize = 64 << 10;
