//! Runs one test against a server in this process, over a pipe: through the same client, protocol and pipeline as any call.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use host::{CallerIdentity, Server};
use json::{Json, Node};
use spile_core::ClientCapabilities;
use tokio::runtime::{Builder, Runtime};
use upstream::{ClientHandler, Connection, ConnectionEvent, ConnectionOptions};
use wire::Version;
use wire::client::{
    ClientCall, ClientError, ClientOptions, IncomingInputRequest, InputReply, InputRequestKind, VersionPolicy,
};
use wire::method::Method;

use super::case::{Answer, AnswerReply, TestCase, TestRequest};

/// How much one direction of the pipe buffers.
const PIPE_BYTES: usize = 64 << 10;

/// A server under test.
pub(super) struct TestedServer {
    server: Arc<Server>,
    code_failures: CodeFailures,
    /// The server's own thread, so that slow work in it does not delay the client's timeouts.
    runtime: Option<Runtime>,
}

/// What came back.
#[derive(Debug)]
pub(super) enum Response {
    /// For a tool its structured content, if it has any; for a resource and a prompt the whole result.
    Result {
        value: Option<Json>,
        text: String,
    },
    ToolError {
        value: Option<Json>,
        text: String,
    },
    RpcError {
        code: i64,
        text: String,
    },
}

/// What a test run produced, besides the response: questions without answers, answers without questions.
pub(super) struct TestRun {
    pub(super) response: Result<Response, String>,
    pub(super) problems: Vec<String>,
    /// What the author's code did wrong, with the place in its file.
    pub(super) code_failures: Vec<String>,
}

/// Failures of the author's code since the last look.
#[derive(Clone, Default)]
pub(super) struct CodeFailures(Arc<Mutex<Vec<String>>>);

/// More than a test shows.
const CODE_FAILURES_MAX: usize = 8;

impl CodeFailures {
    pub(super) fn push(&self, failure: String) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < CODE_FAILURES_MAX {
            failures.push(failure);
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TestedServer {
    pub(super) fn start(server: Arc<Server>, code_failures: CodeFailures) -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
        Ok(Self { server, code_failures, runtime: Some(runtime) })
    }

    /// Whether the server says that this tool only reads. An unknown tool does nothing.
    pub(super) fn only_reads(&self, tool: &str) -> bool {
        let catalog = self.server.offered_catalog(&CallerIdentity::default());
        let found = catalog.tools().find(|one| one.name == tool);
        found.is_none_or(|tool| tool.annotations.read_only == Some(true))
    }

    pub(super) async fn run(&self, case: &TestCase, options: &RunOptions) -> TestRun {
        let answers = Arc::new(ScriptedAnswers::new(&case.answers));
        let response = self.request(case, options, &answers).await;
        TestRun { response, problems: answers.problems(), code_failures: self.code_failures.take() }
    }

    async fn request(
        &self,
        case: &TestCase,
        options: &RunOptions,
        answers: &Arc<ScriptedAnswers>,
    ) -> Result<Response, String> {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        if let Some(runtime) = &self.runtime {
            runtime.spawn(transport::pipe::serve(self.server.clone(), theirs));
        }
        let (input, output) = tokio::io::split(ours);
        let connection_options = ConnectionOptions {
            client_options: ClientOptions {
                capabilities: capabilities(&case.answers),
                version_policy: options.protocol.map_or(VersionPolicy::Any, VersionPolicy::Only),
                ..ClientOptions::default()
            },
            ..ConnectionOptions::default()
        };
        let handler = Arc::new(AnswerHandler(answers.clone()));
        let connection = Connection::over_pipe(input, output, connection_options, handler)
            .await
            .map_err(|error| format!("cannot connect: {error}"))?;
        let (method, params) = request_params(&case.request);
        let call = ClientCall { timeout_ms: Some(options.timeout_ms), ..ClientCall::new(method, params) };
        let response = connection.call(call, None).await;
        connection.close().await;
        match response {
            Ok(result) => Ok(read_result(&case.request, result.to_doc().root())),
            Err(ClientError::Server(error)) => {
                Ok(Response::RpcError { code: error.code, text: error.message.clone() })
            }
            Err(ClientError::Timeout { after_ms, .. }) => Err(format!("no response within {after_ms} ms")),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for TestedServer {
    fn drop(&mut self) {
        // A call that does not stop must not keep the process.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The same for all tests.
pub(super) struct RunOptions {
    pub(super) protocol: Option<Version>,
    pub(super) timeout_ms: u64,
}

/// A client declares what the test has answers for, and that it can show forms.
fn capabilities(answers: &[Answer]) -> ClientCapabilities {
    let mut all = ClientCapabilities::ELICITATION_FORM.with(ClientCapabilities::ELICITATION_URL);
    for answer in answers {
        match answer.reply {
            AnswerReply::Sample(_) => all = all.with(ClientCapabilities::SAMPLING),
            AnswerReply::Roots(_) => all = all.with(ClientCapabilities::ROOTS),
            AnswerReply::Accept(_) | AnswerReply::Decline | AnswerReply::Cancel => {}
        }
    }
    all
}

fn request_params(request: &TestRequest) -> (Method, Json) {
    let named = |name: &str, arguments: &Json| {
        Json::object(|out| {
            out.str("name", name).raw("arguments", arguments.as_str());
        })
    };
    match request {
        TestRequest::CallTool { name, arguments } => (Method::ToolsCall, named(name, arguments)),
        TestRequest::GetPrompt { name, arguments } => (Method::PromptsGet, named(name, arguments)),
        TestRequest::ReadResource { uri } => {
            let params = Json::object(|out| {
                out.str("uri", uri);
            });
            (Method::ResourcesRead, params)
        }
    }
}

fn read_result(request: &TestRequest, result: Node<'_>) -> Response {
    let text_of = |node: Node<'_>| node.get("text").and_then(|text| text.str()).map(|text| text.into_owned());
    let list = |key: &str| result.get(key).into_iter().flat_map(|all| all.elements());
    match request {
        TestRequest::CallTool { .. } => {
            let is_error = result.get("isError").and_then(|flag| flag.bool()) == Some(true);
            let mut texts: Vec<String> = list("content").filter_map(text_of).collect();
            // Older versions of the protocol have the structured content only as a second text.
            let as_text = match &*texts {
                [_, second] => Json::parse(second).ok().filter(Json::is_object),
                _ => None,
            };
            let value = result.get("structuredContent").map(Json::from).or_else(|| as_text.clone());
            if as_text.is_some() {
                texts.truncate(1);
            }
            let text = texts.join("\n");
            if is_error { Response::ToolError { value, text } } else { Response::Result { value, text } }
        }
        TestRequest::ReadResource { .. } => {
            let text = list("contents").filter_map(text_of).collect::<Vec<_>>().join("\n");
            Response::Result { value: Some(Json::from(result)), text }
        }
        TestRequest::GetPrompt { .. } => {
            let contents = list("messages").filter_map(|message| message.get("content"));
            let text = contents.filter_map(text_of).collect::<Vec<_>>().join("\n");
            Response::Result { value: Some(Json::from(result)), text }
        }
    }
}

/// The answers of a test, each used once.
struct ScriptedAnswers(Mutex<AnswerState>);

struct AnswerState {
    left: VecDeque<Answer>,
    problems: Vec<String>,
}

impl ScriptedAnswers {
    fn new(answers: &[Answer]) -> Self {
        Self(Mutex::new(AnswerState { left: answers.iter().cloned().collect(), problems: Vec::new() }))
    }

    /// What went wrong, at the end of the test.
    fn problems(&self) -> Vec<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = state.left.iter().map(|answer| match &answer.question {
            Some(question) => format!("the server did not ask `{question}`"),
            None => "the server did not ask for all answers".to_owned(),
        });
        state.problems.iter().cloned().chain(unused).collect()
    }

    /// The first answer that fits.
    fn take(&self, kind: InputRequestKind, message: &str) -> Option<AnswerReply> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |answer: &Answer| {
            let fits_kind = match answer.reply {
                AnswerReply::Accept(_) | AnswerReply::Cancel => kind == InputRequestKind::Elicitation,
                AnswerReply::Decline => kind != InputRequestKind::Roots,
                AnswerReply::Sample(_) => kind == InputRequestKind::Sampling,
                AnswerReply::Roots(_) => kind == InputRequestKind::Roots,
            };
            fits_kind && answer.question.as_ref().is_none_or(|question| message.contains(question.as_str()))
        };
        let found = state.left.iter().position(fits).and_then(|position| state.left.remove(position));
        if found.is_none() {
            let what = match kind {
                InputRequestKind::Elicitation => format!("the server asked `{message}`"),
                InputRequestKind::Sampling => "the server asked for a text of a model".to_owned(),
                InputRequestKind::Roots => "the server asked for the roots".to_owned(),
            };
            state.problems.push(format!("{what}, and the test has no answer to it"));
        }
        found.map(|answer| answer.reply)
    }
}

struct AnswerHandler(Arc<ScriptedAnswers>);

impl ClientHandler for AnswerHandler {
    fn on_input_request(
        &self,
        request: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let doc = request.params.to_doc();
        let message = doc.root().get("message").and_then(|text| text.str()).unwrap_or_default().into_owned();
        let reply = match (self.0.take(request.kind, &message), request.kind) {
            (Some(AnswerReply::Decline), InputRequestKind::Sampling) => {
                InputReply::Declined("the test declined".to_owned())
            }
            (Some(reply), _) => InputReply::Result(reply_json(&reply)),
            (None, InputRequestKind::Elicitation) => InputReply::Result(reply_json(&AnswerReply::Cancel)),
            (None, InputRequestKind::Sampling | InputRequestKind::Roots) => {
                InputReply::Declined("the test has no answer".to_owned())
            }
        };
        Box::pin(std::future::ready(reply))
    }

    fn on_event(&self, _event: ConnectionEvent) {}
}

fn reply_json(reply: &AnswerReply) -> Json {
    Json::object(|out| match reply {
        AnswerReply::Accept(content) => {
            out.str("action", "accept").maybe_raw("content", content.as_ref().map(Json::as_str));
        }
        AnswerReply::Decline => {
            out.str("action", "decline");
        }
        AnswerReply::Cancel => {
            out.str("action", "cancel");
        }
        AnswerReply::Sample(text) => {
            out.str("role", "assistant").str("model", "test").str("stopReason", "endTurn");
            out.object("content", |out| {
                out.str("type", "text").str("text", text);
            });
        }
        AnswerReply::Roots(roots) => {
            out.array("roots", roots, |out, uri| {
                let mut root = json::write::ObjectWriter::new(out);
                root.str("uri", uri);
                root.end();
            });
        }
    })
}
