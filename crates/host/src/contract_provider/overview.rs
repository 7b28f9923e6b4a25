//! The overview of a contract as a resource.

use contract::{Contract, Overview};
use spile_core::{CallResult, Outcome, Resource, ResourceContents, ResourceResult, ResourceTemplate};

use super::ProviderInner;

pub(super) fn resource(contract: &Contract) -> Option<Resource> {
    contract.overview.as_ref()?;
    // Without its size: the list of resources must not change with the data.
    Some(Resource {
        uri: Overview::URI.into(),
        name: "overview".into(),
        title: Some("Overview".into()),
        description: Some("All collections with their columns, types, links and tools.".into()),
        mime_type: Some(Overview::MIME_TYPE.into()),
        ..Resource::default()
    })
}

/// For collections that do not fit into the overview with all their columns.
pub(super) fn resource_template(contract: &Contract) -> Option<ResourceTemplate> {
    let overview = contract.overview.as_ref().filter(|overview| !overview.details.is_empty())?;
    let example = overview.details.first().map_or("", |(name, _)| name.as_str());
    Some(ResourceTemplate {
        uri_template: format!("{}/{{collection}}", Overview::URI),
        name: "collection-overview".into(),
        title: Some("Overview of a collection".into()),
        description: Some(format!("All columns of one collection, such as {}/{example}.", Overview::URI)),
        mime_type: Some(Overview::MIME_TYPE.into()),
        ..ResourceTemplate::default()
    })
}

impl ProviderInner {
    /// `None` if the URI is not that of an overview.
    pub(super) fn read_overview(&self, uri: &str) -> Option<Outcome> {
        let overview = self.contract.overview.as_ref()?;
        let text = match uri.strip_prefix(Overview::URI)?.strip_prefix('/') {
            Some(name) => &overview.details.iter().find(|(one, _)| one == name)?.1,
            None if uri == Overview::URI => &overview.text,
            None => return None,
        };
        let contents = ResourceContents::Text {
            uri: uri.to_owned(),
            mime_type: Some(Overview::MIME_TYPE.into()),
            text: text.clone(),
            meta: None,
        };
        let result = ResourceResult { contents: vec![contents], ttl_ms: 0, public: false };
        Some(CallResult::Resource(result).into())
    }
}
