//! How the fast path hands a connection to hyper for one request, and gets it back.
//!
//! Both run on the connection's own task, one after the other, so the lock is never contended. hyper stays where it is
//! between two requests that it gets: it asks for more bytes, gets none, and waits.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::ReadBuf;

#[derive(Default)]
pub(in crate::http) struct Handover(Mutex<HandoverState>);

#[derive(Default)]
struct HandoverState {
    /// Bytes that were read from the socket and that hyper has not got.
    unread: Vec<u8>,
    /// How many of them hyper has got since.
    replayed: usize,
    /// Whether hyper still has to get bytes of the request that it was given.
    in_request: bool,
    /// Whether the request has reached the service. hyper may answer without it, but then it closes.
    is_handled: bool,
    /// Whether hyper has asked for bytes of the next request.
    wants_next: bool,
    /// Whether hyper has written something that it has not flushed.
    is_unflushed: bool,
}

/// What there is to give to hyper before the socket is read again.
pub(super) enum Replay {
    /// This many bytes, which may go beyond the request.
    Bytes(usize),
    Nothing,
    /// hyper must wait: the next request is not its own.
    NotInRequest,
}

impl Handover {
    fn lock(&self) -> MutexGuard<'_, HandoverState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives hyper the next request, of which `bytes` have been read, with whatever follows.
    pub(in crate::http) fn give(&self, bytes: Vec<u8>) {
        *self.lock() = HandoverState { unread: bytes, in_request: true, ..HandoverState::default() };
    }

    /// The service has got the request.
    pub(in crate::http) fn on_handled(&self) {
        self.lock().is_handled = true;
    }

    /// Whether hyper is done with its request: the response is written, and hyper waits for the next request. It never
    /// gets there where it disagrees with the strict parser about where the request ends.
    pub(in crate::http) fn is_request_done(&self) -> bool {
        let state = self.lock();
        !state.in_request && state.is_handled && state.wants_next && !state.is_unflushed
    }

    /// The bytes after the request.
    pub(in crate::http) fn take_back(&self) -> Vec<u8> {
        let mut state = self.lock();
        let replayed = std::mem::take(&mut state.replayed);
        let mut unread = std::mem::take(&mut state.unread);
        unread.drain(..replayed);
        unread
    }

    pub(super) fn replay(&self, buf: &mut ReadBuf<'_>) -> Replay {
        let mut state = self.lock();
        if !state.in_request {
            state.wants_next = true;
            return Replay::NotInRequest;
        }
        let unread = &state.unread[state.replayed..];
        if unread.is_empty() {
            return Replay::Nothing;
        }
        let copied = unread.len().min(buf.remaining());
        buf.put_slice(&unread[..copied]);
        Replay::Bytes(copied)
    }

    /// hyper has got this many of the replayed bytes.
    pub(super) fn on_replayed(&self, bytes: usize, is_end: bool) {
        let mut state = self.lock();
        state.replayed += bytes;
        state.in_request = !is_end;
        if !is_end && state.replayed == state.unread.len() {
            (state.unread, state.replayed) = (Vec::new(), 0);
        }
    }

    /// The request ended, and these bytes from the socket are behind it.
    pub(super) fn on_request_end(&self, rest: &[u8]) {
        let mut state = self.lock();
        (state.unread, state.replayed) = (rest.to_vec(), 0);
        state.in_request = false;
    }

    pub(super) fn on_write(&self) {
        self.lock().is_unflushed = true;
    }

    pub(super) fn on_flush(&self) {
        self.lock().is_unflushed = false;
    }
}
