//! Signing in to servers with OAuth 2.1, as MCP describes it.
//!
//! ```text
//! challenge     WWW-Authenticate: where the metadata is, and which scopes are missing
//!  → metadata   which authorization server, checked: every address comes from someone who is not trusted yet
//!  → discovery  the documents read, and the grant exchanged for tokens
//!  → login      registration, PKCE, the redirect to this machine, the code
//!  → device     the same on another device, for machines without a browser
//!  → machine    the same without a user: client credentials, workload identity, an enterprise's identity provider
//!  → dpop       tokens that are bound to a key, and a proof for each request
//!  → server_token  the token of a configured server, by what its entry says
//!  → authorizer a server that refuses: refresh, sign in, or ask for more scopes, a limited number of times
//!  → credentials  tokens in files for this user only; refreshed once, by one process, and never lost
//!  → keyring_key  the key that encrypts those files, where the desktop has a keyring
//! ```

mod authorizer;
mod challenge;
mod credentials;
mod device;
mod discovery;
mod dpop;
mod http;
mod jwt;
mod keyring_key;
mod login;
mod machine;
mod metadata;
mod server_token;

pub use authorizer::{Authorizer, AuthorizerClient, SIGN_INS_MAX};
pub use challenge::Challenge;
pub use credentials::{ClientAuth, ClientRegistration, CredentialStore, Credentials, TokenError, Tokens};
pub use device::DeviceLogin;
pub use discovery::find_authorization_server;
pub use http::RequestError;
pub use jwt::{SigningError, SigningKey};
pub use login::{LoginError, PendingLogin};
pub use machine::{ClientProof, MachineClient, MachineGrant};
pub use metadata::{AuthorizationServer, MetadataError, ResourceMetadata, UrlGuard, account_of, resource_of};
pub use server_token::{SecretError, ServerSignIn};
