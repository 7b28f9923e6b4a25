//! Takes values out of a table of TOML by key and type, and keeps what is wrong with them.
//!
//! A [`Table`] remembers which keys it was asked for; whatever is left in the end is unknown, and the nearest
//! of those that were asked for is probably meant.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Choice;
use super::variables;
use crate::diagnostic::{At, Diagnostic, Origin, Placed};
use crate::nearest::did_you_mean;

/// Longer texts are not quoted in full.
const QUOTED_CHARS_MAX: usize = 60;

pub(super) struct Reader<'e> {
    origin: Arc<Origin>,
    env: &'e dyn Fn(&str) -> Option<String>,
    pub(super) found: Vec<Diagnostic>,
}

/// What is left of a table.
pub(super) struct Table<'t> {
    entries: Vec<Entry<'t>>,
    asked: Vec<&'static str>,
}

#[derive(Clone)]
pub(super) struct Entry<'t> {
    pub(super) key: &'t str,
    pub(super) key_at: At,
    value: &'t Spanned<DeValue<'t>>,
}

/// A text, with its variables replaced.
pub(super) struct Said {
    pub(super) value: String,
    pub(super) at: At,
    /// As it stands in the file. What is told about a text quotes this: a variable may hold a secret.
    pub(super) written: String,
}

impl Said {
    pub(super) fn placed<T>(&self, value: T) -> Placed<T> {
        Placed::new(value, self.at.clone())
    }

    pub(super) fn quoted(&self) -> String {
        quoted(&self.written)
    }
}

/// How many characters a text may have.
#[derive(Clone, Copy)]
pub(super) enum Chars {
    Any(usize),
    /// And not nothing.
    Some(usize),
    /// And not only blanks.
    Words(usize),
}

impl<'t> Table<'t> {
    fn new(origin: &Arc<Origin>, table: &'t DeTable<'t>) -> Self {
        let mut entries: Vec<Entry<'t>> = table
            .iter()
            .map(|(key, value)| Entry { key: key.get_ref(), key_at: At::new(origin, key.span()), value })
            .collect();
        entries.sort_by_key(|entry| entry.key_at.span().start);
        Self { entries, asked: Vec::new() }
    }

    pub(super) fn take(&mut self, key: &'static str) -> Option<Entry<'t>> {
        self.asked.push(key);
        self.take_unasked(key)
    }

    /// Takes a key to which nobody should be led.
    fn take_unasked(&mut self, key: &str) -> Option<Entry<'t>> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(at))
    }

    /// All that is left: names, not keys.
    pub(super) fn take_all(&mut self) -> Vec<Entry<'t>> {
        std::mem::take(&mut self.entries)
    }
}

impl<'e> Reader<'e> {
    pub(super) fn new(origin: Arc<Origin>, env: &'e dyn Fn(&str) -> Option<String>) -> Self {
        Self { origin, env, found: Vec::new() }
    }

    pub(super) fn error(&mut self, at: &At, message: impl Into<String>, help: impl Into<String>) {
        self.found.push(Diagnostic::error(message).at(at).help(help));
    }

    pub(super) fn document<'t>(&self, document: &'t Spanned<DeTable<'t>>) -> Table<'t> {
        Table::new(&self.origin, document.get_ref())
    }

    /// The table under an entry; `such_as` shows what one looks like.
    pub(super) fn table<'t>(&mut self, entry: &Entry<'t>, such_as: &str) -> Option<Table<'t>> {
        match entry.value.get_ref() {
            DeValue::Table(table) => Some(Table::new(&self.origin, table)),
            _ => {
                self.wrong_type(entry, &format!("a table such as `{such_as}`"));
                None
            }
        }
    }

    /// The tables of a section, by name: `[sources.crm]`.
    pub(super) fn named<'t>(
        &mut self,
        table: &mut Table<'t>,
        section: &'static str,
        such_as: &str,
    ) -> Vec<(Entry<'t>, Option<Table<'t>>)> {
        let Some(entry) = table.take(section) else { return Vec::new() };
        let Some(mut all) = self.table(&entry, such_as) else { return Vec::new() };
        let entries = all.take_all();
        entries.into_iter().map(|entry| (entry.clone(), self.table(&entry, such_as))).collect()
    }

    /// Nothing may be left.
    pub(super) fn finish(&mut self, table: Table<'_>) {
        for entry in &table.entries {
            let help = instead(entry.key, &table.asked);
            self.error(&entry.key_at, format!("unknown key {}", quoted(entry.key)), help);
        }
    }

    /// A key that means something elsewhere, or one day. Says whether it was there.
    pub(super) fn refuse(&mut self, table: &mut Table<'_>, key: &str, message: &str, help: &str) -> bool {
        let Some(entry) = table.take_unasked(key) else { return false };
        self.error(&entry.key_at, message, help);
        true
    }

    pub(super) fn text(&mut self, table: &mut Table<'_>, key: &'static str, chars: Chars) -> Option<Said> {
        let entry = table.take(key)?;
        self.text_of(&entry, chars)
    }

    pub(super) fn text_of(&mut self, entry: &Entry<'_>, chars: Chars) -> Option<Said> {
        match entry.value.get_ref() {
            DeValue::String(text) => self.said(entry.key, text, entry.value.span(), chars),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {
                let written = self.origin.text[entry.value.span()].to_owned();
                let help = format!("write it in quotes: `\"{written}\"`");
                self.wrong_type_help(entry, "a string", Some(help));
                None
            }
            DeValue::Array(_) | DeValue::Table(_) => {
                self.wrong_type(entry, "a string");
                None
            }
        }
    }

    /// A text with its variables replaced, not longer than it may be.
    fn said(&mut self, key: &str, text: &str, span: Range<usize>, chars: Chars) -> Option<Said> {
        let at = At::new(&self.origin, span);
        let value = match variables::replace(text, self.env) {
            Ok(value) => value,
            Err(all) => {
                for bad in all {
                    let at = at.inside(text, bad.span);
                    self.error(&at, bad.message, bad.help);
                }
                return None;
            }
        };
        let (chars_max, is_empty) = match chars {
            Chars::Any(max) => (max, false),
            Chars::Some(max) => (max, value.is_empty()),
            Chars::Words(max) => (max, value.trim().is_empty()),
        };
        let length = value.chars().count();
        if is_empty {
            self.error(&at, format!("`{key}` is empty"), "say something, or leave the key out");
            return None;
        }
        if length > chars_max {
            let message = format!("`{key}` has {length} characters; {chars_max} are the most");
            self.found.push(Diagnostic::error(message).at(&at));
            return None;
        }
        Some(Said { value, at, written: text.to_owned() })
    }

    pub(super) fn boolean(&mut self, table: &mut Table<'_>, key: &'static str) -> Option<bool> {
        let entry = table.take(key)?;
        match entry.value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            DeValue::String(text) if matches!(text.as_ref(), "true" | "false") => {
                let help = format!("write `{text}` without quotes");
                self.wrong_type_help(&entry, "`true` or `false`", Some(help));
                None
            }
            _ => {
                self.wrong_type(&entry, "`true` or `false`");
                None
            }
        }
    }

    pub(super) fn integer<N>(
        &mut self,
        table: &mut Table<'_>,
        key: &'static str,
        range: RangeInclusive<N>,
    ) -> Option<N>
    where
        N: TryFrom<i64> + PartialOrd + Display,
    {
        let entry = table.take(key)?;
        let (least, most) = (range.start(), range.end());
        let DeValue::Integer(digits) = entry.value.get_ref() else {
            let bare = match entry.value.get_ref() {
                DeValue::String(text) => text.parse::<i64>().ok(),
                _ => None,
            };
            let help = bare.map(|bare| format!("write `{bare}` without quotes"));
            self.wrong_type_help(&entry, &format!("an integer from {least} to {most}"), help);
            return None;
        };
        let value = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        let value = value.and_then(|value| N::try_from(value).ok()).filter(|value| range.contains(value));
        if value.is_none() {
            let at = At::new(&self.origin, entry.value.span());
            let message = format!("`{key}` must be from {least} to {most}");
            self.found.push(Diagnostic::error(message).at(&at));
        }
        value
    }

    /// Texts, none twice: an array of them, or one alone.
    pub(super) fn one_or_more(
        &mut self,
        table: &mut Table<'_>,
        key: &'static str,
        chars_max: usize,
    ) -> Option<Vec<Said>> {
        let entry = table.take(key)?;
        match entry.value.get_ref() {
            DeValue::String(_) => self.text_of(&entry, Chars::Some(chars_max)).map(|one| vec![one]),
            _ => self.texts(&entry, "a string or an array of strings", chars_max),
        }
    }

    /// Texts, none twice, at least one.
    pub(super) fn words(&mut self, table: &mut Table<'_>, key: &'static str) -> Option<Vec<Said>> {
        let entry = table.take(key)?;
        self.texts(&entry, "an array of strings", QUOTED_CHARS_MAX)
    }

    pub(super) fn choice(&mut self, table: &mut Table<'_>, key: &'static str, chars_max: usize) -> Choice {
        let Some(entry) = table.take(key) else { return Choice::Unsaid };
        match entry.value.get_ref() {
            DeValue::Boolean(true) => Choice::All,
            DeValue::Boolean(false) => Choice::None,
            DeValue::Array(none) if none.is_empty() => Choice::None,
            DeValue::String(one) => {
                let help = format!("write `[\"{one}\"]`");
                self.wrong_type_help(&entry, "an array of field names, `true` or `false`", Some(help));
                Choice::Unsaid
            }
            _ => match self.texts(&entry, "an array of field names, `true` or `false`", chars_max) {
                Some(texts) => {
                    Choice::Only(texts.iter().map(|said| said.placed(said.value.clone())).collect())
                }
                None => Choice::Unsaid,
            },
        }
    }

    fn texts(&mut self, entry: &Entry<'_>, wanted: &str, chars_max: usize) -> Option<Vec<Said>> {
        let items = self.items(entry, wanted)?;
        let mut texts: Vec<Said> = Vec::new();
        for item in &items {
            if let Some(said) = self.text_of(item, Chars::Some(chars_max)) {
                texts.push(said);
            }
        }
        let values: Vec<(&str, &At)> = texts.iter().map(|said| (said.value.as_str(), &said.at)).collect();
        let twice = twice(&values);
        self.found.extend(twice);
        Some(texts)
    }

    /// The items of an array that is not empty.
    fn items<'t>(&mut self, entry: &Entry<'t>, wanted: &str) -> Option<Vec<Entry<'t>>> {
        let DeValue::Array(items) = entry.value.get_ref() else {
            self.wrong_type(entry, wanted);
            return None;
        };
        if items.is_empty() {
            let at = At::new(&self.origin, entry.value.span());
            self.error(&at, format!("`{}` is empty", entry.key), "name at least one, or leave the key out");
            return None;
        }
        Some(items.iter().map(|value| Entry { value, ..entry.clone() }).collect())
    }

    /// Texts or integers, not both, none twice.
    pub(super) fn literals(
        &mut self,
        table: &mut Table<'_>,
        key: &'static str,
        chars_max: usize,
    ) -> Option<Vec<Placed<super::Literal>>> {
        let entry = table.take(key)?;
        let items = self.items(&entry, "an array of strings or of integers")?;
        let wanted = match items.first()?.value.get_ref() {
            DeValue::String(_) => "a string, like the first",
            DeValue::Integer(_) => "an integer, like the first",
            _ => "a string or an integer",
        };
        let mut out: Vec<Placed<super::Literal>> = Vec::new();
        for item in &items {
            let at = At::new(&self.origin, item.value.span());
            match (item.value.get_ref(), items.first()?.value.get_ref()) {
                (DeValue::String(_), DeValue::String(_)) => {
                    let said = self.text_of(item, Chars::Any(chars_max));
                    out.extend(said.map(|said| Placed::new(super::Literal::Text(said.value), at)));
                }
                (DeValue::Integer(digits), DeValue::Integer(_)) => {
                    match i64::from_str_radix(digits.as_str(), digits.radix()) {
                        Ok(value) => out.push(Placed::new(super::Literal::Integer(value), at)),
                        Err(_) => self.found.push(Diagnostic::error("more than 64 bits").at(&at)),
                    }
                }
                (_, _) => self.wrong_type(item, wanted),
            }
        }
        let values: Vec<(&super::Literal, &At)> = out.iter().map(|one| (&one.value, &one.at)).collect();
        let twice = twice(&values);
        self.found.extend(twice);
        Some(out)
    }

    fn wrong_type(&mut self, entry: &Entry<'_>, wanted: &str) {
        self.wrong_type_help(entry, wanted, None);
    }

    fn wrong_type_help(&mut self, entry: &Entry<'_>, wanted: &str, help: Option<String>) {
        let at = At::new(&self.origin, entry.value.span());
        let there = type_name(entry.value.get_ref());
        let message = format!("{}: expected {wanted}, found {there}", quoted(entry.key));
        self.found.push(Diagnostic { help, ..Diagnostic::error(message).at(&at) });
    }
}

fn twice<T: std::hash::Hash + Eq>(values: &[(T, &At)]) -> Vec<Diagnostic> {
    let mut seen = std::collections::HashSet::new();
    let again = values.iter().filter(|(value, _)| !seen.insert(value));
    again.map(|(_, at)| Diagnostic::error("listed twice").at(at).help("keep one of the two")).collect()
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// In backticks, and not too long.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((at, _)) => format!("`{}…`", &text[..at]),
        None => format!("`{text}`"),
    }
}

/// What would have been right, or all that would be.
pub(super) fn instead(said: &str, known: &[&str]) -> String {
    did_you_mean(said, known.iter().copied()).unwrap_or_else(|| format!("known here: {}", listed(known)))
}

/// `a`, `b` and `c`
pub(super) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => "nothing".into(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}
