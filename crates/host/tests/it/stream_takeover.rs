//! A second reader of a stream replaces the first and receives every event from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use host::{CallerIdentity, Config, GET_STREAM, ReplyChannel, Server, SessionStreamReader, SessionStreams};
use spile_core::{
    Call, CallContext, CallError, Catalog, CatalogChange, ChangeListener, ItemKind, Limits, Provider, Run,
};
use testkit::FakePlatform;
use wire::{Decoded, Headers, HttpDefaults, MessageContext, SessionLookup};

/// An empty catalog that reports changes.
#[derive(Default)]
struct ChangingProvider(std::sync::Mutex<Option<Arc<dyn ChangeListener>>>);

impl Provider for ChangingProvider {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::new(Catalog { list_changed: true, ..Catalog::default() })
    }

    fn run(&self, call: &Call, _: &CallContext<'_>) -> Run {
        Run::now(CallError::UnknownItem { kind: ItemKind::Tool, name: call.name().into_owned() })
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        *self.0.lock().expect("no panic before") = Some(listener);
    }
}

#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Reads all pending events, as the response to a GET does, and returns their number.
fn read_events(reader: &mut SessionStreamReader, waker: &Waker) -> usize {
    let mut cx = Context::from_waker(waker);
    std::iter::from_fn(|| match reader.poll_next(&mut cx) {
        Poll::Ready(Some(item)) => Some(item),
        Poll::Ready(None) | Poll::Pending => None,
    })
    .count()
}

#[test]
fn events_reach_the_second_reader_even_if_the_first_polls_again() {
    let provider = Arc::new(ChangingProvider::default());
    let platform = Arc::new(FakePlatform::new(1));
    let config = Config::new("t", "1", Limits::default(), platform);
    let server = Server::new(config, vec![provider.clone()]);
    let message =
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let defaults = HttpDefaults { headers: Headers::default(), lookup_session: &|| SessionLookup::NotNamed };
    let Decoded::Request(request) =
        server.decode(message.as_bytes().to_vec(), MessageContext::Http(defaults), &server.snapshot())
    else {
        panic!("a handshake is a request");
    };
    let host::Dispatched::Initialized { session, .. } =
        server.dispatch(request, &CallerIdentity::default(), ReplyChannel::NoSession, server.snapshot())
    else {
        panic!("a handshake creates a session");
    };
    let ticket = server.verify_session(&session, &CallerIdentity::default()).expect("alive");
    let connection = server.ensure_session_state(&ticket, &CallerIdentity::default()).expect("room");

    let (first_wakes, second_wakes) = (Arc::new(WakeCounter::default()), Arc::new(WakeCounter::default()));
    let (first_waker, second_waker) = (Waker::from(first_wakes), Waker::from(second_wakes.clone()));
    let mut first =
        SessionStreams::attach_reader(&connection, GET_STREAM, None).expect("the GET stream always exists");
    read_events(&mut first, &first_waker);
    let mut second =
        SessionStreams::attach_reader(&connection, GET_STREAM, None).expect("the GET stream always exists");
    read_events(&mut second, &second_waker);
    read_events(&mut first, &first_waker);
    // A woken reader polls again.
    if second_wakes.0.swap(0, Ordering::SeqCst) > 0 {
        read_events(&mut second, &second_waker);
    }

    let listener = provider.0.lock().expect("no panic before").clone().expect("attached");
    listener.catalog_changed(CatalogChange::Tools);
    assert_eq!(second_wakes.0.load(Ordering::SeqCst), 1, "the second reader is woken");
    assert_eq!(read_events(&mut second, &second_waker), 1);
}
