//! How the user wants `sampling/createMessage` of servers to be answered, as it is written in their own file.
//!
//! Only a file of the user is read for it: a file that came with a project could send what servers ask, and the answers of the
//! user's model, elsewhere.

use json::{Json, Node};

use super::dialect::{EntryError, Fields};
use super::template::{Template, VariableSyntax};

/// What answers servers that ask for a completion of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplingSettings {
    pub model: SamplingModel,
    /// How long one answer may take.
    pub timeout_ms: u64,
    /// A server gets no longer answers, whatever it asks for.
    pub tokens_max: u64,
    /// Servers whose requests are answered without asking the user.
    pub allow: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SamplingModel {
    /// A program with the request on its stdin and the answer on its stdout.
    Command { command: Template, args: Vec<Template>, env: Vec<(String, Template)> },
    /// An address that gets the request in the body of a POST.
    Endpoint {
        url: Template,
        headers: Vec<(String, Template)>,
        format: SamplingFormat,
        /// Which model is asked for. Required where the format has one.
        model: Option<String>,
    },
}

/// How an endpoint wants the request, and how it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingFormat {
    /// The parameters and the result of `sampling/createMessage`.
    Mcp,
    /// `/v1/chat/completions`.
    OpenAi,
    /// `/v1/messages`.
    Anthropic,
}

impl SamplingFormat {
    pub const ALL: [Self; 3] = [Self::Mcp, Self::OpenAi, Self::Anthropic];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }
}

const TIMEOUT_MS_DEFAULT: u64 = 120_000;
const TIMEOUT_MS_MAX: u64 = 30 * 60 * 1000;
const TOKENS_MAX_DEFAULT: u64 = 4096;
const KEYS: [&str; 9] =
    ["command", "args", "env", "url", "headers", "format", "model", "timeout", "maxTokens"];

impl SamplingSettings {
    /// The member `sampling` of a file; `None` if it has none.
    pub(super) fn parse_file(file: &Json) -> Option<Result<Self, EntryError>> {
        let doc = file.to_doc();
        Some(Self::parse(doc.root().get("sampling")?))
    }

    fn parse(node: Node<'_>) -> Result<Self, EntryError> {
        if !node.is_object() {
            return Err(EntryError("`sampling` is not an object".to_owned()));
        }
        for (key, _) in node.members() {
            let key = key.str().unwrap_or_default();
            if key != "allow" && !KEYS.contains(&&*key) {
                let known = KEYS.join(", ");
                return Err(EntryError(format!(
                    "unknown key `{}` of `sampling`; supported: {known}, allow",
                    key.escape_debug()
                )));
            }
        }
        let fields = Fields { node, syntax: VariableSyntax::Shell };
        let model = match (fields.text("command")?, fields.text("url")?) {
            (Some(_), Some(_)) => {
                return Err(EntryError("`sampling` has both `command` and `url`; remove one".to_owned()));
            }
            (None, None) => {
                return Err(EntryError("`sampling` has neither `command` nor `url`".to_owned()));
            }
            (Some(command), None) => {
                misplaced(fields, &["headers", "format", "model"], "url")?;
                SamplingModel::Command {
                    command: fields.template(command),
                    args: fields.templates("args")?,
                    env: fields.pairs("env")?,
                }
            }
            (None, Some(url)) => {
                misplaced(fields, &["args", "env"], "command")?;
                let (format, model) = (format(fields)?, fields.text("model")?);
                if model.is_none() && format != SamplingFormat::Mcp {
                    return Err(EntryError(format!(
                        "`sampling` has the format `{}` and no `model`; name one",
                        format.name()
                    )));
                }
                SamplingModel::Endpoint {
                    url: fields.template(url),
                    headers: fields.pairs("headers")?,
                    format,
                    model,
                }
            }
        };
        let timeout_ms = fields.milliseconds("timeout", 1)?.unwrap_or(TIMEOUT_MS_DEFAULT);
        if timeout_ms > TIMEOUT_MS_MAX {
            return Err(EntryError(format!("`timeout` exceeds the limit of {TIMEOUT_MS_MAX} ms")));
        }
        let tokens_max = match fields.member("maxTokens") {
            None => TOKENS_MAX_DEFAULT,
            Some(node) => node
                .u64()
                .filter(|tokens| *tokens > 0)
                .ok_or_else(|| EntryError("`maxTokens` is not a positive integer".to_owned()))?,
        };
        let allow = fields.texts("allow")?.unwrap_or_default();
        Ok(Self { model, timeout_ms, tokens_max, allow })
    }
}

fn format(fields: Fields<'_>) -> Result<SamplingFormat, EntryError> {
    let Some(text) = fields.text("format")? else { return Ok(SamplingFormat::Mcp) };
    SamplingFormat::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
        let known = SamplingFormat::ALL.map(SamplingFormat::name).join(", ");
        EntryError(format!("unknown `format` `{}`; supported: {known}", text.escape_debug()))
    })
}

fn misplaced(fields: Fields<'_>, keys: &[&str], needs: &str) -> Result<(), EntryError> {
    match keys.iter().find(|key| fields.member(key).is_some()) {
        Some(key) => Err(EntryError(format!("`{key}` of `sampling` needs a `{needs}`"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::SamplingSettings;

    fn check(sampling: &str, expected: &str) {
        let file = Json::parse(&format!(r#"{{"sampling": {sampling}}}"#)).expect("JSON");
        let shown = match SamplingSettings::parse_file(&file).expect("it has one") {
            Ok(settings) => format!("{settings:?}"),
            Err(error) => format!("error: {error}"),
        };
        assert!(shown.contains(expected), "{sampling}: {shown}");
    }

    #[test]
    fn a_model_is_a_command_or_an_endpoint() {
        check(r#"{"command": "ask", "args": ["-m", "${M:-x}"]}"#, r#"args: ["-m", "${M:-x}"]"#);
        check(r#"{"command": "ask"}"#, "timeout_ms: 120000, tokens_max: 4096, allow: []");
        check(r#"{"url": "http://127.0.0.1/"}"#, "format: Mcp, model: None");
        check(
            r#"{"url": "http://a/", "format": "openai", "model": "m"}"#,
            r#"format: OpenAi, model: Some("m")"#,
        );
        check(
            r#"{"command": "ask", "timeout": 1500, "maxTokens": 9, "allow": ["a"]}"#,
            r#"timeout_ms: 1500, tokens_max: 9, allow: ["a"]"#,
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        check("[]", "error: `sampling` is not an object");
        check("{}", "error: `sampling` has neither `command` nor `url`");
        check(r#"{"command": "a", "url": "b"}"#, "error: `sampling` has both");
        check(r#"{"command": "a", "model": "m"}"#, "error: `model` of `sampling` needs a `url`");
        check(r#"{"url": "a", "args": []}"#, "error: `args` of `sampling` needs a `command`");
        check(
            r#"{"url": "a", "format": "openai"}"#,
            "error: `sampling` has the format `openai` and no `model`",
        );
        check(
            r#"{"url": "a", "format": "grpc"}"#,
            "error: unknown `format` `grpc`; supported: mcp, openai, anthropic",
        );
        check(r#"{"command": "a", "retries": 3}"#, "error: unknown key `retries` of `sampling`");
        check(r#"{"command": "a", "timeout": 0}"#, "error: `timeout` is not a positive number");
        check(r#"{"command": "a", "timeout": 1e9}"#, "error: `timeout` exceeds the limit of 1800000 ms");
        check(r#"{"command": "a", "maxTokens": 1.5}"#, "error: `maxTokens` is not a positive integer");
        check(r#"{"command": "a", "allow": "all"}"#, "error: `allow` is not a list of texts");
    }
}
