//! Tools, prompts and resources as another server listed them, read into a catalog.
//!
//! What a server writes is read leniently: a member of the wrong type counts as absent, and an item without a name or a URI is
//! left out. Members that the protocol does not know are not passed on.

use json::{Json, Node, NodeKind};
use servers::registry::ServerLists;
use spile_core::{
    Catalog, Prompt, PromptArgument, Resource, ResourceTemplate, TaskSupport, Tool, ToolAnnotations,
};
use wire::client::ServerInfo;

use crate::remote_tasks::has_tasks_extension;

/// The catalog of a server, with its own names. `name_of` gives the name under which a tool or prompt is served.
pub(crate) fn catalog(
    lists: &ServerLists,
    info: Option<&ServerInfo>,
    call_timeout_ms: u64,
    name_of: &dyn Fn(ItemList, &str) -> Option<String>,
) -> Catalog {
    let declared = info.map(|info| info.capabilities.to_doc());
    let declares = |path: &[&str]| {
        let mut node = declared.as_ref().map(json::Doc::root);
        for key in path {
            node = node.and_then(|node| node.get(key));
        }
        node.is_some_and(|node| node.bool() == Some(true) || node.is_object())
    };
    let has_extension =
        declared.as_ref().is_some_and(|capabilities| has_tasks_extension(capabilities.root()));
    Catalog {
        tools: items(&lists.tools, |node| {
            let tool = tool(node, call_timeout_ms, &|own| name_of(ItemList::Tools, own))?;
            // With the extension, the server decides for each call.
            let task_support = if has_extension { TaskSupport::Optional } else { tool.task_support };
            Some(Tool { task_support, ..tool })
        }),
        prompts: items(&lists.prompts, |node| prompt(node, &|own| name_of(ItemList::Prompts, own))),
        resources: items(&lists.resources, resource),
        resource_templates: items(&lists.templates, template),
        completions: declares(&["completions"]),
        logging: declares(&["logging"]),
        resource_subscriptions: declares(&["resources", "subscribe"]),
        list_changed: true,
        is_open_ended: true,
        instructions: info.and_then(|info| info.instructions.clone()),
        ..Catalog::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemList {
    Tools,
    Prompts,
}

fn items<T>(listed: &[Json], read: impl Fn(Node<'_>) -> Option<T>) -> Vec<T> {
    listed.iter().filter_map(|definition| read(definition.to_doc().root())).collect()
}

fn text(node: Node<'_>, key: &str) -> Option<String> {
    Some(node.get(key)?.str()?.into_owned())
}

fn object(node: Node<'_>, key: &str) -> Option<Json> {
    node.get(key).filter(Node::is_object).map(Json::from)
}

fn array(node: Node<'_>, key: &str) -> Option<Json> {
    node.get(key).filter(|value| value.kind() == NodeKind::Array).map(Json::from)
}

fn tool(node: Node<'_>, call_timeout_ms: u64, name_of: &dyn Fn(&str) -> Option<String>) -> Option<Tool> {
    let hints = node.get("annotations").filter(Node::is_object);
    let hint = |key: &str| hints.and_then(|hints| hints.get(key)).and_then(|value| value.bool());
    let execution = node.get("execution").filter(Node::is_object);
    let task_support = execution.and_then(|execution| text(execution, "taskSupport"));
    Some(Tool {
        name: name_of(&text(node, "name")?)?,
        // Versions before 2025-06-18 have the title among the annotations.
        title: text(node, "title").or_else(|| hints.and_then(|hints| text(hints, "title"))),
        description: text(node, "description"),
        // A tool without a schema takes no arguments that we could check.
        input_schema: object(node, "inputSchema").unwrap_or_else(|| {
            Json::object(|schema| {
                schema.str("type", "object");
            })
        }),
        output_schema: object(node, "outputSchema"),
        annotations: ToolAnnotations {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            idempotent: hint("idempotentHint"),
            open_world: hint("openWorldHint"),
        },
        icons: array(node, "icons"),
        meta: object(node, "_meta"),
        task_support: match task_support.as_deref() {
            Some("required") => TaskSupport::Required,
            Some("optional") => TaskSupport::Optional,
            _ => TaskSupport::Forbidden,
        },
        requires_confirmation: false,
        rate_limit: None,
        call_timeout_ms: Some(call_timeout_ms),
    })
}

fn prompt(node: Node<'_>, name_of: &dyn Fn(&str) -> Option<String>) -> Option<Prompt> {
    let arguments = node.get("arguments").filter(|list| list.kind() == NodeKind::Array);
    let argument = |node: Node<'_>| {
        Some(PromptArgument {
            name: text(node, "name")?,
            title: text(node, "title"),
            description: text(node, "description"),
            required: node.get("required").and_then(|value| value.bool()).unwrap_or(false),
        })
    };
    Some(Prompt {
        name: name_of(&text(node, "name")?)?,
        title: text(node, "title"),
        description: text(node, "description"),
        arguments: arguments.into_iter().flat_map(|list| list.elements()).filter_map(argument).collect(),
        icons: array(node, "icons"),
        meta: object(node, "_meta"),
    })
}

fn resource(node: Node<'_>) -> Option<Resource> {
    let uri = text(node, "uri")?;
    Some(Resource {
        name: text(node, "name").unwrap_or_else(|| uri.clone()),
        uri,
        title: text(node, "title"),
        description: text(node, "description"),
        mime_type: text(node, "mimeType"),
        size: node.get("size").and_then(|size| size.u64()),
        annotations: object(node, "annotations"),
        icons: array(node, "icons"),
        meta: object(node, "_meta"),
    })
}

fn template(node: Node<'_>) -> Option<ResourceTemplate> {
    let uri_template = text(node, "uriTemplate")?;
    Some(ResourceTemplate {
        name: text(node, "name").unwrap_or_else(|| uri_template.clone()),
        uri_template,
        title: text(node, "title"),
        description: text(node, "description"),
        mime_type: text(node, "mimeType"),
        annotations: object(node, "annotations"),
        icons: array(node, "icons"),
        meta: object(node, "_meta"),
    })
}
