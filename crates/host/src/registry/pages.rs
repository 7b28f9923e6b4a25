//! Pages of lists: rendered once per list, version and view, when a client first asks.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hashbrown::HashMap;
use spile_core::{CatalogView, ItemKind, Visibility};
use wire::encode::{self, ListItem};
use wire::{ListKind, Version};

use super::Registry;

/// Rendered pages by list and version.
pub(super) type PageCache = [[OnceLock<Vec<Vec<u8>>>; Version::ALL.len()]; 5];

/// Pages of callers who do not see the whole catalog, by the key of their view.
#[derive(Default)]
pub(super) struct ViewPages(Mutex<HashMap<u64, Arc<PageCache>, foldhash::quality::RandomState>>);

/// Beyond this number of views the cache starts again.
const VIEWS_MAX: usize = 256;

impl ViewPages {
    fn get(&self, key: u64) -> Arc<PageCache> {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if views.len() >= VIEWS_MAX && !views.contains_key(&key) {
            views.clear();
        }
        views.entry(key).or_default().clone()
    }
}

impl Registry {
    /// Passes the rendered members of a page to `read`; `None` if the cursor is unknown or stale.
    pub(crate) fn page<T>(
        &self,
        list: ListKind,
        version: Version,
        cursor: Option<&str>,
        view: Option<&CatalogView>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let page = match cursor {
            // Some clients send an empty cursor for the first page.
            None | Some("") => 0,
            Some(cursor) => self.parse_cursor(cursor)?,
        };
        let view_pages;
        let (cache, visibility) = match view {
            None => (&self.page_cache, None),
            Some(view) => {
                view_pages = self.view_pages.get(view.key);
                (&*view_pages, Some(&*view.visibility))
            }
        };
        let pages = cache[list as usize][version.index()]
            .get_or_init(|| self.render_pages(list, version, visibility));
        pages.get(page).map(|members| read(members))
    }

    fn render_pages(
        &self,
        list: ListKind,
        version: Version,
        visibility: Option<&dyn Visibility>,
    ) -> Vec<Vec<u8>> {
        let is_visible = |kind, name: &str| visibility.is_none_or(|view| view.is_visible(kind, name));
        let items: Vec<ListItem<'_>> = match list {
            ListKind::Tools => self
                .tool_list
                .iter()
                .filter(|tool| is_visible(ItemKind::Tool, &tool.compiled.definition.name))
                .map(|tool| ListItem::RenderedTool(tool.compiled.rendered(version)))
                .collect(),
            ListKind::Resources => self
                .resource_list()
                .filter(|resource| is_visible(ItemKind::Resource, &resource.uri))
                .map(ListItem::Resource)
                .collect(),
            ListKind::Templates => self
                .template_list()
                .filter(|template| is_visible(ItemKind::Resource, &template.uri_template))
                .map(ListItem::Template)
                .collect(),
            ListKind::Prompts => self
                .prompt_list()
                .filter(|prompt| is_visible(ItemKind::Prompt, &prompt.name))
                .map(ListItem::Prompt)
                .collect(),
            ListKind::Skills => self
                .skill_list()
                .filter(|skill| is_visible(ItemKind::Resource, &skill.uri))
                .map(ListItem::Skill)
                .collect(),
        };
        let page_items_max = self.config.page_items_max.max(1);
        let pages = items.len().div_ceil(page_items_max).max(1);
        let render = |page: usize| {
            let from = page * page_items_max;
            let range = from..(from + page_items_max).min(items.len());
            let next = (page + 1 < pages).then(|| self.cursor(page + 1));
            encode::list_members(list, version, items[range].iter().copied(), next.as_deref())
        };
        (0..pages).map(render).collect()
    }

    pub(crate) fn cursor(&self, page: usize) -> String {
        format!("{:08x}-{page:x}", self.fingerprint)
    }

    pub(crate) fn parse_cursor(&self, cursor: &str) -> Option<usize> {
        let (fingerprint, page) = cursor.split_once('-')?;
        let page = usize::from_str_radix(page, 16).ok()?;
        (cursor == self.cursor(page) && u32::from_str_radix(fingerprint, 16) == Ok(self.fingerprint))
            .then_some(page)
    }

    /// Why a cursor does not lead to a page.
    pub(crate) fn cursor_problem(&self, cursor: Option<&str>) -> &'static str {
        let of_other_list =
            cursor.and_then(|cursor| cursor.split_once('-')).is_some_and(|(fingerprint, page)| {
                let is_hex =
                    |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                fingerprint.len() == 8
                    && is_hex(fingerprint)
                    && is_hex(page)
                    && u32::from_str_radix(fingerprint, 16) != Ok(self.fingerprint)
            });
        match of_other_list {
            true => {
                "`params.cursor`: the list has changed since, or it is of another server; start again without one"
            }
            false => "`params.cursor`: unknown cursor; start again without one",
        }
    }
}
