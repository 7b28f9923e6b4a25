//! The requests of signing in: small, bounded, without redirects.

use std::time::Duration;

use json::Json;
use outbound::{Method, NetworkZone, OutboundOptions};
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
    /// Where it comes from.
    pub(super) zone: NetworkZone,
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

/// `named_from` is where the document is from that has this address: it may not lead to anywhere nearer.
pub(super) async fn request(
    url: &Url,
    named_from: NetworkZone,
    body: Body<'_>,
    headers: &[(&str, String)],
    options: &OutboundOptions,
) -> Result<Answer, RequestError> {
    let failed = |reason: String| RequestError { url: without_query(url), reason };
    let (client, peer) =
        outbound::client_for_named(url, named_from, options).map_err(|error| failed(error.to_string()))?;
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
        Ok(Answer { status, body, dpop_nonce, zone: peer.get() })
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err(failed(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
    }
}

/// The address of a token endpoint, and where the document is from that names it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoint<'a> {
    pub(super) url: &'a Url,
    pub(super) named_from: NetworkZone,
}

fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use outbound::NetworkZone::{Private, Public, ThisMachine};
    use outbound::{Lookup, NameSource, Names, NetworkZone, OutboundOptions, Reach};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::{Body, request};

    /// Leads every name to the addresses.
    struct Addresses(&'static [&'static str]);

    impl Names for Addresses {
        fn look_up(&self, _: String) -> Lookup {
            let parse = |address: &&str| (address.parse::<std::net::IpAddr>().expect("an address"), 0).into();
            let found = self.0.iter().map(parse).collect();
            Box::pin(async move { Ok(found) })
        }
    }

    /// Asks a server on this machine. Returns where the answer is from, or the address that is not allowed.
    async fn check(
        host: &str,
        leads_to: &'static [&'static str],
        named_from: NetworkZone,
        reach: Reach,
    ) -> Result<NetworkZone, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await;
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            let _ = stream.write_all(response).await;
        });
        let names = NameSource::new(Addresses(leads_to));
        let options = OutboundOptions { names, reach, ..OutboundOptions::default() };
        let url = format!("http://{host}:{port}/token").parse().expect("a URL");
        let answer = request(&url, named_from, Body::None, &[], &options).await;
        let was_reached = serving.is_finished();
        serving.abort();
        match answer {
            Ok(answer) => Ok(answer.zone),
            Err(error) => {
                assert!(!was_reached, "{host}: nothing is sent");
                let reason = error.reason;
                let address = reason.split(" is not an address").next().unwrap_or_default();
                Err(address.rsplit(' ').next().unwrap_or_default().to_owned())
            }
        }
    }

    #[tokio::test]
    async fn a_request_goes_no_nearer_than_whoever_named_its_address() {
        const HERE: &[&str] = &["127.0.0.1"];
        for (host, leads_to, named_from, reach, expected) in [
            ("as.test", HERE, ThisMachine, Reach::Anywhere, Ok(ThisMachine)),
            ("as.test.", HERE, Public, Reach::Anywhere, Err("127.0.0.1")),
            ("AS.test", HERE, Public, Reach::Anywhere, Err("127.0.0.1")),
            ("as.test", HERE, Private, Reach::Anywhere, Err("127.0.0.1")),
            ("as.test", &["8.8.8.8", "127.0.0.1"], Public, Reach::Anywhere, Err("127.0.0.1")),
            ("as.test", &["8.8.8.8", "10.0.0.1"], Public, Reach::Anywhere, Err("10.0.0.1")),
            ("as.test", &["::ffff:127.0.0.1"], Private, Reach::Anywhere, Err("127.0.0.1")),
            ("as.test", &["169.254.169.254"], ThisMachine, Reach::Anywhere, Err("169.254.169.254")),
            ("localhost", HERE, Public, Reach::Anywhere, Err("127.0.0.1")),
            ("127.0.0.1", HERE, Public, Reach::Anywhere, Err("127.0.0.1")),
            ("127.0.0.1", HERE, ThisMachine, Reach::NotLinkLocal, Ok(ThisMachine)),
            // Whoever registered the server may reach less than the one who named the address.
            ("as.test", HERE, ThisMachine, Reach::Public, Err("127.0.0.1")),
            ("127.0.0.1", HERE, ThisMachine, Reach::Public, Err("127.0.0.1")),
        ] {
            let found = check(host, leads_to, named_from, reach).await;
            assert_eq!(
                found,
                expected.map_err(str::to_owned),
                "{host} {leads_to:?} {named_from:?} {reach:?}"
            );
        }
    }
}
