//! A server in this process: the same one that `spile serve` is, at the other end of a pipe.

use std::path::Path;

use contract::diagnostic::Severity;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::desk::Desk;
use super::trouble::{Exit, Trouble};
use crate::report::tell;
use crate::serve::Service;

/// Looks at what is there and serves it until what is returned is closed.
pub(crate) fn serve(path: &Path, desk: &Desk) -> Result<(OwnedReadHalf, OwnedWriteHalf), Trouble> {
    let bad = |error: anyhow::Error| {
        let trouble = Trouble::new(Exit::Unreachable, format!("{error:#}"));
        if path == Path::new(".") {
            trouble.help("name a server: --url URL, --command \"CMD ARGS…\" or --from PATH")
        } else {
            trouble
        }
    };
    let (service, found) = Service::from_path(path).map_err(bad)?;
    let wanted = if desk.is_verbose { Severity::Note } else { Severity::Warning };
    let found: Vec<_> = found.into_iter().filter(|one| one.severity <= wanted).collect();
    tell(&found);
    let Some(service) = service else { return Err(Trouble::silent(Exit::Unreachable)) };
    let server = service.server().map_err(bad)?;
    let pipe = || -> anyhow::Result<_> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let output = std::fs::File::from(std::os::fd::OwnedFd::from(theirs.try_clone()?));
        Ok((UnixStream::from_std(ours)?, theirs, output))
    };
    let (ours, input, output) = pipe().map_err(bad)?;
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        let output = door::stdio::Output::new(output);
        if let Err(error) = door::stdio::serve(server, &runtime, input, output) {
            tracing::debug!(%error, "the pipe broke");
        }
    });
    Ok(ours.into_split())
}
