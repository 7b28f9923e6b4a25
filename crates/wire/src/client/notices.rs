//! What a server says without being asked at that moment.

use call::Change;
use json::{Json, Node};

use super::Ticket;
use super::machine::{Client, Goes, Pending};
use super::words::Event;
use crate::params::Filter;
use crate::version::Feature;

impl Client {
    pub(super) fn noticed(&mut self, method: &str, params: Option<Node<'_>>) {
        let member = |key: &str| params.and_then(|params| params.get(key));
        let text = |key: &str| member(key).and_then(|value| value.str()).map(|text| text.into_owned());
        let number = |key: &str| member(key).and_then(|value| value.raw().parse::<f64>().ok());
        match method {
            "notifications/progress" => {
                let token = member("progressToken").and_then(|token| token.u64());
                let ticket = token.and_then(|id| self.ids.get(&id)).copied();
                let pending = ticket.and_then(|ticket| self.calls.get_mut(&ticket));
                let pending = pending.filter(|pending| pending.call.progress);
                if let (Some(ticket), Some(pending), Some(progress)) = (ticket, pending, number("progress"))
                    // 2025-11-25, Progress: the value "MUST increase with each notification".
                    && pending.progress.is_none_or(|last| progress > last)
                {
                    pending.progress = Some(progress);
                    let (total, message) = (number("total"), text("message"));
                    self.events.push_back(Event::Progress { ticket, progress, total, message });
                }
            }
            "notifications/message" => {
                let data = member("data").map_or_else(|| Json::object(|_| ()), Json::from);
                let level = text("level").unwrap_or_default();
                self.events.push_back(Event::Log { level, logger: text("logger"), data });
            }
            "notifications/tools/list_changed" => self.changed(Change::Tools, params),
            "notifications/prompts/list_changed" => self.changed(Change::Prompts, params),
            "notifications/resources/list_changed" => self.changed(Change::Resources, params),
            "notifications/resources/updated" => {
                if let Some(uri) = text("uri") {
                    self.changed(Change::Resource(uri.into()), params);
                }
            }
            "notifications/subscriptions/acknowledged" => {
                let granted = Filter::read(member("notifications")).unwrap_or_default();
                if let Some(ticket) = self.subscription(params) {
                    self.events.push_back(Event::Listening { ticket, granted });
                }
            }
            "notifications/cancelled" => self.withdrawn(member("requestId")),
            _ => {}
        }
    }

    pub(super) fn changed(&mut self, change: Change, params: Option<Node<'_>>) {
        // 2026-07-28, Receiving Notifications: clients MUST correlate by the subscription's id.
        if self.version.has(Feature::Listen) && self.subscription(params).is_none() {
            // What was on its way when somebody stopped listening is late, like an answer.
            if subscription_id(params).is_none_or(|id| id >= self.next) {
                self.odd("word of a change that nobody asked for");
            }
            return;
        }
        self.events.push_back(Event::Changed(change));
    }

    pub(super) fn subscription(&self, params: Option<Node<'_>>) -> Option<Ticket> {
        self.listening(subscription_id(params)?)
    }

    /// The subscription that a request is, if it is one.
    pub(super) fn listening(&self, id: u64) -> Option<Ticket> {
        let ticket = self.ids.get(&id)?;
        let is_listening = |pending: &Pending| matches!(pending.goes, Goes::Listen);
        self.calls.get(ticket).is_some_and(is_listening).then_some(*ticket)
    }
}

fn subscription_id(params: Option<Node<'_>>) -> Option<u64> {
    params?.get("_meta")?.get("io.modelcontextprotocol/subscriptionId")?.u64()
}
