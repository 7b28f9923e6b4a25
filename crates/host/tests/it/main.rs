//! Tests of the host through its public interface, and invariants under random input. `cargo xtask fuzz` runs the same
//! invariants for longer.

mod exports;
mod http_reply;
mod in_flight;
mod links;
mod overview;
mod pair;
mod provider_swap;
mod seams;
mod stream_takeover;
mod writing;

use proptest::prelude::*;
use testkit::invariants;

fn run_session(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(invariants::session(data, tokio::time::advance));
}

#[test]
fn seeds_that_once_broke_an_invariant_hold_now() {
    invariants::check_seeds("session", run_session);
    invariants::check_seeds("pair", pair::run_pair);
    invariants::check_seeds("seal", invariants::seal);
    invariants::check_seeds("check", invariants::check);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_request_is_answered_once_and_nothing_leaks(
        data in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        run_session(&data);
    }

    #[test]
    fn only_a_genuine_seal_opens(data in prop::collection::vec(any::<u8>(), 0..40)) {
        invariants::seal(&data);
    }
}
