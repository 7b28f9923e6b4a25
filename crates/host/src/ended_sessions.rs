//! Sessions that were ended at one of several processes: the others learn it through the store they share.
//!
//! A process that ends a session appends it to a stream; every process follows that stream in the background. So a request
//! costs nothing more, and an ended session may be accepted elsewhere until the stream was read again (ADR 0193).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use state::keyring::digest_parts;
use state::store::{Namespace, Sequence, Store, StoreKey, Ttl};

use crate::server::Server;
use crate::sessions::SessionTicket;

/// How soon other processes refuse a session that has ended.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Below what a store holds for one owner: a stream that cannot grow must drop its oldest entry, not refuse the newest. The
/// processes that run have read that one long ago.
const ENDED_MAX: usize = 16_384;
const PAGE_ENTRIES: usize = 1000;
const NAME: &[u8] = b"ended";
const ENTRY_BYTES: usize = 16 + 8;

impl Server {
    fn ended_sessions_owner(&self) -> [u8; 32] {
        digest_parts(&[b"ended sessions", self.store_scope.as_bytes()])
    }

    /// Tells other processes with the same store which sessions end here, and learns which ended there, for as long as the
    /// server exists. Only for a store that several processes share.
    pub async fn share_ended_sessions(self: Arc<Self>) {
        self.shares_ended_sessions.store(true, Ordering::Relaxed);
        let (owner, server) = (self.ended_sessions_owner(), Arc::downgrade(&self));
        drop(self);
        let stream = StoreKey { namespace: Namespace::EndedSessions, owner: &owner, name: NAME };
        let (mut after, mut is_failing) = (Sequence::START, false);
        loop {
            let Some(server) = server.upgrade() else { return };
            let now_ms = server.platform.now_ms();
            let page = server.store.read_after(stream, after, PAGE_ENTRIES, now_ms).await;
            let has_failed = std::mem::replace(&mut is_failing, page.is_err());
            let is_full = match page {
                Ok(Some(page)) => {
                    for (sequence, entry) in &page.entries {
                        after = *sequence;
                        if let Some((key, expires_ms)) = read_entry(entry) {
                            server.sessions.end_elsewhere(key, now_ms, expires_ms);
                        }
                    }
                    page.entries.len() == PAGE_ENTRIES
                }
                Ok(None) => false,
                Err(error) => {
                    // It is asked every second, and may be gone for good.
                    if !has_failed {
                        tracing::warn!(%error, "cannot learn which sessions ended at other processes");
                    }
                    false
                }
            };
            drop(server);
            if !is_full {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Called when a session ended here.
    pub(crate) fn publish_ended_session(self: &Arc<Self>, ticket: &SessionTicket) {
        if !self.shares_ended_sessions.load(Ordering::Relaxed) {
            return;
        }
        let (server, key) = (self.clone(), ticket.key());
        tokio::spawn(async move {
            let (now_ms, ttl_ms) = (server.platform.now_ms(), server.limits.session_ttl_ms);
            let owner = server.ended_sessions_owner();
            let stream = StoreKey { namespace: Namespace::EndedSessions, owner: &owner, name: NAME };
            let mut entry = [0; ENTRY_BYTES];
            entry[..16].copy_from_slice(&key);
            entry[16..].copy_from_slice(&now_ms.saturating_add(ttl_ms).to_be_bytes());
            let appended = server.store.append(stream, &entry, ENDED_MAX, Ttl { ms: ttl_ms }, now_ms).await;
            if let Err(error) = appended {
                tracing::warn!(%error, "other processes do not learn that a session has ended");
            }
        });
    }
}

fn read_entry(entry: &[u8]) -> Option<([u8; 16], u64)> {
    let entry: &[u8; ENTRY_BYTES] = entry.try_into().ok()?;
    Some((entry[..16].try_into().ok()?, u64::from_be_bytes(entry[16..].try_into().ok()?)))
}
