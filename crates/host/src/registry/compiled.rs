//! The catalog of one provider, compiled. A tool is compiled once and reused until its definition changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use contract::compatibility::{ToolDigest, ToolInterface};
use contract::{CompiledSchema, HeaderParam, header_params};
use hashbrown::HashMap;
use json::Json;
use spile_core::{Catalog, ItemKind, Provider, Tool, Visibility};
use wire::{Version, encode};

use crate::rate_limit::{RateLimiter, SharedLimit};

/// A tool and the provider that runs it.
pub(crate) struct ToolEntry {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) compiled: Arc<CompiledTool>,
    /// `None` if calls are not limited.
    pub(crate) rate_limiter: Option<Box<RateLimiter>>,
    /// `None` means the server's default.
    pub(crate) call_timeout_ms: Option<u64>,
    /// Whether its successful results must be checked against the output schema.
    pub(crate) checks_output: bool,
}

/// What depends only on the definition of a tool.
pub(crate) struct CompiledTool {
    pub(crate) definition: Tool,
    /// Tools with the same schema share it.
    pub(crate) input_schema: Arc<CompiledSchema>,
    pub(crate) header_params: Vec<HeaderParam>,
    /// Whether its annotations say that it writes.
    pub(crate) writes: bool,
    digest: OnceLock<ToolDigest>,
    output_schema: OnceLock<Option<CompiledSchema>>,
    rendered: [OnceLock<Box<[u8]>>; Version::ALL.len()],
}

/// The input schemas of one catalog, by their text. Many tools take the same arguments.
#[derive(Default)]
struct SchemaCache<'c>(HashMap<&'c str, Arc<CompiledSchema>, foldhash::quality::RandomState>);

impl<'c> SchemaCache<'c> {
    fn compile(&mut self, schema: &'c Json) -> Result<Arc<CompiledSchema>, contract::SchemaError> {
        if let Some(known) = self.0.get(schema.as_str()) {
            return Ok(known.clone());
        }
        let compiled = Arc::new(CompiledSchema::compile(schema)?);
        self.0.insert(schema.as_str(), compiled.clone());
        Ok(compiled)
    }
}

/// The tools of an earlier catalog.
struct EntriesByName<'c>(HashMap<&'c str, &'c Arc<ToolEntry>, foldhash::quality::RandomState>);

impl<'c> EntriesByName<'c> {
    fn new(catalog: Option<&'c CompiledCatalog>) -> Self {
        let tools = catalog.into_iter().flat_map(|catalog| &catalog.tools);
        Self(tools.map(|tool| (&*tool.compiled.definition.name, tool)).collect())
    }

    fn find(&self, tool: &Tool) -> Option<&'c Arc<ToolEntry>> {
        self.0.get(&*tool.name).copied()
    }
}

/// An item of a catalog that cannot be served. Its neighbours are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnservedItem {
    /// The name of the provider.
    pub provider: Arc<str>,
    pub kind: ItemKind,
    pub name: String,
    pub reason: String,
}

/// A provider's catalog with its tools compiled.
pub(crate) struct CompiledCatalog {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) tools: Vec<Arc<ToolEntry>>,
    pub(crate) unserved: Vec<UnservedItem>,
    shared_limit: Option<Arc<SharedLimit>>,
}

impl CompiledTool {
    fn new<'c>(tool: &'c Tool, schemas: &mut SchemaCache<'c>) -> Result<Self, contract::SchemaError> {
        Ok(Self {
            input_schema: schemas.compile(&tool.input_schema)?,
            header_params: header_params(&tool.input_schema)?,
            writes: tool.annotations.read_only == Some(false),
            digest: OnceLock::new(),
            output_schema: OnceLock::new(),
            rendered: Default::default(),
            definition: tool.clone(),
        })
    }

    /// What the tool takes, returns and does, without texts.
    pub(crate) fn structural_digest(&self) -> ToolDigest {
        *self.digest.get_or_init(|| ToolInterface::from_tool(&self.definition).structural_digest())
    }

    /// Whether the output schema allows this structured content. Without a schema everything is allowed.
    pub(crate) fn output_schema_allows(&self, json: &Json) -> bool {
        let Some(schema) = &self.definition.output_schema else { return true };
        self.output_schema
            .get_or_init(|| CompiledSchema::compile(schema).ok())
            .as_ref()
            .is_some_and(|compiled| compiled.is_valid(json))
    }

    /// The tool as it stands in the lists of a version.
    pub(crate) fn rendered(&self, version: Version) -> &[u8] {
        self.rendered[version.index()].get_or_init(|| encode::rendered_tool(version, &self.definition))
    }
}

impl CompiledCatalog {
    /// The part of it that callers with a role see.
    pub(crate) fn filtered(&self, visibility: &dyn Visibility) -> Self {
        let is_visible = |kind, name: &str| visibility.is_visible(kind, name);
        let mut catalog = Catalog::clone(&self.catalog);
        catalog.tools.retain(|tool| is_visible(ItemKind::Tool, &tool.name));
        catalog.prompts.retain(|prompt| is_visible(ItemKind::Prompt, &prompt.name));
        catalog.resources.retain(|resource| is_visible(ItemKind::Resource, &resource.uri));
        catalog.resource_templates.retain(|one| is_visible(ItemKind::Resource, &one.uri_template));
        catalog.skills.retain(|skill| is_visible(ItemKind::Resource, &skill.uri));
        let tools = self.tools.iter();
        let tools = tools.filter(|tool| is_visible(ItemKind::Tool, &tool.compiled.definition.name));
        Self {
            catalog: Arc::new(catalog),
            tools: tools.cloned().collect(),
            unserved: Vec::new(),
            shared_limit: self.shared_limit.clone(),
        }
    }

    /// Compiles the tools whose definition is not in `previous`. Rate limits continue to count where `previous` left off.
    pub(crate) fn new(
        name: &Arc<str>,
        provider: &Arc<dyn Provider>,
        previous: Option<&Self>,
        compilations: &AtomicU64,
    ) -> Self {
        Self::compile(name, provider, previous, None, compilations)
    }

    /// What a role sees of a provider. Its calls count with those of the `whole` catalog; tools that differ from it are
    /// compiled, unless `known`, what the role saw before, has them.
    pub(crate) fn of_role(
        name: &Arc<str>,
        provider: &Arc<dyn Provider>,
        whole: &Self,
        known: Option<&Self>,
        compilations: &AtomicU64,
    ) -> Self {
        Self::compile(name, provider, Some(whole), known, compilations)
    }

    fn compile(
        name: &Arc<str>,
        provider: &Arc<dyn Provider>,
        previous: Option<&Self>,
        also_known: Option<&Self>,
        compilations: &AtomicU64,
    ) -> Self {
        let catalog = provider.catalog();
        let shared_limit = catalog.rate_limit.map(|rate| {
            SharedLimit::new_or_reuse(rate, previous.and_then(|previous| previous.shared_limit.as_ref()))
        });
        let (known, also_known) = (EntriesByName::new(previous), EntriesByName::new(also_known));
        let checks_output = !provider.guarantees_output_schemas();
        let mut tools = Vec::with_capacity(catalog.tools.len());
        let mut unserved = Vec::new();
        let mut schemas = SchemaCache::default();
        for tool in &catalog.tools {
            let known = known.find(tool);
            let mut same = [known, also_known.find(tool)].into_iter().flatten();
            let compiled = match same.find(|entry| entry.compiled.definition == *tool) {
                Some(entry) => entry.compiled.clone(),
                None => {
                    compilations.fetch_add(1, Ordering::Relaxed);
                    match CompiledTool::new(tool, &mut schemas) {
                        Ok(compiled) => Arc::new(compiled),
                        Err(reason) => {
                            unserved.push(UnservedItem {
                                provider: name.clone(),
                                kind: ItemKind::Tool,
                                name: tool.name.clone(),
                                reason: reason.to_string(),
                            });
                            continue;
                        }
                    }
                }
            };
            let rate_limiter = RateLimiter::new(
                tool.rate_limit,
                shared_limit.as_ref(),
                known.and_then(|entry| entry.rate_limiter.as_deref()),
            );
            tools.push(Arc::new(ToolEntry {
                provider: provider.clone(),
                compiled,
                rate_limiter,
                call_timeout_ms: tool.call_timeout_ms,
                checks_output,
            }));
        }
        drop(schemas);
        Self { catalog, tools, unserved, shared_limit }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json::Json;

    use super::SchemaCache;

    #[test]
    fn tools_with_the_same_schema_share_what_it_is_compiled_to() {
        let schema = |text: &str| Json::parse(text).expect("JSON");
        let (one, same) = (schema(r#"{"type":"object"}"#), schema(r#"{"type":"object"}"#));
        let (other, invalid) = (schema(r#"{"type":"object","minProperties":1}"#), schema(r#"{"type":7}"#));
        let mut schemas = SchemaCache::default();
        let compiled = schemas.compile(&one).expect("a schema");
        assert!(Arc::ptr_eq(&compiled, &schemas.compile(&same).expect("a schema")));
        assert!(!Arc::ptr_eq(&compiled, &schemas.compile(&other).expect("a schema")));
        assert!(schemas.compile(&invalid).is_err() && schemas.compile(&invalid).is_err());
    }
}
