//! Ctrl-C: the first cancels the request and closes the connection, the second ends the process at once.
//!
//! A thread of its own listens, so that the second Ctrl-C works while the main thread is busy: reading the data that
//! `--from` serves, or waiting for a program that does not exit.

use std::time::Duration;

use tokio::sync::watch;

use super::error::Exit;
use crate::banner::print_stderr;

pub(crate) struct Interrupt {
    /// `true` after the first Ctrl-C.
    pressed: watch::Receiver<bool>,
}

/// Most servers close faster than this, and then there is nothing to explain.
const HINT_DELAY: Duration = Duration::from_millis(300);

impl Interrupt {
    pub(crate) fn listen() -> Self {
        let (sender, pressed) = watch::channel(false);
        // Without a thread or a signal handler, Ctrl-C keeps its default: it ends the process.
        let _ = std::thread::Builder::new().name("ctrl-c".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(listen(sender));
            }
        });
        Self { pressed }
    }

    /// Returns after the first Ctrl-C.
    pub(crate) async fn wait(&self) {
        // Fails when the thread could not listen: then no Ctrl-C ever arrives here.
        if self.pressed.clone().wait_for(|pressed| *pressed).await.is_err() {
            std::future::pending().await
        }
    }
}

async fn listen(sender: watch::Sender<bool>) {
    if tokio::signal::ctrl_c().await.is_err() {
        return;
    }
    let second = tokio::signal::ctrl_c();
    tokio::pin!(second);
    let _ = sender.send(true);
    let second = tokio::select! {
        second = &mut second => second,
        () = tokio::time::sleep(HINT_DELAY) => {
            print_stderr("interrupted; closing the connection (press Ctrl-C again to end at once)");
            second.await
        }
    };
    if second.is_ok() {
        print_stderr("interrupted twice; ended without closing the connection");
        std::process::exit(Exit::Interrupted as i32);
    }
}
