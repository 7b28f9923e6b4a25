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
use upstream::{Company, News, Progress};
use wire::client::{Answer, Asked, Question};

use super::form;
use super::screen::Screen;
use crate::banner;
use crate::plain;

pub(crate) struct Desk {
    pub(crate) is_verbose: bool,
    pub(crate) screen: Screen,
    roots: Vec<PathBuf>,
    /// Who asks; known once the server has been greeted.
    server: OnceLock<String>,
    /// One question after the other.
    asking: tokio::sync::Mutex<()>,
    lines: OnceLock<tokio::sync::Mutex<mpsc::Receiver<String>>>,
    bar: Mutex<Bar>,
    /// How often something was skipped that the server said.
    skipped: AtomicUsize,
}

#[derive(Default)]
struct Bar {
    shown: bool,
    drawn: Option<Instant>,
}

/// A bar that is drawn more often than this only flickers.
const DRAW_EVERY: Duration = Duration::from_millis(50);
const BAR_COLUMNS: usize = 24;

impl Desk {
    pub(crate) fn new(verbose: u8, roots: Vec<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            is_verbose: verbose > 0,
            screen: Screen::stderr(),
            roots,
            server: OnceLock::new(),
            asking: tokio::sync::Mutex::new(()),
            lines: OnceLock::new(),
            bar: Mutex::default(),
            skipped: AtomicUsize::new(0),
        })
    }

    pub(crate) fn greeted(&self, server: &str) {
        let _ = self.server.set(plain::line(server).into_owned());
    }

    pub(crate) fn server(&self) -> &str {
        self.server.get().map_or("the server", String::as_str)
    }

    pub(crate) fn say(&self, text: &str) {
        self.clear();
        banner::say(text);
    }

    pub(crate) fn warn(&self, text: &str) {
        self.say(render(&Diagnostic::warning(text), banner::in_colour()).trim_end());
    }

    /// Writes the beginning of a line.
    pub(crate) fn prompt(&self, text: &str) {
        self.clear();
        let mut out = std::io::stderr();
        // Nobody there to read it: then nobody answers either.
        let _ = write!(out, "{text}").and_then(|()| out.flush());
    }

    /// What is typed next, without its end; nothing after Ctrl-D.
    pub(crate) async fn line(&self) -> Option<String> {
        let lines = self.lines.get_or_init(|| tokio::sync::Mutex::new(typed()));
        lines.lock().await.recv().await
    }

    /// Shows how far a call is, to people at a terminal.
    pub(crate) fn progress(&self, progress: &Progress) {
        let Some(columns) = self.screen.columns else { return };
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = progress.total.is_some_and(|total| progress.progress >= total);
        if bar.drawn.is_some_and(|drawn| drawn.elapsed() < DRAW_EVERY) && !is_last {
            return;
        }
        bar.drawn = Some(Instant::now());
        bar.shown = true;
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", drawn(progress, columns - 1));
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut bar.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn is_somebody_there(&self) -> bool {
        self.screen.is_terminal && std::io::stdin().is_terminal()
    }

    async fn elicited(&self, params: Json) -> Answer {
        let doc = params.doc();
        let message = doc.root().get("message").and_then(|text| text.str()).unwrap_or_default();
        if !self.is_somebody_there() {
            let which = if self.screen.is_terminal { "stdin" } else { "stderr" };
            self.warn(&format!(
                "{} asks `{}`, and nobody can answer: {which} is no terminal",
                self.server(),
                plain::cut(&message, 200),
            ));
            return Answer::Given(form::action("cancel"));
        }
        let _turn = self.asking.lock().await;
        Answer::Given(form::ask(self, doc.root()).await)
    }
}

/// `[########................] 50/100 half way`
fn drawn(progress: &Progress, columns: usize) -> String {
    let message = progress.message.as_deref().map(|text| plain::line(text).into_owned()).unwrap_or_default();
    let text = match progress.total {
        Some(total) if total > 0.0 => {
            let part = (progress.progress / total).clamp(0.0, 1.0);
            let full = (part * BAR_COLUMNS as f64) as usize;
            let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR_COLUMNS - full));
            format!("[{bar}] {}/{total} {message}", progress.progress)
        }
        Some(_) | None => format!("… {} {message}", progress.progress),
    };
    plain::cut(text.trim_end(), columns).into_owned()
}

/// One thread reads what is typed for as long as we live: a read that has begun cannot be taken back.
fn typed() -> mpsc::Receiver<String> {
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

impl Company for Seat {
    fn asked(&self, question: Question) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let desk = self.0.clone();
        Box::pin(async move {
            match question.kind {
                Asked::Elicitation => desk.elicited(question.params).await,
                Asked::Roots => Answer::Given(roots(&desk.roots)),
                Asked::Sampling => Answer::Refused("there is no model here".to_owned()),
            }
        })
    }

    fn heard(&self, news: News) {
        let desk = &self.0;
        match news {
            News::Log { level, logger, data } if desk.is_verbose => {
                let logger = logger.map(|logger| format!(" {logger}")).unwrap_or_default();
                let said = super::schema::spoken(&data);
                desk.say(&format!("{}{}: {}", plain::line(&level), plain::line(&logger), plain::line(&said)));
            }
            News::Stderr(line) if desk.is_verbose => desk.say(&desk.screen.faint(&line)),
            // Something is missing from what is shown.
            News::Odd(what) if desk.is_verbose || what.contains("is left out") => desk.warn(&what),
            // One is worth a look; a server that prints its whole log is not worth a screen of it.
            News::Odd(what) if what.starts_with("skipped ") => {
                match desk.skipped.fetch_add(1, Ordering::Relaxed) {
                    0 => desk.warn(&what),
                    1 => desk.warn("more of what the server sends is skipped; -v shows all of it"),
                    _ => {}
                }
            }
            News::Again(_) if desk.is_verbose => desk.warn("the server forgot us and was greeted again"),
            News::Log { .. } | News::Odd(_) | News::Again(_) => {}
            News::Stderr(_) | News::Changed(_) | News::Over(_) => {}
        }
    }
}

/// A desk that can be handed on.
pub(crate) struct Seat(pub(crate) Arc<Desk>);

fn roots(folders: &[PathBuf]) -> Json {
    Json::object(|out| {
        out.array("roots", folders, |out, folder| {
            let uri = url::Url::from_directory_path(folder).map_or_else(|()| String::new(), String::from);
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            let mut root = json::write::Object::new(out);
            root.str("uri", uri.trim_end_matches('/')).maybe_str("name", name.as_deref());
            root.end();
        });
    })
}

#[cfg(test)]
mod tests {
    use super::{Progress, drawn, roots};

    #[test]
    fn a_bar_fits_its_line() {
        let check = |progress: f64, total: Option<f64>, message: &str, columns: usize, expected: &str| {
            let message = Some(message.to_owned());
            assert_eq!(drawn(&Progress { progress, total, message }, columns), expected);
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
            roots(&folders).as_str(),
            r#"{"roots":[{"uri":"file:///data/my%20files","name":"my files"}]}"#
        );
    }
}
