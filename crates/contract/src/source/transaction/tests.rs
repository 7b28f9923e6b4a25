//! The order of the steps, on a transaction that writes down what is done to it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;

const KEY: IdempotencyKey = IdempotencyKey { key_digest: [1; 32], request_digest: [2; 32] };

type Log = Rc<RefCell<Vec<&'static str>>>;

#[derive(Default)]
struct LoggedTransaction {
    log: Log,
    stored: Option<&'static str>,
    /// The step that fails.
    fails_at: &'static str,
    /// Set at this step, as if the caller had gone away.
    cancel_at: (&'static str, CancelFlag),
    end: EndCheck,
}

/// Fails if it is dropped before the driver has ended the transaction.
#[derive(Default)]
struct EndCheck {
    has_ended: bool,
}

impl Drop for EndCheck {
    fn drop(&mut self) {
        assert!(self.has_ended || std::thread::panicking(), "the driver ends every transaction itself");
    }
}

impl LoggedTransaction {
    fn step(&self, name: &'static str) -> Result<(), WriteError> {
        self.log.borrow_mut().push(name);
        if self.cancel_at.0 == name {
            self.cancel_at.1.store(true, Ordering::Relaxed);
        }
        if self.fails_at == name { Err(WriteError::NotFound) } else { Ok(()) }
    }
}

impl Transaction for LoggedTransaction {
    fn find_response(&mut self, key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        assert_eq!(*key, KEY);
        self.step("find")?;
        Ok(self.stored.map(|text| text.as_bytes().to_vec()))
    }

    fn store_response(&mut self, key: &IdempotencyKey, response: &[u8]) -> Result<(), WriteError> {
        assert_eq!((*key, response), (KEY, &b"response"[..]));
        self.step("store")
    }

    fn commit(mut self: Box<Self>) -> Result<(), WriteError> {
        self.end.has_ended = true;
        self.step("commit")
    }

    fn roll_back(mut self: Box<Self>) {
        self.end.has_ended = true;
        self.log.borrow_mut().push("roll back");
    }
}

/// Runs a transaction. Returns its steps, and how it ended.
fn run(transaction: LoggedTransaction, options: &TransactionOptions, keep: bool) -> (String, String) {
    let log = Rc::clone(&transaction.log);
    let outcome = run_transaction(Box::new(transaction), options, |transaction| {
        transaction.step("change")?;
        Ok(match keep {
            true => Verdict::Keep { response: b"response".to_vec(), result: "result" },
            false => Verdict::Discard("ask the user"),
        })
    });
    let outcome = match outcome {
        Ok(WriteOutcome::Done(result)) => format!("done: {result}"),
        Ok(WriteOutcome::Replayed(response)) => format!("replayed: {}", String::from_utf8_lossy(&response)),
        Ok(WriteOutcome::Discarded(reason)) => format!("discarded: {reason}"),
        Err(error) => format!("error: {error}"),
    };
    let steps = log.borrow().join(", ");
    (steps, outcome)
}

fn with_key() -> TransactionOptions {
    TransactionOptions { idempotency_key: Some(KEY), ..TransactionOptions::default() }
}

#[test]
fn every_transaction_goes_through_the_same_steps_and_ends_once() {
    let dry = |options| TransactionOptions { dry_run: true, ..options };
    for (options, stored, keep, steps, outcome) in [
        (TransactionOptions::default(), None, true, "change, commit", "done: result"),
        (with_key(), None, true, "find, change, store, commit", "done: result"),
        (with_key(), Some("first"), true, "find, roll back", "replayed: first"),
        // Asking the user is an outcome, and leaves no idempotency record.
        (with_key(), None, false, "find, change, roll back", "discarded: ask the user"),
        (TransactionOptions::default(), None, false, "change, roll back", "discarded: ask the user"),
        (dry(TransactionOptions::default()), None, true, "change, roll back", "done: result"),
        (dry(with_key()), None, true, "find, change, roll back", "done: result"),
        (dry(with_key()), Some("first"), true, "find, roll back", "replayed: first"),
    ] {
        let transaction = LoggedTransaction { stored, ..LoggedTransaction::default() };
        let found = run(transaction, &options, keep);
        assert_eq!(found, (steps.to_owned(), outcome.to_owned()), "{options:?}");
    }
}

#[test]
fn a_step_that_fails_rolls_the_transaction_back() {
    for (fails_at, steps) in [
        ("find", "find, roll back"),
        ("change", "find, change, roll back"),
        ("store", "find, change, store, roll back"),
        // A transaction that cannot be committed has ended.
        ("commit", "find, change, store, commit"),
    ] {
        let transaction = LoggedTransaction { fails_at, ..LoggedTransaction::default() };
        let (found, outcome) = run(transaction, &with_key(), true);
        assert_eq!((found.as_str(), outcome.as_str()), (steps, "error: no row has this key"), "{fails_at}");
    }
}

#[test]
fn nothing_is_kept_for_a_caller_who_has_gone_away() {
    for (cancel_at, fails_at, keep, steps) in [
        ("find", "", true, "find, change, store, roll back"),
        ("change", "", true, "find, change, store, roll back"),
        ("change", "", false, "find, change, roll back"),
        // A statement that was interrupted fails with the driver's own error.
        ("change", "change", true, "find, change, roll back"),
        ("store", "", true, "find, change, store, roll back"),
    ] {
        let cancelled: CancelFlag = Arc::new(AtomicBool::new(false));
        let options = TransactionOptions { cancelled: Some(Arc::clone(&cancelled)), ..with_key() };
        let cancel_at = (cancel_at, cancelled);
        let transaction = LoggedTransaction { fails_at, cancel_at, ..LoggedTransaction::default() };
        let (found, outcome) = run(transaction, &options, keep);
        assert_eq!((found.as_str(), outcome.as_str()), (steps, "error: cancelled"));
    }
}

#[test]
fn a_panic_between_the_steps_drops_the_transaction() {
    let transaction = LoggedTransaction::default();
    let log = Rc::clone(&transaction.log);
    let options = with_key();
    let run = std::panic::AssertUnwindSafe(|| {
        run_transaction(Box::new(transaction), &options, |_| -> Result<Verdict<(), ()>, WriteError> {
            panic!("a bug in a check")
        })
    });
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(*log.borrow(), ["find"], "and a transaction that is dropped is rolled back by its source");
}
