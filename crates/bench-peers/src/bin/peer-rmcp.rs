//! rmcp 3.8, tuned: the official SDK at its best, with the work of the bench.
//!
//! What "tuned" means, each a choice its own documentation offers:
//! - the tool router is built once, in a static (the default of `#[tool_handler]` builds it per call);
//! - stateless modes answer with JSON and have no session manager;
//! - no SSE keep-alive timers, no resumption hints, one allowed host;
//! - hyper calls the service directly: no axum, no router, no clone of the service per request;
//! - `--stdio` uses the non-blocking pipe transport (`stdio_pipes`); with `--plain`, the usual one;
//! - `--csv FILE` reads the customers into memory at the start;
//! - `--sqlite FILE` reads one per call, on the thread of the call, through a prepared statement.
//!
//! `peer-rmcp --mode j25|m26|s25 --bind ADDR` or `peer-rmcp --stdio [--plain]`,
//! followed by `--csv FILE` or `--sqlite FILE`

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use anyhow::bail;
use bench_peers::{Customer, Customers as Rows, PLANS, Plan, Transport};
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::{Json, Parameters};
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler, ServiceExt, schemars, tool, tool_handler, tool_router};
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rows = match bench_peers::option_value(&args, "--csv") {
        Some(file) => bench_peers::read_customers(Path::new(&file))?,
        None => bench_peers::customers(),
    };
    CUSTOMERS.get_or_init(|| rows);
    if let Some(file) = bench_peers::option_value(&args, "--sqlite") {
        let database = Mutex::new(bench_peers::open_database(Path::new(&file))?);
        DATABASE.get_or_init(|| database);
    }
    LazyLock::force(&ROUTER);
    bench_peers::block_on(async {
        match bench_peers::parse_transport(&args)? {
            Transport::Stdio if args.iter().any(|arg| arg == "--plain") => {
                CustomerServer.serve(rmcp::transport::stdio()).await?.waiting().await?;
            }
            Transport::Stdio => {
                CustomerServer.serve(rmcp::transport::stdio_pipes()).await?.waiting().await?;
            }
            Transport::Http(at) => match bench_peers::option_value(&args, "--mode").as_deref() {
                Some("j25" | "m26") => serve_http(at, NeverSessionManager::default(), stateless()).await?,
                Some("s25") => {
                    let mut sessions = LocalSessionManager::default();
                    sessions.session_config.sse_retry = None;
                    serve_http(at, sessions, stateful()).await?;
                }
                other => bail!("expected `--mode j25|m26|s25`, not {other:?}"),
            },
        }
        Ok(())
    })
}

async fn serve_http(
    at: std::net::SocketAddr,
    sessions: impl SessionManager,
    config: StreamableHttpServerConfig,
) -> anyhow::Result<()> {
    let service = Arc::new(StreamableHttpService::new(|| Ok(CustomerServer), Arc::new(sessions), config));
    bench_peers::serve(at, move |request| {
        let service = Arc::clone(&service);
        async move { service.handle(request).await }
    })
    .await
}

/// 2025-11-25 and 2026-07-28 without a session: one JSON answer per request.
fn stateless() -> StreamableHttpServerConfig {
    stateful().with_legacy_session_mode(false).with_json_response(true)
}

/// 2025-11-25 with a session. rmcp answers these with an event stream; it has no JSON for them.
fn stateful() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .with_sse_keep_alive(None)
        .with_sse_retry(None)
        .with_allowed_hosts(["127.0.0.1"])
}

static CUSTOMERS: OnceLock<Rows> = OnceLock::new();
/// Customers are looked up here if `--sqlite` is given.
static DATABASE: OnceLock<Mutex<Connection>> = OnceLock::new();
static ROUTER: LazyLock<ToolRouter<CustomerServer>> = LazyLock::new(CustomerServer::tool_router);

/// The customer server. Its state is in statics, so that a service per request costs nothing.
struct CustomerServer;

#[tool_handler(router = ROUTER, name = "peer-rmcp")]
impl ServerHandler for CustomerServer {}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct ByEmail {
    /// The customer's email address
    email: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct ByPlan {
    /// Only customers of this plan
    plan: Option<String>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanName {
    /// The plan's name
    plan: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Page {
    /// How many to skip
    offset: Option<usize>,
    /// How many to list
    limit: Option<usize>,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct ByMonth {
    /// The customer's email address
    email: String,
    /// The month, as YYYY-MM
    month: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct ByYear {
    /// The year
    year: i64,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Upgrade {
    /// The customer's email address
    email: String,
    /// The plan to change to
    plan: String,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Plans {
    plans: Vec<Plan>,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Customers {
    customers: Vec<Customer>,
    total: usize,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Count {
    count: usize,
}

#[derive(Serialize, schemars::JsonSchema)]
struct YearCount {
    year: i64,
    count: usize,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Amount {
    amount_cents: i64,
    currency: &'static str,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Invoice {
    email: String,
    month: String,
    amount_cents: i64,
    currency: &'static str,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Renewal {
    email: String,
    day_of_month: u8,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Quote {
    email: String,
    difference_cents: i64,
    currency: &'static str,
}

const CURRENCY: &str = "EUR";

fn customers() -> &'static Rows {
    CUSTOMERS.get_or_init(bench_peers::customers)
}

fn customer(email: &str) -> Result<&'static Customer, ErrorData> {
    customers().get(email).ok_or_else(unknown_customer)
}

fn unknown_customer() -> ErrorData {
    ErrorData::invalid_params("no customer has this address", None)
}

fn lookup_in_database(database: &Mutex<Connection>, email: &str) -> Result<Customer, ErrorData> {
    const ONE: &str = "SELECT email, plan, signup_date FROM customers WHERE email = ?1";
    let database = database.lock().unwrap_or_else(PoisonError::into_inner);
    let row = database.prepare_cached(ONE).and_then(|mut statement| {
        let customer = statement.query_row([email], |row| {
            Ok(Customer { email: row.get(0)?, plan: row.get(1)?, signup_date: row.get(2)? })
        });
        customer.optional()
    });
    row.map_err(|error| ErrorData::internal_error(error.to_string(), None))?.ok_or_else(unknown_customer)
}

fn plan(name: &str) -> Result<Plan, ErrorData> {
    let found = PLANS.into_iter().find(|plan| plan.name == name);
    found.ok_or_else(|| ErrorData::invalid_params("there is no such plan", None))
}

fn customers_on_plan(plan: Option<&str>) -> impl Iterator<Item = &'static Customer> {
    customers().values().filter(move |row| plan.is_none_or(|plan| row.plan == plan))
}

#[tool_router]
impl CustomerServer {
    #[tool(description = "Look up a customer by email address")]
    fn lookup_customer(
        &self,
        Parameters(ByEmail { email }): Parameters<ByEmail>,
    ) -> Result<Json<Cow<'static, Customer>>, ErrorData> {
        match DATABASE.get() {
            Some(database) => lookup_in_database(database, &email).map(|row| Json(Cow::Owned(row))),
            None => customer(&email).map(|row| Json(Cow::Borrowed(row))),
        }
    }

    #[tool(description = "List all plans with their prices")]
    fn list_plans(&self, Parameters(Nothing {}): Parameters<Nothing>) -> Json<Plans> {
        Json(Plans { plans: PLANS.to_vec() })
    }

    #[tool(description = "Get one plan by its name")]
    fn get_plan(
        &self,
        Parameters(PlanName { plan: name }): Parameters<PlanName>,
    ) -> Result<Json<Plan>, ErrorData> {
        plan(&name).map(Json)
    }

    #[tool(description = "Count the customers, all of them or those of one plan")]
    fn count_customers(&self, Parameters(ByPlan { plan }): Parameters<ByPlan>) -> Json<Count> {
        Json(Count { count: customers_on_plan(plan.as_deref()).count() })
    }

    #[tool(description = "List customers in the order they signed up, one page at a time")]
    fn list_customers(&self, Parameters(Page { offset, limit }): Parameters<Page>) -> Json<Customers> {
        let emails = (0..bench_peers::CUSTOMERS).skip(offset.unwrap_or(0)).take(limit.unwrap_or(10).min(100));
        let customers = emails.filter_map(|n| customers().get(&bench_peers::email(n)).cloned()).collect();
        Json(Customers { customers, total: bench_peers::CUSTOMERS })
    }

    #[tool(description = "Get a customer's invoice for one month")]
    fn get_invoice(
        &self,
        Parameters(ByMonth { email, month }): Parameters<ByMonth>,
    ) -> Result<Json<Invoice>, ErrorData> {
        let amount_cents = plan(&customer(&email)?.plan)?.monthly_cents;
        Ok(Json(Invoice { email, month, amount_cents, currency: CURRENCY }))
    }

    #[tool(description = "On which day of the month a customer's plan renews")]
    fn next_renewal(
        &self,
        Parameters(ByEmail { email }): Parameters<ByEmail>,
    ) -> Result<Json<Renewal>, ErrorData> {
        let day_of_month = customer(&email)?.signup_date[8..].parse().unwrap_or(1);
        Ok(Json(Renewal { email, day_of_month }))
    }

    #[tool(description = "Count the customers who signed up in one year")]
    fn count_signups(&self, Parameters(ByYear { year }): Parameters<ByYear>) -> Json<YearCount> {
        let start = format!("{year:04}-");
        let count = customers().values().filter(|row| row.signup_date.starts_with(&start)).count();
        Json(YearCount { year, count })
    }

    #[tool(description = "What all customers, or those of one plan, pay per month")]
    fn monthly_revenue(
        &self,
        Parameters(ByPlan { plan: name }): Parameters<ByPlan>,
    ) -> Result<Json<Amount>, ErrorData> {
        let mut amount_cents = 0;
        for row in customers_on_plan(name.as_deref()) {
            amount_cents += plan(&row.plan)?.monthly_cents;
        }
        Ok(Json(Amount { amount_cents, currency: CURRENCY }))
    }

    #[tool(description = "What a customer would pay more per month on another plan")]
    fn quote_upgrade(
        &self,
        Parameters(Upgrade { email, plan: name }): Parameters<Upgrade>,
    ) -> Result<Json<Quote>, ErrorData> {
        let difference_cents = plan(&name)?.monthly_cents - plan(&customer(&email)?.plan)?.monthly_cents;
        Ok(Json(Quote { email, difference_cents, currency: CURRENCY }))
    }
}
