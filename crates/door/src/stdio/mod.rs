//! A pipe: one message after the other in, answers out in the order they are ready.
//!
//! One thread reads, opens, looks once at each call and answers what is ready itself; it writes when no
//! whole message is left to read. Only what has to wait moves to the runtime, so a slow call never delays a
//! fast one. Nothing but this door writes to stdout while we serve.

mod output;

use std::future::poll_fn;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use host::{Server, Who};
use tokio::runtime::Handle;
use wire::frame::{Frames, Framing};

use crate::talk::{Outlet as _, Talk, Then};
pub use output::Output;

/// When the input ends, what was asked already may be answered for so long.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// Serves one client until the input ends. Blocks; what has to wait runs on `runtime`.
pub fn serve(
    server: Arc<Server>,
    runtime: &Handle,
    mut input: impl Read,
    output: Arc<Output>,
) -> io::Result<()> {
    let _inside = runtime.enter();
    let pipe = Arc::new(Talk::new(server, Who::default(), output, runtime.clone()));
    let news = runtime.spawn(tell_news(pipe.clone()));
    let mut frames = Frames::new(pipe.server.limits.frame_bytes_max);
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    'read: while !pipe.output.is_closed() {
        let read = match input.read(frames.space()) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        frames.filled(read);
        while let Some(frame) = frames.next() {
            pipe.output.spoken.set(frames.framing().unwrap_or(Framing::Lines));
            if pipe.take(frame, &mut batch) == Then::Stop {
                break 'read;
            }
            if batch.len() >= BATCH_BYTES {
                pipe.output.write(&mut batch);
            }
        }
        pipe.output.write(&mut batch);
    }
    if let Some(last) = frames.finish() {
        pipe.take(last, &mut batch);
    }
    pipe.output.write(&mut batch);
    news.abort();
    pipe.server.close();
    let calm = runtime.block_on(async { tokio::time::timeout(AFTERWARDS, pipe.live.calm()).await });
    if calm.is_err() {
        tracing::debug!("calls were cancelled because the input ended");
    }
    pipe.live.close();
    pipe.output.finish(AFTERWARDS);
    Ok(())
}

/// Ends it from outside, as the end of the input would: what was asked already may be answered for a while.
/// Whoever reads the input is left alone; the process is expected to end.
pub async fn leave(server: &Server, output: &Output) {
    server.close();
    let calm = async {
        while !is_calm(server) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(AFTERWARDS, calm).await.is_err() {
        tracing::debug!("calls were cancelled because the process was told to stop");
    }
    output.finish(AFTERWARDS);
}

fn is_calm(server: &Server) -> bool {
    let status = server.status();
    status.calls_active == 0 && status.listening == 0
}

/// Answers are gathered up to this before they are written, as long as there is more to read.
const BATCH_BYTES: usize = 64 << 10;

/// Tells the client what changed, for as long as it is served.
async fn tell_news(talk: Arc<Talk<Output>>) {
    while let Some(news) = poll_fn(|cx| talk.live.watch.poll_next(cx)).await {
        talk.tell(&news);
    }
}
