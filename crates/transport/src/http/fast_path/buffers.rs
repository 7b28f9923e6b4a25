//! The buffers that the connections of a thread take turns with.
//!
//! A connection has buffers only while there are bytes in them, so that one that waits for its next request owns none, and a
//! busy one allocates none. What an input buffer held before stays in it, unread: its user knows which bytes are its own.

use std::cell::RefCell;

use super::head::HEAD_BYTES_MAX;

/// The buffers of one connection.
#[derive(Default)]
pub(super) struct Buffers {
    /// All of its length is zeros or bytes of earlier requests.
    pub(super) input: Vec<u8>,
    /// Empty.
    pub(super) output: Vec<u8>,
}

/// Larger buffers are not kept.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// More buffers than these are not kept. A thread needs them for one connection at a time, and for each call that it waits
/// for.
const KEPT_MAX: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Buffers>> = const { RefCell::new(Vec::new()) };
}

/// Spare buffers, or new ones.
#[inline]
pub(super) fn take() -> Buffers {
    // A thread that ends has none.
    match SPARE.try_with(|spare| spare.borrow_mut().pop()) {
        Ok(Some(buffers)) => buffers,
        Ok(None) | Err(_) => allocate(),
    }
}

#[cold]
fn allocate() -> Buffers {
    Buffers { input: vec![0; HEAD_BYTES_MAX], output: Vec::new() }
}

/// For the next connection.
#[inline]
pub(super) fn give_back(buffers: Buffers) {
    let is_large = buffers.input.capacity() > KEPT_BYTES_MAX || buffers.output.capacity() > KEPT_BYTES_MAX;
    let _ = SPARE.try_with(|spare| {
        let mut kept = spare.borrow_mut();
        if !is_large && kept.len() < KEPT_MAX {
            kept.push(buffers);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{Buffers, HEAD_BYTES_MAX, KEPT_BYTES_MAX, KEPT_MAX, SPARE, give_back, take};

    #[test]
    fn buffers_go_from_one_connection_to_the_next() {
        let mut first = take();
        assert_eq!((first.input.len(), first.output.len()), (HEAD_BYTES_MAX, 0));
        first.output.reserve(100);
        let places = (first.input.as_ptr(), first.output.as_ptr());
        give_back(first);
        let second = take();
        assert_eq!((second.input.as_ptr(), second.output.as_ptr()), places);
    }

    #[test]
    fn a_thread_keeps_few_and_none_that_are_large() {
        let kept = || SPARE.with(|spare| spare.borrow().len());
        let large = vec![0; KEPT_BYTES_MAX + 1];
        give_back(Buffers { input: large.clone(), ..take() });
        give_back(Buffers { output: large, ..take() });
        assert_eq!(kept(), 0);
        let many: Vec<Buffers> = (0..=KEPT_MAX).map(|_| take()).collect();
        many.into_iter().for_each(give_back);
        assert_eq!(kept(), KEPT_MAX);
    }
}
