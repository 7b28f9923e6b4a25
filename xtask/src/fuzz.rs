//! `cargo xtask fuzz`: the targets under `fuzz/`, one or all, for a given time each.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::sh;

const USAGE: &str = "usage: cargo xtask fuzz [TARGET] [--seconds N]";
const SECONDS_DEFAULT: u32 = 600;

struct FuzzArgs {
    target: Option<String>,
    seconds: u32,
}

pub fn run(args: &[String]) -> Result<()> {
    let request = parse_args(args)?;
    ensure!(sh::repo_root().join("fuzz/Cargo.toml").exists(), "`fuzz/Cargo.toml` not found in this clone");
    let toolchain = Toolchain::choose();
    println!("fuzzing with the {} toolchain", toolchain.name());
    if !sh::succeeds(cargo_fuzz(toolchain).arg("--version")) {
        println!("cargo-fuzz is missing; installing it");
        sh::run(sh::cargo().args(["install", "cargo-fuzz", "--locked"]))?;
    }

    let all = targets(toolchain)?;
    let chosen = match &request.target {
        None => all,
        Some(name) if all.contains(name) => vec![name.clone()],
        Some(name) => bail!("unknown fuzz target `{name}`; targets: {}", all.join(", ")),
    };
    for target in &chosen {
        let begun = Instant::now();
        println!("fuzz {target}: {} s", request.seconds);
        sh::run(&mut fuzz_command(toolchain, target, request.seconds)?).with_context(|| {
            format!("`{target}` failed; an input it found lies in fuzz/artifacts/{target}: make that a test")
        })?;
        println!("fuzz {target}: clean, {}", sh::elapsed_seconds(begun));
    }
    Ok(())
}

/// Starts from the corpus of earlier runs and the seeds; a target may have a dictionary of its own.
fn fuzz_command(toolchain: Toolchain, target: &str, seconds: u32) -> Result<Command> {
    let fuzz = sh::repo_root().join("fuzz");
    let (corpus, seeds) = (fuzz.join("corpus").join(target), fuzz.join("seeds").join(target));
    std::fs::create_dir_all(&corpus).with_context(|| format!("cannot make `{}`", corpus.display()))?;
    let words = fuzz.join("words").join(format!("{target}.dict"));

    let mut command = cargo_fuzz(toolchain);
    command.args(["run", target]).arg(&corpus);
    if seeds.exists() {
        command.arg(&seeds);
    }
    // Lets inputs grow sooner than by default: sixty bytes are a short session.
    command.args(["--", "-len_control=10", "-print_final_stats=1"]).arg(format!("-max_total_time={seconds}"));
    if words.exists() {
        command.arg(format!("-dict={}", words.display()));
    }
    if target == "check" {
        // jsonschema 0.60 leaks a schema whose root is `$ref: "#"` beside `unevaluatedProperties`.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
    }
    Ok(command)
}

fn targets(toolchain: Toolchain) -> Result<Vec<String>> {
    let listed = sh::output(cargo_fuzz(toolchain).arg("list"))?;
    Ok(listed.lines().map(str::to_owned).collect())
}

fn cargo_fuzz(toolchain: Toolchain) -> Command {
    let mut command = toolchain.cargo();
    command.arg("fuzz");
    command
}

/// What compiles the targets. Sanitizers and coverage are unstable options of the compiler.
#[derive(Clone, Copy)]
enum Toolchain {
    Nightly,
    /// The one that builds everything else, told to accept unstable options.
    Stable,
}

impl Toolchain {
    fn choose() -> Self {
        if sh::succeeds(Self::Nightly.cargo().arg("--version")) { Self::Nightly } else { Self::Stable }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nightly => "nightly",
            Self::Stable => "stable",
        }
    }

    fn cargo(self) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(sh::repo_root());
        // The cargo that runs xtask sets these; they would force its own toolchain on cargo-fuzz.
        for set in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
            command.env_remove(set);
        }
        match self {
            Self::Nightly => command.arg("+nightly"),
            Self::Stable => command.env("RUSTC_BOOTSTRAP", "1"),
        };
        command
    }
}

fn parse_args(args: &[String]) -> Result<FuzzArgs> {
    let mut request = FuzzArgs { target: None, seconds: SECONDS_DEFAULT };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--seconds" => {
                let value = rest.next().context(USAGE)?;
                request.seconds =
                    value.parse().with_context(|| format!("`{value}` is not a number of seconds"))?;
            }
            flag if flag.starts_with('-') => bail!("unknown option `{flag}`; {USAGE}"),
            name if request.target.is_none() => request.target = Some(name.to_owned()),
            extra => bail!("unexpected argument `{extra}`; {USAGE}"),
        }
    }
    Ok(request)
}
