//! A JSON document that is an array of objects, or contains one.
//!
//! Each element of the array is scanned separately. What surrounds the array is scanned once, with the array emptied,
//! so no tape covers the whole file.

use std::ops::Range;

use contract::source::WriteError;
use json::{Doc, JsonErrorKind, ParseLimits, parse};
use memchr::memchr2;

use super::edit::{self, ObjectStyle};
use super::value::{ErrorContext, TableBuilder, content_start, parse_object};
use crate::location::TextLocation;
use crate::tables::{FileFormat, ParseError, ParsedFile, RowEdit};

pub(crate) struct JsonDocument {
    /// The name of the table.
    pub(crate) name: String,
    /// A JSON pointer to the array.
    pub(crate) pointer: Option<String>,
}

const LIMITS: ParseLimits = ParseLimits { depth_max: 64, values_max: 500_000 };

/// The span of the array and of its elements.
struct ArraySpan {
    /// With its brackets.
    array: Range<usize>,
    elements: Vec<(u32, u32)>,
}

impl ArraySpan {
    fn element(&self, row: usize) -> Option<Range<usize>> {
        self.elements.get(row).map(|(from, to)| *from as usize..*to as usize)
    }
}

impl FileFormat for JsonDocument {
    fn name(&self) -> &'static str {
        "JSON file"
    }

    fn load(&self, bytes: &[u8]) -> Result<ParsedFile, ParseError> {
        let array = self.find_array(bytes)?;
        self.check_surroundings(bytes, &array.array)?;
        let mut builder = TableBuilder::new(&self.name, "element");
        for (number, (from, to)) in (1..).zip(&array.elements) {
            let (from, to) = (*from as usize, *to as usize);
            let at = ErrorContext { bytes, record: Some(("element", number)) };
            let doc = parse_object(bytes, from, to, &at)?;
            builder.push_object(number, doc.root()).map_err(|too_many| too_many.to_parse_error(&at, from))?;
        }
        Ok(ParsedFile { tables: vec![builder.table], ..ParsedFile::default() })
    }

    fn rewrite(&self, bytes: &[u8], _table: usize, edit: &RowEdit<'_>) -> Result<Vec<u8>, WriteError> {
        let array = self.find_array(bytes).map_err(|_| edit::changed_error())?;
        match edit {
            RowEdit::Append { updates: cells } => {
                let last = array.elements.len().checked_sub(1).and_then(|last| array.element(last));
                let (at, lead, style) = match &last {
                    None => (array.array.start + 1, Vec::new(), ObjectStyle::default()),
                    Some(last) => {
                        let before = array.elements.len().checked_sub(2).and_then(|row| array.element(row));
                        let lead = match before {
                            Some(before) => bytes[before.end..last.start].to_vec(),
                            None => [b",", &bytes[array.array.start + 1..last.start]].concat(),
                        };
                        (last.end, lead, ObjectStyle::of_object(&bytes[last.clone()]))
                    }
                };
                let mut new = lead;
                edit::write_object(&mut new, &style, cells)?;
                Ok(edit::splice(bytes, at..at, &new))
            }
            RowEdit::Set { row, updates: cells } => {
                let element = array.element(*row).ok_or_else(edit::changed_error)?;
                let mut new = Vec::new();
                edit::write_updated_object(&mut new, &bytes[element.clone()], cells)?;
                Ok(edit::splice(bytes, element, &new))
            }
            RowEdit::Remove { row } => {
                let element = array.element(*row).ok_or_else(edit::changed_error)?;
                let before = row.checked_sub(1).and_then(|before| array.element(before));
                // With one comma: the one after it or, for the last element, the one before.
                let span = match (array.element(row + 1), before) {
                    (Some(next), _) => element.start..next.start,
                    (None, Some(before)) => before.end..element.end,
                    (None, None) => element,
                };
                Ok(edit::splice(bytes, span, b""))
            }
        }
    }

    fn locate(&self, bytes: &[u8], _table: usize, row: usize, column: Option<&str>) -> Option<TextLocation> {
        let element = self.find_array(bytes).ok()?.element(row)?;
        edit::member_location(bytes, element, column)
    }
}

impl JsonDocument {
    fn find_array(&self, bytes: &[u8]) -> Result<ArraySpan, ParseError> {
        let file = ErrorContext { bytes, record: None };
        let mut cursor = JsonCursor { bytes, position: content_start(bytes)? };
        if bytes[cursor.position..].trim_ascii().is_empty() {
            return Err(file.error_at(cursor.position, "is empty", "write `[]` for an array without rows"));
        }
        cursor.skip_whitespace();
        for name in self.pointer_segments(&file)? {
            if !cursor.enter_member(&name).ok_or_else(|| self.syntax_error(bytes))? {
                let at = self.pointer.as_deref().unwrap_or_default();
                let message = format!("has nothing at `{at}`");
                return Err(file.error_at(
                    cursor.position,
                    &message,
                    "correct `at` in the manifest, or put it back",
                ));
            }
        }
        if cursor.peek() != b'[' {
            return Err(self.not_an_array_error(bytes, cursor.position));
        }
        cursor.elements().ok_or_else(|| self.syntax_error(bytes))
    }

    /// The reference tokens of the JSON pointer (RFC 6901).
    fn pointer_segments(&self, file: &ErrorContext<'_>) -> Result<Vec<String>, ParseError> {
        let at = self.pointer.as_deref().unwrap_or_default();
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let error = || {
            let message = format!("cannot be read at `{at}`, which is not a JSON pointer");
            ParseError { location: None, ..file.error_at(0, &message, "write it like `/data/customers`") }
        };
        let names = at.strip_prefix('/').ok_or_else(error)?.split('/').map(|name| {
            let is_right = name.match_indices('~').all(|(at, _)| name[at + 1..].starts_with(['0', '1']));
            is_right.then(|| name.replace("~1", "/").replace("~0", "~")).ok_or_else(error)
        });
        names.collect()
    }

    /// Scans the whole document to find what is wrong with a bracket or a quote.
    fn syntax_error(&self, bytes: &[u8]) -> ParseError {
        let from = content_start(bytes).unwrap_or(0);
        let file = ErrorContext { bytes, record: None };
        let limits = ParseLimits { values_max: 50_000_000, ..LIMITS };
        match parse(bytes[from..].to_vec(), &limits) {
            Err(error) if error.kind != JsonErrorKind::TooManyValues => {
                suggest_json_lines(bytes, file.json_error(from, error))
            }
            _ => file.error_at(from, "is not valid JSON", "correct it"),
        }
    }

    /// Checks the document without the elements of the array.
    fn check_surroundings(&self, bytes: &[u8], array: &Range<usize>) -> Result<(), ParseError> {
        let from = content_start(bytes)?;
        let around = [&bytes[from..array.start], b"[]", &bytes[array.end..]].concat();
        let file = ErrorContext { bytes, record: None };
        parse(around, &LIMITS).map(drop).map_err(|mut error| {
            let gap = array.end - array.start - 2;
            error.offset += if from + error.offset > array.start { gap } else { 0 };
            file.json_error(from, error)
        })
    }

    fn not_an_array_error(&self, bytes: &[u8], at: usize) -> ParseError {
        let file = ErrorContext { bytes, record: None };
        let from = content_start(bytes).unwrap_or(0);
        let what = match bytes.get(at) {
            Some(b'{') => "is an object, not an array of objects",
            _ => "is not an array of objects",
        };
        let message = match self.pointer.as_deref() {
            None | Some("") => what.to_owned(),
            Some(pointer) => format!("at `{pointer}` {what}"),
        };
        match parse(bytes[from..].to_vec(), &LIMITS) {
            Err(error) if error.kind != JsonErrorKind::TooManyValues => {
                suggest_json_lines(bytes, file.json_error(from, error))
            }
            scanned => {
                let arrays = record_arrays(
                    bytes,
                    at,
                    self.pointer.as_deref().unwrap_or_default(),
                    SearchScope::All,
                    DEPTH_MAX,
                );
                let help = match (arrays.as_slice(), scanned) {
                    ([], Ok(doc)) => no_array_help(&doc, at - from).to_owned(),
                    ([], Err(_)) => {
                        "set `at = \"/name\"` in a manifest, where `name` holds the array".to_owned()
                    }
                    ([one], _) => format!("set `at = \"{one}\"` in a manifest for the array in it"),
                    (several, _) => {
                        let several: Vec<String> =
                            several.iter().map(|one| format!("`at = \"{one}\"`")).collect();
                        format!("choose an array in a manifest: {}", several.join(" or "))
                    }
                };
                file.error_at(at, &message, &help)
            }
        }
    }
}

/// How deep inside a document to search for arrays, and how many to list.
const DEPTH_MAX: usize = 4;
const ARRAYS_MAX: usize = 4;
/// An object with more members than this is a list itself, and is not searched for one.
const MEMBERS_MAX: usize = 1000;

/// A JSON pointer to the only array of records inside an object; `None` if the document is an array or has several.
pub(super) fn find_records(bytes: &[u8]) -> Option<String> {
    let mut cursor = JsonCursor { bytes, position: content_start(bytes).ok()? };
    cursor.skip_whitespace();
    let mut arrays = record_arrays(bytes, cursor.position, "", SearchScope::OnlyObject, DEPTH_MAX);
    arrays.pop().filter(|_| arrays.is_empty())
}

/// Which members to search for an array, if an object itself has none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchScope {
    /// The member that is an object, if only one is. Other objects may be records, too.
    OnlyObject,
    /// All members that are objects.
    All,
}

/// JSON pointers to the arrays of objects among the members of the object that starts here. If there are none, searches
/// its members.
fn record_arrays(
    bytes: &[u8],
    at: usize,
    pointer: &str,
    scope: SearchScope,
    depth_max: usize,
) -> Vec<String> {
    let Some(members) = (JsonCursor { bytes, position: at }).members() else { return Vec::new() };
    let begins_with = |at: usize, first: u8| bytes.get(at) == Some(&first);
    let is_array = |at: usize| {
        let elements = || Some((JsonCursor { bytes, position: at }).elements()?.elements);
        begins_with(at, b'[')
            && elements().is_some_and(|all| {
                !all.is_empty() && all.iter().all(|(from, _)| begins_with(*from as usize, b'{'))
            })
    };
    let record = |name: &str| format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
    let arrays = members.iter().filter(|(_, at)| is_array(*at));
    let arrays: Vec<String> = arrays.map(|(name, _)| record(name)).take(ARRAYS_MAX).collect();
    if !arrays.is_empty() || depth_max <= 1 {
        return arrays;
    }
    let objects = members.iter().filter(|(_, at)| begins_with(*at, b'{'));
    let count = objects.clone().count();
    if scope == SearchScope::OnlyObject && count != 1 {
        return arrays;
    }
    let mut found: Vec<String> = objects
        .flat_map(|(name, at)| record_arrays(bytes, *at, &record(name), scope, depth_max - 1))
        .take(ARRAYS_MAX + 1)
        .collect();
    // Several objects with arrays of their own are records, not a document around one array.
    if found.len() > 1 && count == members.len() && count > 1 {
        found.clear();
    }
    found.truncate(ARRAYS_MAX);
    found
}

/// Whether the text is valid JSON, or too large to tell.
pub(super) fn is_json(mut bytes: Vec<u8>) -> bool {
    let Ok(start) = content_start(&bytes) else { return false };
    bytes.drain(..start);
    match parse(bytes, &LIMITS).map_err(|error| error.kind) {
        Ok(_) | Err(JsonErrorKind::TooLong | JsonErrorKind::TooDeep | JsonErrorKind::TooManyValues) => true,
        Err(_) => false,
    }
}

/// How to fix a document that contains no array.
fn no_array_help(doc: &Doc, at: usize) -> &'static str {
    let node = (0..).map(|slot| doc.node(slot)).find(|node| node.span().start == at);
    let Some(node) = node else { return "make it an array of objects" };
    let are_records = !node.is_empty() && node.members().all(|(_, value)| value.is_object());
    if are_records {
        return "make it an array, with the names as a column: an object of rows is not supported";
    }
    "make it an array of objects"
}

/// Suggests JSON Lines if the first line is a whole object.
fn suggest_json_lines(bytes: &[u8], error: ParseError) -> ParseError {
    let text = &bytes[content_start(bytes).unwrap_or(0)..];
    let first = text.trim_ascii_start().split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_object = first.starts_with(b"{") && parse(first.to_vec(), &LIMITS).is_ok();
    if is_object {
        let help = "name it `.jsonl`, or set `kind = \"jsonl\"`: it looks like JSON Lines";
        return ParseError { help: Some(help.into()), ..error };
    }
    error
}

/// Finds its way by brackets, quotes and commas. Does not validate what is between them.
struct JsonCursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl JsonCursor<'_> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.position).copied().unwrap_or(0)
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.position += 1;
        }
    }

    /// Skips a string that starts here.
    fn skip_string(&mut self) -> Option<()> {
        if self.peek() != b'"' {
            return None;
        }
        self.position += 1;
        loop {
            self.position += memchr2(b'"', b'\\', self.bytes.get(self.position..)?)?;
            if self.bytes[self.position] == b'"' {
                self.position += 1;
                return Some(());
            }
            self.position += 2;
        }
    }

    /// Skips a value that starts here.
    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.position += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.position += 1;
                }
                0 => return None,
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return None,
                _ if depth == 0 => {
                    while !matches!(self.peek(), b',' | b':' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r' | 0)
                    {
                        self.position += 1;
                    }
                }
                _ => self.position += 1,
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Moves to a member of the object, or an element of the array, that starts here. `false` if there is none.
    fn enter_member(&mut self, name: &str) -> Option<bool> {
        let is_object = match self.peek() {
            b'{' => true,
            b'[' => false,
            _ => return Some(false),
        };
        let begin = self.position;
        let wanted: Option<usize> = name.parse().ok().filter(|n: &usize| n.to_string() == name);
        self.position += 1;
        self.skip_whitespace();
        for number in 0.. {
            if matches!(self.peek(), b'}' | b']') {
                break;
            }
            let is_it =
                if is_object { self.read_name()?.root().eq_str(name) } else { wanted == Some(number) };
            if is_it {
                return Some(true);
            }
            self.skip_value()?;
            if !self.skip_separator()? {
                break;
            }
        }
        self.position = begin;
        Some(false)
    }

    /// The members of the object that starts here: their names, and where their values start.
    fn members(mut self) -> Option<Vec<(String, usize)>> {
        if self.peek() != b'{' {
            return None;
        }
        let mut members = Vec::new();
        self.position += 1;
        self.skip_whitespace();
        while self.peek() != b'}' {
            let name = self.read_name()?;
            if members.len() == MEMBERS_MAX {
                return None;
            }
            members.push((name.root().str()?.into_owned(), self.position));
            self.skip_value()?;
            if !self.skip_separator()? {
                break;
            }
        }
        Some(members)
    }

    /// Reads the name of the member that starts here, and moves to its value.
    fn read_name(&mut self) -> Option<Doc> {
        let from = self.position;
        self.skip_string()?;
        let name = parse(self.bytes[from..self.position].to_vec(), &LIMITS).ok()?;
        self.skip_whitespace();
        if self.peek() != b':' {
            return None;
        }
        self.position += 1;
        self.skip_whitespace();
        Some(name)
    }

    /// Moves from the end of a value to the next one; `false` if there is none.
    fn skip_separator(&mut self) -> Option<bool> {
        self.skip_whitespace();
        match self.peek() {
            b',' => self.position += 1,
            b'}' | b']' => return Some(false),
            _ => return None,
        }
        self.skip_whitespace();
        Some(true)
    }

    /// The elements of the array that starts here.
    fn elements(mut self) -> Option<ArraySpan> {
        let begin = self.position;
        let mut elements = Vec::new();
        self.position += 1;
        self.skip_whitespace();
        if self.peek() != b']' {
            loop {
                let from = self.position;
                self.skip_value()?;
                elements.push((u32::try_from(from).ok()?, u32::try_from(self.position).ok()?));
                self.skip_whitespace();
                match self.peek() {
                    b',' => self.position += 1,
                    b']' => break,
                    _ => return None,
                }
                self.skip_whitespace();
            }
        }
        Some(ArraySpan { array: begin..self.position + 1, elements })
    }
}
