//! Prints docs/protocol-matrix.md from the tables in the code.
#![allow(clippy::print_stdout, reason = "its output is the document")]

use wire::method::{Availability, Method};
use wire::version::{Feature, Version};

fn main() {
    println!("# Protocol matrix\n");
    println!(
        "Generated from `crates/wire/src/version.rs` and `method.rs` by `cargo xtask docs`; do not edit.\n"
    );
    println!(
        "Every endpoint and every pipe serves all versions. The era is chosen per message: a message whose"
    );
    println!(
        "`_meta` names a protocol version is self-contained; for any other message the handshake, the session or the"
    );
    println!("`MCP-Protocol-Version` header determines the version.\n");
    println!("## Features\n");
    head("feature");
    for (feature, _, _, description) in Feature::TABLE {
        row(description, |version| version.has(feature));
    }
    println!("\n## Methods\n");
    head("method");
    for (_, name, availability) in Method::TABLE {
        row(&format!("`{name}`"), |version| match availability {
            Availability::Always => true,
            Availability::With(feature) => version.has(feature),
            Availability::WithEither(one, other) => version.has(one) || version.has(other),
        });
    }
    println!(
        "\nA method whose capability the server lacks is not declared; it returns -32601 with `data.method`."
    );
}

fn head(first: &str) {
    print!("| {first} |");
    for (_, date) in Version::ALL {
        print!(" {date} |");
    }
    println!("\n|---|{}", "---|".repeat(Version::ALL.len()));
}

fn row(label: &str, has: impl Fn(Version) -> bool) {
    print!("| {label} |");
    for (version, _) in Version::ALL {
        print!(" {} |", if has(version) { "yes" } else { "–" });
    }
    println!();
}
