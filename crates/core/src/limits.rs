//! Every bound in one place; a name carries its unit.

/// What one server allows. The defaults are safe before anything is configured.
#[derive(Debug, Clone)]
pub struct Limits {
    /// One message, on any door.
    pub frame_bytes_max: usize,
    pub json_depth_max: u32,
    pub json_slots_max: usize,
    /// Requests in one batch (a protocol version of 2025 has them).
    pub batch_items_max: usize,
    /// How long a call may take before it is stopped.
    pub call_timeout_ms: u64,
    /// Calls under way at once, over all clients.
    pub calls_max: usize,
    /// Calls under way at once on one pipe or in one session.
    pub calls_per_peer_max: usize,
    /// Items in one page of a list.
    pub page_items_max: usize,
    /// How often a call may come back with questions, and how long a client may take to answer.
    pub input_rounds_max: u32,
    pub input_timeout_ms: u64,
    /// Handshake-era sessions that hold something: a stream, a subscription, a call under way.
    pub sessions_max: usize,
    pub sessions_per_principal_max: usize,
    pub sessions_per_anonymous_max: usize,
    pub session_idle_ms: u64,
    pub session_age_ms: u64,
    /// What one stream keeps for a client that reads slowly or comes back.
    pub stream_events_max: usize,
    pub stream_bytes_max: usize,
    pub streams_max: usize,
    pub subscriptions_per_peer_max: usize,
    /// All that one subscription, or all those of one session, may name together.
    pub subscription_bytes_max: usize,
    pub tasks_max: usize,
    pub tasks_per_principal_max: usize,
    /// The requests and results of all tasks together.
    pub tasks_bytes_max: usize,
    pub task_ttl_ms: u64,
    pub task_poll_interval_ms: u64,
    /// A quiet call turns into a stream after this, so that nothing in between gives up on it.
    pub stream_after_silence_ms: u64,
    pub keep_alive_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 4 << 20,
            json_depth_max: 64,
            json_slots_max: 500_000,
            batch_items_max: 64,
            call_timeout_ms: 30_000,
            calls_max: 4096,
            calls_per_peer_max: 256,
            page_items_max: 1000,
            input_rounds_max: 16,
            input_timeout_ms: 600_000,
            sessions_max: 10_000,
            sessions_per_principal_max: 64,
            sessions_per_anonymous_max: 16,
            session_idle_ms: 5 * 60_000,
            session_age_ms: 8 * 3_600_000,
            stream_events_max: 256,
            stream_bytes_max: 4 << 20,
            streams_max: 16_384,
            subscriptions_per_peer_max: 1024,
            subscription_bytes_max: 64 << 10,
            tasks_max: 4096,
            tasks_per_principal_max: 256,
            tasks_bytes_max: 64 << 20,
            task_ttl_ms: 3_600_000,
            task_poll_interval_ms: 1000,
            stream_after_silence_ms: 2000,
            keep_alive_ms: 15_000,
        }
    }
}
