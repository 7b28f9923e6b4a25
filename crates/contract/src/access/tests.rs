//! Which role a caller has, and which rows exist for it.

use std::sync::Arc;

use json::Json;
use spile_core::{CallerRoles as _, Identity, Principal};

use super::{BoundRows, ClaimProblem, Claims, RowRules};
use crate::compile::{IntrospectedSource, compile};
use crate::contract::Contract;
use crate::data_type::DataType;
use crate::manifest;
use crate::source::{ColumnFacts, SourceFacts, TableFacts};
use crate::value::ValueRef;

fn facts() -> SourceFacts {
    let column = |name, kind| ColumnFacts { nullable: name == "closed", ..ColumnFacts::new(name, kind) };
    let columns = vec![
        column("id", DataType::Integer),
        column("tenant", DataType::Text),
        column("level", DataType::Integer),
        column("closed", DataType::Date),
        column("is_public", DataType::Boolean),
    ];
    let table = TableFacts { key: vec![0], row_count: Some(9), ..TableFacts::new("docs", columns) };
    SourceFacts { tables: vec![table], ..SourceFacts::default() }
}

fn compiled(rest: &str) -> Contract {
    let text = format!("[sources.s]\npath = \"s.db\"\n[collections.docs]\n{rest}");
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).expect("a manifest");
    let facts = facts();
    let (contract, found) = compile(&manifest, &[IntrospectedSource::new("s", &facts)], "docs");
    contract.unwrap_or_else(|| panic!("{}", crate::diagnostic::render_all(&found, false)))
}

fn caller(claims: &str) -> Principal {
    let identity = Identity::new("local", "ada").expect("valid").with_scopes(["read"]).expect("valid");
    Principal::Named(Arc::new(identity.with_claims(Json::parse(claims).expect("JSON")).expect("valid")))
}

fn rules(condition: &str) -> RowRules {
    let contract = compiled(&format!(
        "[roles.r]\nwhen = \"anyone\"\n[collections.docs.access.r]\nwhere = {condition}\n"
    ));
    let roles = contract.roles.expect("there is a role");
    roles.roles[0].contract.collections[0].rules.clone().expect("there are rules")
}

const ROWS: [[ValueRef<'static>; 5]; 4] = [
    [ValueRef::Integer(1), ValueRef::Text("a"), ValueRef::Integer(1), ValueRef::Null, ValueRef::Integer(0)],
    [ValueRef::Integer(2), ValueRef::Text("b"), ValueRef::Integer(5), ValueRef::Null, ValueRef::Integer(1)],
    [
        ValueRef::Integer(3),
        ValueRef::Text("a"),
        ValueRef::Integer(9),
        ValueRef::Text("2026-01-01"),
        ValueRef::Integer(0),
    ],
    [
        ValueRef::Integer(4),
        ValueRef::Text("A"),
        ValueRef::Integer(5),
        ValueRef::Text("2026-02-01"),
        ValueRef::Integer(0),
    ],
];

fn bound(condition: &str, principal: &Principal) -> (BoundRows, Vec<ClaimProblem>, Vec<i64>) {
    let contract = compiled(&format!(
        "[roles.r]\nwhen = \"anyone\"\n[collections.docs.access.r]\nwhere = {condition}\n"
    ));
    let collection = &contract.roles.as_ref().expect("there is a role").roles[0].contract.collections[0];
    let (rows, problems) = collection.rules.as_ref().expect("rules").bind(&Claims::new(principal));
    let passing = ROWS.iter().zip(1..).filter(|(row, _)| rows.pass(&collection.shape.columns, *row));
    let ids = passing.map(|(_, id)| id).collect();
    (rows, problems, ids)
}

/// The ids of the rows that exist for a caller with these claims.
#[track_caller]
fn check(condition: &str, claims: &str, expected: &[i64]) {
    let (_, _, ids) = bound(condition, &caller(claims));
    assert_eq!(ids, expected, "{condition} {claims}");
}

#[test]
fn conditions_are_values_lists_ranges_and_claims() {
    check("{}", "{}", &[1, 2, 3, 4]);
    check("{ tenant = \"a\" }", "{}", &[1, 3]);
    check("{ tenant = [\"a\", \"b\"] }", "{}", &[1, 2, 3]);
    check("{ tenant = { claim = \"/t\" } }", r#"{"t":"a"}"#, &[1, 3]);
    check("{ tenant = { claim = \"/t\" } }", r#"{"t":["b","A"]}"#, &[2, 4]);
    check("{ tenant = { claim = \"/a/0/b~1c\" } }", r#"{"a":[{"b/c":"b"}]}"#, &[2]);
    check("{ tenant = { not = \"a\" } }", "{}", &[2, 4]);
    check("{ level = { min = 5 } }", "{}", &[2, 3, 4]);
    check("{ level = { min = 2, max = { claim = \"/level\" } } }", r#"{"level":5}"#, &[2, 4]);
    check("{ closed = { is = \"null\" } }", "{}", &[1, 2]);
    check("{ closed = { is = \"not null\" }, tenant = \"a\" }", "{}", &[3]);
    check("{ closed = { not = \"2026-01-01\" } }", "{}", &[1, 2, 4]);
    check("{ is_public = true }", "{}", &[2]);
}

#[test]
fn of_several_tables_one_is_enough() {
    let either = "[{ tenant = { claim = \"/t\" }, level = { max = 5 } }, { is_public = true }]";
    check(either, r#"{"t":"a"}"#, &[1, 2]);
    check(either, "{}", &[2]);
    check("[{ tenant = \"a\", level = 9 }, { tenant = \"b\", level = 5 }, { id = 4 }]", "{}", &[2, 3, 4]);
}

#[test]
fn a_claim_that_is_missing_or_not_a_value_of_its_column_refuses_the_call() {
    for (condition, claims, is_invalid) in [
        ("{ tenant = { claim = \"/t\" } }", "{}", false),
        ("{ tenant = { claim = \"/t\" } }", r#"{"t":null}"#, false),
        ("{ tenant = { claim = \"/t/x\" } }", r#"{"t":"a"}"#, false),
        ("{ tenant = { claim = \"/t\" } }", r#"{"t":[]}"#, true),
        ("{ tenant = { claim = \"/t\" } }", r#"{"t":{"a":1}}"#, true),
        ("{ tenant = { claim = \"/t\" } }", r#"{"t":["a",7]}"#, true),
        ("{ tenant = { not = { claim = \"/t\" } } }", "{}", false),
        ("{ tenant = { not = { claim = \"/t\" } } }", r#"{"t":[]}"#, true),
        ("{ level = { max = { claim = \"/t\" } } }", "{}", false),
        ("{ level = { claim = \"/t\" } }", r#"{"t":"5"}"#, true),
        ("{ is_public = { claim = \"/t\" } }", r#"{"t":"true"}"#, true),
    ] {
        let (rows, problems, ids) = bound(condition, &caller(claims));
        assert_eq!(ids, [0_i64; 0], "{condition} {claims}");
        assert_eq!(rows.filters().count(), 1, "a filter that no row passes: {condition} {claims}");
        let refused = rows.identity().expect_err("a claim is missing").to_string();
        assert!(refused.contains("a claim that your token does not have"), "{condition} {claims}: {refused}");
        let pointers: Vec<(&str, bool)> =
            problems.iter().map(|one| (one.pointer.as_str(), one.is_invalid)).collect();
        assert_eq!(pointers.len(), 1, "{condition} {claims}");
        assert_eq!(pointers[0].1, is_invalid, "{condition} {claims}");
    }
    let (rows, _, ids) = bound("{ tenant = { claim = \"/t\" } }", &Principal::Anonymous);
    assert_eq!(ids, [0_i64; 0], "an anonymous caller has no claims");
    assert!(rows.identity().is_err());
    // What is left is enough, also if it matches nothing.
    let (rows, problems, _) = bound("[{ tenant = { claim = \"/t\" } }, { level = 77 }]", &caller("{}"));
    assert_eq!((rows.identity().is_ok(), problems.len()), (true, 1));
    assert!(bound("{ tenant = { claim = \"/t\" } }", &caller(r#"{"t":"nobody"}"#)).0.identity().is_ok());
}

#[test]
fn the_subject_is_the_claim_sub_whatever_the_claims_say() {
    check("{ tenant = { claim = \"/sub\" } }", r#"{"sub":"a"}"#, &[]);
    let ada = Principal::local("a").expect("valid");
    assert_eq!(bound("{ tenant = { claim = \"/sub\" } }", &ada).2, [1, 3]);
}

#[test]
fn callers_with_other_rows_have_another_digest() {
    let rules = rules("{ tenant = { claim = \"/t\" } }");
    let digest = |claims: &str| *rules.bind(&Claims::new(&caller(claims))).0.digest();
    assert_eq!(digest(r#"{"t":"a"}"#), digest(r#"{"t":"a","x":1}"#));
    assert_ne!(digest(r#"{"t":"a"}"#), digest(r#"{"t":"b"}"#));
    assert_ne!(digest(r#"{"t":"a"}"#), digest("{}"));
    assert_ne!(digest(r#"{"t":"a"}"#), digest(r#"{"t":["a","b"]}"#));
}

/// The identity of a caller in a source with these settings: its role and its own settings, or the pointer that is missing.
fn identity(settings: &str, principal: &Principal) -> Result<String, String> {
    let text = format!("[sources.s]\nurl = \"postgres://a@b/c\"\n{settings}\n[collections.docs]\n");
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).expect("a manifest");
    let facts = facts();
    let (contract, _) = compile(&manifest, &[IntrospectedSource::new("s", &facts)], "docs");
    let contract = contract.expect("a contract");
    assert!(contract.collections[0].rules.as_ref().is_some_and(RowRules::restricts_rows));
    match contract.identities[0].1.bind(&Claims::new(principal)) {
        Ok(identity) => {
            let settings: Vec<String> =
                identity.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
            Ok(format!("{} {}", identity.role.as_deref().unwrap_or("-"), settings.join(" ")))
        }
        Err(problem) => Err(problem.pointer),
    }
}

#[test]
fn claims_become_the_role_and_the_settings_of_a_transaction() {
    for (settings, claims, expected) in [
        ("role_from = \"/r\"", r#"{"r":"staff"}"#, r#"staff request.jwt.claims={"sub":"ada","r":"staff"}"#),
        (
            "settings = { \"app.t\" = { claim = \"/t\" }, \"app.by\" = \"spile\" }",
            r#"{"t":7,"sub":"eve"}"#,
            r#"- app.t=7 app.by=spile request.jwt.claims={"sub":"ada","t":7}"#,
        ),
        (
            "settings = { \"app.t\" = { claim = \"/t\" } }",
            r#"{"t":["a","b"]}"#,
            r#"- app.t=["a","b"] request.jwt.claims={"sub":"ada","t":["a","b"]}"#,
        ),
    ] {
        assert_eq!(identity(settings, &caller(claims)).as_deref(), Ok(expected), "{settings} {claims}");
    }
}

#[test]
fn a_caller_without_a_usable_claim_has_no_identity() {
    for (settings, pointer, bad) in [
        (
            "role_from = \"/r\"",
            "/r",
            &[
                "{}",
                r#"{"r":null}"#,
                r#"{"r":""}"#,
                r#"{"r":7}"#,
                r#"{"r":["a"]}"#,
                r#"{"r":"none"}"#,
                r#"{"r":"NONE"}"#,
            ][..],
        ),
        (
            "settings = { \"app.t\" = { claim = \"/t\" } }",
            "/t",
            &["{}", r#"{"t":null}"#, r#"{"t":""}"#, r#"{"t":[]}"#, r#"{"t":"a\u0000b"}"#][..],
        ),
    ] {
        for claims in bad {
            assert_eq!(identity(settings, &caller(claims)), Err(pointer.to_owned()), "{settings} {claims}");
        }
        assert_eq!(identity(settings, &Principal::Anonymous), Err(pointer.to_owned()), "{settings}");
    }
    let long = format!(r#"{{"r":"{}"}}"#, "x".repeat(64));
    assert_eq!(identity("role_from = \"/r\"", &caller(&long)), Err("/r".to_owned()));
}

#[test]
fn the_first_role_that_matches_is_the_callers() {
    let contract = compiled(
        "[roles.owner]\nwhen = { \"/groups\" = \"owners\" }\nscopes = [\"read\"]\n\
         [roles.auditor]\nwhen = { \"/groups\" = \"owners\" }\nscopes = [\"audit\"]\n\
         [roles.staff]\nwhen = { \"/groups\" = [\"sales\", \"support\"], \"/level\" = 3 }\n\
         [roles.base]\n\
         [roles.public]\nwhen = \"anyone\"\n\
         [collections.docs.access.public]\n",
    );
    let roles = contract.roles.expect("roles");
    let role = |principal: &Principal| roles.role_of(principal).map(|at| roles.roles[at].name.as_str());
    assert_eq!(role(&caller(r#"{"groups":["x","owners"]}"#)), Some("owner"));
    assert_eq!(role(&caller(r#"{"groups":"owners"}"#)), Some("owner"));
    assert_eq!(role(&caller(r#"{"groups":"support","level":3}"#)), Some("staff"));
    assert_eq!(role(&caller(r#"{"groups":"support","level":3.0}"#)), Some("staff"));
    assert_eq!(role(&caller(r#"{"groups":"support","level":"3"}"#)), Some("public"));
    assert_eq!(role(&caller(r#"{"groups":"support"}"#)), Some("public"));
    assert_eq!(role(&caller(r#"{"groups":"ownersX"}"#)), Some("public"));
    assert_eq!(role(&Principal::Anonymous), Some("public"));
}
