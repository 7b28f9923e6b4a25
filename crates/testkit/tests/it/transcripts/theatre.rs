//! Where transcripts are played: a server whose clock stands still, its dice loaded, on a runtime of its own.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use call::Provider;
use host::{Config, Server};
use testkit::FakeWorld;
use testkit::bench::Bench;
use testkit::conformance::Conformance;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::script::Script;
use super::stage::Stage;

pub struct Theatre {
    pub server: Arc<Server>,
    pub handle: Handle,
    world: Arc<FakeWorld>,
    clock: Option<mpsc::Sender<Tick>>,
    runtime: Option<JoinHandle<()>>,
}

/// How much time passes, and whom to tell when it has.
type Tick = (Duration, SyncSender<()>);

impl Theatre {
    pub fn open(script: &Script) -> Self {
        let world = Arc::new(FakeWorld::new(1));
        let config = Config {
            name: "transcript".into(),
            version: "1.0.0".into(),
            limits: script.limits.clone(),
            world: world.clone(),
        };
        let providers = script.serves.iter().map(|name| provider(name)).collect();
        let server = Server::new(config, providers).expect("the fixtures fit together");
        let (clock, ticks) = mpsc::channel(1);
        let (tell, told) = sync_channel(1);
        let runtime = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .expect("a runtime needs nothing that could be missing");
            tell.send(runtime.handle().clone()).expect("somebody waits for it");
            runtime.block_on(keep_time(ticks));
            runtime.shutdown_background();
        });
        let handle = told.recv().expect("the runtime starts");
        Self { server, handle, world, clock: Some(clock), runtime: Some(runtime) }
    }

    /// Lets time pass, and everything happen that was due meanwhile.
    pub fn pass(&self, by: Duration) {
        self.world.advance_ms(by.as_millis() as u64);
        let (done, passed) = sync_channel(1);
        let clock = self.clock.as_ref().expect("the clock runs until the theatre closes");
        clock.blocking_send((by, done)).expect("the runtime runs until the theatre closes");
        passed.recv().expect("the runtime tells when time has passed");
    }
}

impl Drop for Theatre {
    fn drop(&mut self) {
        drop(self.clock.take());
        if let Some(runtime) = self.runtime.take() {
            // A panic in there has been shown already.
            let _shown = runtime.join();
        }
    }
}

async fn keep_time(mut ticks: mpsc::Receiver<Tick>) {
    // Paused time jumps to the next timer whenever nothing else is to be done, except while blocking work is
    // under way: then it stands still, and a question to the client does not time out before it is read.
    let (hold, held) = sync_channel::<()>(0);
    tokio::task::spawn_blocking(move || held.recv());
    while let Some((by, done)) = ticks.recv().await {
        settle().await;
        tokio::time::advance(by).await;
        settle().await;
        // Whoever asked may have given up.
        let _gone = done.send(());
    }
    drop(hold);
}

/// Everything that can run has run: each turn of the scheduler takes all that is ready.
async fn settle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

fn provider(name: &str) -> Arc<dyn Provider> {
    match name {
        "conformance" => Arc::new(Conformance::default()),
        "bench" => Arc::new(Bench::default()),
        "stage" => Arc::new(Stage::default()),
        "nothing" => Arc::new(Bench::with_tools(0)),
        _ => panic!("no fixture is called `{name}`"),
    }
}
