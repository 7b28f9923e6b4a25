//! Expands `${VAR}` and `${VAR:-default}` in a text; `$${` is a literal `${`.

use std::ops::Range;

/// An unset or malformed variable.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VariableError {
    /// A byte range of the text.
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) help: String,
}

/// Replaces the variables of a text, or returns all errors. As in a shell, the default also replaces an empty value.
pub(super) fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Vec<VariableError>> {
    let (mut out, mut errors) = (String::with_capacity(text.len()), Vec::new());
    let mut at = 0;
    while let Some(found) = text[at..].find("${") {
        let start = at + found;
        if text[at..start].ends_with('$') {
            out.push_str(&text[at..start - 1]);
            out.push_str("${");
            at = start + 2;
            continue;
        }
        out.push_str(&text[at..start]);
        let Some(length) = text[start..].find('}') else {
            errors.push(VariableError {
                span: start..text.len(),
                message: "`${` has no `}`".into(),
                help: "write `$${` for a literal `${`".into(),
            });
            return Err(errors);
        };
        at = start + length + 1;
        match resolve(&text[start + 2..at - 1], env) {
            Ok(value) => out.push_str(&value),
            Err((message, help)) => errors.push(VariableError { span: start..at, message, help }),
        }
    }
    out.push_str(&text[at..]);
    if errors.is_empty() { Ok(out) } else { Err(errors) }
}

fn resolve(inside: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, (String, String)> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.starts_with(|c: char| !c.is_ascii_digit());
    if !is_name {
        let help = "write `${NAME}` or `${NAME:-default}`, or `$${` for a literal `${`";
        return Err((format!("`{name}` is not a valid variable name"), help.into()));
    }
    match (env(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.into()),
        (None, None) => Err((
            format!("the variable `{name}` is not set"),
            format!("set it, or add a default: `${{{name}:-…}}`"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::expand;

    fn check(text: &str, expected: Result<&str, &[&str]>) {
        let env = |name: &str| match name {
            "HOME" => Some("/home/dana".to_owned()),
            "EMPTY" => Some(String::new()),
            "ODD" => Some("${HOME}".to_owned()),
            _ => None,
        };
        let got = expand(text, &env).map_err(|errors| {
            errors.into_iter().map(|error| text[error.span].to_owned()).collect::<Vec<_>>()
        });
        let expected = expected.map(str::to_owned);
        assert_eq!(got, expected.map_err(|all| all.iter().map(|s| (*s).to_owned()).collect()), "{text}");
    }

    #[test]
    fn expand_replaces_variables() {
        check("", Ok(""));
        check("$5 {a} } $", Ok("$5 {a} } $"));
        check("${HOME}/crm.db", Ok("/home/dana/crm.db"));
        check("${HOME}${HOME}", Ok("/home/dana/home/dana"));
        check("é${HOME}é", Ok("é/home/danaé"));
        check("${NONE:-data}/crm.db", Ok("data/crm.db"));
        check("${NONE:-}", Ok(""));
        check("${EMPTY}", Ok(""));
        check("${EMPTY:-x}", Ok("x"));
        check("${HOME:-x}", Ok("/home/dana"));
        // The value of a variable is not expanded again.
        check("${ODD}", Ok("${HOME}"));
    }

    #[test]
    fn a_double_dollar_is_a_literal_dollar() {
        check("$${HOME}", Ok("${HOME}"));
        check("$$${HOME}", Ok("$${HOME}"));
        check("$$", Ok("$$"));
        check("${HOME}$${", Ok("/home/dana${"));
    }

    #[test]
    fn expand_errors_have_their_location() {
        check("a ${NONE} b", Err(&["${NONE}"]));
        check("${A}${B}", Err(&["${A}", "${B}"]));
        check("${HOME", Err(&["${HOME"]));
        check("${NONE} ${", Err(&["${NONE}", "${"]));
        check("${}", Err(&["${}"]));
        check("${9A}", Err(&["${9A}"]));
        check("${a b}", Err(&["${a b}"]));
        check("${a-b}", Err(&["${a-b}"]));
        check("${:-x}", Err(&["${:-x}"]));
        check("${é}", Err(&["${é}"]));
    }
}
