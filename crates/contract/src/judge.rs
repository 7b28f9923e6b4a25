//! Whether a changed contract still keeps what the old one promised.
//!
//! A [`Promise`] is what callers can see of a tool, without its words: those may change at any time. What
//! callers say must still be taken, so an input may only get wider; what they are told must still be what
//! they expect, so an output may only get narrower. Whatever is not understood cannot be shown to be
//! compatible, and so is breaking. The order of anything means nothing.

mod schema;

use std::collections::BTreeMap;
use std::fmt;

use call::Annotations;
use call::text::hex;
use ring::digest;
use serde_json::Value;

use crate::contract::{Confirm, Contract, Tool};
use schema::{Side, canonical, compare};

/// How much a change matters to those who know the old contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Same,
    /// Only words changed: descriptions, titles, instructions.
    Words,
    Compatible,
    Breaking,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Words | Self::Compatible => "compatible",
            Self::Breaking => "breaking",
        }
    }
}

/// One difference, where it is and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub verdict: Verdict,
    /// The tool; empty for the server itself.
    pub tool: String,
    /// `input.plan`, `output.items[].email`; empty for the tool as a whole.
    pub at: String,
    /// Half a sentence: what changed, and why that matters.
    pub why: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.tool, &*self.at) {
            ("", _) => {}
            (tool, "") => write!(f, "{tool}: ")?,
            (tool, at) => write!(f, "{tool} {at}: ")?,
        }
        f.write_str(&self.why)
    }
}

/// All that callers can rely on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Promises {
    /// A digest of what a model is told about the server; empty if that is nothing.
    pub instructions: String,
    pub tools: BTreeMap<String, Promise>,
}

/// What a tool promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// A digest of all that is only there to be read.
    pub words: String,
    pub annotations: Annotations,
    /// Whether the user is asked: a client that shows no questions is refused then.
    pub confirm: Confirm,
    /// Schemas without their words.
    pub input: Value,
    pub output: Value,
}

impl Promises {
    pub fn of(contract: &Contract) -> Self {
        let said = contract.instructions.as_deref().unwrap_or_default();
        let instructions = if said.is_empty() { String::new() } else { digest([said]) };
        let tools = contract.tools.iter().map(|tool| (tool.name.clone(), Promise::of(tool, contract)));
        Self { instructions, tools: tools.collect() }
    }
}

impl Promise {
    fn of(tool: &Tool, contract: &Contract) -> Self {
        let (input, input_words) = canonical(tool.input.as_str());
        let (output, output_words) = canonical(tool.output.as_str());
        let title = tool.title.as_deref().unwrap_or_default();
        Self {
            words: digest([title, &tool.description, &input_words, &output_words]),
            annotations: tool.offered(contract).annotations,
            confirm: tool.confirm,
            input,
            output,
        }
    }

    /// Tells it from every other.
    pub fn hash(&self) -> String {
        let hints = hints(&self.annotations).map(|(_, said)| format!("{said:?}")).join(",");
        let (input, output) = (self.input.to_string(), self.output.to_string());
        // What asks nobody has the hash that it had when nothing was known of asking.
        let asks = (self.confirm == Confirm::Ask).then_some("ask");
        digest([&self.words, &*hints, &input, &output].into_iter().chain(asks))
    }
}

/// The hints by the names that the protocol gives them.
pub(crate) fn hints(of: &Annotations) -> [(&'static str, Option<bool>); 4] {
    [
        ("readOnlyHint", of.read_only),
        ("destructiveHint", of.destructive),
        ("idempotentHint", of.idempotent),
        ("openWorldHint", of.open_world),
    ]
}

/// Half of a SHA-256, which is enough to tell texts apart, in hexadecimal digits.
fn digest<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for piece in pieces {
        context.update(&(piece.len() as u64).to_be_bytes());
        context.update(piece.as_bytes());
    }
    hex(&context.finish().as_ref()[..16])
}

/// Everything that is different, by tool. Nothing: they promise the same.
pub fn judge(old: &Promises, new: &Promises) -> Vec<Difference> {
    let mut found = Vec::new();
    if old.instructions != new.instructions {
        let why = "the instructions are other words".into();
        found.push(Difference { verdict: Verdict::Words, tool: String::new(), at: String::new(), why });
    }
    for (name, was) in &old.tools {
        match new.tools.get(name) {
            Some(is) => judge_tool(name, was, is, &mut found),
            None => {
                let why = "the tool is gone; whoever calls it fails".into();
                let (tool, at) = (name.clone(), String::new());
                found.push(Difference { verdict: Verdict::Breaking, tool, at, why });
            }
        }
    }
    for name in new.tools.keys().filter(|name| !old.tools.contains_key(*name)) {
        let (tool, at, why) = (name.clone(), String::new(), "a new tool".into());
        found.push(Difference { verdict: Verdict::Compatible, tool, at, why });
    }
    found
}

/// What all differences together come to.
pub fn worst(found: &[Difference]) -> Verdict {
    found.iter().map(|one| one.verdict).max().unwrap_or(Verdict::Same)
}

fn judge_tool(name: &str, was: &Promise, is: &Promise, found: &mut Vec<Difference>) {
    let before = found.len();
    let mut add = |verdict, at: String, why: String| {
        found.push(Difference { verdict, tool: name.to_owned(), at, why });
    };
    for ((hint, was), (_, is)) in hints(&was.annotations).into_iter().zip(hints(&is.annotations)) {
        if let Some((verdict, why)) = hint_changed(hint, was, is) {
            add(verdict, hint.to_owned(), why);
        }
    }
    match (was.confirm, is.confirm) {
        (Confirm::Never, Confirm::Ask) => {
            let why = "the user is asked now; a client that shows no questions is refused";
            add(Verdict::Breaking, "confirm".to_owned(), why.to_owned());
        }
        (Confirm::Ask, Confirm::Never) => {
            add(Verdict::Compatible, "confirm".to_owned(), "the user is not asked any more".to_owned());
        }
        (Confirm::Never, Confirm::Never) | (Confirm::Ask, Confirm::Ask) => {}
    }
    for (side, was, is) in [(Side::Input, &was.input, &is.input), (Side::Output, &was.output, &is.output)] {
        compare(side, was, is, &mut add);
    }
    // What came or went has words of its own.
    if found.len() == before && was.words != is.words {
        let (tool, at, why) = (name.to_owned(), String::new(), "it is described in other words".into());
        found.push(Difference { verdict: Verdict::Words, tool, at, why });
    }
}

/// Clients decide by hints whom to ask, and what to repeat. Unsaid means what the protocol says it means.
fn hint_changed(hint: &str, was: Option<bool>, is: Option<bool>) -> Option<(Verdict, String)> {
    let unsaid = matches!(hint, "destructiveHint" | "openWorldHint");
    let (was, is) = (was.unwrap_or(unsaid), is.unwrap_or(unsaid));
    if was == is {
        return None;
    }
    Some(match (hint, is) {
        ("readOnlyHint", false) => {
            (Verdict::Breaking, "it writes now; a client that lets reading pass would not ask".into())
        }
        ("destructiveHint", true) => {
            (Verdict::Breaking, "it can destroy now; a client that lets adding pass would not ask".into())
        }
        ("idempotentHint", false) => {
            (Verdict::Breaking, "it does more when it is repeated; a client that repeats it would".into())
        }
        _ => (Verdict::Compatible, format!("it is {is} now")),
    })
}
