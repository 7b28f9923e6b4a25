//! Which calls a rule matches, and which rules are not accepted.

use json::Json;
use permissions::names::{Origin, ToolNames};
use permissions::rules::{RULE_BYTES_MAX, RuleKind, Rules};
use spile_core::ItemKind;

fn origin(server: &str, name: &str) -> Option<Origin> {
    Some(Origin { server: server.to_owned(), name: name.to_owned() })
}

fn rules(kind: RuleKind, text: &str) -> Rules {
    let mut rules = Rules::default();
    rules.add(kind, text).unwrap_or_else(|error| panic!("{text}: {}", error.message));
    rules
}

/// Whether a restricting rule matches the tool `name` of `server`, which is listed as `listed`.
#[track_caller]
fn check(rule: &str, server: &str, name: &str, listed: &str, expected: bool) {
    for kind in [RuleKind::Deny, RuleKind::Ask] {
        let rules = rules(kind, rule);
        let found = rules.first_match(&ToolNames::new(listed, origin(server, name)), None);
        assert_eq!(found.is_some(), expected, "{kind:?} {rule} on {listed}");
    }
}

#[test]
fn a_rule_names_a_server_a_tool_or_a_pattern() {
    for (rule, expected) in [
        ("mcp__github", true),
        ("mcp__github__*", true),
        ("mcp__github__get_*", true),
        ("mcp__github__get_issue", true),
        ("mcp__*", true),
        ("*", true),
        ("*_issue", true),
        ("mcp__git*__get*", true),
        ("mcp__git", false),
        ("mcp__github_enterprise", false),
        ("mcp__github__get", false),
        ("mcp__github__create_*", false),
        ("mcp__gitlab__*", false),
        ("get_issue", false),
        ("MCP__github", false),
    ] {
        check(rule, "github", "get_issue", "mcp__github__get_issue", expected);
    }
    // The pattern of one server never reaches into another.
    check("mcp__github__*", "github_enterprise", "x", "mcp__github_enterprise__x", false);
}

#[test]
fn public_names_and_claude_codes_names_both_match() {
    for rule in [
        "mcp__my_server__get_issue",
        "mcp__my-server__get-issue",
        "mcp__my-server",
        "mcp__my_server",
        "mcp__my-server__get-*",
    ] {
        check(rule, "my-server", "get-issue", "mcp__my_server__get_issue", true);
        // In the catalog of this one server it has its own name.
        check(rule, "my-server", "get-issue", "get-issue", true);
    }
    check(
        "mcp__claude_ai_Gmail__send-mail",
        "claude.ai Gmail",
        "send-mail",
        "mcp__claude_ai_Gmail__send_mail",
        true,
    );
    let long = "a-very-long-server-name-that-goes-on";
    check(&format!("mcp__{long}"), long, "x", "mcp__a_very_long_server_name_4abbca31__x", true);
}

#[test]
fn a_rule_that_allows_reaches_no_other_server() {
    let listed = |server: &str, name: &str| servers::names::public_names(server, [name])[name].clone();
    for (rule, server, name, is_own_address, expected) in [
        // In Claude Code the tool `x` of `github__evil` and the tool `evil__x` of `github` have one name.
        ("mcp__github__*", "github__evil", "x", false, false),
        ("mcp__github__evil__x", "github__evil", "x", false, false),
        ("mcp__github__evil__x", "github__evil", "x", true, false),
        ("mcp__github__evil__x", "github", "evil__x", false, true),
        ("mcp__github__evil__x", "github", "evil__x", true, true),
        ("mcp__github__*", "github_", "x", false, false),
        // `_a` and `.a` are both `_a`.
        ("mcp___a__x", "_a", "x", false, true),
        ("mcp___a__x", ".a", "x", false, false),
        ("mcp___a__x", ".a", "x", true, false),
        // A server may give a tool any name: at its own address it is listed under that.
        ("mcp__github__create_issue", "evil", "mcp__github__create_issue", true, false),
        ("mcp__github__*", "evil", "mcp__github__create_issue", true, false),
        ("create_issue", "evil", "create_issue", true, false),
        ("PUBLIC", "github__evil", "x", false, true),
        ("PUBLIC", "github__evil", "x", true, true),
        ("PUBLIC", "s", "a.b", true, false),
        ("mcp__s__a_b_7a70df94", "s", "a.b", true, true),
        ("mcp__s__a_b_7a70df94", "s", "a.b", false, true),
        (
            "mcp__a-very-long-server-name-that-goes-on__x",
            "a-very-long-server-name-that-goes-on",
            "x",
            false,
            true,
        ),
        ("mcp__my_server__get_issue", "my-server", "get-issue", false, true),
        ("mcp__my-server__get-issue", "my-server", "get-issue", true, true),
    ] {
        let public = listed(server, name);
        let rule = if rule == "PUBLIC" { public.as_str() } else { rule };
        let names = ToolNames::new(if is_own_address { name } else { &public }, origin(server, name));
        let found = rules(RuleKind::Allow, rule).first_match(&names, None).is_some();
        assert_eq!(found, expected, "{rule} on {name} of {server}");
        // The rule that a refusal names works.
        assert!(rules(RuleKind::Allow, names.rule()).first_match(&names, None).is_some(), "{names:?}");
    }
}

#[test]
fn a_rule_that_denies_holds_under_every_name_and_at_the_servers_own_address() {
    for (rule, server, name) in [
        ("mcp__github", "github__evil", "x"),
        ("mcp__github__evil__x", "github__evil", "x"),
        ("PUBLIC", "github__evil", "x"),
        ("SERVER", "github__evil", "x"),
        ("PUBLIC", "a-very-long-server-name-that-goes-on", "x"),
        ("SERVER", "a-very-long-server-name-that-goes-on", "x"),
        ("mcp__s__a_b", "s", "a.b"),
        ("mcp__s__a_b_7a70df94", "s", "a.b"),
    ] {
        let public = servers::names::public_names(server, [name])[name].clone();
        let rule = match rule {
            "PUBLIC" => public.clone(),
            "SERVER" => format!("mcp__{}", servers::names::server_part(server)),
            rule => rule.to_owned(),
        };
        for listed in [&*public, name] {
            check(&rule, server, name, listed, true);
        }
        let is_server = !rule[5..].contains("__") || rule.ends_with("__*");
        let prompt = rules(RuleKind::Deny, &rule).is_visible(ItemKind::Prompt, "p", origin(server, "p"));
        assert_eq!(prompt, !is_server, "prompts of {server} under {rule}");
    }
}

#[test]
fn a_tool_whose_public_name_has_a_hash_is_matched_by_its_own_name() {
    // `a-b`, `a.b` and `a_b` of one server.
    let tools = [("a-b", "mcp__s__a_b_5c5dfb0e"), ("a.b", "mcp__s__a_b_7a70df94"), ("a_b", "mcp__s__a_b")];
    let matched = |kind: RuleKind, rule: &str| {
        let rules = rules(kind, rule);
        let is_matched = |(name, listed): &&(&str, &str)| {
            rules.first_match(&ToolNames::new(listed, origin("s", name)), None).is_some()
        };
        tools.iter().filter(is_matched).map(|(name, _)| *name).collect::<Vec<_>>()
    };
    assert_eq!(matched(RuleKind::Deny, "mcp__s__a-b"), ["a-b"]);
    assert_eq!(matched(RuleKind::Allow, "mcp__s__a-b"), ["a-b"]);
    // In Claude Code `a.b` is `a_b` too: a rule that denies takes both, a rule that allows only the one it names.
    assert_eq!(matched(RuleKind::Deny, "mcp__s__a_b"), ["a.b", "a_b"]);
    assert_eq!(matched(RuleKind::Allow, "mcp__s__a_b"), ["a_b"]);
    assert_eq!(matched(RuleKind::Allow, "mcp__s__a_b_7a70df94"), ["a.b"]);
}

#[test]
fn a_rule_may_depend_on_an_argument() {
    for (rule, arguments, expected) in [
        ("mcp__s__t(repo:acme/*)", r#"{"repo":"acme/web"}"#, true),
        ("mcp__s__t(repo:acme/*)", r#"{"repo":"other/acme/web"}"#, false),
        ("mcp__s__t(repo:acme/*)", r#"{"owner":"acme/web"}"#, false),
        ("mcp__s(repo:*)", r#"{"repo":""}"#, true),
        ("mcp__s__*(force:true)", r#"{"force":true}"#, true),
        ("mcp__s__*(force:true)", r#"{"force":false}"#, false),
        ("*(limit:100)", r#"{"limit":100}"#, true),
        ("*(at: 10:30 )", r#"{"at":"10:30"}"#, true),
        ("*(x:null)", r#"{"x":null}"#, true),
        ("*(x:*)", r#"{"x":["a"]}"#, false),
        ("*(x:*)", r#"{"y":{"x":"a"}}"#, false),
        (r"*(x:a\b)", r#"{"x":"a\\b"}"#, true),
        ("*(x:*)", "{}", false),
    ] {
        let arguments = Json::parse(arguments).expect("JSON");
        let doc = arguments.to_doc();
        let names = ToolNames::new("mcp__s__t", origin("s", "t"));
        let rules = rules(RuleKind::Deny, rule);
        assert_eq!(rules.first_match(&names, Some(doc.root())).is_some(), expected, "{rule} {arguments}");
        assert!(rules.hides_tool(&names).is_none(), "a tool that may be called is listed");
    }
}

#[test]
fn deny_comes_before_ask_and_ask_before_allow_however_exact() {
    let mut rules = Rules::default();
    let names = ToolNames::new("mcp__s__t", origin("s", "t"));
    let first = |rules: &Rules| {
        rules.first_match(&names, None).map(|found| (found.kind, found.text.to_owned(), found.is_exact))
    };
    assert_eq!(first(&rules), None);
    rules.add(RuleKind::Allow, "mcp__s").expect("valid");
    assert_eq!(first(&rules), Some((RuleKind::Allow, "mcp__s".to_owned(), false)));
    rules.add(RuleKind::Allow, "mcp__s__t").expect("valid");
    assert_eq!(first(&rules), Some((RuleKind::Allow, "mcp__s__t".to_owned(), true)));
    rules.add(RuleKind::Ask, "*").expect("valid");
    assert_eq!(first(&rules), Some((RuleKind::Ask, "*".to_owned(), false)));
    rules.add(RuleKind::Deny, "mcp__*").expect("valid");
    assert_eq!(first(&rules), Some((RuleKind::Deny, "mcp__*".to_owned(), false)));
}

#[test]
fn a_tool_that_is_denied_is_not_visible_and_neither_is_anything_of_a_denied_server() {
    for (rule, kind, listed, server, name, expected) in [
        ("mcp__s__t", ItemKind::Tool, "mcp__s__t", "s", "t", false),
        ("mcp__s__t", ItemKind::Tool, "mcp__s__u", "s", "u", true),
        ("mcp__s", ItemKind::Tool, "mcp__s__t", "s", "t", false),
        ("mcp__s", ItemKind::Prompt, "mcp__s__p", "s", "p", false),
        ("mcp__s", ItemKind::Resource, "file:///a", "s", "file:///a", false),
        ("mcp__s__*", ItemKind::Resource, "file:///a", "s", "file:///a", false),
        ("*", ItemKind::Resource, "file:///a", "s", "file:///a", false),
        ("mcp__s__get_*", ItemKind::Prompt, "mcp__s__get_p", "s", "get_p", true),
        ("mcp__other", ItemKind::Prompt, "mcp__s__p", "s", "p", true),
    ] {
        let rules = rules(RuleKind::Deny, rule);
        assert!(rules.hides_anything());
        assert_eq!(rules.is_visible(kind, listed, origin(server, name)), expected, "{rule} {listed}");
    }
    let rules = rules(RuleKind::Deny, "search_tools");
    assert!(!rules.is_visible(ItemKind::Tool, "search_tools", None), "a tool of the gateway itself");
    assert!(rules.is_visible(ItemKind::Resource, "search_tools", None));
    assert!(!Rules::default().hides_anything());
}

#[test]
fn rules_that_cannot_be_used_say_why() {
    let mut report = String::new();
    let long = "x".repeat(RULE_BYTES_MAX + 1);
    for (kind, text) in [
        (RuleKind::Deny, ""),
        (RuleKind::Deny, "mcp__"),
        (RuleKind::Deny, "mcp__a b"),
        (RuleKind::Deny, "mcp__a\u{1b}[2J"),
        (RuleKind::Deny, "mcp__a__b(x)"),
        (RuleKind::Deny, "mcp__a__b(:x)"),
        (RuleKind::Deny, "mcp__a__b(x:y"),
        (RuleKind::Deny, "(x:y)"),
        (RuleKind::Ask, long.as_str()),
        (RuleKind::Allow, "*"),
        (RuleKind::Allow, "mcp__*"),
        (RuleKind::Allow, "mcp__git*"),
        (RuleKind::Allow, "mcp__git*__get_issue"),
        (RuleKind::Allow, "get_*"),
        (RuleKind::Allow, "mcp____*"),
        (RuleKind::Allow, "mcp__a__b(x:y)"),
    ] {
        let error = Rules::default().add(kind, text).expect_err(text);
        let help = error.help.map(|help| format!("\n    {help}")).unwrap_or_default();
        report.push_str(&format!("{}: {}{help}\n", kind.as_str(), error.message));
    }
    insta::assert_snapshot!(report);
}
