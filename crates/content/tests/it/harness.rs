//! A folder of files, served by a real host.

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use content::{
    BackendRead, BackendRun, ContentBackend, ContentProvider, Folder, Loaded, NoBackend, ResourceBody,
    ResourceData, TemplateSource, Variables, Watching,
};
use contract::diagnostic::{Diagnostic, render_all};
use host::{
    CallerIdentity, Config, ConnectionState, Dispatched, OutgoingMessage, PendingResponse, ReplyChannel,
    Server, SubscriptionStream,
};
use json::Json;
use spile_core::{CallContext, CallError, ItemKind, Limits, Platform, Principal};
use testkit::FakePlatform;
use wire::{Decoded, MessageContext, Peer, Version};

pub(crate) const ANONYMOUS: CallerIdentity =
    CallerIdentity { principal: Principal::Anonymous, address: None, request_head: None };

/// The smallest PNG.
pub(crate) const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89,
];

pub(crate) struct TestFolder {
    root: tempfile::TempDir,
}

impl TestFolder {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self { root: tempfile::tempdir().expect("a folder") };
        for (path, text) in files {
            folder.write(path, text);
        }
        folder
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }

    pub(crate) fn folder(&self) -> Folder {
        Folder::new(self.root.path(), Watching::Files)
    }

    pub(crate) fn load(&self) -> (Loaded, Vec<Diagnostic>) {
        self.folder().load()
    }

    /// Loads the folder, and fails the test if anything is wrong with it.
    pub(crate) fn serve(&self) -> TestServer {
        TestServer::new(load_clean(&self.folder()), Arc::new(NoBackend))
    }
}

pub(crate) fn load_clean(folder: &Folder) -> Loaded {
    let (loaded, diagnostics) = folder.load();
    assert!(diagnostics.is_empty(), "{}", render_all(&diagnostics, false));
    loaded
}

/// Collections `customers` and `orders`; records by the variable `id`.
pub(crate) struct TestBackend;

impl ContentBackend for TestBackend {
    fn complete(
        &self,
        collection: &str,
        field: &str,
        prefix: &str,
        context: &[(String, String)],
        values_max: usize,
        _: &CallContext<'_>,
    ) -> BackendRun<Vec<String>> {
        let values = (0..300).map(|n| format!("{prefix}{collection}.{field}.{n}.{}", context.len()));
        let values: Vec<String> = values.take(values_max).collect();
        // Later, as a database would.
        BackendRun::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(values)
        }))
    }

    fn read(
        &self,
        source: &TemplateSource,
        uri: &str,
        variables: &Variables,
        _: &CallContext<'_>,
    ) -> BackendRun<BackendRead> {
        let known = variables.iter().find(|(name, value)| name == "id" && value != "none").is_some();
        if !known {
            let unknown = CallError::UnknownItem { kind: ItemKind::Resource, name: uri.to_owned() };
            return BackendRun::Now(Err(unknown));
        }
        let text = format!("{source:?} {variables:?}");
        BackendRun::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            let data = ResourceData::Text(text);
            Ok(BackendRead::Body(ResourceBody { mime_type: None, data, meta: None }))
        }))
    }
}

pub(crate) struct TestServer {
    pub(crate) server: Arc<Server>,
    pub(crate) provider: Arc<ContentProvider>,
    runtime: tokio::runtime::Runtime,
}

impl TestServer {
    pub(crate) fn new(loaded: Loaded, backend: Arc<dyn ContentBackend>) -> Self {
        let provider = Arc::new(ContentProvider::new(loaded, backend));
        let platform: Arc<dyn Platform> = Arc::new(FakePlatform::new(1));
        let server = Server::new(Config::new("t", "1", Limits::default(), platform), vec![provider.clone()]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        Self { server, provider, runtime }
    }

    /// The `result` or `error` of a request of the stateless era. `params` has further members.
    pub(crate) fn modern(&self, method: &str, params: &str) -> String {
        let comma = if params.is_empty() { "" } else { "," };
        let message = format!(
            concat!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{}","params":{{{}{}"#,
                r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
                r#""io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
            ),
            method, params, comma
        );
        self.respond(&message, ReplyChannel::NoSession)
    }

    /// The same for a version of the handshake era.
    pub(crate) fn legacy(&self, method: &str, params: &str) -> String {
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
        self.respond(&message, ReplyChannel::NoSession)
    }

    fn respond(&self, message: &str, channel: ReplyChannel) -> String {
        let body = match self.dispatch(message, channel) {
            Dispatched::Call(in_flight) => self.runtime.block_on(async {
                let mut pending = PendingResponse::Single(in_flight);
                loop {
                    if let OutgoingMessage::Response { body, .. } = poll_fn(|cx| pending.poll_next(cx)).await
                    {
                        return body;
                    }
                }
            }),
            Dispatched::Ready { body, .. } | Dispatched::Initialized { body, .. } => body,
            Dispatched::Subscription(_) => panic!("a subscription"),
        };
        let doc = Json::from_written_bytes(body).to_doc();
        let member = doc.root().get("result").or_else(|| doc.root().get("error"));
        member.map(|node| node.raw().to_owned()).unwrap_or_else(|| panic!("{}", doc.text()))
    }

    fn dispatch(&self, message: &str, channel: ReplyChannel) -> Dispatched {
        let peer = Peer::from_version(Version::V2025_11_25);
        let decoded = self.server.decode(
            message.as_bytes().to_vec(),
            MessageContext::Pipe(Some(peer)),
            &self.server.snapshot(),
        );
        match decoded {
            Decoded::Request(request) => {
                self.server.dispatch(request, &ANONYMOUS, channel, self.server.snapshot())
            }
            Decoded::Rejected(response) => {
                Dispatched::Ready { status: response.http_status, body: response.body, retry_after_ms: None }
            }
            _ => panic!("a request: {message}"),
        }
    }

    /// A client of the handshake era on a pipe.
    pub(crate) fn connect(&self) -> Arc<ConnectionState> {
        let connection = self.server.open_pipe();
        let initialize = concat!(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
            r#""capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#
        );
        self.respond(initialize, ReplyChannel::Pipe(connection.clone()));
        connection
    }

    pub(crate) fn subscribe(&self, connection: &Arc<ConnectionState>, uri: &str) {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{{"uri":"{uri}"}}}}"#
        );
        let answer = self.respond(&message, ReplyChannel::Pipe(connection.clone()));
        assert_eq!(answer, "{}");
    }

    /// A client of the stateless era that listens to everything.
    pub(crate) fn listen(&self, uri: &str) -> SubscriptionStream {
        let message = format!(
            concat!(
                r#"{{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{{"notifications":{{"#,
                r#""promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["{}"]}},"#,
                r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
                r#""io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
            ),
            uri
        );
        match self.dispatch(&message, ReplyChannel::NoSession) {
            Dispatched::Subscription(stream) => stream,
            _ => panic!("a subscription"),
        }
    }
}

/// Long after every change that a test makes, so that no stamp is recent.
pub(crate) fn much_later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

/// A JSON text with line breaks, for snapshots.
pub(crate) fn pretty(json: &str) -> String {
    let mut out = String::new();
    write_pretty(Json::parse(json).expect("JSON").to_doc().root(), 0, &mut out);
    out
}

fn write_pretty(node: json::Node<'_>, depth: usize, out: &mut String) {
    let indent = |depth: usize| "  ".repeat(depth);
    let raw = node.raw();
    if raw.len() <= 80 || (!node.is_object() && node.kind() != json::NodeKind::Array) {
        out.push_str(raw);
    } else if node.is_object() {
        out.push_str("{\n");
        for (key, value) in node.members() {
            out.push_str(&format!("{}{}: ", indent(depth + 1), key.raw()));
            write_pretty(value, depth + 1, out);
            out.push('\n');
        }
        out.push_str(&format!("{}}}", indent(depth)));
    } else {
        out.push_str("[\n");
        for value in node.elements() {
            out.push_str(&indent(depth + 1));
            write_pretty(value, depth + 1, out);
            out.push('\n');
        }
        out.push_str(&format!("{}]", indent(depth)));
    }
}
