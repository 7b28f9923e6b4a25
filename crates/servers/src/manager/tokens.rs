//! The access tokens of the servers: from the credentials of the user, or from the owner of the manager.

use std::sync::Arc;
use std::time::Duration;

use outbound::Reach;
use upstream::{AccessToken, TokenSlot};
use url::Url;

use super::ManagerHost;
use crate::config::ConfiguredServer;
use crate::oauth::{LoginError, ServerSignIn};

/// A token that expires very soon does not keep its server busy with new ones.
const RENEWAL_MIN_MS: u64 = 1000;

/// The wait before a token that could not be replaced is tried again.
const RENEWAL_RETRY_MS: u64 = 10_000;

/// A valid token for the server at this address; `rejected` is one that the server did not accept. `None`: the user must
/// sign in. An error may pass, and signing in would not help.
pub(super) async fn access_token(
    server: &ConfiguredServer,
    url: &Url,
    reach: Reach,
    rejected: Option<String>,
    host: &dyn ManagerHost,
) -> Result<Option<AccessToken>, LoginError> {
    let Some(store) = host.credentials() else {
        return Ok(host.access_token(url, rejected).await.map(AccessToken::bearer));
    };
    let (env, home) = (|name: &str| host.env(name), host.home());
    let sign_in = ServerSignIn { server, url, env: &env, home: home.as_deref() };
    let token = sign_in.token(rejected.as_deref(), &store.within(reach)).await;
    token.inspect_err(|error| tracing::warn!(server = server.name, %error, "cannot get a token"))
}

/// Replaces the token of an open connection each time before it expires. A token that cannot be replaced is left: the
/// next call finds out.
pub(super) async fn keep_valid(
    server: Arc<ConfiguredServer>,
    url: &Url,
    reach: Reach,
    slot: &TokenSlot,
    host: Arc<dyn ManagerHost>,
) {
    let Some(store) = host.credentials() else { return };
    let account = {
        let env = |name: &str| host.env(name);
        ServerSignIn { server: &server, url, env: &env, home: None }.account()
    };
    let mut wait_min_ms = RENEWAL_MIN_MS;
    while slot.get().is_some()
        && let Some(valid_ms) = store.valid_for_ms(&account)
    {
        tokio::time::sleep(Duration::from_millis(valid_ms.max(wait_min_ms))).await;
        wait_min_ms = match access_token(&server, url, reach, None, &*host).await {
            Ok(Some(token)) => {
                slot.set(Some(token));
                RENEWAL_MIN_MS
            }
            Ok(None) => return,
            Err(_) => RENEWAL_RETRY_MS,
        };
    }
}
