//! Servers that are registered while a program runs: the lowest scope, in memory, gone when the program ends.
//!
//! Whoever registers a server is not at this machine. So an entry has no variables, which would read this machine's
//! environment, names none of its files, and starts a program only where the owner of this machine allowed that. Where it
//! may be is judged again when a connection is made: see `ManagerOptions::registered_reach`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use json::Node;
use outbound::Reach;
use url::{Host, Url};

use super::dialect::{Dialect, ParsedServer, check_name};
use super::entry::{EntryTransport, ServerEntry};
use super::template::VariableSyntax;
use super::{ConfigScope, ConfigSource, Trust};

/// What may be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistrationRules {
    pub allows_commands: bool,
    pub reach: Reach,
}

/// Why a server is not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotAllowed(String),
    #[error("{SERVERS_MAX} servers are registered already; delete one of them first")]
    TooMany,
}

/// What became of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    Added,
    Replaced,
}

const SERVERS_MAX: usize = 100;
/// What the source is called where others have the path of a file.
const LABEL: &str = "/-/servers";

#[derive(Default)]
pub struct RegisteredServers {
    servers: Mutex<BTreeMap<String, ServerEntry>>,
    version: AtomicU64,
}

impl RegisteredServers {
    /// Registers a server, in place of the one that was registered under its name.
    pub fn register(
        &self,
        name: &str,
        entry: Node<'_>,
        rules: RegistrationRules,
    ) -> Result<Registration, RegisterError> {
        check_name(name).map_err(|error| RegisterError::Invalid(error.to_string()))?;
        if name.chars().any(|c| c.is_control() || c == '/') {
            let reason = "the name contains a slash or a control character";
            return Err(RegisterError::Invalid(reason.to_owned()));
        }
        if has_variable(entry) {
            let reason = "variables (`${…}`) are not replaced in a registered server; send the value itself";
            return Err(RegisterError::Invalid(reason.to_owned()));
        }
        let entry = Dialect::Spile.parse_entry_with(entry, VariableSyntax::Literal);
        let entry = entry.map_err(|error| RegisterError::Invalid(error.to_string()))?;
        check_transport(&entry, rules)?;
        let mut servers = self.lock();
        if servers.len() >= SERVERS_MAX && !servers.contains_key(name) {
            return Err(RegisterError::TooMany);
        }
        let replaced = servers.insert(name.to_owned(), entry);
        self.version.fetch_add(1, Ordering::Release);
        Ok(if replaced.is_some() { Registration::Replaced } else { Registration::Added })
    }

    /// Returns whether it was registered.
    pub fn remove(&self, name: &str) -> bool {
        let is_removed = self.lock().remove(name).is_some();
        if is_removed {
            self.version.fetch_add(1, Ordering::Release);
        }
        is_removed
    }

    pub fn contains(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// Increases with each change.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn source(&self) -> (ConfigSource, Vec<ParsedServer>) {
        let source = ConfigSource {
            scope: ConfigScope::Dynamic,
            dialect: Dialect::Spile,
            trust: Trust::User,
            path: PathBuf::from(LABEL),
            project_key: None,
            folder: None,
        };
        let servers = self.lock();
        let parsed =
            servers.iter().map(|(name, entry)| ParsedServer { name: name.clone(), entry: Ok(entry.clone()) });
        (source, parsed.collect())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ServerEntry>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a key or a value is written as one with a variable.
fn has_variable(node: Node<'_>) -> bool {
    let is_one = node.str().is_some_and(|text| text.contains("${"));
    is_one
        || node.elements().any(has_variable)
        || node.members().any(|(key, value)| has_variable(key) || has_variable(value))
}

fn check_transport(entry: &ServerEntry, rules: RegistrationRules) -> Result<(), RegisterError> {
    let not_allowed = |reason: &str| Err(RegisterError::NotAllowed(reason.to_owned()));
    let remote = match &entry.transport {
        EntryTransport::Stdio(_) if rules.allows_commands => return Ok(()),
        EntryTransport::Stdio(_) => {
            return not_allowed(
                "a registered server may not start a program; register an address, or start the gateway with \
                 `--register commands`",
            );
        }
        EntryTransport::Remote(remote) => remote,
    };
    let invalid = |reason: String| RegisterError::Invalid(reason);
    let url = Url::parse(remote.url.text()).map_err(|error| invalid(format!("`url`: {error}")))?;
    if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") {
        return Err(invalid("`url` is not an http, https, ws or wss address".to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("`url` contains a name or a password; send them in `headers`".to_owned()));
    }
    if remote.oauth.files().next().is_some() {
        return not_allowed(
            "a registered server may not name files of this machine in `oauth`; write it into a settings file, or send \
             `clientSecret`",
        );
    }
    let address = match url.host() {
        Some(Host::Ipv4(ip)) => Some(IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => Some(IpAddr::V6(ip)),
        Some(Host::Domain(name)) if name == "localhost" || name.ends_with(".localhost") => {
            Some(IpAddr::from([127, 0, 0, 1]))
        }
        Some(Host::Domain(_)) | None => None,
    };
    match address {
        Some(address) if !rules.reach.allows(address) => not_allowed(
            "a registered server may not be at this address; only public addresses are allowed, unless the gateway is \
             started with `--register private`",
        ),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::*;

    /// What `register` says to an entry of a remote caller; `None`: registered.
    fn refusal(entry: &str) -> Option<String> {
        let rules = RegistrationRules { allows_commands: true, reach: Reach::Anywhere };
        let doc = Json::parse(entry).expect("JSON").to_doc();
        RegisteredServers::default().register("x", doc.root(), rules).err().map(|error| error.to_string())
    }

    #[test]
    fn an_entry_reads_nothing_of_this_machine() {
        for (entry, expected) in [
            (r#"{"url":"https://a.example/${HOME}"}"#, Some("variables")),
            (r#"{"url":"https://a.example/\u0024{HOME}"}"#, Some("variables")),
            (r#"{"url":"https://a.example","headers":{"k":"\u0024\u007bHOME}"}}"#, Some("variables")),
            (r#"{"url":"https://a.example","headers":{"\u0024{HOME}":"v"}}"#, Some("variables")),
            (r#"{"command":"curl","args":["a","$\u007bHOME}"]}"#, Some("variables")),
            (
                r#"{"url":"https://a.example","oauth":{"clientId":"c","clientSecretFile":"/s"}}"#,
                Some("files of this machine"),
            ),
            (
                r#"{"url":"https://a.example","oauth":{"clientId":"c","grant":"client_credentials","privateKeyFile":"/s"}}"#,
                Some("files of this machine"),
            ),
            (
                r#"{"url":"https://a.example","oauth":{"clientId":"c","grant":"workload_identity","assertionFile":"/s"}}"#,
                Some("files of this machine"),
            ),
            (
                r#"{"url":"https://a.example","oauth":{"clientId":"c","grant":"enterprise","idpTokenEndpoint":"https://i.example","idTokenFile":"/s"}}"#,
                Some("files of this machine"),
            ),
            (r#"{"url":"https://a.example/$HOME","headers":{"k":"$HOME {x}"}}"#, None),
            (r#"{"url":"https://a.example","oauth":{"clientId":"c","clientSecret":"s"}}"#, None),
        ] {
            let got = refusal(entry);
            match expected {
                Some(expected) => {
                    assert!(got.as_ref().is_some_and(|got| got.contains(expected)), "{entry}: {got:?}");
                }
                None => assert_eq!(got, None, "{entry}"),
            }
        }
    }
}
