//! What the engine needs of a program: plain data, so that another process can run it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Identifies the code of a tool. A journal is valid for one hash only.
pub(crate) type CodeHash = [u8; 32];

/// The modules of one entry file: a closed map.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProgramCode {
    pub(crate) entry: String,
    pub(crate) context: Option<String>,
    pub(crate) hash: CodeHash,
    pub(crate) allows_eval: bool,
    /// Module id → an ES module, whatever the file was.
    #[serde(with = "shared_texts")]
    pub(crate) modules: BTreeMap<String, Arc<str>>,
    /// Where the imports of the files that are ES modules lead: id → specifier → id. Every other module is code of ours
    /// around a file, and imports by id.
    pub(crate) links: BTreeMap<String, BTreeMap<String, String>>,
}

impl ProgramCode {
    /// Whether the module is code of ours, and not a file.
    pub(crate) fn is_generated(&self, id: &str) -> bool {
        !self.links.contains_key(id)
    }

    /// The module that `specifier` means in the module `base`.
    pub(crate) fn resolve(&self, base: &str, specifier: &str) -> Option<&str> {
        match self.links.get(base) {
            Some(links) => links.get(specifier).map(String::as_str),
            None => self.modules.get_key_value(specifier).map(|(id, _)| id.as_str()),
        }
    }
}

/// The map as JSON. The texts are shared between the programs of a folder.
mod shared_texts {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        modules: &BTreeMap<String, Arc<str>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(modules.iter().map(|(id, code)| (id, &**code)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, Arc<str>>, D::Error> {
        let modules = BTreeMap::<String, String>::deserialize(deserializer)?;
        Ok(modules.into_iter().map(|(id, code)| (id, code.into())).collect())
    }
}
