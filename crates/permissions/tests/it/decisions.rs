//! The whole table of decisions again, with real calls: what each row does, and what the audit log says about it.

use std::sync::Arc;

use permissions::modes::{Effect, HookAdvice, Mode, Verdict, WhoCanBeAsked, decide};
use permissions::rules::{RuleKind, RuleMatch};
use permissions::{Approval, Approver};

use crate::harness::{ALLOW, Audited, Client};
use crate::policy::TestApprover;

const EFFECTS: [(Effect, &str); 4] = [
    (Effect::ReadOnly, "mcp__s__read"),
    (Effect::Unannotated, "mcp__s__plain"),
    (Effect::Writes, "mcp__s__write"),
    (Effect::Destructive, "mcp__s__delete"),
];

/// The rule for a tool: its list, and its text.
const RULES: [Option<(RuleKind, &str)>; 5] = [
    None,
    Some((RuleKind::Allow, "mcp__s__*")),
    Some((RuleKind::Allow, "TOOL")),
    Some((RuleKind::Ask, "TOOL")),
    // With an argument: otherwise the tool does not exist for the caller.
    Some((RuleKind::Deny, "TOOL(who:ada)")),
];

const WHO: [WhoCanBeAsked; 3] = [WhoCanBeAsked::Caller, WhoCanBeAsked::Approver, WhoCanBeAsked::Nobody];

/// The lines of the audit log that a decision leads to.
fn expected(verdict: Verdict, reason: &str) -> Vec<String> {
    match verdict {
        Verdict::Allow => vec![format!("ok | allow | {reason}")],
        Verdict::Refuse => vec![format!("refused | forbidden | refuse | {reason}")],
        Verdict::AskCaller => {
            vec![format!("asked | ask | {reason}"), format!("ok | allow | the user allowed it; {reason}")]
        }
        Verdict::AskApprover => vec![format!("ok | allow | approved by grace; {reason}")],
    }
}

#[tokio::test]
async fn every_row_does_what_the_table_says_and_is_recorded() {
    let mut rows = 0;
    for mode in Mode::ALL {
        for rule in RULES {
            for (effect, tool) in EFFECTS {
                for who in WHO {
                    let text = rule.map(|(_, text)| text.replace("TOOL", tool));
                    let rules = match (rule, &text) {
                        (Some((kind, _)), Some(text)) => format!(r#", "{}": ["{text}"]"#, kind.as_str()),
                        _ => String::new(),
                    };
                    let settings = format!(r#"{{"permissions": {{"mode": "{}"{rules}}}}}"#, mode.as_str());
                    let approver = (who == WhoCanBeAsked::Approver).then(|| {
                        TestApprover::new(Some(Approval::Allowed { by: Some("grace".into()) }))
                            as Arc<dyn Approver>
                    });
                    let audited = Audited::new(&settings, approver);
                    let client = match who {
                        WhoCanBeAsked::Caller => Client::Answers(&[ALLOW]),
                        WhoCanBeAsked::Approver | WhoCanBeAsked::Nobody => Client::CannotBeAsked,
                    };
                    let transcript = audited.gateway.call(tool, r#"{"who":"ada"}"#, client).await;
                    let matched = rule.zip(text.as_deref()).map(|((kind, _), text)| {
                        let is_exact = !text.contains('*');
                        RuleMatch { kind, text, is_exact }
                    });
                    let decision = decide(mode, effect, matched, HookAdvice::None, who);
                    let row = format!("{settings} {effect:?} {who:?}");
                    assert_eq!(audited.lines(), expected(decision.verdict, &decision.reason(tool)), "{row}");
                    let runs = transcript.lines().filter(|line| line.starts_with("runs mcp__")).count();
                    assert_eq!(runs, usize::from(decision.verdict != Verdict::Refuse), "{row}: {transcript}");
                    rows += 1;
                }
            }
        }
    }
    assert_eq!(rows, 300);
}

#[tokio::test]
async fn a_denied_tool_is_recorded_as_hidden() {
    let audited = Audited::new(r#"{"permissions": {"deny": ["mcp__s__delete"]}}"#, None);
    audited.gateway.call("mcp__s__delete", "{}", Client::Answers(&[ALLOW])).await;
    let lines = audited.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("hide"), "{lines:?}");
}
