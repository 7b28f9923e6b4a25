//! A CSV or TSV file as one table.
