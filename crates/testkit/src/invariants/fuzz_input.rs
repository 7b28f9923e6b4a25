//! Bytes spent as choices.

use std::fmt::Write as _;

/// When the bytes run out, every choice is 0, so a prefix of an input is an input.
pub struct FuzzInput<'a>(&'a [u8]);

impl<'a> FuzzInput<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_exhausted(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// Less than `n`, which is at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    /// True about once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    pub fn choose<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A few bytes, fewer than 256.
    pub fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Any string.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// Any JSON, at most `depth` deep, without duplicate keys.
    pub fn json(&mut self, depth: u32, out: &mut String) {
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 => out.push_str("null"),
            1 => out.push_str(self.choose(&["true", "false"])),
            2 => out.push_str(self.choose(&NUMBERS)),
            3 => out.push_str(self.choose(&STRINGS)),
            4 => self.string(out),
            5 => {
                out.push('[');
                for i in 0..self.below(4) {
                    out.push_str(if i > 0 { "," } else { "" });
                    self.json(depth - 1, out);
                }
                out.push(']');
            }
            _ => {
                out.push('{');
                for i in 0..self.below(5) {
                    out.push_str(if i > 0 { ", " } else { "" });
                    // The number makes keys unique.
                    let _ = write!(out, "\"{}{}\":", self.choose(&["", "a", "\\u0061", "é"]), i);
                    self.json(depth - 1, out);
                }
                out.push('}');
            }
        }
    }

    fn string(&mut self, out: &mut String) {
        let mut written = Vec::new();
        json::write::string(&mut written, &self.text());
        out.push_str(&String::from_utf8_lossy(&written));
    }
}

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "-0",
    "7",
    "1.5",
    "2.0",
    "1e2",
    "9007199254740993",
    "18446744073709551615",
    "-9223372036854775808",
    "18446744073709551616",
    "123456789012345678901234567890",
    "1e-400",
];

const STRINGS: [&str; 10] = [
    r#""""#,
    r#""a""#,
    r#""A1""#,
    r#""\u0061""#,
    r#""\ud834\udd1e""#,
    r#""é""#,
    r#""\n""#,
    r#""2.0""#,
    r#""null""#,
    r#""a b ""#,
];
