//! Our client and our server, connected in memory, on one clock that the test moves.
//!
//! Bytes are split, delayed and lost, requests overtake each other, servers are older than they claim or violate the
//! protocol, and a user calls, cancels, answers and leaves. Whatever happens: each request ends once, with its own
//! result; each round of a call starts once; a cancelled call stops and its result is not delivered; neither side sends
//! a message that the other must refuse; both use the newest version that both support; and in the end no state is left
//! on either side.

mod caller;
mod http;
mod legacy_server;
mod model;
mod pipe;

use std::sync::Arc;
use std::time::Duration;

use host::{Config, Server};
use spile_core::{CatalogChange, ClientCapabilities, Limits};
use wire::client::{Action, Client, ClientOptions, TransportKind, VersionPolicy};
use wire::version::{Feature, Version};

use self::http::SimulatedHttp;
use self::legacy_server::KnownVersions;
use self::model::PairModel;
use self::pipe::SimulatedPipe;
use super::FuzzInput;
use super::scripted_provider::ScriptedProvider;
use crate::FakePlatform;

/// The input that a seed stands for.
pub fn input_for_seed(seed: u64) -> Vec<u8> {
    use spile_core::Platform as _;
    let platform = FakePlatform::new(seed);
    let mut len = [0];
    platform.fill_random(&mut len);
    let mut data = vec![0; 40 + usize::from(len[0])];
    platform.fill_random(&mut data);
    data
}

/// Runs the simulation that `data` encodes. `advance` moves the runtime's clock, which must be paused.
pub async fn pair(data: &[u8], advance: impl AsyncFn(Duration)) {
    let mut input = FuzzInput::new(data);
    let mut simulation = PairSimulation::new(&mut input);
    simulation.client.start(simulation.now_ms);
    simulation.check_state(&mut input).await;
    while !input.is_exhausted() && !simulation.client.is_closed() {
        simulation.step(&mut input, &advance).await;
    }
    simulation.finish(&mut input, &advance).await;
}

struct PairSimulation {
    now_ms: u64,
    platform: Arc<FakePlatform>,
    provider: Arc<ScriptedProvider>,
    server: Arc<Server>,
    client: Client,
    link: SimulatedLink,
    model: PairModel,
    end_mode: EndMode,
    has_frequent_faults: bool,
}

/// The transport between the two.
enum SimulatedLink {
    Pipe(SimulatedPipe),
    Http(SimulatedHttp),
}

/// How a simulation ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndMode {
    /// Waits for every call.
    WhenIdle,
    /// In the middle of calls.
    Immediately,
}

const VERSION_PREFERENCES: [VersionPolicy; 7] = [
    VersionPolicy::Any,
    VersionPolicy::HandshakeOnly,
    VersionPolicy::Only(Version::V2024_11_05),
    VersionPolicy::Only(Version::V2025_03_26),
    VersionPolicy::Only(Version::V2025_06_18),
    VersionPolicy::Only(Version::V2025_11_25),
    VersionPolicy::Only(Version::V2026_07_28),
];

/// The newest version that both support.
fn expected_version(speak: VersionPolicy, knows: KnownVersions) -> Option<Version> {
    let spoken = |version: &Version| match speak {
        VersionPolicy::Any => true,
        VersionPolicy::Only(only) => *version == only,
        VersionPolicy::HandshakeOnly => version.has(Feature::Handshake),
    };
    let known = |version: &Version| match knows {
        KnownVersions::All => true,
        KnownVersions::Only(only) => *version == only,
    };
    Version::ALL.iter().map(|(version, _)| *version).filter(spoken).filter(known).max()
}

impl PairSimulation {
    fn new(input: &mut FuzzInput<'_>) -> Self {
        let speak = if input.one_in(2) { input.choose(&VERSION_PREFERENCES) } else { VersionPolicy::Any };
        let knows = KnownVersions::pick(input);
        let is_tight = input.one_in(4);
        let capabilities =
            if input.one_in(5) { ClientCapabilities::NONE } else { ClientCapabilities::ELICITATION_FORM };
        let link = if input.one_in(2) { TransportKind::Http } else { TransportKind::Pipe };
        let end_mode = if input.one_in(3) { EndMode::Immediately } else { EndMode::WhenIdle };
        let mirrors = input.one_in(2);
        let has_frequent_faults = input.one_in(3);

        let (mut terms, mut limits) = (
            ClientOptions { capabilities, version_policy: speak, ..ClientOptions::default() },
            Limits::default(),
        );
        if is_tight {
            (terms.calls_max, terms.input_requests_max) = (5, 2);
            (limits.calls_per_connection_max, limits.stream_events_max) = (3, 3);
        }
        let platform = Arc::new(FakePlatform::new(1));
        let provider = Arc::new(if mirrors {
            ScriptedProvider::with_header_param()
        } else {
            ScriptedProvider::default()
        });
        let config = Config::new("pair", "1", limits, platform.clone());
        let server = Server::new(config, vec![provider.clone()]);
        let simulated = match link {
            TransportKind::Pipe => SimulatedLink::Pipe(SimulatedPipe::new(&server, knows, input)),
            TransportKind::Http => SimulatedLink::Http(SimulatedHttp::new(&server, knows, input)),
        };
        let model = PairModel::new(provider.clone(), link, expected_version(speak, knows), is_tight, &terms);
        let client = Client::new(terms, link);
        Self {
            now_ms: 0,
            platform,
            provider,
            server,
            client,
            link: simulated,
            model,
            end_mode,
            has_frequent_faults,
        }
    }

    async fn step(&mut self, input: &mut FuzzInput<'_>, advance: &impl AsyncFn(Duration)) {
        // In some simulations connections break often.
        if self.has_frequent_faults && input.one_in(4) {
            self.inject_fault(input);
            return self.check_state(input).await;
        }
        match input.below(17) {
            0..=4 => self.act_as_caller(input),
            5..=12 => {
                self.deliver(input);
            }
            13 | 14 => self.inject_fault(input),
            _ => {
                let ms = input.choose(&[10, 1, 200, 1000, 2000, 3000, 1000, 2000, 10, 31_000]);
                self.advance_time(ms, advance).await;
            }
        }
        self.check_state(input).await;
    }

    async fn advance_time(&mut self, ms: u64, advance: &impl AsyncFn(Duration)) {
        self.now_ms += ms;
        self.platform.advance_ms(ms);
        // Four waits of a second have ended after a minute.
        let steps = (ms / 1000).min(4);
        for _ in 0..steps {
            advance(Duration::from_secs(1)).await;
            run_until_idle().await;
        }
        advance(Duration::from_millis(ms - 1000 * steps)).await;
        self.client.tick(self.now_ms);
    }

    /// Delivers something on its way; `false` if nothing is.
    fn deliver(&mut self, input: &mut FuzzInput<'_>) -> bool {
        let Self { link: joint, client, model, now_ms: now, .. } = self;
        match joint {
            SimulatedLink::Pipe(pipe) => pipe.deliver(client, model, *now, input),
            SimulatedLink::Http(http) => http.deliver(client, model, *now, input),
        }
    }

    fn inject_fault(&mut self, input: &mut FuzzInput<'_>) {
        match (&mut self.link, input.below(8)) {
            (_, 0) => self.provider.notify(CatalogChange::Tools),
            (_, 1) => self.provider.notify(CatalogChange::Resource("a:b".into())),
            (SimulatedLink::Http(http), 2..=6) => {
                http.break_connection(&mut self.client, &mut self.model, self.now_ms, input)
            }
            (SimulatedLink::Http(http), _) => http.forget_session(&mut self.model),
            (SimulatedLink::Pipe(_), _) => {}
        }
    }

    /// Runs everything that can run, delivers the results and checks them against the model.
    async fn check_state(&mut self, input: &mut FuzzInput<'_>) {
        run_until_idle().await;
        while let Some(todo) = self.client.next_action() {
            match (&mut self.link, todo) {
                (SimulatedLink::Pipe(pipe), Action::Send(send)) => {
                    self.model.client_sent(&send.body);
                    pipe.write_from_client(&send.body);
                }
                (SimulatedLink::Pipe(_), other) => panic!("not for a pipe: {other:?}"),
                (SimulatedLink::Http(http), todo) => {
                    if let Action::Send(send) = &todo {
                        self.model.client_sent(&send.body);
                    }
                    http.send(todo, &mut self.model, self.now_ms);
                }
            }
        }
        while let Some(event) = self.client.next_event() {
            self.model.client_event(event, self.now_ms);
        }
        // Calls cancelled just now stop now.
        run_until_idle().await;
        if let SimulatedLink::Pipe(pipe) = &mut self.link {
            pipe.collect_output(&mut self.model, self.now_ms, input);
        }
        self.model.check_consistent(&self.client);
    }

    async fn finish(mut self, input: &mut FuzzInput<'_>, advance: &impl AsyncFn(Duration)) {
        if self.end_mode == EndMode::WhenIdle {
            self.wait_until_idle(input, advance).await;
        }
        match &mut self.link {
            SimulatedLink::Pipe(pipe) => pipe.close(&mut self.client, &mut self.model, self.now_ms, input),
            SimulatedLink::Http(http) => http.close(&self.client),
        }
        self.check_state(input).await;
        self.model.mark_closing();
        self.client.connection_closed("the peer left");
        self.check_state(input).await;
        self.link.drop_all();
        self.server.close();
        run_until_idle().await;
        self.model.check_final_state(&self.client);
        let status = self.server.status();
        let left = (status.sessions, status.calls_active, status.subscriptions);
        assert_eq!(left, (0, 0, 0), "the server still has state");
        let notes = self.provider.log();
        assert!(notes.running.values().all(|count| *count == 0), "work goes on: {:?}", notes.running);
    }

    /// Everything ends as long as the link is up and time passes.
    async fn wait_until_idle(&mut self, input: &mut FuzzInput<'_>, advance: &impl AsyncFn(Duration)) {
        for ms in [10, 1000, 3000, 31_000, 31_000, 601_000, 31_000, 3000].into_iter().flat_map(|ms| [ms; 4]) {
            for _ in 0..5000 {
                let had_questions = self.answer_all();
                let moved = self.deliver(input);
                self.check_state(input).await;
                if !moved && !had_questions {
                    break;
                }
            }
            let is_idle = self.client.server_info().is_some() && self.model.all_ended() && !self.is_working();
            if self.client.is_closed() || is_idle {
                break;
            }
            self.advance_time(ms, advance).await;
            self.check_state(input).await;
        }
        self.cancel_subscriptions();
        self.check_state(input).await;
        while self.deliver(input) {
            self.check_state(input).await;
        }
        if !self.client.is_closed() {
            self.model.check_all_ended();
            let running = &self.provider.log().running;
            assert!(running.values().all(|count| *count == 0), "calls run on without a caller: {running:?}");
        }
    }

    fn is_working(&self) -> bool {
        self.provider.log().running.values().any(|count| *count > 0)
    }
}

impl SimulatedLink {
    fn drop_all(&mut self) {
        match self {
            Self::Pipe(pipe) => pipe.drop_all(),
            Self::Http(http) => http.drop_all(),
        }
    }
}

/// Runs everything that can run.
async fn run_until_idle() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}
