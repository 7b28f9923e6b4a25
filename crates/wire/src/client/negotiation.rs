//! Which era a server is of, and the handshake where there is one.
//!
//! 2026-07-28, Versioning: a modern request first. What a modern server may answer makes it modern, whatever
//! else comes back is a server of the handshake era; over HTTP silence, 401, 403 and 5xx are no evidence at all.

use json::{Json, Node};

use super::input_requests::OpenInputRequest;
use super::state_machine::{CallPurpose, Client, PendingCall, Phase};
use super::types::{ClientError, ClientEvent, ServerInfo, TransportKind, VersionPolicy};
use super::{HttpResponse, ServerError, outgoing};
use crate::error::ErrorCode;
use crate::method::Method;
use crate::version::{Feature, Version};

impl Client {
    /// Sends the first message.
    pub fn start(&mut self, now: u64) {
        self.advance_clock(now);
        match self.options.version_policy {
            VersionPolicy::Any => self.probe(Version::NEWEST, now),
            VersionPolicy::Only(version) if version.has(Feature::Envelope) => self.probe(version, now),
            VersionPolicy::Only(version) => self.initialize(version, now),
            VersionPolicy::HandshakeOnly => self.initialize(Version::NEWEST_WITH_HANDSHAKE, now),
        }
    }

    fn probe(&mut self, version: Version, now: u64) {
        let id = self.next_id();
        let patience = if self.falls_back_to_handshake() {
            self.options.probe_timeout_ms
        } else {
            self.options.handshake_timeout_ms
        };
        self.phase = Phase::Probing { id, version, deadline_ms: now.saturating_add(patience) };
        self.send_negotiation_request(id, Method::Discover, &Json::object(|_| ()), version);
    }

    /// What is sent while nothing else can be.
    fn send_negotiation_request(&mut self, id: u64, method: Method, params: &Json, version: Version) {
        let extras = outgoing::RequestExtras::default();
        let body = outgoing::request(id, method.as_str(), params, &extras, &self.client_identity(), version);
        self.send_request(id, body, method, params, version);
    }

    /// Whether silence is answered with a handshake: over HTTP it says nothing, not every client may, and
    /// not every server would.
    pub(super) fn falls_back_to_handshake(&self) -> bool {
        self.transport == TransportKind::Pipe
            && self.allows_version(Version::NEWEST_WITH_HANDSHAKE)
            && !self.probed_twice
    }

    pub(super) fn initialize(&mut self, requested: Version, now: u64) {
        if !self.allows_version(requested) {
            let only = match self.options.version_policy {
                VersionPolicy::Only(version) => version.as_str(),
                VersionPolicy::Any | VersionPolicy::HandshakeOnly => "a newer version",
            };
            let why = format!("the server is of the time before {only}, which is all that was asked for");
            self.close(ClientError::UnsupportedVersion(why));
            return;
        }
        let id = self.next_id();
        let until = now.saturating_add(self.options.handshake_timeout_ms);
        self.session = None;
        self.phase = Phase::Initializing { id, requested_version: requested, deadline_ms: until };
        // Questions count from one again in the next session: an answer would be taken for another's.
        let asks = self
            .input_requests
            .extract_if(.., |_, ask| matches!(ask, OpenInputRequest::ServerRequest { .. }));
        self.events.extend(asks.map(|(id, _)| ClientEvent::InputRequestCancelled(id)));
        // What was subscribed to is forgotten with the session, and will be subscribed to again.
        let is_part = |pending: &PendingCall| matches!(pending.purpose, CallPurpose::Subscribe { .. });
        let parts =
            self.pending_calls.iter().filter(|(_, pending)| is_part(pending)).map(|(ticket, _)| *ticket);
        for ticket in parts.collect::<Vec<_>>() {
            self.remove_call(ticket);
        }
        for pending in
            self.pending_calls.values_mut().filter(|pending| matches!(pending.purpose, CallPurpose::Listen))
        {
            pending.message_id = None;
        }
        let params = outgoing::initialize_params(&self.client_identity(), requested);
        self.send_negotiation_request(id, Method::Initialize, &params, requested);
    }

    fn allows_version(&self, version: Version) -> bool {
        match self.options.version_policy {
            VersionPolicy::Any => true,
            VersionPolicy::Only(only) => version == only,
            VersionPolicy::HandshakeOnly => version.has(Feature::Handshake),
        }
    }

    /// The answer to the probe.
    pub(super) fn on_probe_response(
        &mut self,
        version: Version,
        answer: Result<Node<'_>, ServerError>,
        now: u64,
    ) {
        match answer {
            Ok(result) => match result.get("supportedVersions") {
                Some(list) => {
                    let dates = strings(list);
                    match self.newest_common_version(&dates) {
                        // It answered at this version, so it speaks it, even where it forgets to say so.
                        Some(best) if best == version => self.on_discovered(version, result),
                        Some(best) if best.has(Feature::Envelope) => self.probe(best, now),
                        Some(best) => self.initialize(best, now),
                        None => self.fail_unsupported_version(&dates),
                    }
                }
                // Not what discover answers: somebody who says yes to everything.
                None => self.initialize(Version::NEWEST_WITH_HANDSHAKE, now),
            },
            Err(told) if told.code == ErrorCode::UnsupportedVersion.number() => {
                let dates = told.supported_versions().unwrap_or_default();
                match self.newest_common_version(&dates) {
                    // The suite's own server refuses once; the same version again is what it wants.
                    Some(best) if best == version && self.claim_second_probe() => self.probe(best, now),
                    Some(best) if best != version && best.has(Feature::Envelope) => self.probe(best, now),
                    Some(best) if best.has(Feature::Handshake) => self.initialize(best, now),
                    Some(_) | None => self.fail_unsupported_version(&dates),
                }
            }
            Err(told) if is_modern(&told) => self.close(ClientError::Server(told)),
            Err(_) => self.initialize(Version::NEWEST_WITH_HANDSHAKE, now),
        }
    }

    pub(super) fn is_late_probe(&self, id: u64) -> bool {
        self.late_probe.is_some_and(|(probe, _)| probe == id)
    }

    /// The answer to a probe that was given up. A server that takes long to start reads both messages, and may
    /// know nothing of the second.
    pub(super) fn on_late_probe_response(&mut self, answer: Result<Node<'_>, ServerError>, now: u64) {
        let Some((_, version)) = self.late_probe.take() else { return };
        let dates: Vec<String> = match &answer {
            Ok(result) => result.get("supportedVersions").map(strings).unwrap_or_default(),
            Err(told) => told.supported_versions().unwrap_or_default(),
        };
        if self.newest_common_version(&dates).is_some_and(|best| best.has(Feature::Envelope)) {
            self.on_probe_response(version, answer, now);
        }
    }

    fn claim_second_probe(&mut self) -> bool {
        !std::mem::replace(&mut self.probed_twice, true)
    }

    /// The newest that both know.
    fn newest_common_version(&self, dates: &[String]) -> Option<Version> {
        let known = dates.iter().filter_map(|date| Version::parse(date));
        known.filter(|version| self.allows_version(*version)).max()
    }

    fn fail_unsupported_version(&mut self, dates: &[String]) {
        let why = match &*dates.iter().take(8).map(String::as_str).collect::<Vec<_>>() {
            [] | [""] => "the server names no protocol version that it speaks".to_owned(),
            [only] => format!("the server speaks protocol {only}, which will not do here"),
            dates => format!("the server speaks protocol {}, none of which will do here", dates.join(", ")),
        };
        self.close(ClientError::UnsupportedVersion(why));
    }

    fn on_discovered(&mut self, version: Version, result: Node<'_>) {
        let info = result.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol/serverInfo"));
        // Some say it where the handshake had it.
        let info = info.or(result.get("serverInfo"));
        let greeting = ServerInfo::read(version, result, info);
        self.become_ready(greeting);
    }

    /// The answer to `initialize`.
    pub(super) fn on_initialize_response(
        &mut self,
        requested: Version,
        answer: Result<Node<'_>, ServerError>,
        now: u64,
    ) {
        let result = match answer {
            Ok(result) => result,
            Err(told) => {
                let dates = told.supported_versions();
                let other = dates.as_ref().and_then(|dates| self.newest_common_version(dates));
                let other = other.filter(|other| *other < requested && other.has(Feature::Handshake));
                return match (other, dates) {
                    (Some(other), _) => self.initialize(other, now),
                    // It was too slow for the probe, and is too young for a handshake.
                    _ if self.late_probe.is_some()
                        && rejects_handshake(&told)
                        && self.claim_second_probe() =>
                    {
                        self.probe(Version::NEWEST, now);
                    }
                    (None, Some(dates)) => self.fail_unsupported_version(&dates),
                    (None, None) if rejects_handshake(&told) => {
                        let told = ClientError::Server(told);
                        self.close(ClientError::UnsupportedVersion(format!(
                            "the server takes no handshake: {told}"
                        )));
                    }
                    (None, None) => self.close(ClientError::Server(told)),
                };
            }
        };
        let date = result.get("protocolVersion").and_then(|date| date.str()).unwrap_or_default();
        let version = Version::parse(&date).filter(|v| v.has(Feature::Handshake) && self.allows_version(*v));
        let Some(version) = version else {
            self.fail_unsupported_version(&[date.into_owned()]);
            return;
        };
        self.become_ready(ServerInfo::read(version, result, result.get("serverInfo")));
    }

    fn become_ready(&mut self, greeting: ServerInfo) {
        self.phase = Phase::Ready;
        self.late_probe = None;
        self.version = greeting.protocol_version;
        self.session_epoch += 1;
        if greeting.protocol_version.has(Feature::Handshake) {
            self.notify_before_others(outgoing::initialized());
            if self.transport == TransportKind::Http
                && (self.session.is_some() || greeting.protocol_version.has(Feature::Sessions))
            {
                self.open_server_stream();
            }
        }
        self.server_info = Some(greeting.clone());
        self.events.push_back(ClientEvent::Ready(Box::new(greeting)));
        self.send_level();
        self.send_unsent_calls();
    }

    /// An HTTP answer that is no stream, to the probe. `false`: its body is a message and speaks for itself.
    pub(super) fn on_probe_http_status(
        &mut self,
        reply: &HttpResponse,
        told: Option<&ServerError>,
        now: u64,
    ) -> bool {
        let is_modern = told.is_some_and(|told| is_modern(told) || told.supported_versions().is_some());
        match reply.status {
            200..=299 => false,
            401 | 403 | 407 | 408 | 429 | 500.. => {
                self.close(ClientError::from_http_response(reply));
                true
            }
            _ if is_modern => false,
            400..=499 => {
                self.initialize(Version::NEWEST_WITH_HANDSHAKE, now);
                true
            }
            _ => {
                self.close(ClientError::from_http_response(reply));
                true
            }
        }
    }
}

/// What a server says to `initialize` that has no handshake.
fn rejects_handshake(told: &ServerError) -> bool {
    [ErrorCode::MethodNotFound, ErrorCode::InvalidParams, ErrorCode::UnsupportedVersion]
        .iter()
        .any(|code| code.number() == told.code)
}

fn strings(list: Node<'_>) -> Vec<String> {
    list.elements().filter_map(|text| Some(text.str()?.into_owned())).collect()
}

/// Errors that only a server of the newest era knows.
fn is_modern(told: &ServerError) -> bool {
    [ErrorCode::HeaderMismatch, ErrorCode::MissingCapability, ErrorCode::UnsupportedVersion]
        .iter()
        .any(|code| code.number() == told.code)
}

impl ServerInfo {
    fn read(protocol_version: Version, result: Node<'_>, info: Option<Node<'_>>) -> Self {
        let text = |node: Option<Node<'_>>| node.and_then(|node| node.str()).map(|text| text.into_owned());
        Self {
            protocol_version,
            name: text(info.and_then(|info| info.get("name"))).unwrap_or_default(),
            title: text(info.and_then(|info| info.get("title"))),
            server_version: text(info.and_then(|info| info.get("version"))).unwrap_or_default(),
            instructions: text(result.get("instructions")),
            capabilities: result.get("capabilities").map_or_else(|| Json::object(|_| ()), Json::from),
        }
    }
}
