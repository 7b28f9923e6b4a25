//! Reads a list to its end, page by page, or fails: with the limit that was reached, or with what does not fit together.
//!
//! A list is complete only when the API says so: an empty page, no cursor, no link, `more` or `total`. A page that is shorter than
//! the size that was asked for proves nothing: many APIs have a maximum of their own. What contradicts the end (`more`, a `total`
//! that was not reached, a `Link` header that the manifest does not declare) is an error, because the rest would be missing from
//! every total and sum. A list that changes while it is read is read again, a few times.

mod position;
mod records;

use std::collections::HashSet;

use contract::manifest::rest::{ListEndpoint, ListFormat, PageStyle};
use contract::request::{Method, PathTemplate};
use contract::source::{SourceError, TableOptions};
use json::{Doc, Node, NodeKind};
use source::MemoryRows;
use url::Url;

use crate::client::{HttpResponse, RestClient, SendFailure};
use crate::limits::CallLimits;
use crate::render::{self, HttpRequest, NoValues, append_query, is_below};
use crate::response::{self, incompatible};
use position::{Next, Page, Position};
pub(crate) use records::{RecordKeys, Records};

/// How often a list that changes while it is read is read, in all.
const READS_MAX: usize = 3;

/// What bounds the reading of one list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadBounds {
    pub(crate) pages_max: usize,
    pub(crate) rows_max: usize,
    pub(crate) bytes_max: usize,
}

/// How much of a list is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    All,
    /// A sample, to learn the fields.
    FirstPage,
}

/// A list, and how it is read.
pub(crate) struct ListRead<'a> {
    pub(crate) client: &'a RestClient,
    /// The name of the table.
    pub(crate) name: &'a str,
    pub(crate) endpoint: &'a ListEndpoint,
    /// Parameters of the query for filters.
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) options: &'a TableOptions,
    pub(crate) bounds: ReadBounds,
    pub(crate) keys: &'a RecordKeys,
    pub(crate) extent: Extent,
}

/// Why the pages of a list are not a list.
enum ReadError {
    Source(SourceError),
    /// The pages do not fit together: a clause. Reading them again may help.
    Changed(String),
}

impl From<SourceError> for ReadError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

fn invalid(message: impl Into<String>) -> ReadError {
    let message = message.into();
    ReadError::Source(incompatible(message.clone(), message))
}

/// Reads all records that the list returns for these parameters.
pub(crate) fn read_list(read: &ListRead<'_>, limits: &CallLimits<'_>) -> Result<MemoryRows, SourceError> {
    let url = list_url(read)?;
    let options = read.options.clone();
    match read.endpoint.format {
        ListFormat::Csv => {
            let response = get(read, url, limits)?;
            if response::is_html(&response.body) {
                return Err(incompatible("the API returned HTML instead of CSV", "see `format`"));
            }
            check_single(read, &response)?;
            MemoryRows::csv(read.name, response.body, options)
        }
        ListFormat::JsonLines => {
            let response = get(read, url, limits)?;
            check_single(read, &response)?;
            MemoryRows::json(read.name, records_of_lines(read, &response.body)?, options)
        }
        ListFormat::Json => {
            MemoryRows::json(read.name, read_pages_until_stable(read, &url, limits)?, options)
        }
    }
}

fn read_pages_until_stable(
    read: &ListRead<'_>,
    url: &Url,
    limits: &CallLimits<'_>,
) -> Result<Vec<u8>, SourceError> {
    let mut reasons: Vec<String> = Vec::new();
    loop {
        match read_pages(read, url, limits) {
            Ok(array) => return Ok(array),
            Err(ReadError::Source(error)) => return Err(error),
            Err(ReadError::Changed(reason)) => reasons.push(reason),
        }
        if reasons.len() == READS_MAX {
            break;
        }
    }
    let last = reasons.pop().unwrap_or_default();
    // What is the same each time is how the API is.
    if reasons.iter().all(|reason| *reason == last) {
        return Err(incompatible(format!("the pages of the list do not fit together: {last}"), last));
    }
    let message = format!("the list changes while its pages are read: {last}; try again later");
    Err(SourceError::Unavailable { message, detail: last })
}

/// Reads the pages once. Returns their records as a JSON array.
fn read_pages(read: &ListRead<'_>, url: &Url, limits: &CallLimits<'_>) -> Result<Vec<u8>, ReadError> {
    let ListRead { client, endpoint, bounds, .. } = read;
    let mut url = url.clone();
    let (mut records, mut position) = (Records::new(read.keys), Position::start(&endpoint.paging.style));
    let (mut seen, mut total) = (HashSet::new(), None);
    for number in 0.. {
        if number == bounds.pages_max {
            return Err(too_much(&format!("{} pages (`pages_max`)", bounds.pages_max), endpoint).into());
        }
        let response = get(read, position.url(&url, endpoint), limits)?;
        // Many APIs say so instead of sending an empty page.
        let is_empty = response.status == 204 && response.body.is_empty();
        let link = response.link.clone();
        if endpoint.paging.style == PageStyle::Single {
            check_single(read, &response)?;
        }
        let doc = response::parse(if is_empty { b"null".to_vec() } else { response.body })?;
        let items = if is_empty { Vec::new() } else { items(&doc, endpoint)? };
        let added = records.push_page(&items, *bounds, endpoint)?;
        if read.extent == Extent::FirstPage {
            break;
        }
        let page =
            Page { doc: &doc, items: &items, link: link.as_deref(), added, rows: records.rows(), is_empty };
        match position.next(&endpoint.paging, &page, &mut total)? {
            Next::End => break,
            Next::Page(next) => {
                if let Position::Link(text) = &next {
                    url = next_url(client, &url, text)?;
                }
                let token = next.token(&url);
                if !seen.insert(token) {
                    return Err(invalid("the API returns the same page again, so its list has no end"));
                }
                position = next;
            }
        }
    }
    Ok(records.into_array())
}

/// One document in each line.
fn records_of_lines(read: &ListRead<'_>, text: &[u8]) -> Result<Vec<u8>, SourceError> {
    let mut records = Records::new(read.keys);
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        let doc = response::parse(line.to_vec())?;
        records.push(&doc.root(), read.bounds, read.endpoint)?;
    }
    Ok(records.into_array())
}

/// A list for which the manifest declares no pages must not have any.
fn check_single(read: &ListRead<'_>, response: &HttpResponse) -> Result<(), SourceError> {
    if read.extent == Extent::FirstPage {
        return Ok(());
    }
    // One that cannot be read may still say so.
    let has_next = response.link.as_ref().is_some_and(|link| match position::next_link(link) {
        Ok(next) => next.is_some(),
        Err(_) => link.to_ascii_lowercase().contains("next"),
    });
    if has_next || response.status == 206 {
        let message = "the API returned one page of several, but the manifest declares no `page`";
        return Err(incompatible(message, "its `Link` header or its status 206 says so; see `page`"));
    }
    Ok(())
}

/// The URL of the first page, without the parameters of paging.
fn list_url(read: &ListRead<'_>) -> Result<Url, SourceError> {
    let ListRead { client, endpoint, parameters, .. } = read;
    let url = render::path(client.base(), &endpoint.path, &NoValues);
    let mut url = url.map_err(|error| incompatible("the path of the list is not valid", error.reason))?;
    for (name, value) in endpoint.query.iter().chain(parameters) {
        append_query(&mut url, name, value);
    }
    if let Some((name, size)) = &endpoint.paging.size {
        append_query(&mut url, name, &size.to_string());
    }
    Ok(url)
}

pub(crate) fn reading(path: &PathTemplate, url: Url) -> HttpRequest {
    HttpRequest {
        method: Method::Get,
        endpoint: render::endpoint(Method::Get, path),
        url,
        headers: Vec::new(),
        body: Vec::new(),
        is_repeatable: true,
    }
}

fn get(read: &ListRead<'_>, url: Url, limits: &CallLimits<'_>) -> Result<HttpResponse, SourceError> {
    limits.check()?;
    let response = read
        .client
        .send(reading(&read.endpoint.path, url), limits)
        .map_err(SendFailure::into_source_error)?;
    match response::refusal(&response, None) {
        // 202, Accepted: the list is being made.
        None if response.status == 202 => Err(SourceError::Unavailable {
            message: "the API has not made the list yet (status 202); try again later".to_owned(),
            detail: "status 202".to_owned(),
        }),
        None => Ok(response),
        Some(refusal) => Err(refusal.into_source_error()),
    }
}

fn too_much(limit: &str, endpoint: &ListEndpoint) -> SourceError {
    let filters: Vec<String> = endpoint.filters.iter().map(|(name, _)| format!("`{name}`")).collect();
    let help = match filters.is_empty() {
        true => "the question is too large for this API".to_owned(),
        false => format!("add a filter that the API understands: {}", filters.join(", ")),
    };
    SourceError::TooMuchToRead { message: format!("reading the list exceeds the limit of {limit}; {help}") }
}

/// The array of records. A null one has no records.
fn items<'d>(doc: &'d Doc, endpoint: &ListEndpoint) -> Result<Vec<Node<'d>>, SourceError> {
    let found = response::pointer(doc.root(), &endpoint.items);
    match found.map(|node| (node.kind(), node)) {
        Some((NodeKind::Array, array)) => Ok(array.elements().collect()),
        Some((NodeKind::Null, _)) => Ok(Vec::new()),
        Some(_) | None => {
            let at = if endpoint.items.is_empty() {
                "the response".to_owned()
            } else {
                format!("`{}`", endpoint.items)
            };
            Err(incompatible(
                format!("the API returned no array of records at {at}"),
                "see `items` in the manifest",
            ))
        }
    }
}

/// The URL of the next page, which must be below that of the source.
fn next_url(client: &RestClient, current: &Url, text: &str) -> Result<Url, SourceError> {
    let next = current.join(text).ok().filter(|next| is_below(client.base(), next));
    next.ok_or_else(|| {
        let message = "the link to the next page leaves the URL of the source";
        incompatible(message, message)
    })
}
