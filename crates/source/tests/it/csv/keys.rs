//! Key detection, and finding rows by key.

use contract::source::{Source, SourceError, TableShape};
use contract::{DataType, ValueRef};

use super::kit::{TestFile, get, reader, rows, shape, table};

#[test]
fn a_column_that_looks_like_a_key_is_preferred() {
    let check = |content: &str, key: &[usize]| assert_eq!(table(content).key, key, "{content:?}");
    // A name that says so, then the first column, then a name that ends like a key.
    check("email,id\na@x,1\nb@x,2\n", &[1]);
    check("email,plan_id\na@x,1\nb@x,2\n", &[0]);
    check("plan,age,customer_id\nx,1,7\nx,2,8\n", &[2]);
    check("plan,age,Invoice No.\nx,1,a\nx,2,b\n", &[2]);
    // A date or a text, but no other integer and no name of a person, which may be unique by accident.
    check("date,wounds,disease\n1854-04-01,0,110\n1854-05-01,0,105\n", &[0]);
    check("plan,age,name\nx,1,Ann\nx,2,Bob\n", &[2]);
    check("plan,age,day\nx,1,2026-01-01\nx,2,2026-01-02\n", &[2]);
    check("plan,age,size\nx,1,5\nx,2,5\n", &[]);
    check("year,country,pop\n1955,Peru,8671500\n1955,Chad,2805000\n1960,Peru,9931000\n", &[]);
    check("Forename,Rent\nAnn,5\nBob,6\n", &[]);
    check("id,name\n1,Ann\n1,Bob\n", &[1]);
}

#[test]
fn the_key_is_the_first_unique_column() {
    let check = |content: &str, key: &[usize]| assert_eq!(table(content).key, key, "{content:?}");
    check("a,b\n1,x\n2,y\n", &[0]);
    check("a,b\nx,1\nx,2\n", &[]);
    check("a,b\nx,u\nx,v\n", &[1]);
    check("a,b\n,u\nx,v\n", &[1]);
    check("a,b\n1.5,x\n2.5,y\n", &[1]);
    check("a,b\n2026-01-01,x\n2026-01-02,x\n", &[0]);
    check("a,b\n2026-01-01T00:00:00Z,x\n2026-01-02T00:00:00Z,x\n", &[]);
    check("a,b\n9007199254740993,x\n9007199254740994,x\n", &[0]);
    check("a,b\n1,1\n1,1\n", &[]);
    check("a,b\n1,1\n", &[0]);
    check("a,b\n", &[]);
    check("a\n\"x\"\nx\n", &[]);
    // A text too long for a key.
    let long = "x".repeat(2049);
    check(&format!("a,b\nshort,u\n{long},v\n"), &[1]);
    check(&format!("a,b\nshort,{long}\nshorter,{long}\n"), &[0]);
    // The duplicate is far beyond the sample.
    let late = |last: &str| {
        let many: String = (0..100_000).map(|i| format!("{i},n{i}\n")).collect();
        format!("a,b\n{many}{last}\n")
    };
    check(&late("100000,n100000"), &[0]);
    check(&late("7,n100000"), &[1]);
    check(&late("7,n8"), &[]);
}

fn shape_with_key(content: &str, key: &[usize]) -> Result<TableShape, SourceError> {
    let disk = TestFile::new("people.csv", content);
    let csv = disk.csv();
    let shape = TableShape { key: key.to_vec(), ..shape(&csv) };
    csv.reader(&shape).map(|_| shape)
}

#[test]
fn rows_are_found_by_their_key() {
    let disk = TestFile::new("people.csv", "id,name\n1,Ann\n2,\"Bob \"\"B\"\"\"\n-7,\n");
    let csv = disk.csv();
    let by_id = reader(&csv);
    let bob = Some(rows(&[&["2", "Bob \"B\""]]).remove(0));
    assert_eq!(get(by_id.as_ref(), &[ValueRef::Text("2")]).unwrap(), bob);
    assert_eq!(get(by_id.as_ref(), &[ValueRef::Integer(2)]).unwrap(), bob);
    assert_eq!(get(by_id.as_ref(), &[ValueRef::Integer(-7)]).unwrap(), Some(rows(&[&["-7", ""]]).remove(0)));
    for key in [
        &[ValueRef::Text("3")][..],
        &[ValueRef::Text("")],
        &[ValueRef::Null],
        &[],
        &[ValueRef::Text("1"), ValueRef::Text("2")],
    ] {
        assert_eq!(get(by_id.as_ref(), key).unwrap(), None, "{key:?}");
    }
    let disk = TestFile::new("people.csv", "id,name\n1,Ann\n2,\"Bob \"\"B\"\"\"\n");
    let csv = disk.csv();
    let by_name = csv.reader(&TableShape { key: vec![1], ..shape(&csv) }).unwrap();
    assert_eq!(get(by_name.as_ref(), &[ValueRef::Text("Bob \"B\"")]).unwrap(), bob);
}

#[test]
fn a_key_may_have_several_columns() {
    let disk = TestFile::new("lines.csv", "order,line,what\n1,1,ab\n1,2,c\n2,1,d\n11,,e\n");
    let csv = disk.csv();
    let mut shape = shape(&csv);
    assert_eq!(shape.key, [2]);
    shape.key = vec![0, 2];
    let both = csv.reader(&shape).unwrap();
    let found = get(both.as_ref(), &[ValueRef::Integer(1), ValueRef::Text("c")]).unwrap();
    assert_eq!(found, Some(rows(&[&["1", "2", "c"]]).remove(0)));
    assert_eq!(get(both.as_ref(), &[ValueRef::Integer(1), ValueRef::Text("d")]).unwrap(), None);
    assert_eq!(get(both.as_ref(), &[ValueRef::Text("1")]).unwrap(), None);
}

#[test]
fn a_key_must_be_present_and_unique() {
    let check = |content: &str, key: &[usize], expected_message: &str| match shape_with_key(content, key) {
        Err(SourceError::Incompatible { message: answer, detail: _ }) => {
            assert_eq!(answer, expected_message, "{content:?}")
        }
        other => panic!("{content:?}: {other:?}"),
    };
    let help = "which is the key; the server's owner can change one, or choose another key";
    check("a,b\n1,x\n2,y\n3,x\n", &[1], &format!("`people.csv` lines 2 and 4 have the same `b`, {help}"));
    check(
        "a,b\n1,\"x\ny\"\n2,y\n2,z\n1,\"x\ny\"\n",
        &[0, 1],
        &format!("`people.csv` lines 2 and 6 have the same `a`, `b`, {help}"),
    );
    let help = "which is a key; the server's owner can fill it in, or choose another key";
    check("a,b\n1,x\n2,\n", &[1], &format!("`people.csv` line 3 has no `b`, {help}"));
    check("a,b\n1,x\n,y\n", &[0], &format!("`people.csv` line 3 has no `a`, {help}"));
    assert!(shape_with_key("a,b\n1,x\n1,y\n", &[0, 1]).is_ok());
}

#[test]
fn the_first_duplicate_key_is_reported_for_any_number_of_rows() {
    let mut content = "a\n".to_owned();
    (0..100_000).for_each(|i| content.push_str(&format!("n{i}\n")));
    content.push_str("n77777\nn5\nn77777\n");
    let Err(SourceError::Incompatible { message: expected_message, detail: log }) =
        shape_with_key(&content, &[0])
    else {
        panic!("it has a key twice")
    };
    assert!(
        expected_message.starts_with("`people.csv` lines 77779 and 100002 have the same `a`"),
        "{expected_message}"
    );
    assert!(log.contains("n77777") && !expected_message.contains("n77777"), "{log}");
}

#[test]
fn a_null_text_is_not_a_key() {
    let disk = TestFile::new("people.csv", "a,b\n1,x\nNA,y\n");
    let csv = disk.csv();
    let mut shape = shape(&csv);
    assert_eq!((shape.columns[0].data_type, &shape.key[..]), (DataType::Text, &[0][..]));
    shape.columns[0].null_texts = vec!["NA".to_owned()];
    let Err(error) = csv.reader(&shape) else { panic!("`NA` is no key") };
    assert_eq!(
        error.to_string(),
        "`people.csv` line 3 has no `a`, which is a key; the server's owner can fill it in, or choose another key"
    );
    assert_eq!(super::kit::shape(&disk.csv_with(None, Some("NA"))).key, [1]);
}

#[test]
fn a_key_is_found_in_any_spelling() {
    let check = |content: &str, asked: &str, name: Option<&str>| {
        let disk = TestFile::new("people.csv", content);
        let csv = disk.csv();
        let by_key = csv.reader(&TableShape { key: vec![0], ..shape(&csv) }).unwrap();
        let found = get(by_key.as_ref(), &[ValueRef::Text(asked)]).unwrap();
        assert_eq!(found.map(|row| row[1].clone().unwrap()).as_deref(), name, "{asked}");
    };
    let prices = "price,name\n1.50,a\n0.25,b\n2.50,c\n2.500,d\n";
    check(prices, "1.50", Some("a"));
    check(prices, "1.5", Some("a"));
    check(prices, "0.250", Some("b"));
    check(prices, "2.500", Some("d"));
    check(prices, "2.5", None);
    check(prices, "0.2500001", None);
    check(prices, "x", None);
    let moments = "at,name\n2026-01-01T10:00:00.000Z,a\n2026-01-01T10:00:01Z,b\n";
    check(moments, "2026-01-01T10:00:00Z", Some("a"));
    check(moments, "2026-01-01T11:00:01+01:00", Some("b"));
    check(moments, "2026-01-01T10:00:02Z", None);
    // Texts are compared as they are spelled.
    check("code,name\n1.50,a\nx,b\n", "1.5", None);
}
