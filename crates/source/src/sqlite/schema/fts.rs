//! Full-text indexes: FTS5 tables, as their declarations describe them.
//!
//! An FTS5 table with external content is the index of that table; one that stores its texts itself is a
//! table of its own. Search terms are passed as quoted prefixes, so that nothing a caller sends is parsed as
//! FTS5 query syntax.

use rusqlite::{Connection, Result};

use crate::sqlite::schema::{ColumnDef, RowLocator, SchemaEntry, Table, quote_identifier};

/// A full-text index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FtsIndex {
    /// The FTS5 table.
    pub(crate) name: String,
    /// Its columns, and their indexes in the table whose rows it finds.
    pub(crate) columns: Vec<(String, usize)>,
    pub(crate) is_trigram: bool,
}

/// The declaration of an FTS5 table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FtsDeclaration {
    pub(crate) content: FtsContent,
    content_rowid: Option<String>,
    /// In lower case.
    unindexed: Vec<String>,
    is_trigram: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FtsContent {
    Internal,
    /// Another table stores the texts.
    External(String),
    /// The texts are not stored at all.
    Contentless,
}

/// A trigram index finds nothing shorter.
const TRIGRAM_CHARS_MIN: usize = 3;

impl FtsDeclaration {
    /// Parses a declaration; `None` if it is not an FTS5 table.
    pub(crate) fn parse(sql: &str) -> Option<Self> {
        let open = sql.find('(')?;
        let head: Vec<&str> = sql[..open].split_whitespace().collect();
        let [.., using, module] = head[..] else { return None };
        if !using.eq_ignore_ascii_case("using") || !module.eq_ignore_ascii_case("fts5") {
            return None;
        }
        let close = sql.rfind(')').filter(|close| *close > open)?;
        let mut declaration = Self {
            content: FtsContent::Internal,
            content_rowid: None,
            unindexed: Vec::new(),
            is_trigram: false,
        };
        for argument in split_arguments(&sql[open + 1..close]) {
            let Some((option, value)) = parse_option(&argument) else {
                declaration.parse_column(&argument);
                continue;
            };
            match option.to_ascii_lowercase().as_str() {
                "content" if value.is_empty() => declaration.content = FtsContent::Contentless,
                "content" => declaration.content = FtsContent::External(value),
                "content_rowid" => declaration.content_rowid = Some(value),
                "tokenize" => declaration.is_trigram = value.to_ascii_lowercase().contains("trigram"),
                _ => {}
            }
        }
        Some(declaration)
    }

    fn parse_column(&mut self, argument: &str) {
        let words: Vec<&str> = argument.split_whitespace().collect();
        if let [name, .., last] = words[..]
            && last.eq_ignore_ascii_case("unindexed")
        {
            self.unindexed.push(unquote(name).to_ascii_lowercase());
        }
    }

    fn is_indexed(&self, column: &str) -> bool {
        !self.unindexed.contains(&column.to_ascii_lowercase())
    }

    /// The index of an FTS5 table over its own content.
    pub(crate) fn self_index(&self, table: &Table) -> FtsIndex {
        let columns = table.columns.iter().enumerate().filter(|(_, column)| self.is_indexed(&column.name));
        FtsIndex {
            name: table.name.clone(),
            columns: columns.map(|(index, column)| (column.name.clone(), index)).collect(),
            is_trigram: self.is_trigram,
        }
    }
}

/// The FTS5 table that indexes this table, if there is one.
pub(crate) fn find_index(
    connection: &Connection,
    entries: &[SchemaEntry],
    table: &Table,
) -> Result<Option<FtsIndex>> {
    let RowLocator::Rowid(rowid) = &table.locator else { return Ok(None) };
    for entry in entries.iter().filter(|entry| entry.kind == "virtual") {
        let Some(declaration) = FtsDeclaration::parse(&entry.sql) else { continue };
        let FtsContent::External(content) = &declaration.content else { continue };
        // Both must identify rows by the same rowid.
        let is_rowid = declaration.content_rowid.as_deref().is_none_or(|name| {
            quote_identifier(name).eq_ignore_ascii_case(rowid) || name.eq_ignore_ascii_case("rowid")
        });
        if !content.eq_ignore_ascii_case(&table.name) || !is_rowid {
            continue;
        }
        let mut statement =
            connection.prepare("SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE hidden <> 1")?;
        let names = statement.query_map([&entry.name], |row| row.get::<_, String>(0))?;
        let names: Vec<String> = names.collect::<Result<_>>()?;
        let place = |name: &str| {
            table.columns.iter().position(|column: &ColumnDef| column.name.eq_ignore_ascii_case(name))
        };
        let columns: Vec<(String, usize)> = names
            .into_iter()
            .filter(|name| declaration.is_indexed(name))
            .filter_map(|name| place(&name).map(|index| (name, index)))
            .collect();
        if !columns.is_empty() {
            return Ok(Some(FtsIndex {
                name: entry.name.clone(),
                columns,
                is_trigram: declaration.is_trigram,
            }));
        }
    }
    Ok(None)
}

impl FtsIndex {
    /// The query for rows that contain words starting with each of these terms, in these columns of the
    /// table. `None` if the index cannot answer: it lacks a column, or its tokenizer would drop or split a
    /// term.
    pub(crate) fn match_expression(&self, terms: &[&str], table_columns: &[usize]) -> Option<String> {
        let name =
            |index: &usize| self.columns.iter().find(|(_, place)| place == index).map(|(name, _)| name);
        let names: Option<Vec<String>> =
            table_columns.iter().map(|index| name(index).map(|name| quote_identifier(name))).collect();
        let names = names.filter(|names| !names.is_empty())?;
        let is_indexable = |word: &&str| match self.is_trigram {
            true => word.chars().count() >= TRIGRAM_CHARS_MIN,
            // The index may split a term into several tokens, or drop it.
            false => word.chars().all(char::is_alphanumeric),
        };
        if !terms.iter().all(is_indexable) || terms.is_empty() {
            return None;
        }
        let terms: Vec<String> = terms.iter().map(|word| format!("{} *", quote_identifier(word))).collect();
        Some(format!("{{{}}} : ({})", names.join(" "), terms.join(" AND ")))
    }
}

/// Splits at commas outside quotes.
fn split_arguments(text: &str) -> Vec<String> {
    let mut arguments = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (None, ',') => {
                arguments.push(String::new());
                continue;
            }
            (None, '\'' | '"' | '`') => quote = Some(c),
            (None, '[') => quote = Some(']'),
            (Some(end), c) if c == end => quote = None,
            _ => {}
        }
        if let Some(last) = arguments.last_mut() {
            last.push(c);
        }
    }
    arguments.iter().map(|argument| argument.trim().to_owned()).collect()
}

/// Parses `name = value`.
fn parse_option(argument: &str) -> Option<(&str, String)> {
    let (name, value) = argument.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| (name, unquote(value.trim())))
}

fn unquote(text: &str) -> String {
    let mut chars = text.chars();
    let (Some(first), Some(last)) = (chars.next(), chars.next_back()) else { return text.to_owned() };
    match (first, last) {
        ('\'', '\'') | ('"', '"') | ('`', '`') => {
            let (double, single) = (format!("{first}{first}"), first.to_string());
            chars.as_str().replace(&double, &single)
        }
        ('[', ']') => chars.as_str().to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{FtsContent, FtsDeclaration, FtsIndex};

    fn check(sql: &str, expected: Option<(FtsContent, Option<&str>, &[&str], bool)>) {
        let declaration = FtsDeclaration::parse(sql);
        let expected = expected.map(|(content, rowid, unindexed, is_trigram)| FtsDeclaration {
            content,
            content_rowid: rowid.map(str::to_owned),
            unindexed: unindexed.iter().map(|&name| name.to_owned()).collect(),
            is_trigram,
        });
        assert_eq!(declaration, expected, "{sql}");
    }

    #[test]
    fn declarations_are_parsed() {
        let of = |name: &str| FtsContent::External(name.to_owned());
        check("CREATE VIRTUAL TABLE a USING fts5(x, y)", Some((FtsContent::Internal, None, &[], false)));
        check(
            "create virtual table a using FTS5 (x unindexed, y)",
            Some((FtsContent::Internal, None, &["x"], false)),
        );
        check(
            "CREATE VIRTUAL TABLE a USING fts5(x, content='')",
            Some((FtsContent::Contentless, None, &[], false)),
        );
        check(
            "CREATE VIRTUAL TABLE a USING fts5(x, content=\"it's, here\", content_rowid = 'id')",
            Some((of("it's, here"), Some("id"), &[], false)),
        );
        check(
            "CREATE VIRTUAL TABLE a USING fts5(x, content=[t], tokenize=\"trigram case_sensitive 0\")",
            Some((of("t"), None, &[], true)),
        );
        check("CREATE VIRTUAL TABLE a USING rtree(id, x, y)", None);
        check("CREATE TABLE fts5(a)", None);
        check("", None);
    }

    #[test]
    fn match_expressions_contain_only_quoted_terms() {
        let index = FtsIndex {
            name: "f".into(),
            columns: vec![("a".into(), 0), ("say \"b\"".into(), 2)],
            is_trigram: false,
        };
        let ask = |terms: &[&str], table_columns: &[usize]| index.match_expression(terms, table_columns);
        assert_eq!(ask(&["tea"], &[0]).as_deref(), Some(r#"{"a"} : ("tea" *)"#));
        let both = ask(&["tea", "NOT"], &[0, 2]);
        assert_eq!(both.as_deref(), Some(r#"{"a" "say ""b"""} : ("tea" * AND "NOT" *)"#));
        assert_eq!(ask(&["tea"], &[1]), None, "a column that is not in the index");
        assert_eq!(ask(&["a-b"], &[0]), None, "two words to the index");
        assert_eq!(ask(&["\"x\" OR y"], &[0]), None);
        assert_eq!(ask(&["tea"], &[]), None);
        let trigram = FtsIndex { is_trigram: true, ..index };
        assert_eq!(trigram.match_expression(&["te"], &[0]), None, "too short");
        assert_eq!(trigram.match_expression(&["t\"a"], &[0]).as_deref(), Some(r#"{"a"} : ("t""a" *)"#));
    }
}
