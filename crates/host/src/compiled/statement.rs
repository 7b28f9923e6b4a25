//! Running an author's statement.

use std::cell::RefCell;

use call::{Call, Failure, Fault, Outcome, Problem, ToolReply, World};
use contract::bind::{self, Arg, Once};
use contract::shape::{self, Rows, Told, Unfit};
use contract::source::{
    Changes, More, Prepared, SourceFault, StatementTerms, Unwritable, Which, WriteFault, Written,
};
use contract::{Cell, Returns, Statement, Tool, Value, question};

use super::confirm::{self, Said};
use super::fault::{Again, misfit, not_kept, not_written, refused};
use super::write::{Why, claim};
use super::{Aside, Inner};
use crate::seal::digest_of;

impl Inner {
    /// `None` is for somebody who may block.
    pub(super) fn statement(
        &self,
        tool: &Tool,
        at: usize,
        call: &Call,
        aside: Option<&Aside>,
        world: &dyn World,
    ) -> Result<Option<Outcome>, Box<Problem>> {
        let (statement, prepared) = (&self.contract.statements[at], &*self.answers.statements[at]);
        if aside.is_none() && (statement.shape.writes || !prepared.is_short()) {
            return Ok(None);
        }
        let (arguments, once) = bind::statement(statement, call.arguments())?;
        let cells: Vec<Cell<'_>> = arguments.iter().map(Arg::as_cell).collect();
        let run = Running { tool, statement, prepared, said: &arguments, arguments: &cells };
        Ok(match aside {
            Some(aside) if statement.shape.writes => Some(run.write(&once, aside, world)),
            _ => Some(run.read(aside, world)),
        })
    }
}

struct Running<'a> {
    tool: &'a Tool,
    statement: &'a Statement,
    prepared: &'a dyn Prepared,
    said: &'a [Arg<'a>],
    /// The same, as a source takes it.
    arguments: &'a [Cell<'a>],
}

impl Running<'_> {
    fn read(&self, aside: Option<&Aside>, world: &dyn World) -> Outcome {
        let result = &self.statement.result;
        let stop = aside.map(|aside| &aside.stop);
        let reply: Result<ToolReply, Unfit> = match self.statement.returns {
            Returns::Many => {
                let mut rows = self.rows();
                match self.prepared.read(self.arguments, stop, &mut |cells| rows.take(cells)) {
                    Ok(()) => rows.given(),
                    Err(fault) => return self.refused(&fault, world),
                }
            }
            Returns::One => {
                let mut record = None;
                let read = self.prepared.read(self.arguments, stop, &mut |cells| {
                    record.get_or_insert_with(|| shape::record(result, self.tool.text.as_ref(), cells));
                    More::No
                });
                match (read, record) {
                    (Err(fault), _) => return self.refused(&fault, world),
                    (Ok(()), Some(reply)) => reply,
                    (Ok(()), None) => return self.nothing().into(),
                }
            }
        };
        match reply {
            Ok(reply) => reply.into(),
            Err(unfit) => misfit(&unfit, result, world),
        }
    }

    /// What is wrong with an argument.
    fn unfit(&self, parameter: Option<usize>, why: &str) -> Outcome {
        let argument = parameter.and_then(|at| self.statement.arguments.get(at));
        not_kept(argument.map(|argument| &*argument.field.name), why).into()
    }

    fn refused(&self, fault: &SourceFault, world: &dyn World) -> Outcome {
        match fault {
            SourceFault::Unfit { parameter, why } => self.unfit(*parameter, why),
            fault => refused(fault, &self.statement.result, world),
        }
    }

    fn rows(&self) -> Rows<'_> {
        let result = &self.statement.result;
        Rows::new(result, self.tool.text.as_ref(), None, result.rows_max)
    }

    fn nothing(&self) -> Problem {
        let message = format!("{} found nothing for these arguments", self.statement.result.name);
        Problem::new(Failure::NotFound, message)
    }

    fn write(&self, once: &Once<'_>, aside: &Aside, world: &dyn World) -> Outcome {
        let asks = match confirm::may_ask(self.tool, once.dry_run, &aside.caller) {
            Ok(asks) => asks,
            Err(problem) => return problem.into(),
        };
        let asked = digest_of(&[&bind::asked(self.statement, self.said)]);
        let terms = StatementTerms {
            which: if asks { Which::Told } else { Which::Any },
            claim: claim(self.tool, once, aside, asked),
            dry_run: once.dry_run,
            now_ms: world.now_ms(),
            stop: Some(&aside.stop),
        };
        // Rows come first and are told in the end, by two who know nothing of each other.
        let (rows, first) = (RefCell::new(self.rows()), RefCell::new(None::<Vec<Value>>));
        let (mut told, mut why) = (None, None);
        let written = self.prepared.write(
            self.arguments,
            &terms,
            &mut |cells| match self.statement.returns {
                Returns::Many => rows.borrow_mut().take(cells),
                Returns::One => {
                    let mut first = first.borrow_mut();
                    first.get_or_insert_with(|| cells.iter().map(|cell| cell.to_value()).collect());
                    More::No
                }
            },
            &mut |changes| {
                let one = first.borrow();
                let judged = self.judged(changes.rows, &rows.borrow(), one.as_deref()).and_then(|told| {
                    if asks { self.agreed(changes, &asked, aside) } else { Ok(()) }.map(|()| told)
                });
                match judged {
                    Ok(made) => {
                        let kept = made.structured.clone();
                        told = Some(made);
                        Ok(kept)
                    }
                    Err(reason) => {
                        why = Some(reason);
                        Err(Unwritable)
                    }
                }
            },
        );
        let result = &self.statement.result;
        match (written, why, told) {
            (Ok(Written::Done), _, Some(told)) => shape::told(told, once.dry_run).into(),
            (Ok(Written::Done), _, None) => {
                Outcome::Failed(Fault::Bug { log: "a statement was run that nobody saw".into() })
            }
            (Ok(Written::Replayed(kept)), _, _) => match shape::replayed(&kept) {
                Some(reply) => reply.into(),
                None => Outcome::Failed(Fault::Bug { log: "what a claim kept is no result".into() }),
            },
            (Err(WriteFault::Unwritable), Some(why), _) => why.outcome(result, world),
            (Err(WriteFault::Refused { column, why }), _, _) => self.unfit(column, &why),
            (Err(fault), _, _) => not_written(&fault, result, &[], Again::of(once), world),
        }
    }

    fn judged(&self, changed: u64, rows: &Rows<'_>, first: Option<&[Value]>) -> Result<Told, Why> {
        match self.statement.returns {
            Returns::Many => rows.changed(changed).map_err(Why::Unfit),
            Returns::One => {
                let Some(first) = first else { return Err(Why::Asked(self.nothing().into())) };
                let cells: Vec<Cell<'_>> = first.iter().map(Value::as_cell).collect();
                let line = self.tool.text.as_ref();
                Told::changed_one(&self.statement.result, line, changed, &cells).map_err(Why::Unfit)
            }
        }
    }

    fn agreed(&self, changes: &Changes, asked: &[u8], aside: &Aside) -> Result<(), Why> {
        let state = [&changes.rows.to_be_bytes()[..], changes.which.as_ref().map_or(&[], |which| &which[..])];
        let key = confirm::key(self.tool, &state.concat(), asked);
        match confirm::said(&aside.journal, &key) {
            Said::Yes => Ok(()),
            Said::No(why) => Err(Why::Asked(confirm::declined(why))),
            Said::Nothing => {
                let message = question::statement(self.statement, changes.rows, self.arguments);
                Err(Why::Asked(confirm::question(key, message)))
            }
        }
    }
}
