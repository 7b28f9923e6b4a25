//! Matching a URI with a template, for routing only: `{x}` is one segment, `{+x}` and `{x*}` are anything.

/// A template taken apart once. Matching is linear in the URI for each wildcard, and never backtracks
/// over more than one: a wildcard takes the shortest run that lets the next literal match.
#[derive(Debug, Clone)]
pub(crate) struct UriPattern(Vec<PatternPart>);

#[derive(Debug, Clone)]
enum PatternPart {
    Literal(String),
    Segment,
    Anything,
}

impl UriPattern {
    pub(crate) fn new(template: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            let Some(close) = rest[open..].find('}') else { break };
            if open > 0 {
                pieces.push(PatternPart::Literal(rest[..open].into()));
            }
            let name = &rest[open + 1..open + close];
            let anything = name.starts_with('+') || name.ends_with('*');
            pieces.push(if anything { PatternPart::Anything } else { PatternPart::Segment });
            rest = &rest[open + close + 1..];
        }
        if !rest.is_empty() {
            pieces.push(PatternPart::Literal(rest.into()));
        }
        Self(pieces)
    }

    pub(crate) fn matches(&self, uri: &str) -> bool {
        let mut rest = uri;
        let mut pieces = self.0.iter().peekable();
        while let Some(piece) = pieces.next() {
            let wild = match piece {
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
            let taken = match pieces.peek() {
                None => wild,
                Some(PatternPart::Literal(next)) => match rest.get(1..).and_then(|r| r.find(next.as_str())) {
                    Some(at) if at < wild => at + 1,
                    _ => return false,
                },
                // Two wildcards in a row: the first takes one character.
                Some(PatternPart::Segment | PatternPart::Anything) => {
                    rest.chars().next().map_or(0, char::len_utf8)
                }
            };
            if taken == 0 {
                return false;
            }
            rest = &rest[taken..];
        }
        rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::UriPattern;

    #[test]
    fn templates_route() {
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
