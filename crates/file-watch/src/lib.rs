//! Whether a file has changed, decided without reading it: one meaning of "changed" for every file that is followed.
//!
//! A [`FileStamp`] tells two states of a file apart. It follows symbolic links, so another target is another file. A
//! [`ReadStamp`] also knows what a stamp cannot tell: file systems round times, and a file that is written again within
//! one step keeps its stamp. A [`Debounce`] waits until a file that is being written has settled.
//!
//! A [`PollThread`] is for those who look again and again; everything else takes the time as an argument.

mod debounce;
mod poll_thread;
mod stamp;

pub use debounce::{Debounce, SETTLE_TIME, SETTLE_TIME_MAX};
pub use poll_thread::PollThread;
pub use stamp::{FileChange, FileId, FileStamp, ReadStamp};
