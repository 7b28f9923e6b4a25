//! Skills: each folder below `skills/` that has a `SKILL.md`, as the extension `io.modelcontextprotocol/skills` serves it.

use std::collections::{BTreeMap, BTreeSet};

use contract::diagnostic::Diagnostic;
use json::Json;
use ring::digest::{SHA256, digest};
use spile_core::{Resource, ResourceDirectory, Skill, SkillFile, SkillFiles};

use crate::files::FileTree;
use crate::front_matter::{FrontMatter, Reporter, find_front_matter, parse_front_matter};
use crate::limits::ContentLimits;
use crate::mime;
use crate::served::{ServedFile, Strip};
use crate::uri::uri_of_path;
use crate::yaml::{Yaml, YamlMember, write_members};

const ENTRY: &str = "SKILL.md";
const NAME_CHARS_MAX: usize = 64;
const DESCRIPTION_CHARS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct LoadedSkills {
    pub(crate) skills: Vec<Skill>,
    pub(crate) files: Vec<ServedFile>,
    pub(crate) directories: Vec<ResourceDirectory>,
}

/// A file of a skill, with what the manifest says of it.
struct HashedFile {
    file: SkillFile,
    mime_type: &'static str,
}

pub(crate) fn load_skills(
    tree: &FileTree,
    folder: usize,
    limits: &ContentLimits,
    diagnostics: &mut Vec<Diagnostic>,
) -> LoadedSkills {
    let mut loaded = LoadedSkills::default();
    // A nested skill shares its files with the skill around it: each is read once.
    let mut hashed: BTreeMap<&str, HashedFile> = BTreeMap::new();
    let mut served: BTreeSet<&str> = BTreeSet::new();
    for path in tree.files.keys() {
        let Some(skill_path) = path.strip_suffix(ENTRY).and_then(|prefix| prefix.strip_suffix('/')) else {
            if path == ENTRY {
                let message = format!("`{}/{ENTRY}` is not in a folder", tree.label);
                let help = format!("move it to `{}/<name>/{ENTRY}`", tree.label);
                diagnostics.push(Diagnostic::error(message).help(help));
            }
            continue;
        };
        let Some(entry) = read_entry(tree, path, skill_path, limits, diagnostics) else { continue };
        let Some(paths) = hash_files(tree, skill_path, limits, &mut hashed, diagnostics) else { continue };
        // `SKILL.md` first: clients read it first.
        let mut files: Vec<SkillFile> =
            paths.iter().filter_map(|path| hashed.get(path)).map(|hashed| hashed.file.clone()).collect();
        files.sort_by_key(|file| file.uri != entry.uri);
        served.extend(&paths);
        loaded.files.push(entry.served_file(folder, path, tree));
        loaded.skills.push(Skill {
            uri: entry.uri,
            frontmatter: entry.frontmatter,
            files: SkillFiles::Complete(files),
        });
    }
    let entries: BTreeSet<String> = loaded.files.iter().map(|file| file.path.clone()).collect();
    for path in &served {
        let Some(hashed) = hashed.get(path) else { continue };
        if !entries.contains(*path) {
            loaded.files.push(supporting_file(folder, path, hashed, tree));
        }
    }
    loaded.directories = directories(&loaded.files);
    loaded
}

struct SkillEntry {
    uri: String,
    name: String,
    description: String,
    frontmatter: Json,
    bytes: u64,
}

impl SkillEntry {
    fn served_file(&self, folder: usize, path: &str, tree: &FileTree) -> ServedFile {
        ServedFile {
            folder,
            path: path.to_owned(),
            resource: Resource {
                uri: self.uri.clone(),
                name: self.name.clone(),
                description: Some(self.description.clone()),
                mime_type: Some("text/markdown".into()),
                size: Some(self.bytes),
                ..Resource::default()
            },
            aliases: vec![format!("{}/{path}", tree.label)],
            mime_type: "text/markdown".into(),
            // Clients compare the front matter with the entry, and the bytes with the digest.
            strip: Strip::Nothing,
            is_listed: true,
        }
    }
}

fn supporting_file(folder: usize, path: &str, hashed: &HashedFile, tree: &FileTree) -> ServedFile {
    ServedFile {
        folder,
        path: path.to_owned(),
        resource: Resource {
            uri: hashed.file.uri.clone(),
            name: file_name(path).to_owned(),
            mime_type: Some(hashed.mime_type.into()),
            size: Some(hashed.file.size_bytes),
            ..Resource::default()
        },
        aliases: vec![format!("{}/{path}", tree.label)],
        mime_type: hashed.mime_type.into(),
        strip: Strip::Nothing,
        // Read on demand; the skill's entry names it.
        is_listed: false,
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Reads `SKILL.md` and checks what the Agent Skills format demands.
fn read_entry(
    tree: &FileTree,
    path: &str,
    skill_path: &str,
    limits: &ContentLimits,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<SkillEntry> {
    let label = format!("{}/{path}", tree.label);
    let bytes = match tree.read(path, limits.resource_bytes_max) {
        Ok(bytes) => bytes,
        Err(error) => {
            diagnostics.push(error.diagnostic(&label, limits.resource_bytes_max));
            return None;
        }
    };
    let size = bytes.len() as u64;
    let Ok(text) = String::from_utf8(bytes) else {
        diagnostics.push(Diagnostic::error(format!("`{label}` is not UTF-8")).help("save the file as UTF-8"));
        return None;
    };
    let mut reporter = Reporter::new(&label, &text);
    let entry = parse_entry(&text, skill_path, limits, &mut reporter);
    let has_errors = reporter.has_errors();
    diagnostics.append(&mut reporter.diagnostics);
    let (name, description, frontmatter) = entry.filter(|_| !has_errors)?;
    Some(SkillEntry { uri: uri_of_path("skill", path), name, description, frontmatter, bytes: size })
}

fn parse_entry(
    text: &str,
    skill_path: &str,
    limits: &ContentLimits,
    reporter: &mut Reporter,
) -> Option<(String, String, Json)> {
    let FrontMatter::Present { yaml, .. } = find_front_matter(text) else {
        let help = "start the file with `---`, `name: …`, `description: …`, `---`";
        reporter.error(0..0, "a skill needs front matter with `name` and `description`", help);
        return None;
    };
    let yaml_start = yaml.start;
    let members = parse_front_matter(reporter, yaml, limits.front_matter_bytes_max)?;
    let mut required = |key: &str| {
        let member = members.iter().find(|member| member.key == key);
        match member.map(|member| &member.value.value) {
            Some(Yaml::Text(text)) if !text.trim().is_empty() => {
                member.map(|member| (text.clone(), member.value.span.clone()))
            }
            Some(_) => {
                let span = member.map_or(0..0, |member: &YamlMember| member.value.span.clone());
                reporter.error(
                    span,
                    format!("`{key}`: expected a text"),
                    format!("write `{key}: …`, in quotes if needed"),
                );
                None
            }
            None => {
                let message = format!("a skill needs `{key}`");
                reporter.error(
                    yaml_start..yaml_start,
                    message,
                    format!("add `{key}: …` to the front matter"),
                );
                None
            }
        }
    };
    let (name, description) = (required("name"), required("description"));
    let ((name, name_span), (description, description_span)) = (name?, description?);
    let folder_name = file_name(skill_path);
    if !is_skill_name(&name) {
        let help = "use 1 to 64 lower-case letters, digits and single hyphens, as in `git-workflow`";
        reporter.error(name_span, format!("`{name}` is not the name of a skill"), help);
    } else if name != folder_name {
        let message = format!("the skill is named `{name}`, but its folder `{folder_name}`");
        reporter.error(
            name_span,
            message,
            format!("rename the folder to `{name}`, or write `name: {folder_name}`"),
        );
    }
    if description.chars().count() > DESCRIPTION_CHARS_MAX {
        let message = format!("`description` exceeds the limit of {DESCRIPTION_CHARS_MAX} characters");
        reporter.error(
            description_span,
            message,
            "say what the skill does and when to use it; the rest is the body",
        );
    }
    let mut out = Vec::new();
    write_members(&mut out, &members);
    Some((name, description, Json::from_written_bytes(out)))
}

/// Agent Skills: lower-case letters, digits and hyphens; no hyphen at an end, and no two in a row.
fn is_skill_name(name: &str) -> bool {
    name.chars().count() <= NAME_CHARS_MAX
        && name.split('-').all(|part| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        })
}

/// Hashes every file below the skill's folder. `None` if the skill is too large to be served.
fn hash_files<'t>(
    tree: &'t FileTree,
    skill_path: &str,
    limits: &ContentLimits,
    hashed: &mut BTreeMap<&'t str, HashedFile>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Vec<&'t str>> {
    let prefix = format!("{skill_path}/");
    let entries = || tree.files.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
    let label = format!("{}/{skill_path}", tree.label);
    let refuse = |what: String, diagnostics: &mut Vec<Diagnostic>| {
        let message = format!("the skill `{label}` is not served: it exceeds the limit of {what}");
        diagnostics.push(Diagnostic::error(message).help("remove files that the skill does not need"));
    };
    if entries().count() > limits.skill_files_max {
        refuse(format!("{} files", limits.skill_files_max), diagnostics);
        return None;
    }
    if entries().map(|(_, entry)| entry.bytes()).sum::<u64>() > limits.skill_bytes_max {
        refuse(format!("{} bytes", limits.skill_bytes_max), diagnostics);
        return None;
    }
    let mut paths = Vec::new();
    for (path, _) in entries() {
        if !hashed.contains_key(path.as_str()) {
            let bytes = match tree.read(path, limits.resource_bytes_max) {
                Ok(bytes) => bytes,
                Err(error) => {
                    // The manifest must be complete: a skill with an unreadable file is not served.
                    diagnostics
                        .push(error.diagnostic(&format!("{}/{path}", tree.label), limits.resource_bytes_max));
                    return None;
                }
            };
            let mut sha256 = [0; 32];
            sha256.copy_from_slice(digest(&SHA256, &bytes).as_ref());
            let file =
                SkillFile { uri: uri_of_path("skill", path), digest: sha256, size_bytes: bytes.len() as u64 };
            hashed.insert(path, HashedFile { file, mime_type: mime::mime_type(path, &bytes) });
        }
        paths.push(path.as_str());
    }
    Some(paths)
}

/// Every directory that has a file, with its direct children in the order of their names.
fn directories(files: &[ServedFile]) -> Vec<ResourceDirectory> {
    let mut children: BTreeMap<&str, BTreeMap<&str, Resource>> = BTreeMap::new();
    for file in files {
        let mut child = file.resource.clone();
        let mut path = file.path.as_str();
        while let Some((parent, name)) = path.rsplit_once('/') {
            if path == file.path {
                // In a directory, a file has its file name.
                child.name = name.to_owned();
            }
            children.entry(parent).or_default().entry(name).or_insert(child);
            child = Resource {
                uri: uri_of_path("skill", parent),
                name: file_name(parent).to_owned(),
                mime_type: Some(ResourceDirectory::MIME_TYPE.into()),
                ..Resource::default()
            };
            path = parent;
        }
    }
    children
        .into_iter()
        .map(|(path, children)| ResourceDirectory {
            uri: uri_of_path("skill", path),
            children: children.into_values().collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::is_skill_name;

    #[test]
    fn names_of_skills_follow_the_agent_skills_format() {
        for name in ["a", "git-workflow", "pdf2text", "a-b-c", &"a".repeat(64)] {
            assert!(is_skill_name(name), "{name}");
        }
        for name in ["", "Git", "a_b", "-a", "a-", "a--b", "a b", "größe", "a/b", "..", &"a".repeat(65)] {
            assert!(!is_skill_name(name), "{name}");
        }
    }
}
