//! Reads rows: finds them by key, splits them into values, applies filters and search terms.

use std::borrow::Cow;
use std::convert::Infallible;

use contract::ValueRef;
use contract::bind::BoundValue;
use contract::source::{Filter, all_pass};

use super::view::{CsvColumn, CsvView};
use crate::snapshot_reader::{self, Violations};
use crate::text_search::TermMatcher;

/// The spans of one row's values; reused from row to row.
#[derive(Default)]
pub(super) struct RowScratch {
    spans: ValueSpans,
    /// Texts that the file does not hold verbatim, because they are escaped.
    text: String,
}

const SPANS_ON_STACK: usize = 16;

/// One span for each column. Most tables are so narrow that nothing is allocated.
#[derive(Default)]
struct ValueSpans {
    few: [ValueSpan; SPANS_ON_STACK],
    many: Vec<ValueSpan>,
}

impl ValueSpans {
    fn slice(&self, columns: usize) -> &[ValueSpan] {
        if columns <= self.few.len() { &self.few[..columns] } else { &self.many }
    }

    /// All spans, without values.
    fn clear(&mut self, columns: usize) -> &mut [ValueSpan] {
        if columns <= self.few.len() {
            let few = &mut self.few[..columns];
            few.fill(ValueSpan::Null);
            few
        } else {
            self.many.clear();
            self.many.resize(columns, ValueSpan::Null);
            &mut self.many
        }
    }
}

#[derive(Clone, Copy, Default)]
enum ValueSpan {
    #[default]
    Null,
    File {
        from: usize,
        to: usize,
    },
    Scratch {
        from: usize,
        to: usize,
    },
}

/// A filter, with its value as the file would spell it.
pub(super) struct CsvFilter<'a> {
    column: &'a CsvColumn,
    filter: Filter<'a>,
    operands: Vec<BoundValue<'a>>,
}

impl snapshot_reader::ReadableTable for CsvView {
    type Scratch<'a> = RowScratch;
    type PreparedFilter<'a> = CsvFilter<'a>;

    fn find_by_index(&self, key: &[ValueRef<'_>]) -> Option<u32> {
        let index = self.index.as_ref()?;
        let column = |at: usize| &self.columns[self.orders.key_columns[at]];
        match key {
            [cell] if self.orders.key_columns.len() == 1 => {
                index.find(&self.table, &[column(0).to_field_text(*cell)?])
            }
            cells if self.orders.key_columns.len() == cells.len() => {
                let texts = cells.iter().enumerate().map(|(at, cell)| column(at).to_field_text(*cell));
                index.find(&self.table, &texts.collect::<Option<Vec<_>>>()?)
            }
            _ => None,
        }
    }

    fn violations(&self) -> &Violations {
        &self.violations
    }

    fn with_row(&self, row: u32, scratch: &mut RowScratch, then: impl FnOnce(&[ValueRef<'_>])) {
        self.locate_values(row, scratch);
        let cell = |span: &ValueSpan| match *span {
            ValueSpan::Null => ValueRef::Null,
            ValueSpan::File { from, to } => ValueRef::Text(&self.table.text[from..to]),
            ValueSpan::Scratch { from, to } => ValueRef::Text(&scratch.text[from..to]),
        };
        snapshot_reader::with_values(scratch.spans.slice(self.columns.len()), cell, then);
    }

    /// Sorted by the position of their fields, so that one pass over a row tests them all.
    fn prepare_filters<'a>(&'a self, filters: &[Filter<'a>]) -> Vec<CsvFilter<'a>> {
        let mut prepared: Vec<CsvFilter<'a>> = filters
            .iter()
            .map(|filter| {
                let column = &self.columns[filter.column];
                CsvFilter { column, filter: *filter, operands: CsvFilter::operands(column, filter) }
            })
            .collect();
        // Filters that are joined with `or_next` stay together.
        if prepared.iter().all(|filter| !filter.filter.or_next) {
            prepared.sort_by_key(|filter| filter.column.field_index);
        }
        prepared
    }

    fn matches_filters(&self, row: u32, prepared: &[CsvFilter<'_>], scratch: &mut RowScratch) -> bool {
        let mut fields = self.table.fields(row);
        let mut last = 0;
        let passes = |_, filter: &CsvFilter<'_>| {
            if filter.column.field_index < last {
                fields = self.table.fields(row);
            }
            last = filter.column.field_index;
            let field = fields.seek(filter.column.field_index);
            let text = field.text_with_scratch(&self.table.text, &mut scratch.text);
            Ok::<_, Infallible>(match filter.column.format {
                Some(_) if !filter.column.is_null(text) => {
                    filter.matches(&filter.column.canonical(Cow::Borrowed(text)))
                }
                _ => filter.matches(text),
            })
        };
        let Ok(passes) = all_pass(prepared, |filter| filter.filter.or_next, passes);
        passes
    }

    /// Sorted by the position of their fields.
    fn search_columns(&self, positions: &[usize]) -> Vec<&CsvColumn> {
        let mut columns: Vec<&CsvColumn> =
            positions.iter().map(|position| &self.columns[*position]).collect();
        columns.sort_unstable_by_key(|column| column.field_index);
        columns
    }

    fn matches_all_terms(
        &self,
        row: u32,
        columns: &[&CsvColumn],
        matcher: &mut TermMatcher,
        scratch: &mut RowScratch,
    ) -> bool {
        let mut fields = self.table.fields(row);
        columns.iter().any(|column| {
            let field = fields.seek(column.field_index);
            let text = field.text_with_scratch(&self.table.text, &mut scratch.text);
            !column.is_null(text) && matcher.match_text(text)
        })
    }
}

impl CsvView {
    fn locate_values(&self, row: u32, scratch: &mut RowScratch) {
        let RowScratch { spans, text } = scratch;
        text.clear();
        let spans = spans.clear(self.columns.len());
        let mut fields = self.table.fields(row);
        for (position, at) in &self.read_order {
            let field = fields.seek(*position);
            let (value_text, span) = match field.as_plain(&self.table.text) {
                Some(value_text) => {
                    (value_text, ValueSpan::File { from: field.text_start, to: field.text_end })
                }
                None => {
                    let from = text.len();
                    field.unescape(&self.table.text, text);
                    (&text[from..], ValueSpan::Scratch { from, to: text.len() })
                }
            };
            let column = &self.columns[*at];
            if column.is_null(value_text) {
                continue;
            }
            spans[*at] = match column.format.as_ref().and_then(|format| format.parse(value_text)) {
                None => span,
                Some(canonical) => {
                    let from = text.len();
                    text.push_str(&canonical);
                    ValueSpan::Scratch { from, to: text.len() }
                }
            };
        }
    }
}

impl<'a> CsvFilter<'a> {
    /// The operands as the file would spell them: a field holds the digits of a number.
    fn operands(column: &CsvColumn, filter: &Filter<'a>) -> Vec<BoundValue<'a>> {
        let spelled = |value: ValueRef<'a>| match value {
            ValueRef::Integer(_) if column.data_type.is_stored_as_number() => column
                .to_field_text(value)
                .map_or(BoundValue::Null, |text| BoundValue::Text(Cow::Owned(text.into_owned()))),
            value => value.into(),
        };
        filter.values().map(spelled).collect()
    }

    fn matches(&self, text: &str) -> bool {
        let value = if self.column.is_null(text) { ValueRef::Null } else { ValueRef::Text(text) };
        let (first, more) = self
            .operands
            .split_first()
            .map_or((ValueRef::Null, &[][..]), |(first, more)| (first.as_value_ref(), more));
        let filter = Filter { value: first, more, ..self.filter };
        filter.matches(self.column.data_type, value)
    }
}
