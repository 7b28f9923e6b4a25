//! What a source found out about its tables that their owner should know: rows that were left out, and columns whose
//! values are ambiguous. Each comes with the line of the manifest that decides.

use super::Compiler;
use super::near_miss::field_setting;
use crate::ColumnFormat;
use crate::diagnostic::Diagnostic;
use crate::manifest;
use crate::source::{AmbiguousFormat, LayoutNoteKind, TableFacts};
use crate::toml_text::toml_string;

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
                LayoutNoteKind::SecondTable => {
                    Diagnostic::note(message).code("rows_left_out").help(format!(
                        "to read that table instead, set `{}` in {table_name}; if its rows belong to the first table, set \
                         `footer_rows = 0`, which reads all rows",
                        note.setting
                    ))
                }
                LayoutNoteKind::Doubt => Diagnostic::warning(message)
                    .code("doubtful_rows")
                    .help(format!("to leave that out, set `{}` in {table_name}", note.setting)),
                LayoutNoteKind::DoubtfulValues => {
                    Diagnostic::warning(message).code("doubtful_rows").help(note.setting.clone())
                }
                LayoutNoteKind::DoubtfulHeader => Diagnostic::warning(message)
                    .code("doubtful_header")
                    .help(format!("to read this row as data, set `{}` in {table_name}", note.setting)),
                LayoutNoteKind::DoubtfulNumbers => Diagnostic::warning(message)
                    .code("doubtful_numbers")
                    .help(format!("if it does, set `{}` in {fields_table}", note.setting)),
                LayoutNoteKind::DoubtfulDates => Diagnostic::note(message)
                    .code("doubtful_dates")
                    .help(format!("if they are, set `{}` in {fields_table}", note.setting)),
                LayoutNoteKind::DoubtfulPoints => Diagnostic::warning(message)
                    .code("doubtful_numbers")
                    .help(format!("if they do, set `{}` in {table_name}", note.setting)),
                LayoutNoteKind::DoubtfulYears => Diagnostic::warning(message)
                    .code("doubtful_years")
                    .help(format!("if they are in the past, set `{}` in {fields_table}", note.setting)),
                LayoutNoteKind::Gaps => Diagnostic::warning(message).code("gaps").help(format!(
                    "if each value counts for the rows below it, set `{}` in {fields_table}",
                    note.setting
                )),
                LayoutNoteKind::AssumedNull => Diagnostic::note(message).code("null_assumed").help(format!(
                    "the manifest of `spile init` has `{}`; without that line the column is text",
                    note.setting
                )),
                LayoutNoteKind::AssumedShortRows => Diagnostic::note(message)
                    .code("short_rows")
                    .help(format!("the manifest of `spile init` has `{}`", note.setting)),
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
            let settings = format_settings(&column.name, ambiguous, is_sensitive);
            let set = format!("set {settings} in `[collections.{}.fields]`", declared.name.value);
            let (reason, code, help) = match ambiguous.formats.as_slice() {
                [ColumnFormat::Boolean(format)] => {
                    let (yes, no) = format.words();
                    let reason = format!("`{yes}` and `{no}` may mean yes and no, or be codes");
                    (reason, "boolean_letters", format!("if they mean yes and no, {set}"))
                }
                [ColumnFormat::Number(_)] => {
                    let reason = format!("some values have a currency and others have none: {first}");
                    (reason, "ambiguous_format", format!("if it is the same currency, {set}"))
                }
                _ => (format!("its values are ambiguous: {first}"), "ambiguous_format", set),
            };
            let message = format!("`{}`: `{header}` is text, because {reason}", declared.name.value);
            let warning = Diagnostic::warning(message).code(code);
            self.diagnostics.push(warning.help(help).at(&declared.name.location));
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
