//! What must hold whatever clients do, tried with chance. `cargo xtask fuzz` tries the same for longer.

use proptest::prelude::*;
use testkit::invariants;

fn run_websocket_case(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(invariants::websocket(data, tokio::time::advance));
}

#[test]
fn fuzzing_seeds_of_websocket_hold() {
    invariants::check_seeds("websocket", run_websocket_case);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_comes_over_a_websocket_it_keeps_the_rules(
        data in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        run_websocket_case(&data);
    }
}
