//! Prints docs/error-codes.md from the tables in the code.
#![allow(clippy::print_stdout, reason = "its output is the document")]

use spile_core::{ArgumentErrorKind, ToolErrorCode};
use wire::error::ErrorCode;

fn main() {
    println!("# Error codes\n");
    println!(
        "Generated from `crates/wire/src/error.rs` by `cargo xtask docs`; do not edit. The meaning of a"
    );
    println!("number never changes.\n");
    println!("## Protocol errors\n");
    println!(
        "JSON-RPC errors. JSON-RPC and MCP define the codes from -32768 to -32000; the others are Spile's.\n"
    );
    println!("| code | name | meaning |");
    println!("|---|---|---|");
    for (_, number, name, meaning) in ErrorCode::TABLE {
        println!("| {number} | {name} | {meaning} |");
    }
    println!("\n## Tool errors\n");
    println!("A tool that fails returns a result with `isError: true` that a model can read:");
    println!(
        "`{{code, message, field?, reason?, allowed?, retryable, retry_after_ms?, ref?}}`. The server's log has details under `ref`.\n"
    );
    println!("| code | meaning |");
    println!("|---|---|");
    for (_, code, meaning) in ToolErrorCode::TABLE {
        println!("| `{code}` | {meaning} |");
    }
    println!("\nFor `invalid_arguments` the `reason` is one of:\n");
    for reason in ArgumentErrorKind::ALL {
        println!("- `{}`", reason.as_str());
    }
}
