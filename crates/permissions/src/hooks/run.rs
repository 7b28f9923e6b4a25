//! Runs one hook: a command with the input on its stdin, or an HTTP request with the input as its body.

use std::time::Duration;

use json::Json;
use outbound::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use upstream::process::{Command, ExitCause, ProcessOptions};

use super::output::{HookReply, HookVerdict, cut};
use super::{HookAction, HookEvent, HttpHook};

/// A hook prints no more, and answers with no larger body.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
const STDERR_LINES_MAX: usize = 20;

/// What commands get beside the input.
#[derive(Clone)]
pub struct CommandEnvironment {
    pub process: ProcessOptions,
    /// The working folder of commands, and the `cwd` of their input.
    pub cwd: std::path::PathBuf,
}

/// `Err` says what went wrong, for the log and for whoever gets the refusal.
pub(super) async fn run(
    action: &RunnableAction,
    event: HookEvent,
    input: &Json,
    environment: &CommandEnvironment,
    timeout_ms: u64,
) -> Result<HookReply, String> {
    let work = async {
        match action {
            RunnableAction::Command(command) => run_command(command, event, input, environment).await,
            RunnableAction::Http(client, hook) => send(client, hook, event, input).await,
        }
    };
    // Dropping the work ends the process with everything it started.
    match tokio::time::timeout(Duration::from_millis(timeout_ms), work).await {
        Ok(reply) => reply,
        Err(_) => Err(format!("no answer within {timeout_ms} ms")),
    }
}

/// A hook that is ready to run.
pub(super) enum RunnableAction {
    Command(Command),
    Http(Client, HttpHook),
}

impl RunnableAction {
    pub(super) fn new(action: &HookAction, environment: &CommandEnvironment) -> Result<Self, String> {
        Ok(match action {
            HookAction::Command { command, args } => {
                let words = match args {
                    Some(args) => {
                        Command { args: args.iter().map(Into::into).collect(), ..Command::new(command) }
                    }
                    None if cfg!(windows) => Command::new("cmd").arg("/C").arg(command),
                    None => Command::new("sh").arg("-c").arg(command),
                };
                let cwd = environment.cwd.clone();
                Self::Command(words.env("CLAUDE_PROJECT_DIR", cwd.as_os_str()).cwd(cwd))
            }
            HookAction::Http(hook) => {
                let client = outbound::client(&hook.url, &outbound::OutboundOptions::default());
                Self::Http(client.map_err(|error| error.to_string())?, hook.clone())
            }
        })
    }
}

async fn run_command(
    command: &Command,
    event: HookEvent,
    input: &Json,
    environment: &CommandEnvironment,
) -> Result<HookReply, String> {
    let mut child = command.start(&environment.process).await.map_err(|error| error.to_string())?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A hook that does not read its input is not at fault.
            let _ = stdin.write_all(input.as_str().as_bytes()).await;
            let _ = stdin.write_all(b"\n").await;
        }
    };
    let read = async {
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(OUTPUT_BYTES_MAX as u64 + 1).read_to_end(&mut output).await;
        }
        output
    };
    // The pipes end when the program has ended: its supervisor ends whatever it left behind.
    let ((), output, exit) = tokio::join!(write, read, child.wait());
    if output.len() > OUTPUT_BYTES_MAX {
        return Err(format!("its output exceeds the limit of {OUTPUT_BYTES_MAX} bytes"));
    }
    let output = String::from_utf8(output).map_err(|_| "its output is not UTF-8".to_owned())?;
    let stderr = || cut(child.stderr().tail(STDERR_LINES_MAX).trim());
    match exit.cause {
        ExitCause::Code(0) => HookReply::parse(event, &output),
        ExitCause::Code(2) => Ok(HookReply::deny(match stderr() {
            stderr if stderr.is_empty() => "exit code 2".to_owned(),
            stderr => stderr,
        })),
        // It failed, but what it refuses stays refused.
        cause => match HookReply::parse(event, &output) {
            Ok(reply) if reply.verdict == Some(HookVerdict::Deny) => Ok(reply),
            _ => {
                let end = match cause {
                    ExitCause::Code(code) => format!("exit code {code}"),
                    ExitCause::Signal(signal) => format!("ended by signal {signal}"),
                    ExitCause::Unknown => "it ended in an unknown way".to_owned(),
                };
                Err(format!("{end}: {}", stderr()).trim_end_matches(": ").to_owned())
            }
        },
    }
}

async fn send(client: &Client, hook: &HttpHook, event: HookEvent, input: &Json) -> Result<HookReply, String> {
    let failed = |error: outbound::Error| outbound::error_chain(&error.without_url());
    let mut request = client.post(hook.url.clone()).header("content-type", "application/json");
    for (name, value) in &hook.headers {
        request = request.header(name, value.resolve(&hook.allowed_variables));
    }
    let mut response = request.body(input.to_string()).send().await.map_err(failed)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > OUTPUT_BYTES_MAX {
            return Err(format!("its answer exceeds the limit of {OUTPUT_BYTES_MAX} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    if !status.is_success() {
        return Err(format!("it answered with status {}", status.as_u16()));
    }
    let body = String::from_utf8(body).map_err(|_| "its answer is not UTF-8".to_owned())?;
    match body.trim() {
        "" => Ok(HookReply::default()),
        body if body.starts_with('{') => HookReply::parse(event, body),
        _ => Err("its answer is not a JSON object".to_owned()),
    }
}
