//! Signals. SIGINT and SIGTERM stop the process: the first lets calls finish, the second does not. SIGHUP reloads.

use crate::notice;
use crate::reload::ReloadRequester;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopSignal {
    /// Ctrl-C
    Interrupt,
    #[cfg(unix)]
    Terminate,
}

impl StopSignal {
    /// What shells report for a process that this signal ended.
    fn exit_code(self) -> i32 {
        match self {
            Self::Interrupt => 130,
            #[cfg(unix)]
            Self::Terminate => 143,
        }
    }
}

/// Signals that ask the process to stop. The process catches them from the moment this exists.
#[cfg(unix)]
pub(super) struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// SIGHUP of a terminal that was closed.
    hangup: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl StopSignals {
    /// Must be called within a runtime.
    pub(super) fn install() -> Option<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupt), Ok(terminate)) => {
                let hangup = is_in_terminal().then(|| signal(SignalKind::hangup()).ok()).flatten();
                Some(Self { interrupt, terminate, hangup })
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(%error, "cannot install a signal handler; Ctrl-C stops the server immediately");
                None
            }
        }
    }

    async fn next(&mut self) -> StopSignal {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = hangup => StopSignal::Terminate,
        }
    }
}

#[cfg(not(unix))]
pub(super) struct StopSignals;

#[cfg(not(unix))]
impl StopSignals {
    pub(super) fn install() -> Option<Self> {
        Some(Self)
    }

    async fn next(&mut self) -> StopSignal {
        if tokio::signal::ctrl_c().await.is_err() {
            return std::future::pending().await;
        }
        StopSignal::Interrupt
    }
}

/// Graceful shutdown: calls `stop` at the first signal, so that running calls finish, and ends the process at the second.
pub(super) async fn stop_on_signal(signals: Option<StopSignals>, stop: impl FnOnce()) {
    let Some(mut signals) = signals else { return };
    if signals.next().await == StopSignal::Interrupt {
        notice::info("stopping after running calls, if any; press Ctrl-C again to stop at once");
    }
    stop();
    let second = signals.next().await;
    notice::info("stopped at once; running calls were aborted");
    std::process::exit(second.exit_code());
}

/// Reloads all projects at every SIGHUP, as daemons do. In a terminal SIGHUP means that the terminal was closed, and
/// stops the process as SIGTERM does.
#[cfg(unix)]
pub(super) async fn reload_on_signal(reload_signals: Option<ReloadSignals>, requester: ReloadRequester) {
    let Some(mut reload_signals) = reload_signals else { return };
    while reload_signals.0.recv().await.is_some() {
        tracing::info!("SIGHUP: reloading");
        requester.request();
    }
}

#[cfg(not(unix))]
pub(super) async fn reload_on_signal(_: Option<ReloadSignals>, _: ReloadRequester) {}

/// The SIGHUPs that ask for a reload. The process catches them from the moment this exists.
#[cfg(unix)]
pub(super) struct ReloadSignals(tokio::signal::unix::Signal);

#[cfg(not(unix))]
pub(super) struct ReloadSignals;

impl ReloadSignals {
    /// `None` in a terminal. Must be called within a runtime.
    #[cfg(unix)]
    pub(super) fn install() -> Option<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        if is_in_terminal() {
            return None;
        }
        match signal(SignalKind::hangup()) {
            Ok(signal) => Some(Self(signal)),
            Err(error) => {
                tracing::warn!(%error, "cannot catch SIGHUP; it ends the process at once");
                None
            }
        }
    }

    #[cfg(not(unix))]
    pub(super) fn install() -> Option<Self> {
        None
    }
}

#[cfg(unix)]
fn is_in_terminal() -> bool {
    use std::io::IsTerminal;
    std::io::stdin().is_terminal() || std::io::stderr().is_terminal()
}
