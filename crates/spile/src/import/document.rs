//! An OpenAPI document, and the references inside it.

use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use outbound::{GuardedClient, GuardedRequest, OutboundOptions};
use serde_json::Value;
use url::{Host, Url};

const DOCUMENT_BYTES_MAX: usize = 64 << 20;
/// References that lead to references.
const REFERENCES_MAX: usize = 32;
const DEPTH_MAX: usize = 64;
const REDIRECTS_MAX: usize = 5;

pub(super) struct Document {
    pub(super) root: Value,
    /// Where it came from, for servers with a relative URL.
    pub(super) url: Option<Url>,
}

impl Document {
    pub(super) fn load(place: &str) -> anyhow::Result<Self> {
        let url = Url::parse(place).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let bytes = match &url {
            Some(url) => download(url.clone())?,
            None => read_file(place)?,
        };
        Self::parse(bytes, url).with_context(|| format!("cannot import `{place}`"))
    }

    pub(super) fn parse(bytes: Vec<u8>, url: Option<Url>) -> anyhow::Result<Self> {
        let text = String::from_utf8(bytes).context("the document is not UTF-8 text")?;
        let text = text.trim_start_matches('\u{feff}');
        let root: Value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).context("the document is not valid JSON")?
        } else {
            let json = content::yaml_to_json(text, DEPTH_MAX).map_err(anyhow::Error::msg);
            serde_json::from_str(json.context("the document is not valid YAML")?.as_str())?
        };
        match (root.get("openapi").and_then(Value::as_str), root.get("swagger")) {
            (Some(version), _) if version.starts_with("3.0") || version.starts_with("3.1") => {}
            (Some(version), _) => bail!("it is OpenAPI {version}; supported versions: 3.0 and 3.1"),
            (None, Some(_)) => bail!("it is Swagger 2.0; convert it to OpenAPI 3 first"),
            (None, None) => bail!("it is not an OpenAPI document: it has no `openapi`"),
        }
        Ok(Self { root, url })
    }

    /// Follows `$ref` until there is none. An error is a clause.
    pub(super) fn resolve<'d>(&'d self, value: &'d Value) -> Result<&'d Value, String> {
        let mut value = value;
        for _ in 0..REFERENCES_MAX {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return Ok(value) };
            let Some(pointer) = reference.strip_prefix('#') else {
                return Err(format!("it refers to another document (`{}`)", reference.escape_debug()));
            };
            let pointer = percent_decoded(pointer);
            value = self
                .root
                .pointer(&pointer)
                .ok_or_else(|| format!("it refers to `{pointer}`, which does not exist"))?;
        }
        Err("its references lead in a circle".to_owned())
    }
}

/// References may be percent-encoded, as fragments of URLs are.
fn percent_decoded(pointer: &str) -> String {
    let decoded = url::form_urlencoded::parse(format!("p={}", pointer.replace('+', "%2B")).as_bytes())
        .next()
        .map(|(_, value)| value.into_owned());
    decoded.unwrap_or_else(|| pointer.to_owned())
}

fn read_file(path: &str) -> anyhow::Result<Vec<u8>> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot read `{path}`"))?;
    let mut bytes = Vec::new();
    file.take(DOCUMENT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read `{path}`"))?;
    if bytes.len() > DOCUMENT_BYTES_MAX {
        bail!("`{path}` exceeds the limit of {DOCUMENT_BYTES_MAX} bytes");
    }
    Ok(bytes)
}

/// Whether a URL itself says that it is not on the internet. Only the user may say so, not a redirect.
fn is_private(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => !outbound::is_public(IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => !outbound::is_public(IpAddr::V6(ip)),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => true,
    }
}

/// Downloads from public addresses, and from this machine where the URL says so itself.
fn download(url: Url) -> anyhow::Result<Vec<u8>> {
    let client = GuardedClient::new(&OutboundOptions::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut url = url;
    for _ in 0..=REDIRECTS_MAX {
        let request = GuardedRequest {
            method: "GET".to_owned(),
            url: url.clone(),
            headers: vec![("Accept".to_owned(), "application/json, application/yaml, */*".to_owned())],
            body: Vec::new(),
            response_bytes_max: DOCUMENT_BYTES_MAX,
        };
        let sent = async { tokio::time::timeout(Duration::from_secs(60), client.send(request)).await };
        let response = runtime.block_on(sent).context("no answer within 60 seconds")??;
        let location = response.headers.iter().find(|(name, _)| name == "location");
        match (response.status, location) {
            (200, _) => return Ok(response.body),
            (301 | 302 | 303 | 307 | 308, Some((_, location))) => {
                let next = url.join(location)?;
                if next.host() != url.host() && is_private(&next) {
                    bail!("`{url}` redirects to `{next}`, an address of this machine or its network");
                }
                url = next;
            }
            (status, _) => bail!("`{url}` answered with the status {status}"),
        }
    }
    bail!("`{url}` redirects too often")
}
