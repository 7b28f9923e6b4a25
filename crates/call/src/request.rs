//! One thing that a client wants done.

use std::borrow::Cow;

use json::{Doc, Node};

/// What kind of thing is called. The places point into the call's own document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Tool,
    Prompt,
    Resource,
    /// Values for one argument of a prompt or a resource template.
    Completion {
        of: CompletionOf,
        argument: u32,
        value: u32,
        context: Option<u32>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionOf {
    Prompt,
    Template,
}

/// A call as the host sees it: the same for every protocol version and every door.
#[derive(Debug, Clone)]
pub struct Call {
    pub target: Target,
    doc: Doc,
    name: u32,
    arguments: Option<u32>,
}

impl Call {
    /// `name` is where the name of the tool or prompt, or the URI, lies in `doc`.
    pub fn new(target: Target, doc: Doc, name: u32, arguments: Option<u32>) -> Self {
        Self { target, doc, name, arguments }
    }

    /// The tool's or prompt's name, or the resource's URI.
    #[inline]
    pub fn name(&self) -> Cow<'_, str> {
        // `wire` made sure that it is a string.
        self.doc.node(self.name).str().unwrap_or_default()
    }

    #[inline]
    pub fn arguments(&self) -> Option<Node<'_>> {
        self.arguments.map(|at| self.doc.node(at))
    }

    /// The text of one argument.
    pub fn text(&self, argument: &str) -> Option<Cow<'_, str>> {
        self.arguments()?.get(argument)?.str()
    }

    #[inline]
    pub fn doc(&self) -> &Doc {
        &self.doc
    }
}
