//! Changes of files reach the clients of both eras.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use content::{FolderWatch, NoBackend, watch_folder};
use host::{ConnectionState, SubscriptionEvent, SubscriptionStream};
use spile_core::CatalogChange;

use crate::harness::{TestFolder, TestServer, much_later};
use crate::resources::read;

/// A watched folder with a client of each era, on clocks that the test moves.
struct Test {
    folder: TestFolder,
    server: TestServer,
    watch: FolderWatch,
    now: Instant,
    legacy: Arc<ConnectionState>,
    modern: SubscriptionStream,
}

const WATCHED: &str = "resource://guide";

impl Test {
    fn new() -> Self {
        let folder = TestFolder::new(&[
            ("resources/guide.md", "one"),
            ("resources/other.md", "other"),
            ("prompts/p.md", "---\ndescription: first\n---\nx"),
            ("skills/s/SKILL.md", "---\nname: s\ndescription: d\n---\n"),
        ]);
        let (watch, loaded, diagnostics) = FolderWatch::new(folder.folder(), much_later());
        assert!(diagnostics.is_empty());
        let server = TestServer::new(loaded, Arc::new(NoBackend));
        let legacy = server.connect();
        server.subscribe(&legacy, WATCHED);
        let mut modern = server.listen(WATCHED);
        let acknowledged = messages(&mut modern);
        assert!(
            acknowledged[0].contains("acknowledged") && acknowledged[0].contains(WATCHED),
            "{acknowledged:?}"
        );
        Self { folder, server, watch, now: Instant::now(), legacy, modern }
    }

    /// Changes files, waits until they have settled, and returns what each client was told.
    fn change(&mut self, act: impl FnOnce(&TestFolder)) -> Vec<String> {
        act(&self.folder);
        for _ in 0..3 {
            self.now += Duration::from_millis(100);
            if let content::Poll::Changed(loaded, _) = self.watch.poll(self.now, much_later()) {
                self.server.provider.reload(*loaded);
            }
        }
        let legacy: Vec<String> = events(&self.legacy).iter().map(event_name).collect();
        let modern: Vec<String> = messages(&mut self.modern)
            .iter()
            .map(|message| {
                let doc = json::Json::parse(message).expect("JSON").to_doc();
                let text = |node: json::Node<'_>, key: &str| {
                    node.get(key).and_then(|text| text.str()).map(|text| text.into_owned())
                };
                let params = doc.root().get("params").expect("params");
                assert!(params.get("_meta").expect("_meta").raw().contains("subscriptionId"), "{message}");
                let method = text(doc.root(), "method").expect("a method");
                let method = method.trim_start_matches("notifications/").to_owned();
                text(params, "uri").map_or(method.clone(), |uri| format!("{method} {uri}"))
            })
            .collect();
        assert_eq!(legacy, modern, "both eras hear the same");
        modern
    }
}

fn events(connection: &ConnectionState) -> Vec<SubscriptionEvent> {
    let mut cx = Context::from_waker(Waker::noop());
    std::iter::from_fn(|| match connection.subscription.poll_next(&mut cx) {
        Poll::Ready(event) => event,
        Poll::Pending => None,
    })
    .collect()
}

fn event_name(event: &SubscriptionEvent) -> String {
    match event {
        SubscriptionEvent::Change(CatalogChange::Prompts) => "prompts/list_changed".into(),
        SubscriptionEvent::Change(CatalogChange::Resources) => "resources/list_changed".into(),
        SubscriptionEvent::Change(CatalogChange::Resource(uri)) => format!("resources/updated {uri}"),
        other => format!("{other:?}"),
    }
}

fn messages(stream: &mut SubscriptionStream) -> Vec<String> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut messages = Vec::new();
    while let Poll::Ready(Some(message)) = stream.poll_next(&mut cx) {
        messages.push(String::from_utf8(message).expect("UTF-8"));
    }
    messages
}

#[test]
fn clients_hear_of_what_changed_and_of_nothing_else() {
    let mut test = Test::new();
    assert_eq!(test.change(|_| {}), [""; 0]);
    // The same size: only the contents differ.
    assert_eq!(
        test.change(|folder| folder.write("resources/guide.md", "two")),
        ["resources/updated resource://guide"]
    );
    assert_eq!(read(&test.server, WATCHED), "text/markdown two");
    // Another resource: nobody subscribed to it.
    assert_eq!(test.change(|folder| folder.write("resources/other.md", "OTHER")), [""; 0]);
    assert_eq!(
        test.change(|folder| folder.write("resources/guide.md", "longer")),
        ["resources/list_changed", "resources/updated resource://guide"],
        "the list has the size"
    );
    assert_eq!(test.change(|folder| folder.write("resources/new.md", "new")), ["resources/list_changed"]);
    assert_eq!(test.change(|folder| folder.write("prompts/new.md", "new")), ["prompts/list_changed"]);
    assert_eq!(
        test.change(|folder| folder.write("prompts/new.md", "other text")),
        [""; 0],
        "the list is the same"
    );
    assert!(test.server.modern("prompts/get", r#""name":"new""#).contains("other text"));
    assert_eq!(test.change(|folder| folder.write("skills/s/more.md", "x")), ["resources/list_changed"]);
    assert!(test.server.modern("skills/list", "").contains("skill://s/more.md"));
    let gone =
        |folder: &TestFolder| std::fs::remove_file(folder.path("resources/guide.md")).expect("removed");
    assert_eq!(test.change(gone), ["resources/list_changed", "resources/updated resource://guide"]);
    assert!(read(&test.server, WATCHED).starts_with("-32602"));
    assert_eq!(
        test.change(|folder| folder.write("resources/guide.txt", "back")),
        ["resources/list_changed", "resources/updated resource://guide"]
    );
    assert_eq!(read(&test.server, WATCHED), "text/plain back");
}

#[test]
fn a_broken_file_is_withdrawn_and_comes_back() {
    let mut test = Test::new();
    assert_eq!(
        test.change(|folder| folder.write("prompts/p.md", "---\ntitle: [\n---\n")),
        ["prompts/list_changed"]
    );
    assert!(
        test.server.modern("prompts/get", r#""name":"p""#).contains("-32601"),
        "there is no prompt any more"
    );
    assert_eq!(read(&test.server, "resource://other"), "text/markdown other");
    let repair = |folder: &TestFolder| folder.write("prompts/p.md", "---\ndescription: first\n---\nx");
    assert_eq!(test.change(repair), ["prompts/list_changed"]);
}

#[test]
fn a_folder_that_comes_and_goes_is_followed() {
    let mut test = Test::new();
    let remove = |folder: &TestFolder| std::fs::remove_dir_all(folder.path("resources")).expect("removed");
    assert_eq!(test.change(remove), ["resources/list_changed", "resources/updated resource://guide"]);
    let restore = |folder: &TestFolder| folder.write("resources/guide.md", "one");
    assert_eq!(test.change(restore), ["resources/list_changed", "resources/updated resource://guide"]);
    assert_eq!(
        test.change(|folder| folder.write("apps/a.html", "<!doctype html>")),
        ["resources/list_changed"]
    );
}

#[test]
fn a_file_that_is_still_being_written_is_not_read() {
    let folder = TestFolder::new(&[("resources/a.md", "1")]);
    let (mut watch, _, _) = FolderWatch::new(folder.folder(), much_later());
    let start = Instant::now();
    let mut poll = |ms: u64| watch.poll(start + Duration::from_millis(ms), much_later());
    assert!(matches!(poll(0), content::Poll::Unchanged));
    folder.write("resources/a.md", "22");
    assert!(matches!(poll(100), content::Poll::Settling));
    folder.write("resources/a.md", "333");
    assert!(matches!(poll(200), content::Poll::Settling));
    assert!(matches!(poll(220), content::Poll::Settling));
    assert!(matches!(poll(300), content::Poll::Changed(..)));
    assert!(matches!(poll(400), content::Poll::Unchanged));
}

#[test]
fn records_of_a_template_are_reported_by_whoever_knows() {
    let test = Test::new();
    test.server.subscribe(&test.legacy, "orders://7");
    test.server.provider.resource_changed("orders://8");
    test.server.provider.resource_changed("orders://7");
    let events: Vec<String> = events(&test.legacy).iter().map(event_name).collect();
    assert_eq!(events, ["resources/updated orders://7"]);
}

#[test]
fn a_folder_that_is_not_watched_promises_nothing() {
    let folder = TestFolder::new(&[("resources/a.md", "1"), ("prompts/p.md", "x")]);
    let loaded = content::Folder::new(folder.root(), content::Watching::Off).load().0;
    let server = TestServer::new(loaded, Arc::new(NoBackend));
    let capabilities = server.modern("server/discover", "");
    assert!(capabilities.contains(r#""capabilities":{"resources":{},"prompts":{}}"#), "{capabilities}");
}

/// The real thread, on the real clock.
#[test]
fn the_thread_reloads_and_ends() {
    let folder = TestFolder::new(&[("resources/guide.md", "one")]);
    let (watch, loaded, _) = FolderWatch::new(folder.folder(), std::time::SystemTime::now());
    let server = TestServer::new(loaded, Arc::new(NoBackend));
    let (sender, receiver) = channel();
    let thread = watch_folder(watch, &server.provider, move |diagnostics| {
        sender.send(diagnostics.len()).expect("the test waits");
    })
    .expect("a thread");
    folder.write("resources/guide.md", "two");
    folder.write("prompts/broken.md", "{{");
    let deadline = Instant::now() + Duration::from_secs(60);
    // The first load may have been of a file that had just been written, which is loaded once more.
    while receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).expect("a reload") == 0 {}
    assert_eq!(read(&server, WATCHED), "text/markdown two");
    drop(thread);
    assert!(receiver.recv().is_err(), "the thread has ended");
}
