//! Splits a command line into words as a POSIX shell does: quotes and backslashes.
//!
//! Nothing is expanded: `$HOME`, `~` and `*` stay as they are. The rules are the same on every system, so a backslash
//! in a path needs quotes or a second backslash.

use super::command::Command;

/// Why a line is not a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandParseError {
    #[error("the command is empty; start it with a program, such as `npx`")]
    Empty,
    #[error(
        "the quote {quote} at character {position} is not closed; write `\\{quote}` for the character itself"
    )]
    UnclosedQuote { quote: char, position: usize },
    #[error("the command ends in a backslash; write `\\\\` for the character itself")]
    TrailingBackslash,
    #[error(
        "`{operator}` needs a shell, which is not used here; quote it if it is an argument, or run sh -c '…'"
    )]
    ShellOperator { operator: String },
    #[error("the command contains a NUL byte")]
    NulByte,
}

/// Shell operators. Only whole words count: `https://a/?b=1&c=2` is an argument.
const OPERATORS: &[&str] = &[
    "|", "||", "|&", "&", "&&", ";", ";;", "<", "<<", "<<<", ">", ">>", ">|", "&>", "2>", "2>>", "2>&1", "(",
    ")",
];

impl Command {
    /// Parses `npx -y server 'a b'`, with optional `NAME=value` assignments in front.
    pub fn parse(line: &str) -> Result<Self, CommandParseError> {
        let mut command = Self::default();
        let mut words = split(line)?.into_iter().peekable();
        while let Some(variable) = words.peek().and_then(ShellWord::as_assignment) {
            command.env.push(variable);
            words.next();
        }
        command.program = words.next().map(|word| word.text.into()).unwrap_or_default();
        if command.program.is_empty() {
            return Err(CommandParseError::Empty);
        }
        command.args = words.map(|word| word.text.into()).collect();
        Ok(command)
    }
}

/// Splits a line into words, without assignments.
pub fn split_words(line: &str) -> Result<Vec<String>, CommandParseError> {
    Ok(split(line)?.into_iter().map(|word| word.text).collect())
}

#[derive(Default)]
struct ShellWord {
    text: String,
    /// How much of the start was written without quotes and backslashes.
    unquoted_prefix_bytes: usize,
    quoted: bool,
}

impl ShellWord {
    fn push(&mut self, c: char) {
        self.text.push(c);
        if !self.quoted {
            self.unquoted_prefix_bytes = self.text.len();
        }
    }

    fn as_assignment(&self) -> Option<(std::ffi::OsString, std::ffi::OsString)> {
        let (name, value) = self.text.split_once('=')?;
        let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        // As in a shell, `"A=b"` is an ordinary word; `A="b"` is an assignment.
        (is_name && name.len() < self.unquoted_prefix_bytes).then(|| (name.into(), value.into()))
    }
}

fn split(line: &str) -> Result<Vec<ShellWord>, CommandParseError> {
    if line.contains('\0') {
        return Err(CommandParseError::NulByte);
    }
    let mut words = Vec::new();
    let mut word: Option<ShellWord> = None;
    let mut chars = line.chars().enumerate();
    while let Some((at, c)) = chars.next() {
        if c.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        match c {
            '\'' | '"' => {
                word.quoted = true;
                read_quoted(c, word, &mut chars)
                    .ok_or(CommandParseError::UnclosedQuote { quote: c, position: at + 1 })?;
            }
            '\\' => {
                word.quoted = true;
                match chars.next().ok_or(CommandParseError::TrailingBackslash)?.1 {
                    '\n' => {}
                    escaped => word.push(escaped),
                }
            }
            c => word.push(c),
        }
    }
    words.extend(word);
    match words.iter().find(|word| !word.quoted && OPERATORS.contains(&word.text.as_str())) {
        Some(word) => Err(CommandParseError::ShellOperator { operator: word.text.clone() }),
        None => Ok(words),
    }
}

/// Reads up to the closing quote; `None` if it is missing.
fn read_quoted(
    quote: char,
    word: &mut ShellWord,
    chars: &mut impl Iterator<Item = (usize, char)>,
) -> Option<()> {
    loop {
        match chars.next()?.1 {
            c if c == quote => return Some(()),
            '\\' if quote == '"' => match chars.next()?.1 {
                '\n' => {}
                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                c => {
                    word.push('\\');
                    word.push(c);
                }
            },
            c => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, CommandParseError};

    fn check(line: &str, expected: &[&str]) {
        let command = Command::parse(line).unwrap();
        let words: Vec<_> = std::iter::once(&command.program).chain(&command.args).collect();
        assert_eq!(words, expected, "{line}");
        assert_eq!(command.env, []);
    }

    fn refuse(line: &str, expected: &str) {
        assert_eq!(Command::parse(line).unwrap_err().to_string(), expected, "{line}");
    }

    #[test]
    fn words_are_separated_by_blanks_of_any_kind() {
        check("npx -y server", &["npx", "-y", "server"]);
        check("  npx\t-y\n server  ", &["npx", "-y", "server"]);
        // Pasted from a web page.
        check("npx\u{a0}-y", &["npx", "-y"]);
    }

    #[test]
    fn quotes_hold_words_together_and_may_be_empty() {
        check("a 'b c' \"d e\"", &["a", "b c", "d e"]);
        check("a '' \"\"", &["a", "", ""]);
        check("a b'c 'd\" e\"f", &["a", "bc d ef"]);
    }

    #[test]
    fn a_backslash_takes_what_follows_as_it_is() {
        check(r"a b\ c \'d \\ \|", &["a", "b c", "'d", "\\", "|"]);
        check("a b\\\nc", &["a", "bc"]);
    }

    #[test]
    fn in_double_quotes_a_backslash_is_one_except_before_what_a_shell_knows() {
        check(r#"a "b\"c\\d\$e\nf""#, &["a", r#"b"c\d$e\nf"#]);
        check(r#"a 'b\"c'"#, &["a", r#"b\"c"#]);
    }

    #[test]
    fn nothing_is_expanded() {
        check(
            "a $HOME ~ * `id` $(id) {b,c} # d",
            &["a", "$HOME", "~", "*", "`id`", "$(id)", "{b,c}", "#", "d"],
        );
        check("a https://b/?c=1&d=2;e", &["a", "https://b/?c=1&d=2;e"]);
        check("a '|' \"&&\"", &["a", "|", "&&"]);
    }

    #[test]
    fn variables_in_front_are_for_the_environment() {
        let command = Command::parse("A=1 B_2='x y' C= npx D=3").unwrap();
        assert_eq!(command.env, [("A", "1"), ("B_2", "x y"), ("C", "")].map(|(n, v)| (n.into(), v.into())));
        assert_eq!((command.program, command.args), ("npx".into(), vec!["D=3".into()]));
        check("'A=1' b", &["A=1", "b"]);
        check("A\\=1 b", &["A=1", "b"]);
        check("1=2 b", &["1=2", "b"]);
        check("=2 b", &["=2", "b"]);
        check("./a=b c", &["./a=b", "c"]);
    }

    #[test]
    fn a_line_without_a_program_is_refused() {
        for line in ["", " \n", "A=1", "''"] {
            assert_eq!(Command::parse(line), Err(CommandParseError::Empty), "{line:?}");
        }
    }

    #[test]
    fn what_is_opened_must_be_closed() {
        refuse("a 'b", r"the quote ' at character 3 is not closed; write `\'` for the character itself");
        refuse("ä \"b'", r#"the quote " at character 3 is not closed; write `\"` for the character itself"#);
        refuse("a \"b\\", r#"the quote " at character 3 is not closed; write `\"` for the character itself"#);
        refuse("a\\", r"the command ends in a backslash; write `\\` for the character itself");
    }

    #[test]
    fn shell_syntax_is_refused_with_a_hint() {
        for operator in ["|", "&&", ";", ">", "2>&1", "&", "<"] {
            refuse(
                &format!("a {operator} b"),
                &format!(
                    "`{operator}` needs a shell, which is not used here; quote it if it is an argument, or run sh -c '…'"
                ),
            );
        }
        refuse("a\0b", "the command contains a NUL byte");
    }

    #[test]
    fn values_of_variables_are_not_printed() {
        let command = Command::parse("TOKEN=secret npx").unwrap();
        assert!(!format!("{command:?}").contains("secret"));
    }
}
