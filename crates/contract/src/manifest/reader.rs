//! Takes values out of a table of TOML by key and type, and keeps what is wrong with them.
//!
//! What a key takes stands in the [table of keys](super::keys). A [`Table`] remembers what it was asked for:
//! whatever is left in the end is unknown, and the nearest of its section's keys is probably meant.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{COLUMN_CHARS_MAX, Chars, Key, ROOT, SECTIONS, SQL_CHARS_MAX, Section, Takes};
use super::{Choice, Literal, Rate, rate, variables};
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
    section: &'static Section,
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

impl<'t> Table<'t> {
    fn new(origin: &Arc<Origin>, section: &'static Section, table: &'t DeTable<'t>) -> Self {
        let mut entries: Vec<Entry<'t>> = table
            .iter()
            .map(|(key, value)| Entry { key: key.get_ref(), key_at: At::new(origin, key.span()), value })
            .collect();
        entries.sort_by_key(|entry| entry.key_at.span().start);
        Self { section, entries, asked: Vec::new() }
    }

    /// What a key takes, and what it has, if it is there.
    pub(super) fn take(&mut self, name: &str) -> (&'static Key, Option<Entry<'t>>) {
        let key = self.section.key(name);
        self.asked.push(key.name);
        let at = self.entries.iter().position(|entry| entry.key == name);
        (key, at.map(|at| self.entries.remove(at)))
    }

    /// A key that is none of the section's, but has words of its own.
    pub(super) fn take_stray(&mut self, name: &str) -> Option<Entry<'t>> {
        let at = self.entries.iter().position(|entry| entry.key == name)?;
        Some(self.entries.remove(at))
    }

    /// Where a key stands, if it is there.
    pub(super) fn place(&self, name: &str) -> Option<At> {
        self.entries.iter().find(|entry| entry.key == name).map(|entry| entry.key_at.clone())
    }

    /// The keys of its section.
    pub(super) fn keys(&self) -> &'static [Key] {
        self.section.keys
    }
}

impl Entry<'_> {
    /// The value as it stands in the file.
    pub(super) fn written(&self, reader: &Reader<'_>) -> String {
        reader.origin.text[self.value.span()].to_owned()
    }

    /// Where the value stands.
    pub(super) fn value_at(&self, reader: &Reader<'_>) -> At {
        At::new(&reader.origin, self.value.span())
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
        Table::new(&self.origin, &ROOT, document.get_ref())
    }

    /// The table under a key.
    pub(super) fn table<'t>(&mut self, parent: &mut Table<'t>, name: &str) -> Option<(Entry<'t>, Table<'t>)> {
        let (key, entry) = parent.take(name);
        let Takes::Table(section) = key.takes else { unreachable!("`{name}` is a table") };
        let entry = entry?;
        let table = self.table_of(&entry, section, &format!("`{}`", section.header))?;
        Some((entry, table))
    }

    fn table_of<'t>(
        &mut self,
        entry: &Entry<'t>,
        section: &'static Section,
        such_as: &str,
    ) -> Option<Table<'t>> {
        match entry.value.get_ref() {
            DeValue::Table(table) => Some(Table::new(&self.origin, section, table)),
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                let message = format!("{} is there as a list", quoted(entry.key));
                self.error(&entry.key_at, message, format!("write it with single brackets: {such_as}"));
                None
            }
            _ => {
                self.wrong_type(entry, &format!("a table such as {such_as}"));
                None
            }
        }
    }

    /// The tables under a key, by name: `[sources.crm]`.
    pub(super) fn named<'t>(&mut self, parent: &mut Table<'t>, name: &str) -> Vec<(Entry<'t>, Table<'t>)> {
        let (key, entry) = parent.take(name);
        let Takes::Named(section, _) = key.takes else { unreachable!("`{name}` has tables") };
        let Some(entry) = entry else { return Vec::new() };
        let (such_as, one_such) = match name {
            "fields" => ("`email = { format = \"email\" }`", "`{ format = \"email\" }`"),
            "arguments" => ("`since = { type = \"date\" }`", "`{ type = \"date\" }`"),
            "sources" => ("`[sources.crm]`", "`[sources.crm]`"),
            "collections" => ("`[collections.customers]`", "`[collections.customers]`"),
            _ => ("`[tools.lookup_customer]`", "`[tools.lookup_customer]`"),
        };
        let Some(all) = self.table_of(&entry, section, such_as) else { return Vec::new() };
        let mut tables = Vec::new();
        for entry in all.entries {
            if let Some(table) = self.table_of(&entry, section, one_such) {
                tables.push((entry, table));
            }
        }
        tables
    }

    /// Nothing may be left.
    pub(super) fn finish(&mut self, table: Table<'_>) {
        let section = table.section;
        // The table of keys has nothing that is never read.
        debug_assert!(
            section.keys.iter().all(|key| table.asked.contains(&key.name)),
            "{} is not read whole: {:?}",
            section.header,
            table.asked
        );
        for entry in &table.entries {
            let help = elsewhere(section, entry.key);
            self.error(&entry.key_at, format!("unknown key {}", quoted(entry.key)), help);
        }
    }

    pub(super) fn text(&mut self, table: &mut Table<'_>, name: &str) -> Option<Said> {
        let (key, entry) = table.take(name);
        match key.takes {
            Takes::Text(chars) => self.text_of(&entry?, chars),
            Takes::Sql => self.sql_of(&entry?),
            _ => unreachable!("`{name}` is a text"),
        }
    }

    /// One of the words that a key takes.
    pub(super) fn word(&mut self, table: &mut Table<'_>, name: &str) -> Option<(Said, &'static str)> {
        let (said, known) = self.word_said(table, name)?;
        let Some(word) = known.iter().find(|word| **word == said.value) else {
            let message = format!("`{name}` cannot be {}", said.quoted());
            let help = did_you_mean(&said.value, known.iter().copied())
                .unwrap_or_else(|| format!("write {}", either(&known)));
            self.error(&said.at, message, help);
            return None;
        };
        Some((said, word))
    }

    /// What stands where one of some words should.
    pub(super) fn word_said(
        &mut self,
        table: &mut Table<'_>,
        name: &str,
    ) -> Option<(Said, Vec<&'static str>)> {
        let (key, entry) = table.take(name);
        let Takes::Word(known) = key.takes else { unreachable!("`{name}` is a word") };
        let (entry, known) = (entry?, known());
        if !entry.value.get_ref().is_str() {
            let wanted =
                if known.len() > 3 { format!("a word such as `\"{}\"`", known[0]) } else { either(&known) };
            let help = match (name, entry.value.get_ref()) {
                ("confirm", DeValue::Boolean(true)) => "write `confirm = \"ask\"`",
                ("confirm", DeValue::Boolean(false)) => "write `confirm = \"never\"`, or leave it out",
                _ => "write it in quotes",
            };
            self.wrong_type_help(&entry, &wanted, Some(help.into()));
            return None;
        }
        Some((self.text_of(&entry, Chars::Some(QUOTED_CHARS_MAX))?, known))
    }

    /// A statement is the author's to the last letter: what the environment says must not become part of it.
    fn sql_of(&mut self, entry: &Entry<'_>) -> Option<Said> {
        if let DeValue::String(text) = entry.value.get_ref()
            && let Some(start) = text.find("${")
        {
            let end = text[start..].find('}').map_or(text.len(), |length| start + length + 1);
            let at = entry.value_at(self).inside(text, start..end);
            let help = "write `:name` where a value goes, and say what it is in `arguments`";
            self.error(&at, "variables are not replaced in a statement", help);
            return None;
        }
        if let DeValue::Array(_) = entry.value.get_ref() {
            let help = "a tool runs one statement; make a tool for each";
            self.wrong_type_help(entry, "a string", Some(help.into()));
            return None;
        }
        self.text_of(entry, Chars::Words(SQL_CHARS_MAX))
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

    pub(super) fn boolean(&mut self, table: &mut Table<'_>, name: &str) -> Option<bool> {
        let (key, entry) = table.take(name);
        let Takes::Boolean = key.takes else { unreachable!("`{name}` is yes or no") };
        let entry = entry?;
        match entry.value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            DeValue::String(text) if matches!(text.as_ref(), "true" | "false") => {
                let help = format!("write `{text}` without quotes");
                self.wrong_type_help(&entry, "`true` or `false`", Some(help));
                None
            }
            DeValue::String(text) if matches!(text.as_ref(), "yes" | "on" | "no" | "off") => {
                let meant = matches!(text.as_ref(), "yes" | "on");
                self.wrong_type_help(&entry, "`true` or `false`", Some(format!("write `{meant}`")));
                None
            }
            _ => {
                self.wrong_type(&entry, "`true` or `false`");
                None
            }
        }
    }

    pub(super) fn integer<N: TryFrom<u64>>(&mut self, table: &mut Table<'_>, name: &str) -> Option<N> {
        let (key, entry) = table.take(name);
        let Takes::Integer { least, most } = key.takes else { unreachable!("`{name}` is a number") };
        let entry = entry?;
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
        let value = value.and_then(|value| u64::try_from(value).ok());
        let value =
            value.filter(|value| (least..=most).contains(value)).and_then(|value| N::try_from(value).ok());
        if value.is_none() {
            let at = At::new(&self.origin, entry.value.span());
            let message = format!("`{name}` must be from {least} to {most}");
            self.found.push(Diagnostic::error(message).at(&at));
        }
        value
    }

    /// The names of columns, none twice: an array of them, or one alone.
    pub(super) fn columns(&mut self, table: &mut Table<'_>, name: &str) -> Option<Vec<Said>> {
        let (key, entry) = table.take(name);
        let Takes::Columns = key.takes else { unreachable!("`{name}` is columns") };
        let entry = entry?;
        match entry.value.get_ref() {
            DeValue::String(_) => self.text_of(&entry, Chars::Some(COLUMN_CHARS_MAX)).map(|one| vec![one]),
            _ => self.texts(&entry, "a string or an array of strings", COLUMN_CHARS_MAX),
        }
    }

    /// Texts, none twice, at least one. Whether they are among the words is for whoever knows what they are.
    pub(super) fn words(&mut self, table: &mut Table<'_>, name: &str) -> Option<Vec<Said>> {
        let (key, entry) = table.take(name);
        let Takes::Words(known) = key.takes else { unreachable!("`{name}` is words") };
        let entry = entry?;
        if let DeValue::String(one) = entry.value.get_ref()
            && known().contains(&one.as_ref())
        {
            self.wrong_type_help(&entry, "an array of strings", Some(format!("write `[\"{one}\"]`")));
            return None;
        }
        self.texts(&entry, "an array of strings", QUOTED_CHARS_MAX)
    }

    pub(super) fn choice(&mut self, table: &mut Table<'_>, name: &str) -> Choice {
        let (key, entry) = table.take(name);
        let Takes::Choice = key.takes else { unreachable!("`{name}` is a choice") };
        let Some(entry) = entry else { return Choice::Unsaid };
        let chars_max = COLUMN_CHARS_MAX;
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
    pub(super) fn literals(&mut self, table: &mut Table<'_>, name: &str) -> Option<Vec<Placed<Literal>>> {
        let (key, entry) = table.take(name);
        let Takes::Literals = key.takes else { unreachable!("`{name}` is values") };
        let (entry, chars_max) = (entry?, COLUMN_CHARS_MAX);
        let items = self.items(&entry, "an array of strings or of integers")?;
        let wanted = match items.first()?.value.get_ref() {
            DeValue::String(_) => "a string, like the first",
            DeValue::Integer(_) => "an integer, like the first",
            _ => "a string or an integer",
        };
        let mut out: Vec<Placed<Literal>> = Vec::new();
        for item in &items {
            let at = At::new(&self.origin, item.value.span());
            match (item.value.get_ref(), items.first()?.value.get_ref()) {
                (DeValue::String(_), DeValue::String(_)) => {
                    let said = self.text_of(item, Chars::Any(chars_max));
                    out.extend(said.map(|said| Placed::new(Literal::Text(said.value), at)));
                }
                (DeValue::Integer(digits), DeValue::Integer(_)) => {
                    match i64::from_str_radix(digits.as_str(), digits.radix()) {
                        Ok(value) => out.push(Placed::new(Literal::Integer(value), at)),
                        Err(_) => self.too_large(&at),
                    }
                }
                (_, _) => {
                    let help = "a list of values is for texts, dates and whole numbers, all of one sort";
                    self.wrong_type_help(item, wanted, Some(help.into()));
                }
            }
        }
        let values: Vec<(&Literal, &At)> = out.iter().map(|one| (&one.value, &one.at)).collect();
        let twice = twice(&values);
        self.found.extend(twice);
        Some(out)
    }

    fn too_large(&mut self, at: &At) {
        self.error(at, "this number has more than 64 bits", "write it in quotes, for `as = \"decimal\"`");
    }

    /// A text, a number, `true` or `false`.
    pub(super) fn literal(&mut self, table: &mut Table<'_>, name: &str) -> Option<Placed<Literal>> {
        let (key, entry) = table.take(name);
        let Takes::Literal = key.takes else { unreachable!("`{name}` is a value") };
        let entry = entry?;
        let at = entry.value_at(self);
        let value = match entry.value.get_ref() {
            DeValue::String(_) => Literal::Text(self.text_of(&entry, Chars::Any(COLUMN_CHARS_MAX))?.value),
            DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
                Ok(value) => Literal::Integer(value),
                Err(_) => {
                    self.too_large(&at);
                    return None;
                }
            },
            DeValue::Float(digits) => Literal::Number(digits.as_str().replace('_', "")),
            DeValue::Boolean(value) => Literal::Boolean(*value),
            DeValue::Datetime(when) => {
                let help = format!("write it in quotes: `\"{when}\"`");
                self.wrong_type_help(&entry, "a string, a number, `true` or `false`", Some(help));
                return None;
            }
            DeValue::Array(_) | DeValue::Table(_) => {
                self.wrong_type(&entry, "a string, a number, `true` or `false`");
                return None;
            }
        };
        Some(Placed::new(value, at))
    }

    pub(super) fn rate(&mut self, table: &mut Table<'_>, name: &str) -> Option<Rate> {
        let (key, entry) = table.take(name);
        let Takes::Rate = key.takes else { unreachable!("`{name}` is a rate") };
        let entry = entry?;
        if let DeValue::Integer(calls) = entry.value.get_ref() {
            let help = format!("write calls and a time: `\"{}/min\"`", calls.as_str());
            self.wrong_type_help(&entry, "a text such as `\"60/min\"`", Some(help));
            return None;
        }
        let said = self.text_of(&entry, Chars::Some(QUOTED_CHARS_MAX))?;
        match rate::parse(&said.value) {
            Ok(rate) => Some(rate),
            Err(bad) => {
                let message =
                    format!("{} is not so many calls in so long a time: {}", said.quoted(), bad.why);
                self.error(&said.at, message, bad.help);
                None
            }
        }
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

/// Where a key belongs that is none of this section's: the one that is probably meant, or the section that has it.
fn elsewhere(section: &'static Section, unknown: &str) -> String {
    let lower = unknown.to_lowercase().replace('-', "_");
    let same = section.keys.iter().find(|key| key.name == lower);
    let other = || section.keys.iter().find(|key| key.also_known_as.contains(&lower.as_str()));
    if let Some(key) = same {
        return format!("did you mean `{}`?", key.name);
    }
    if let Some(key) = other() {
        return format!("did you mean `{}`, as in `{}`?", key.name, example(key));
    }
    if let Some(slip) = did_you_mean(unknown, section.names()) {
        return slip;
    }
    let others = SECTIONS.iter().filter(|other| other.keys.iter().any(|key| key.name == unknown));
    let homes: Vec<&str> = others.map(|other| other.header).collect();
    match homes.as_slice() {
        [] => format!("known here: {}", listed(&section.names())),
        homes => format!("it belongs in {}", either(homes)),
    }
}

/// A line with a key, or its header where it is a table of its own.
fn example(key: &Key) -> String {
    match key.takes {
        Takes::Table(section) | Takes::Named(section, _) => section.header.to_owned(),
        _ => format!("{} = {}", key.name, key.such_as),
    }
}

/// What would have been right, or all that would be.
pub(super) fn instead(said: &str, known: &[&str]) -> String {
    did_you_mean(said, known.iter().copied()).unwrap_or_else(|| format!("known here: {}", listed(known)))
}

/// `a`, `b` and `c`
pub(super) fn listed(words: &[&str]) -> String {
    joined(words, "and")
}

/// `a`, `b` or `c`
pub(super) fn either(words: &[&str]) -> String {
    joined(words, "or")
}

fn joined(words: &[&str], with: &str) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => "nothing".into(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} {with} {last}", all.join(", ")),
    }
}
