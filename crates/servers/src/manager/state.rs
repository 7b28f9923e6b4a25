//! The states of one connection, as a function of state, event and time. No I/O, no clock.
//!
//! ```text
//! disconnected ──wanted──▶ connecting ──opened──▶ connected
//!                             │  ▲                  │ lost
//!                      failed │  │ the wait is over ▼
//!                             └──▶ reconnecting ◀───┘      1 s, 2 s, 4 s … 30 s, with jitter
//!                                      │ five failed attempts
//!                                      ▼
//!                                    error ──wanted──▶ connecting: one more attempt
//! ```
//!
//! A connection that breaks is no failed attempt, unless this happens again and again: a server that crashes as soon as it is
//! connected is given up after five times.
//!
//! Connected, error and reconnecting are the closed, open and half-open states of a circuit breaker: there is never
//! more than one attempt at a time. A connection that was stable clears the count of failures, so that a server that
//! crashes once a day is never given up. Disabled and needs-auth are left only when the user acts.

/// How often and how long to try.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// The wait after the first failure. It doubles with each further one.
    pub backoff_min_ms: u64,
    pub backoff_max_ms: u64,
    /// So many failed attempts end in an error, and so many connections that broke soon.
    pub attempts_max: u32,
    /// A connection that lasted so long clears the count of failures.
    pub stable_ms: u64,
    /// A server may ask to be left alone for so long, and not longer.
    pub retry_after_max_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            backoff_min_ms: 1000,
            backoff_max_ms: 30_000,
            attempts_max: 5,
            stable_ms: 5 * 60 * 1000,
            retry_after_max_ms: 10 * 60 * 1000,
        }
    }
}

/// The state, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Not connected, and no call has needed it yet.
    Disconnected,
    Connecting,
    Connected,
    /// Waiting for the next attempt, or in it.
    Reconnecting,
    /// The server wants the user to sign in.
    NeedsAuth,
    /// Given up; the next use is one more attempt.
    Error,
    Disabled,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Reconnecting => "reconnecting",
            Self::NeedsAuth => "needs auth",
            Self::Error => "error",
            Self::Disabled => "disabled",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A caller needs the server.
    Wanted,
    /// Somebody reads what the servers offer. Nobody can call a server that was never connected, so this is its use.
    LookedAt,
    /// The attempt succeeded.
    Opened,
    /// The attempt failed.
    Failed(Failure),
    /// The connection broke.
    Lost,
    /// The server no longer accepts our credentials.
    Unauthorized,
    /// The deadline has passed.
    TimePassed,
    /// The user wants an attempt now.
    Retry,
    /// The user signed in.
    SignedIn,
    Disable,
    Enable,
}

/// Why an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Another attempt may succeed.
    Transient,
    /// The server says when it wants to be asked again (`Retry-After`).
    Busy { retry_after_ms: u64 },
    /// HTTP 401 or 403. Trying again with the same credentials only annoys the server.
    Unauthorized,
    /// Nothing will change by itself: an unset variable, a program that does not exist, no common version.
    Permanent,
}

/// What the driver must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Start an attempt. There is none at present.
    Open,
    /// End the connection or the attempt.
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Disconnected,
    Connecting,
    Connected { since_ms: u64 },
    Waiting { until_ms: u64 },
    Retrying,
    NeedsAuth,
    Error { since_ms: u64 },
    Disabled,
}

/// One connection.
#[derive(Debug, Clone)]
pub struct UpstreamState {
    policy: RetryPolicy,
    phase: Phase,
    /// Since the last stable connection: attempts that failed.
    failures: u32,
    /// Connections that broke before they were stable.
    breaks: u32,
    /// How often it has waited.
    waits: u32,
    was_connected: bool,
}

impl UpstreamState {
    pub fn new(policy: RetryPolicy) -> Self {
        Self { policy, phase: Phase::Disconnected, failures: 0, breaks: 0, waits: 0, was_connected: false }
    }

    pub fn status(&self) -> Status {
        match self.phase {
            Phase::Disconnected => Status::Disconnected,
            Phase::Connecting => Status::Connecting,
            Phase::Connected { .. } => Status::Connected,
            Phase::Waiting { .. } | Phase::Retrying => Status::Reconnecting,
            Phase::NeedsAuth => Status::NeedsAuth,
            Phase::Error { .. } => Status::Error,
            Phase::Disabled => Status::Disabled,
        }
    }

    /// When [`Event::TimePassed`] is due.
    pub fn deadline_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Waiting { until_ms } => Some(until_ms),
            Phase::Connected { since_ms } if self.has_history() => Some(since_ms + self.policy.stable_ms),
            Phase::Connected { .. }
            | Phase::Disconnected
            | Phase::Connecting
            | Phase::Retrying
            | Phase::NeedsAuth
            | Phase::Error { .. }
            | Phase::Disabled => None,
        }
    }

    /// `random` spreads the attempts of many connections that broke together.
    pub fn apply(&mut self, event: Event, now_ms: u64, random: u32) -> Step {
        match (self.phase, event) {
            (Phase::Disabled, Event::Enable) => self.enter(Phase::Disconnected, Step::Nothing),
            // An attempt that was under way ends after the server was disabled.
            (Phase::Disabled, Event::Opened) => Step::Close,
            (Phase::Disabled, _) => Step::Nothing,
            (_, Event::Disable) => {
                self.forget_failures();
                self.enter(Phase::Disabled, Step::Close)
            }
            (_, Event::Enable) => Step::Nothing,

            (Phase::Connecting | Phase::Retrying, Event::Opened) => {
                self.was_connected = true;
                self.enter(Phase::Connected { since_ms: now_ms }, Step::Nothing)
            }
            (Phase::Connecting | Phase::Retrying, Event::Failed(failure)) => match failure {
                Failure::Unauthorized => self.enter(Phase::NeedsAuth, Step::Nothing),
                Failure::Permanent => {
                    self.failures = self.policy.attempts_max;
                    self.enter(Phase::Error { since_ms: now_ms }, Step::Nothing)
                }
                Failure::Transient => self.failed(now_ms, random, 0),
                Failure::Busy { retry_after_ms } => {
                    self.failed(now_ms, random, retry_after_ms.min(self.policy.retry_after_max_ms))
                }
            },
            (Phase::Connecting | Phase::Retrying, _) => Step::Nothing,

            (Phase::Connected { since_ms }, Event::Lost) => {
                match now_ms.saturating_sub(since_ms) >= self.policy.stable_ms {
                    true => self.forget_failures(),
                    false => self.breaks = self.breaks.saturating_add(1),
                }
                match self.breaks >= self.policy.attempts_max {
                    true => self.enter(Phase::Error { since_ms: now_ms }, Step::Close),
                    false => self.wait(now_ms, random, 0, Step::Close),
                }
            }
            (Phase::Connected { .. }, Event::Unauthorized) => self.enter(Phase::NeedsAuth, Step::Close),
            (Phase::Connected { since_ms }, Event::TimePassed) => {
                if now_ms.saturating_sub(since_ms) >= self.policy.stable_ms {
                    self.forget_failures();
                }
                Step::Nothing
            }
            (Phase::Connected { .. }, _) => Step::Nothing,

            (Phase::Waiting { until_ms }, Event::TimePassed) if now_ms >= until_ms => {
                self.enter(Phase::Retrying, Step::Open)
            }
            (_, Event::Retry | Event::SignedIn) => {
                self.forget_failures();
                self.enter(Phase::Connecting, Step::Open)
            }
            (Phase::Disconnected, Event::Wanted) => self.enter(Phase::Connecting, Step::Open),
            // A caller that asks again and again must not start a process each time.
            (Phase::Error { since_ms }, Event::Wanted)
                if now_ms.saturating_sub(since_ms) >= self.policy.backoff_min_ms =>
            {
                self.enter(Phase::Connecting, Step::Open)
            }
            // As seldom as a server that may come back is tried.
            (Phase::Error { since_ms }, Event::LookedAt)
                if !self.was_connected && now_ms.saturating_sub(since_ms) >= self.policy.backoff_max_ms =>
            {
                self.enter(Phase::Connecting, Step::Open)
            }
            (Phase::Disconnected | Phase::Waiting { .. } | Phase::NeedsAuth | Phase::Error { .. }, _) => {
                Step::Nothing
            }
        }
    }

    fn enter(&mut self, phase: Phase, step: Step) -> Step {
        self.phase = phase;
        step
    }

    fn has_history(&self) -> bool {
        self.failures > 0 || self.breaks > 0 || self.waits > 0
    }

    fn forget_failures(&mut self) {
        (self.failures, self.breaks, self.waits) = (0, 0, 0);
    }

    /// An attempt failed.
    fn failed(&mut self, now_ms: u64, random: u32, at_least_ms: u64) -> Step {
        self.failures = self.failures.saturating_add(1);
        match self.failures >= self.policy.attempts_max {
            true => self.enter(Phase::Error { since_ms: now_ms }, Step::Nothing),
            false => self.wait(now_ms, random, at_least_ms, Step::Nothing),
        }
    }

    /// Waits twice as long as before, and at least as long as the server wants.
    fn wait(&mut self, now_ms: u64, random: u32, at_least_ms: u64, step: Step) -> Step {
        let doubled = self.policy.backoff_min_ms << self.waits.min(16);
        self.waits = self.waits.saturating_add(1);
        let longest = doubled.min(self.policy.backoff_max_ms);
        let jitter = (longest / 4) * u64::from(random) / u64::from(u32::MAX);
        // Jitter comes on top of what the server wants: many clients were told the same.
        let wait_ms = (longest + jitter)
            .min(self.policy.backoff_max_ms)
            .max(at_least_ms + jitter * u64::from(at_least_ms > 0));
        self.enter(Phase::Waiting { until_ms: now_ms + wait_ms }, step)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, proptest};
    use proptest::{prop_assert, prop_oneof};

    use super::{Event, Failure, RetryPolicy, Status, Step, UpstreamState};

    /// One line for each event: when, what, and what followed.
    fn check(events: &[(u64, Event)], expected: &str) {
        let mut state = UpstreamState::new(RetryPolicy::default());
        let mut lines = Vec::new();
        for (now_ms, event) in events {
            let step = state.apply(*event, *now_ms, 0);
            let due = state.deadline_ms().map(|due| format!(" until {due}")).unwrap_or_default();
            let step = if step == Step::Nothing { String::new() } else { format!(", {step:?}") };
            lines.push(format!("{now_ms} {event:?} → {}{due}{step}", state.status().name()));
        }
        let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
        assert_eq!(lines, expected);
    }

    const TRANSIENT: Event = Event::Failed(Failure::Transient);

    #[test]
    fn a_server_that_never_comes_up_is_tried_five_times() {
        check(
            &[
                (0, Event::Wanted),
                (10, TRANSIENT),
                (1010, Event::TimePassed),
                (1020, TRANSIENT),
                (2000, Event::TimePassed),
                (3020, Event::TimePassed),
                (3030, TRANSIENT),
                (7030, Event::TimePassed),
                (7040, TRANSIENT),
                (15040, Event::TimePassed),
                (15050, TRANSIENT),
            ],
            "0 Wanted → connecting, Open
             10 Failed(Transient) → reconnecting until 1010
             1010 TimePassed → reconnecting, Open
             1020 Failed(Transient) → reconnecting until 3020
             2000 TimePassed → reconnecting until 3020
             3020 TimePassed → reconnecting, Open
             3030 Failed(Transient) → reconnecting until 7030
             7030 TimePassed → reconnecting, Open
             7040 Failed(Transient) → reconnecting until 15040
             15040 TimePassed → reconnecting, Open
             15050 Failed(Transient) → error",
        );
    }

    #[test]
    fn after_an_error_each_use_is_one_more_attempt() {
        let mut events = vec![(0, Event::Wanted), (0, Event::Failed(Failure::Permanent))];
        events.extend([
            (500, Event::Wanted),
            (1000, Event::Wanted),
            (1001, Event::Wanted),
            (1100, TRANSIENT),
            (9000, Event::Wanted),
            (9001, Event::Opened),
        ]);
        check(
            &events,
            "0 Wanted → connecting, Open
             0 Failed(Permanent) → error
             500 Wanted → error
             1000 Wanted → connecting, Open
             1001 Wanted → connecting
             1100 Failed(Transient) → error
             9000 Wanted → connecting, Open
             9001 Opened → connected until 309001",
        );
    }

    #[test]
    fn a_connection_that_breaks_gets_five_attempts() {
        let mut events = vec![(0, Event::Wanted), (0, Event::Opened), (400_000, Event::Lost)];
        for now in [401_000, 403_000, 407_000, 415_000, 431_000] {
            events.extend([(now, Event::TimePassed), (now, TRANSIENT)]);
        }
        check(
            &events,
            "0 Wanted → connecting, Open
             0 Opened → connected
             400000 Lost → reconnecting until 401000, Close
             401000 TimePassed → reconnecting, Open
             401000 Failed(Transient) → reconnecting until 403000
             403000 TimePassed → reconnecting, Open
             403000 Failed(Transient) → reconnecting until 407000
             407000 TimePassed → reconnecting, Open
             407000 Failed(Transient) → reconnecting until 415000
             415000 TimePassed → reconnecting, Open
             415000 Failed(Transient) → reconnecting until 431000
             431000 TimePassed → reconnecting, Open
             431000 Failed(Transient) → error",
        );
    }

    #[test]
    fn a_server_that_was_never_connected_is_tried_when_somebody_looks() {
        check(
            &[
                (0, Event::LookedAt),
                (0, Event::Wanted),
                (0, Event::Failed(Failure::Permanent)),
                (29_999, Event::LookedAt),
                (30_000, Event::LookedAt),
                (30_001, Event::LookedAt),
                (30_002, TRANSIENT),
                (60_001, Event::LookedAt),
                (60_002, Event::LookedAt),
                (60_003, Event::Opened),
                (400_000, Event::Lost),
                (400_001, Event::LookedAt),
            ],
            "0 LookedAt → disconnected
             0 Wanted → connecting, Open
             0 Failed(Permanent) → error
             29999 LookedAt → error
             30000 LookedAt → connecting, Open
             30001 LookedAt → connecting
             30002 Failed(Transient) → error
             60001 LookedAt → error
             60002 LookedAt → connecting, Open
             60003 Opened → connected until 360003
             400000 Lost → reconnecting until 401000, Close
             400001 LookedAt → reconnecting until 401000",
        );
        let mut state = UpstreamState::new(RetryPolicy::default());
        let was_connected =
            [(0, Event::Wanted), (0, Event::Opened), (1, Event::Lost), (2000, Event::TimePassed)];
        for (now, event) in was_connected {
            state.apply(event, now, 0);
        }
        state.apply(Event::Failed(Failure::Permanent), 2000, 0);
        state.apply(Event::LookedAt, 999_999, 0);
        assert_eq!(state.status(), Status::Error, "its next call tries again");
    }

    #[test]
    fn a_busy_server_is_asked_again_when_it_wants() {
        let busy = |retry_after_ms| Event::Failed(Failure::Busy { retry_after_ms });
        check(
            &[
                (0, Event::Wanted),
                (0, busy(0)),
                (1000, Event::TimePassed),
                (1000, busy(45_000)),
                (46_000, Event::TimePassed),
                (46_000, busy(u64::MAX)),
            ],
            "0 Wanted → connecting, Open
             0 Failed(Busy { retry_after_ms: 0 }) → reconnecting until 1000
             1000 TimePassed → reconnecting, Open
             1000 Failed(Busy { retry_after_ms: 45000 }) → reconnecting until 46000
             46000 TimePassed → reconnecting, Open
             46000 Failed(Busy { retry_after_ms: 18446744073709551615 }) → reconnecting until 646000",
        );
    }

    #[test]
    fn a_stable_connection_clears_the_failures() {
        check(
            &[
                (0, Event::Wanted),
                (0, TRANSIENT),
                (1000, Event::TimePassed),
                (1000, Event::Opened),
                (2000, Event::Lost),
                (4000, Event::TimePassed),
                (4000, Event::Opened),
                (304_000, Event::TimePassed),
                (900_000, Event::Lost),
            ],
            "0 Wanted → connecting, Open
             0 Failed(Transient) → reconnecting until 1000
             1000 TimePassed → reconnecting, Open
             1000 Opened → connected until 301000
             2000 Lost → reconnecting until 4000, Close
             4000 TimePassed → reconnecting, Open
             4000 Opened → connected until 304000
             304000 TimePassed → connected
             900000 Lost → reconnecting until 901000, Close",
        );
    }

    #[test]
    fn a_server_that_crashes_right_after_it_connects_is_given_up() {
        let mut events = vec![(0, Event::Wanted)];
        for now in [100_000, 200_000, 300_000, 400_000, 500_000] {
            events.extend([(now, Event::TimePassed), (now, Event::Opened), (now + 1, Event::Lost)]);
        }
        let mut state = UpstreamState::new(RetryPolicy::default());
        for (now, event) in events {
            state.apply(event, now, 0);
        }
        assert_eq!(state.status(), Status::Error);
    }

    #[test]
    fn credentials_are_not_tried_again_and_again() {
        check(
            &[
                (0, Event::Wanted),
                (1, Event::Failed(Failure::Unauthorized)),
                (2, Event::Wanted),
                (99_999, Event::TimePassed),
                (100_000, Event::SignedIn),
                (100_001, Event::Opened),
                (100_002, Event::Unauthorized),
                (100_003, Event::Retry),
            ],
            "0 Wanted → connecting, Open
             1 Failed(Unauthorized) → needs auth
             2 Wanted → needs auth
             99999 TimePassed → needs auth
             100000 SignedIn → connecting, Open
             100001 Opened → connected
             100002 Unauthorized → needs auth, Close
             100003 Retry → connecting, Open",
        );
    }

    #[test]
    fn a_disabled_server_stays_so_until_it_is_enabled() {
        check(
            &[
                (0, Event::Wanted),
                (1, Event::Disable),
                (2, Event::Opened),
                (3, Event::Wanted),
                (4, Event::Retry),
                (5, Event::SignedIn),
                (6, Event::TimePassed),
                (7, Event::Enable),
                (8, Event::Enable),
                (9, Event::Wanted),
            ],
            "0 Wanted → connecting, Open
             1 Disable → disabled, Close
             2 Opened → disabled, Close
             3 Wanted → disabled
             4 Retry → disabled
             5 SignedIn → disabled
             6 TimePassed → disabled
             7 Enable → disconnected
             8 Enable → disconnected
             9 Wanted → connecting, Open",
        );
    }

    fn events() -> impl Strategy<Value = Vec<(u64, Event, u32)>> {
        let event = prop_oneof![
            Just(Event::Wanted),
            Just(Event::LookedAt),
            Just(Event::Opened),
            Just(TRANSIENT),
            Just(Event::Failed(Failure::Unauthorized)),
            Just(Event::Failed(Failure::Permanent)),
            any::<u64>().prop_map(|retry_after_ms| Event::Failed(Failure::Busy { retry_after_ms })),
            Just(Event::Lost),
            Just(Event::Unauthorized),
            Just(Event::TimePassed),
            Just(Event::Retry),
            Just(Event::SignedIn),
            Just(Event::Disable),
            Just(Event::Enable),
        ];
        proptest::collection::vec((0..400_000u64, event, any::<u32>()), 0..60)
    }

    proptest! {
        #[test]
        fn there_is_never_more_than_one_attempt_and_waits_are_within_bounds(events in events()) {
            let policy = RetryPolicy::default();
            let mut state = UpstreamState::new(policy);
            let (mut now, mut attempts) = (0, 0u32);
            for (pause, event, random) in events {
                now += pause;
                // A driver reports the end of an attempt only if there is one.
                let ends = matches!(event, Event::Opened | Event::Failed(_));
                if ends && attempts == 0 {
                    continue;
                }
                attempts -= u32::from(ends);
                let before = state.status();
                let step = state.apply(event, now, random);
                match step {
                    Step::Open => attempts += 1,
                    Step::Close => attempts = 0,
                    Step::Nothing => {}
                }
                prop_assert!(attempts <= 1);
                let is_trying = state.status() == Status::Connecting
                    || state.status() == Status::Reconnecting && state.deadline_ms().is_none();
                prop_assert!(is_trying == (attempts == 1));
                if let (Status::Reconnecting, Some(due)) = (state.status(), state.deadline_ms())
                    && (event == TRANSIENT || event == Event::Lost) && before != Status::Disabled
                    && (before == Status::Connected || ends)
                {
                    let wait = due - now;
                    prop_assert!(wait >= policy.backoff_min_ms && wait <= policy.backoff_max_ms);
                }
                if before == Status::Disabled && event != Event::Enable {
                    prop_assert!(state.status() == Status::Disabled);
                }
            }
        }
    }
}
