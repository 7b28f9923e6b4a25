//! The binary that runs author code for the tests; and `hold FOLDER`, which waits for a tool that never ends.

use std::path::Path;

use script::{Bundle, BundleLimits, BundleOptions, EngineLimits, Isolation};

fn main() {
    script::run_script_worker_if_requested();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [command, folder] if command == "hold" => hold(Path::new(folder)),
        _ => panic!("expected `hold FOLDER`"),
    }
}

/// Compiles a folder whose tool never ends to load, with limits that nobody waits for.
fn hold(folder: &Path) {
    const HOUR_MS: u64 = 3_600_000;
    let options = BundleOptions {
        isolation: Isolation::Process(std::env::current_exe().expect("this file")),
        limits: BundleLimits { load_wall_ms: HOUR_MS, ..BundleLimits::default() },
        engine_limits: EngineLimits { cpu_ms_max: HOUR_MS, ..EngineLimits::default() },
        ..BundleOptions::default()
    };
    Bundle::build(folder, &options);
}
