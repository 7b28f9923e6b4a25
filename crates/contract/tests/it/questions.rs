//! Arguments of filters, sort orders and aggregates: what they are bound to, and what is wrong with the others.

use contract::bind::{AggregateArguments, BoundSort, Scope};
use contract::source::{AggregateFunction, Comparison, DateUnit, Measure, SortTarget};
use contract::{Contract, ToolOperation, ValueRef, bind};
use json::{ParseLimits, parse};

use super::descriptions::compiled;
use super::token_budget::orders;

fn contract() -> Contract {
    compiled(&orders(), "orders.csv", "[collections.orders]\nfields.status = { enum = ['paid', 'open'] }\n")
}

/// The filters of a list, as text, or the error.
fn bound_filters(arguments: &str) -> Result<String, String> {
    let contract = contract();
    let doc = parse(arguments.into(), &ParseLimits::default()).expect("valid");
    let ToolOperation::List { filters, sorts, .. } = &contract.tools[1].operation else { panic!("a list") };
    let collection = &contract.collections[0];
    let scope = Scope::new(&contract.collections, 0);
    let bound = bind::list(scope, filters, sorts, Some(doc.root())).map_err(|error| error.message)?;
    let filters = bound.filters.filters();
    let text = filters.iter().map(|filter| {
        let values: Vec<String> = filter
            .values()
            .map(|value| match value {
                ValueRef::Text(text) => text.to_owned(),
                ValueRef::Integer(n) => n.to_string(),
                other => format!("{other:?}"),
            })
            .collect();
        let name = &collection.fields[filter.column].name;
        format!("{name} {:?} {}", filter.comparison, values.join(" "))
    });
    let sort = bound.sort.iter().map(|BoundSort { sort, .. }| {
        format!("{}{}", if sort.descending { "-" } else { "" }, collection.fields[sort.column].name)
    });
    Ok(text.chain(sort).collect::<Vec<_>>().join("; "))
}

#[test]
fn filters_are_named_after_their_columns() {
    for (arguments, expected) in [
        (r#"{"status":"paid"}"#, "status Equals paid"),
        (r#"{"status":["paid","open"]}"#, "status Equals paid open"),
        (r#"{"city_not":["Bonn"]}"#, "city NotEquals Bonn"),
        (r#"{"city_contains":"ÖL","city_starts":"K"}"#, "city Contains öl; city StartsWith k"),
        (r#"{"notes_null":true,"email_null":false}"#, "notes IsNull Null; email IsNotNull Null"),
        (r#"{"total_min":12.50,"total_max":"99"}"#, "total AtLeast 12.50; total AtMost 99"),
        (r#"{"shipped_at":"2026-02-11"}"#, "shipped_at Equals 2026-02-11"),
        (r#"{"sort":["status","-total"]}"#, "status; -total"),
        (r#"{"sort":"-total"}"#, "-total"),
    ] {
        assert_eq!(bound_filters(arguments).as_deref(), Ok(expected), "{arguments}");
    }
}

#[test]
fn a_column_that_cannot_be_filtered_is_not_mistaken_for_another_one() {
    let contract = contract();
    let ToolOperation::List { filters, sorts, .. } = &contract.tools[1].operation else { panic!("a list") };
    let collection = &contract.collections[0];
    let names: Vec<&str> = filters[..2].iter().map(|at| collection.fields[*at].name.as_str()).collect();
    for (arguments, expected) in [
        (r#"{"total_min":"1"}"#, "`total` cannot be filtered; the 2 columns that can are "),
        (r#"{"total":"1"}"#, "`total` cannot be filtered; the 2 columns that can are "),
        (r#"{"sort":"-total"}"#, "`total` cannot be sorted by; the 2 columns that can are "),
    ] {
        let doc = parse(arguments.into(), &ParseLimits::default()).expect("valid");
        let error =
            bind::list(Scope::new(&contract.collections, 0), &filters[..2], &sorts[..2], Some(doc.root()))
                .expect_err(arguments);
        assert!(error.message.starts_with(expected), "{}", error.message);
        assert!(error.message.contains(names[0]), "{}", error.message);
    }
}

#[test]
fn filter_errors_say_what_to_do() {
    for (arguments, expected) in [
        (r#"{"status":"payed"}"#, "`status` must be one of \"paid\", \"open\""),
        (r#"{"city":[]}"#, "`city` is empty; give at least one value"),
        (r#"{"city":null}"#, "`city` must be a string"),
        (r#"{"citi_not":"x"}"#, "unknown argument `citi_not`; did you mean `city_not`?"),
        (r#"{"city_min":"a"}"#, "`_min` needs a column of numbers, dates or timestamps; `city` is a text"),
        (r#"{"total_contains":"1"}"#, "`_contains` needs a text column; `total` is a decimal"),
        (r#"{"notes_null":"yes"}"#, "`notes_null` must be true or false"),
        (r#"{"total_min":"ten"}"#, "`total_min` must be a decimal, such as `-12.50`"),
        (r#"{"ordered_on_min":"01/02/2026"}"#, "`ordered_on_min` must be a date such as `2026-02-11`"),
        (r#"{"city_contains":""}"#, "`city_contains` must be a string that is not empty"),
        (r#"{"sort":"totl"}"#, "unknown field `totl` in `sort`; did you mean `total`?"),
        (r#"{"fields":["totl"]}"#, "unknown field `totl` in `fields`; did you mean `total`?"),
        (r#"{"fields":[]}"#, "`fields` is empty; give at least one field, or omit it"),
        (r#"{"sort":["city","status","total","email","notes"]}"#, "`sort` has 5 fields; the limit is 4"),
    ] {
        assert_eq!(bound_filters(arguments), Err(expected.to_owned()), "{arguments}");
    }
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let arguments = format!("{{\"quantity\":[{}]}}", many.join(","));
    assert_eq!(bound_filters(&arguments), Err("`quantity` has 101 values; the limit is 100".to_owned()));
}

fn with_aggregate<T>(arguments: &str, then: impl FnOnce(&AggregateArguments<'_>) -> T) -> Result<T, String> {
    with_aggregate_of(&contract(), arguments, then)
}

fn with_aggregate_of<T>(
    contract: &Contract,
    arguments: &str,
    then: impl FnOnce(&AggregateArguments<'_>) -> T,
) -> Result<T, String> {
    let doc = parse(arguments.into(), &ParseLimits::default()).expect("valid");
    let ToolOperation::Aggregate { filters, .. } = &contract.tools[3].operation else {
        panic!("an aggregate")
    };
    bind::aggregate(Scope::new(&contract.collections, 0), filters, Some(doc.root()))
        .map(|bound| then(&bound))
        .map_err(|error| error.message)
}

fn measures(bound: &AggregateArguments<'_>) -> Vec<Measure<'static>> {
    bound.measures.iter().map(|bound| bound.measure).collect()
}

#[test]
fn an_aggregate_without_arguments_is_a_count() {
    let bound = with_aggregate("{}", |bound| (bound.names.clone(), measures(bound)));
    assert_eq!(bound, Ok((vec!["count".to_owned()], vec![Measure::Count])));
}

#[test]
fn groups_measures_having_and_sort_are_bound() {
    let arguments = r#"{"group":["status","ordered_on_month"],"measures":["sum_total"],"having":{"count_min":2},
        "sort":["-avg_total","status"],"limit":5,"status":"paid"}"#;
    with_aggregate(arguments, |bound| {
        assert_eq!(bound.names, ["status", "ordered_on_month", "sum_total", "count", "avg_total"]);
        assert_eq!(bound.groups[1].unit, Some(DateUnit::Month));
        let found: Vec<_> = measures(bound).iter().map(Measure::function).collect();
        assert_eq!(found, [Some(AggregateFunction::Sum), None, Some(AggregateFunction::Avg)]);
        let selection = bound.selection(5);
        assert_eq!((selection.having[0].measure, selection.having[0].comparison), (1, Comparison::AtLeast));
        let sort: Vec<SortTarget> = selection.sort.iter().map(|sort| sort.by).collect();
        assert_eq!(sort, [SortTarget::Measure(2), SortTarget::Group(0)]);
        assert_eq!((bound.limit, bound.filters.filters().len()), (Some(5), 1));
    })
    .expect("valid");
}

#[test]
fn aggregate_errors_say_what_to_do() {
    for (arguments, expected) in [
        (r#"{"group":"statuss"}"#, "unknown field `statuss` in `group`; did you mean `status`?"),
        (
            r#"{"group":"shipped_at"}"#,
            "`shipped_at` is a timestamp; group by one of shipped_at_year, shipped_at_quarter, shipped_at_month, shipped_at_week, shipped_at_day",
        ),
        (r#"{"group":"city_month"}"#, "`_month` needs a column of dates or timestamps; `city` is a text"),
        (r#"{"group":["city","status","email","notes"]}"#, "`group` has 4 fields; the limit is 3"),
        (
            r#"{"measures":"median_total"}"#,
            "unknown measure `median_total`; use `count`, or sum_, avg_, min_, max_ or distinct_ with a field's name",
        ),
        (
            r#"{"measures":"sum_city"}"#,
            "cannot compute `sum_city`: `city` is a text; `sum_` takes order_id, quantity, unit_price, discount, total",
        ),
        (r#"{"measures":"sum_totl"}"#, "unknown measure `sum_totl`; did you mean `sum_total`?"),
        (
            r#"{"having":{"count":2}}"#,
            "`having.count` must be a measure with `_min` or `_max`, such as `count_min`",
        ),
        (r#"{"having":{"count_min":"many"}}"#, "`having.count_min` must be a number, such as 100 or 12.5"),
        (r#"{"sort":"status"}"#, "`sort` names `status`, which is not in `group`"),
        (r#"{"statu":"paid"}"#, "unknown argument `statu`; did you mean `status`?"),
    ] {
        assert_eq!(with_aggregate(arguments, |_| ()), Err(expected.to_owned()), "{arguments}");
    }
}

#[test]
fn an_aggregate_is_about_the_declared_fields_only() {
    let declared = |keys: &str| compiled(&orders(), "orders.csv", &format!("[collections.orders]\n{keys}\n"));
    let some = declared("group = ['status', 'ordered_on']\nmeasures = ['quantity', 'city']");
    let none = declared("group = false\nmeasures = false");
    for (contract, arguments, expected) in [
        (&some, r#"{"group":["status","ordered_on_month"],"measures":"sum_quantity"}"#, Ok(())),
        (&some, r#"{"measures":["min_city","distinct_city","count"]}"#, Ok(())),
        (&some, r#"{"group":"city"}"#, Err("unknown field `city` in `group`; fields are status, ordered_on")),
        (
            &some,
            r#"{"measures":"sum_total"}"#,
            Err("this server computes no measures of `total`; `sum_` takes quantity"),
        ),
        (
            &some,
            r#"{"measures":"sum_city"}"#,
            Err("cannot compute `sum_city`: `city` is a text; `sum_` takes quantity"),
        ),
        (
            &some,
            r#"{"having":{"sum_total_min":1}}"#,
            Err("this server computes no measures of `total`; `sum_` takes quantity"),
        ),
        (&none, "{}", Ok(())),
        (&none, r#"{"status":"paid"}"#, Ok(())),
        (
            &none,
            r#"{"group":"status"}"#,
            Err("unknown field `status` in `group`; no field can be grouped by"),
        ),
        (
            &none,
            r#"{"measures":"max_total"}"#,
            Err("this server computes no measures of `total`; no field can be used for that; use `count`"),
        ),
    ] {
        let found = with_aggregate_of(contract, arguments, |_| ());
        assert_eq!(found, expected.map_err(str::to_owned), "{arguments}");
    }
    let description = |contract: &Contract| contract.tools[3].description.clone();
    assert!(description(&some).contains("Get counts, sums, averages"), "{}", description(&some));
    assert!(description(&none).contains("Get counts over all rows"), "{}", description(&none));
}

#[test]
fn the_days_of_an_aggregate_are_told_in_the_declared_time_zone() {
    for (server, expected) in [
        ("", " Dates are in UTC."),
        ("[server]\ntime_zone = 'Europe/Berlin'\n", " Dates are in Europe/Berlin."),
    ] {
        let contract = compiled(&orders(), "orders.csv", &format!("{server}[collections.orders]\n"));
        let description = &contract.tools[3].description;
        assert!(description.contains(expected), "{description}");
    }
}
