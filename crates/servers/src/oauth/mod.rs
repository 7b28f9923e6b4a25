//! Signing in to servers with OAuth 2.1, as MCP describes it.
//!
//! ```text
//! challenge     WWW-Authenticate: where the metadata is, and which scopes are missing
//!  → metadata   which authorization server, checked: every address comes from someone who is not trusted yet
//!  → login      registration, PKCE, the redirect to this machine, the code
//!  → machine    the same without a user: client credentials, workload identity, an enterprise's identity provider
//!  → authorizer a server that refuses: refresh, sign in, or ask for more scopes, a limited number of times
//!  → credentials  tokens in files for this user only; refreshed once, by one process, and never lost
//! ```

mod authorizer;
mod challenge;
mod credentials;
mod http;
mod jwt;
mod login;
mod machine;
mod metadata;

pub use authorizer::{Authorizer, AuthorizerClient, SIGN_INS_MAX};
pub use challenge::Challenge;
pub use credentials::{ClientAuth, ClientRegistration, CredentialStore, Credentials, TokenError, Tokens};
pub use http::RequestError;
pub use jwt::{SigningError, SigningKey};
pub use login::{LoginError, PendingLogin};
pub use machine::{ClientProof, MachineClient, MachineGrant};
pub use metadata::{AuthorizationServer, MetadataError, ResourceMetadata, UrlGuard, resource_of};
