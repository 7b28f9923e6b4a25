//! What a full-text index of PostgreSQL contains, from the expression that computes it.
//!
//! An index is used only if a search in it misses nothing: the expression turns whole columns into words, with one dictionary, and
//! nothing else. `to_tsvector('english'::regconfig, COALESCE(title, ''::text))`, also several, joined and weighted.

use crate::schema::ColumnInfo;

/// Names that only convert whole texts.
const HARMLESS: [&str; 9] =
    ["to_tsvector", "setweight", "coalesce", "text", "character", "varying", "regconfig", "char", "varchar"];

/// A computed `tsvector`.
#[derive(Debug, PartialEq)]
pub(super) struct TextVector {
    /// As the catalog prints it.
    pub(super) expression: String,
    /// As in the expression: `'english'::regconfig`.
    pub(super) dictionary: String,
    pub(super) columns: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq)]
enum Token<'e> {
    /// A name in lower case, or quoted.
    Name(String),
    Literal(&'e str),
    Other(char),
}

impl TextVector {
    /// `None` if the expression does something else, too.
    pub(super) fn parse(expression: &str, columns: &[ColumnInfo]) -> Option<Self> {
        let tokens = tokens(expression)?;
        let mut found =
            Self { expression: expression.to_owned(), dictionary: String::new(), columns: Vec::new() };
        // Whether the next column follows another one without a blank, which would join their words.
        let mut is_joined = false;
        for (at, token) in tokens.iter().enumerate() {
            let before = |back: usize| at.checked_sub(back).map(|at| &tokens[at]);
            match token {
                Token::Name(name) if name == "to_tsvector" => {
                    found.add_dictionary(&tokens[at + 1..])?;
                    is_joined = false;
                }
                Token::Name(name)
                    if HARMLESS.contains(&name.as_str()) && !is_column_place(before(1), name) => {}
                Token::Name(name) => {
                    let index = columns.iter().position(|column| column.name == *name)?;
                    let has_default = matches!(before(2), Some(Token::Name(name)) if name == "coalesce");
                    if is_joined || (columns[index].nullable && !has_default) {
                        return None;
                    }
                    if !found.columns.contains(&index) {
                        found.columns.push(index);
                    }
                    is_joined = true;
                }
                Token::Literal(text) if !text.is_empty() && text.trim().is_empty() => is_joined = false,
                Token::Literal(_) => {}
                Token::Other(c) if "(),:|".contains(*c) => {}
                Token::Other(_) => return None,
            }
        }
        (!found.columns.is_empty() && !found.dictionary.is_empty()).then_some(found)
    }

    /// The dictionary is the first argument, the same everywhere.
    fn add_dictionary(&mut self, after: &[Token<'_>]) -> Option<()> {
        let [
            Token::Other('('),
            Token::Literal(name),
            Token::Other(':'),
            Token::Other(':'),
            Token::Name(kind),
            ..,
        ] = after
        else {
            return None;
        };
        let dictionary = format!("'{name}'::regconfig");
        let is_new = self.dictionary.is_empty();
        if kind != "regconfig" || !(is_new || self.dictionary == dictionary) {
            return None;
        }
        self.dictionary = dictionary;
        Some(())
    }
}

/// Whether a name that is also a function or a type stands where a column would: after a parenthesis or a comma.
fn is_column_place(before: Option<&Token<'_>>, name: &str) -> bool {
    let is_type = matches!(before, Some(Token::Other(':')) | Some(Token::Name(_)));
    let is_function = matches!(name, "to_tsvector" | "setweight" | "coalesce");
    !is_type && !is_function
}

/// The parts of an expression as the catalog prints it; `None` if it has others.
fn tokens(expression: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            ' ' | '\n' => first.len_utf8(),
            '\'' => {
                let end = rest[1..].find('\'')? + 1;
                // A quote or a backslash in a text has no place here.
                if rest[1..end].contains('\\') || rest[end + 1..].starts_with('\'') {
                    return None;
                }
                tokens.push(Token::Literal(&rest[1..end]));
                end + 1
            }
            '"' => {
                let end = rest[1..].find('"')? + 1;
                if rest[end + 1..].starts_with('"') {
                    return None;
                }
                tokens.push(Token::Name(rest[1..end].to_owned()));
                end + 1
            }
            c if c.is_alphabetic() || c == '_' => {
                let end =
                    rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
                tokens.push(Token::Name(rest[..end].to_lowercase()));
                end
            }
            c => {
                tokens.push(Token::Other(c));
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::TextVector;
    use crate::column::Storage;
    use crate::schema::ColumnInfo;

    fn columns() -> Vec<ColumnInfo> {
        let column =
            |name: &str, nullable| ColumnInfo { nullable, ..ColumnInfo::computed(name, Storage::Text) };
        vec![column("title", false), column("Body text", false), column("notes", true), column("text", false)]
    }

    fn check(expression: &str, expected: Option<(&str, &[usize])>) {
        let found = TextVector::parse(expression, &columns());
        let found = found.as_ref().map(|found| (found.dictionary.as_str(), &found.columns[..]));
        assert_eq!(found, expected, "{expression}");
    }

    #[test]
    fn an_expression_of_whole_columns_and_one_dictionary_is_used() {
        let english = "'english'::regconfig";
        for (expression, columns) in [
            ("to_tsvector('english'::regconfig, title)", &[0][..]),
            ("to_tsvector('english'::regconfig, (title)::text)", &[0]),
            ("to_tsvector('english'::regconfig, ((title || ' '::text) || \"Body text\"))", &[0, 1]),
            ("to_tsvector('english'::regconfig, COALESCE(notes, ''::text))", &[2]),
            ("to_tsvector('english'::regconfig, (COALESCE(notes, ''::character varying))::text)", &[2]),
            (
                "(setweight(to_tsvector('english'::regconfig, title), 'A'::\"char\") || \
                 setweight(to_tsvector('english'::regconfig, COALESCE(notes, ''::text)), 'B'::\"char\"))",
                &[0, 2],
            ),
            ("to_tsvector('english'::regconfig, text)", &[3]),
        ] {
            check(expression, Some((english, columns)));
        }
        check(
            "to_tsvector('pg_catalog.simple'::regconfig, title)",
            Some(("'pg_catalog.simple'::regconfig", &[0])),
        );
    }

    #[test]
    fn an_expression_in_which_a_word_may_be_missing_is_not_used() {
        for expression in [
            "to_tsvector(title)",
            "to_tsvector('english'::regconfig, \"left\"(title, 100))",
            "to_tsvector('english'::regconfig, lower(title))",
            "to_tsvector('english'::regconfig, notes)",
            "to_tsvector('english'::regconfig, ((title || ' '::text) || notes))",
            "to_tsvector('english'::regconfig, (title || \"Body text\"))",
            "to_tsvector('english'::regconfig, (COALESCE(notes, ''::text) || title))",
            "(to_tsvector('english'::regconfig, title) || to_tsvector('german'::regconfig, \"Body text\"))",
            "to_tsvector('english'::regconfig, CASE WHEN (title = 'x'::text) THEN title ELSE ''::text END)",
            "to_tsvector('english'::regconfig, 'it''s'::text)",
            "to_tsvector('english'::regconfig, elsewhere)",
            "to_tsvector('english'::regconfig, 'constant'::text)",
            "array_to_tsvector(tags)",
            "title",
            "",
        ] {
            check(expression, None);
        }
    }
}
