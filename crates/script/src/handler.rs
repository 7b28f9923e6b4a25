//! A function of the author's files, ready to run: the default export of a tool, a prompt or a resource.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use contract::CompiledSchema;
use spile_core::{Principal, TaskSupport};

use crate::bundle::{Entry, Program};
use crate::diagnostic::Diagnostic;
use crate::engine::StateOwnerRef;
use crate::schema::TypeFile;

#[derive(Clone)]
pub(crate) struct Handler {
    pub(crate) kind: HandlerKind,
    /// The name of the tool or prompt; the file of a resource.
    pub(crate) name: String,
    /// The file inside the folder.
    pub(crate) file: String,
    pub(crate) program: Arc<Program>,
    /// Where the handler begins in its file.
    pub(crate) offset: Option<usize>,
    /// Whether its module state is shared between callers.
    pub(crate) shares_state: bool,
    /// What a tool promises to return.
    pub(crate) output: Option<Arc<CompiledSchema>>,
    pub(crate) task_support: TaskSupport,
    /// Other files that its schema was read from.
    pub(crate) type_files: Vec<TypeFile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandlerKind {
    Tool,
    Prompt,
    Resource,
}

impl HandlerKind {
    /// What messages call it.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
        }
    }

    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Tool => "tools/call",
            Self::Prompt => "prompts/get",
            Self::Resource => "resources/read",
        }
    }
}

impl Handler {
    /// A handler that is not a tool.
    pub(crate) fn plain(
        kind: HandlerKind,
        entry: &Entry,
        program: Arc<Program>,
        offset: Option<usize>,
    ) -> Self {
        Self {
            kind,
            name: entry.name.clone(),
            file: entry.file.clone(),
            program,
            offset,
            shares_state: false,
            output: None,
            task_support: TaskSupport::Forbidden,
            type_files: Vec::new(),
        }
    }

    /// Whether a call of it may be run again, in another round or after a restart. It begins with fresh module state
    /// then: what an earlier call left there could not be replayed.
    pub(crate) fn is_replayable(&self) -> bool {
        self.program.may_ask
            || self.task_support != TaskSupport::Forbidden
            || self.program.has_asked.load(Ordering::Relaxed)
    }

    /// Whose calls share the module state that a call sees. All anonymous callers share code that keeps nothing.
    #[inline]
    pub(crate) fn state_owner<'p>(
        &self,
        principal: &'p Principal,
        session: Option<[u8; 16]>,
    ) -> StateOwnerRef<'p> {
        match (principal, session) {
            _ if self.shares_state => StateOwnerRef::Everyone,
            (Principal::Named(_), _) => StateOwnerRef::Principal(principal.id()),
            (Principal::Anonymous, Some(key)) if self.program.may_keep_state => StateOwnerRef::Session(key),
            (Principal::Anonymous, _) => StateOwnerRef::Anonymous,
        }
    }

    /// Whether a call begins with fresh module state, and leaves none behind.
    #[inline]
    pub(crate) fn begins_fresh(&self, owner: StateOwnerRef<'_>) -> bool {
        self.is_replayable() || (owner == StateOwnerRef::Anonymous && self.program.may_keep_state)
    }

    /// Whether a call of it may run on the thread of its connection: it needs no fresh module state, and shares none with
    /// calls on other threads.
    #[inline]
    pub(crate) fn may_be_quick(&self, owner: StateOwnerRef<'_>) -> bool {
        !self.begins_fresh(owner) && owner != StateOwnerRef::Everyone
    }

    /// Points a diagnostic without a position at the handler.
    pub(crate) fn at_handler(&self, diagnostic: Diagnostic) -> Diagnostic {
        match (diagnostic.position, self.offset, self.program.source(&self.file)) {
            (None, Some(offset), Some(source)) => diagnostic.at_offset(source, offset),
            _ => diagnostic,
        }
    }

    /// Whether a call of it continues as a task from its start, if the client accepts one. A handler that calls
    /// `ctx.detach` decides itself when.
    pub(crate) fn detaches_at_once(&self) -> bool {
        self.task_support != TaskSupport::Forbidden && !self.program.may_detach
    }
}
