//! What a source found out about its tables that their owner should know: rows that were left out, and columns whose
//! values are ambiguous. Each comes with the line of the manifest that decides.

use super::Compiler;
use super::near_miss::field_setting;
use crate::ColumnFormat;
use crate::diagnostic::Diagnostic;
use crate::init::toml_string;
use crate::manifest;
use crate::source::{AmbiguousFormat, LayoutNoteKind, TableFacts};

impl Compiler<'_> {
    pub(super) fn report_layout(&mut self, declared: &manifest::Collection, table: &TableFacts) {
        let table_name = format!("`[collections.{}]`", declared.name.value);
        let fields_table = format!("`[collections.{}.fields]`", declared.name.value);
        for note in &table.layout_notes {
            let is_filled = declared.fields.iter().any(|field| field.fill_down);
            if note.kind == LayoutNoteKind::Gaps && is_filled {
                continue;
            }
            let message = format!("`{}` {}", declared.name.value, note.message);
            let diagnostic = match note.kind {
                LayoutNoteKind::LeftOut => Diagnostic::note(message)
                    .code("rows_left_out")
                    .help(format!("to read that as data, set `{}` in {table_name}", note.setting)),
                LayoutNoteKind::Doubt => Diagnostic::warning(message)
                    .code("doubtful_rows")
                    .help(format!("to leave that out, set `{}` in {table_name}", note.setting)),
                LayoutNoteKind::DoubtfulHeader => Diagnostic::warning(message)
                    .code("doubtful_header")
                    .help(format!("to read this row as data, set `{}` in {table_name}", note.setting)),
                LayoutNoteKind::DoubtfulYears => Diagnostic::warning(message)
                    .code("doubtful_years")
                    .help(format!("if they are in the past, set `{}` in {fields_table}", note.setting)),
                LayoutNoteKind::Gaps => Diagnostic::warning(message).code("gaps").help(format!(
                    "if each value counts for the rows below it, set `{}` in {fields_table}",
                    note.setting
                )),
            };
            self.diagnostics.push(diagnostic.at(&declared.name.location));
        }
    }

    /// `names` are what callers see each column as.
    pub(super) fn report_ambiguous_formats(
        &mut self,
        declared: &manifest::Collection,
        table: &TableFacts,
        names: &[String],
    ) {
        for (column, name) in table.columns.iter().zip(names) {
            let Some(ambiguous) = &column.ambiguous_format else { continue };
            let field = declared.fields.iter().find(|field| field.column.value == column.name);
            let is_decided = |field: &manifest::Field| {
                field.hidden || field.data_type.is_some() || field.formats.is_some()
            };
            if field.is_some_and(is_decided) {
                continue;
            }
            let header = if column.name.trim().is_empty() { name } else { &column.name };
            let is_sensitive = field.is_some_and(|field| field.sensitive);
            let first = match is_sensitive {
                true => format!("see {}", ambiguous.first_location),
                false => format!("first `{}` in {}", ambiguous.first_value, ambiguous.first_location),
            };
            let message = format!(
                "`{}`: `{header}` is text, because its values are ambiguous: {first}",
                declared.name.value
            );
            let warning = Diagnostic::warning(message).code("ambiguous_format");
            let settings = format_settings(&column.name, ambiguous, is_sensitive);
            let help = format!("set {settings} in `[collections.{}.fields]`", declared.name.value);
            self.diagnostics.push(warning.help(help).at(&declared.name.location));
        }
    }

    /// Columns of two letters that were taken for yes and no: `s` and `n` may be compass directions.
    pub(super) fn report_boolean_letters(
        &mut self,
        declared: &manifest::Collection,
        table: &TableFacts,
        names: &[String],
    ) {
        for (column, name) in table.columns.iter().zip(names) {
            let Some(ColumnFormat::Boolean(format)) = &column.format else { continue };
            let (true_text, false_text) = format.words();
            let is_letter = |word: &str| word.chars().count() == 1;
            let is_plain = true_text.eq_ignore_ascii_case("y") && false_text.eq_ignore_ascii_case("n");
            let field = declared.fields.iter().find(|field| field.column.value == column.name);
            let is_decided = |field: &manifest::Field| {
                field.hidden || field.data_type.is_some() || field.formats.is_some()
            };
            if !is_letter(true_text) || !is_letter(false_text) || is_plain || field.is_some_and(is_decided) {
                continue;
            }
            let header = if column.name.trim().is_empty() { name } else { &column.name };
            let message = format!(
                "`{}`: `{header}` is read as true and false: `{true_text}` is true, `{false_text}` is false",
                declared.name.value
            );
            let setting = field_setting(&column.name, "as = \"text\"");
            let help = format!(
                "if that is not meant, set `{setting}` in `[collections.{}.fields]`",
                declared.name.value
            );
            let warning = Diagnostic::warning(message).code("boolean_letters").help(help);
            self.diagnostics.push(warning.at(&declared.name.location));
        }
    }
}

/// The lines to choose from, each with what the first value then means.
fn format_settings(header: &str, ambiguous: &AmbiguousFormat, is_sensitive: bool) -> String {
    let setting = |format: &ColumnFormat| {
        let setting = format!("{} = {}", format.key(), toml_string(&format.to_string()));
        let setting = format!("`{}`", field_setting(header, &setting));
        match format.parse(&ambiguous.first_value).filter(|_| !is_sensitive) {
            Some(value) => format!("{setting} (it is {value})"),
            None => setting,
        }
    };
    ambiguous.formats.iter().map(setting).collect::<Vec<_>>().join(" or ")
}
