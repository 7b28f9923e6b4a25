//! One log line for each call, at `-v`. It has no argument values: those may be private. A call that asks, or that continues as
//! a task, has several lines with the same `id`, which the audit log has, too.

use host::{CallObserver, CallRecord, CallStatus, PolicyRecord};
use spile_core::text::hex;
use spile_core::{CallError, CallResult, CallTarget};

/// The log target of calls.
const TARGET: &str = "spile::call";

pub(super) struct CallLog;

impl CallObserver for CallLog {
    fn on_call_finished(&self, record: &CallRecord<'_>) {
        let method = match record.call.target {
            CallTarget::Tool => "tools/call",
            CallTarget::Prompt => "prompts/get",
            CallTarget::Resource => "resources/read",
            CallTarget::Completion { .. } => "completion/complete",
        };
        // A name that is not in the catalog comes from the caller and may be anything.
        let name = record.call.name();
        let name = crate::sanitize::truncate(&name, NAME_COLUMNS_MAX);
        let caller = record.identity.to_string();
        let request_bytes = record.call.arguments().map_or(0, |arguments| arguments.raw().len());
        let (status, error) = status(&record.status);
        let policy: Vec<&str> = record.policy.iter().map(|one| one.decision).collect();
        tracing::info!(
            target: TARGET,
            method,
            name = &*name,
            caller,
            status,
            error_code = error.as_ref().and_then(|error| error.code.as_deref()),
            field = error.as_ref().and_then(|error| error.field.as_deref()),
            "ref" = error.as_ref().and_then(|error| error.log_reference.as_deref()),
            // Empty for most calls, and left out then.
            reason = error.as_ref().and_then(|error| error.reason),
            policy = (!policy.is_empty()).then(|| policy.join(",")),
            policy_reason = policy_reason(record.policy),
            id = record.call_id.map(|id| hex(&id)),
            round = (record.round > 0).then_some(record.round),
            // A call of one tool by another.
            depth = (record.depth > 0).then_some(record.depth),
            duration_ms = record.duration_ms,
            request_bytes,
            response_bytes = record.response_bytes,
            "call"
        );
    }

    fn needs_call_id(&self) -> bool {
        true
    }
}

const NAME_COLUMNS_MAX: usize = 128;
const REASON_COLUMNS_MAX: usize = 300;

/// Why the policy did not let a call run as it was, or did not send its result: its own words, on one line.
fn policy_reason(policy: &[PolicyRecord]) -> Option<String> {
    let changes = policy.iter().filter(|record| record.decision != "allow");
    let reasons: Vec<&str> = changes.filter_map(|record| record.reason.as_deref()).collect();
    (!reasons.is_empty())
        .then(|| crate::sanitize::truncate(&reasons.join("; "), REASON_COLUMNS_MAX).into_owned())
}

/// What the log says of an error.
struct LoggedError {
    code: Option<String>,
    /// The argument at fault.
    field: Option<String>,
    /// The result carries the same reference.
    log_reference: Option<String>,
    /// A fixed text without values of the caller.
    reason: Option<&'static str>,
}

/// How the call ended, and the tool error if it is one.
fn status(status: &CallStatus<'_>) -> (&'static str, Option<LoggedError>) {
    match status {
        CallStatus::Result(CallResult::Tool(reply)) if reply.is_error => {
            let structured = reply.structured.as_ref().map(json::Json::to_doc);
            let member = |name: &str| {
                let value = structured.as_ref()?.root().get(name)?.str()?;
                Some(value.into_owned())
            };
            let error = LoggedError {
                code: member("code"),
                field: member("field"),
                log_reference: member("ref"),
                reason: None,
            };
            ("tool_error", Some(error))
        }
        CallStatus::Result(_) => ("ok", None),
        CallStatus::InputRequired => ("input_required", None),
        CallStatus::Task => ("task", None),
        CallStatus::Error(error) => {
            let reason = match error {
                CallError::InvalidRequestState(reason) => Some(*reason),
                _ => None,
            };
            let code = Some(error.kind().to_owned());
            ("error", Some(LoggedError { code, field: None, log_reference: None, reason }))
        }
        CallStatus::Cancelled => ("cancelled", None),
    }
}

#[cfg(test)]
mod tests {
    use host::PolicyRecord;

    use super::policy_reason;

    #[test]
    fn reasons_are_logged_where_the_policy_changed_something() {
        let allowed = PolicyRecord::new("allow").because("a rule allows it");
        let silent = PolicyRecord::new(PolicyRecord::REPLACED_RESULT);
        assert_eq!(policy_reason(&[allowed.clone(), silent]), None);
        let rewritten = PolicyRecord::new("replace_arguments").because("no names");
        let replaced = PolicyRecord::new(PolicyRecord::REPLACED_RESULT).because("a hook replaced the result");
        let reason = policy_reason(&[allowed, rewritten, replaced]);
        assert_eq!(reason.as_deref(), Some("no names; a hook replaced the result"));
        let long = PolicyRecord::new("refuse").because(&"x".repeat(10_000));
        assert!(policy_reason(&[long]).is_some_and(|reason| reason.len() < 400));
    }
}
