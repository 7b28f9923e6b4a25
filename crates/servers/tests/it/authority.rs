//! An authorization server that rotates its refresh tokens, and an MCP server that it protects, at one origin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use json::Json;
use ring::digest;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
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
    /// Tokens are bound to keys, and proofs must contain this nonce, if there is one.
    pub dpop: Mutex<Option<Dpop>>,
    /// Tokens that may list tools, and not call them.
    pub weak_tokens: Mutex<Vec<String>>,
    /// How long tokens are valid, if not for an hour.
    pub expires_in_s: Mutex<Option<u64>>,
    /// The answers to a device that asks for its token; at the end of the list the user has agreed.
    pub device_answers: Mutex<Vec<&'static str>>,
    /// A token was issued.
    pub issuing: Notify,
    requests: AtomicUsize,
}

/// What the servers want of proofs, and what they saw.
#[derive(Default)]
pub struct Dpop {
    pub nonce: Option<&'static str>,
    /// The ids of all proofs: none may come twice.
    pub seen: BTreeSet<String>,
    /// The key of the first proof: all others must have the same.
    pub key: Option<String>,
}

impl Dpop {
    /// Checks the proof of a request as RFC 9449, 4.3 says. An error is the answer to it.
    fn check(&mut self, request: &Request, url: &str, token: Option<&str>) -> Result<(), &'static str> {
        let proof = request.headers.get("dpop").ok_or("no proof")?;
        let parts: Vec<&str> = proof.split('.').collect();
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).expect("base64url");
        let json = |part: &str| Json::parse(&String::from_utf8(decode(part)).expect("UTF-8")).expect("JSON");
        let (header, claims) = (json(parts[0]).to_doc(), json(parts[1]).to_doc());
        let text = |node: json::Node<'_>, key: &str| Some(node.get(key)?.str()?.into_owned());
        let jwk = header.root().get("jwk").expect("a key");
        let mut point = vec![4];
        point.extend(["x", "y"].iter().flat_map(|part| decode(&text(jwk, part).expect("a coordinate"))));
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(format!("{}.{}", parts[0], parts[1]).as_bytes(), &decode(parts[2]))
            .map_err(|_| "wrong signature")?;
        let claim = |key: &str| text(claims.root(), key);
        let hash =
            token.map(|token| URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, token.as_bytes())));
        let key = text(jwk, "x").expect("a coordinate");
        if text(header.root(), "typ").as_deref() != Some("dpop+jwt")
            || claim("htm").as_deref() != Some(&request.method)
            || claim("htu").as_deref() != Some(url)
            || claim("ath") != hash
            || !self.seen.insert(claim("jti").expect("an id"))
            || self.key.get_or_insert(key.clone()) != &key
        {
            return Err("invalid proof");
        }
        if claim("nonce").as_deref() != self.nonce {
            return Err("use_dpop_nonce");
        }
        Ok(())
    }
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

    /// How many there were.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    fn answer(&self, request: &Request) -> Response {
        self.requests.fetch_add(1, Ordering::Relaxed);
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
                    ("dpop_bound_access_tokens_required", "false".to_owned()),
                ])
            }
            ("GET", "/.well-known/oauth-authorization-server") => {
                let mut members = vec![
                    ("issuer", quoted("")),
                    ("authorization_endpoint", quoted("/authorize")),
                    ("token_endpoint", quoted("/token")),
                    ("registration_endpoint", quoted("/register")),
                    ("device_authorization_endpoint", quoted("/device")),
                    ("code_challenge_methods_supported", r#"["S256"]"#.to_owned()),
                    ("authorization_response_iss_parameter_supported", "true".to_owned()),
                ];
                // The resource has scopes of its own.
                let scopes = self.changes.lock().expect("no panic").get("as_scopes_supported").cloned();
                members.extend(scopes.flatten().map(|scopes| ("scopes_supported", scopes)));
                if self.dpop.lock().expect("no panic").is_some() {
                    members.push(("dpop_signing_alg_values_supported", r#"["RS256","ES256"]"#.to_owned()));
                }
                self.document(&members)
            }
            ("POST", "/device") => {
                let form = Request::parameters(&request.body);
                let line = format!("device scope={:?} client={}", form.get("scope"), form["client_id"]);
                self.log.lock().expect("no panic").push(line);
                self.document(&[
                    ("device_code", r#""device-1""#.to_owned()),
                    ("user_code", r#""WDJB-MJHT""#.to_owned()),
                    ("verification_uri", quoted("/activate")),
                    ("expires_in", "600".to_owned()),
                    ("interval", "0".to_owned()),
                    ("error", "null".to_owned()),
                ])
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
        self.clients.lock().expect("no panic").extend(uri);
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
        let mut token_type = "Bearer";
        if let Some(dpop) = &mut *self.dpop.lock().expect("no panic") {
            if let Err(error) = dpop.check(request, &format!("{}/token", self.origin()), None) {
                return refused(error).header("DPoP-Nonce", dpop.nonce.unwrap_or("none"));
            }
            token_type = "DPoP";
        }
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
            "client_credentials" => {
                let header = request.headers.get("authorization").map(String::as_str);
                // `job:s3cret`.
                let has_secret = header == Some("Basic am9iOnMzY3JldA==");
                let assertion = form.get("client_assertion").map(|text| text.split('.').count());
                if !has_secret && assertion != Some(3) {
                    return refused("invalid_client");
                }
                form.get("scope").cloned().unwrap_or_default()
            }
            "urn:ietf:params:oauth:grant-type:device_code" => {
                let mut answers = self.device_answers.lock().expect("no panic");
                if form["device_code"] != "device-1" {
                    return refused("invalid_grant");
                }
                if !answers.is_empty() {
                    return refused(answers.remove(0));
                }
                String::new()
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
        self.issuing.notify_one();
        let expires_in = self.expires_in_s.lock().expect("no panic").unwrap_or(3600);
        Response::json(
            200,
            format!(
                r#"{{"access_token":"{access}","refresh_token":"{refresh}","token_type":"{token_type}","expires_in":{expires_in},"scope":"{scope}"}}"#
            ),
        )
    }

    /// A server of the handshake era, for those with a token.
    fn mcp(&self, request: &Request) -> Response {
        let mut dpop = self.dpop.lock().expect("no panic");
        let scheme = if dpop.is_some() { "DPoP" } else { "Bearer" };
        let header = request.headers.get("authorization").and_then(|value| value.strip_prefix(scheme));
        let token = header.map(str::trim_start);
        if let (Some(dpop), Some(token)) = (&mut *dpop, token)
            && let Err(error) = dpop.check(request, self.server().as_str(), Some(token))
        {
            return Response::status(401)
                .header("WWW-Authenticate", format!(r#"DPoP error="{error}", algs="ES256""#))
                .header("DPoP-Nonce", dpop.nonce.unwrap_or("none"));
        }
        let valid = self.access_tokens.lock().expect("no panic");
        if !token.is_some_and(|token| valid.iter().any(|known| known == token)) {
            let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.origin());
            return Response::status(401).header(
                "WWW-Authenticate",
                format!(r#"{scheme} resource_metadata="{metadata}", scope="read""#),
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
            "tools/call"
                if token.is_some_and(|token| {
                    self.weak_tokens.lock().expect("no panic").iter().any(|weak| weak == token)
                }) =>
            {
                return Response::status(403)
                    .header("WWW-Authenticate", r#"Bearer error="insufficient_scope", scope="read write""#);
            }
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
