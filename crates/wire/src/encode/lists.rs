//! Pages of lists. The host renders the members once per version and reuses them for every request.

use json::write::{self, ObjectWriter};
use json::{Json, NodeKind};
use spile_core::{Prompt, Resource, ResourceTemplate, Skill, SkillFiles, TaskSupport, Tool, ToolAnnotations};

use super::{RenderedServerInfo, ReplyTo, begin_response, end_response, write_cache_hints};
use crate::params::ListKind;
use crate::version::{Feature, Version};

/// One item of a list.
#[derive(Clone, Copy)]
pub enum ListItem<'a> {
    /// A tool that was rendered before, by [`rendered_tool`].
    RenderedTool(&'a [u8]),
    Resource(&'a Resource),
    Template(&'a ResourceTemplate),
    Prompt(&'a Prompt),
    Skill(&'a Skill),
}

/// Renders a tool for the lists of one version.
pub fn rendered_tool(version: Version, tool: &Tool) -> Box<[u8]> {
    let mut out = Vec::with_capacity(1024);
    write_tool(&mut out, version, tool);
    out.into()
}

/// Renders the members of one page: `"tools":[…]` and, if there are more pages, `,"nextCursor":"…"`.
pub fn list_members<'a>(
    list: ListKind,
    version: Version,
    items: impl Iterator<Item = ListItem<'a>>,
    next: Option<&str>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    let key = match list {
        ListKind::Tools => "tools",
        ListKind::Resources => "resources",
        ListKind::Templates => "resourceTemplates",
        ListKind::Prompts => "prompts",
        ListKind::Skills => "skills",
    };
    write::string(&mut out, key);
    out.extend_from_slice(b":[");
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match item {
            ListItem::RenderedTool(tool) => out.extend_from_slice(tool),
            ListItem::Resource(resource) => {
                let mut object = ObjectWriter::new(&mut out);
                write_resource_members(&mut object, version, resource);
                object.end();
            }
            ListItem::Template(template) => write_resource_template(&mut out, version, template),
            ListItem::Prompt(prompt) => write_prompt(&mut out, version, prompt),
            ListItem::Skill(skill) => write_skill(&mut out, skill),
        }
    }
    out.push(b']');
    if let Some(next) = next {
        out.extend_from_slice(b",\"nextCursor\":");
        write::string(&mut out, next);
    }
    out
}

/// Writes the whole response around members from [`list_members`].
#[inline]
pub fn list_page(
    out: &mut Vec<u8>,
    to: &ReplyTo,
    server_info: &RenderedServerInfo,
    members: &[u8],
    ttl_ms: u64,
    public: bool,
) {
    begin_response(out, &to.id);
    out.push(b'{');
    out.extend_from_slice(members);
    write_cache_hints(out, to.version, ttl_ms, public);
    server_info.close_result(out, to.version, false);
    end_response(out);
}

/// The response to `skills/get`.
pub fn skill_response(
    out: &mut Vec<u8>,
    to: &ReplyTo,
    server_info: &RenderedServerInfo,
    skill: &Skill,
    ttl_ms: u64,
    public: bool,
) {
    begin_response(out, &to.id);
    out.extend_from_slice(b"{\"skill\":");
    write_skill(out, skill);
    write_cache_hints(out, to.version, ttl_ms, public);
    server_info.close_result(out, to.version, false);
    end_response(out);
}

/// The response to `resources/directory/read`, which has no cache hints.
pub fn directory_page<'a>(
    out: &mut Vec<u8>,
    to: &ReplyTo,
    server_info: &RenderedServerInfo,
    children: impl Iterator<Item = &'a Resource>,
    next: Option<&str>,
) {
    begin_response(out, &to.id);
    out.push(b'{');
    let children = children.map(ListItem::Resource);
    out.extend_from_slice(&list_members(ListKind::Resources, to.version, children, next));
    server_info.close_result(out, to.version, false);
    end_response(out);
}

fn write_skill(out: &mut Vec<u8>, skill: &Skill) {
    let mut object = ObjectWriter::new(out);
    object.str("uri", &skill.uri).raw("frontmatter", skill.frontmatter.as_str());
    match &skill.files {
        SkillFiles::Dynamic => {
            object.str("resources", "dynamic");
        }
        SkillFiles::Complete(files) => {
            object.array("resources", files, |out, file| {
                let mut object = ObjectWriter::new(out);
                object.str("uri", &file.uri);
                object.str("digest", &hex_digest(&file.digest));
                object.int("size", file.size_bytes.min(i64::MAX as u64) as i64);
                object.end();
            });
        }
    }
    object.end();
}

fn hex_digest(digest: &[u8; 32]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    let mut text = String::from("sha256:");
    text.extend(digest.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
    text
}

fn write_name_members(
    out: &mut ObjectWriter<'_>,
    version: Version,
    name: &str,
    title: Option<&str>,
    description: Option<&str>,
) {
    out.str("name", name);
    if version.has(Feature::Titles) {
        out.maybe_str("title", title);
    }
    out.maybe_str("description", description);
}

fn write_icons_and_meta(
    out: &mut ObjectWriter<'_>,
    version: Version,
    icons: Option<&Json>,
    meta: Option<&Json>,
) {
    if version.has(Feature::Icons) {
        out.maybe_raw("icons", icons.map(Json::as_str));
    }
    if version.has(Feature::Meta) {
        out.maybe_raw("_meta", meta.map(Json::as_str));
    }
}

fn write_tool(out: &mut Vec<u8>, version: Version, tool: &Tool) {
    let mut object = ObjectWriter::new(out);
    write_name_members(&mut object, version, &tool.name, tool.title.as_deref(), tool.description.as_deref());
    object.raw("inputSchema", tool.input_schema.as_str());
    if let Some(output) = &tool.output_schema
        && version.has(Feature::StructuredContent)
    {
        if version.has(Feature::AnyStructuredContent) || has_object_root(output) {
            object.raw("outputSchema", output.as_str());
        } else if can_be_wrapped(output) {
            object.object("outputSchema", |schema| {
                schema.str("type", "object").object("properties", |properties| {
                    properties.raw("result", output.as_str());
                });
                schema.raw("required", r#"["result"]"#);
            });
        }
    }
    // Before tools had a `title`, their annotations had one.
    let title = tool.title.as_deref().filter(|_| !version.has(Feature::Titles));
    if version.has(Feature::Annotations)
        && (title.is_some() || tool.annotations != ToolAnnotations::default())
    {
        let hints = [
            ("readOnlyHint", tool.annotations.read_only),
            ("destructiveHint", tool.annotations.destructive),
            ("idempotentHint", tool.annotations.idempotent),
            ("openWorldHint", tool.annotations.open_world),
        ];
        object.object("annotations", |o| {
            o.maybe_str("title", title);
            for (key, hint) in hints {
                if let Some(hint) = hint {
                    o.bool(key, hint);
                }
            }
        });
    }
    if version.has(Feature::TaskParameter) {
        let support = match tool.task_support {
            TaskSupport::Forbidden => None,
            TaskSupport::Optional => Some("optional"),
            TaskSupport::Required => Some("required"),
        };
        if let Some(support) = support {
            object.object("execution", |o| {
                o.str("taskSupport", support);
            });
        }
    }
    write_icons_and_meta(&mut object, version, tool.icons.as_ref(), tool.meta.as_ref());
    object.end();
}

/// Before 2026-07-28 the root type of an output schema must be `object`.
fn has_object_root(schema: &Json) -> bool {
    schema.to_doc().root().get("type").is_some_and(|t| t.eq_str("object"))
}

/// Whether every value of the schema is sent as `{result}` to such a client, so that the schema can say so.
fn can_be_wrapped(schema: &Json) -> bool {
    let doc = schema.to_doc();
    let excludes_objects = doc.root().get("type").is_some_and(|kind| match kind.kind() {
        NodeKind::Array => !kind.elements().any(|one| one.eq_str("object")),
        _ => !kind.eq_str("object"),
    });
    // A reference would lead elsewhere inside another schema.
    excludes_objects && !schema.as_str().contains(r#"$ref""#) && !schema.as_str().contains(r#"$dynamicRef""#)
}

pub(super) fn write_resource_members(out: &mut ObjectWriter<'_>, version: Version, resource: &Resource) {
    out.str("uri", &resource.uri);
    write_name_members(
        out,
        version,
        &resource.name,
        resource.title.as_deref(),
        resource.description.as_deref(),
    );
    out.maybe_str("mimeType", resource.mime_type.as_deref());
    if let Some(size) = resource.size {
        out.int("size", size.min(i64::MAX as u64) as i64);
    }
    out.maybe_raw("annotations", resource.annotations.as_ref().map(Json::as_str));
    write_icons_and_meta(out, version, resource.icons.as_ref(), resource.meta.as_ref());
}

fn write_resource_template(out: &mut Vec<u8>, version: Version, template: &ResourceTemplate) {
    let mut object = ObjectWriter::new(out);
    object.str("uriTemplate", &template.uri_template);
    write_name_members(
        &mut object,
        version,
        &template.name,
        template.title.as_deref(),
        template.description.as_deref(),
    );
    object.maybe_str("mimeType", template.mime_type.as_deref());
    object.maybe_raw("annotations", template.annotations.as_ref().map(Json::as_str));
    write_icons_and_meta(&mut object, version, template.icons.as_ref(), template.meta.as_ref());
    object.end();
}

fn write_prompt(out: &mut Vec<u8>, version: Version, prompt: &Prompt) {
    let mut object = ObjectWriter::new(out);
    write_name_members(
        &mut object,
        version,
        &prompt.name,
        prompt.title.as_deref(),
        prompt.description.as_deref(),
    );
    if !prompt.arguments.is_empty() {
        object.array("arguments", &prompt.arguments, |out, argument| {
            let mut object = ObjectWriter::new(out);
            let (title, description) = (argument.title.as_deref(), argument.description.as_deref());
            write_name_members(&mut object, version, &argument.name, title, description);
            object.bool("required", argument.required);
            object.end();
        });
    }
    write_icons_and_meta(&mut object, version, prompt.icons.as_ref(), prompt.meta.as_ref());
    object.end();
}

#[cfg(test)]
mod tests {
    use json::Json;
    use spile_core::Tool;

    use super::rendered_tool;
    use crate::version::Version;

    /// The output schema as a client of the version reads it.
    fn output_schema(schema: &str, version: Version) -> Option<String> {
        let parse = |text: &str| Json::parse(text).expect("JSON");
        let tool = Tool {
            output_schema: Some(parse(schema)),
            ..Tool::new("t", "A tool.", parse(r#"{"type":"object"}"#))
        };
        let rendered = Json::from_written_bytes(rendered_tool(version, &tool).into_vec()).to_doc();
        rendered.root().get("outputSchema").map(|schema| schema.raw().to_owned())
    }

    #[test]
    fn an_output_schema_says_what_the_client_gets() {
        let wrapped = |schema: &str| {
            Some(format!(r#"{{"type":"object","properties":{{"result":{schema}}},"required":["result"]}}"#))
        };
        let object = r#"{"type":"object"}"#;
        for (schema, older) in [
            (object, Some(object.to_owned())),
            (
                r#"{"type":"array","items":{"type":"string"}}"#,
                wrapped(r#"{"type":"array","items":{"type":"string"}}"#),
            ),
            (r#"{"type":["string","null"]}"#, wrapped(r#"{"type":["string","null"]}"#)),
            // An object passes as it is, and a text does not: no schema says both.
            (r#"{"type":["object","string"]}"#, None),
            (r#"{"anyOf":[{"type":"object"},{"type":"string"}]}"#, None),
            (r##"{"type":"array","items":{"$ref":"#/$defs/a"},"$defs":{"a":true}}"##, None),
        ] {
            assert_eq!(output_schema(schema, Version::V2025_11_25), older, "{schema}");
            assert_eq!(output_schema(schema, Version::V2026_07_28).as_deref(), Some(schema));
            assert_eq!(output_schema(schema, Version::V2025_03_26), None, "{schema}");
        }
    }
}
