//! `ctx.fetch`: requests of author code, through the guard for addresses.

use std::sync::Arc;

use outbound::{GuardedClient, GuardedRequest, OutboundOptions};
use script::{EffectFailure, HttpRequest, HttpResponse, Network, NetworkFuture, Permissions};

/// `None` if no host is permitted: then nothing is set up.
pub(super) fn for_permissions(permissions: &Permissions) -> Option<Arc<dyn Network>> {
    if permissions.network.is_empty() {
        return None;
    }
    match GuardedClient::new(&OutboundOptions::default()) {
        Ok(client) => Some(Arc::new(GuardedNetwork(client))),
        Err(error) => {
            tracing::warn!(%error, "ctx.fetch is not available");
            None
        }
    }
}

struct GuardedNetwork(GuardedClient);

impl Network for GuardedNetwork {
    fn send(&self, request: HttpRequest) -> NetworkFuture {
        let HttpRequest { method, url, headers, body, response_bytes_max } = request;
        // A host on this machine was written out in the permissions, so it is meant.
        let sent = self.0.send(GuardedRequest { method, url, headers, body, response_bytes_max });
        Box::pin(async move {
            let response = sent.await.map_err(|error| EffectFailure::new(error.to_string()))?;
            Ok(HttpResponse { status: response.status, headers: response.headers, body: response.body })
        })
    }
}
