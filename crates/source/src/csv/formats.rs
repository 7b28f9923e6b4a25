//! Which columns of a CSV file have a format: the same for a file in memory and for one that is read in parts.

use contract::infer::{DeclaredFormats, FormatInference, FormatOutcome};
use contract::source::AmbiguousFormat;
use contract::{ColumnFormat, DataType};

use super::load::ColumnProfiler;

/// What a second look at a column found out.
#[derive(Clone, Default)]
pub(super) enum InferredFormat {
    #[default]
    None,
    Format(ColumnFormat, DataType),
    Ambiguous(AmbiguousFormat),
}

impl InferredFormat {
    fn is_decimal_comma(&self) -> bool {
        matches!(self, Self::Format(format, _) if FormatInference::is_decimal_comma(format))
    }

    /// Of two readings of numbers, the only one without a decimal comma.
    fn without_decimal_comma(&self) -> Option<DeclaredFormats> {
        let Self::Ambiguous(AmbiguousFormat { formats, .. }) = self else { return None };
        let [one, other] = &formats[..] else { return None };
        let chosen = match [one, other].map(FormatInference::is_decimal_comma) {
            [true, false] => other,
            [false, true] => one,
            [true, true] | [false, false] => return None,
        };
        let ColumnFormat::Number(number) = chosen else { return None };
        Some(DeclaredFormats { number: Some(number.clone()), ..DeclaredFormats::default() })
    }
}

/// A column whose format is still open.
pub(super) struct OpenColumn<'c> {
    pub(super) position: usize,
    null_texts: &'c [String],
    inference: FormatInference,
}

impl<'c> OpenColumn<'c> {
    fn new(position: usize, column: &'c ColumnProfiler, declared: &DeclaredFormats) -> Self {
        Self { position, null_texts: &column.null_texts, inference: FormatInference::new(declared) }
    }

    pub(super) fn observe(&mut self, value: &str) {
        if self.null_texts.iter().any(|null| null == value) {
            return;
        }
        match value.trim() {
            "" if value.is_empty() => {}
            "" => self.inference.observe_blanks(),
            _ => self.inference.observe(value),
        }
    }

    pub(super) fn is_hopeless(&self) -> bool {
        self.inference.is_hopeless()
    }
}

/// The values of a file, which can be read more than once.
pub(super) trait ColumnScan {
    type Error;

    /// Shows every value to the open columns, which are in ascending order, and removes those that are hopeless.
    fn scan(&mut self, open: &mut Vec<OpenColumn<'_>>) -> Result<(), Self::Error>;

    /// The first value of a column that was scanned, and its line. `is_shown_by` chooses among all of them, where they can be
    /// read again.
    fn first_value(&mut self, position: usize, is_shown_by: &dyn Fn(&str) -> bool)
    -> Option<(usize, String)>;
}

/// Reads the columns that may have a format once more. `declared` are the formats for a column of this type.
pub(super) fn infer_formats<S: ColumnScan>(
    scan: &mut S,
    columns: &[ColumnProfiler],
    delimiter: u8,
    declared: impl Fn(usize, DataType) -> DeclaredFormats,
) -> Result<Vec<InferredFormat>, S::Error> {
    let mut formats = vec![InferredFormat::default(); columns.len()];
    let candidates = columns.iter().enumerate().filter_map(|(at, column)| {
        let declared = declared(at, column.inference.data_type());
        let is_candidate = column.inference.may_have_format() || !declared.is_empty();
        (is_candidate && column.has_values).then(|| OpenColumn::new(at, column, &declared))
    });
    decide(scan, candidates.collect(), &mut formats)?;
    if formats.iter().any(InferredFormat::is_decimal_comma) {
        // In a file with decimal commas, the points of `1.234` may separate thousands.
        let is_decimal = |(at, column): &(usize, &ColumnProfiler)| {
            column.inference.data_type() == DataType::Decimal && matches!(formats[*at], InferredFormat::None)
        };
        let decimals = columns.iter().enumerate().filter(is_decimal);
        let open = decimals.map(|(at, column)| OpenColumn::new(at, column, &DeclaredFormats::default()));
        let mut found = vec![InferredFormat::default(); columns.len()];
        decide(scan, open.collect(), &mut found)?;
        for (format, found) in formats.iter_mut().zip(found) {
            if let InferredFormat::Ambiguous(_) = found {
                *format = found;
            }
        }
    } else if delimiter == b',' && has_decimal_points(&formats, columns) {
        // A program that separates fields by commas and writes decimal points does not write decimal commas: the comma of
        // `1,234` separates thousands.
        let open = formats.iter().enumerate().filter_map(|(at, format)| {
            Some(OpenColumn::new(at, &columns[at], &format.without_decimal_comma()?))
        });
        let open: Vec<_> = open.collect();
        decide(scan, open, &mut formats)?;
    }
    Ok(formats)
}

/// Whether some column has a point before its decimals.
fn has_decimal_points(formats: &[InferredFormat], columns: &[ColumnProfiler]) -> bool {
    formats.iter().zip(columns).any(|(format, column)| match format {
        InferredFormat::Format(format, DataType::Decimal) => !FormatInference::is_decimal_comma(format),
        InferredFormat::None => column.inference.data_type() == DataType::Decimal,
        InferredFormat::Format(..) | InferredFormat::Ambiguous(_) => false,
    })
}

fn decide<S: ColumnScan>(
    scan: &mut S,
    mut open: Vec<OpenColumn<'_>>,
    formats: &mut [InferredFormat],
) -> Result<(), S::Error> {
    if open.is_empty() {
        return Ok(());
    }
    scan.scan(&mut open)?;
    for OpenColumn { position, inference, .. } in open {
        formats[position] = match inference.finish() {
            FormatOutcome::Inferred(format, data_type) => InferredFormat::Format(format, data_type),
            FormatOutcome::Ambiguous(formats) => {
                let is_shown_by = |text: &str| AmbiguousFormat::is_shown_by(&formats, text);
                // `02/02/2026` is the same day in both readings; a column may have no other values.
                let shown = scan.first_value(position, &is_shown_by);
                let (line, first_value) =
                    shown.or_else(|| scan.first_value(position, &|_| true)).unwrap_or_default();
                let first_location = format!("line {line}");
                InferredFormat::Ambiguous(AmbiguousFormat { formats, first_value, first_location })
            }
            FormatOutcome::None => InferredFormat::None,
        };
    }
    Ok(())
}
