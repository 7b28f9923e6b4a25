//! Notifications from the server.

use json::{Json, Node};
use spile_core::CatalogChange;

use super::CallId;
use super::state_machine::{CallPurpose, Client, PendingCall};
use super::types::{ClientEvent, WarningKind};
use crate::params::NotificationFilter;
use crate::version::Feature;

impl Client {
    pub(super) fn on_notification(&mut self, method: &str, params: Option<Node<'_>>, exchange: Option<u64>) {
        let member = |key: &str| params.and_then(|params| params.get(key));
        let text = |key: &str| member(key).and_then(|value| value.str()).map(|text| text.into_owned());
        let number = |key: &str| member(key).and_then(|value| value.raw().parse::<f64>().ok());
        match method {
            "notifications/progress" => {
                let token = member("progressToken").and_then(|token| token.u64());
                let call = token.and_then(|id| self.calls_by_message_id.get(&id)).copied();
                let pending = call.and_then(|call| self.pending_calls.get_mut(&call));
                let pending = pending.filter(|pending| pending.call.wants_progress);
                if let (Some(call), Some(pending), Some(progress)) = (call, pending, number("progress"))
                    // 2025-11-25, Progress: the value "MUST increase with each notification".
                    && pending.progress.is_none_or(|last| progress > last)
                {
                    pending.progress = Some(progress);
                    let (total, message) = (number("total"), text("message"));
                    self.events.push_back(ClientEvent::Progress { call_id: call, progress, total, message });
                    self.renew_deadline(call);
                }
            }
            "notifications/message" => {
                let data = member("data").map_or_else(|| Json::object(|_| ()), Json::from);
                let level = text("level").unwrap_or_default();
                let call = exchange.and_then(|exchange| self.calls_by_message_id.get(&exchange)).copied();
                self.events.push_back(ClientEvent::Log { call, level, logger: text("logger"), data });
            }
            "notifications/tools/list_changed" => self.on_catalog_change(CatalogChange::Tools, params),
            "notifications/prompts/list_changed" => self.on_catalog_change(CatalogChange::Prompts, params),
            "notifications/resources/list_changed" => {
                self.on_catalog_change(CatalogChange::Resources, params)
            }
            "notifications/resources/updated" => {
                if let Some(uri) = text("uri") {
                    self.on_catalog_change(CatalogChange::Resource(uri.into()), params);
                }
            }
            "notifications/elicitation/complete" => {
                self.events.extend(text("elicitationId").map(ClientEvent::ElicitationCompleted));
            }
            "notifications/subscriptions/acknowledged" => {
                let granted = NotificationFilter::read(member("notifications")).unwrap_or_default();
                if let Some(call) = self.subscription_call(params) {
                    self.events.push_back(ClientEvent::SubscriptionStarted { call_id: call, granted });
                }
            }
            "notifications/cancelled" => self.on_cancelled(member("requestId")),
            _ => {}
        }
    }

    pub(super) fn on_catalog_change(&mut self, change: CatalogChange, params: Option<Node<'_>>) {
        // 2026-07-28, Receiving Notifications: clients MUST correlate by the subscription's id.
        if self.version.has(Feature::Listen) && self.subscription_call(params).is_none() {
            // A notification for a cancelled subscription is merely late; one for an unknown subscription is an error.
            if subscription_id(params).is_none_or(|id| id >= self.next_message_id) {
                self.warn(
                    WarningKind::SkippedMessage,
                    "skipped a change notification that belongs to no subscription",
                );
            }
            return;
        }
        self.events.push_back(ClientEvent::CatalogChanged(change));
    }

    pub(super) fn subscription_call(&self, params: Option<Node<'_>>) -> Option<CallId> {
        self.listen_call(subscription_id(params)?)
    }

    /// The subscription that the request with this id started, if it started one.
    pub(super) fn listen_call(&self, id: u64) -> Option<CallId> {
        let call = self.calls_by_message_id.get(&id)?;
        let is_listening = |pending: &PendingCall| matches!(pending.purpose, CallPurpose::Listen);
        self.pending_calls.get(call).is_some_and(is_listening).then_some(*call)
    }
}

fn subscription_id(params: Option<Node<'_>>) -> Option<u64> {
    params?.get("_meta")?.get("io.modelcontextprotocol/subscriptionId")?.u64()
}
