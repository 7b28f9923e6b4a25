//! Answers `sampling/createMessage` of servers with the program or the endpoint that the user configured.
//!
//! ```text
//! config/sampling   what the settings say
//!  → review         what a person is shown before they allow it
//!  → formats        the request in the words of a model endpoint, and its answer as a result; pure
//!  → here           runs the program or sends the request, within limits
//! ```
//!
//! Whoever calls [`Sampler::answer`] has asked a person, or found the server in [`Sampler::allows`].

mod formats;
mod review;

use std::time::Duration;

use json::Json;
use outbound::{Client, OutboundOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use upstream::process::{Command, ExitCause, ProcessOptions};
use url::Url;

use crate::config::{
    ExpandError, SamplingFormat, SamplingModel, SamplingSettings, Template, Variables, input_variable,
};
pub use review::{review_answer, review_request};

/// A request of a server is not longer.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// An answer is not longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// More requests wait for one another.
const RUNNING_MAX: usize = 4;
const STDERR_LINES_MAX: usize = 5;

/// Answers for a model.
pub struct Sampler {
    model: Model,
    timeout_ms: u64,
    tokens_max: u64,
    allow: Vec<String>,
    running: Semaphore,
}

/// With its variables replaced. It has secrets, so it is not printed.
enum Model {
    Command(Command, ProcessOptions),
    Endpoint {
        client: Client,
        url: Url,
        headers: Vec<(String, String)>,
        format: SamplingFormat,
        name: String,
    },
}

/// Why the settings cannot be used. Never contains the value of a variable.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    #[error("sampling: {field}: {error}")]
    Expand { field: String, error: ExpandError },
    #[error("sampling: `url` is not an http or https address")]
    Url,
    #[error("sampling: the value of the header `{0}` contains a character that HTTP does not allow")]
    Header(String),
    #[error("sampling: {0}")]
    Client(String),
}

/// Why there is no answer. The text is for the user and the log: what the program or the endpoint said goes to no server.
#[derive(Debug, thiserror::Error)]
pub enum SamplingError {
    #[error("the request exceeds the limit of {REQUEST_BYTES_MAX} bytes")]
    RequestTooLarge,
    #[error("the model cannot be asked this: {0}")]
    Unsupported(&'static str),
    #[error("the model did not answer within {0} ms")]
    Timeout(u64),
    #[error("the answer exceeds the limit of {ANSWER_BYTES_MAX} bytes")]
    AnswerTooLarge,
    #[error("the answer of the model cannot be used: {0}")]
    InvalidAnswer(&'static str),
    #[error("the model failed: {0}")]
    Failed(String),
}

impl SamplingError {
    /// What the server is told.
    pub fn for_server(&self) -> &'static str {
        match self {
            Self::RequestTooLarge => "the request is too large",
            Self::Unsupported(reason) => reason,
            Self::Timeout(_) | Self::AnswerTooLarge | Self::InvalidAnswer(_) | Self::Failed(_) => {
                "the model did not answer"
            }
        }
    }
}

impl Sampler {
    /// Replaces the variables of the settings.
    pub fn new(
        settings: &SamplingSettings,
        env: &dyn Fn(&str) -> Option<String>,
        process: ProcessOptions,
    ) -> Result<Self, SamplerError> {
        let input = |id: &str| env(&input_variable(id));
        let variables = Variables { env, input: &input, home: None, project: None };
        let expand = |field: &str, template: &Template| {
            let expanded = template.expand(&variables);
            expanded.map_err(|error| SamplerError::Expand { field: field.to_owned(), error })
        };
        let model = match &settings.model {
            SamplingModel::Command { command, args, env } => {
                let mut words = Command::new(expand("command", command)?);
                for (index, arg) in args.iter().enumerate() {
                    words = words.arg(expand(&format!("args[{index}]"), arg)?);
                }
                for (name, value) in env {
                    words = words.env(name, expand(&format!("env.{name}"), value)?);
                }
                Model::Command(words, process)
            }
            SamplingModel::Endpoint { url, headers, format, model } => {
                let url = Url::parse(&expand("url", url)?).map_err(|_| SamplerError::Url)?;
                if !matches!(url.scheme(), "http" | "https") {
                    return Err(SamplerError::Url);
                }
                let mut all = Vec::with_capacity(headers.len());
                for (name, value) in headers {
                    let value = expand(&format!("headers.{name}"), value)?.trim().to_owned();
                    if value.bytes().any(|c| c < 0x20 && c != b'\t' || c >= 0x7f) {
                        return Err(SamplerError::Header(name.clone()));
                    }
                    all.push((name.clone(), value));
                }
                let client = outbound::client(&url, &OutboundOptions::default());
                let client = client.map_err(|error| SamplerError::Client(error.to_string()))?;
                let name = model.clone().unwrap_or_default();
                Model::Endpoint { client, url, headers: all, format: *format, name }
            }
        };
        Ok(Self {
            model,
            timeout_ms: settings.timeout_ms,
            tokens_max: settings.tokens_max,
            allow: settings.allow.clone(),
            running: Semaphore::new(RUNNING_MAX),
        })
    }

    /// Whether requests of this server are answered without asking a person.
    pub fn allows(&self, server: &str) -> bool {
        self.allow.iter().any(|allowed| allowed == server)
    }

    /// Answers the parameters of `sampling/createMessage` with its result.
    pub async fn answer(&self, params: &Json) -> Result<Json, SamplingError> {
        if params.as_str().len() > REQUEST_BYTES_MAX {
            return Err(SamplingError::RequestTooLarge);
        }
        let params = formats::known_params(params, self.tokens_max);
        let work = async {
            // The semaphore is never closed.
            let _running = self.running.acquire().await;
            match &self.model {
                Model::Command(command, process) => run(command, process, &params).await,
                Model::Endpoint { client, url, headers, format, name } => {
                    let body =
                        formats::request(*format, name, &params).map_err(SamplingError::Unsupported)?;
                    let answer = send(client, url, headers, *format, &body).await?;
                    formats::result(*format, name, &answer).map_err(SamplingError::InvalidAnswer)
                }
            }
        };
        // Dropping the work ends the program with everything it started.
        match tokio::time::timeout(Duration::from_millis(self.timeout_ms), work).await {
            Ok(answer) => answer,
            Err(_) => Err(SamplingError::Timeout(self.timeout_ms)),
        }
    }
}

async fn run(command: &Command, process: &ProcessOptions, params: &Json) -> Result<Json, SamplingError> {
    let failed = |reason: String| SamplingError::Failed(reason);
    let mut child = command.start(process).await.map_err(|error| failed(error.to_string()))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read all of it may still answer.
            let _ = stdin.write_all(params.as_str().as_bytes()).await;
            let _ = stdin.write_all(b"\n").await;
        }
    };
    let read = async {
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(ANSWER_BYTES_MAX as u64 + 1).read_to_end(&mut output).await;
        }
        output
    };
    let ((), output) = tokio::join!(write, read);
    if output.len() > ANSWER_BYTES_MAX {
        return Err(SamplingError::AnswerTooLarge);
    }
    let exit = child.wait().await;
    if exit.cause != ExitCause::Code(0) {
        let end = match exit.cause {
            ExitCause::Code(code) => format!("exit code {code}"),
            ExitCause::Signal(signal) => format!("ended by signal {signal}"),
            ExitCause::Unknown => "it ended in an unknown way".to_owned(),
        };
        let stderr = child.stderr().tail(STDERR_LINES_MAX);
        return Err(failed(format!("{end}: {}", stderr.trim()).trim_end_matches(": ").to_owned()));
    }
    let text = String::from_utf8(output).map_err(|_| SamplingError::InvalidAnswer("it is not UTF-8"))?;
    match text.trim() {
        "" => Err(SamplingError::InvalidAnswer("it is empty")),
        object if object.starts_with('{') => {
            formats::result(SamplingFormat::Mcp, "", object).map_err(SamplingError::InvalidAnswer)
        }
        text => Ok(formats::text_result(text, "", "endTurn")),
    }
}

async fn send(
    client: &Client,
    url: &Url,
    headers: &[(String, String)],
    format: SamplingFormat,
    body: &Json,
) -> Result<String, SamplingError> {
    let failed = |error: outbound::Error| SamplingError::Failed(outbound::error_chain(&error.without_url()));
    let mut request = client.post(url.clone()).header("content-type", "application/json");
    for (name, value) in formats::default_headers(format) {
        if !headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)) {
            request = request.header(*name, *value);
        }
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let mut response = request.body(body.to_string()).send().await.map_err(failed)?;
    let status = response.status();
    // The body of an error may repeat the request, or name the account.
    if !status.is_success() {
        return Err(SamplingError::Failed(format!("the endpoint answered with status {}", status.as_u16())));
    }
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if answer.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(SamplingError::AnswerTooLarge);
        }
        answer.extend_from_slice(&chunk);
    }
    String::from_utf8(answer).map_err(|_| SamplingError::InvalidAnswer("it is not UTF-8"))
}
