//! The report of `spile check` for people: tools and their token cost, sources, statements, and notes. Also how every
//! command prints diagnostics.

use std::fmt::Write;
use std::io::Write as _;

use contract::diagnostic::{Diagnostic, Severity, render_all_within};
use contract::humanize::{group_digits, pluralize};
use contract::{Contract, Tool, ToolOperation, tokens};
use json::Json;

use crate::author_folder::NOT_SERVED;
use crate::banner::is_color_enabled;
use crate::client::output_style::OutputStyle;
use crate::data_profile::{CollectionProfile, data_section};
use crate::layout::{self, ColumnFit, Table};
use crate::notice;
use crate::sanitize;

/// A report lists at most this many tools; `--json` has them all.
const TOOLS_SHOWN_MAX: usize = 60;
/// A line lists at most this many argument or column names.
const NAMES_SHOWN_MAX: usize = 20;
/// Notes with the same code beyond this number are only counted.
const NOTES_PER_CODE_MAX: usize = 3;
/// Notes without a code are of many kinds, so more of them are shown.
const NOTES_WITHOUT_CODE_MAX: usize = 12;

/// Which part of a server a tool belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolKind {
    /// Of the contract: collections and SQL.
    Data,
    /// Of author code.
    Code,
}

impl ToolKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Code => "code",
        }
    }
}

/// A tool as reports list it.
#[derive(Debug)]
pub(crate) struct ToolSummary {
    pub(crate) name: String,
    pub(crate) kind: ToolKind,
    pub(crate) tokens: usize,
    pub(crate) arguments: Vec<String>,
    /// For code, as its annotations state.
    pub(crate) writes: bool,
}

/// All tools of a server: those of the contract, then those of author code.
pub(crate) fn tool_summaries<'t>(
    contract: &Contract,
    code: impl Iterator<Item = &'t spile_core::Tool>,
) -> Vec<ToolSummary> {
    let data = contract.tools.iter().map(|tool| ToolSummary {
        name: tool.name.clone(),
        kind: ToolKind::Data,
        tokens: tool_tokens(&tool.name, &tool.description, &tool.input_schema),
        arguments: argument_names(&tool.input_schema),
        writes: operation_writes(contract, &tool.operation),
    });
    let code = code.map(|tool| ToolSummary {
        name: tool.name.clone(),
        kind: ToolKind::Code,
        tokens: tool_tokens(&tool.name, tool.description.as_deref().unwrap_or_default(), &tool.input_schema),
        arguments: argument_names(&tool.input_schema),
        writes: tool.annotations.read_only != Some(true),
    });
    data.chain(code).collect()
}

fn operation_writes(contract: &Contract, operation: &ToolOperation) -> bool {
    match operation {
        ToolOperation::Get { .. }
        | ToolOperation::List { .. }
        | ToolOperation::Search { .. }
        | ToolOperation::Aggregate { .. } => false,
        ToolOperation::Create { .. } | ToolOperation::Update { .. } | ToolOperation::Delete { .. } => true,
        ToolOperation::Statement { statement } => contract.statements[*statement].shape.writes,
        ToolOperation::Request { request } => contract.requests[*request].shape.writes,
    }
}

/// The report of `spile check`.
pub(crate) struct Report<'r> {
    pub(crate) contract: &'r Contract,
    pub(crate) tools: &'r [ToolSummary],
    pub(crate) sources: &'r [SourceSummary],
    pub(crate) data: &'r [CollectionProfile],
    /// Prompts, resources and skills.
    pub(crate) content: &'r [String],
    pub(crate) findings: &'r [&'r Diagnostic],
    /// Where the settings go that the findings name.
    pub(crate) settings_hint: Option<&'r str>,
}

impl Report<'_> {
    /// Readable without colour, and the same for the same input.
    pub(crate) fn render(&self, style: &OutputStyle) -> String {
        let Self { contract, tools, sources, data, content, findings, settings_hint } = *self;
        let total = group_digits(total_tokens(contract, tools) as u64);
        let version = version_text(&contract.version);
        let summary = format!("{} {version} · {} · about {total} tokens", contract.name, tool_count(tools));
        let mut out = layout::hanging("", &sanitize::escape_line(&summary), style.columns) + "\n";
        out += &tool_table(tools).render(style, 2);
        if let Some(more) = tools.len().checked_sub(TOOLS_SHOWN_MAX).filter(|more| *more > 0) {
            let more = format!("and {} more; --json lists them all", group_digits(more as u64));
            out += &layout::hanging("  ", &more, style.columns);
        }
        let instructions = instructions_tokens(contract);
        if instructions > 0 {
            let _ = writeln!(out, "  instructions: {} tokens", group_digits(instructions as u64));
        }
        let mut section = |heading: &str, lines: &[String]| {
            if !lines.is_empty() {
                let _ = writeln!(out, "\n{heading}");
            }
            for line in lines {
                let (indent, line) = line.strip_prefix("  ").map_or(("  ", &**line), |line| ("    ", line));
                out += &layout::hanging(indent, &sanitize::escape_line(line), style.columns);
            }
        };
        let of_source = |source: &SourceSummary| -> Vec<String> {
            let lines = source.lines.iter().map(|line| format!("  {line}"));
            std::iter::once(source.name.clone()).chain(lines).collect()
        };
        section("sources", &sources.iter().flat_map(of_source).collect::<Vec<_>>());
        section("prompts and resources", content);
        if !data.is_empty() {
            let _ = write!(out, "\ndata\n{}", data_section(data, style));
        }
        let statements: Vec<String> =
            contract.tools.iter().filter_map(|tool| statement_line(tool, contract, style)).collect();
        if !statements.is_empty() {
            out.push_str("\nSQL tools\n");
            statements
                .iter()
                .for_each(|line| out += &layout::hanging("  ", &sanitize::escape_line(line), style.columns));
        }
        let section = findings_section(findings, style);
        if !section.is_empty() {
            let _ = write!(out, "\n{section}");
        }
        let has_help = findings.iter().any(|finding| finding.help.is_some());
        if let Some(hint) = settings_hint.filter(|_| has_help) {
            out += &layout::hanging("  ", &sanitize::escape_line(hint), style.columns);
        }
        out.push('\n');
        out += &layout::hanging(
            "",
            "Token counts are estimates (o200k tokenizer); clients add their own overhead.",
            style.columns,
        );
        out
    }
}

/// `5 tools`, or if some are code `5 tools (3 data, 2 code)`
fn tool_count(tools: &[ToolSummary]) -> String {
    let count = pluralize(tools.len() as u64, "tool");
    let code = tools.iter().filter(|tool| tool.kind == ToolKind::Code).count();
    match tools.len() - code {
        _ if code == 0 => count,
        0 => format!("{count} (all code)"),
        data => format!("{count} ({data} data, {code} code)"),
    }
}

/// A version without a lock file is `0+` and a hash of the tools: `unversioned (2916ccd9)`.
pub(crate) fn version_text(version: &str) -> String {
    match version.strip_prefix("0+") {
        Some(hash) => format!("unversioned ({hash})"),
        None => version.to_owned(),
    }
}

fn tool_table(tools: &[ToolSummary]) -> Table {
    let mut table = Table::new(&["tool", "tokens", "arguments"])
        .align_right(1)
        .fit(1, ColumnFit::Drop)
        .fit(2, ColumnFit::Wrap);
    for tool in tools.iter().take(TOOLS_SHOWN_MAX) {
        let arguments = layout::join_names(&tool.arguments, NAMES_SHOWN_MAX, None);
        let cells = [tool.name.clone(), group_digits(tool.tokens as u64), arguments];
        table.rows.push(cells.iter().map(|cell| sanitize::escape_line(cell).into_owned()).collect());
    }
    table
}

/// One source in the report: its name, and a line for each table in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSummary {
    pub name: String,
    pub lines: Vec<String>,
}

/// What the source found out about a statement.
fn statement_line(tool: &Tool, contract: &Contract, style: &OutputStyle) -> Option<String> {
    let ToolOperation::Statement { statement } = tool.operation else { return None };
    let statement = &contract.statements[statement];
    let effect = match statement.shape.writes {
        true => format!("writes at most {}", pluralize(statement.shape.changes_max, "row")),
        false => "reads".into(),
    };
    let columns: Vec<String> = statement
        .result
        .fields
        .iter()
        .map(|field| format!("{} {}", field.name, field.data_type.as_str()))
        .collect();
    let returns = match columns.is_empty() {
        true => "no columns".into(),
        false => layout::join_names(&columns, NAMES_SHOWN_MAX, style.columns.map(|columns| columns * 3)),
    };
    Some(format!("{} (source {}): {effect}; returns {returns}", tool.name, statement.source))
}

/// Findings in one place: what each says, then where it is and what to do.
pub(crate) fn findings_section(notes: &[&Diagnostic], style: &OutputStyle) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let mut out = format!("findings: {}\n", severity_counts(notes));
    let mut counts: Vec<(Option<&str>, usize)> = Vec::new();
    // What does not work comes first, and in full.
    let (broken, others): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
        notes.iter().copied().partition(|note| is_broken(note));
    for note in broken.into_iter().chain(others) {
        let count = match counts.iter_mut().find(|(code, _)| *code == note.code) {
            Some((_, count)) => count,
            None => {
                counts.push((note.code, 0));
                &mut counts.last_mut().expect("just pushed").1
            }
        };
        if !is_broken(note) {
            *count += 1;
        }
        if *count > shown_max(note.code) {
            continue;
        }
        let severity = format!("  {:7}  ", note.severity.as_str());
        out += &layout::hanging(&severity, &sanitize::escape_line(&note.message), style.columns);
        let location = note.location.as_ref();
        let location = location.map(|at| format!("{}:{}:{}", at.file_name(), at.line(), at.column()));
        let help = [location, note.help.clone()].into_iter().flatten().collect::<Vec<_>>().join(": ");
        if !help.is_empty() {
            out += &layout::hanging("           ", &sanitize::escape_line(&help), style.columns);
        }
    }
    let hidden: usize = counts.iter().map(|(code, count)| count.saturating_sub(shown_max(*code))).sum();
    if hidden > 0 {
        let more = format!("and {hidden} more like these; `spile check --json` lists them all");
        out += &layout::hanging("  ", &more, style.columns);
    }
    out
}

/// Whether something is not served because of it.
fn is_broken(note: &Diagnostic) -> bool {
    note.severity == Severity::Error || note.code == Some(NOT_SERVED)
}

fn shown_max(code: Option<&str>) -> usize {
    if code.is_some() { NOTES_PER_CODE_MAX } else { NOTES_WITHOUT_CODE_MAX }
}

/// `1 warning, 2 notes`
fn severity_counts(notes: &[&Diagnostic]) -> String {
    let counts = [Severity::Error, Severity::Warning, Severity::Note].into_iter().filter_map(|severity| {
        let count = notes.iter().filter(|note| note.severity == severity).count();
        (count > 0).then(|| pluralize(count as u64, severity.as_str()))
    });
    counts.collect::<Vec<_>>().join(", ")
}

/// Tokens that a tool takes from every conversation: its name, description and input schema, which clients send to the
/// model. The output schema is not counted, because clients do not send it; results come on top.
pub(crate) fn tool_tokens(name: &str, description: &str, input_schema: &Json) -> usize {
    [name, description, input_schema.as_str()].map(tokens::estimate).iter().sum()
}

/// The same for a tool as a server lists it.
pub(crate) fn listed_tool_tokens(definition: &Json, name: &str) -> usize {
    let doc = definition.to_doc();
    let description = doc.root().get("description").and_then(|text| text.str()).unwrap_or_default();
    let input_schema = doc.root().get("inputSchema").map(Json::from);
    tool_tokens(name, &description, &input_schema.unwrap_or_else(|| Json::object(|_| {})))
}

/// Tokens that a server takes from every conversation: its tools and its instructions.
pub(crate) fn total_tokens(contract: &Contract, tools: &[ToolSummary]) -> usize {
    tools.iter().map(|tool| tool.tokens).sum::<usize>() + instructions_tokens(contract)
}

/// Tokens of the server's instructions.
pub(crate) fn instructions_tokens(contract: &Contract) -> usize {
    contract.instructions.as_deref().map_or(0, tokens::estimate)
}

pub(crate) fn argument_names(input_schema: &Json) -> Vec<String> {
    let schema = input_schema.to_doc();
    let properties = schema.root().get("properties");
    properties
        .into_iter()
        .flat_map(|properties| properties.members())
        .filter_map(|(name, _)| name.str().map(Into::into))
        .collect()
}

/// Prints the help or the error of the command line, wrapped to the width of the terminal. Returns the exit code.
pub fn print_usage(error: &clap::Error) -> std::process::ExitCode {
    let style = if error.use_stderr() { OutputStyle::stderr() } else { OutputStyle::stdout() };
    let rendered = error.render();
    let text = if style.has_color() { rendered.ansi().to_string() } else { rendered.to_string() };
    let text = layout::wrap_lines(&text, style.columns, |_| true);
    let text = sanitize::styled(&text);
    // A closed pipe is no reason to fail.
    let _ = match error.use_stderr() {
        true => std::io::stderr().write_all(text.as_bytes()),
        false => std::io::stdout().write_all(text.as_bytes()),
    };
    u8::try_from(error.exit_code()).map_or(std::process::ExitCode::FAILURE, Into::into)
}

/// Prints to stdout. A reader that closes the pipe early, such as `head`, is not an error.
pub fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(sanitize::styled(text).as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Prints diagnostics to stderr, with the lines of the file that they point to.
pub fn print_diagnostics(diagnostics: &[Diagnostic]) {
    if diagnostics.is_empty() {
        return;
    }
    if notice::is_json() {
        return notice::log_diagnostics(diagnostics);
    }
    // After notes comes more output; an error is the last thing that a command prints.
    let has_error = diagnostics.iter().any(|one| one.severity == Severity::Error);
    let text = render_all_within(diagnostics, is_color_enabled(), OutputStyle::stderr().columns);
    let text = sanitize::styled(text.trim_end());
    let _ = writeln!(std::io::stderr(), "{text}{}", if has_error { "" } else { "\n" });
}

/// Prints warnings and notes to stderr in the short form of [`notes_section`], and `about_data` below them.
pub(crate) fn print_notes(notes: &[Diagnostic], about_data: Option<&str>) {
    if notice::is_json() {
        notice::log_diagnostics(notes);
        return about_data.map_or((), notice::info);
    }
    let notes: Vec<&Diagnostic> = notes.iter().collect();
    let section = findings_section(&notes, &OutputStyle::stderr());
    if !section.is_empty() {
        let _ = writeln!(std::io::stderr(), "\n{}", sanitize::styled(section.trim_end()));
    }
    if let Some(text) = about_data {
        let blank = if section.is_empty() { "\n" } else { "" };
        let _ = writeln!(std::io::stderr(), "{blank}{text}");
    }
}

/// What a serving process reports at its start: what it does not serve, and a role with too many rights. The rest is only counted; `paths` are those
/// that `spile check` explains it for.
pub(crate) fn split_for_serving(
    diagnostics: &[Diagnostic],
    paths: &[String],
) -> (Vec<Diagnostic>, Option<String>) {
    let is_about_service = |one: &&Diagnostic| {
        one.severity == Severity::Error
            || matches!(one.code, Some("unavailable" | "skipped" | "lock" | "role" | NOT_SERVED))
    };
    let (shown, rest): (Vec<&Diagnostic>, Vec<&Diagnostic>) = diagnostics.iter().partition(is_about_service);
    let path = match paths {
        [only] => only,
        _ => "PATH",
    };
    let about_data = (!rest.is_empty())
        .then(|| format!("{} about the data: run `spile check {path}`", severity_counts(&rest)));
    (shown.into_iter().cloned().collect(), about_data)
}

#[cfg(test)]
mod tests {
    use super::{Report, findings_section, instructions_tokens, tool_summaries, version_text};
    use crate::client::output_style::OutputStyle;
    use contract::compile::{IntrospectedSource, compile};
    use contract::diagnostic::{Diagnostic, FileLocation, FileText};
    use contract::source::{ColumnFacts, SourceFacts, StatementFacts, TableFacts, WriteCapabilities};
    use contract::{Contract, DataType, manifest};
    use std::sync::Arc;

    #[test]
    fn what_is_not_served_comes_first_and_in_full() {
        let mut all: Vec<Diagnostic> =
            (1..=9).map(|n| Diagnostic::warning(format!("locale {n}")).code("script")).collect();
        all.extend((1..=9).map(|n| Diagnostic::warning(format!("not served: {n}")).code(super::NOT_SERVED)));
        let all: Vec<&Diagnostic> = all.iter().collect();
        let section = findings_section(&all, &OutputStyle::of_width(80));
        let shown: Vec<&str> = section.lines().skip(1).map(|line| line.trim_start()).collect();
        let (broken, others) = shown.split_at(9);
        assert!(broken.iter().all(|line| line.starts_with("warning  not served: ")), "{section}");
        assert!(others[0].ends_with("locale 1") && others[3].starts_with("and 6 more"), "{section}");
    }

    #[test]
    fn notes_are_counted_and_only_a_few_of_each_code_are_shown() {
        let style = OutputStyle::of_width(80);
        assert_eq!(findings_section(&[], &style), "");
        let origin = Arc::new(FileText::new("spile.toml", "[server]\nname = 'x'\n"));
        let located = |n: usize| {
            let one = Diagnostic::warning(format!("number {n}")).code("a").help("change it");
            one.at(&FileLocation::new(&origin, 9..13))
        };
        let mut all: Vec<Diagnostic> = (1..=5).map(located).collect();
        all.push(Diagnostic::note("another\u{1b}[2J").code("b").help("look"));
        let all: Vec<&Diagnostic> = all.iter().collect();
        insta::assert_snapshot!(findings_section(&all, &style), @r"
        findings: 5 warnings, 1 note
          warning  number 1
                   spile.toml:2:1: change it
          warning  number 2
                   spile.toml:2:1: change it
          warning  number 3
                   spile.toml:2:1: change it
          note     another\u{1b}[2J
                   look
          and 2 more like these; `spile check --json` lists them all
        ");
    }

    #[test]
    fn a_note_without_help_has_its_location_and_nothing_after_it() {
        let origin = Arc::new(FileText::new("spile.toml", "[server]\nname = 'x'\n"));
        let note = Diagnostic::note("one").at(&FileLocation::new(&origin, 9..13));
        let section = findings_section(&[&note], &OutputStyle::of_width(80));
        assert_eq!(section, "findings: 1 note\n  note     one\n           spile.toml:2:1\n");
    }

    fn render<'t>(contract: &Contract, code: impl Iterator<Item = &'t spile_core::Tool>) -> String {
        let tools = &tool_summaries(contract, code);
        let (sources, data, content, findings) = (&[][..], &[][..], &[][..], &[][..]);
        let report = Report { contract, tools, sources, data, content, findings, settings_hint: None };
        report.render(&OutputStyle::of_width(80))
    }

    #[test]
    fn a_version_without_a_lock_file_says_so() {
        assert_eq!(version_text("0+2916ccd9"), "unversioned (2916ccd9)");
        assert_eq!(version_text("1.2.0"), "1.2.0");
    }

    #[test]
    fn the_token_total_includes_code_tools_and_the_instructions() {
        let text = "[server]\ninstructions = 'Customer records by email.'\n\
                    [sources.crm]\npath = 'crm.csv'\n[collections.crm]\ndescription = 'People.'\n";
        let (manifest, _) = manifest::parse("spile.toml", text, &|_| None).expect("a manifest");
        let table = TableFacts::new("crm", vec![ColumnFacts::new("email", DataType::Text)]);
        let facts = SourceFacts { tables: vec![table], ..SourceFacts::default() };
        let (contract, _) = compile(&manifest, &[IntrospectedSource::new("crm", &facts)], "shop");
        let contract = contract.expect("a contract");
        let greet = spile_core::Tool::new("greet", "Greet someone.", json::Json::object(|_| {}));
        let tools = tool_summaries(&contract, std::iter::once(&greet));
        let tokens: usize = tools.iter().map(|tool| tool.tokens).sum();
        let instructions = instructions_tokens(&contract);
        assert!(instructions > 0);
        let report = render(&contract, std::iter::once(&greet));
        assert!(report.contains(&format!("about {} tokens", tokens + instructions)), "{report}");
        let data = tools.len() - 1;
        assert!(report.contains(&format!("{} tools ({data} data, 1 code)", data + 1)), "{report}");
        assert!(report.contains("\n  greet "), "{report}");
        assert!(!report.contains("\nsources"), "a heading without lines: {report}");
        assert!(report.contains("\n  instructions"), "{report}");
    }

    #[test]
    fn statements_are_reported_with_the_types_that_their_source_found() {
        let text = "[sources.crm]\npath = 'crm.db'\n\
                    [tools.top_plans]\nsql = 'select plan, count(*) as n from c where d >= :since'\n\
                    arguments.since = { type = 'date' }\ndescription = 'Plans.'\n\
                    [tools.close]\nsql = 'update c set d = 1'\nwrites = true\nchanges_max = 5\ndescription = 'Close.'\n";
        let (manifest, _) = manifest::parse("spile.toml", text, &|_| None).expect("a manifest");
        let reads = StatementFacts {
            parameters: vec!["since".into()],
            columns: vec![ColumnFacts::new("plan", DataType::Text), ColumnFacts::new("n", DataType::Integer)],
            ..StatementFacts::default()
        };
        let writes = StatementFacts { writes: Some(WriteCapabilities::ALL), ..StatementFacts::default() };
        let (facts, statements) = (SourceFacts::default(), [("top_plans", Ok(reads)), ("close", Ok(writes))]);
        let known =
            [IntrospectedSource { statements: &statements, ..IntrospectedSource::new("crm", &facts) }];
        let (contract, diagnostics) = compile(&manifest, &known, "shop");
        let contract = contract.unwrap_or_else(|| panic!("{diagnostics:?}"));
        let report = render(&contract, std::iter::empty());
        let statements = report.split("\nSQL tools").nth(1).and_then(|rest| rest.split("\n\n").next());
        insta::assert_snapshot!(statements.expect("a section of statements"), @r"

          top_plans (source crm): reads; returns plan text, n integer
          close (source crm): writes at most 5 rows; returns no columns
        ");
    }
}
