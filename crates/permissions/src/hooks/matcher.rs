//! Which tools a hook is for.
//!
//! A matcher is a list of patterns as permission rules have them (`mcp__github__*|mcp__jira`), or a regular expression
//! between slashes (`/^mcp__.*__delete/`). Claude Code reads the same texts otherwise, and a setting chooses its reading.

use regex::{Regex, RegexBuilder};

use crate::glob::Glob;
use crate::names::ToolNames;
use crate::rules::name_glob;

/// How matchers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatcherSyntax {
    #[default]
    Glob,
    /// A text of letters, digits, `_`, `-`, blanks, `,` and `|` is a list of exact names; anything else is a regular
    /// expression that may match anywhere in the name.
    ClaudeCode,
}

impl MatcherSyntax {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Glob => "glob",
            Self::ClaudeCode => "claude-code",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Glob, Self::ClaudeCode].into_iter().find(|syntax| syntax.as_str() == text)
    }
}

#[derive(Debug, Clone)]
pub struct Matcher(Kind);

#[derive(Debug, Clone)]
enum Kind {
    All,
    Globs(Vec<Glob>),
    Regex(Regex),
}

/// A compiled expression is not larger.
const REGEX_BYTES_MAX: usize = 1 << 20;

impl Matcher {
    /// `Err` says why the text is not valid.
    pub fn parse(text: &str, syntax: MatcherSyntax) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text == "*" {
            return Ok(Self(Kind::All));
        }
        let parts = || text.split(['|', ',']).map(str::trim).filter(|part| !part.is_empty());
        match syntax {
            MatcherSyntax::Glob => {
                let inside = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
                if let Some(expression) = inside.filter(|expression| !expression.is_empty()) {
                    return parse_regex(expression);
                }
                let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.*|, ".contains(c);
                if let Some(c) = text.chars().find(|c| !is_name(*c)) {
                    return Err(format!(
                        "{c:?} is in no tool name; write a regular expression between slashes: /{}/",
                        text.escape_debug()
                    ));
                }
                Ok(Self(Kind::Globs(parts().map(|part| Glob::new(&name_glob(part))).collect())))
            }
            MatcherSyntax::ClaudeCode => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "_- ,|".contains(c);
                if text.chars().all(is_plain) {
                    return Ok(Self(Kind::Globs(parts().map(Glob::new).collect())));
                }
                parse_regex(text)
            }
        }
    }

    pub fn matches(&self, names: &ToolNames) -> bool {
        match &self.0 {
            Kind::All => true,
            Kind::Globs(globs) => names.all().any(|name| globs.iter().any(|glob| glob.matches(name))),
            Kind::Regex(regex) => names.all().any(|name| regex.is_match(name)),
        }
    }
}

fn parse_regex(expression: &str) -> Result<Matcher, String> {
    let regex = RegexBuilder::new(expression).size_limit(REGEX_BYTES_MAX).build();
    regex.map(|regex| Matcher(Kind::Regex(regex))).map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("not a regular expression: {last}")
    })
}
