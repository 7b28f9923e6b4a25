//! Calls of one tool by another: the same pipeline, with the caller's identity, policy and limits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use json::Json;
use spile_core::{
    Call, CallContext, CallError, CallFuture, Caller, EventSink, Journal, Outcome, ToolCaller, ToolError,
    ToolErrorCode,
};
use tokio::sync::Semaphore;
use wire::{Peer, Version};

use crate::connection_state::ReplyChannel;
use crate::observer::{CallObservation, ReportOnDrop};
use crate::pipeline::{CallJob, CallResponse, CallStage, execute_call};
use crate::server::{CallerIdentity, Server};

/// Tools that call tools that call tools: enough for every honest use, and a bound for loops.
const DEPTH_MAX: u8 = 8;
/// All calls below one call of a client, at any depth.
const CALLS_PER_ROOT_MAX: u32 = 1000;

/// Calls that one call makes at the same time; more of them wait for their turn. Fewer at each level, so that a call of
/// a client cannot multiply without end. A called tool never waits for one beside it, so this cannot lock up.
fn calls_at_once_max(depth: u8) -> usize {
    match depth {
        0 | 1 => 16,
        2 => 4,
        _ => 1,
    }
}

/// What a running call needs to call other tools.
pub(crate) struct NestedCalls<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) job: &'a CallJob,
}

impl NestedCalls<'_> {
    fn to_shared(&self) -> SharedNestedCalls {
        let (depth, calls_below_root) = match &self.job.stage {
            CallStage::Request | CallStage::Task(_) => (1, Arc::default()),
            CallStage::Nested { depth, calls_below_root, .. } => {
                (depth.saturating_add(1), calls_below_root.clone())
            }
        };
        SharedNestedCalls {
            server: self.server.clone(),
            peer: self.job.peer,
            caller: self.job.caller.clone(),
            identity: self.job.identity.clone(),
            reply_channel: self.job.reply_channel.clone(),
            events: self.job.events.clone(),
            depth,
            calls_below_root,
            places: Arc::new(Semaphore::new(calls_at_once_max(depth))),
        }
    }
}

impl ToolCaller for NestedCalls<'_> {
    fn call_tool(&self, name: &str, arguments: Json, journal: Journal) -> CallFuture {
        self.to_shared().call_tool(name, arguments, journal)
    }

    fn pass_on(&self, name: &str, arguments: Json, journal: Journal) -> CallFuture {
        self.to_shared().pass_on(name, arguments, journal)
    }

    fn read_resource(&self, uri: &str, journal: Journal) -> CallFuture {
        self.to_shared().read_resource(uri, journal)
    }

    fn shared(&self) -> Arc<dyn ToolCaller> {
        Arc::new(self.to_shared())
    }

    fn is_nested(&self) -> bool {
        matches!(self.job.stage, CallStage::Nested { is_decided: false, .. })
    }
}

impl Server {
    /// Runs a call that another server of this process got: with its caller, journal and events. Input that it needs is the
    /// other server's to ask for.
    pub(crate) fn call_for(self: &Arc<Self>, call: Call, cx: &CallContext<'_>) -> CallFuture {
        let job = CallJob {
            call,
            replaced_call: None,
            peer: Peer::negotiated(Version::NEWEST, cx.caller.capabilities),
            caller: cx.caller.clone(),
            identity: CallerIdentity {
                principal: cx.caller.principal.clone(),
                address: cx.address,
                request_head: cx.request_head.cloned().map(Arc::new),
            },
            reply_channel: ReplyChannel::NoSession,
            events: cx.events.clone(),
            journal: cx.journal.clone(),
            checks: None,
            task_metadata: None,
            stage: CallStage::Nested { depth: 1, is_decided: true, calls_below_root: Arc::default() },
            // The other server reports it.
            observation: None,
        };
        let server = self.clone();
        Box::pin(async move { to_outcome(execute(&server, job).await) })
    }
}

/// Boxed: the future of a call would contain itself.
fn execute(server: &Arc<Server>, job: CallJob) -> Pin<Box<dyn Future<Output = CallResponse> + Send>> {
    let (server, registry) = (server.clone(), server.registry_of(&job.caller.principal));
    Box::pin(
        async move { execute_call(server, registry, job, None).await.unwrap_or_else(CallResponse::Error) },
    )
}

fn to_outcome(response: CallResponse) -> Outcome {
    match response {
        CallResponse::Result(result) => Outcome::Done(result),
        CallResponse::InputRequired { requests, .. } => Outcome::InputRequired(requests),
        CallResponse::Error(error) => Outcome::Failed(error),
        CallResponse::Task(_) | CallResponse::TaskAnswer(_) => {
            Outcome::Failed(CallError::Internal { detail: "a nested call became a task".into() })
        }
    }
}

/// The same without the borrow of the running call.
#[derive(Clone)]
struct SharedNestedCalls {
    server: Arc<Server>,
    peer: Peer,
    caller: Caller,
    identity: CallerIdentity,
    reply_channel: ReplyChannel,
    /// Of the call that makes these calls.
    events: EventSink,
    /// The depth of the calls that are made here.
    depth: u8,
    calls_below_root: Arc<AtomicU32>,
    places: Arc<Semaphore>,
}

impl SharedNestedCalls {
    fn run(&self, call: Call, journal: Journal, events: EventSink) -> CallFuture {
        let (server, depth) = (self.server.clone(), self.depth);
        if depth > DEPTH_MAX {
            let name = call.name();
            let message = format!("`{name}`: tools call each other more than {DEPTH_MAX} levels deep");
            let error = ToolError::new(ToolErrorCode::Forbidden, message);
            return Box::pin(std::future::ready(error.into()));
        }
        if self.calls_below_root.fetch_add(1, Ordering::Relaxed) >= CALLS_PER_ROOT_MAX {
            let message = format!(
                "`{}`: one call may make {CALLS_PER_ROOT_MAX} calls of other tools, those of called tools included",
                call.name()
            );
            let error = ToolError { retryable: false, ..ToolError::new(ToolErrorCode::TooLarge, message) };
            return Box::pin(std::future::ready(error.into()));
        }
        let observation =
            CallObservation::new(&server, &call, &self.identity, &self.reply_channel, &journal, depth);
        let job = CallJob {
            call,
            replaced_call: None,
            peer: self.peer,
            caller: self.caller.clone(),
            identity: self.identity.clone(),
            reply_channel: self.reply_channel.clone(),
            events,
            journal,
            checks: None,
            task_metadata: None,
            stage: CallStage::Nested {
                depth,
                is_decided: false,
                calls_below_root: self.calls_below_root.clone(),
            },
            observation: observation.clone(),
        };
        let record = ReportOnDrop { server: server.clone(), observation };
        let places = self.places.clone();
        Box::pin(async move {
            // It is never closed; without a place the call would only run at once.
            let _place = places.acquire_owned().await.ok();
            let response = execute(&server, job).await;
            record.report(&response);
            to_outcome(response)
        })
    }
}

impl ToolCaller for SharedNestedCalls {
    fn call_tool(&self, name: &str, arguments: Json, journal: Journal) -> CallFuture {
        // Progress of the outer call must increase; a nested call would interfere with it.
        self.run(Call::tool(name, &arguments), journal, EventSink::disabled())
    }

    fn pass_on(&self, name: &str, arguments: Json, journal: Journal) -> CallFuture {
        self.run(Call::tool(name, &arguments), journal, self.events.clone())
    }

    fn read_resource(&self, uri: &str, journal: Journal) -> CallFuture {
        self.run(Call::resource(uri), journal, EventSink::disabled())
    }

    fn shared(&self) -> Arc<dyn ToolCaller> {
        Arc::new(self.clone())
    }

    fn is_nested(&self) -> bool {
        self.depth > 1
    }
}
