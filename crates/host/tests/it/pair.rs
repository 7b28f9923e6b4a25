//! Our client and our server as a pair: ten thousand games, each spelled by its seed.
//!
//! `SPILE_PAIR_SEED=7 cargo nextest run -p host pair` plays one again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use testkit::invariants;

pub(crate) fn run_pair(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(invariants::pair(data, tokio::time::advance));
}

/// A thousand games; the test runner has them played side by side.
fn run_thousand_seeds(nth: u64) {
    let seeds = match std::env::var("SPILE_PAIR_SEED") {
        Ok(seed) if nth == 0 => vec![seed.parse().expect("a seed is a number")],
        Ok(_) => Vec::new(),
        Err(_) => (nth * 1000..(nth + 1) * 1000).collect(),
    };
    for seed in seeds {
        if let Err(broken) = catch_unwind(AssertUnwindSafe(|| run_pair(&invariants::input_for_seed(seed)))) {
            eprintln!("the seed is {seed}");
            resume_unwind(broken);
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
    the_first_thousand_games 0
    the_second_thousand_games 1
    the_third_thousand_games 2
    the_fourth_thousand_games 3
    the_fifth_thousand_games 4
    the_sixth_thousand_games 5
    the_seventh_thousand_games 6
    the_eighth_thousand_games 7
    the_ninth_thousand_games 8
    the_tenth_thousand_games 9
}
