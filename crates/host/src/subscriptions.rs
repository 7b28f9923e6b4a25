//! Subscriptions to changes of lists, resources and tasks.
//!
//! A subscription keeps its pending events as a set, not as a queue: ten changes of one list are one event, so a
//! client that never reads uses no more memory than its filter.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
#[derive(Debug, Default)]
pub struct Subscription(Mutex<SubscriptionState>);

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
    pub(crate) fn new(filter: &NotificationFilter) -> Self {
        let filter = SubscriptionFilter {
            tools: filter.tools_list_changed,
            prompts: filter.prompts_list_changed,
            resources: filter.resources_list_changed,
            uris: filter.resource_uris.iter().cloned().collect(),
            tasks: filter.task_ids.iter().cloned().collect(),
        };
        Self(Mutex::new(SubscriptionState { filter, ..SubscriptionState::default() }))
    }

    /// A handshake-era client gets the changes of every list, and of the resources it subscribes to.
    pub(crate) fn for_all_lists() -> Self {
        Self::new(&NotificationFilter {
            tools_list_changed: true,
            prompts_list_changed: true,
            resources_list_changed: true,
            ..NotificationFilter::default()
        })
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
            uris.insert(uri);
        }
        fits
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        let mut state = self.lock();
        state.filter.uris.remove(uri);
        state.changed_uris.remove(uri);
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
pub(crate) struct SubscriptionHub(Mutex<HubState>);

#[derive(Debug, Default)]
struct HubState {
    subscriptions: Vec<Weak<Subscription>>,
    /// The length at which dropped subscriptions are removed.
    sweep_at: usize,
    closed: bool,
}

impl SubscriptionHub {
    pub(crate) fn add(&self, subscription: &Arc<Subscription>) {
        let mut hub = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hub.closed {
            subscription.close();
        }
        if hub.subscriptions.len() >= hub.sweep_at {
            hub.subscriptions.retain(|w| w.strong_count() > 0);
            hub.sweep_at = (hub.subscriptions.len() * 2).max(64);
        }
        hub.subscriptions.push(Arc::downgrade(subscription));
    }

    pub(crate) fn notify(&self, change: &CatalogChange) {
        self.for_each(|subscription| subscription.notify(change));
    }

    pub(crate) fn notify_task(&self, id: &str) {
        self.for_each(|subscription| subscription.notify_task(id));
    }

    pub(crate) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.for_each(Subscription::close);
    }

    /// Wakes outside the lock: a waker may call back into the hub.
    fn for_each(&self, f: impl Fn(&Subscription)) {
        let all: Vec<Arc<Subscription>> = {
            let hub = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            hub.subscriptions.iter().filter_map(Weak::upgrade).collect()
        };
        for subscription in all {
            f(&subscription);
        }
    }
}
