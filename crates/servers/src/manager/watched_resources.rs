//! The resources of one server whose changes somebody wants to know, and the subscriptions to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use upstream::Subscription;

/// What is wanted: any thread may change it.
#[derive(Default)]
pub(super) struct WatchedResources {
    /// By URI: how many clients watch it.
    watchers: Mutex<BTreeMap<String, usize>>,
    pub(super) changed: Notify,
    /// What the server has answered for, on the connection that is open.
    answered: watch::Sender<BTreeSet<String>>,
    /// Somebody else learnt that the lists have changed.
    pub(super) lists_changed: Notify,
}

impl WatchedResources {
    pub(super) fn watch(&self, uri: &str) {
        *self.lock().entry(uri.to_owned()).or_default() += 1;
        self.changed.notify_one();
    }

    pub(super) fn unwatch(&self, uri: &str) {
        let mut watchers = self.lock();
        if let Some(count) = watchers.get_mut(uri) {
            *count -= 1;
            if *count == 0 {
                watchers.remove(uri);
            }
        }
        drop(watchers);
        self.changed.notify_one();
    }

    /// Waits until the server has answered, whatever the answer was.
    pub(super) async fn wait_answered(&self, uri: &str) {
        let mut answered = self.answered.subscribe();
        // The sender is ours.
        let _ = answered.wait_for(|answered| answered.contains(uri)).await;
    }

    /// The server has answered for these, and for no others.
    fn set_answered(&self, uris: BTreeSet<String>) {
        self.answered.send_if_modified(|answered| {
            let is_new = *answered != uris;
            *answered = uris;
            is_new
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the server was asked for, on the connection that is open.
#[derive(Default)]
pub(super) struct ResourceSubscriptions {
    by_uri: BTreeMap<String, ResourceSubscription>,
}

/// A subscription to one resource. Dropping it unsubscribes.
enum ResourceSubscription {
    /// The server has not answered.
    Asked,
    Refused,
    Subscribed {
        _subscription: Subscription,
    },
}

impl ResourceSubscriptions {
    /// Ends what nobody wants any more, and returns what is new: the caller subscribes to it. Dropping a subscription
    /// unsubscribes.
    pub(super) fn reconcile(&mut self, wanted: &WatchedResources) -> Vec<String> {
        let uris: BTreeSet<String> = wanted.lock().keys().cloned().collect();
        self.by_uri.retain(|uri, _| uris.contains(uri));
        let new: Vec<String> = uris.into_iter().filter(|uri| !self.by_uri.contains_key(uri)).collect();
        self.by_uri.extend(new.iter().map(|uri| (uri.clone(), ResourceSubscription::Asked)));
        self.report(wanted);
        new
    }

    /// The server's answer. Nobody may want it any more.
    pub(super) fn set(&mut self, wanted: &WatchedResources, uri: &str, answer: Option<Subscription>) {
        if let Some(current) = self.by_uri.get_mut(uri) {
            *current = match answer {
                Some(subscription) => ResourceSubscription::Subscribed { _subscription: subscription },
                None => ResourceSubscription::Refused,
            };
            self.report(wanted);
        }
    }

    /// The connection has ended, and its subscriptions with it.
    pub(super) fn clear(&mut self, wanted: &WatchedResources) {
        self.by_uri.clear();
        self.report(wanted);
    }

    fn report(&self, wanted: &WatchedResources) {
        let is_answered = |one: &ResourceSubscription| !matches!(one, ResourceSubscription::Asked);
        let answered = self.by_uri.iter().filter(|(_, one)| is_answered(one));
        wanted.set_answered(answered.map(|(uri, _)| uri.clone()).collect());
    }
}
