//! Subscriptions: one request in the stateless era, one request for each resource in the handshake era.

use json::Json;

use super::CallId;
use super::state_machine::{CallPurpose, Client, PendingCall};
use super::types::{ClientCall, ClientEvent};
use crate::method::Method;
use crate::params::NotificationFilter;

impl Client {
    /// In the handshake era only changes of single resources need a subscription.
    pub(super) fn subscribe_resources(&mut self, call_id: CallId) {
        let Some(pending) = self.pending_calls.get_mut(&call_id) else { return };
        // Marks the call as sent. No response will match this id.
        pending.message_id = Some(0);
        let filter = pending.notification_filter();
        for uri in filter.resource_uris {
            let call = ClientCall::new(Method::Subscribe, uri_params(&uri));
            self.start_call(call, CallPurpose::Subscribe { listen_call: call_id, uri });
        }
        self.report_subscribed(call_id);
    }

    /// Reports a subscription once the server has answered for each of its resources. A caller that reads a resource
    /// after that misses no change.
    pub(super) fn report_subscribed(&mut self, call_id: CallId) {
        let is_subscribe = |pending: &PendingCall| matches!(pending.purpose, CallPurpose::Subscribe { listen_call, .. } if listen_call == call_id);
        if self.pending_calls.values().any(is_subscribe) {
            return;
        }
        if let Some(pending) = self.pending_calls.get(&call_id).filter(|pending| pending.message_id.is_some())
        {
            let granted = pending.notification_filter();
            self.events.push_back(ClientEvent::SubscriptionStarted { call_id, granted });
        }
    }

    /// Whether a subscription of the handshake era names this resource.
    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        self.pending_calls.values().any(|pending| {
            matches!(pending.purpose, CallPurpose::Listen)
                && pending.notification_filter().resource_uris.iter().any(|one| one == uri)
        })
    }

    /// Removes a resource that the server refused from the subscription.
    pub(super) fn drop_subscribed_uri(&mut self, call_id: CallId, uri: &str) {
        if let Some(pending) = self.pending_calls.get_mut(&call_id) {
            let mut filter = pending.notification_filter();
            filter.resource_uris.retain(|subscribed| subscribed != uri);
            pending.call.params = filter_params(&filter);
        }
        self.report_subscribed(call_id);
    }
}

impl PendingCall {
    /// The filter of a subscription.
    pub(super) fn notification_filter(&self) -> NotificationFilter {
        let doc = self.call.params.to_doc();
        NotificationFilter::read(doc.root().get("notifications")).unwrap_or_default()
    }
}

pub(super) fn uri_params(uri: &str) -> Json {
    Json::object(|params| {
        params.str("uri", uri);
    })
}

pub(super) fn filter_params(filter: &NotificationFilter) -> Json {
    Json::object(|params| {
        params.object("notifications", |out| filter.write(out));
    })
}
