//! Reads typed values from TOML tables, and collects diagnostics.
//!
//! The [table of keys](super::keys) has the type of each key. A [`TomlTable`] removes the keys that are read; the
//! remaining ones are unknown, and are reported with the nearest known key.

mod body_template;

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{
    COLLECTION, COLUMN_CHARS_MAX, Key, ROOT, SECTIONS, SQL_CHARS_MAX, Section, TextLength, ValueType,
};
use super::{DeclaredFolders, FieldSelection, Literal, RateLimit, rate, variables};
use crate::diagnostic::{Diagnostic, FileLocation, FileText, Located};
use crate::nearest::did_you_mean;

/// A longer text is truncated when it is quoted.
const QUOTED_CHARS_MAX: usize = 60;

pub(super) struct ManifestReader<'e> {
    file_text: Arc<FileText>,
    env: &'e dyn Fn(&str) -> Option<String>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// A TOML table with the keys that have not been read.
pub(super) struct TomlTable<'t> {
    section: &'static Section,
    entries: Vec<Entry<'t>>,
    requested_keys: Vec<&'static str>,
}

#[derive(Clone)]
pub(super) struct Entry<'t> {
    pub(super) key: &'t str,
    pub(super) key_location: FileLocation,
    pub(super) value: &'t Spanned<DeValue<'t>>,
}

/// A text after its variables were replaced.
pub(super) struct TextValue {
    pub(super) value: String,
    pub(super) location: FileLocation,
    /// As written in the file. Diagnostics quote this, because a variable may hold a secret.
    pub(super) raw: String,
}

impl TextValue {
    pub(super) fn located<T>(&self, value: T) -> Located<T> {
        Located::new(value, self.location.clone())
    }

    pub(super) fn quoted(&self) -> String {
        quoted(&self.raw)
    }
}

impl<'t> TomlTable<'t> {
    fn new(origin: &Arc<FileText>, section: &'static Section, table: &'t DeTable<'t>) -> Self {
        let mut entries: Vec<Entry<'t>> = table
            .iter()
            .map(|(key, value)| Entry {
                key: key.get_ref(),
                key_location: FileLocation::new(origin, key.span()),
                value,
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_location.span().start);
        Self { section, entries, requested_keys: Vec::new() }
    }

    /// Removes a key. Returns its definition, and its entry if it is present.
    pub(super) fn take(&mut self, name: &str) -> (&'static Key, Option<Entry<'t>>) {
        let key = self.section.key(name);
        self.requested_keys.push(key.name);
        let at = self.entries.iter().position(|entry| entry.key == name);
        (key, at.map(|at| self.entries.remove(at)))
    }

    /// Removes a key that is not in the section but has its own error message.
    pub(super) fn take_unknown(&mut self, name: &str) -> Option<Entry<'t>> {
        let at = self.entries.iter().position(|entry| entry.key == name)?;
        Some(self.entries.remove(at))
    }

    /// Whether it has no key that was not removed.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where a key is, if it is present.
    pub(super) fn key_location(&self, name: &str) -> Option<FileLocation> {
        self.entries.iter().find(|entry| entry.key == name).map(|entry| entry.key_location.clone())
    }

    /// The keys of its section.
    pub(super) fn keys(&self) -> &'static [Key] {
        self.section.keys
    }
}

impl Entry<'_> {
    /// The value as written in the file.
    pub(super) fn raw_value(&self, reader: &ManifestReader<'_>) -> String {
        reader.file_text.text[self.value.span()].to_owned()
    }

    pub(super) fn value_location(&self, reader: &ManifestReader<'_>) -> FileLocation {
        FileLocation::new(&reader.file_text, self.value.span())
    }
}

impl<'e> ManifestReader<'e> {
    pub(super) fn new(file_text: Arc<FileText>, env: &'e dyn Fn(&str) -> Option<String>) -> Self {
        Self { file_text, env, diagnostics: Vec::new() }
    }

    pub(super) fn error(&mut self, at: &FileLocation, message: impl Into<String>, help: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error(message).at(at).help(help));
    }

    pub(super) fn document<'t>(&self, document: &'t Spanned<DeTable<'t>>) -> TomlTable<'t> {
        TomlTable::new(&self.file_text, &ROOT, document.get_ref())
    }

    /// The table under a key.
    pub(super) fn table<'t>(
        &mut self,
        parent: &mut TomlTable<'t>,
        name: &str,
    ) -> Option<(Entry<'t>, TomlTable<'t>)> {
        let (key, entry) = parent.take(name);
        let ValueType::Table(section) = key.value_type else { unreachable!("`{name}` is a table") };
        let entry = entry?;
        let table = self.entry_table(&entry, section, &format!("`{}`", section.header))?;
        Some((entry, table))
    }

    fn entry_table<'t>(
        &mut self,
        entry: &Entry<'t>,
        section: &'static Section,
        example: &str,
    ) -> Option<TomlTable<'t>> {
        match entry.value.get_ref() {
            DeValue::Table(table) => Some(TomlTable::new(&self.file_text, section, table)),
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                let message = format!("{} is an array of tables", quoted(entry.key));
                self.error(&entry.key_location, message, format!("use single brackets: {example}"));
                None
            }
            _ => {
                self.type_error(entry, &format!("a table such as {example}"));
                None
            }
        }
    }

    /// The tables under a key, by name: `[sources.crm]`.
    pub(super) fn named_tables<'t>(
        &mut self,
        parent: &mut TomlTable<'t>,
        name: &str,
    ) -> Vec<(Entry<'t>, TomlTable<'t>)> {
        let (key, entry) = parent.take(name);
        let ValueType::NamedTables(section, _) = key.value_type else { unreachable!("`{name}` has tables") };
        let Some(entry) = entry else { return Vec::new() };
        let (example, entry_example) = match name {
            "fields" => ("`email = { format = \"email\" }`", "`{ format = \"email\" }`"),
            "arguments" => ("`since = { type = \"date\" }`", "`{ type = \"date\" }`"),
            "sources" => ("`[sources.crm]`", "`[sources.crm]`"),
            "collections" => ("`[collections.customers]`", "`[collections.customers]`"),
            "related" => ("`[collections.orders.related.customer]`", "`{ collection = \"customers\" }`"),
            "roles" => ("`[roles.staff]`", "`{ when = \"anyone\" }`"),
            "access" => ("`[collections.customers.access.staff]`", "`{ operations = [\"get\"] }`"),
            "prompts" => ("`[prompts.review]`", "`{ access = { roles = [\"staff\"] } }`"),
            _ => ("`[tools.lookup_customer]`", "`[tools.lookup_customer]`"),
        };
        let Some(all) = self.entry_table(&entry, section, example) else { return Vec::new() };
        let mut tables = Vec::new();
        for entry in all.entries {
            if let Some(table) = self.entry_table(&entry, section, entry_example) {
                tables.push((entry, table));
            }
        }
        tables
    }

    /// Reports the remaining keys as unknown.
    pub(super) fn finish(&mut self, table: TomlTable<'_>) {
        let section = table.section;
        // Every key of the section must have been read.
        debug_assert!(
            section.keys.iter().all(|key| table.requested_keys.contains(&key.name)),
            "not all keys of {} are read, only {:?}",
            section.header,
            table.requested_keys
        );
        self.report_unknown_keys(&table);
    }

    /// Reports the keys that its section does not have.
    pub(super) fn report_unknown_keys(&mut self, table: &TomlTable<'_>) {
        let section = table.section;
        for entry in table.entries.iter().filter(|entry| !section.names().contains(&entry.key)) {
            let help = unknown_key_help(section, entry.key);
            self.error(&entry.key_location, format!("unknown key {}", quoted(entry.key)), help);
        }
    }

    pub(super) fn text(&mut self, table: &mut TomlTable<'_>, name: &str) -> Option<TextValue> {
        let (key, entry) = table.take(name);
        match key.value_type {
            ValueType::Text(chars) => self.entry_text(&entry?, chars),
            ValueType::Sql => self.entry_sql(&entry?),
            _ => unreachable!("`{name}` is a text"),
        }
    }

    /// The value of a key that takes one of several words.
    pub(super) fn one_of(
        &mut self,
        table: &mut TomlTable<'_>,
        name: &str,
    ) -> Option<(TextValue, &'static str)> {
        let (text, known) = self.one_of_text(table, name)?;
        let Some(word) = known.iter().find(|word| **word == text.value) else {
            let message = format!("`{name}` cannot be {}", text.quoted());
            let help = did_you_mean(&text.value, known.iter().copied())
                .unwrap_or_else(|| format!("write {}", join_or(&known)));
            self.error(&text.location, message, help);
            return None;
        };
        Some((text, word))
    }

    /// The text of a key that takes one of several words, and those words.
    pub(super) fn one_of_text(
        &mut self,
        table: &mut TomlTable<'_>,
        name: &str,
    ) -> Option<(TextValue, Vec<&'static str>)> {
        let (key, entry) = table.take(name);
        let ValueType::OneOf(known) = key.value_type else { unreachable!("`{name}` is a word") };
        let (entry, known) = (entry?, known());
        if !entry.value.get_ref().is_str() {
            let expected =
                if known.len() > 3 { format!("a word such as `\"{}\"`", known[0]) } else { join_or(&known) };
            let help = match (name, entry.value.get_ref()) {
                ("confirm", DeValue::Boolean(true)) => "write `confirm = \"ask\"`",
                ("confirm", DeValue::Boolean(false)) => "write `confirm = \"never\"`, or leave it out",
                _ => "write it in quotes",
            };
            self.type_error_with_help(&entry, &expected, Some(help.into()));
            return None;
        }
        Some((self.entry_text(&entry, TextLength::NonEmpty(QUOTED_CHARS_MAX))?, known))
    }

    /// Variables are not replaced in SQL, so that the environment cannot inject into a statement.
    fn entry_sql(&mut self, entry: &Entry<'_>) -> Option<TextValue> {
        if let DeValue::String(text) = entry.value.get_ref()
            && let Some(start) = text.find("${")
        {
            let end = text[start..].find('}').map_or(text.len(), |length| start + length + 1);
            let at = entry.value_location(self).inside(text, start..end);
            let help = "write `:name` for the value, and declare it in `arguments`";
            self.error(&at, "variables are not replaced in a statement", help);
            return None;
        }
        if let DeValue::Array(_) = entry.value.get_ref() {
            let help = "a tool runs one statement; write one tool for each";
            self.type_error_with_help(entry, "a string", Some(help.into()));
            return None;
        }
        self.entry_text(entry, TextLength::NonBlank(SQL_CHARS_MAX))
    }

    pub(super) fn entry_text(&mut self, entry: &Entry<'_>, chars: TextLength) -> Option<TextValue> {
        match entry.value.get_ref() {
            DeValue::String(text) => self.expand_text(entry.key, text, entry.value.span(), chars),
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => {
                let written = self.file_text.text[entry.value.span()].to_owned();
                let help = format!("write it in quotes: `\"{written}\"`");
                self.type_error_with_help(entry, "a string", Some(help));
                None
            }
            DeValue::Array(_) | DeValue::Table(_) => {
                self.type_error(entry, "a string");
                None
            }
        }
    }

    /// Replaces the variables of a text and checks its length.
    fn expand_text(
        &mut self,
        key: &str,
        text: &str,
        span: Range<usize>,
        chars: TextLength,
    ) -> Option<TextValue> {
        let at = FileLocation::new(&self.file_text, span);
        let value = match variables::expand(text, self.env) {
            Ok(value) => value,
            Err(all) => {
                for error in all {
                    let at = at.inside(text, error.span);
                    self.error(&at, error.message, error.help);
                }
                return None;
            }
        };
        let (chars_max, is_empty) = match chars {
            TextLength::Any(max) => (max, false),
            TextLength::NonEmpty(max) => (max, value.is_empty()),
            TextLength::NonBlank(max) => (max, value.trim().is_empty()),
        };
        let length = value.chars().count();
        if is_empty {
            self.error(&at, format!("`{key}` is empty"), "write a value, or remove the key");
            return None;
        }
        if length > chars_max {
            let message = format!("`{key}` has {length} characters, which exceeds the limit of {chars_max}");
            self.diagnostics.push(Diagnostic::error(message).at(&at));
            return None;
        }
        Some(TextValue { value, location: at, raw: text.to_owned() })
    }

    pub(super) fn boolean(&mut self, table: &mut TomlTable<'_>, name: &str) -> Option<bool> {
        let (key, entry) = table.take(name);
        let ValueType::Boolean = key.value_type else { unreachable!("`{name}` is a boolean") };
        let entry = entry?;
        match entry.value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            DeValue::String(text) if matches!(text.as_ref(), "true" | "false") => {
                let help = format!("write `{text}` without quotes");
                self.type_error_with_help(&entry, "`true` or `false`", Some(help));
                None
            }
            DeValue::String(text) if matches!(text.as_ref(), "yes" | "on" | "no" | "off") => {
                let meant = matches!(text.as_ref(), "yes" | "on");
                self.type_error_with_help(&entry, "`true` or `false`", Some(format!("write `{meant}`")));
                None
            }
            _ => {
                self.type_error(&entry, "`true` or `false`");
                None
            }
        }
    }

    pub(super) fn integer<N: TryFrom<u64>>(&mut self, table: &mut TomlTable<'_>, name: &str) -> Option<N> {
        let (key, entry) = table.take(name);
        let ValueType::Integer { min, max } = key.value_type else { unreachable!("`{name}` is an integer") };
        let entry = entry?;
        let DeValue::Integer(digits) = entry.value.get_ref() else {
            let unquoted = match entry.value.get_ref() {
                DeValue::String(text) => text.parse::<i64>().ok(),
                _ => None,
            };
            let help = unquoted.map(|unquoted| format!("write `{unquoted}` without quotes"));
            self.type_error_with_help(&entry, &format!("an integer from {min} to {max}"), help);
            return None;
        };
        let value = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        let value = value.and_then(|value| u64::try_from(value).ok());
        let value =
            value.filter(|value| (min..=max).contains(value)).and_then(|value| N::try_from(value).ok());
        if value.is_none() {
            let at = FileLocation::new(&self.file_text, entry.value.span());
            let message = format!("`{name}` must be from {min} to {max}");
            let is_page = name == "rows_max" && std::ptr::eq(table.section, &COLLECTION);
            let help = is_page.then(|| "for more rows, callers use `cursor`".to_owned());
            self.diagnostics.push(Diagnostic { help, ..Diagnostic::error(message).at(&at) });
        }
        value
    }

    /// Distinct names of columns: an array, or a single name.
    pub(super) fn columns(&mut self, table: &mut TomlTable<'_>, name: &str) -> Option<Vec<TextValue>> {
        let (key, entry) = table.take(name);
        let ValueType::Columns = key.value_type else { unreachable!("`{name}` is columns") };
        let entry = entry?;
        match entry.value.get_ref() {
            DeValue::String(_) => {
                self.entry_text(&entry, TextLength::NonEmpty(COLUMN_CHARS_MAX)).map(|one| vec![one])
            }
            _ => self.distinct_texts(&entry, "a string or an array of strings", COLUMN_CHARS_MAX),
        }
    }

    /// Pairs of column names; none if the key is missing.
    pub(super) fn column_pairs(
        &mut self,
        table: &mut TomlTable<'_>,
        name: &str,
    ) -> Vec<(Located<String>, TextValue)> {
        let (key, entry) = table.take(name);
        let ValueType::ColumnPairs = key.value_type else { unreachable!("`{name}` is pairs of columns") };
        let Some(entry) = entry else { return Vec::new() };
        let DeValue::Table(pairs) = entry.value.get_ref() else {
            self.type_error(&entry, &format!("a table such as `{}`", key.example));
            return Vec::new();
        };
        if pairs.is_empty() {
            let at = entry.value_location(self);
            self.error(&at, format!("`{name}` is empty"), format!("write `{name} = {}`", key.example));
        }
        let file_text = Arc::clone(&self.file_text);
        let pairs = pairs.iter().map(|(column, value)| Entry {
            key: column.get_ref(),
            key_location: FileLocation::new(&file_text, column.span()),
            value,
        });
        let length = TextLength::NonEmpty(COLUMN_CHARS_MAX);
        let located = |entry: &Entry<'_>| Located::new(entry.key.to_owned(), entry.key_location.clone());
        pairs.filter_map(|pair| Some((located(&pair), self.entry_text(&pair, length)?))).collect()
    }

    /// Texts by name; none if the key is missing.
    pub(super) fn text_pairs(
        &mut self,
        table: &mut TomlTable<'_>,
        name: &str,
    ) -> Vec<(Located<String>, TextValue)> {
        let (key, entry) = table.take(name);
        let ValueType::TextPairs = key.value_type else { unreachable!("`{name}` is texts by name") };
        let Some(entry) = entry else { return Vec::new() };
        let DeValue::Table(pairs) = entry.value.get_ref() else {
            self.type_error(&entry, &format!("a table such as `{}`", key.example));
            return Vec::new();
        };
        let file_text = Arc::clone(&self.file_text);
        let mut pairs: Vec<Entry<'_>> = pairs
            .iter()
            .map(|(name, value)| Entry {
                key: name.get_ref(),
                key_location: FileLocation::new(&file_text, name.span()),
                value,
            })
            .collect();
        pairs.sort_by_key(|pair| pair.key_location.span().start);
        let length = TextLength::Any(COLUMN_CHARS_MAX);
        let located = |entry: &Entry<'_>| Located::new(entry.key.to_owned(), entry.key_location.clone());
        pairs.iter().filter_map(|pair| Some((located(pair), self.entry_text(pair, length)?))).collect()
    }

    /// Distinct texts; none if the key is missing.
    pub(super) fn names(&mut self, table: &mut TomlTable<'_>, name: &str) -> Vec<TextValue> {
        let (key, entry) = table.take(name);
        let ValueType::Names = key.value_type else { unreachable!("`{name}` is names") };
        let Some(entry) = entry else { return Vec::new() };
        self.distinct_texts(&entry, "an array of strings", COLUMN_CHARS_MAX).unwrap_or_default()
    }

    /// Folders; none if the key is missing.
    pub(super) fn folders(&mut self, table: &mut TomlTable<'_>, name: &str) -> DeclaredFolders {
        let (key, entry) = table.take(name);
        let ValueType::Folders = key.value_type else { unreachable!("`{name}` is folders") };
        let Some(entry) = entry else { return DeclaredFolders::default() };
        let expected = "an array of folders, or `{ roots = \"client\" }`";
        let DeValue::Table(choice) = entry.value.get_ref() else {
            let texts = self.distinct_texts(&entry, expected, COLUMN_CHARS_MAX).unwrap_or_default();
            return DeclaredFolders::Named(
                texts.into_iter().map(|text| text.located(text.value.clone())).collect(),
            );
        };
        let is_client = choice.len() == 1
            && choice.iter().all(|(key, value)| {
                key.get_ref() == "roots"
                    && matches!(value.get_ref(), DeValue::String(text) if text == "client")
            });
        if is_client {
            return DeclaredFolders::ClientRoots;
        }
        self.type_error(&entry, expected);
        DeclaredFolders::default()
    }

    /// Distinct texts: an array, or a single one. Any of them may be empty.
    pub(super) fn texts(&mut self, table: &mut TomlTable<'_>, name: &str) -> Option<Vec<String>> {
        let (key, entry) = table.take(name);
        let ValueType::Texts = key.value_type else { unreachable!("`{name}` is texts") };
        let (entry, length) = (entry?, TextLength::Any(COLUMN_CHARS_MAX));
        if let DeValue::String(_) = entry.value.get_ref() {
            return self.entry_text(&entry, length).map(|one| vec![one.value]);
        }
        let items = self.items(&entry, "a string or an array of strings")?;
        let texts: Vec<TextValue> = items.iter().filter_map(|item| self.entry_text(item, length)).collect();
        let values: Vec<(&str, &FileLocation)> =
            texts.iter().map(|text| (text.value.as_str(), &text.location)).collect();
        let duplicates = duplicate_errors(&values);
        self.diagnostics.extend(duplicates);
        Some(texts.into_iter().map(|text| text.value).collect())
    }

    /// At least one distinct text. The caller checks whether they are among the known words.
    pub(super) fn some_of(&mut self, table: &mut TomlTable<'_>, name: &str) -> Option<Vec<TextValue>> {
        let (key, entry) = table.take(name);
        let ValueType::SomeOf(known) = key.value_type else { unreachable!("`{name}` is words") };
        let entry = entry?;
        if let DeValue::String(one) = entry.value.get_ref()
            && known().contains(&one.as_ref())
        {
            self.type_error_with_help(&entry, "an array of strings", Some(format!("write `[\"{one}\"]`")));
            return None;
        }
        self.distinct_texts(&entry, "an array of strings", QUOTED_CHARS_MAX)
    }

    pub(super) fn field_selection(&mut self, table: &mut TomlTable<'_>, name: &str) -> FieldSelection {
        let (key, entry) = table.take(name);
        let ValueType::FieldSelection = key.value_type else { unreachable!("`{name}` is a choice") };
        let Some(entry) = entry else { return FieldSelection::Default };
        let chars_max = COLUMN_CHARS_MAX;
        match entry.value.get_ref() {
            DeValue::Boolean(true) => FieldSelection::All,
            DeValue::Boolean(false) => FieldSelection::None,
            DeValue::Array(none) if none.is_empty() => FieldSelection::None,
            DeValue::String(one) => {
                let help = format!("write `[\"{one}\"]`");
                self.type_error_with_help(&entry, "an array of field names, `true` or `false`", Some(help));
                FieldSelection::Default
            }
            _ => match self.distinct_texts(&entry, "an array of field names, `true` or `false`", chars_max) {
                Some(texts) => {
                    FieldSelection::Only(texts.iter().map(|text| text.located(text.value.clone())).collect())
                }
                None => FieldSelection::Default,
            },
        }
    }

    fn distinct_texts(
        &mut self,
        entry: &Entry<'_>,
        expected: &str,
        chars_max: usize,
    ) -> Option<Vec<TextValue>> {
        let items = self.items(entry, expected)?;
        let mut texts: Vec<TextValue> = Vec::new();
        for item in &items {
            if let Some(text) = self.entry_text(item, TextLength::NonEmpty(chars_max)) {
                texts.push(text);
            }
        }
        let values: Vec<(&str, &FileLocation)> =
            texts.iter().map(|text| (text.value.as_str(), &text.location)).collect();
        let duplicates = duplicate_errors(&values);
        self.diagnostics.extend(duplicates);
        Some(texts)
    }

    /// The items of an array, which must not be empty.
    pub(super) fn items<'t>(&mut self, entry: &Entry<'t>, expected: &str) -> Option<Vec<Entry<'t>>> {
        let DeValue::Array(items) = entry.value.get_ref() else {
            self.type_error(entry, expected);
            return None;
        };
        if items.is_empty() {
            let at = FileLocation::new(&self.file_text, entry.value.span());
            self.error(&at, format!("`{}` is empty", entry.key), "list at least one, or remove the key");
            return None;
        }
        Some(items.iter().map(|value| Entry { value, ..entry.clone() }).collect())
    }

    /// Distinct texts, or distinct integers.
    pub(super) fn literals(
        &mut self,
        table: &mut TomlTable<'_>,
        name: &str,
    ) -> Option<Vec<Located<Literal>>> {
        let (key, entry) = table.take(name);
        let ValueType::Literals = key.value_type else { unreachable!("`{name}` is values") };
        let (entry, chars_max) = (entry?, COLUMN_CHARS_MAX);
        let items = self.items(&entry, "an array of strings or of integers")?;
        let expected = match items.first()?.value.get_ref() {
            DeValue::String(_) => "a string like the first value",
            DeValue::Integer(_) => "an integer like the first value",
            _ => "a string or an integer",
        };
        let mut out: Vec<Located<Literal>> = Vec::new();
        for item in &items {
            let at = FileLocation::new(&self.file_text, item.value.span());
            match (item.value.get_ref(), items.first()?.value.get_ref()) {
                (DeValue::String(_), DeValue::String(_)) => {
                    let text = self.entry_text(item, TextLength::Any(chars_max));
                    out.extend(text.map(|text| Located::new(Literal::Text(text.value), at)));
                }
                (DeValue::Integer(digits), DeValue::Integer(_)) => {
                    match i64::from_str_radix(digits.as_str(), digits.radix()) {
                        Ok(value) => out.push(Located::new(Literal::Integer(value), at)),
                        Err(_) => self.too_large(&at),
                    }
                }
                (_, _) => {
                    let help = "the values must be all strings or all integers";
                    self.type_error_with_help(item, expected, Some(help.into()));
                }
            }
        }
        let values: Vec<(&Literal, &FileLocation)> =
            out.iter().map(|one| (&one.value, &one.location)).collect();
        let duplicates = duplicate_errors(&values);
        self.diagnostics.extend(duplicates);
        Some(out)
    }

    fn too_large(&mut self, at: &FileLocation) {
        self.error(at, "this integer exceeds 64 bits", "write it in quotes, with `as = \"decimal\"`");
    }

    /// A text, a number, `true` or `false`.
    pub(super) fn literal(&mut self, table: &mut TomlTable<'_>, name: &str) -> Option<Located<Literal>> {
        let (key, entry) = table.take(name);
        let ValueType::Literal = key.value_type else { unreachable!("`{name}` is a value") };
        self.entry_literal(&entry?)
    }

    pub(super) fn entry_literal(&mut self, entry: &Entry<'_>) -> Option<Located<Literal>> {
        let at = entry.value_location(self);
        let value = match entry.value.get_ref() {
            DeValue::String(_) => {
                Literal::Text(self.entry_text(entry, TextLength::Any(COLUMN_CHARS_MAX))?.value)
            }
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
                self.type_error_with_help(entry, "a string, a number, `true` or `false`", Some(help));
                return None;
            }
            DeValue::Array(_) | DeValue::Table(_) => {
                self.type_error(entry, "a string, a number, `true` or `false`");
                return None;
            }
        };
        Some(Located::new(value, at))
    }

    /// The value of a key that another file reads.
    pub(super) fn raw<'t>(&mut self, table: &mut TomlTable<'t>, name: &str) -> Option<Entry<'t>> {
        table.take(name).1
    }

    /// The members of a table without keys of its own, in the order of the text.
    pub(super) fn members<'t>(&self, table: &'t DeTable<'t>) -> Vec<Entry<'t>> {
        TomlTable::new(&self.file_text, &ROOT, table).entries
    }

    pub(super) fn rate_limit(&mut self, table: &mut TomlTable<'_>, name: &str) -> Option<RateLimit> {
        let (key, entry) = table.take(name);
        let ValueType::Rate = key.value_type else { unreachable!("`{name}` is a rate") };
        let entry = entry?;
        if let DeValue::Integer(calls) = entry.value.get_ref() {
            let help = format!("write a number of calls and a unit: `\"{}/min\"`", calls.as_str());
            self.type_error_with_help(&entry, "a text such as `\"60/min\"`", Some(help));
            return None;
        }
        let text = self.entry_text(&entry, TextLength::NonEmpty(QUOTED_CHARS_MAX))?;
        match rate::parse(&text.value) {
            Ok(rate) => Some(rate),
            Err(error) => {
                let message = format!("{} is not a rate limit: {}", text.quoted(), error.reason);
                self.error(&text.location, message, error.help);
                None
            }
        }
    }

    pub(super) fn type_error(&mut self, entry: &Entry<'_>, expected: &str) {
        self.type_error_with_help(entry, expected, None);
    }

    fn type_error_with_help(&mut self, entry: &Entry<'_>, expected: &str, help: Option<String>) {
        let at = FileLocation::new(&self.file_text, entry.value.span());
        let found = type_name(entry.value.get_ref());
        let message = format!("{}: expected {expected}, found {found}", quoted(entry.key));
        self.diagnostics.push(Diagnostic { help, ..Diagnostic::error(message).at(&at) });
    }
}

fn duplicate_errors<T: std::hash::Hash + Eq>(values: &[(T, &FileLocation)]) -> Vec<Diagnostic> {
    let mut seen = std::collections::HashSet::new();
    let again = values.iter().filter(|(value, _)| !seen.insert(value));
    again.map(|(_, at)| Diagnostic::error("listed twice").at(at).help("keep one of them")).collect()
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

/// In backticks, truncated if it is long.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((at, _)) => format!("`{}…`", &text[..at]),
        None => format!("`{text}`"),
    }
}

/// The help for an unknown key: the key that is probably meant, or the section that has it.
fn unknown_key_help(section: &'static Section, unknown: &str) -> String {
    let lower = unknown.to_lowercase().replace('-', "_");
    let same = section.keys.iter().find(|key| key.name == lower);
    let other = || section.keys.iter().find(|key| key.aliases.contains(&lower.as_str()));
    if let Some(key) = same {
        return format!("did you mean `{}`?", key.name);
    }
    if let Some(key) = other() {
        return format!("did you mean `{}`, as in `{}`?", key.name, example_line(key));
    }
    if let Some(suggestion) = did_you_mean(unknown, section.names()) {
        return suggestion;
    }
    let others = SECTIONS.iter().filter(|other| other.keys.iter().any(|key| key.name == unknown));
    let headers: Vec<&str> = others.map(|other| other.header).collect();
    match headers.as_slice() {
        [] => format!("known keys: {}", join_and(&section.names())),
        headers => format!("it belongs in {}", join_or(headers)),
    }
}

/// An example line for a key, or the header of a table.
fn example_line(key: &Key) -> String {
    match key.value_type {
        ValueType::Table(section) | ValueType::NamedTables(section, _) => section.header.to_owned(),
        _ => format!("{} = {}", key.name, key.example),
    }
}

/// The nearest known word, or all known words. `what` they are: `kind`.
pub(super) fn suggest(text: &str, what: &str, known: &[&str]) -> String {
    did_you_mean(text, known.iter().copied()).unwrap_or_else(|| format!("known {what}s: {}", join_and(known)))
}

/// `a`, `b` and `c`
pub(super) fn join_and(words: &[&str]) -> String {
    join_words(words, "and")
}

/// `a`, `b` or `c`
pub(super) fn join_or(words: &[&str]) -> String {
    join_words(words, "or")
}

fn join_words(words: &[&str], with: &str) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => "nothing".into(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} {with} {last}", all.join(", ")),
    }
}
