//! What operators do over HTTP: requests below `/-/` with a token of their own. What they mean is the handler's business.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use json::Json;
use spile_core::Principal;
use wire::error::ErrorCode;

use super::body::Body;
use super::post::check_body_headers;
use super::response;
use crate::access_tokens::{AccessTokens, GrantId};
use crate::guard::{Guard, GuardRefusal};
use crate::request_headers::RequestHeaders;

/// A token of a caller opens nothing here, and a token of an operator opens nothing elsewhere: whoever calls tools cannot
/// approve calls with the same token.
pub struct AdminEndpoint {
    pub tokens: AccessTokens,
    pub handler: Arc<dyn AdminHandler>,
}

pub trait AdminHandler: Send + Sync {
    /// Whether the path is one of its own.
    fn has_path(&self, path: &str) -> bool;

    fn respond(&self, request: AdminRequest) -> Pin<Box<dyn Future<Output = AdminResponse> + Send>>;
}

/// A request whose token was accepted.
pub struct AdminRequest {
    pub method: AdminMethod,
    pub path: String,
    pub query: Option<String>,
    /// Who sent it.
    pub principal: Principal,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminMethod {
    Get,
    Post,
    Delete,
}

pub struct AdminResponse {
    pub status: u16,
    pub body: Json,
}

/// A request with a valid head; its body comes next.
pub(crate) struct AdminCall<'a> {
    endpoint: &'a AdminEndpoint,
    method: AdminMethod,
    parts: &'a Parts,
    principal: Principal,
}

/// A call, and the grant that its token stands for.
type AuthenticatedCall<'a> = (AdminCall<'a>, Option<GrantId>);

impl AdminEndpoint {
    /// `None` if the request is for something else.
    #[cold]
    pub(crate) fn route<'a>(
        &'a self,
        guard: &Guard,
        parts: &'a Parts,
        headers: &RequestHeaders<'_>,
        address: Option<IpAddr>,
    ) -> Option<Result<AuthenticatedCall<'a>, Response<Body>>> {
        if !self.handler.has_path(parts.uri.path()) {
            return None;
        }
        let method = match parts.method {
            Method::GET => AdminMethod::Get,
            Method::POST => AdminMethod::Post,
            Method::DELETE => AdminMethod::Delete,
            _ => return Some(Err(response::method_not_allowed("GET, POST, DELETE"))),
        };
        let (principal, grant) = match guard.authenticate_with(&self.tokens, headers, address) {
            Ok(found) => found,
            Err(GuardRefusal { status: StatusCode::UNAUTHORIZED, retry_after_ms, .. }) => {
                let reason = "the token of an operator is required";
                let refusal = GuardRefusal { status: StatusCode::UNAUTHORIZED, reason, retry_after_ms };
                return Some(Err(response::denied(refusal)));
            }
            Err(refusal) => return Some(Err(response::denied(refusal))),
        };
        if method == AdminMethod::Post
            && let Err(refusal) = check_body_headers(headers)
        {
            return Some(Err(refusal));
        }
        Some(Ok((AdminCall { endpoint: self, method, parts, principal }, grant)))
    }
}

impl AdminCall<'_> {
    pub(crate) fn respond(self, body: Vec<u8>) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> {
        let Self { endpoint, method, parts, principal } = self;
        let request = AdminRequest {
            method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().map(str::to_owned),
            principal,
            body,
        };
        let responding = endpoint.handler.respond(request);
        Box::pin(async move {
            let AdminResponse { status, body } = responding.await;
            response::json(status, body.as_str().as_bytes().to_vec())
        })
    }
}

impl AdminResponse {
    pub fn ok(body: Json) -> Self {
        Self { status: 200, body }
    }

    /// `reason` says what is wrong and what to do.
    pub fn error(status: u16, reason: &str) -> Self {
        let body = Json::object(|out| {
            out.object("error", |out| {
                out.int("code", ErrorCode::InvalidRequest.number()).str("message", reason);
            });
        });
        Self { status, body }
    }
}
