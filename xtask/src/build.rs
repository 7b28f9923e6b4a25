//! Builds binaries and examples of the workspace, and says where they are.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::sh;

/// Builds the binary or example with this name.
///
/// All of them, because the features of dependencies depend on what is built together: these are the ones that `cargo
/// nextest run --workspace` has compiled already. With `--package` most of the workspace would be compiled twice.
pub fn executable(env: &sh::Env, name: &str) -> Result<PathBuf> {
    let mut build = sh::cargo();
    build.args(["build", "--workspace", "--bins", "--examples", "--message-format=json-render-diagnostics"]);
    let messages = sh::output(build.envs(env))?;
    let mut paths = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    paths.next_back().with_context(|| format!("cargo built `{name}` but did not say where"))
}
