//! `cargo xtask docs`: writes the documents that are generated from the code.

use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::sh;

/// Each document, with the crate and the example that print it.
const DOCUMENTS: &[(&str, &str, &str)] = &[
    ("docs/protocol-matrix.md", "wire", "matrix"),
    ("docs/error-codes.md", "wire", "errors"),
    ("docs/manifest.md", "contract", "manifest_reference"),
    ("docs/spile.schema.json", "contract", "manifest_schema"),
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
    for (path, package, example) in DOCUMENTS {
        let file = sh::repo_root().join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&file, generate(package, example, env)?).with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// Fails if a committed document differs from the generated one.
pub fn check(env: &sh::Env) -> Result<()> {
    let mut stale = Vec::new();
    for (path, package, example) in DOCUMENTS {
        let committed = fs::read_to_string(sh::repo_root().join(path)).unwrap_or_default();
        if committed == generate(package, example, env)? {
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

fn generate(package: &str, example: &str, env: &sh::Env) -> Result<String> {
    sh::output(sh::cargo().args(["run", "--quiet", "--package", package, "--example", example]).envs(env))
}
