//! What `prompts/` and `resources/` need from the rest of the server: records of collections, and code.

use std::sync::Arc;

use content::{
    BackendRead, BackendRun, ContentBackend, ResourceBody, ResourceData, TemplateSource, Variables,
};
use script::ScriptProvider;
use spile_core::{CallContext, CallError, CallResult, Checkpoints, ItemKind, Outcome, ResourceContents, Run};

use super::collections::ContractCollections;

pub(super) struct FolderBackend {
    pub(super) scripts: Arc<ScriptProvider>,
    pub(super) collections: Option<Arc<ContractCollections>>,
}

impl ContentBackend for FolderBackend {
    fn complete(
        &self,
        collection: &str,
        field: &str,
        prefix: &str,
        _: &[(String, String)],
        values_max: usize,
        cx: &CallContext<'_>,
    ) -> BackendRun<Vec<String>> {
        match &self.collections {
            Some(collections) => {
                BackendRun::Later(collections.field_values(cx.caller, collection, field, prefix, values_max))
            }
            None => BackendRun::Now(Err(no_collections(collection))),
        }
    }

    fn read(
        &self,
        source: &TemplateSource,
        uri: &str,
        variables: &Variables,
        cx: &CallContext<'_>,
    ) -> BackendRun<BackendRead> {
        match source {
            TemplateSource::Script { file } => {
                let uri = uri.to_owned();
                match self.scripts.read_resource(file, &uri, variables, cx) {
                    Run::Now(outcome) => BackendRun::Now(read_of(outcome, uri)),
                    Run::Later(work) => BackendRun::Later(Box::pin(async move {
                        let mut outcome = work.await;
                        while let Outcome::Detach(work) = outcome {
                            outcome = work.start(Checkpoints::none()).await;
                        }
                        read_of(outcome, uri)
                    })),
                }
            }
            TemplateSource::Collection { collection } => match &self.collections {
                Some(collections) => {
                    let record = collections.record(cx.caller, collection, uri, variables);
                    BackendRun::Later(Box::pin(async move {
                        let text = record.await?.to_string();
                        let mime_type = Some("application/json".to_owned());
                        let body = ResourceBody { mime_type, data: ResourceData::Text(text), meta: None };
                        Ok(BackendRead::Body(body))
                    }))
                }
                None => BackendRun::Now(Err(no_collections(collection))),
            },
        }
    }
}

fn no_collections(collection: &str) -> CallError {
    CallError::Internal { detail: format!("there is no collection `{collection}`: this server has none") }
}

fn read_of(outcome: Outcome, uri: String) -> Result<BackendRead, CallError> {
    let failed = |detail: &str| CallError::Internal { detail: detail.to_owned() };
    match outcome {
        Outcome::Done(CallResult::Resource(result)) => match result.contents.into_iter().next() {
            Some(ResourceContents::Text { mime_type, text, meta, .. }) => {
                Ok(BackendRead::Body(ResourceBody { mime_type, data: ResourceData::Text(text), meta }))
            }
            Some(ResourceContents::Blob { mime_type, base64, meta, .. }) => {
                Ok(BackendRead::Body(ResourceBody { mime_type, data: ResourceData::Base64(base64), meta }))
            }
            None => Err(failed("the code of a resource returned no contents")),
        },
        Outcome::InputRequired(requests) => Ok(BackendRead::Asks(requests)),
        // The code knows its variables, not the URI.
        Outcome::Failed(CallError::UnknownItem { kind: ItemKind::Resource, .. }) => {
            Err(CallError::UnknownItem { kind: ItemKind::Resource, name: uri })
        }
        Outcome::Failed(error) => Err(error),
        Outcome::ToolFailed(error) => {
            let path = error.field.clone().unwrap_or_else(|| "params.uri".into());
            Err(CallError::InvalidParams { path, reason: error.message })
        }
        Outcome::Done(_) | Outcome::Detach(_) => Err(failed("the code of a resource did not read it")),
    }
}
