//! Sources that are REST APIs.

use std::sync::Arc;

use contract::compile::declared_columns;
use contract::manifest::{self, Manifest, SourceSettings, ToolBody};
use contract::source::{RestUrl, Source, TableOptions};
use rest::{RestCollection, RestOptions, RestSource};

use super::databases::Unusable;
use super::declared::collection_options;
use super::sources::SourceSpec;

/// What the manifest says about an API.
pub(super) struct DeclaredApi<'m> {
    collections: Vec<&'m manifest::Collection>,
    /// The tools that send requests to it, with the fields of their results.
    requests: Vec<(&'m str, &'m [manifest::Field])>,
}

impl<'m> DeclaredApi<'m> {
    /// `None` if the source is not an API.
    pub(super) fn of_source(manifest: &'m Manifest, source: &manifest::Source) -> Option<Self> {
        let SourceSettings::Rest(_) = &source.settings else { return None };
        let name = &source.name.value;
        let requests = manifest.tools.iter().filter_map(|tool| match &tool.body {
            ToolBody::Request(request) if request.source.value == *name => {
                Some((tool.name.value.as_str(), &request.fields[..]))
            }
            ToolBody::Request(_) | ToolBody::Uses(_) | ToolBody::Statement(_) => None,
        });
        Some(Self {
            collections: manifest.collections.iter().filter(|one| one.source.value == *name).collect(),
            requests: requests.collect(),
        })
    }

    fn collections(&self) -> Vec<RestCollection> {
        self.collections.iter().map(|one| rest_collection(one)).collect()
    }

    fn requests(&self) -> Vec<(String, TableOptions)> {
        let options =
            |fields| TableOptions { columns: collection_options(fields), ..TableOptions::default() };
        self.requests.iter().map(|(name, fields)| ((*name).to_owned(), options(fields))).collect()
    }

    /// What the source is opened with.
    pub(super) fn declaration(&self) -> ApiDeclaration {
        ApiDeclaration { collections: self.collections(), requests: self.requests() }
    }
}

/// Differs for every declaration that a source is opened with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiDeclaration {
    collections: Vec<RestCollection>,
    requests: Vec<(String, TableOptions)>,
}

fn rest_collection(declared: &manifest::Collection) -> RestCollection {
    let key: Vec<&str> = declared.key.iter().map(|part| part.value.as_str()).collect();
    let renamed =
        |field: &manifest::Field| Some((field.column.value.clone(), field.name.as_ref()?.value.clone()));
    RestCollection {
        name: declared.name.value.clone(),
        endpoints: declared.endpoints.clone(),
        columns: declared_columns(&declared.fields, &key),
        key: key.iter().map(|part| (*part).to_owned()).collect(),
        names: declared.fields.iter().filter_map(renamed).collect(),
        options: TableOptions {
            layout: declared.layout.clone(),
            null_texts: declared.null_texts.clone(),
            formats: declared.formats.clone(),
            columns: collection_options(&declared.fields),
        },
    }
}

/// Creates the source. Nothing is sent yet.
pub(super) fn open(url: &RestUrl, spec: &SourceSpec<'_>) -> Arc<dyn Source> {
    let (SourceSettings::Rest(settings), Some(api)) = (spec.settings, &spec.rest) else {
        return Arc::new(Unusable::not_an_api());
    };
    let mut settings = (**settings).clone();
    settings.ca_file = settings.ca_file.map(|file| spec.folder.join(file));
    let options =
        RestOptions { url: url.clone(), settings, collections: api.collections(), requests: api.requests() };
    match RestSource::new(options) {
        Ok(source) => Arc::new(source),
        Err(error) => Arc::new(Unusable::new(error)),
    }
}
