//! The generated manifest: its text, and that it means the same as the facts.

use contract::DataType;
use contract::compile::{IntrospectedSource, compile};
use contract::init::{DiscoveredSource, TABLES_SERVED_MAX, render_manifest};
use contract::manifest::{SourceKind, SourceSettings};
use contract::source::{ColumnFacts, ForeignKey, SourceFacts, TableFacts};
use insta::assert_snapshot;
use proptest::prelude::*;

use crate::manifest::parse_manifest;

fn column(name: &str, kind: DataType) -> ColumnFacts {
    ColumnFacts::new(name, kind)
}

#[test]
fn manifest_snapshot() {
    let plan =
        ColumnFacts { distinct_values: vec!["free".into(), "ruby".into()], ..column("plan", DataType::Text) };
    let people = TableFacts {
        name: "customers".into(),
        columns: vec![
            column("email", DataType::Text),
            plan,
            column("Signup Date", DataType::Date),
            column("photo", DataType::Blob),
        ],
        key: vec![0],
        key_is_declared: false,
        row_count: Some(1200),
        ..TableFacts::new("", Vec::new())
    };
    let lines = TableFacts {
        name: "Invoice Lines".into(),
        columns: vec![
            column("invoice", DataType::Integer),
            column("line", DataType::Integer),
            column("", DataType::Decimal),
        ],
        key: vec![0, 1],
        key_is_declared: true,
        row_count: None,
        ..TableFacts::new("", Vec::new())
    };
    let twice = TableFacts {
        name: "log".into(),
        columns: vec![column("at", DataType::Timestamp), column("at", DataType::Text)],
        key: Vec::new(),
        key_is_declared: false,
        row_count: Some(0),
        ..TableFacts::new("", Vec::new())
    };
    let csv = SourceFacts {
        tables: vec![people],
        notes: vec!["UTF-8, separated by `;`".into()],
        delimiter: Some(b';'),
        ..SourceFacts::default()
    };
    let sqlite = SourceFacts { tables: vec![lines, twice], ..SourceFacts::default() };
    let text = render_manifest(
        &[
            DiscoveredSource {
                name: "customers",
                path: "customers.csv",
                kind: SourceKind::Csv,
                pointer: None,
                facts: &csv,
            },
            DiscoveredSource {
                name: "crm",
                path: r"C:\data\${crm}.db",
                kind: SourceKind::Sqlite,
                pointer: None,
                facts: &sqlite,
            },
        ],
        "shop",
    );
    assert_snapshot!("init", text);
    assert_eq!(parse_manifest(&text).sources[1].location.value.to_string(), r"C:\data\${crm}.db");
}

#[test]
fn no_sources_give_a_valid_manifest() {
    assert_eq!(parse_manifest(&render_manifest(&[], "")).server.name.as_deref(), Some("data"));
}

#[test]
fn a_database_with_thousands_of_columns_gives_a_valid_manifest() {
    let columns: Vec<ColumnFacts> =
        (0..2000).map(|i| column(&format!("Column number {i}"), DataType::Decimal)).collect();
    let table = |i| TableFacts {
        name: format!("table {i}"),
        columns: columns.clone(),
        key: vec![0],
        key_is_declared: true,
        row_count: None,
        ..TableFacts::new("", Vec::new())
    };
    let facts = SourceFacts { tables: (0..200).map(table).collect(), ..SourceFacts::default() };
    let text = render_manifest(
        &[DiscoveredSource {
            name: "a",
            path: "a.db",
            kind: SourceKind::Sqlite,
            pointer: None,
            facts: &facts,
        }],
        "a",
    );
    assert_eq!(parse_manifest(&text).collections.len(), TABLES_SERVED_MAX);
    assert!(text.contains("\n# and 2000 more\n"));
}

#[test]
fn foreign_keys_are_named_as_links() {
    let orders = TableFacts {
        foreign_keys: vec![ForeignKey {
            columns: vec![1],
            table: "customers".into(),
            target_columns: vec!["id".into()],
        }],
        ..TableFacts::new(
            "orders",
            vec![column("id", DataType::Integer), column("buyer\n", DataType::Integer)],
        )
    };
    let facts = SourceFacts { tables: vec![orders], ..SourceFacts::default() };
    let found =
        DiscoveredSource { name: "a", path: "a.db", kind: SourceKind::Sqlite, pointer: None, facts: &facts };
    let text = render_manifest(&[found], "a");
    parse_manifest(&text);
    let lines = "# A foreign key, which is a link without any setting: buyer  refers to customers (id).\n\
                 # Other links are declared: [collections.orders.related.NAME]\n";
    assert!(text.contains(lines), "{text}");
}

/// Ordinary names and hostile ones.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{1,2}",
        "(A|limit|sort|a_min|a_max|_|1| |ö|\"|'|\\\\|\n|\r|\t|\u{0}|\u{7f}|\u{85}|\\$|\\{|\\}|#|=|\\[|\\]|\\.){0,6}",
        "\\PC{0,8}",
        "x{0,200}",
    ]
}

fn table() -> impl Strategy<Value = TableFacts> {
    let kind = prop::sample::select(DataType::ALL.to_vec());
    let column = (name(), kind, any::<bool>(), any::<bool>(), prop::collection::vec(name(), 0..3));
    let column = column.prop_map(|(name, kind, nullable, mixed, values)| {
        let values = if kind == DataType::Text { values } else { Vec::new() };
        ColumnFacts { nullable, mixed, distinct_values: values, ..ColumnFacts::new(name, kind) }
    });
    let table =
        (name(), prop::collection::vec(column, 1..6), any::<bool>(), any::<Option<u64>>(), 0..4_usize);
    table.prop_map(|(name, columns, key_is_declared, rows, keys)| {
        let scalar = (0..columns.len()).filter(|at| columns[*at].data_type.is_scalar());
        let key = scalar.take(keys).collect::<Vec<_>>().into_iter().rev().collect();
        TableFacts { key, key_is_declared, row_count: rows, ..TableFacts::new(name, columns) }
    })
}

fn facts() -> impl Strategy<Value = SourceFacts> {
    (prop::collection::vec(table(), 0..4), prop::collection::vec(name(), 0..2)).prop_map(
        |(mut tables, notes)| {
            // The tables of a source have distinct names.
            tables.sort_by(|a, b| a.name.cmp(&b.name));
            tables.dedup_by(|a, b| a.name == b.name);
            SourceFacts { tables, notes, ..SourceFacts::default() }
        },
    )
}

/// Uncomments the settings that show their default.
fn uncomment_settings(text: &str) -> String {
    let examples = [
        "#:schema",
        "#instructions",
        "#description",
        "#delimiter",
        "#null",
        "#rate_limit",
        "#at",
        "#header_row",
    ];
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') && !examples.iter().any(|one| line.starts_with(one)) => {
            setting
        }
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The compiled contract as text, without locations.
fn compiled_debug(text: &str, known: &[IntrospectedSource<'_>]) -> String {
    let manifest = parse_manifest(text);
    let (contract, told) = compile(&manifest, known, "x");
    let Some(contract) = contract else {
        return format!("nothing: {:?}", told.first().map(|one| &one.message));
    };
    format!("{} {:#?}", contract.version, contract.collections)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn generated_manifest_compiles_like_the_facts_alone(
        server in name(),
        csv in table(),
        sqlite in facts(),
        (name_a, name_b, path_a, path_b) in (name(), name(), "[^/\u{0}]{1,20}", "\\PC{1,20}x"),
        (kind_a, kind_b) in (
            prop::sample::select(vec![SourceKind::Csv, SourceKind::Json, SourceKind::JsonLines]),
            prop::sample::select(vec![SourceKind::Sqlite, SourceKind::Xlsx, SourceKind::Xls, SourceKind::Ods]),
        ),
        at in name(),
    ) {
        let (path_a, at) = (format!("{path_a}x"), format!("/{}", at.replace('~', "~0")));
        let csv = SourceFacts { tables: vec![csv], ..SourceFacts::default() };
        let found = [
            DiscoveredSource { name: &name_a, path: &path_a, kind: kind_a, pointer: Some(&at), facts: &csv },
            DiscoveredSource { name: &name_b, path: &path_b, kind: kind_b, pointer: None, facts: &sqlite },
        ];
        let text = render_manifest(&found, &server);
        let manifest = parse_manifest(&text);
        prop_assert_eq!(&manifest.server.name, &Some(contract::names::server_name(&server)));
        let sources: Vec<(String, SourceKind)> =
            manifest.sources.iter().map(|one| (one.location.value.to_string(), one.settings.kind())).collect();
        prop_assert_eq!(sources, [(path_a.clone(), kind_a), (path_b.clone(), kind_b)]);
        if let SourceSettings::Json { pointer: told } = &manifest.sources[0].settings {
            prop_assert_eq!(told.as_deref(), Some(at.as_str()));
        }

        let tables: Vec<&TableFacts> = csv.tables.iter().chain(&sqlite.tables).collect();
        let (first, second) = (&manifest.sources[0].name.value, &manifest.sources[1].name.value);
        let known = [IntrospectedSource::new(first, &csv), IntrospectedSource::new(second, &sqlite)];
        let (contract, told) = compile(&manifest, &known, "x");
        let contract = contract.ok_or_else(|| TestCaseError::fail(format!("{told:?}\n{text}")))?;
        prop_assert_eq!(contract.collections.len(), tables.len());
        for (collection, table) in contract.collections.iter().zip(tables) {
            prop_assert_eq!(&collection.shape.table, &table.name);
            let kinds: Vec<DataType> = collection.fields.iter().map(|field| field.data_type).collect();
            prop_assert_eq!(kinds, table.columns.iter().map(|column| column.data_type).collect::<Vec<_>>());
            prop_assert_eq!(&collection.shape.key, &table.key, "{}", text);
        }
        // Uncommenting a default changes nothing.
        prop_assert_eq!(compiled_debug(&uncomment_settings(&text), &known), compiled_debug(&text, &known), "{}", text);
    }
}

#[test]
fn tables_with_the_same_name_are_told_apart_by_their_file() {
    let sheet = |name: &str| TableFacts::new(name, vec![ColumnFacts::new("id", DataType::Integer)]);
    let facts = |names: &[&str]| SourceFacts {
        tables: names.iter().map(|name| sheet(name)).collect(),
        ..SourceFacts::default()
    };
    let [budget, forecast, items] = [facts(&["Sheet1", "Notes"]), facts(&["Sheet1"]), facts(&["items"])];
    let source = |name, path, kind, facts| DiscoveredSource { name, path, kind, pointer: None, facts };
    let found = [
        source("budget", "Budget.xlsx", SourceKind::Xlsx, &budget),
        source("forecast", "Forecast.xlsx", SourceKind::Xlsx, &forecast),
        source("items", "items.csv", SourceKind::Csv, &items),
        source("items_2", "items.json", SourceKind::Json, &items),
    ];
    let text = render_manifest(&found, "shop");
    let collections: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("[collections.")?.strip_suffix(']'))
        .filter(|name| !name.ends_with(".fields"))
        .collect();
    assert_eq!(collections, ["budget_sheet1", "notes", "forecast_sheet1", "items", "items_2"]);
}
