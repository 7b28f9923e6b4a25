//! Performance bounds that a bench run must meet.

use std::fmt::Write;

use super::report::{Report, floor_of, median};

/// One performance bound.
pub struct Gate {
    pub name: &'static str,
    pub bound: Bound,
    /// `None` if the rows that it needs were not measured.
    pub value: Option<f64>,
    pub unit: &'static str,
}

#[derive(Clone, Copy)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Gate {
    pub fn is_met(&self) -> Option<bool> {
        self.value.map(|value| match self.bound {
            Bound::AtMost(limit) => value <= limit,
            Bound::AtLeast(limit) => value >= limit,
        })
    }
}

/// Evaluates every gate on `report`.
pub fn evaluate(report: &Report) -> Vec<Gate> {
    use Bound::{AtLeast, AtMost};
    // CPU of one timed row over another's of the same round.
    let over_floor = |row: &str| median(&report.ratios(row, floor_of(row))?);
    let cpu = |row: &str, base: &str| median(&report.ratios(row, base)?);
    let counted = |name: &str| report.counts.iter().find(|count| count.name == name);
    let instructions = |name: &str| counted(name).map(|count| count.instructions);
    let allocations = |name: &str| counted(name).map(|count| count.allocations);
    let shared = |name: &str| counted(name)?.locked_shared();
    let locked = |name: &str| counted(name)?.locked_total();
    let more_tools = || {
        let ten = instructions("count spile m26 call")?;
        let thousand = instructions("count spile m26 call, 1000 tools")?;
        Some((thousand / ten - 1.0).abs() * 100.0)
    };
    let beside_code = || {
        let alone = instructions("count spile csv m26 call")?;
        let beside = instructions("count spile csv+code m26 call")?;
        Some((beside / alone - 1.0).abs() * 100.0)
    };
    let gate = |name, bound, unit, value| Gate { name, bound, value, unit };
    vec![
        gate("call m26, CPU over the floor", AtMost(1.0), "x", over_floor("http spile m26 call")),
        gate("call j25, CPU over the floor", AtMost(1.0), "x", over_floor("http spile j25 call")),
        gate("call s25, CPU over the floor", AtMost(1.0), "x", over_floor("http spile s25 call")),
        gate(
            "call m26, rmcp's CPU over ours",
            AtLeast(3.0),
            "x",
            cpu("http rmcp m26 call", "http spile m26 call"),
        ),
        gate(
            "call j25, rmcp's CPU over ours",
            AtLeast(2.5),
            "x",
            cpu("http rmcp j25 call", "http spile j25 call"),
        ),
        gate(
            "call s25, rmcp's CPU over ours",
            AtLeast(2.5),
            "x",
            cpu("http rmcp s25 call", "http spile s25 call"),
        ),
        gate(
            "call of a CSV row, CPU over the floor",
            AtMost(1.15),
            "x",
            over_floor("http spile csv m26 call"),
        ),
        gate(
            "call of a SQLite row, CPU over the floor",
            AtMost(1.35),
            "x",
            over_floor("http spile sqlite m26 call"),
        ),
        gate(
            "call of a CSV row, rmcp's CPU over ours",
            AtLeast(2.0),
            "x",
            cpu("http rmcp csv m26 call", "http spile csv m26 call"),
        ),
        gate(
            "call of a SQLite row, rmcp's CPU over ours",
            AtLeast(2.0),
            "x",
            cpu("http rmcp sqlite m26 call", "http spile sqlite m26 call"),
        ),
        gate(
            "call of a TypeScript tool, CPU over the floor",
            AtMost(1.8),
            "x",
            over_floor("http spile code m26 call"),
        ),
        gate(
            "call of a TypeScript tool with a session, the TypeScript SDK's CPU over ours",
            AtLeast(12.0),
            "x",
            cpu("http ts-sdk s25 call", "http spile code s25 call"),
        ),
        gate(
            "call of a TypeScript tool, the CPU of the TypeScript SDK, version 2, over ours",
            AtLeast(12.0),
            "x",
            cpu("http ts-sdk-2 m26 call", "http spile code m26 call"),
        ),
        gate(
            "stdio pipelined, rmcp's CPU over ours",
            AtLeast(15.0),
            "x",
            cpu("stdio rmcp pipelined", "stdio spile pipelined"),
        ),
        gate(
            "the same with rmcp on its usual transport",
            AtLeast(15.0),
            "x",
            cpu("stdio rmcp-plain pipelined", "stdio spile pipelined"),
        ),
        gate("call m26, instructions", AtMost(15_000.0), "", instructions("count spile m26 call")),
        gate("call j25, instructions", AtMost(12_500.0), "", instructions("count spile j25 call")),
        gate("call s25, instructions", AtMost(15_000.0), "", instructions("count spile s25 call")),
        gate(
            "call of a CSV row, instructions",
            AtMost(18_500.0),
            "",
            instructions("count spile csv m26 call"),
        ),
        gate("call m26, allocations", AtMost(6.0), "", allocations("count spile m26 call")),
        gate("call j25, allocations", AtMost(6.0), "", allocations("count spile j25 call")),
        gate("call s25, allocations", AtMost(8.0), "", allocations("count spile s25 call")),
        gate(
            "list m26 of ten tools, instructions",
            AtMost(10_500.0),
            "",
            instructions("count spile m26 list"),
        ),
        gate("list m26 of ten tools, allocations", AtMost(6.0), "", allocations("count spile m26 list")),
        // 29 on the day of the gate, 10 of them on lines that workers share (ADR 0210): more than 12 of those are too many. Which
        // of them are shared is told by the name of the function, and the compiler may inline one into another: the sum is not
        // open to that.
        gate("call m26, locked operations", AtMost(31.0), "", locked("count spile m26 call")),
        gate("call j25, locked operations", AtMost(31.0), "", locked("count spile j25 call")),
        gate("call s25, locked operations", AtMost(31.0), "", locked("count spile s25 call")),
        gate("call m26, locked operations on shared lines", AtMost(12.0), "", shared("count spile m26 call")),
        gate("call j25, locked operations on shared lines", AtMost(12.0), "", shared("count spile j25 call")),
        gate("call s25, locked operations on shared lines", AtMost(12.0), "", shared("count spile s25 call")),
        // The engine is in the binary in both cases, but only one of them has set it up (ADR 0400).
        gate("call of a CSV row beside code, instructions", AtMost(2.0), " % apart", beside_code()),
        gate("call with 1,000 tools against ten, instructions", AtMost(2.0), " % apart", more_tools()),
    ]
}

/// Prints the gates of one bench; a missed gate is an error.
pub fn print_and_check(gates: &[Gate]) -> anyhow::Result<()> {
    print!("{}", table(gates));
    let missed = gates.iter().filter(|gate| gate.is_met() == Some(false)).count();
    anyhow::ensure!(missed == 0, "{missed} of {} gates missed", gates.len());
    Ok(())
}

/// The gates for a terminal.
pub fn table(gates: &[Gate]) -> String {
    let mut text = String::from("\ngates\n");
    for gate in gates {
        let verdict = match gate.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "-",
        };
        let value = gate.value.map_or("not measured".into(), |value| format_value(value, gate.unit));
        let bound = match gate.bound {
            Bound::AtMost(limit) => format!("at most {}", format_value(limit, gate.unit)),
            Bound::AtLeast(limit) => format!("at least {}", format_value(limit, gate.unit)),
        };
        let _ = writeln!(text, "  {verdict:<7} {:<48} {value:>14}   {bound}", gate.name);
    }
    text
}

fn format_value(value: f64, unit: &str) -> String {
    if value >= 100.0 { format!("{value:.0}{unit}") } else { format!("{value:.2}{unit}") }
}
