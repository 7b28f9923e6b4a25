//! One JSON document that is an array of objects, or has one inside.
//!
//! The array is taken apart without a tape over all of it: each element is scanned on its own, and what stands
//! around the array once, with nothing in it.

use std::ops::Range;

use contract::source::WriteFault;
use json::{Doc, ScanLimits, Why, scan};
use memchr::memchr2;

use super::edit::{self, Style};
use super::value::{Filling, Where, object, start};
use crate::rows::{Edit, Format, Loaded, Unreadable};
use crate::spot::Spot;

pub(super) struct Document {
    /// Of the table.
    pub(super) name: String,
    /// A JSON pointer to the array.
    pub(super) at: Option<String>,
}

const LIMITS: ScanLimits = ScanLimits { depth_max: 64, slots_max: 500_000 };

/// Where the array is, and where its elements are.
struct Found {
    /// With its brackets.
    array: Range<usize>,
    elements: Vec<(u32, u32)>,
}

impl Found {
    fn element(&self, row: usize) -> Option<Range<usize>> {
        self.elements.get(row).map(|(from, to)| *from as usize..*to as usize)
    }
}

impl Format for Document {
    fn name(&self) -> &'static str {
        "JSON file"
    }

    fn load(&self, bytes: &[u8]) -> Result<Loaded, Unreadable> {
        let found = self.find(bytes)?;
        self.check_around(bytes, &found.array)?;
        let mut filling = Filling::new(&self.name, "element");
        for (number, (from, to)) in (1..).zip(&found.elements) {
            let (from, to) = (*from as usize, *to as usize);
            let at = Where { bytes, named: Some(("element", number)) };
            let doc = object(bytes, from, to, &at)?;
            filling.take(number, doc.root()).map_err(|too_many| too_many.told(&at, from))?;
        }
        Ok(Loaded { tables: vec![filling.table], ..Loaded::default() })
    }

    fn rewrite(&self, bytes: &[u8], _table: usize, edit: &Edit<'_>) -> Result<Vec<u8>, WriteFault> {
        let found = self.find(bytes).map_err(|_| edit::changed())?;
        match edit {
            Edit::Append { cells } => {
                let last = found.elements.len().checked_sub(1).and_then(|last| found.element(last));
                let (at, lead, style) = match &last {
                    None => (found.array.start + 1, Vec::new(), Style::default()),
                    Some(last) => {
                        let before = found.elements.len().checked_sub(2).and_then(|row| found.element(row));
                        let lead = match before {
                            Some(before) => bytes[before.end..last.start].to_vec(),
                            None => [b",", &bytes[found.array.start + 1..last.start]].concat(),
                        };
                        (last.end, lead, Style::of(&bytes[last.clone()]))
                    }
                };
                let mut new = lead;
                edit::new_object(&mut new, &style, cells)?;
                Ok(edit::splice(bytes, at..at, &new))
            }
            Edit::Set { row, cells } => {
                let element = found.element(*row).ok_or_else(edit::changed)?;
                let mut new = Vec::new();
                edit::set(&mut new, &bytes[element.clone()], cells)?;
                Ok(edit::splice(bytes, element, &new))
            }
            Edit::Remove { row } => {
                let element = found.element(*row).ok_or_else(edit::changed)?;
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

    fn spot(&self, bytes: &[u8], _table: usize, row: usize, column: Option<&str>) -> Option<Spot> {
        let element = self.find(bytes).ok()?.element(row)?;
        edit::spot(bytes, element, column)
    }
}

impl Document {
    fn find(&self, bytes: &[u8]) -> Result<Found, Unreadable> {
        let file = Where { bytes, named: None };
        let mut walk = Walk { bytes, at: start(bytes)? };
        if bytes[walk.at..].trim_ascii().is_empty() {
            return Err(file.wrong(walk.at, "is empty", "an array without records is `[]`"));
        }
        walk.space();
        for name in self.path(&file)? {
            if !walk.enter(&name).ok_or_else(|| self.broken(bytes))? {
                let at = self.at.as_deref().unwrap_or_default();
                let why = format!("has nothing at `{at}`");
                return Err(file.wrong(walk.at, &why, "correct `at` in the manifest, or put it back"));
            }
        }
        if walk.peek() != b'[' {
            return Err(self.no_array(bytes, walk.at));
        }
        walk.elements().ok_or_else(|| self.broken(bytes))
    }

    /// The names on the way to the array (RFC 6901).
    fn path(&self, file: &Where<'_>) -> Result<Vec<String>, Unreadable> {
        let at = self.at.as_deref().unwrap_or_default();
        if at.is_empty() {
            return Ok(Vec::new());
        }
        let wrong = || {
            let why = format!("is to be read at `{at}`, which is no JSON pointer");
            Unreadable { at: None, ..file.wrong(0, &why, "write it like `/data/customers`") }
        };
        let names = at.strip_prefix('/').ok_or_else(wrong)?.split('/').map(|name| {
            let is_right = name.match_indices('~').all(|(at, _)| name[at + 1..].starts_with(['0', '1']));
            is_right.then(|| name.replace("~1", "/").replace("~0", "~")).ok_or_else(wrong)
        });
        names.collect()
    }

    /// What is wrong with brackets or quotes is found by whoever reads all of it.
    fn broken(&self, bytes: &[u8]) -> Unreadable {
        let from = start(bytes).unwrap_or(0);
        let file = Where { bytes, named: None };
        let limits = ScanLimits { slots_max: 50_000_000, ..LIMITS };
        match scan(bytes[from..].to_vec(), &limits) {
            Err(bad) if bad.why != Why::TooMany => is_lines(bytes, file.bad(from, bad)),
            _ => file.wrong(from, "is not valid JSON", "correct it"),
        }
    }

    /// The document without the elements of the array.
    fn check_around(&self, bytes: &[u8], array: &Range<usize>) -> Result<(), Unreadable> {
        let from = start(bytes)?;
        let around = [&bytes[from..array.start], b"[]", &bytes[array.end..]].concat();
        let file = Where { bytes, named: None };
        scan(around, &LIMITS).map(drop).map_err(|mut bad| {
            let gap = array.end - array.start - 2;
            bad.at += if from + bad.at > array.start { gap } else { 0 };
            file.bad(from, bad)
        })
    }

    fn no_array(&self, bytes: &[u8], at: usize) -> Unreadable {
        let file = Where { bytes, named: None };
        let from = start(bytes).unwrap_or(0);
        let what = match bytes.get(at) {
            Some(b'{') => "is an object, and not an array of objects",
            _ => "is not an array of objects",
        };
        let why = match self.at.as_deref() {
            None | Some("") => what.to_owned(),
            Some(pointer) => format!("at `{pointer}` {what}"),
        };
        match scan(bytes[from..].to_vec(), &LIMITS) {
            Err(bad) if bad.why != Why::TooMany => is_lines(bytes, file.bad(from, bad)),
            scanned => {
                let arrays = records(bytes, at, self.at.as_deref().unwrap_or_default(), DEPTH_MAX);
                let help = match (arrays.as_slice(), scanned) {
                    ([], Ok(doc)) => way_out(&doc, at - from).to_owned(),
                    ([], Err(_)) => "say `at = \"/name\"`, where `name` has the array".to_owned(),
                    ([one], _) => format!("say `at = \"{one}\"` for the array in it"),
                    (several, _) => {
                        let several: Vec<String> =
                            several.iter().map(|one| format!("`at = \"{one}\"`")).collect();
                        format!("say in a manifest which array it is: {}", several.join(" or "))
                    }
                };
                file.wrong(at, &why, &help)
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
pub(super) fn records_at(bytes: &[u8]) -> Option<String> {
    let mut walk = Walk { bytes, at: start(bytes).ok()? };
    walk.space();
    let mut arrays = records(bytes, walk.at, "", DEPTH_MAX);
    arrays.pop().filter(|_| arrays.is_empty())
}

/// JSON pointers to the arrays of objects that are members of the object that begins here; or, where there is none,
/// of the only object that is one.
fn records(bytes: &[u8], at: usize, pointer: &str, depth_max: usize) -> Vec<String> {
    let Some(members) = (Walk { bytes, at }).members() else { return Vec::new() };
    let begins_with = |at: usize, first: u8| bytes.get(at) == Some(&first);
    let is_array = |at: usize| {
        let elements = || Some((Walk { bytes, at }).elements()?.elements);
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
        (true, Some((name, at)), None) if depth_max > 1 => records(bytes, *at, &inside(name), depth_max - 1),
        _ => arrays,
    }
}

/// What to do with a document that has no array.
fn way_out(doc: &Doc, at: usize) -> &'static str {
    let node = (0..).map(|slot| doc.node(slot)).find(|node| node.span().start == at);
    let Some(node) = node else { return "make it an array of objects" };
    let are_records = !node.is_empty() && node.members().all(|(_, value)| value.is_object());
    if are_records {
        return "an object whose members are records is not read: make it an array, with the names as a column";
    }
    "make it an array of objects"
}

/// What is many documents is read as such where somebody says so.
fn is_lines(bytes: &[u8], wrong: Unreadable) -> Unreadable {
    let text = &bytes[start(bytes).unwrap_or(0)..];
    let first = text.trim_ascii_start().split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_object = first.starts_with(b"{") && scan(first.to_vec(), &LIMITS).is_ok();
    if is_object {
        let help = "it looks like JSON Lines: name it `.jsonl`, or say `kind = \"jsonl\"`";
        return Unreadable { help: Some(help.into()), ..wrong };
    }
    wrong
}

/// Finds its way by brackets, quotes and commas. Whether what lies between is JSON is for others to say.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    /// Behind a string that begins here.
    fn string(&mut self) -> Option<()> {
        if self.peek() != b'"' {
            return None;
        }
        self.at += 1;
        loop {
            self.at += memchr2(b'"', b'\\', self.bytes.get(self.at..)?)?;
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return Some(());
            }
            self.at += 2;
        }
    }

    /// Behind a value that begins here.
    fn value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                b'"' => self.string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                0 => return None,
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return None,
                _ if depth == 0 => {
                    while !matches!(self.peek(), b',' | b':' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r' | 0)
                    {
                        self.at += 1;
                    }
                }
                _ => self.at += 1,
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// To a member of the object or an element of the array that begins here; `false` if there is none.
    fn enter(&mut self, name: &str) -> Option<bool> {
        let is_object = match self.peek() {
            b'{' => true,
            b'[' => false,
            _ => return Some(false),
        };
        let begin = self.at;
        let wanted: Option<usize> = name.parse().ok().filter(|n: &usize| n.to_string() == name);
        self.at += 1;
        self.space();
        for number in 0.. {
            if matches!(self.peek(), b'}' | b']') {
                break;
            }
            let is_it = if is_object { self.name()?.root().is(name) } else { wanted == Some(number) };
            if is_it {
                return Some(true);
            }
            self.value()?;
            if !self.goes_on()? {
                break;
            }
        }
        self.at = begin;
        Some(false)
    }

    /// The members of the object that begins here: their names, and where their values begin.
    fn members(mut self) -> Option<Vec<(String, usize)>> {
        if self.peek() != b'{' {
            return None;
        }
        let mut members = Vec::new();
        self.at += 1;
        self.space();
        while self.peek() != b'}' {
            let name = self.name()?;
            if members.len() == MEMBERS_MAX {
                return None;
            }
            members.push((name.root().str()?.into_owned(), self.at));
            self.value()?;
            if !self.goes_on()? {
                break;
            }
        }
        Some(members)
    }

    /// The name of the member that begins here; then its value does.
    fn name(&mut self) -> Option<Doc> {
        let from = self.at;
        self.string()?;
        let name = scan(self.bytes[from..self.at].to_vec(), &LIMITS).ok()?;
        self.space();
        if self.peek() != b':' {
            return None;
        }
        self.at += 1;
        self.space();
        Some(name)
    }

    /// Behind a value: to the next one, or `false` at the end.
    fn goes_on(&mut self) -> Option<bool> {
        self.space();
        match self.peek() {
            b',' => self.at += 1,
            b'}' | b']' => return Some(false),
            _ => return None,
        }
        self.space();
        Some(true)
    }

    /// The elements of the array that begins here.
    fn elements(mut self) -> Option<Found> {
        let begin = self.at;
        let mut elements = Vec::new();
        self.at += 1;
        self.space();
        if self.peek() != b']' {
            loop {
                let from = self.at;
                self.value()?;
                elements.push((u32::try_from(from).ok()?, u32::try_from(self.at).ok()?));
                self.space();
                match self.peek() {
                    b',' => self.at += 1,
                    b']' => break,
                    _ => return None,
                }
                self.space();
            }
        }
        Some(Found { array: begin..self.at + 1, elements })
    }
}
