//! Matches a URI against a template, for routing only: `{x}` is one segment, `{+x}` and `{x*}` match anything.

/// A parsed template. Matching is linear in the URI for each wildcard, and never backtracks over more than one: a
/// wildcard takes the shortest run that lets the next literal match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UriPattern(Vec<PatternPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternPart {
    Literal(String),
    Segment,
    Anything,
}

impl UriPattern {
    pub(crate) fn new(template: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            let Some(close) = rest[open..].find('}') else { break };
            if open > 0 {
                parts.push(PatternPart::Literal(rest[..open].into()));
            }
            let name = &rest[open + 1..open + close];
            let anything = name.starts_with('+') || name.ends_with('*');
            parts.push(if anything { PatternPart::Anything } else { PatternPart::Segment });
            rest = &rest[open + close + 1..];
        }
        if !rest.is_empty() {
            parts.push(PatternPart::Literal(rest.into()));
        }
        Self(parts)
    }

    pub(crate) fn matches(&self, uri: &str) -> bool {
        let mut rest = uri;
        let mut parts = self.0.iter().peekable();
        while let Some(part) = parts.next() {
            let length_max = match part {
                PatternPart::Literal(text) => match rest.strip_prefix(text.as_str()) {
                    Some(after) => {
                        rest = after;
                        continue;
                    }
                    None => return false,
                },
                PatternPart::Segment => rest.find(['/', '?', '#']).unwrap_or(rest.len()),
                PatternPart::Anything => rest.len(),
            };
            let length = match parts.peek() {
                None => length_max,
                Some(PatternPart::Literal(next)) => match rest.get(1..).and_then(|r| r.find(next.as_str())) {
                    Some(at) if at < length_max => at + 1,
                    _ => return false,
                },
                // Two wildcards in a row: the first takes one character.
                Some(PatternPart::Segment | PatternPart::Anything) => {
                    rest.chars().next().map_or(0, char::len_utf8)
                }
            };
            if length == 0 {
                return false;
            }
            rest = &rest[length..];
        }
        rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::UriPattern;

    #[test]
    fn a_wildcard_matches_one_segment_or_anything() {
        for (template, uri, matches) in [
            ("test://template/{id}/data", "test://template/123/data", true),
            ("test://template/{id}/data", "test://template//data", false),
            ("test://template/{id}/data", "test://template/1/2/data", false),
            ("test://template/{id}/data", "test://template/1/data/more", false),
            ("file:///{+path}", "file:///a/b/c.txt", true),
            ("file:///{+path}", "file:///", false),
            ("a://{x}", "a://b", true),
            ("a://{x}", "a://b/c", false),
            ("a://{x}-{y}", "a://1-2", true),
            ("a://{x}{y}", "a://12", true),
            ("a://é{x}", "a://éü", true),
            ("plain://text", "plain://text", true),
            ("broken://{x", "broken://{x", true),
        ] {
            assert_eq!(UriPattern::new(template).matches(uri), matches, "{template} {uri}");
        }
    }
}
