//! Files of `resources/` as resources, and resource templates.

use std::collections::BTreeMap;

use contract::diagnostic::{Diagnostic, FileLocation};
use json::Json;
use spile_core::{Resource, ResourceTemplate};

use crate::backend::{CompletionSource, TemplateSource};
use crate::files::{FileTree, too_large};
use crate::front_matter::{
    Annotations, Fields, FrontMatter, Reporter, find_front_matter, parse_front_matter,
};
use crate::limits::ContentLimits;
use crate::mime;
use crate::served::{ServedFile, Strip};
use crate::uri::{is_uri, uri_of_path};
use crate::uri_template::UriTemplate;

/// What the manifest says about one file of `resources/`. It wins over the file's front matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResourceSettings {
    /// Inside `resources/`, with `/`.
    pub path: String,
    pub uri: Option<String>,
    pub name: Option<String>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
    pub annotations: Annotations,
    pub icons: Option<Json>,
    /// An unlisted resource can be read and subscribed to, but is in no list.
    pub listed: Option<bool>,
}

/// A resource of the manifest that is not a file. Its URI may have variables: then it is a template.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateSettings {
    pub uri_template: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
    pub annotations: Annotations,
    pub icons: Option<Json>,
    pub source: TemplateSource,
    pub listed: bool,
    /// By variable.
    pub completions: Vec<(String, CompletionSource)>,
    /// Where it is declared, for messages about it.
    pub location: Option<FileLocation>,
}

/// A template with everything that serving it needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadedTemplate {
    pub(crate) template: UriTemplate,
    pub(crate) settings: TemplateSettings,
}

impl LoadedTemplate {
    pub(crate) fn has_variables(&self) -> bool {
        self.template.variables().next().is_some()
    }

    /// For a URI without variables.
    pub(crate) fn to_resource(&self) -> Resource {
        let settings = &self.settings;
        Resource {
            uri: settings.uri_template.clone(),
            name: settings.name.clone(),
            title: settings.title.clone(),
            description: settings.description.clone(),
            mime_type: settings.mime_type.clone(),
            size: None,
            annotations: settings.annotations.to_json(None),
            icons: settings.icons.clone(),
            meta: None,
        }
    }

    pub(crate) fn to_catalog(&self) -> ResourceTemplate {
        let settings = &self.settings;
        ResourceTemplate {
            uri_template: settings.uri_template.clone(),
            name: settings.name.clone(),
            title: settings.title.clone(),
            description: settings.description.clone(),
            mime_type: settings.mime_type.clone(),
            annotations: settings.annotations.to_json(None),
            icons: settings.icons.clone(),
            meta: None,
        }
    }
}

pub(crate) fn load_templates(
    settings: &[TemplateSettings],
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<LoadedTemplate> {
    let mut loaded: Vec<LoadedTemplate> = Vec::new();
    for settings in settings {
        let uri_template = &settings.uri_template;
        let template = match UriTemplate::parse(uri_template) {
            Ok(template) => template,
            Err(reason) => {
                let message = format!("invalid resource template `{uri_template}`: {reason}");
                diagnostics.push(error_at(settings, message).help("write it as in `orders://{id}`"));
                continue;
            }
        };
        if loaded.iter().any(|other| other.settings.uri_template == *uri_template) {
            let message = format!("two resource templates are `{uri_template}`");
            diagnostics.push(error_at(settings, message).help("change one of them"));
            continue;
        }
        for (variable, _) in &settings.completions {
            if !template.variables().any(|known| known == variable) {
                let message = format!("resource template `{uri_template}` has no variable `{variable}`");
                let known: Vec<&str> = template.variables().collect();
                diagnostics
                    .push(error_at(settings, message).help(format!("its variables: {}", known.join(", "))));
            }
        }
        loaded.push(LoadedTemplate { template, settings: settings.clone() });
    }
    loaded
}

fn error_at(settings: &TemplateSettings, message: String) -> Diagnostic {
    let error = Diagnostic::error(message);
    match &settings.location {
        Some(location) => error.at(location),
        None => error,
    }
}

/// Loads every file of the folder that can be served.
pub(crate) fn load_resources(
    tree: &FileTree,
    folder: usize,
    settings: &[ResourceSettings],
    limits: &ContentLimits,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<ServedFile> {
    let by_path: BTreeMap<&str, &ResourceSettings> =
        settings.iter().map(|settings| (settings.path.as_str(), settings)).collect();
    for path in by_path.keys().filter(|path| !tree.files.contains_key(**path)) {
        let message = format!("`{}/{path}` has settings, but there is no such file", tree.label);
        let help = match contract::nearest(path, tree.files.keys().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "create the file, or remove the settings".into(),
        };
        diagnostics.push(Diagnostic::error(message).help(help));
    }
    let names = names_of(tree.files.keys());
    let mut served = Vec::new();
    for (path, entry) in &tree.files {
        if entry.bytes() > limits.resource_bytes_max {
            diagnostics.push(too_large(&format!("{}/{path}", tree.label), limits.resource_bytes_max));
            continue;
        }
        let name = names.get(path.as_str()).map_or(path.as_str(), String::as_str);
        let settings = by_path.get(path.as_str()).copied();
        served.extend(load_file(tree, folder, path, name, settings, limits, diagnostics));
    }
    served
}

/// The name of each path: without its extension, unless two files would have the same name.
fn names_of<'p>(paths: impl Iterator<Item = &'p String> + Clone) -> BTreeMap<&'p str, String> {
    let mut by_stem: BTreeMap<&str, usize> = BTreeMap::new();
    for path in paths.clone() {
        *by_stem.entry(stem(path)).or_default() += 1;
    }
    // A file without an extension may have the name that another one has without its own.
    let name = |path: &'p String| match by_stem.get(stem(path)) {
        Some(1) => stem(path).to_owned(),
        _ => path.clone(),
    };
    let mut names: BTreeMap<&str, String> = paths.map(|path| (path.as_str(), name(path))).collect();
    // `a.md.txt` without its extension is `a.md`, which may be the name of another file.
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in names.values() {
        *counts.entry(name.clone()).or_default() += 1;
    }
    for (path, name) in &mut names {
        if counts.get(name).is_some_and(|count| *count > 1) {
            *name = (*path).to_owned();
        }
    }
    names
}

/// The path without the extension of its last component.
fn stem(path: &str) -> &str {
    let file_start = path.rfind('/').map_or(0, |slash| slash + 1);
    match path[file_start..].rfind('.') {
        Some(dot) if dot > 0 => &path[..file_start + dot],
        _ => path,
    }
}

fn load_file(
    tree: &FileTree,
    folder: usize,
    path: &str,
    name: &str,
    settings: Option<&ResourceSettings>,
    limits: &ContentLimits,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<ServedFile> {
    let entry = tree.files.get(path)?;
    let file_name = format!("{}/{path}", tree.label);
    let is_markdown =
        matches!(path.rsplit_once('.'), Some((_, extension)) if extension.eq_ignore_ascii_case("md"));
    let head = if is_markdown {
        tree.read(path, limits.resource_bytes_max)
    } else {
        tree.read_head(path, mime::SNIFF_BYTES)
    };
    let head = match head {
        Ok(head) => head,
        Err(error) => {
            diagnostics.push(error.diagnostic(&file_name, limits.resource_bytes_max));
            return None;
        }
    };
    let mut own = ResourceSettings::default();
    let mut strip = Strip::Nothing;
    let mut content_bytes = entry.bytes();
    if is_markdown
        && let Ok(text) = std::str::from_utf8(&head)
        && let FrontMatter::Present { yaml, body_start } = find_front_matter(text)
    {
        let mut reporter = Reporter::new(&file_name, text);
        let read = parse_front_matter(&mut reporter, yaml, limits.front_matter_bytes_max)
            .map(|members| read_settings(Fields::new(members, &mut reporter)));
        let has_errors = reporter.has_errors();
        let has_unknown = !reporter.diagnostics.is_empty();
        diagnostics.append(&mut reporter.diagnostics);
        own = read.filter(|_| !has_errors)?;
        // Front matter with other keys belongs to another program, whose readers may want it.
        if !has_unknown {
            strip = Strip::FrontMatter;
            content_bytes = (text.len() - body_start) as u64;
        }
    }
    let none = ResourceSettings::default();
    let manifest = settings.unwrap_or(&none);
    let pick =
        |of: fn(&ResourceSettings) -> &Option<String>| of(manifest).clone().or_else(|| of(&own).clone());
    let uri = pick(|settings| &settings.uri).unwrap_or_else(|| uri_of_path("resource", name));
    if !is_uri(&uri) {
        let message = format!("`{file_name}`: `{uri}` is not a URI");
        diagnostics.push(Diagnostic::error(message).help(URI_HELP));
        return None;
    }
    let mime_type =
        pick(|settings| &settings.mime_type).unwrap_or_else(|| mime::mime_type(path, &head).to_owned());
    let annotations =
        if manifest.annotations == Annotations::default() { &own.annotations } else { &manifest.annotations };
    let resource = Resource {
        uri: uri.clone(),
        name: pick(|settings| &settings.name).unwrap_or_else(|| name.to_owned()),
        title: pick(|settings| &settings.title),
        description: pick(|settings| &settings.description),
        mime_type: Some(mime_type.clone()),
        size: Some(content_bytes),
        annotations: annotations.to_json(entry.modified_ms()),
        icons: manifest.icons.clone().or_else(|| own.icons.clone()),
        meta: None,
    };
    Some(ServedFile {
        folder,
        path: path.to_owned(),
        aliases: vec![uri_of_path("resource", path), path.to_owned(), file_name],
        strip,
        is_listed: manifest.listed.or(own.listed).unwrap_or(true),
        resource,
        mime_type,
    })
}

fn read_uri(fields: &mut Fields<'_>) -> Option<String> {
    let (uri, span) = fields.located_text("uri")?;
    if !is_uri(&uri) {
        fields.reporter.error(span, format!("`uri`: `{uri}` is not a URI"), URI_HELP);
    }
    Some(uri)
}

const URI_HELP: &str = "write a scheme and a path, as in `docs://guide`";

fn read_settings(mut fields: Fields<'_>) -> ResourceSettings {
    let settings = ResourceSettings {
        path: String::new(),
        uri: read_uri(&mut fields),
        name: fields.text("name"),
        title: fields.text("title"),
        description: fields.text("description"),
        mime_type: fields.text("mime_type"),
        listed: fields.bool("listed"),
        annotations: Annotations::read(&mut fields),
        icons: fields.icons(),
    };
    fields.warn_unknown("the front matter stays in the text");
    settings
}

#[cfg(test)]
mod tests {
    use super::names_of;

    #[test]
    fn a_name_has_no_extension_unless_it_is_needed() {
        let check = |paths: &[&str], expected: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            let names = names_of(paths.iter());
            let names: Vec<&str> = paths.iter().map(|path| names[path.as_str()].as_str()).collect();
            assert_eq!(names, expected);
        };
        check(&["a.md", "b.csv"], &["a", "b"]);
        check(&["a.md", "a.csv", "b.md"], &["a.md", "a.csv", "b"]);
        check(&["a", "a.md"], &["a", "a.md"]);
        check(&["x/a.md", "a.md"], &["x/a", "a"]);
        check(&["a.tar.gz", "a.tar.xz", "a.tar"], &["a.tar.gz", "a.tar.xz", "a"]);
        check(&["a.md", "a.csv", "a.md.txt"], &["a.md", "a.csv", "a.md.txt"]);
        check(&["x.y/a", "x.md"], &["x.y/a", "x"]);
        check(&["Guide.md", "guide.md"], &["Guide", "guide"]);
    }
}
