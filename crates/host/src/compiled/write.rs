//! Writing one record: what stands by while its row is held, and what is told of it.

use call::{Failure, Fault, Journal, Outcome, Problem, Reason, World};
use contract::bind::{Arg, Once, Writing};
use contract::infer::EXACT_MAX;
use contract::question::{self, Doing};
use contract::shape::{self, Told, Unfit};
use contract::source::{Change, Claim, Clerk, Stale, Unwritable, Write, WriteFault, Written};
use contract::{Cell, Collection, Kind, Tool, Value, Versioning};

use super::confirm::{self, Said};
use super::fault::{Again, misfit, not_written};
use super::{Aside, Inner};
use crate::seal::digest_of;

impl Inner {
    pub(super) fn write(
        &self,
        tool: &Tool,
        at: usize,
        doing: Doing,
        writing: &Writing<'_>,
        aside: &Aside,
        world: &dyn World,
    ) -> Outcome {
        let collection = &self.contract.collections[at];
        let Some(writer) = self.answers.writers.get(at).and_then(Option::as_ref) else {
            return Outcome::Failed(Fault::Bug { log: "nobody was made to write here".into() });
        };
        let dry_run = writing.once.dry_run;
        let asks = match confirm::may_ask(tool, dry_run, &aside.caller) {
            Ok(asks) => asks,
            Err(problem) => return problem.into(),
        };
        let asked = digest_of(&[&writing.asked(collection)]);
        let cells: Vec<(usize, Cell<'_>)> =
            writing.cells.iter().map(|(at, arg)| (*at, arg.as_cell())).collect();
        let key: Vec<Cell<'_>> = writing.key.iter().map(Arg::as_cell).collect();
        let change = match doing {
            Doing::Create => Change::Create { cells: &cells },
            Doing::Update => Change::Update { key: &key, cells: &cells },
            Doing::Delete => Change::Delete { key: &key },
        };
        let claim = claim(tool, &writing.once, aside, asked);
        let write = Write { change, claim, dry_run, now_ms: world.now_ms(), stop: Some(&aside.stop) };
        let mut desk = Desk {
            tool,
            collection,
            doing,
            writing,
            asked: &asked,
            journal: asks.then_some(&aside.journal),
            before: None,
            told: None,
            why: None,
        };
        let written = writer.write(&write, &mut desk);
        match (written, desk.why, desk.told) {
            (Ok(Written::Done), _, Some(told)) => shape::told(told, dry_run).into(),
            (Ok(Written::Done), _, None) => {
                Outcome::Failed(Fault::Bug { log: "a row was written that nobody saw".into() })
            }
            (Ok(Written::Replayed(kept)), _, _) => match shape::replayed(&kept) {
                Some(reply) => reply.into(),
                None => Outcome::Failed(Fault::Bug { log: "what a claim kept is no result".into() }),
            },
            (Err(WriteFault::Stale | WriteFault::Unwritable), Some(why), _) => why.outcome(collection, world),
            (Err(fault), _, _) => {
                not_written(&fault, collection, &writing.key, Again::of(&writing.once), world)
            }
        }
    }
}

/// A try claims nothing: it leaves no trace. What the user said yes to is done once, however often the client comes
/// back with that yes.
pub(super) fn claim(tool: &Tool, once: &Once<'_>, aside: &Aside, asked: [u8; 32]) -> Option<Claim> {
    if once.dry_run {
        return None;
    }
    let who = aside.caller.principal.as_str().as_bytes();
    let id = match (&once.idempotency_key, &aside.journal.call) {
        (Some(key), _) => digest_of(&[b"claim", who, tool.name.as_bytes(), key.as_bytes()]),
        (None, Some(call)) => digest_of(&[b"call", who, tool.name.as_bytes(), call]),
        (None, None) => return None,
    };
    Some(Claim { id, asked })
}

/// Why we would not have it written.
pub(super) enum Why {
    /// The user says so, or must be asked first.
    Asked(Outcome),
    /// It would be kept as something else than was said.
    Changed {
        field: String,
    },
    Unfit(Unfit),
}

impl Why {
    pub(super) fn outcome(self, collection: &Collection, world: &dyn World) -> Outcome {
        match self {
            Self::Asked(outcome) => outcome,
            Self::Changed { field } => {
                let message =
                    format!("`{field}`: the source would keep something else than this; nothing was written");
                let problem = Problem {
                    field: Some(field),
                    reason: Some(Reason::NotAllowed),
                    ..Problem::new(Failure::InvalidArguments, message)
                };
                problem.into()
            }
            Self::Unfit(Unfit::Value { field, .. }) => {
                let message =
                    format!("`{field}` would not be what this server promises; nothing was written");
                let problem = Problem {
                    field: Some(field),
                    reason: Some(Reason::NotAllowed),
                    ..Problem::new(Failure::InvalidArguments, message)
                };
                problem.into()
            }
            Self::Unfit(unfit) => misfit(&unfit, collection, world),
        }
    }
}

/// Stands by while a row is held.
struct Desk<'a> {
    tool: &'a Tool,
    collection: &'a Collection,
    doing: Doing,
    writing: &'a Writing<'a>,
    asked: &'a [u8],
    /// What was answered, where the user must be asked.
    journal: Option<&'a Journal>,
    before: Option<Before>,
    told: Option<Told>,
    why: Option<Why>,
}

/// The row as it was found.
struct Before {
    cells: Vec<Value>,
    /// `None` if it was nothing that can be told: then it may be mended.
    state: Option<String>,
}

impl Clerk for Desk<'_> {
    fn before(&mut self, row: &[Cell<'_>]) -> Result<Vec<(usize, Value)>, Stale> {
        (self.told, self.why) = (None, None);
        let state = shape::version(self.collection, row).ok();
        let version = self.collection.writes.as_ref().map(|writes| writes.version);
        if let Some(expected) = &self.writing.expected {
            let is_it = match (version, expected) {
                (Some(Versioning::Field(at)), expected) => {
                    self.collection.fields[at].keeps(expected.as_cell(), row[at])
                }
                (Some(Versioning::Digest) | None, Arg::Text(expected)) => {
                    state.as_deref() == Some(expected.as_ref())
                }
                (Some(Versioning::Digest) | None, _) => false,
            };
            if !is_it {
                return Err(Stale);
            }
        }
        let fields = &self.collection.fields;
        let stays = |(at, said): &(usize, Arg<'_>)| fields[*at].keeps(said.as_cell(), row[*at]);
        let stays = self.writing.cells.iter().all(stays);
        self.before = Some(Before { cells: row.iter().map(|cell| cell.to_value()).collect(), state });
        Ok(match (version, self.doing) {
            (Some(Versioning::Field(at)), Doing::Update) if !stays => {
                vec![(at, Value::Integer(next(fields[at].kind, row[at])))]
            }
            _ => Vec::new(),
        })
    }

    fn after(&mut self, row: &[Cell<'_>]) -> Result<Vec<u8>, Unwritable> {
        (self.told, self.why) = (None, None);
        match self.judged(row) {
            Ok(told) => {
                let kept = told.structured.clone();
                self.told = Some(told);
                Ok(kept)
            }
            Err(why) => {
                self.why = Some(why);
                Err(Unwritable)
            }
        }
    }
}

impl Desk<'_> {
    /// What is told of the row as it will be, if everything is as it should be and the user agrees.
    fn judged(&self, row: &[Cell<'_>]) -> Result<Told, Why> {
        let collection = self.collection;
        if self.doing != Doing::Delete {
            let other =
                |(at, said): &&(usize, Arg<'_>)| !collection.fields[*at].keeps(said.as_cell(), row[*at]);
            if let Some((at, _)) = self.writing.cells.iter().find(other) {
                return Err(Why::Changed { field: collection.fields[*at].name.clone() });
            }
        }
        let outcome = match self.doing {
            Doing::Create => "created",
            Doing::Delete => "deleted",
            Doing::Update => {
                let state = shape::version(collection, row).map_err(Why::Unfit)?;
                let before = self.before.as_ref().and_then(|before| before.state.as_ref());
                if before == Some(&state) { "unchanged" } else { "updated" }
            }
        };
        let told = Told::record(collection, self.tool.text.as_ref(), outcome, row).map_err(Why::Unfit)?;
        if let Some(journal) = self.journal.filter(|_| outcome != "unchanged") {
            self.agreed(journal, row)?;
        }
        Ok(told)
    }

    fn agreed(&self, journal: &Journal, row: &[Cell<'_>]) -> Result<(), Why> {
        let before: Vec<Cell<'_>> =
            self.before.iter().flat_map(|before| before.cells.iter().map(Value::as_cell)).collect();
        let state = self.before.as_ref().and_then(|before| before.state.as_deref()).unwrap_or_default();
        let key = confirm::key(self.tool, state.as_bytes(), self.asked);
        match confirm::said(journal, &key) {
            Said::Yes => Ok(()),
            Said::No(why) => Err(Why::Asked(confirm::declined(why))),
            Said::Nothing => {
                let message = question::record(self.collection, self.doing, &before, row);
                Err(Why::Asked(confirm::question(key, message)))
            }
        }
    }
}

/// One more than the version there is; a row that had none has its first.
fn next(kind: Kind, cell: Cell<'_>) -> i64 {
    let now = match cell {
        Cell::Integer(n) => n,
        Cell::Text(text) => text.parse().unwrap_or(0),
        Cell::Null | Cell::Real(_) | Cell::Blob(_) => 0,
    };
    let most = if kind == Kind::Integer { EXACT_MAX } else { i64::MAX };
    // What has counted so far begins again: it is another version all the same.
    if now >= most { 1 } else { now + 1 }
}
