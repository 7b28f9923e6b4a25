//! Trace events: what passes over a connection, for `spile trace`.

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From us to the server.
    Out,
    In,
}

/// One event of a connection.
#[derive(Debug, Clone, Copy)]
pub enum TraceEvent<'a> {
    /// A process was started, or a connection made.
    Opened(&'a str),
    /// One message, without its framing. Over HTTP it belongs to an exchange.
    Message { direction: Direction, message: &'a [u8], exchange: Option<u64> },
    /// The exact bytes, including framing.
    Bytes { direction: Direction, bytes: &'a [u8] },
    /// HTTP only: the head of a request or a response, one header per line.
    Head { direction: Direction, head: &'a str, exchange: u64 },
    /// A line of the process's stderr.
    Stderr(&'a str),
    /// We closed the server's input.
    InputClosed,
    /// How the process ended.
    Ended(&'a str),
}

/// Receives trace events. Called on the path of the bytes, so it must not block.
pub trait TraceSink: Send + Sync {
    fn record(&self, event: TraceEvent<'_>);
}
