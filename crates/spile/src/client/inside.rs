//! A server in this process: the same one that `spile serve` is, at the other end of a pipe.

use std::fs::File;
use std::io::{PipeReader, PipeWriter};
use std::path::Path;

use contract::diagnostic::Severity;
use door::stdio::Output;
use tokio::runtime::Handle;

use super::desk::Desk;
use super::trouble::{Exit, Trouble};
use crate::report::tell;
use crate::serve::Service;

/// Looks at what is there and serves it until what is returned is closed.
pub(crate) fn serve(path: &Path, desk: &Desk) -> Result<(ends::Input, ends::Output), Trouble> {
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
    let pipes = || -> std::io::Result<_> {
        let ((input, ours), (our_input, output)) = (std::io::pipe()?, std::io::pipe()?);
        Ok((input, ends::file(output), ends::input(our_input)?, ends::output(ours)?))
    };
    let (input, output, our_input, our_output) = pipes().map_err(|error| bad(error.into()))?;
    let runtime = Handle::current();
    std::thread::spawn(move || {
        if let Err(error) = door::stdio::serve(server, &runtime, input, Output::new(output)) {
            tracing::debug!(%error, "the pipe broke");
        }
    });
    Ok((our_input, our_output))
}

/// Our ends of the pipes.
#[cfg(unix)]
mod ends {
    use std::os::fd::OwnedFd;

    use super::{File, PipeReader, PipeWriter};

    pub(crate) type Input = tokio::net::unix::pipe::Receiver;
    pub(crate) type Output = tokio::net::unix::pipe::Sender;

    pub(super) fn file(pipe: PipeWriter) -> File {
        File::from(OwnedFd::from(pipe))
    }

    pub(super) fn input(pipe: PipeReader) -> std::io::Result<Input> {
        Input::from_owned_fd(OwnedFd::from(pipe))
    }

    pub(super) fn output(pipe: PipeWriter) -> std::io::Result<Output> {
        Output::from_owned_fd(OwnedFd::from(pipe))
    }
}

#[cfg(windows)]
mod ends {
    use std::os::windows::io::OwnedHandle;

    use super::{File, PipeReader, PipeWriter};

    pub(crate) type Input = tokio::fs::File;
    pub(crate) type Output = tokio::fs::File;

    pub(super) fn file(pipe: PipeWriter) -> File {
        File::from(OwnedHandle::from(pipe))
    }

    pub(super) fn input(pipe: PipeReader) -> std::io::Result<Input> {
        Ok(Input::from_std(File::from(OwnedHandle::from(pipe))))
    }

    pub(super) fn output(pipe: PipeWriter) -> std::io::Result<Output> {
        Ok(Output::from_std(file(pipe)))
    }
}
