//! Servers that the user switched off in Claude Code.
//!
//! Its `/mcp` menu writes names into `projects.<folder>.disabledMcpServers` of `~/.claude.json`; they count for servers of
//! every scope in that project. `disabledMcpjsonServers`, in any settings file, rejects servers of `.mcp.json`. The lists that
//! enable servers there are no approval of ours.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use json::Node;

use super::dialect::Dialect;
use super::{ConfigSource, ConfiguredServer};
use crate::jsonc;

const TOGGLED: &str = "disabledMcpServers";
const REJECTED: &str = "disabledMcpjsonServers";
const PROJECT_FILE: &str = ".mcp.json";

/// The lists of all settings files of Claude Code.
#[derive(Debug, Default)]
pub(super) struct DisabledServers {
    lists: Vec<DisabledList>,
}

#[derive(Debug)]
struct DisabledList {
    file: Arc<Path>,
    names: BTreeSet<String>,
    /// Whether it is only about servers of `.mcp.json`.
    is_for_project_file: bool,
}

impl DisabledServers {
    /// Reads the lists of one file; `ancestors` are this folder and those above it.
    pub(super) fn read(&mut self, source: &ConfigSource, text: &str, ancestors: &[PathBuf]) {
        let file: Arc<Path> = source.path.as_path().into();
        let is_known = self.lists.iter().any(|list| list.file == file);
        if source.dialect != Dialect::ClaudeCode || is_project_file(&file) || is_known {
            return;
        }
        let Ok(json) = jsonc::parse(text) else { return };
        let doc = json.to_doc();
        let projects = doc.root().get("projects");
        let project = projects.and_then(|projects| {
            let mut keys = ancestors.iter().filter_map(|folder| folder.to_str());
            keys.find_map(|key| {
                projects
                    .get(key)
                    .filter(|project| [TOGGLED, REJECTED].iter().any(|list| project.get(list).is_some()))
            })
        });
        let found = [
            (names(Some(doc.root()), REJECTED), true),
            (names(project, REJECTED), true),
            (names(project, TOGGLED), false),
        ];
        for (names, is_for_project_file) in found {
            if !names.is_empty() {
                self.lists.push(DisabledList { file: file.clone(), names, is_for_project_file });
            }
        }
    }

    /// The file that switches a server off. Entries of other clients, and of our own file, are not those that the user meant.
    pub(super) fn file(&self, server: &ConfiguredServer) -> Option<Arc<Path>> {
        if server.source.dialect != Dialect::ClaudeCode {
            return None;
        }
        let is_meant = |list: &&DisabledList| {
            list.names.contains(&server.name)
                && (!list.is_for_project_file || is_project_file(&server.source.path))
        };
        Some(self.lists.iter().find(is_meant)?.file.clone())
    }
}

fn is_project_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == PROJECT_FILE)
}

fn names(holder: Option<Node<'_>>, key: &str) -> BTreeSet<String> {
    let list = holder.and_then(|holder| holder.get(key));
    list.into_iter()
        .flat_map(|list| list.elements())
        .filter_map(|name| Some(name.str()?.into_owned()))
        .collect()
}
