//! The access tokens of the servers: from the credentials of the user, or from the owner of the manager.

use std::sync::Arc;
use std::time::Duration;

use upstream::{AccessToken, TokenSlot};
use url::Url;

use super::ManagerHost;
use crate::config::ConfiguredServer;
use crate::oauth::{ServerSignIn, resource_of};

/// A token that expires very soon does not keep its server busy with new ones.
const RENEWAL_MIN_MS: u64 = 1000;

/// A valid token for the server at this address; `rejected` is one that the server did not accept. `None`: the user must
/// sign in.
pub(super) async fn access_token(
    server: &ConfiguredServer,
    url: &Url,
    rejected: Option<String>,
    host: &dyn ManagerHost,
) -> Option<AccessToken> {
    let Some(store) = host.credentials() else {
        return host.access_token(url, rejected).await.map(AccessToken::bearer);
    };
    let (env, home) = (|name: &str| host.env(name), host.home());
    let sign_in = ServerSignIn { server, url, env: &env, home: home.as_deref() };
    match sign_in.token(rejected.as_deref(), &store).await {
        Ok(token) => token,
        Err(error) => {
            tracing::warn!(server = server.name, %error, "cannot get a token");
            None
        }
    }
}

/// Replaces the token of an open connection each time before it expires. A token that cannot be replaced is left: the
/// next call finds out.
pub(super) async fn keep_valid(
    server: Arc<ConfiguredServer>,
    url: &Url,
    slot: &TokenSlot,
    host: Arc<dyn ManagerHost>,
) {
    let Some(store) = host.credentials() else { return };
    while slot.get().is_some()
        && let Some(valid_ms) = store.valid_for_ms(&resource_of(url))
    {
        tokio::time::sleep(Duration::from_millis(valid_ms.max(RENEWAL_MIN_MS))).await;
        match access_token(&server, url, None, &*host).await {
            Some(token) => slot.set(Some(token)),
            None => return,
        }
    }
}
