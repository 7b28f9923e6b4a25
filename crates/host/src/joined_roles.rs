//! The roles of several servers that are offered as one: a caller has a role in each of them, or none.

use std::sync::Arc;

use spile_core::{CallerRoles, Principal};

use crate::registry::Registry;
use crate::server::Server;

/// Each joined role has lists of its own. With more, callers see at the common server what a caller without a name sees.
const JOINED_ROLES_MAX: usize = 256;

pub(crate) struct JoinedRoles {
    /// Those that have roles.
    servers: Vec<Arc<Server>>,
    names: Vec<String>,
}

impl JoinedRoles {
    /// `None` if no server has roles, or if there are too many combinations of them.
    pub(crate) fn of(servers: &[Arc<Server>]) -> Option<Self> {
        let has_roles = |server: &&Arc<Server>| !server.registry().role_registries().is_empty();
        let servers: Vec<Arc<Server>> = servers.iter().filter(has_roles).cloned().collect();
        let mut names = vec![String::new()];
        for server in &servers {
            let registry = server.registry();
            names = names.iter().flat_map(|before| names_in(before, &server.name, &registry)).collect();
            if names.len() > JOINED_ROLES_MAX {
                tracing::warn!(
                    "the roles of the servers have more than {JOINED_ROLES_MAX} combinations; where all servers are together, \
                     they offer what a caller without a name sees"
                );
                return None;
            }
        }
        (!servers.is_empty()).then_some(Self { servers, names })
    }

    /// The role that a joined role has in a server, as its registry. `None`: it has none there.
    pub(crate) fn registry_in(&self, joined: &str, server: &Server) -> Option<Arc<Registry>> {
        let part = joined.split(SEPARATOR).find_map(|part| part.strip_prefix(&prefix(&server.name)))?;
        let registry = server.registry();
        let found = registry.role_registries().iter().find(|one| one.role.as_deref() == Some(part));
        found.cloned()
    }
}

const SEPARATOR: &str = ", ";

fn prefix(server: &str) -> String {
    format!("{server}: ")
}

/// No role has this name.
const NO_ROLE: &str = "-";

fn with_role(before: &str, server: &str, role: &str) -> String {
    let separator = if before.is_empty() { "" } else { SEPARATOR };
    format!("{before}{separator}{}{role}", prefix(server))
}

fn names_in<'n>(
    before: &'n str,
    server: &'n str,
    registry: &'n Registry,
) -> impl Iterator<Item = String> + 'n {
    let roles = registry.role_registries().iter().filter_map(|one| one.role.as_deref());
    std::iter::once(NO_ROLE).chain(roles).map(move |role| with_role(before, server, role))
}

impl CallerRoles for JoinedRoles {
    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// By the conditions that the servers have now. Of a role that is not joined yet, the caller sees nothing for a moment.
    fn role_of(&self, principal: &Principal) -> Option<usize> {
        let mut joined = String::new();
        for server in &self.servers {
            let registry = server.registry();
            let index = registry.role_index(principal);
            let found = index.and_then(|index| registry.role_registries().get(index));
            let role = found.and_then(|one| one.role.as_deref()).unwrap_or(NO_ROLE);
            joined = with_role(&joined, &server.name, role);
        }
        self.names.iter().position(|name| *name == joined)
    }
}
