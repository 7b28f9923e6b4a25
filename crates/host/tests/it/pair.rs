//! Our client and our server as a pair: ten thousand simulations, each determined by its seed.
//!
//! `SPILE_PAIR_SEED=7 cargo nextest run -p host pair` repeats one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use testkit::invariants;

pub(crate) fn run_pair(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(invariants::pair(data, tokio::time::advance));
}

/// Runs a thousand seeds; the test runner runs the ten tests in parallel.
fn run_thousand_seeds(nth: u64) {
    let seeds = match std::env::var("SPILE_PAIR_SEED") {
        Ok(seed) if nth == 0 => vec![seed.parse().expect("a seed is a number")],
        Ok(_) => Vec::new(),
        Err(_) => (nth * 1000..(nth + 1) * 1000).collect(),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run_pair(&invariants::input_for_seed(seed)))) {
            eprintln!("the seed is {seed}");
            resume_unwind(panic);
        }
    }
}

macro_rules! seed_tests {
    ($($name:ident $nth:literal)*) => {
        $(
            #[test]
            fn $name() {
                run_thousand_seeds($nth);
            }
        )*
    };
}

seed_tests! {
    pair_invariants_hold_for_the_first_thousand_seeds 0
    pair_invariants_hold_for_the_second_thousand_seeds 1
    pair_invariants_hold_for_the_third_thousand_seeds 2
    pair_invariants_hold_for_the_fourth_thousand_seeds 3
    pair_invariants_hold_for_the_fifth_thousand_seeds 4
    pair_invariants_hold_for_the_sixth_thousand_seeds 5
    pair_invariants_hold_for_the_seventh_thousand_seeds 6
    pair_invariants_hold_for_the_eighth_thousand_seeds 7
    pair_invariants_hold_for_the_ninth_thousand_seeds 8
    pair_invariants_hold_for_the_tenth_thousand_seeds 9
}
