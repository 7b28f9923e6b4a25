//! One call: a tool, prompt, resource or completion that a client requests.

use std::borrow::Cow;

use json::{Doc, Json, Node};

/// What the call is for. The indexes point into the call's own document.
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

/// A call as the host sees it: the same for every protocol version and transport.
#[derive(Debug, Clone)]
pub struct Call {
    pub target: CallTarget,
    doc: Doc,
    name_index: u32,
    arguments_index: Option<u32>,
}

impl Call {
    /// `name_index` is the index in `doc` of the tool or prompt name, or of the resource URI.
    pub fn new(target: CallTarget, doc: Doc, name_index: u32, arguments_index: Option<u32>) -> Self {
        Self { target, doc, name_index, arguments_index }
    }

    /// A call of a tool that no message asked for: by another tool, or with arguments that a policy replaced.
    pub fn tool(name: &str, arguments: &Json) -> Self {
        let json = Json::object(|call| {
            call.str("name", name).raw("arguments", arguments.as_str());
        });
        let doc = json.to_doc();
        let index = |key: &str| doc.root().get(key).map(|node| node.index());
        let (name_index, arguments_index) = (index("name").unwrap_or_default(), index("arguments"));
        Self::new(CallTarget::Tool, doc, name_index, arguments_index)
    }

    /// The tool's or prompt's name, or the resource's URI.
    #[inline]
    pub fn name(&self) -> Cow<'_, str> {
        // `wire` has checked that it is a string.
        self.doc.node(self.name_index).str().unwrap_or_default()
    }

    #[inline]
    pub fn arguments(&self) -> Option<Node<'_>> {
        self.arguments_index.map(|index| self.doc.node(index))
    }

    /// The value of a string argument.
    pub fn text_argument(&self, argument: &str) -> Option<Cow<'_, str>> {
        self.arguments()?.get(argument)?.str()
    }

    #[inline]
    pub fn doc(&self) -> &Doc {
        &self.doc
    }
}
