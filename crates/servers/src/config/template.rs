//! Texts with variables, and the variables of each client.
//!
//! A [`Template`] is kept as it was typed, and expanded only when its server starts: files and reports never contain
//! the value of a variable.

use std::fmt;
use std::path::Path;

/// A text of a settings file in which variables may stand.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    syntax: VariableSyntax,
}

/// Which variables a client replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableSyntax {
    /// None: Claude Desktop and Codex pass texts on as they are.
    Literal,
    /// `${NAME}` and `${NAME:-default}`: Claude Code and our own file.
    Shell,
    /// `${env:NAME}`, `${workspaceFolder}`, `${userHome}`, `${input:id}` …: Cursor and VS Code.
    Editor,
}

/// The values of variables when a server starts.
pub struct Variables<'a> {
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The values of `${input:id}`.
    pub input: &'a dyn Fn(&str) -> Option<String>,
    pub home: Option<&'a Path>,
    /// The folder of the project whose file is read.
    pub project: Option<&'a Path>,
}

/// Why a text cannot be expanded. Never contains the value of a variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    #[error("the environment variable `{name}` is not set; set it, or write `${{{name}:-default}}`")]
    Unset { name: String },
    #[error("the environment variable `{name}` is not set")]
    UnsetEditor { name: String },
    #[error("`${{input:{id}}}` has no value; set the environment variable `{variable}`")]
    NoInput { id: String, variable: String },
    #[error("`${{{name}}}` has no value here: the file does not belong to a project")]
    NoProject { name: String },
    #[error("`${{userHome}}` has no value: the home folder is unknown")]
    NoHome,
    #[error(
        "unknown variable `${{{name}}}`; supported: env:NAME, input:ID, userHome, workspaceFolder, \
             workspaceFolderBasename, pathSeparator"
    )]
    Unknown { name: String },
}

impl Template {
    pub fn new(text: impl Into<String>, syntax: VariableSyntax) -> Self {
        Self { text: text.into(), syntax }
    }

    /// As typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn syntax(&self) -> VariableSyntax {
        self.syntax
    }

    pub fn expand(&self, variables: &Variables<'_>) -> Result<String, ExpandError> {
        match self.syntax {
            VariableSyntax::Literal => Ok(self.text.clone()),
            VariableSyntax::Shell => expand_shell(&self.text, variables),
            VariableSyntax::Editor => replace(&self.text, |name| editor_variable(name, variables)),
        }
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

/// The environment variable that stands in for a prompt of VS Code: `${input:api-key}` is `SPILE_INPUT_API_KEY`.
pub fn input_variable(id: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("SPILE_INPUT_{}", id.chars().map(upper).collect::<String>())
}

/// Replaces `${NAME}` and `${NAME:-default}`. Anything else in `${…}`, such as `${NAME%x}`, is not a reference and
/// stays, as it does in Claude Code. A default is taken as it is: it contains no further reference.
fn expand_shell(text: &str, variables: &Variables<'_>) -> Result<String, ExpandError> {
    replace(text, |inside| {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_variable_name(name) {
            return Ok(None);
        }
        match (variables.env)(name).or_else(|| default.map(str::to_owned)) {
            Some(value) => Ok(Some(value)),
            None => Err(ExpandError::Unset { name: name.to_owned() }),
        }
    })
}

fn editor_variable(name: &str, variables: &Variables<'_>) -> Result<Option<String>, ExpandError> {
    let project = || variables.project.ok_or_else(|| ExpandError::NoProject { name: name.to_owned() });
    let value = match name {
        "workspaceFolder" => project()?.display().to_string(),
        "workspaceFolderBasename" => {
            project()?.file_name().unwrap_or_default().to_string_lossy().into_owned()
        }
        "userHome" => variables.home.ok_or(ExpandError::NoHome)?.display().to_string(),
        "pathSeparator" | "/" => std::path::MAIN_SEPARATOR.to_string(),
        _ => match name.split_once(':') {
            Some(("env", name)) => {
                (variables.env)(name).ok_or_else(|| ExpandError::UnsetEditor { name: name.to_owned() })?
            }
            Some(("input", id)) => (variables.input)(id)
                .ok_or_else(|| ExpandError::NoInput { id: id.to_owned(), variable: input_variable(id) })?,
            _ => return Err(ExpandError::Unknown { name: name.to_owned() }),
        },
    };
    Ok(Some(value))
}

/// Replaces each `${…}` for which `value` returns one, in one pass: values are not expanded again.
fn replace(
    text: &str,
    value: impl Fn(&str) -> Result<Option<String>, ExpandError>,
) -> Result<String, ExpandError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start + 2..].find('}') else { break };
        let (inside, end) = (&rest[start + 2..start + 2 + length], start + 2 + length + 1);
        out.push_str(&rest[..start]);
        match value(inside)? {
            Some(value) => out.push_str(&value),
            None => out.push_str(&rest[start..end]),
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_variable_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Template, VariableSyntax, Variables};

    fn check(syntax: VariableSyntax, cases: &[(&str, &str)]) {
        let env = |name: &str| match name {
            "TOKEN" => Some("s3cret".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${TOKEN}".to_owned()),
            _ => None,
        };
        let input = |id: &str| (id == "api-key").then(|| "typed".to_owned());
        let variables = Variables {
            env: &env,
            input: &input,
            home: Some(Path::new("/home/dana")),
            project: Some(Path::new("/projects/shop")),
        };
        for (text, expected) in cases {
            let expanded = Template::new(*text, syntax).expand(&variables);
            let shown = expanded.unwrap_or_else(|error| format!("error: {error}"));
            assert_eq!(&shown, expected, "{text}");
        }
    }

    #[test]
    fn shell_variables_are_replaced_once() {
        check(
            VariableSyntax::Shell,
            &[
                ("plain", "plain"),
                ("${TOKEN}", "s3cret"),
                ("Bearer ${TOKEN}!", "Bearer s3cret!"),
                ("${TOKEN}${TOKEN}", "s3crets3cret"),
                ("${TOKEN:-x}", "s3cret"),
                ("${UNSET:-x}", "x"),
                ("${UNSET:-}", ""),
                ("${UNSET:-a:-b}", "a:-b"),
                ("${EMPTY}", ""),
                ("${EMPTY:-x}", ""),
                // A value is data, whatever it looks like.
                ("${NESTED}", "${TOKEN}"),
            ],
        );
    }

    #[test]
    fn text_that_is_no_reference_stays() {
        let kept =
            ["$TOKEN", "$$TOKEN", "${TOKEN", "${}", "${TOKEN%x}", "${1}", "${a b}", "{TOKEN}", "${:-x}"];
        let cases: Vec<_> = kept.iter().map(|text| (*text, *text)).collect();
        check(VariableSyntax::Shell, &cases);
        check(VariableSyntax::Literal, &[("${TOKEN} ${UNSET}", "${TOKEN} ${UNSET}")]);
    }

    #[test]
    fn an_unset_variable_is_an_error_that_names_it() {
        let unset =
            "error: the environment variable `UNSET` is not set; set it, or write `${UNSET:-default}`";
        check(VariableSyntax::Shell, &[("${UNSET}", unset), ("${TOKEN}${UNSET}", unset)]);
    }

    #[test]
    fn editor_variables_are_replaced() {
        check(
            VariableSyntax::Editor,
            &[
                ("${env:TOKEN}", "s3cret"),
                ("${workspaceFolder}/a", "/projects/shop/a"),
                ("${workspaceFolderBasename}", "shop"),
                ("${userHome}${/}a${pathSeparator}b", "/home/dana/a/b"),
                ("${input:api-key}", "typed"),
                ("$TOKEN ${", "$TOKEN ${"),
                ("${env:UNSET}", "error: the environment variable `UNSET` is not set"),
                (
                    "${input:other-one}",
                    "error: `${input:other-one}` has no value; set the environment variable `SPILE_INPUT_OTHER_ONE`",
                ),
                (
                    "${TOKEN}",
                    "error: unknown variable `${TOKEN}`; supported: env:NAME, input:ID, userHome, \
                     workspaceFolder, workspaceFolderBasename, pathSeparator",
                ),
            ],
        );
    }

    #[test]
    fn places_that_are_unknown_are_errors() {
        let none = |_: &str| None;
        let variables = Variables { env: &none, input: &none, home: None, project: None };
        for (text, expected) in [
            ("${userHome}", "`${userHome}` has no value: the home folder is unknown"),
            (
                "${workspaceFolder}",
                "`${workspaceFolder}` has no value here: the file does not belong to a project",
            ),
        ] {
            let error = Template::new(text, VariableSyntax::Editor).expand(&variables).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
