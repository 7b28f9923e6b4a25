//! What an entry says about signing in, as it is written. `oauth::server_token` reads the files that it names, each time
//! a token is needed: platforms replace them.

use json::{Node, NodeKind};

use super::dialect::{EntryError, Fields};
use super::template::Template;

/// What a file says about signing in. All of it is optional: discovery finds the rest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OAuthSettings {
    pub client_id: Option<String>,
    pub client_secret: Option<Template>,
    /// A file with the secret, in place of `client_secret`.
    pub client_secret_file: Option<Template>,
    /// A PEM file with the key that signs the client's assertions, in place of a secret.
    pub private_key_file: Option<Template>,
    pub callback_port: Option<u16>,
    /// `None`: the scopes that the server asks for.
    pub scopes: Option<Vec<String>>,
    pub metadata_url: Option<String>,
    /// The resource indicator, if it is not the URL of the server.
    pub resource: Option<String>,
    /// How this program gets a token by itself. `None`: the user signs in.
    pub grant: Option<GrantSettings>,
}

/// A way to get a token without a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantSettings {
    /// The client acts for itself.
    ClientCredentials,
    /// The platform that runs this program writes an assertion of who it is into a file.
    WorkloadIdentity { assertion_file: Template },
    /// The identity provider of an enterprise, where the user is signed in: some other program writes the user's ID token
    /// into a file.
    Enterprise { token_endpoint: String, client_id: Option<String>, id_token_file: Template },
}

impl GrantSettings {
    pub fn name(&self) -> &'static str {
        match self {
            Self::ClientCredentials => "client_credentials",
            Self::WorkloadIdentity { .. } => "workload_identity",
            Self::Enterprise { .. } => "enterprise",
        }
    }
}

impl OAuthSettings {
    /// Claude Code's and VS Code's `oauth`, or Cursor's `auth`.
    pub(super) fn parse(entry: Fields<'_>) -> Result<Self, EntryError> {
        if let Some(node) = entry.member("oauth").filter(Node::is_object) {
            return Self::parse_object(Fields { node, ..entry });
        }
        let Some(node) = entry.member("auth").filter(Node::is_object) else { return Ok(Self::default()) };
        let auth = Fields { node, ..entry };
        Ok(Self {
            client_id: auth.text("CLIENT_ID")?,
            client_secret: auth.text("CLIENT_SECRET")?.map(|secret| auth.template(secret)),
            scopes: auth.texts("scopes")?,
            ..Self::default()
        })
    }

    fn parse_object(oauth: Fields<'_>) -> Result<Self, EntryError> {
        let template = |key: &str| Ok(oauth.text(key)?.map(|text| oauth.template(text)));
        let scopes = match oauth.member("scopes").map(|node| node.kind()) {
            Some(NodeKind::Array) => oauth.texts("scopes")?,
            _ => oauth.text("scopes")?.map(|all| all.split_whitespace().map(str::to_owned).collect()),
        };
        let settings = Self {
            client_id: oauth.text("clientId")?,
            client_secret: template("clientSecret")?,
            client_secret_file: template("clientSecretFile")?,
            private_key_file: template("privateKeyFile")?,
            callback_port: oauth.port("callbackPort")?,
            scopes,
            metadata_url: oauth.text("authServerMetadataUrl")?,
            resource: oauth.text("resource")?,
            grant: Self::parse_grant(oauth)?,
        };
        let proofs = [&settings.client_secret, &settings.client_secret_file, &settings.private_key_file];
        match proofs.iter().filter(|proof| proof.is_some()).count() {
            0 if settings.grant == Some(GrantSettings::ClientCredentials) => Err(EntryError(
                "the grant `client_credentials` needs `clientSecret`, `clientSecretFile` or `privateKeyFile`"
                    .to_owned(),
            )),
            0 | 1 if settings.grant.is_some() && settings.client_id.is_none() => {
                Err(EntryError("a `grant` needs the `clientId` that is registered for it".to_owned()))
            }
            1 if settings.private_key_file.is_some() && settings.grant.is_none() => {
                Err(EntryError("`privateKeyFile` needs a `grant`".to_owned()))
            }
            0 | 1 => Ok(settings),
            _ => Err(EntryError(
                "`clientSecret`, `clientSecretFile` and `privateKeyFile` exclude each other; keep one"
                    .to_owned(),
            )),
        }
    }

    fn parse_grant(oauth: Fields<'_>) -> Result<Option<GrantSettings>, EntryError> {
        const OF_GRANTS: [(&str, &str); 4] = [
            ("assertionFile", "workload_identity"),
            ("idpTokenEndpoint", "enterprise"),
            ("idpClientId", "enterprise"),
            ("idTokenFile", "enterprise"),
        ];
        let name = oauth.text("grant")?;
        let name = name.as_deref();
        if let Some((key, grant)) =
            OF_GRANTS.iter().find(|(key, grant)| oauth.member(key).is_some() && name != Some(grant))
        {
            return Err(EntryError(format!("`{key}` needs \"grant\": \"{grant}\"")));
        }
        let needed = |key: &str| {
            let missing = || EntryError(format!("the grant `{}` needs `{key}`", name.unwrap_or_default()));
            oauth.text(key)?.ok_or_else(missing)
        };
        Ok(Some(match name {
            None => return Ok(None),
            Some("client_credentials") => GrantSettings::ClientCredentials,
            Some("workload_identity") => {
                GrantSettings::WorkloadIdentity { assertion_file: oauth.template(needed("assertionFile")?) }
            }
            Some("enterprise") => GrantSettings::Enterprise {
                token_endpoint: needed("idpTokenEndpoint")?,
                client_id: oauth.text("idpClientId")?,
                id_token_file: oauth.template(needed("idTokenFile")?),
            },
            Some(other) => {
                return Err(EntryError(format!(
                    "unknown grant `{other}`; supported: client_credentials, workload_identity, enterprise"
                )));
            }
        }))
    }

    /// The files of this machine whose content is sent to get a token.
    pub fn files(&self) -> impl Iterator<Item = &Template> {
        let of_grant = match &self.grant {
            None | Some(GrantSettings::ClientCredentials) => None,
            Some(GrantSettings::WorkloadIdentity { assertion_file: file })
            | Some(GrantSettings::Enterprise { id_token_file: file, .. }) => Some(file),
        };
        [self.client_secret_file.as_ref(), self.private_key_file.as_ref(), of_grant].into_iter().flatten()
    }

    /// What decides who signs in and with which rights, by name. A secret that is replaced changes neither.
    pub fn identity(&self) -> Vec<(&'static str, String)> {
        let mut identity = Vec::new();
        let mut push =
            |name, value: Option<&str>| identity.extend(value.map(|value| (name, value.to_owned())));
        push("client_id", self.client_id.as_deref());
        push("scopes", self.scopes.as_ref().map(|scopes| scopes.join(" ")).as_deref());
        push("metadata", self.metadata_url.as_deref());
        push("resource", self.resource.as_deref());
        push("grant", self.grant.as_ref().map(GrantSettings::name));
        match &self.grant {
            None | Some(GrantSettings::ClientCredentials) => {}
            Some(GrantSettings::WorkloadIdentity { assertion_file }) => {
                push("assertion", Some(assertion_file.text()));
            }
            Some(GrantSettings::Enterprise { token_endpoint, client_id, id_token_file }) => {
                push("identity_provider", Some(token_endpoint));
                push("client_id_there", client_id.as_deref());
                push("id_token", Some(id_token_file.text()));
            }
        }
        identity
    }

    /// The files and addresses of the grant, by name: what the user approves.
    pub fn facts(&self) -> Vec<(&'static str, &str)> {
        let mut facts = Vec::new();
        facts.extend(self.grant.as_ref().map(|grant| ("grant", grant.name())));
        facts.extend(self.client_secret_file.as_ref().map(|file| ("client secret file", file.text())));
        facts.extend(self.private_key_file.as_ref().map(|file| ("private key file", file.text())));
        match &self.grant {
            None | Some(GrantSettings::ClientCredentials) => {}
            Some(GrantSettings::WorkloadIdentity { assertion_file }) => {
                facts.push(("assertion file", assertion_file.text()));
            }
            Some(GrantSettings::Enterprise { token_endpoint, client_id, id_token_file }) => {
                facts.push(("identity provider", token_endpoint));
                facts.extend(client_id.as_deref().map(|id| ("client id there", id)));
                facts.push(("ID token file", id_token_file.text()));
            }
        }
        facts
    }
}
