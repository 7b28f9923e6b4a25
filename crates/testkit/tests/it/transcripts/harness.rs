//! The server of a transcript: its clock stands still, its random bytes are fixed, and it has its own runtime.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use host::{Config, Server};
use spile_core::Provider;
use testkit::FakePlatform;
use testkit::bench::BenchProvider;
use testkit::conformance::ConformanceProvider;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::stage_provider::TranscriptProvider;
use super::transcript::Transcript;

pub struct Harness {
    pub server: Arc<Server>,
    pub handle: Handle,
    platform: Arc<FakePlatform>,
    clock: Option<mpsc::Sender<Tick>>,
    runtime: Option<JoinHandle<()>>,
}

/// How much time passes, and whom to notify afterwards.
type Tick = (Duration, SyncSender<()>);

impl Harness {
    pub fn start(script: &Transcript) -> Self {
        let platform = Arc::new(FakePlatform::new(1));
        let config = Config::new("transcript", "1.0.0", script.limits.clone(), platform.clone());
        let providers = script.providers.iter().map(|name| provider(name)).collect();
        let server = Server::new(config, providers);
        let (clock, ticks) = mpsc::channel(1);
        let (tell, told) = sync_channel(1);
        let runtime = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .expect("a runtime needs nothing that could be missing");
            tell.send(runtime.handle().clone()).expect("the test waits for the handle");
            runtime.block_on(run_clock(ticks));
            runtime.shutdown_background();
        });
        let handle = told.recv().expect("the runtime starts");
        Self { server, handle, platform, clock: Some(clock), runtime: Some(runtime) }
    }

    /// Lets time pass, and runs everything that becomes due.
    pub fn advance_time(&self, by: Duration) {
        self.platform.advance_ms(by.as_millis() as u64);
        let (done, passed) = sync_channel(1);
        let clock = self.clock.as_ref().expect("the clock runs until the harness is dropped");
        clock.blocking_send((by, done)).expect("the runtime runs until the harness is dropped");
        passed.recv().expect("the runtime tells when time has passed");
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        drop(self.clock.take());
        if let Some(runtime) = self.runtime.take() {
            // A panic in the thread has been printed already.
            let _shown = runtime.join();
        }
    }
}

async fn run_clock(mut ticks: mpsc::Receiver<Tick>) {
    // Paused time jumps to the next timer when nothing else can run, except while blocking work runs: then it stands still,
    // and an input request does not time out before the client reads it.
    let (hold, held) = sync_channel::<()>(0);
    tokio::task::spawn_blocking(move || held.recv());
    while let Some((by, done)) = ticks.recv().await {
        run_until_idle().await;
        tokio::time::advance(by).await;
        run_until_idle().await;
        // The receiver may have given up.
        let _gone = done.send(());
    }
    drop(hold);
}

/// Runs everything that can run: each turn of the scheduler takes all ready tasks.
async fn run_until_idle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

fn provider(name: &str) -> Arc<dyn Provider> {
    match name {
        "conformance" => Arc::new(ConformanceProvider::default()),
        "bench" => Arc::new(BenchProvider::default()),
        "stage" => Arc::new(TranscriptProvider::default()),
        "nothing" => Arc::new(BenchProvider::with_tools(0)),
        _ => panic!("no fixture is called `{name}`"),
    }
}
