//! Subscriptions to changes of lists, resources and tasks.
//!
//! A subscription keeps its pending events as a set, not as a queue: ten changes of one list are one event, so a
//! client that never reads uses no more memory than its filter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use spile_core::CatalogChange;
use wire::NotificationFilter;

/// One event for a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionEvent {
    Change(CatalogChange),
    Task(String),
}

/// What one client subscribed to, and the events it has not received yet.
#[derive(Debug)]
pub struct Subscription {
    state: Mutex<SubscriptionState>,
    watches: Arc<ResourceWatches>,
}

#[derive(Debug, Default)]
struct SubscriptionState {
    filter: SubscriptionFilter,
    tools_changed: bool,
    prompts_changed: bool,
    resources_changed: bool,
    changed_uris: BTreeSet<Arc<str>>,
    changed_tasks: BTreeSet<String>,
    closed: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct SubscriptionFilter {
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: BTreeSet<String>,
    tasks: BTreeSet<String>,
}

impl Subscription {
    fn new(filter: &NotificationFilter, watches: Arc<ResourceWatches>) -> Self {
        let filter = SubscriptionFilter {
            tools: filter.tools_list_changed,
            prompts: filter.prompts_list_changed,
            resources: filter.resources_list_changed,
            uris: filter.resource_uris.iter().cloned().collect(),
            tasks: filter.task_ids.iter().cloned().collect(),
        };
        for uri in &filter.uris {
            watches.add(uri);
        }
        Self { state: Mutex::new(SubscriptionState { filter, ..SubscriptionState::default() }), watches }
    }

    /// Returns `false` if the limit is reached.
    pub(crate) fn subscribe(&self, uri: String, max: usize, bytes_max: usize) -> bool {
        let mut state = self.lock();
        let uris = &mut state.filter.uris;
        if uris.contains(&uri) {
            return true;
        }
        let bytes: usize = uris.iter().map(String::len).sum();
        let fits = uris.len() < max && bytes + uri.len() <= bytes_max;
        if fits {
            uris.insert(uri.clone());
            // The provider may report a change at once, which takes this lock.
            drop(state);
            self.watches.add(&uri);
        }
        fits
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        let mut state = self.lock();
        let was_subscribed = state.filter.uris.remove(uri);
        state.changed_uris.remove(uri);
        drop(state);
        if was_subscribed {
            self.watches.remove(uri);
        }
    }

    pub(crate) fn has_subscriptions(&self) -> bool {
        !self.lock().filter.uris.is_empty()
    }

    /// The next event; `None` once the server shuts down.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<SubscriptionEvent>> {
        let mut state = self.lock();
        if std::mem::take(&mut state.tools_changed) {
            return Poll::Ready(Some(SubscriptionEvent::Change(CatalogChange::Tools)));
        }
        if std::mem::take(&mut state.prompts_changed) {
            return Poll::Ready(Some(SubscriptionEvent::Change(CatalogChange::Prompts)));
        }
        if std::mem::take(&mut state.resources_changed) {
            return Poll::Ready(Some(SubscriptionEvent::Change(CatalogChange::Resources)));
        }
        if let Some(uri) = state.changed_uris.pop_first() {
            return Poll::Ready(Some(SubscriptionEvent::Change(CatalogChange::Resource(uri))));
        }
        if let Some(task) = state.changed_tasks.pop_first() {
            return Poll::Ready(Some(SubscriptionEvent::Task(task)));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        match &state.waker {
            Some(old) if old.will_wake(cx.waker()) => {}
            _ => state.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn notify(&self, change: &CatalogChange) {
        let mut state = self.lock();
        let notified = match change {
            CatalogChange::Tools => set_if_wanted(state.filter.tools, &mut state.tools_changed),
            CatalogChange::Prompts => set_if_wanted(state.filter.prompts, &mut state.prompts_changed),
            CatalogChange::Resources => set_if_wanted(state.filter.resources, &mut state.resources_changed),
            CatalogChange::Resource(uri) => {
                state.filter.uris.contains(&**uri) && state.changed_uris.insert(uri.clone())
            }
        };
        wake(state, notified);
    }

    fn notify_task(&self, id: &str) {
        let mut state = self.lock();
        let notified = state.filter.tasks.contains(id) && state.changed_tasks.insert(id.to_owned());
        wake(state, notified);
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        wake(state, true);
    }

    fn lock(&self) -> MutexGuard<'_, SubscriptionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for uri in &state.filter.uris {
            self.watches.remove(uri);
        }
    }
}

/// How many clients subscribed to each resource. The first and the last of them start and end the provider's watch.
#[derive(Default)]
pub(crate) struct ResourceWatches {
    counts: Mutex<BTreeMap<String, usize>>,
    on_change: OnceLock<Box<WatchHandler>>,
}

/// Called with a URI, and with whether it is watched from now on. Must not block.
type WatchHandler = dyn Fn(&str, bool) + Send + Sync;

impl ResourceWatches {
    pub(crate) fn set_handler(&self, handler: Box<WatchHandler>) {
        let _ = self.on_change.set(handler);
    }

    /// All watched URIs.
    pub(crate) fn uris(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    // The handler runs under the lock, so that a provider sees the changes of one resource in their order.
    fn add(&self, uri: &str) {
        let mut counts = self.lock();
        let count = counts.entry(uri.to_owned()).or_default();
        *count += 1;
        if *count == 1
            && let Some(handler) = self.on_change.get()
        {
            handler(uri, true);
        }
    }

    fn remove(&self, uri: &str) {
        let mut counts = self.lock();
        let Some(count) = counts.get_mut(uri) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(uri);
            if let Some(handler) = self.on_change.get() {
                handler(uri, false);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ResourceWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceWatches").field("counts", &self.lock()).finish_non_exhaustive()
    }
}

fn set_if_wanted(wanted: bool, flag: &mut bool) -> bool {
    *flag |= wanted;
    wanted
}

fn wake(mut state: MutexGuard<'_, SubscriptionState>, notified: bool) {
    let waker = if notified { state.waker.take() } else { None };
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// All subscriptions. Dropped ones are removed from time to time.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionHub {
    state: Mutex<HubState>,
    pub(crate) watches: Arc<ResourceWatches>,
}

#[derive(Debug, Default)]
struct HubState {
    subscriptions: Vec<Weak<Subscription>>,
    /// The length at which dropped subscriptions are removed.
    sweep_at: usize,
    closed: bool,
}

impl SubscriptionHub {
    /// A handshake-era client gets the changes of every list, and of the resources it subscribes to.
    pub(crate) fn subscribe_to_lists(&self) -> Arc<Subscription> {
        self.subscribe(&NotificationFilter {
            tools_list_changed: true,
            prompts_list_changed: true,
            resources_list_changed: true,
            ..NotificationFilter::default()
        })
    }

    pub(crate) fn subscribe(&self, filter: &NotificationFilter) -> Arc<Subscription> {
        let subscription = Arc::new(Subscription::new(filter, self.watches.clone()));
        let mut hub = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if hub.closed {
            subscription.close();
        }
        if hub.subscriptions.len() >= hub.sweep_at {
            hub.subscriptions.retain(|w| w.strong_count() > 0);
            hub.sweep_at = (hub.subscriptions.len() * 2).max(64);
        }
        hub.subscriptions.push(Arc::downgrade(&subscription));
        drop(hub);
        subscription
    }

    pub(crate) fn notify(&self, change: &CatalogChange) {
        self.for_each(|subscription| subscription.notify(change));
    }

    pub(crate) fn notify_task(&self, id: &str) {
        self.for_each(|subscription| subscription.notify_task(id));
    }

    pub(crate) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.for_each(Subscription::close);
    }

    /// Wakes outside the lock: a waker may call back into the hub.
    fn for_each(&self, f: impl Fn(&Subscription)) {
        let all: Vec<Arc<Subscription>> = {
            let hub = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            hub.subscriptions.iter().filter_map(Weak::upgrade).collect()
        };
        for subscription in all {
            f(&subscription);
        }
    }
}
