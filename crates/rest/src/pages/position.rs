//! Where the next page of a list starts, and whether there is one.

use contract::manifest::rest::{CursorPointer, ListEndpoint, PageStyle, Paging};
use json::{Doc, Node, NodeKind};
use url::Url;

use super::records::Added;
use super::{ReadError, invalid};
use crate::render::append_query;
use crate::response;

/// Where a page starts.
pub(super) enum Position {
    Single,
    Page(u64),
    Offset(u64),
    /// `None` for the first page.
    Cursor(Option<String>),
    /// The URL of the page, as the API wrote it; empty for the first page.
    Link(String),
}

/// What comes after a page.
pub(super) enum Next {
    End,
    Page(Position),
}

/// A page, and what was read before it.
pub(super) struct Page<'p, 'd> {
    pub(super) doc: &'d Doc,
    pub(super) items: &'p [Node<'d>],
    pub(super) link: Option<&'p str>,
    pub(super) added: Added,
    /// Of all pages so far.
    pub(super) rows: usize,
    /// It has no body.
    pub(super) is_empty: bool,
}

/// What the API says about the end of the list.
#[derive(Clone, Copy)]
struct Claims {
    more: Option<bool>,
    total: Option<u64>,
}

impl Claims {
    fn read(paging: &Paging, page: &Page<'_, '_>, total_before: Option<u64>) -> Result<Self, ReadError> {
        if page.is_empty {
            return Ok(Self { more: None, total: total_before });
        }
        let at = |pointer: &str| response::pointer(page.doc.root(), pointer);
        let more = match &paging.more {
            Some(more) => Some(at(more).and_then(|node| node.bool()).ok_or_else(|| {
                invalid("the API does not say whether there are more pages: `more` is neither true nor false")
            })?),
            None => None,
        };
        // Some APIs write numbers as texts.
        let number = |node: Node<'_>| response::scalar_text(node).and_then(|text| text.parse().ok());
        let total = match &paging.total {
            Some(total) => Some(at(total).and_then(number).ok_or_else(|| {
                invalid("the API does not say how many records there are: `total` is not a number")
            })?),
            None => None,
        };
        Ok(Self { more, total })
    }

    /// The list ends here, for a reason: a clause. Nothing that the API says may contradict that.
    fn end(self, page: &Page<'_, '_>, reason: &str) -> Result<Next, ReadError> {
        if self.more == Some(true) {
            return Err(invalid(format!("the API says that there are more pages (`more`), but {reason}")));
        }
        match self.total {
            Some(total) if (page.rows as u64) < total => Err(ReadError::Changed(format!(
                "the API says that there are {total} records (`total`), but its pages have {}",
                page.rows
            ))),
            Some(_) | None => Ok(Next::End),
        }
    }

    fn is_last(self, page: &Page<'_, '_>) -> bool {
        self.more == Some(false)
            || (self.more.is_none() && self.total.is_some_and(|total| page.rows as u64 >= total))
    }
}

impl Position {
    pub(super) fn start(style: &PageStyle) -> Self {
        match style {
            PageStyle::Single => Self::Single,
            PageStyle::Page { first, .. } => Self::Page(*first),
            PageStyle::Offset { .. } => Self::Offset(0),
            PageStyle::Cursor { .. } => Self::Cursor(None),
            PageStyle::Link { .. } => Self::Link(String::new()),
        }
    }

    /// The URL of the page. `base` is that of the list; with links, that of the page itself.
    pub(super) fn url(&self, base: &Url, endpoint: &ListEndpoint) -> Url {
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

    /// What identifies the page. `url` is its own, with links.
    pub(super) fn token(&self, url: &Url) -> String {
        match self {
            Self::Single => String::new(),
            Self::Page(number) | Self::Offset(number) => number.to_string(),
            Self::Cursor(cursor) => cursor.clone().unwrap_or_default(),
            Self::Link(_) => url.to_string(),
        }
    }

    /// `total_before` is what the page before said; this one says the next.
    pub(super) fn next(
        &self,
        paging: &Paging,
        page: &Page<'_, '_>,
        total_before: &mut Option<u64>,
    ) -> Result<Next, ReadError> {
        let claims = Claims::read(paging, page, *total_before)?;
        let before = std::mem::replace(total_before, claims.total);
        match (self, &paging.style) {
            (Self::Single, _) => Ok(Next::End),
            (Self::Page(_) | Self::Offset(_), _) => self.next_by_number(page, claims, before),
            (Self::Cursor(_), PageStyle::Cursor { next, .. }) => self.next_by_cursor(page, claims, next),
            (Self::Link(_), PageStyle::Link { next }) => next_by_link(page, claims, next.as_deref()),
            (Self::Cursor(_) | Self::Link(_), _) => Ok(Next::End),
        }
    }

    /// Records that are added or removed move all that follow to other pages, so that one may have been passed over.
    fn next_by_number(
        &self,
        page: &Page<'_, '_>,
        claims: Claims,
        total_before: Option<u64>,
    ) -> Result<Next, ReadError> {
        if page.added.is_same_page {
            return Err(invalid(
                "the API returned the same page twice: it does not know the `parameter` of `page`, or repeats its last page, which \
                 needs `more` or `total`",
            ));
        }
        if let Some(key) = &page.added.repeated {
            return Err(ReadError::Changed(format!("two pages have the record with the {key}")));
        }
        if let (Some(before), Some(now)) = (total_before, claims.total)
            && before != now
        {
            return Err(ReadError::Changed(format!("`total` was {before} and is {now}")));
        }
        if claims.is_last(page) {
            return claims.end(page, "its last page is reached");
        }
        if page.items.is_empty() {
            return claims.end(page, "this page is empty");
        }
        Ok(Next::Page(match self {
            Self::Offset(start) => Self::Offset(start + page.items.len() as u64),
            Self::Page(number) => Self::Page(number + 1),
            Self::Single | Self::Cursor(_) | Self::Link(_) => return Ok(Next::End),
        }))
    }

    fn next_by_cursor(
        &self,
        page: &Page<'_, '_>,
        claims: Claims,
        pointer: &CursorPointer,
    ) -> Result<Next, ReadError> {
        if claims.is_last(page) {
            return claims.end(page, "its last page is reached");
        }
        let cursor = match pointer {
            CursorPointer::Response(next) => match text_at(page.doc.root(), next, "the next cursor")? {
                Some(cursor) => cursor,
                None => return claims.end(page, "gives no cursor for the next one"),
            },
            CursorPointer::LastItem(next) => {
                let Some(last) = page.items.last() else {
                    return claims.end(page, "this page is empty");
                };
                text_at(*last, next, "the next cursor")?
                    .ok_or_else(|| invalid("the last record of a page has no value for the next cursor"))?
            }
        };
        // The API stays where it is, and has nothing new there. One that returns the same page does not know the parameter.
        if let Self::Cursor(Some(current)) = self
            && *current == cursor
            && page.added.records == 0
            && !page.added.is_same_page
        {
            return claims.end(page, "its cursor leads to no other page");
        }
        Ok(Next::Page(Self::Cursor(Some(cursor))))
    }
}

fn next_by_link(page: &Page<'_, '_>, claims: Claims, pointer: Option<&str>) -> Result<Next, ReadError> {
    if claims.more == Some(false) {
        return claims.end(page, "its last page is reached");
    }
    let url = match (pointer, page.link) {
        (Some(next), _) => text_at(page.doc.root(), next, "the link to the next page")?,
        (None, Some(header)) => next_link(header).map_err(invalid)?,
        (None, None) => None,
    };
    match url {
        Some(url) => Ok(Next::Page(Position::Link(url))),
        None => claims.end(page, "gives no link to the next one"),
    }
}

/// The text or number at a pointer; `None` if it is missing, null, empty or false. Anything else is no end of a list.
fn text_at(root: Node<'_>, at: &str, what: &str) -> Result<Option<String>, ReadError> {
    let Some(node) = response::pointer(root, at) else { return Ok(None) };
    match (response::scalar_text(node), node.kind()) {
        (Some(text), _) => Ok(Some(text)),
        (None, NodeKind::Null | NodeKind::String) => Ok(None),
        (None, _) if node.bool() == Some(false) => Ok(None),
        (None, _) => Err(invalid(format!("{what} is neither text nor a number"))),
    }
}

/// The target of `rel="next"` in a `Link` header (RFC 8288). An error is a clause.
pub(super) fn next_link(header: &str) -> Result<Option<String>, &'static str> {
    const MALFORMED: &str = "the API sent a `Link` header that cannot be read";
    let mut rest = header.trim_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let (target, after) =
            rest.strip_prefix('<').and_then(|rest| rest.split_once('>')).ok_or(MALFORMED)?;
        let length = end_of_parameters(after);
        let is_next = after[..length].split(';').any(|parameter| {
            let Some((name, value)) = parameter.split_once('=') else { return false };
            let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
            name.trim().eq_ignore_ascii_case("rel") && relations.any(|one| one.eq_ignore_ascii_case("next"))
        });
        if is_next {
            return Ok(Some(target.to_owned()));
        }
        rest = after[length..].trim_start_matches([' ', '\t', ',']);
    }
    Ok(None)
}

/// Parameters end with a comma outside of quotes.
fn end_of_parameters(text: &str) -> usize {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::next_link;

    #[test]
    fn the_next_page_is_found_in_a_link_header() {
        let malformed = Err("the API sent a `Link` header that cannot be read");
        for (header, expected) in [
            (r#"<https://api.test/a?page=2>; rel="next""#, Ok(Some("https://api.test/a?page=2"))),
            (
                r#"<https://api.test/a?page=1>; rel="prev", <https://api.test/a?page=3>; rel="next""#,
                Ok(Some("https://api.test/a?page=3")),
            ),
            (r#"<https://api.test/a,b>; title="x; y"; rel=next"#, Ok(Some("https://api.test/a,b"))),
            (r#"<a>; title="b, <c>; rel=\"next\""; rel=prev,<d>;rel=next"#, Ok(Some("d"))),
            (r#"</a?page=2>; rel="next last""#, Ok(Some("/a?page=2"))),
            (r#"<https://api.test/a>; rel="last""#, Ok(None)),
            (r#"<a>; rel=self, , <b>; rel="NEXT","#, Ok(Some("b"))),
            ("https://api.test/a; rel=next", malformed),
            ("<https://api.test/a", malformed),
            ("", Ok(None)),
        ] {
            let found = next_link(header);
            assert_eq!(found.as_ref().map(Option::as_deref).map_err(|reason| *reason), expected, "{header}");
        }
    }
}
