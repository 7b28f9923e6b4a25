use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

use super::{BooleanFormat, ColumnFormat, DateFormat, NumberFormat};
use crate::data_type::DataType;
use crate::infer::{DeclaredFormats, FormatInference, FormatOutcome};

fn format(pattern: &str) -> ColumnFormat {
    let number = || NumberFormat::from_example(pattern).map(ColumnFormat::Number);
    let date = || DateFormat::from_pattern(pattern).map(ColumnFormat::Date);
    let boolean = || BooleanFormat::from_pattern(pattern).map(ColumnFormat::Boolean);
    number().or_else(date).or_else(boolean).unwrap_or_else(|| panic!("{pattern}"))
}

/// Infers the format of texts: `pattern: type`, `pattern | pattern` if it is ambiguous, or `text`. The format must
/// read every text, and write it back as it was.
fn infer(texts: &[&str]) -> String {
    let mut inference = FormatInference::new(&DeclaredFormats::default());
    texts.iter().for_each(|text| inference.observe(text));
    match inference.finish() {
        FormatOutcome::Inferred(inferred, data_type) => {
            assert_eq!(format(&inferred.to_string()), inferred, "the manifest text {inferred}");
            assert!(inferred.is_for(data_type), "{inferred}: {data_type:?}");
            for text in texts {
                let canonical = inferred.parse(text).unwrap_or_else(|| panic!("{inferred} reads {text}"));
                assert!(crate::infer::matches_type(data_type, &canonical), "{canonical}");
                let back = inferred.render(&canonical).unwrap_or_else(|| panic!("{inferred}: {canonical}"));
                assert_eq!(inferred.parse(&back).as_deref(), Some(canonical.as_str()), "{text} {back}");
            }
            format!("{inferred}: {}", data_type.as_str())
        }
        FormatOutcome::Ambiguous(formats) => {
            formats.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ")
        }
        FormatOutcome::None => "text".into(),
    }
}

#[test]
fn a_format_is_inferred_if_every_text_fits_it_and_no_other_reading_does() {
    for (texts, expected) in [
        // Separators.
        (&["1.234,50", "989,79"][..], "1.234,50: decimal"),
        (&["1,234.50", "7.00"], "1,234.50: decimal"),
        (&["989,7", "5"], "1234,5: decimal"),
        (&["1 234,50", "7,00"], "1 234,50: decimal"),
        (&["1\u{a0}234,5", "7"], "1\u{a0}234,5: decimal"),
        (&["1'234.50", "0.05"], "1'234.50: decimal"),
        (&["1.234.567", "12"], "1.234: integer"),
        (&["1,234,567", "12"], "1,234: integer"),
        (&["1 234", "12"], "1 234: integer"),
        (&["12345678901234567,5", "1,5"], "1234,5: decimal"),
        (&[" 10.5", "7 "], "1234: decimal"),
        (&[".5", "1.25"], ".5: decimal"),
        (&["0.5", ".25"], "1234: decimal"),
        (&["-,50", "1,25"], ",50: decimal"),
        // Units and signs.
        (&["$1,234.50", "-$0.99"], "$1,234.50: decimal"),
        (&["$-5.00", "$7.00"], "$-1234.50: decimal"),
        (&["1.234,50 €", "-2,00 €"], "1.234,50 €: decimal"),
        (&["€ 5", "€ 12"], "€ 1234: integer"),
        (&["12,5 %", "7,0 %"], "1234,5 %: decimal"),
        (&["EUR 5.00", "EUR 1,000.00"], "EUR 1,234.50: decimal"),
        (&["(1,234.50)", "17.00"], "(1,234.50): decimal"),
        (&["($5.00)", "$7.00"], "($1234.50): decimal"),
        (&["1.234,50-", "2,00"], "1.234,50-: decimal"),
        (&["+12,50", "-3,00"], "+1234,50: decimal"),
        (&["−5,5", "1,5"], "−1234,5: decimal"),
        // Dates.
        (&["13/02/2026", "01/02/2026"], "dd/mm/yyyy: date"),
        (&["02/13/2026", "01/02/2026"], "mm/dd/yyyy: date"),
        (&["1/2/2026", "2/13/2026"], "m/d/yyyy: date"),
        (&["01.02.2026"], "dd.mm.yyyy: date"),
        (&["1.2.26", "13.12.25"], "d.m.yy: date"),
        (&["2026/02/13"], "yyyy/mm/dd: date"),
        (&["13-Feb-2026", "01-MAY-2026"], "dd-Mmm-yyyy: date"),
        (&["Feb 3, 2026", "Dec 13, 2026"], "Mmm d, yyyy: date"),
        (&["13. Februar 2026", "1. März 2026"], "d. Mmmm yyyy (de): date"),
        (&["13 févr. 2026", "01 mars 2026"], "dd mmm. yyyy (fr): date"),
        (&["3 de febrero de 2026", "13 de mayo de 2026"], "d de mmmm de yyyy (es): date"),
        (&["13.02.2026 10:30", "14.02.2026 09:05"], "dd.mm.yyyy hh:mm: local_timestamp"),
        (&["2026-02-13 10:30"], "yyyy-mm-dd hh:mm: local_timestamp"),
        (&["2/13/2026 1:05 PM", "2/3/2026 11:15 AM"], "m/d/yyyy h:mm AM: local_timestamp"),
        (&["2026-02-13 10:30:00 -0500"], "yyyy-mm-dd hh:mm:ss z: timestamp"),
        (&["2026-02-13 10:30:00 UTC"], "yyyy-mm-dd hh:mm:ss UTC: timestamp"),
        (&["2026-02-13 10:30:00+00", "2026-02-13 10:30:00.25-05"], "yyyy-mm-dd hh:mm:ss.fffzzz: timestamp"),
        (&["2026-02-13 10:30:00.123456+00:00"], "yyyy-mm-dd hh:mm:ss.fffzz: timestamp"),
        (
            &["2026/01/05 9:12:33 AM GMT+1", "2026/01/05 11:12:33 PM GMT"],
            "yyyy/mm/dd h:mm:ss AM GMTz: timestamp",
        ),
        // Booleans.
        (&["ja", "nein", "ja"], "ja/nein: boolean"),
        (&["N", "Y"], "Y/N: boolean"),
        (&["FALSE", "TRUE"], "TRUE/FALSE: boolean"),
        (&["Wahr", "Falsch"], "Wahr/Falsch: boolean"),
        (&["non", "oui"], "oui/non: boolean"),
        (&["Sí", "No"], "Sí/No: boolean"),
        (&["ja", "nein", "Ja", "NEIN"], "ja/nein: boolean"),
        (&["y", "Y", "n"], "y/n: boolean"),
        // Lakhs, and parentheses inside the unit.
        (&["₹1,23,456.50", "₹500.00", "₹12,345.00"], "₹1,23,456.50: decimal"),
        (&["12,34,567", "1,234.5"], "1,23,456: decimal"),
        (&["$(1,600.00)", "$1,450.00"], "$(1,234.50): decimal"),
        (&["(1,50) €", "2,00 €"], "(1234,50) €: decimal"),
    ] {
        assert_eq!(infer(texts), expected, "{texts:?}");
    }
}

#[test]
fn a_column_with_two_readings_is_ambiguous() {
    for (texts, expected) in [
        (&["01/02/2026", "03/04/2026"][..], "dd/mm/yyyy | mm/dd/yyyy"),
        (&["01-02-2026 10:00"], "dd-mm-yyyy hh:mm | mm-dd-yyyy hh:mm"),
        (&["1,234", "2,500"], "1,234 | 1234,500"),
        (&["$1,234", "$5"], "$1,234 | $1234,5"),
        // Doubtful, with one reading: letters that may be codes, a currency in some cells.
        (&["N", "S", "N"], "S/N"),
        (&["O", "N"], "O/N"),
        (&["t", "f"], "t/f"),
        (&["j", "N", "n"], "j/N"),
        (&["1'234.50", "CHF 12.00"], "CHF 1'234.50"),
        (&["12,00 €", "5,50"], "1234,50 €"),
    ] {
        assert_eq!(infer(texts), expected, "{texts:?}");
    }
}

#[test]
fn a_column_is_text_if_a_text_has_no_reading() {
    for texts in [
        &["1.234,50", "tbd"][..],
        &["1.234,50", "1,234.50"],
        &["$5", "€5"],
        &["5 %", "5"],
        &["5 kg"],
        &["(5)", "-5"],
        &["007,5"],
        &["1.23.456"],
        &["1,23,456", "1,234,567"],
        &["1,23,45"],
        &["ja", "nein", "JA", "Nee"],
        &["($5)", "$(5)"],
        &["192.168.100.101", "192.168.100.102"],
        &["+4915112345678", "+4930123456"],
        &["030 123 456"],
        &["110 00"],
        &["12.345.678-5"],
        &["13/02/2026", "02/13/2026"],
        &["31.02.2026"],
        &["13.02.2026", "2026-02-13"],
        &["13 Foo 2026"],
        &["13/02"],
        &["10:30"],
        &["13.02.2026 25:00"],
        &["2/13/2026 13:05 PM"],
        &["ja"],
        &["ja", "no"],
        &["ja", "nein", "vielleicht"],
        &["NO", "DE"],
        &["1,,2"],
        &["-"],
        &[""],
    ] {
        assert_eq!(infer(texts), "text", "{texts:?}");
    }
}

#[test]
fn a_format_reads_exactly_its_own_texts() {
    for (pattern, text, expected) in [
        ("1.234,50 €", "-1.234.567,8 €", Some("-1234567.8")),
        ("1.234,50 €", "1.234,50", Some("1234.50")),
        ("1.234,50 €", "1.234,50 $", None),
        ("1234 %", "12", None),
        ("1,23,456.50", "12,34,567.5", Some("1234567.5")),
        ("1,23,456.50", "1,234,567.5", None),
        ("ja/nein", "JA", Some("true")),
        ("Y/y", "y", Some("false")),
        ("1.234,50 €", "1234567,8 €", Some("1234567.8")),
        ("1.234,50 €", " 5 € ", Some("5")),
        ("1.234,50 €", "5", Some("5")),
        ("1.234,50 €", "5 $", None),
        ("1.234,50 €", "(5 €)", None),
        ("1.234,50", "12.34", None),
        ("1234,5", "1.234,5", None),
        ("(1,234.50)", "(0.10)", Some("-0.10")),
        ("12 345 678", "1", None),
        ("dd/mm/yyyy", "1/2/2026", Some("2026-02-01")),
        ("dd/mm/yyyy", "31/02/2026", None),
        ("dd/mm/yyyy", "01/02/26", None),
        ("yyyymmdd", "20260213", Some("2026-02-13")),
        ("yyyymmdd", "2026021", None),
        ("yyyy-mm-dd hh:mm:ss", "2026-02-13 10:30:00.120", Some("2026-02-13T10:30:00.12")),
        ("yyyy-mm-dd hh:mm:ss", "2026-02-13 10:30:00.", None),
        ("yyyy-mm-dd hh:mm:ss", "2026-02-13 10:30:00.1234567891", None),
        ("yyyy-mm-dd hh:mm:sszzz", "2026-02-13 10:30:00-05", Some("2026-02-13T10:30:00-05:00")),
        ("yyyy-mm-dd hh:mm:sszzz", "2026-02-13 10:30:00+5", None),
        ("dd.mm.yyyy hh:mm GMTz", "13.02.2026 10:30 GMT-3:30", Some("2026-02-13T10:30:00-03:30")),
        ("dd.mm.yyyy hh:mm GMTz", "13.02.2026 10:30 GMT", Some("2026-02-13T10:30:00Z")),
        ("dd.mm.yyyy hh:mm GMTz", "13.02.2026 10:30 GMT+", None),
        ("dd.mm.yyyy hh:mm GMTz", "13.02.2026 10:30 GMT+100", None),
        ("dd.mm.yy", "01.02.70", Some("1970-02-01")),
        ("dd.mm.yy", "01.02.68", Some("2068-02-01")),
        ("dd.mm.yy (from 1940)", "25.11.63", Some("1963-11-25")),
        ("dd.mm.yy (from 1940)", "25.11.39", Some("2039-11-25")),
        ("d. mmm yy (de) (from 1900)", "3. mai 00", Some("1900-05-03")),
        ("1234.5", "2.44e-06", Some("2.44e-06")),
        ("1234.5", "-.5E+3", Some("-0.5e+3")),
        ("1234,5", "1,23E-07", Some("1.23e-07")),
        ("1234.5", "12E4", None),
        ("1234.5", "1e-", None),
        ("1234.5", "1.5e999", None),
        ("1,234.5", "1,234e-5", None),
        ("m/d/yyyy h:mm AM", "2/13/2026 12:05 AM", Some("2026-02-13T00:05:00")),
        ("d. mmmm yyyy (de)", "3. MÄRZ 2026", Some("2026-03-03")),
        ("yyyy-mm-dd hh:mm:ss z", "2026-02-13 10:30:00 +0000", Some("2026-02-13T10:30:00Z")),
        ("ja/nein", "nein", Some("false")),
        ("ja/nein", "Nein", Some("false")),
        ("ja/nein", "nee", None),
    ] {
        if pattern.starts_with("12 ") {
            assert_eq!(NumberFormat::from_example(pattern), None, "{pattern}");
            continue;
        }
        assert_eq!(format(pattern).parse(text).as_deref(), expected, "{pattern}: {text}");
    }
}

#[test]
fn a_value_that_a_format_cannot_express_is_not_rendered() {
    for (pattern, canonical) in [
        ("dd.mm.yyyy", "2026-02-13T10:30:00"),
        ("dd.mm.yyyy hh:mm", "2026-02-13T10:30:05"),
        ("dd.mm.yyyy hh:mm", "2026-02-13"),
        ("dd.mm.yyyy hh:mm", "2026-02-13T10:30:00Z"),
        ("dd.mm.yy", "1900-01-01"),
        ("dd.mm.yy (from 1940)", "2040-01-01"),
        ("1.234,50", "1e5"),
        ("1.234,50", "x"),
        ("ja/nein", "maybe"),
    ] {
        assert_eq!(format(pattern).render(canonical), None, "{pattern}: {canonical}");
    }
}

#[test]
fn a_number_is_rendered_as_a_person_would_type_it() {
    for (pattern, canonical, expected) in [
        ("1.234,50 €", "1234.5", "1.234,50 €"),
        ("1.234,50 €", "-1234567.125", "-1.234.567,125 €"),
        ("$1,234.50", "-0.5", "-$0.50"),
        ("($1,234.50)", "-1234", "($1,234.00)"),
        ("1.234,50-", "-12", "12,00-"),
        ("+1234,50", "12", "+12,00"),
        ("1234,5", "12", "12"),
        (".5", "0.5", ".5"),
        (".5", "-0.25", "-.25"),
        (".5", "0", "0"),
        ("$.50", "1.5", "$1.50"),
        ("d. Mmmm yyyy (de)", "2026-03-01", "1. März 2026"),
        ("dd-MMM-yyyy", "2026-05-01", "01-MAY-2026"),
        ("m/d/yyyy h:mm AM", "2026-02-03T00:05:00", "2/3/2026 12:05 AM"),
        ("yyyy-mm-dd hh:mm:ss z", "2026-02-13T10:30:00-05:00", "2026-02-13 10:30:00 -0500"),
        ("yyyy-mm-dd hh:mm:ss.fffzzz", "2026-02-13T10:30:00.120Z", "2026-02-13 10:30:00.12+00"),
        ("yyyy-mm-dd hh:mm:ss.fffzzz", "2026-02-13T10:30:00-05:00", "2026-02-13 10:30:00-05"),
        ("dd.mm.yyyy h:mm AM GMTz", "2026-02-13T10:30:00+01:00", "13.02.2026 10:30 AM GMT+1"),
    ] {
        assert_eq!(format(pattern).render(canonical).as_deref(), Some(expected), "{pattern}");
    }
}

#[test]
fn invalid_patterns_are_refused() {
    for text in ["", "1", "12,34", "1.234.50", "1,234,50", "1234,25", "(1234", "€"] {
        assert_eq!(NumberFormat::from_example(text), None, "{text}");
    }
    for text in [
        "",
        "dd",
        "dd/mm",
        "dd/mm/yy (from)",
        "dd/mm/yy (from 20)",
        "dd/dd/yyyy",
        "hh:mm",
        "dd/mm/yyyy (xx)",
        "dd/mm/yyyy h:mm:ss:ss",
        "dd.mm.jjjj",
    ] {
        assert_eq!(DateFormat::from_pattern(text), None, "{text}");
    }
    for text in ["", "yes", "x/x", "/", "ja/", "/nein", " ja/nein"] {
        assert_eq!(BooleanFormat::from_pattern(text), None, "{text}");
    }
}

fn number_formats() -> impl Strategy<Value = String> {
    let body = prop_oneof![
        Just("1.234,50"),
        Just("1,234.50"),
        Just("1 234,5"),
        Just("1'234.50"),
        Just("1234,500"),
        Just("1234"),
        Just("1\u{202f}234,50"),
    ];
    let around = prop_oneof![
        Just(("", "")),
        Just(("$", "")),
        Just(("", " €")),
        Just(("", " %")),
        Just(("CHF ", "")),
        Just(("(", ")")),
        Just(("", "-")),
        Just(("+", "")),
        Just(("($", ")")),
    ];
    (body, around).prop_map(|(body, (before, after))| format!("{before}{body}{after}"))
}

proptest! {
    #[test]
    fn a_rendered_number_reads_back_and_renders_identically(
        pattern in number_formats(), whole in any::<u64>(), fraction in "[0-9]{0,8}", negative in any::<bool>(),
    ) {
        let format = format(&pattern);
        let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
        let canonical = format!("{}{whole}{fraction}", if negative { "-" } else { "" });
        let text = format.render(&canonical).expect("a number");
        let read = format.parse(&text).expect("its own text");
        prop_assert_eq!(crate::order::decimal_parts(&read), crate::order::decimal_parts(&canonical));
        prop_assert_eq!(format.render(&read), Some(text));
    }

    #[test]
    fn a_rendered_date_reads_back_identically(days in -20_000_i64..40_000, pattern in prop_oneof![
        Just("dd/mm/yyyy"), Just("m/d/yyyy"), Just("d. Mmmm yyyy (de)"), Just("dd mmm. yyyy (fr)"), Just("yyyymmdd"),
        Just("dd-MMM-yyyy"), Just("d de mmmm de yyyy (es)"), Just("Mmm d, yyyy"),
    ]) {
        let date = spile_core::calendar::CivilDate::from_days(days).expect("a date").to_string();
        let text = format(pattern).render(&date).expect("a date");
        prop_assert_eq!(format(pattern).parse(&text), Some(date));
    }

    /// No text makes inference or reading panic, and what is inferred reads all of it.
    #[test]
    fn any_texts_can_be_observed(texts in proptest::collection::vec("[0-9 .,/:€$()+a-zA-Z-]{0,14}|\\PC{0,12}", 1..4)) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        infer(&texts);
    }
}

#[test]
fn the_declared_format_comes_first() {
    let declared =
        DeclaredFormats { date: DateFormat::from_pattern("mm/dd/yyyy"), ..DeclaredFormats::default() };
    let mut inference = FormatInference::new(&declared);
    inference.observe("01/02/2026");
    let expected = FormatOutcome::Inferred(format("mm/dd/yyyy"), DataType::Date);
    assert_eq!(inference.clone().finish(), expected);
    inference.observe("13/02/2026");
    assert_eq!(inference.finish(), FormatOutcome::Inferred(format("dd/mm/yyyy"), DataType::Date));
}

#[test]
fn a_number_with_an_exponent_is_written_in_the_notation_of_its_column() {
    for (pattern, canonical, expected) in [
        ("1234.5", "1.42e-7", Some("1.42e-7")),
        ("1234.5", "-1e16", Some("-1e+16")),
        ("1234,5", "1.5E-7", Some("1,5e-7")),
        ("1234.50", "1.5e-7", None),
        ("$1234", "1.5e-7", None),
        ("1234.5", "1e", None),
        ("1234.5", "e5", None),
    ] {
        let rendered = format(pattern).render(canonical);
        assert_eq!(rendered.as_deref(), expected, "{canonical}");
        // What is written is read again.
        let read =
            rendered.and_then(|text| format(pattern).parse(&text)).and_then(|text| text.parse::<f64>().ok());
        assert_eq!(read, expected.and_then(|_| canonical.parse::<f64>().ok()), "{canonical}");
    }
}
