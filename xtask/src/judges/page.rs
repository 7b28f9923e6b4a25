//! The page at `/` in a real browser: its script runs, its policy is never violated, hostile texts stay texts, and what the
//! page shows changes with the server. Screenshots are left for people to look at.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::debian::{self, Package};
use crate::sh;

const CHROMIUM: Package =
    Package { name: "chromium", reason: "opens the page", probe: &["chromium", "--version"] };

const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    // The messages of the console, among them every violation of the policy.
    "--enable-logging=stderr",
];

/// Changes the title of the page if it runs.
const ATTACK: &str = "</pre><script>document.title='RAN'</script><img src=x onerror=document.title='RAN'>";

pub fn run(spile: &Path) -> Result<()> {
    debian::ensure_installed(&[CHROMIUM])?;
    let folder = sh::repo_root().join("target/page-judge");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    write_project(&folder)?;
    let (_server, url) = Server::start(spile, &folder)?;

    let (dom, log) = browse(&folder, &url, &["--dump-dom", "--virtual-time-budget=2000"])?;
    ensure!(dom.contains(">Copy</button>"), "the script of the page did not run:\n{log}");
    check_safe(&dom, &log)?;
    ensure!(dom.contains("No calls yet."), "calls before the first one:\n{dom}");

    // Waits for the page's own refresh.
    call_tool(&url)?;
    let (dom, log) = browse(&folder, &url, &["--dump-dom", "--virtual-time-budget=8000"])?;
    ensure!(dom.contains("class=\"label good\">ok</span>"), "the call is not shown:\n{dom}");
    check_safe(&dom, &log)?;

    let (dom, _) = browse(&folder, &url, &["--dump-dom", "--blink-settings=scriptEnabled=false"])?;
    ensure!(dom.contains("get_customers") && !dom.contains(">Copy<"), "the page needs its script:\n{dom}");

    for width in [360, 1280] {
        let file = folder.join(format!("page-{width}.png"));
        let screenshot = format!("--screenshot={}", file.display());
        browse(&folder, &url, &[&screenshot, &format!("--window-size={width},1600")])?;
        ensure!(file.exists(), "no screenshot of {width} px");
        println!("  look at {}", file.display());
    }
    println!("page: satisfied");
    Ok(())
}

fn check_safe(dom: &str, log: &str) -> Result<()> {
    ensure!(dom.contains("<title>hostile · Spile</title>"), "a text of the data ran as a script:\n{dom}");
    let violations: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("Content Security Policy") || line.contains("Uncaught"))
        .collect();
    ensure!(violations.is_empty(), "the console says:\n{}", violations.join("\n"));
    Ok(())
}

fn write_project(folder: &Path) -> Result<()> {
    let manifest = format!(
        "[server]\nname = \"hostile\"\ninstructions = \"{ATTACK}\"\n[sources.crm]\npath = \"customers.csv\"\n\
         [collections.customers]\nsource = \"crm\"\nkey = \"email\"\ndescription = \"{ATTACK}\"\n\
         [collections.customers.fields]\nplan = {{ description = \"{ATTACK}\" }}\n"
    );
    fs::write(folder.join("spile.toml"), manifest)?;
    fs::write(folder.join("customers.csv"), format!("email,plan,\"{ATTACK}\"\na@b.test,free,1\n"))?;
    Ok(())
}

struct Server(Child);

impl Server {
    fn start(spile: &Path, folder: &Path) -> Result<(Self, String)> {
        let mut command = Command::new(spile);
        command.arg("serve").arg(folder).args(["--bind", "127.0.0.1:0", "-v"]);
        command.env("XDG_STATE_HOME", folder.join("state")).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("the server does not start")?;
        let stderr = child.stderr.take().context("stderr is a pipe")?;
        let server = Self(child);
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let address = lines.find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            rest.split_once("/mcp").map(|(address, _)| address.to_owned())
        });
        std::thread::spawn(move || lines.for_each(drop));
        Ok((server, format!("http://{}/", address.context("no address in the banner")?)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn call_tool(url: &str) -> Result<()> {
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_customers","arguments":{"email":"a@b.test"}}}"#;
    let mut curl = Command::new("curl");
    curl.args(["-sf", "-H", "Content-Type: application/json", "-d", request]).arg(format!("{url}mcp"));
    let answer = sh::output(&mut curl)?;
    ensure!(answer.contains("\"isError\":false"), "the call failed: {answer}");
    Ok(())
}

/// What Chromium prints, and its console.
fn browse(folder: &Path, url: &str, args: &[&str]) -> Result<(String, String)> {
    let profile: PathBuf = folder.join("profile");
    let mut chromium = Command::new("chromium");
    chromium.args(FLAGS).arg(format!("--user-data-dir={}", profile.display())).args(args).arg(url);
    let output = chromium.stdin(Stdio::null()).output().context("cannot run chromium")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "chromium failed:\n{}", text(&output.stderr));
    Ok((text(&output.stdout), text(&output.stderr)))
}
