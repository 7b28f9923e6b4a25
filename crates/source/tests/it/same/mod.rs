//! The same questions to every source.
