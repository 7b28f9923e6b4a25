//! Signs in when a server asks for it, and again when an operation needs more rights.

use upstream::TokenSlot;
use url::Url;

use super::challenge::Challenge;
use super::credentials::CredentialStore;
use super::login::{LoginError, PendingLogin};
use super::machine::MachineClient;
use super::metadata::account_of;
use crate::config::OAuthSettings;

/// One request makes the user sign in no more often than this: a server that is never satisfied would ask forever.
pub const SIGN_INS_MAX: u32 = 3;

/// Keeps the token of one server valid. Whoever sends requests with [`Self::token`] reports each refusal, and sends the
/// request again when that succeeds.
pub struct Authorizer {
    server: Url,
    settings: OAuthSettings,
    client: AuthorizerClient,
    store: CredentialStore,
    token: TokenSlot,
    /// Since the last request that was accepted.
    sign_ins: u32,
    has_refreshed: bool,
}

/// Who signs in.
pub enum AuthorizerClient {
    /// The user, in a browser. The secret is that of a client in the settings.
    User { client_secret: Option<String> },
    /// This program itself.
    Machine(Box<MachineClient>),
}

impl Authorizer {
    /// Starts with the token of an earlier sign-in, if there is one.
    pub async fn new(
        server: Url,
        settings: OAuthSettings,
        client: AuthorizerClient,
        store: CredentialStore,
    ) -> Result<Self, LoginError> {
        let token = TokenSlot::default();
        token.set(store.token(&account_of(&server, &settings), None).await?);
        Ok(Self { server, settings, client, store, token, sign_ins: 0, has_refreshed: false })
    }

    /// The token for requests. It is replaced by every sign-in.
    pub fn token(&self) -> TokenSlot {
        self.token.clone()
    }

    /// The server accepted a request.
    pub fn on_accepted(&mut self) {
        (self.sign_ins, self.has_refreshed) = (0, false);
    }

    /// The server refused a request with status 401 or 403. When this returns, the request can be sent again. `show`
    /// leads the user to the address where to sign in.
    pub async fn on_refused(
        &mut self,
        challenge: Option<&str>,
        show: impl AsyncFnOnce(&Url),
    ) -> Result<(), LoginError> {
        let account = account_of(&self.server, &self.settings);
        let challenge = challenge.and_then(Challenge::parse);
        let needs_scopes = challenge.as_ref().is_some_and(Challenge::is_insufficient_scope);
        if let Some(rejected) = self.token.text().filter(|_| !needs_scopes && !self.has_refreshed) {
            self.has_refreshed = true;
            if let Some(token) = self.store.token(&account, Some(&rejected)).await? {
                self.token.set(Some(token));
                return Ok(());
            }
        }
        if self.sign_ins == SIGN_INS_MAX {
            return Err(LoginError::TooOften(SIGN_INS_MAX));
        }
        self.sign_ins += 1;
        let (server, settings, store) = (&self.server, &self.settings, &self.store);
        match &self.client {
            AuthorizerClient::Machine(client) => {
                client.sign_in(server, challenge.as_ref(), settings, store).await?;
            }
            AuthorizerClient::User { client_secret } => {
                let secret = client_secret.clone();
                let login = PendingLogin::start(server, challenge.as_ref(), settings, secret, store).await?;
                let url = login.url().clone();
                let finished = login.finish(server, None, store);
                let ((), finished) = tokio::join!(show(&url), finished);
                finished?;
            }
        }
        self.token.set(self.store.token(&account, None).await?);
        Ok(())
    }
}
