//! The whole table of decisions: mode × annotations × rule × who can be asked.

use permissions::modes::{Effect, HookAdvice, Mode, Verdict, WhoCanBeAsked, decide};
use permissions::rules::{RuleKind, RuleMatch};
use spile_core::ToolAnnotations;

const RULES: [(&str, Option<RuleMatch<'static>>); 5] = [
    ("none", None),
    ("allow mcp__s__*", Some(RuleMatch { kind: RuleKind::Allow, text: "mcp__s__*", is_exact: false })),
    ("allow mcp__s__t", Some(RuleMatch { kind: RuleKind::Allow, text: "mcp__s__t", is_exact: true })),
    ("ask", Some(RuleMatch { kind: RuleKind::Ask, text: "mcp__s__t", is_exact: true })),
    ("deny", Some(RuleMatch { kind: RuleKind::Deny, text: "mcp__s__t", is_exact: true })),
];

const WHO: [(&str, WhoCanBeAsked); 3] = [
    ("the caller", WhoCanBeAsked::Caller),
    ("an approver", WhoCanBeAsked::Approver),
    ("nobody", WhoCanBeAsked::Nobody),
];

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "run",
        Verdict::AskCaller => "ask the caller",
        Verdict::AskApprover => "ask the approver",
        Verdict::Refuse => "refuse",
    }
}

/// Every row, one line each: what happens and the reason that is given.
fn table(hook: HookAdvice) -> String {
    let mut table = String::new();
    for mode in Mode::ALL {
        for effect in Effect::ALL {
            for (rule_name, rule) in RULES {
                table.push_str(&format!(
                    "{} | tool {} | rule: {rule_name}\n",
                    mode.as_str(),
                    effect.describe()
                ));
                let rows = WHO.map(|(name, who)| {
                    let decision = decide(mode, effect, rule, hook, who);
                    (name, format!("{}: {}", word(decision.verdict), decision.reason("mcp__s__t")))
                });
                if rows.iter().all(|(_, decision)| *decision == rows[0].1) {
                    table.push_str(&format!("    whoever can be asked: {}\n", rows[0].1));
                } else {
                    rows.iter().for_each(|(name, row)| table.push_str(&format!("    {name}: {row}\n")));
                }
            }
        }
    }
    table
}

#[test]
fn the_table_of_decisions() {
    insta::assert_snapshot!(table(HookAdvice::None));
}

#[test]
fn the_table_of_decisions_where_a_hook_allows() {
    insta::assert_snapshot!(table(HookAdvice::Allow));
}

#[test]
fn the_promises_of_the_modes_hold_in_every_row() {
    for mode in Mode::ALL {
        for effect in Effect::ALL {
            for (rule_name, rule) in RULES {
                for hook in [HookAdvice::None, HookAdvice::Allow, HookAdvice::Ask] {
                    for (_, who) in WHO {
                        let verdict = decide(mode, effect, rule, hook, who).verdict;
                        let row = format!("{mode:?} {effect:?} {rule_name} {hook:?} {who:?}");
                        let is_allow = verdict == Verdict::Allow;
                        if rule_name == "deny" {
                            assert_eq!(verdict, Verdict::Refuse, "{row}");
                        }
                        let skips_rules = mode == Mode::Bypass && effect != Effect::Destructive;
                        if rule_name == "ask" && !skips_rules || hook == HookAdvice::Ask {
                            assert!(!is_allow, "{row}");
                        }
                        if effect == Effect::Destructive && rule_name != "allow mcp__s__t" {
                            assert!(!is_allow, "{row}");
                        }
                        if mode == Mode::DontAsk {
                            assert!(matches!(verdict, Verdict::Allow | Verdict::Refuse), "{row}");
                        }
                        if mode == Mode::ReadOnly && matches!(effect, Effect::Writes | Effect::Destructive) {
                            assert_eq!(verdict, Verdict::Refuse, "{row}");
                        }
                        if who == WhoCanBeAsked::Nobody {
                            assert!(matches!(verdict, Verdict::Allow | Verdict::Refuse), "{row}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn annotations_are_read_without_mcps_defaults() {
    for (read_only, destructive, expected) in [
        (None, None, Effect::Unannotated),
        (Some(true), None, Effect::ReadOnly),
        (Some(true), Some(false), Effect::ReadOnly),
        (Some(true), Some(true), Effect::Destructive),
        (Some(false), None, Effect::Writes),
        (Some(false), Some(false), Effect::Writes),
        (Some(false), Some(true), Effect::Destructive),
        (None, Some(false), Effect::Writes),
        (None, Some(true), Effect::Destructive),
    ] {
        let annotations = ToolAnnotations { read_only, destructive, ..ToolAnnotations::default() };
        assert_eq!(Effect::of(&annotations), expected, "{annotations:?}");
    }
}

#[test]
fn modes_have_our_names_and_claude_codes() {
    for mode in Mode::ALL {
        assert_eq!(Mode::parse(mode.as_str()), Some(mode));
        assert_eq!(Mode::parse(mode.for_hooks()), Some(mode));
    }
    for unknown in ["", "acceptEdits", "auto", "Default", "yolo"] {
        assert_eq!(Mode::parse(unknown), None);
    }
}
