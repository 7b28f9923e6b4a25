//! Tokens for programs without a user: client credentials, the identity of a workload, and an enterprise's identity
//! provider. A grant that fails is not repeated, and no other one is tried in its place.

use json::Json;
use url::Url;

use super::challenge::Challenge;
use super::credentials::{ClientAuth, ClientRegistration, CredentialStore, TokenError, token_request};
use super::discovery::discover;
use super::http::Endpoint;
use super::jwt::SigningKey;
use super::login::LoginError;
use super::metadata::{AuthorizationServer, UrlGuard};
use crate::config::OAuthSettings;

/// A client that is known to the authorization server, and how it gets a token.
pub struct MachineClient {
    pub client_id: String,
    pub proof: ClientProof,
    pub grant: MachineGrant,
}

/// How a client proves who it is.
pub enum ClientProof {
    None,
    Secret(String),
    /// Signed assertions (RFC 7523).
    PrivateKey(Box<SigningKey>),
}

pub enum MachineGrant {
    /// The client acts for itself (RFC 6749, 4.4).
    ClientCredentials,
    /// The platform that runs this program says who it is, in a signed assertion (RFC 7523).
    WorkloadIdentity { assertion: String },
    /// Enterprise-managed authorization: the identity provider where the user is signed in exchanges the ID token for a
    /// grant of the MCP server's authorization server (RFC 8693).
    Enterprise { token_endpoint: String, client_id: String, id_token: String },
}

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const CLIENT_ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// An assertion is used at once.
const ASSERTION_TTL_S: u64 = 60;

impl MachineClient {
    /// Gets a token for a server, and keeps it.
    pub async fn sign_in(
        &self,
        server: &Url,
        challenge: Option<&Challenge>,
        settings: &OAuthSettings,
        store: &CredentialStore,
    ) -> Result<(), LoginError> {
        let discovery = discover(server, challenge, settings, store).await?;
        let scopes = discovery.scopes_to_ask(settings, challenge);
        let key = discovery.new_key()?;
        let (authority, resource) = (&discovery.server, discovery.resource.as_str());
        let mut form = match &self.grant {
            MachineGrant::ClientCredentials => vec![("grant_type", "client_credentials".to_owned())],
            MachineGrant::WorkloadIdentity { assertion } => jwt_bearer(assertion.clone()),
            MachineGrant::Enterprise { token_endpoint, client_id, id_token } => {
                let guard = UrlGuard::for_user();
                let url = guard.check(token_endpoint)?;
                let endpoint = Endpoint { url: &url, named_from: guard.zone() };
                let grant = exchange(endpoint, client_id, id_token, authority, resource, store).await?;
                jwt_bearer(grant)
            }
        };
        form.push(("resource", resource.to_owned()));
        if !scopes.is_empty() {
            form.push(("scope", scopes.join(" ")));
        }
        let secret = match &self.proof {
            ClientProof::Secret(secret) => Some(secret.clone()),
            ClientProof::None => None,
            ClientProof::PrivateKey(key) => {
                let assertion = self.client_assertion(key, authority, store)?;
                form.push(("client_assertion_type", CLIENT_ASSERTION_TYPE.to_owned()));
                form.push(("client_assertion", assertion));
                None
            }
        };
        let client = ClientRegistration {
            client_id: self.client_id.clone(),
            client_secret: secret,
            redirect_uri: None,
        };
        let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut got = discovery.get_tokens(server, client, key.as_ref(), &form, &scopes, store).await?;
        // The next token needs no refresh, and the secret stays where it was.
        got.client.client_secret = None;
        got.tokens.iter_mut().for_each(|tokens| tokens.refresh_token = None);
        Ok(store.save(&got)?)
    }

    /// RFC 7523, 3: who signs, about whom, for whom, until when; and never the same twice.
    fn client_assertion(
        &self,
        key: &SigningKey,
        authority: &AuthorizationServer,
        store: &CredentialStore,
    ) -> Result<String, LoginError> {
        let now_s = store.platform().now_ms() / 1000;
        let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        let claims = Json::object(|out| {
            out.str("iss", &self.client_id).str("sub", &self.client_id).str("aud", &authority.issuer);
            out.str("jti", &super::login::random_text(store.platform()));
            out.int("iat", seconds(now_s)).int("exp", seconds(now_s.saturating_add(ASSERTION_TTL_S)));
        });
        Ok(key.sign(&claims)?)
    }
}

fn jwt_bearer(assertion: String) -> Vec<(&'static str, String)> {
    vec![("grant_type", JWT_BEARER.to_owned()), ("assertion", assertion)]
}

/// The identity provider's grant for the authorization server of the MCP server.
async fn exchange(
    endpoint: Endpoint<'_>,
    client_id: &str,
    id_token: &str,
    authority: &AuthorizationServer,
    resource: &str,
    store: &CredentialStore,
) -> Result<String, LoginError> {
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:id-jag"),
        ("audience", &authority.issuer),
        ("resource", resource),
        ("subject_token", id_token),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:id_token"),
    ];
    let client =
        ClientRegistration { client_id: client_id.to_owned(), client_secret: None, redirect_uri: None };
    let answer = token_request(endpoint, &client, ClientAuth::None, &form, None, store).await?;
    let doc = answer.to_doc();
    let grant = doc.root().get("access_token").and_then(|token| Some(token.str()?.into_owned()));
    Ok(grant.ok_or(TokenError::NoToken { status: 200 })?)
}
