//! The overview: what it says, what it keeps to itself, and that it has a limit.

use contract::source::{ColumnFacts, ForeignKey, SourceFacts, TableFacts};
use contract::{ColumnFormat, Contract, DataType, Overview};
use insta::assert_snapshot;

use super::descriptions::compiled;

fn overview(contract: &Contract) -> &Overview {
    contract.overview.as_ref().expect("a contract with tools has an overview")
}

/// Orders of customers, with a column that must not be shown.
fn shop() -> SourceFacts {
    let status = vec!["open".to_owned(), "paid".to_owned()];
    let format = contract::column_format::NumberFormat::from_example("1.234,50 €").map(ColumnFormat::Number);
    let customers = TableFacts {
        key: vec![0],
        key_is_declared: true,
        row_count: Some(91),
        ..TableFacts::new(
            "customers",
            vec![ColumnFacts::new("id", DataType::Integer), ColumnFacts::new("E-Mail", DataType::Text)],
        )
    };
    let orders = TableFacts {
        key: vec![0],
        key_is_declared: true,
        row_count: Some(830),
        foreign_keys: vec![ForeignKey {
            columns: vec![1],
            table: "customers".into(),
            target_columns: vec!["id".into()],
        }],
        ..TableFacts::new(
            "orders",
            vec![
                ColumnFacts::new("order_id", DataType::Integer),
                ColumnFacts::new("customer_id", DataType::Integer),
                ColumnFacts { distinct_values: status.clone(), ..ColumnFacts::new("status", DataType::Text) },
                ColumnFacts { distinct_values: status, ..ColumnFacts::new("channel", DataType::Text) },
                ColumnFacts { format, nullable: true, ..ColumnFacts::new("total", DataType::Decimal) },
                ColumnFacts::new("card", DataType::Text),
                ColumnFacts::new("margin", DataType::Decimal),
            ],
        )
    };
    SourceFacts { tables: vec![customers, orders], ..SourceFacts::default() }
}

#[test]
fn it_has_collections_columns_links_and_tools_and_nothing_hidden() {
    let more = "[collections.customers]\ndescription = \"People who\\nbought something.\"\n\
                fields.'E-Mail' = { format = 'email' }\n\
                [collections.orders]\nfilters = ['status', 'total']\n\
                [collections.orders.fields]\nstatus = { show_values = true }\ncard = { sensitive = true }\n\
                margin = { hidden = true }\nchannel = { enum = ['open', 'paid'], description = 'How it came.' }\n";
    let contract = compiled(&shop(), "shop.db", more);
    assert_snapshot!(overview(&contract).text, @r##"
    # shop

    ## customers

    "customers" (shop.db): about 90 rows, one per id. People who bought something.
    Tools: get_customers, list_customers, search_customers, aggregate_customers.
    Link orders: rows of orders, by id = customer_id.

    2 columns:
    - id: integer, key
    - e_mail: text (email)

    ## orders

    "orders" (shop.db): about 830 rows, one per order_id.
    Tools: get_orders, list_orders, search_orders, aggregate_orders.
    Filters: status, total.
    Link customer: one row of customers, by customer_id = id.

    6 columns:
    - order_id: integer, key
    - customer_id: integer
    - status: text. Current values: "open", "paid"
    - channel: text, one of "open", "paid". How it came
    - total: decimal or null, in the file as 1.234,50 €. In €
    - card: text
    "##);
    assert!(overview(&contract).details.is_empty(), "everything fits");
}

#[test]
fn values_are_listed_only_where_the_author_shows_them() {
    let contract = compiled(&shop(), "shop.db", "[collections.orders]\n");
    let text = &overview(&contract).text;
    assert!(!text.contains("paid"), "{text}");
}

#[test]
fn a_contract_without_visible_collections_has_no_overview() {
    let (contract, _) = super::descriptions::try_compile(
        &shop(),
        "shop.db",
        "[collections.orders]\n[tools.hidden]\nuses = 'orders.list'\nhidden = true\n[tools.hidden_2]\n\
         uses = 'orders.get'\nhidden = true\n[tools.hidden_3]\nuses = 'orders.search'\nhidden = true\n\
         [tools.hidden_4]\nuses = 'orders.aggregate'\nhidden = true\n",
    );
    assert_eq!(contract.expect("valid").overview, None);
}

/// A database with this many tables of this many columns.
fn many(tables: usize, columns: usize) -> SourceFacts {
    let table = |number: usize| {
        let columns = (0..columns).map(|at| ColumnFacts::new(format!("measurement_{at}"), DataType::Number));
        TableFacts {
            key: vec![0],
            row_count: Some(1000),
            ..TableFacts::new(format!("station_{number}"), columns.collect())
        }
    };
    SourceFacts { tables: (0..tables).map(table).collect(), ..SourceFacts::default() }
}

fn collections(tables: usize) -> String {
    (0..tables).map(|number| format!("[collections.station_{number}]\n")).collect()
}

#[test]
fn it_is_cut_evenly_and_what_is_left_out_has_a_text_of_its_own() {
    let contract = compiled(&many(100, 40), "big.db", &collections(100));
    let Overview { text, details } = overview(&contract);
    assert!(text.len() <= 32 << 10, "{}", text.len());
    for number in 0..100 {
        assert!(text.contains(&format!("\n## station_{number}\n")), "{number}: {text}");
        assert!(text.contains(&format!(" more: spile://overview/station_{number}\n")), "{number}");
    }
    assert_eq!(details.len(), 100);
    let (name, detail) = &details[7];
    assert_eq!(name, "station_7");
    assert!(
        detail.starts_with("## station_7\n") && detail.contains("- measurement_39: number\n"),
        "{detail}"
    );
}

#[test]
fn collections_that_do_not_fit_are_named() {
    let contract = compiled(&many(400, 1), "big.db", &collections(400));
    let Overview { text, details } = overview(&contract);
    assert!(text.len() <= 32 << 10, "{}", text.len());
    let (_, rest) = text.split_once("\nFurther collections: ").expect("some do not fit");
    assert!(rest.contains("station_") && rest.contains(" more. Each has spile://overview/NAME."), "{rest}");
    assert!(details.iter().any(|(name, _)| name == "station_399"));
}

#[test]
fn the_text_about_one_collection_has_a_limit() {
    let contract = compiled(&many(1, 5000), "big.db", &collections(1));
    let Overview { text, details } = overview(&contract);
    assert!(text.len() <= 32 << 10, "{}", text.len());
    let [(_, detail)] = &details[..] else { panic!("one collection") };
    assert!(detail.len() <= (64 << 10) + 100, "{}", detail.len());
    assert!(detail.ends_with(" more\n"), "{detail}");
}

#[test]
fn instructions_stay_below_a_kilobyte_and_name_the_overview_where_they_are_cut() {
    let contract = compiled(&many(200, 40), "big.db", &collections(200));
    let text = contract.instructions.as_deref().expect("generated");
    assert!(text.len() <= 1000, "{}", text.len());
    assert!(text.contains(" more collections.\n"), "{text}");
    assert!(text.ends_with("\nAll columns, types and links: resource spile://overview."), "{text}");
    let contract = compiled(&many(1, 3), "small.db", &collections(1));
    let text = contract.instructions.as_deref().expect("generated");
    assert!(!text.contains("spile://"), "nothing is cut: {text}");
}

#[test]
fn a_few_more_rows_do_not_change_it() {
    let mut facts = many(2, 3);
    let before = compiled(&facts, "big.db", &collections(2));
    facts.tables[1].row_count = Some(1003);
    let after = compiled(&facts, "big.db", &collections(2));
    assert_eq!(overview(&before), overview(&after));
}
