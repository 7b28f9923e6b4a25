//! Lists, read to their end and no further than makes sense.

use json::{Json, Node, NodeKind};

use super::param_headers::ParamHeaders;
use super::state_machine::Client;
use super::types::{ClientEvent, TransportKind};
use crate::method::Method;
use crate::params::ListKind;
use crate::version::Feature;

/// What has been read of a list.
#[derive(Debug, Default)]
pub(super) struct PageCollector {
    items: Vec<Json>,
    bytes: usize,
    page_count: usize,
    pub(super) cursor: Option<String>,
}

const PAGES_MAX: usize = 1000;
const ITEMS_MAX: usize = 100_000;
const BYTES_MAX: usize = 64 << 20;

/// How a page leaves a list.
pub(super) enum PageStatus {
    More,
    Complete(Vec<Json>),
    Invalid(String),
}

impl PageCollector {
    pub(super) fn add_page(&mut self, list: ListKind, result: Node<'_>) -> PageStatus {
        let key = list.result_key();
        let Some(items) = result.get(key).filter(|items| items.kind() == NodeKind::Array) else {
            return PageStatus::Invalid(format!(
                "`{}` was answered without a list of `{key}`",
                list.method().as_str()
            ));
        };
        for item in items.elements() {
            self.bytes += item.raw().len();
            self.items.push(Json::from(item));
        }
        self.page_count += 1;
        // An empty cursor is one like any other; `null` is none.
        let next = result.get("nextCursor").and_then(|cursor| cursor.str()).map(|cursor| cursor.into_owned());
        let Some(next) = next else { return PageStatus::Complete(std::mem::take(&mut self.items)) };
        if self.cursor.as_ref() == Some(&next) {
            return PageStatus::Invalid(format!("the list of {key} does not end: one cursor came twice"));
        }
        if self.page_count >= PAGES_MAX || self.items.len() > ITEMS_MAX || self.bytes > BYTES_MAX {
            return PageStatus::Invalid(format!(
                "the list of {key} does not end: {} of them on {} pages so far",
                self.items.len(),
                self.page_count
            ));
        }
        self.cursor = Some(next);
        PageStatus::More
    }
}

impl ListKind {
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::ResourceTemplatesList,
            Self::Prompts => Method::PromptsList,
        }
    }

    pub fn result_key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }
}

impl Client {
    /// A whole list. Tools whose headers could not be sent are left out, and that is told.
    pub(super) fn finish_list(&mut self, list: ListKind, mut items: Vec<Json>) -> Vec<Json> {
        if list == ListKind::Tools
            && self.transport == TransportKind::Http
            && self.version.has(Feature::MirrorHeaders)
        {
            let mut mirrors = std::collections::BTreeMap::new();
            let mut dropped = Vec::new();
            items.retain(|item| {
                let doc = item.to_doc();
                let name = doc.root().get("name").and_then(|name| name.str()).unwrap_or_default();
                let schema =
                    doc.root().get("inputSchema").map_or(Ok(ParamHeaders::default()), ParamHeaders::read);
                match schema {
                    Ok(mirror) => {
                        mirrors.insert(name.into_owned(), mirror);
                        true
                    }
                    Err(why) => {
                        dropped.push(format!("tool `{}` is left out: {why}", name.escape_debug()));
                        false
                    }
                }
            });
            self.param_headers = mirrors;
            self.events.extend(dropped.into_iter().map(ClientEvent::Warning));
        }
        items
    }
}
