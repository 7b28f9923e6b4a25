//! A file of `prompts/` as a prompt: what the front matter declares, and the template.

use contract::diagnostic::Diagnostic;
use spile_core::{CallError, Prompt, PromptArgument};

use crate::backend::CompletionSource;
use crate::files::FileTree;
use crate::front_matter::{Fields, FrontMatter, Reporter, find_front_matter, parse_front_matter};
use crate::limits::ContentLimits;
use crate::template::{ArgumentValue, RESERVED_NAMES, Scope, Template, TemplateFiles};
use crate::yaml::{Yaml, YamlMember, YamlNode};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadedPrompt {
    pub(crate) prompt: Prompt,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) template: Template,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Argument {
    pub(crate) name: String,
    title: Option<String>,
    description: Option<String>,
    is_required: bool,
    is_list: bool,
    /// The only values that are accepted.
    allowed: Option<Vec<String>>,
    pub(crate) completion: Option<CompletionSource>,
    /// Where its name is in the file.
    span: std::ops::Range<usize>,
}

pub(crate) const ARGUMENTS_MAX: usize = 64;

/// Loads `prompts/*.md`. A file with an error is left out.
pub(crate) fn load_prompts(
    tree: &FileTree,
    limits: &ContentLimits,
    files: &dyn TemplateFiles,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<LoadedPrompt> {
    let mut prompts: Vec<LoadedPrompt> = Vec::new();
    for path in tree.files.keys() {
        let Some((name, extension)) = path.rsplit_once('.') else { continue };
        if path.contains('/') || !extension.eq_ignore_ascii_case("md") {
            continue;
        }
        let file_name = format!("{}/{path}", tree.label);
        let text = match tree.read(path, limits.prompt_bytes_max) {
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(_) => {
                    let message = format!("`{file_name}` is not UTF-8");
                    diagnostics.push(Diagnostic::error(message).help("save the file as UTF-8"));
                    continue;
                }
            },
            Err(error) => {
                diagnostics.push(error.diagnostic(&file_name, limits.prompt_bytes_max));
                continue;
            }
        };
        if prompts.iter().any(|prompt| prompt.prompt.name == name) {
            let message = format!("`{file_name}`: another file has the prompt `{name}`");
            diagnostics.push(Diagnostic::error(message).help("rename one of them"));
            continue;
        }
        let mut reporter = Reporter::new(&file_name, &text);
        let prompt = parse_prompt(name, &text, limits, files, &mut reporter);
        prompts.extend(prompt.filter(|_| !reporter.has_errors()));
        diagnostics.append(&mut reporter.diagnostics);
    }
    prompts
}

pub(crate) fn parse_prompt(
    name: &str,
    text: &str,
    limits: &ContentLimits,
    files: &dyn TemplateFiles,
    reporter: &mut Reporter,
) -> Option<LoadedPrompt> {
    let (members, body_start) = match find_front_matter(text) {
        FrontMatter::Absent => (Vec::new(), 0),
        FrontMatter::Unclosed => {
            reporter.error(0..3, "the front matter is not closed", "add a line with `---` after it");
            return None;
        }
        FrontMatter::Present { yaml, body_start } => {
            (parse_front_matter(reporter, yaml, limits.front_matter_bytes_max)?, body_start)
        }
    };
    let mut fields = Fields::new(members, reporter);
    let (title, description, icons) = (fields.text("title"), fields.text("description"), fields.icons());
    let arguments = fields.list("arguments").unwrap_or_default();
    let arguments = read_arguments(arguments, fields.reporter);
    fields.refuse_unknown();
    let scope = Scope {
        arguments: arguments.iter().map(|argument| argument.name.as_str()).collect(),
        lists: arguments.iter().map(|argument| argument.is_list).collect(),
        files,
    };
    let template = Template::parse(body_start, &scope, reporter);
    for (index, argument) in arguments.iter().enumerate() {
        if !template.uses_argument(index) && !reporter.has_errors() {
            let message = format!("argument `{}` is not used", argument.name);
            let help = format!("write `{{{{{}}}}}` where its value belongs, or remove it", argument.name);
            reporter.warning(argument.span.clone(), message, help);
        }
    }
    if text[body_start..].trim().is_empty() {
        reporter.error(text.len()..text.len(), "the prompt has no text", "write it after the front matter");
    }
    let prompt = Prompt {
        name: name.to_owned(),
        title,
        description,
        arguments: arguments.iter().map(Argument::to_catalog).collect(),
        icons,
        meta: None,
    };
    Some(LoadedPrompt { prompt, arguments, template })
}

fn read_arguments(items: Vec<YamlNode>, reporter: &mut Reporter) -> Vec<Argument> {
    let mut arguments: Vec<Argument> = Vec::new();
    for item in items {
        let span = item.span.clone();
        let members = match item.value {
            Yaml::Map(members) => members,
            // A bare name.
            Yaml::Text(_) => {
                vec![YamlMember { key: "name".into(), key_span: span.clone(), value: item }]
            }
            other => {
                let message = format!("an argument is a name or a mapping, not {}", other.kind());
                reporter.error(span, message, "write `- name: topic`");
                continue;
            }
        };
        let mut fields = Fields::new(members, reporter);
        let name = fields.located_text("name");
        let mut argument = Argument {
            name: String::new(),
            title: fields.text("title"),
            description: fields.text("description"),
            is_required: fields.bool("required").unwrap_or(false),
            is_list: fields.bool("list").unwrap_or(false),
            allowed: None,
            completion: None,
            span: span.clone(),
        };
        let allowed = fields.texts("enum");
        let completion = fields.take("complete");
        fields.refuse_unknown();
        let Some((name, name_span)) = name else {
            reporter.error(span, "an argument needs a `name`", "add `name: …`");
            continue;
        };
        if let Some(problem) = name_problem(&name, &arguments) {
            reporter.error(name_span, problem, "choose another name, such as `topic`");
            continue;
        }
        argument.name = name;
        argument.span = name_span;
        argument.allowed = allowed.map(|values| values.into_iter().map(|(value, _)| value).collect());
        if argument.allowed.as_ref().is_some_and(Vec::is_empty) {
            reporter.error(span.clone(), "`enum` is empty", "list the values, or remove `enum`");
        }
        argument.completion = match completion {
            Some(completion) => read_completion(completion, reporter),
            None => argument.allowed.clone().map(CompletionSource::Values),
        };
        if arguments.len() == ARGUMENTS_MAX {
            let message = format!("a prompt has at most {ARGUMENTS_MAX} arguments");
            reporter.error(span, message, "remove some arguments");
            break;
        }
        arguments.push(argument);
    }
    arguments
}

fn name_problem(name: &str, earlier: &[Argument]) -> Option<String> {
    let mut characters = name.chars();
    let is_valid = characters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && characters.all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if !is_valid {
        return Some(format!("`{name}` is not a name: letters, digits, `_`, `-` and `.` are"));
    }
    if RESERVED_NAMES.contains(&name) {
        return Some(format!("`{name}` has a meaning in templates"));
    }
    earlier.iter().any(|other| other.name == name).then(|| format!("two arguments have the name `{name}`"))
}

/// `complete:` is a list of values, `{collection, field}` or `{files}`.
fn read_completion(node: YamlNode, reporter: &mut Reporter) -> Option<CompletionSource> {
    let span = node.span.clone();
    let key_span = span.clone();
    match node.value {
        Yaml::Map(members) => {
            let mut fields = Fields::new(members, reporter);
            let (collection, field) = (fields.text("collection"), fields.text("field"));
            let files = fields.text("files");
            fields.refuse_unknown();
            match (collection, field, files) {
                (Some(collection), Some(field), None) => {
                    Some(CompletionSource::Collection { collection, field })
                }
                (None, None, Some(folder)) => {
                    let folder = folder.trim_matches('/').to_owned();
                    let folder = if folder == "." { String::new() } else { folder };
                    Some(CompletionSource::Files { folder })
                }
                _ => {
                    let help = "write `{ collection: customers, field: email }` or `{ files: guides }`";
                    reporter.error(span, "`complete` needs a collection and a field, or files", help);
                    None
                }
            }
        }
        value @ Yaml::List(_) => {
            let members =
                vec![YamlMember { key: "complete".into(), key_span, value: YamlNode { value, span } }];
            let values = Fields::new(members, reporter).texts("complete")?;
            Some(CompletionSource::Values(values.into_iter().map(|(value, _)| value).collect()))
        }
        other => {
            let message = format!("`complete`: expected a list or a mapping, found {}", other.kind());
            reporter.error(span, message, "list the values, or name a collection and a field");
            None
        }
    }
}

impl Argument {
    fn to_catalog(&self) -> PromptArgument {
        PromptArgument {
            name: self.name.clone(),
            title: self.title.clone(),
            description: self.description.clone(),
            required: self.is_required,
        }
    }

    fn value(&self, text: Option<&str>) -> Result<ArgumentValue, CallError> {
        let Some(text) = text else {
            return match self.is_required {
                true => Err(invalid_argument(&self.name, "missing")),
                false => Ok(ArgumentValue::Absent),
            };
        };
        let check = |value: &str| match &self.allowed {
            Some(allowed) if !allowed.iter().any(|known| known == value) => {
                Err(invalid_argument(&self.name, &format!("expected one of: {}", allowed.join(", "))))
            }
            Some(_) | None => Ok(()),
        };
        if !self.is_list {
            check(text)?;
            return Ok(ArgumentValue::Text(text.to_owned()));
        }
        let items = split_list(text);
        items.iter().try_for_each(|item| check(item))?;
        Ok(ArgumentValue::List(items))
    }
}

/// The items of a list argument: one per line, or between commas if there is only one line.
fn split_list(text: &str) -> Vec<String> {
    let separator = if text.trim().contains('\n') { '\n' } else { ',' };
    text.split(separator).map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

pub(crate) fn invalid_argument(name: &str, reason: &str) -> CallError {
    CallError::InvalidParams { path: format!("params.arguments.{name}"), reason: reason.to_owned() }
}

impl LoadedPrompt {
    /// The values of the call's arguments, in the order of the declaration.
    pub(crate) fn values(&self, call: &spile_core::Call) -> Result<Vec<ArgumentValue>, CallError> {
        if let Some(arguments) = call.arguments() {
            for (key, value) in arguments.members() {
                let key = key.str().unwrap_or_default();
                if !self.arguments.iter().any(|argument| argument.name == key) {
                    let known: Vec<&str> =
                        self.arguments.iter().map(|argument| argument.name.as_str()).collect();
                    let reason = match (contract::nearest(&key, known.iter().copied()), known.as_slice()) {
                        (Some(near), _) => format!("unknown argument; did you mean `{near}`?"),
                        (None, []) => "unknown argument; this prompt has none".to_owned(),
                        (None, _) => format!("unknown argument; known arguments: {}", known.join(", ")),
                    };
                    return Err(invalid_argument(&key, &reason));
                }
                if value.str().is_none() {
                    return Err(invalid_argument(&key, "expected a string"));
                }
            }
        }
        self.arguments
            .iter()
            .map(|argument| argument.value(call.text_argument(&argument.name).as_deref()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::split_list;

    #[test]
    fn a_list_has_one_item_per_line_or_between_commas() {
        for (text, expected) in [
            ("a, b ,c", &["a", "b", "c"][..]),
            ("a\nb, c\n", &["a", "b, c"]),
            ("one", &["one"]),
            ("", &[]),
            (" , ,", &[]),
            ("a\r\nb", &["a", "b"]),
            ("a, b\n", &["a", "b"]),
        ] {
            assert_eq!(split_list(text), expected, "{text:?}");
        }
    }
}
