//! What must hold whatever clients do, tried with chance. `cargo xtask fuzz` tries the same for longer.
//! Each sentence that once was false stands here by itself.

mod in_flight;
mod pair;
mod provider_swap;
mod stream_takeover;
mod writing;

use proptest::prelude::*;
use testkit::invariants;

fn run_session(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(invariants::session(data, tokio::time::advance));
}

#[test]
fn what_once_broke_an_invariant_does_not_any_more() {
    invariants::check_seeds("session", run_session);
    invariants::check_seeds("pair", pair::run_pair);
    invariants::check_seeds("seal", invariants::seal);
    invariants::check_seeds("check", invariants::check);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whoever_comes_and_goes_nothing_is_answered_twice_or_left_behind(
        data in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        run_session(&data);
    }

    #[test]
    fn only_what_we_sealed_opens(data in prop::collection::vec(any::<u8>(), 0..40)) {
        invariants::seal(&data);
    }
}
