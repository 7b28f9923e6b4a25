//! Signals that stop the process: the first lets calls finish, the second does not.

use crate::banner::print_stderr;

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
}

#[cfg(unix)]
impl StopSignals {
    /// Must be called within a runtime.
    pub(super) fn install() -> Option<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupt), Ok(terminate)) => Some(Self { interrupt, terminate }),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(%error, "cannot catch signals; the process ends at once when it is asked to stop");
                None
            }
        }
    }

    async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
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

/// Calls `stop` at the first signal, and ends the process at the second.
pub(super) async fn stop_on_signal(signals: Option<StopSignals>, stop: impl FnOnce()) {
    let Some(mut signals) = signals else { return };
    if signals.next().await == StopSignal::Interrupt {
        print_stderr("stopping when the running calls have finished; press Ctrl-C again to stop at once");
    }
    stop();
    let second = signals.next().await;
    print_stderr("stopped at once; running calls were cut off");
    std::process::exit(second.exit_code());
}
