//! Discovery documents: the protected resource (RFC 9728) and its authorization server (RFC 8414, OpenID Connect).
//!
//! Pure: which addresses to ask, and what an answer means. Every address in an answer is checked before it is used,
//! because it comes from a server that the user has not signed in to yet.

use json::{Json, Node};
use outbound::NetworkZone;
use url::Url;

use crate::config::OAuthSettings;

/// Why a document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    #[error("{what} is not a JSON object with the expected members: {reason}")]
    Invalid { what: &'static str, reason: String },
    #[error("the metadata is for `{found}`, not for `{expected}`; signing in there could leak a token")]
    OtherResource { expected: String, found: String },
    #[error("the authorization server calls itself `{found}`, but was found as `{expected}`")]
    OtherIssuer { expected: String, found: String },
    #[error("the address `{url}` is not allowed: {reason}")]
    UnsafeUrl { url: String, reason: &'static str },
    #[error("the authorization server does not support PKCE with S256, which MCP requires")]
    NoPkce,
    #[error(
        "the authorization server has no page to sign in to; use `--device`, or a `grant` in the server's entry"
    )]
    NoUsers,
}

/// A protected resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceMetadata {
    /// The identifier to ask tokens for.
    pub resource: String,
    pub authorization_servers: Vec<String>,
    pub scopes_supported: Vec<String>,
    /// It accepts only tokens that are bound to a key (RFC 9728, 2).
    pub requires_dpop: bool,
}

/// An authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationServer {
    /// There is no metadata: its endpoints are a guess.
    pub is_assumed: bool,
    pub issuer: String,
    /// Where users sign in. Absent where only programs do.
    authorization_endpoint: Option<Url>,
    supports_pkce: bool,
    pub token_endpoint: Url,
    pub registration_endpoint: Option<Url>,
    pub device_authorization_endpoint: Option<Url>,
    /// Empty if it does not say.
    pub token_auth_methods: Vec<String>,
    pub scopes_supported: Vec<String>,
    /// It accepts the URL of a document as client id.
    pub client_id_documents: bool,
    /// It names itself in the redirect, so that a mix-up is noticed (RFC 9207).
    pub sends_issuer: bool,
    /// It binds tokens to keys of our kind (RFC 9449, 5.1).
    pub supports_dpop: bool,
    /// Where the document is from that names the endpoints.
    pub(super) named_from: NetworkZone,
}

/// Which addresses a document may name: none that is nearer to this machine than the document itself.
///
/// What a name leads to is judged when a connection is made, see [`outbound::client_for_named`].
#[derive(Debug, Clone, Copy)]
pub struct UrlGuard {
    zone: NetworkZone,
}

impl UrlGuard {
    /// For addresses in a document that comes from this zone.
    pub fn for_zone(zone: NetworkZone) -> Self {
        Self { zone }
    }

    /// For addresses that a server names itself. Where a name leads its server may decide anew each time, so it counts for
    /// nothing.
    pub fn for_server(server: &Url) -> Self {
        Self::for_zone(NetworkZone::of_literal(server).unwrap_or(NetworkZone::Public))
    }

    /// For addresses that the user wrote.
    pub fn for_user() -> Self {
        Self::for_zone(NetworkZone::ThisMachine)
    }

    pub fn zone(self) -> NetworkZone {
        self.zone
    }

    /// Refuses what a hostile document could abuse: other schemes, passwords, and hosts inside the user's network.
    pub fn check(self, text: &str) -> Result<Url, MetadataError> {
        let refused = |reason| MetadataError::UnsafeUrl { url: text.chars().take(200).collect(), reason };
        let url = Url::parse(text).map_err(|_| refused("it is not a URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("it contains a user name or password"));
        }
        if url.fragment().is_some() {
            return Err(refused("it has a fragment"));
        }
        let found = NetworkZone::of_literal(&url).unwrap_or(NetworkZone::Public);
        match (url.scheme(), found) {
            ("https" | "http", NetworkZone::ThisMachine) if self.zone == NetworkZone::ThisMachine => Ok(url),
            ("https", NetworkZone::ThisMachine) => {
                Err(refused("it is on this machine, and the server is not"))
            }
            ("https", NetworkZone::Private) if self.zone == NetworkZone::Public => {
                Err(refused("it is in a private network, and the server is not"))
            }
            ("https", NetworkZone::Public | NetworkZone::Private) => Ok(url),
            _ => Err(refused("it does not use https:")),
        }
    }
}

/// The resource identifier of a server: its URL without fragment and without a trailing slash.
pub fn resource_of(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    url.set_query(None);
    url.as_str().trim_end_matches('/').to_owned()
}

/// Under which name the credentials for a server are kept: its resource identifier, and what else decides who signs in and
/// with which rights. Entries that differ in this have credentials of their own, also at one address.
pub fn account_of(server: &Url, settings: &OAuthSettings) -> String {
    let mut account = resource_of(server);
    if let Some(query) = server.query() {
        account = format!("{account}?{query}");
    }
    let mut identity = url::form_urlencoded::Serializer::new(String::new());
    identity.extend_pairs(settings.identity());
    match identity.finish().as_str() {
        "" => account,
        identity => format!("{account}#{identity}"),
    }
}

/// Where the metadata of a resource may be, in order (RFC 9728, section 3.1).
pub fn resource_metadata_urls(server: &Url) -> Vec<Url> {
    well_known(server, "oauth-protected-resource", &[Form::Inserted, Form::Root])
}

/// Where the metadata of an authorization server may be, in order (2025-11-25, Authorization Server Metadata).
pub fn authorization_server_urls(issuer: &Url) -> Vec<Url> {
    let mut urls = well_known(issuer, "oauth-authorization-server", &[Form::Inserted]);
    urls.extend(well_known(issuer, "openid-configuration", &[Form::Inserted, Form::Appended]));
    urls.dedup();
    urls
}

#[derive(Clone, Copy)]
enum Form {
    /// `/.well-known/NAME/path`
    Inserted,
    /// `/path/.well-known/NAME`
    Appended,
    /// `/.well-known/NAME`
    Root,
}

fn well_known(url: &Url, name: &str, forms: &[Form]) -> Vec<Url> {
    let path = url.path().trim_matches('/').to_owned();
    let mut urls = Vec::new();
    for form in forms {
        let new_path = match form {
            Form::Inserted if path.is_empty() => format!("/.well-known/{name}"),
            Form::Inserted => format!("/.well-known/{name}/{path}"),
            Form::Appended if path.is_empty() => continue,
            Form::Appended => format!("/{path}/.well-known/{name}"),
            Form::Root => format!("/.well-known/{name}"),
        };
        let mut found = url.clone();
        found.set_path(&new_path);
        found.set_query(None);
        found.set_fragment(None);
        if !urls.contains(&found) {
            urls.push(found);
        }
    }
    urls
}

fn text(node: Node<'_>, key: &str) -> Option<String> {
    Some(node.get(key)?.str()?.into_owned())
}

fn texts(node: Node<'_>, key: &str) -> Option<Vec<String>> {
    let list = node.get(key)?;
    list.elements().map(|one| one.str().map(|text| text.into_owned())).collect()
}

impl ResourceMetadata {
    /// RFC 9728, 3.3: metadata for another resource must not be used. A document for the origin, or for a path above
    /// the server's, stands for it as well: several servers publish only that.
    pub fn parse(document: &Json, server: &Url) -> Result<Self, MetadataError> {
        const WHAT: &str = "the resource metadata";
        let doc = document.to_doc();
        let root = doc.root();
        let missing =
            |key: &str| MetadataError::Invalid { what: WHAT, reason: format!("`{key}` is missing") };
        let resource = text(root, "resource").ok_or_else(|| missing("resource"))?;
        if !covers(&resource, server) {
            return Err(MetadataError::OtherResource { expected: resource_of(server), found: resource });
        }
        let authorization_servers = texts(root, "authorization_servers").unwrap_or_default();
        if authorization_servers.is_empty() {
            return Err(missing("authorization_servers"));
        }
        let scopes_supported = texts(root, "scopes_supported").unwrap_or_default();
        let required = root.get("dpop_bound_access_tokens_required");
        let requires_dpop = required.and_then(|flag| flag.bool()) == Some(true);
        Ok(Self { resource, authorization_servers, scopes_supported, requires_dpop })
    }
}

fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let own = resource.path().trim_end_matches('/');
    let below = server.path().strip_prefix(own);
    resource.origin() == server.origin() && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl AuthorizationServer {
    pub fn parse(document: &Json, issuer: &str, guard: UrlGuard) -> Result<Self, MetadataError> {
        const WHAT: &str = "the authorization server metadata";
        let doc = document.to_doc();
        let root = doc.root();
        let missing =
            |key: &str| MetadataError::Invalid { what: WHAT, reason: format!("`{key}` is missing") };
        let found = text(root, "issuer").ok_or_else(|| missing("issuer"))?;
        // RFC 8414, 3.3: identical. Only the slash behind an origin is written both ways.
        if found.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return Err(MetadataError::OtherIssuer { expected: issuer.to_owned(), found });
        }
        let endpoint = |key: &str| {
            let found = text(root, key).ok_or_else(|| missing(key))?;
            guard.check(&found)
        };
        let optional = |key: &str| text(root, key).map(|found| guard.check(&found)).transpose();
        let methods = texts(root, "code_challenge_methods_supported").unwrap_or_default();
        let algorithms = texts(root, "dpop_signing_alg_values_supported").unwrap_or_default();
        let flag = |key: &str| root.get(key).and_then(|flag| flag.bool()) == Some(true);
        Ok(Self {
            is_assumed: false,
            issuer: found,
            authorization_endpoint: optional("authorization_endpoint")?,
            supports_pkce: methods.iter().any(|method| method == "S256"),
            token_endpoint: endpoint("token_endpoint")?,
            registration_endpoint: optional("registration_endpoint")?,
            device_authorization_endpoint: optional("device_authorization_endpoint")?,
            token_auth_methods: texts(root, "token_endpoint_auth_methods_supported").unwrap_or_default(),
            scopes_supported: texts(root, "scopes_supported").unwrap_or_default(),
            client_id_documents: flag("client_id_metadata_document_supported"),
            sends_issuer: flag("authorization_response_iss_parameter_supported"),
            supports_dpop: algorithms.iter().any(|name| name == super::dpop::ALGORITHM),
            named_from: guard.zone(),
        })
    }

    /// Where the user signs in.
    pub fn authorization_endpoint(&self) -> Result<&Url, MetadataError> {
        // 2025-11-25: clients MUST refuse to proceed if `code_challenge_methods_supported` is absent.
        match (&self.authorization_endpoint, self.supports_pkce) {
            (Some(endpoint), true) => Ok(endpoint),
            (Some(_), false) => Err(MetadataError::NoPkce),
            (None, _) => Err(MetadataError::NoUsers),
        }
    }

    /// 2025-03-26: a server without metadata has these endpoints at its origin.
    pub fn default_for(server: &Url) -> Self {
        let at = |path: &str| {
            let mut url = server.clone();
            url.set_path(path);
            url.set_query(None);
            url.set_fragment(None);
            url
        };
        Self {
            is_assumed: true,
            issuer: at("").as_str().trim_end_matches('/').to_owned(),
            authorization_endpoint: Some(at("/authorize")),
            supports_pkce: true,
            token_endpoint: at("/token"),
            registration_endpoint: Some(at("/register")),
            device_authorization_endpoint: None,
            token_auth_methods: vec!["none".to_owned()],
            scopes_supported: Vec::new(),
            client_id_documents: false,
            sends_issuer: false,
            supports_dpop: false,
            // The user wrote the address of the server.
            named_from: NetworkZone::ThisMachine,
        }
    }
}

#[cfg(test)]
mod tests {
    use json::Json;
    use url::Url;

    use super::{
        AuthorizationServer, ResourceMetadata, UrlGuard, authorization_server_urls, resource_metadata_urls,
        resource_of,
    };

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    fn shown(urls: &[Url]) -> Vec<&str> {
        urls.iter().map(Url::as_str).collect()
    }

    #[test]
    fn metadata_is_looked_for_in_the_order_of_the_specification() {
        assert_eq!(
            shown(&resource_metadata_urls(&url("https://a.test/mcp/x?q#f"))),
            [
                "https://a.test/.well-known/oauth-protected-resource/mcp/x",
                "https://a.test/.well-known/oauth-protected-resource",
            ]
        );
        assert_eq!(
            shown(&resource_metadata_urls(&url("https://a.test/"))),
            ["https://a.test/.well-known/oauth-protected-resource"]
        );
        assert_eq!(
            shown(&authorization_server_urls(&url("https://a.test/tenant"))),
            [
                "https://a.test/.well-known/oauth-authorization-server/tenant",
                "https://a.test/.well-known/openid-configuration/tenant",
                "https://a.test/tenant/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            shown(&authorization_server_urls(&url("https://a.test"))),
            [
                "https://a.test/.well-known/oauth-authorization-server",
                "https://a.test/.well-known/openid-configuration",
            ]
        );
        assert_eq!(resource_of(&url("https://A.test/mcp/?q=1#x")), "https://a.test/mcp");
    }

    #[test]
    fn metadata_of_another_resource_is_refused() {
        let server = url("https://a.test/mcp/shop");
        for (resource, is_used) in [
            ("https://a.test/mcp/shop", true),
            ("https://a.test/mcp/shop/", true),
            ("https://a.test/mcp", true),
            ("https://a.test", true),
            ("https://a.test/mc", false),
            ("https://a.test/other", false),
            ("https://a.test/mcp/shop/below", false),
            ("http://a.test/mcp/shop", false),
            ("https://b.test/mcp/shop", false),
            ("https://a.test:8443/mcp/shop", false),
            ("shop", false),
        ] {
            let document = Json::object(|out| {
                out.str("resource", resource).raw("authorization_servers", r#"["https://b.test"]"#);
            });
            assert_eq!(ResourceMetadata::parse(&document, &server).is_ok(), is_used, "{resource}");
        }
        for document in [
            r#"{"resource":"https://a.test"}"#,
            "{}",
            r#"{"resource":"https://a.test","authorization_servers":[]}"#,
        ] {
            let document = Json::parse(document).expect("JSON");
            assert!(ResourceMetadata::parse(&document, &server).is_err(), "{document}");
        }
    }

    fn server_document(change: (&str, &str)) -> Json {
        let mut members = vec![
            ("issuer", r#""https://as.test/t""#),
            ("authorization_endpoint", r#""https://as.test/authorize""#),
            ("token_endpoint", r#""https://as.test/token""#),
            ("registration_endpoint", r#""https://as.test/register""#),
            ("code_challenge_methods_supported", r#"["plain","S256"]"#),
        ];
        members.retain(|(key, _)| *key != change.0);
        if !change.1.is_empty() {
            members.push(change);
        }
        Json::object(|out| {
            for (key, value) in members {
                out.raw(key, value);
            }
        })
    }

    #[test]
    fn an_authorization_server_must_be_the_one_that_was_named_and_support_pkce() {
        let guard = UrlGuard::for_server(&url("https://a.test/mcp"));
        let parse = |change| {
            let server = AuthorizationServer::parse(&server_document(change), "https://as.test/t", guard)?;
            server.authorization_endpoint().cloned()
        };
        assert!(parse(("x", "1")).is_ok());
        assert!(parse(("issuer", r#""https://as.test/t/""#)).is_ok());
        for (change, expected) in [
            (("issuer", r#""https://evil.test/t""#), "calls itself `https://evil.test/t`"),
            (("issuer", ""), "`issuer` is missing"),
            (("token_endpoint", ""), "`token_endpoint` is missing"),
            (("token_endpoint", "7"), "`token_endpoint` is missing"),
            (("authorization_endpoint", ""), "has no page to sign in to"),
            (("code_challenge_methods_supported", ""), "does not support PKCE"),
            (("code_challenge_methods_supported", r#"["plain"]"#), "does not support PKCE"),
            (("token_endpoint", r#""http://as.test/token""#), "does not use https:"),
            (("token_endpoint", r#""https://127.0.0.1/token""#), "is on this machine"),
            (("registration_endpoint", r#""https://169.254.169.254/""#), "is in a private network"),
            (("registration_endpoint", r#""https://[fd00::1]/""#), "is in a private network"),
            (("registration_endpoint", r#""https://10.0.0.1/""#), "is in a private network"),
            (("registration_endpoint", r#""https://[::ffff:10.0.0.1]/""#), "is in a private network"),
            (("registration_endpoint", r#""https://0.0.0.0/""#), "is on this machine"),
            (("registration_endpoint", r#""https://u:p@as.test/""#), "a user name or password"),
            (("authorization_endpoint", r#""javascript:alert(1)""#), "does not use https:"),
            (("authorization_endpoint", r#""file:///etc/passwd""#), "does not use https:"),
        ] {
            let error = parse(change).unwrap_err().to_string();
            assert!(error.contains(expected), "{change:?}: {error}");
        }
    }

    #[test]
    fn a_document_names_no_address_that_is_nearer_than_itself() {
        const LOCAL: [&str; 5] = [
            "http://127.0.0.1:9/x",
            "http://localhost:9/x",
            "http://[::1]:9/x",
            "https://127.0.0.1/x",
            "https://x.localhost/",
        ];
        const PRIVATE: [&str; 4] =
            ["https://10.1.2.3/x", "https://192.168.0.1:8443/", "https://[fd00::1]/", "https://100.64.0.1/"];
        const PUBLIC: [&str; 2] = ["https://login.example.com/", "https://8.8.8.8/"];
        for (server, is_local, is_private) in [
            ("http://127.0.0.1:3333/mcp", true, true),
            ("http://localhost/mcp", true, true),
            ("https://10.0.0.5/mcp", false, true),
            ("http://192.168.1.2/mcp", false, true),
            ("https://a.test/mcp", false, false),
            ("https://8.8.4.4/mcp", false, false),
        ] {
            let guard = UrlGuard::for_server(&url(server));
            let expected = LOCAL.iter().map(|address| (address, is_local));
            let expected = expected.chain(PRIVATE.iter().map(|address| (address, is_private)));
            for (address, is_allowed) in expected.chain(PUBLIC.iter().map(|address| (address, true))) {
                assert_eq!(guard.check(address).is_ok(), is_allowed, "{server}: {address}");
            }
            for address in ["http://login.example.com/", "http://10.1.2.3/", "ftp://127.0.0.1/", "https:///"]
            {
                assert!(guard.check(address).is_err(), "{server}: {address}");
            }
        }
    }
}
