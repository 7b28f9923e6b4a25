//! Reads rows of the file: found by their key, taken apart into cells, tried by filters and words.

use std::borrow::Cow;

use contract::source::Filter;
use contract::{Cell, Kind, order};

use super::fit::{Column, Fit};
use crate::hunt::Hunt;
use crate::live;

/// Where the cells of one row lie; used for one row after the other.
#[derive(Default)]
pub(super) struct Scratch {
    spans: Vec<Span>,
    /// What does not stand in the file as it is.
    text: String,
}

#[derive(Clone, Copy)]
enum Span {
    Null,
    File { from: usize, to: usize },
    Scratch { from: usize, to: usize },
}

/// A filter, with its value as the file would write it.
pub(super) struct Sieve<'a> {
    column: &'a Column,
    filter: Filter<'a>,
    value: Option<String>,
}

impl live::Fit for Fit {
    type Scratch<'a> = Scratch;
    type Sieve<'a> = Sieve<'a>;

    fn indexed(&self, key: &[Cell<'_>]) -> Option<u32> {
        let index = self.index.as_ref()?;
        let column = |at: usize| &self.columns[self.orders.key[at]];
        match key {
            [cell] if self.orders.key.len() == 1 => index.find(&self.table, &[column(0).written(*cell)?]),
            cells if self.orders.key.len() == cells.len() => {
                let texts = cells.iter().enumerate().map(|(at, cell)| column(at).written(*cell));
                index.find(&self.table, &texts.collect::<Option<Vec<_>>>()?)
            }
            _ => None,
        }
    }

    fn hand(&self, row: u32, scratch: &mut Scratch, then: impl FnOnce(&[Cell<'_>])) {
        self.fill(row, scratch);
        let cell = |span: &Span| match *span {
            Span::Null => Cell::Null,
            Span::File { from, to } => Cell::Text(&self.table.text[from..to]),
            Span::Scratch { from, to } => Cell::Text(&scratch.text[from..to]),
        };
        live::hand(&scratch.spans, cell, then);
    }

    /// In the order in which their fields come.
    fn sieves<'a>(&'a self, filters: &[Filter<'a>]) -> Vec<Sieve<'a>> {
        let mut sieves: Vec<Sieve<'a>> = filters
            .iter()
            .map(|filter| {
                let column = &self.columns[filter.column];
                let value = match filter.value {
                    Cell::Integer(_) if is_written(column.kind) => {
                        column.written(filter.value).map(Cow::into_owned)
                    }
                    _ => None,
                };
                Sieve { column, filter: *filter, value }
            })
            .collect();
        sieves.sort_by_key(|sieve| sieve.column.field);
        sieves
    }

    fn passes(&self, row: u32, sieves: &[Sieve<'_>], scratch: &mut Scratch) -> bool {
        let mut fields = self.table.fields(row);
        sieves.iter().all(|sieve| {
            let field = fields.at(sieve.column.field);
            sieve.passes(field.text_in(&self.table.text, &mut scratch.text))
        })
    }

    /// In the order in which their fields come.
    fn sought(&self, places: &[usize]) -> Vec<&Column> {
        let mut columns: Vec<&Column> = places.iter().map(|place| &self.columns[*place]).collect();
        columns.sort_unstable_by_key(|column| column.field);
        columns
    }

    fn has_all(&self, row: u32, columns: &[&Column], hunt: &mut Hunt, scratch: &mut Scratch) -> bool {
        let mut fields = self.table.fields(row);
        columns.iter().any(|column| {
            let field = fields.at(column.field);
            let text = field.text_in(&self.table.text, &mut scratch.text);
            !column.is_null(text) && hunt.see(text)
        })
    }
}

impl Fit {
    fn fill(&self, row: u32, scratch: &mut Scratch) {
        let Scratch { spans, text } = scratch;
        text.clear();
        spans.clear();
        spans.resize(self.columns.len(), Span::Null);
        let mut fields = self.table.fields(row);
        for (place, at) in &self.walk {
            let field = fields.at(*place);
            let (said, span) = match field.plain(&self.table.text) {
                Some(said) => (said, Span::File { from: field.from, to: field.to }),
                None => {
                    let from = text.len();
                    field.unescape(&self.table.text, text);
                    (&text[from..], Span::Scratch { from, to: text.len() })
                }
            };
            if !self.columns[*at].is_null(said) {
                spans[*at] = span;
            }
        }
    }
}

/// Whether an integer is compared with what is written in the file.
fn is_written(kind: Kind) -> bool {
    match kind {
        Kind::Integer | Kind::Int64 | Kind::Decimal | Kind::Number | Kind::Boolean => true,
        Kind::Text | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp | Kind::Json | Kind::Blob => false,
    }
}

impl Sieve<'_> {
    fn passes(&self, text: &str) -> bool {
        let value = self.value.as_deref().map_or(self.filter.value, Cell::Text);
        !self.column.is_null(text)
            && order::passes(self.column.kind, Cell::Text(text), self.filter.test, value)
    }
}
