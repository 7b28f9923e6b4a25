//! Reads a list to its end, page by page, or fails with the limit that was reached.
//!
//! A page is complete only when the API says so: an empty page, no cursor, no link, `more` or `total`. A page that is shorter than
//! the size that was asked for proves nothing: many APIs have a maximum of their own.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use contract::manifest::rest::{CursorPointer, ListEndpoint, ListFormat, PageStyle};
use contract::request::Method;
use contract::source::{SourceError, TableOptions};
use json::{Doc, Node, NodeKind};
use source::MemoryRows;
use url::Url;

use crate::client::{HttpResponse, RestClient, SendFailure};
use crate::limits::CallLimits;
use crate::render::{self, HttpRequest, NoValues, append_query, is_below};
use crate::response::{self, incompatible};

/// What bounds the reading of one list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadBounds {
    pub(crate) pages_max: usize,
    pub(crate) rows_max: usize,
    pub(crate) bytes_max: usize,
}

/// The records of a JSON array, as text.
#[derive(Default)]
struct Records {
    array: Vec<u8>,
    rows: usize,
    /// Digests of records so far. A page that shifts while it is read repeats records, byte for byte.
    seen: HashSet<u64>,
    hasher: RandomState,
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
}

/// Reads all records that the list returns for these parameters.
pub(crate) fn read_list(
    read: &ListRead<'_>,
    limits: &CallLimits<'_>,
    progress: Option<&AtomicU64>,
) -> Result<MemoryRows, SourceError> {
    let ListRead { client, name, endpoint, parameters, options, bounds } = read;
    let bounds = *bounds;
    let mut url = list_url(client, endpoint, parameters)?;
    if endpoint.format == ListFormat::Csv {
        let response = get(client, url, limits)?;
        return MemoryRows::csv(name, response.body, (*options).clone());
    }
    let (mut records, mut position) = (Records::default(), Position::start(&endpoint.paging.style));
    records.array.push(b'[');
    let mut tokens = HashSet::new();
    for page in 0.. {
        if page == bounds.pages_max {
            return Err(too_much(&format!("{} pages (`pages_max`)", bounds.pages_max), endpoint));
        }
        let response = get(client, position.url(&url, endpoint), limits)?;
        let link = response.link.clone();
        let doc = response::parse(response.body)?;
        let items = items(&doc, endpoint)?;
        let count = records.push_page(&items, bounds, endpoint, page > 0)?;
        if let Some(progress) = progress {
            progress.fetch_add(count as u64, Ordering::Relaxed);
        }
        match position.next(&endpoint.paging, &doc, &items, link.as_deref(), records.rows) {
            Next::End => break,
            Next::Invalid(reason) => return Err(incompatible(reason, reason)),
            Next::Page(next, token) => {
                if !tokens.insert(token) {
                    let message = "the API returns the same page again, so its list has no end";
                    return Err(incompatible(message, message));
                }
                if let Position::Link(text) = &next {
                    url = next_url(client, &url, text)?;
                }
                position = next;
            }
        }
    }
    records.array.push(b']');
    MemoryRows::json(name, records.array, (*options).clone())
}

/// The URL of the first page, without the parameters of paging.
fn list_url(
    client: &RestClient,
    endpoint: &ListEndpoint,
    parameters: &[(String, String)],
) -> Result<Url, SourceError> {
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

pub(crate) fn reading(url: Url) -> HttpRequest {
    HttpRequest { method: Method::Get, url, headers: Vec::new(), body: Vec::new(), is_repeatable: true }
}

fn get(client: &RestClient, url: Url, limits: &CallLimits<'_>) -> Result<HttpResponse, SourceError> {
    limits.check()?;
    let response = client.send(reading(url), limits).map_err(SendFailure::into_source_error)?;
    match response::refusal(&response, None) {
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

/// The array of records. A missing or null one has no records.
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

impl Records {
    /// Adds the records of a page. Returns how many the page has.
    fn push_page(
        &mut self,
        items: &[Node<'_>],
        bounds: ReadBounds,
        endpoint: &ListEndpoint,
        is_later: bool,
    ) -> Result<usize, SourceError> {
        for item in items {
            if !item.is_object() {
                let message = "the API returned a record that is not an object";
                return Err(incompatible(message, message));
            }
            let is_new = self.seen.insert(self.hasher.hash_one(item.raw()));
            if is_later && !is_new {
                continue;
            }
            if self.rows == bounds.rows_max {
                return Err(too_much(&format!("{} rows (`read_rows_max`)", bounds.rows_max), endpoint));
            }
            if self.rows > 0 {
                self.array.push(b',');
            }
            self.array.extend_from_slice(item.raw().as_bytes());
            self.rows += 1;
            if self.array.len() > bounds.bytes_max {
                return Err(too_much(&format!("{} bytes", bounds.bytes_max), endpoint));
            }
        }
        Ok(items.len())
    }
}

/// Where the next page starts.
enum Position {
    Single,
    Page(u64),
    Offset(u64),
    /// `None` for the first page.
    Cursor(Option<String>),
    /// The URL of the page, as the API wrote it; empty for the first page.
    Link(String),
}

/// What comes after a page.
enum Next {
    End,
    /// A position, and what identifies it.
    Page(Position, String),
    Invalid(&'static str),
}

impl Position {
    fn start(style: &PageStyle) -> Self {
        match style {
            PageStyle::Single => Self::Single,
            PageStyle::Page { first, .. } => Self::Page(*first),
            PageStyle::Offset { .. } => Self::Offset(0),
            PageStyle::Cursor { .. } => Self::Cursor(None),
            PageStyle::Link { .. } => Self::Link(String::new()),
        }
    }

    /// The URL of the page. `base` is that of the list; with links, that of the page itself.
    fn url(&self, base: &Url, endpoint: &ListEndpoint) -> Url {
        let mut url = base.clone();
        match (self, &endpoint.paging.style) {
            (Self::Page(number), PageStyle::Page { parameter, .. }) => {
                append_query(&mut url, parameter, &number.to_string());
            }
            (Self::Offset(rows), PageStyle::Offset { parameter }) => {
                append_query(&mut url, parameter, &rows.to_string());
            }
            (Self::Cursor(Some(cursor)), PageStyle::Cursor { parameter, .. }) => {
                append_query(&mut url, parameter, cursor);
            }
            _ => {}
        }
        url
    }

    fn next(
        &self,
        paging: &contract::manifest::rest::Paging,
        doc: &Doc,
        items: &[Node<'_>],
        link: Option<&str>,
        rows: usize,
    ) -> Next {
        let at = |pointer: &str| response::pointer(doc.root(), pointer);
        if let Some(more) = &paging.more {
            match at(more).and_then(|node| node.bool()) {
                Some(true) => {}
                Some(false) => return Next::End,
                None => {
                    return Next::Invalid(
                        "the API does not say whether there are more pages: `more` is neither true nor false",
                    );
                }
            }
        }
        let total = match &paging.total {
            Some(total) => match at(total).and_then(|node| node.u64()) {
                Some(total) => Some(total),
                None => {
                    return Next::Invalid(
                        "the API does not say how many records there are: `total` is not a number",
                    );
                }
            },
            None => None,
        };
        let is_last = total.is_some_and(|total| rows as u64 >= total);
        match (self, &paging.style) {
            (Self::Single, _) => Next::End,
            (Self::Page(_) | Self::Offset(_), _) if is_last || items.is_empty() => Next::End,
            (Self::Page(number), _) => Next::Page(Self::Page(number + 1), (number + 1).to_string()),
            (Self::Offset(start), _) => {
                let next = start + items.len() as u64;
                Next::Page(Self::Offset(next), next.to_string())
            }
            (Self::Cursor(_), PageStyle::Cursor { next: CursorPointer::Response(next), .. }) => {
                match at(next).and_then(response::scalar_text) {
                    Some(cursor) if !is_last => Next::Page(Self::Cursor(Some(cursor.clone())), cursor),
                    _ => Next::End,
                }
            }
            (Self::Cursor(_), PageStyle::Cursor { next: CursorPointer::LastItem(next), .. }) => {
                let Some(last) = items.last().filter(|_| !is_last) else { return Next::End };
                match response::pointer(*last, next).and_then(response::scalar_text) {
                    Some(cursor) => Next::Page(Self::Cursor(Some(cursor.clone())), cursor),
                    None => Next::Invalid("the last record of a page has no value for the next cursor"),
                }
            }
            (Self::Link(_), PageStyle::Link { next }) => {
                let url = match next {
                    Some(next) => at(next).and_then(response::scalar_text),
                    None => link.and_then(next_link),
                };
                match url {
                    Some(url) => Next::Page(Self::Link(url.clone()), url),
                    None => Next::End,
                }
            }
            (Self::Cursor(_) | Self::Link(_), _) => Next::End,
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

/// The target of `rel="next"` in a `Link` header (RFC 8288).
fn next_link(header: &str) -> Option<String> {
    let mut rest = header;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>')?;
        let target = &rest[start + 1..end];
        // Parameters end with the next link, which begins with `,` and `<`.
        let after = &rest[end + 1..];
        let length = after.find(", <").or_else(|| after.find(",<")).unwrap_or(after.len());
        let is_next = after[..length].split(';').any(|parameter| {
            let Some((name, value)) = parameter.split_once('=') else { return false };
            let mut relations = value.trim().trim_end_matches(',').trim_matches('"').split_ascii_whitespace();
            name.trim().eq_ignore_ascii_case("rel") && relations.any(|one| one.eq_ignore_ascii_case("next"))
        });
        if is_next {
            return Some(target.to_owned());
        }
        rest = &after[length..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::next_link;

    #[test]
    fn the_next_page_is_found_in_a_link_header() {
        for (header, expected) in [
            (r#"<https://api.test/a?page=2>; rel="next""#, Some("https://api.test/a?page=2")),
            (
                r#"<https://api.test/a?page=1>; rel="prev", <https://api.test/a?page=3>; rel="next""#,
                Some("https://api.test/a?page=3"),
            ),
            (r#"<https://api.test/a,b>; title="x; y"; rel=next"#, Some("https://api.test/a,b")),
            (r#"</a?page=2>; rel="next last""#, Some("/a?page=2")),
            (r#"<https://api.test/a>; rel="last""#, None),
            ("https://api.test/a; rel=next", None),
            ("<https://api.test/a", None),
            ("", None),
        ] {
            assert_eq!(next_link(header).as_deref(), expected, "{header}");
        }
    }
}
