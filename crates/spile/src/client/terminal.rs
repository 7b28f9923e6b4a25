//! The person at the terminal: shows the server's log messages and progress, and asks what the server elicits.
//!
//! Everything here goes to stderr; stdout is for results. Without a terminal, elicitations are cancelled with a warning.

use std::future::Future;
use std::io::{BufRead, IsTerminal, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use contract::diagnostic::{Diagnostic, render};
use json::Json;
use servers::config::{Root, roots_result};
use servers::sampling::{Sampler, review_answer, review_request};
use tokio::sync::mpsc;
use upstream::{ClientHandler, ConnectionEvent, Progress};
use wire::client::{IncomingInputRequest, InputReply, InputRequestKind, ProtocolWarning, WarningKind};

use super::form;
use super::output_style::OutputStyle;
use crate::banner;
use crate::sanitize;

pub(crate) struct Terminal {
    pub(crate) is_verbose: bool,
    pub(crate) style: OutputStyle,
    answers: LocalAnswers,
    /// Known after the handshake.
    server_name: OnceLock<String>,
    /// One elicitation at a time.
    prompt_lock: tokio::sync::Mutex<()>,
    input_lines: OnceLock<tokio::sync::Mutex<mpsc::Receiver<String>>>,
    progress_bar: Mutex<ProgressBarState>,
    /// The questions of the server and the results that were sent, for a recording.
    answered: Mutex<Vec<(String, Json)>>,
    /// How many messages of the server were skipped.
    skipped_count: AtomicUsize,
    /// The beginning of the first one.
    first_skipped: OnceLock<String>,
}

/// What is answered for the user, from the settings and the flags.
#[derive(Default)]
pub(crate) struct LocalAnswers {
    pub(crate) roots: Vec<Root>,
    pub(crate) sampling: Option<SamplingAnswers>,
}

/// The model that the user configured.
pub(crate) struct SamplingAnswers {
    pub(crate) sampler: Sampler,
    /// Whether the settings allow this server to use it without being asked.
    pub(crate) is_allowed: bool,
}

#[derive(Default)]
struct ProgressBarState {
    is_visible: bool,
    last_drawn: Option<Instant>,
}

/// Redrawing a progress bar more often makes it flicker.
const REDRAW_INTERVAL: Duration = Duration::from_millis(50);
const BAR_COLUMNS: usize = 24;

impl Terminal {
    pub(crate) fn new(verbose: u8, answers: LocalAnswers) -> Arc<Self> {
        Arc::new(Self {
            is_verbose: verbose > 0,
            style: OutputStyle::stderr(),
            answers,
            server_name: OnceLock::new(),
            prompt_lock: tokio::sync::Mutex::new(()),
            input_lines: OnceLock::new(),
            progress_bar: Mutex::default(),
            answered: Mutex::default(),
            skipped_count: AtomicUsize::new(0),
            first_skipped: OnceLock::new(),
        })
    }

    pub(crate) fn set_server_name(&self, server: &str) {
        let _ = self.server_name.set(sanitize::escape_line(server).into_owned());
    }

    pub(crate) fn server_name(&self) -> &str {
        self.server_name.get().map_or("the server", String::as_str)
    }

    pub(crate) fn print(&self, text: &str) {
        self.clear_progress();
        banner::print_stderr(text);
    }

    pub(crate) fn warn(&self, text: &str) {
        self.print(render(&Diagnostic::warning(text), banner::is_color_enabled()).trim_end());
    }

    /// The beginning of the first message of the server that could not be read.
    pub(crate) fn first_skipped_text(&self) -> Option<&str> {
        self.first_skipped.get().map(String::as_str)
    }

    fn show_warning(&self, warning: &ProtocolWarning) {
        if warning.kind == WarningKind::SkippedMessage
            && let Some((_, excerpt)) =
                warning.message.strip_suffix('`').and_then(|text| text.split_once(": `"))
        {
            let _ = self.first_skipped.set(sanitize::escape_line(excerpt).into_owned());
        }
        match warning.kind {
            _ if self.is_verbose => self.warn(&warning.message),
            // The output is incomplete without that tool.
            WarningKind::SkippedTool => self.warn(&warning.message),
            // One warning is enough for a server that prints its whole log to stdout.
            WarningKind::SkippedMessage => match self.skipped_count.fetch_add(1, Ordering::Relaxed) {
                0 => self.warn(&warning.message),
                1 => self.warn("more lines of the server were skipped; -v shows them all"),
                _ => {}
            },
            WarningKind::Rejected => {}
        }
    }

    /// Writes a prompt, without a line break.
    pub(crate) fn prompt(&self, text: &str) {
        self.clear_progress();
        let mut out = std::io::stderr();
        // If stderr is closed, no answer will come either.
        let _ = write!(out, "{text}").and_then(|()| out.flush());
    }

    /// Reads one line without its line break; `None` after Ctrl-D.
    pub(crate) async fn read_line(&self) -> Option<String> {
        let lines = self.input_lines.get_or_init(|| tokio::sync::Mutex::new(spawn_stdin_reader()));
        lines.lock().await.recv().await
    }

    /// Draws a progress bar if stderr is a terminal.
    pub(crate) fn show_progress(&self, progress: &Progress) {
        let Some(columns) = self.style.columns else { return };
        let mut bar = self.progress_bar.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = progress.total.is_some_and(|total| progress.progress >= total);
        if bar.last_drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW_INTERVAL) && !is_last {
            return;
        }
        bar.last_drawn = Some(Instant::now());
        bar.is_visible = true;
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", render_progress(progress, columns - 1));
    }

    /// Erases the progress bar.
    pub(crate) fn clear_progress(&self) {
        let mut bar = self.progress_bar.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut bar.is_visible) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    pub(crate) fn is_interactive(&self) -> bool {
        self.style.is_terminal && std::io::stdin().is_terminal()
    }

    async fn elicit(&self, params: Json) -> InputReply {
        let doc = params.to_doc();
        let message = doc.root().get("message").and_then(|text| text.str()).unwrap_or_default();
        if !self.is_interactive() {
            let stream = match (std::io::stdin().is_terminal(), self.style.is_terminal) {
                (false, true) => "stdin is not a terminal",
                (true, false) => "stderr is not a terminal",
                _ => "stdin and stderr are not a terminal",
            };
            self.warn(&format!(
                "{} asks `{}`; cancelled, because {stream}; run the command in a terminal to answer",
                self.server_name(),
                sanitize::truncate(&message, 200),
            ));
            return InputReply::Result(form::action_result("cancel"));
        }
        let _guard = self.prompt_lock.lock().await;
        let result = form::run_elicitation(self, doc.root()).await;
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.push((message.into_owned(), result.clone()));
        InputReply::Result(result)
    }

    /// The configured model answers, if the user allows it; they see the answer before the server does. `Err` is for the
    /// server.
    async fn sample(&self, params: &Json) -> Result<Json, &'static str> {
        const NOT_ALLOWED: &str = "the user did not allow it";
        let Some(SamplingAnswers { sampler, is_allowed }) = &self.answers.sampling else {
            return Err("this client has no model");
        };
        let _guard = self.prompt_lock.lock().await;
        let server = self.server_name();
        if !is_allowed {
            self.print(&format!("{server} asks your model:\n\n{}\n", review_request(params)));
            if !self.confirm("Let the model answer? [y/N] ").await {
                return Err(NOT_ALLOWED);
            }
        }
        let result = sampler.answer(params).await.map_err(|error| {
            self.warn(&error.to_string());
            error.for_server()
        })?;
        if !is_allowed {
            self.print(&format!("\nThe model answers:\n\n{}\n", review_answer(&result)));
            if !self.confirm(&format!("Send this to {server}? [y/N] ")).await {
                return Err(NOT_ALLOWED);
            }
        }
        Ok(result)
    }

    /// Whether the user types `y`.
    pub(crate) async fn confirm(&self, question: &str) -> bool {
        self.prompt(question);
        let answer = self.read_line().await.unwrap_or_default();
        matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    }

    /// The questions of the server so far, and the results that were sent.
    pub(crate) fn answered(&self) -> Vec<(String, Json)> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// `[########................] 50/100 half way`
fn render_progress(progress: &Progress, columns: usize) -> String {
    let message =
        progress.message.as_deref().map(|text| sanitize::escape_line(text).into_owned()).unwrap_or_default();
    let text = match progress.total {
        Some(total) if total > 0.0 => {
            let part = (progress.progress / total).clamp(0.0, 1.0);
            let full = (part * BAR_COLUMNS as f64) as usize;
            let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR_COLUMNS - full));
            format!("[{bar}] {}/{total} {message}", progress.progress)
        }
        Some(_) | None => format!("… {} {message}", progress.progress),
    };
    sanitize::truncate(text.trim_end(), columns).into_owned()
}

/// One thread reads stdin for the lifetime of the process, because a blocking read cannot be cancelled.
pub(crate) fn spawn_stdin_reader() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl ClientHandler for TerminalHandler {
    fn on_input_request(
        &self,
        request: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let terminal = self.0.clone();
        Box::pin(async move {
            match request.kind {
                InputRequestKind::Elicitation => terminal.elicit(request.params).await,
                InputRequestKind::Roots => InputReply::Result(roots_result(&terminal.answers.roots)),
                InputRequestKind::Sampling => match terminal.sample(&request.params).await {
                    Ok(result) => InputReply::Result(result),
                    Err(reason) => InputReply::Declined(reason.to_owned()),
                },
            }
        })
    }

    fn on_event(&self, event: ConnectionEvent) {
        let terminal = &self.0;
        match event {
            ConnectionEvent::Log { level, logger, data, .. } if terminal.is_verbose => {
                let logger = logger.map(|logger| format!(" {logger}")).unwrap_or_default();
                let text = super::schema::display_text(&data);
                terminal.print(&format!(
                    "{}{}: {}",
                    sanitize::escape_line(&level),
                    sanitize::escape_line(&logger),
                    sanitize::escape_line(&text)
                ));
            }
            ConnectionEvent::Stderr(line) if terminal.is_verbose => {
                terminal.print(&terminal.style.faint(&line))
            }
            ConnectionEvent::ProtocolWarning(warning) => terminal.show_warning(&warning),
            ConnectionEvent::Reinitialized(_) if terminal.is_verbose => {
                terminal.warn("the server ended the session; initialized again")
            }
            ConnectionEvent::Log { .. }
            | ConnectionEvent::Reinitialized(_)
            | ConnectionEvent::Stderr(_)
            | ConnectionEvent::CatalogChanged(_)
            | ConnectionEvent::ElicitationCompleted(_)
            | ConnectionEvent::Closed(_) => {}
        }
    }
}

/// The handler of a connection that asks the person at the terminal.
pub(crate) struct TerminalHandler(pub(crate) Arc<Terminal>);

#[cfg(test)]
mod tests {
    use super::{Progress, render_progress};

    #[test]
    fn a_progress_bar_fits_the_width() {
        let check = |progress: f64, total: Option<f64>, message: &str, columns: usize, expected: &str| {
            let message = Some(message.to_owned());
            assert_eq!(render_progress(&Progress { progress, total, message }, columns), expected);
        };
        check(50.0, Some(100.0), "half", 60, "[############............] 50/100 half");
        check(0.0, Some(3.0), "", 60, "[........................] 0/3");
        check(9.0, Some(3.0), "", 60, "[########################] 9/3");
        check(f64::NAN, Some(3.0), "", 60, "[........................] NaN/3");
        check(1.5, None, "x\u{1b}[2J", 60, "… 1.5 x\\u{1b}[2J");
        check(1.0, Some(0.0), "", 60, "… 1");
        check(5.0, Some(10.0), "a long message", 40, "[############............] 5/10 a long …");
    }
}
