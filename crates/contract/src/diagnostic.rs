//! Diagnostics about an author's files: the problem, where it is, and how to fix it.
//!
//! A [`Diagnostic`] stores its location as a byte range of a shared text. Line and column are computed only when it is
//! [rendered](render).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use spile_core::text;
use unicode_width::UnicodeWidthChar;

/// A longer line is truncated around the marked part.
const LINE_COLUMNS_MAX: usize = 100;
/// How much of a truncated line is shown before the marked part.
const BEFORE_COLUMNS: usize = 30;
const TAB_COLUMNS: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub message: String,
    pub location: Option<FileLocation>,
    /// How to fix it.
    pub help: Option<String>,
    /// A stable identifier of the kind of diagnostic, for programs.
    pub code: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Error,
    Warning,
    Note,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl Diagnostic {
    pub fn error(message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, message: message.into(), location: None, help: None, code: None }
    }

    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    pub fn note(message: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::error(message) }
    }

    #[must_use]
    pub fn at(self, at: &FileLocation) -> Self {
        Self { location: Some(at.clone()), ..self }
    }

    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    #[must_use]
    pub fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }
}

/// A file, or part of one, under the name that its owner knows.
#[derive(Debug, PartialEq, Eq)]
pub struct FileText {
    pub file_name: String,
    pub text: String,
    /// Where the text starts in the file, counted from 1. Of a large data file, only the relevant line is stored.
    pub start_line: usize,
    pub start_column: usize,
}

impl FileText {
    /// A whole file.
    pub fn new(file: impl Into<String>, text: impl Into<String>) -> Self {
        Self { file_name: file.into(), text: text.into(), start_line: 1, start_column: 1 }
    }
}

/// A byte range of a text. Cheap to store, so everything that may be wrong has one.
#[derive(Clone, PartialEq, Eq)]
pub struct FileLocation {
    file_text: Arc<FileText>,
    start: usize,
    end: usize,
}

/// A value, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    pub value: T,
    pub location: FileLocation,
}

impl<T> Located<T> {
    pub fn new(value: T, location: FileLocation) -> Self {
        Self { value, location }
    }
}

impl FileLocation {
    /// The bytes `span` of a text. An offset beyond the end or inside a character moves to the start of the
    /// character before it.
    pub fn new(origin: &Arc<FileText>, span: Range<usize>) -> Self {
        let start = origin.text.floor_char_boundary(span.start);
        let end = origin.text.floor_char_boundary(span.end).max(start);
        Self { file_text: Arc::clone(origin), start, end }
    }

    /// The location of a part of `text`, if this is the location of `text` in quotes. If the text has escapes, the
    /// location of the whole text.
    #[must_use]
    pub fn inside(&self, text: &str, part: Range<usize>) -> Self {
        let quoted = &self.file_text.text[self.span()];
        let quotes = ["\"\"\"\n", "'''\n", "\"\"\"", "'''", "\"", "'"];
        let rest = quotes.into_iter().find_map(|quotes| quoted.strip_prefix(quotes));
        match rest {
            Some(rest) if rest.starts_with(text) => {
                let start = self.end - rest.len();
                Self::new(&self.file_text, start + part.start..start + part.end)
            }
            Some(_) | None => self.clone(),
        }
    }

    pub fn file_name(&self) -> &str {
        &self.file_text.file_name
    }

    pub fn span(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Counted from 1.
    pub fn line(&self) -> usize {
        self.file_text.start_line + self.file_text.text[..self.start].bytes().filter(|b| *b == b'\n').count()
    }

    /// In characters, counted from 1.
    pub fn column(&self) -> usize {
        let is_first = !self.file_text.text[..self.start].contains('\n');
        let first = if is_first { self.file_text.start_column } else { 1 };
        first + self.line_before().chars().count()
    }

    /// The part of the line before the location, without a byte order mark.
    fn line_before(&self) -> &str {
        let text = &self.file_text.text[..self.start];
        let line = text.rfind('\n').map_or(text, |newline| &text[newline + 1..]);
        line.strip_prefix('\u{feff}').unwrap_or(line)
    }

    /// The part of the location on its first line.
    fn marked_text(&self) -> &str {
        let text = &self.file_text.text[self.start..self.end];
        text.lines().next().unwrap_or_default()
    }

    /// The part of the line after the location.
    fn line_after(&self) -> &str {
        let text = &self.file_text.text[self.start + self.marked_text().len()..];
        text.lines().next().unwrap_or_default()
    }
}

impl fmt::Debug for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file_name(), self.line(), self.column())
    }
}

/// Renders a diagnostic, as several complete lines. The text is the same without colour.
pub fn render(diagnostic: &Diagnostic, colour: bool) -> String {
    render_within(diagnostic, colour, None)
}

/// Renders a diagnostic for a terminal of this many columns.
fn render_within(diagnostic: &Diagnostic, colour: bool, columns: Option<usize>) -> String {
    let paint = AnsiStyle { colour };
    let kind = diagnostic.severity;
    let head = paint.bold(severity_colour(kind), kind.as_str());
    let message = wrap(&text::escape_line(&diagnostic.message), kind.as_str().len() + 2, columns);
    let mut out = format!("{head}{}\n", paint.bold("", &format!(": {message}")));
    let mut indent = 1;
    if let Some(at) = &diagnostic.location {
        let number = at.line().to_string();
        indent = number.len();
        let blank = " ".repeat(indent);
        let bar = paint.bold(FRAME_COLOUR, "|");
        let excerpt = Excerpt::new(at, excerpt_columns(columns, indent));
        let carets = paint.bold(severity_colour(kind), &"^".repeat(excerpt.caret_columns));
        let file = text::escape_line(at.file_name());
        let arrow = paint.bold(FRAME_COLOUR, "-->");
        out += &format!("{blank}{arrow} {file}:{number}:{}\n", at.column());
        out += &format!("{blank} {bar}\n");
        out += &format!("{} {bar} {}\n", paint.bold(FRAME_COLOUR, &number), excerpt.line);
        out += &format!("{blank} {bar} {}{carets}\n", " ".repeat(excerpt.before_columns));
    }
    if let Some(help) = &diagnostic.help {
        let (sign, word) = (paint.bold(FRAME_COLOUR, "="), paint.bold("", "help"));
        let help = wrap(&text::escape_line(help), indent + " = help: ".len(), columns);
        out += &format!("{} {sign} {word}: {help}\n", " ".repeat(indent));
    }
    out
}

/// Renders several diagnostics, separated by blank lines.
pub fn render_all(diagnostics: &[Diagnostic], colour: bool) -> String {
    render_all_within(diagnostics, colour, None)
}

/// The same for a terminal: no line is wider than `columns`, except for long words.
pub fn render_all_within(diagnostics: &[Diagnostic], colour: bool, columns: Option<usize>) -> String {
    diagnostics.iter().map(|one| render_within(one, colour, columns)).collect::<Vec<_>>().join("\n")
}

/// No text is wrapped more narrowly than this, however long the words before it are.
const WRAP_COLUMNS_MIN: usize = 20;

/// Breaks a text between words. All lines but the first are indented as far as the first begins.
fn wrap(text: &str, indent: usize, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let columns = columns.saturating_sub(indent).max(WRAP_COLUMNS_MIN);
    let mut out = String::with_capacity(text.len() + 16);
    let mut used = 0;
    for word in text.split(' ') {
        let needed = width(word);
        if used > 0 && used + 1 + needed > columns {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += needed;
    }
    out
}

/// How much of a line fits beside the line number.
fn excerpt_columns(columns: Option<usize>, number_columns: usize) -> usize {
    let left = columns.map_or(LINE_COLUMNS_MAX, |columns| columns.saturating_sub(number_columns + 3));
    left.clamp(WRAP_COLUMNS_MIN, LINE_COLUMNS_MAX)
}

/// Of the frame around the quoted line.
const FRAME_COLOUR: &str = "34";

fn severity_colour(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "31",
        Severity::Warning => "33",
        Severity::Note => "36",
    }
}

struct AnsiStyle {
    colour: bool,
}

impl AnsiStyle {
    /// Bold, and in a colour if there is one.
    fn bold(&self, code: &str, text: &str) -> String {
        match (self.colour, code) {
            (false, _) => text.to_owned(),
            (true, "") => format!("\x1b[1m{text}\x1b[0m"),
            (true, code) => format!("\x1b[1;{code}m{text}\x1b[0m"),
        }
    }
}

/// A quoted line, and where the carets go under it.
struct Excerpt {
    line: String,
    before_columns: usize,
    caret_columns: usize,
}

impl Excerpt {
    fn new(at: &FileLocation, columns_max: usize) -> Self {
        let (before, marked, behind) = (at.line_before(), at.marked_text(), at.line_after());
        let mut before = printable(last_chars(before, columns_max));
        let mut marked = printable(first_chars(marked, columns_max));
        let mut behind = printable(first_chars(behind, columns_max));
        if width(&before) + width(&marked) + width(&behind) > columns_max
            || at.line_before().chars().count() > columns_max
        {
            let before_columns = BEFORE_COLUMNS.min(columns_max / 2);
            before = truncate_start(before, before_columns);
            marked = truncate_end(marked, columns_max - before_columns);
            let left = columns_max.saturating_sub(width(&before) + width(&marked));
            behind = truncate_end(behind, left);
        }
        let (before_columns, caret_columns) = (width(&before), width(&marked).max(1));
        let line = format!("{before}{marked}{behind}").trim_end().to_owned();
        Self { line, before_columns, caret_columns }
    }
}

/// At most `chars_max` characters from the end of a text.
fn last_chars(text: &str, chars_max: usize) -> &str {
    let at = text.char_indices().rev().nth(chars_max).map_or(0, |(at, c)| at + c.len_utf8());
    &text[at..]
}

fn first_chars(text: &str, chars_max: usize) -> &str {
    text.char_indices().nth(chars_max).map_or(text, |(at, _)| &text[..at])
}

fn truncate_start(text: String, columns_max: usize) -> String {
    if width(&text) <= columns_max {
        return text;
    }
    let mut columns = 1;
    let kept = text.char_indices().rev().take_while(|(_, c)| {
        columns += char_width(*c);
        columns <= columns_max
    });
    let start = kept.last().map_or(text.len(), |(at, _)| at);
    format!("…{}", &text[start..])
}

fn truncate_end(text: String, columns_max: usize) -> String {
    if width(&text) <= columns_max {
        return text;
    }
    let mut columns = 1;
    let kept: String = text
        .chars()
        .take_while(|c| {
            columns += char_width(*c);
            columns <= columns_max
        })
        .collect();
    format!("{kept}…")
}

fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Replaces tabs by blanks, because the width of a tab depends on its position.
fn printable(text: &str) -> String {
    text::escape_line(&text.replace('\t', &" ".repeat(TAB_COLUMNS))).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Diagnostic, FileLocation, FileText, render, render_all_within};
    use std::sync::Arc;

    fn at(text: &str, marked: &str) -> FileLocation {
        let start = text.find(marked).expect("the text contains the marked part");
        let origin = Arc::new(FileText::new("spile.toml", text));
        FileLocation::new(&origin, start..start + marked.len())
    }

    /// Asserts the lines after the first: location, quoted line, carets.
    fn check(text: &str, marked: &str, expected: [&str; 3]) {
        let rendered = render(&Diagnostic::error("wrong").at(&at(text, marked)), false);
        let lines: Vec<&str> = rendered.lines().collect();
        assert_eq!([lines[1], lines[3], lines[4]], expected, "{rendered}");
    }

    #[test]
    fn carets_are_under_the_marked_part() {
        check("a = 1", "a", [" --> spile.toml:1:1", "1 | a = 1", "  | ^"]);
        check("\n\nfilter = 1\n", "filter", [" --> spile.toml:3:1", "3 | filter = 1", "  | ^^^^^^"]);
        check("a = 1\r\nb = 22\r\n", "22", [" --> spile.toml:2:5", "2 | b = 22", "  |     ^^"]);
        check("\t\tkey = 1", "key", [" --> spile.toml:1:3", "1 |         key = 1", "  |         ^^^"]);
        check("\u{feff}a = 1", "a", [" --> spile.toml:1:1", "1 | a = 1", "  | ^"]);
    }

    #[test]
    fn columns_count_characters_and_carets_count_terminal_cells() {
        check("\"顧客\" = 7", "7", [" --> spile.toml:1:8", "1 | \"顧客\" = 7", "  |          ^"]);
        check("x = \"顧客\"", "顧客", [" --> spile.toml:1:6", "1 | x = \"顧客\"", "  |      ^^^^"]);
        check("o\u{308} = 7", "7", [" --> spile.toml:1:6", "1 | o\u{308} = 7", "  |     ^"]);
        check("größe = 7", "7", [" --> spile.toml:1:9", "1 | größe = 7", "  |         ^"]);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = format!("key = \"{}\" # {}", "v".repeat(60), "c".repeat(60));
        let long = "a message of several words that does not fit into one line of a narrow terminal";
        let diagnostic = Diagnostic::warning(long).at(&at(&text, "vvv")).help(long);
        for columns in [40, 80] {
            let rendered = render_all_within(std::slice::from_ref(&diagnostic), false, Some(columns));
            assert!(rendered.lines().all(|line| line.chars().count() <= columns), "{rendered}");
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&rendered).matches(&words(long)).count(), 2, "{rendered}");
        }
        let rendered = render_all_within(&[diagnostic], false, Some(40));
        assert!(
            rendered.starts_with("warning: a message of several words that\n         does not"),
            "{rendered}"
        );
        assert!(
            rendered.contains("\n  = help: a message of several words\n          that does not"),
            "{rendered}"
        );
    }

    #[test]
    fn a_location_of_several_lines_is_marked_on_the_first() {
        check("a = [\n 1,\n]", "[\n 1,\n]", [" --> spile.toml:1:5", "1 | a = [", "  |     ^"]);
    }

    #[test]
    fn a_location_at_the_end_of_the_text_is_rendered() {
        for (text, place) in [("", "1:1"), ("a =", "1:4"), ("a =\n", "2:1")] {
            let origin = Arc::new(FileText::new("f", text));
            let rendered = render(&Diagnostic::error("x").at(&FileLocation::new(&origin, 900..901)), false);
            assert!(rendered.contains(&format!("f:{place}\n")), "{rendered}");
            assert!(rendered.ends_with("^\n"), "{rendered}");
        }
    }

    #[test]
    fn long_lines_are_truncated_around_the_marked_part() {
        let text = format!("a = \"{}\", wrong, \"{}\"", "x".repeat(5000), "y".repeat(5000));
        let mut rendered = render(&Diagnostic::error("x").at(&at(&text, "wrong")), false);
        let lines: Vec<&str> = rendered.lines().collect();
        assert!(lines[3].starts_with("1 | …xxx") && lines[3].ends_with("yyy…"), "{rendered}");
        assert_eq!(lines[3].chars().count(), 104, "{rendered}");
        let mark = lines[4].find('^').map(|at| lines[3].chars().skip(at).take(5).collect::<String>());
        assert_eq!(mark.as_deref(), Some("wrong"), "{rendered}");
        // The marked part itself may be too long.
        rendered = render(&Diagnostic::error("x").at(&at(&text, &"x".repeat(5000))), false);
        assert!(rendered.lines().all(|line| line.chars().count() <= 104), "{rendered}");
    }

    #[test]
    fn control_characters_are_escaped() {
        let evil = "a\u{1b}[2Jb\u{202e}c\u{7}";
        let rendered = render(&Diagnostic::error(evil).at(&at(evil, "b")).help(evil), false);
        assert!(!rendered.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{rendered:?}");
        assert!(rendered.contains(r"a\u{1b}[2Jb\u{202e}c\u{7}"), "{rendered}");
    }

    #[test]
    fn coloured_text_equals_plain_text_without_escapes() {
        let one = Diagnostic::warning("odd").at(&at("a = 1", "1")).help("leave it out");
        let coloured = render(&one, true);
        let mut plain = String::new();
        for (i, piece) in coloured.split("\x1b[").enumerate() {
            plain +=
                if i == 0 { piece } else { piece.split_once('m').expect("an escape code ends with m").1 };
        }
        assert_ne!(coloured, plain);
        assert_eq!(plain, render(&one, false));
    }

    #[test]
    fn inside_locates_a_part_of_a_quoted_text() {
        for (quoted, text, expected) in [
            (r#""a {b} c""#, "a {b} c", "{b}"),
            ("'a {b} c'", "a {b} c", "{b}"),
            ("\"\"\"\na {b} c\"\"\"", "a {b} c", "{b}"),
            (r#""\u0061 {b} c""#, "a {b} c", r#""\u0061 {b} c""#),
            ("7", "a {b} c", "7"),
        ] {
            let file = format!("text = {quoted}");
            let part = at(&file, quoted).inside(text, 2..5);
            assert_eq!(&file[part.span()], expected, "{quoted}");
        }
    }

    #[test]
    fn a_diagnostic_without_a_location_has_message_and_help() {
        let one = Diagnostic::note("nothing to do").help("add a source");
        assert_eq!(render(&one, false), "note: nothing to do\n  = help: add a source\n");
    }
}
