//! What `spile check` prints for people: the tools, what they cost, where they come from, and what is worth a look.
//! And what was found on the way.

use std::fmt::Write;
use std::io::Write as _;

use contract::diagnostic::{Diagnostic, Severity, render_all};
use contract::humanize::{group_digits, join_truncated, pluralize};
use contract::{Contract, Tool, ToolOperation, tokens};

use crate::banner::is_color_enabled;
use crate::sanitize;

/// So many findings of one sort are shown; what is beyond is counted.
const SHOWN_PER_CODE_MAX: usize = 3;

/// Readable without colour, and the same every time.
pub(crate) fn report(contract: &Contract, sources: &[String], findings: &[Diagnostic]) -> String {
    let costs: Vec<usize> = contract.tools.iter().map(token_cost).collect();
    let instructions = instructions_cost(contract);
    let total = (costs.iter().sum::<usize>() + instructions) as u64;
    let tools = pluralize(contract.tools.len() as u64, "tool");
    let mut out = format!(
        "{} {} · {tools} · about {} tokens\n\n",
        contract.name,
        contract.version,
        group_digits(total)
    );
    let names = contract.tools.iter().map(|tool| tool.name.len());
    let width = names.chain((instructions > 0).then_some("instructions".len())).max().unwrap_or(0);
    for (tool, cost) in contract.tools.iter().zip(&costs) {
        let (cost, arguments) = (group_digits(*cost as u64), join_truncated(&argument_names(tool), 8));
        let _ = writeln!(out, "  {:width$}  {cost:>6} tokens  {arguments}", tool.name);
    }
    if instructions > 0 {
        let cost = group_digits(instructions as u64);
        let _ = writeln!(out, "  {:width$}  {cost:>6} tokens", "instructions");
    }
    out.push_str("\nsources\n");
    for source in sources {
        let _ = writeln!(out, "  {source}");
    }
    let proven: Vec<String> =
        contract.tools.iter().filter_map(|tool| statement_line(tool, contract)).collect();
    if !proven.is_empty() {
        out.push_str("\nstatements, each prepared and typed by its source\n");
        proven.iter().for_each(|line| out.extend(["  ", line, "\n"]));
    }
    out += &findings_section(findings);
    out.push_str("\nTokens are an estimate for the o200k vocabulary; clients add a little of their own.\n");
    out
}

/// What a source has made of a statement.
fn statement_line(tool: &Tool, contract: &Contract) -> Option<String> {
    let ToolOperation::Statement { statement } = tool.operation else { return None };
    let statement = &contract.statements[statement];
    let does = match statement.shape.writes {
        true => format!("writes at most {}", pluralize(statement.shape.changes_max, "row")),
        false => "reads".into(),
    };
    let typed: Vec<String> = statement
        .result
        .fields
        .iter()
        .map(|field| format!("{} {}", field.name, field.data_type.as_str()))
        .collect();
    let gives = if typed.is_empty() { "nothing".into() } else { join_truncated(&typed, 8) };
    Some(format!("{} on {}: {does}; gives {gives}", tool.name, statement.source))
}

/// One line for what it is, one for where and the way out.
fn findings_section(findings: &[Diagnostic]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let mut out = format!("\nworth a look: {}\n", severity_counts(findings));
    let mut seen: Vec<(Option<&str>, usize)> = Vec::new();
    for one in findings {
        let times = match seen.iter_mut().find(|(code, _)| *code == one.code) {
            Some((_, times)) => times,
            None => {
                seen.push((one.code, 0));
                &mut seen.last_mut().expect("it was just put there").1
            }
        };
        *times += 1;
        if *times > SHOWN_PER_CODE_MAX {
            continue;
        }
        let word = one.severity.as_str();
        let place =
            one.location.as_ref().map(|at| format!("{}:{}:{}: ", at.file_name(), at.line(), at.column()));
        let way_out = format!("{}{}", place.unwrap_or_default(), one.help.as_deref().unwrap_or_default());
        let _ = writeln!(out, "  {word:7}  {}", sanitize::escape_line(&one.message));
        let _ = writeln!(out, "           {}", sanitize::escape_line(&way_out));
    }
    let more: usize = seen.iter().map(|(_, times)| times.saturating_sub(SHOWN_PER_CODE_MAX)).sum();
    if more > 0 {
        let _ = writeln!(out, "  and {more} more of these sorts; --json has them all");
    }
    out
}

/// `1 warning, 2 notes`
fn severity_counts(findings: &[Diagnostic]) -> String {
    let counted = [Severity::Error, Severity::Warning, Severity::Note].into_iter().filter_map(|severity| {
        let times = findings.iter().filter(|one| one.severity == severity).count();
        (times > 0).then(|| pluralize(times as u64, severity.as_str()))
    });
    counted.collect::<Vec<_>>().join(", ")
}

/// What a tool costs every conversation: its name, its description and what it takes. Results cost extra.
pub(crate) fn token_cost(tool: &Tool) -> usize {
    tokens::estimate(&tool.name)
        + tokens::estimate(&tool.description)
        + tokens::estimate(tool.input_schema.as_str())
}

/// What the instructions cost every conversation.
pub(crate) fn instructions_cost(contract: &Contract) -> usize {
    contract.instructions.as_deref().map_or(0, tokens::estimate)
}

pub(crate) fn argument_names(tool: &Tool) -> Vec<String> {
    let schema = tool.input_schema.to_doc();
    let properties = schema.root().get("properties");
    properties
        .into_iter()
        .flat_map(|properties| properties.members())
        .filter_map(|(name, _)| name.str().map(Into::into))
        .collect()
}

/// On stdout. A reader that has seen enough, such as `head`, is no failure.
pub fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Says on stderr what is wrong or worth knowing.
pub fn print_diagnostics(found: &[Diagnostic]) {
    if found.is_empty() {
        return;
    }
    // Behind notes comes more; an error is the end.
    let is_end = found.iter().any(|one| one.severity == Severity::Error);
    let text = render_all(found, is_color_enabled());
    let _ = writeln!(std::io::stderr(), "{}{}", text.trim_end(), if is_end { "" } else { "\n" });
}

#[cfg(test)]
mod tests {
    use super::{findings_section, instructions_cost, report, token_cost};
    use contract::compile::{KnownSource, compile};
    use contract::diagnostic::{Diagnostic, FileLocation, FileText};
    use contract::source::{ColumnFacts, SourceFacts, StatementFacts, TableFacts};
    use contract::{DataType, manifest};
    use std::sync::Arc;

    #[test]
    fn findings_are_counted_and_only_a_few_of_a_sort_are_shown() {
        assert_eq!(findings_section(&[]), "");
        let origin = Arc::new(FileText::new("spile.toml", "[server]\nname = 'x'\n"));
        let placed = |n: usize| {
            let one = Diagnostic::warning(format!("number {n}")).code("a").help("change it");
            one.at(&FileLocation::new(&origin, 9..13))
        };
        let mut all: Vec<Diagnostic> = (1..=5).map(placed).collect();
        all.push(Diagnostic::note("another\u{1b}[2J").code("b").help("look"));
        insta::assert_snapshot!(findings_section(&all), @r"

        worth a look: 5 warnings, 1 note
          warning  number 1
                   spile.toml:2:1: change it
          warning  number 2
                   spile.toml:2:1: change it
          warning  number 3
                   spile.toml:2:1: change it
          note     another\u{1b}[2J
                   look
          and 2 more of these sorts; --json has them all
        ");
    }

    #[test]
    fn the_token_total_includes_the_instructions() {
        let text = "[server]\ninstructions = 'Customer records by email.'\n\
                    [sources.crm]\npath = 'crm.csv'\n[collections.crm]\ndescription = 'People.'\n";
        let (manifest, _) = manifest::parse("spile.toml", text, &|_| None).expect("a manifest");
        let table = TableFacts::new("crm", vec![ColumnFacts::new("email", DataType::Text)]);
        let facts = SourceFacts { tables: vec![table], ..SourceFacts::default() };
        let (contract, _) = compile(&manifest, &[KnownSource::new("crm", &facts)], "shop");
        let contract = contract.expect("a contract");
        let tools: usize = contract.tools.iter().map(token_cost).sum();
        let instructions = instructions_cost(&contract);
        assert!(instructions > 0);
        let report = report(&contract, &[], &[]);
        assert!(report.contains(&format!("about {} tokens", tools + instructions)), "{report}");
        assert!(report.contains("\n  instructions"), "{report}");
    }

    #[test]
    fn statements_are_told_as_their_source_proved_them() {
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
        let writes = StatementFacts { writes: true, ..StatementFacts::default() };
        let (facts, statements) = (SourceFacts::default(), [("top_plans", Ok(reads)), ("close", Ok(writes))]);
        let known = [KnownSource { statements: &statements, ..KnownSource::new("crm", &facts) }];
        let (contract, told) = compile(&manifest, &known, "shop");
        let contract = contract.unwrap_or_else(|| panic!("{told:?}"));
        let report = report(&contract, &[], &[]);
        let proven = report.split("\nstatements").nth(1).and_then(|rest| rest.split("\n\n").next());
        insta::assert_snapshot!(proven.expect("statements are told"), @r"
        , each prepared and typed by its source
          top_plans on crm: reads; gives plan text, n integer
          close on crm: writes at most 5 rows; gives nothing
        ");
    }
}
