//! A clerk who writes down what passes by, and the changes that tests ask for.

use std::fmt::Write as _;

use contract::source::{Change, Claim, Clerk, Stale, Unwritable, Write, WriteFault, Writer, Written};
use contract::{Cell, Value};

/// Tells rows as their cells between `|`; no value is `-`.
#[derive(Default)]
pub struct Scribe {
    /// Objects to whatever row there is.
    pub objects: bool,
    /// What a row must not say to be told.
    pub shuns: Option<&'static str>,
    /// Further cells to set.
    pub more: Vec<(usize, Value)>,
    pub before: Option<String>,
    pub after: Option<String>,
}

impl Clerk for Scribe {
    fn before(&mut self, row: &[Cell<'_>]) -> Result<Vec<(usize, Value)>, Stale> {
        assert_eq!((&self.before, &self.after), (&None, &None), "once, and first");
        self.before = Some(line(row));
        if self.objects { Err(Stale) } else { Ok(self.more.clone()) }
    }

    fn after(&mut self, row: &[Cell<'_>]) -> Result<Vec<u8>, Unwritable> {
        assert_eq!(self.after, None, "once");
        let line = line(row);
        self.after = Some(line.clone());
        match self.shuns {
            Some(shunned) if line.contains(shunned) => Err(Unwritable),
            _ => Ok(line.into_bytes()),
        }
    }
}

pub fn line(row: &[Cell<'_>]) -> String {
    let mut out = String::new();
    for (at, cell) in row.iter().enumerate() {
        let bar = if at > 0 { "|" } else { "" };
        let written = match cell {
            Cell::Null => write!(out, "{bar}-"),
            Cell::Text(text) => write!(out, "{bar}{text}"),
            Cell::Integer(n) => write!(out, "{bar}{n}"),
            Cell::Real(n) => write!(out, "{bar}{n}"),
            Cell::Blob(bytes) => write!(out, "{bar}{bytes:?}"),
        };
        written.expect("a string takes anything");
    }
    out
}

pub fn claim(number: u8) -> Claim {
    Claim { id: [number; 32], asked: [number; 32] }
}

/// A change without a claim, for good.
pub fn plain(change: Change<'_>) -> Write<'_> {
    Write { change, claim: None, dry_run: false, now_ms: 0, stop: None }
}

/// What came of it, in a word or in the words of the fault.
pub fn said(written: Result<Written, WriteFault>) -> String {
    match written {
        Ok(Written::Done) => "done".into(),
        Ok(Written::Replayed(told)) => format!("replayed {}", String::from_utf8(told).expect("a line")),
        Err(WriteFault::Refused { column: Some(column), why }) => format!("{column}: {why}"),
        Err(fault) => fault.to_string(),
    }
}

pub fn write(writer: &dyn Writer, change: Change<'_>) -> String {
    said(writer.write(&plain(change), &mut Scribe::default()))
}
