//! A compiled contract as a provider: bind, read, shape.
//!
//! A keyed read is short and is done where the call arrives. A long one goes to a thread that may block, and
//! is told to stop when nobody waits for it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use call::{
    Call, Catalog, Cx, Failure, Fault, Outcome, Problem, Provider, Reason, Run, Thing, ToolReply, World,
};
use contract::bind::{self, Arg, Listing};
use contract::shape::{self, Page, RECORD_BYTES_MAX, Unfit};
use contract::source::{Position, Query, Read, Reader, SourceFault};
use contract::{Collection, Contract, Operation, Tool, cursor};
use hashbrown::HashMap;

use crate::path::reference;
use crate::seal::{Purpose, Sealer, digest_of};

/// A contract together with what answers it.
pub struct Compiled(Arc<Inner>);

struct Inner {
    contract: Contract,
    /// One for each of the contract's collections.
    readers: Vec<Arc<dyn Reader>>,
    tools: HashMap<Box<str>, usize, foldhash::quality::RandomState>,
    catalog: Arc<Catalog>,
    sealer: Arc<Sealer>,
    /// What a cursor of each collection is bound to: it means nothing for other columns or another key.
    shapes: Vec<[u8; 32]>,
}

impl Compiled {
    /// `readers` are those of the contract's collections, in their order.
    pub fn new(contract: Contract, readers: Vec<Arc<dyn Reader>>, world: &dyn World) -> Self {
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
            readers,
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
        let stop = StopOnDrop(Arc::new(AtomicBool::new(false)));
        let told = stop.0.clone();
        Run::later(async move {
            let _stop = stop;
            let work = tokio::task::spawn_blocking(move || inner.answer(at, &call, Some(&told), &*world));
            let bug = |log: String| Outcome::Failed(Fault::Bug { log });
            match work.await {
                Ok(Ok(outcome)) => outcome.unwrap_or_else(|| bug("nobody would answer".into())),
                Ok(Err(problem)) => Outcome::Refused(problem),
                Err(error) => bug(error.to_string()),
            }
        })
    }
}

/// Rings when the call is given up.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A list as it was asked for, with its place found.
struct Asked<'a> {
    listing: Listing<'a>,
    after: Option<Position>,
    rows_max: usize,
}

impl Asked<'_> {
    fn query<'q>(&'q self, stop: Option<&'q AtomicBool>) -> Query<'q> {
        Query {
            filters: self.listing.filters(),
            sort: self.listing.sort,
            after: self.after.as_ref(),
            // One more than is told, to know whether there is more.
            rows_max: self.rows_max + 1,
            stop,
        }
    }
}

impl Inner {
    /// Answers a call. Without a `stop` only what is short: `None` is for somebody who may block.
    #[inline]
    fn answer(
        &self,
        at: usize,
        call: &Call,
        stop: Option<&AtomicBool>,
        world: &dyn World,
    ) -> Result<Option<Outcome>, Box<Problem>> {
        let tool = &self.contract.tools[at];
        Ok(match &tool.operation {
            Operation::Get { collection } => {
                let (collection, reader) =
                    (&self.contract.collections[*collection], &*self.readers[*collection]);
                let is_for_us = |read: &Read<'_>| stop.is_some() || reader.is_short(read);
                let key = bind::key(collection, call.arguments())?;
                is_for_us(&Read::Get).then(|| self.record(tool, collection, reader, &key, world))
            }
            Operation::List { collection, arguments } => {
                let (collection, reader) =
                    (&self.contract.collections[*collection], &*self.readers[*collection]);
                let is_for_us = |read: &Read<'_>| stop.is_some() || reader.is_short(read);
                let listing = bind::listing(collection, arguments, call.arguments())?;
                let after = self.opened(tool, &listing)?;
                let rows_max = listing.limit.unwrap_or(collection.rows_max).clamp(1, collection.rows_max);
                let asked = Asked { listing, after, rows_max };
                is_for_us(&Read::List(&asked.query(None)))
                    .then(|| self.page(tool, collection, reader, asked, stop, world))
            }
            Operation::Search { .. }
            | Operation::Create { .. }
            | Operation::Update { .. }
            | Operation::Delete { .. }
            | Operation::Statement { .. } => unreachable!("not compiled yet"),
        })
    }

    #[inline]
    fn record(
        &self,
        tool: &Tool,
        collection: &Collection,
        reader: &dyn Reader,
        key: &[Arg<'_>],
        world: &dyn World,
    ) -> Outcome {
        // Nearly every key has one part, which needs no vector.
        let (one, many);
        let cells = match key {
            [only] => {
                one = [only.as_cell()];
                &one[..]
            }
            several => {
                many = several.iter().map(Arg::as_cell).collect::<Vec<_>>();
                &many
            }
        };
        let mut reply: Option<Result<ToolReply, Unfit>> = None;
        let read = reader.get(cells, &mut |cells| {
            reply = Some(shape::record(collection, tool.text.as_ref(), cells));
        });
        match (read, reply) {
            (Err(fault), _) => refused(&fault, collection, world),
            (Ok(_), Some(Ok(reply))) => reply.into(),
            (Ok(_), Some(Err(unfit))) => misfit(&unfit, collection, world),
            (Ok(_), None) => not_found(collection, key).into(),
        }
    }

    fn page(
        &self,
        tool: &Tool,
        collection: &Collection,
        reader: &dyn Reader,
        mut asked: Asked<'_>,
        stop: Option<&AtomicBool>,
        world: &dyn World,
    ) -> Outcome {
        let fields = asked.listing.fields.take();
        let sort = asked.listing.sort;
        let mut page = Page::new(collection, tool.text.as_ref(), fields, sort, asked.rows_max);
        let total = match reader.list(&asked.query(stop), &mut |cells, place| page.take(cells, place)) {
            Ok(total) => total,
            Err(fault) => return refused(&fault, collection, world),
        };
        let bound = self.bound(tool, &asked.listing);
        let seal =
            |position: &Position| self.sealer.seal(Purpose::Cursor, &bound, cursor::write(position), world);
        match page.finish(total, seal) {
            Ok(reply) => reply.into(),
            Err(unfit) => misfit(&unfit, collection, world),
        }
    }

    /// The place that a cursor names. It opens for the same list only: the same tool, filters and order.
    fn opened(&self, tool: &Tool, listing: &Listing<'_>) -> Result<Option<Position>, Box<Problem>> {
        let Some(sealed) = &listing.cursor else { return Ok(None) };
        let plain = self.sealer.open(Purpose::Cursor, &self.bound(tool, listing), sealed);
        match plain.ok().as_deref().and_then(cursor::read) {
            Some(position) => Ok(Some(position)),
            None => Err(Box::new(bad_cursor(
                "not a cursor of this list: pass `nextCursor` as it came, with the same filters and sort",
            ))),
        }
    }

    fn bound(&self, tool: &Tool, listing: &Listing<'_>) -> [u8; 32] {
        let filters = format!("{:?}", listing.filters);
        let sort = format!("{:?}", listing.sort);
        let shape: &[u8] = if let Operation::List { collection, .. } = &tool.operation {
            &self.shapes[*collection]
        } else {
            &[]
        };
        digest_of(&[shape, tool.name.as_bytes(), filters.as_bytes(), sort.as_bytes()])
    }
}

fn bad_cursor(why: &str) -> Problem {
    Problem {
        field: Some("cursor".into()),
        reason: Some(Reason::NotAllowed),
        ..Problem::new(Failure::InvalidArguments, format!("`cursor`: {why}"))
    }
}

/// So much of a key is repeated to whoever asked for it.
const KEY_CHARS_MAX: usize = 100;

fn not_found(collection: &Collection, key: &[Arg<'_>]) -> Problem {
    let parts = collection.key_fields().zip(key).map(|(field, value)| {
        let mut words = format!("{} ", field.name);
        field.readable(&mut words, value.as_cell());
        match words.char_indices().nth(KEY_CHARS_MAX) {
            Some((cut, _)) => format!("{}…", &words[..cut]),
            None => words,
        }
    });
    let words: Vec<String> = parts.collect();
    let message = format!("nothing in {} has {}", collection.name, words.join(", "));
    Problem {
        field: collection.key_fields().next().map(|field| field.name.clone()),
        ..Problem::new(Failure::NotFound, message)
    }
}

/// What the source said, told without its words; those are in the log.
#[cold]
fn refused(fault: &SourceFault, collection: &Collection, world: &dyn World) -> Outcome {
    let told = fault.to_string();
    let (problem, log) = match fault {
        SourceFault::Stopped => return Outcome::Failed(Fault::Cancelled),
        SourceFault::Moved => return bad_cursor(&told).into(),
        SourceFault::TooSlow => (Problem::new(Failure::Timeout, told), ""),
        SourceFault::Busy { log } => (
            Problem { retry_after_ms: Some(100), ..Problem::new(Failure::SourceUnavailable, told) },
            log.as_str(),
        ),
        SourceFault::Unavailable { log, .. } => {
            (Problem { retryable: true, ..Problem::new(Failure::SourceUnavailable, told) }, log.as_str())
        }
        SourceFault::Changed { log, .. } => (Problem::new(Failure::SourceChanged, told), log.as_str()),
    };
    logged(problem, collection, log, world)
}

#[cold]
fn misfit(unfit: &Unfit, collection: &Collection, world: &dyn World) -> Outcome {
    let told = match unfit {
        Unfit::Value { field, row } => {
            let told = format!(
                "a value of `{field}` is not what this server promised; the log of the server says in which row"
            );
            let log = format!("`{field}` does not fit the contract in the row with {row}");
            return logged(Problem::new(Failure::SourceChanged, told), collection, &log, world);
        }
        Unfit::Nameless { field } => format!(
            "a page cannot end at this value of `{field}`, which is not text or too long for a cursor; sort by \
             something else, or ask for more or fewer rows"
        ),
        Unfit::TooLarge { bytes } => {
            let most = RECORD_BYTES_MAX;
            let why = format!(
                "a record has {bytes} bytes, and more than {most} are not told; choose other `fields`"
            );
            return Problem::new(Failure::TooLarge, why).into();
        }
    };
    logged(Problem::new(Failure::SourceChanged, told), collection, "a row does not fit its contract", world)
}

fn logged(mut problem: Problem, collection: &Collection, log: &str, world: &dyn World) -> Outcome {
    let reference = reference(world);
    tracing::warn!(%reference, code = problem.code.as_str(), collection = %collection.name, source = %collection.source, log);
    problem.reference = Some(reference);
    problem.into()
}
