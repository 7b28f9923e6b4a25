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

    /// A read of a resource that no message asked for.
    pub fn resource(uri: &str) -> Self {
        let doc = Json::object(|call| {
            call.str("uri", uri);
        })
        .to_doc();
        let uri_index = doc.root().get("uri").map(|node| node.index()).unwrap_or_default();
        Self::new(CallTarget::Resource, doc, uri_index, None)
    }

    /// The same call of a tool or prompt that has another name elsewhere.
    #[must_use]
    pub fn renamed(&self, name: &str) -> Self {
        let json = Json::object(|call| {
            call.str("name", name);
            call.maybe_raw("arguments", self.arguments().map(|arguments| arguments.raw()));
            if let CallTarget::Completion { argument_index, value_index, context_index, .. } = self.target {
                call.raw("argument", self.doc.node(argument_index).raw());
                call.raw("value", self.doc.node(value_index).raw());
                call.maybe_raw("context", context_index.map(|index| self.doc.node(index).raw()));
            }
            let params = self.doc.root().get("params");
            let meta = params.and_then(|params| params.get("_meta")).filter(Node::is_object);
            if let Some(meta) = meta {
                call.object("params", |params| {
                    params.raw("_meta", meta.raw());
                });
            }
        });
        let doc = json.to_doc();
        let index = |key: &str| doc.root().get(key).map(|node| node.index());
        let target = match self.target {
            CallTarget::Completion { reference, context_index, .. } => CallTarget::Completion {
                reference,
                argument_index: index("argument").unwrap_or_default(),
                value_index: index("value").unwrap_or_default(),
                context_index: context_index.and_then(|_| index("context")),
            },
            target => target,
        };
        let (name_index, arguments_index) = (index("name").unwrap_or_default(), index("arguments"));
        Self::new(target, doc, name_index, arguments_index)
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
