//! Serves a fixture provider exactly as the product serves a real one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use clap::{Parser, Subcommand};
use content::{ContentProvider, FolderWatch, NoBackend, Watching, watch_folder};
use contract::diagnostic::{Diagnostic, render_all};
use spile::serve::{ServeArgs, Service, serve, start_logging};
use spile_core::Provider;
use testkit::bench::BenchProvider;
use testkit::conformance::ConformanceProvider;

/// Serve a fixture over stdio, or over HTTP with `--bind`.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    fixture: Fixture,
}

#[derive(Subcommand)]
enum Fixture {
    /// Everything that the official conformance suite expects
    Conformance {
        #[command(flatten)]
        serve: ServeArgs,
    },
    /// The prompts, resources, skills and apps of a folder
    Folder {
        path: PathBuf,
        #[command(flatten)]
        serve: ServeArgs,
    },
    /// Small tools in memory, to measure the path around them
    Bench {
        /// How many tools there are; beyond ten they are fillers
        #[arg(long, default_value_t = 10)]
        tools: usize,
        #[command(flatten)]
        serve: ServeArgs,
    },
}

fn main() -> anyhow::Result<()> {
    // Tests that start servers cannot supervise them: this program does.
    upstream::process::run_supervisor_if_requested();
    // Lives as long as the server.
    let _watching;
    let (name, provider, args): (_, Arc<dyn Provider>, _) = match Args::parse().fixture {
        Fixture::Folder { path, serve } => {
            let folder = content::Folder::new(&path, Watching::Files);
            let (watch, loaded, diagnostics) = FolderWatch::new(folder, SystemTime::now());
            let report = |diagnostics: &[Diagnostic]| eprint!("{}", render_all(diagnostics, false));
            report(&diagnostics);
            let provider = Arc::new(ContentProvider::new(loaded, Arc::new(NoBackend)));
            _watching = watch_folder(watch, &provider, report)?;
            ("folder", provider, serve)
        }
        Fixture::Conformance { serve } => ("conformance", Arc::new(ConformanceProvider::default()), serve),
        Fixture::Bench { tools, serve } => ("bench", Arc::new(BenchProvider::with_tools(tools)), serve),
    };
    start_logging(&args);
    serve(vec![Service::new(name, env!("CARGO_PKG_VERSION"), provider)], &[], &args)
}
