//! What is reported about each sampling that the gateway answers, or refuses, in place of the caller's client.

use std::net::IpAddr;
use std::sync::Arc;

use spile_core::{CallId, Platform, Principal};

/// Receives each sampling when it ends. It runs where the call runs, so it must be quick.
pub trait SamplingObserver: Send + Sync + 'static {
    fn on_sampling_finished(&self, record: &SamplingRecord<'_>);
}

/// A sampling that has ended.
#[derive(Debug, Clone, Copy)]
pub struct SamplingRecord<'a> {
    pub server: &'a str,
    pub caller: &'a SamplingCaller,
    /// Who allowed it; `None` if nobody did.
    pub allowed_by: Option<AllowedBy>,
    pub status: SamplingStatus<'a>,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    pub duration_ms: u64,
    /// Size of the parameters.
    pub request_bytes: usize,
    /// Size of the result; 0 without one.
    pub response_bytes: usize,
}

/// Whose call it was in which a server asked a model. Empty where a server asks outside of calls.
#[derive(Debug, Clone, Default)]
pub struct SamplingCaller {
    pub principal: Principal,
    pub address: Option<IpAddr>,
    pub session: Option<[u8; 16]>,
    /// That of the call's own record.
    pub call_id: Option<CallId>,
}

/// Who allowed a model to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedBy {
    /// The settings name the server.
    Settings,
    /// The user of the calling client.
    User,
    /// Whoever operates the gateway.
    Operator,
}

/// How a sampling ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingStatus<'a> {
    Answered,
    /// Nobody allowed it: no model was asked.
    Refused(&'a str),
    /// The model did not answer; this is what the server was told.
    Failed(&'a str),
    /// The call ended first.
    Cancelled,
}

/// A sampling that has begun. It is reported once, also when the call ends before the model does.
pub(crate) struct RunningSampling<'a> {
    observer: Option<Arc<dyn SamplingObserver>>,
    platform: &'a dyn Platform,
    server: &'a str,
    caller: &'a SamplingCaller,
    request_bytes: usize,
    started_ms: u64,
    pub(crate) allowed_by: Option<AllowedBy>,
}

impl<'a> RunningSampling<'a> {
    pub(crate) fn begin(
        observer: Option<Arc<dyn SamplingObserver>>,
        platform: &'a dyn Platform,
        server: &'a str,
        caller: &'a SamplingCaller,
        request_bytes: usize,
    ) -> Self {
        let started_ms = platform.now_ms();
        Self { observer, platform, server, caller, request_bytes, started_ms, allowed_by: None }
    }

    /// It goes on later, where another one is begun for it.
    pub(crate) fn leave(mut self) {
        self.observer = None;
    }

    pub(crate) fn finish(mut self, status: SamplingStatus<'_>, response_bytes: usize) {
        self.report(status, response_bytes);
    }

    fn report(&mut self, status: SamplingStatus<'_>, response_bytes: usize) {
        let Some(observer) = self.observer.take() else { return };
        observer.on_sampling_finished(&SamplingRecord {
            server: self.server,
            caller: self.caller,
            allowed_by: self.allowed_by,
            status,
            started_ms: self.started_ms,
            duration_ms: self.platform.now_ms().saturating_sub(self.started_ms),
            request_bytes: self.request_bytes,
            response_bytes,
        });
    }
}

impl Drop for RunningSampling<'_> {
    fn drop(&mut self) {
        self.report(SamplingStatus::Cancelled, 0);
    }
}
