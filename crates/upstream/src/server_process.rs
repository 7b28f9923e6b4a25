//! A connection to a program that is started for it, and ends with it.

use std::sync::Arc;
use std::time::Duration;

use wire::client::{ClientError, ClientOptions, VersionPolicy};

use crate::connection::{ClientHandler, Connection, ConnectionEvent, ConnectionShared, OpenError, Options};
use crate::process::{self, Child, Command};
use crate::trace::TraceEvent;

/// How a server's process ended.
#[derive(Debug)]
pub struct ProcessEnd {
    pub program: String,
    pub exit: process::Exit,
    /// The last lines that it wrote to stderr.
    pub stderr: String,
}

impl std::fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&process::exit_sentence(&self.program, &self.exit, &self.stderr))
    }
}

/// What was written before a program ended needs only to be read.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

impl Connection {
    /// Starts a program and speaks to it on its stdin and stdout.
    pub async fn spawn(
        command: &Command,
        options: Options,
        company: Arc<dyn ClientHandler>,
    ) -> Result<Self, OpenError> {
        let again = (options.clone(), company.clone());
        match Self::spawn_once(command, options, company).await {
            // Some old servers die of a question before the handshake. They get none the second time.
            Err(OpenError::Child { error: ClientError::ConnectionClosed(_), .. })
                if again.0.client_options.version_policy == VersionPolicy::Any =>
            {
                let terms =
                    ClientOptions { version_policy: VersionPolicy::HandshakeOnly, ..again.0.client_options };
                Self::spawn_once(command, Options { client_options: terms, ..again.0 }, again.1).await
            }
            other => other,
        }
    }

    async fn spawn_once(
        command: &Command,
        options: Options,
        company: Arc<dyn ClientHandler>,
    ) -> Result<Self, OpenError> {
        let (tap, hears) = (options.trace.clone(), company.clone());
        let on_line = move |line: &str| {
            if let Some(tap) = &tap {
                tap.record(TraceEvent::Stderr(line));
            }
            hears.on_event(ConnectionEvent::Stderr(line.to_owned()));
        };
        let started =
            process::Options { on_stderr_line: Some(Arc::new(on_line)), ..process::Options::default() };
        let mut child = command.start(&started).await?;
        let pid = child.id().map(|pid| format!(" (process {pid})")).unwrap_or_default();
        options.record(TraceEvent::Opened(&format!("started {command}{pid}")));
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (stdin, stdout) = stdin.zip(stdout).expect("nobody else has taken them");
        let child = ServerProcess { child, program: command.program.to_string_lossy().into_owned() };
        let tap = options.trace.clone();
        match Self::over_pipe(stdout, stdin, options, company).await {
            Ok(mut connection) => {
                connection.process = Some(child);
                Ok(connection)
            }
            Err(OpenError::Failed(failure)) => {
                let end = child.stop().await;
                if let Some(tap) = tap {
                    tap.record(TraceEvent::Ended(&end.exit.to_string()));
                }
                Err(OpenError::Child { error: failure, end: Box::new(end) })
            }
            Err(other) => Err(other),
        }
    }
}

/// A program that is spoken to.
pub(crate) struct ServerProcess {
    child: Child,
    program: String,
}

impl ServerProcess {
    /// Once its stdin is closed: waits until it has left, and helps if it does not.
    pub(crate) async fn shut_down(self, shared: &ConnectionShared) -> ProcessEnd {
        let end = self.stop().await;
        let _ = tokio::time::timeout(OUTPUT_DRAIN_TIMEOUT, shared.wait_closed()).await;
        shared.record(TraceEvent::Ended(&end.exit.to_string()));
        end
    }

    async fn stop(self) -> ProcessEnd {
        let stderr = self.child.stderr();
        let exit = self.child.stop().await;
        ProcessEnd { program: self.program, exit, stderr: process::stderr_tail(&stderr) }
    }
}
