//! One thing that a client wants done.

use std::borrow::Cow;

use json::{Doc, Node};

/// What kind of thing is called. The places point into the call's own document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallTarget {
    Tool,
    Prompt,
    Resource,
    /// Values for one argument of a prompt or a resource template.
    Completion {
        reference: CompletionRef,
        argument_index: u32,
        value_index: u32,
        context_index: Option<u32>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionRef {
    Prompt,
    ResourceTemplate,
}

/// A call as the host sees it: the same for every protocol version and every door.
#[derive(Debug, Clone)]
pub struct Call {
    pub target: CallTarget,
    doc: Doc,
    name_index: u32,
    arguments_index: Option<u32>,
}

impl Call {
    /// `name` is where the name of the tool or prompt, or the URI, lies in `doc`.
    pub fn new(target: CallTarget, doc: Doc, name_index: u32, arguments_index: Option<u32>) -> Self {
        Self { target, doc, name_index, arguments_index }
    }

    /// The tool's or prompt's name, or the resource's URI.
    #[inline]
    pub fn name(&self) -> Cow<'_, str> {
        // `wire` made sure that it is a string.
        self.doc.node(self.name_index).str().unwrap_or_default()
    }

    #[inline]
    pub fn arguments(&self) -> Option<Node<'_>> {
        self.arguments_index.map(|at| self.doc.node(at))
    }

    /// The text of one argument.
    pub fn text_argument(&self, argument: &str) -> Option<Cow<'_, str>> {
        self.arguments()?.get(argument)?.str()
    }

    #[inline]
    pub fn doc(&self) -> &Doc {
        &self.doc
    }
}
