//! Ten small tools over ten thousand in-memory customers: measures the cost around a tool that costs nothing.
//!
//! `lookup_customer` is the tool that the bench calls: one keyed lookup, one object written once. The others are
//! what such a server would have beside it. [`BenchProvider::with_tools`] adds fillers, to show that a call costs
//! the same among a thousand tools. No I/O, no input requests, no futures: every call returns at once.

use std::sync::Arc;

use hashbrown::HashMap;
use json::{Json, write};
use spile_core::{
    Call, CallContext, CallError, CallTarget, Catalog, ItemKind, Provider, Run, Tool, ToolError,
    ToolErrorCode, ToolResult,
};

/// The bench provider.
pub struct BenchProvider {
    catalog: Arc<Catalog>,
    // Callers cannot choose the keys, so they cannot cause collisions. The seed is fixed, so that a call takes the
    // same number of instructions in every run.
    customers: HashMap<Box<str>, Customer, foldhash::fast::FixedState>,
}

struct Customer {
    plan: &'static Plan,
    /// `YYYY-MM-DD`.
    signup_date: Box<str>,
}

struct Plan {
    name: &'static str,
    monthly_cents: i64,
    seats: i64,
}

const PLANS: [Plan; 3] = [
    Plan { name: "free", monthly_cents: 0, seats: 1 },
    Plan { name: "emerald", monthly_cents: 1900, seats: 5 },
    Plan { name: "ruby", monthly_cents: 9900, seats: 50 },
];

const CUSTOMERS: usize = 10_000;

impl Default for BenchProvider {
    fn default() -> Self {
        Self::with_tools(TOOLS.len())
    }
}

impl BenchProvider {
    /// The first `count` of the ten tools, then fillers.
    pub fn with_tools(count: usize) -> Self {
        let fillers = (0..count.saturating_sub(TOOLS.len())).map(|i| {
            Tool::new(
                &format!("{FILLER}{i:04}"),
                "Does nothing, among many",
                parse_constant(r#"{"type":"object"}"#),
            )
        });
        let tools = TOOLS.iter().take(count).map(ToolSpec::tool).chain(fillers).collect();
        let customers = (0..CUSTOMERS).map(|i| (email_of(i).into(), Customer::from_index(i))).collect();
        Self { catalog: Arc::new(Catalog { tools, ..Catalog::default() }), customers }
    }

    fn customer(&self, email: &str) -> Result<&Customer, Box<ToolError>> {
        self.customers.get(email).ok_or_else(|| not_found("email", "no customer has this address"))
    }

    fn customers_on_plan(&self, call: &Call) -> impl Iterator<Item = &Customer> {
        let plan = call.text_argument("plan").map(|plan| plan.into_owned());
        self.customers.values().filter(move |c| plan.as_ref().is_none_or(|plan| c.plan.name == plan))
    }
}

impl Provider for BenchProvider {
    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    /// As compiled contracts do. The servers that it is compared with check no output either.
    fn guarantees_output_schemas(&self) -> bool {
        true
    }

    fn run(&self, call: &Call, _: &CallContext<'_>) -> Run {
        let name = call.name();
        if call.target != CallTarget::Tool {
            return Run::now(CallError::UnknownItem { kind: ItemKind::Tool, name: name.into_owned() });
        }
        // Ten comparisons at most; one for the tool that the bench calls.
        if let Some(row) = TOOLS.iter().find(|row| row.name == name) {
            return (row.run)(self, call).map_or_else(|problem| Run::now(*problem), Run::now);
        }
        match name.strip_prefix(FILLER) {
            Some(number) => Run::now(ToolResult::text(format!("filler {number} did nothing"))),
            None => Run::now(CallError::UnknownItem { kind: ItemKind::Tool, name: name.into_owned() }),
        }
    }
}

const FILLER: &str = "filler_";

/// A result, or a tool error.
type ToolReturn = Result<ToolResult, Box<ToolError>>;

struct ToolSpec {
    name: &'static str,
    description: &'static str,
    input: &'static str,
    output: &'static str,
    run: fn(&BenchProvider, &Call) -> ToolReturn,
}

impl ToolSpec {
    fn tool(&self) -> Tool {
        let tool = Tool::new(self.name, self.description, parse_constant(self.input));
        Tool { output_schema: Some(parse_constant(self.output)), ..tool }
    }
}

static TOOLS: [ToolSpec; 10] = [
    ToolSpec {
        name: "lookup_customer",
        description: "Look up a customer by email address",
        input: r#"{"type":"object","properties":{
            "email":{"type":"string","description":"The customer's email address"}
        },"required":["email"],"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{
            "email":{"type":"string"},
            "plan":{"type":"string","enum":["free","emerald","ruby"]},
            "signup_date":{"type":"string","format":"date"}
        },"required":["email","plan","signup_date"]}"#,
        run: lookup_customer,
    },
    ToolSpec {
        name: "list_plans",
        description: "List all plans with their prices",
        input: r#"{"type":"object","additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{
            "plans":{"type":"array","items":{"type":"object","required":["name","monthly_cents","seats"]}}
        },"required":["plans"]}"#,
        run: |_, _| Ok(structured_result(|o| _ = o.array("plans", &PLANS, write_plan))),
    },
    ToolSpec {
        name: "get_plan",
        description: "Get one plan by its name",
        input: r#"{"type":"object","properties":{
            "plan":{"type":"string","description":"The plan's name","enum":["free","emerald","ruby"]}
        },"required":["plan"],"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{
            "name":{"type":"string"},"monthly_cents":{"type":"integer"},"seats":{"type":"integer"}
        },"required":["name","monthly_cents","seats"]}"#,
        run: get_plan,
    },
    ToolSpec {
        name: "count_customers",
        description: "Count the customers, all of them or those of one plan",
        input: r#"{"type":"object","properties":{
            "plan":{"type":"string","description":"Only customers of this plan"}
        },"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"]}"#,
        run: |bench, call| {
            Ok(structured_result(|o| _ = o.int("count", bench.customers_on_plan(call).count() as i64)))
        },
    },
    ToolSpec {
        name: "list_customers",
        description: "List customers in the order they signed up, one page at a time",
        input: r#"{"type":"object","properties":{
            "offset":{"type":"integer","description":"How many to skip","minimum":0},
            "limit":{"type":"integer","description":"How many to list","minimum":1,"maximum":100}
        },"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{
            "customers":{"type":"array","items":{"type":"object","required":["email","plan","signup_date"]}},
            "total":{"type":"integer"}
        },"required":["customers","total"]}"#,
        run: list_customers,
    },
    ToolSpec {
        name: "get_invoice",
        description: "Get a customer's invoice for one month",
        input: r#"{"type":"object","properties":{
            "email":{"type":"string","description":"The customer's email address"},
            "month":{"type":"string","description":"The month, as YYYY-MM","pattern":"^[0-9]{4}-[0-9]{2}$"}
        },"required":["email","month"],"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{
            "email":{"type":"string"},"month":{"type":"string"},
            "amount_cents":{"type":"integer"},"currency":{"type":"string"}
        },"required":["email","month","amount_cents","currency"]}"#,
        run: get_invoice,
    },
    ToolSpec {
        name: "next_renewal",
        description: "On which day of the month a customer's plan renews",
        input: r#"{"type":"object","properties":{
            "email":{"type":"string","description":"The customer's email address"}
        },"required":["email"],"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{
            "email":{"type":"string"},"day_of_month":{"type":"integer","minimum":1,"maximum":31}
        },"required":["email","day_of_month"]}"#,
        run: next_renewal,
    },
    ToolSpec {
        name: "count_signups",
        description: "Count the customers who signed up in one year",
        input: r#"{"type":"object","properties":{
            "year":{"type":"integer","description":"The year"}
        },"required":["year"],"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{
            "year":{"type":"integer"},"count":{"type":"integer"}
        },"required":["year","count"]}"#,
        run: count_signups,
    },
    ToolSpec {
        name: "monthly_revenue",
        description: "What all customers, or those of one plan, pay per month",
        input: r#"{"type":"object","properties":{
            "plan":{"type":"string","description":"Only customers of this plan"}
        },"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{
            "amount_cents":{"type":"integer"},"currency":{"type":"string"}
        },"required":["amount_cents","currency"]}"#,
        run: |bench, call| {
            let amount = bench.customers_on_plan(call).map(|c| c.plan.monthly_cents).sum();
            Ok(structured_result(|o| _ = o.int("amount_cents", amount).str("currency", CURRENCY)))
        },
    },
    ToolSpec {
        name: "quote_upgrade",
        description: "What a customer would pay more per month on another plan",
        input: r#"{"type":"object","properties":{
            "email":{"type":"string","description":"The customer's email address"},
            "plan":{"type":"string","description":"The plan to change to","enum":["free","emerald","ruby"]}
        },"required":["email","plan"],"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{
            "email":{"type":"string"},"difference_cents":{"type":"integer"},"currency":{"type":"string"}
        },"required":["email","difference_cents","currency"]}"#,
        run: quote_upgrade,
    },
];

fn lookup_customer(bench: &BenchProvider, call: &Call) -> ToolReturn {
    let email = call.text_argument("email").unwrap_or_default();
    let customer = bench.customer(&email)?;
    let mut out = Vec::with_capacity(128);
    write_customer(&mut out, &email, customer);
    Ok(ToolResult::structured(Json::from_written_bytes(out)))
}

fn get_plan(_: &BenchProvider, call: &Call) -> ToolReturn {
    let mut out = Vec::with_capacity(64);
    write_plan(&mut out, plan_argument(call)?);
    Ok(ToolResult::structured(Json::from_written_bytes(out)))
}

fn list_customers(bench: &BenchProvider, call: &Call) -> ToolReturn {
    let number = |name| call.arguments()?.get(name)?.u64().map(|n| n as usize);
    let offset = number("offset").unwrap_or(0).min(CUSTOMERS);
    let end = (offset + number("limit").unwrap_or(10).min(100)).min(CUSTOMERS);
    let emails = (offset..end).map(email_of);
    Ok(structured_result(|o| {
        o.array("customers", emails, |out, email| {
            if let Some(customer) = bench.customers.get(email.as_str()) {
                write_customer(out, &email, customer);
            }
        });
        o.int("total", CUSTOMERS as i64);
    }))
}

fn get_invoice(bench: &BenchProvider, call: &Call) -> ToolReturn {
    let email = call.text_argument("email").unwrap_or_default();
    let customer = bench.customer(&email)?;
    let month = call.text_argument("month").unwrap_or_default();
    if month.as_ref() < &customer.signup_date[..7] {
        return Err(not_found("month", "the customer had not signed up yet"));
    }
    Ok(structured_result(|o| {
        o.str("email", &email).str("month", &month);
        o.int("amount_cents", customer.plan.monthly_cents).str("currency", CURRENCY);
    }))
}

fn next_renewal(bench: &BenchProvider, call: &Call) -> ToolReturn {
    let email = call.text_argument("email").unwrap_or_default();
    let day = bench.customer(&email)?.signup_date[8..].parse().expect("a date ends in its day");
    Ok(structured_result(|o| _ = o.str("email", &email).int("day_of_month", day)))
}

fn count_signups(bench: &BenchProvider, call: &Call) -> ToolReturn {
    let year = call.arguments().and_then(|arguments| arguments.get("year")).and_then(|year| year.u64());
    let year = i64::try_from(year.unwrap_or(0)).unwrap_or(0);
    let start = format!("{year:04}-");
    let count = bench.customers.values().filter(|c| c.signup_date.starts_with(&start)).count();
    Ok(structured_result(|o| _ = o.int("year", year).int("count", count as i64)))
}

fn quote_upgrade(bench: &BenchProvider, call: &Call) -> ToolReturn {
    let email = call.text_argument("email").unwrap_or_default();
    let difference = plan_argument(call)?.monthly_cents - bench.customer(&email)?.plan.monthly_cents;
    Ok(structured_result(|o| {
        o.str("email", &email);
        o.int("difference_cents", difference).str("currency", CURRENCY);
    }))
}

const CURRENCY: &str = "EUR";

impl Customer {
    fn from_index(i: usize) -> Self {
        // A thousand sign-ups a year, 84 a month, three a day: in order, and only days that every month has.
        let (year, month, day) = (2016 + i / 1000, 1 + i % 1000 / 84, 1 + i % 1000 % 84 / 3);
        Self { plan: &PLANS[i % 3], signup_date: format!("{year:04}-{month:02}-{day:02}").into() }
    }
}

fn email_of(i: usize) -> String {
    format!("user{i}@example.com")
}

fn plan_argument(call: &Call) -> Result<&'static Plan, Box<ToolError>> {
    let name = call.text_argument("plan").unwrap_or_default();
    PLANS.iter().find(|plan| plan.name == name).ok_or_else(|| not_found("plan", "there is no such plan"))
}

fn not_found(field: &str, message: &str) -> Box<ToolError> {
    Box::new(ToolError { field: Some(field.into()), ..ToolError::new(ToolErrorCode::NotFound, message) })
}

fn structured_result(fill: impl FnOnce(&mut write::ObjectWriter<'_>)) -> ToolResult {
    ToolResult::structured(Json::object(fill))
}

/// The keys are constant, so they need no escaping.
#[inline]
fn write_customer(out: &mut Vec<u8>, email: &str, customer: &Customer) {
    for (key, value) in [
        (r#"{"email":"#, email),
        (r#","plan":"#, customer.plan.name),
        (r#","signup_date":"#, &customer.signup_date),
    ] {
        out.extend_from_slice(key.as_bytes());
        write::string(out, value);
    }
    out.push(b'}');
}

fn write_plan(out: &mut Vec<u8>, plan: &Plan) {
    let mut object = write::ObjectWriter::new(out);
    object.str("name", plan.name).int("monthly_cents", plan.monthly_cents).int("seats", plan.seats);
    object.end();
}

/// A JSON constant of this source file.
fn parse_constant(text: &str) -> Json {
    Json::parse(text).expect("a constant of the fixture is valid JSON")
}
