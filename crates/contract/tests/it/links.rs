//! Links between collections: which there are, what they are called, and what their declarations can get wrong.

use contract::bind::{self, Scope};
use contract::diagnostic::render_all;
use contract::source::{ColumnFacts, ForeignKey, SourceFacts, TableFacts};
use contract::{Cardinality, Contract, DataType, ToolOperation, tokens};
use insta::assert_snapshot;
use json::{ParseLimits, parse};

use super::descriptions::{compiled, try_compile};
use super::token_budget::orders;

fn table(name: &str, columns: &[(&str, DataType)], keys: &[(usize, &str, &str)]) -> TableFacts {
    let columns = columns.iter().map(|(name, kind)| ColumnFacts::new(*name, *kind)).collect();
    let foreign_keys = keys.iter().map(|(column, table, target)| ForeignKey {
        columns: vec![*column],
        table: (*table).to_owned(),
        target_columns: vec![(*target).to_owned()],
    });
    TableFacts { key: vec![0], foreign_keys: foreign_keys.collect(), ..TableFacts::new(name, columns) }
}

/// Orders of customers, who have a contact among the employees, who report to each other.
fn shop() -> SourceFacts {
    const INTEGER: DataType = DataType::Integer;
    const TEXT: DataType = DataType::Text;
    let tables = vec![
        table(
            "Employees",
            &[("EmployeeID", INTEGER), ("Name", TEXT), ("ReportsTo", INTEGER)],
            &[(2, "employees", "employeeid")],
        ),
        table(
            "Customers",
            &[("CustomerID", TEXT), ("Country", TEXT), ("Email", TEXT), ("ContactID", INTEGER)],
            &[(3, "Employees", "EmployeeID")],
        ),
        table(
            "Orders",
            &[
                ("OrderID", INTEGER),
                ("CustomerID", TEXT),
                ("BilledTo", TEXT),
                ("OrderedOn", DataType::Date),
                ("Weight", DataType::Number),
            ],
            &[(1, "Customers", "CustomerID"), (2, "Customers", "CustomerID"), (4, "Employees", "EmployeeID")],
        ),
    ];
    SourceFacts { tables, ..SourceFacts::default() }
}

const COLLECTIONS: &str = "[collections.employees]\ntable = 'Employees'\n[collections.customers]\ntable = \
                           'Customers'\n[collections.orders]\ntable = 'Orders'\n";

/// Every link, as text.
fn links(contract: &Contract) -> Vec<String> {
    let mut all = Vec::new();
    for collection in &contract.collections {
        for link in &collection.links {
            let target = &contract.collections[link.target];
            let by = link.fields.iter().map(|(own, other)| {
                format!("{} = {}", collection.fields[*own].name, target.fields[*other].name)
            });
            let many = match &link.cardinality {
                Cardinality::ToOne => String::new(),
                Cardinality::ToMany { sort, rows_max } => {
                    let sort = sort.iter().map(|sort| {
                        let sign = if sort.descending { "-" } else { "" };
                        format!(" by {sign}{}", target.fields[sort.column].name)
                    });
                    format!(", up to {rows_max}{}", sort.collect::<String>())
                }
            };
            let by = by.collect::<Vec<_>>().join(", ");
            all.push(format!("{}.{} -> {} ({by}){many}", collection.name, link.name, target.name));
        }
    }
    all
}

#[test]
fn foreign_keys_are_links_in_both_directions() {
    let (contract, found) = try_compile(&shop(), "shop.db", COLLECTIONS);
    assert_eq!(
        links(&contract.expect("a contract")),
        [
            "employees.reports_to_employees -> employees (reports_to = employee_id)",
            "employees.employees_by_reports_to -> employees (employee_id = reports_to), up to 20",
            "employees.customers -> customers (employee_id = contact_id), up to 20",
            "customers.contact -> employees (contact_id = employee_id)",
            "customers.orders_by_customer_id -> orders (customer_id = customer_id), up to 20",
            "customers.orders_by_billed_to -> orders (customer_id = billed_to), up to 20",
            "orders.customer -> customers (customer_id = customer_id)",
            "orders.billed_to_customers -> customers (billed_to = customer_id)",
        ]
    );
    assert_snapshot!(render_all(&found, false), @r"
    note: a foreign key of `orders` is not a link: `orders.weight` is a number, and `employees.employee_id` is an integer
      = help: correct the values, or declare the type of one column with `as`
    ");
}

#[test]
fn a_link_never_leads_to_what_its_author_hides() {
    for (more, gone) in [
        ("[collections.customers.fields]\nCustomerID = { hidden = true }\n", "customer"),
        ("[collections.orders.fields]\nCustomerID = { hidden = true }\n", "orders_by_customer_id"),
        ("[tools.hide]\nuses = 'customers.list'\nhidden = true\n", "customer"),
        ("[collections.orders.related.customer]\nhidden = true\n", "orders.customer "),
    ] {
        let contract = compiled(&shop(), "shop.db", &format!("{COLLECTIONS}{more}"));
        let links = links(&contract);
        assert!(!links.iter().any(|link| link.contains(&format!("{gone} "))), "{more}: {links:?}");
    }
    let operations = COLLECTIONS.replace("'Customers'\n", "'Customers'\noperations = ['get', 'aggregate']\n");
    let links = links(&compiled(&shop(), "shop.db", &operations));
    assert!(!links.iter().any(|link| link.contains("-> customers")), "{links:?}");
}

#[test]
fn a_declared_link_replaces_the_one_of_the_foreign_key() {
    let more = "[collections.customers.related.purchases]\ncollection = 'orders'\nby = { CustomerID = \
                'customer_id' }\nsort = ['-ordered_on', 'OrderID']\nrows_max = 5\n\
                [collections.orders.related.buyer]\ncollection = 'customers'\nby = { CustomerID = 'CustomerID' }\n";
    let contract = compiled(&shop(), "shop.db", &format!("{COLLECTIONS}{more}"));
    let links = links(&contract);
    assert_eq!(
        links.iter().filter(|link| link.contains("purchases") || link.contains("buyer")).collect::<Vec<_>>(),
        [
            "customers.purchases -> orders (customer_id = customer_id), up to 5 by -ordered_on by order_id",
            "orders.buyer -> customers (customer_id = customer_id)",
        ]
    );
    assert!(!links.iter().any(|link| link.starts_with("orders.customer ")), "{links:?}");
}

/// The diagnostics of a manifest with these lines.
fn problems(more: &str) -> String {
    let (contract, found) = try_compile(&shop(), "shop.db", &format!("{COLLECTIONS}{more}"));
    assert!(contract.is_none(), "{more}");
    let found: Vec<_> = found.into_iter().filter(|one| !one.message.contains("is not a link")).collect();
    render_all(&found, false)
}

#[test]
fn declarations_that_cannot_work_are_rejected() {
    let related = |lines: &str| problems(&format!("[collections.orders.related.{lines}\n"));
    assert_snapshot!(related("x]\ncollection = 'clients'"), @r"
    error: unknown collection `clients`
      --> spile.toml:10:14
       |
    10 | collection = 'clients'
       |              ^^^^^^^^^
       = help: known collections: `employees`, `customers`, `orders`
    ");
    assert_snapshot!(related("weight]\ncollection = 'customers'"), @r"
    error: `orders` has a field `weight`
     --> spile.toml:9:29
      |
    9 | [collections.orders.related.weight]
      |                             ^^^^^^
      = help: a link needs a name that no field has
    ");
    assert_snapshot!(related("x]\ncollection = 'customers'"), @r#"
    error: there are several foreign keys between `orders` and `customers`
     --> spile.toml:9:29
      |
    9 | [collections.orders.related.x]
      |                             ^
      = help: name the columns with equal values: `by = { OrderID = "…" }`
    "#);
    assert_snapshot!(related("x]\ncollection = 'employees'\nby = { CustomerID = 'EmployeeID' }"), @r"
    error: `orders.customer_id` is a text, and `employees.employee_id` is an integer
      --> spile.toml:11:8
       |
    11 | by = { CustomerID = 'EmployeeID' }
       |        ^^^^^^^^^^
       = help: link columns of the same type: texts, integers or dates; `as` declares the type of a column
    ");
    assert_snapshot!(related("x]\ncollection = 'customers'\nby = { CustomerID = 'Id' }"), @r"
    error: unknown field `Id`
      --> spile.toml:11:21
       |
    11 | by = { CustomerID = 'Id' }
       |                     ^^^^
       = help: known fields: `customer_id`, `country`, `email`, `contact_id`
    ");
    assert_snapshot!(related("x]"), @r#"
    error: the link `x` has no `collection`
     --> spile.toml:9:29
      |
    9 | [collections.orders.related.x]
      |                             ^
      = help: name the collection that it leads to: `collection = "customers"`
    "#);
}

#[test]
fn a_link_that_is_hidden_and_does_not_exist_is_named() {
    let more = "[collections.orders.related.nothing]\nhidden = true\n";
    let (contract, found) = try_compile(&shop(), "shop.db", &format!("{COLLECTIONS}{more}"));
    assert!(contract.is_some());
    let found: Vec<_> = found.into_iter().filter(|one| !one.message.contains("is not a link")).collect();
    assert_snapshot!(render_all(&found, false), @r"
    warning: `hidden` has no effect: no foreign key makes a link `nothing`
     --> spile.toml:9:29
      |
    9 | [collections.orders.related.nothing]
      |                             ^^^^^^^
      = help: known links: `customer`, `billed_to_customers`
    ");
}

/// The linked filters and groups of a call, or the error.
fn bound(arguments: &str) -> Result<String, String> {
    let contract = compiled(&shop(), "shop.db", COLLECTIONS);
    let doc = parse(arguments.into(), &ParseLimits::default()).expect("valid");
    let tool = contract.tools.iter().find(|tool| tool.name == "aggregate_orders").expect("a tool");
    let ToolOperation::Aggregate { filters, .. } = &tool.operation else { panic!("an aggregate") };
    let scope = Scope::new(&contract.collections, 2);
    let bound = bind::aggregate(scope, filters, Some(doc.root())).map_err(|error| error.message)?;
    let filters = bound.filters.linked().iter().map(|linked| {
        let filter = linked.filter();
        format!("{:?} {} {:?}", linked.path, filter.column, filter.comparison)
    });
    let groups = bound.groups.iter().map(|group| format!("{:?} {}", group.path, group.column));
    Ok(filters.chain(groups).collect::<Vec<_>>().join("; "))
}

#[test]
fn names_with_dots_follow_links() {
    for (arguments, expected) in [
        (r#"{"customer.country":"DE"}"#, Ok("[0] 1 Equals")),
        (r#"{"customer.country_not":["DE"]}"#, Ok("[0] 1 NotEquals")),
        (r#"{"customer.contact.name_contains":"a"}"#, Ok("[0, 0] 1 Contains")),
        (r#"{"group":["customer.country","customer.contact.name"]}"#, Ok("[0] 1; [0, 0] 1")),
        (r#"{"customer_null":true}"#, Ok("[0] 0 IsNull")),
        (r#"{"customer.orders_by_billed_to_null":false}"#, Ok("[0, 2] 2 IsNotNull")),
        (r#"{"customer_null":"yes"}"#, Err("`customer_null` must be true or false")),
        (r#"{"custmer_null":true}"#, Err("unknown argument `custmer_null`; did you mean `customer_null`?")),
        (
            r#"{"customer.contact.customers_null":true}"#,
            Err("`customer.contact.customers_null` follows too many links; the limit is 2"),
        ),
        (
            r#"{"custmer.country":"DE"}"#,
            Err("unknown link `custmer` in `custmer.country`; did you mean `customer.country`?"),
        ),
        (
            r#"{"customer.contry":"DE"}"#,
            Err("unknown argument `customer.contry`; did you mean `customer.country`?"),
        ),
        (
            r#"{"customer.xyz":"DE"}"#,
            Err(
                "unknown argument `customer.xyz`; filters after `customer.` are customer_id, country, email, contact_id",
            ),
        ),
        (
            r#"{"customer.country_min":"DE"}"#,
            Err("`_min` needs a column of numbers, dates or timestamps; `country` is a text"),
        ),
        (
            r#"{"customer.contact.reports_to_employees.name":"a"}"#,
            Err("`customer.contact.reports_to_employees.name` follows too many links; the limit is 2"),
        ),
        (
            r#"{"customer.orders_by_billed_to.weight":1}"#,
            Err(
                "`customer.orders_by_billed_to.weight` cannot be used: a row has many `orders_by_billed_to`; use a tool of orders instead",
            ),
        ),
        (
            r#"{"group":"customer.contry"}"#,
            Err("unknown field `customer.contry` in `group`; did you mean `customer.country`?"),
        ),
    ] {
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(bound(arguments), expected, "{arguments}");
    }
}

#[test]
fn a_link_by_several_columns_cannot_be_asked_for_linked_rows() {
    let lines = table("Lines", &[("OrderID", DataType::Integer), ("Line", DataType::Integer)], &[]);
    let mut parcels = table("Parcels", &[("ID", DataType::Integer)], &[]);
    parcels.columns.extend(lines.columns.clone());
    let (columns, target_columns) = (vec![1, 2], vec!["OrderID".to_owned(), "Line".to_owned()]);
    parcels.foreign_keys = vec![ForeignKey { columns, table: "Lines".into(), target_columns }];
    let facts = SourceFacts {
        tables: vec![TableFacts { key: vec![0, 1], ..lines }, parcels],
        ..SourceFacts::default()
    };
    let collections = "[collections.lines]\ntable = 'Lines'\n[collections.parcels]\ntable = 'Parcels'\n";
    let contract = compiled(&facts, "shop.db", collections);
    let doc = parse(r#"{"lines_null":true}"#.into(), &ParseLimits::default()).expect("valid");
    let bound = bind::list(Scope::new(&contract.collections, 1), &[], &[], Some(doc.root()));
    let message = bound.map(|_| ()).map_err(|error| error.message);
    assert_eq!(message, Err("`lines_null` cannot be used: `lines` is linked by several columns".to_owned()));
}

#[test]
fn include_names_links() {
    let contract = compiled(&shop(), "shop.db", COLLECTIONS);
    let include = |arguments: &str| {
        let doc = parse(arguments.into(), &ParseLimits::default()).expect("valid");
        bind::include(&contract.collections[2], Some(doc.root())).map_err(|error| error.message)
    };
    assert_eq!(include(r#"{"include":["customer","customer"]}"#), Ok(vec![0]));
    assert_eq!(include(r#"{"include":"billed_to_customers"}"#), Ok(vec![1]));
    assert_eq!(include("{}"), Ok(vec![]));
    let unknown = "unknown link `custmer` in `include`; did you mean `customer`?";
    assert_eq!(include(r#"{"include":"custmer"}"#), Err(unknown.to_owned()));
    let wrong = "`include` must be a name or an array of names";
    assert_eq!(include(r#"{"include":[1]}"#), Err(wrong.to_owned()));
}

#[test]
fn schemas_say_what_is_linked_and_which_filters_are_sensitive() {
    let more = "[collections.customers.fields]\nEmail = { sensitive = true }\n";
    let contract = compiled(&shop(), "shop.db", &format!("{COLLECTIONS}{more}"));
    let tool = |name: &str| contract.tools.iter().find(|tool| tool.name == name).expect("a tool");
    let list = tool("list_orders");
    let schema = list.input_schema.as_str();
    let include = r#""include":{"type":["string","array"],"items":{"type":"string"},"description":"linked rows to add: customer, billed_to_customers (customers)"}"#;
    assert!(schema.contains(include), "{schema}");
    let sensitive = r#""customer.email_contains":{"type":["string","number","boolean","array"],"items":{},"x-sensitive":true}"#;
    assert!(schema.contains(sensitive), "{schema}");
    assert!(schema.contains(r#""[.]":{}"#), "{schema}");
    assert!(
        list.description.ends_with("Columns of linked rows filter too: customer.country."),
        "{}",
        list.description
    );
    let customers = &tool("list_customers").description;
    assert!(
        customers.ends_with(" orders_by_customer_id_null: true for rows without orders_by_customer_id."),
        "{customers}"
    );
    assert!(!list.description.contains("customer_null"), "{}", list.description);
    let group = tool("aggregate_orders").input_schema.as_str();
    assert!(group.contains("; a column of a linked row: customer.country"), "{group}");
    assert!(tool("get_orders").output_schema.as_str().contains(r#""customer":{"type":["object","null"]}"#));
}

#[test]
fn instructions_name_the_links() {
    let contract = compiled(&shop(), "shop.db", COLLECTIONS);
    let instructions = contract.instructions.expect("generated");
    assert!(
        instructions.contains(" Links: customer, billed_to_customers. Tools: get_orders"),
        "{instructions}"
    );
    assert!(instructions.len() < 1024, "{}", instructions.len());
}

#[test]
fn links_cost_few_tokens() {
    let cost = |contract: &Contract| -> usize {
        let tools = contract.tools.iter().filter(|tool| tool.name.ends_with("_orders"));
        let texts = tools.flat_map(|tool| [tool.description.clone(), tool.input_schema.as_str().to_owned()]);
        texts.map(|text| tokens::estimate(&text)).sum()
    };
    let mut facts = orders();
    facts.tables[0].columns.push(ColumnFacts::new("customer_id", DataType::Integer));
    facts.tables.push(table("customers", &[("id", DataType::Integer), ("country", DataType::Text)], &[]));
    let collections = "[collections.orders]\nfilters = true\n[collections.customers]\n";
    let without = cost(&compiled(&facts, "orders.db", collections));
    let reference =
        ForeignKey { columns: vec![20], table: "customers".into(), target_columns: vec!["id".into()] };
    facts.tables[0].foreign_keys.push(reference);
    let with = cost(&compiled(&facts, "orders.db", collections));
    assert!(with - without <= 110, "{without} to {with}");
}
