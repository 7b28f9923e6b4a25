//! Calls a tool whose server asks the user something in the middle of the call, and passes the answer on.
//!
//! ```sh
//! cargo run -p servers --example answer_questions -- servers.json mcp__shop__delete_order '{"id":7}'
//! ```
//!
//! Only forms with one text are answered; a real program shows all fields of `requestedSchema`.

#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::error::Error;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;

use servers::config::files::ConfigDirs;
use servers::decisions::Decisions;
use servers::manager::{Manager, ManagerHost, ManagerOptions};
use servers::{ClientCapabilities, IncomingInputRequest, InputReply, InputRequestKind, Json};

struct Host;

impl ManagerHost for Host {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    /// Servers learn this when they are connected, and ask nobody who cannot answer.
    fn capabilities(&self, _server: &str) -> ClientCapabilities {
        ClientCapabilities::ELICITATION_FORM
    }

    fn on_input_request(
        &self,
        server: &str,
        request: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let server = server.to_owned();
        Box::pin(async move {
            match request.kind {
                // Reading the terminal blocks, and other calls go on meanwhile.
                InputRequestKind::Elicitation => {
                    let asked = tokio::task::spawn_blocking(move || ask(&server, &request.params));
                    asked.await.unwrap_or_else(|_| InputReply::Declined("nobody answered".to_owned()))
                }
                InputRequestKind::Roots | InputRequestKind::Sampling => {
                    InputReply::Declined("this program has neither roots nor a model".to_owned())
                }
            }
        })
    }
}

/// The text comes from the server, so it says whose question it is.
fn ask(server: &str, params: &Json) -> InputReply {
    let doc = params.to_doc();
    let message = doc.root().get("message").and_then(|text| text.str()).unwrap_or_default().into_owned();
    let fields = doc.root().get("requestedSchema").and_then(|schema| schema.get("properties"));
    let field = fields.and_then(|fields| fields.members().next()?.0.str().map(|name| name.into_owned()));
    print!("{server} asks: {message:?} ");
    let mut answer = String::new();
    let read = std::io::stdout().flush().and_then(|()| std::io::stdin().read_line(&mut answer));
    let is_answered = read.is_ok() && !answer.trim().is_empty();
    InputReply::Result(Json::object(|out| match (field, is_answered) {
        (Some(field), true) => {
            out.str("action", "accept").object("content", |out| {
                out.str(&field, answer.trim());
            });
        }
        (Some(_) | None, _) => {
            out.str("action", "decline");
        }
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program starts itself again as the supervisor of each server's process.
    servers::run_supervisor_if_requested();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, tool, arguments] = args.as_slice() else {
        return Err("usage: answer_questions FILE TOOL ARGUMENTS".into());
    };
    let dirs = ConfigDirs { current_dir: std::env::current_dir()?, ..ConfigDirs::default() };
    let decisions = Decisions::default();
    let servers = dirs.load(&[file.into()])?.servers.into_iter().map(|server| {
        let permission = decisions.permission(&server);
        (server, permission)
    });
    let manager = Manager::start(servers, ManagerOptions::default(), Arc::new(Host));
    manager.settled().await;
    let result = manager.call_tool(tool, &Json::parse(arguments)?, None).await;
    manager.close().await;
    println!("{}", result?);
    Ok(())
}
