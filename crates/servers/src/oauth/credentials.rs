//! Tokens and client registrations: kept in files for this user only, and refreshed without ever losing one.
//!
//! A refresh token may be valid once. The process that uses it must keep the next one, or the user has to sign in again. So a
//! refresh holds a lock that other processes respect, reads the file again, and writes the answer before it releases
//! the lock; and it runs in a task of its own, so that a caller that goes away cannot stop it half way.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use json::{Json, Node};
use outbound::OutboundOptions;
use ring::digest;
use spile_core::Platform;
use url::Url;

use super::http::{Body, RequestError, request};
use super::metadata::{MetadataError, UrlGuard};
use crate::private_file;

/// A token is replaced so long before it expires, so that it is still valid when it arrives.
const EXPIRY_MARGIN_MS: u64 = 30_000;
/// One file has one server's credentials.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// How this program is known to an authorization server.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientRegistration {
    pub client_id: String,
    pub client_secret: Option<String>,
    /// The address that was registered, if it was by us.
    pub redirect_uri: Option<String>,
}

/// Everything that is kept for one server.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The resource identifier of the server.
    pub resource: String,
    pub issuer: String,
    pub token_endpoint: String,
    pub client: ClientRegistration,
    /// How the client proves itself at the token endpoint.
    pub client_auth: ClientAuth,
    pub tokens: Option<Tokens>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    pub access_token: String,
    pub refresh_token: Option<String>,
    /// Milliseconds since 1970; `None`: the server did not say.
    pub expires_at_ms: Option<u64>,
    pub scopes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// A public client: PKCE is the proof.
    None,
    Basic,
    Post,
}

/// Secrets are not printed.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("resource", &self.resource).field("issuer", &self.issuer).finish()
    }
}

/// Why there is no token.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The authorization server refused, and says why.
    #[error("the authorization server refused: {error}{}", description.as_deref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused { error: String, description: Option<String> },
    #[error("the authorization server answered HTTP {status} without a token")]
    NoToken { status: u16 },
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("cannot keep the credentials in `{path}`: {reason}")]
    File { path: String, reason: String },
}

impl Tokens {
    fn is_valid(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_none_or(|expires| expires > now_ms.saturating_add(EXPIRY_MARGIN_MS))
    }

    /// Reads the answer of a token endpoint. `before` are the tokens that it replaces.
    pub(super) fn parse(
        answer: &Json,
        before: Option<&Tokens>,
        asked: &[String],
        now_ms: u64,
    ) -> Option<Self> {
        let doc = answer.to_doc();
        let text = |key: &str| Some(doc.root().get(key)?.str()?.into_owned());
        let access_token = text("access_token").filter(|token| is_header_value(token))?;
        if !text("token_type").is_none_or(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return None;
        }
        // Some servers send a number as a text.
        let seconds = doc.root().get("expires_in").and_then(|node| match node.str() {
            Some(text) => text.parse::<u64>().ok(),
            None => node.raw().parse::<f64>().ok().filter(|n| *n >= 0.0).map(|n| n as u64),
        });
        // RFC 6749, 5.1: an absent `scope` means the scopes that were asked for.
        let scopes = match text("scope") {
            Some(scopes) => scopes.split_whitespace().map(str::to_owned).collect(),
            None => asked.to_vec(),
        };
        // RFC 6749, 6: without a new refresh token the old one stays valid.
        let refresh_token =
            text("refresh_token").or_else(|| before.and_then(|before| before.refresh_token.clone()));
        Some(Self {
            access_token,
            refresh_token,
            expires_at_ms: seconds.map(|seconds| now_ms.saturating_add(seconds.saturating_mul(1000))),
            scopes,
        })
    }
}

/// A token becomes part of a header.
fn is_header_value(token: &str) -> bool {
    !token.is_empty() && token.len() <= 64 << 10 && token.bytes().all(|c| c.is_ascii_graphic())
}

impl Credentials {
    fn to_json(&self) -> Json {
        Json::object(|out| {
            out.str("resource", &self.resource).str("issuer", &self.issuer);
            out.str("token_endpoint", &self.token_endpoint);
            out.object("client", |out| {
                out.str("client_id", &self.client.client_id);
                out.maybe_str("client_secret", self.client.client_secret.as_deref());
                out.maybe_str("redirect_uri", self.client.redirect_uri.as_deref());
                out.str("auth", self.client_auth.name());
            });
            if let Some(tokens) = &self.tokens {
                out.object("tokens", |out| {
                    out.str("access_token", &tokens.access_token);
                    out.maybe_str("refresh_token", tokens.refresh_token.as_deref());
                    if let Some(expires) = tokens.expires_at_ms {
                        out.int("expires_at_ms", i64::try_from(expires).unwrap_or(i64::MAX));
                    }
                    out.str("scope", &tokens.scopes.join(" "));
                });
            }
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let json = Json::parse(text).ok()?;
        let doc = json.to_doc();
        let root = doc.root();
        let text = |node: Node<'_>, key: &str| Some(node.get(key)?.str()?.into_owned());
        let client = root.get("client")?;
        let tokens = match root.get("tokens") {
            None => None,
            Some(node) => Some(Tokens {
                access_token: text(node, "access_token")?,
                refresh_token: text(node, "refresh_token"),
                expires_at_ms: node.get("expires_at_ms").and_then(|ms| ms.u64()),
                scopes: text(node, "scope")?.split_whitespace().map(str::to_owned).collect(),
            }),
        };
        Some(Self {
            resource: text(root, "resource")?,
            issuer: text(root, "issuer")?,
            token_endpoint: text(root, "token_endpoint")?,
            client: ClientRegistration {
                client_id: text(client, "client_id")?,
                client_secret: text(client, "client_secret"),
                redirect_uri: text(client, "redirect_uri"),
            },
            client_auth: ClientAuth::parse(&text(client, "auth")?)?,
            tokens,
        })
    }
}

impl ClientAuth {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::None, Self::Basic, Self::Post].into_iter().find(|auth| auth.name() == name)
    }

    /// How a client with or without a secret proves itself. A server that does not say supports Basic (RFC 8414, 2).
    pub fn choose(has_secret: bool, supported: &[String]) -> Self {
        let supports = |auth: Self| supported.iter().any(|method| method == auth.name());
        match has_secret {
            false => Self::None,
            true if supported.is_empty() || supports(Self::Basic) => Self::Basic,
            true if supports(Self::Post) => Self::Post,
            true if supports(Self::None) => Self::None,
            true => Self::Basic,
        }
    }

    /// What a program on the user's machine registers as: its secret would be none, so it has one only where it must.
    pub(super) fn to_register(supported: &[String]) -> Self {
        let supports = |auth: &Self| supported.iter().any(|method| method == auth.name());
        [Self::None, Self::Basic, Self::Post].into_iter().find(supports).unwrap_or(Self::None)
    }
}

/// Sends a request to a token endpoint, with the proof of the client.
pub(super) async fn token_request(
    endpoint: &Url,
    client: &ClientRegistration,
    auth: ClientAuth,
    form: &[(&str, &str)],
    options: &OutboundOptions,
) -> Result<Json, TokenError> {
    let mut form = form.to_vec();
    let mut headers = Vec::new();
    match (auth, &client.client_secret) {
        (ClientAuth::Basic, Some(secret)) => {
            let encode =
                |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encode(&client.client_id), encode(secret));
            headers.push(("Authorization", format!("Basic {}", STANDARD.encode(pair))));
        }
        (ClientAuth::Post, Some(secret)) => {
            form.extend([("client_id", client.client_id.as_str()), ("client_secret", secret)]);
        }
        (ClientAuth::None | ClientAuth::Basic | ClientAuth::Post, _) => {
            form.push(("client_id", &client.client_id));
        }
    }
    let answer = request(endpoint, Body::Form(&form), &headers, options).await?;
    match answer.body {
        Some(body) if answer.status == 200 => Ok(body),
        Some(body) => {
            let doc = body.to_doc();
            let text = |key: &str| doc.root().get(key)?.str().map(|text| text.into_owned());
            match text("error") {
                Some(error) => Err(TokenError::Refused { error, description: text("error_description") }),
                None => Err(TokenError::NoToken { status: answer.status }),
            }
        }
        None => Err(TokenError::NoToken { status: answer.status }),
    }
}

/// The credentials of this user: one file for each server, in a folder of their own.
#[derive(Clone)]
pub struct CredentialStore {
    folder: PathBuf,
    platform: Arc<dyn Platform>,
    options: OutboundOptions,
}

impl CredentialStore {
    pub fn new(folder: PathBuf, platform: Arc<dyn Platform>, options: OutboundOptions) -> Self {
        Self { folder, platform, options }
    }

    pub(super) fn platform(&self) -> &dyn Platform {
        &*self.platform
    }

    pub(super) fn outbound(&self) -> &OutboundOptions {
        &self.options
    }

    fn path(&self, resource: &str) -> PathBuf {
        let hash = digest::digest(&digest::SHA256, resource.as_bytes());
        self.folder.join(format!("{}.json", URL_SAFE_NO_PAD.encode(&hash.as_ref()[..18])))
    }

    fn failed(&self, resource: &str) -> impl Fn(io::Error) -> TokenError {
        let path = self.path(resource).display().to_string();
        move |error| TokenError::File { path: path.clone(), reason: error.to_string() }
    }

    /// `None` if the user is not signed in.
    pub fn load(&self, resource: &str) -> Result<Option<Credentials>, TokenError> {
        let text = private_file::read(&self.path(resource), FILE_BYTES_MAX).map_err(self.failed(resource))?;
        // A damaged file is replaced by the next sign-in.
        Ok(text.and_then(|text| Credentials::parse(&text)).filter(|found| found.resource == resource))
    }

    /// Keeps the credentials of a sign-in.
    pub fn save(&self, credentials: &Credentials) -> Result<(), TokenError> {
        let path = self.path(&credentials.resource);
        let failed = self.failed(&credentials.resource);
        private_file::create_folder(&path).map_err(&failed)?;
        let _lock = private_file::lock(&path).map_err(&failed)?;
        private_file::replace(&path, credentials.to_json().as_str()).map_err(&failed)
    }

    /// Forgets the credentials. Returns whether there were any.
    pub fn remove(&self, resource: &str) -> Result<bool, TokenError> {
        match std::fs::remove_file(self.path(resource)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed(resource)(error)),
        }
    }

    /// A valid access token, refreshed if necessary. `rejected` is one that the server did not accept. `None`: the user
    /// must sign in.
    pub async fn access_token(
        &self,
        resource: &str,
        rejected: Option<&str>,
    ) -> Result<Option<String>, TokenError> {
        let Some(credentials) = self.load(resource)? else { return Ok(None) };
        if let Some(token) = self.usable(&credentials, rejected) {
            return Ok(Some(token));
        }
        let (store, resource) = (self.clone(), resource.to_owned());
        let rejected = rejected.map(str::to_owned);
        // A task of its own: dropping this future must not drop a refresh that was sent.
        let refresh = tokio::spawn(async move { store.refresh(&resource, rejected.as_deref()).await });
        match refresh.await {
            Ok(token) => token,
            Err(error) => Err(TokenError::File { path: String::new(), reason: error.to_string() }),
        }
    }

    fn usable(&self, credentials: &Credentials, rejected: Option<&str>) -> Option<String> {
        let tokens = credentials.tokens.as_ref()?;
        let is_usable =
            tokens.is_valid(self.platform.now_ms()) && Some(tokens.access_token.as_str()) != rejected;
        is_usable.then(|| tokens.access_token.clone())
    }

    async fn refresh(&self, resource: &str, rejected: Option<&str>) -> Result<Option<String>, TokenError> {
        let path = self.path(resource);
        let failed = self.failed(resource);
        let lock_path = path.clone();
        let locked = tokio::task::spawn_blocking(move || private_file::lock(&lock_path)).await;
        let _lock = locked.map_err(|error| failed(io::Error::other(error)))?.map_err(&failed)?;
        // Another process may have refreshed it while this one waited.
        let Some(mut credentials) = self.load(resource)? else { return Ok(None) };
        if let Some(token) = self.usable(&credentials, rejected) {
            return Ok(Some(token));
        }
        let Some(before) = credentials.tokens.clone() else { return Ok(None) };
        let Some(refresh_token) = before.refresh_token.clone() else { return Ok(None) };
        let guard = Url::parse(resource).map_or_else(
            |_| Err(MetadataError::UnsafeUrl { url: resource.to_owned(), reason: "it is not a URL" }),
            |server| Ok(UrlGuard::for_server(&server)),
        )?;
        let endpoint = guard.check(&credentials.token_endpoint)?;
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.as_str()),
            ("resource", credentials.resource.as_str()),
        ];
        let sent =
            token_request(&endpoint, &credentials.client, credentials.client_auth, &form, &self.options)
                .await;
        match sent {
            Ok(answer) => {
                let now_ms = self.platform.now_ms();
                let Some(tokens) = Tokens::parse(&answer, Some(&before), &before.scopes, now_ms) else {
                    return Err(TokenError::NoToken { status: 200 });
                };
                let token = tokens.access_token.clone();
                credentials.tokens = Some(tokens);
                private_file::replace(&path, credentials.to_json().as_str()).map_err(&failed)?;
                Ok(Some(token))
            }
            // The token is spent or revoked; only the user can help. Anything else may pass, so the token is kept.
            Err(TokenError::Refused { error, .. }) if error == "invalid_grant" => {
                credentials.tokens = None;
                private_file::replace(&path, credentials.to_json().as_str()).map_err(&failed)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClientAuth;

    #[test]
    fn a_client_proves_itself_as_the_server_supports_it() {
        use ClientAuth::{Basic, None, Post};
        for (supported, registered, with_secret) in [
            (&[][..], None, Basic),
            (&["none"], None, None),
            (&["client_secret_basic"], Basic, Basic),
            (&["client_secret_post"], Post, Post),
            (&["client_secret_post", "client_secret_basic"], Basic, Basic),
            (&["client_secret_post", "none"], None, Post),
            (&["private_key_jwt"], None, Basic),
        ] {
            let supported: Vec<String> = supported.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(ClientAuth::to_register(&supported), registered, "{supported:?}");
            assert_eq!(ClientAuth::choose(true, &supported), with_secret, "{supported:?}");
            assert_eq!(ClientAuth::choose(false, &supported), None, "{supported:?}");
        }
    }
}
