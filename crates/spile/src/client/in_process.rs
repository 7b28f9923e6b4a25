//! `--from`: the server that `spile serve` would start, in this process, at the other end of a pipe.

use std::sync::Arc;

use std::path::Path;

use contract::diagnostic::Severity;
use contract::humanize::pluralize;
use tokio::io::DuplexStream;
use tokio::runtime::Builder;

use super::error::{CommandError, Exit};
use super::terminal::Terminal;
use crate::author_folder::{CodeEvent, log_code_event};
use crate::project::SourceFailurePolicy;
use crate::reload::BreakingChangePolicy;
use crate::report::print_diagnostics;
use crate::serve::Service;
use crate::server_state::ServerState;

/// Compiles the project at `path` and serves it until the returned stream is closed.
pub(crate) fn serve(path: &Path, terminal: &Arc<Terminal>) -> Result<DuplexStream, CommandError> {
    let failed = |error: anyhow::Error| {
        let error = CommandError::new(Exit::Unreachable, format!("{error:#}"));
        if path == Path::new(".") {
            error.help("name a server: --url URL, --command \"CMD ARGS…\" or --from PATH")
        } else {
            error
        }
    };
    // The keys of the user, as `spile serve` has them: a cursor or an export link of this run works in the next.
    let state = ServerState::open_for_client().map_err(failed)?;
    let (service, diagnostics) =
        Service::from_path_with(path, SourceFailurePolicy::Skip, &state).map_err(failed)?;
    let Some(service) = service else {
        print_diagnostics(&diagnostics);
        return Err(CommandError::silent(Exit::Unreachable));
    };
    if terminal.is_verbose {
        print_diagnostics(&diagnostics);
    } else if let count @ 1.. = diagnostics.iter().filter(|one| one.severity <= Severity::Warning).count() {
        // Most are about something else than this request.
        let path = crate::banner::shell_quote(&crate::project::shown_path(path));
        let count = pluralize(count as u64, "warning");
        terminal.print(&format!("{count} about `{path}`; `spile check {path}` lists them"));
    }
    // Whoever calls the code of a folder like this is its author, and there is no log of a server to look at.
    let printer = terminal.clone();
    let on_code = move |event: &CodeEvent<'_>| match event {
        CodeEvent::Failed { diagnostic, .. } => printer.print(&diagnostic.to_string()),
        CodeEvent::Reloaded(_) | CodeEvent::Rejected(_) | CodeEvent::Problem(_) => log_code_event(event),
    };
    let (server, author) =
        service.into_server(BreakingChangePolicy::KeepOld, Arc::new(on_code)).map_err(failed)?;
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
