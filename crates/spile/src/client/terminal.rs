//! The person at the terminal: is shown what the server says unasked, and asked what it wants to know.
//!
//! All of it is on stderr; stdout is for results. Where nobody sits, questions are called off and said so.

use std::future::Future;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use contract::diagnostic::{Diagnostic, render};
use json::Json;
use tokio::sync::mpsc;
use upstream::{ClientHandler, ConnectionEvent, Progress};
use wire::client::{IncomingInputRequest, InputReply, InputRequestKind, WarningKind};

use super::form;
use super::output_style::OutputStyle;
use crate::banner;
use crate::sanitize;

pub(crate) struct Terminal {
    pub(crate) is_verbose: bool,
    pub(crate) style: OutputStyle,
    roots: Vec<PathBuf>,
    /// Who asks; known once the server has been greeted.
    server_name: OnceLock<String>,
    /// One question after the other.
    prompt_lock: tokio::sync::Mutex<()>,
    input_lines: OnceLock<tokio::sync::Mutex<mpsc::Receiver<String>>>,
    progress_bar: Mutex<ProgressBarState>,
    /// How often something was skipped that the server said.
    skipped_count: AtomicUsize,
}

#[derive(Default)]
struct ProgressBarState {
    is_visible: bool,
    last_drawn: Option<Instant>,
}

/// A bar that is drawn more often than this only flickers.
const REDRAW_INTERVAL: Duration = Duration::from_millis(50);
const BAR_COLUMNS: usize = 24;

impl Terminal {
    pub(crate) fn new(verbose: u8, roots: Vec<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            is_verbose: verbose > 0,
            style: OutputStyle::stderr(),
            roots,
            server_name: OnceLock::new(),
            prompt_lock: tokio::sync::Mutex::new(()),
            input_lines: OnceLock::new(),
            progress_bar: Mutex::default(),
            skipped_count: AtomicUsize::new(0),
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

    /// Writes the beginning of a line.
    pub(crate) fn prompt(&self, text: &str) {
        self.clear_progress();
        let mut out = std::io::stderr();
        // Nobody there to read it: then nobody answers either.
        let _ = write!(out, "{text}").and_then(|()| out.flush());
    }

    /// What is typed next, without its end; nothing after Ctrl-D.
    pub(crate) async fn read_line(&self) -> Option<String> {
        let lines = self.input_lines.get_or_init(|| tokio::sync::Mutex::new(spawn_stdin_reader()));
        lines.lock().await.recv().await
    }

    /// Shows how far a call is, to people at a terminal.
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

    /// Takes the bar away.
    pub(crate) fn clear_progress(&self) {
        let mut bar = self.progress_bar.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut bar.is_visible) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn is_interactive(&self) -> bool {
        self.style.is_terminal && std::io::stdin().is_terminal()
    }

    async fn elicit(&self, params: Json) -> InputReply {
        let doc = params.to_doc();
        let message = doc.root().get("message").and_then(|text| text.str()).unwrap_or_default();
        if !self.is_interactive() {
            let which = if self.style.is_terminal { "stdin" } else { "stderr" };
            self.warn(&format!(
                "{} asks `{}`, and nobody can answer: {which} is no terminal",
                self.server_name(),
                sanitize::truncate(&message, 200),
            ));
            return InputReply::Result(form::action_result("cancel"));
        }
        let _turn = self.prompt_lock.lock().await;
        InputReply::Result(form::run_elicitation(self, doc.root()).await)
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

/// One thread reads what is typed for as long as we live: a read that has begun cannot be taken back.
fn spawn_stdin_reader() -> mpsc::Receiver<String> {
    let (tell, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if tell.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl ClientHandler for Prompt {
    fn on_input_request(
        &self,
        question: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let desk = self.0.clone();
        Box::pin(async move {
            match question.kind {
                InputRequestKind::Elicitation => desk.elicit(question.params).await,
                InputRequestKind::Roots => InputReply::Result(roots_result(&desk.roots)),
                InputRequestKind::Sampling => InputReply::Declined("there is no model here".to_owned()),
            }
        })
    }

    fn on_event(&self, news: ConnectionEvent) {
        let desk = &self.0;
        match news {
            ConnectionEvent::Log { level, logger, data } if desk.is_verbose => {
                let logger = logger.map(|logger| format!(" {logger}")).unwrap_or_default();
                let said = super::schema::display_text(&data);
                desk.print(&format!(
                    "{}{}: {}",
                    sanitize::escape_line(&level),
                    sanitize::escape_line(&logger),
                    sanitize::escape_line(&said)
                ));
            }
            ConnectionEvent::Stderr(line) if desk.is_verbose => desk.print(&desk.style.faint(&line)),
            // Something is missing from what is shown.
            ConnectionEvent::ProtocolWarning(warning)
                if desk.is_verbose || warning.kind == WarningKind::SkippedTool =>
            {
                desk.warn(&warning.message)
            }
            // One is worth a look; a server that prints its whole log is not worth a screen of it.
            ConnectionEvent::ProtocolWarning(warning) if warning.kind == WarningKind::SkippedMessage => {
                match desk.skipped_count.fetch_add(1, Ordering::Relaxed) {
                    0 => desk.warn(&warning.message),
                    1 => desk.warn("more of what the server sends is skipped; -v shows all of it"),
                    _ => {}
                }
            }
            ConnectionEvent::Reinitialized(_) if desk.is_verbose => {
                desk.warn("the server forgot us and was greeted again")
            }
            ConnectionEvent::Log { .. }
            | ConnectionEvent::ProtocolWarning(_)
            | ConnectionEvent::Reinitialized(_) => {}
            ConnectionEvent::Stderr(_) | ConnectionEvent::CatalogChanged(_) | ConnectionEvent::Closed(_) => {}
        }
    }
}

/// A desk that can be handed on.
pub(crate) struct Prompt(pub(crate) Arc<Terminal>);

fn roots_result(folders: &[PathBuf]) -> Json {
    Json::object(|out| {
        out.array("roots", folders, |out, folder| {
            let uri = url::Url::from_directory_path(folder).map_or_else(|()| String::new(), String::from);
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            let mut root = json::write::ObjectWriter::new(out);
            root.str("uri", uri.trim_end_matches('/')).maybe_str("name", name.as_deref());
            root.end();
        });
    })
}

#[cfg(test)]
mod tests {
    use super::{Progress, render_progress, roots_result};

    #[test]
    fn a_bar_fits_its_line() {
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

    #[test]
    fn folders_are_named_as_addresses() {
        let folders = ["/data/my files".into()];
        assert_eq!(
            roots_result(&folders).as_str(),
            r#"{"roots":[{"uri":"file:///data/my%20files","name":"my files"}]}"#
        );
    }
}
