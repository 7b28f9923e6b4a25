//! The requests of signing in: small, bounded, without redirects.

use std::time::Duration;

use json::Json;
use outbound::{Method, OutboundOptions};
use url::Url;

/// No answer of an authorization server is longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const NONCE_BYTES_MAX: usize = 1024;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// An answer: its status, and its body if it is a JSON object.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Option<Json>,
    /// What the next proof must contain (RFC 9449, 8).
    pub(super) dpop_nonce: Option<String>,
}

impl Answer {
    /// A text of the body.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        let doc = self.body.as_ref()?.to_doc();
        doc.root().get(key)?.str().map(|text| text.into_owned())
    }

    /// Why the server refused (RFC 6749, 5.2).
    pub(super) fn error(&self) -> Option<String> {
        self.text("error")
    }
}

/// Why there is no answer. Never contains what was sent.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot reach {url}: {reason}")]
pub struct RequestError {
    pub url: String,
    pub reason: String,
}

pub(super) enum Body<'a> {
    None,
    Form(&'a [(&'a str, &'a str)]),
    Json(&'a Json),
}

pub(super) async fn request(
    url: &Url,
    body: Body<'_>,
    headers: &[(&str, String)],
    options: &OutboundOptions,
) -> Result<Answer, RequestError> {
    let failed = |reason: String| RequestError { url: without_query(url), reason };
    let client = outbound::client(url, options).map_err(|error| failed(error.to_string()))?;
    let (method, kind, bytes) = match body {
        Body::None => (Method::GET, None, Vec::new()),
        Body::Form(pairs) => {
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            form.extend_pairs(pairs);
            (Method::POST, Some("application/x-www-form-urlencoded"), form.finish().into_bytes())
        }
        Body::Json(json) => (Method::POST, Some("application/json"), json.as_str().as_bytes().to_vec()),
    };
    let mut request = client.request(method, url.clone()).header("Accept", "application/json").body(bytes);
    if let Some(kind) = kind {
        request = request.header("Content-Type", kind);
    }
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let exchange = async {
        let mut response =
            request.send().await.map_err(|error| failed(outbound::error_chain(&error.without_url())))?;
        let status = response.status().as_u16();
        let nonce = response.headers().get("dpop-nonce").and_then(|nonce| nonce.to_str().ok());
        let dpop_nonce = nonce.filter(|nonce| nonce.len() <= NONCE_BYTES_MAX).map(str::to_owned);
        let mut bytes = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| failed(outbound::error_chain(&error.without_url())))?
        {
            if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(failed(format!("the answer exceeds the limit of {ANSWER_BYTES_MAX} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(bytes).ok();
        let body = text.and_then(|text| Json::parse(&text).ok()).filter(Json::is_object);
        Ok(Answer { status, body, dpop_nonce })
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err(failed(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
    }
}

fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}
