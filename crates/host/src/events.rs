//! Changes, told to whoever wants to know.
//!
//! A watcher holds what it has not been told yet as a set, not as a queue: ten changes of one list are one
//! piece of news, so a watcher that never reads costs no more than its own wishes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use call::Change;
use wire::Filter;

/// Something that a watcher wanted to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    Change(Change),
    Task(String),
}

/// One who wants to know.
#[derive(Debug, Default)]
pub struct Watch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    wants: Wants,
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: BTreeSet<Arc<str>>,
    tasks: BTreeSet<String>,
    closed: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct Wants {
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: BTreeSet<String>,
    tasks: BTreeSet<String>,
}

impl Watch {
    pub(crate) fn new(filter: &Filter) -> Self {
        let wants = Wants {
            tools: filter.tools,
            prompts: filter.prompts,
            resources: filter.resources,
            uris: filter.uris.iter().cloned().collect(),
            tasks: filter.tasks.iter().cloned().collect(),
        };
        Self(Mutex::new(State { wants, ..State::default() }))
    }

    /// A client of the handshake era hears of every list, and of what it subscribes to.
    pub(crate) fn of_lists() -> Self {
        Self::new(&Filter { tools: true, prompts: true, resources: true, ..Filter::default() })
    }

    /// `false` if there are too many already.
    pub(crate) fn subscribe(&self, uri: String, max: usize, bytes_max: usize) -> bool {
        let mut state = self.lock();
        let wanted = &mut state.wants.uris;
        if wanted.contains(&uri) {
            return true;
        }
        let bytes: usize = wanted.iter().map(String::len).sum();
        let fits = wanted.len() < max && bytes + uri.len() <= bytes_max;
        if fits {
            wanted.insert(uri);
        }
        fits
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        let mut state = self.lock();
        state.wants.uris.remove(uri);
        state.uris.remove(uri);
    }

    pub(crate) fn has_subscriptions(&self) -> bool {
        !self.lock().wants.uris.is_empty()
    }

    /// The next piece of news; `None` once the server is going down.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<News>> {
        let mut state = self.lock();
        if std::mem::take(&mut state.tools) {
            return Poll::Ready(Some(News::Change(Change::Tools)));
        }
        if std::mem::take(&mut state.prompts) {
            return Poll::Ready(Some(News::Change(Change::Prompts)));
        }
        if std::mem::take(&mut state.resources) {
            return Poll::Ready(Some(News::Change(Change::Resources)));
        }
        if let Some(uri) = state.uris.pop_first() {
            return Poll::Ready(Some(News::Change(Change::Resource(uri))));
        }
        if let Some(task) = state.tasks.pop_first() {
            return Poll::Ready(Some(News::Task(task)));
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

    fn tell(&self, change: &Change) {
        let mut state = self.lock();
        let told = match change {
            Change::Tools => flag(state.wants.tools, &mut state.tools),
            Change::Prompts => flag(state.wants.prompts, &mut state.prompts),
            Change::Resources => flag(state.wants.resources, &mut state.resources),
            Change::Resource(uri) => state.wants.uris.contains(&**uri) && state.uris.insert(uri.clone()),
        };
        wake(state, told);
    }

    fn tell_task(&self, id: &str) {
        let mut state = self.lock();
        let told = state.wants.tasks.contains(id) && state.tasks.insert(id.to_owned());
        wake(state, told);
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        wake(state, true);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn flag(wanted: bool, flag: &mut bool) -> bool {
    *flag |= wanted;
    wanted
}

fn wake(mut state: MutexGuard<'_, State>, told: bool) {
    let waker = if told { state.waker.take() } else { None };
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// All watchers. One that is dropped is forgotten at the next change.
#[derive(Debug, Default)]
pub(crate) struct Hub(Mutex<Watchers>);

#[derive(Debug, Default)]
struct Watchers {
    all: Vec<Weak<Watch>>,
    /// When the list has grown to this, the dead are cleared out.
    sweep_at: usize,
    closed: bool,
}

impl Hub {
    pub(crate) fn add(&self, watch: &Arc<Watch>) {
        let mut watchers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if watchers.closed {
            watch.close();
        }
        if watchers.all.len() >= watchers.sweep_at {
            watchers.all.retain(|w| w.strong_count() > 0);
            watchers.sweep_at = (watchers.all.len() * 2).max(64);
        }
        watchers.all.push(Arc::downgrade(watch));
    }

    pub(crate) fn tell(&self, change: &Change) {
        self.each(|watch| watch.tell(change));
    }

    pub(crate) fn tell_task(&self, id: &str) {
        self.each(|watch| watch.tell_task(id));
    }

    pub(crate) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.each(Watch::close);
    }

    /// Wakes outside the lock, so that a waker may come back to us.
    fn each(&self, f: impl Fn(&Watch)) {
        let all: Vec<Arc<Watch>> = {
            let watchers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            watchers.all.iter().filter_map(Weak::upgrade).collect()
        };
        for watch in all {
            f(&watch);
        }
    }
}
