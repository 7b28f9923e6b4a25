//! Who calls: an authenticated identity, or an anonymous caller.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use json::Json;

/// The authenticated identity behind a request. It never comes from what a client claims about itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Principal {
    /// Not authenticated: a local pipe, or a transport without a token.
    #[default]
    Anonymous,
    Named(Arc<Identity>),
}

/// An identity as its issuer vouches for it. Issuer and subject together identify it; scopes, claims and expiry may
/// differ from one token to the next and are not compared.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Issuer and subject in one text that no other pair has.
    id: Box<str>,
    subject_start: usize,
    scopes: Box<[Box<str>]>,
    claims: Option<Json>,
    expires_ms: Option<u64>,
}

/// Why an identity is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("the issuer or the subject exceeds {} bytes", Identity::NAME_BYTES_MAX)]
    NameTooLong,
    #[error("the subject is empty")]
    EmptySubject,
    #[error("more than {} scopes, or a scope over {} bytes", Identity::SCOPES_MAX, Identity::NAME_BYTES_MAX)]
    TooManyScopes,
    #[error("the claims exceed {} bytes", Identity::CLAIMS_BYTES_MAX)]
    ClaimsTooLarge,
    #[error("the claims are not an object")]
    ClaimsNotAnObject,
}

impl Identity {
    pub const NAME_BYTES_MAX: usize = 512;
    pub const SCOPES_MAX: usize = 64;
    pub const CLAIMS_BYTES_MAX: usize = 8 << 10;

    pub fn new(issuer: &str, subject: &str) -> Result<Self, IdentityError> {
        if subject.is_empty() {
            return Err(IdentityError::EmptySubject);
        }
        if issuer.len() > Self::NAME_BYTES_MAX || subject.len() > Self::NAME_BYTES_MAX {
            return Err(IdentityError::NameTooLong);
        }
        // The length keeps (`a`, `bc`) and (`ab`, `c`) apart.
        let prefix = format!("{}:{issuer}:", issuer.len());
        let id = format!("{prefix}{subject}").into();
        Ok(Self { id, subject_start: prefix.len(), scopes: [].into(), claims: None, expires_ms: None })
    }

    pub fn with_scopes<'s>(
        mut self,
        scopes: impl IntoIterator<Item = &'s str>,
    ) -> Result<Self, IdentityError> {
        let scopes: Vec<Box<str>> = scopes.into_iter().take(Self::SCOPES_MAX + 1).map(Into::into).collect();
        if scopes.len() > Self::SCOPES_MAX || scopes.iter().any(|scope| scope.len() > Self::NAME_BYTES_MAX) {
            return Err(IdentityError::TooManyScopes);
        }
        self.scopes = scopes.into();
        Ok(self)
    }

    /// `claims` is a JSON object.
    pub fn with_claims(mut self, claims: Json) -> Result<Self, IdentityError> {
        if claims.as_str().len() > Self::CLAIMS_BYTES_MAX {
            return Err(IdentityError::ClaimsTooLarge);
        }
        if !claims.is_object() {
            return Err(IdentityError::ClaimsNotAnObject);
        }
        self.claims = Some(claims);
        Ok(self)
    }

    #[must_use]
    pub fn with_expiry(mut self, expires_ms: Option<u64>) -> Self {
        self.expires_ms = expires_ms;
        self
    }

    pub fn issuer(&self) -> &str {
        let start = self.id.find(':').map_or(0, |at| at + 1);
        &self.id[start..self.subject_start - 1]
    }

    pub fn subject(&self) -> &str {
        &self.id[self.subject_start..]
    }

    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.scopes.iter().map(|scope| &**scope)
    }

    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes().any(|own| own == scope)
    }

    /// What else the issuer says about the subject: a JSON object.
    pub fn claims(&self) -> Option<&Json> {
        self.claims.as_ref()
    }

    pub fn expires_ms(&self) -> Option<u64> {
        self.expires_ms
    }

    /// Whether this identity may do everything that `other`, of the same subject, may: work that `other` began can go on.
    pub fn covers(&self, other: &Self) -> bool {
        let has_same_claims =
            self.claims.as_ref().map(Json::as_str) == other.claims.as_ref().map(Json::as_str);
        self == other && has_same_claims && other.scopes().all(|scope| self.has_scope(scope))
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl Principal {
    /// The issuer of identities that this machine's operator named: in a token file, or by a socket's user.
    pub const LOCAL_ISSUER: &str = "local";

    /// An identity that the operator of this server named.
    pub fn local(subject: &str) -> Result<Self, IdentityError> {
        Identity::new(Self::LOCAL_ISSUER, subject).map(|identity| Self::Named(Arc::new(identity)))
    }

    /// A text that no other principal has. Whatever belongs to a principal is bound to it.
    #[inline]
    pub fn id(&self) -> &str {
        match self {
            Self::Anonymous => "",
            Self::Named(identity) => &identity.id,
        }
    }

    /// The name for people: the subject, with its issuer unless that is this server's operator.
    pub fn display_name(&self) -> String {
        match self {
            Self::Anonymous => String::new(),
            Self::Named(identity) if identity.issuer() == Self::LOCAL_ISSUER => identity.subject().to_owned(),
            Self::Named(identity) => format!("{} ({})", identity.subject(), identity.issuer()),
        }
    }

    /// Whether its authentication is no longer valid.
    #[inline]
    pub fn is_expired(&self, now_ms: impl FnOnce() -> u64) -> bool {
        match self {
            Self::Anonymous => false,
            Self::Named(identity) => identity.expires_ms.is_some_and(|expires_ms| now_ms() >= expires_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{Identity, IdentityError, Principal};

    #[test]
    fn issuer_and_subject_identify_a_principal() {
        let identity = |issuer, subject| Identity::new(issuer, subject).expect("valid");
        assert_eq!(identity("https://a.test", "ada").issuer(), "https://a.test");
        assert_eq!(identity("https://a.test", "ada:1").subject(), "ada:1");
        assert_eq!(identity("", "ada").issuer(), "");
        for (one, other) in
            [(("a", "bc"), ("ab", "c")), (("a:", "b"), ("a", ":b")), (("", "1::a"), ("1:", "a"))]
        {
            assert_ne!(identity(one.0, one.1), identity(other.0, other.1), "{one:?} {other:?}");
        }
        let scoped = identity("a", "b").with_scopes(["read"]).expect("valid").with_expiry(Some(5));
        assert_eq!(scoped, identity("a", "b"), "scopes and expiry do not make another principal");
        assert!(scoped.has_scope("read") && !scoped.has_scope("write"));
    }

    #[test]
    fn an_identity_covers_what_no_longer_has_more_rights_than_it() {
        let identity = |subject: &str, scopes: &[&str], claims: &str| {
            let claims = Json::parse(claims).expect("JSON");
            let identity = Identity::new("a", subject).expect("valid").with_scopes(scopes.iter().copied());
            identity.and_then(|identity| identity.with_claims(claims)).expect("valid")
        };
        let began = identity("ada", &["read", "write"], r#"{"tenant":1}"#);
        for (now, expected) in [
            (identity("ada", &["write", "read"], r#"{"tenant":1}"#), true),
            (identity("ada", &["read", "write", "admin"], r#"{"tenant":1}"#), true),
            (identity("ada", &["read"], r#"{"tenant":1}"#), false),
            (identity("ada", &["read", "write"], r#"{"tenant":2}"#), false),
            (identity("bob", &["read", "write"], r#"{"tenant":1}"#), false),
        ] {
            assert_eq!(now.covers(&began), expected, "{now:?}");
        }
    }

    #[test]
    fn the_id_of_a_principal_is_unique_and_the_anonymous_one_is_empty() {
        assert_eq!(Principal::Anonymous.id(), "");
        let ada = Principal::local("ada").expect("valid");
        assert_eq!((ada.id(), ada.display_name().as_str()), ("5:local:ada", "ada"));
        assert!(!ada.is_expired(|| unreachable!("an identity without expiry needs no clock")));
    }

    #[test]
    fn an_identity_is_bounded() {
        let long = "x".repeat(Identity::NAME_BYTES_MAX + 1);
        assert_eq!(Identity::new(&long, "a"), Err(IdentityError::NameTooLong));
        assert_eq!(Identity::new("a", &long), Err(IdentityError::NameTooLong));
        assert_eq!(Identity::new("a", ""), Err(IdentityError::EmptySubject));
        let identity = || Identity::new("a", "b").expect("valid");
        let many = vec!["s"; Identity::SCOPES_MAX + 1];
        assert_eq!(identity().with_scopes(many), Err(IdentityError::TooManyScopes));
        assert_eq!(identity().with_scopes([long.as_str()]), Err(IdentityError::TooManyScopes));
        let claims = |text: &str| identity().with_claims(Json::parse(text).expect("JSON")).map(|_| ());
        assert_eq!(claims("[]"), Err(IdentityError::ClaimsNotAnObject));
        assert_eq!(claims("{\"team\":\"sales\"}"), Ok(()));
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(Identity::CLAIMS_BYTES_MAX));
        assert_eq!(claims(&large), Err(IdentityError::ClaimsTooLarge));
    }

    #[test]
    fn an_identity_expires_at_its_time() {
        let identity = Identity::new("a", "b").expect("valid").with_expiry(Some(1000));
        let principal = Principal::Named(identity.into());
        assert!(!principal.is_expired(|| 999));
        assert!(principal.is_expired(|| 1000));
    }
}
