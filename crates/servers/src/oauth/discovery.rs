//! Finds the authorization server of a server, and gets a token there: what all ways of signing in have in common.

use outbound::NetworkZone;
use url::Url;

use super::challenge::Challenge;
use super::credentials::{
    ClientAuth, ClientRegistration, CredentialStore, Credentials, TokenError, Tokens, token_request,
};
use super::dpop::DpopKey;
use super::http::{Body, Endpoint, request};
use super::login::LoginError;
use super::metadata::{
    AuthorizationServer, ResourceMetadata, UrlGuard, account_of, authorization_server_urls,
    resource_metadata_urls, resource_of,
};
use crate::config::OAuthSettings;

/// The address of an authorization server, and the resource to ask a token for.
pub(super) struct Discovery {
    pub(super) server: AuthorizationServer,
    /// Under which name the credentials are kept.
    pub(super) account: String,
    pub(super) resource: String,
    pub(super) scopes: Vec<String>,
    /// The resource accepts only tokens that are bound to a key.
    pub(super) requires_dpop: bool,
}

impl Discovery {
    /// The key for the tokens of a sign-in, where the authorization server binds tokens to keys.
    pub(super) fn new_key(&self) -> Result<Option<DpopKey>, LoginError> {
        match (self.server.supports_dpop, self.requires_dpop) {
            (true, _) => Ok(Some(DpopKey::generate()?)),
            (false, false) => Ok(None),
            (false, true) => Err(LoginError::NoDpop { issuer: self.server.issuer.clone() }),
        }
    }

    /// The scopes to ask for: those of the settings, else those that the refusal names, else those of the resource.
    pub(super) fn scopes_to_ask(
        &self,
        settings: &OAuthSettings,
        challenge: Option<&Challenge>,
    ) -> Vec<String> {
        match (&settings.scopes, challenge.and_then(|challenge| challenge.scopes.clone())) {
            (Some(pinned), _) => pinned.clone(),
            (None, Some(asked)) => asked,
            (None, None) => self.scopes.clone(),
        }
    }

    pub(super) fn token_endpoint(&self) -> Endpoint<'_> {
        Endpoint { url: &self.server.token_endpoint, named_from: self.server.named_from }
    }

    /// Sends a grant to the token endpoint. Returns what is to be kept for `server`.
    pub(super) async fn get_tokens(
        &self,
        server: &Url,
        client: ClientRegistration,
        key: Option<&DpopKey>,
        form: &[(&str, &str)],
        scopes: &[String],
        store: &CredentialStore,
    ) -> Result<Credentials, LoginError> {
        let auth = ClientAuth::choose(client.client_secret.is_some(), &self.server.token_auth_methods);
        let endpoint = self.token_endpoint();
        let answer = token_request(endpoint, &client, auth, form, key, store).await?;
        let now_ms = store.platform().now_ms();
        let Some(tokens) = Tokens::parse(&answer, None, scopes, key.is_some(), now_ms) else {
            return Err(TokenError::NoToken { status: 200 }.into());
        };
        if self.requires_dpop && !tokens.is_bound {
            return Err(LoginError::NoDpop { issuer: self.server.issuer.clone() });
        }
        Ok(Credentials {
            account: self.account.clone(),
            resource: resource_of(server),
            issuer: self.server.issuer.clone(),
            token_endpoint: endpoint.url.to_string(),
            named_from: endpoint.named_from,
            client,
            client_auth: auth,
            dpop_key: key.filter(|_| tokens.is_bound).map(|key| key.as_text().to_owned()),
            tokens: Some(tokens),
        })
    }
}

/// The user wrote the address, or that of the server at whose origin it is.
const WRITTEN_BY_USER: NetworkZone = NetworkZone::ThisMachine;

/// Finds the authorization server of a server, and checks its metadata.
pub async fn find_authorization_server(
    server: &Url,
    challenge: Option<&Challenge>,
    settings: &OAuthSettings,
    store: &CredentialStore,
) -> Result<AuthorizationServer, LoginError> {
    Ok(discover(server, challenge, settings, store).await?.server)
}

pub(super) async fn discover(
    server: &Url,
    challenge: Option<&Challenge>,
    settings: &OAuthSettings,
    store: &CredentialStore,
) -> Result<Discovery, LoginError> {
    let account = account_of(server, settings);
    let mut places = Vec::new();
    if let Some(named) = challenge.and_then(|challenge| challenge.resource_metadata.as_deref()) {
        let guard = UrlGuard::for_server(server);
        let place = guard.check(named)?;
        let named_from = if place.origin() == server.origin() { WRITTEN_BY_USER } else { guard.zone() };
        places.push((place, named_from));
    }
    places.extend(resource_metadata_urls(server).into_iter().map(|place| (place, WRITTEN_BY_USER)));
    let mut found = None;
    for (place, named_from) in places {
        let answer = request(&place, named_from, Body::None, &[], store.outbound()).await?;
        if let (200, Some(body)) = (answer.status, answer.body) {
            found = Some((ResourceMetadata::parse(&body, server)?, answer.zone));
            break;
        }
    }
    let (found, zone) = found.unzip();
    let resource = match (&settings.resource, &found) {
        (Some(resource), _) => resource.clone(),
        (None, Some(metadata)) => metadata.resource.clone(),
        (None, None) => resource_of(server),
    };
    let requires_dpop = found.as_ref().is_some_and(|metadata| metadata.requires_dpop);
    let scopes = found.as_ref().map(|metadata| metadata.scopes_supported.clone()).unwrap_or_default();
    if let Some(named) = &settings.metadata_url {
        let place = UrlGuard::for_user().check(named)?;
        let answer = request(&place, WRITTEN_BY_USER, Body::None, &[], store.outbound()).await?;
        let guard = UrlGuard::for_zone(answer.zone);
        let Some(body) = answer.body.filter(|_| answer.status == 200) else {
            return Err(LoginError::NoMetadata(named.clone()));
        };
        // The user named this document, so its own issuer is the one that is meant.
        let issuer = body.to_doc().root().get("issuer").and_then(|issuer| Some(issuer.str()?.into_owned()));
        let server = AuthorizationServer::parse(&body, &issuer.unwrap_or_default(), guard)?;
        return Ok(Discovery { server, account, resource, scopes, requires_dpop });
    }
    let mut errors = Vec::new();
    let issuers = match &found {
        Some(metadata) => metadata.authorization_servers.clone(),
        // 2025-03-26: the server is its own authorization server.
        None => vec![server.origin().ascii_serialization()],
    };
    // Without a document the only address is that of the server.
    let guard = zone.map_or_else(UrlGuard::for_user, UrlGuard::for_zone);
    for issuer in &issuers {
        for place in authorization_server_urls(&guard.check(issuer)?) {
            let answer = request(&place, guard.zone(), Body::None, &[], store.outbound()).await?;
            let guard = UrlGuard::for_zone(answer.zone);
            let Some(body) = answer.body.filter(|_| answer.status == 200) else { continue };
            match AuthorizationServer::parse(&body, issuer, guard) {
                Ok(server) => return Ok(Discovery { server, account, resource, scopes, requires_dpop }),
                Err(error) => errors.push(error),
            }
        }
    }
    match (errors.into_iter().next(), found) {
        (Some(error), _) => Err(error.into()),
        (None, Some(_)) => Err(LoginError::NoMetadata(issuers.join(", "))),
        (None, None) => {
            let server = AuthorizationServer::default_for(server);
            Ok(Discovery { server, account, resource, scopes, requires_dpop })
        }
    }
}
