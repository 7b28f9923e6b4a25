//! A second reader of a stream takes the place of the first, and hears of everything from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use call::{Call, Catalog, Change, Cx, Fault, Limits, Listener, Provider, Run, Thing};
use host::{Attached, Config, GET_STREAM, Line, News, Server, Streams, Who};
use testkit::FakeWorld;
use wire::{Bare, Heads, HttpBare, Opened, Session, shape};

/// Has nothing, but says that it changes.
#[derive(Default)]
struct Fickle(std::sync::Mutex<Option<Arc<dyn Listener>>>);

impl Provider for Fickle {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::new(Catalog { changes: true, ..Catalog::default() })
    }

    fn run(&self, call: &Call, _: &Cx<'_>) -> Run {
        Run::now(Fault::Unknown { what: Thing::Tool, name: call.name().into_owned() })
    }

    fn attach(&self, listener: Arc<dyn Listener>) {
        *self.0.lock().expect("no panic before") = Some(listener);
    }
}

#[derive(Default)]
struct Rung(AtomicUsize);

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// As a response to GET does it; says how many events there were.
fn read(attached: &mut Attached, waker: &Waker) -> usize {
    let mut cx = Context::from_waker(waker);
    let live = attached.live().clone();
    while let Poll::Ready(Some(News::Change(change))) = live.watch.poll_next(&mut cx) {
        live.streams.notice(GET_STREAM, shape::change(&change, None));
    }
    std::iter::from_fn(|| match attached.poll_next(&mut cx) {
        Poll::Ready(Some(part)) => Some(part),
        Poll::Ready(None) | Poll::Pending => None,
    })
    .count()
}

#[test]
fn news_reach_the_second_reader_even_if_the_first_looks_again() {
    let provider = Arc::new(Fickle::default());
    let world = Arc::new(FakeWorld::new(1));
    let config = Config { name: "t".into(), version: "1".into(), limits: Limits::default(), world };
    let server = Server::new(config, vec![provider.clone()]).expect("a good catalog");
    let message =
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let bare = HttpBare { heads: Heads::default(), session: &|| Session::None };
    let Opened::Request(request) = server.open(message.as_bytes().to_vec(), Bare::Http(bare)) else {
        panic!("a handshake is a request");
    };
    let host::Begun::Welcome { session, .. } = server.begin(request, &Who::default(), Line::Alone) else {
        panic!("a handshake makes a session");
    };
    let ticket = server.session(&session, &Who::default()).expect("alive");
    let live = server.live(&ticket, &Who::default()).expect("room");

    let (first_rung, second_rung) = (Arc::new(Rung::default()), Arc::new(Rung::default()));
    let (first_waker, second_waker) = (Waker::from(first_rung), Waker::from(second_rung.clone()));
    let mut first = Streams::attach(&live, GET_STREAM, None).expect("the stream is always there");
    read(&mut first, &first_waker);
    let mut second = Streams::attach(&live, GET_STREAM, None).expect("the stream is always there");
    read(&mut second, &second_waker);
    read(&mut first, &first_waker);
    // Whoever is rung looks again.
    if second_rung.0.swap(0, Ordering::SeqCst) > 0 {
        read(&mut second, &second_waker);
    }

    let listener = provider.0.lock().expect("no panic before").clone().expect("attached");
    listener.changed(Change::Tools);
    assert_eq!(second_rung.0.load(Ordering::SeqCst), 1, "the second reader is rung");
    assert_eq!(read(&mut second, &second_waker), 1);
}
