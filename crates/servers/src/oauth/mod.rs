//! Signing in to servers with OAuth 2.1, as MCP describes it.
//!
//! ```text
//! challenge     WWW-Authenticate: where the metadata is, and which scopes are missing
//!  → metadata   which authorization server, checked: every address comes from someone who is not trusted yet
//!  → login      registration, PKCE, the redirect to this machine, the code
//!  → authorizer a server that refuses: refresh, sign in, or ask for more scopes, a limited number of times
//!  → credentials  tokens in files for this user only; refreshed once, by one process, and never lost
//! ```

mod authorizer;
mod challenge;
mod credentials;
mod http;
mod login;
mod metadata;

pub use authorizer::{Authorizer, SIGN_INS_MAX};
pub use challenge::Challenge;
pub use credentials::{ClientAuth, ClientRegistration, CredentialStore, Credentials, TokenError, Tokens};
pub use http::RequestError;
pub use login::{LoginError, PendingLogin};
pub use metadata::{AuthorizationServer, MetadataError, ResourceMetadata, UrlGuard, resource_of};
