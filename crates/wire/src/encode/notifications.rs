//! Notifications: progress, log messages, changes.

use json::write::{self, ObjectWriter};
use spile_core::{CallEvent, CatalogChange};

use super::input_requests::elicitation_id;
use super::tasks::{self, TaskSnapshot};
use super::{RenderedServerInfo, ReplyTo, begin_response, end_response, write_notification};
use crate::id::RequestId;
use crate::params::NotificationFilter;
use crate::version::{Feature, Version};

/// An event of a running call as a message; `None` if the event sends nothing.
pub fn call_event(event: &CallEvent, to: &ReplyTo) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(160);
    match event {
        CallEvent::Progress { progress, total, message } => {
            let token = to.progress_token.as_ref()?;
            write_notification(&mut out, "notifications/progress", |params| {
                params.key("progressToken").extend_from_slice(token.as_bytes());
                write::number(params.key("progress"), *progress);
                if let Some(total) = total {
                    write::number(params.key("total"), *total);
                }
                if to.version.has(Feature::ProgressMessage) {
                    params.maybe_str("message", message.as_deref());
                }
            });
        }
        CallEvent::Log { level, logger, data } => {
            write_notification(&mut out, "notifications/message", |params| {
                params.str("level", level.as_str());
                params.maybe_str("logger", logger.as_deref());
                params.raw("data", data.as_str());
            });
        }
        CallEvent::InputRequest { id, request, task_id } => {
            super::server_request(&mut out, *id, request, task_id.as_deref(), to.version);
        }
        CallEvent::CancelInputRequest { id } => {
            write_notification(&mut out, "notifications/cancelled", |params| {
                params.int("requestId", (*id).min(i64::MAX as u64) as i64);
                params.str("reason", "the response is no longer needed");
            });
        }
        // 2025-11-25, Completion Notifications. Before and after, URL mode has no ids.
        CallEvent::ElicitationComplete { id } if to.version.has(Feature::ElicitationId) => {
            write_notification(&mut out, "notifications/elicitation/complete", |params| {
                params.str("elicitationId", &elicitation_id(*id));
            });
        }
        CallEvent::ElicitationComplete { .. } | CallEvent::PauseStream { .. } => return None,
    }
    Some(out)
}

/// A change notification: for a client of the handshake era (`None`), or for one subscription of the stateless era.
pub fn change_notification(change: &CatalogChange, subscription: Option<&RequestId>) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    let (method, uri) = match change {
        CatalogChange::Tools => ("notifications/tools/list_changed", None),
        CatalogChange::Prompts => ("notifications/prompts/list_changed", None),
        CatalogChange::Resources => ("notifications/resources/list_changed", None),
        CatalogChange::Resource(uri) => ("notifications/resources/updated", Some(uri)),
    };
    if uri.is_none() && subscription.is_none() {
        let mut message = ObjectWriter::new(&mut out);
        message.str("jsonrpc", "2.0").str("method", method);
        message.end();
        return out;
    }
    write_notification(&mut out, method, |params| {
        params.maybe_str("uri", uri.map(|uri| &**uri));
        if let Some(id) = subscription {
            write_subscription_meta(params, id);
        }
    });
    out
}

fn write_subscription_meta(params: &mut ObjectWriter<'_>, id: &RequestId) {
    params.object("_meta", |meta| {
        meta.key("io.modelcontextprotocol/subscriptionId").extend_from_slice(id.as_bytes());
    });
}

/// The first message of a subscription: the part of the filter that the server grants.
pub fn subscription_acknowledged(id: &RequestId, granted: &NotificationFilter) -> Vec<u8> {
    let mut out = Vec::with_capacity(200);
    write_notification(&mut out, "notifications/subscriptions/acknowledged", |params| {
        write_subscription_meta(params, id);
        params.object("notifications", |out| granted.write(out));
    });
    out
}

/// The response to `subscriptions/listen`: the subscription ended normally.
pub fn subscription_ended(id: &RequestId, server_info: &RenderedServerInfo) -> Vec<u8> {
    let mut out = Vec::with_capacity(200);
    begin_response(&mut out, id);
    let mut result = ObjectWriter::new(&mut out);
    result.str("resultType", "complete");
    result.object("_meta", |meta| {
        meta.raw("io.modelcontextprotocol/serverInfo", &server_info.implementation);
        meta.key("io.modelcontextprotocol/subscriptionId").extend_from_slice(id.as_bytes());
    });
    result.end();
    end_response(&mut out);
    out
}

/// The same as a notification, for a pipe: it has no stream whose end would show it.
pub fn subscription_cancelled(id: &RequestId) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    write_notification(&mut out, "notifications/cancelled", |params| {
        params.key("requestId").extend_from_slice(id.as_bytes());
        write_subscription_meta(params, id);
    });
    out
}

/// A task's new status, for one subscription of the stateless era.
pub fn task_notification(
    id: &RequestId,
    task: &TaskSnapshot,
    server_info: &RenderedServerInfo,
    version: Version,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(300);
    write_notification(&mut out, "notifications/tasks", |params| {
        tasks::write_task_members(params, version, server_info, task);
        write_subscription_meta(params, id);
    });
    out
}
