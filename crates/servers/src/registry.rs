//! All servers' tools, prompts and resources in one list, under their public names.
//!
//! The order is that of the names, and a name depends on nothing but its own server, so the list of a client changes
//! only where a server changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use json::{Json, Node};

use crate::config::ToolFilter;
use crate::definitions::UnapprovedTool;
use crate::names;

/// What one server offers, as it listed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerLists {
    pub tools: Vec<Json>,
    pub prompts: Vec<Json>,
    pub resources: Vec<Json>,
    pub templates: Vec<Json>,
    /// Of the extension for skills.
    pub skills: Vec<Json>,
    /// Tools whose definitions the user has not approved. Suspended ones are not offered.
    pub unapproved: Vec<UnapprovedTool>,
}

impl ServerLists {
    fn is_suspended(&self, tool: &str) -> bool {
        self.unapproved.iter().any(|one| one.is_suspended && one.tool == tool)
    }
}

/// A tool or prompt under its public name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryItem {
    pub public_name: String,
    pub server: Arc<str>,
    /// The server's own name for it: the one to send.
    pub own_name: String,
    /// As the server listed it, with the public name.
    pub definition: Json,
}

/// A resource or template of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryResource {
    pub server: Arc<str>,
    pub definition: Json,
}

/// An immutable state of all lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerRegistry {
    tools: BTreeMap<String, RegistryItem>,
    prompts: BTreeMap<String, RegistryItem>,
    pub resources: Vec<RegistryResource>,
    pub templates: Vec<RegistryResource>,
}

impl ServerRegistry {
    /// From the lists of all servers, in the order of their names.
    pub fn build<'s>(servers: impl IntoIterator<Item = (&'s str, &'s ServerLists, &'s ToolFilter)>) -> Self {
        let mut registry = Self::default();
        for (name, lists, filter) in servers {
            let server: Arc<str> = name.into();
            add_items(&mut registry.tools, &server, &lists.tools, |own| {
                filter.offers(own) && !lists.is_suspended(own)
            });
            add_items(&mut registry.prompts, &server, &lists.prompts, |_| true);
            let resource = |definition: &Json| RegistryResource {
                server: server.clone(),
                definition: definition.clone(),
            };
            registry.resources.extend(lists.resources.iter().map(resource));
            registry.templates.extend(lists.templates.iter().map(resource));
        }
        registry
    }

    /// By public name.
    pub fn tools(&self) -> impl Iterator<Item = &RegistryItem> {
        self.tools.values()
    }

    pub fn prompts(&self) -> impl Iterator<Item = &RegistryItem> {
        self.prompts.values()
    }

    pub fn tool(&self, public_name: &str) -> Option<&RegistryItem> {
        self.tools.get(public_name)
    }

    pub fn prompt(&self, public_name: &str) -> Option<&RegistryItem> {
        self.prompts.get(public_name)
    }
}

fn add_items(
    all: &mut BTreeMap<String, RegistryItem>,
    server: &Arc<str>,
    definitions: &[Json],
    is_offered: impl Fn(&str) -> bool,
) {
    // The first of two with one name is the one that the server would call.
    let mut by_name: BTreeMap<String, &Json> = BTreeMap::new();
    for definition in definitions {
        if let Some(name) = definition.to_doc().root().get("name").and_then(|name| name.str()) {
            by_name.entry(name.into_owned()).or_insert(definition);
        }
    }
    // A tool that is not offered still has its name: hiding it must not rename another.
    let public = names::public_names(server, by_name.keys().map(String::as_str));
    for (own_name, public_name) in public {
        if !is_offered(own_name) {
            continue;
        }
        let definition = renamed(by_name[own_name], &public_name);
        let item = RegistryItem {
            public_name: public_name.clone(),
            server: server.clone(),
            own_name: own_name.to_owned(),
            definition,
        };
        all.insert(public_name, item);
    }
}

fn renamed(definition: &Json, public_name: &str) -> Json {
    let doc = definition.to_doc();
    Json::object(|out| {
        for (key, value) in doc.root().members() {
            match key.str() {
                Some(key) if key == "name" => out.str("name", public_name),
                Some(key) => out.raw(&key, compact(value).as_str()),
                None => out,
            };
        }
    })
}

fn compact(node: Node<'_>) -> Json {
    Json::from(node)
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{ServerLists, ServerRegistry};
    use crate::config::ToolFilter;

    fn lists(tools: &[&str]) -> ServerLists {
        let tools = tools.iter().map(|text| Json::parse(text).expect("JSON")).collect();
        ServerLists { tools, ..ServerLists::default() }
    }

    fn shown(registry: &ServerRegistry) -> Vec<String> {
        registry.tools().map(|tool| format!("{} = {}", tool.own_name, tool.definition)).collect()
    }

    #[test]
    fn tools_are_listed_by_their_public_names() {
        let (github, shop) =
            (lists(&[r#"{"name":"create-issue","title":"T"}"#]), lists(&[r#"{"a":1,"name":"x"}"#]));
        let all = ToolFilter::default();
        let registry = ServerRegistry::build([("git hub", &github, &all), ("shop", &shop, &all)]);
        assert_eq!(
            shown(&registry),
            [
                r#"create-issue = {"name":"mcp__git_hub__create_issue","title":"T"}"#,
                r#"x = {"a":1,"name":"mcp__shop__x"}"#,
            ]
        );
        let tool = registry.tool("mcp__git_hub__create_issue").expect("it is there");
        assert_eq!((&*tool.server, &*tool.own_name), ("git hub", "create-issue"));
        assert!(registry.tool("create-issue").is_none());
    }

    #[test]
    fn hiding_a_tool_renames_no_other() {
        let both = lists(&[r#"{"name":"a_b"}"#, r#"{"name":"a-b"}"#]);
        let filter = ToolFilter { only: None, except: vec!["a_b".to_owned()] };
        let registry = ServerRegistry::build([("s", &both, &filter)]);
        let name = registry.tools().next().expect("one is left").public_name.clone();
        assert!(name.starts_with("mcp__s__a_b_"), "{name}");
    }

    #[test]
    fn definitions_that_cannot_be_used_are_left_out() {
        let odd = lists(&[r#"{"name":7}"#, "{}", r#"{"name":"x","v":1}"#, r#"{"name":"x","v":2}"#]);
        let registry = ServerRegistry::build([("s", &odd, &ToolFilter::default())]);
        assert_eq!(shown(&registry), [r#"x = {"name":"mcp__s__x","v":1}"#]);
    }
}
