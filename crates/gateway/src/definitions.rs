//! Tools, prompts and resources as another server listed them, read into a catalog.
//!
//! What a server writes is read leniently: a member of the wrong type counts as absent, and an item without a name or a URI is
//! left out. Members that the protocol does not know are not passed on.

use std::collections::BTreeMap;

use json::{Json, Node, NodeKind};
use servers::registry::ServerLists;
use spile_core::text::parse_hex;
use spile_core::{
    Catalog, Prompt, PromptArgument, Resource, ResourceDirectory, ResourceTemplate, Skill, SkillFile,
    SkillFiles, TaskSupport, Tool, ToolAnnotations,
};
use wire::SKILLS_EXTENSION;
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
    let skills = items(&lists.skills, skill);
    let has_directories = declares(&["extensions", SKILLS_EXTENSION, "directoryRead"]);
    Catalog {
        directories: if has_directories { directories(&skills) } else { Vec::new() },
        skills,
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

/// A skill whose files cannot be verified is left out.
fn skill(node: Node<'_>) -> Option<Skill> {
    let resources = node.get("resources")?;
    let file = |node: Node<'_>| {
        let digest = text(node, "digest")?;
        Some(SkillFile {
            uri: text(node, "uri")?,
            digest: parse_hex(digest.strip_prefix("sha256:")?.as_bytes())?,
            size_bytes: node.get("size")?.u64()?,
        })
    };
    let files = match resources.kind() {
        NodeKind::Array => SkillFiles::Complete(resources.elements().map(file).collect::<Option<_>>()?),
        _ if resources.eq_str("dynamic") => SkillFiles::Dynamic,
        _ => return None,
    };
    Some(Skill { uri: text(node, "uri")?, frontmatter: object(node, "frontmatter")?, files })
}

/// The directories that the files of the skills are in, with their direct children in the order of their names.
fn directories(skills: &[Skill]) -> Vec<ResourceDirectory> {
    let mut found: BTreeMap<&str, BTreeMap<&str, Resource>> = BTreeMap::new();
    for skill in skills {
        let SkillFiles::Complete(files) = &skill.files else { continue };
        let Some((root, _)) = skill.uri.rsplit_once('/') else { continue };
        for file in files {
            let (mut path, mut size, mut mime_type) = (file.uri.as_str(), Some(file.size_bytes), None);
            // Only what is below the folder of `SKILL.md` is a part of the skill.
            while let Some((parent, name)) = path.rsplit_once('/').filter(|(parent, _)| {
                parent.strip_prefix(root).is_some_and(|below| below.is_empty() || below.starts_with('/'))
            }) {
                let child = Resource {
                    uri: path.to_owned(),
                    name: name.to_owned(),
                    size: size.take(),
                    mime_type: mime_type.replace(ResourceDirectory::MIME_TYPE.to_owned()),
                    ..Resource::default()
                };
                found.entry(parent).or_default().entry(name).or_insert(child);
                path = parent;
            }
        }
    }
    let directory = |(uri, children): (&str, BTreeMap<&str, Resource>)| ResourceDirectory {
        uri: uri.to_owned(),
        children: children.into_values().collect(),
    };
    found.into_iter().map(directory).collect()
}

#[cfg(test)]
mod tests {
    use json::Json;
    use servers::registry::ServerLists;
    use spile_core::SkillFiles;

    use super::{catalog, directories, skill};

    const DIGEST: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn entry(uri: &str, files: &[&str]) -> Json {
        Json::object(|out| {
            out.str("uri", uri).raw("frontmatter", r#"{"name":"a"}"#);
            out.array("resources", files, |out, uri| {
                let file = Json::object(|out| {
                    out.str("uri", uri).str("digest", DIGEST).int("size", 3);
                });
                out.extend_from_slice(file.as_str().as_bytes());
            });
        })
    }

    #[test]
    fn skills_are_passed_on_with_what_their_files_must_be() {
        let listed = entry("skill://a/SKILL.md", &["skill://a/SKILL.md", "skill://a/x/y.md"]);
        let lists = ServerLists { skills: vec![listed], ..ServerLists::default() };
        let catalog = catalog(&lists, None, 1000, &|_, _| None);
        assert_eq!(catalog.skills.len(), 1);
        let SkillFiles::Complete(files) = &catalog.skills[0].files else { panic!("all of its files") };
        assert_eq!((files.len(), files[0].size_bytes, files[0].digest[0]), (2, 3, 0xba));
        assert!(catalog.directories.is_empty(), "the server does not declare that it lists directories");
    }

    #[test]
    fn skills_that_cannot_be_verified_are_left_out() {
        for (json, is_used) in [
            (r#"{"uri":"skill://a/SKILL.md","frontmatter":{},"resources":"dynamic"}"#, true),
            (r#"{"uri":"skill://a/SKILL.md","frontmatter":{},"resources":[]}"#, true),
            (r#"{"uri":"skill://a/SKILL.md","frontmatter":{},"resources":"all"}"#, false),
            (r#"{"uri":"skill://a/SKILL.md","frontmatter":{}}"#, false),
            (r#"{"uri":"skill://a/SKILL.md","frontmatter":[],"resources":[]}"#, false),
            (r#"{"frontmatter":{},"resources":[]}"#, false),
            (r#"{"uri":"a","frontmatter":{},"resources":[{"uri":"a","digest":"md5:00","size":1}]}"#, false),
            (
                r#"{"uri":"a","frontmatter":{},"resources":[{"uri":"a","digest":"sha256:00","size":1}]}"#,
                false,
            ),
        ] {
            let json = Json::parse(json).expect("JSON");
            assert_eq!(skill(json.to_doc().root()).is_some(), is_used, "{json}");
        }
    }

    #[test]
    fn directories_have_the_files_of_the_skills_and_nothing_beside_them() {
        let listed = [
            entry("skill://a/SKILL.md", &["skill://a/SKILL.md", "skill://a/x/y.md", "skill://a/x/z/q.md"]),
            entry(
                "skill://b/SKILL.md",
                &["skill://b/SKILL.md", "skill://a/x/of-another.md", "file:///etc/x"],
            ),
        ];
        let skills: Vec<_> = listed.iter().filter_map(|one| skill(one.to_doc().root())).collect();
        let shown: Vec<String> = directories(&skills)
            .iter()
            .map(|directory| {
                let children = directory.children.iter();
                let children: Vec<String> = children
                    .map(|child| match &child.mime_type {
                        Some(_) => format!("{}/", child.name),
                        None => child.name.clone(),
                    })
                    .collect();
                format!("{}: {}", directory.uri, children.join(" "))
            })
            .collect();
        assert_eq!(
            shown,
            ["skill://a: SKILL.md x/", "skill://a/x: y.md z/", "skill://a/x/z: q.md", "skill://b: SKILL.md",]
        );
    }
}
