//! `spile skills` and `spile skill`: the skills of a server. No file is read before it is asked for, and none is printed
//! that differs from what the server listed.

use std::path::PathBuf;

use clap::Args;
use contract::humanize::join_truncated;
use contract::nearest;
use json::Json;
use servers::skills::{self, ListedSkill, SkillError};
use wire::client::{ClientError, VersionMismatch};

use super::error::{CommandError, Exit};
use super::output_style::OutputStyle;
use super::render;
use super::steps::{ClientSession, CommandResult};
use crate::layout::{ColumnFit, Table};
use crate::sanitize;

#[derive(Debug, Args)]
pub struct SkillArgs {
    /// The skill's name
    pub(super) name: String,
    /// One of its files, such as `references/FORMS.md` (default: SKILL.md)
    pub(super) file: Option<String>,
    /// Write the file to FILE, byte for byte
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

impl ClientSession {
    pub(super) async fn list_skills(&self) -> CommandResult {
        let skills = self.skills().await?;
        let list = Json::object(|out| {
            out.array("skills", &skills, |out, skill| {
                let entry = Json::object(|out| {
                    out.str("uri", &skill.uri).raw("frontmatter", skill.frontmatter.as_str());
                    let uri =
                        |out: &mut Vec<u8>, file: &skills::ListedFile| json::write::string(out, &file.uri);
                    out.array("files", &skill.files, uri);
                });
                out.extend_from_slice(entry.as_str().as_bytes());
            });
        });
        self.print_result(list.to_doc().root(), |style| {
            self.list_heading(skills.len(), "skill", style) + &table(&skills, style)
        })
    }

    pub(super) async fn read_skill(&self, args: &SkillArgs) -> CommandResult {
        let skills = self.skills().await?;
        let skill = self.find_skill(&skills, &args.name)?;
        let (uri, bytes) = match &args.file {
            None => (skill.uri.clone(), skill.load(&self.connection).await.map(String::into_bytes)),
            Some(file) => {
                // Its instructions must be the listed ones before any other file of it is used.
                skill.load(&self.connection).await.map_err(|error| self.skill_error(error))?;
                let uri = self.file_uri(skill, file)?;
                let bytes = skill.read(&self.connection, &uri).await;
                (uri, bytes)
            }
        };
        let bytes = bytes.map_err(|error| self.skill_error(error))?;
        if let Some(file) = &args.save {
            self.save(file, Some(bytes), "")?;
            return Ok(Exit::Success);
        }
        let text = String::from_utf8(bytes).map_err(|_| {
            CommandError::new(Exit::Failed, format!("`{uri}` is not text"))
                .help("write it to a file with --save")
        })?;
        let object = Json::object(|out| {
            out.str("uri", &uri).str("text", &text);
        });
        self.print_result(object.to_doc().root(), |_| render::with_newline(&sanitize::lines(&text)))
    }

    async fn skills(&self) -> Result<Vec<ListedSkill>, CommandError> {
        match skills::list(&self.connection).await {
            Ok(skills) => Ok(skills),
            // A server without the extension does not know the request.
            Err(SkillError::Client(ClientError::Server(error))) if error.code == -32601 => Ok(Vec::new()),
            Err(SkillError::Client(ClientError::UnsupportedVersion(
                VersionMismatch::MethodNotInVersion { .. },
            ))) => Ok(Vec::new()),
            Err(error) => Err(self.skill_error(error)),
        }
    }

    fn skill_error(&self, error: SkillError) -> CommandError {
        match error {
            SkillError::Client(error) => self.command_error(error),
            other => CommandError::new(Exit::Failed, sanitize::escape_line(&other.to_string()).into_owned()),
        }
    }

    fn find_skill<'s>(&self, skills: &'s [ListedSkill], name: &str) -> Result<&'s ListedSkill, CommandError> {
        let names: Vec<String> = skills.iter().filter_map(|skill| skill.text("name")).collect();
        if let Some(found) = skills.iter().find(|skill| skill.text("name").as_deref() == Some(name)) {
            return Ok(found);
        }
        let error = CommandError::usage(format!("unknown skill `{name}`"));
        Err(match nearest(name, names.iter().map(String::as_str)) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None if names.is_empty() => error.help("the server has no skills"),
            None => error.help(format!("known skills: {}", join_truncated(&names, 12))),
        })
    }

    /// The address of a file beside `SKILL.md`.
    fn file_uri(&self, skill: &ListedSkill, file: &str) -> Result<String, CommandError> {
        let folder = skill.uri.rsplit_once('/').map_or("", |(folder, _)| folder);
        let paths: Vec<&str> = skill
            .files
            .iter()
            .filter_map(|listed| listed.uri.strip_prefix(folder)?.strip_prefix('/'))
            .collect();
        if paths.contains(&file) {
            return Ok(format!("{folder}/{file}"));
        }
        let known = format!("its files: {}", join_truncated(&paths, 12));
        Err(CommandError::usage(format!("the skill has no file `{file}`")).help(known))
    }
}

fn table(skills: &[ListedSkill], style: &OutputStyle) -> String {
    let mut table =
        Table::new(&["skill", "files", ""]).fit(0, ColumnFit::Keep).fit(1, ColumnFit::Drop).align_right(1);
    for skill in skills {
        let text = |key: &str| sanitize::escape_line(&skill.text(key).unwrap_or_default()).into_owned();
        table.rows.push(vec![text("name"), skill.files.len().to_string(), text("description")]);
    }
    table.render(style, 0)
}
