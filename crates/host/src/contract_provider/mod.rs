//! A compiled contract as a provider: bind, read or write, shape.
//!
//! A keyed read is short and is done where the call arrives. A long one, and whatever writes, goes to a thread that
//! may block; a read is told to stop there when nobody waits for it any more.

mod confirm;
mod error;
mod progress;
mod read;
mod statement;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contract::bind;
use contract::confirmation::WriteOperation;
use contract::source::{CancelFlag, PreparedStatement, ReadRequest, Reader, Writer};
use contract::{Contract, ToolOperation};
use hashbrown::HashMap;
use spile_core::{
    Call, CallContext, CallError, Caller, Catalog, ItemKind, Journal, Outcome, Platform, Provider, Run,
    ToolError,
};

use self::read::ListRequest;
use crate::seal::{Sealer, digest_parts};

/// A contract together with what answers it.
pub struct ContractProvider(Arc<ProviderInner>);

/// What answers a contract.
pub struct ContractBackends {
    /// One for each of the contract's collections, in their order.
    pub readers: Vec<Arc<dyn Reader>>,
    /// The same; `None` where nothing is written.
    pub writers: Vec<Option<Arc<dyn Writer>>>,
    /// One for each of the contract's statements, in their order.
    pub statements: Vec<Arc<dyn PreparedStatement>>,
}

struct ProviderInner {
    contract: Contract,
    backends: ContractBackends,
    tool_index: HashMap<Box<str>, usize, foldhash::quality::RandomState>,
    catalog: Arc<Catalog>,
    sealer: Arc<Sealer>,
    /// What a cursor of each collection is bound to: it means nothing for other columns or another key.
    shape_digests: Vec<[u8; 32]>,
}

impl ContractProvider {
    pub fn new(contract: Contract, answers: ContractBackends, world: &dyn Platform) -> Self {
        let tools = contract.tools.iter().enumerate().map(|(at, tool)| (tool.name.as_str().into(), at));
        let catalog = Catalog {
            tools: contract.tools.iter().map(|tool| tool.to_catalog_tool(&contract)).collect(),
            list_changed: true,
            instructions: contract.instructions.clone(),
            rate_limit: contract.rate_limit,
            ..Catalog::default()
        };
        let shapes =
            contract.collections.iter().map(|one| digest_parts(&[format!("{:?}", one.shape).as_bytes()]));
        Self(Arc::new(ProviderInner {
            tool_index: tools.collect(),
            catalog: Arc::new(catalog),
            sealer: Arc::new(Sealer::new(world)),
            shape_digests: shapes.collect(),
            contract,
            backends: answers,
        }))
    }

    /// Takes the place of another: cursors of that one still open where they mean the same.
    #[must_use]
    pub fn with_cursors_from(mut self, other: &Self) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.sealer = other.0.sealer.clone();
        }
        self
    }
}

impl Provider for ContractProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let name = call.name();
        let Some(at) = self.0.tool_index.get(&*name).copied() else {
            return Run::now(CallError::UnknownItem { kind: ItemKind::Tool, name: name.into_owned() });
        };
        if self.0.contract.tools[at].long_running && cx.events.wants_progress() {
            return self.run_blocking(at, call, cx);
        }
        match self.0.execute(at, call, None, &**cx.platform) {
            Ok(Some(outcome)) => Run::Now(outcome),
            Ok(None) => self.run_blocking(at, call, cx),
            Err(problem) => Run::now(*problem),
        }
    }
}

impl ContractProvider {
    /// Does on a thread that may block what would keep others waiting here. The arguments cannot travel there as
    /// they lie, so the call is answered from its beginning.
    fn run_blocking(&self, at: usize, call: &Call, cx: &CallContext<'_>) -> Run {
        let (inner, call, world) = (self.0.clone(), call.clone(), cx.platform.clone());
        let aside = Arc::new(BlockingContext {
            cancelled: CancelFlag::default(),
            rows_scanned: AtomicU64::new(0),
            caller: cx.caller.clone(),
            journal: cx.journal.clone(),
        });
        let stop = CancelOnDrop(aside.clone());
        let long_running = self.0.contract.tools[at].long_running;
        let emit = cx.events.clone();
        Run::later(async move {
            let there = aside.clone();
            let work = tokio::task::spawn_blocking(move || inner.execute(at, &call, Some(&there), &*world));
            let done = progress::await_with_progress(work, &emit, &aside.rows_scanned, long_running).await;
            drop(stop);
            let bug = |log: String| Outcome::Failed(CallError::Internal { detail: log });
            match done {
                Ok(Ok(outcome)) => outcome.unwrap_or_else(|| bug("nobody would answer".into())),
                Ok(Err(problem)) => Outcome::ToolFailed(problem),
                Err(error) => bug(error.to_string()),
            }
        })
    }
}

/// What a call that is answered elsewhere takes along, and what is seen of it from here.
struct BlockingContext {
    /// Rings when the call is given up.
    cancelled: CancelFlag,
    /// How many rows were looked at.
    rows_scanned: AtomicU64,
    caller: Caller,
    journal: Journal,
}

struct CancelOnDrop(Arc<BlockingContext>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
}

impl ProviderInner {
    /// Answers a call. Not `aside`, only what is short: `None` is for somebody who may block.
    #[inline]
    fn execute(
        &self,
        at: usize,
        call: &Call,
        aside: Option<&BlockingContext>,
        world: &dyn Platform,
    ) -> Result<Option<Outcome>, Box<ToolError>> {
        let tool = &self.contract.tools[at];
        Ok(match &tool.operation {
            ToolOperation::Get { collection } => {
                let (collection, reader) =
                    (&self.contract.collections[*collection], &*self.backends.readers[*collection]);
                let key = bind::key(collection, call.arguments())?;
                (aside.is_some() || reader.can_run_inline(&ReadRequest::Get))
                    .then(|| self.get_record(tool, collection, reader, &key, world))
            }
            ToolOperation::List { collection, arguments } => {
                let (collection, reader) =
                    (&self.contract.collections[*collection], &*self.backends.readers[*collection]);
                let listing = bind::list(collection, arguments, call.arguments())?;
                let after = self.open_cursor(tool, &listing)?;
                let rows_max = listing.limit.unwrap_or(collection.rows_max).clamp(1, collection.rows_max);
                let asked = ListRequest { listing, after, rows_max };
                (aside.is_some() || reader.can_run_inline(&ReadRequest::List(&asked.query(None))))
                    .then(|| self.list_page(tool, collection, reader, asked, aside, world))
            }
            other => match (other, aside) {
                (ToolOperation::Statement { statement }, aside) => {
                    return self.run_statement(tool, *statement, call, aside, world);
                }
                (_, None) => None,
                (_, Some(aside)) => Some(self.execute_blocking(at, call, aside, world)?),
            },
        })
    }

    /// Answers what is never short.
    fn execute_blocking(
        &self,
        at: usize,
        call: &Call,
        aside: &BlockingContext,
        world: &dyn Platform,
    ) -> Result<Outcome, Box<ToolError>> {
        let tool = &self.contract.tools[at];
        let of = |at: &usize| &self.contract.collections[*at];
        let arguments = call.arguments();
        let (at, doing, writing) = match &tool.operation {
            ToolOperation::Search { collection, fields, scan_rows_max } => {
                let searching = bind::search(of(collection), arguments)?;
                let reader = &*self.backends.readers[*collection];
                let within = read::SearchScope { fields, scan_rows_max: *scan_rows_max };
                return Ok(self.search_records(
                    tool,
                    of(collection),
                    reader,
                    &searching,
                    &within,
                    aside,
                    world,
                ));
            }
            ToolOperation::Create { collection, fields } => {
                (*collection, WriteOperation::Create, bind::create(of(collection), fields, arguments)?)
            }
            ToolOperation::Update { collection, fields } => {
                (*collection, WriteOperation::Update, bind::update(of(collection), fields, arguments)?)
            }
            ToolOperation::Delete { collection } => {
                (*collection, WriteOperation::Delete, bind::delete(of(collection), arguments)?)
            }
            ToolOperation::Get { .. } | ToolOperation::List { .. } | ToolOperation::Statement { .. } => {
                return Ok(Outcome::Failed(CallError::Internal { detail: "answered before".into() }));
            }
        };
        Ok(self.write_record(tool, at, doing, &writing, aside, world))
    }
}
