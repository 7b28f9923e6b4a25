//! What `spile check` prints: the tools, what they cost, and where they come from. And what was found on the way.

use std::fmt::Write;
use std::io::Write as _;

use contract::diagnostic::{Diagnostic, Severity, render_all};
use contract::{Contract, Tool, tokens};

use crate::banner::in_colour;
use crate::words::{counted, grouped, some};

/// Readable without colour, and the same every time.
pub fn report(contract: &Contract, sources: &[String]) -> String {
    let costs: Vec<usize> = contract.tools.iter().map(cost).collect();
    let total = costs.iter().sum::<usize>() as u64;
    let tools = counted(contract.tools.len() as u64, "tool");
    let mut out =
        format!("{} {} · {tools} · about {} tokens\n\n", contract.name, contract.version, grouped(total));
    let width = contract.tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
    for (tool, cost) in contract.tools.iter().zip(&costs) {
        let _ =
            writeln!(out, "  {:width$}  {:>6} tokens  {}", tool.name, grouped(*cost as u64), arguments(tool));
    }
    out.push_str("\nsources\n");
    for source in sources {
        let _ = writeln!(out, "  {source}");
    }
    out.push_str("\nTokens are an estimate for the o200k vocabulary; clients add a little of their own.\n");
    out
}

/// What a tool costs every conversation: its name, its description and what it takes. Results cost extra.
fn cost(tool: &Tool) -> usize {
    tokens::estimate(&tool.name) + tokens::estimate(&tool.description) + tokens::estimate(tool.input.as_str())
}

fn arguments(tool: &Tool) -> String {
    let schema = tool.input.doc();
    let properties = schema.root().get("properties");
    let names: Vec<String> = properties
        .into_iter()
        .flat_map(|properties| properties.members())
        .filter_map(|(name, _)| name.str().map(Into::into))
        .collect();
    some(&names.iter().map(String::as_str).collect::<Vec<_>>(), 8)
}

/// Says on stderr what is wrong or worth knowing.
pub fn tell(found: &[Diagnostic]) {
    if found.is_empty() {
        return;
    }
    // Behind notes comes more; an error is the end.
    let is_end = found.iter().any(|one| one.severity == Severity::Error);
    let text = render_all(found, in_colour());
    let _ = writeln!(std::io::stderr(), "{}{}", text.trim_end(), if is_end { "" } else { "\n" });
}
