//! A test as its author wrote it, checked: what is called, and the expected result.

use contract::diagnostic::{Diagnostic, FileLocation};
use contract::nearest;
use json::Json;

use super::document::{FileValue, LocatedValue, Member};

/// A test file has at most this many tests.
const TESTS_MAX: usize = 10_000;

#[derive(Debug, Clone)]
pub(super) struct TestCase {
    pub(super) name: String,
    pub(super) location: FileLocation,
    /// Its position in the file.
    pub(super) index: usize,
    pub(super) request: TestRequest,
    /// For the questions of the server, in their order.
    pub(super) answers: Vec<Answer>,
    pub(super) expectation: Expectation,
}

#[derive(Debug, Clone)]
pub(super) enum TestRequest {
    CallTool { name: String, arguments: Json },
    ReadResource { uri: String },
    GetPrompt { name: String, arguments: Json },
}

/// The expected result. Everything that is `None` may be anything.
#[derive(Debug, Clone)]
pub(super) enum Expectation {
    Result {
        value: Option<LocatedValue>,
        is_exact: bool,
        text: TextExpectation,
    },
    ToolError {
        value: Option<LocatedValue>,
        text: TextExpectation,
    },
    /// A JSON-RPC error with this code.
    RpcError {
        code: i64,
        text: TextExpectation,
    },
}

#[derive(Debug, Clone, Default)]
pub(super) struct TextExpectation {
    pub(super) exact: Option<(String, FileLocation)>,
    pub(super) contains: Vec<(String, FileLocation)>,
}

#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// The question must contain this text.
    pub(super) question: Option<String>,
    pub(super) reply: AnswerReply,
}

#[derive(Debug, Clone)]
pub(super) enum AnswerReply {
    /// The values of a form; none for a page that was completed.
    Accept(Option<Json>),
    Decline,
    Cancel,
    /// The text of a model.
    Sample(String),
    /// The roots of the client, as addresses.
    Roots(Vec<String>),
}

const TEST_KEYS: [&str; 11] = [
    "name",
    "call",
    "read",
    "prompt",
    "arguments",
    "answers",
    "expect",
    "exact",
    "error",
    "text",
    "contains",
];
const ANSWER_KEYS: [&str; 6] = ["question", "accept", "decline", "cancel", "sample", "roots"];

/// All tests of a file, or everything that is wrong with it.
pub(super) fn read_cases(root: &LocatedValue) -> Result<Vec<TestCase>, Vec<Diagnostic>> {
    let mut problems = Vec::new();
    let mut cases = Vec::new();
    let FileValue::Table(members) = &root.value else {
        return Err(vec![
            Diagnostic::error(format!("a test file is a table with `test`, not {}", root.kind()))
                .at(&root.location),
        ]);
    };
    check_keys(members, &["test"], "a test file", &mut problems);
    let tests = member(members, "test").map(|one| &one.value);
    match tests.map(|tests| (&tests.value, tests)) {
        None => {
            let help = "write `[[test]]`, with `name`, `call` and `expect` below it";
            problems.push(Diagnostic::error("the file has no tests").at(&root.location).help(help));
        }
        Some((FileValue::Array(all), tests)) if all.len() > TESTS_MAX => {
            let message = format!("{} tests exceed the limit of {TESTS_MAX}", all.len());
            problems.push(Diagnostic::error(message).at(&tests.location).help("write several files"));
        }
        Some((FileValue::Array(all), _)) => {
            for (index, test) in all.iter().enumerate() {
                match read_case(test, index) {
                    Ok(case) => cases.push(case),
                    Err(found) => problems.extend(found),
                }
            }
        }
        Some((_, tests)) => {
            let message = format!("`test` is a list of tests, not {}", tests.kind());
            problems.push(Diagnostic::error(message).at(&tests.location).help("write `[[test]]`"));
        }
    }
    for (position, case) in cases.iter().enumerate() {
        if cases[..position].iter().any(|earlier| earlier.name == case.name) {
            let message = format!("another test of this file is named `{}`", case.name);
            problems
                .push(Diagnostic::error(message).at(&case.location).help("give each test a name of its own"));
        }
    }
    if problems.is_empty() { Ok(cases) } else { Err(problems) }
}

fn read_case(test: &LocatedValue, index: usize) -> Result<TestCase, Vec<Diagnostic>> {
    let FileValue::Table(members) = &test.value else {
        let message = format!("a test is a table, not {}", test.kind());
        return Err(vec![Diagnostic::error(message).at(&test.location)]);
    };
    let mut reader = CaseReader { members, location: &test.location, problems: Vec::new() };
    check_keys(members, &TEST_KEYS, "a test", &mut reader.problems);
    let name = reader.text("name");
    if name.is_none() && member(members, "name").is_none() {
        reader.problem("the test has no `name`", "say in a few words what must happen");
    }
    let location = member(members, "name").map_or(&test.location, |one| &one.value.location).clone();
    let request = reader.request();
    let answers = reader.answers();
    let expectation = reader.expectation();
    match (name, request, reader.problems.is_empty()) {
        (Some(name), Some(request), true) => {
            Ok(TestCase { name, location, index, request, answers, expectation })
        }
        _ => Err(reader.problems),
    }
}

struct CaseReader<'m> {
    members: &'m [Member],
    location: &'m FileLocation,
    problems: Vec<Diagnostic>,
}

impl<'m> CaseReader<'m> {
    fn get(&self, name: &str) -> Option<&'m LocatedValue> {
        member(self.members, name).map(|one| &one.value)
    }

    fn problem(&mut self, message: impl Into<String>, help: &str) {
        self.problems.push(Diagnostic::error(message).at(self.location).help(help));
    }

    fn wrong_type(&mut self, name: &str, value: &LocatedValue, expected: &str) {
        let message = format!("`{name}` is {}; expected {expected}", value.kind());
        self.problems.push(Diagnostic::error(message).at(&value.location));
    }

    fn text(&mut self, name: &str) -> Option<String> {
        let value = self.get(name)?;
        let text = value.text();
        if text.is_none() {
            self.wrong_type(name, value, "a text");
        }
        text
    }

    fn bool(&mut self, name: &str) -> bool {
        let Some(value) = self.get(name) else { return false };
        value.bool().unwrap_or_else(|| {
            self.wrong_type(name, value, "true or false");
            false
        })
    }

    fn request(&mut self) -> Option<TestRequest> {
        let arguments = match self.get("arguments") {
            Some(value) if !matches!(value.value, FileValue::Table(_)) => {
                self.wrong_type("arguments", value, "a table, such as { email = \"dana@acme.test\" }");
                return None;
            }
            value => value.map(LocatedValue::to_json),
        };
        let named: Vec<&'static str> =
            ["call", "read", "prompt"].into_iter().filter(|key| self.get(key).is_some()).collect();
        let [key] = *named else {
            let message = match named.len() {
                0 => "the test calls nothing".to_owned(),
                _ => format!("the test has both `{}` and `{}`", named[0], named[1]),
            };
            self.problem(message, "write one of `call = \"TOOL\"`, `read = \"URI\"` and `prompt = \"NAME\"`");
            return None;
        };
        let name = self.text(key)?;
        if key == "read"
            && let Some(value) = self.get("arguments")
        {
            self.problems.push(Diagnostic::error("a resource takes no `arguments`").at(&value.location));
        }
        let arguments = arguments.unwrap_or_else(|| Json::object(|_| {}));
        Some(match key {
            "call" => TestRequest::CallTool { name, arguments },
            "read" => TestRequest::ReadResource { uri: name },
            _ => TestRequest::GetPrompt { name, arguments },
        })
    }

    fn expectation(&mut self) -> Expectation {
        let text = self.text_expectation();
        let is_exact = self.bool("exact");
        let value = self.get("expect").cloned();
        if is_exact && value.is_none() {
            self.problem("`exact` has no effect without `expect`", "write `expect`, or leave `exact` out");
        }
        let Some(error) = self.get("error") else { return Expectation::Result { value, is_exact, text } };
        if let Some(value) = value {
            let message = "a test expects either a result (`expect`) or an `error`";
            self.problems.push(Diagnostic::error(message).at(&value.location).help("leave one of them out"));
        }
        match (&error.value, error.text(), error.integer(), error.bool()) {
            (_, Some(code), ..) => {
                let code = Json::object(|out| {
                    out.str("code", &code);
                });
                let value = FileValue::Table(vec![Member {
                    name: "code".to_owned(),
                    name_location: error.location.clone(),
                    value: LocatedValue {
                        value: FileValue::Scalar(Json::from(
                            code.to_doc().root().get("code").expect("just written"),
                        )),
                        location: error.location.clone(),
                    },
                }]);
                let value = LocatedValue { value, location: error.location.clone() };
                Expectation::ToolError { value: Some(value), text }
            }
            (_, _, Some(code), _) => Expectation::RpcError { code, text },
            (_, _, _, Some(true)) => Expectation::ToolError { value: None, text },
            (FileValue::Table(_), ..) => Expectation::ToolError { value: Some(error.clone()), text },
            _ => {
                let expected = "the code of a tool error (\"not_found\"), a table, the number of a protocol error \
                                (-32602), or true";
                self.wrong_type("error", error, expected);
                Expectation::ToolError { value: None, text }
            }
        }
    }

    fn text_expectation(&mut self) -> TextExpectation {
        let exact = self.text("text").zip(self.get("text").map(|value| value.location.clone()));
        let mut contains = Vec::new();
        if let Some(value) = self.get("contains") {
            let all: Vec<&LocatedValue> = match &value.value {
                FileValue::Array(all) => all.iter().collect(),
                FileValue::Scalar(_) | FileValue::Table(_) => vec![value],
            };
            for one in all {
                match one.text() {
                    Some(text) => contains.push((text, one.location.clone())),
                    None => self.wrong_type("contains", one, "a text or a list of texts"),
                }
            }
        }
        TextExpectation { exact, contains }
    }

    fn answers(&mut self) -> Vec<Answer> {
        let Some(value) = self.get("answers") else { return Vec::new() };
        let FileValue::Array(all) = &value.value else {
            self.wrong_type("answers", value, "a list, such as [{ accept = { confirm = true } }]");
            return Vec::new();
        };
        all.iter().filter_map(|one| self.answer(one)).collect()
    }

    fn answer(&mut self, value: &LocatedValue) -> Option<Answer> {
        let reply = match value.text().as_deref() {
            Some("accept") => Some(AnswerReply::Accept(None)),
            Some("decline") => Some(AnswerReply::Decline),
            Some("cancel") => Some(AnswerReply::Cancel),
            Some(_) | None => None,
        };
        if let Some(reply) = reply {
            return Some(Answer { question: None, reply });
        }
        let help = "write { accept = { FIELD = VALUE } }, \"decline\" or \"cancel\"";
        let FileValue::Table(members) = &value.value else {
            let message = format!(
                "an answer is {}; expected a table, \"accept\", \"decline\" or \"cancel\"",
                value.kind()
            );
            self.problems.push(Diagnostic::error(message).at(&value.location).help(help));
            return None;
        };
        check_keys(members, &ANSWER_KEYS, "an answer", &mut self.problems);
        let mut inner = CaseReader { members, location: &value.location, problems: Vec::new() };
        let question = inner.text("question");
        let mut replies = Vec::new();
        if let Some(content) = inner.get("accept") {
            match (&content.value, content.bool()) {
                (FileValue::Table(_), _) => replies.push(AnswerReply::Accept(Some(content.to_json()))),
                (_, Some(true)) => replies.push(AnswerReply::Accept(None)),
                _ => inner.wrong_type("accept", content, "a table with the fields of the form, or true"),
            }
        }
        if inner.bool("decline") {
            replies.push(AnswerReply::Decline);
        }
        if inner.bool("cancel") {
            replies.push(AnswerReply::Cancel);
        }
        replies.extend(inner.text("sample").map(AnswerReply::Sample));
        if let Some(roots) = inner.get("roots") {
            match &roots.value {
                FileValue::Array(all) if all.iter().all(|one| one.text().is_some()) => {
                    replies.push(AnswerReply::Roots(all.iter().filter_map(LocatedValue::text).collect()));
                }
                _ => inner.wrong_type("roots", roots, "a list of addresses, such as [\"file:///work\"]"),
            }
        }
        if replies.len() != 1 && inner.problems.is_empty() {
            inner.problem("an answer is one of `accept`, `decline`, `cancel`, `sample` and `roots`", help);
        }
        self.problems.append(&mut inner.problems);
        let reply = replies.pop()?;
        Some(Answer { question, reply })
    }
}

fn member<'m>(members: &'m [Member], name: &str) -> Option<&'m Member> {
    members.iter().find(|one| one.name == name)
}

fn check_keys(members: &[Member], known: &[&str], what: &str, problems: &mut Vec<Diagnostic>) {
    for member in members.iter().filter(|member| !known.contains(&&*member.name)) {
        let message = format!("{what} has no key `{}`", member.name);
        let help = match nearest(&member.name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known keys: {}", known.join(", ")),
        };
        problems.push(Diagnostic::error(message).at(&member.name_location).help(help));
    }
}
