//! Prints docs/manifest.md from the table of keys that the parser uses.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

fn main() {
    print!("{}", contract::manifest::reference());
}
