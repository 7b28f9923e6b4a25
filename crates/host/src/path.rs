//! The one path of a call, on one screen: whose is it, is it well formed, run it, ask what is missing, shape
//! what came of it.

use std::sync::Arc;
use std::time::Duration;

use call::{
    Asks, Call, Caller, Content, Cx, Emit, Failure, Fault, Journal, Outcome, Problem, Reply, Run, TaskUse,
    ToolReply, World,
};
use tokio::time::timeout;
use wire::shape::TaskView;
use wire::{Peer, TaskWish};

use crate::catch::{Caught, caught};
use crate::live::Line;
use crate::questions::{Asked, ask};
use crate::rate::Wait;
use crate::registry::{Owner, Registry, Tool};
use crate::server::{Server, Who};

/// A call and all that belongs to it.
pub(crate) struct Job {
    pub(crate) call: Call,
    pub(crate) peer: Peer,
    pub(crate) caller: Caller,
    pub(crate) who: Who,
    pub(crate) line: Line,
    pub(crate) emit: Emit,
    pub(crate) journal: Journal,
    pub(crate) task: Option<TaskWish>,
}

/// How a request for a call ended.
pub(crate) enum Ended {
    Reply(Reply),
    Input { asks: Asks, state: String },
    Task(TaskView),
    Fault(Fault),
}

// An `async fn` would keep its arguments twice, and what every call allocates has to fit where allocating is quick.
#[expect(clippy::manual_async_fn, reason = "see above")]
pub(crate) fn answer(
    server: Arc<Server>,
    registry: Arc<Registry>,
    mut job: Job,
) -> impl Future<Output = Result<Ended, Fault>> + Send {
    async move {
        let owner = registry.find(&job.call)?; // whose is it
        if let Owner::Tool(tool) = &owner {
            if let Err(problem) = tool.check.check(job.call.arguments()) {
                return Ok(Ended::Reply(tell(&server, tool, *problem))); // is it well formed
            }
            may_be_a_task(tool, &job)?;
            if let Some(gate) = &tool.gate
                && let Err(wait) = gate.pass(&job.who, server.world.now_ms())
            {
                return Ok(Ended::Reply(tell(&server, tool, too_often(wait)))); // is it not too often
            }
        }
        loop {
            let outcome = run(&server, &registry, &owner, &job).await;
            let outcome = match outcome {
                Outcome::Detach(work) if goes_on_as_task(&owner, &job) => {
                    let started = server.tasks.start(&server, &registry, job, work);
                    return started.map(Ended::Task).or_else(|fault| failed(&server, &owner, fault));
                }
                Outcome::Detach(work) => finish(timeout_ms(&registry, &owner), Run::Later(work)).await,
                other => other,
            };
            match outcome {
                Outcome::Done(reply) => return Ok(Ended::Reply(shaped(&owner, reply))),
                Outcome::Refused(problem) => return Ok(Ended::Reply(told(&server, &owner, *problem)?)),
                Outcome::Failed(fault) => return failed(&server, &owner, fault),
                Outcome::Detach(_) => return Err(Fault::Bug { log: "detached work detached again".into() }),
                // Boxed, because it is rare and would make every call's future larger.
                Outcome::NeedInput(asks) => match Box::pin(ask(&server, &registry, &mut job, &asks)).await {
                    Ok(Asked::Answered) => {}
                    Ok(Asked::Sealed(state)) => return Ok(Ended::Input { asks, state }),
                    Ok(Asked::Refused(message)) => {
                        return Ok(Ended::Reply(told(&server, &owner, not_answered(&message))?));
                    }
                    Err(fault) => return failed(&server, &owner, fault),
                },
            }
        }
    }
}

/// One round: the provider's own function, under the deadline and with its panics caught.
async fn run(server: &Server, registry: &Registry, owner: &Owner<'_>, job: &Job) -> Outcome {
    let cx = Cx { caller: &job.caller, journal: &job.journal, emit: &job.emit, world: &server.world };
    let after_ms = timeout_ms(registry, owner);
    match owner {
        Owner::Tool(tool) => finish(after_ms, caught(|| tool.provider.run(&job.call, &cx))).await,
        Owner::One(provider) => finish(after_ms, caught(|| provider.run(&job.call, &cx))).await,
        Owner::Readers(readers) => {
            for reader in *readers {
                match finish(after_ms, caught(|| reader.run(&job.call, &cx))).await {
                    Outcome::Failed(Fault::Unknown { .. }) => {}
                    outcome => return outcome,
                }
            }
            let name = job.call.name().into_owned();
            Outcome::Failed(Fault::Unknown { what: call::Thing::Resource, name })
        }
    }
}

/// Waits for what is not at hand; when time is up the work is dropped, and with it everything it held.
#[inline]
async fn finish(after_ms: u64, run: Run) -> Outcome {
    match run {
        Run::Now(outcome) => outcome,
        Run::Later(work) => match Box::pin(timeout(Duration::from_millis(after_ms), Caught(work))).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Failed(Fault::Timeout { after_ms }),
        },
    }
}

#[inline]
fn timeout_ms(registry: &Registry, owner: &Owner<'_>) -> u64 {
    match owner {
        Owner::Tool(tool) => tool.call_timeout_ms,
        Owner::One(_) | Owner::Readers(_) => registry.terms.call_timeout_ms,
    }
}

/// Whether the caller's wish for a task, or lack of it, fits the tool.
fn may_be_a_task(tool: &Tool, job: &Job) -> Result<(), Fault> {
    match tool.task {
        TaskUse::Never if job.task.is_some() => Err(Fault::NotATask),
        TaskUse::Required if !takes_task(job) => Err(Fault::MissingCapability(call::Caps::TASKS)),
        TaskUse::Never | TaskUse::Optional | TaskUse::Required => Ok(()),
    }
}

/// A client asks for a task in the call (2025-11-25), or declares that it can take one.
fn takes_task(job: &Job) -> bool {
    job.task.is_some() || job.caller.caps.has(call::Caps::TASKS)
}

fn goes_on_as_task(owner: &Owner<'_>, job: &Job) -> bool {
    matches!(owner, Owner::Tool(tool) if tool.task != TaskUse::Never) && takes_task(job)
}

/// What a model can act on is told to the model, as a result; the rest is the client's business.
fn failed(server: &Server, owner: &Owner<'_>, fault: Fault) -> Result<Ended, Fault> {
    told_to_model(server, owner, fault).map(Ended::Reply)
}

fn told_to_model(server: &Server, owner: &Owner<'_>, fault: Fault) -> Result<Reply, Fault> {
    match (owner, Problem::from_fault(&fault)) {
        (Owner::Tool(tool), Some(problem)) => {
            log(&fault);
            let problem = match fault {
                Fault::Timeout { after_ms } if tool.writes => perhaps_done(after_ms),
                _ => problem,
            };
            Ok(tell(server, tool, problem))
        }
        _ => Err(fault),
    }
}

/// A problem, where a model reads it; a prompt or a resource has no place for one.
fn told(server: &Server, owner: &Owner<'_>, problem: Problem) -> Result<Reply, Fault> {
    match owner {
        Owner::Tool(tool) => Ok(tell(server, tool, problem)),
        Owner::One(_) | Owner::Readers(_) => {
            let at = problem.field.unwrap_or_else(|| "params".into());
            Err(Fault::BadParams { at, why: problem.message })
        }
    }
}

/// Every failure that leaves here is found again in the log.
#[cold]
fn tell(server: &Server, tool: &Tool, mut problem: Problem) -> Reply {
    let reference = problem.reference.get_or_insert_with(|| reference(&*server.world));
    tracing::info!(%reference, code = problem.code.as_str(), field = problem.field.as_deref(), "a call failed");
    shape(tool, ToolReply::problem(&problem))
}

/// Work that is dropped may have passed the point at which it can be taken back.
fn perhaps_done(after_ms: u64) -> Problem {
    let message = format!(
        "no answer within {after_ms} ms; it may have been done: read the record before you try again, or pass an \
         idempotency_key"
    );
    Problem { retryable: false, ..Problem::new(Failure::Timeout, message) }
}

fn too_often(wait: Wait) -> Problem {
    let retry_after_ms = Some(wait.retry_after_ms);
    let message = format!("too many calls; try again in {} ms", wait.retry_after_ms);
    Problem { retry_after_ms, ..Problem::new(Failure::RateLimited, message) }
}

/// A name for one failure, short enough to be read out.
pub(crate) fn reference(world: &dyn World) -> String {
    let mut random = [0; 4];
    world.fill(&mut random);
    format!("{:08x}", u32::from_be_bytes(random))
}

pub(crate) fn not_answered(message: &str) -> Problem {
    Problem::new(Failure::InputRefused, format!("the client refused to answer: {message}"))
}

/// What a call that went on as a task is answered: the same as if its caller had waited.
pub(crate) fn conclude(
    server: &Server,
    registry: &Registry,
    call: &Call,
    came_of_it: Result<Reply, Refusal>,
) -> Result<Reply, Fault> {
    let owner = registry.find(call)?;
    match came_of_it {
        Ok(reply) => Ok(shaped(&owner, reply)),
        Err(Refusal::Problem(problem)) => told(server, &owner, *problem),
        Err(Refusal::Fault(fault)) => told_to_model(server, &owner, fault),
    }
}

/// Why a call has no result of its own.
pub(crate) enum Refusal {
    Problem(Box<Problem>),
    Fault(Fault),
}

#[inline]
fn shaped(owner: &Owner<'_>, reply: Reply) -> Reply {
    match (owner, reply) {
        (Owner::Tool(tool), Reply::Tool(reply)) if reply.is_error => shape(tool, reply),
        (_, reply) => reply,
    }
}

/// A failure says what it has to say as text where the tool's output schema has no place for it.
fn shape(tool: &Tool, reply: ToolReply) -> Reply {
    Reply::Tool(match (&reply.content, &reply.structured) {
        (content, Some(json)) if !tool.admits(json) => {
            let text = match content {
                Content::Structured => Content::Text(json.to_string()),
                other => other.clone(),
            };
            ToolReply { content: text, structured: None, ..reply }
        }
        _ => reply,
    })
}

/// The round of a call that goes on as a task, after the first.
pub(crate) async fn again(server: &Server, registry: &Registry, job: &Job) -> Outcome {
    match registry.find(&job.call) {
        Ok(owner) => {
            let cx = Cx { caller: &job.caller, journal: &job.journal, emit: &job.emit, world: &server.world };
            let provider = match &owner {
                Owner::Tool(tool) => &tool.provider,
                Owner::One(provider) => provider,
                Owner::Readers(_) => {
                    return Outcome::Failed(Fault::Bug { log: "only tools are tasks".into() });
                }
            };
            match caught(|| provider.run(&job.call, &cx)) {
                Run::Now(Outcome::Detach(work)) | Run::Later(work) => Caught(work).await,
                Run::Now(outcome) => outcome,
            }
        }
        Err(fault) => Outcome::Failed(fault),
    }
}

pub(crate) fn log(fault: &Fault) {
    if let Fault::Bug { log } = fault {
        tracing::error!(%log, "a call failed by a fault of ours");
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, Job, Registry, Server, answer};

    fn bytes_of<F>(_: fn(Arc<Server>, Arc<Registry>, Job) -> F) -> usize {
        size_of::<F>()
    }

    /// Allocators keep blocks of about a kilobyte at hand, and look for larger ones.
    #[test]
    fn a_call_is_no_large_block() {
        let bytes = bytes_of(answer);
        assert!(bytes <= 832, "{bytes} bytes");
    }
}
