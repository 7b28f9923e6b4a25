//! What is said outside of answers: progress, log messages, changes.

use call::{Change, Event};
use json::write::{self, Object};

use super::tasks::{self, TaskView};
use super::{ReplyTo, Stamp, begin, end, notification};
use crate::id::Id;
use crate::params::Filter;
use crate::version::{Feature, Version};

/// An event of a running call as a message; `None` where it is nothing to send.
pub fn event(event: &Event, to: &ReplyTo) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(160);
    match event {
        Event::Progress { progress, total, message } => {
            let token = to.progress.as_ref()?;
            notification(&mut out, "notifications/progress", |params| {
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
        Event::Log { level, logger, data } => {
            notification(&mut out, "notifications/message", |params| {
                params.str("level", level.as_str());
                params.maybe_str("logger", logger.as_deref());
                params.raw("data", data.as_str());
            });
        }
        Event::Ask { id, ask, task } => {
            super::server_request(&mut out, *id, ask, task.as_deref(), to.version);
        }
        Event::Withdraw { id } => {
            notification(&mut out, "notifications/cancelled", |params| {
                params.int("requestId", (*id).min(i64::MAX as u64) as i64);
                params.str("reason", "an answer is no longer needed");
            });
        }
        Event::Pause { .. } => return None,
    }
    Some(out)
}

/// A change, for a client of the handshake era (`None`) or for one subscription of the newest.
pub fn change(change: &Change, subscription: Option<&Id>) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    let (method, uri) = match change {
        Change::Tools => ("notifications/tools/list_changed", None),
        Change::Prompts => ("notifications/prompts/list_changed", None),
        Change::Resources => ("notifications/resources/list_changed", None),
        Change::Resource(uri) => ("notifications/resources/updated", Some(uri)),
    };
    if uri.is_none() && subscription.is_none() {
        let mut message = Object::new(&mut out);
        message.str("jsonrpc", "2.0").str("method", method);
        message.end();
        return out;
    }
    notification(&mut out, method, |params| {
        params.maybe_str("uri", uri.map(|uri| &**uri));
        if let Some(id) = subscription {
            subscription_meta(params, id);
        }
    });
    out
}

fn subscription_meta(params: &mut Object<'_>, id: &Id) {
    params.object("_meta", |meta| {
        meta.key("io.modelcontextprotocol/subscriptionId").extend_from_slice(id.as_bytes());
    });
}

/// The first message of a subscription: what of the wish is granted.
pub fn acknowledged(id: &Id, granted: &Filter) -> Vec<u8> {
    let mut out = Vec::with_capacity(200);
    notification(&mut out, "notifications/subscriptions/acknowledged", |params| {
        subscription_meta(params, id);
        params.object("notifications", |out| granted.write(out));
    });
    out
}

/// The answer to `subscriptions/listen`: it ends in good order.
pub fn listening_ended(id: &Id, stamp: &Stamp) -> Vec<u8> {
    let mut out = Vec::with_capacity(200);
    begin(&mut out, id);
    let mut result = Object::new(&mut out);
    result.str("resultType", "complete");
    result.object("_meta", |meta| {
        meta.raw("io.modelcontextprotocol/serverInfo", &stamp.info);
        meta.key("io.modelcontextprotocol/subscriptionId").extend_from_slice(id.as_bytes());
    });
    result.end();
    end(&mut out);
    out
}

/// The same, as a notification: on a pipe there is no stream whose end would say it.
pub fn listening_cancelled(id: &Id) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    notification(&mut out, "notifications/cancelled", |params| {
        params.key("requestId").extend_from_slice(id.as_bytes());
        subscription_meta(params, id);
    });
    out
}

/// A task's new state, for one subscription of the newest era.
pub fn task_changed(id: &Id, task: &TaskView, stamp: &Stamp, version: Version) -> Vec<u8> {
    let mut out = Vec::with_capacity(300);
    notification(&mut out, "notifications/tasks", |params| {
        tasks::members(params, version, stamp, task);
        subscription_meta(params, id);
    });
    out
}
