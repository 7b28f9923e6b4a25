//! Indexes of words: FTS5 tables, by what their declaration says.
//!
//! One that has a table for its content is that table's index; one that keeps its texts itself is a table of its
//! own. Words are asked for as quoted texts that a word begins with, so nothing that a caller writes is a part of
//! FTS5's own language.

use rusqlite::{Connection, Result};

use super::schema::{ColumnDef, RowLocator, SchemaEntry, Table, quote_identifier};

/// What finds rows by words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FtsIndex {
    /// The FTS5 table.
    pub(super) name: String,
    /// Its columns, and their places in the table whose rows it finds.
    pub(super) columns: Vec<(String, usize)>,
    pub(super) is_trigram: bool,
}

/// How an FTS5 table was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FtsDeclaration {
    pub(super) content: FtsContent,
    content_rowid: Option<String>,
    /// In small letters.
    unindexed: Vec<String>,
    is_trigram: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FtsContent {
    Internal,
    /// Another table has the texts.
    External(String),
    /// Nobody has them.
    Contentless,
}

/// A trigram index knows nothing shorter.
const TRIGRAM_CHARS_MIN: usize = 3;

impl FtsDeclaration {
    /// From the words of its declaration; none if it is no FTS5 table.
    pub(super) fn parse(sql: &str) -> Option<Self> {
        let open = sql.find('(')?;
        let head: Vec<&str> = sql[..open].split_whitespace().collect();
        let [.., using, module] = head[..] else { return None };
        if !using.eq_ignore_ascii_case("using") || !module.eq_ignore_ascii_case("fts5") {
            return None;
        }
        let close = sql.rfind(')').filter(|close| *close > open)?;
        let mut made = Self {
            content: FtsContent::Internal,
            content_rowid: None,
            unindexed: Vec::new(),
            is_trigram: false,
        };
        for argument in split_arguments(&sql[open + 1..close]) {
            let Some((option, value)) = parse_option(&argument) else {
                made.parse_column(&argument);
                continue;
            };
            match option.to_ascii_lowercase().as_str() {
                "content" if value.is_empty() => made.content = FtsContent::Contentless,
                "content" => made.content = FtsContent::External(value),
                "content_rowid" => made.content_rowid = Some(value),
                "tokenize" => made.is_trigram = value.to_ascii_lowercase().contains("trigram"),
                _ => {}
            }
        }
        Some(made)
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

    /// The index that a table of words is by itself.
    pub(super) fn self_index(&self, table: &Table) -> FtsIndex {
        let columns = table.columns.iter().enumerate().filter(|(_, column)| self.is_indexed(&column.name));
        FtsIndex {
            name: table.name.clone(),
            columns: columns.map(|(at, column)| (column.name.clone(), at)).collect(),
            is_trigram: self.is_trigram,
        }
    }
}

/// The index that some FTS5 table is for this one, if one is.
pub(super) fn find_index(
    connection: &Connection,
    all: &[SchemaEntry],
    table: &Table,
) -> Result<Option<FtsIndex>> {
    let RowLocator::Rowid(rowid) = &table.locator else { return Ok(None) };
    for listed in all.iter().filter(|listed| listed.kind == "virtual") {
        let Some(made) = FtsDeclaration::parse(&listed.sql) else { continue };
        let FtsContent::External(content) = &made.content else { continue };
        // Its rows have to be found by the same number.
        let is_rowid = made.content_rowid.as_deref().is_none_or(|name| {
            quote_identifier(name).eq_ignore_ascii_case(rowid) || name.eq_ignore_ascii_case("rowid")
        });
        if !content.eq_ignore_ascii_case(&table.name) || !is_rowid {
            continue;
        }
        let mut statement =
            connection.prepare("SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE hidden <> 1")?;
        let names = statement.query_map([&listed.name], |row| row.get::<_, String>(0))?;
        let names: Vec<String> = names.collect::<Result<_>>()?;
        let place = |name: &str| {
            table.columns.iter().position(|column: &ColumnDef| column.name.eq_ignore_ascii_case(name))
        };
        let columns: Vec<(String, usize)> = names
            .into_iter()
            .filter(|name| made.is_indexed(name))
            .filter_map(|name| place(&name).map(|at| (name, at)))
            .collect();
        if !columns.is_empty() {
            return Ok(Some(FtsIndex { name: listed.name.clone(), columns, is_trigram: made.is_trigram }));
        }
    }
    Ok(None)
}

impl FtsIndex {
    /// What is asked for rows that have a word that begins with each of these, in these places of the table. None
    /// if the index cannot tell: it does not know a column, or a word has nothing that it keeps.
    pub(super) fn match_expression(&self, words: &[&str], places: &[usize]) -> Option<String> {
        let name = |at: &usize| self.columns.iter().find(|(_, place)| place == at).map(|(name, _)| name);
        let names: Option<Vec<String>> =
            places.iter().map(|at| name(at).map(|name| quote_identifier(name))).collect();
        let names = names.filter(|names| !names.is_empty())?;
        let is_known = |word: &&str| match self.is_trigram {
            true => word.chars().count() >= TRIGRAM_CHARS_MIN,
            // One word to us may be several to the index, or none.
            false => word.chars().all(char::is_alphanumeric),
        };
        if !words.iter().all(is_known) || words.is_empty() {
            return None;
        }
        let words: Vec<String> = words.iter().map(|word| format!("{} *", quote_identifier(word))).collect();
        Some(format!("{{{}}} : ({})", names.join(" "), words.join(" AND ")))
    }
}

/// Splits at commas outside of quotes.
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

/// `name = value`, if it is one.
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
        let made = FtsDeclaration::parse(sql);
        let expected = expected.map(|(content, rowid, unindexed, is_trigram)| FtsDeclaration {
            content,
            content_rowid: rowid.map(str::to_owned),
            unindexed: unindexed.iter().map(|&name| name.to_owned()).collect(),
            is_trigram,
        });
        assert_eq!(made, expected, "{sql}");
    }

    #[test]
    fn declarations_are_read() {
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
    fn words_are_asked_for_and_nothing_else() {
        let index = FtsIndex {
            name: "f".into(),
            columns: vec![("a".into(), 0), ("say \"b\"".into(), 2)],
            is_trigram: false,
        };
        let ask = |words: &[&str], places: &[usize]| index.match_expression(words, places);
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
