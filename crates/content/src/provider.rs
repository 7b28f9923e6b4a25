//! Serves a loaded folder: prompts, resources and completions.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use json::Node;
use spile_core::{
    Call, CallContext, CallError, CallResult, CallTarget, Catalog, CatalogChange, ChangeListener,
    CompletionRef, CompletionResult, ContentBlock, InputRequests, ItemKind, Outcome, Principal,
    PromptMessage, PromptResult, Provider, ResourceContents, ResourceResult, Run,
};

use crate::backend::{
    BackendFuture, BackendRead, BackendRun, CompletionSource, ContentBackend, ResourceBody, ResourceData,
};
use crate::folder::{Loaded, RESOURCES};
use crate::prompt::{LoadedPrompt, invalid_argument};
use crate::served::read_error;
use crate::template::{MediaFile, Piece, PieceContent, TooLarge};

/// A file up to this size is read where the call runs: a thread hop would take longer.
const INLINE_READ_BYTES_MAX: u64 = 256 << 10;

/// The content folder of a server.
pub struct ContentProvider {
    loaded: RwLock<Arc<Loaded>>,
    backend: Arc<dyn ContentBackend>,
    listener: Mutex<Option<Arc<dyn ChangeListener>>>,
    /// The resources that clients subscribed to, as they named them.
    watched: Mutex<BTreeSet<String>>,
}

impl ContentProvider {
    pub fn new(loaded: Loaded, backend: Arc<dyn ContentBackend>) -> Self {
        Self {
            loaded: RwLock::new(Arc::new(loaded)),
            backend,
            listener: Mutex::default(),
            watched: Mutex::default(),
        }
    }

    /// Serves a new state of the folder, and reports what differs. Calls in flight finish with the old one.
    pub fn reload(&self, loaded: Loaded) {
        let new = Arc::new(loaded);
        let old =
            std::mem::replace(&mut *self.loaded.write().unwrap_or_else(PoisonError::into_inner), new.clone());
        let (before, after) = (&old.catalog, &new.catalog);
        if before.prompts != after.prompts || before.completions != after.completions {
            self.notify(CatalogChange::Prompts);
        }
        let has_same_resources = before.resources == after.resources
            && before.resource_templates == after.resource_templates
            && before.skills == after.skills
            && before.directories == after.directories
            && before.resource_subscriptions == after.resource_subscriptions;
        if !has_same_resources {
            self.notify(CatalogChange::Resources);
        }
        let watched: Vec<String> = lock(&self.watched).iter().cloned().collect();
        for uri in watched {
            if has_changed(&old, &new, &uri) {
                self.notify(CatalogChange::Resource(uri.into()));
            }
        }
    }

    /// Reports that a resource of a template has changed, if a client subscribed to it.
    pub fn resource_changed(&self, uri: &str) {
        if lock(&self.watched).contains(uri) {
            self.notify(CatalogChange::Resource(uri.into()));
        }
    }

    fn notify(&self, change: CatalogChange) {
        // The listener reads the catalog: no lock may be held.
        let listener = lock(&self.listener).clone();
        if let Some(listener) = listener {
            listener.catalog_changed(change);
        }
    }

    fn loaded(&self) -> Arc<Loaded> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn read_resource(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let public = matches!(cx.caller.principal, Principal::Anonymous);
        let finish = move |read: Result<Read, CallError>| match read {
            Ok(Read::Contents(contents)) => Outcome::Done(CallResult::Resource(ResourceResult {
                contents: vec![contents],
                // A file may change at any time; who wants to know subscribes.
                ttl_ms: 0,
                public,
            })),
            Ok(Read::Asks(requests)) => Outcome::InputRequired(requests),
            Err(error) => Outcome::Failed(error),
        };
        match self.read(&self.loaded(), &call.name(), cx) {
            BackendRun::Now(contents) => Run::Now(finish(contents)),
            BackendRun::Later(future) => Run::later(async move { finish(future.await) }),
        }
    }

    /// The contents of whatever `reference` names: a URI, or a path inside a folder.
    fn read(&self, loaded: &Arc<Loaded>, reference: &str, cx: &CallContext<'_>) -> BackendRun<Read> {
        if let Some(index) = loaded.by_reference.get(reference).copied() {
            return read_file(loaded, index);
        }
        let Some((template, variables)) = loaded.template(reference) else {
            return BackendRun::Now(Err(unknown_resource(reference)));
        };
        let settings = &template.settings;
        let declared = settings.mime_type.clone();
        let uri = reference.to_owned();
        let finish = move |read: Result<BackendRead, CallError>| {
            let ResourceBody { mime_type, data, meta } = match read? {
                BackendRead::Body(body) => body,
                BackendRead::Asks(requests) => return Ok(Read::Asks(requests)),
            };
            let mime_type = mime_type.or(declared);
            Ok(Read::Contents(match data {
                ResourceData::Text(text) => ResourceContents::Text { uri, mime_type, text, meta },
                ResourceData::Base64(base64) => ResourceContents::Blob { uri, mime_type, base64, meta },
            }))
        };
        match self.backend.read(&settings.source, reference, &variables, cx) {
            BackendRun::Now(body) => BackendRun::Now(finish(body)),
            BackendRun::Later(future) => BackendRun::Later(Box::pin(async move { finish(future.await) })),
        }
    }

    fn get_prompt(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let loaded = self.loaded();
        let Some(prompt) = loaded.prompt(&call.name()) else {
            return Run::now(CallError::UnknownItem {
                kind: ItemKind::Prompt,
                name: call.name().into_owned(),
            });
        };
        let pieces = prompt.values(call).and_then(|values| {
            prompt.template.render(&values, &loaded.limits).map_err(|TooLarge| CallError::InvalidParams {
                path: "params.arguments".into(),
                reason: format!("the prompt exceeds the limit of {} bytes", loaded.limits.rendered_bytes_max),
            })
        });
        let pieces = match pieces {
            Ok(pieces) => pieces,
            Err(error) => return Run::now(error),
        };
        let description = prompt.prompt.description.clone();
        // Started all at once; a backend's future does its work only when it is awaited.
        let blocks: Vec<_> =
            pieces.into_iter().map(|piece| (piece.role, self.block(&loaded, prompt, piece, cx))).collect();
        let finish = |description, messages| CallResult::Prompt(PromptResult { description, messages });
        if blocks.iter().all(|(_, block)| matches!(block, BackendRun::Now(_))) {
            let messages: Result<Vec<_>, CallError> = blocks
                .into_iter()
                .filter_map(|(role, block)| match block {
                    BackendRun::Now(content) => Some(content.map(|content| PromptMessage { role, content })),
                    BackendRun::Later(_) => None,
                })
                .collect();
            return match messages {
                Ok(messages) => Run::now(finish(description, messages)),
                Err(error) => Run::now(error),
            };
        }
        Run::later(async move {
            let mut messages = Vec::with_capacity(blocks.len());
            for (role, block) in blocks {
                let content = match block {
                    BackendRun::Now(content) => content,
                    BackendRun::Later(future) => future.await,
                };
                match content {
                    Ok(content) => messages.push(PromptMessage { role, content }),
                    Err(error) => return Outcome::Failed(error),
                }
            }
            finish(description, messages).into()
        })
    }

    fn block(
        &self,
        loaded: &Arc<Loaded>,
        prompt: &LoadedPrompt,
        piece: Piece,
        cx: &CallContext<'_>,
    ) -> BackendRun<ContentBlock> {
        let (reference, argument) = match piece.content {
            PieceContent::Text(text) => return BackendRun::Now(Ok(ContentBlock::Text(text))),
            PieceContent::Media(media) => return BackendRun::Now(read_media(loaded, &media)),
            PieceContent::Resource(reference, argument) => (reference, argument),
        };
        let argument =
            argument.and_then(|index| prompt.arguments.get(index)).map(|argument| argument.name.clone());
        let finish = move |read: Result<Read, CallError>| match (read, argument) {
            (Ok(Read::Contents(contents)), _) => Ok(ContentBlock::EmbeddedResource(contents)),
            // Its journal would be that of the prompt, which may embed several.
            (Ok(Read::Asks(_)), _) => Err(CallError::Internal {
                detail:
                    "an embedded resource asks for input, which only a resource that is read by itself can"
                        .into(),
            }),
            // The caller named it: the error says where.
            (Err(CallError::UnknownItem { name, .. }), Some(argument)) => {
                Err(invalid_argument(&argument, &format!("unknown resource `{name}`")))
            }
            (Err(error), _) => Err(error),
        };
        match self.read(loaded, &reference, cx) {
            BackendRun::Now(contents) => BackendRun::Now(finish(contents)),
            BackendRun::Later(future) => BackendRun::Later(Box::pin(async move { finish(future.await) })),
        }
    }

    fn complete(&self, call: &Call, completion: &Completion<'_>, cx: &CallContext<'_>) -> Run {
        let loaded = self.loaded();
        let source = match find_completion(&loaded, call, completion) {
            Ok(Some(source)) => source,
            Ok(None) => return done(CompletionResult::default()),
            Err(error) => return Run::now(error),
        };
        match source {
            CompletionSource::Values(values) => {
                let values = values.iter().filter(|value| has_prefix(value, completion.prefix)).cloned();
                done(CompletionResult::from_values(values))
            }
            CompletionSource::Files { folder } => {
                let is_inside = |path: &&str| {
                    folder.is_empty()
                        || path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
                };
                let files = loaded.files.iter().filter(|file| file.folder == RESOURCES && file.is_listed);
                let paths = files.map(|file| file.path.as_str()).filter(is_inside);
                let paths = paths.filter(|path| has_prefix(path, completion.prefix)).map(str::to_owned);
                done(CompletionResult::from_values(paths))
            }
            CompletionSource::Collection { collection, field } => {
                // One more than fits says whether there are more.
                let values_max = CompletionResult::VALUES_MAX + 1;
                let run = self.backend.complete(
                    collection,
                    field,
                    completion.prefix,
                    &completion.context,
                    values_max,
                    cx,
                );
                let finish = |values: Result<Vec<String>, CallError>| match values {
                    Ok(values) => CallResult::Completion(CompletionResult::from_page(values)).into(),
                    Err(error) => Outcome::Failed(error),
                };
                match run {
                    BackendRun::Now(values) => Run::Now(finish(values)),
                    BackendRun::Later(future) => Run::later(async move { finish(future.await) }),
                }
            }
        }
    }
}

impl Provider for ContentProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.loaded().catalog.clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        match call.target {
            CallTarget::Tool => {
                Run::now(CallError::UnknownItem { kind: ItemKind::Tool, name: call.name().into_owned() })
            }
            CallTarget::Prompt => self.get_prompt(call, cx),
            CallTarget::Resource => self.read_resource(call, cx),
            CallTarget::Completion { reference, argument_index, value_index, context_index } => {
                let node = |index| call.doc().node(index);
                let argument = node(argument_index).str().unwrap_or_default();
                let prefix = node(value_index).str().unwrap_or_default();
                let context = context_index.map(|index| text_members(node(index))).unwrap_or_default();
                let completion = Completion { reference, argument: &argument, prefix: &prefix, context };
                self.complete(call, &completion, cx)
            }
        }
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        *lock(&self.listener) = Some(listener);
    }

    fn watch(&self, uri: &str) {
        lock(&self.watched).insert(uri.to_owned());
    }

    fn unwatch(&self, uri: &str) {
        lock(&self.watched).remove(uri);
    }
}

/// What reading a resource ended with.
enum Read {
    Contents(ResourceContents),
    Asks(InputRequests),
}

struct Completion<'a> {
    reference: CompletionRef,
    argument: &'a str,
    /// What the user has typed.
    prefix: &'a str,
    /// Arguments that are already filled in.
    context: Vec<(String, String)>,
}

fn done(result: CompletionResult) -> Run {
    Run::now(CallResult::Completion(result))
}

fn find_completion<'l>(
    loaded: &'l Loaded,
    call: &Call,
    completion: &Completion<'_>,
) -> Result<Option<&'l CompletionSource>, CallError> {
    let unknown_argument = || CallError::InvalidParams {
        path: "params.argument.name".into(),
        reason: format!("unknown argument `{}`", completion.argument),
    };
    match completion.reference {
        CompletionRef::Prompt => {
            let prompt = loaded.prompt(&call.name()).ok_or_else(|| CallError::UnknownItem {
                kind: ItemKind::Prompt,
                name: call.name().into_owned(),
            })?;
            let argument = prompt.arguments.iter().find(|argument| argument.name == completion.argument);
            Ok(argument.ok_or_else(unknown_argument)?.completion.as_ref())
        }
        CompletionRef::ResourceTemplate => {
            let template =
                loaded.templates.iter().find(|template| template.settings.uri_template == call.name());
            // A resource without variables has nothing to complete.
            let Some(template) = template else { return Ok(None) };
            if !template.template.variables().any(|variable| variable == completion.argument) {
                return Err(unknown_argument());
            }
            let completions = &template.settings.completions;
            Ok(completions
                .iter()
                .find(|(variable, _)| variable == completion.argument)
                .map(|(_, source)| source))
        }
    }
}

/// People type in lower case.
fn has_prefix(value: &str, prefix: &str) -> bool {
    let mut characters = value.chars().flat_map(char::to_lowercase);
    prefix.chars().flat_map(char::to_lowercase).all(|expected| characters.next() == Some(expected))
}

/// The members of an object whose values are texts.
fn text_members(object: Node<'_>) -> Vec<(String, String)> {
    let text = |node: Node<'_>| node.str().map(|text| text.into_owned());
    object.members().filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect()
}

fn unknown_resource(reference: &str) -> CallError {
    CallError::UnknownItem { kind: ItemKind::Resource, name: reference.to_owned() }
}

fn read_file(loaded: &Arc<Loaded>, index: usize) -> BackendRun<Read> {
    let file = &loaded.files[index];
    let tree = &loaded.trees[file.folder];
    let bytes_max = loaded.limits.resource_bytes_max;
    if tree.files.get(&file.path).is_some_and(|entry| entry.bytes() <= INLINE_READ_BYTES_MAX) {
        return BackendRun::Now(file.read(tree, &file.resource.uri, bytes_max).map(Read::Contents));
    }
    let loaded = loaded.clone();
    let read: BackendFuture<Read> = Box::pin(async move {
        let work = tokio::task::spawn_blocking(move || {
            let file = &loaded.files[index];
            file.read(&loaded.trees[file.folder], &file.resource.uri, bytes_max).map(Read::Contents)
        });
        work.await.unwrap_or_else(|error| Err(CallError::Internal { detail: error.to_string() }))
    });
    BackendRun::Later(read)
}

fn read_media(loaded: &Loaded, media: &MediaFile) -> Result<ContentBlock, CallError> {
    let bytes_max = loaded.limits.resource_bytes_max;
    let bytes = loaded.trees[media.folder].read(&media.path, bytes_max);
    let bytes = bytes.map_err(|error| match read_error(error, &media.path, bytes_max) {
        error @ CallError::Internal { .. } => error,
        // The caller did not name the file: that it is missing is not their error.
        other => CallError::Internal { detail: format!("prompt file `{}`: {other}", media.path) },
    })?;
    let (data, mime_type) = (BASE64_STANDARD.encode(bytes), media.mime_type.clone());
    Ok(match mime_type.starts_with("image/") {
        true => ContentBlock::Image { data, mime_type },
        false => ContentBlock::Audio { data, mime_type },
    })
}

/// Whether the contents that `uri` names may differ.
fn has_changed(old: &Loaded, new: &Loaded, uri: &str) -> bool {
    let state = |loaded: &Loaded| {
        loaded.file(uri).map(|file| {
            let stamp = loaded.trees[file.folder].files.get(&file.path).map(|entry| entry.stamp);
            (
                file.folder,
                file.path.clone(),
                stamp,
                file.strip,
                file.mime_type.clone(),
                file.resource.meta.clone(),
            )
        })
    };
    state(old) != state(new)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
