//! Where imports lead, written down: a packed folder has no `node_modules` to resolve packages in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// File → specifier → file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleLinks(BTreeMap<String, BTreeMap<String, String>>);

impl ModuleLinks {
    pub(crate) fn new<'l>(links: impl Iterator<Item = (&'l str, &'l BTreeMap<String, String>)>) -> Self {
        Self(links.map(|(file, links)| (file.to_owned(), links.clone())).collect())
    }

    pub(crate) fn target(&self, file: &str, specifier: &str) -> Option<&str> {
        self.0.get(file)?.get(specifier).map(String::as_str)
    }

    pub fn to_json(&self) -> Vec<u8> {
        // Maps of texts: serialising them cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub fn from_json(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
