//! What a server offers to one caller at one moment, for code that describes the server to people.

use std::sync::Arc;

use spile_core::{
    CallTarget, Caller, CatalogView, ClientCapabilities, CompletionRef, ItemKind, Prompt, Resource,
    ResourceTemplate, Tool,
};

use crate::registry::{Registry, UnservedItem};
use crate::server::{CallerIdentity, Server};

/// Keeps one registry, so that all parts of it belong together.
pub struct OfferedCatalog {
    registry: Arc<Registry>,
    /// `None` for all of it.
    view: Option<CatalogView>,
}

impl Server {
    /// The catalog as this caller sees it.
    pub fn offered_catalog(&self, identity: &CallerIdentity) -> OfferedCatalog {
        let caller =
            Caller { principal: identity.principal.clone(), capabilities: ClientCapabilities::default() };
        let view = self.policy.get().and_then(|policy| policy.view(&caller));
        OfferedCatalog { registry: self.registry_of(&identity.principal), view }
    }
}

impl OfferedCatalog {
    pub fn version(&self) -> &str {
        &self.registry.config.version
    }

    pub fn instructions(&self) -> Option<&str> {
        self.registry.capabilities.instructions.as_deref()
    }

    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.registry.tool_definitions().filter(|tool| self.is_visible(ItemKind::Tool, &tool.name))
    }

    /// Tools that the caller may call and finds in no list.
    pub fn unlisted_tools(&self) -> impl Iterator<Item = &Tool> {
        self.registry.unlisted_tools().filter(|tool| self.is_visible(ItemKind::Tool, &tool.name))
    }

    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.registry.resource_list().filter(|resource| self.is_visible(ItemKind::Resource, &resource.uri))
    }

    pub fn resource_templates(&self) -> impl Iterator<Item = &ResourceTemplate> {
        let all = self.registry.template_list();
        all.filter(|template| self.is_visible(ItemKind::Resource, &template.uri_template))
    }

    pub fn prompts(&self) -> impl Iterator<Item = &Prompt> {
        self.registry.prompt_list().filter(|prompt| self.is_visible(ItemKind::Prompt, &prompt.name))
    }

    /// Items that cannot be served. Nobody whose view is restricted learns of them.
    pub fn unserved(&self) -> &[UnservedItem] {
        if self.view.is_some() { &[] } else { &self.registry.unserved }
    }

    /// The name under which the target of a call is listed: for a URI that a template matches, the template. `None` if the
    /// caller cannot see it, or if there is no such item: then the name is only a text that the caller sent.
    pub fn listed_name(&self, target: CallTarget, name: &str) -> Option<&str> {
        match target {
            CallTarget::Tool => self.tools().find(|tool| tool.name == name).map(|tool| &*tool.name),
            CallTarget::Prompt | CallTarget::Completion { reference: CompletionRef::Prompt, .. } => {
                self.prompts().find(|prompt| prompt.name == name).map(|prompt| &*prompt.name)
            }
            CallTarget::Resource
            | CallTarget::Completion { reference: CompletionRef::ResourceTemplate, .. } => {
                let listed = self.resources().find(|resource| resource.uri == name);
                let listed = listed.map(|resource| &*resource.uri);
                listed.or_else(|| {
                    let template = self.registry.matching_template(name)?;
                    self.is_visible(ItemKind::Resource, template).then_some(template)
                })
            }
        }
    }

    fn is_visible(&self, kind: ItemKind, name: &str) -> bool {
        self.view.as_ref().is_none_or(|view| view.visibility.is_visible(kind, name))
    }
}
