//! URI templates (RFC 6570): `{var}`, `{+path}`, `{?a,b}` and `{&a}`, the expressions that MCP clients use.
//!
//! A template is matched against a URI, the other way round than RFC 6570 expands it. `{var}` takes one segment, `{+path}`
//! takes any text with slashes, and a query may have its parameters in any order or leave some out. Matching never
//! backtracks: a variable takes the shortest text that lets the next literal follow, so it is linear.

use crate::uri::percent_decode;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UriTemplate {
    parts: Vec<Part>,
    /// The variables of `{?…}` and `{&…}`.
    query: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Segment(String),
    Path(String),
}

/// The variables of a template, with the values that a URI has for them.
pub type Variables = Vec<(String, String)>;

impl UriTemplate {
    /// The error says what is wrong.
    pub(crate) fn parse(template: &str) -> Result<Self, String> {
        if !template.split('{').next().is_some_and(|start| start.contains(':')) {
            return Err("it must start with a scheme, as in `orders://{id}`".into());
        }
        if template.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("it must not contain blanks".into());
        }
        let (mut parts, mut query) = (Vec::new(), Vec::new());
        let mut rest = template;
        while let Some(open) = rest.find(['{', '}']) {
            let (literal, after) = rest.split_at(open);
            if !literal.is_empty() {
                if !query.is_empty() {
                    return Err("nothing may follow `{?…}`".into());
                }
                parts.push(Part::Literal(literal.to_owned()));
            }
            let expression = after.strip_prefix('{').ok_or("`}` without `{`")?;
            let (expression, after) = expression.split_once('}').ok_or("`{` without `}`")?;
            match expression.chars().next() {
                Some('?' | '&') => {
                    let is_repeated = expression.starts_with('?') && !query.is_empty();
                    if is_repeated {
                        return Err("`{?…}` may occur once".into());
                    }
                    for name in expression[1..].split(',') {
                        query.push(variable_name(name)?);
                    }
                }
                _ if !query.is_empty() => return Err("nothing may follow `{?…}`".into()),
                Some('+') => parts.push(Part::Path(variable_name(&expression[1..])?)),
                Some(operator @ ('#' | '.' | '/' | ';')) => {
                    return Err(format!(
                        "`{{{operator}…}}` is not supported; use `{{var}}`, `{{+path}}` or `{{?query}}`"
                    ));
                }
                _ => parts.push(Part::Segment(variable_name(expression)?)),
            }
            rest = after;
        }
        if !rest.is_empty() {
            if !query.is_empty() {
                return Err("nothing may follow `{?…}`".into());
            }
            parts.push(Part::Literal(rest.to_owned()));
        }
        let is_variable = |part: &Part| !matches!(part, Part::Literal(_));
        if parts.windows(2).any(|pair| pair.iter().all(is_variable)) {
            return Err("two variables need a character between them".into());
        }
        let template = Self { parts, query };
        let names: Vec<&str> = template.variables().collect();
        match names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
            Some((_, name)) => Err(format!("`{name}` occurs twice")),
            None if names.is_empty() => Err("it has no variable; declare a resource instead".into()),
            None => Ok(template),
        }
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        let in_path = self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Segment(name) | Part::Path(name) => Some(name.as_str()),
        });
        in_path.chain(self.query.iter().map(String::as_str))
    }

    /// The values that a URI of this template has; `None` if it is not one.
    pub(crate) fn matches(&self, uri: &str) -> Option<Variables> {
        let (path, query) = match uri.split_once('?') {
            Some((path, query)) if !self.query.is_empty() => (path, Some(query)),
            _ => (uri, None),
        };
        let mut variables = self.match_path(path)?;
        for parameter in query.unwrap_or_default().split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=')?;
            let name = percent_decode(name)?;
            let is_known = self.query.contains(&name) && !variables.iter().any(|(known, _)| *known == name);
            if !is_known {
                return None;
            }
            variables.push((name, percent_decode(value)?));
        }
        Some(variables)
    }

    fn match_path(&self, path: &str) -> Option<Variables> {
        let mut variables = Vec::new();
        let mut rest = path;
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            let (name, length_max) = match part {
                Part::Literal(literal) => {
                    rest = rest.strip_prefix(literal.as_str())?;
                    continue;
                }
                Part::Segment(name) => (name, rest.find(['/', '?', '#']).unwrap_or(rest.len())),
                Part::Path(name) => (name, rest.len()),
            };
            let length = match parts.peek() {
                None => length_max,
                Some(Part::Literal(next)) => rest.find(next.as_str()).filter(|at| *at <= length_max)?,
                // `parse` refuses two variables in a row.
                Some(Part::Segment(_) | Part::Path(_)) => return None,
            };
            let (value, after) = rest.split_at(length);
            let value = percent_decode(value).filter(|value| !value.is_empty())?;
            let has_dot_segment = value.split('/').any(|segment| segment == ".." || segment == ".");
            if has_dot_segment && matches!(part, Part::Path(_)) {
                return None;
            }
            variables.push((name.clone(), value));
            rest = after;
        }
        rest.is_empty().then_some(variables)
    }
}

fn variable_name(name: &str) -> Result<String, String> {
    if name.ends_with('*') || name.contains(':') {
        return Err(format!("`{{{name}}}`: modifiers are not supported"));
    }
    let is_valid =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    if is_valid { Ok(name.to_owned()) } else { Err(format!("`{name}` is not the name of a variable")) }
}

#[cfg(test)]
mod tests {
    use super::UriTemplate;

    fn check(template: &str, uri: &str, expected: Option<&[(&str, &str)]>) {
        let template = UriTemplate::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
        let found = template.matches(uri);
        let expected = expected.map(|pairs| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "{uri}");
    }

    #[test]
    fn a_uri_gives_its_variables() {
        check("t://{id}", "t://7", Some(&[("id", "7")]));
        check("t://{id}/data", "t://a%2Fb/data", Some(&[("id", "a/b")]));
        check("t://{a}/{b}", "t://1/2", Some(&[("a", "1"), ("b", "2")]));
        check("t://{a}-{b}", "t://1-2-3", Some(&[("a", "1"), ("b", "2-3")]));
        check("t://x/{+path}", "t://x/a/b/c.md", Some(&[("path", "a/b/c.md")]));
        check("t://x/{+path}/end", "t://x/a/b/end", Some(&[("path", "a/b")]));
        check("t://s{?q}", "t://s?q=a%20b", Some(&[("q", "a b")]));
        check("t://s{?q,lang}", "t://s?lang=de&q=x", Some(&[("lang", "de"), ("q", "x")]));
        check("t://s{?q}", "t://s", Some(&[]));
        check("t://s{?q}", "t://s?q=", Some(&[("q", "")]));
        check("t://{id}{?q}", "t://7?q=1", Some(&[("id", "7"), ("q", "1")]));
        check("t://ü/{x}", "t://ü/é", Some(&[("x", "é")]));
    }

    #[test]
    fn other_uris_do_not_match() {
        for (template, uri) in [
            ("t://{id}", "t://"),
            ("t://{id}", "t://a/b"),
            ("t://{id}", "t://a?q=1"),
            ("t://{id}", "T://a"),
            ("t://{id}/data", "t://a/data/more"),
            ("t://{id}/data", "t:///data"),
            ("t://{id}", "t://%00"),
            ("t://{id}", "t://%ff"),
            ("t://{id}", "t://%2"),
            ("t://x/{+path}", "t://x/"),
            ("t://x/{+path}", "t://x/../secret"),
            ("t://x/{+path}", "t://x/a/%2e%2e/b"),
            ("t://x/{+path}", "t://x/."),
            ("t://s{?q}", "t://s?other=1"),
            ("t://s{?q}", "t://s?q=1&q=2"),
            ("t://s{?q}", "t://s?q"),
            ("t://s{?q}", "t://s/x?q=1"),
        ] {
            check(template, uri, None);
        }
    }

    #[test]
    fn templates_beyond_the_supported_ones_are_refused() {
        for (template, error) in [
            ("t://x", "no variable"),
            ("{id}", "scheme"),
            ("t://{", "without"),
            ("t://}", "without"),
            ("t://{}", "not the name"),
            ("t://{a b}", "blanks"),
            ("t://{a}{b}", "between"),
            ("t://{a}/{a}", "twice"),
            ("t://{a*}", "modifiers"),
            ("t://{a:3}", "modifiers"),
            ("t://x{#a}", "not supported"),
            ("t://x{/a}", "not supported"),
            ("t://x{;a}", "not supported"),
            ("t://x{.a}", "not supported"),
            ("t://x{?a}/b", "follow"),
            ("t://x{?a}{b}", "follow"),
            ("t://x{?a}{?b}", "once"),
        ] {
            let found = UriTemplate::parse(template).expect_err(template);
            assert!(found.contains(error), "{template}: {found}");
        }
    }
}
