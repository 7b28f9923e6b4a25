//! Calls that wait for an answer of their caller, while their server waits as well.
//!
//! A server of the handshake era asks in the middle of a call, and its connection must stay open until it has the answer. The
//! number of such calls is bounded, and so is their age; a call that is dropped here is cancelled at the server.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::forwarded_call::ForwardedCall;

/// The limit of waiting calls, over all servers and of one principal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParkedLimits {
    pub(crate) total_max: usize,
    pub(crate) per_principal_max: usize,
    pub(crate) age_ms_max: u64,
}

pub(crate) type ParkedId = [u8; 16];

pub(crate) struct ParkedCalls {
    limits: ParkedLimits,
    calls: Mutex<HashMap<ParkedId, ParkedCall>>,
}

struct ParkedCall {
    principal: Box<str>,
    expires_ms: u64,
    call: ForwardedCall,
}

impl ParkedCalls {
    pub(crate) fn new(limits: ParkedLimits) -> Self {
        Self { limits, calls: Mutex::default() }
    }

    /// Keeps a call until it is taken or too old. `Err`: too many wait already; the call is cancelled.
    pub(crate) fn park(
        &self,
        id: ParkedId,
        principal: &str,
        call: ForwardedCall,
        now_ms: u64,
    ) -> Result<(), usize> {
        let mut calls = self.lock();
        calls.retain(|_, parked| parked.expires_ms > now_ms);
        let ParkedLimits { total_max, per_principal_max, age_ms_max } = self.limits;
        if calls.len() >= total_max {
            return Err(total_max);
        }
        if calls.values().filter(|parked| *parked.principal == *principal).count() >= per_principal_max {
            return Err(per_principal_max);
        }
        let expires_ms = now_ms.saturating_add(age_ms_max);
        calls.insert(id, ParkedCall { principal: principal.into(), expires_ms, call });
        Ok(())
    }

    /// Only for the principal whose call it is.
    pub(crate) fn take(&self, id: &ParkedId, principal: &str, now_ms: u64) -> Option<ForwardedCall> {
        let mut calls = self.lock();
        let is_theirs = |parked: &ParkedCall| *parked.principal == *principal && parked.expires_ms > now_ms;
        calls.get(id).is_some_and(is_theirs).then(|| calls.remove(id))?.map(|parked| parked.call)
    }

    /// Cancels the calls that are too old.
    pub(crate) fn expire(&self, now_ms: u64) {
        self.lock().retain(|_, parked| parked.expires_ms > now_ms);
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ParkedId, ParkedCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
