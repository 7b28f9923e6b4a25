//! Lists, read to their end and no further than makes sense.

use json::{Json, Kind, Node};

use super::machine::Client;
use super::mirror::Mirror;
use super::words::{Event, Link};
use crate::method::Method;
use crate::params::List;
use crate::version::Feature;

/// What has been read of a list.
#[derive(Debug, Default)]
pub(super) struct Pages {
    items: Vec<Json>,
    bytes: usize,
    pages: usize,
    pub(super) cursor: Option<String>,
}

const PAGES_MAX: usize = 1000;
const ITEMS_MAX: usize = 100_000;
const BYTES_MAX: usize = 64 << 20;

/// How a page leaves a list.
pub(super) enum Turned {
    Next,
    Last(Vec<Json>),
    Wrong(String),
}

impl Pages {
    pub(super) fn turn(&mut self, list: List, result: Node<'_>) -> Turned {
        let key = list.key();
        let Some(items) = result.get(key).filter(|items| items.kind() == Kind::Array) else {
            return Turned::Wrong(format!(
                "`{}` was answered without a list of `{key}`",
                list.method().as_str()
            ));
        };
        for item in items.elements() {
            self.bytes += item.raw().len();
            self.items.push(Json::from(item));
        }
        self.pages += 1;
        // An empty cursor is one like any other; `null` is none.
        let next = result.get("nextCursor").and_then(|cursor| cursor.str()).map(|cursor| cursor.into_owned());
        let Some(next) = next else { return Turned::Last(std::mem::take(&mut self.items)) };
        if self.cursor.as_ref() == Some(&next) {
            return Turned::Wrong(format!("the list of {key} does not end: one cursor came twice"));
        }
        if self.pages >= PAGES_MAX || self.items.len() > ITEMS_MAX || self.bytes > BYTES_MAX {
            return Turned::Wrong(format!(
                "the list of {key} does not end: {} of them on {} pages so far",
                self.items.len(),
                self.pages
            ));
        }
        self.cursor = Some(next);
        Turned::Next
    }
}

impl List {
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::TemplatesList,
            Self::Prompts => Method::PromptsList,
        }
    }

    pub fn key(self) -> &'static str {
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
    pub(super) fn listed(&mut self, list: List, mut items: Vec<Json>) -> Vec<Json> {
        if list == List::Tools && self.link == Link::Http && self.version.has(Feature::MirrorHeaders) {
            let mut mirrors = std::collections::BTreeMap::new();
            let mut dropped = Vec::new();
            items.retain(|item| {
                let doc = item.doc();
                let name = doc.root().get("name").and_then(|name| name.str()).unwrap_or_default();
                let schema = doc.root().get("inputSchema").map_or(Ok(Mirror::default()), Mirror::read);
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
            self.mirrors = mirrors;
            self.events.extend(dropped.into_iter().map(Event::Odd));
        }
        items
    }
}
