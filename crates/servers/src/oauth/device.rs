//! Signing in on another device (RFC 8628): for machines without a browser. The user opens an address anywhere, types a
//! short code, and agrees; this program asks the authorization server until it has.

use std::time::Duration;

use url::Url;

use super::challenge::Challenge;
use super::credentials::{ClientRegistration, CredentialStore, TokenError};
use super::discovery::{Discovery, discover};
use super::dpop::DpopKey;
use super::http::{Answer, Body, request};
use super::login::{LoginError, register};
use super::metadata::UrlGuard;
use crate::config::OAuthSettings;

pub(super) const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// RFC 8628, 3.2 and 3.5: if the server does not say, and what `slow_down` adds.
const INTERVAL_S: u64 = 5;
const INTERVAL_S_MAX: u64 = 60;
/// A server that says nothing, or too much, about how long a code is valid.
const EXPIRY_S_MAX: u64 = 30 * 60;
const USER_CODE_CHARS_MAX: usize = 64;

/// A sign-in that waits for the user on another device.
pub struct DeviceLogin {
    discovery: Discovery,
    client: ClientRegistration,
    scopes: Vec<String>,
    key: Option<DpopKey>,
    device_code: String,
    user_code: String,
    url: Url,
    interval_s: u64,
    expires_in_s: u64,
}

impl DeviceLogin {
    pub async fn start(
        server: &Url,
        challenge: Option<&Challenge>,
        settings: &OAuthSettings,
        client_secret: Option<String>,
        store: &CredentialStore,
    ) -> Result<Self, LoginError> {
        let discovery = discover(server, challenge, settings, store).await?;
        let issuer = || discovery.server.issuer.clone();
        let Some(endpoint) = discovery.server.device_authorization_endpoint.clone() else {
            return Err(LoginError::NoDevices { issuer: issuer() });
        };
        let scopes = discovery.scopes_to_ask(settings, challenge);
        let known = store.load(&discovery.account)?.filter(|known| known.issuer == issuer());
        // A registration without an address to return to is one for devices.
        let known = known.map(|known| known.client).filter(|client| client.redirect_uri.is_none());
        let client = match (&settings.client_id, known) {
            (Some(id), _) => ClientRegistration { client_id: id.clone(), client_secret, redirect_uri: None },
            (None, Some(known)) => known,
            (None, None) => register(&discovery.server, None, &scopes, store).await?,
        };
        let key = discovery.new_key()?;
        let joined = scopes.join(" ");
        let mut form = vec![("client_id", client.client_id.as_str()), ("resource", &discovery.resource)];
        if !scopes.is_empty() {
            form.push(("scope", &joined));
        }
        let named_from = discovery.server.named_from;
        let answer = request(&endpoint, named_from, Body::Form(&form), &[], store.outbound()).await?;
        let started = Self::parse(&answer, UrlGuard::for_zone(answer.zone))?;
        let (device_code, user_code, url, interval_s, expires_in_s) = started;
        Ok(Self { discovery, client, scopes, key, device_code, user_code, url, interval_s, expires_in_s })
    }

    fn parse(answer: &Answer, guard: UrlGuard) -> Result<(String, String, Url, u64, u64), LoginError> {
        if let Some(error) = answer.error() {
            let description = answer.text("error_description");
            return Err(TokenError::Refused { error, description }.into());
        }
        let is_code = |code: &String| code.chars().count() <= USER_CODE_CHARS_MAX;
        let found = answer.text("device_code").zip(answer.text("user_code").filter(is_code));
        // Some servers still send the name of an early draft.
        let address = answer.text("verification_uri").or_else(|| answer.text("verification_url"));
        let (Some((device_code, user_code)), Some(address), 200) = (found, address, answer.status) else {
            return Err(TokenError::NoToken { status: answer.status }.into());
        };
        let seconds = |key: &str| answer.body.as_ref()?.to_doc().root().get(key)?.u64();
        let interval_s = seconds("interval").unwrap_or(INTERVAL_S).clamp(1, INTERVAL_S_MAX);
        let expires_in_s = seconds("expires_in").unwrap_or(EXPIRY_S_MAX).min(EXPIRY_S_MAX);
        // The user opens it, so it must be as safe as any other address of the server.
        Ok((device_code, user_code, guard.check(&address)?, interval_s, expires_in_s))
    }

    /// What the user types.
    pub fn user_code(&self) -> &str {
        &self.user_code
    }

    /// The address that the user must open, on any device.
    pub fn url(&self) -> &Url {
        &self.url
    }

    pub fn issuer(&self) -> &str {
        &self.discovery.server.issuer
    }

    /// Asks until the user has agreed or declined, and keeps the tokens.
    pub async fn finish(self, server: &Url, store: &CredentialStore) -> Result<(), LoginError> {
        let form = [
            ("grant_type", DEVICE_GRANT),
            ("device_code", self.device_code.as_str()),
            ("resource", self.discovery.resource.as_str()),
        ];
        let asking = async {
            let mut interval_s = self.interval_s;
            loop {
                tokio::time::sleep(Duration::from_secs(interval_s)).await;
                let (client, key) = (self.client.clone(), self.key.as_ref());
                let got = self.discovery.get_tokens(server, client, key, &form, &self.scopes, store).await;
                match got {
                    Err(LoginError::Token(TokenError::Refused { error, .. }))
                        if error == "authorization_pending" => {}
                    Err(LoginError::Token(TokenError::Refused { error, .. })) if error == "slow_down" => {
                        interval_s = (interval_s + INTERVAL_S).min(INTERVAL_S_MAX);
                    }
                    Err(LoginError::Token(TokenError::Refused { error, description }))
                        if error == "access_denied" || error == "expired_token" =>
                    {
                        return Err(LoginError::Declined { error, description });
                    }
                    // RFC 8628, 3.5: a request that failed on its way is sent again, less often.
                    Err(LoginError::Token(TokenError::Request(_))) => {
                        interval_s = (interval_s * 2).min(INTERVAL_S_MAX);
                    }
                    got => return got,
                }
            }
        };
        match tokio::time::timeout(Duration::from_secs(self.expires_in_s), asking).await {
            Ok(got) => Ok(store.save(&got?)?),
            Err(_) => Err(LoginError::Timeout(self.expires_in_s)),
        }
    }
}
