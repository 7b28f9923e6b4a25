//! Connects to the servers of a settings file, lists their tools under public names, calls one after an approval, and
//! reads a resource.
//!
//! ```sh
//! cargo run -p servers --example use_servers -- servers.json mcp__shop__get_customers '{"email":"dana@acme.test"}'
//! ```

#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use servers::config::files::ConfigDirs;
use servers::decisions::Decisions;
use servers::manager::{Manager, ManagerHost, ManagerOptions};
use servers::{Json, Method};

/// What the manager needs from this program. The defaults of the trait ask nobody and sign in nowhere.
struct Host;

impl ManagerHost for Host {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program starts itself again as the supervisor of each server's process.
    servers::run_supervisor_if_requested();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: use_servers FILE [TOOL [ARGUMENTS]]")?;
    // Only the named file. `ConfigDirs` with a home would also find the settings of the user's clients.
    let dirs = ConfigDirs { current_dir: std::env::current_dir()?, ..ConfigDirs::default() };
    let configuration = dirs.load(&[file.into()])?;
    for problem in &configuration.problems {
        eprintln!("{problem}");
    }
    // A named file needs no approval; a project's servers would be refused here until the user approved them.
    let decisions = Decisions::default();
    let servers = configuration.servers.into_iter().map(|server| {
        let permission = decisions.permission(&server);
        (server, permission)
    });
    let manager = Manager::start(servers, ManagerOptions::default(), Arc::new(Host));
    manager.settled().await;
    for status in manager.statuses() {
        println!("{}: {}", status.name, status.error.as_deref().unwrap_or(status.status.name()));
    }
    for tool in manager.registry().tools() {
        println!("{}", tool.public_name);
    }
    if let Some(tool) = args.next() {
        let arguments = Json::parse(args.next().as_deref().unwrap_or("{}"))?;
        if approved(&tool, &arguments)? {
            let result = manager.call_tool(&tool, &arguments, None).await?;
            println!("{result}");
        }
    }
    let registry = manager.registry();
    if let Some(resource) = registry.resources.first() {
        let uri =
            resource.definition.to_doc().root().get("uri").and_then(|uri| Some(uri.str()?.into_owned()));
        let params = Json::object(|out| {
            out.str("uri", &uri.unwrap_or_default());
        });
        let contents = manager.request(&resource.server, Method::ResourcesRead, params, None).await?;
        println!("first resource of {}: {} bytes", resource.server, contents.as_str().len());
    }
    manager.close().await;
    Ok(())
}

/// Asks the person at the terminal.
fn approved(tool: &str, arguments: &Json) -> Result<bool, Box<dyn Error>> {
    print!("call {tool} with {arguments}? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "y")
}
