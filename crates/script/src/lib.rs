//! Author TypeScript and JavaScript as a provider.
//!
//! ```text
//! folder     bundle/       tools/*.ts, prompts/*.ts, code of resources → a closed map of modules, one program for
//!                          each; reads all files
//!  → schema  schema/       what it takes and returns: declared, from zod, or from its types
//!  → serve   provider.rs   a catalog, and a future per call
//!  → drive   driver.rs     one round of a call: performs the handler's effects and records them
//!     run    engine/       QuickJS on a few threads: bounded memory, stack and CPU; no I/O
//!     effect effects/      fetch, files, collections, tools, questions: what `ctx` can do, and may do
//!  → record  journal.rs    what happened so far, so that the next round repeats nothing
//! ```
//!
//! A handler is replayed from its journal after each question, in every protocol era, and cannot tell. The
//! crate opens no sockets and no databases: the integrator passes in [`Network`] and [`Collections`].

mod bundle;
mod diagnostic;
mod driver;
mod effects;
mod engine;
mod handler;
mod journal;
mod provider;
mod results;
mod schema;

pub use bundle::{
    Bundle, BundleLimits, BundleOptions, BundledPrompt, BundledResource, BundledTool, ModuleLinks,
};
pub use diagnostic::{Diagnostic, DiagnosticSink, Severity};
pub use effects::{
    ClientRootAccess, Collections, EffectFailure, EffectFuture, FileRoot, HostRule, HttpRequest,
    HttpResponse, Network, NetworkFuture, Permissions,
};
pub use engine::{Engine, EngineLimits, Isolation, run_script_worker_if_requested};
pub use provider::{ReloadReport, ScriptProvider, ScriptServices};
