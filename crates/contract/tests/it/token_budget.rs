//! What the read tools of a wide collection add to every conversation.

use contract::source::{ColumnFacts, ForeignKey, SourceFacts, TableFacts};
use contract::tokens;
use contract::{Contract, DataType};

use super::descriptions::compiled;

pub fn orders() -> SourceFacts {
    let text = |name: &str| ColumnFacts::new(name, DataType::Text);
    let of = ColumnFacts::new;
    let columns = vec![
        of("order_id", DataType::Integer),
        text("customer"),
        text("email"),
        text("status"),
        text("region"),
        text("country"),
        text("city"),
        text("product"),
        text("category"),
        of("quantity", DataType::Integer),
        of("unit_price", DataType::Decimal),
        of("discount", DataType::Decimal),
        of("total", DataType::Decimal),
        text("currency"),
        of("ordered_on", DataType::Date),
        of("shipped_at", DataType::Timestamp),
        of("paid", DataType::Boolean),
        text("priority"),
        text("channel"),
        text("notes"),
    ];
    let mut table = TableFacts::new("orders", columns);
    table.key = vec![0];
    table.row_count = Some(50_000);
    SourceFacts { tables: vec![table], ..SourceFacts::default() }
}

/// Orders with a link to customers: to one, or to many.
fn linked_orders(is_to_one: bool) -> SourceFacts {
    let mut facts = orders();
    let text = |name: &str| ColumnFacts::new(name, DataType::Text);
    let mut customers = TableFacts::new("customers", vec![text("name"), text("country")]);
    customers.key = vec![0];
    facts.tables.push(customers);
    let key = |column: usize, table: &str, target: &str| ForeignKey {
        columns: vec![column],
        table: table.to_owned(),
        target_columns: vec![target.to_owned()],
    };
    match is_to_one {
        true => facts.tables[0].foreign_keys.push(key(1, "customers", "name")),
        false => facts.tables[1].foreign_keys.push(key(0, "orders", "customer")),
    }
    facts
}

#[test]
fn the_read_tools_of_twenty_columns_cost_at_most_1200_tokens() {
    let contract = compiled(&orders(), "orders.csv", "[collections.orders]\n");
    check(&contract, "orders");
}

#[test]
fn a_link_in_either_direction_stays_within_the_same_budget() {
    for is_to_one in [true, false] {
        let facts = linked_orders(is_to_one);
        let contract = compiled(&facts, "shop.db", "[collections.orders]\n[collections.customers]\n");
        let links: Vec<bool> = contract.collections[0].links.iter().map(|link| link.is_to_one()).collect();
        assert_eq!(links, [is_to_one]);
        check(&contract, "orders");
    }
}

/// The read tools of a collection cost no more than 1,200 tokens.
fn check(contract: &Contract, collection: &str) {
    let names = ["get", "list", "search", "aggregate"].map(|operation| format!("{operation}_{collection}"));
    let costs: Vec<(&str, usize)> = contract
        .tools
        .iter()
        .filter(|tool| names.contains(&tool.name))
        .map(|tool| {
            let texts = [&*tool.name, &*tool.description, tool.input_schema.as_str()];
            (tool.name.as_str(), texts.into_iter().map(tokens::estimate).sum())
        })
        .collect();
    let found: Vec<&str> = costs.iter().map(|(name, _)| *name).collect();
    assert_eq!(found, names);
    let total: usize = costs.iter().map(|(_, cost)| cost).sum();
    assert!(total <= 1200, "{total}: {costs:?}");
}
