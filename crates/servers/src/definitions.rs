//! Tool definitions are pinned: a server cannot change what a tool says it does behind the user's back.
//!
//! A model acts on what a definition says, and the user approved the server by what it said at the time. What a server
//! offers at its first connection is taken as approved. Later a definition that differs from the approved one is
//! suspended until the user has seen the difference, and a tool that is new is reported. Definitions are compared in
//! canonical form, without `_meta`, which no model reads.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use json::{Json, Node};
use ring::digest;

use crate::config::ConfiguredServer;
use crate::private_file;

/// What happens to definitions that the user has not approved. Set by `definitions` in the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefinitionPolicy {
    /// Changed ones are suspended, new ones are used and reported.
    #[default]
    SuspendChanged,
    /// Changed and new ones are suspended.
    SuspendAll,
    /// All are used and reported.
    Warn,
}

/// Why a definition differs from what was approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionState {
    Changed,
    New,
}

/// A tool that the user has not approved as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnapprovedTool {
    pub tool: String,
    pub state: DefinitionState,
    /// It is not offered until the user approves it.
    pub is_suspended: bool,
}

impl UnapprovedTool {
    /// What happened, for people.
    pub fn reason(&self) -> &'static str {
        match (self.state, self.is_suspended) {
            (DefinitionState::Changed, true) => "suspended: its definition has changed since you approved it",
            (DefinitionState::Changed, false) => "its definition has changed since you approved it",
            (DefinitionState::New, true) => "suspended: it is new since you approved the definitions",
            (DefinitionState::New, false) => "it is new since you approved the definitions",
        }
    }
}

/// What was approved of one server. The state of a pin is `New` for a tool that came later.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Pins {
    tools: BTreeMap<String, Pin>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pin {
    /// Canonical.
    definition: String,
    is_approved: bool,
}

/// One server's file is no longer, and has no more tools.
const FILE_BYTES_MAX: u64 = 64 << 20;
const TOOLS_MAX: usize = 10_000;

/// The pins of this user: one file for each server, in a folder of their own.
#[derive(Debug, Clone)]
pub struct DefinitionPins {
    folder: PathBuf,
}

/// Why pins cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("cannot {action} `{path}`: {error}")]
    Io { action: &'static str, path: String, error: io::Error },
    #[error("`{0}` is damaged; delete it, and review the tools of the server")]
    Damaged(String),
}

/// One difference between the approved definition of a tool and the present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionDifference {
    /// `inputSchema.properties.email.type`.
    pub path: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// All differences of one tool. New tools and those that are gone have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDifference {
    pub tool: String,
    pub state: DefinitionState,
    pub differences: Vec<DefinitionDifference>,
    /// The description as it is now.
    pub description: String,
}

impl DefinitionPins {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// A server is known by its name and file: another one of the same name is another server.
    fn path(&self, server: &ConfiguredServer) -> PathBuf {
        let key = format!("{}\n{}", server.name, server.source.label());
        let hash = digest::digest(&digest::SHA256, key.as_bytes());
        self.folder.join(format!("{}.json", URL_SAFE_NO_PAD.encode(&hash.as_ref()[..18])))
    }

    fn load(&self, server: &ConfiguredServer) -> Result<Option<Pins>, PinError> {
        let path = self.path(server);
        let shown = || path.display().to_string();
        let text = private_file::read(&path, FILE_BYTES_MAX).map_err(|error| PinError::Io {
            action: "read",
            path: shown(),
            error,
        })?;
        text.map(|text| Pins::parse(&text).ok_or_else(|| PinError::Damaged(shown()))).transpose()
    }

    fn update(
        &self,
        server: &ConfiguredServer,
        change: impl FnOnce(Option<Pins>) -> Pins,
    ) -> Result<(), PinError> {
        let path = self.path(server);
        let failed = |action| {
            let path = path.display().to_string();
            move |error| PinError::Io { action, path, error }
        };
        private_file::create_folder(&path).map_err(failed("create the folder of"))?;
        let _lock = private_file::lock(&path).map_err(failed("lock"))?;
        let pins = change(self.load(server)?);
        private_file::replace(&path, pins.to_json(server).as_str()).map_err(failed("write"))
    }

    /// Compares the tools with what was approved. The tools of a server that was never seen are approved by this.
    pub fn review(
        &self,
        server: &ConfiguredServer,
        tools: &[Json],
        policy: DefinitionPolicy,
    ) -> Result<Vec<UnapprovedTool>, PinError> {
        let present = canonical_tools(tools);
        let known = self.load(server)?;
        let review = known.as_ref().map_or_else(Vec::new, |pins| pins.review(&present, policy));
        let is_complete = known.is_some_and(|pins| pins.knows_all(&present));
        if !is_complete {
            self.update(server, |before| Pins::with_new(before, &present))?;
        }
        Ok(review)
    }

    /// What the user is asked to approve.
    pub fn differences(
        &self,
        server: &ConfiguredServer,
        tools: &[Json],
    ) -> Result<Vec<ToolDifference>, PinError> {
        let present = canonical_tools(tools);
        let pins = self.load(server)?.unwrap_or_default();
        let unapproved = pins.review(&present, DefinitionPolicy::Warn);
        Ok(unapproved
            .into_iter()
            .map(|found| {
                let after = &present[&found.tool];
                let before = pins.tools.get(&found.tool).filter(|_| found.state == DefinitionState::Changed);
                let differences = before.map_or_else(Vec::new, |pin| compare(&pin.definition, after));
                let description = Json::parse(after)
                    .ok()
                    .and_then(|json| Some(json.to_doc().root().get("description")?.str()?.into_owned()));
                ToolDifference {
                    tool: found.tool,
                    state: found.state,
                    differences,
                    description: description.unwrap_or_default(),
                }
            })
            .collect())
    }

    /// The user has seen the differences. Tools that the server no longer has are forgotten.
    pub fn approve(&self, server: &ConfiguredServer, tools: &[Json]) -> Result<(), PinError> {
        let present = canonical_tools(tools);
        self.update(server, |_| Pins::with_new(None, &present))
    }
}

impl Pins {
    /// Nothing is known before the first connection, so what is there then is approved.
    fn with_new(before: Option<Self>, present: &BTreeMap<String, String>) -> Self {
        let is_first = before.is_none();
        let mut pins = before.unwrap_or_default();
        for (tool, definition) in present {
            if pins.tools.len() == TOOLS_MAX {
                break;
            }
            let pin = || Pin { definition: definition.clone(), is_approved: is_first };
            pins.tools.entry(tool.clone()).or_insert_with(pin);
        }
        pins
    }

    fn knows_all(&self, present: &BTreeMap<String, String>) -> bool {
        self.tools.len() >= TOOLS_MAX || present.keys().all(|tool| self.tools.contains_key(tool))
    }

    fn review(&self, present: &BTreeMap<String, String>, policy: DefinitionPolicy) -> Vec<UnapprovedTool> {
        let state = |tool: &String, definition: &String| match self.tools.get(tool) {
            None => Some(DefinitionState::New),
            Some(pin) if pin.definition != *definition => Some(DefinitionState::Changed),
            Some(pin) => (!pin.is_approved).then_some(DefinitionState::New),
        };
        let unapproved = present.iter().filter_map(|(tool, definition)| {
            let state = state(tool, definition)?;
            let is_suspended = match (policy, state) {
                (DefinitionPolicy::SuspendAll, _)
                | (DefinitionPolicy::SuspendChanged, DefinitionState::Changed) => true,
                (DefinitionPolicy::SuspendChanged, DefinitionState::New) | (DefinitionPolicy::Warn, _) => {
                    false
                }
            };
            Some(UnapprovedTool { tool: tool.clone(), state, is_suspended })
        });
        unapproved.collect()
    }

    fn to_json(&self, server: &ConfiguredServer) -> Json {
        Json::object(|out| {
            out.str("server", &server.name).str("file", &server.source.label());
            out.object("tools", |out| {
                for (tool, pin) in &self.tools {
                    out.object(tool, |out| {
                        out.bool("approved", pin.is_approved).raw("definition", &pin.definition);
                    });
                }
            });
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let json = Json::parse(text).ok()?;
        let doc = json.to_doc();
        let mut pins = Self::default();
        for (tool, pin) in doc.root().get("tools")?.members() {
            let definition = canonical(pin.get("definition")?);
            let is_approved = pin.get("approved")?.bool()?;
            pins.tools.insert(tool.str()?.into_owned(), Pin { definition, is_approved });
        }
        Some(pins)
    }
}

fn canonical(node: Node<'_>) -> String {
    let mut out = Vec::new();
    node.write_canonical(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The first of two with one name is the one that the server would call.
fn canonical_tools(tools: &[Json]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for tool in tools {
        let doc = tool.to_doc();
        let Some(name) = doc.root().get("name").and_then(|name| name.str()) else { continue };
        let without_meta = Json::object(|out| {
            for (key, value) in doc.root().members() {
                match key.str() {
                    Some(key) if key != "_meta" => out.raw(&key, Json::from(value).as_str()),
                    Some(_) | None => out,
                };
            }
        });
        all.entry(name.into_owned()).or_insert_with(|| canonical(without_meta.to_doc().root()));
    }
    all
}

fn compare(before: &str, after: &str) -> Vec<DefinitionDifference> {
    let (Ok(before), Ok(after)) = (Json::parse(before), Json::parse(after)) else { return Vec::new() };
    let mut differences = Vec::new();
    compare_nodes(String::new(), before.to_doc().root(), after.to_doc().root(), &mut differences);
    differences
}

/// Objects are compared member by member, everything else as a whole.
fn compare_nodes(path: String, before: Node<'_>, after: Node<'_>, out: &mut Vec<DefinitionDifference>) {
    let text = |node: Node<'_>| node.str().map_or_else(|| canonical(node), |text| text.into_owned());
    if !before.is_object() || !after.is_object() {
        if canonical(before) != canonical(after) {
            let (before, after) = (Some(text(before)), Some(text(after)));
            out.push(DefinitionDifference { path, before, after });
        }
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    for (key, value) in before.members() {
        let key = key.str().unwrap_or_default().into_owned();
        match after.get(&key) {
            Some(now) => compare_nodes(below(&key), value, now, out),
            None => {
                out.push(DefinitionDifference { path: below(&key), before: Some(text(value)), after: None })
            }
        }
    }
    for (key, value) in after.members() {
        let key = key.str().unwrap_or_default().into_owned();
        if before.get(&key).is_none() {
            out.push(DefinitionDifference { path: below(&key), before: None, after: Some(text(value)) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DefinitionPolicy, Pins, canonical_tools, compare};
    use json::Json;

    /// What was approved, what came, and what is reported under each policy: `!` is suspended.
    #[track_caller]
    fn check(approved: &[&str], present: &[&str], expected: [&str; 3]) {
        let parse = |all: &[&str]| {
            let all: Vec<Json> = all.iter().map(|text| Json::parse(text).expect("JSON")).collect();
            canonical_tools(&all)
        };
        let pins = Pins::with_new(None, &parse(approved));
        let policies =
            [DefinitionPolicy::SuspendChanged, DefinitionPolicy::SuspendAll, DefinitionPolicy::Warn];
        for (policy, expected) in policies.into_iter().zip(expected) {
            let found = pins.review(&parse(present), policy);
            let shown: Vec<String> = found
                .iter()
                .map(|one| format!("{}{} {:?}", if one.is_suspended { "!" } else { "" }, one.tool, one.state))
                .collect();
            assert_eq!(shown.join(", "), expected, "{policy:?}");
        }
    }

    const A: &str = r#"{"name":"a","description":"Reads.","inputSchema":{"type":"object"}}"#;

    #[test]
    fn changed_definitions_are_suspended_and_new_ones_reported() {
        check(&[A], &[A], ["", "", ""]);
        // The order of members and `_meta` are no change.
        check(
            &[A],
            &[r#"{"inputSchema": {"type": "object"}, "description":"Reads.","name":"a","_meta":{"t":1}}"#],
            ["", "", ""],
        );
        check(
            &[A],
            &[&A.replace("Reads.", "Reads, and mails it.")],
            ["!a Changed", "!a Changed", "a Changed"],
        );
        check(&[A], &[A, r#"{"name":"b"}"#], ["b New", "!b New", "b New"]);
        check(&[A], &[], ["", "", ""]);
        check(&[], &[A], ["a New", "!a New", "a New"]);
        check(&[A], &[r#"{"name":7}"#, "{}"], ["", "", ""]);
    }

    #[test]
    fn a_tool_that_goes_away_and_comes_back_is_compared_with_what_was_approved() {
        let tools = |text: &str| canonical_tools(&[Json::parse(text).expect("JSON")]);
        let pins = Pins::with_new(None, &tools(A));
        let pins = Pins::with_new(Some(pins), &tools(r#"{"name":"b"}"#));
        let back = tools(&A.replace("Reads.", "Writes."));
        let found = pins.review(&back, DefinitionPolicy::default());
        assert!(found[0].is_suspended && found[0].tool == "a");
    }

    #[test]
    fn differences_name_the_member() {
        let before = r#"{"name":"a","description":"x","inputSchema":{"properties":{"k":{"type":"string"}},"required":["k"]}}"#;
        let after = r#"{"name":"a","description":"y","title":"T","inputSchema":{"properties":{"k":{"type":"integer"}},"required":[]}}"#;
        let shown: Vec<String> = compare(before, after)
            .iter()
            .map(|one| format!("{}: {:?} → {:?}", one.path, one.before, one.after))
            .collect();
        assert_eq!(
            shown,
            [
                r#"description: Some("x") → Some("y")"#,
                r#"inputSchema.properties.k.type: Some("string") → Some("integer")"#,
                r#"inputSchema.required: Some("[\"k\"]") → Some("[]")"#,
                r#"title: None → Some("T")"#,
            ]
        );
        assert!(compare(before, before).is_empty());
    }
}
