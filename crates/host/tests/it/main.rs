//! What must hold whatever clients do, tried with chance. `cargo xtask fuzz` tries the same for longer.
//! Each sentence that once was false stands here by itself.

mod pair;
mod swapped;
mod taken_over;
mod under_way;
mod writing;

use proptest::prelude::*;
use testkit::invariants;

fn play(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(invariants::session(data, tokio::time::advance));
}

#[test]
fn what_once_broke_an_invariant_does_not_any_more() {
    invariants::hold_for_seeds("session", play);
    invariants::hold_for_seeds("pair", pair::play_bytes);
    invariants::hold_for_seeds("seal", invariants::seal);
    invariants::hold_for_seeds("check", invariants::check);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whoever_comes_and_goes_nothing_is_answered_twice_or_left_behind(
        data in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        play(&data);
    }

    #[test]
    fn only_what_we_sealed_opens(data in prop::collection::vec(any::<u8>(), 0..40)) {
        invariants::seal(&data);
    }
}
