//! What a source found out about its tables that their owner should know: rows that were left out, and columns whose
//! values have two readings. Each comes with the line of the manifest that decides.

use super::Compiler;
use super::near_miss::field_setting;
use crate::diagnostic::Diagnostic;
use crate::init::toml_string;
use crate::manifest;
use crate::source::{AmbiguousFormat, LayoutNoteKind, TableFacts};

impl Compiler<'_> {
    pub(super) fn report_layout(&mut self, declared: &manifest::Collection, table: &TableFacts) {
        for note in &table.layout_notes {
            let message = format!("`{}` {}", declared.name.value, note.message);
            let diagnostic = match note.kind {
                LayoutNoteKind::LeftOut => Diagnostic::note(message)
                    .code("rows_left_out")
                    .help(format!("if they are data, set `{}` for the collection", note.setting)),
                LayoutNoteKind::Doubt => Diagnostic::warning(message)
                    .code("doubtful_rows")
                    .help(format!("if they are not data, set `{}` for the collection", note.setting)),
                LayoutNoteKind::DoubtfulHeader => Diagnostic::warning(message)
                    .code("doubtful_header")
                    .help(format!("if this row is data, set `{}` for the collection", note.setting)),
                LayoutNoteKind::DoubtfulYears => Diagnostic::warning(message)
                    .code("doubtful_years")
                    .help(format!("if they are in the past, set `{}` under its fields", note.setting)),
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
                "`{}`: `{header}` is text: its values have {} readings, {first}",
                declared.name.value,
                if ambiguous.formats.len() == 2 { "two" } else { "several" },
            );
            let warning = Diagnostic::warning(message).code("ambiguous_format");
            let help = format!("set {}", format_settings(&column.name, ambiguous));
            self.diagnostics.push(warning.help(help).at(&declared.name.location));
        }
    }
}

/// The lines to choose from.
fn format_settings(header: &str, ambiguous: &AmbiguousFormat) -> String {
    let setting = |format: &crate::ColumnFormat| {
        let setting = format!("{} = {}", format.key(), toml_string(&format.to_string()));
        format!("`{}`", field_setting(header, &setting))
    };
    ambiguous.formats.iter().map(setting).collect::<Vec<_>>().join(" or ")
}
