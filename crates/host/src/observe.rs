//! Whoever watches calls go by: a log for people, an audit.
//!
//! Where nobody watches, nothing is kept for it.

use std::sync::Arc;

use call::{Call, Fault, Reply};

use crate::path::Ended;
use crate::server::{Server, Who};

/// Is told of each call when it ends. What it does takes from the call's own time.
pub trait Observer: Send + Sync {
    fn called(&self, called: &Called<'_>);
}

/// A call that is over.
pub struct Called<'a> {
    pub call: &'a Call,
    pub who: &'a Who,
    pub ending: Ending<'a>,
    pub took_ms: u64,
    /// Of the answer as it goes out.
    pub bytes: usize,
}

/// How a call ended.
pub enum Ending<'a> {
    Reply(&'a Reply),
    /// The caller is asked something, and comes back.
    Asked,
    /// It goes on as a task.
    Task,
    Fault(&'a Fault),
    /// Nobody waited for the answer any more.
    GivenUp,
}

/// What has to be kept of a call so that it can be told.
pub(crate) struct Observed {
    observer: Arc<dyn Observer>,
    call: Call,
    who: Who,
    began_ms: u64,
}

impl Observed {
    /// `None` if nobody watches.
    #[inline]
    pub(crate) fn new(server: &Server, call: &Call, who: &Who) -> Option<Box<Self>> {
        let observer = server.observer.get()?.clone();
        let began_ms = server.world.now_ms();
        Some(Box::new(Self { observer, call: call.clone(), who: who.clone(), began_ms }))
    }

    #[cold]
    pub(crate) fn ended(&self, server: &Server, ended: Option<&Ended>, bytes: usize) {
        let ending = match ended {
            Some(Ended::Reply(reply)) => Ending::Reply(reply),
            Some(Ended::Input { .. }) => Ending::Asked,
            Some(Ended::Task(_)) => Ending::Task,
            Some(Ended::Fault(fault)) => Ending::Fault(fault),
            None => Ending::GivenUp,
        };
        let took_ms = server.world.now_ms().saturating_sub(self.began_ms);
        self.observer.called(&Called { call: &self.call, who: &self.who, ending, took_ms, bytes });
    }
}
