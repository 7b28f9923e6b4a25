//! An authorization server that rotates its refresh tokens, and an MCP server that it protects, at one origin.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use json::Json;
use ring::digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

use crate::http_server::{Request, Response, serve};

/// An authorization server and the MCP server that it protects, at one origin.
#[derive(Default)]
pub struct Authority {
    pub origin: Mutex<String>,
    /// Changes of its documents: a member, and its value or nothing.
    pub changes: Mutex<BTreeMap<&'static str, Option<String>>>,
    pub clients: Mutex<Vec<String>>,
    /// Code → what it was issued for.
    pub codes: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
    /// The only refresh token that is valid: each use makes a new one.
    pub refresh_token: Mutex<Option<String>>,
    pub access_tokens: Mutex<Vec<String>>,
    pub issued: Mutex<u64>,
    pub log: Mutex<Vec<String>>,
    /// Fails the next token requests with this status.
    pub token_failures: Mutex<Vec<u16>>,
    pub has_resource_metadata: Mutex<bool>,
}

impl Authority {
    pub async fn start() -> Arc<Self> {
        let authority = Arc::new(Self { has_resource_metadata: Mutex::new(true), ..Self::default() });
        let serving = authority.clone();
        let origin = serve(move |request| serving.answer(&request)).await;
        *authority.origin.lock().expect("no panic") = origin;
        authority
    }

    pub fn origin(&self) -> String {
        self.origin.lock().expect("no panic").clone()
    }

    pub fn server(&self) -> Url {
        Url::parse(&format!("{}/mcp", self.origin())).expect("a URL")
    }

    pub fn change(&self, member: &'static str, value: Option<&str>) {
        self.changes.lock().expect("no panic").insert(member, value.map(str::to_owned));
    }

    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().expect("no panic"))
    }

    fn document(&self, members: &[(&'static str, String)]) -> Response {
        let changes = self.changes.lock().expect("no panic");
        Response::json(
            200,
            Json::object(|out| {
                for (key, value) in members {
                    match changes.get(key) {
                        Some(Some(changed)) => out.raw(key, changed),
                        Some(None) => out,
                        None => out.raw(key, value),
                    };
                }
            })
            .to_string(),
        )
    }

    fn answer(&self, request: &Request) -> Response {
        let origin = self.origin();
        let quoted = |path: &str| Json::string(&format!("{origin}{path}")).to_string();
        match (request.method.as_str(), request.path()) {
            ("GET", "/.well-known/oauth-protected-resource/mcp")
                if *self.has_resource_metadata.lock().expect("no panic") =>
            {
                self.document(&[
                    ("resource", quoted("/mcp")),
                    ("authorization_servers", format!("[{}]", quoted(""))),
                    ("scopes_supported", r#"["read"]"#.to_owned()),
                ])
            }
            ("GET", "/.well-known/oauth-authorization-server") => {
                let mut members = vec![
                    ("issuer", quoted("")),
                    ("authorization_endpoint", quoted("/authorize")),
                    ("token_endpoint", quoted("/token")),
                    ("registration_endpoint", quoted("/register")),
                    ("code_challenge_methods_supported", r#"["S256"]"#.to_owned()),
                    ("authorization_response_iss_parameter_supported", "true".to_owned()),
                ];
                // The resource has scopes of its own.
                let scopes = self.changes.lock().expect("no panic").get("as_scopes_supported").cloned();
                members.extend(scopes.flatten().map(|scopes| ("scopes_supported", scopes)));
                self.document(&members)
            }
            ("POST", "/register") => self.register(request),
            ("GET", "/authorize") => self.authorize(request),
            ("POST", "/token") => self.token(request),
            (_, "/mcp") => self.mcp(request),
            _ => Response::status(404),
        }
    }

    fn next(&self, kind: &str) -> String {
        let mut issued = self.issued.lock().expect("no panic");
        *issued += 1;
        format!("{kind}-{issued}")
    }

    fn register(&self, request: &Request) -> Response {
        let body = Json::parse(&request.body).expect("JSON");
        let uri = body
            .to_doc()
            .root()
            .get("redirect_uris")
            .and_then(|all| all.elements().next()?.str().map(|uri| uri.into_owned()));
        let id = self.next("client");
        self.clients.lock().expect("no panic").push(uri.expect("a redirect URI"));
        self.log.lock().expect("no panic").push("register".to_owned());
        Response::json(201, format!(r#"{{"client_id":"{id}"}}"#))
    }

    /// The user agrees at once.
    fn authorize(&self, request: &Request) -> Response {
        let query = request.target.split_once('?').map_or("", |(_, query)| query);
        let asked = Request::parameters(query);
        let code = self.next("code");
        let mut back = Url::parse(&asked["redirect_uri"]).expect("a URL");
        back.query_pairs_mut()
            .append_pair("code", &code)
            .append_pair("state", &asked["state"])
            .append_pair("iss", &self.origin());
        self.log.lock().expect("no panic").push(format!(
            "authorize scope={:?} resource={}",
            asked.get("scope"),
            asked["resource"].replace(&self.origin(), "")
        ));
        self.codes.lock().expect("no panic").insert(code, asked);
        Response::status(302).header("Location", back.as_str())
    }

    fn token(&self, request: &Request) -> Response {
        if let Some(status) = self.token_failures.lock().expect("no panic").pop() {
            return Response::status(status);
        }
        let form = Request::parameters(&request.body);
        let refused = |error: &str| Response::json(400, format!(r#"{{"error":"{error}"}}"#));
        let scope = match form["grant_type"].as_str() {
            "authorization_code" => {
                let Some(asked) = self.codes.lock().expect("no panic").remove(&form["code"]) else {
                    return refused("invalid_grant");
                };
                let hash = digest::digest(&digest::SHA256, form["code_verifier"].as_bytes());
                if URL_SAFE_NO_PAD.encode(hash) != asked["code_challenge"]
                    || asked["redirect_uri"] != form["redirect_uri"]
                    || asked["client_id"] != form["client_id"]
                    || asked["resource"] != form["resource"]
                {
                    return refused("invalid_grant");
                }
                asked.get("scope").cloned().unwrap_or_default()
            }
            "refresh_token" => {
                let mut valid = self.refresh_token.lock().expect("no panic");
                // Rotation: a token that is used twice was stolen, and everything is revoked.
                if valid.as_deref() != Some(&form["refresh_token"]) {
                    *valid = None;
                    self.log.lock().expect("no panic").push("refresh refused".to_owned());
                    return refused("invalid_grant");
                }
                "read".to_owned()
            }
            "urn:ietf:params:oauth:grant-type:jwt-bearer" if form["assertion"] == "workload" => {
                form.get("scope").cloned().unwrap_or_default()
            }
            "urn:ietf:params:oauth:grant-type:jwt-bearer" => return refused("invalid_grant"),
            _ => return refused("unsupported_grant_type"),
        };
        let (access, refresh) = (self.next("access"), self.next("refresh"));
        *self.refresh_token.lock().expect("no panic") = Some(refresh.clone());
        self.access_tokens.lock().expect("no panic").push(access.clone());
        self.log.lock().expect("no panic").push(form["grant_type"].clone());
        Response::json(
            200,
            format!(
                r#"{{"access_token":"{access}","refresh_token":"{refresh}","token_type":"Bearer","expires_in":3600,"scope":"{scope}"}}"#
            ),
        )
    }

    /// A server of the handshake era, for those with a token.
    fn mcp(&self, request: &Request) -> Response {
        let token = request.headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let valid = self.access_tokens.lock().expect("no panic");
        if !token.is_some_and(|token| valid.iter().any(|known| known == token)) {
            let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.origin());
            return Response::status(401).header(
                "WWW-Authenticate",
                format!(r#"Bearer resource_metadata="{metadata}", scope="read""#),
            );
        }
        let Ok(message) = Json::parse(&request.body) else { return Response::status(405) };
        let doc = message.to_doc();
        let Some(id) = doc.root().get("id").map(Json::from) else { return Response::status(202) };
        let method = doc.root().get("method").and_then(|method| method.str()).unwrap_or_default();
        let result = match &*method {
            "initialize" => {
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"guarded","version":"1"}}"#
            }
            "tools/list" => r#"{"tools":[{"name":"whoami","inputSchema":{"type":"object"}}]}"#,
            "tools/call" => r#"{"content":[{"type":"text","text":"you"}]}"#,
            _ => {
                return Response::json(
                    200,
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#),
                );
            }
        };
        Response::json(200, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
    }
}

/// A plain GET, without following a redirect. Returns the whole answer.
pub async fn get(url: &Url) -> String {
    let address = (url.host_str().expect("a host"), url.port().expect("a port"));
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let target = &url[url::Position::BeforePath..];
    let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", address.0);
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("text");
    answer
}

pub fn location(answer: &str) -> Url {
    let line = answer.lines().find_map(|line| line.strip_prefix("Location: ")).expect("a redirect");
    Url::parse(line).expect("a URL")
}
