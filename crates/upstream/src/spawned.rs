//! A connection to a program that is started for it, and ends with it.

use std::sync::Arc;
use std::time::Duration;

use wire::client::{Failure, Speak, Terms};

use crate::connection::{Company, Connection, News, OpenError, Options, Shared};
use crate::process::{self, Child, Command};
use crate::trace::Seen;

/// How a program ended that was spoken to.
#[derive(Debug)]
pub struct End {
    pub exit: process::Exit,
    /// A sentence about it, with what the program said last.
    pub obituary: String,
}

/// What was written before a program ended needs only to be read.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Connection {
    /// Starts a program and speaks to it on its stdin and stdout.
    pub async fn spawn(
        command: &Command,
        options: Options,
        company: Arc<dyn Company>,
    ) -> Result<Self, OpenError> {
        let again = (options.clone(), company.clone());
        match Self::spawn_once(command, options, company).await {
            // Some old servers die of a question before the handshake. They get none the second time.
            Err(OpenError::Child { failure: Failure::Closed(_), .. })
                if again.0.terms.speak == Speak::Any =>
            {
                let terms = Terms { speak: Speak::Handshake, ..again.0.terms };
                Self::spawn_once(command, Options { terms, ..again.0 }, again.1).await
            }
            other => other,
        }
    }

    async fn spawn_once(
        command: &Command,
        options: Options,
        company: Arc<dyn Company>,
    ) -> Result<Self, OpenError> {
        let (tap, hears) = (options.tap.clone(), company.clone());
        let on_line = move |line: &str| {
            if let Some(tap) = &tap {
                tap.saw(Seen::Stderr(line));
            }
            hears.heard(News::Stderr(line.to_owned()));
        };
        let started =
            process::Options { on_stderr_line: Some(Arc::new(on_line)), ..process::Options::default() };
        let mut child = command.start(&started).await?;
        let pid = child.id().map(|pid| format!(" (process {pid})")).unwrap_or_default();
        options.saw(Seen::Opened(&format!("started {command}{pid}")));
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (stdin, stdout) = stdin.zip(stdout).expect("nobody else has taken them");
        let child = Running { child, program: command.program.to_string_lossy().into_owned() };
        let tap = options.tap.clone();
        match Self::over_pipe(stdout, stdin, options, company).await {
            Ok(mut connection) => {
                connection.child = Some(child);
                Ok(connection)
            }
            Err(OpenError::Refused(failure)) => {
                let end = child.stop().await;
                if let Some(tap) = tap {
                    tap.saw(Seen::Ended(&end.exit.to_string()));
                }
                Err(OpenError::Child { failure, said: end.obituary })
            }
            Err(other) => Err(other),
        }
    }
}

/// A program that is spoken to.
pub(crate) struct Running {
    child: Child,
    program: String,
}

impl Running {
    /// Once its stdin is closed: waits until it has left, and helps if it does not.
    pub(crate) async fn end(self, shared: &Shared) -> End {
        let end = self.stop().await;
        let _ = tokio::time::timeout(LAST_WORDS, shared.is_over()).await;
        shared.saw(Seen::Ended(&end.exit.to_string()));
        end
    }

    async fn stop(self) -> End {
        let stderr = self.child.stderr();
        let exit = self.child.stop().await;
        End { obituary: process::obituary(&self.program, &exit, &stderr), exit }
    }
}
