//! Heads that passed all checks, and the memo of them that one connection keeps.
//!
//! Clients repeat their heads, but for the length of the body. A head that is byte for byte one that was accepted before on
//! the same connection is accepted again without parsing, as long as nothing has changed that the checks depend on: the
//! head, the connection and fixed settings stay the same; the tokens and the throttle have a generation; the caller's
//! expiry is compared with the clock. Sessions and policies are checked for each message, by the host; the ticket in a session
//! id is decrypted once for each head.

use std::ops::Range;
use std::sync::Arc;

use host::{AcceptedTypes, CallerIdentity, Server, TicketMemo};
use spile_core::Platform as _;
use wire::{HeaderField, Headers};

use super::head::PlainHead;
use crate::content_negotiation::accepted_types;
use crate::guard::{GuardGeneration, Origin};
use crate::http::directory::ServerRef;
use crate::http::post::{self, PostHead};
use crate::http::route::ConnectionContext;
use crate::request_headers::{HeaderLines, HeaderSpan, RequestHeaders};

/// A head that the guard and content negotiation accepted, for one of the servers.
pub(super) struct AcceptedHead {
    bytes: Box<[u8]>,
    fields: Vec<HeaderSpan>,
    length_digits: Range<usize>,
    /// A length with more digits is read again.
    length_digits_max: usize,
    message_fields: MessageFields,
    ticket_memo: TicketMemo,
    server: AcceptedServer,
    pub(super) identity: CallerIdentity,
    accepted: AcceptedTypes,
    pub(super) origin: Origin,
    generation: GuardGeneration,
}

/// The place of a server in the service's list, or one that may go away.
enum AcceptedServer {
    Fixed(usize),
    Listed(Arc<Server>),
}

/// The headers that every message is compared with: an index into the fields, or absent, or repeated.
struct MessageFields {
    protocol_version: MessageField,
    method: MessageField,
    name: MessageField,
    session_id: MessageField,
}

#[derive(Clone, Copy)]
enum MessageField {
    Absent,
    Single { start: u16, end: u16 },
    Repeated,
}

impl MessageField {
    fn new(head: &PlainHead<'_>, name: &str) -> Self {
        let is_it = |field: &&HeaderSpan| {
            let (start, end) = (usize::from(field.name.start), usize::from(field.name.end));
            head.bytes[start..end].eq_ignore_ascii_case(name.as_bytes())
        };
        let mut found = head.fields.iter().filter(is_it);
        match (found.next(), found.next()) {
            (None, _) => Self::Absent,
            (Some(field), None) => Self::Single { start: field.value.start, end: field.value.end },
            (Some(_), Some(_)) => Self::Repeated,
        }
    }

    #[inline]
    fn of(self, head: &[u8]) -> HeaderField<'_> {
        match self {
            Self::Absent => HeaderField::Absent,
            Self::Single { start, end } => head
                .get(usize::from(start)..usize::from(end))
                .map_or(HeaderField::Repeated, HeaderField::Single),
            Self::Repeated => HeaderField::Repeated,
        }
    }
}

impl AcceptedHead {
    /// Checks a head. `None` if it must be refused: whoever does so checks it again, and says why.
    pub(super) fn check(head: &PlainHead<'_>, context: &ConnectionContext) -> Option<Self> {
        let service = &*context.service;
        // Before the checks, so that a change while they run is noticed.
        let generation = service.guard.generation();
        let headers = RequestHeaders::from_lines(head.headers());
        let origin = service.guard.check_host_and_origin(None, &headers, context.local).ok()?;
        let (principal, grant) = service.guard.recognize(&headers, context.remote_ip)?;
        let server = service.server_at(head.path)?;
        post::check_body_headers(&headers).ok()?;
        let accepted = accepted_types(&headers, None)?;
        if let Some(grant) = grant {
            context.connection.on_authenticated(grant);
        }
        let mut identity = CallerIdentity { principal, address: context.remote_ip, request_head: None };
        if server.reads_request_heads() {
            identity.request_head = Some(Arc::new(headers.to_request_head()));
        }
        let server = match server {
            ServerRef::Fixed(server) => {
                let is_it = |other: &Arc<Server>| Arc::ptr_eq(other, server);
                AcceptedServer::Fixed(service.servers.iter().position(is_it)?)
            }
            ServerRef::Listed(server) => AcceptedServer::Listed(server),
        };
        Some(Self {
            bytes: head.bytes.into(),
            length_digits: head.length_digits.clone(),
            length_digits_max: head.length_digits_max.min(LENGTH_DIGITS_MAX),
            message_fields: MessageFields {
                protocol_version: MessageField::new(head, "mcp-protocol-version"),
                method: MessageField::new(head, "mcp-method"),
                name: MessageField::new(head, "mcp-name"),
                session_id: MessageField::new(head, "mcp-session-id"),
            },
            fields: head.fields.clone(),
            ticket_memo: TicketMemo::default(),
            server,
            identity,
            accepted,
            origin,
            generation,
        })
    }

    #[inline]
    pub(super) fn server<'a>(&'a self, context: &'a ConnectionContext) -> Option<&'a Arc<Server>> {
        match &self.server {
            AcceptedServer::Fixed(index) => context.service.servers.get(*index),
            AcceptedServer::Listed(server) => Some(server),
        }
    }

    /// What a message with this head is answered by.
    #[inline]
    pub(super) fn post_head<'a>(&'a self, server: &'a Arc<Server>) -> PostHead<'a> {
        let MessageFields { protocol_version, method, name, session_id } = &self.message_fields;
        let headers = Headers {
            version: protocol_version.of(&self.bytes),
            method: method.of(&self.bytes),
            name: name.of(&self.bytes),
        };
        PostHead {
            server,
            identity: &self.identity,
            headers,
            session_id: session_id.of(&self.bytes),
            ticket_memo: &self.ticket_memo,
            accepted: self.accepted,
        }
    }

    pub(super) fn headers(&self) -> HeaderLines<'_> {
        HeaderLines::new(&self.bytes, &self.fields)
    }

    /// The path of the request line, which is known to be there.
    pub(super) fn path(&self) -> &str {
        let target = self.bytes.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        std::str::from_utf8(target).unwrap_or_default()
    }

    /// If `bytes` start with this head but for the digits of the length: how long the head is, and the body. Only as many
    /// digits as the strict reader accepts on this line.
    #[inline]
    fn match_length(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        let Range { start, end } = self.length_digits;
        let rest = bytes.strip_prefix(&self.bytes[..start])?;
        let (mut digits, mut body_bytes) = (0, 0);
        while let Some(byte) = rest.get(digits)
            && byte.is_ascii_digit()
        {
            digits += 1;
            if digits > self.length_digits_max {
                return None;
            }
            body_bytes = body_bytes * 10 + usize::from(byte - b'0');
        }
        if digits == 0 || !rest[digits..].starts_with(&self.bytes[end..]) {
            return None;
        }
        Some((self.bytes.len() - (end - start) + digits, body_bytes))
    }

    /// Whether the head would be accepted now as it was then.
    #[inline]
    fn is_current(&self, context: &ConnectionContext) -> bool {
        self.generation == context.service.guard.generation()
            && !self.identity.principal.is_expired(|| host::SystemPlatform::default().now_ms())
            && self.server(context).is_some_and(|server| !server.reads_request_heads())
    }

    /// A head of a server that may go away, or whose text matters to code, is checked each time. So is a long one.
    fn can_be_kept(&self) -> bool {
        matches!(self.server, AcceptedServer::Fixed(_))
            && self.identity.request_head.is_none()
            && self.bytes.len() <= KEPT_BYTES_MAX
    }
}

/// More digits are longer than any body that the fast path takes.
const LENGTH_DIGITS_MAX: usize = 6;

/// A client that uses a few tools in turn sends a few heads in turn.
const HEADS_MAX: usize = 4;

/// The size of all heads that a connection keeps while it waits for its next request. Four heads with a signed token each
/// fit.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// The accepted heads of one connection. Never shared between connections.
#[derive(Default)]
pub(super) struct HeadMemo {
    /// The oldest first.
    heads: Vec<AcceptedHead>,
}

/// A request whose head is accepted: which head of the memo, and the sizes.
#[derive(Clone, Copy)]
pub(super) struct AcceptedRequest {
    pub(super) head_index: usize,
    pub(super) head_bytes: usize,
    pub(super) body_bytes: usize,
}

impl AcceptedRequest {
    /// The size of head and body.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.head_bytes.saturating_add(self.body_bytes)
    }
}

impl HeadMemo {
    /// The request that `bytes` start with, if its head is complete, plain and accepted.
    #[inline]
    pub(super) fn accept(&mut self, bytes: &[u8], context: &ConnectionContext) -> Option<AcceptedRequest> {
        for (head_index, head) in self.heads.iter().enumerate() {
            if let Some((head_bytes, body_bytes)) = head.match_length(bytes) {
                if head.is_current(context) {
                    return Some(AcceptedRequest { head_index, head_bytes, body_bytes });
                }
                self.heads.remove(head_index);
                break;
            }
        }
        self.check(bytes, context)
    }

    #[inline(never)]
    fn check(&mut self, bytes: &[u8], context: &ConnectionContext) -> Option<AcceptedRequest> {
        let head = PlainHead::parse(bytes)?;
        let accepted = AcceptedHead::check(&head, context)?;
        if accepted.can_be_kept() {
            self.make_room(accepted.bytes.len());
        }
        let head_index = self.heads.len();
        self.heads.push(accepted);
        Some(AcceptedRequest { head_index, head_bytes: head.bytes.len(), body_bytes: head.body_bytes })
    }

    /// Forgets the oldest heads until one of `bytes` can be kept.
    fn make_room(&mut self, bytes: usize) {
        let mut kept_bytes: usize = self.heads.iter().map(|head| head.bytes.len()).sum();
        while self.heads.len() >= HEADS_MAX || kept_bytes + bytes > KEPT_BYTES_MAX {
            kept_bytes -= self.heads.remove(0).bytes.len();
        }
    }

    #[inline]
    pub(super) fn get(&self, request: &AcceptedRequest) -> Option<&AcceptedHead> {
        self.heads.get(request.head_index)
    }

    /// The request is answered, or is no longer ours.
    #[inline]
    pub(super) fn release(&mut self, request: &AcceptedRequest) {
        if self.get(request).is_some_and(|head| !head.can_be_kept()) {
            self.heads.remove(request.head_index);
        }
    }
}
