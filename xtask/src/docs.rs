//! `cargo xtask docs`: writes the documents that are generated from the code.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{build, sh};

/// Each document, with the example that prints it.
const DOCUMENTS: &[(&str, &str)] = &[
    ("docs/protocol-matrix.md", "matrix"),
    ("docs/error-codes.md", "errors"),
    ("docs/manifest.md", "manifest_reference"),
    ("docs/spile.schema.json", "manifest_schema"),
];

pub fn run(args: &[String]) -> Result<()> {
    let env = sh::Env::default();
    match args {
        [] => write(&env),
        [flag] if flag == "--check" => check(&env),
        _ => bail!("usage: cargo xtask docs [--check]"),
    }
}

fn write(env: &sh::Env) -> Result<()> {
    for (path, example) in DOCUMENTS {
        let file = sh::repo_root().join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&file, generate(example, env)?).with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// Fails if a committed document differs from the generated one.
pub fn check(env: &sh::Env) -> Result<()> {
    let mut stale = Vec::new();
    for (path, example) in DOCUMENTS {
        let committed = fs::read_to_string(sh::repo_root().join(path)).unwrap_or_default();
        if committed == generate(example, env)? {
            println!("{path} is up to date");
        } else {
            stale.push(*path);
        }
    }
    if !stale.is_empty() {
        bail!("{} differs from what the code says; run `cargo xtask docs`", stale.join(" and "));
    }
    Ok(())
}

fn generate(example: &str, env: &sh::Env) -> Result<String> {
    sh::output(&mut Command::new(build::executable(env, example)?))
}
