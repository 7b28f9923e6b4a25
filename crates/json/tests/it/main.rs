//! What the parser accepts and rejects, and that it agrees with `serde_json` otherwise.

use json::{Decimal, Json, JsonErrorKind, ParseLimits, parse, write};
use proptest::prelude::*;

fn check(text: &str, expected: Result<&str, JsonErrorKind>) {
    check_bytes(text.as_bytes(), expected);
}

fn check_bytes(bytes: &[u8], expected: Result<&str, JsonErrorKind>) {
    let limits = ParseLimits { depth_max: 4, values_max: 40 };
    let got = parse(bytes.to_vec(), &limits)
        .map(|doc| Json::from(doc.root()).to_string())
        .map_err(|error| error.kind);
    assert_eq!(got.as_deref().map_err(|e| *e), expected, "{}", String::from_utf8_lossy(bytes));
}

#[test]
fn scan_keeps_values_byte_for_byte_and_drops_white_space() {
    check(" null ", Ok("null"));
    check("[ true , false ]", Ok("[true,false]"));
    check("{\n\"a\" :\t1 }", Ok(r#"{"a":1}"#));
    check(r#""\u00e9\n\/""#, Ok(r#""\u00e9\n\/""#));
    check("12345678901234567890123", Ok("12345678901234567890123"));
    check("-0.0e-10", Ok("-0.0e-10"));
    check(r#""𝄞""#, Ok(r#""𝄞""#));
    check(r#""\ud834\udd1e""#, Ok(r#""\ud834\udd1e""#));
    check("[[[[]]]]", Ok("[[[[]]]]"));
}

#[test]
fn scan_rejects_invalid_json() {
    for text in [
        "",
        " ",
        "nul",
        "truee",
        "[",
        "]",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x1",
        "NaN",
        "Infinity",
        "\"",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\t\"",
        "\"a\nb\"",
        "\u{feff}{}",
        "{} {}",
        "1 1",
        "/* */1",
        "[1]x",
        "\0",
        "{\"a\":1\0}",
    ] {
        check(text, Err(JsonErrorKind::Syntax));
    }
}

/// One text per line: cases in which JSON parsers are known to differ.
const EDGE_CASES_VALID: &str = r#"
0
-0
0e1
0E+1
-0.0
1E400
-1e-9999
[0,-0,1.5e+3,1E-2]
""
"\u0000"
"\uFFFF"
"\uD834\uDD1E"
"\\u0041"
"\"\\\/\b\f\n\r\t"
"/*not a comment*/"
{"":0}
{"a":{},"b":[],"c":""}
{"a\u0000b":1,"a":2}
[[],[[]],{}]
"#;

const EDGE_CASES_INVALID: &str = r#"
[1,,2]
[1
1]
[1}
{]
{"a":1]
[1]]
{}}
[,]
{,}
{"a":1,,"b":2}
{"a"::1}
{"a" 1}
{"a",1}
{"a":1 "b":2}
{"a":1;"b":2}
{1:1}
{null:1}
{[]:1}
{"a":1}#
{"a":1}//
,
:
#
00
-00
-01
--1
- 1
1.e1
1.0e
0e
0.e1
1ee1
1e1.5
1e+-1
0.1.2
1_000
1,000
1a
0b1
-Infinity
TRUE
True
nULL
nulll
tru
undefined
'a'
`a`
a
"a
a"
"a"b
"a""b"
"\a"
"\'"
"\0"
"\
"\u"
"\u1"
"\u123"
"\u+123"
"\u 123"
"\U0041"
"\x41"
"\ud834"
"\ud834x"
"\ud834\n"
"\ud834\ud834"
"\ud834\u"
"\udd1e\ud834"
\u0041
１
"#;

#[test]
fn scan_follows_the_grammar_in_edge_cases() {
    for text in EDGE_CASES_VALID.lines().filter(|line| !line.is_empty()) {
        check(text, Ok(text));
    }
    for text in EDGE_CASES_INVALID.lines().filter(|line| !line.is_empty()) {
        check(text, Err(JsonErrorKind::Syntax));
    }
    // Only four characters are white space. Control characters must be escaped, except DEL.
    for (space, ok) in [
        (" ", true),
        ("\t", true),
        ("\n", true),
        ("\r", true),
        ("\u{b}", false),
        ("\u{c}", false),
        ("\u{85}", false),
        ("\u{a0}", false),
        ("\u{2028}", false),
        ("\u{2060}", false),
        ("\u{feff}", false),
    ] {
        check(
            &format!("{space}[{space}1{space}]{space}"),
            if ok { Ok("[1]") } else { Err(JsonErrorKind::Syntax) },
        );
    }
    for c in (0..0x20).map(char::from) {
        check(&format!("\"{c}\""), Err(JsonErrorKind::Syntax));
    }
    for c in ['\u{7f}', '\u{85}', '\u{2028}', '\u{feff}', '\u{fffe}', '\u{10ffff}'] {
        let text = format!("\"{c}\"");
        check(&text, Ok(&text));
    }
}

#[test]
fn strings_of_any_length_end_at_the_quote() {
    for len in 0..20 {
        let plain = "é".repeat(len / 2) + &"x".repeat(len % 2);
        for (tail, ok) in [("", true), (r"\n", true), (r#"\""#, true), ("\u{1}", false), ("\n", false)] {
            let text = format!("\"{plain}{tail}{plain}\"");
            check(&text, if ok { Ok(&text) } else { Err(JsonErrorKind::Syntax) });
        }
        check(&format!("\"{plain}"), Err(JsonErrorKind::Syntax));
        check(&format!("\"{plain}\\"), Err(JsonErrorKind::Syntax));
    }
}

#[test]
fn scan_rejects_invalid_utf8_anywhere() {
    for bytes in [
        &b"\"\xff\""[..],
        b"\xc3\x28",
        b"[\"\xed\xa0\x80\"]",
        b"{\"\xf8\":1}",
        b"1\x80",
        // Overlong, above U+10FFFF, cut off, and UTF-16 text.
        b"\"\xc0\xaf\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"\xe2\x82\"",
        b"\xff\xfe[\x00]\x00",
    ] {
        check_bytes(bytes, Err(JsonErrorKind::InvalidUtf8));
    }
}

#[test]
fn duplicate_keys_are_found_unescaped_at_any_depth() {
    check(r#"{"a":1,"a":2}"#, Err(JsonErrorKind::DuplicateKey));
    check(r#"{"a":1,"\u0061":2}"#, Err(JsonErrorKind::DuplicateKey));
    check(r#"[{"b":{"x":1,"y":2,"x":3}}]"#, Err(JsonErrorKind::DuplicateKey));
    check(r#"{"a":1,"A":2,"a ":3,"a\u0000":4}"#, Ok(r#"{"a":1,"A":2,"a ":3,"a\u0000":4}"#));
    // Keys with a common length and last character, an empty one, and one that is a prefix.
    check(r#"{"ax":1,"bx":2,"cx":3,"":4,"axx":5}"#, Ok(r#"{"ax":1,"bx":2,"cx":3,"":4,"axx":5}"#));
    check(r#"{"ax":1,"bx":2,"cx":3,"ax":4}"#, Err(JsonErrorKind::DuplicateKey));
    check(r#"{"":1,"a":2,"":3}"#, Err(JsonErrorKind::DuplicateKey));
    check(r#"{"\u0061":1,"b":2,"a":3}"#, Err(JsonErrorKind::DuplicateKey));
    check(r#"{"ä":1,"ö":2,"ä":3}"#, Err(JsonErrorKind::DuplicateKey));
    let many: Vec<String> = (0..18).map(|i| format!("\"k{i}\":0")).collect();
    check(&format!("{{{}}}", many.join(",")), Ok(&format!("{{{}}}", many.join(","))));
    check(&format!("{{{},\"\\u006b3\":0}}", many.join(",")), Err(JsonErrorKind::DuplicateKey));
}

#[test]
fn depth_and_number_of_values_are_limited() {
    check("[[[[[]]]]]", Err(JsonErrorKind::TooDeep));
    check(r#"{"a":{"a":{"a":{"a":{}}}}}"#, Err(JsonErrorKind::TooDeep));
    check(&format!("[{}0]", "0,".repeat(38)), Ok(&format!("[{}0]", "0,".repeat(38))));
    check(&format!("[{}0]", "0,".repeat(39)), Err(JsonErrorKind::TooManyValues));
    let deep = "[".repeat(1_000_000);
    assert_eq!(
        parse(deep.into_bytes(), &ParseLimits::default()).map(|_| ()).map_err(|b| b.kind),
        Err(JsonErrorKind::TooDeep)
    );
}

#[test]
fn an_error_names_the_byte() {
    let error =
        parse(b"{\"a\":1,\"a\":2}".to_vec(), &ParseLimits::default()).map(|_| ()).expect_err("duplicate");
    assert_eq!((error.offset, error.to_string().as_str()), (7, "duplicate key at byte 7"));
}

#[test]
fn node_returns_members_and_elements() {
    let doc =
        parse(br#"{"a":[1,"x\ty",{"b":null}],"c":true}"#.to_vec(), &ParseLimits::default()).expect("valid");
    let a = doc.root().get("a").expect("a");
    let raws: Vec<&str> = a.elements().map(|n| n.raw()).collect();
    assert_eq!(raws, ["1", "\"x\\ty\"", "{\"b\":null}"]);
    assert_eq!(a.elements().nth(1).and_then(|n| n.str()).as_deref(), Some("x\ty"));
    assert_eq!(doc.root().get("c").and_then(|n| n.bool()), Some(true));
    assert!(doc.root().get("b").is_none());
    assert_eq!(doc.node(a.index()).len(), 3);
}

#[test]
#[expect(clippy::excessive_precision, reason = "the digits beyond a double are what is tested")]
fn numbers_are_written_as_valid_json() {
    for (n, text) in [
        (0.0, "0"),
        (100.0, "100"),
        (-7.0, "-7"),
        (95.5, "95.5"),
        (1e300, "1e300"),
        (-2.5e-9, "-2.5e-9"),
        (f64::NAN, "null"),
        // In the middle of two spellings that are equally short: the even digit, as in JavaScript and Python.
        (1_658_206_780_088_562.25, "1658206780088562.2"),
        (-13_271_210_409_342.312_5, "-13271210409342.312"),
        // Next to a power of two, the closest digits would read back as the neighbour.
        (2f64.powi(-1017), "7.120236347223045e-307"),
        (2f64.powi(-44), "5.684341886080802e-14"),
    ] {
        let mut out = Vec::new();
        write::number(&mut out, n);
        assert_eq!(String::from_utf8_lossy(&out), text);
    }
    for n in [0, -1, i64::MAX, i64::MIN] {
        let mut out = Vec::new();
        write::integer(&mut out, n);
        assert_eq!(String::from_utf8_lossy(&out), n.to_string());
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "\\PC*".prop_map(Into::into),
        "[\\x00-\\x7f]*".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::btree_map("[a-c\\\\\"\n]{0,3}", inner, 0..20)
                .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn text_from_serde_survives_scanning_and_writing(value in any_json(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.expect("serde_json writes any value");
        let ours = Json::parse(&text).expect("serde_json writes valid JSON");
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(ours.as_str()).expect("still JSON"), value);
        prop_assert!(!ours.as_str().contains(['\n', '\r']));
    }

    #[test]
    fn scan_never_panics_and_agrees_with_serde_on_validity(bytes in prop::collection::vec(
        prop_oneof![prop::sample::select(b"{}[]\",:\\ utrfn0123456789.eE+-\n".to_vec()), any::<u8>()], 0..40)) {
        let ours = parse(bytes.clone(), &ParseLimits::default());
        let serde = serde_json::from_slice::<serde_json::Value>(&bytes);
        match ours.map_err(|b| b.kind) {
            // serde_json keeps the last of two equal keys and rejects huge exponents as out of range.
            Err(JsonErrorKind::DuplicateKey) => prop_assert!(true),
            Ok(_) => prop_assert!(serde.is_ok() || serde.is_err_and(|e| e.to_string().contains("out of range"))),
            Err(_) => prop_assert!(serde.is_err(), "{}", String::from_utf8_lossy(&bytes)),
        }
    }

    /// serde_json writes the digits that JavaScript and Python write. Half of the numbers have a few binary places only: ties.
    #[test]
    fn a_float_of_another_writer_is_exact_and_keeps_its_digits(n in prop_oneof![
        any::<f64>().prop_filter("finite", |n| n.is_finite()),
        (-(1i64 << 53)..(1i64 << 53), 0..12i32).prop_map(|(n, places)| n as f64 / 2f64.powi(places)),
    ]) {
        let theirs = serde_json::to_string(&n).expect("a finite number");
        prop_assert_eq!(json::exact_f64(&theirs).map(f64::to_bits), Some(n.to_bits()), "{}", theirs);
        let mut ours = Vec::new();
        write::number(&mut ours, n);
        let ours = String::from_utf8_lossy(&ours);
        prop_assert_eq!(Decimal::parse(&ours), Decimal::parse(&theirs), "{} {}", ours, theirs);
    }

    #[test]
    fn any_string_survives_writing_and_reading(s in "\\PC*|[\\x00-\\x7f]*|[\\x00-\\x1f]*", times in 1..500usize) {
        let s = s.repeat(times);
        let mut out = Vec::new();
        write::string(&mut out, &s);
        let doc = parse(out, &ParseLimits::default()).expect("valid");
        prop_assert_eq!(doc.root().str().expect("a string").into_owned(), s);
    }
}
