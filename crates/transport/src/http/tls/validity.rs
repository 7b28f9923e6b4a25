//! Reads the validity period of a certificate, which rustls does not expose to a server.
//!
//! Parses only as much DER as needed (RFC 5280, 4.1) and gives up on anything unusual: the result is only used for
//! a warning. Clients decide whether they accept the certificate.

use spile_core::calendar::{CivilDate, CivilTime, DateTime, UtcOffset};

/// In UTC.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: DateTime,
    pub(super) not_after: DateTime,
}

const SEQUENCE: u8 = 0x30;
const VERSION_TAG: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

impl Validity {
    pub(super) fn from_der(certificate: &[u8]) -> Option<Self> {
        let (whole, _) = read_contents(certificate, SEQUENCE)?;
        let (mut to_be_signed, _) = read_contents(whole, SEQUENCE)?;
        if to_be_signed.first() == Some(&VERSION_TAG) {
            to_be_signed = read_element(to_be_signed)?.2;
        }
        // Skip serial number, algorithm and issuer.
        for _ in 0..3 {
            to_be_signed = read_element(to_be_signed)?.2;
        }
        let (validity, _) = read_contents(to_be_signed, SEQUENCE)?;
        let (not_before, validity) = read_time(validity)?;
        let (not_after, _) = read_time(validity)?;
        Some(Self { not_before, not_after })
    }
}

/// Tag, contents and the bytes after the element.
fn read_element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        ..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        // Indefinite length, or longer than any certificate.
        0x80 | 0x85.. => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((*kind, contents, rest))
}

fn read_contents(der: &[u8], expected: u8) -> Option<(&[u8], &[u8])> {
    let (kind, contents, rest) = read_element(der)?;
    (kind == expected).then_some((contents, rest))
}

fn read_time(der: &[u8]) -> Option<(DateTime, &[u8])> {
    let (kind, text, rest) = read_element(der)?;
    let digits = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, remaining) = match kind {
        UTC_TIME => {
            let (year, rest) = read_digits(digits, 2)?;
            // RFC 5280, 4.1.2.5.1: 50 and above means 19xx.
            (if year >= 50 { 1900 + year } else { 2000 + year }, rest)
        }
        GENERALIZED_TIME => read_digits(digits, 4)?,
        _ => return None,
    };
    let (month, remaining) = read_digits(remaining, 2)?;
    let (day, remaining) = read_digits(remaining, 2)?;
    let (hour, remaining) = read_digits(remaining, 2)?;
    let (minute, remaining) = read_digits(remaining, 2)?;
    let (second, end) = read_digits(remaining, 2)?;
    let [month, day, hour, minute, second] = [month, day, hour, minute, second].map(|part| part as u8);
    let date = CivilDate::new(year, month, day)?;
    let time = CivilTime::new(hour, minute, second, 0)?;
    end.is_empty().then_some((DateTime { date, time, offset: Some(UtcOffset::UTC) }, rest))
}

/// At most four digits.
fn read_digits(text: &str, digits: usize) -> Option<(u16, &str)> {
    let (digits, rest) = text.split_at_checked(digits)?;
    let valid = digits.bytes().all(|c| c.is_ascii_digit());
    Some((digits.parse().ok().filter(|_| valid)?, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use spile_core::calendar::DateTime;

    use super::{Validity, read_time};

    fn at(text: &str) -> DateTime {
        DateTime::parse(text.as_bytes()).expect("a time")
    }

    #[test]
    fn validity_is_read_from_real_certificates() {
        for (from, until) in [
            ((2026, 1, 2), (2026, 11, 15)),
            ((1999, 12, 31), (2049, 12, 31)),
            ((2024, 2, 29), (2050, 1, 1)),
            ((1975, 1, 1), (4096, 1, 1)),
        ] {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(vec!["localhost".into()]).expect("a name");
            params.not_before = date_time_ymd(from.0, from.1, from.2);
            params.not_after = date_time_ymd(until.0, until.1, until.2);
            let certificate = params.self_signed(&key).expect("a certificate");
            let midnight = |(y, m, d): (i32, u8, u8)| at(&format!("{y:04}-{m:02}-{d:02}T00:00:00Z"));
            let expected = Validity { not_before: midnight(from), not_after: midnight(until) };
            let der = certificate.der();
            assert_eq!(Validity::from_der(der), Some(expected));
            for cut in 0..120 {
                assert_eq!(Validity::from_der(&der[..cut]), None, "cut at {cut}");
            }
        }
    }

    #[test]
    fn malformed_times_are_rejected() {
        let utc = |text: &str| [&[0x17, text.len() as u8], text.as_bytes()].concat();
        assert_eq!(read_time(&utc("261115120000Z")), Some((at("2026-11-15T12:00:00Z"), &[][..])));
        for text in [
            "",
            "Z",
            "261115120000",
            "2611151200Z",
            "26111512000Z",
            "261315120000Z",
            "260015120000Z",
            "260230120000Z",
            "261115240000Z",
        ] {
            assert_eq!(read_time(&utc(text)), None, "{text}");
        }
        for text in ["2611151200+0Z", "26111512 000Z", "261115120000ZZ", "2611151200é0Z"] {
            assert_eq!(read_time(&utc(text)), None, "{text}");
        }
        for junk in [&[][..], &[0x17], &[0x17, 1], &[0x17, 0x80], &[0x17, 0x85, 0, 0, 0, 0, 0], &[0x02, 0]] {
            assert_eq!(read_time(junk), None, "{junk:?}");
        }
    }
}
