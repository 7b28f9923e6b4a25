//! Sends requests: to the host of the source only, bounded in number, rate, size and time.
//!
//! A failure says whether the request may have had an effect. Whoever changes something must not repeat it then, nor claim that
//! nothing happened.
//!
//! Calls run on threads that may block; the connections are driven by one runtime of this crate, so that they outlive a call. A
//! caller who has gone away ends the request.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant, SystemTime};

use contract::manifest::RestSettings;
use contract::manifest::rest::RedirectPolicy;
use contract::request::Method;
use contract::source::{SourceError, WriteError};
use outbound::{Client, HeaderValue, OutboundOptions, Reach, Response};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use url::Url;

use crate::auth::{Credentials, sensitive};
use crate::breaker::{Breaker, Open, Pacer, with_jitter};
use crate::encoding::{self, Unreadable};
use crate::limits::{CANCEL_CHECK, CallLimits};
use crate::render::{HttpRequest, append_query, is_below};
use crate::response;

/// A request that is harmless to repeat is sent so often, at most.
const ATTEMPTS_MAX: u32 = 3;
const BACKOFF_MIN: Duration = Duration::from_millis(200);
/// A server that asks for a longer pause is not waited for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);
/// A request that would have to wait longer for its slot is refused.
const SLOT_WAIT_MAX: Duration = Duration::from_secs(10);
/// So many requests wait for each one that runs; others are refused.
const WAITING_PER_REQUEST: usize = 64;
const REDIRECTS_MAX: usize = 5;
const CONNECT_TIMEOUT_MS: u64 = 5_000;
const ACCEPT: &str = "application/json, text/csv;q=0.5, */*;q=0.1";

/// What a call needs of a response.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// Of a status that is not a success, perhaps only its beginning.
    pub(crate) body: Vec<u8>,
    /// All `Link` headers, with commas between them.
    pub(crate) link: Option<String>,
    pub(crate) retry_after_ms: Option<u64>,
    /// Whether an earlier attempt of the same request may have had an effect.
    pub(crate) may_be_repeated: bool,
}

fn is_success(status: u16) -> bool {
    (200..=299).contains(&status)
}

/// Why there is no response.
#[derive(Debug, Clone)]
pub(crate) enum SendFailure {
    /// No answer. `may_have_arrived`: the request may have had an effect.
    Unreachable { detail: String, may_have_arrived: bool },
    /// The API did not answer before, or this endpoint failed, and is left alone for a while.
    Down(Open),
    /// Too many requests wait, or the rate limit of the source is reached.
    Overloaded { retry_after_ms: u64 },
    /// A response with this status whose body cannot be used. `reason` is a clause.
    Unreadable { status: u16, reason: String, is_too_large: bool },
    /// A redirect that leaves the source.
    Redirect { detail: String },
    /// The request cannot be sent as it is.
    Invalid { detail: String },
    /// The call ended before there was an answer.
    Stopped { reason: SourceError, may_have_arrived: bool },
}

impl SendFailure {
    pub(crate) fn into_source_error(self) -> SourceError {
        match self {
            Self::Unreachable { detail, .. } | Self::Down(Open { is_host: true, detail }) => {
                let message = "the API does not answer; try again later".to_owned();
                SourceError::Unavailable { message, detail }
            }
            Self::Down(Open { is_host: false, detail }) => {
                let message = "this part of the API fails again and again; try again later".to_owned();
                SourceError::Unavailable { message, detail }
            }
            Self::Overloaded { retry_after_ms } => SourceError::Overloaded { retry_after_ms },
            Self::Unreadable { reason, is_too_large: true, .. } => {
                SourceError::TooMuchToRead { message: format!("a response of the API {reason}") }
            }
            Self::Unreadable { reason, status, .. } => SourceError::Incompatible {
                message: format!("a response of the API {reason}"),
                detail: format!("status {status}"),
            },
            Self::Redirect { detail } => SourceError::Incompatible {
                message: "the API redirects to an address outside of this source".to_owned(),
                detail,
            },
            Self::Invalid { detail } => {
                SourceError::Incompatible { message: "the request cannot be sent".to_owned(), detail }
            }
            Self::Stopped { reason, .. } => reason,
        }
    }

    /// For a request that changes something.
    pub(crate) fn into_write_error(self, is_repeatable: bool) -> WriteError {
        match self {
            Self::Unreachable { may_have_arrived: true, .. }
            | Self::Stopped { reason: SourceError::Timeout, may_have_arrived: true }
                if !is_repeatable =>
            {
                WriteError::OutcomeUnknown
            }
            Self::Unreadable { status, reason, .. } => {
                response::accepted(status, &format!("its response {reason}"), format!("status {status}"))
            }
            other => WriteError::Source(other.into_source_error()),
        }
    }
}

/// Sends the requests of one source.
pub(crate) struct RestClient(Arc<ClientInner>);

struct ClientInner {
    base: Url,
    client: Client,
    options: OutboundOptions,
    credentials: Credentials,
    headers: Vec<(String, HeaderValue)>,
    query: Vec<(String, String)>,
    redirects: RedirectPolicy,
    timeout: Duration,
    response_bytes_max: usize,
    permits: Semaphore,
    waiting: AtomicUsize,
    waiting_max: usize,
    pacer: Pacer,
    breaker: Breaker,
}

impl RestClient {
    /// Does not connect yet. An error is a clause for the operator.
    pub(crate) fn new(base: Url, settings: &RestSettings) -> Result<Self, String> {
        let options = OutboundOptions {
            ca_file: settings.ca_file.clone(),
            connect_timeout_ms: CONNECT_TIMEOUT_MS,
            reach: if settings.allow_private_addresses { Reach::NotLinkLocal } else { Reach::Public },
            ..OutboundOptions::default()
        };
        let header = |(name, value): &(String, contract::source::Secret)| {
            let value =
                sensitive(value.expose()).ok_or_else(|| format!("the header `{name}` cannot be sent"))?;
            Ok((name.clone(), value))
        };
        let headers: Result<Vec<_>, String> = settings.headers.iter().map(header).collect();
        let query = settings.query.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
        let requests_max = settings.requests_max as usize;
        Ok(Self(Arc::new(ClientInner {
            client: outbound::client(&base, &options).map_err(|error| error.to_string())?,
            credentials: Credentials::new(settings.auth.as_ref(), &options)?,
            base,
            options,
            headers: headers?,
            query: query.collect(),
            redirects: settings.redirects,
            timeout: Duration::from_millis(settings.timeout_ms),
            response_bytes_max: settings.response_bytes_max as usize,
            permits: Semaphore::new(requests_max),
            waiting: AtomicUsize::new(0),
            waiting_max: requests_max * WAITING_PER_REQUEST,
            pacer: Pacer::new(settings.rate_limit),
            breaker: Breaker::default(),
        })))
    }

    pub(crate) fn base(&self) -> &Url {
        &self.0.base
    }

    /// What fails, as a sentence for the operator.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.breaker.failure()
    }

    /// Whether something began to fail or works again, since the last time this was asked.
    pub(crate) fn take_change(&self) -> bool {
        self.0.breaker.take_change()
    }

    /// Sends one request, again if that is harmless and useful.
    pub(crate) fn send(
        &self,
        request: HttpRequest,
        limits: &CallLimits<'_>,
    ) -> Result<HttpResponse, SendFailure> {
        let mut responses = self.send_all(vec![request], limits);
        let stopped = SendFailure::Stopped { reason: SourceError::Cancelled, may_have_arrived: false };
        responses.pop().unwrap_or(Err(stopped))
    }

    /// Sends several requests at the same time, as many as the source allows. Responses are in the order of the requests.
    pub(crate) fn send_all(
        &self,
        requests: Vec<HttpRequest>,
        limits: &CallLimits<'_>,
    ) -> Vec<Result<HttpResponse, SendFailure>> {
        let (sender, receiver) = mpsc::sync_channel(requests.len().max(1));
        let (mut tasks, mut sent) = (Vec::new(), Vec::new());
        for (at, request) in requests.into_iter().enumerate() {
            let (inner, sender, deadline) = (Arc::clone(&self.0), sender.clone(), limits.deadline);
            let is_sent = Arc::<AtomicBool>::default();
            sent.push(Arc::clone(&is_sent));
            tasks.push(runtime().spawn(async move {
                let response = inner.send(request, deadline, &is_sent).await;
                // The receiver is gone if the caller is.
                let _ = sender.send((at, response));
            }));
        }
        drop(sender);
        let mut responses: Vec<Option<Result<HttpResponse, SendFailure>>> =
            tasks.iter().map(|_| None).collect();
        let mut missing = responses.len();
        while missing > 0 {
            match receiver.recv_timeout(CANCEL_CHECK) {
                Ok((at, response)) => {
                    limits.count_request();
                    responses[at] = Some(response);
                    missing -= 1;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if let Err(reason) = limits.check() {
                        tasks.iter().for_each(tokio::task::JoinHandle::abort);
                        let stopped = |is_sent: &AtomicBool| {
                            let may_have_arrived = is_sent.load(Ordering::SeqCst);
                            Err(SendFailure::Stopped { reason: reason.clone(), may_have_arrived })
                        };
                        let all = responses.into_iter().zip(&sent);
                        return all.map(|(one, sent)| one.unwrap_or_else(|| stopped(sent))).collect();
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        let lost = || {
            Err(SendFailure::Unreachable {
                detail: "a request ended without a result".into(),
                may_have_arrived: true,
            })
        };
        responses.into_iter().map(|one| one.unwrap_or_else(lost)).collect()
    }
}

impl ClientInner {
    /// `is_sent` is set while a request may have an effect that nobody knows of yet.
    async fn send(
        &self,
        mut request: HttpRequest,
        deadline: Instant,
        is_sent: &AtomicBool,
    ) -> Result<HttpResponse, SendFailure> {
        for (name, value) in &self.query {
            append_query(&mut request.url, name, value);
        }
        let (mut attempt, mut token_refused, mut may_be_repeated) = (0, false, false);
        loop {
            attempt += 1;
            is_sent.store(may_be_repeated, Ordering::SeqCst);
            let sent = self.attempt(&request, deadline, is_sent).await;
            let sent = sent.map(|response| HttpResponse { may_be_repeated, ..response });
            let may_repeat = request.is_repeatable && attempt < ATTEMPTS_MAX;
            let backoff = with_jitter(BACKOFF_MIN * 2_u32.pow(attempt));
            let pause = match &sent {
                Ok(response) => {
                    self.judge(&request.endpoint, response);
                    match response.status {
                        401 if !token_refused && self.credentials.refused().await => {
                            token_refused = true;
                            continue;
                        }
                        429 | 502 | 503 | 504 => {
                            may_be_repeated |= response.status != 429;
                            let asked = response.retry_after_ms.map(Duration::from_millis);
                            asked.unwrap_or(backoff)
                        }
                        _ => return sent,
                    }
                }
                Err(SendFailure::Unreachable { detail, may_have_arrived }) => {
                    self.breaker.unreachable(Instant::now(), detail);
                    // A request that never arrived is harmless to repeat, whatever it is.
                    if !*may_have_arrived && attempt < ATTEMPTS_MAX && Instant::now() + backoff < deadline {
                        tokio::time::sleep(backoff).await;
                        continue;
                    }
                    may_be_repeated |= *may_have_arrived;
                    backoff
                }
                Err(_) => return sent,
            };
            if !may_repeat || pause > RETRY_AFTER_MAX || Instant::now() + pause >= deadline {
                return sent;
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn judge(&self, endpoint: &str, response: &HttpResponse) {
        match response.status {
            status @ 500..=599 => self.breaker.endpoint_failed(endpoint, Instant::now(), status),
            _ => self.breaker.succeeded(endpoint),
        }
    }

    async fn attempt(
        &self,
        request: &HttpRequest,
        deadline: Instant,
        is_sent: &AtomicBool,
    ) -> Result<HttpResponse, SendFailure> {
        self.breaker.check(&request.endpoint, Instant::now()).map_err(SendFailure::Down)?;
        let _permit = self.permit().await?;
        let slot = self.pacer.take_slot(Instant::now(), SLOT_WAIT_MAX);
        let wait =
            slot.map_err(|wait| SendFailure::Overloaded { retry_after_ms: wait.as_millis() as u64 })?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left.min(self.timeout), self.exchange(request, is_sent)).await {
            Ok(response) => response,
            Err(_) => {
                let may_have_arrived = is_sent.load(Ordering::SeqCst);
                Err(if left <= self.timeout {
                    SendFailure::Stopped { reason: SourceError::Timeout, may_have_arrived }
                } else {
                    let detail = format!("no answer within {} ms", self.timeout.as_millis());
                    SendFailure::Unreachable { detail, may_have_arrived }
                })
            }
        }
    }

    async fn permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, SendFailure> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        let overloaded = SendFailure::Overloaded { retry_after_ms: 1_000 };
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.waiting_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(overloaded);
        }
        let waiting = WaitingGuard(&self.waiting);
        let permit = self.permits.acquire().await;
        drop(waiting);
        permit.map_err(|_| overloaded)
    }

    /// Sends it once and follows redirects.
    async fn exchange(
        &self,
        request: &HttpRequest,
        is_sent: &AtomicBool,
    ) -> Result<HttpResponse, SendFailure> {
        let (mut url, mut client, mut is_own) = (request.url.clone(), self.client.clone(), true);
        for _ in 0..=REDIRECTS_MAX {
            let (status, location) =
                match self.send_once(request, url.clone(), &client, is_own, is_sent).await? {
                    Received::Response(response) => return Ok(response),
                    Received::Redirect { status, location } => (status, location),
                };
            if request.method != Method::Get || self.redirects == RedirectPolicy::None {
                return Ok(HttpResponse { status, ..HttpResponse::default() });
            }
            let next = url.join(&location).ok();
            let leaves =
                || SendFailure::Redirect { detail: "a redirect leaves the URL of the source".to_owned() };
            let next = next.filter(|next| matches!(next.scheme(), "http" | "https")).ok_or_else(leaves)?;
            is_own = is_own && is_below(&self.base, &next);
            if !is_own {
                let is_downgrade = url.scheme() == "https" && next.scheme() == "http";
                if self.redirects != RedirectPolicy::Any || is_downgrade {
                    return Err(leaves());
                }
                client = outbound::client(&next, &self.options)
                    .map_err(|error| SendFailure::Redirect { detail: error.to_string() })?;
            }
            url = next;
        }
        Err(SendFailure::Redirect { detail: "too many redirects".to_owned() })
    }

    /// `is_own`: whether the URL is below that of the source. Other hosts get no headers at all.
    async fn send_once(
        &self,
        request: &HttpRequest,
        url: Url,
        client: &Client,
        is_own: bool,
        is_sent: &AtomicBool,
    ) -> Result<Received, SendFailure> {
        let mut sent = client.request(method(request.method), url);
        if is_own {
            for (name, value) in [("accept", ACCEPT), ("accept-encoding", encoding::ACCEPTED)] {
                let is_it = |one: &str| one.eq_ignore_ascii_case(name);
                let is_declared = self.headers.iter().any(|(one, _)| is_it(one))
                    || request.headers.iter().any(|(one, _)| is_it(one));
                if !is_declared {
                    sent = sent.header(name, value);
                }
            }
            for (name, value) in &self.headers {
                sent = sent.header(name, value.clone());
            }
            for (name, value) in &request.headers {
                sent = sent.header(name, value);
            }
            if let Some((name, value)) = self.credentials.header().await? {
                sent = sent.header(name, value);
            }
            if !request.body.is_empty() {
                sent = sent.body(request.body.clone());
            }
        }
        let invalid = |error: outbound::Error| SendFailure::Invalid {
            detail: outbound::error_chain(&error.without_url()),
        };
        let sent = sent.build().map_err(invalid)?;
        let failed = |error: outbound::Error| {
            // Nothing was sent if the connection could not be made.
            let may_have_arrived = !error.is_connect();
            SendFailure::Unreachable { detail: outbound::error_chain(&error.without_url()), may_have_arrived }
        };
        is_sent.store(true, Ordering::SeqCst);
        let mut answer = client.execute(sent).await.map_err(failed)?;
        let status = answer.status().as_u16();
        let text =
            |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if matches!(status, 301 | 302 | 303 | 307 | 308)
            && let Some(location) = text("location")
        {
            return Ok(Received::Redirect { status, location });
        }
        let links = answer.headers().get_all("link");
        let links: Vec<_> = links.iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let retry_after_ms = text("retry-after").and_then(|text| retry_after_ms(&text, SystemTime::now()));
        let response = HttpResponse {
            status,
            link: (!links.is_empty()).then(|| links.join(", ")),
            retry_after_ms,
            ..HttpResponse::default()
        };
        let encoding = text("content-encoding");
        let mut body = Vec::new();
        let received = self.receive(&mut answer, &mut body).await;
        // What a refusal or a failure means is known without its body.
        if !is_success(status) {
            let body =
                encoding::decode(body, encoding.as_deref(), self.response_bytes_max).unwrap_or_default();
            return Ok(Received::Response(HttpResponse { body, ..response }));
        }
        let unreadable = |error: Unreadable| SendFailure::Unreadable {
            status,
            is_too_large: matches!(error, Unreadable::TooLarge { .. }),
            reason: error.to_string(),
        };
        match received {
            Ok(()) => {}
            Err(NotReceived::Broken(error)) => return Err(failed(error)),
            Err(NotReceived::TooLarge(error)) => return Err(unreadable(error)),
        }
        let body =
            encoding::decode(body, encoding.as_deref(), self.response_bytes_max).map_err(unreadable)?;
        Ok(Received::Response(HttpResponse { body, ..response }))
    }

    /// Appends the body, up to the limit.
    async fn receive(&self, answer: &mut Response, body: &mut Vec<u8>) -> Result<(), NotReceived> {
        while let Some(chunk) = answer.chunk().await.map_err(NotReceived::Broken)? {
            if body.len() + chunk.len() > self.response_bytes_max {
                let bytes_max = self.response_bytes_max;
                return Err(NotReceived::TooLarge(Unreadable::TooLarge { bytes_max }));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(())
    }
}

enum Received {
    Response(HttpResponse),
    Redirect { status: u16, location: String },
}

/// Why a body is not complete.
enum NotReceived {
    Broken(outbound::Error),
    TooLarge(Unreadable),
}

struct WaitingGuard<'a>(&'a AtomicUsize);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn method(method: Method) -> outbound::Method {
    match method {
        Method::Get => outbound::Method::GET,
        Method::Post => outbound::Method::POST,
        Method::Put => outbound::Method::PUT,
        Method::Patch => outbound::Method::PATCH,
        Method::Delete => outbound::Method::DELETE,
    }
}

/// RFC 9110, 10.2.3: seconds, or a date.
fn retry_after_ms(text: &str, now: SystemTime) -> Option<u64> {
    if let Ok(seconds) = text.trim().parse::<u64>() {
        return Some(seconds.saturating_mul(1000));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(now).map_or(0, |wait| wait.as_millis() as u64))
}

/// Drives the connections of all sources.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("rest")
            .enable_all()
            .build()
            .expect("a thread and a timer are all it needs")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        for (text, expected) in [
            ("3", Some(3000)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7000)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(retry_after_ms(text, now), expected, "{text}");
        }
    }
}
