//! The command line.

use clap::Parser;

/// Turns data, APIs and code into MCP servers.
///
/// This build has the protocol core only: sources, manifests and `spile serve` come next.
#[derive(Debug, Parser)]
#[command(name = "spile", version, arg_required_else_help = true)]
struct Cli {}

fn main() {
    Cli::parse();
}
