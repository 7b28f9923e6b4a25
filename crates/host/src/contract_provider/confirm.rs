//! Asking the user before something is written. What was asked is part of the question's key, and so is the state
//! that the record was in: whoever said yes to something else is asked again.

use contract::{Confirm, Tool};
use json::Json;
use spile_core::{
    Caller, ClientCapabilities, ElicitResult, InputRequest, InputRequests, InputResponse, Journal, Outcome,
    ToolError, ToolErrorCode,
};

use crate::seal::digest_parts;

/// What the user said to a question.
pub(super) enum Confirmation {
    Accepted,
    /// What the caller is told then.
    Declined(&'static str),
    /// Nothing yet, or nothing that is an answer.
    Unanswered,
}

/// Whether the user must be asked, and can be.
pub(super) fn requires_confirmation(tool: &Tool, dry_run: bool, caller: &Caller) -> Result<bool, ToolError> {
    match tool.confirm {
        Confirm::Never => Ok(false),
        // Who only tries is not held up: nothing is written.
        Confirm::Ask if dry_run => Ok(false),
        Confirm::Ask if caller.capabilities.has(ClientCapabilities::ELICITATION_FORM) => Ok(true),
        Confirm::Ask => Err(ToolError::new(
            ToolErrorCode::Forbidden,
            "the user must be asked before this is written, and this client shows no questions; use one that \
             does (elicitation), or try it with `dry_run`",
        )),
    }
}

/// The key of a question: the same question about the same state has the same.
pub(super) fn confirmation_key(tool: &Tool, state: &[u8], asked: &[u8]) -> String {
    let digest = digest_parts(&[b"confirm", tool.name.as_bytes(), state, asked]);
    let hex: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("confirm-{hex}")
}

/// An answer counts only if we asked: to a question that nobody put there is no yes.
pub(super) fn read_confirmation(journal: &Journal, key: &str) -> Confirmation {
    let answer = journal.response(key).filter(|_| journal.call_id.is_some());
    match answer.as_ref().and_then(InputResponse::elicit_result) {
        Some(ElicitResult::Accepted(content)) => {
            match content.and_then(|content| content.get("confirm")).and_then(|yes| yes.bool()) {
                Some(true) => Confirmation::Accepted,
                Some(false) => Confirmation::Declined(DECLINED_MESSAGE),
                // The form wants it, and a box that nobody ticks is left out by some clients. To ask again would give
                // the same.
                None => Confirmation::Declined(MISSING_CONFIRM_MESSAGE),
            }
        }
        Some(ElicitResult::Declined) => Confirmation::Declined(DECLINED_MESSAGE),
        Some(ElicitResult::Cancelled) => {
            Confirmation::Declined("the question was not answered; nothing was written")
        }
        None => Confirmation::Unanswered,
    }
}

pub(super) fn confirmation_request(key: String, message: String) -> Outcome {
    let schema = Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            properties.object("confirm", |confirm| {
                confirm.str("type", "boolean").str("title", "Yes, do it");
            });
        });
        schema.raw("required", r#"["confirm"]"#);
    });
    Outcome::InputRequired(InputRequests::single(key, InputRequest::Form { message, schema }))
}

const DECLINED_MESSAGE: &str = "the user said no; nothing was written";
const MISSING_CONFIRM_MESSAGE: &str = "the form came back without `confirm`; nothing was written";

pub(super) fn declined_outcome(why: &str) -> Outcome {
    ToolError::new(ToolErrorCode::InputRefused, why).into()
}
