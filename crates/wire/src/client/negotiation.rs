//! Detects the server's era and performs the handshake where there is one.
//!
//! 2026-07-28, Versioning: the client sends a request of the stateless era first. If the response is one that such a
//! server may send, the server is of that era; any other response means the handshake era. Over HTTP a timeout, 401,
//! 403 and 5xx prove nothing.

use json::{Json, Node};

use super::errors::{ClientError, VersionMismatch};
use super::input_requests::OpenInputRequest;
use super::state_machine::{CallPurpose, Client, PendingCall, Phase};
use super::types::{ClientEvent, ServerInfo, TransportKind, VersionPolicy};
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
            VersionPolicy::Only(version) if version.has(Feature::RequestMeta) => self.probe(version, now),
            VersionPolicy::Only(version) => self.initialize(version, now),
            VersionPolicy::HandshakeOnly => self.initialize(Version::NEWEST_WITH_HANDSHAKE, now),
        }
    }

    fn probe(&mut self, version: Version, now: u64) {
        let id = self.next_message_id();
        let timeout_ms = if self.falls_back_to_handshake() {
            self.options.probe_timeout_ms
        } else {
            self.options.handshake_timeout_ms
        };
        self.phase = Phase::Probing { id, version, deadline_ms: now.saturating_add(timeout_ms) };
        self.send_negotiation_request(id, Method::Discover, &Json::object(|_| ()), version);
    }

    /// Sends a request of the negotiation, before any call.
    fn send_negotiation_request(&mut self, id: u64, method: Method, params: &Json, version: Version) {
        let extras = outgoing::RequestExtras::default();
        let body = outgoing::request(id, method.as_str(), params, &extras, &self.client_identity(), version);
        self.send_request(id, body, method, params, version);
    }

    /// Whether a probe without a response leads to a handshake: only on a pipe, if the policy allows it, and only for
    /// the first probe.
    pub(super) fn falls_back_to_handshake(&self) -> bool {
        self.transport == TransportKind::Pipe
            && self.allows_version(Version::NEWEST_WITH_HANDSHAKE)
            && !self.probed_twice
    }

    pub(super) fn initialize(&mut self, requested: Version, now: u64) {
        if !self.allows_version(requested) {
            let allowed = match self.options.version_policy {
                VersionPolicy::Only(version) => Some(version),
                VersionPolicy::Any | VersionPolicy::HandshakeOnly => None,
            };
            self.close(ClientError::UnsupportedVersion(VersionMismatch::HandshakeOnly { allowed }));
            return;
        }
        let id = self.next_message_id();
        let until = now.saturating_add(self.options.handshake_timeout_ms);
        self.session = None;
        self.phase = Phase::Initializing { id, requested_version: requested, deadline_ms: until };
        // A new session numbers its input requests from one again. A late reply would answer the wrong one.
        let cancelled = self
            .input_requests
            .extract_if(.., |_, request| matches!(request, OpenInputRequest::ServerRequest { .. }));
        self.events.extend(cancelled.map(|(id, _)| ClientEvent::InputRequestCancelled(id)));
        // Subscriptions end with their session. The client subscribes again after the handshake.
        let is_subscribe = |pending: &PendingCall| matches!(pending.purpose, CallPurpose::Subscribe { .. });
        let calls =
            self.pending_calls.iter().filter(|(_, pending)| is_subscribe(pending)).map(|(call, _)| *call);
        for call in calls.collect::<Vec<_>>() {
            self.remove_call(call);
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

    /// Handles the response to the probe.
    pub(super) fn on_probe_response(
        &mut self,
        version: Version,
        response: Result<Node<'_>, ServerError>,
        now: u64,
    ) {
        match response {
            Ok(result) => match result.get("supportedVersions") {
                Some(list) => {
                    let dates = strings(list);
                    match self.newest_common_version(&dates) {
                        // The server accepted this version, so it supports it.
                        Some(best) if best == version => self.on_discovered(version, result),
                        Some(best) if best.has(Feature::RequestMeta) => self.probe(best, now),
                        Some(best) => self.initialize(best, now),
                        None => self.fail_unsupported_version(&dates),
                    }
                }
                // Not a `server/discover` result: the server accepts any method.
                None => self.initialize(Version::NEWEST_WITH_HANDSHAKE, now),
            },
            Err(error) if error.code == ErrorCode::UnsupportedVersion.number() => {
                let dates = error.supported_versions().unwrap_or_default();
                match self.newest_common_version(&dates) {
                    // The conformance suite's server rejects the first probe and expects the same version again.
                    Some(best) if best == version && self.claim_second_probe() => self.probe(best, now),
                    Some(best) if best != version && best.has(Feature::RequestMeta) => self.probe(best, now),
                    Some(best) if best.has(Feature::Handshake) => self.initialize(best, now),
                    Some(_) | None => self.fail_unsupported_version(&dates),
                }
            }
            Err(error) if is_modern(&error) => self.close(ClientError::Server(error)),
            Err(_) => self.initialize(Version::NEWEST_WITH_HANDSHAKE, now),
        }
    }

    pub(super) fn is_late_probe(&self, id: u64) -> bool {
        self.late_probe.is_some_and(|(probe, _)| probe == id)
    }

    /// Handles the response to a probe that had timed out. A server that starts slowly reads both messages, and may not
    /// know the second.
    pub(super) fn on_late_probe_response(&mut self, response: Result<Node<'_>, ServerError>, now: u64) {
        let Some((_, version)) = self.late_probe.take() else { return };
        let dates: Vec<String> = match &response {
            Ok(result) => result.get("supportedVersions").map(strings).unwrap_or_default(),
            Err(error) => error.supported_versions().unwrap_or_default(),
        };
        if self.newest_common_version(&dates).is_some_and(|best| best.has(Feature::RequestMeta)) {
            self.on_probe_response(version, response, now);
        }
    }

    fn claim_second_probe(&mut self) -> bool {
        !std::mem::replace(&mut self.probed_twice, true)
    }

    /// The newest version that both sides support and the policy allows.
    fn newest_common_version(&self, dates: &[String]) -> Option<Version> {
        let known = dates.iter().filter_map(|date| Version::parse(date));
        known.filter(|version| self.allows_version(*version)).max()
    }

    fn fail_unsupported_version(&mut self, dates: &[String]) {
        let named = dates.iter().filter(|date| !date.is_empty());
        let supported = named.take(8).cloned().collect();
        self.close(ClientError::UnsupportedVersion(VersionMismatch::NoCommonVersion { supported }));
    }

    fn on_discovered(&mut self, version: Version, result: Node<'_>) {
        let info = result.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol/serverInfo"));
        // Some servers send it where the handshake has it.
        let info = info.or(result.get("serverInfo"));
        let server_info = ServerInfo::read(version, result, info);
        self.become_ready(server_info);
    }

    /// Handles the response to `initialize`.
    pub(super) fn on_initialize_response(
        &mut self,
        requested: Version,
        response: Result<Node<'_>, ServerError>,
        now: u64,
    ) {
        let result = match response {
            Ok(result) => result,
            Err(error) => {
                let dates = error.supported_versions();
                let other = dates.as_ref().and_then(|dates| self.newest_common_version(dates));
                let other = other.filter(|other| *other < requested && other.has(Feature::Handshake));
                return match (other, dates) {
                    (Some(other), _) => self.initialize(other, now),
                    // The server was too slow for the probe and has no handshake: probe again.
                    _ if self.late_probe.is_some()
                        && rejects_handshake(&error)
                        && self.claim_second_probe() =>
                    {
                        self.probe(Version::NEWEST, now);
                    }
                    (None, Some(dates)) => self.fail_unsupported_version(&dates),
                    (None, None) if rejects_handshake(&error) => {
                        self.close(ClientError::UnsupportedVersion(VersionMismatch::NoHandshake(error)));
                    }
                    (None, None) => self.close(ClientError::Server(error)),
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

    fn become_ready(&mut self, server_info: ServerInfo) {
        self.phase = Phase::Ready;
        self.late_probe = None;
        self.version = server_info.protocol_version;
        self.session_epoch += 1;
        if server_info.protocol_version.has(Feature::Handshake) {
            self.notify_before_others(outgoing::initialized());
            if self.transport == TransportKind::Http
                && (self.session.is_some() || server_info.protocol_version.has(Feature::Sessions))
            {
                self.open_server_stream();
            }
        }
        self.server_info = Some(server_info.clone());
        self.events.push_back(ClientEvent::Ready(Box::new(server_info)));
        self.send_level();
        self.send_unsent_calls();
    }

    /// Handles the HTTP status of the response to the probe. Returns `false` if the body decides.
    pub(super) fn on_probe_http_status(
        &mut self,
        response: &HttpResponse,
        error: Option<&ServerError>,
        now: u64,
    ) -> bool {
        let is_modern = error.is_some_and(|error| is_modern(error) || error.supported_versions().is_some());
        match response.status {
            200..=299 => false,
            401 | 403 | 407 | 408 | 429 | 500.. => {
                self.close(ClientError::from_http_response(response));
                true
            }
            _ if is_modern => false,
            400..=499 => {
                self.initialize(Version::NEWEST_WITH_HANDSHAKE, now);
                true
            }
            _ => {
                self.close(ClientError::from_http_response(response));
                true
            }
        }
    }
}

/// Whether an error is one that a server without a handshake returns for `initialize`.
fn rejects_handshake(error: &ServerError) -> bool {
    [ErrorCode::MethodNotFound, ErrorCode::InvalidParams, ErrorCode::UnsupportedVersion]
        .iter()
        .any(|code| code.number() == error.code)
}

fn strings(list: Node<'_>) -> Vec<String> {
    list.elements().filter_map(|text| Some(text.str()?.into_owned())).collect()
}

/// Whether an error code exists only in the stateless era.
fn is_modern(error: &ServerError) -> bool {
    [ErrorCode::HeaderMismatch, ErrorCode::MissingCapability, ErrorCode::UnsupportedVersion]
        .iter()
        .any(|code| code.number() == error.code)
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
