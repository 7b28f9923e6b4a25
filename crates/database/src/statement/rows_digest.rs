//! Identifies the rows that a statement changed and returned: what a user has confirmed is compared with what happens later, perhaps
//! in another process and by a later build.

use contract::ValueRef;
use ring::digest::{Context, SHA256};

/// The rows of one run. Their order does not matter: a database may return them in another one.
pub(super) struct RowsDigest {
    rows: Vec<[u8; 32]>,
    rows_max: usize,
}

impl RowsDigest {
    /// Only the first `rows_max` rows count. A larger change must be rejected for its size.
    pub(super) fn new(rows_max: usize) -> Self {
        Self { rows: Vec::new(), rows_max }
    }

    pub(super) fn add(&mut self, row: &[ValueRef<'_>]) {
        if self.rows.len() >= self.rows_max {
            return;
        }
        let mut digest = Context::new(&SHA256);
        for value in row {
            value.write_identity(&mut |bytes| digest.update(bytes));
        }
        self.rows.push(finish(digest));
    }

    pub(super) fn finish(mut self) -> [u8; 32] {
        self.rows.sort_unstable();
        let mut digest = Context::new(&SHA256);
        for row in &self.rows {
            digest.update(row);
        }
        finish(digest)
    }
}

fn finish(digest: Context) -> [u8; 32] {
    digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use contract::Value;
    use spile_core::text::hex;

    use super::RowsDigest;

    fn digest(rows: &[&[Value]]) -> String {
        let mut digest = RowsDigest::new(4);
        for row in rows {
            digest.add(&row.iter().map(Value::as_value_ref).collect::<Vec<_>>());
        }
        hex(&digest.finish())
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn a_row_has_the_same_digest_in_every_build() {
        let row = [Value::Null, Value::Integer(-7), Value::Real(0.1), text("ä"), Value::Blob(vec![0, 255])];
        // A confirmation that was given before an update of Spile must hold after it.
        assert_eq!(digest(&[&row]), "70e90c965f6d598d795aa8bb49aa30dbb806d116f622d13e18bb8029f6f1302f");
    }

    #[test]
    fn rows_that_differ_have_different_digests_and_their_order_does_not_matter() {
        let (one, other): (&[Value], &[Value]) = (&[text("a"), text("bc")], &[text("ab"), text("c")]);
        assert_eq!(digest(&[one, other]), digest(&[other, one]));
        let all: [&[&[Value]]; 9] = [
            &[],
            &[&[]],
            &[one],
            &[other],
            &[one, one],
            &[&[text("abc")]],
            &[&[Value::Blob(b"abc".to_vec())]],
            &[&[Value::Integer(0)]],
            &[&[Value::Real(0.0)]],
        ];
        for (at, rows) in all.iter().enumerate() {
            for others in &all[..at] {
                assert_ne!(digest(rows), digest(others), "{rows:?} {others:?}");
            }
        }
    }
}
