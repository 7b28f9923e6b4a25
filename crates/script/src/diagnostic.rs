//! What is wrong with author code, and where.

use std::fmt;

/// One problem in a file of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// The path inside the folder, with forward slashes.
    pub file: String,
    pub position: Option<Position>,
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The line of the source that `position` points into.
    pub source_line: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The tool is not served, or its call failed.
    Error,
    /// The tool is served, but part of it cannot work.
    Warning,
}

/// A line and a column, both counted from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// Receives what author code does wrong while it runs.
pub trait DiagnosticSink: Send + Sync {
    fn report(&self, tool: &str, diagnostic: &Diagnostic);
}

/// A line of minified code would fill the screen.
const SOURCE_LINE_CHARS_MAX: usize = 160;

impl Diagnostic {
    pub(crate) fn error(file: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            file: file.to_owned(),
            position: None,
            message: message.into(),
            help: None,
            source_line: None,
        }
    }

    pub(crate) fn warning(file: &str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(file, message) }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Points at a byte offset of `text`.
    pub(crate) fn at_offset(self, text: &str, offset: usize) -> Self {
        let position = Position::of_offset(text, offset);
        self.at(text, position)
    }

    pub(crate) fn at(mut self, text: &str, position: Position) -> Self {
        self.position = Some(position);
        let line = text.lines().nth(position.line.saturating_sub(1) as usize);
        self.source_line = line.map(|line| line.chars().take(SOURCE_LINE_CHARS_MAX).collect());
        self
    }

    /// `tools/add.ts:3:7`
    pub fn location(&self) -> String {
        match self.position {
            Some(Position { line, column }) => format!("{}:{line}:{column}", self.file),
            None => self.file.clone(),
        }
    }

    /// The source line with a marker below the column; empty if the position is unknown.
    pub fn code_frame(&self) -> String {
        let (Some(position), Some(line)) = (self.position, &self.source_line) else { return String::new() };
        let number = position.line.to_string();
        let gutter = " ".repeat(number.len());
        // Tabs stay tabs, so that the marker stands below its character.
        let before = line.chars().take(position.column.saturating_sub(1) as usize);
        let indent: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        format!("{number} | {line}\n{gutter} | {indent}^")
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}: {}", self.location(), self.message)?;
        let frame = self.code_frame();
        if !frame.is_empty() {
            write!(f, "\n{frame}")?;
        }
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl Position {
    pub(crate) fn of_offset(text: &str, offset: usize) -> Self {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        Self { line: line as u32, column: column as u32 }
    }

    /// The byte offset of this position; `None` if the text has no such line.
    pub(crate) fn to_offset(self, text: &str) -> Option<usize> {
        let mut start = 0;
        for _ in 1..self.line {
            start += text[start..].find('\n')? + 1;
        }
        let column = self.column.saturating_sub(1) as usize;
        let line = text[start..].lines().next().unwrap_or_default();
        let within = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
        Some(start + within)
    }
}
