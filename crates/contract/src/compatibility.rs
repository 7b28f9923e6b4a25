//! Compares a contract with an earlier one: same, compatible or breaking.
//!
//! A [`ToolInterface`] is what callers rely on: schemas without descriptions, which may change at any time. Arguments
//! that were valid must stay valid, so an input schema may only widen. Results must stay what clients expect, so an
//! output schema may only narrow. A change that cannot be shown to be compatible is breaking. Order is irrelevant.

mod schema;

use std::collections::BTreeMap;
use std::fmt;

use ring::digest;
use serde_json::Value;
use spile_core::text::hex;
use spile_core::{TaskSupport, Tool, ToolAnnotations};

use crate::contract::{Confirm, Contract};
use schema::{SchemaSide, canonical, compare_side};

/// What a change means for clients of the old contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compatibility {
    Same,
    /// Only descriptions, titles or instructions changed.
    TextOnly,
    Compatible,
    Breaking,
}

impl Compatibility {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::TextOnly => "text-only",
            Self::Compatible => "compatible",
            Self::Breaking => "breaking",
        }
    }
}

/// One difference between two contracts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub compatibility: Compatibility,
    /// Empty for the server itself.
    pub tool: String,
    /// `input.plan`, `output.items[].email`; empty for the tool as a whole.
    pub path: String,
    /// A clause: what changed, and what that means for clients.
    pub reason: String,
}

impl Difference {
    /// Whether it is about what a role has.
    pub fn is_of_role(&self) -> bool {
        // No tool has a blank in its name.
        self.tool.starts_with("role ")
    }
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

/// The part of a contract that clients rely on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContractInterface {
    /// A digest of the author's instructions; empty if there are none.
    pub instructions_digest: String,
    pub tools: BTreeMap<String, ToolInterface>,
    /// What each role has of them: its tools, and of each tool the fields of its rows, in the order of their names.
    pub roles: BTreeMap<String, RoleInterface>,
}

/// The tools of a role, each with the names of the fields that the role sees. A statement has none.
pub type RoleInterface = BTreeMap<String, Vec<String>>;

/// The part of a tool that clients rely on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolInterface {
    /// A digest of the title and all descriptions.
    pub text_digest: String,
    pub annotations: ToolAnnotations,
    /// Whether the user must confirm; a client without elicitation is refused then.
    pub confirm: Confirm,
    /// Whether calls may or must become tasks; a client without tasks is refused where they must.
    pub task_support: TaskSupport,
    /// Schemas are without descriptions and titles.
    pub input_schema: Value,
    pub output_schema: Value,
}

impl ContractInterface {
    pub fn from_contract(contract: &Contract) -> Self {
        let instructions = contract.instructions.as_deref().filter(|_| !contract.instructions_are_generated);
        let instructions = instructions.unwrap_or_default();
        let instructions_digest =
            if instructions.is_empty() { String::new() } else { digest([instructions]) };
        let tools = contract
            .tools
            .iter()
            .map(|tool| (tool.name.clone(), ToolInterface::from_tool(&tool.to_catalog_tool(contract))));
        let roles = contract.roles.iter().flat_map(|roles| &roles.roles);
        let roles = roles.map(|role| (role.name.clone(), role_interface(&role.contract))).collect();
        Self { instructions_digest, tools: tools.collect(), roles }
    }

    /// Adds tools of another provider. As in the served catalog, a name that is taken stays with its tool.
    #[must_use]
    pub fn with_tools<'t>(mut self, tools: impl IntoIterator<Item = &'t Tool>) -> Self {
        for tool in tools {
            self.tools.entry(tool.name.clone()).or_insert_with(|| ToolInterface::from_tool(tool));
        }
        self
    }
}

fn role_interface(contract: &Contract) -> RoleInterface {
    let fields = |tool: &crate::contract::Tool| {
        let collection = tool.operation.collection().and_then(|at| contract.collections.get(at));
        let fields = collection.into_iter().flat_map(|collection| &collection.fields);
        let mut names: Vec<String> = fields.map(|field| field.name.clone()).collect();
        names.sort();
        names
    };
    contract.tools.iter().map(|tool| (tool.name.clone(), fields(tool))).collect()
}

impl ToolInterface {
    /// The interface of any provider's tool.
    pub fn from_tool(tool: &Tool) -> Self {
        let (input_schema, input_text) = canonical(tool.input_schema.as_str());
        let (output_schema, output_text) = match &tool.output_schema {
            Some(schema) => canonical(schema.as_str()),
            None => (Value::Null, String::new()),
        };
        let title = tool.title.as_deref().unwrap_or_default();
        let description = tool.description.as_deref().unwrap_or_default();
        Self {
            text_digest: digest([title, description, &input_text, &output_text]),
            annotations: tool.annotations,
            confirm: if tool.requires_confirmation { Confirm::Ask } else { Confirm::Never },
            task_support: tool.task_support,
            input_schema,
            output_schema,
        }
    }

    /// Identifies what the tool takes, returns and does, without any text for people. Everything that must survive a
    /// change of texts is bound to it: pending input requests, the lock file, the identity of a reloaded tool.
    pub fn structural_digest(&self) -> ToolDigest {
        let hints: String = annotation_hints(&self.annotations)
            .into_iter()
            .map(|(_, hint)| match hint {
                None => '-',
                Some(false) => '0',
                Some(true) => '1',
            })
            .collect();
        let confirm = match self.confirm {
            Confirm::Never => "never",
            Confirm::Ask => "ask",
        };
        let schemas = [sorted_text(&self.input_schema), sorted_text(&self.output_schema)];
        let pieces = [&*hints, confirm, &schemas[0], &schemas[1]];
        sha256(pieces.into_iter().chain(task_support_name(self.task_support)))
    }

    /// Identifies the interface and its text, so that the lock file shows when somebody edited it.
    pub fn hash(&self) -> String {
        digest([&*hex(&self.structural_digest()), &self.text_digest])
    }
}

/// `None` for tools without tasks, which most are.
pub(crate) fn task_support_name(of: TaskSupport) -> Option<&'static str> {
    match of {
        TaskSupport::Forbidden => None,
        TaskSupport::Optional => Some("optional"),
        TaskSupport::Required => Some("required"),
    }
}

/// A schema as text that does not depend on the order of its members.
fn sorted_text(schema: &Value) -> String {
    let mut sorted = schema.clone();
    sorted.sort_all_objects();
    sorted.to_string()
}

/// See [`ToolInterface::structural_digest`].
pub type ToolDigest = [u8; 32];

/// The hints with their names in the protocol.
pub(crate) fn annotation_hints(of: &ToolAnnotations) -> [(&'static str, Option<bool>); 4] {
    [
        ("readOnlyHint", of.read_only),
        ("destructiveHint", of.destructive),
        ("idempotentHint", of.idempotent),
        ("openWorldHint", of.open_world),
    ]
}

/// The first half of a SHA-256, in hexadecimal digits.
fn digest<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
    hex(&sha256(pieces)[..16])
}

fn sha256<'a>(pieces: impl IntoIterator<Item = &'a str>) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for piece in pieces {
        context.update(&(piece.len() as u64).to_be_bytes());
        context.update(piece.as_bytes());
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

/// All differences, by tool. Empty if the interfaces are the same.
pub fn compare_interfaces(old: &ContractInterface, new: &ContractInterface) -> Vec<Difference> {
    let mut found = Vec::new();
    if old.instructions_digest != new.instructions_digest {
        let reason = "the instructions changed".into();
        found.push(Difference {
            compatibility: Compatibility::TextOnly,
            tool: String::new(),
            path: String::new(),
            reason,
        });
    }
    for (name, was) in &old.tools {
        match new.tools.get(name) {
            Some(is) => compare_tools(name, was, is, &mut found),
            None => {
                let reason = "the tool was removed; calls to it fail".into();
                let (tool, at) = (name.clone(), String::new());
                found.push(Difference { compatibility: Compatibility::Breaking, tool, path: at, reason });
            }
        }
    }
    for name in new.tools.keys().filter(|name| !old.tools.contains_key(*name)) {
        let (tool, path, reason) = (name.clone(), String::new(), "the tool is new".into());
        found.push(Difference { compatibility: Compatibility::Compatible, tool, path, reason });
    }
    compare_roles(old, new, &mut found);
    found
}

/// What a role has lost breaks its callers, whatever the others have. Roles that come to a contract without any take
/// everything from everybody, and grant some of it again.
fn compare_roles(old: &ContractInterface, new: &ContractInterface, found: &mut Vec<Difference>) {
    let mut add = |compatibility, role: &str, path: &str, reason: String| {
        found.push(Difference { compatibility, tool: format!("role {role}"), path: path.to_owned(), reason });
    };
    let (breaking, compatible) = (Compatibility::Breaking, Compatibility::Compatible);
    for (role, was) in &old.roles {
        let Some(is) = new.roles.get(role) else {
            if !new.roles.is_empty() {
                add(breaking, role, "", "the role was removed; its callers lose what it granted".into());
            }
            continue;
        };
        for (tool, fields) in was {
            let Some(now) = is.get(tool) else {
                add(breaking, role, tool, "the role lost the tool; calls to it fail".into());
                continue;
            };
            for field in fields.iter().filter(|field| !now.contains(field)) {
                add(breaking, role, tool, format!("the role lost the field `{field}`"));
            }
            for field in now.iter().filter(|field| !fields.contains(field)) {
                add(compatible, role, tool, format!("the role has a new field, `{field}`"));
            }
        }
        for tool in is.keys().filter(|tool| !was.contains_key(*tool)) {
            add(compatible, role, tool, "the role has a new tool".into());
        }
    }
    for role in new.roles.keys().filter(|role| !old.roles.contains_key(*role)) {
        match old.roles.is_empty() {
            true => add(
                breaking,
                role,
                "",
                "the contract has roles now; callers without one lose everything".into(),
            ),
            false => add(compatible, role, "", "the role is new".into()),
        }
    }
}

/// The most severe of all differences.
pub fn overall_compatibility(found: &[Difference]) -> Compatibility {
    found.iter().map(|one| one.compatibility).max().unwrap_or(Compatibility::Same)
}

fn compare_tools(name: &str, was: &ToolInterface, is: &ToolInterface, found: &mut Vec<Difference>) {
    let before = found.len();
    let mut add = |compatibility, path: String, reason: String| {
        found.push(Difference { compatibility, tool: name.to_owned(), path, reason });
    };
    for ((hint, was), (_, is)) in
        annotation_hints(&was.annotations).into_iter().zip(annotation_hints(&is.annotations))
    {
        if let Some((compatibility, reason)) = compare_hint(hint, was, is) {
            add(compatibility, hint.to_owned(), reason);
        }
    }
    match (was.confirm, is.confirm) {
        (Confirm::Never, Confirm::Ask) => {
            let reason = "the user must confirm now; a client without elicitation is refused";
            add(Compatibility::Breaking, "confirm".to_owned(), reason.to_owned());
        }
        (Confirm::Ask, Confirm::Never) => {
            add(
                Compatibility::Compatible,
                "confirm".to_owned(),
                "the user no longer has to confirm".to_owned(),
            );
        }
        (Confirm::Never, Confirm::Never) | (Confirm::Ask, Confirm::Ask) => {}
    }
    if let Some((compatibility, reason)) = compare_task_support(was.task_support, is.task_support) {
        add(compatibility, "task".to_owned(), reason.to_owned());
    }
    for (side, was, is) in [
        (SchemaSide::Input, &was.input_schema, &is.input_schema),
        (SchemaSide::Output, &was.output_schema, &is.output_schema),
    ] {
        compare_side(side, was, is, &mut add);
    }
    // A schema change usually changes descriptions too; it is reported once.
    if found.len() == before && was.text_digest != is.text_digest {
        let (tool, path, reason) = (name.to_owned(), String::new(), "a description changed".into());
        found.push(Difference { compatibility: Compatibility::TextOnly, tool, path, reason });
    }
}

fn compare_task_support(was: TaskSupport, is: TaskSupport) -> Option<(Compatibility, &'static str)> {
    match (was, is) {
        (TaskSupport::Forbidden, TaskSupport::Optional) => {
            Some((Compatibility::Compatible, "calls may become tasks now"))
        }
        (TaskSupport::Required, TaskSupport::Optional) => {
            Some((Compatibility::Compatible, "calls no longer have to become tasks"))
        }
        (TaskSupport::Forbidden | TaskSupport::Optional, TaskSupport::Required) => {
            Some((Compatibility::Breaking, "calls must become tasks now; a client without tasks is refused"))
        }
        (TaskSupport::Optional | TaskSupport::Required, TaskSupport::Forbidden) => Some((
            Compatibility::Breaking,
            "calls cannot become tasks any more; a client that asks for one is refused",
        )),
        (TaskSupport::Forbidden, TaskSupport::Forbidden)
        | (TaskSupport::Optional, TaskSupport::Optional)
        | (TaskSupport::Required, TaskSupport::Required) => None,
    }
}

/// Clients decide by these hints when to ask the user and what to retry. An absent hint has the protocol's default.
fn compare_hint(hint: &str, was: Option<bool>, is: Option<bool>) -> Option<(Compatibility, String)> {
    let default = matches!(hint, "destructiveHint" | "openWorldHint");
    let (was, is) = (was.unwrap_or(default), is.unwrap_or(default));
    if was == is {
        return None;
    }
    Some(match (hint, is) {
        ("readOnlyHint", false) => (
            Compatibility::Breaking,
            "the tool writes now; a client that allows reads without asking would not ask".into(),
        ),
        ("destructiveHint", true) => (
            Compatibility::Breaking,
            "the tool can destroy data now; a client that allows additions without asking would not ask"
                .into(),
        ),
        ("idempotentHint", false) => (
            Compatibility::Breaking,
            "the tool is not idempotent any more; a client that retries it would repeat its effect".into(),
        ),
        _ => (Compatibility::Compatible, format!("the hint is {is} now")),
    })
}
