//! What the read tools of a wide collection add to every conversation.

use contract::DataType;
use contract::source::{ColumnFacts, SourceFacts, TableFacts};
use contract::tokens;

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

#[test]
fn the_read_tools_of_twenty_columns_cost_at_most_1200_tokens() {
    let contract = compiled(&orders(), "orders.csv", "[collections.orders]\n");
    let costs: Vec<(&str, usize)> = contract
        .tools
        .iter()
        .map(|tool| {
            let texts = [&*tool.name, &*tool.description, tool.input_schema.as_str()];
            (tool.name.as_str(), texts.into_iter().map(tokens::estimate).sum())
        })
        .collect();
    let names: Vec<&str> = costs.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["get_orders", "list_orders", "search_orders", "aggregate_orders"]);
    let total: usize = costs.iter().map(|(_, cost)| cost).sum();
    assert!(total <= 1200, "{total}: {costs:?}");
}
