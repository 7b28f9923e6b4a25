//! The resources of one server whose changes somebody wants to know, and the subscriptions to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use upstream::Subscription;

/// What is wanted: any thread may change it.
#[derive(Default)]
pub(super) struct WatchedResources {
    /// By URI: how many clients watch it.
    watchers: Mutex<BTreeMap<String, usize>>,
    pub(super) changed: Notify,
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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the server was asked for, on the connection that is open.
#[derive(Default)]
pub(super) struct ResourceSubscriptions {
    /// `None` while the server has not answered, or if it refused.
    by_uri: BTreeMap<String, Option<Subscription>>,
}

impl ResourceSubscriptions {
    /// Ends what nobody wants any more, and returns what is new: the caller subscribes to it. Dropping a subscription
    /// unsubscribes.
    pub(super) fn reconcile(&mut self, wanted: &WatchedResources) -> Vec<String> {
        let wanted: BTreeSet<String> = wanted.lock().keys().cloned().collect();
        self.by_uri.retain(|uri, _| wanted.contains(uri));
        let new: Vec<String> = wanted.into_iter().filter(|uri| !self.by_uri.contains_key(uri)).collect();
        self.by_uri.extend(new.iter().map(|uri| (uri.clone(), None)));
        new
    }

    /// The server's answer. Nobody may want it any more.
    pub(super) fn set(&mut self, uri: &str, subscription: Option<Subscription>) {
        if let Some(current) = self.by_uri.get_mut(uri) {
            *current = subscription;
        }
    }
}
