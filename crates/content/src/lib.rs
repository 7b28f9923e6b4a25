//! Prompts, resources, skills and apps from the files of a folder, without any code.
//!
//! [`Folder::load`] walks `prompts/`, `resources/`, `skills/` and `apps/`, parses everything into typed values and reports
//! what is wrong with its position; one broken file never takes the others along. [`ContentProvider`] serves the result.
//! [`FolderWatch`] notices changes, and [`ContentProvider::reload`] tells clients what differs.
//!
//! Nothing here knows the protocol's versions or transports, or where collections and scripts are: those are behind
//! [`ContentBackend`]. No text from a client becomes a path: a request is compared with the names that a walk found.

mod app;
mod backend;
mod files;
mod folder;
mod front_matter;
mod limits;
mod mime;
mod prompt;
mod provider;
mod resource;
mod served;
mod skill;
mod template;
mod uri;
mod uri_template;
mod watch;
mod yaml;

pub use app::APP_MIME_TYPE;
pub use backend::{
    BackendFuture, BackendRead, BackendRun, CompletionSource, ContentBackend, NoBackend, ResourceBody,
    ResourceData, TemplateSource,
};
pub use folder::{ContentPaths, Folder, Loaded, Watching};
pub use front_matter::{Annotations, LastModified, front_matter_json};
pub use limits::ContentLimits;
pub use provider::ContentProvider;
pub use resource::{ResourceSettings, TemplateSettings};
pub use uri_template::Variables;
pub use watch::{FolderWatch, Poll, watch_folder};
pub use yaml::yaml_to_json;
