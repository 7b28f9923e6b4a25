//! Calls of one tool by another: the same pipeline, with the caller's identity, policy and limits.

use std::pin::Pin;
use std::sync::Arc;

use json::Json;
use spile_core::{
    Call, CallContext, CallError, CallFuture, Caller, EventSink, Journal, Outcome, ToolCaller, ToolError,
    ToolErrorCode,
};
use wire::{Peer, Version};

use crate::connection_state::ReplyChannel;
use crate::observer::{CallObservation, ReportOnDrop};
use crate::pipeline::{CallJob, CallResponse, CallStage, execute_call};
use crate::server::{CallerIdentity, Server};

/// Tools that call tools that call tools: enough for every honest use, and a bound for loops.
const DEPTH_MAX: u8 = 8;

/// What a running call needs to call other tools.
pub(crate) struct NestedCalls<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) job: &'a CallJob,
}

impl NestedCalls<'_> {
    fn to_shared(&self) -> SharedNestedCalls {
        let depth = match &self.job.stage {
            CallStage::Request | CallStage::Task(_) => 1,
            CallStage::Nested { depth, .. } => depth.saturating_add(1),
        };
        SharedNestedCalls {
            server: self.server.clone(),
            peer: self.job.peer,
            caller: self.job.caller.clone(),
            identity: self.job.identity.clone(),
            reply_channel: self.job.reply_channel.clone(),
            events: self.job.events.clone(),
            depth,
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
            stage: CallStage::Nested { depth: 1, is_decided: true },
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
            stage: CallStage::Nested { depth, is_decided: false },
            observation: observation.clone(),
        };
        let record = ReportOnDrop { server: server.clone(), observation };
        Box::pin(async move {
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
}
