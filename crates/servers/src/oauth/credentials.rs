//! Tokens and client registrations: kept in files for this user only, and refreshed without ever losing one.
//!
//! A refresh token may be valid once. The process that uses it must keep the next one, or the user has to sign in again. So a
//! refresh holds a lock that other processes respect, reads the file again, and writes the answer before it releases
//! the lock; and it runs in a task of its own, so that a caller that goes away cannot stop it half way.
//!
//! On a desktop with a keyring the files are encrypted with a key that the keyring has.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use json::{Json, Node};
use os_keyring::OsKeyring;
use outbound::{NetworkZone, OutboundOptions, Reach};
use ring::digest;
use spile_core::Platform;
use upstream::AccessToken;
use url::Url;

use super::dpop::{DpopKey, DpopProofs};
use super::http::{Body, Endpoint, RequestError, request};
use super::jwt::SigningError;
use super::keyring_key::{EncryptedText, KeyringKey};
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
    /// The name that they are kept under, see [`account_of`](super::account_of).
    pub account: String,
    /// The resource identifier of the server.
    pub resource: String,
    pub issuer: String,
    pub token_endpoint: String,
    /// Where the document is from that names it: see [`UrlGuard`].
    pub named_from: NetworkZone,
    pub client: ClientRegistration,
    /// How the client proves itself at the token endpoint.
    pub client_auth: ClientAuth,
    /// The private key that the tokens are bound to.
    pub dpop_key: Option<String>,
    pub tokens: Option<Tokens>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    pub access_token: String,
    pub refresh_token: Option<String>,
    /// Milliseconds since 1970; `None`: the server did not say.
    pub expires_at_ms: Option<u64>,
    pub scopes: Vec<String>,
    /// Useless without the key.
    pub is_bound: bool,
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
    #[error(transparent)]
    Signing(#[from] SigningError),
    #[error("cannot keep the credentials in `{path}`: {reason}")]
    File { path: String, reason: String },
}

impl TokenError {
    /// Whether the same may succeed a little later: the authorization server cannot be reached or is overloaded, or
    /// something in front of it answers in its place.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Request(_) | Self::File { .. } => true,
            Self::NoToken { status } => matches!(status, 200..300 | 408 | 425 | 429 | 500..),
            Self::Refused { error, .. } => matches!(&**error, "server_error" | "temporarily_unavailable"),
            Self::Metadata(_) | Self::Signing(_) => false,
        }
    }
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
        has_proof: bool,
        now_ms: u64,
    ) -> Option<Self> {
        let doc = answer.to_doc();
        let text = |key: &str| Some(doc.root().get(key)?.str()?.into_owned());
        let access_token = text("access_token").filter(|token| is_header_value(token))?;
        let is_bound = match text("token_type") {
            None => false,
            Some(kind) if kind.eq_ignore_ascii_case("bearer") => false,
            Some(kind) if kind.eq_ignore_ascii_case("dpop") && has_proof => true,
            Some(_) => return None,
        };
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
            is_bound,
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
            out.str("account", &self.account).str("resource", &self.resource).str("issuer", &self.issuer);
            out.str("token_endpoint", &self.token_endpoint);
            out.str("named_from", zone_name(self.named_from));
            out.object("client", |out| {
                out.str("client_id", &self.client.client_id);
                out.maybe_str("client_secret", self.client.client_secret.as_deref());
                out.maybe_str("redirect_uri", self.client.redirect_uri.as_deref());
                out.str("auth", self.client_auth.name());
            });
            if let Some(tokens) = &self.tokens {
                out.maybe_str("dpop_key", self.dpop_key.as_deref());
                out.object("tokens", |out| {
                    out.str("access_token", &tokens.access_token);
                    out.str("token_type", if tokens.is_bound { "DPoP" } else { "Bearer" });
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
                is_bound: text(node, "token_type").as_deref() == Some("DPoP"),
            }),
        };
        let resource = text(root, "resource")?;
        Some(Self {
            // Files of earlier versions have one account for each resource.
            account: text(root, "account").unwrap_or_else(|| resource.clone()),
            issuer: text(root, "issuer")?,
            token_endpoint: text(root, "token_endpoint")?,
            // Files of earlier versions do not say. What was allowed then stays so, except for this machine.
            named_from: match text(root, "named_from") {
                None if is_at_this_machine(&resource) => NetworkZone::ThisMachine,
                None => NetworkZone::Private,
                Some(name) => ZONES.into_iter().find(|zone| zone_name(*zone) == name)?,
            },
            client: ClientRegistration {
                client_id: text(client, "client_id")?,
                client_secret: text(client, "client_secret"),
                redirect_uri: text(client, "redirect_uri"),
            },
            client_auth: ClientAuth::parse(&text(client, "auth")?)?,
            dpop_key: text(root, "dpop_key"),
            tokens,
            resource,
        })
    }
}

const ZONES: [NetworkZone; 3] = [NetworkZone::Public, NetworkZone::Private, NetworkZone::ThisMachine];

fn zone_name(zone: NetworkZone) -> &'static str {
    match zone {
        NetworkZone::Public => "internet",
        NetworkZone::Private => "network",
        NetworkZone::ThisMachine => "machine",
    }
}

fn is_at_this_machine(resource: &str) -> bool {
    Url::parse(resource).is_ok_and(|url| NetworkZone::of_literal(&url) == Some(NetworkZone::ThisMachine))
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

/// Sends a request to a token endpoint, with the proof of the client, and of the key that the token will be bound to.
pub(super) async fn token_request(
    endpoint: Endpoint<'_>,
    client: &ClientRegistration,
    auth: ClientAuth,
    form: &[(&str, &str)],
    key: Option<&DpopKey>,
    store: &CredentialStore,
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
    let send = async |nonce: Option<&str>| {
        let mut headers = headers.clone();
        if let Some(key) = key {
            let proof = key.proof("POST", endpoint.url, None, nonce, store.platform())?;
            headers.push(("DPoP", proof));
        }
        let Endpoint { url, named_from } = endpoint;
        Ok::<_, TokenError>(request(url, named_from, Body::Form(&form), &headers, store.outbound()).await?)
    };
    let mut answer = send(None).await?;
    // The server did not look at the grant yet, so it may be sent again.
    if let (Some(nonce), true) = (answer.dpop_nonce.clone(), key.is_some())
        && answer.error().as_deref() == Some("use_dpop_nonce")
    {
        answer = send(Some(&nonce)).await?;
    }
    match (answer.status, answer.error()) {
        (200, _) => answer.body.ok_or(TokenError::NoToken { status: 200 }),
        (_, Some(error)) => Err(TokenError::Refused { error, description: answer.text("error_description") }),
        (status, None) => Err(TokenError::NoToken { status }),
    }
}

/// Credentials, and what protects the file that they were read from.
struct StoredCredentials {
    credentials: Credentials,
    protection: Protection,
}

/// What protects a file of credentials from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    /// Only this user may read it.
    FileMode,
    /// It is encrypted with a key in the keyring, too.
    Keyring,
}

/// The credentials of this user: one file for each server, in a folder of their own.
#[derive(Clone)]
pub struct CredentialStore {
    folder: PathBuf,
    platform: Arc<dyn Platform>,
    options: OutboundOptions,
    /// `None`: files are not encrypted.
    keyring: Option<Arc<KeyringKey>>,
    /// One for each account: a program that signs in by itself does so once, however many calls need a token.
    sign_ins: Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>>,
}

impl CredentialStore {
    pub fn new(folder: PathBuf, platform: Arc<dyn Platform>, options: OutboundOptions) -> Self {
        Self { folder, platform, options, keyring: None, sign_ins: Arc::default() }
    }

    /// Encrypts what is saved from now on with a key in this keyring.
    #[must_use]
    pub fn with_keyring(mut self, keyring: OsKeyring) -> Self {
        self.keyring = Some(Arc::new(KeyringKey::new(keyring)));
        self
    }

    /// The same credentials, for a server whose sign-in may reach no more than this.
    #[must_use]
    pub fn within(&self, reach: Reach) -> Self {
        let options = OutboundOptions { reach: self.options.reach.max(reach), ..self.options.clone() };
        Self { options, ..self.clone() }
    }

    pub(super) fn platform(&self) -> &dyn Platform {
        &*self.platform
    }

    pub(super) fn outbound(&self) -> &OutboundOptions {
        &self.options
    }

    pub(super) fn sign_in_lock(&self, account: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.sign_ins.lock().unwrap_or_else(PoisonError::into_inner);
        locks.entry(account.to_owned()).or_default().clone()
    }

    /// How long the token is valid and need not be replaced. `None`: there is none, or its end is not known.
    pub fn valid_for_ms(&self, account: &str) -> Option<u64> {
        let expires = self.load(account).ok()??.tokens?.expires_at_ms?;
        Some(expires.saturating_sub(EXPIRY_MARGIN_MS).saturating_sub(self.platform.now_ms()))
    }

    fn path(&self, account: &str) -> PathBuf {
        let hash = digest::digest(&digest::SHA256, account.as_bytes());
        self.folder.join(format!("{}.json", URL_SAFE_NO_PAD.encode(&hash.as_ref()[..18])))
    }

    fn failed(&self, account: &str) -> impl Fn(io::Error) -> TokenError {
        let path = self.path(account).display().to_string();
        move |error| TokenError::File { path: path.clone(), reason: error.to_string() }
    }

    /// `None` if the user is not signed in.
    pub fn load(&self, account: &str) -> Result<Option<Credentials>, TokenError> {
        Ok(self.load_stored(account)?.map(|stored| stored.credentials))
    }

    fn load_stored(&self, account: &str) -> Result<Option<StoredCredentials>, TokenError> {
        let file = private_file::read(&self.path(account), FILE_BYTES_MAX).map_err(self.failed(account))?;
        let Some(file) = file else { return Ok(None) };
        let (text, protection) = match EncryptedText::parse(&file) {
            None => (Some(file), Protection::FileMode),
            Some(encrypted) => (self.decrypt(&encrypted, account), Protection::Keyring),
        };
        // A damaged file is replaced by the next sign-in.
        let credentials = text.and_then(|text| Credentials::parse(&text));
        let credentials = credentials.filter(|found| found.account == account);
        Ok(credentials.map(|credentials| StoredCredentials { credentials, protection }))
    }

    /// `None` if the user must sign in again, which a keyring that is gone must not prevent.
    fn decrypt(&self, encrypted: &EncryptedText, account: &str) -> Option<String> {
        let lost = match &self.keyring {
            None => "this process has no access to that keyring".to_owned(),
            Some(keyring) => match keyring.decrypt(encrypted, account) {
                Ok(Some(text)) => return Some(text),
                Ok(None) => "the keyring no longer has that key".to_owned(),
                Err(error) => error.to_string(),
            },
        };
        // What follows may be a query with a secret.
        let resource = account.split(['?', '#']).next().unwrap_or_default();
        tracing::warn!(resource, "the tokens are encrypted with a key in the keyring: {lost}");
        None
    }

    /// Keeps the credentials of a sign-in.
    pub fn save(&self, credentials: &Credentials) -> Result<(), TokenError> {
        let path = self.path(&credentials.account);
        let failed = self.failed(&credentials.account);
        private_file::create_folder(&path).map_err(&failed)?;
        let _lock = private_file::lock(&path).map_err(&failed)?;
        let protection = if self.keyring.is_some() { Protection::Keyring } else { Protection::FileMode };
        self.replace(credentials, protection)
    }

    /// Replaces the file. The caller holds its lock.
    fn replace(&self, credentials: &Credentials, protection: Protection) -> Result<(), TokenError> {
        let (account, text) = (&credentials.account, credentials.to_json());
        let encrypted = match (&self.keyring, protection) {
            (Some(keyring), Protection::Keyring) => {
                match keyring.encrypt(text.as_str(), account, &self.folder, &*self.platform) {
                    Ok(encrypted) => Some(encrypted),
                    Err(error) => {
                        tracing::warn!("the tokens are kept in a file without encryption: {error}");
                        None
                    }
                }
            }
            (_, Protection::FileMode) | (None, Protection::Keyring) => None,
        };
        let file = encrypted.as_deref().unwrap_or(text.as_str());
        private_file::replace(&self.path(account), file).map_err(self.failed(account))
    }

    /// Forgets the credentials. Returns whether there were any.
    pub fn remove(&self, account: &str) -> Result<bool, TokenError> {
        match std::fs::remove_file(self.path(account)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed(account)(error)),
        }
    }

    /// The text of [`Self::token`], for requests that others send. It does not suffice where tokens are bound to a key.
    pub async fn access_token(
        &self,
        account: &str,
        rejected: Option<&str>,
    ) -> Result<Option<String>, TokenError> {
        Ok(self.token(account, rejected).await?.map(|token| token.text().to_owned()))
    }

    /// A valid access token, refreshed if necessary. `rejected` is one that the server did not accept. `None`: the user
    /// must sign in.
    pub async fn token(
        &self,
        account: &str,
        rejected: Option<&str>,
    ) -> Result<Option<AccessToken>, TokenError> {
        self.wait_for_keyring(account).await;
        let Some(credentials) = self.load(account)? else { return Ok(None) };
        if let Some(token) = self.usable(&credentials, rejected) {
            return Ok(Some(token));
        }
        let (store, account) = (self.clone(), account.to_owned());
        let rejected = rejected.map(str::to_owned);
        // A task of its own: dropping this future must not drop a refresh that was sent.
        let refresh = tokio::spawn(async move { store.refresh(&account, rejected.as_deref()).await });
        match refresh.await {
            Ok(token) => token,
            Err(error) => Err(TokenError::File { path: String::new(), reason: error.to_string() }),
        }
    }

    /// Reads the key on a thread that may block, if it is needed and not known yet: the user may have to unlock the keyring.
    async fn wait_for_keyring(&self, account: &str) {
        if self.keyring.as_ref().is_some_and(|keyring| !keyring.is_known()) {
            let (store, account) = (self.clone(), account.to_owned());
            // Whoever loads the credentials next sees what went wrong.
            let _ = tokio::task::spawn_blocking(move || store.load(&account)).await;
        }
    }

    fn usable(&self, credentials: &Credentials, rejected: Option<&str>) -> Option<AccessToken> {
        let tokens = credentials.tokens.as_ref()?;
        let is_usable =
            tokens.is_valid(self.platform.now_ms()) && Some(tokens.access_token.as_str()) != rejected;
        is_usable.then(|| self.with_proofs(credentials))?
    }

    /// `None` if the token is bound to a key that was lost.
    fn with_proofs(&self, credentials: &Credentials) -> Option<AccessToken> {
        let tokens = credentials.tokens.as_ref()?;
        let text = tokens.access_token.clone();
        if !tokens.is_bound {
            return Some(AccessToken::bearer(text));
        }
        let key = DpopKey::parse(credentials.dpop_key.as_deref()?)?;
        Some(AccessToken::bound(text, Arc::new(DpopProofs::new(key, self.platform.clone()))))
    }

    async fn refresh(
        &self,
        account: &str,
        rejected: Option<&str>,
    ) -> Result<Option<AccessToken>, TokenError> {
        let failed = self.failed(account);
        let lock_path = self.path(account);
        let locked = tokio::task::spawn_blocking(move || private_file::lock(&lock_path)).await;
        let _lock = locked.map_err(|error| failed(io::Error::other(error)))?.map_err(&failed)?;
        // Another process may have refreshed it while this one waited.
        let Some(stored) = self.load_stored(account)? else { return Ok(None) };
        let StoredCredentials { mut credentials, protection } = stored;
        if let Some(token) = self.usable(&credentials, rejected) {
            return Ok(Some(token));
        }
        let Some(before) = credentials.tokens.clone() else { return Ok(None) };
        let Some(refresh_token) = before.refresh_token.clone() else { return Ok(None) };
        let named_from = credentials.named_from;
        let url = UrlGuard::for_zone(named_from).check(&credentials.token_endpoint)?;
        let endpoint = Endpoint { url: &url, named_from };
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.as_str()),
            ("resource", credentials.resource.as_str()),
        ];
        // The refresh token of a public client is bound to the same key.
        let key = credentials.dpop_key.as_deref().and_then(DpopKey::parse);
        let (client, auth) = (&credentials.client, credentials.client_auth);
        match token_request(endpoint, client, auth, &form, key.as_ref(), self).await {
            Ok(answer) => {
                let now_ms = self.platform.now_ms();
                let tokens = Tokens::parse(&answer, Some(&before), &before.scopes, key.is_some(), now_ms);
                credentials.tokens = Some(tokens.ok_or(TokenError::NoToken { status: 200 })?);
                self.replace(&credentials, protection)?;
                Ok(self.with_proofs(&credentials))
            }
            // The token is spent or revoked; only the user can help. Anything else may pass, so the token is kept.
            Err(TokenError::Refused { error, .. }) if error == "invalid_grant" => {
                credentials.tokens = None;
                self.replace(&credentials, protection)?;
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
