//! Credentials of a source. They are sent to its own host only, and nothing shows them.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::manifest::rest::RestAuth;
use outbound::{Client, HeaderValue, Method, OutboundOptions};
use tokio::sync::Mutex;
use url::Url;

use crate::client::SendFailure;
use crate::response;

/// A token is replaced so long before it expires.
const EARLY: Duration = Duration::from_secs(30);
/// For a token whose lifetime the server does not say.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(300);
const TOKEN_BYTES_MAX: usize = 64 << 10;
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);

/// What puts credentials into a request.
pub(crate) enum Credentials {
    None,
    Fixed { name: String, value: HeaderValue },
    Token(Box<TokenSource>),
}

pub(crate) struct TokenSource {
    client: Client,
    url: Url,
    authorization: HeaderValue,
    scope: Option<String>,
    token: Mutex<Option<Token>>,
}

struct Token {
    header: HeaderValue,
    expires_at: Instant,
}

impl Credentials {
    /// An error is a clause for the operator.
    pub(crate) fn new(auth: Option<&RestAuth>, options: &OutboundOptions) -> Result<Self, String> {
        let fixed = |name: &str, text: &str| {
            Ok(Self::Fixed {
                name: name.to_owned(),
                value: sensitive(text).ok_or("the credentials cannot be sent in a header")?,
            })
        };
        match auth {
            None => Ok(Self::None),
            Some(RestAuth::Bearer(token)) => fixed("Authorization", &format!("Bearer {}", token.expose())),
            Some(RestAuth::Basic { user, password }) => {
                fixed("Authorization", &basic(user.expose(), password.expose()))
            }
            Some(RestAuth::Header { name, value }) => fixed(name, value.expose()),
            Some(RestAuth::ClientCredentials { token_url, client_id, client_secret, scope }) => {
                let url: Url = token_url.parse().map_err(|_| "the `token_url` is not a URL".to_owned())?;
                let encode = |text: &str| -> String {
                    // RFC 6749, 2.3.1: both are form-encoded first.
                    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
                };
                let authorization =
                    sensitive(&basic(&encode(client_id.expose()), &encode(client_secret.expose())));
                Ok(Self::Token(Box::new(TokenSource {
                    client: outbound::client(&url, options).map_err(|error| error.to_string())?,
                    url,
                    authorization: authorization.ok_or("the credentials cannot be sent in a header")?,
                    scope: scope.clone(),
                    token: Mutex::default(),
                })))
            }
        }
    }

    /// The header to send, if there is one.
    pub(crate) async fn header(&self) -> Result<Option<(String, HeaderValue)>, SendFailure> {
        match self {
            Self::None => Ok(None),
            Self::Fixed { name, value } => Ok(Some((name.clone(), value.clone()))),
            Self::Token(source) => {
                let header = source.current().await?;
                Ok(Some(("Authorization".to_owned(), header)))
            }
        }
    }

    /// Forgets a token that was refused. Returns whether another attempt makes sense.
    pub(crate) async fn refused(&self) -> bool {
        match self {
            Self::None | Self::Fixed { .. } => false,
            Self::Token(source) => source.token.lock().await.take().is_some(),
        }
    }
}

impl TokenSource {
    async fn current(&self) -> Result<HeaderValue, SendFailure> {
        let mut token = self.token.lock().await;
        if let Some(token) = token.as_ref().filter(|token| Instant::now() + EARLY < token.expires_at) {
            return Ok(token.header.clone());
        }
        let fetched = self.fetch().await?;
        let header = fetched.header.clone();
        *token = Some(fetched);
        Ok(header)
    }

    async fn fetch(&self) -> Result<Token, SendFailure> {
        let failed = |detail: String| SendFailure::Unreachable {
            detail: format!("no token: {detail}"),
            may_have_arrived: false,
        };
        let form = {
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            form.append_pair("grant_type", "client_credentials");
            if let Some(scope) = &self.scope {
                form.append_pair("scope", scope);
            }
            form.finish()
        };
        let request = self
            .client
            .request(Method::POST, self.url.clone())
            .timeout(TOKEN_TIMEOUT)
            .header("Authorization", self.authorization.clone())
            .header("Content-Type", "application/x-www-form-urlencoded")
            .header("Accept", "application/json")
            .body(form);
        let sent = request.send().await;
        let mut answer = sent.map_err(|error| failed(outbound::error_chain(&error.without_url())))?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) =
            answer.chunk().await.map_err(|error| failed(outbound::error_chain(&error.without_url())))?
        {
            if body.len() + chunk.len() > TOKEN_BYTES_MAX {
                return Err(failed("the answer is too large".to_owned()));
            }
            body.extend_from_slice(&chunk);
        }
        if status != 200 {
            return Err(failed(format!("the token endpoint answered with the status {status}")));
        }
        let doc = response::parse(body).map_err(|error| failed(error.to_string()))?;
        let text = doc.root().get("access_token").and_then(|token| token.str().map(|text| text.into_owned()));
        let header = text.and_then(|text| sensitive(&format!("Bearer {text}")));
        let lifetime = doc.root().get("expires_in").and_then(|seconds| seconds.u64());
        Ok(Token {
            header: header.ok_or_else(|| failed("the answer has no `access_token`".to_owned()))?,
            expires_at: Instant::now()
                + lifetime.map_or(LIFETIME_DEFAULT, |seconds| Duration::from_secs(seconds.min(86_400))),
        })
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// A header value that is not printed.
pub(crate) fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
