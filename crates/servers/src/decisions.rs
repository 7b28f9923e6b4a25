//! What the user decided about servers: approved, or disabled.
//!
//! A file in a project folder came with the project. Nothing that it names is started or connected to before the user
//! approved it, and an approval is bound to a digest of everything that decides what happens: the project folder, the
//! server's name, and the command, arguments, environment, address and headers as they are written, with the content of the
//! file that variables come from. Any change needs a new approval.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use json::Json;
use ring::digest;

use crate::config::{ConfiguredServer, EntryTransport, ServerEntry, Template, Trust, VariableSyntax};
use crate::definitions::DefinitionPolicy;
use crate::{jsonc, private_file};

/// Whether a server may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Allowed,
    /// The user has not approved this entry.
    NeedsApproval,
    /// The user approved another entry of this name: it was changed since.
    Changed,
    /// Disabled by the user.
    Disabled,
    /// Disabled in its own file, or by a list of Claude Code.
    DisabledInFile,
    /// The entry is invalid.
    Invalid,
}

/// The decisions of this user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decisions {
    /// Digest → what it was made of, for people who read the file.
    approved: BTreeMap<String, Approval>,
    disabled: BTreeSet<(PathBuf, String)>,
    /// How often the user wanted programs that run to try a server again.
    retries: BTreeMap<(PathBuf, String), u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Approval {
    file: PathBuf,
    server: String,
}

impl Decisions {
    pub fn permission(&self, server: &ConfiguredServer) -> Permission {
        let Ok(entry) = &server.entry else { return Permission::Invalid };
        if self.disabled.contains(&(server.source.path.clone(), server.name.clone())) {
            return Permission::Disabled;
        }
        if server.disabling_file().is_some() {
            return Permission::DisabledInFile;
        }
        match server.source.trust {
            Trust::User => Permission::Allowed,
            Trust::Project if self.approved.contains_key(&entry_digest(server, entry)) => Permission::Allowed,
            Trust::Project => {
                let is_same = |approval: &&Approval| {
                    approval.server == server.name && approval.file == server.source.path
                };
                match self.approved.values().find(is_same) {
                    Some(_) => Permission::Changed,
                    None => Permission::NeedsApproval,
                }
            }
        }
    }

    /// Approves the entry as it is now, and forgets what was approved under its name before.
    pub fn approve(&mut self, server: &ConfiguredServer) {
        let Ok(entry) = &server.entry else { return };
        self.approved.retain(|_, old| old.server != server.name || old.file != server.source.path);
        let approval = Approval { file: server.source.path.clone(), server: server.name.clone() };
        self.approved.insert(entry_digest(server, entry), approval);
    }

    pub fn disable(&mut self, server: &ConfiguredServer) {
        self.disabled.insert((server.source.path.clone(), server.name.clone()));
    }

    pub fn enable(&mut self, server: &ConfiguredServer) {
        self.disabled.remove(&(server.source.path.clone(), server.name.clone()));
    }

    /// Programs that run and follow the decisions connect to the server again, and read its lists again.
    pub fn retry(&mut self, server: &ConfiguredServer) {
        *self.retries.entry((server.source.path.clone(), server.name.clone())).or_default() += 1;
    }

    pub fn retries(&self, server: &ConfiguredServer) -> u64 {
        self.retries.get(&(server.source.path.clone(), server.name.clone())).copied().unwrap_or(0)
    }

    fn to_json(&self) -> Json {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        Json::object(|out| {
            out.object("approved", |out| {
                for (digest, approval) in &self.approved {
                    out.object(digest, |out| {
                        out.str("server", &approval.server).str("file", &path(&approval.file));
                    });
                }
            });
            out.array("disabled", &self.disabled, |out, (file, server)| {
                let mut object = json::write::ObjectWriter::new(out);
                object.str("server", server).str("file", &path(file));
                object.end();
            });
            if !self.retries.is_empty() {
                out.array("retries", &self.retries, |out, ((file, server), count)| {
                    let mut object = json::write::ObjectWriter::new(out);
                    object.str("server", server).str("file", &path(file));
                    object.int("count", i64::try_from(*count).unwrap_or(i64::MAX));
                    object.end();
                });
            }
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let json = jsonc::parse(text).ok()?;
        let doc = json.to_doc();
        let text = |node: json::Node<'_>, key: &str| Some(node.get(key)?.str()?.into_owned());
        let mut decisions = Self::default();
        for (digest, approval) in doc.root().get("approved")?.members() {
            let (server, file) = (text(approval, "server")?, text(approval, "file")?.into());
            decisions.approved.insert(digest.str()?.into_owned(), Approval { file, server });
        }
        for one in doc.root().get("disabled")?.elements() {
            decisions.disabled.insert((text(one, "file")?.into(), text(one, "server")?));
        }
        // Earlier versions wrote none.
        for one in doc.root().get("retries").into_iter().flat_map(|retries| retries.elements()) {
            let count = one.get("count")?.u64()?;
            decisions.retries.insert((text(one, "file")?.into(), text(one, "server")?), count);
        }
        Some(decisions)
    }
}

/// Identifies everything that an approval covers.
fn entry_digest(server: &ConfiguredServer, entry: &ServerEntry) -> String {
    let mut hash = PartsDigest::new();
    hash.text("spile approval 1");
    hash.text(&server.source.folder.as_deref().unwrap_or(Path::new("")).to_string_lossy());
    hash.text(&server.name);
    match &entry.transport {
        EntryTransport::Stdio(stdio) => {
            hash.text("stdio");
            hash.template(&stdio.command);
            hash.list(&stdio.args, PartsDigest::template);
            hash.list(&stdio.env, |hash, (name, value)| {
                hash.text(name);
                hash.template(value);
            });
            hash.list(&stdio.inherited_env, |hash, name| hash.text(name));
            hash.list(stdio.env_file.iter().collect::<Vec<_>>(), PartsDigest::template);
            hash.list(stdio.cwd.iter().collect::<Vec<_>>(), PartsDigest::template);
            // Without such a file nothing is added, so that earlier approvals stay valid.
            if let Some(file) = &server.env_file {
                hash.text("content of the env file");
                hash.list(file.digest.iter().collect::<Vec<_>>(), |hash, digest| hash.text(digest));
            }
        }
        EntryTransport::Remote(remote) => {
            hash.text(remote.kind.name());
            hash.template(&remote.url);
            hash.list(&remote.headers, |hash, (name, value)| {
                hash.text(name);
                hash.template(value);
            });
            hash.list(&remote.env_headers, |hash, (name, variable)| {
                hash.text(name);
                hash.text(variable);
            });
            let oauth = &remote.oauth;
            for part in [&oauth.client_id, &oauth.metadata_url, &oauth.resource] {
                hash.list(part.iter().collect::<Vec<_>>(), |hash, part| hash.text(part));
            }
            hash.list(oauth.client_secret.iter().collect::<Vec<_>>(), PartsDigest::template);
            // Without a grant nothing is added, so that earlier approvals stay valid.
            let grant = oauth.facts();
            if !grant.is_empty() {
                hash.list(&grant, |hash, (name, value)| {
                    hash.text(name);
                    hash.text(value);
                });
            }
            hash.list(oauth.scopes.iter().flatten().collect::<Vec<_>>(), |hash, scope| hash.text(scope));
        }
    }
    // Without roots nothing is added, so that earlier approvals stay valid.
    if let Some(roots) = &entry.roots {
        hash.text("roots");
        hash.list(roots, PartsDigest::template);
    }
    // A file cannot weaken what the user relies on without a new approval.
    if entry.definitions == DefinitionPolicy::Warn {
        hash.text("definitions: warn");
    }
    hash.finish()
}

/// SHA-256 over parts with their lengths: no two lists of parts have the same input.
struct PartsDigest(digest::Context);

impl PartsDigest {
    fn new() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }

    fn text(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_be_bytes());
        self.0.update(text.as_bytes());
    }

    /// The same text means something else where variables are replaced.
    fn template(&mut self, template: &Template) {
        self.text(match template.syntax() {
            VariableSyntax::Literal => "literal",
            VariableSyntax::Shell => "shell",
            VariableSyntax::Editor => "editor",
        });
        self.text(template.text());
    }

    fn list<'t, T>(
        &mut self,
        items: impl IntoIterator<Item = &'t T, IntoIter: ExactSizeIterator>,
        each: impl Fn(&mut Self, &T),
    ) where
        T: 't,
    {
        let items = items.into_iter();
        self.0.update(&(items.len() as u64).to_be_bytes());
        items.for_each(|item| each(self, item));
    }

    fn finish(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Where the decisions are kept: a file for this user only, in their state folder.
pub struct DecisionFile {
    path: PathBuf,
}

/// Why decisions cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    #[error("cannot {action} `{path}`: {error}")]
    Io { action: &'static str, path: String, error: io::Error },
    #[error("`{0}` is damaged; delete it, and approve your servers again")]
    Damaged(String),
}

/// The file has one short record for each approval.
const DECISIONS_BYTES_MAX: u64 = 4 << 20;

impl DecisionFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// No file is no decision. A damaged file is an error: guessing could start what was never approved.
    pub fn load(&self) -> Result<Decisions, DecisionError> {
        let shown = || self.path.display().to_string();
        let text = private_file::read(&self.path, DECISIONS_BYTES_MAX)
            .map_err(|error| DecisionError::Io { action: "read", path: shown(), error })?;
        match text {
            None => Ok(Decisions::default()),
            Some(text) => Decisions::parse(&text).ok_or_else(|| DecisionError::Damaged(shown())),
        }
    }

    /// Reads, changes and writes the decisions under a lock.
    pub fn update(&self, change: impl FnOnce(&mut Decisions)) -> Result<(), DecisionError> {
        let failed =
            |action| move |error| DecisionError::Io { action, path: self.path.display().to_string(), error };
        private_file::create_folder(&self.path).map_err(failed("create the folder of"))?;
        let _lock = private_file::lock(&self.path).map_err(failed("lock"))?;
        let mut decisions = self.load()?;
        change(&mut decisions);
        private_file::replace(&self.path, decisions.to_json().as_str()).map_err(failed("write"))
    }
}
