//! Roles of a manifest: what is wrong with some, and what the contract of each one has.

use contract::access::Role;
use contract::compatibility::{Compatibility, ContractInterface, compare_interfaces, overall_compatibility};
use contract::compile::{IntrospectedSource, compile};
use contract::diagnostic::{Severity, render_all};
use contract::lock::{ContractVersion, Lock};
use contract::manifest;
use contract::source::{ColumnFacts, ForeignKey, SourceFacts, TableFacts};
use contract::{Contract, DataType};

/// Customers with a key, a tenant, a note and JSON; orders with a link to them.
fn facts() -> SourceFacts {
    let column = ColumnFacts::new;
    let plans = vec!["free".to_owned(), "gold".to_owned()];
    let customers = vec![
        column("id", DataType::Integer),
        column("tenant", DataType::Text),
        column("name", DataType::Text),
        ColumnFacts { distinct_values: plans, ..column("plan", DataType::Text) },
        ColumnFacts { nullable: true, ..column("note", DataType::Text) },
        ColumnFacts { nullable: true, ..column("extra", DataType::Json) },
    ];
    let orders = vec![
        column("id", DataType::Integer),
        column("customer_id", DataType::Integer),
        column("total", DataType::Decimal),
    ];
    let key = ForeignKey { columns: vec![1], table: "customers".into(), target_columns: vec!["id".into()] };
    let table = |name: &str, columns, foreign_keys| TableFacts {
        key: vec![0],
        row_count: Some(1234),
        foreign_keys,
        ..TableFacts::new(name, columns)
    };
    let tables = vec![table("customers", customers, Vec::new()), table("orders", orders, vec![key])];
    SourceFacts { tables, ..SourceFacts::default() }
}

const BASE: &str = "[sources.s]\npath = \"s.db\"\n[collections.customers]\noperations = [\"get\", \"list\", \"search\", \
                    \"aggregate\", \"create\", \"update\"]\n[collections.orders]\n";

/// The contract, and the rendered errors and warnings.
fn compiled(rest: &str) -> (Option<Contract>, String) {
    let text = format!("{BASE}{rest}");
    let facts = facts();
    match manifest::parse("spile.toml", &text, &|_| None) {
        Err(found) => (None, render_all(&found, false)),
        Ok((manifest, mut found)) => {
            let (contract, more) = compile(&manifest, &[IntrospectedSource::new("s", &facts)], "shop");
            found.extend(more);
            found.retain(|one| one.severity != Severity::Note);
            (contract, render_all(&found, false))
        }
    }
}

#[track_caller]
fn contract(rest: &str) -> Contract {
    let (contract, found) = compiled(rest);
    contract.unwrap_or_else(|| panic!("{found}"))
}

fn role<'c>(contract: &'c Contract, name: &str) -> &'c Role {
    let roles = contract.roles.as_ref().expect("the contract has roles");
    roles.roles.iter().find(|role| role.name == name).expect("the role is there")
}

fn tools(role: &Role) -> Vec<&str> {
    role.contract.tools.iter().map(|tool| tool.name.as_str()).collect()
}

/// A manifest that is refused, and what is said about it.
#[track_caller]
fn refused(rest: &str, message: &str) {
    let (contract, found) = compiled(rest);
    assert!(contract.is_none(), "{rest}");
    assert!(found.contains(message), "{rest}\n{found}");
}

/// A manifest that is served, and the warning about it.
#[track_caller]
fn warned(rest: &str, message: &str) {
    let (contract, found) = compiled(rest);
    assert!(contract.is_some() && found.contains(message), "{rest}\n{found}");
}

/// With a role `r`, and these lines about the customers.
fn customers(lines: &str) -> String {
    format!(
        "[roles.r]\nwhen = \"anyone\"\n[collections.customers.access.r]\n{lines}\n[collections.orders.access.r]\n"
    )
}

#[test]
fn roles_and_conditions_are_checked_before_anybody_calls() {
    for (rest, message) in [
        ("[roles.r]\nwhen = \"everyone\"\n", "`when` is not a condition"),
        ("[roles.r]\nwhen = {}\n", "`when` is not a condition"),
        ("[roles.r]\nwhen = { groups = \"x\" }\n", "`groups` is not a JSON pointer into the claims"),
        ("[roles.r]\nwhen = { \"/a~2\" = \"x\" }\n", "is not a JSON pointer"),
        ("[roles.r]\nwhen = { \"/a\" = [] }\n", "is empty"),
        ("[roles.r]\nwhen = { \"/a\" = { b = 1 } }\n", "expected a string, a number, `true` or `false`"),
        ("[roles.r]\nwehn = \"anyone\"\n", "did you mean `when`"),
        ("[roles.r]\nincludes = [\"q\"]\n", "unknown role `q`"),
        ("[roles.a]\nincludes = [\"b\"]\n[roles.b]\nincludes = [\"a\"]\n", "the role `a` includes itself"),
        ("[collections.customers.access.r]\n", "unknown role `r`"),
        ("[tools.x]\n", "`x` has neither `uses` nor `sql`"),
        ("[tools.x.access]\nroles = [\"r\"]\n", "unknown role `r`"),
        ("[roles.r]\n[tools.x.access]\n", "`access` names no role"),
        ("[roles.r]\n[resources.x]\nfile = \"a.md\"\naccess = { roles = [\"r\"] }\n", "needs a `uri`"),
    ] {
        refused(rest, message);
    }
    for (lines, message) in [
        ("where = \"tenant = 'a'\"", "`where` is data, not an expression"),
        ("where = { tenat = \"a\" }", "`customers` has no field `tenat`"),
        ("where = { extra = \"a\" }", "`extra` cannot decide about rows"),
        ("where = { id = \"a\" }", "`id` must be an integer"),
        ("where = { tenant = 7 }", "`tenant` must be a string"),
        ("where = { tenant = { min = \"a\" } }", "`min` and `max` need numbers, dates or timestamps"),
        ("where = { id = { min = 1, not = 2 } }", "`id` needs one condition"),
        ("where = { id = { above = 1 } }", "unknown key `above`"),
        ("where = { id = { is = \"nil\" } }", "`is` must be `null` or `not null`"),
        ("where = { id = { claim = 7 } }", "`claim` must be a JSON pointer"),
        ("where = { id = { claim = \"tenant\" } }", "is not a JSON pointer into the claims"),
        ("where = [{ id = 1 }, {}]", "this table is empty, so that every row matches"),
        ("where = { id = [] }", "`id` is empty"),
        ("hidden = [\"zebra\"]", "`customers` has no field `zebra`"),
        ("fields = [\"id\", \"zebra\"]", "`customers` has no field `zebra`"),
        ("fields = [\"id\"]\nhidden = [\"note\"]", "`fields` and `hidden` exclude each other"),
        ("hidden = [\"id\"]", "the role `r` does not see `id`, which is the key"),
        ("operations = [\"delete\"]", "`customers` has no operation `delete`"),
        ("operations = [\"read\"]", "unknown operation `read`"),
        ("set = { zebra = \"a\" }\noperations = [\"update\"]", "`customers` has no field `zebra`"),
        ("set = { tenant = 7 }\noperations = [\"update\"]", "`tenant` must be a string"),
        ("set = { tenant = { cliam = \"/t\" } }\noperations = [\"update\"]", "expected a value or a claim"),
        (
            "hidden = [\"tenant\"]\noperations = [\"create\", \"get\"]",
            "role `r`: a new row of `customers` needs a value",
        ),
        (
            "where = [{ id = 1, tenant = \"a\", name = \"b\", plan = \"c\" }, { id = 2, tenant = \"a\", name = \"b\", \
             plan = \"c\" }, { id = 3, tenant = \"a\", name = \"b\", plan = \"c\" }, { id = 4, tenant = \"x\" }]",
            "too many combinations",
        ),
    ] {
        refused(&customers(lines), message);
    }
}

#[test]
fn what_nobody_can_use_is_a_warning() {
    warned("[roles.r]\nwhen = \"anyone\"\n[collections.orders.access.r]\n", "no role can read `customers`");
    warned(
        &format!("{}[roles.q]\nwhen = {{ \"/a\" = 1 }}\n", customers("")),
        "nobody has the role `q`: a role above it",
    );
    warned(&format!("{}[roles.q]\n", customers("")), "nobody has the role `q`: it has no `when`");
    warned(
        &format!("[roles.q]\nwhen = {{ \"/a\" = 1 }}\n{}", customers("")),
        "nothing is granted to the role `q`",
    );
    let lines = "operations = [\"create\", \"get\"]\nhidden = [\"note\"]\nwhere = { note = \"x\" }";
    warned(&customers(lines), "cannot create a row of `customers`: it does not see `note`");
    warned(&customers("set = { tenant = \"a\" }\noperations = [\"get\"]"), "`set` has no effect");
}

#[test]
fn a_role_has_the_operations_and_fields_that_are_granted_and_nothing_else() {
    let contract = contract(
        "filters = [\"total\"]\n[roles.clerk]\nwhen = { \"/team\" = \"x\" }\n[roles.viewer]\nwhen = \"anyone\"\n\
         [collections.customers.access.clerk]\noperations = [\"get\", \"list\", \"update\"]\nhidden = [\"note\", \"plan\"]\n\
         [collections.orders.access.clerk]\n\
         [collections.orders.access.viewer]\noperations = [\"aggregate\"]\nfields = [\"total\"]\n\
         [tools.find]\nuses = \"customers.get\"\ntext = \"{name} {note}\"\n",
    );
    let clerk = role(&contract, "clerk");
    assert_eq!(
        tools(clerk),
        [
            "find",
            "list_customers",
            "update_customers",
            "get_orders",
            "list_orders",
            "search_orders",
            "aggregate_orders"
        ]
        .into_iter()
        .filter(|name| *name != "search_orders")
        .collect::<Vec<_>>()
    );
    for tool in &clerk.contract.tools {
        let texts = format!("{} {} {}", tool.description, tool.input_schema, tool.output_schema);
        assert!(!texts.contains("note") && !texts.contains("plan"), "{}: {texts}", tool.name);
    }
    let overview = &clerk.contract.overview.as_ref().expect("an overview").text;
    assert!(!overview.contains("note") && overview.contains("about 1,200 rows"), "{overview}");
    assert_eq!(clerk.contract.collections[1].links[0].name, "customer");
    let viewer = role(&contract, "viewer");
    assert_eq!(tools(viewer), ["aggregate_orders"]);
    assert!(
        viewer.contract.collections[0].links.is_empty(),
        "the other collection does not exist for the role"
    );
}

#[test]
fn the_texts_of_a_role_say_nothing_about_rows_of_others() {
    let contract = contract(
        "[collections.customers.fields]\nplan = { show_values = true }\n[roles.all]\nwhen = { \"/all\" = true }\n\
         [roles.some]\nwhen = \"anyone\"\n[collections.customers.access.all]\n\
         [collections.customers.access.some]\nwhere = { tenant = { claim = \"/tenant\" } }\n\
         [collections.orders.access.all]\n",
    );
    let texts = |name: &str| {
        let contract = &role(&contract, name).contract;
        let tools = contract.tools.iter().map(|tool| format!("{} {}", tool.description, tool.input_schema));
        let overview = &contract.overview.as_ref().expect("an overview").text;
        format!("{overview} {} {:?}", tools.collect::<String>(), contract.instructions)
    };
    assert!(texts("all").contains("gold") && texts("all").contains("1,200"), "{}", texts("all"));
    assert!(!texts("some").contains("gold") && !texts("some").contains("1,200"), "{}", texts("some"));
}

#[test]
fn a_role_adds_to_what_it_includes_and_says_which_rows_count() {
    let shared = "[roles.owner]\nwhen = { \"/o\" = 1 }\nincludes = [\"support\"]\n[roles.support]\nwhen = { \"/s\" = 1 }\n\
                  [collections.orders.access.support]\n[collections.customers.access.support]\n\
                  operations = [\"get\"]\nhidden = [\"note\"]\nwhere = { tenant = { claim = \"/t\" } }\n";
    let own = contract(&format!(
        "{shared}[collections.customers.access.owner]\noperations = [\"update\"]\nwhere = {{}}\n"
    ));
    let rows = |contract: &Contract, name: &str| {
        role(contract, name).contract.collections[0].rules.as_ref().expect("rules").to_string()
    };
    assert_eq!(rows(&own, "support"), "tenant = claim /t");
    assert_eq!(rows(&own, "owner"), "all");
    assert!(tools(role(&own, "owner")).starts_with(&["get_customers", "update_customers"]));
    let fields = &role(&own, "owner").contract.collections[0].fields;
    assert!(fields.iter().all(|field| field.name != "note"), "what is hidden is inherited");
    let inherited =
        contract(&format!("{shared}[collections.customers.access.owner]\noperations = [\"update\"]\n"));
    assert_eq!(rows(&inherited, "owner"), "tenant = claim /t", "a role without `where` is not wider");
    refused(
        &format!(
            "{shared}[roles.sales]\nwhen = {{ \"/x\" = 1 }}\n[collections.customers.access.sales]\nwhere = {{ id = 1 }}\n\
             [roles.both]\nwhen = {{ \"/b\" = 1 }}\nincludes = [\"support\", \"sales\"]\n"
        ),
        "`both` includes several roles that may use `customers`, and does not say which `where` counts",
    );
}

#[test]
fn a_statement_is_for_the_roles_that_it_names() {
    let text = format!(
        "{BASE}{}[tools.top]\nsql = \"select 1 as n\"\n[tools.top.access]\nroles = [\"boss\"]\n[roles.boss]\n",
        customers("")
    );
    let (manifest, _) = manifest::parse("spile.toml", &text, &|_| None).expect("a manifest");
    assert_eq!((manifest.tools.len(), manifest.tool_access.len()), (1, 1));
    assert!(manifest.tool_access[0].has("boss") && !manifest.tool_access[0].has("r"));
}

#[test]
fn rules_use_columns_that_are_hidden_from_everybody() {
    let contract = contract(
        "[collections.customers.fields]\ntenant = { hidden = true }\n[roles.r]\nwhen = \"anyone\"\n\
         [collections.customers.access.r]\noperations = [\"get\", \"create\"]\nwhere = { tenant = { claim = \"/t\" } }\n\
         set = { tenant = { claim = \"/t\" } }\n[collections.orders.access.r]\n",
    );
    let collection = &role(&contract, "r").contract.collections[0];
    assert_eq!(collection.shape.columns.len(), collection.fields.len() + 1);
    assert_eq!(collection.shape.columns.last().map(|column| column.name.as_str()), Some("tenant"));
}

#[test]
fn what_a_role_lost_is_breaking_and_the_lock_file_remembers_it() {
    let interface = |rest: &str| ContractInterface::from_contract(&contract(rest));
    let before = interface(&customers("operations = [\"get\", \"list\"]"));
    let lock = Lock::new(ContractVersion::FIRST, before.clone()).to_toml();
    assert!(lock.contains("[roles.r]\naggregate_orders = ["), "{lock}");
    assert_eq!(Lock::parse("spile.lock", &lock).expect("a lock file").interface, before);
    for (lines, expected) in [
        ("operations = [\"get\", \"list\"]", Compatibility::Same),
        ("operations = [\"get\", \"list\"]\nwhere = { id = 1 }", Compatibility::Same),
        ("operations = [\"get\", \"list\", \"update\"]", Compatibility::Compatible),
        ("operations = [\"get\"]", Compatibility::Breaking),
        ("operations = [\"get\", \"list\"]\nhidden = [\"note\"]", Compatibility::Breaking),
    ] {
        let differences = compare_interfaces(&before, &interface(&customers(lines)));
        assert_eq!(overall_compatibility(&differences), expected, "{lines} {differences:?}");
        assert!(differences.iter().all(|one| one.is_of_role()), "{differences:?}");
    }
    let without = interface("");
    assert_eq!(overall_compatibility(&compare_interfaces(&without, &before)), Compatibility::Breaking);
    assert_eq!(overall_compatibility(&compare_interfaces(&before, &without)), Compatibility::Same);
}
