//! `spile call --save-test`: a call that was made becomes a test.
//!
//! Values of sensitive fields are left out of what the test expects. A sensitive argument cannot be left out, so such a call
//! is not recorded.

use std::path::Path;

use json::{Json, Node};

use super::error::{CommandError, Exit};
use super::trace::mask::SensitiveFieldMask;
use crate::atomic_file::{self, FileMode};
use crate::testing::error_value;
use crate::testing::rewrite::{self, NewExpectation, RecordedTest};

/// A file that a call can be added to, checked before the call is made.
pub(super) struct TestRecorder<'a> {
    file: &'a Path,
    text: String,
    names: Vec<String>,
    mask: SensitiveFieldMask,
}

impl<'a> TestRecorder<'a> {
    pub(super) fn open(file: &'a Path, arguments: &Json, tools: &[Json]) -> Result<Self, CommandError> {
        let shown = file.display();
        if file.extension().is_none_or(|extension| extension != "toml") {
            return Err(failed(format!("`{shown}` is not a .toml file; name one, such as tests/calls.toml")));
        }
        let mask = SensitiveFieldMask::from_tools(tools);
        if let Some(name) = mask.first_sensitive(arguments.to_doc().root()) {
            let reason = format!(
                "the argument `{name}` is sensitive, so the call is neither made nor written to a file"
            );
            return Err(failed(reason));
        }
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(format!("cannot read `{shown}`: {error}"))),
        };
        let names = rewrite::test_names(&text).ok_or_else(|| not_tests(file))?;
        Ok(Self { file, text, names, mask })
    }

    /// Appends the test and returns its name.
    pub(super) fn append(
        &self,
        tool: &str,
        arguments: &Json,
        result: Node<'_>,
        answered: &[(String, Json)],
    ) -> Result<String, CommandError> {
        let answers = answered.iter().map(|(question, reply)| answer(question, reply.to_doc().root()));
        let test = RecordedTest {
            name: unique_name(tool, arguments.to_doc().root(), &self.names),
            tool: tool.to_owned(),
            arguments: arguments.clone(),
            answers: answers.collect(),
            expectation: expectation(result, &self.mask).ok_or_else(|| {
                failed(
                    "the result is only text, and the server has sensitive fields that may be in it"
                        .to_owned(),
                )
            })?,
        };
        let text = rewrite::append_toml(&self.text, &test).ok_or_else(|| not_tests(self.file))?;
        atomic_file::create_parent_dir(self.file)
            .and_then(|()| atomic_file::write(self.file, text.as_bytes(), FileMode::PreserveOrUmask))
            .map_err(|error| failed(format!("{error:#}")))?;
        Ok(test.name)
    }
}

fn failed(reason: String) -> CommandError {
    CommandError::new(Exit::Failed, format!("--save-test: {reason}"))
}

fn not_tests(file: &Path) -> CommandError {
    failed(format!("`{}` is not a file of tests; `spile test` says what is wrong with it", file.display()))
}

fn expectation(result: Node<'_>, mask: &SensitiveFieldMask) -> Option<NewExpectation> {
    let structured = result.get("structuredContent");
    if result.get("isError").and_then(|flag| flag.bool()) == Some(true) {
        return Some(NewExpectation::OnlyError(error_value(structured.map(Json::from).as_ref())));
    }
    if let Some(structured) = structured {
        return Some(NewExpectation::OnlyValue(mask.without_sensitive(structured)));
    }
    let blocks = result.get("content").into_iter().flat_map(|all| all.elements());
    let texts: Vec<String> =
        blocks.filter_map(|block| Some(block.get("text")?.str()?.into_owned())).collect();
    mask.is_empty().then(|| NewExpectation::OnlyText(texts.join("\n")))
}

/// An answer as a test file has it.
fn answer(question: &str, reply: Node<'_>) -> Json {
    Json::object(|out| {
        out.str("question", question);
        let action = reply.get("action").and_then(|action| action.str()).unwrap_or_default();
        match (&*action, reply.get("content")) {
            ("accept", Some(content)) => out.raw("accept", content.raw()),
            ("accept", None) => out.bool("accept", true),
            ("decline", _) => out.bool("decline", true),
            _ => out.bool("cancel", true),
        };
    })
}

/// `lookup_customer email=dana@acme.test`, with a number if there is such a test.
fn unique_name(tool: &str, arguments: Node<'_>, names: &[String]) -> String {
    const NAME_CHARS_MAX: usize = 80;
    let words = arguments.members().map(|(name, value)| {
        let value = value.str().map_or_else(|| value.raw().to_owned(), |text| text.into_owned());
        format!(" {}={value}", name.str().unwrap_or_default())
    });
    let name = format!("{tool}{}", words.collect::<String>());
    let name = match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    };
    let mut numbered = (2..).map(|number| format!("{name} ({number})"));
    if !names.contains(&name) {
        return name;
    }
    numbered.find(|candidate| !names.contains(candidate)).unwrap_or(name)
}
