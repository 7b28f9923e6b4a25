//! What somebody who watches a connection gets to see.

/// Which way something went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From us to the server.
    Out,
    In,
}

/// One thing that was seen.
#[derive(Debug, Clone, Copy)]
pub enum TraceEvent<'a> {
    /// A process was started, or a connection made.
    Opened(&'a str),
    /// One message, without its framing. Over HTTP it belongs to an exchange.
    Message { direction: Direction, message: &'a [u8], exchange: Option<u64> },
    /// Bytes exactly as they went, framing and all.
    Bytes { direction: Direction, bytes: &'a [u8] },
    /// Over HTTP: the head of a request or of an answer, a line each.
    Head { direction: Direction, head: &'a str, exchange: u64 },
    /// A line of the process's stderr.
    Stderr(&'a str),
    /// We said that nothing more will come.
    InputClosed,
    /// How it ended.
    Ended(&'a str),
}

/// Watches a connection. Called where the bytes pass, so it must not wait.
pub trait TraceSink: Send + Sync {
    fn record(&self, seen: TraceEvent<'_>);
}
