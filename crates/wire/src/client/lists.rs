//! Reads lists page by page, up to a limit.

use json::{Json, Node, NodeKind};

use super::errors::ProtocolViolation;
use super::param_headers::ParamHeaders;
use super::state_machine::Client;
use super::types::{ClientEvent, ProtocolWarning, TransportKind, WarningKind};
use crate::method::Method;
use crate::params::ListKind;
use crate::version::Feature;

/// The pages of a list so far.
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

/// The state of a list after a page.
pub(super) enum PageStatus {
    More,
    Complete(Vec<Json>),
    Invalid(ProtocolViolation),
}

impl PageCollector {
    pub(super) fn add_page(&mut self, list: ListKind, result: Node<'_>) -> PageStatus {
        let key = list.result_key();
        let Some(items) = result.get(key).filter(|items| items.kind() == NodeKind::Array) else {
            return PageStatus::Invalid(ProtocolViolation::MissingList { method: list.method(), key });
        };
        for item in items.elements() {
            self.bytes += item.raw().len();
            self.items.push(Json::from(item));
        }
        self.page_count += 1;
        // An empty string is a valid cursor; `null` means the end.
        let next = result.get("nextCursor").and_then(|cursor| cursor.str()).map(|cursor| cursor.into_owned());
        let Some(next) = next else { return PageStatus::Complete(std::mem::take(&mut self.items)) };
        if self.cursor.as_ref() == Some(&next) {
            return PageStatus::Invalid(ProtocolViolation::RepeatedCursor { key });
        }
        if self.page_count >= PAGES_MAX || self.items.len() > ITEMS_MAX || self.bytes > BYTES_MAX {
            return PageStatus::Invalid(ProtocolViolation::ListTooLong {
                key,
                items: self.items.len(),
                pages: self.page_count,
            });
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
            Self::Skills => Method::SkillsList,
        }
    }

    pub fn result_key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
            Self::Skills => "skills",
        }
    }
}

impl Client {
    /// Completes a list. Removes tools whose `x-mcp-header` annotations are invalid, with a warning.
    pub(super) fn finish_list(&mut self, list: ListKind, mut items: Vec<Json>) -> Vec<Json> {
        if list == ListKind::Tools
            && self.transport == TransportKind::Http
            && self.version.has(Feature::StandardHeaders)
        {
            let mut param_headers = std::collections::BTreeMap::new();
            let mut dropped = Vec::new();
            items.retain(|item| {
                let doc = item.to_doc();
                let name = doc.root().get("name").and_then(|name| name.str()).unwrap_or_default();
                let headers =
                    doc.root().get("inputSchema").map_or(Ok(ParamHeaders::default()), ParamHeaders::read);
                match headers {
                    Ok(headers) => {
                        param_headers.insert(name.into_owned(), headers);
                        true
                    }
                    Err(reason) => {
                        let message = format!("skipped tool `{}`: {reason}", name.escape_debug());
                        dropped.push(ProtocolWarning { kind: WarningKind::SkippedTool, message });
                        false
                    }
                }
            });
            self.param_headers = param_headers;
            self.events.extend(dropped.into_iter().map(ClientEvent::Warning));
        }
        items
    }
}
