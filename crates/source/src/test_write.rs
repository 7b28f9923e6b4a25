//! One write without checks, for unit tests.

use std::convert::Infallible;

use contract::source::{RowChange, TransactionOptions, Verdict, WriteError, Writer, run_transaction};

pub(crate) fn write_row(writer: &dyn Writer, change: &RowChange<'_>) -> Result<(), WriteError> {
    write_row_with(writer, change, &TransactionOptions::default())
}

pub(crate) fn write_row_with(
    writer: &dyn Writer,
    change: &RowChange<'_>,
    options: &TransactionOptions,
) -> Result<(), WriteError> {
    run_transaction(writer.begin(options)?, options, |transaction| {
        transaction.apply(change)?;
        transaction.read_back()?;
        Ok(Verdict::<(), Infallible>::Keep { response: Vec::new(), result: () })
    })
    .map(drop)
}
