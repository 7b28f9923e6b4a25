//! The page that a server shows in a browser: a view in, HTML out.
//!
//! [`render`] is a pure function of a [`PageView`]. Names, descriptions and schemas come from the owners of data and of
//! other servers, so all of them are hostile: text enters a document only through [`html::HtmlWriter`], which escapes it.
//!
//! Deliberately absent: HTTP, the clock, the registry, and anything that could change the server.

mod activity;
pub mod html;
mod render;
mod schema;
mod view;

pub use activity::{activity_json, overview_json};
pub use render::{render, render_unauthorized};
pub use view::{
    CallOutcome, CallView, ConnectSnippet, PageView, ReloadView, ServerView, SourceView, UnservedView,
    UpstreamHealth, UpstreamView,
};

/// A file that the page refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    pub path: &'static str,
    pub content_type: &'static str,
    pub body: &'static str,
}

/// The path of [`activity_json`].
pub const ACTIVITY_PATH: &str = "/-/activity";

/// Everything below it belongs to the page.
pub const PATH_PREFIX: &str = "/-/";

pub const ASSETS: [Asset; 3] = [
    Asset {
        path: "/-/page.css",
        content_type: "text/css; charset=utf-8",
        body: include_str!("assets/page.css"),
    },
    Asset {
        path: "/-/page.js",
        content_type: "text/javascript; charset=utf-8",
        body: include_str!("assets/page.js"),
    },
    Asset { path: "/-/icon.svg", content_type: "image/svg+xml", body: include_str!("assets/icon.svg") },
];

/// The headers of every response that belongs to the page. Nothing is loaded from elsewhere, no script or style stands in
/// the document itself, and no other site may frame it.
pub const SECURITY_HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];
