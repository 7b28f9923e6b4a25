//! A connection to a program that is started for it and stopped with it.

use std::sync::Arc;
use std::time::Duration;

use wire::client::{ClientError, ClientOptions, VersionPolicy};

use crate::connection::{
    ClientHandler, Connection, ConnectionEvent, ConnectionOptions, ConnectionShared, OpenError,
};
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

/// How long to read the output that a program wrote before it ended.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

impl Connection {
    /// Starts a program and connects to its stdin and stdout.
    pub async fn spawn(
        command: &Command,
        options: ConnectionOptions,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<Self, OpenError> {
        let retry = (options.clone(), handler.clone());
        match Self::spawn_once(command, options, handler).await {
            // Some old servers exit on a request before the handshake. The second attempt sends none.
            Err(OpenError::Child { error: ClientError::ConnectionClosed(_), .. })
                if retry.0.client_options.version_policy == VersionPolicy::Any =>
            {
                let client_options =
                    ClientOptions { version_policy: VersionPolicy::HandshakeOnly, ..retry.0.client_options };
                Self::spawn_once(command, ConnectionOptions { client_options, ..retry.0 }, retry.1).await
            }
            other => other,
        }
    }

    async fn spawn_once(
        command: &Command,
        options: ConnectionOptions,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<Self, OpenError> {
        let (trace, event_handler) = (options.trace.clone(), handler.clone());
        let on_line = move |line: &str| {
            if let Some(trace) = &trace {
                trace.record(TraceEvent::Stderr(line));
            }
            event_handler.on_event(ConnectionEvent::Stderr(line.to_owned()));
        };
        let process_options =
            process::ProcessOptions { on_stderr_line: Some(Arc::new(on_line)), ..options.process.clone() };
        let mut child = command.start(&process_options).await?;
        let pid = child.id().map(|pid| format!(" (process {pid})")).unwrap_or_default();
        options.record(TraceEvent::Opened(&format!("started {command}{pid}")));
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (stdin, stdout) = stdin.zip(stdout).expect("a new child has both pipes");
        let child = ServerProcess { child, program: command.program.to_string_lossy().into_owned() };
        let trace = options.trace.clone();
        match Self::over_pipe(stdout, stdin, options, handler).await {
            Ok(mut connection) => {
                connection.process = Some(child);
                Ok(connection)
            }
            Err(OpenError::Failed(error)) => {
                let end = child.stop().await;
                if let Some(trace) = trace {
                    trace.record(TraceEvent::Ended(&end.exit.to_string()));
                }
                Err(OpenError::Child { error, end: Box::new(end) })
            }
            Err(other) => Err(other),
        }
    }
}

/// A running server process.
pub(crate) struct ServerProcess {
    child: Child,
    program: String,
}

impl ServerProcess {
    /// After its stdin is closed: waits until the process exits, and ends it if it does not.
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
