//! Signing in: discovery, registration, the authorization code with PKCE, and the redirect to this machine.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use json::Json;
use ring::digest;
use spile_core::Platform;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use url::Url;

use super::challenge::Challenge;
use super::credentials::{ClientAuth, ClientRegistration, CredentialStore, TokenError};
use super::discovery::{Discovery, discover};
use super::dpop::DpopKey;
use super::http::{Body, RequestError, request};
use super::metadata::{AuthorizationServer, MetadataError};
use super::server_token::SecretError;
use crate::config::OAuthSettings;

/// Why signing in failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("{0} does not say how to sign in: no metadata of an authorization server was found")]
    NoMetadata(String),
    #[error(
        "the authorization server `{issuer}` does not register clients itself; register one there, and write its \
         id as `oauth.clientId` in the server's entry"
    )]
    NoRegistration { issuer: String },
    #[error("the authorization server did not register this client: {0}")]
    RegistrationRefused(String),
    #[error(
        "the authorization server `{issuer}` has no sign-in with a code on another device; leave out `--device`"
    )]
    NoDevices { issuer: String },
    #[error("cannot listen on 127.0.0.1 for the redirect: {0}")]
    Listen(std::io::Error),
    #[error("the redirect is not valid: {0}")]
    Redirect(&'static str),
    #[error("you were not signed in: {error}{}", description.as_deref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Declined { error: String, description: Option<String> },
    #[error("sign-in timed out after {0} s")]
    Timeout(u64),
    #[error(transparent)]
    Signing(#[from] super::jwt::SigningError),
    #[error(
        "the server accepts only tokens that are bound to a key (DPoP with ES256), and the authorization server \
         `{issuer}` does not issue them; ask its operator to enable DPoP"
    )]
    NoDpop { issuer: String },
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("the server still refuses the request after {0} sign-ins")]
    TooOften(u32),
}

impl LoginError {
    /// Whether the same may succeed a little later, without anybody doing anything.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Request(_) | Self::Timeout(_) | Self::Listen(_) => true,
            Self::Token(error) => error.is_temporary(),
            // A file that a platform replaces may be missing for a moment.
            Self::Secret(SecretError::File { .. } | SecretError::Empty { .. }) => true,
            Self::Secret(SecretError::Expand { .. })
            | Self::Metadata(_)
            | Self::NoMetadata(_)
            | Self::NoRegistration { .. }
            | Self::RegistrationRefused(_)
            | Self::NoDevices { .. }
            | Self::Redirect(_)
            | Self::Declined { .. }
            | Self::Signing(_)
            | Self::NoDpop { .. }
            | Self::TooOften(_) => false,
        }
    }
}

/// A sign-in that waits for the user.
pub struct PendingLogin {
    discovery: Discovery,
    client: ClientRegistration,
    listener: TcpListener,
    redirect_uri: String,
    state: String,
    verifier: String,
    scopes: Vec<String>,
    /// What the tokens will be bound to.
    key: Option<DpopKey>,
    url: Url,
}

/// How long the user may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10 * 60);
const REDIRECT_PATH: &str = "/callback";
/// No request of a browser to this page is longer.
const REDIRECT_BYTES_MAX: usize = 16 << 10;

impl PendingLogin {
    /// Finds the authorization server, registers this program, and makes the address for the user.
    ///
    /// `challenge` is the answer that asked for it, if there was one. `granted` are the scopes that a token had before:
    /// asking for more must not lose them.
    pub async fn start(
        server: &Url,
        challenge: Option<&Challenge>,
        settings: &OAuthSettings,
        client_secret: Option<String>,
        store: &CredentialStore,
    ) -> Result<Self, LoginError> {
        let discovery = discover(server, challenge, settings, store).await?;
        // Before anything is registered.
        let mut url = discovery.server.authorization_endpoint()?.clone();
        let known = store.load(&discovery.account)?.filter(|known| known.issuer == discovery.server.issuer);
        let granted =
            known.as_ref().and_then(|known| known.tokens.as_ref()).map(|tokens| tokens.scopes.clone());
        let mut scopes = discovery.scopes_to_ask(settings, challenge);
        // More rights for one operation must not cost the rights for the others.
        if challenge.is_some_and(Challenge::is_insufficient_scope) {
            granted.unwrap_or_default().iter().for_each(|scope| push_scope(&mut scopes, scope));
        }
        // Without this scope, such a server issues no refresh token, and the user has to sign in again and again.
        let offline = "offline_access";
        if settings.scopes.is_none() && discovery.server.scopes_supported.iter().any(|scope| scope == offline)
        {
            push_scope(&mut scopes, offline);
        }
        let known_client = known.map(|known| known.client);
        let port = settings.callback_port.or_else(|| registered_port(known_client.as_ref()?));
        let listener = listen(port, settings.callback_port.is_some()).await?;
        let port = listener.local_addr().map_err(LoginError::Listen)?.port();
        let redirect_uri = format!("http://127.0.0.1:{port}{REDIRECT_PATH}");
        // The address of a document is only a name where the server reads such documents.
        let is_known_there = |id: &&String| !id.starts_with("https:") || discovery.server.client_id_documents;
        let client = match settings.client_id.as_ref().filter(is_known_there) {
            Some(client_id) => {
                ClientRegistration { client_id: client_id.clone(), client_secret, redirect_uri: None }
            }
            None => match known_client.filter(|known| known.redirect_uri.as_ref() == Some(&redirect_uri)) {
                Some(known) => known,
                None => register(&discovery.server, Some(&redirect_uri), &scopes, store).await?,
            },
        };
        let key = discovery.new_key()?;
        let (verifier, state) = (random_text(store.platform()), random_text(store.platform()));
        let challenge = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()));
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("response_type", "code").append_pair("client_id", &client.client_id);
            query.append_pair("redirect_uri", &redirect_uri).append_pair("state", &state);
            query.append_pair("code_challenge", &challenge).append_pair("code_challenge_method", "S256");
            query.append_pair("resource", &discovery.resource);
            if let Some(key) = &key {
                query.append_pair("dpop_jkt", &key.thumbprint());
            }
            if !scopes.is_empty() {
                query.append_pair("scope", &scopes.join(" "));
            }
            // OpenID Connect: without this a refresh token may not be issued.
            if scopes.iter().any(|scope| scope == "offline_access") {
                query.append_pair("prompt", "consent");
            }
        }
        Ok(Self { discovery, client, listener, redirect_uri, state, verifier, scopes, key, url })
    }

    /// The address that the user must open.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Where the user signs in.
    pub fn issuer(&self) -> &str {
        &self.discovery.server.issuer
    }

    /// Waits for the browser, or for an address that the user pastes, if they can, and keeps the tokens.
    pub async fn finish(
        self,
        server: &Url,
        mut pasted: Option<&mut mpsc::Receiver<String>>,
        store: &CredentialStore,
    ) -> Result<(), LoginError> {
        let waiting = async {
            loop {
                let line = async {
                    match &mut pasted {
                        Some(lines) => lines.recv().await,
                        None => std::future::pending().await,
                    }
                };
                let redirect = tokio::select! {
                    redirect = accept_redirect(&self.listener) => redirect,
                    line = line => match line {
                        Some(line) => Url::parse(line.trim()).ok().map(|url| (url, None)),
                        None => {
                            pasted = None;
                            None
                        }
                    },
                };
                let Some((url, stream)) = redirect else { continue };
                // Any page could send the browser here; only ours knows the state.
                let Some(result) = self.read_redirect(&url) else {
                    answer_browser(stream, false).await;
                    continue;
                };
                answer_browser(stream, result.is_ok()).await;
                return result;
            }
        };
        let code = match tokio::time::timeout(LOGIN_TIMEOUT, waiting).await {
            Ok(code) => code?,
            Err(_) => return Err(LoginError::Timeout(LOGIN_TIMEOUT.as_secs())),
        };
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", &self.redirect_uri),
            ("code_verifier", &self.verifier),
            ("resource", &self.discovery.resource),
        ];
        let key = self.key.as_ref();
        let got = self.discovery.get_tokens(server, self.client, key, &form, &self.scopes, store).await?;
        Ok(store.save(&got)?)
    }

    /// The code of a redirect; `None` if the redirect does not belong to this sign-in.
    fn read_redirect(&self, url: &Url) -> Option<Result<String, LoginError>> {
        let find =
            |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        if find("state").as_deref() != Some(&self.state) {
            return None;
        }
        // RFC 9207: a redirect of another authorization server is an attack.
        match find("iss") {
            Some(issuer) if issuer != self.discovery.server.issuer => {
                return Some(Err(LoginError::Redirect("it comes from another authorization server")));
            }
            None if self.discovery.server.sends_issuer => {
                return Some(Err(LoginError::Redirect("it does not name the authorization server")));
            }
            Some(_) | None => {}
        }
        if let Some(error) = find("error") {
            return Some(Err(LoginError::Declined { error, description: find("error_description") }));
        }
        Some(find("code").ok_or(LoginError::Redirect("it has no code")))
    }
}

fn push_scope(scopes: &mut Vec<String>, scope: &str) {
    if !scopes.iter().any(|known| known == scope) {
        scopes.push(scope.to_owned());
    }
}

pub(super) fn random_text(platform: &dyn Platform) -> String {
    let mut bytes = [0; 32];
    platform.fill_random(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Registers this program (RFC 7591): as a public client, unless the server wants clients to have a secret. Without an
/// address to return to, it is a client for devices.
pub(super) async fn register(
    server: &AuthorizationServer,
    redirect_uri: Option<&str>,
    scopes: &[String],
    store: &CredentialStore,
) -> Result<ClientRegistration, LoginError> {
    let Some(endpoint) = &server.registration_endpoint else {
        return Err(LoginError::NoRegistration { issuer: server.issuer.clone() });
    };
    let text = |out: &mut Vec<u8>, text: &str| json::write::string(out, text);
    let body = Json::object(|out| {
        out.str("client_name", "Spile").str("application_type", "native");
        let grant = match redirect_uri {
            Some(redirect_uri) => {
                out.array("redirect_uris", [redirect_uri], text);
                out.array("response_types", ["code"], text);
                "authorization_code"
            }
            None => super::device::DEVICE_GRANT,
        };
        out.array("grant_types", [grant, "refresh_token"], text);
        out.str("token_endpoint_auth_method", ClientAuth::to_register(&server.token_auth_methods).name());
        if !scopes.is_empty() {
            out.str("scope", &scopes.join(" "));
        }
    });
    let answer = request(endpoint, server.named_from, Body::Json(&body), &[], store.outbound()).await?;
    let refused = |reason: String| LoginError::RegistrationRefused(reason);
    let Some(answered) = answer.body else { return Err(refused(format!("HTTP {}", answer.status))) };
    let doc = answered.to_doc();
    let find = |key: &str| doc.root().get(key)?.str().map(|text| text.into_owned());
    match find("client_id") {
        Some(client_id) if (200..300).contains(&answer.status) => Ok(ClientRegistration {
            client_id,
            client_secret: find("client_secret"),
            redirect_uri: redirect_uri.map(str::to_owned),
        }),
        _ => Err(refused(
            find("error_description").or_else(|| find("error")).unwrap_or(format!("HTTP {}", answer.status)),
        )),
    }
}

fn registered_port(client: &ClientRegistration) -> Option<u16> {
    Url::parse(client.redirect_uri.as_deref()?).ok()?.port()
}

/// Listens on this machine only. A port that is taken is replaced, unless the user chose it.
async fn listen(port: Option<u16>, must: bool) -> Result<TcpListener, LoginError> {
    let wanted = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await;
    match wanted {
        Err(error) if must || port.is_none() => Err(LoginError::Listen(error)),
        Err(_) => TcpListener::bind(("127.0.0.1", 0)).await.map_err(LoginError::Listen),
        Ok(listener) => Ok(listener),
    }
}

/// One request of a browser: its address, and the connection to answer on.
async fn accept_redirect(listener: &TcpListener) -> Option<(Url, Option<TcpStream>)> {
    let (mut stream, _) = listener.accept().await.ok()?;
    let mut head = Vec::new();
    let reading = async {
        let mut chunk = [0; 1024];
        while head.len() < REDIRECT_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => break,
                Ok(read) => head.extend_from_slice(&chunk[..read]),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), reading).await.ok()?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.strip_prefix("GET ")?.split(' ').next()?;
    let url = Url::parse(&format!("http://127.0.0.1{target}")).ok()?;
    (url.path() == REDIRECT_PATH).then_some((url, Some(stream)))
}

async fn answer_browser(stream: Option<TcpStream>, is_signed_in: bool) {
    let Some(mut stream) = stream else { return };
    let text = if is_signed_in {
        "You are signed in. You can close this page and return to Spile."
    } else {
        "Signing in failed. Return to Spile for the reason."
    };
    let page = format!("<!doctype html><meta charset=utf-8><title>Spile</title><p>{text}</p>");
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    // The browser may be gone; the sign-in does not depend on it.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}
