//! stdio: messages on stdin, responses on stdout in the order they are ready.
//!
//! One thread reads and decodes messages, polls each call once and answers what is ready; it writes when no
//! complete message is left to read. Only calls that must wait move to the runtime, so a slow call never delays
//! a fast one. Nothing else writes to stdout while the server runs.

mod writer;

use std::future::poll_fn;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::{CallerIdentity, Server};
use tokio::runtime::Handle;
use wire::frame::{FrameDecoder, Framing};

use crate::conversation::{AfterFrame, Conversation, MessageSink as _};
pub use writer::StdoutWriter;

/// When the process is told to stop, running calls and unwritten responses have this long.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// After the end of the input, running calls have this long. Clients that want the process to end close its input, and
/// kill it if it stays.
const END_OF_INPUT_GRACE: Duration = Duration::from_secs(5);

/// How often a client that has closed its input is checked while its calls run.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Serves one client until the input ends. Blocks; calls that must wait run on `runtime`.
///
/// The end of the input does not end calls at once: a script may send its requests, close stdin and read the responses.
/// Running calls have a few seconds, and responses are written for as long as the client takes some of them.
pub fn serve(
    server: Arc<Server>,
    runtime: &Handle,
    mut input: impl Read,
    output: Arc<StdoutWriter>,
) -> io::Result<()> {
    let _inside = runtime.enter();
    let conversation =
        Arc::new(Conversation::new(server, CallerIdentity::default(), output, runtime.clone()));
    let notifications = runtime.spawn(send_notifications(conversation.clone()));
    let mut frames = FrameDecoder::new(conversation.server.limits.message_bytes_max);
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    'read: while !conversation.sink.is_closed() {
        let read = match input.read(frames.read_buffer()) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        frames.advance(read);
        while let Some(frame) = frames.next() {
            conversation.sink.framing.set(frames.framing().unwrap_or(Framing::Lines));
            if conversation.handle_frame(frame, &mut batch) == AfterFrame::Close {
                break 'read;
            }
            if batch.len() >= BATCH_BYTES {
                conversation.sink.write_batch(&mut batch);
            }
        }
        conversation.sink.write_batch(&mut batch);
    }
    if let Some(last) = frames.finish() {
        conversation.handle_frame(last, &mut batch);
    }
    conversation.sink.write_batch(&mut batch);
    notifications.abort();
    runtime.block_on(conversation.server.release_tasks());
    conversation.server.close();
    conversation.state.end_input();
    runtime.block_on(async {
        tokio::select! {
            () = conversation.state.wait_until_idle() => {}
            () = wait_until_gone(&conversation.sink) => {
                tracing::debug!("cancelled running calls because the client is gone");
            }
            () = tokio::time::sleep(END_OF_INPUT_GRACE) => {
                tracing::debug!("cancelled running calls because the client closed its input");
            }
        }
    });
    // Calls that became tasks meanwhile.
    runtime.block_on(conversation.server.release_tasks());
    conversation.state.close();
    conversation.sink.finish_unless_stalled();
    Ok(())
}

/// Waits until the client cannot read responses any more, or takes none for the write stall timeout.
async fn wait_until_gone(output: &StdoutWriter) {
    let mut progress = output.start_progress(Instant::now());
    while !output.is_reader_gone() && !output.is_stalled(&mut progress, Instant::now()) {
        tokio::time::sleep(CLIENT_CHECK_INTERVAL).await;
    }
}

/// Shuts down from outside, soon: running calls may finish within a second. The reading thread stays
/// blocked in its read; the process is expected to exit.
pub async fn shut_down(server: &Server, output: &StdoutWriter) {
    server.release_tasks().await;
    server.close();
    let idle = async {
        while !is_idle(server) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(SHUTDOWN_GRACE, idle).await.is_err() {
        tracing::debug!("cancelled running calls because the process was told to stop");
    }
    server.release_tasks().await;
    output.finish(SHUTDOWN_GRACE);
}

fn is_idle(server: &Server) -> bool {
    let status = server.status();
    status.calls_active == 0 && status.subscriptions == 0
}

/// Responses are batched up to this size while there is more to read.
const BATCH_BYTES: usize = 64 << 10;

/// Sends change notifications until the server stops.
async fn send_notifications(conversation: Arc<Conversation<StdoutWriter>>) {
    while let Some(notifications) = poll_fn(|cx| conversation.state.subscription.poll_next(cx)).await {
        conversation.notify(&notifications);
    }
}
