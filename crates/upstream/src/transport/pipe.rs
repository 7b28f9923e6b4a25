//! Messages down one stream of bytes and up another: processes, sockets of this machine, memory.

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

/// What is to be written is gathered up to this.
const WRITE_BATCH_BYTES: usize = 64 << 10;

/// How long what was said last may take to be written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn drive(
    tasks: &mut JoinSet<()>,
    shared: Arc<ConnectionShared>,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> CloseFuture {
    let (close, closing) = oneshot::channel();
    let (gone, closed) = oneshot::channel();
    tasks.spawn(read(shared.clone(), input));
    tasks.spawn(async move {
        write(shared, output, closing).await;
        let _ = gone.send(());
    });
    Box::pin(async move {
        drop(close);
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
    })
}

async fn read(shared: Arc<ConnectionShared>, mut input: impl AsyncRead + Send + Unpin) {
    let mut frames = FrameDecoder::with_framing(shared.options.framing, shared.options.frame_bytes_max);
    let why = loop {
        let room = frames.read_buffer();
        let count = match input.read(room).await {
            Ok(0) => break "the server closed its output".to_owned(),
            Ok(count) => count,
            Err(error) => break format!("the server's output cannot be read: {error}"),
        };
        shared.record(TraceEvent::Bytes { direction: Direction::In, bytes: &room[..count] });
        frames.advance(count);
        for frame in frames.by_ref() {
            handle_frame(&shared, frame);
        }
    };
    if let Some(frame) = frames.finish() {
        handle_frame(&shared, frame);
    }
    shared.with_client(|client, _| client.connection_closed(&why));
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
            let max = shared.options.frame_bytes_max;
            shared.with_client(|client, _| {
                client.message_skipped(&format!("a message of more than {max} bytes"))
            });
        }
        Frame::Desynchronized => shared.with_client(|client, _| {
            client.connection_closed("the server's output makes no sense: a header block without a length");
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
            // What is to be said before the end, such as that a call is given up, is said.
            biased;
            todo = shared.next_action() => todo,
            _ = &mut closing => None,
        };
        let Some(first) = first else { break };
        let mut next = Some(first);
        while let Some(todo) = next {
            if let Action::Send(send) = todo {
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
            // Before the answer to it can be seen.
            shared.record(TraceEvent::Bytes { direction: Direction::Out, bytes: &bytes });
            let written = async {
                output.write_all(&bytes).await?;
                output.flush().await
            };
            if let Err(error) = written.await {
                // Whoever reads sees the end too, and may still get what was said before it.
                tracing::debug!(%error, "the server's input is closed");
                break;
            }
            bytes.clear();
        }
    }
    let _ = output.shutdown().await;
    shared.record(TraceEvent::InputClosed);
}
