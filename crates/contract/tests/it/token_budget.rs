//! What the read tools of a wide collection add to every conversation.

use contract::lint::lint_input_schema;
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
    let columns =
        vec![ColumnFacts::new("name", DataType::Text), ColumnFacts::new("last_order", DataType::Integer)];
    let mut customers = TableFacts::new("customers", columns);
    customers.key = vec![0];
    facts.tables.push(customers);
    let key = |column: usize, table: &str, target: &str| ForeignKey {
        columns: vec![column],
        table: table.to_owned(),
        target_columns: vec![target.to_owned()],
    };
    match is_to_one {
        true => facts.tables[0].foreign_keys.push(key(1, "customers", "name")),
        false => facts.tables[1].foreign_keys.push(key(1, "orders", "order_id")),
    }
    facts
}

#[test]
fn the_read_tools_of_twenty_columns_cost_at_most_1200_tokens() {
    let contract = compiled(&orders(), "orders.csv", "[collections.orders]\n");
    assert_eq!(rounded_cost(&contract), 1200);
}

/// The columns of an export of a shop system, with its long names.
fn exported(columns: &[(&str, DataType)]) -> SourceFacts {
    let columns = columns.iter().map(|(name, data_type)| ColumnFacts::new(*name, *data_type)).collect();
    let mut table = TableFacts::new("orders", columns);
    table.key = vec![0];
    table.row_count = Some(50_000);
    SourceFacts { tables: vec![table], ..SourceFacts::default() }
}

#[test]
fn long_headers_cost_their_length() {
    use DataType::{Boolean, Date, Decimal, Integer, Text, Timestamp};
    let shop = [
        ("Name", Text),
        ("Email", Text),
        ("Financial Status", Text),
        ("Paid at", Timestamp),
        ("Fulfillment Status", Text),
        ("Fulfilled at", Timestamp),
        ("Accepts Marketing", Boolean),
        ("Currency", Text),
        ("Subtotal", Decimal),
        ("Shipping", Decimal),
        ("Taxes", Decimal),
        ("Total", Decimal),
        ("Discount Code", Text),
        ("Discount Amount", Decimal),
        ("Shipping Method", Text),
        ("Created at", Timestamp),
        ("Lineitem quantity", Integer),
        ("Lineitem name", Text),
        ("Lineitem price", Decimal),
        ("Billing Country", Text),
    ];
    let german = [
        ("Auftragsnummer", Integer),
        ("Kundennummer", Integer),
        ("Kundenname", Text),
        ("Rechnungsadresse", Text),
        ("Lieferadresse", Text),
        ("Postleitzahl", Text),
        ("Rechnungsort", Text),
        ("Bestelldatum", Date),
        ("Lieferdatum", Date),
        ("Zahlungsstatus", Text),
        ("Zahlungsart", Text),
        ("Artikelnummer", Text),
        ("Artikelbezeichnung", Text),
        ("Bestellmenge", Integer),
        ("Einzelpreis netto", Decimal),
        ("Gesamtbetrag netto", Decimal),
        ("Umsatzsteuer", Decimal),
        ("Gesamtbetrag brutto", Decimal),
        ("Sachbearbeiter", Text),
        ("Bemerkungen", Text),
    ];
    for (columns, expected) in [(shop, 1250), (german, 1250)] {
        let contract = compiled(&exported(&columns), "orders.csv", "[collections.orders]\n");
        assert_eq!(rounded_cost(&contract), expected);
    }
}

#[test]
fn a_link_in_either_direction_costs_little() {
    for (is_to_one, expected) in [(true, 1350), (false, 1300)] {
        let facts = linked_orders(is_to_one);
        let contract = compiled(&facts, "shop.db", "[collections.orders]\n[collections.customers]\n");
        let links: Vec<bool> = contract.collections[0].links.iter().map(|link| link.is_to_one()).collect();
        assert_eq!(links, [is_to_one]);
        assert_eq!(rounded_cost(&contract), expected);
    }
}

/// The tokens of the read tools of `orders`, rounded up to fifty.
fn rounded_cost(contract: &Contract) -> usize {
    for tool in &contract.tools {
        assert_eq!(lint_input_schema(&tool.name, &tool.input_schema), [], "{}", tool.input_schema.as_str());
    }
    let costs = ["get_orders", "list_orders", "search_orders", "aggregate_orders"].map(|name| {
        let tool = contract.tools.iter().find(|tool| tool.name == name).expect(name);
        let texts = [&*tool.name, &*tool.description, tool.input_schema.as_str()];
        texts.into_iter().map(tokens::estimate).sum::<usize>()
    });
    costs.iter().sum::<usize>().next_multiple_of(50)
}
