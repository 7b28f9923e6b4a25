//! A compiled contract as a provider: bind, read or write, shape.
//!
//! A keyed read is short and is done where the call arrives. A long one, and whatever writes, goes to a thread that
//! may block; a read is told to stop there when nobody waits for it any more.

mod confirm;
mod fault;
mod read;
mod statement;
mod waiting;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use call::{Call, Caller, Catalog, Cx, Fault, Journal, Outcome, Problem, Provider, Run, Thing, World};
use contract::bind;
use contract::question::Doing;
use contract::source::{Prepared, Read, Reader, Writer};
use contract::{Contract, Operation};
use hashbrown::HashMap;

use self::read::Asked;
use crate::seal::{Sealer, digest_of};

/// A contract together with what answers it.
pub struct Compiled(Arc<Inner>);

/// What answers a contract.
pub struct Answers {
    /// One for each of the contract's collections, in their order.
    pub readers: Vec<Arc<dyn Reader>>,
    /// The same; `None` where nothing is written.
    pub writers: Vec<Option<Arc<dyn Writer>>>,
    /// One for each of the contract's statements, in their order.
    pub statements: Vec<Arc<dyn Prepared>>,
}

struct Inner {
    contract: Contract,
    answers: Answers,
    tools: HashMap<Box<str>, usize, foldhash::quality::RandomState>,
    catalog: Arc<Catalog>,
    sealer: Arc<Sealer>,
    /// What a cursor of each collection is bound to: it means nothing for other columns or another key.
    shapes: Vec<[u8; 32]>,
}

impl Compiled {
    pub fn new(contract: Contract, answers: Answers, world: &dyn World) -> Self {
        let tools = contract.tools.iter().enumerate().map(|(at, tool)| (tool.name.as_str().into(), at));
        let catalog = Catalog {
            tools: contract.tools.iter().map(|tool| tool.offered(&contract)).collect(),
            changes: true,
            instructions: contract.instructions.clone(),
            rate: contract.rate,
            ..Catalog::default()
        };
        let shapes =
            contract.collections.iter().map(|one| digest_of(&[format!("{:?}", one.shape).as_bytes()]));
        Self(Arc::new(Inner {
            tools: tools.collect(),
            catalog: Arc::new(catalog),
            sealer: Arc::new(Sealer::new(world)),
            shapes: shapes.collect(),
            contract,
            answers,
        }))
    }

    /// Takes the place of another: cursors of that one still open where they mean the same.
    #[must_use]
    pub fn in_place_of(mut self, other: &Self) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.sealer = other.0.sealer.clone();
        }
        self
    }
}

impl Provider for Compiled {
    fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.clone()
    }

    fn run(&self, call: &Call, cx: &Cx<'_>) -> Run {
        let name = call.name();
        let Some(at) = self.0.tools.get(&*name).copied() else {
            return Run::now(Fault::Unknown { what: Thing::Tool, name: name.into_owned() });
        };
        if self.0.contract.tools[at].long_running && cx.emit.wants_progress() {
            return self.elsewhere(at, call, cx);
        }
        match self.0.answer(at, call, None, &**cx.world) {
            Ok(Some(outcome)) => Run::Now(outcome),
            Ok(None) => self.elsewhere(at, call, cx),
            Err(problem) => Run::now(*problem),
        }
    }
}

impl Compiled {
    /// Does on a thread that may block what would keep others waiting here. The arguments cannot travel there as
    /// they lie, so the call is answered from its beginning.
    fn elsewhere(&self, at: usize, call: &Call, cx: &Cx<'_>) -> Run {
        let (inner, call, world) = (self.0.clone(), call.clone(), cx.world.clone());
        let aside = Arc::new(Aside {
            stop: AtomicBool::new(false),
            rows: AtomicU64::new(0),
            caller: cx.caller.clone(),
            journal: cx.journal.clone(),
        });
        let stop = StopOnDrop(aside.clone());
        let long_running = self.0.contract.tools[at].long_running;
        let emit = cx.emit.clone();
        Run::later(async move {
            let there = aside.clone();
            let work = tokio::task::spawn_blocking(move || inner.answer(at, &call, Some(&there), &*world));
            let done = waiting::told(work, &emit, &aside.rows, long_running).await;
            drop(stop);
            let bug = |log: String| Outcome::Failed(Fault::Bug { log });
            match done {
                Ok(Ok(outcome)) => outcome.unwrap_or_else(|| bug("nobody would answer".into())),
                Ok(Err(problem)) => Outcome::Refused(problem),
                Err(error) => bug(error.to_string()),
            }
        })
    }
}

/// What a call that is answered elsewhere takes along, and what is seen of it from here.
struct Aside {
    /// Rings when the call is given up.
    stop: AtomicBool,
    /// How many rows were looked at.
    rows: AtomicU64,
    caller: Caller,
    journal: Journal,
}

struct StopOnDrop(Arc<Aside>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    /// Answers a call. Not `aside`, only what is short: `None` is for somebody who may block.
    #[inline]
    fn answer(
        &self,
        at: usize,
        call: &Call,
        aside: Option<&Aside>,
        world: &dyn World,
    ) -> Result<Option<Outcome>, Box<Problem>> {
        let tool = &self.contract.tools[at];
        Ok(match &tool.operation {
            Operation::Get { collection } => {
                let (collection, reader) =
                    (&self.contract.collections[*collection], &*self.answers.readers[*collection]);
                let key = bind::key(collection, call.arguments())?;
                (aside.is_some() || reader.is_short(&Read::Get))
                    .then(|| self.record(tool, collection, reader, &key, world))
            }
            Operation::List { collection, arguments } => {
                let (collection, reader) =
                    (&self.contract.collections[*collection], &*self.answers.readers[*collection]);
                let listing = bind::listing(collection, arguments, call.arguments())?;
                let after = self.opened(tool, &listing)?;
                let rows_max = listing.limit.unwrap_or(collection.rows_max).clamp(1, collection.rows_max);
                let asked = Asked { listing, after, rows_max };
                (aside.is_some() || reader.is_short(&Read::List(&asked.query(None))))
                    .then(|| self.page(tool, collection, reader, asked, aside, world))
            }
            other => match (other, aside) {
                (Operation::Statement { statement }, aside) => {
                    return self.statement(tool, *statement, call, aside, world);
                }
                (_, None) => None,
                (_, Some(aside)) => Some(self.answer_aside(at, call, aside, world)?),
            },
        })
    }

    /// Answers what is never short.
    fn answer_aside(
        &self,
        at: usize,
        call: &Call,
        aside: &Aside,
        world: &dyn World,
    ) -> Result<Outcome, Box<Problem>> {
        let tool = &self.contract.tools[at];
        let of = |at: &usize| &self.contract.collections[*at];
        let arguments = call.arguments();
        let (at, doing, writing) = match &tool.operation {
            Operation::Search { collection, fields, scan_rows_max } => {
                let searching = bind::searching(of(collection), arguments)?;
                let reader = &*self.answers.readers[*collection];
                let within = read::Within { fields, scan_rows_max: *scan_rows_max };
                return Ok(self.found(tool, of(collection), reader, &searching, &within, aside, world));
            }
            Operation::Create { collection, fields } => {
                (*collection, Doing::Create, bind::creation(of(collection), fields, arguments)?)
            }
            Operation::Update { collection, fields } => {
                (*collection, Doing::Update, bind::change(of(collection), fields, arguments)?)
            }
            Operation::Delete { collection } => {
                (*collection, Doing::Delete, bind::deletion(of(collection), arguments)?)
            }
            Operation::Get { .. } | Operation::List { .. } | Operation::Statement { .. } => {
                return Ok(Outcome::Failed(Fault::Bug { log: "answered before".into() }));
            }
        };
        Ok(self.write(tool, at, doing, &writing, aside, world))
    }
}
