//! Tests with real processes: their environment, start errors, and that none is left behind.
//!
//! They search /proc, so they run on Linux only.
#![cfg(target_os = "linux")]

mod end;
mod faults;
mod faulty_server;
mod kinds;
mod leak;
mod start;
mod websocket_close;

use std::path::Path;

use upstream::process::{Child, Command, Exit, ExitCause, ProcessOptions};

fn helper() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_upstream-helper"))
}

fn options() -> ProcessOptions {
    kinds::options(Some(helper()))
}

fn code(code: i32) -> Exit {
    Exit { cause: ExitCause::Code(code), processes_left: 0 }
}

fn signal(signal: i32) -> Exit {
    Exit { cause: ExitCause::Signal(signal), processes_left: 0 }
}

async fn start(command: &Command) -> Child {
    command.start(&options()).await.expect("it starts")
}

/// What a shell script writes to stdout until its end.
async fn output(script: &str) -> String {
    let mut child = start(&kinds::shell(script, helper())).await;
    read_all(&mut child).await
}

async fn read_all(child: &mut Child) -> String {
    let mut all = String::new();
    let stdout = child.stdout.as_mut().expect("nobody took it");
    tokio::io::AsyncReadExt::read_to_string(stdout, &mut all).await.expect("text");
    all
}
