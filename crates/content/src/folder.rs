//! A content folder: where it is, what the manifest says about it, and everything that loading it found.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::diagnostic::Diagnostic;
use spile_core::Catalog;

use crate::files::FileTree;
use crate::limits::ContentLimits;
use crate::prompt::{LoadedPrompt, load_prompts};
use crate::resource::{LoadedTemplate, ResourceSettings, TemplateSettings, load_resources, load_templates};
use crate::served::ServedFile;
use crate::template::{MediaFile, TemplateFiles};
use crate::uri::percent_decode;
use crate::uri_template::Variables;
use crate::{app, mime, skill};

/// Where the folders are. One that does not exist is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentPaths {
    pub prompts: PathBuf,
    pub resources: PathBuf,
    pub skills: PathBuf,
    pub apps: PathBuf,
}

impl ContentPaths {
    /// `prompts/`, `resources/`, `skills/` and `apps/` of one folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            prompts: folder.join("prompts"),
            resources: folder.join("resources"),
            skills: folder.join("skills"),
            apps: folder.join("apps"),
        }
    }
}

/// Whether the files are watched while the server runs. Only then does the catalog promise notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    Files,
    Off,
}

/// A folder and everything that decides what is served of it.
#[derive(Debug, Clone)]
pub struct Folder {
    pub paths: ContentPaths,
    pub limits: ContentLimits,
    pub watching: Watching,
    pub resources: Vec<ResourceSettings>,
    pub templates: Vec<TemplateSettings>,
    /// Files of `resources/` that are code and not served: paths inside it.
    pub code_files: Vec<String>,
}

/// Everything that is served of a folder. Immutable: a change makes a new one.
#[derive(Debug)]
pub struct Loaded {
    pub(crate) trees: [FileTree; 4],
    pub(crate) limits: ContentLimits,
    pub(crate) files: Vec<ServedFile>,
    /// Files by URI, by alias and by path.
    pub(crate) by_reference: HashMap<String, usize>,
    pub(crate) templates: Vec<LoadedTemplate>,
    pub(crate) prompts: Vec<LoadedPrompt>,
    pub(crate) catalog: Arc<Catalog>,
}

pub(crate) const PROMPTS: usize = 0;
pub(crate) const RESOURCES: usize = 1;
const SKILLS: usize = 2;
const APPS: usize = 3;

impl Folder {
    /// The standard folders of `folder`, with default limits and no settings.
    pub fn new(folder: &Path, watching: Watching) -> Self {
        Self {
            paths: ContentPaths::in_folder(folder),
            limits: ContentLimits::default(),
            watching,
            resources: Vec::new(),
            templates: Vec::new(),
            code_files: Vec::new(),
        }
    }

    /// Walks the folders without reading any file.
    pub(crate) fn walk(&self, diagnostics: &mut Vec<Diagnostic>) -> [FileTree; 4] {
        let ContentPaths { prompts, resources, skills, apps } = &self.paths;
        [prompts, resources, skills, apps].map(|path| {
            let label = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            FileTree::walk(&label, path, &self.limits, diagnostics)
        })
    }

    /// Reads and parses everything. What is wrong is reported and left out; the rest is served.
    pub fn load(&self) -> (Loaded, Vec<Diagnostic>) {
        let mut diagnostics = Vec::new();
        let trees = self.walk(&mut diagnostics);
        let limits = &self.limits;
        let mut files =
            load_resources(&trees[RESOURCES], RESOURCES, &self.resources, limits, &mut diagnostics);
        files.retain(|file| !self.code_files.contains(&file.path));
        let skills = skill::load_skills(&trees[SKILLS], SKILLS, limits, &mut diagnostics);
        files.extend(skills.files);
        files.extend(app::load_apps(&trees[APPS], APPS, limits, &mut diagnostics));
        let by_reference = index(&mut files, &trees, &mut diagnostics);
        let templates = load_templates(&self.templates, &mut diagnostics);
        let mut loaded = Loaded {
            trees,
            limits: limits.clone(),
            files,
            by_reference,
            templates,
            prompts: Vec::new(),
            catalog: Arc::default(),
        };
        loaded.prompts = load_prompts(&loaded.trees[PROMPTS], limits, &loaded, &mut diagnostics);
        let is_watched = self.watching == Watching::Files;
        let has_files = loaded.trees[1..].iter().any(FileTree::exists);
        let files = loaded.files.iter().filter(|file| file.is_listed).map(|file| file.resource.clone());
        let listed = || loaded.templates.iter().filter(|template| template.settings.listed);
        let (templates, fixed): (Vec<_>, Vec<_>) = listed().partition(|template| template.has_variables());
        loaded.catalog = Arc::new(Catalog {
            resources: files.chain(fixed.into_iter().map(LoadedTemplate::to_resource)).collect(),
            resource_templates: templates.into_iter().map(LoadedTemplate::to_catalog).collect(),
            prompts: loaded.prompts.iter().map(|prompt| prompt.prompt.clone()).collect(),
            skills: skills.skills,
            directories: skills.directories,
            completions: loaded.has_completions(),
            resource_subscriptions: is_watched && (has_files || !loaded.templates.is_empty()),
            list_changed: is_watched,
            ..Catalog::default()
        });
        (loaded, diagnostics)
    }
}

/// Indexes the files by everything that names them. Of two files with the same URI, the first is served.
fn index(
    files: &mut Vec<ServedFile>,
    trees: &[FileTree; 4],
    diagnostics: &mut Vec<Diagnostic>,
) -> HashMap<String, usize> {
    let mut by_reference: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<ServedFile> = Vec::with_capacity(files.len());
    for file in files.drain(..) {
        let name = |file: &ServedFile| format!("{}/{}", trees[file.folder].label, file.path);
        if let Some(other) = by_reference.get(&file.resource.uri) {
            let message =
                format!("`{}` has the URI `{}` of `{}`", name(&file), file.resource.uri, name(&kept[*other]));
            diagnostics.push(Diagnostic::error(message).help("give one of them another `uri`"));
            continue;
        }
        by_reference.insert(file.resource.uri.clone(), kept.len());
        kept.push(file);
    }
    for (index, file) in kept.iter().enumerate() {
        for alias in &file.aliases {
            by_reference.entry(alias.clone()).or_insert(index);
        }
    }
    *files = kept;
    by_reference
}

impl Loaded {
    /// What the folder offers.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Whether there is nothing to serve.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.templates.is_empty() && self.prompts.is_empty()
    }

    /// Where the resources that are not files come from.
    pub fn template_sources(&self) -> impl Iterator<Item = &crate::TemplateSource> {
        self.templates.iter().map(|template| &template.settings.source)
    }

    /// The collections and fields that completions use, and the sources of templates: the integrator can check that they
    /// exist.
    pub fn completion_sources(&self) -> impl Iterator<Item = &crate::CompletionSource> {
        let of_prompts = self.prompts.iter().flat_map(|prompt| &prompt.arguments);
        let of_prompts = of_prompts.filter_map(|argument| argument.completion.as_ref());
        let of_templates = self.templates.iter().flat_map(|template| &template.settings.completions);
        of_prompts.chain(of_templates.map(|(_, source)| source))
    }

    fn has_completions(&self) -> bool {
        self.completion_sources().next().is_some()
    }

    pub(crate) fn file(&self, reference: &str) -> Option<&ServedFile> {
        self.by_reference.get(reference).map(|index| &self.files[*index])
    }

    /// The first template that the URI fits.
    pub(crate) fn template(&self, uri: &str) -> Option<(&LoadedTemplate, Variables)> {
        self.templates.iter().find_map(|template| Some((template, template.template.matches(uri)?)))
    }

    pub(crate) fn prompt(&self, name: &str) -> Option<&LoadedPrompt> {
        self.prompts.iter().find(|prompt| prompt.prompt.name == name)
    }
}

impl TemplateFiles for Loaded {
    /// Paths are relative to the prompt, as in Markdown, and stay inside `prompts/` and `resources/`.
    fn find_media(&self, path: &str) -> Result<MediaFile, String> {
        let decoded = percent_decode(path).ok_or("the path has an invalid escape")?;
        let mut components = vec![self.trees[PROMPTS].label.as_str()];
        for component in decoded.split('/') {
            match component {
                "." | "" => {}
                ".." => {
                    components.pop().ok_or("the path leaves the folder")?;
                }
                name => components.push(name),
            }
        }
        let (folder, path) = components.split_first().ok_or("it is not a file")?;
        let path = path.join("/");
        let folder = [PROMPTS, RESOURCES].into_iter().find(|index| self.trees[*index].label == *folder);
        let folder = folder.ok_or("it is not in the folder of prompts or resources")?;
        let tree = &self.trees[folder];
        let entry = tree.files.get(&path).ok_or("there is no such file")?;
        if entry.bytes() > self.limits.resource_bytes_max {
            return Err(format!("it exceeds the limit of {} bytes", self.limits.resource_bytes_max));
        }
        let head = tree.read_head(&path, mime::SNIFF_BYTES).map_err(|_| "it cannot be read")?;
        let mime_type = mime::mime_type(&path, &head);
        if !mime_type.starts_with("image/") && !mime_type.starts_with("audio/") {
            return Err(format!("it is {mime_type}, not an image or audio; use `{{{{resource …}}}}`"));
        }
        Ok(MediaFile { folder, path, mime_type: mime_type.to_owned() })
    }

    fn is_resource(&self, reference: &str) -> bool {
        self.file(reference).is_some() || self.template(reference).is_some()
    }
}
