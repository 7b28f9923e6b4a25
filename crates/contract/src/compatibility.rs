//! Whether a changed contract still keeps what the old one promised.
//!
//! A [`Promise`] is what callers can see of a tool, without its words: those may change at any time. What
//! callers say must still be taken, so an input may only get wider; what they are told must still be what
//! they expect, so an output may only get narrower. Whatever is not understood cannot be shown to be
//! compatible, and so is breaking. The order of anything means nothing.

mod schema;

use std::collections::BTreeMap;
use std::fmt;

use ring::digest;
use serde_json::Value;
use spile_core::ToolAnnotations;
use spile_core::text::hex;

use crate::contract::{Confirm, Contract, Tool};
pub use schema::schema_structure;
use schema::{SchemaSide, canonical, compare_side};

/// How much a change matters to those who know the old contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compatibility {
    Same,
    /// Only words changed: descriptions, titles, instructions.
    TextOnly,
    Compatible,
    Breaking,
}

impl Compatibility {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::TextOnly | Self::Compatible => "compatible",
            Self::Breaking => "breaking",
        }
    }
}

/// One difference, where it is and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub compatibility: Compatibility,
    /// The tool; empty for the server itself.
    pub tool: String,
    /// `input.plan`, `output.items[].email`; empty for the tool as a whole.
    pub path: String,
    /// Half a sentence: what changed, and why that matters.
    pub reason: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.tool, &*self.path) {
            ("", _) => {}
            (tool, "") => write!(f, "{tool}: ")?,
            (tool, at) => write!(f, "{tool} {at}: ")?,
        }
        f.write_str(&self.reason)
    }
}

/// All that callers can rely on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContractInterface {
    /// A digest of what a model is told about the server; empty if that is nothing.
    pub instructions_digest: String,
    pub tools: BTreeMap<String, ToolInterface>,
}

/// What a tool promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolInterface {
    /// A digest of all that is only there to be read.
    pub text_digest: String,
    pub annotations: ToolAnnotations,
    /// Whether the user is asked: a client that shows no questions is refused then.
    pub confirm: Confirm,
    /// Schemas without their words.
    pub input_schema: Value,
    pub output_schema: Value,
}

impl ContractInterface {
    pub fn from_contract(contract: &Contract) -> Self {
        let said = contract.instructions.as_deref().unwrap_or_default();
        let instructions_digest = if said.is_empty() { String::new() } else { digest([said]) };
        let tools =
            contract.tools.iter().map(|tool| (tool.name.clone(), ToolInterface::from_tool(tool, contract)));
        Self { instructions_digest, tools: tools.collect() }
    }
}

impl ToolInterface {
    fn from_tool(tool: &Tool, contract: &Contract) -> Self {
        let (input_schema, input_words) = canonical(tool.input_schema.as_str());
        let (output_schema, output_words) = canonical(tool.output_schema.as_str());
        let title = tool.title.as_deref().unwrap_or_default();
        Self {
            text_digest: digest([title, &tool.description, &input_words, &output_words]),
            annotations: tool.to_catalog_tool(contract).annotations,
            confirm: tool.confirm,
            input_schema,
            output_schema,
        }
    }

    /// Tells it from every other.
    pub fn hash(&self) -> String {
        let hints = annotation_hints(&self.annotations).map(|(_, said)| format!("{said:?}")).join(",");
        let (input, output) = (self.input_schema.to_string(), self.output_schema.to_string());
        // What asks nobody has the hash that it had when nothing was known of asking.
        let asks = (self.confirm == Confirm::Ask).then_some("ask");
        digest([&self.text_digest, &*hints, &input, &output].into_iter().chain(asks))
    }
}

/// The hints by the names that the protocol gives them.
pub(crate) fn annotation_hints(of: &ToolAnnotations) -> [(&'static str, Option<bool>); 4] {
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
pub fn compare_interfaces(old: &ContractInterface, new: &ContractInterface) -> Vec<Difference> {
    let mut found = Vec::new();
    if old.instructions_digest != new.instructions_digest {
        let why = "the instructions are other words".into();
        found.push(Difference {
            compatibility: Compatibility::TextOnly,
            tool: String::new(),
            path: String::new(),
            reason: why,
        });
    }
    for (name, was) in &old.tools {
        match new.tools.get(name) {
            Some(is) => compare_tools(name, was, is, &mut found),
            None => {
                let why = "the tool is gone; whoever calls it fails".into();
                let (tool, at) = (name.clone(), String::new());
                found.push(Difference {
                    compatibility: Compatibility::Breaking,
                    tool,
                    path: at,
                    reason: why,
                });
            }
        }
    }
    for name in new.tools.keys().filter(|name| !old.tools.contains_key(*name)) {
        let (tool, at, why) = (name.clone(), String::new(), "a new tool".into());
        found.push(Difference { compatibility: Compatibility::Compatible, tool, path: at, reason: why });
    }
    found
}

/// What all differences together come to.
pub fn overall_compatibility(found: &[Difference]) -> Compatibility {
    found.iter().map(|one| one.compatibility).max().unwrap_or(Compatibility::Same)
}

fn compare_tools(name: &str, was: &ToolInterface, is: &ToolInterface, found: &mut Vec<Difference>) {
    let before = found.len();
    let mut add = |verdict, at: String, why: String| {
        found.push(Difference { compatibility: verdict, tool: name.to_owned(), path: at, reason: why });
    };
    for ((hint, was), (_, is)) in
        annotation_hints(&was.annotations).into_iter().zip(annotation_hints(&is.annotations))
    {
        if let Some((verdict, why)) = compare_hint(hint, was, is) {
            add(verdict, hint.to_owned(), why);
        }
    }
    match (was.confirm, is.confirm) {
        (Confirm::Never, Confirm::Ask) => {
            let why = "the user is asked now; a client that shows no questions is refused";
            add(Compatibility::Breaking, "confirm".to_owned(), why.to_owned());
        }
        (Confirm::Ask, Confirm::Never) => {
            add(Compatibility::Compatible, "confirm".to_owned(), "the user is not asked any more".to_owned());
        }
        (Confirm::Never, Confirm::Never) | (Confirm::Ask, Confirm::Ask) => {}
    }
    for (side, was, is) in [
        (SchemaSide::Input, &was.input_schema, &is.input_schema),
        (SchemaSide::Output, &was.output_schema, &is.output_schema),
    ] {
        compare_side(side, was, is, &mut add);
    }
    // What came or went has words of its own.
    if found.len() == before && was.text_digest != is.text_digest {
        let (tool, at, why) = (name.to_owned(), String::new(), "it is described in other words".into());
        found.push(Difference { compatibility: Compatibility::TextOnly, tool, path: at, reason: why });
    }
}

/// Clients decide by hints whom to ask, and what to repeat. Unsaid means what the protocol says it means.
fn compare_hint(hint: &str, was: Option<bool>, is: Option<bool>) -> Option<(Compatibility, String)> {
    let unsaid = matches!(hint, "destructiveHint" | "openWorldHint");
    let (was, is) = (was.unwrap_or(unsaid), is.unwrap_or(unsaid));
    if was == is {
        return None;
    }
    Some(match (hint, is) {
        ("readOnlyHint", false) => {
            (Compatibility::Breaking, "it writes now; a client that lets reading pass would not ask".into())
        }
        ("destructiveHint", true) => (
            Compatibility::Breaking,
            "it can destroy now; a client that lets adding pass would not ask".into(),
        ),
        ("idempotentHint", false) => (
            Compatibility::Breaking,
            "it does more when it is repeated; a client that repeats it would".into(),
        ),
        _ => (Compatibility::Compatible, format!("it is {is} now")),
    })
}
