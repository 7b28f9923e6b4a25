//! Framed messages over a pair of byte streams: a process, a unix socket, memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use wire::client::Action;
use wire::frame::{Frame, FrameDecoder};

use super::CloseFuture;
use crate::connection::ConnectionShared;
use crate::trace::{Direction, TraceEvent};

/// Messages are batched up to this size.
const WRITE_BATCH_BYTES: usize = 64 << 10;

/// How long the last messages may take to be written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn drive(
    tasks: &mut JoinSet<()>,
    shared: Arc<ConnectionShared>,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> CloseFuture {
    let (close, closing) = oneshot::channel();
    let (closed_sender, closed) = oneshot::channel();
    tasks.spawn(read(shared.clone(), input));
    tasks.spawn(async move {
        write(shared, output, closing).await;
        let _ = closed_sender.send(());
    });
    Box::pin(async move {
        drop(close);
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
    })
}

async fn read(shared: Arc<ConnectionShared>, mut input: impl AsyncRead + Send + Unpin) {
    let mut frames = FrameDecoder::with_framing(shared.options.framing, shared.options.message_bytes_max);
    let reason = loop {
        let buffer = frames.read_buffer();
        let count = match input.read(buffer).await {
            Ok(0) => break "the server closed its output".to_owned(),
            Ok(count) => count,
            Err(error) => break format!("cannot read from the server: {error}"),
        };
        shared.record(TraceEvent::Bytes { direction: Direction::In, bytes: &buffer[..count] });
        frames.advance(count);
        for frame in frames.by_ref() {
            handle_frame(&shared, frame);
        }
    };
    if let Some(frame) = frames.finish() {
        handle_frame(&shared, frame);
    }
    shared.with_client(|client, _| client.connection_closed(&reason));
}

fn handle_frame(shared: &Arc<ConnectionShared>, frame: Frame) {
    match frame {
        Frame::Message(message) => {
            shared.record(TraceEvent::Message {
                direction: Direction::In,
                message: &message,
                exchange: None,
            });
            shared.with_client(|client, now| client.receive(message, None, now));
        }
        Frame::TooLong => {
            let max = shared.options.message_bytes_max;
            shared.with_client(|client, _| {
                client.message_skipped(&format!("a message exceeds the limit of {max} bytes"))
            });
        }
        Frame::Desynchronized => shared.with_client(|client, _| {
            client.connection_closed("the server sent a header block without a Content-Length");
        }),
    }
}

async fn write(
    shared: Arc<ConnectionShared>,
    mut output: impl AsyncWrite + Send + Unpin,
    mut closing: oneshot::Receiver<()>,
) {
    let framing = shared.options.framing;
    let mut bytes = Vec::new();
    loop {
        let first = tokio::select! {
            // Send what is queued before closing, such as a cancellation.
            biased;
            action = shared.next_action() => action,
            _ = &mut closing => None,
        };
        let Some(first) = first else { break };
        let mut next = Some(first);
        while let Some(action) = next {
            if let Action::Send(send) = action {
                shared.record(TraceEvent::Message {
                    direction: Direction::Out,
                    message: &send.body,
                    exchange: None,
                });
                framing.write(&mut bytes, &send.body);
            }
            next = if bytes.len() < WRITE_BATCH_BYTES { shared.try_next_action() } else { None };
        }
        if !bytes.is_empty() {
            // Record before the response can arrive.
            shared.record(TraceEvent::Bytes { direction: Direction::Out, bytes: &bytes });
            let written = async {
                output.write_all(&bytes).await?;
                output.flush().await
            };
            if let Err(error) = written.await {
                // The reading task sees the end too, and may still get messages from before it.
                tracing::debug!(%error, "the server's input is closed");
                break;
            }
            bytes.clear();
        }
    }
    let _ = output.shutdown().await;
    shared.record(TraceEvent::InputClosed);
}
