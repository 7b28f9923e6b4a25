//! All limits in one place. A name ends in its unit.

/// Longer instructions of a server are cut by some clients.
pub const INSTRUCTIONS_BYTES_MAX: usize = 2 << 10;

/// The limits of one server. The defaults are conservative.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The size of one message, on any transport.
    pub message_bytes_max: usize,
    pub json_depth_max: u32,
    pub json_values_max: usize,
    /// Messages in one JSON-RPC batch (2025-03-26 only).
    pub batch_items_max: usize,
    /// The timeout of a call.
    pub call_timeout_ms: u64,
    /// Concurrent calls, over all clients.
    pub calls_max: usize,
    /// Concurrent calls on one pipe or in one session.
    pub calls_per_connection_max: usize,
    /// Items in one page of a list.
    pub page_items_max: usize,
    /// Rounds of input requests in one call, and the time that a client has to answer.
    pub input_rounds_max: u32,
    pub input_timeout_ms: u64,
    /// Sessions of the handshake era that hold a stream, a subscription or a running call.
    pub sessions_max: usize,
    pub sessions_per_principal_max: usize,
    pub sessions_per_anonymous_max: usize,
    pub session_idle_timeout_ms: u64,
    pub session_ttl_ms: u64,
    /// Events that one stream buffers for a client that reads slowly or resumes.
    pub stream_events_max: usize,
    pub stream_bytes_max: usize,
    pub streams_max: usize,
    pub subscriptions_per_connection_max: usize,
    /// Total size of the URIs and ids in one subscription, or in all subscriptions of one session.
    pub subscription_bytes_max: usize,
    pub tasks_max: usize,
    pub tasks_per_principal_max: usize,
    /// Total size of the requests and results of all tasks.
    pub tasks_bytes_max: usize,
    pub task_ttl_ms: u64,
    pub task_poll_interval_ms: u64,
    /// A call without events becomes a stream after this time, so that proxies do not time out.
    pub stream_after_silence_ms: u64,
    pub keep_alive_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 4 << 20,
            json_depth_max: 64,
            json_values_max: 500_000,
            batch_items_max: 64,
            call_timeout_ms: 30_000,
            calls_max: 4096,
            calls_per_connection_max: 256,
            page_items_max: 1000,
            input_rounds_max: 16,
            input_timeout_ms: 600_000,
            sessions_max: 10_000,
            sessions_per_principal_max: 64,
            sessions_per_anonymous_max: 16,
            session_idle_timeout_ms: 5 * 60_000,
            session_ttl_ms: 8 * 3_600_000,
            stream_events_max: 256,
            stream_bytes_max: 4 << 20,
            streams_max: 16_384,
            subscriptions_per_connection_max: 1024,
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
