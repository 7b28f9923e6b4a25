//! A pipe: one message after the other in, answers out in the order they are ready.
//!
//! One thread reads, opens, looks once at each call and answers what is ready itself; it writes when no
//! whole message is left to read. Only what has to wait moves to the runtime, so a slow call never delays a
//! fast one. Nothing but this door writes to stdout while we serve.

mod writer;

use std::future::poll_fn;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use host::{CallerIdentity, Server};
use tokio::runtime::Handle;
use wire::frame::{FrameDecoder, Framing};

use crate::conversation::{AfterFrame, Conversation, MessageSink as _};
pub use writer::StdoutWriter;

/// When the input ends, what was asked already may be answered for so long.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// Serves one client until the input ends. Blocks; what has to wait runs on `runtime`.
pub fn serve(
    server: Arc<Server>,
    runtime: &Handle,
    mut input: impl Read,
    output: Arc<StdoutWriter>,
) -> io::Result<()> {
    let _inside = runtime.enter();
    let pipe = Arc::new(Conversation::new(server, CallerIdentity::default(), output, runtime.clone()));
    let news = runtime.spawn(send_notifications(pipe.clone()));
    let mut frames = FrameDecoder::new(pipe.server.limits.frame_bytes_max);
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    'read: while !pipe.sink.is_closed() {
        let read = match input.read(frames.read_buffer()) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        frames.advance(read);
        while let Some(frame) = frames.next() {
            pipe.sink.framing.set(frames.framing().unwrap_or(Framing::Lines));
            if pipe.handle_frame(frame, &mut batch) == AfterFrame::Close {
                break 'read;
            }
            if batch.len() >= BATCH_BYTES {
                pipe.sink.write_batch(&mut batch);
            }
        }
        pipe.sink.write_batch(&mut batch);
    }
    if let Some(last) = frames.finish() {
        pipe.handle_frame(last, &mut batch);
    }
    pipe.sink.write_batch(&mut batch);
    news.abort();
    pipe.server.close();
    let calm =
        runtime.block_on(async { tokio::time::timeout(SHUTDOWN_GRACE, pipe.state.wait_until_idle()).await });
    if calm.is_err() {
        tracing::debug!("calls were cancelled because the input ended");
    }
    pipe.state.close();
    pipe.sink.finish(SHUTDOWN_GRACE);
    Ok(())
}

/// Ends it from outside, as the end of the input would: what was asked already may be answered for a while.
/// Whoever reads the input is left alone; the process is expected to end.
pub async fn shut_down(server: &Server, output: &StdoutWriter) {
    server.close();
    let calm = async {
        while !is_idle(server) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(SHUTDOWN_GRACE, calm).await.is_err() {
        tracing::debug!("calls were cancelled because the process was told to stop");
    }
    output.finish(SHUTDOWN_GRACE);
}

fn is_idle(server: &Server) -> bool {
    let status = server.status();
    status.calls_active == 0 && status.subscriptions == 0
}

/// Answers are gathered up to this before they are written, as long as there is more to read.
const BATCH_BYTES: usize = 64 << 10;

/// Tells the client what changed, for as long as it is served.
async fn send_notifications(talk: Arc<Conversation<StdoutWriter>>) {
    while let Some(news) = poll_fn(|cx| talk.state.subscription.poll_next(cx)).await {
        talk.notify(&news);
    }
}
