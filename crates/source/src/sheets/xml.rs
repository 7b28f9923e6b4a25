//! Reads the XML of a workbook's parts: no document type, no entities but the five predefined ones, bounded depth.

use std::borrow::Cow;
use std::ops::Range;

use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::budget::{Budget, DEPTH_MAX, invalid_file_error};
use crate::tables::ParseError;

/// The text of a part. All programs write UTF-8.
pub(super) fn utf8_text(bytes: &[u8]) -> Result<&str, ParseError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|_| invalid_file_error("a part of the file is not in UTF-8"))
}

pub(super) struct XmlReader<'a> {
    reader: Reader<&'a [u8]>,
    depth: usize,
    event_start: usize,
}

pub(super) enum XmlEvent<'a> {
    /// `is_empty` if no end event follows.
    Start {
        tag: StartTag<'a>,
        is_empty: bool,
    },
    End,
    Text(Cow<'a, str>),
    Eof,
}

pub(super) struct StartTag<'a>(BytesStart<'a>);

impl<'a> XmlReader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { reader: Reader::from_str(text), depth: 0, event_start: 0 }
    }

    /// The number of open elements.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The byte range of the last event.
    pub(super) fn span(&self) -> Range<usize> {
        self.event_start..self.end()
    }

    fn end(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).expect("parts fit into memory")
    }

    pub(super) fn next(&mut self, budget: &mut Budget) -> Result<XmlEvent<'a>, ParseError> {
        loop {
            budget.step()?;
            self.event_start = self.end();
            let invalid = || invalid_file_error("a part of the file is not valid XML");
            match self.reader.read_event().map_err(|_| invalid())? {
                Event::Start(start) => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(invalid_file_error("a part of the file is nested too deeply"));
                    }
                    return Ok(XmlEvent::Start { tag: StartTag(start), is_empty: false });
                }
                Event::Empty(start) => return Ok(XmlEvent::Start { tag: StartTag(start), is_empty: true }),
                Event::End(_) => {
                    self.depth = self.depth.checked_sub(1).ok_or_else(invalid)?;
                    return Ok(XmlEvent::End);
                }
                Event::Text(text) => return Ok(XmlEvent::Text(text.xml10_content())),
                Event::CData(text) => return Ok(XmlEvent::Text(text.xml10_content())),
                Event::GeneralRef(name) => {
                    if let Some(c) = name.resolve_char_ref().map_err(|_| invalid())? {
                        return Ok(XmlEvent::Text(c.to_string().into()));
                    }
                    let table_row = resolve_predefined_entity(&name.xml10_content()).ok_or_else(invalid)?;
                    return Ok(XmlEvent::Text(table_row.into()));
                }
                Event::DocType(_) => {
                    return Err(invalid_file_error("a part of the file has a document type"));
                }
                Event::Eof if self.depth > 0 => return Err(invalid()),
                Event::Eof => return Ok(XmlEvent::Eof),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            }
        }
    }

    /// Skips the rest of the element that was opened.
    pub(super) fn skip(&mut self, budget: &mut Budget) -> Result<(), ParseError> {
        let outside = self.depth.saturating_sub(1);
        while self.depth > outside {
            if let XmlEvent::Eof = self.next(budget)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Appends the text directly inside the element that was opened; skips its child elements.
    pub(super) fn inner_text(&mut self, out: &mut String, budget: &mut Budget) -> Result<(), ParseError> {
        let inside = self.depth;
        loop {
            match self.next(budget)? {
                XmlEvent::Text(text) if self.depth == inside => {
                    budget.charge_text(text.len())?;
                    out.push_str(&text);
                }
                XmlEvent::End if self.depth < inside => return Ok(()),
                XmlEvent::Eof => return Ok(()),
                XmlEvent::Text(_) | XmlEvent::Start { .. } | XmlEvent::End => {}
            }
        }
    }
}

impl StartTag<'_> {
    /// Without the prefix.
    pub(super) fn name(&self) -> &str {
        self.0.local_name().into_inner()
    }

    /// The value of an attribute by its full name, prefix included.
    pub(super) fn attribute(&self, name: &str) -> Result<Option<String>, ParseError> {
        let invalid = || invalid_file_error("a part of the file is not valid XML");
        let mut attributes = self.0.attributes();
        for attribute in attributes.with_checks(false) {
            let attribute = attribute.map_err(|_| invalid())?;
            if attribute.key.as_ref() == name {
                let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|_| invalid())?;
                return Ok(Some(value.into_owned()));
            }
        }
        Ok(None)
    }

    /// The value of an attribute by its local name, with whatever prefix the file uses: `r:id`.
    pub(super) fn prefixed_attribute(&self, local: &str) -> Result<Option<String>, ParseError> {
        let invalid = || invalid_file_error("a part of the file is not valid XML");
        let mut attributes = self.0.attributes();
        for attribute in attributes.with_checks(false) {
            let attribute = attribute.map_err(|_| invalid())?;
            if attribute.key.prefix().is_some() && attribute.key.local_name().into_inner() == local {
                let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|_| invalid())?;
                return Ok(Some(value.into_owned()));
            }
        }
        Ok(None)
    }

    pub(super) fn is_true(&self, name: &str) -> Result<bool, ParseError> {
        Ok(self.attribute(name)?.is_some_and(|value| matches!(value.as_str(), "1" | "true" | "on")))
    }

    /// The byte range of an attribute's value, counted from the tag's `<`.
    pub(super) fn attribute_value_span(&self, name: &str) -> Option<Range<usize>> {
        let raw: &str = &self.0;
        let mut attributes = self.0.attributes();
        let attribute = attributes.with_checks(false).flatten().find(|one| one.key.as_ref() == name)?;
        let Cow::Borrowed(value) = attribute.value else { return None };
        let from = value.as_ptr() as usize - raw.as_ptr() as usize + 1;
        Some(from..from + value.len())
    }
}

/// Decodes `_x000D_` and the like, which stand for characters that XML cannot contain.
pub(super) fn unescape_text(text: String) -> String {
    if !text.contains("_x") {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("_x") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let pair = escaped_unit(rest).and_then(|first| {
            let second = escaped_unit(&rest[7..]).unwrap_or(0);
            let alone = char::from_u32(first.into()).map(|c| (c, 7));
            alone.or_else(|| char::decode_utf16([first, second]).next()?.ok().map(|c| (c, 14)))
        });
        match pair {
            Some((c, len)) => {
                out.push(c);
                rest = &rest[len..];
            }
            None => {
                out.push('_');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// The code unit that `_xHHHH_` at the start of a text stands for.
fn escaped_unit(text: &str) -> Option<u16> {
    let bytes = text.as_bytes().get(..7)?;
    let is_escape =
        bytes.starts_with(b"_x") && bytes[6] == b'_' && bytes[2..6].iter().all(u8::is_ascii_hexdigit);
    if is_escape { u16::from_str_radix(&text[2..6], 16).ok() } else { None }
}

/// Whether a text starts like an escape, up to its last underscore.
fn starts_like_escape(text: &str) -> bool {
    let bytes = text.as_bytes().get(..6);
    bytes.is_some_and(|bytes| bytes.starts_with(b"_x") && bytes[2..].iter().all(u8::is_ascii_hexdigit))
}

/// Escapes a text for XML, so that [`unescape_text`] restores it.
pub(super) fn escape_text(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len() + 8);
    for (at, c) in text.char_indices() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            // Whatever comes next: its own escape may start with `_`.
            '_' if starts_like_escape(&text[at..]) => out.push_str("_x005F_"),
            '\t' | '\n' => out.push(c),
            // XML readers turn a raw carriage return into a line feed.
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => {
                write!(out, "_x{:04X}_", u32::from(c)).expect("a String takes everything");
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{escape_text, unescape_text};

    #[test]
    fn workbook_escapes_are_decoded() {
        for (raw, expected) in [
            ("a_x000D_b", "a\rb"),
            ("_x005F_x000D_", "_x000D_"),
            ("_xD83D__xDE00_", "😀"),
            ("_xD83D_", "_xD83D_"),
            ("_x00g0_", "_x00g0_"),
            ("_x000D", "_x000D"),
            ("_x000é_", "_x000é_"),
            ("_x_x0041_", "_xA"),
        ] {
            assert_eq!(unescape_text(raw.to_owned()), expected, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_reads_back(text in "(_|x|0|4|1|A|_x0041_|_x005F_|\\PC|[\\x01-\\x1f]|😀){0,20}") {
            let plain = quick_xml::escape::unescape(&escape_text(&text)).unwrap().into_owned();
            prop_assert_eq!(unescape_text(plain), text);
        }
    }
}
