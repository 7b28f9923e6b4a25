//! Elicitation by URL: the server says when the user has done what it asked for, and the client that waits is told.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use gateway::GatewayOptions;
use json::Json;
use spile_core::{ClientCapabilities, InputRequest};
use upstream::{ClientHandler, Connection, ConnectionEvent, ConnectionOptions};
use wire::Version;
use wire::client::{ClientCall, ClientOptions, IncomingInputRequest, InputReply, VersionPolicy};
use wire::method::Method;

use crate::world::{SimProvider, SimServer, run, start_gateway};

/// Agrees to open every URL, and writes down what it was asked and told.
#[derive(Default)]
struct Browser(Mutex<Vec<String>>);

impl Browser {
    fn push(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

impl ClientHandler for Browser {
    fn on_input_request(
        &self,
        request: IncomingInputRequest,
    ) -> Pin<Box<dyn Future<Output = InputReply> + Send>> {
        let doc = request.params.to_doc();
        let id = doc.root().get("elicitationId").and_then(|id| id.str()).unwrap_or_default().into_owned();
        self.push(format!("asked {id}"));
        let accept = Json::parse(r#"{"action":"accept"}"#).expect("JSON");
        Box::pin(std::future::ready(InputReply::Result(accept)))
    }

    fn on_event(&self, event: ConnectionEvent) {
        if let ConnectionEvent::ElicitationCompleted(id) = event {
            self.push(format!("completed {id}"));
        }
    }
}

/// What a client of this version sees of two calls at once that ask at a URL, at a server with this policy.
async fn seen(server: VersionPolicy, client: Version) -> Vec<String> {
    let url = "https://example.com/sign-in?state=1".to_owned();
    let question = InputRequest::Url { message: "Sign in".to_owned(), url };
    let provider = SimProvider { question: Some(question), ..SimProvider::new("s") };
    let server = SimServer::with_provider("s", server, 1, provider);
    let gateway = start_gateway(std::slice::from_ref(&server), GatewayOptions::default(), "", 1);
    gateway.gateway.manager().settled().await;
    gateway.gateway.refresh();
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    tokio::spawn(transport::pipe::serve(gateway.front.clone(), theirs));
    let client_options = ClientOptions {
        capabilities: ClientCapabilities::ELICITATION_URL,
        version_policy: VersionPolicy::Only(client),
        ..ClientOptions::default()
    };
    let options = ConnectionOptions { client_options, ..ConnectionOptions::default() };
    let (input, output) = tokio::io::split(ours);
    let browser = Arc::new(Browser::default());
    let opened = Connection::over_pipe(input, output, options, browser.clone()).await;
    let connection = opened.expect("the gateway answers");
    for _ in 0..2 {
        let params = r#"{"name":"mcp__s__echo","arguments":{"token":"t","ms":0,"ask":true}}"#;
        let call = ClientCall::new(Method::ToolsCall, Json::parse(params).expect("JSON"));
        let result = connection.call(call, None).await.expect("a result").to_string();
        assert!(result.contains("accept"), "{result}");
    }
    gateway.gateway.close().await;
    std::mem::take(&mut *browser.0.lock().unwrap_or_else(PoisonError::into_inner))
}

#[test]
fn a_client_that_waits_for_the_end_of_an_elicitation_is_told() {
    run(async {
        let lines = seen(VersionPolicy::HandshakeOnly, Version::V2025_11_25).await;
        let ids: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("asked ")).collect();
        assert!(ids.len() == 2 && ids[0] != ids[1] && !ids[0].is_empty(), "{lines:?}");
        let expected: Vec<String> =
            ids.iter().flat_map(|id| [format!("asked {id}"), format!("completed {id}")]).collect();
        assert_eq!(lines, expected);
    });
}

#[test]
fn versions_without_ids_of_elicitations_have_no_such_notification() {
    run(async {
        assert_eq!(seen(VersionPolicy::HandshakeOnly, Version::NEWEST).await, ["asked ", "asked "]);
        assert_eq!(seen(VersionPolicy::Any, Version::NEWEST).await, ["asked ", "asked "]);
    });
}
