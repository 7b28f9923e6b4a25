//! What must hold whatever a stranger sends: one function for each part that reads untrusted input.
//!
//! Each takes bytes and panics if its invariant breaks. The fuzz targets hand in what the fuzzer found, the
//! property tests what chance gave; both mean the same thing by the same bytes. Parts with structure spend
//! the bytes as [`Dice`], so that mutation stays among inputs that get somewhere.

mod check;
mod dice;
mod frames;
mod headers;
mod open;
mod samples;
mod scan;
mod script;
mod seal;
mod session;

pub use check::check;
pub use dice::Dice;
pub use frames::frames;
pub use headers::headers;
pub use open::open;
pub use scan::scan;
pub use seal::seal;
pub use session::session;
