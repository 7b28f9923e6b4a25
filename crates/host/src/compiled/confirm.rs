//! Asking the user before something is written. What was asked is part of the question's key, and so is the state
//! that the record was in: whoever said yes to something else is asked again.

use call::{Answer, Ask, Asks, Caller, Caps, Elicited, Failure, Journal, Outcome, Problem};
use contract::{Confirm, Tool};
use json::Json;

use crate::seal::digest_of;

/// What the user said to a question.
pub(super) enum Said {
    Yes,
    /// What the caller is told then.
    No(&'static str),
    /// Nothing yet, or nothing that is an answer.
    Nothing,
}

/// Whether the user must be asked, and can be.
pub(super) fn may_ask(tool: &Tool, dry_run: bool, caller: &Caller) -> Result<bool, Problem> {
    match tool.confirm {
        Confirm::Never => Ok(false),
        // Who only tries is not held up: nothing is written.
        Confirm::Ask if dry_run => Ok(false),
        Confirm::Ask if caller.caps.has(Caps::ELICIT_FORM) => Ok(true),
        Confirm::Ask => Err(Problem::new(
            Failure::Forbidden,
            "the user must be asked before this is written, and this client shows no questions; use one that \
             does (elicitation), or try it with `dry_run`",
        )),
    }
}

/// The key of a question: the same question about the same state has the same.
pub(super) fn key(tool: &Tool, state: &[u8], asked: &[u8]) -> String {
    let digest = digest_of(&[b"confirm", tool.name.as_bytes(), state, asked]);
    let hex: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("confirm-{hex}")
}

/// An answer counts only if we asked: to a question that nobody put there is no yes.
pub(super) fn said(journal: &Journal, key: &str) -> Said {
    let answer = journal.answer(key).filter(|_| journal.call.is_some());
    match answer.as_ref().and_then(Answer::elicited) {
        Some(Elicited::Accepted(content)) => {
            match content.and_then(|content| content.get("confirm")).and_then(|yes| yes.bool()) {
                Some(true) => Said::Yes,
                Some(false) => Said::No(DECLINED),
                // The form wants it, and a box that nobody ticks is left out by some clients. To ask again would give
                // the same.
                None => Said::No(UNSAID),
            }
        }
        Some(Elicited::Declined) => Said::No(DECLINED),
        Some(Elicited::Cancelled) => Said::No("the question was not answered; nothing was written"),
        None => Said::Nothing,
    }
}

pub(super) fn question(key: String, message: String) -> Outcome {
    let schema = Json::object(|schema| {
        schema.str("type", "object");
        schema.object("properties", |properties| {
            properties.object("confirm", |confirm| {
                confirm.str("type", "boolean").str("title", "Yes, do it");
            });
        });
        schema.raw("required", r#"["confirm"]"#);
    });
    Outcome::NeedInput(Asks::one(key, Ask::Form { message, schema }))
}

const DECLINED: &str = "the user said no; nothing was written";
const UNSAID: &str = "the form came back without `confirm`; nothing was written";

pub(super) fn declined(why: &str) -> Outcome {
    Problem::new(Failure::InputRefused, why).into()
}
