//! Asks the user to confirm a write. The key of the question covers the arguments and the record's state, so a user
//! who agreed to something else is asked again.

use contract::{Confirm, Tool};
use json::Json;
use spile_core::text::hex;
use spile_core::{
    Caller, ClientCapabilities, ElicitResult, InputRequest, InputRequests, InputResponse, Journal, Outcome,
    ToolError, ToolErrorCode,
};

use super::write::NotWritten;
use state::keyring::digest_parts;

/// The user's answer to a confirmation.
enum Confirmation {
    Accepted,
    /// With the message for the caller.
    Declined(&'static str),
    /// No answer yet, or an invalid one.
    Unanswered,
}

/// Whether the user must confirm; an error if the client cannot ask.
pub(super) fn requires_confirmation(tool: &Tool, dry_run: bool, caller: &Caller) -> Result<bool, ToolError> {
    match tool.confirm {
        Confirm::Never => Ok(false),
        // A dry run writes nothing.
        Confirm::Ask if dry_run => Ok(false),
        Confirm::Ask if caller.capabilities.has(ClientCapabilities::ELICITATION_FORM) => Ok(true),
        Confirm::Ask => Err(ToolError::new(
            ToolErrorCode::Forbidden,
            "this write needs the user's confirmation, and the client does not support elicitation; use a client \
             that does, or preview the change with `dry_run`",
        )),
    }
}

/// The key of a confirmation: equal for the same request about the same state.
pub(super) fn confirmation_key(tool: &Tool, state: &[u8], request_digest: &[u8]) -> String {
    let digest = digest_parts(&[b"confirm", tool.name.as_bytes(), state, request_digest]);
    format!("confirm-{}", hex(&digest[..12]))
}

/// Checks that the user agreed to the write with this key; otherwise the user declined, or must be asked.
pub(super) fn check_confirmed(
    journal: &Journal,
    key: String,
    question: impl FnOnce() -> String,
) -> Result<(), NotWritten> {
    match read_confirmation(journal, &key) {
        Confirmation::Accepted => Ok(()),
        Confirmation::Declined(reason) => Err(NotWritten::Declined(reason)),
        Confirmation::Unanswered => Err(NotWritten::ConfirmationRequired { key, question: question() }),
    }
}

/// Reads the user's answer. It counts only in a call that this server has asked about: a client cannot volunteer it.
fn read_confirmation(journal: &Journal, key: &str) -> Confirmation {
    let response = journal.response(key).filter(|_| journal.round > 0);
    match response.as_ref().and_then(InputResponse::elicit_result) {
        Some(ElicitResult::Accepted(content)) => {
            match content.and_then(|content| content.get("confirm")).and_then(|value| value.bool()) {
                Some(true) => Confirmation::Accepted,
                Some(false) => Confirmation::Declined(DECLINED_MESSAGE),
                // Some clients leave out a box that is not ticked.
                None => Confirmation::Declined(MISSING_CONFIRM_MESSAGE),
            }
        }
        Some(ElicitResult::Declined) => Confirmation::Declined(DECLINED_MESSAGE),
        Some(ElicitResult::Cancelled) => Confirmation::Declined(
            "the user did not answer, or the client could not ask (it cancelled the elicitation); nothing was written",
        ),
        None => Confirmation::Unanswered,
    }
}

pub(super) fn confirmation_request(key: String, message: String) -> Outcome {
    // The first line is the question; the others describe the change.
    let question = message.lines().next().unwrap_or_default();
    let schema = Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            properties.object("confirm", |confirm| {
                // Not required: a box that is not ticked, or left out, is a final no and not an invalid answer.
                confirm.str("type", "boolean").str("title", question).bool("default", false);
            });
        });
    });
    Outcome::InputRequired(InputRequests::single(key, InputRequest::Form { message, schema }).as_consent())
}

const DECLINED_MESSAGE: &str = "the user declined; nothing was written";
const MISSING_CONFIRM_MESSAGE: &str = "the answer has no `confirm`; nothing was written";

pub(super) fn declined_outcome(reason: &str) -> Outcome {
    ToolError::new(ToolErrorCode::InputRefused, reason).into()
}
