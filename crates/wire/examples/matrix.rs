//! Prints docs/protocol-matrix.md from the tables that the code uses.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use wire::method::{Availability, Method};
use wire::version::{Feature, Version};

fn main() {
    println!("# Protocol matrix\n");
    println!(
        "Generated from `crates/wire/src/version.rs` and `method.rs` by `cargo xtask docs`; do not edit.\n"
    );
    println!(
        "All versions are served on one endpoint and one pipe. The era is chosen per message: a message whose"
    );
    println!(
        "`_meta` names a protocol version stands alone; a bare one means what its handshake, session or"
    );
    println!("`MCP-Protocol-Version` header says.\n");
    println!("## Features\n");
    head("feature");
    for (feature, _, _, about) in Feature::TABLE {
        row(about, |version| version.has(feature));
    }
    println!("\n## Methods\n");
    head("method");
    for (_, name, when) in Method::TABLE {
        row(&format!("`{name}`"), |version| match when {
            Availability::Always => true,
            Availability::With(feature) => version.has(feature),
            Availability::WithEither(one, other) => version.has(one) || version.has(other),
        });
    }
    println!(
        "\nA method whose capability nothing here has is not declared and answers -32601 with `data.method`."
    );
}

fn head(first: &str) {
    print!("| {first} |");
    for (_, date) in Version::ALL {
        print!(" {date} |");
    }
    println!("\n|---|{}", "---|".repeat(Version::ALL.len()));
}

fn row(about: &str, has: impl Fn(Version) -> bool) {
    print!("| {about} |");
    for (version, _) in Version::ALL {
        print!(" {} |", if has(version) { "yes" } else { "–" });
    }
    println!();
}
