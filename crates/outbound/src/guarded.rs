//! Requests that code of others may make: to no address that only this machine or its network can reach.
//!
//! A name is resolved once, its addresses are judged, and the connection goes to one that was judged: what the name means a
//! moment later does not matter. A proxy would resolve the name again, so none is used. Redirects are the caller's to follow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::failure::NameResolutionError;
use crate::{NameSource, OutboundError, OutboundOptions, build, builder, error_chain};

/// How long a whole request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes requests to public addresses, and to this machine where the URL says so itself.
#[derive(Clone)]
pub struct GuardedClient(Client);

#[derive(Debug, Clone)]
pub struct GuardedRequest {
    pub method: String,
    pub url: Url,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// A longer response is an error.
    pub response_bytes_max: usize,
}

#[derive(Debug, Clone)]
pub struct GuardedResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum GuardedError {
    #[error("`{0}` is not an http or https address")]
    Scheme(String),
    #[error("`{0}` is an address that requests must not reach")]
    ForbiddenAddress(IpAddr),
    #[error("the method or a header is not valid")]
    Invalid,
    #[error("the request failed: {0}")]
    Failed(String),
    #[error("the response exceeds the limit of {0} bytes")]
    TooLarge(usize),
}

impl GuardedClient {
    pub fn new(options: &OutboundOptions) -> Result<Self, OutboundError> {
        let names = GuardedResolver(options.names.clone());
        let builder = builder(options)?.dns_resolver(Arc::new(names)).timeout(REQUEST_TIMEOUT);
        build(builder, true).map(Self)
    }

    pub fn send(
        &self,
        request: GuardedRequest,
    ) -> impl Future<Output = Result<GuardedResponse, GuardedError>> + Send + 'static {
        let client = self.0.clone();
        async move {
            let GuardedRequest { method, url, headers, body, response_bytes_max } = request;
            check_url(&url)?;
            let method = method.parse().map_err(|_| GuardedError::Invalid)?;
            let mut sent = client.request(method, url).body(body);
            for (name, value) in headers {
                sent = sent.header(name, value);
            }
            let sent = sent.build().map_err(|_| GuardedError::Invalid)?;
            let failed = |error: reqwest::Error| GuardedError::Failed(error_chain(&error));
            let mut response = client.execute(sent).await.map_err(failed)?;
            let headers = response
                .headers()
                .iter()
                .map(|(name, value)| {
                    (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                })
                .collect();
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(failed)? {
                if body.len() + chunk.len() > response_bytes_max {
                    return Err(GuardedError::TooLarge(response_bytes_max));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(GuardedResponse { status: response.status().as_u16(), headers, body })
        }
    }
}

/// An address in the URL itself is what its author meant, except for the metadata service of a cloud, which is always refused.
fn check_url(url: &Url) -> Result<(), GuardedError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(GuardedError::Scheme(url.scheme().to_owned()));
    }
    let address = match url.host() {
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip),
        Some(Host::Domain(_)) => return Ok(()),
        None => return Err(GuardedError::Scheme(url.scheme().to_owned())),
    };
    if is_link_local(address) || is_metadata_service(address) {
        return Err(GuardedError::ForbiddenAddress(address));
    }
    Ok(())
}

/// Judges what names lead to. The connection goes to what it returns: nothing looks the name up again.
struct GuardedResolver(NameSource);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let names = self.0.clone();
        Box::pin(async move {
            let is_own = name.as_str() == "localhost" || name.as_str().ends_with(".localhost");
            let found = names.look_up(name.as_str()).await.map_err(NameResolutionError)?;
            let mut allowed = Vec::new();
            for address in found {
                let ip = address.ip().to_canonical();
                if (is_own && ip.is_loopback()) || (!is_own && is_public(ip)) {
                    allowed.push(address);
                } else {
                    // One forbidden address among others is a trick, not a coincidence.
                    return Err(Box::new(GuardedError::ForbiddenAddress(ip)) as _);
                }
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Where clouds have their metadata service beside the link-local addresses.
pub(crate) fn is_metadata_service(address: IpAddr) -> bool {
    const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
    const V6: [Ipv6Addr; 2] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    ];
    match address.to_canonical() {
        IpAddr::V4(ip) => V4.contains(&ip),
        IpAddr::V6(ip) => V6.contains(&ip) || embedded_v4(ip).is_some_and(|ip| V4.contains(&ip)),
    }
}

pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => {
            ip.segments()[0] & 0xffc0 == 0xfe80 || embedded_v4(ip).is_some_and(|ip| ip.is_link_local())
        }
    }
}

/// Whether anybody on the internet can reach this address.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !(ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_broadcast()
        || ip.is_documentation()
        || ip.is_multicast()
        || a == 0
        || a >= 240
        // Shared address space, RFC 6598
        || (a == 100 && b & 0xc0 == 64)
        // Benchmarks, RFC 2544
        || (a == 198 && b & 0xfe == 18)
        // Protocol assignments, RFC 6890
        || (a == 192 && b == 0 && c == 0))
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    // Only 2000::/3 is assigned to the public; everything else is special.
    segments[0] & 0xe000 == 0x2000
        && !(segments[0] == 0x2001 && segments[1] == 0x0db8)
        && embedded_v4(ip).is_none_or(is_public_v4)
}

/// The IPv4 address that a gateway would translate this address to: 6to4, Teredo and NAT64.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = ip.segments();
    let from = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match segments {
        [0x2002, high, low, ..] => Some(from(high, low)),
        [0x2001, 0, .., high, low] => Some(from(!high, !low)),
        [0x0064, 0xff9b, .., high, low] => Some(from(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::{Arc, Mutex};

    use reqwest::dns::Resolve as _;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::{
        GuardedClient, GuardedError, GuardedRequest, GuardedResolver, GuardedResponse, check_url, is_public,
    };
    use crate::{Lookup, NameSource, Names, OutboundOptions};

    #[test]
    fn addresses_that_only_this_network_can_reach_are_not_public() {
        for (address, expected) in [
            ("93.184.216.34", true),
            ("8.8.8.8", true),
            ("2606:2800:220:1::1", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("10.0.0.1", false),
            ("100.64.0.1", false),
            ("100.128.0.1", true),
            ("127.0.0.1", false),
            ("127.255.255.254", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.32.0.1", true),
            ("192.0.0.8", false),
            ("192.0.2.1", false),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:8.8.8.8", true),
            ("::127.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("2002:7f00:1::", false),
            ("2002:808:808::", true),
            ("2001:0:4136:e378:8000:63bf:80ff:fffe", false),
            ("2001:db8::1", false),
            ("fc00::1", false),
            ("fd12::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_public(address.parse().expect("an address")), expected, "{address}");
        }
    }

    #[test]
    fn every_spelling_of_the_metadata_service_is_refused() {
        for url in [
            "http://169.254.169.254/",
            "http://169.254.43518/",
            "http://0xa9fea9fe/",
            "http://2852039166/",
            "http://0251.0376.0251.0376/",
            "http://[::ffff:169.254.169.254]/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[fe80::1]/",
            "http://[::ffff:a9fe:a9fe]:8080/",
            "http://[2002:a9fe:a9fe::1]/",
            "http://[64:ff9b::169.254.169.254]/",
            "http://[fd00:ec2::254]/",
            "http://100.100.100.200/",
        ] {
            let url = url.parse().expect("a URL");
            assert!(matches!(check_url(&url), Err(GuardedError::ForbiddenAddress(_))), "{url}");
        }
        for url in ["file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "data:,x"] {
            let url = url.parse().expect("a URL");
            assert!(matches!(check_url(&url), Err(GuardedError::Scheme(_))), "{url}");
        }
        assert!(check_url(&"https://example.com/".parse().expect("a URL")).is_ok());
    }

    /// Answers of a name server, one after another; the last one again and again.
    #[derive(Clone)]
    struct Answers(Arc<Mutex<Vec<Vec<IpAddr>>>>);

    impl Answers {
        fn new(answers: &[&str]) -> Self {
            let parse = |answer: &&str| {
                answer.split(' ').map(|address| address.parse().expect("an address")).collect()
            };
            // The next one is taken from the end.
            Self(Arc::new(Mutex::new(answers.iter().rev().map(parse).collect())))
        }

        fn left(&self) -> usize {
            self.0.lock().expect("no panic before").len()
        }
    }

    impl Names for Answers {
        fn look_up(&self, _: String) -> Lookup {
            let mut answers = self.0.lock().expect("no panic before");
            let answer =
                if answers.len() > 1 { answers.pop().expect("one more") } else { answers[0].clone() };
            Box::pin(async move { Ok(answer.into_iter().map(|ip| (ip, 0).into()).collect()) })
        }
    }

    fn client(answers: &Answers) -> GuardedClient {
        let names = NameSource::new(answers.clone());
        GuardedClient::new(&OutboundOptions { names, ..OutboundOptions::default() }).expect("a client")
    }

    async fn get(client: &GuardedClient, url: &str) -> Result<GuardedResponse, GuardedError> {
        let request = GuardedRequest {
            method: "GET".into(),
            url: url.parse().expect("a URL"),
            headers: Vec::new(),
            body: Vec::new(),
            response_bytes_max: 1 << 20,
        };
        client.send(request).await
    }

    async fn resolve(name: &str, answer: &str) -> Result<Vec<IpAddr>, String> {
        let names = GuardedResolver(NameSource::new(Answers::new(&[answer])));
        match names.resolve(name.parse().expect("a name")).await {
            Ok(found) => Ok(found.map(|address| address.ip()).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    const REFUSED: &str = "is an address that requests must not reach";

    #[tokio::test]
    async fn a_name_is_refused_if_any_of_its_addresses_is_not_public() {
        for answer in [
            "127.0.0.1",
            "127.1.2.3",
            "::1",
            "0.0.0.0",
            "::",
            "10.0.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "169.254.169.254",
            "169.254.0.1",
            "fe80::1",
            "fd00:ec2::254",
            "fc00::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2002:a9fe:a9fe::",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "2001:0:4136:e378:8000:63bf:80ff:fffe",
            // One public, one not, in either order.
            "93.184.216.34 10.0.0.1",
            "10.0.0.1 93.184.216.34",
            "2606:2800:220:1::1 ::1",
            "93.184.216.34 ::ffff:127.0.0.1",
        ] {
            let resolved = resolve("api.example.com", answer).await;
            assert!(resolved.as_ref().is_err_and(|error| error.contains(REFUSED)), "{answer}: {resolved:?}");
            for url in ["http://api.example.com/", "https://api.example.com:8443/"] {
                let sent = get(&client(&Answers::new(&[answer])), url).await;
                let error = sent.err().map(|error| error.to_string()).unwrap_or_default();
                assert!(error.contains(REFUSED), "{answer}: {error}");
            }
        }
        for answer in ["93.184.216.34", "93.184.216.34 2606:2800:220:1::1", "::ffff:8.8.8.8"] {
            let expected: Vec<IpAddr> = answer.split(' ').map(|ip| ip.parse().expect("an address")).collect();
            assert_eq!(resolve("api.example.com", answer).await, Ok(expected));
        }
    }

    #[tokio::test]
    async fn localhost_is_this_machine_and_nothing_else() {
        for (name, answer, is_allowed) in [
            ("localhost", "127.0.0.1", true),
            ("localhost", "127.0.0.1 ::1", true),
            ("app.localhost", "127.0.0.1", true),
            ("localhost", "10.0.0.1", false),
            ("localhost", "93.184.216.34", false),
            ("localhost", "127.0.0.1 169.254.169.254", false),
            ("localhost.example.com", "127.0.0.1", false),
            ("notlocalhost", "127.0.0.1", false),
        ] {
            assert_eq!(resolve(name, answer).await.is_ok(), is_allowed, "{name} {answer}");
        }
        let system = GuardedResolver(NameSource::default());
        let own = system.resolve("localhost".parse().expect("a name")).await.expect("this machine has one");
        let own: Vec<_> = own.collect();
        assert!(!own.is_empty() && own.iter().all(|address| address.ip().is_loopback()));
    }

    /// The name leads to an address that is allowed, and a moment later to another one.
    #[tokio::test]
    async fn the_connection_goes_to_the_address_that_was_judged() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let served = tokio::spawn(async move {
            let mut requests = 0;
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 1024];
                let read = stream.read(&mut head).await.expect("a request");
                assert!(head[..read].starts_with(b"GET / HTTP/1.1"), "a request");
                requests += 1;
                let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
                stream.write_all(response).await.expect("a response");
                if requests == 2 {
                    break;
                }
            }
            requests
        });
        let answers = Answers::new(&["127.0.0.1", "127.0.0.1", "10.0.0.1"]);
        let client = client(&answers);
        let url = format!("http://rebinding.localhost:{port}/");
        for left in [2, 1] {
            let response = get(&client, &url).await.expect("a response");
            assert_eq!((response.status, &*response.body), (200, &b"ok"[..]));
            assert_eq!(answers.left(), left, "looked up once");
        }
        let error = get(&client, &url).await.expect_err("another address").to_string();
        assert!(error.contains(REFUSED), "{error}");
        assert_eq!(served.await.expect("no panic"), 2);
    }
}
