//! The order of requests: servers handle requests side by side, and over HTTP a request may overtake another.

use json::Json;

use super::CallId;
use super::state_machine::{CallPurpose, Client, PendingCall};
use super::types::ClientCall;
use crate::method::Method;
use crate::version::Feature;

impl Client {
    /// Sends the log level; in the handshake era that is a request.
    pub(super) fn send_level(&mut self) {
        if let Some(level) = self.log_level
            && self.version.has(Feature::SetLevel)
            && self.server_supports("logging")
        {
            let params = Json::object(|params| {
                params.str("level", level.as_str());
            });
            self.start_call(ClientCall::new(Method::SetLevel, params), CallPurpose::SetLevel);
        }
    }

    /// Whether the server must answer another request before this one may be sent.
    pub(super) fn must_wait(&self, call_id: CallId) -> bool {
        let Some(PendingCall { call, purpose, .. }) = self.pending_calls.get(&call_id) else { return false };
        if !self.version.has(Feature::Handshake) {
            return false;
        }
        // What was asked in an earlier session does not count.
        let of_session = |pending: &&PendingCall| pending.session_epoch == self.session_epoch;
        let mut others = self.pending_calls.values().filter(of_session).map(|pending| &pending.purpose);
        match purpose {
            CallPurpose::Single if may_log(call.method) => {
                others.any(|other| matches!(other, CallPurpose::SetLevel))
            }
            CallPurpose::Subscribe { uri, .. } => {
                others.any(|other| matches!(other, CallPurpose::Unsubscribe { uri: ended } if ended == uri))
            }
            CallPurpose::Single
            | CallPurpose::List(..)
            | CallPurpose::Listen
            | CallPurpose::RefreshTools { .. }
            | CallPurpose::Unsubscribe { .. }
            | CallPurpose::SetLevel => false,
        }
    }
}

/// Whether a server runs code of its author for this request.
fn may_log(method: Method) -> bool {
    matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead | Method::Complete)
}
