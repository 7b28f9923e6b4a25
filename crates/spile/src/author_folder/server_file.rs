//! `mcp.json`: a folder of tools in the form of another runtime, served as it is.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::Directories;

pub(crate) const SERVER_FILE: &str = "mcp.json";

const FILE_BYTES_MAX: u64 = 1 << 20;

/// What the file says. Keys that Spile does not need are ignored: the file belongs to another program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerFile {
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    #[serde(alias = "description")]
    pub(crate) instructions: Option<String>,
    tools_dir: Option<String>,
    resources_dir: Option<String>,
    prompts_dir: Option<String>,
    skills_dir: Option<String>,
    apps_dir: Option<String>,
}

impl ServerFile {
    /// `None` if the folder has no such file, or one that lists servers for a client.
    pub(crate) fn find(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = folder.join(SERVER_FILE);
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() && metadata.len() <= FILE_BYTES_MAX => {}
            Ok(_) => bail!("`{}` is not a regular file of at most 1 MiB", path.display()),
            Err(_) => return Ok(None),
        }
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        Self::parse(&text).with_context(|| format!("cannot use `{}`", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Option<Self>> {
        let value: serde_json::Value = serde_json::from_str(text)?;
        if value.get("mcpServers").is_some() || value.get("servers").is_some() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_value(value)?))
    }

    pub(crate) fn directories(&self) -> anyhow::Result<Directories> {
        let standard = Directories::default();
        let inside = |own: &Option<String>, standard: String| match own {
            None => Ok(standard),
            Some(path) => {
                let path = path.trim_start_matches("./").trim_end_matches('/');
                let is_inside =
                    Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
                if !is_inside || path.is_empty() {
                    bail!("`{path}` in {SERVER_FILE} is not a folder inside this one");
                }
                Ok(path.to_owned())
            }
        };
        Ok(Directories {
            tools: inside(&self.tools_dir, standard.tools)?,
            prompts: inside(&self.prompts_dir, standard.prompts)?,
            resources: inside(&self.resources_dir, standard.resources)?,
            skills: inside(&self.skills_dir, standard.skills)?,
            apps: inside(&self.apps_dir, standard.apps)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Directories, ServerFile};

    #[test]
    fn the_file_names_the_server_and_its_folders() {
        let file = r#"{"name":"demo","version":"1.2.0","toolsDir":"./src/tools","runtime":"node"}"#;
        let file = ServerFile::parse(file).expect("valid").expect("a server");
        assert_eq!((file.name.as_deref(), file.version.as_deref()), (Some("demo"), Some("1.2.0")));
        let directories = file.directories().expect("valid");
        assert_eq!(directories, Directories { tools: "src/tools".into(), ..Directories::default() });
    }

    #[test]
    fn a_folder_outside_is_refused_and_a_list_of_servers_is_another_file() {
        for outside in ["../tools", "/tools", "", "a/../../b"] {
            let file = ServerFile { tools_dir: Some(outside.into()), ..ServerFile::default() };
            assert!(file.directories().is_err(), "{outside:?}");
        }
        assert_eq!(ServerFile::parse(r#"{"mcpServers":{}}"#).expect("valid"), None);
        assert!(ServerFile::parse("[1]").is_err() && ServerFile::parse("{").is_err());
        assert!(ServerFile::parse(r#"{"name":7}"#).is_err());
    }
}
