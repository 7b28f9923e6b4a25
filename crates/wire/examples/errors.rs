//! Prints docs/error-codes.md from the table that the code uses.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use spile_core::{ArgumentErrorKind, ToolErrorCode};
use wire::error::ErrorCode;

fn main() {
    println!("# Error codes\n");
    println!(
        "Generated from `crates/wire/src/error.rs` by `cargo xtask docs`; do not edit. A number never changes its"
    );
    println!("meaning.\n");
    println!("## Protocol errors\n");
    println!(
        "These answer a client. Codes from -32768 to -32000 are JSON-RPC's and MCP's; the others are ours.\n"
    );
    println!("| code | name | when |");
    println!("|---|---|---|");
    for (_, number, name, when) in ErrorCode::TABLE {
        println!("| {number} | {name} | {when} |");
    }
    println!("\n## Tool errors\n");
    println!("What a tool could not do is a result with `isError: true` that a model can read:");
    println!(
        "`{{code, message, field?, reason?, allowed?, retryable, retry_after_ms?, ref}}`. The log has more under `ref`.\n"
    );
    println!("| code | when |");
    println!("|---|---|");
    for (_, code, when) in ToolErrorCode::TABLE {
        println!("| `{code}` | {when} |");
    }
    println!("\nFor `invalid_arguments` the `reason` is one of:\n");
    for reason in ArgumentErrorKind::ALL {
        println!("- `{}`", reason.as_str());
    }
}
