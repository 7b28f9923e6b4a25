//! The token of a configured server: of the user who signed in, or of a client that the entry describes and that signs
//! in by itself.

use std::path::{Path, PathBuf};

use upstream::AccessToken;
use url::Url;

use super::challenge::Challenge;
use super::credentials::CredentialStore;
use super::jwt::SigningKey;
use super::login::LoginError;
use super::machine::{ClientProof, MachineClient, MachineGrant};
use super::metadata::{account_of, resource_of};
use crate::config::{ConfiguredServer, EntryTransport, ExpandError, GrantSettings, OAuthSettings, Template};
use crate::private_file;

/// No secret, key or assertion is longer.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Why a secret of an entry cannot be used. Never contains the secret.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SecretError {
    #[error("oauth.{key}: {error}")]
    Expand { key: &'static str, error: ExpandError },
    #[error("oauth.{key}: cannot read `{path}`: {reason}")]
    File { key: &'static str, path: String, reason: String },
    #[error("oauth.{key}: `{path}` is empty")]
    Empty { key: &'static str, path: String },
}

/// What the entry of a server says about signing in, and how its variables are replaced.
#[derive(Clone, Copy)]
pub struct ServerSignIn<'a> {
    pub server: &'a ConfiguredServer,
    /// The address of the server.
    pub url: &'a Url,
    pub env: &'a (dyn Fn(&str) -> Option<String> + Sync),
    pub home: Option<&'a Path>,
}

impl ServerSignIn<'_> {
    /// A valid token; `rejected` is one that the server did not accept. `None`: the user must sign in.
    pub async fn token(
        self,
        rejected: Option<&str>,
        store: &CredentialStore,
    ) -> Result<Option<AccessToken>, LoginError> {
        let account = self.account();
        let found = store.token(&account, rejected).await?;
        if found.is_some() || self.settings().is_none_or(|settings| settings.grant.is_none()) {
            return Ok(found);
        }
        // One at a time: the others use what the first one got.
        let lock = store.sign_in_lock(&account);
        let _guard = lock.lock().await;
        if let Some(found) = store.token(&account, rejected).await? {
            return Ok(Some(found));
        }
        self.sign_in_as_machine(None, store).await?;
        Ok(store.token(&account, rejected).await?)
    }

    /// Gets a token without a user. Returns `false` if the entry describes no such client.
    pub async fn sign_in_as_machine(
        self,
        challenge: Option<&Challenge>,
        store: &CredentialStore,
    ) -> Result<bool, LoginError> {
        let (Some(settings), Some(client)) = (self.settings(), self.machine_client()?) else {
            return Ok(false);
        };
        client.sign_in(self.url, challenge, settings, store).await?;
        Ok(true)
    }

    /// Under which name the credentials are kept.
    pub fn account(&self) -> String {
        self.settings().map_or_else(|| resource_of(self.url), |settings| account_of(self.url, settings))
    }

    pub fn settings(&self) -> Option<&OAuthSettings> {
        match &self.server.entry.as_ref().ok()?.transport {
            EntryTransport::Remote(remote) => Some(&remote.oauth),
            EntryTransport::Stdio(_) => None,
        }
    }

    /// The secret of the client that the entry names.
    pub fn client_secret(&self) -> Result<Option<String>, SecretError> {
        let Some(settings) = self.settings() else { return Ok(None) };
        match (&settings.client_secret, &settings.client_secret_file) {
            (Some(secret), _) => Ok(Some(self.expand("clientSecret", secret)?)),
            (None, Some(file)) => Ok(Some(self.read("clientSecretFile", file)?)),
            (None, None) => Ok(None),
        }
    }

    /// `None` if the user signs in.
    fn machine_client(&self) -> Result<Option<MachineClient>, LoginError> {
        let Some(settings) = self.settings() else { return Ok(None) };
        let Some(grant) = &settings.grant else { return Ok(None) };
        let client_id = settings.client_id.clone().unwrap_or_default();
        let proof = match (&settings.private_key_file, self.client_secret()?) {
            (Some(file), _) => {
                let pem = self.read("privateKeyFile", file)?;
                ClientProof::PrivateKey(Box::new(SigningKey::from_pem(&pem)?))
            }
            (None, Some(secret)) => ClientProof::Secret(secret),
            (None, None) => ClientProof::None,
        };
        let grant = match grant {
            GrantSettings::ClientCredentials => MachineGrant::ClientCredentials,
            GrantSettings::WorkloadIdentity { assertion_file } => {
                MachineGrant::WorkloadIdentity { assertion: self.read("assertionFile", assertion_file)? }
            }
            GrantSettings::Enterprise { token_endpoint, client_id: at_provider, id_token_file } => {
                MachineGrant::Enterprise {
                    token_endpoint: token_endpoint.clone(),
                    client_id: at_provider.clone().unwrap_or_else(|| client_id.clone()),
                    id_token: self.read("idTokenFile", id_token_file)?,
                }
            }
        };
        Ok(Some(MachineClient { client_id, proof, grant }))
    }

    fn expand(&self, key: &'static str, template: &Template) -> Result<String, SecretError> {
        let expanded = self.server.expand(template, &|name| (self.env)(name), self.home);
        expanded.map_err(|error| SecretError::Expand { key, error })
    }

    /// Relative paths start at the project, or at the folder of the settings file.
    fn read(&self, key: &'static str, file: &Template) -> Result<String, SecretError> {
        let source = &self.server.source;
        let folder: Option<PathBuf> =
            source.folder.clone().or_else(|| source.path.parent().map(Path::to_owned));
        let path = folder.unwrap_or_default().join(self.expand(key, file)?);
        let shown = || path.display().to_string();
        let failed = |reason: String| SecretError::File { key, path: shown(), reason };
        let text = private_file::read(&path, SECRET_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
        let text = text.ok_or_else(|| failed("file not found".to_owned()))?;
        match text.trim() {
            "" => Err(SecretError::Empty { key, path: shown() }),
            text => Ok(text.to_owned()),
        }
    }
}
