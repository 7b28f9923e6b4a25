//! `spile test`: runs the tests of a folder against its server, in this process.
//!
//! ```text
//! tests/*.toml, *.json → document (located values) → case (what is called, the expected result)
//!   → runner (client, pipe, server) → matching (differences) → a line for each test, or rewrite with --update
//! ```
//!
//! A file that calls a tool which may write runs on a copy of the folder. The tests of one file run in order and see each
//! other's writes; files do not.

mod case;
mod document;
mod matching;
pub(crate) mod rewrite;
mod runner;
mod working_copy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use contract::diagnostic::{Diagnostic, FileLocation, FileText, Severity};
use contract::humanize::pluralize;
use json::Json;
use wire::Version;

use self::case::{Expectation, TestCase, TestRequest, TextExpectation};
use self::document::FileFormat;
use self::matching::{Exactness, Mismatch, MismatchKind};
use self::rewrite::NewExpectation;
use self::runner::{CodeFailures, Response, RunOptions, TestRun, TestedServer};
use self::working_copy::WorkingCopy;
use crate::atomic_file::{self, FileMode};
use crate::author_folder::{CodeEvent, log_code_event};
use crate::client::output_style::OutputStyle;
use crate::reload::BreakingChangePolicy;
use crate::report::{print, print_diagnostics};
use crate::sanitize;
use crate::serve::Service;

/// The folder of the test files, in the folder of the project.
pub const TESTS_FOLDER: &str = "tests";
const FILE_BYTES_MAX: u64 = 16 << 20;
/// A failed test shows at most this many differences.
const DIFFERENCES_SHOWN_MAX: usize = 20;

#[derive(Debug, Args)]
pub struct TestArgs {
    /// A folder with a spile.toml or data files, and the folder `tests` in it; or a file beside that folder
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// Run only tests whose name or file contains this text; can be repeated
    #[arg(long, value_name = "TEXT")]
    pub filter: Vec<String>,
    /// Replace expected results that differ by the actual ones
    #[arg(long)]
    pub update: bool,
    /// Run tests that write on the data itself, not on a copy of the folder
    #[arg(long)]
    pub in_place: bool,
    /// Use this protocol version only
    #[arg(long, value_name = "VERSION", value_parser = crate::client::parse_version)]
    pub protocol: Option<Version>,
    /// How long to wait for each response
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}

/// Whether the tests passed, apart from whether they could be run.
const TEST_FAILED: u8 = 1;
const CANNOT_RUN: u8 = 2;

pub fn test(args: &TestArgs) -> ExitCode {
    match run(args) {
        Ok(code) => code,
        Err(error) => {
            print_diagnostics(&[Diagnostic::error(crate::error_text(&error))]);
            CANNOT_RUN.into()
        }
    }
}

fn run(args: &TestArgs) -> anyhow::Result<ExitCode> {
    let files = match read_files(&args.path)? {
        Ok(files) => files,
        Err(problems) => {
            print_diagnostics(&problems);
            return Ok(CANNOT_RUN.into());
        }
    };
    let files: Vec<TestFile> = files.into_iter().map(|file| file.filtered(&args.filter)).collect();
    if files.iter().all(|file| file.cases.is_empty()) {
        bail!(
            "no test matches {}",
            args.filter.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(" or ")
        );
    }
    let Some(original) = start_server(&args.path)? else { return Ok(CANNOT_RUN.into()) };
    let options = RunOptions { protocol: args.protocol, timeout_ms: args.timeout * 1000 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut totals = Totals::default();
    let style = OutputStyle::stdout();
    for file in files.iter().filter(|file| !file.cases.is_empty()) {
        let copied = match file.first_writer(&original.server) {
            Some(tool) if !args.in_place => Some(copied_server(args, file, tool, &original)?),
            Some(_) | None => None,
        };
        let server = copied.as_ref().map_or(&original.server, |(server, _)| server);
        let mut changes = Vec::new();
        for case in &file.cases {
            let outcome = judge(case, runtime.block_on(server.run(case, &options)));
            let change = if args.update { outcome.change() } else { None };
            totals.count(&outcome, change.is_some());
            print(&outcome.render(case, change.is_some(), &style))?;
            changes.extend(change.map(|change| (case.index, change)));
        }
        file.apply(&changes)?;
    }
    runtime.shutdown_background();
    print(&totals.line())?;
    Ok(if totals.failed > 0 { TEST_FAILED.into() } else { ExitCode::SUCCESS })
}

/// The server that the tests call.
struct ProjectServer {
    server: TestedServer,
    /// Files of sources, for the question whether a copy protects them.
    source_files: Vec<PathBuf>,
}

/// `None` if the project cannot be served; the reasons are printed.
fn start_server(path: &Path) -> anyhow::Result<Option<ProjectServer>> {
    let (service, diagnostics) = Service::from_path(path)?;
    let errors: Vec<Diagnostic> = diagnostics
        .into_iter()
        .filter(|one| one.severity == Severity::Error || one.code == Some("unavailable"))
        .collect();
    print_diagnostics(&errors);
    let Some(service) = service else { return Ok(None) };
    let source_files = service.source_files();
    // A test needs no reloads: the watches end here.
    let code_failures = CodeFailures::default();
    let failures = code_failures.clone();
    let on_code = move |event: &CodeEvent<'_>| match event {
        CodeEvent::Failed { diagnostic, .. } => failures.push(diagnostic.to_string()),
        CodeEvent::Reloaded(_) | CodeEvent::Rejected(_) | CodeEvent::Problem(_) => log_code_event(event),
    };
    let (server, _author) = service.into_server(BreakingChangePolicy::KeepOld, Arc::new(on_code))?;
    let server = TestedServer::start(server, code_failures).context("cannot start the server")?;
    Ok(Some(ProjectServer { server, source_files }))
}

/// A server on a copy of the folder, which exists as long as the second part.
fn copied_server(
    args: &TestArgs,
    file: &TestFile,
    tool: &str,
    original: &ProjectServer,
) -> anyhow::Result<(TestedServer, WorkingCopy)> {
    let folder = project_folder(&args.path).canonicalize()?;
    let is_outside = |path: &&PathBuf| !path.canonicalize().is_ok_and(|path| path.starts_with(&folder));
    if let Some(outside) = original.source_files.iter().find(is_outside) {
        bail!(
            "{} calls `{tool}`, which may write, and the data in `{}` is outside of the folder, where a copy does not \
             protect it; --in-place runs the tests on the data itself",
            file.origin.file_name,
            outside.display()
        );
    }
    let copy = WorkingCopy::of(&args.path)?;
    let Some(server) = start_server(&copy.project)? else { bail!("the copy of the folder cannot be served") };
    Ok((server.server, copy))
}

fn project_folder(path: &Path) -> &Path {
    match path.is_dir() {
        true => path,
        false => path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    }
}

struct TestFile {
    path: PathBuf,
    origin: Arc<FileText>,
    format: FileFormat,
    cases: Vec<TestCase>,
}

/// All test files, sorted by name, or everything that is wrong with them.
fn read_files(path: &Path) -> anyhow::Result<Result<Vec<TestFile>, Vec<Diagnostic>>> {
    if !path.exists() {
        return Err(crate::project::not_found::path_error(path, std::io::ErrorKind::NotFound.into()));
    }
    let folder = project_folder(path).join(TESTS_FOLDER);
    let mut paths = Vec::new();
    if let Ok(entries) = std::fs::read_dir(&folder) {
        for entry in entries {
            let path = entry?.path();
            let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if !is_hidden && path.is_file() && file_format(&path).is_some() {
                paths.push(path);
            }
        }
    }
    paths.sort();
    if paths.is_empty() {
        bail!(
            "no tests in `{}`: write {TESTS_FOLDER}/NAME.toml, or record a call with `spile call TOOL … --save-test FILE`",
            folder.display()
        );
    }
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        let shown = path.strip_prefix("./").unwrap_or(&path).display().to_string();
        let size = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        if size > FILE_BYTES_MAX {
            bail!("`{shown}` has {size} bytes, which exceeds the limit of {FILE_BYTES_MAX}");
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{shown}`"))?;
        let origin = Arc::new(FileText::new(shown, text));
        let Some(format) = file_format(&path) else { continue };
        let cases = document::parse(&origin, format).map_err(|problem| vec![problem]);
        match cases.and_then(|root| case::read_cases(&root)) {
            Ok(cases) => files.push(TestFile { path, origin, format, cases }),
            Err(found) => problems.extend(found),
        }
    }
    Ok(if problems.is_empty() { Ok(files) } else { Err(problems) })
}

fn file_format(path: &Path) -> Option<FileFormat> {
    match path.extension()?.to_str()? {
        "toml" => Some(FileFormat::Toml),
        "json" => Some(FileFormat::Json),
        _ => None,
    }
}

impl TestFile {
    fn filtered(mut self, filter: &[String]) -> Self {
        let name = self.origin.file_name.clone();
        self.cases.retain(|case| {
            filter.is_empty() || filter.iter().any(|text| case.name.contains(text) || name.contains(text))
        });
        self
    }

    /// The first tool of the file that may write.
    fn first_writer(&self, server: &TestedServer) -> Option<&str> {
        self.cases.iter().find_map(|case| match &case.request {
            TestRequest::CallTool { name, .. } if !server.only_reads(name) => Some(name.as_str()),
            TestRequest::CallTool { .. }
            | TestRequest::ReadResource { .. }
            | TestRequest::GetPrompt { .. } => None,
        })
    }

    /// Writes the new expectations into the file.
    fn apply(&self, changes: &[(usize, NewExpectation)]) -> anyhow::Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let text = match self.format {
            FileFormat::Toml => rewrite::update_toml(&self.origin.text, changes),
            FileFormat::Json => rewrite::update_json(&self.origin.text, changes),
        };
        let text = text.with_context(|| format!("cannot update `{}`", self.path.display()))?;
        atomic_file::write(&self.path, text.as_bytes(), FileMode::PreserveOrUmask)
    }
}

/// What is wrong with a response, and the response.
struct TestOutcome {
    failures: Vec<Failure>,
    run: TestRun,
    expectation: Expectation,
}

struct Failure {
    message: String,
    location: Option<FileLocation>,
}

/// Compares a response with the expectation of its test.
fn judge(case: &TestCase, run: TestRun) -> TestOutcome {
    let mut failures: Vec<Failure> =
        run.problems.iter().map(|message| Failure { message: message.clone(), location: None }).collect();
    match (&run.response, &case.expectation) {
        (Err(message), _) => failures.push(Failure { message: message.clone(), location: None }),
        (
            Ok(Response::Result { value, text }),
            Expectation::Result { value: expected, is_exact, text: texts },
        ) => {
            let exactness = if *is_exact { Exactness::Exact } else { Exactness::Subset };
            compare_value(expected.as_ref(), value.as_ref(), exactness, &mut failures);
            compare_text(texts, text, &mut failures);
        }
        (
            Ok(Response::ToolError { value, text }),
            Expectation::ToolError { value: expected, text: texts },
        ) => {
            compare_value(expected.as_ref(), value.as_ref(), Exactness::Subset, &mut failures);
            compare_text(texts, text, &mut failures);
        }
        (Ok(Response::RpcError { code, text }), Expectation::RpcError { code: expected, text: texts }) => {
            if code != expected {
                let message = format!("expected the protocol error {expected}, got {code}: {text}");
                failures.push(Failure { message, location: None });
            }
            compare_text(texts, text, &mut failures);
        }
        (Ok(response), expected) => {
            let expected = match expected {
                Expectation::Result { .. } => "a result",
                Expectation::ToolError { .. } => "a tool error",
                Expectation::RpcError { .. } => "a protocol error",
            };
            let message = format!("expected {expected}, got {}", describe(response));
            failures.push(Failure { message, location: None });
        }
    }
    TestOutcome { failures, run, expectation: case.expectation.clone() }
}

fn describe(response: &Response) -> String {
    match response {
        Response::Result { value: Some(value), .. } => format!("a result: {value}"),
        Response::Result { value: None, text } => format!("a result: {text}"),
        Response::ToolError { text, .. } => format!("a tool error: {text}"),
        Response::RpcError { code, text } => format!("the protocol error {code}: {text}"),
    }
}

fn compare_value(
    expected: Option<&document::LocatedValue>,
    got: Option<&Json>,
    exactness: Exactness,
    failures: &mut Vec<Failure>,
) {
    let Some(expected) = expected else { return };
    let Some(got) = got else {
        let message = "the result has no structured content to compare; use `text` or `contains`".to_owned();
        failures.push(Failure { message, location: Some(expected.location.clone()) });
        return;
    };
    for Mismatch { path, kind, location } in matching::compare(expected, got.to_doc().root(), exactness) {
        let subject = if path.is_empty() { "the result".to_owned() } else { path };
        let message = match kind {
            MismatchKind::Different { expected, got } => format!("{subject}: expected {expected}, got {got}"),
            MismatchKind::Missing { expected } => {
                format!("{subject}: expected {expected}, but it is missing")
            }
            MismatchKind::Unexpected { got } => format!("{subject}: not expected, got {got}"),
            MismatchKind::Length { expected, got } => {
                format!("{subject}: expected {}, got {got}", pluralize(expected as u64, "element"))
            }
        };
        failures.push(Failure { message, location: Some(location) });
    }
}

fn compare_text(expected: &TextExpectation, got: &str, failures: &mut Vec<Failure>) {
    if let Some((text, location)) = &expected.exact
        && text != got
    {
        let message = format!("text: expected {}, got {}", Json::string(text), Json::string(got));
        failures.push(Failure { message, location: Some(location.clone()) });
    }
    for (text, location) in expected.contains.iter().filter(|(text, _)| !got.contains(text.as_str())) {
        let message =
            format!("the text does not contain {}; it is {}", Json::string(text), Json::string(got));
        failures.push(Failure { message, location: Some(location.clone()) });
    }
}

impl TestOutcome {
    /// What to write into the file so that the test passes; `None` if it passes, or if that would not help.
    fn change(&self) -> Option<NewExpectation> {
        if !self.run.problems.is_empty() {
            return None;
        }
        let says_nothing = matches!(
            &self.expectation,
            Expectation::Result { value: None, text, .. } if text.exact.is_none() && text.contains.is_empty()
        );
        if self.failures.is_empty() && !says_nothing {
            return None;
        }
        match (self.run.response.as_ref().ok()?, &self.expectation) {
            (
                Response::Result { value: Some(got), .. },
                Expectation::Result { value: Some(expected), is_exact, .. },
            ) if !self.is_text_failure() => {
                let exactness = if *is_exact { Exactness::Exact } else { Exactness::Subset };
                Some(NewExpectation::Value(matching::adapt(expected, got.to_doc().root(), exactness)))
            }
            (Response::Result { text, .. }, Expectation::Result { text: expected, .. })
                if expected.exact.is_some() || !expected.contains.is_empty() =>
            {
                Some(NewExpectation::Text(text.clone()))
            }
            (Response::Result { value: Some(got), .. }, _) => Some(NewExpectation::OnlyValue(got.clone())),
            (Response::Result { value: None, text }, _) => Some(NewExpectation::OnlyText(text.clone())),
            (Response::ToolError { value, .. }, _) => {
                Some(NewExpectation::OnlyError(error_value(value.as_ref())))
            }
            (Response::RpcError { code, .. }, _) => Some(NewExpectation::OnlyRpcError(*code)),
        }
    }

    fn is_text_failure(&self) -> bool {
        self.failures
            .iter()
            .all(|one| one.message.starts_with("text: ") || one.message.starts_with("the text "))
    }

    fn render(&self, case: &TestCase, is_updated: bool, style: &OutputStyle) -> String {
        let name = sanitize::escape_line(&case.name);
        if is_updated {
            return format!("{}  {name}\n", style.cyan("updated"));
        }
        if self.failures.is_empty() {
            return format!("{}       {name}\n", style.green("ok"));
        }
        let place = format!("{}:{}", case.location.file_name(), case.location.line());
        let mut out =
            format!("{}   {name}  {}\n", style.red("FAILED"), style.faint(&sanitize::escape_line(&place)));
        for Failure { message, location } in self.failures.iter().take(DIFFERENCES_SHOWN_MAX) {
            let line = location.as_ref().map(|at| format!("line {}: ", at.line())).unwrap_or_default();
            out += &format!("           {line}{}\n", sanitize::escape_line(message));
        }
        if let Some(more) = self.failures.len().checked_sub(DIFFERENCES_SHOWN_MAX).filter(|more| *more > 0) {
            out += &format!("           and {more} more differences\n");
        }
        for line in self.run.code_failures.iter().flat_map(|failure| failure.lines()) {
            out += &format!("           {}\n", sanitize::escape_line(line));
        }
        out
    }
}

/// The code of a tool error, if it has one.
pub(crate) fn error_value(structured: Option<&Json>) -> Json {
    let doc = structured.map(Json::to_doc);
    let code = doc.as_ref().and_then(|doc| doc.root().get("code")).filter(|code| code.str().is_some());
    code.map_or_else(|| Json::parse("true").expect("valid JSON"), Json::from)
}

#[derive(Default)]
struct Totals {
    passed: usize,
    failed: usize,
    updated: usize,
}

impl Totals {
    fn count(&mut self, outcome: &TestOutcome, is_updated: bool) {
        match (is_updated, outcome.failures.is_empty()) {
            (true, _) => self.updated += 1,
            (false, true) => self.passed += 1,
            (false, false) => self.failed += 1,
        }
    }

    fn line(&self) -> String {
        let total = pluralize((self.passed + self.failed + self.updated) as u64, "test");
        let parts = [(self.passed, "passed"), (self.failed, "failed"), (self.updated, "updated")];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        format!("\n{total}: {}\n", parts.join(", "))
    }
}
