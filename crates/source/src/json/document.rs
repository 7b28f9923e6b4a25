//! One JSON document that is an array of objects, or has one inside.
//!
//! The array is taken apart without a tape over all of it: each element is scanned on its own, and what stands
//! around the array once, with nothing in it.

use std::ops::Range;

use contract::source::WriteError;
use json::{Doc, ScanErrorKind, ScanLimits, scan};
use memchr::memchr2;

use super::edit::{self, ObjectStyle};
use super::value::{ErrorContext, TableBuilder, content_start, parse_object};
use crate::location::TextLocation;
use crate::tables::{FileFormat, ParseError, ParsedFile, RowEdit};

pub(super) struct JsonDocument {
    /// Of the table.
    pub(super) name: String,
    /// A JSON pointer to the array.
    pub(super) pointer: Option<String>,
}

const LIMITS: ScanLimits = ScanLimits { depth_max: 64, slots_max: 500_000 };

/// Where the array is, and where its elements are.
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
        let found = self.find_array(bytes)?;
        self.check_surroundings(bytes, &found.array)?;
        let mut filling = TableBuilder::new(&self.name, "element");
        for (number, (from, to)) in (1..).zip(&found.elements) {
            let (from, to) = (*from as usize, *to as usize);
            let at = ErrorContext { bytes, record: Some(("element", number)) };
            let doc = parse_object(bytes, from, to, &at)?;
            filling.push_object(number, doc.root()).map_err(|too_many| too_many.to_parse_error(&at, from))?;
        }
        Ok(ParsedFile { tables: vec![filling.table], ..ParsedFile::default() })
    }

    fn rewrite(&self, bytes: &[u8], _table: usize, edit: &RowEdit<'_>) -> Result<Vec<u8>, WriteError> {
        let found = self.find_array(bytes).map_err(|_| edit::changed_error())?;
        match edit {
            RowEdit::Append { updates: cells } => {
                let last = found.elements.len().checked_sub(1).and_then(|last| found.element(last));
                let (at, lead, style) = match &last {
                    None => (found.array.start + 1, Vec::new(), ObjectStyle::default()),
                    Some(last) => {
                        let before = found.elements.len().checked_sub(2).and_then(|row| found.element(row));
                        let lead = match before {
                            Some(before) => bytes[before.end..last.start].to_vec(),
                            None => [b",", &bytes[found.array.start + 1..last.start]].concat(),
                        };
                        (last.end, lead, ObjectStyle::of_object(&bytes[last.clone()]))
                    }
                };
                let mut new = lead;
                edit::write_object(&mut new, &style, cells)?;
                Ok(edit::splice(bytes, at..at, &new))
            }
            RowEdit::Set { row, updates: cells } => {
                let element = found.element(*row).ok_or_else(edit::changed_error)?;
                let mut new = Vec::new();
                edit::write_updated_object(&mut new, &bytes[element.clone()], cells)?;
                Ok(edit::splice(bytes, element, &new))
            }
            RowEdit::Remove { row } => {
                let element = found.element(*row).ok_or_else(edit::changed_error)?;
                let before = row.checked_sub(1).and_then(|before| found.element(before));
                // With the comma that belongs to it: the next one, or for the last the one before.
                let span = match (found.element(row + 1), before) {
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
        let mut walk = JsonCursor { bytes, position: content_start(bytes)? };
        if bytes[walk.position..].trim_ascii().is_empty() {
            return Err(file.error_at(walk.position, "is empty", "an array without records is `[]`"));
        }
        walk.skip_whitespace();
        for name in self.pointer_segments(&file)? {
            if !walk.enter_member(&name).ok_or_else(|| self.syntax_error(bytes))? {
                let at = self.pointer.as_deref().unwrap_or_default();
                let why = format!("has nothing at `{at}`");
                return Err(file.error_at(
                    walk.position,
                    &why,
                    "correct `at` in the manifest, or put it back",
                ));
            }
        }
        if walk.peek() != b'[' {
            return Err(self.not_an_array_error(bytes, walk.position));
        }
        walk.elements().ok_or_else(|| self.syntax_error(bytes))
    }

    /// The names on the way to the array (RFC 6901).
    fn pointer_segments(&self, file: &ErrorContext<'_>) -> Result<Vec<String>, ParseError> {
        let at = self.pointer.as_deref().unwrap_or_default();
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let wrong = || {
            let why = format!("is to be read at `{at}`, which is no JSON pointer");
            ParseError { location: None, ..file.error_at(0, &why, "write it like `/data/customers`") }
        };
        let names = at.strip_prefix('/').ok_or_else(wrong)?.split('/').map(|name| {
            let is_right = name.match_indices('~').all(|(at, _)| name[at + 1..].starts_with(['0', '1']));
            is_right.then(|| name.replace("~1", "/").replace("~0", "~")).ok_or_else(wrong)
        });
        names.collect()
    }

    /// What is wrong with brackets or quotes is found by whoever reads all of it.
    fn syntax_error(&self, bytes: &[u8]) -> ParseError {
        let from = content_start(bytes).unwrap_or(0);
        let file = ErrorContext { bytes, record: None };
        let limits = ScanLimits { slots_max: 50_000_000, ..LIMITS };
        match scan(bytes[from..].to_vec(), &limits) {
            Err(bad) if bad.kind != ScanErrorKind::TooManyValues => {
                suggest_json_lines(bytes, file.scan_error(from, bad))
            }
            _ => file.error_at(from, "is not valid JSON", "correct it"),
        }
    }

    /// The document without the elements of the array.
    fn check_surroundings(&self, bytes: &[u8], array: &Range<usize>) -> Result<(), ParseError> {
        let from = content_start(bytes)?;
        let around = [&bytes[from..array.start], b"[]", &bytes[array.end..]].concat();
        let file = ErrorContext { bytes, record: None };
        scan(around, &LIMITS).map(drop).map_err(|mut bad| {
            let gap = array.end - array.start - 2;
            bad.offset += if from + bad.offset > array.start { gap } else { 0 };
            file.scan_error(from, bad)
        })
    }

    fn not_an_array_error(&self, bytes: &[u8], at: usize) -> ParseError {
        let file = ErrorContext { bytes, record: None };
        let from = content_start(bytes).unwrap_or(0);
        let what = match bytes.get(at) {
            Some(b'{') => "is an object, and not an array of objects",
            _ => "is not an array of objects",
        };
        let why = match self.pointer.as_deref() {
            None | Some("") => what.to_owned(),
            Some(pointer) => format!("at `{pointer}` {what}"),
        };
        match scan(bytes[from..].to_vec(), &LIMITS) {
            Err(bad) if bad.kind != ScanErrorKind::TooManyValues => {
                suggest_json_lines(bytes, file.scan_error(from, bad))
            }
            scanned => {
                let arrays = record_arrays(bytes, at, self.pointer.as_deref().unwrap_or_default(), DEPTH_MAX);
                let help = match (arrays.as_slice(), scanned) {
                    ([], Ok(doc)) => no_array_help(&doc, at - from).to_owned(),
                    ([], Err(_)) => "say `at = \"/name\"`, where `name` has the array".to_owned(),
                    ([one], _) => format!("say `at = \"{one}\"` for the array in it"),
                    (several, _) => {
                        let several: Vec<String> =
                            several.iter().map(|one| format!("`at = \"{one}\"`")).collect();
                        format!("say in a manifest which array it is: {}", several.join(" or "))
                    }
                };
                file.error_at(at, &why, &help)
            }
        }
    }
}

/// So deep inside a document, and so many arrays, are looked for.
const DEPTH_MAX: usize = 4;
const ARRAYS_MAX: usize = 4;
/// An object with more members than this holds no list: it is one.
const MEMBERS_MAX: usize = 1000;

/// Where in a document the records are, if it is no array itself and there is one place only that could be meant.
pub(super) fn find_records(bytes: &[u8]) -> Option<String> {
    let mut walk = JsonCursor { bytes, position: content_start(bytes).ok()? };
    walk.skip_whitespace();
    let mut arrays = record_arrays(bytes, walk.position, "", DEPTH_MAX);
    arrays.pop().filter(|_| arrays.is_empty())
}

/// JSON pointers to the arrays of objects that are members of the object that begins here; or, where there is none,
/// of the only object that is one.
fn record_arrays(bytes: &[u8], at: usize, pointer: &str, depth_max: usize) -> Vec<String> {
    let Some(members) = (JsonCursor { bytes, position: at }).members() else { return Vec::new() };
    let begins_with = |at: usize, first: u8| bytes.get(at) == Some(&first);
    let is_array = |at: usize| {
        let elements = || Some((JsonCursor { bytes, position: at }).elements()?.elements);
        begins_with(at, b'[')
            && elements().is_some_and(|all| {
                !all.is_empty() && all.iter().all(|(from, _)| begins_with(*from as usize, b'{'))
            })
    };
    let inside = |name: &str| format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
    let arrays = members.iter().filter(|(_, at)| is_array(*at));
    let arrays: Vec<String> = arrays.map(|(name, _)| inside(name)).take(ARRAYS_MAX).collect();
    let mut objects = members.iter().filter(|(_, at)| begins_with(*at, b'{'));
    match (arrays.is_empty(), objects.next(), objects.next()) {
        (true, Some((name, at)), None) if depth_max > 1 => {
            record_arrays(bytes, *at, &inside(name), depth_max - 1)
        }
        _ => arrays,
    }
}

/// What to do with a document that has no array.
fn no_array_help(doc: &Doc, at: usize) -> &'static str {
    let node = (0..).map(|slot| doc.node(slot)).find(|node| node.span().start == at);
    let Some(node) = node else { return "make it an array of objects" };
    let are_records = !node.is_empty() && node.members().all(|(_, value)| value.is_object());
    if are_records {
        return "an object whose members are records is not read: make it an array, with the names as a column";
    }
    "make it an array of objects"
}

/// What is many documents is read as such where somebody says so.
fn suggest_json_lines(bytes: &[u8], wrong: ParseError) -> ParseError {
    let text = &bytes[content_start(bytes).unwrap_or(0)..];
    let first = text.trim_ascii_start().split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_object = first.starts_with(b"{") && scan(first.to_vec(), &LIMITS).is_ok();
    if is_object {
        let help = "it looks like JSON Lines: name it `.jsonl`, or say `kind = \"jsonl\"`";
        return ParseError { help: Some(help.into()), ..wrong };
    }
    wrong
}

/// Finds its way by brackets, quotes and commas. Whether what lies between is JSON is for others to say.
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

    /// Behind a string that begins here.
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

    /// Behind a value that begins here.
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

    /// To a member of the object or an element of the array that begins here; `false` if there is none.
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

    /// The members of the object that begins here: their names, and where their values begin.
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

    /// The name of the member that begins here; then its value does.
    fn read_name(&mut self) -> Option<Doc> {
        let from = self.position;
        self.skip_string()?;
        let name = scan(self.bytes[from..self.position].to_vec(), &LIMITS).ok()?;
        self.skip_whitespace();
        if self.peek() != b':' {
            return None;
        }
        self.position += 1;
        self.skip_whitespace();
        Some(name)
    }

    /// Behind a value: to the next one, or `false` at the end.
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

    /// The elements of the array that begins here.
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
