//! The supervisor of the commands that the tests start.

fn main() {
    upstream::process::run_supervisor_if_requested();
}
