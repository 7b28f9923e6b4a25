//! What content needs from the rest of a server: the values of collections, and what a script returns.

use std::future::Future;
use std::pin::Pin;

use json::Json;
use spile_core::{CallContext, CallError, InputRequests};

use crate::uri_template::Variables;

/// Where the suggested values of an argument come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompletionSource {
    Values(Vec<String>),
    /// The values of one field of a collection.
    Collection {
        collection: String,
        field: String,
    },
    /// The paths of files in `resources/`, or in one folder of it.
    Files {
        folder: String,
    },
}

/// What a resource template reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateSource {
    /// The record with the key that the variables have.
    Collection { collection: String },
    /// The file of a script, as the manifest names it.
    Script { file: String },
}

/// Reads collections and runs scripts. The binary implements it.
pub trait ContentBackend: Send + Sync {
    /// Values of a field that start with `prefix`, at most `values_max`. `context` has the arguments that the user has
    /// already filled in.
    fn complete(
        &self,
        collection: &str,
        field: &str,
        prefix: &str,
        context: &[(String, String)],
        values_max: usize,
        cx: &CallContext<'_>,
    ) -> BackendRun<Vec<String>>;

    /// Reads one resource of a template. A URI that names no record is [`CallError::UnknownItem`].
    fn read(
        &self,
        source: &TemplateSource,
        uri: &str,
        variables: &Variables,
        cx: &CallContext<'_>,
    ) -> BackendRun<BackendRead>;
}

/// What reading a resource ended with.
#[derive(Debug)]
pub enum BackendRead {
    Body(ResourceBody),
    /// A script needs input from the caller.
    Asks(InputRequests),
}

/// The result of a backend: at once, or later. Dropping the future stops the work.
pub enum BackendRun<T> {
    Now(Result<T, CallError>),
    Later(BackendFuture<T>),
}

pub type BackendFuture<T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send>>;

/// The contents of a resource that is not a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceBody {
    /// `None` means the type that the template declares.
    pub mime_type: Option<String>,
    pub data: ResourceData,
    pub meta: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceData {
    Text(String),
    Base64(String),
}

/// For folders without templates and without completion from collections.
pub struct NoBackend;

impl ContentBackend for NoBackend {
    fn complete(
        &self,
        collection: &str,
        _: &str,
        _: &str,
        _: &[(String, String)],
        _: usize,
        _: &CallContext<'_>,
    ) -> BackendRun<Vec<String>> {
        BackendRun::Now(Err(CallError::Internal {
            detail: format!("no backend for collection `{collection}`"),
        }))
    }

    fn read(
        &self,
        source: &TemplateSource,
        _: &str,
        _: &Variables,
        _: &CallContext<'_>,
    ) -> BackendRun<BackendRead> {
        BackendRun::Now(Err(CallError::Internal { detail: format!("no backend for {source:?}") }))
    }
}
