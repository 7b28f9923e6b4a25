//! Hooks in the form of Claude Code's settings: `{"PreToolUse": [{"matcher": "…", "hooks": [{…}]}]}`.

use json::Node;
use url::Url;

use super::reader::Reader;
use crate::hooks::{HeaderValue, Hook, HookAction, HookEvent, HttpHook, Matcher, MatcherSyntax, OnHookError};
use crate::rules::{RuleKind, Rules};

pub(super) fn read(reader: &mut Reader, node: Node<'_>) -> Vec<Hook> {
    let syntaxes = [MatcherSyntax::Glob, MatcherSyntax::ClaudeCode].map(|syntax| (syntax.as_str(), syntax));
    let syntax = node.get("matchers").and_then(|value| reader.choice(value, "matchers", &syntaxes));
    let syntax = syntax.unwrap_or_default();
    let mut hooks = Vec::new();
    for (key, groups) in node.members() {
        let name = key.str().unwrap_or_default();
        let Some(event) = HookEvent::ALL.into_iter().find(|event| event.as_str() == name) else {
            if name != "matchers" {
                let known = HookEvent::ALL.map(HookEvent::as_str).join(", ");
                let message = format!("`{}` never happens here; supported: {known}", name.escape_debug());
                reader.warning(key, message);
            }
            continue;
        };
        for group in reader.list(groups, &name) {
            read_group(reader, event, syntax, group, &mut hooks);
        }
    }
    if hooks.len() > Hook::COUNT_MAX {
        reader.error(node, format!("exceeds the limit of {} hooks", Hook::COUNT_MAX));
    }
    hooks
}

fn read_group(
    reader: &mut Reader,
    event: HookEvent,
    syntax: MatcherSyntax,
    group: Node<'_>,
    hooks: &mut Vec<Hook>,
) {
    let Some(list) = group.get("hooks") else {
        reader.error(group, "this entry has no `hooks`: a list of commands or addresses".to_owned());
        return;
    };
    let matcher_node = group.get("matcher");
    let text = matcher_node.and_then(|node| node.str()).unwrap_or_default();
    if let Some(node) = matcher_node.filter(|node| node.str().is_none()) {
        reader.error(node, "`matcher` is not a text".to_owned());
    }
    let matcher = match Matcher::parse(&text, syntax) {
        Ok(matcher) => matcher,
        Err(reason) => {
            reader.error(matcher_node.unwrap_or(group), reason);
            return;
        }
    };
    for (key, _) in group.members() {
        let name = key.str().unwrap_or_default();
        if !matches!(&*name, "matcher" | "hooks") {
            reader.unknown_key(key, &name, &["matcher", "hooks"]);
        }
    }
    for node in reader.list(list, "hooks") {
        if let Some(hook) = read_hook(reader, event, &matcher, node) {
            hooks.push(hook);
        }
    }
}

const KEYS: &[&str] =
    &["type", "command", "args", "url", "headers", "allowedEnvVars", "if", "timeout", "on_error"];

fn read_hook(reader: &mut Reader, event: HookEvent, matcher: &Matcher, node: Node<'_>) -> Option<Hook> {
    if !node.is_object() {
        reader.error(node, "a hook is an object with `type` and `command` or `url`".to_owned());
        return None;
    }
    let mut timeout_ms = Hook::TIMEOUT_MS_DEFAULT;
    let mut on_error = event.default_on_error();
    let mut condition = None;
    let (mut kind, mut command, mut args, mut url) = (None, None, None, None);
    let (mut headers, mut allowed_variables) = (Vec::new(), Vec::new());
    for (key, value) in node.members() {
        let name = key.str().unwrap_or_default();
        match &*name {
            "type" => kind = reader.text(value, &name).map(|kind| (value, kind)),
            "command" => command = reader.text(value, &name),
            "args" => args = Some(texts(reader, value, &name)),
            "url" => url = read_url(reader, value),
            "headers" if value.is_object() => {
                for (name, value) in value.members() {
                    if let Some(text) = reader.text(value, "a header") {
                        headers.push((name.str().unwrap_or_default().into_owned(), HeaderValue(text)));
                    }
                }
            }
            "headers" => drop(reader.error(value, "`headers` is not an object".to_owned())),
            "allowedEnvVars" => allowed_variables = texts(reader, value, &name),
            "if" => condition = read_condition(reader, value),
            "timeout" => {
                let seconds_max = Hook::TIMEOUT_MS_MAX / 1000;
                if let Some(seconds) = reader.number(value, &name, 1..=seconds_max) {
                    timeout_ms = seconds * 1000;
                }
            }
            "on_error" => {
                let choices = [("deny", OnHookError::Deny), ("allow", OnHookError::Allow)];
                if let Some(choice) = reader.choice(value, &name, &choices) {
                    on_error = choice;
                }
            }
            "async" if value.bool() == Some(true) => {
                reader.warning(key, "`async` has no effect here: every hook is waited for".to_owned());
            }
            "async" | "shell" | "statusMessage" | "once" => {}
            other => reader.unknown_key(key, other, KEYS),
        }
    }
    let action = match (kind.as_ref().map(|(_, kind)| kind.as_str()), command, url) {
        (Some("command"), Some(command), _) => HookAction::Command { command, args },
        (Some("http"), _, Some(url)) => HookAction::Http(HttpHook { url, headers, allowed_variables }),
        (Some("command"), None, _) if node.get("command").is_none() => {
            reader.error(node, "a hook of the type `command` needs a `command`".to_owned());
            return None;
        }
        (Some("http"), _, None) if node.get("url").is_none() => {
            reader.error(node, "a hook of the type `http` needs a `url`".to_owned());
            return None;
        }
        // The member itself is invalid, and reported.
        (Some("command" | "http"), ..) => return None,
        (Some(other), ..) => {
            let message = format!("unknown type `{}`; supported: command, http", other.escape_debug());
            reader.error(kind.as_ref().map_or(node, |(node, _)| *node), message);
            return None;
        }
        (None, ..) => {
            if node.get("type").is_none() {
                reader.error(node, "this hook has no `type`; supported: command, http".to_owned());
            }
            return None;
        }
    };
    Some(Hook { event, matcher: matcher.clone(), condition, action, timeout_ms, on_error })
}

fn texts(reader: &mut Reader, node: Node<'_>, name: &str) -> Vec<String> {
    // An empty argument is an argument.
    let one = |reader: &mut Reader, node: Node<'_>| match node.str() {
        Some(text) => Some(text.into_owned()),
        None => {
            reader.error(node, format!("`{name}` has an entry that is not a text"));
            None
        }
    };
    reader.list(node, name).into_iter().filter_map(|node| one(reader, node)).collect()
}

fn read_url(reader: &mut Reader, node: Node<'_>) -> Option<Url> {
    let text = reader.text(node, "url")?;
    match Url::parse(&text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => return Some(url),
        Ok(_) => reader.error(node, "`url` does not start with http:// or https://".to_owned()),
        Err(error) => reader.error(node, format!("`url` is not valid: {error}")),
    };
    None
}

fn read_condition(reader: &mut Reader, node: Node<'_>) -> Option<Rules> {
    let text = reader.text(node, "if")?;
    let mut rules = Rules::default();
    match rules.add(RuleKind::Ask, text.trim()) {
        Ok(()) => Some(rules),
        Err(error) => {
            reader.error(node, error.message).help = error.help;
            None
        }
    }
}
