//! `cargo xtask release`: the binary as it is shipped, and what each part of it costs.
//!
//! The profile `dist` has fat LTO and no symbols, and the linker folds functions with the same code. Where `llvm-profdata` is installed, the build is profile-guided: an
//! instrumented binary serves the requests of the bench, and the second build knows which paths are taken.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{bench, sh};

const USAGE: &str = "\
cargo xtask release [--no-profile]
cargo xtask release sizes

  (nothing)     build target/dist/spile, profile-guided if `llvm-profdata` is here
  --no-profile  without a profile in any case
  sizes         what each crate and each C library adds to the binary, by its symbols";

/// Whether rustc links with LLD here, as it does since 1.90 on this target.
const LINKS_WITH_LLD: bool = cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"));

pub fn run(args: &[String]) -> Result<()> {
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => build(find_profdata()?.as_deref()),
        ["--no-profile"] => build(None),
        ["sizes"] => {
            print!("{}", component_table()?);
            Ok(())
        }
        _ => bail!("{USAGE}"),
    }
}

fn build(profdata: Option<&Path>) -> Result<()> {
    let target = sh::repo_root().join("target");
    let profile = match profdata {
        Some(profdata) => Some(record_profile(profdata, &target)?),
        None => {
            println!("building without a profile");
            None
        }
    };
    let mut flags = Vec::new();
    if LINKS_WITH_LLD {
        // Functions with the same machine code are one (ADR 0380).
        flags.push("-Clink-arg=-Wl,--icf=all".to_owned());
    }
    if let Some(profile) = &profile {
        flags.push(format!("-Cprofile-use={}", profile.display()));
        // Without the warning for each function that was never called.
        flags.push("-Cllvm-args=-pgo-warn-missing-function=false".to_owned());
    }
    let mut cargo = sh::cargo();
    cargo.args(["build", "--profile", "dist", "-p", "spile"]).env("RUSTFLAGS", flags.join(" "));
    // What an earlier build left is not built again.
    let starts_clean = !target.join("dist/deps").exists();
    let start = Instant::now();
    sh::run(&mut cargo)?;
    let took = build_time(start.elapsed().as_secs(), starts_clean);
    let binary = target.join("dist/spile");
    let bytes = std::fs::metadata(&binary).with_context(|| format!("`{}`", binary.display()))?.len();
    let how = if profile.is_some() { "profile-guided" } else { "without a profile" };
    println!("{}: {:.1} MB, {how}, {took}", binary.display(), bytes as f64 / 1e6);
    Ok(())
}

/// How long the build of the binary took, without that of an instrumented one.
fn build_time(seconds: u64, starts_clean: bool) -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let from = match starts_clean {
        true => "from nothing",
        false => "with what `target/dist` had; remove it to measure a clean build",
    };
    format!("built in {} min {} s on {cores} cores {from}", seconds / 60, seconds % 60)
}

/// Builds an instrumented binary, lets it serve the requests of the bench, and merges what it recorded.
fn record_profile(profdata: &Path, target: &Path) -> Result<PathBuf> {
    let folder = target.join("profile");
    let raw = folder.join("raw");
    if raw.exists() {
        std::fs::remove_dir_all(&raw).with_context(|| format!("cannot empty `{}`", raw.display()))?;
    }
    std::fs::create_dir_all(&raw).with_context(|| format!("cannot make `{}`", raw.display()))?;
    println!("building an instrumented binary");
    sh::run(
        sh::cargo()
            .args(["build", "--release", "-p", "spile", "--target-dir"])
            .arg(&folder)
            .env("RUSTFLAGS", format!("-Cprofile-generate={}", raw.display())),
    )?;
    println!("recording a profile");
    bench::train(&folder.join("release"))?;
    let merged = folder.join("merged.profdata");
    sh::run(Command::new(profdata).args(["merge", "-o"]).arg(&merged).arg(&raw))
        .context("cannot merge the profile; `llvm-profdata` must be of the LLVM version of rustc")?;
    Ok(merged)
}

/// `llvm-profdata` of the toolchain. Another one may not understand what this compiler records.
fn find_profdata() -> Result<Option<PathBuf>> {
    let sysroot = sh::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let version = sh::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let tool = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin/llvm-profdata");
    if tool.is_file() {
        return Ok(Some(tool));
    }
    println!(
        "no `llvm-profdata` in this toolchain: the binary is not profile-guided; `rustup component add llvm-tools` adds it"
    );
    Ok(None)
}

/// The size of the code and data of each crate, from the symbols of the release binary.
pub fn component_table() -> Result<String> {
    sh::run(sh::cargo().args(["build", "--release", "-p", "spile"]))?;
    let binary = bench::release_folder()?.join("spile");
    let symbols = sh::output(Command::new("nm").args(["--print-size", "--demangle"]).arg(&binary))
        .context("cannot list the symbols; `nm` comes with binutils")?;
    let sizes = sizes_by_component(&symbols);
    ensure!(!sizes.is_empty(), "`{}` has no symbols", binary.display());
    let sections = sh::output(Command::new("size").arg("-A").arg(&binary))?;
    let mut rows: Vec<(&str, u64)> = sizes.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    rows.sort_unstable_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let mut table = format!("\n{:<34}{:>10}\n", "component of the release build", "kB");
    let mut row = |name: &str, bytes: u64| {
        let _ = writeln!(table, "  {name:<32}{:>10.0}", bytes as f64 / 1e3);
    };
    let mut small = 0;
    for (name, bytes) in rows {
        if bytes < SMALL_BYTES {
            small += bytes;
        } else {
            row(name, bytes);
        }
    }
    row(&format!("each below {} kB", SMALL_BYTES / 1000), small);
    let _ = writeln!(table, "\n{:<34}{:>10}", "section", "kB");
    for (name, bytes) in sections.lines().filter_map(section).filter(|(_, bytes)| *bytes >= SMALL_BYTES) {
        let _ = writeln!(table, "  {name:<32}{:>10.0}", bytes as f64 / 1e3);
    }
    Ok(table)
}

const SMALL_BYTES: u64 = 50_000;

/// A line of `size -A`: name, size, address. What is not loaded (symbols) has the address 0.
fn section(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_whitespace();
    let (name, bytes, address) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    (name.starts_with('.') && address != "0").then_some((name, bytes))
}

fn sizes_by_component(symbols: &str) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    for line in symbols.lines() {
        // `address size kind name`; a symbol without a size has no second number.
        let mut words = line.splitn(4, ' ');
        let (Some(_), Some(size), Some(kind), Some(name)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Ok(bytes) = u64::from_str_radix(size, 16) else { continue };
        // Zeroed memory is not in the file.
        if !matches!(kind, "b" | "B") {
            *sizes.entry(component(name)).or_default() += bytes;
        }
    }
    sizes
}

/// The crate of a Rust symbol, `<oxc_ast::ast::Expression as core::clone::Clone>::clone`, or the library of a C symbol.
fn component(symbol: &str) -> String {
    let path = symbol.trim_start_matches(|c: char| !c.is_ascii_alphabetic() && c != '_');
    let path = path.strip_prefix("dyn ").unwrap_or(path);
    let path = path.strip_prefix("mut ").unwrap_or(path);
    match path.split_once("::") {
        Some((krate, _)) if krate.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => krate.to_owned(),
        _ => c_library(path).to_owned(),
    }
}

fn c_library(symbol: &str) -> &'static str {
    let any = |prefixes: &[&str]| prefixes.iter().any(|prefix| symbol.starts_with(prefix));
    match symbol {
        _ if any(&["sqlite3", "fts5", "fts3", "yy", "rtree", "pager", "btree", "vdbe", "json"]) => {
            "SQLite (C)"
        }
        _ if any(&["JS_", "js_", "lre_", "__js", "__JS", "unicode_", "bf_", "dbuf_"]) => "QuickJS (C)",
        _ if any(&["ring_core", "gcm_", "aes_", "sha256", "sha512", "chacha", "p256", "x25519"]) => {
            "ring (C, assembly)"
        }
        _ => "other (C, literals, tables)",
    }
}

#[cfg(test)]
mod tests {
    use super::{component, section, sizes_by_component};

    #[test]
    fn symbols_are_attributed_to_their_crates() {
        for (symbol, expected) in [
            ("oxc_parser::js::expression::parse", "oxc_parser"),
            ("<oxc_ast::ast::Expression as core::clone::Clone>::clone", "oxc_ast"),
            (
                "<&mut serde_json::de::Deserializer<R> as serde::de::Deserializer>::deserialize_any",
                "serde_json",
            ),
            ("<dyn host::Provider as core::fmt::Debug>::fmt", "host"),
            ("sqlite3VdbeExec", "SQLite (C)"),
            ("JS_CallInternal", "QuickJS (C)"),
            ("main", "other (C, literals, tables)"),
        ] {
            assert_eq!(component(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn sizes_are_added_and_zeroed_memory_is_not_counted() {
        let symbols = "\
0000000000001000 0000000000000010 t json::parse::parse
0000000000001010 0000000000000020 T <json::Doc as core::ops::Drop>::drop
0000000000002000 0000000000000100 b json::CACHE
                 U malloc
0000000000003000 t no_size
";
        assert_eq!(sizes_by_component(symbols).into_iter().collect::<Vec<_>>(), [("json".to_owned(), 0x30)]);
    }

    #[test]
    fn sections_that_are_not_loaded_do_not_count() {
        assert_eq!(section(".text        12345   4096"), Some((".text", 12345)));
        assert_eq!(section(".symtab        12345   0"), None);
        assert_eq!(section("section   size   addr"), None);
    }
}
