//! Calls of one tool by another: the same pipeline, with the caller's identity, policy and limits.

use std::sync::Arc;

use json::Json;
use spile_core::{
    Call, CallError, CallFuture, Caller, EventSink, Journal, Outcome, ToolCaller, ToolError, ToolErrorCode,
};
use wire::Peer;

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
            CallStage::Nested { depth } => depth.saturating_add(1),
        };
        SharedNestedCalls {
            server: self.server.clone(),
            peer: self.job.peer,
            caller: self.job.caller.clone(),
            identity: self.job.identity.clone(),
            reply_channel: self.job.reply_channel.clone(),
            depth,
        }
    }
}

impl ToolCaller for NestedCalls<'_> {
    fn call_tool(&self, name: &str, arguments: Json, journal: Journal) -> CallFuture {
        self.to_shared().call_tool(name, arguments, journal)
    }

    fn shared(&self) -> Arc<dyn ToolCaller> {
        Arc::new(self.to_shared())
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
    /// The depth of the calls that are made here.
    depth: u8,
}

impl ToolCaller for SharedNestedCalls {
    fn call_tool(&self, name: &str, arguments: Json, journal: Journal) -> CallFuture {
        let depth = self.depth;
        if depth > DEPTH_MAX {
            let message = format!("`{name}`: tools call each other more than {DEPTH_MAX} levels deep");
            let error = ToolError::new(ToolErrorCode::Forbidden, message);
            return Box::pin(std::future::ready(error.into()));
        }
        let call = Call::tool(name, &arguments);
        let server = self.server.clone();
        let observation = CallObservation::new(&server, &call, &self.identity, journal.round, depth);
        let job = CallJob {
            call,
            replaced_call: None,
            peer: self.peer,
            caller: self.caller.clone(),
            identity: self.identity.clone(),
            reply_channel: self.reply_channel.clone(),
            // Progress of the outer call must increase; a nested call would interfere with it.
            events: EventSink::disabled(),
            journal,
            checks: None,
            task_metadata: None,
            stage: CallStage::Nested { depth },
            observation: observation.clone(),
        };
        let record = ReportOnDrop { server: server.clone(), observation };
        Box::pin(async move {
            let registry = server.registry();
            // Boxed: the future of a call would contain itself.
            let future: std::pin::Pin<Box<dyn Future<Output = Result<CallResponse, CallError>> + Send>> =
                Box::pin(execute_call(server.clone(), registry, job, None));
            let response = future.await.unwrap_or_else(CallResponse::Error);
            record.report(&response);
            match response {
                CallResponse::Result(result) => Outcome::Done(result),
                CallResponse::InputRequired { requests, .. } => Outcome::InputRequired(requests),
                CallResponse::Error(error) => Outcome::Failed(error),
                CallResponse::Task(_) | CallResponse::TaskAnswer(_) => {
                    Outcome::Failed(CallError::Internal { detail: "a nested call became a task".into() })
                }
            }
        })
    }

    fn shared(&self) -> Arc<dyn ToolCaller> {
        Arc::new(self.clone())
    }
}
