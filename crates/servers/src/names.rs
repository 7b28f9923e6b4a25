//! Public names: `mcp__server__tool`.
//!
//! A public name has only letters, digits and `_`, and at most [`NAME_CHARS_MAX`] of them. It depends only on its own
//! server's name and tools, so that rules for it stay valid whatever other servers there are. No two tools share one:
//! the part of the server never contains `__` and never ends with `_`, so the first `__` behind `mcp__` ends it.

use std::collections::BTreeMap;

use ring::digest;

/// Model providers accept no longer names.
pub const NAME_CHARS_MAX: usize = 64;
/// A longer part is cut, so that the tool's name keeps room.
const SERVER_CHARS_MAX: usize = 32;
const PREFIX: &str = "mcp__";
const SEPARATOR: &str = "__";

/// The part of a server in the public names of its tools. Everything but letters and digits becomes `_`.
pub fn server_part(server: &str) -> String {
    let plain = sanitize(server);
    let is_clean = !plain.is_empty()
        && !plain.contains(SEPARATOR)
        && !plain.starts_with('_')
        && !plain.ends_with('_')
        && plain.len() <= SERVER_CHARS_MAX;
    if is_clean {
        return plain;
    }
    let words: Vec<&str> = plain.split('_').filter(|word| !word.is_empty()).collect();
    let short: String = words.join("_").chars().take(SERVER_CHARS_MAX - 9).collect();
    let short = if short.is_empty() { "server" } else { short.trim_end_matches('_') };
    format!("{short}_{}", short_hash(&[server]))
}

/// The part of a server in a public name; `None` if the name has none.
pub fn server_part_of(public_name: &str) -> Option<&str> {
    let (server, tool) = public_name.strip_prefix(PREFIX)?.split_once(SEPARATOR)?;
    (!server.is_empty() && !tool.is_empty()).then_some(server)
}

/// The public name of each tool of a server, by its own name.
///
/// A tool whose name needs no change keeps it. The others follow in the order of their names, and get a hash where
/// their name is taken or too long.
pub fn public_names<'t>(server: &str, tools: impl IntoIterator<Item = &'t str>) -> BTreeMap<&'t str, String> {
    let mut tools: Vec<&str> = tools.into_iter().collect();
    tools.sort_unstable();
    tools.dedup();
    let prefix = prefix(server);
    let mut taken: BTreeMap<String, &str> = BTreeMap::new();
    for tool in tools.iter().filter(|tool| is_unchanged(&prefix, tool)) {
        taken.insert(format!("{prefix}{tool}"), tool);
    }
    for tool in tools.iter().filter(|tool| !is_unchanged(&prefix, tool)) {
        let free = candidates(server, &prefix, tool).find(|name| !taken.contains_key(name));
        taken.insert(free.expect("there are more hashes than tools"), tool);
    }
    taken.into_iter().map(|(public, tool)| (tool, public)).collect()
}

/// The public names that a tool may have, whatever other tools its server has. The last one is no name of another tool: it
/// is the tool's own name, or has its hash.
pub fn possible_names(server: &str, tool: &str) -> Vec<String> {
    let prefix = prefix(server);
    let has_plain = fits(&prefix, &sanitize(tool));
    let count = if has_plain && !is_unchanged(&prefix, tool) { 2 } else { 1 };
    candidates(server, &prefix, tool).take(count).collect()
}

/// What the public names of a server's tools start with.
pub fn prefix(server: &str) -> String {
    format!("{PREFIX}{}{SEPARATOR}", server_part(server))
}

fn fits(prefix: &str, plain: &str) -> bool {
    !plain.is_empty() && prefix.len() + plain.len() <= NAME_CHARS_MAX
}

fn is_unchanged(prefix: &str, tool: &str) -> bool {
    sanitize(tool) == tool && fits(prefix, tool)
}

/// The names for a tool, best first.
fn candidates(server: &str, prefix: &str, tool: &str) -> impl Iterator<Item = String> {
    let plain = sanitize(tool);
    let first = Some(format!("{prefix}{plain}")).filter(|_| fits(prefix, &plain));
    let hashed = (0..).map(move |round: u32| {
        let hash = match round {
            0 => short_hash(&[server, tool]),
            _ => short_hash(&[server, tool, &round.to_string()]),
        };
        let cut: String = plain.chars().take(NAME_CHARS_MAX - prefix.len() - hash.len() - 1).collect();
        format!("{prefix}{cut}_{hash}")
    });
    first.into_iter().chain(hashed)
}

fn sanitize(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn short_hash(parts: &[&str]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    context.finish().as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use proptest::prop_assert;

    use super::{NAME_CHARS_MAX, possible_names, public_names, server_part, server_part_of};

    #[track_caller]
    fn check(server: &str, tools: &[&str], expected: &[&str]) {
        let names = public_names(server, tools.iter().copied());
        let found: Vec<&str> = tools.iter().map(|tool| names[tool].as_str()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_public_name_is_the_server_and_the_tool() {
        check("github", &["create_issue"], &["mcp__github__create_issue"]);
        check("claude.ai Gmail", &["send-mail"], &["mcp__claude_ai_Gmail__send_mail"]);
        check("a", &["_b", "b__c"], &["mcp__a___b", "mcp__a__b__c"]);
    }

    #[test]
    fn names_that_become_equal_get_a_hash_and_the_unchanged_one_keeps_its_name() {
        check("s", &["a.b", "a_b", "a-b"], &["mcp__s__a_b_7a70df94", "mcp__s__a_b", "mcp__s__a_b_5c5dfb0e"]);
        // Whatever the order of the list.
        check("s", &["a-b", "a.b", "a_b"], &["mcp__s__a_b_5c5dfb0e", "mcp__s__a_b_7a70df94", "mcp__s__a_b"]);
    }

    #[test]
    fn another_tool_does_not_change_a_name() {
        let alone = public_names("s", ["a-b"])["a-b"].clone();
        assert_eq!(public_names("s", ["a-b", "other"])["a-b"], alone);
    }

    #[test]
    fn a_server_name_that_could_be_confused_gets_a_hash() {
        for (server, expected) in [
            ("a_b", "a_b"),
            ("a__b", "a_b_551b62a2"),
            ("a_", "a_e517dfec"),
            ("_a", "a_e8c02bc3"),
            ("日本", "server_caefa4d4"),
            ("", "server_af5570f5"),
            ("a-very-long-server-name-that-goes-on", "a_very_long_server_name_4abbca31"),
        ] {
            assert_eq!(server_part(server), expected, "{server}");
        }
    }

    #[test]
    fn the_server_is_found_in_a_public_name() {
        for (name, expected) in [
            ("mcp__github__create_issue", Some("github")),
            ("mcp__a___b", Some("a")),
            ("mcp__a__b__c", Some("a")),
            ("mcp__a_b__c", Some("a_b")),
            ("mcp__a__", None),
            ("mcp____a", None),
            ("mcp__a", None),
            ("a__b", None),
            ("", None),
        ] {
            assert_eq!(server_part_of(name), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_are_valid_unique_and_lead_back_to_their_server(
            server in any::<String>(),
            tools in proptest::collection::btree_set("[a_.\\-é]{0,70}", 0..40),
        ) {
            let names = public_names(&server, tools.iter().map(String::as_str));
            prop_assert!(names.len() == tools.len());
            let mut all: Vec<&String> = names.values().collect();
            all.sort_unstable();
            all.dedup();
            prop_assert!(all.len() == tools.len());
            let part = server_part(&server);
            prop_assert!(!part.contains("__") && !part.ends_with('_'));
            for (tool, name) in &names {
                let possible = possible_names(&server, tool);
                prop_assert!(possible.contains(name), "{name} of {tool} is not one of {possible:?}");
            }
            for name in all {
                prop_assert!(name.len() <= NAME_CHARS_MAX);
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
                prop_assert!(server_part_of(name) == Some(&part));
            }
        }
    }
}
