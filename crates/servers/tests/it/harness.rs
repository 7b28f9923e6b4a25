//! A user with a home and a project, and the files in them.

use std::path::{Path, PathBuf};

use servers::config::files::ConfigDirs;
use servers::config::{Configuration, ConfiguredServer, EntryTransport, ResolvedTransport, ServerEntry};
use tempfile::TempDir;

pub struct User {
    root: TempDir,
}

impl User {
    /// Paths are relative to a folder with `home` and `project`.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let user = Self { root: tempfile::tempdir().expect("a folder can be made") };
        for folder in ["home", "project/below"] {
            std::fs::create_dir_all(user.path(folder)).expect("a folder can be made");
        }
        files.iter().for_each(|(path, text)| user.write(path, text));
        user
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().canonicalize().expect("exists").join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
        let text = text.replace("ROOT", self.path("").display().to_string().trim_end_matches('/'));
        std::fs::write(path, text).expect("a file can be written");
    }

    pub fn places(&self) -> ConfigDirs {
        ConfigDirs {
            home: Some(self.path("home")),
            settings: Some(self.path("home/.config")),
            codex_home: None,
            current_dir: self.path("project/below"),
        }
    }

    pub fn load(&self) -> Configuration {
        self.load_with(&[])
    }

    pub fn load_with(&self, run_files: &[&str]) -> Configuration {
        let run_files: Vec<PathBuf> = run_files.iter().map(|file| self.path(file)).collect();
        self.places().load(&run_files).expect("the named files exist")
    }

    pub fn normalize(&self, text: &str) -> String {
        text.replace(self.path("").display().to_string().trim_end_matches('/'), "")
    }

    /// Every server with where it was found and what it would do, then the problems.
    pub fn show(&self, configuration: &Configuration) -> String {
        let mut out = String::new();
        for server in &configuration.servers {
            out += &format!("{} · {} {}\n", server.name, server.source.scope.name(), server.source.label());
            out += &format!("  {}\n", show_entry(server));
            if let Some(file) = &server.disabled_in {
                out += &format!("  disabled in {}\n", file.display());
            }
            for lower in &server.shadowed {
                out += &format!("  shadows {} {}\n", lower.scope.name(), lower.label());
            }
        }
        for problem in &configuration.problems {
            out += &format!("problem: {problem}\n");
        }
        self.normalize(&out)
    }
}

fn show_entry(server: &ConfiguredServer) -> String {
    match &server.entry {
        Ok(entry) => describe(entry),
        Err(error) => format!("invalid: {error}"),
    }
}

/// An entry in one line, with its variables as they are written.
pub fn describe(entry: &ServerEntry) -> String {
    let mut out = entry.kind().to_owned();
    match &entry.transport {
        EntryTransport::Stdio(stdio) => {
            out += &format!(" {:?} {:?}", stdio.command, stdio.args);
            let pairs: Vec<String> =
                stdio.env.iter().map(|(name, value)| format!("{name}={}", value.text())).collect();
            push(&mut out, "env", &pairs);
            push(&mut out, "inherits", &stdio.inherited_env);
            push_text(&mut out, "envFile", stdio.env_file.as_ref().map(|file| file.text()));
            push_text(&mut out, "cwd", stdio.cwd.as_ref().map(|cwd| cwd.text()));
        }
        EntryTransport::Remote(remote) => {
            out += &format!(" {}", remote.url.text());
            let pairs: Vec<String> =
                remote.headers.iter().map(|(name, value)| format!("{name}: {}", value.text())).collect();
            push(&mut out, "headers", &pairs);
            let pairs: Vec<String> =
                remote.env_headers.iter().map(|(name, variable)| format!("{name}: ${variable}")).collect();
            push(&mut out, "env headers", &pairs);
            let oauth = &remote.oauth;
            push_text(&mut out, "client id", oauth.client_id.as_deref());
            push_text(&mut out, "client secret", oauth.client_secret.as_ref().map(|secret| secret.text()));
            push_text(&mut out, "callback", oauth.callback_port.map(|port| port.to_string()).as_deref());
            push(&mut out, "scopes", oauth.scopes.as_deref().unwrap_or_default());
            push_text(&mut out, "metadata", oauth.metadata_url.as_deref());
            push_text(&mut out, "resource", oauth.resource.as_deref());
        }
    }
    if !entry.is_enabled {
        out += " disabled";
    }
    push_text(&mut out, "call", entry.call_timeout_ms.map(|ms| format!("{ms} ms")).as_deref());
    push_text(&mut out, "start", entry.start_timeout_ms.map(|ms| format!("{ms} ms")).as_deref());
    push(&mut out, "only", entry.tools.only.as_deref().unwrap_or_default());
    push(&mut out, "except", &entry.tools.except);
    if let Some(roots) = &entry.roots {
        out += &format!(" roots={roots:?}");
    }
    out
}

fn push(out: &mut String, label: &str, values: &[String]) {
    if !values.is_empty() {
        *out += &format!(" {label}={values:?}");
    }
}

fn push_text(out: &mut String, label: &str, value: Option<&str>) {
    push(out, label, &value.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>());
}

/// What a server would start, with its variables replaced.
pub fn resolve(server: &ConfiguredServer, env: &[(&str, &str)], home: &Path) -> Result<String, String> {
    let env = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    match server.resolve(&env, Some(home)).map_err(|error| error.to_string())? {
        ResolvedTransport::Process(command) => {
            let words = std::iter::once(&command.program).chain(&command.args);
            let mut out: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
            let env = command
                .env
                .iter()
                .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
            out.extend(env);
            out.extend(command.cwd.map(|cwd| format!("in {}", cwd.display())));
            Ok(out.join(" | "))
        }
        ResolvedTransport::Remote { target, headers } => {
            let headers: Vec<String> =
                headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            Ok(format!("{target:?} {headers:?}"))
        }
    }
}
