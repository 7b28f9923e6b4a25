//! Sources that are REST APIs: their settings, and the endpoints of their collections.

use std::path::PathBuf;

use super::RateLimit;
use crate::diagnostic::Located;
use crate::request::{Method, PathTemplate, RequestTemplate};
use crate::source::Secret;

pub const REQUESTS_MAX_DEFAULT: u32 = 4;
pub const REQUESTS_MAX_LIMIT: u32 = 64;
pub const REQUEST_TIMEOUT_MS_DEFAULT: u64 = 10_000;
pub const REQUEST_TIMEOUT_MS_LIMIT: u64 = 10 * 60 * 1000;
pub const RESPONSE_BYTES_MAX_DEFAULT: u32 = 16 << 20;
pub const RESPONSE_BYTES_MAX_MINIMUM: u32 = 1 << 10;
pub const RESPONSE_BYTES_MAX_LIMIT: u32 = 256 << 20;
pub const PAGES_MAX_DEFAULT: u32 = 100;
pub const PAGES_MAX_LIMIT: u32 = 10_000;
pub const READ_ROWS_MAX_DEFAULT: u32 = 100_000;
pub const READ_ROWS_MAX_LIMIT: u32 = 1_000_000;
pub const PAGE_SIZE_LIMIT: u32 = 10_000;

/// How to reach a REST API, and what is allowed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestSettings {
    pub auth: Option<RestAuth>,
    /// Of every request. May hold keys.
    pub headers: Vec<(String, Secret)>,
    /// Of every request. May hold keys.
    pub query: Vec<(String, Secret)>,
    pub allow_private_addresses: bool,
    pub redirects: RedirectPolicy,
    pub requests_max: u32,
    pub rate_limit: Option<RateLimit>,
    pub timeout_ms: u64,
    pub response_bytes_max: u32,
    pub pages_max: u32,
    pub read_rows_max: u32,
    /// Certificates of authorities to trust in addition to those of the system, relative to the manifest.
    pub ca_file: Option<PathBuf>,
}

impl Default for RestSettings {
    fn default() -> Self {
        Self {
            auth: None,
            headers: Vec::new(),
            query: Vec::new(),
            allow_private_addresses: false,
            redirects: RedirectPolicy::default(),
            requests_max: REQUESTS_MAX_DEFAULT,
            rate_limit: None,
            timeout_ms: REQUEST_TIMEOUT_MS_DEFAULT,
            response_bytes_max: RESPONSE_BYTES_MAX_DEFAULT,
            pages_max: PAGES_MAX_DEFAULT,
            read_rows_max: READ_ROWS_MAX_DEFAULT,
            ca_file: None,
        }
    }
}

/// The credentials of a REST API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestAuth {
    Bearer(Secret),
    Basic { user: Secret, password: Secret },
    Header { name: String, value: Secret },
    ClientCredentials { token_url: String, client_id: Secret, client_secret: Secret, scope: Option<String> },
}

/// Which redirects of a reading request are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedirectPolicy {
    /// Those that stay below the URL of the source.
    #[default]
    SameOrigin,
    /// Also to other hosts, with no credentials to send.
    Any,
    None,
}

/// The endpoints of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CollectionEndpoints {
    pub list: Option<ListEndpoint>,
    pub get: Option<GetEndpoint>,
    pub create: Option<WriteEndpoint>,
    pub update: Option<WriteEndpoint>,
    pub delete: Option<WriteEndpoint>,
}

/// `list = { path = "/orders", items = "/data" }`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListEndpoint {
    pub path: PathTemplate,
    /// A JSON pointer to the array of records.
    pub items: String,
    pub query: Vec<(String, String)>,
    pub format: ListFormat,
    pub paging: Paging,
    /// An argument of the list tool, and the parameter of the query for it.
    pub filters: Vec<(String, String)>,
}

/// What the response of a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListFormat {
    #[default]
    Json,
    Csv,
    /// An object in each line.
    JsonLines,
}

/// How a list is divided into pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Paging {
    pub style: PageStyle,
    /// A JSON pointer to `true` if there are more pages.
    pub more: Option<String>,
    /// A JSON pointer to the number of records of all pages.
    pub total: Option<String>,
    /// The parameter for the size of a page, and the size.
    pub size: Option<(String, u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PageStyle {
    /// One response has all records.
    #[default]
    Single,
    Page {
        parameter: String,
        first: u64,
    },
    Offset {
        parameter: String,
    },
    Cursor {
        parameter: String,
        next: CursorPointer,
    },
    /// The URL of the next page is at a JSON pointer, or in the `Link` header.
    Link {
        next: Option<String>,
    },
}

/// Where the cursor of the next page is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorPointer {
    /// In the response.
    Response(String),
    /// In the last record.
    LastItem(String),
}

/// `get = { path = "/orders/{id}" }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetEndpoint {
    pub path: PathTemplate,
    /// A JSON pointer to the record.
    pub item: String,
    pub query: Vec<(String, String)>,
}

/// `update = { method = "PUT", path = "/orders/{id}" }`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteEndpoint {
    pub method: Method,
    pub path: PathTemplate,
    /// A JSON pointer to where the record is in the body.
    pub body_at: String,
    /// A JSON pointer to the record in the response.
    pub item: String,
    pub query: Vec<(String, String)>,
    pub idempotency_header: Option<String>,
    pub error: Option<String>,
}

impl WriteEndpoint {
    /// Whether sending the request again is harmless.
    pub fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() || self.idempotency_header.is_some()
    }
}

/// A tool with `request`.
#[derive(Debug, Clone)]
pub struct Request {
    /// One of [`Manifest::sources`](super::Manifest::sources).
    pub source: Located<String>,
    /// At the location of the path, or of the table.
    pub template: Located<RequestTemplate>,
    pub arguments: Vec<super::Argument>,
    /// Whether it changes something.
    pub writes: bool,
    /// A JSON pointer to what callers get.
    pub result: String,
    pub returns: super::Returns,
    /// The result's columns. Without any, callers get the JSON as it is.
    pub fields: Vec<super::Field>,
    pub rows_max: u32,
    pub bytes_max: u32,
}
