//! Debian packages that a command needs: installed in CI and as root, only named otherwise.

use std::process::Command;

use anyhow::{Result, bail};

use crate::sh;

/// A package, and how to find out whether it is installed.
pub struct Package {
    pub name: &'static str,
    pub reason: &'static str,
    /// A command that succeeds when nothing is missing.
    pub probe: &'static [&'static str],
}

/// Installs missing packages as root or with CI=true. Otherwise fails with the command to run, because
/// developers decide what is installed on their machines.
pub fn ensure_installed(needs: &[Package]) -> Result<()> {
    let missing: Vec<&Package> = needs.iter().filter(|need| !is_installed(need)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.name).collect();
    let root = is_root();
    if !root && !is_ci() {
        let reasons: Vec<String> =
            missing.iter().map(|need| format!("  {}: {}", need.name, need.reason)).collect();
        bail!(
            "missing on this machine:\n{}\nrun `sudo apt-get install {}`, then this again",
            reasons.join("\n"),
            packages.join(" ")
        );
    }
    println!("  installing Debian packages: {}", packages.join(", "));
    sh::run(apt_get(root).arg("update").arg("-qq"))?;
    sh::run(apt_get(root).args(["install", "-y", "-qq", "--no-install-recommends"]).args(&packages))?;
    match missing.iter().find(|need| !is_installed(need)) {
        None => Ok(()),
        Some(need) => bail!(
            "`{}` is installed, but `{}` still fails; another program of that name may come first in PATH",
            need.name,
            need.probe.join(" ")
        ),
    }
}

pub fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.trim_ascii() == b"0")
}

fn apt_get(root: bool) -> Command {
    let mut command = if root { Command::new("apt-get") } else { Command::new("sudo") };
    if !root {
        command.args(["-n", "apt-get"]);
    }
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn is_installed(need: &Package) -> bool {
    let (program, args) = need.probe.split_first().expect("every probe in the tables names a program");
    sh::succeeds(Command::new(program).args(args))
}
