//! One file that is served as a resource, and its contents.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use json::Json;
use spile_core::{CallError, Resource, ResourceContents};

use crate::app::split_app_comment;
use crate::files::{FileTree, ReadError};
use crate::front_matter::{FrontMatter, find_front_matter};
use crate::mime;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServedFile {
    /// Which of the folders it is in.
    pub(crate) folder: usize,
    pub(crate) path: String,
    /// As lists show it.
    pub(crate) resource: Resource,
    /// Further texts that a request may have in place of the URI, in order of precedence.
    pub(crate) aliases: Vec<String>,
    pub(crate) mime_type: String,
    pub(crate) strip: Strip,
    pub(crate) is_listed: bool,
}

/// What is left out of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strip {
    Nothing,
    FrontMatter,
    AppComment,
}

impl ServedFile {
    /// The contents as they are now. `uri` is what the client asked for.
    pub(crate) fn read(
        &self,
        tree: &FileTree,
        uri: &str,
        bytes_max: u64,
    ) -> Result<ResourceContents, CallError> {
        let bytes = tree.read(&self.path, bytes_max).map_err(|error| read_error(error, uri, bytes_max))?;
        let bytes = self.strip(bytes);
        let meta = self.resource.meta.clone();
        Ok(contents(uri, &self.mime_type, bytes, meta))
    }

    fn strip(&self, bytes: Vec<u8>) -> Vec<u8> {
        let start = match (self.strip, std::str::from_utf8(&bytes)) {
            (Strip::FrontMatter, Ok(text)) => match find_front_matter(text) {
                FrontMatter::Present { body_start, .. } => body_start,
                FrontMatter::Absent | FrontMatter::Unclosed => 0,
            },
            (Strip::AppComment, Ok(text)) => split_app_comment(text).map_or(0, |comment| comment.end),
            (Strip::Nothing | Strip::FrontMatter | Strip::AppComment, _) => 0,
        };
        if start == 0 { bytes } else { bytes[start..].to_vec() }
    }
}

/// Text where the type says so and the bytes are UTF-8; base64 otherwise, so that no byte is lost.
pub(crate) fn contents(uri: &str, mime_type: &str, bytes: Vec<u8>, meta: Option<Json>) -> ResourceContents {
    let (uri, mime_type_owned) = (uri.to_owned(), Some(mime_type.to_owned()));
    let bytes = if mime::is_text_type(mime_type) {
        match String::from_utf8(bytes) {
            Ok(text) => return ResourceContents::Text { uri, mime_type: mime_type_owned, text, meta },
            Err(error) => error.into_bytes(),
        }
    } else {
        bytes
    };
    ResourceContents::Blob { uri, mime_type: mime_type_owned, base64: BASE64_STANDARD.encode(bytes), meta }
}

/// What the caller is told. A path of the file system is never part of it.
pub(crate) fn read_error(error: ReadError, uri: &str, bytes_max: u64) -> CallError {
    match error {
        ReadError::Gone => {
            CallError::UnknownItem { kind: spile_core::ItemKind::Resource, name: uri.to_owned() }
        }
        ReadError::TooLarge => CallError::InvalidParams {
            path: "params.uri".into(),
            reason: format!("the resource exceeds the limit of {bytes_max} bytes"),
        },
        ReadError::Io(error) => CallError::Internal { detail: format!("cannot read `{uri}`: {error}") },
    }
}
