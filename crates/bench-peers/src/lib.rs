//! Code that the bench peers share: the customer data, its sources, and an HTTP listener.
//!
//! For development only. Nothing here depends on Spile; the bench runs these servers for comparison.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, bail};
use hashbrown::HashMap;
use http_body::Body;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rmcp::schemars;
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// What the floors answer: of the size of a real `tools/call` response.
pub const CANNED_ANSWER: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1000000,"result":{"content":[{"type":"text","text":"{\"email\":"#,
    r#"\"user1000@example.com\",\"plan\":\"enterprise\",\"signup_date\":\"2021-05-20\"}"}],"#,
    r#""structuredContent":{"email":"user1000@example.com","plan":"enterprise","signup_date":"#,
    r#""2021-05-20"},"isError":false,"resultType":"complete","_meta":{"#,
    r#""io.modelcontextprotocol/serverInfo":{"name":"floor","version":"0.1.0"}}}}"#,
);

/// How many customers there are: `user0@example.com` to `user9999@example.com`.
pub const CUSTOMERS: usize = 10_000;

/// One row of the table every peer of the bench looks up.
#[derive(Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
pub struct Customer {
    pub email: String,
    pub plan: String,
    pub signup_date: String,
}

#[derive(Clone, Copy, Debug, Serialize, schemars::JsonSchema)]
pub struct Plan {
    pub name: &'static str,
    pub monthly_cents: i64,
    pub seats: i64,
}

pub const PLANS: [Plan; 3] = [
    Plan { name: "free", monthly_cents: 0, seats: 1 },
    Plan { name: "emerald", monthly_cents: 1900, seats: 5 },
    Plan { name: "ruby", monthly_cents: 9900, seats: 50 },
];

/// Customers by email, in the same kind of map that the product's fixture uses.
pub type Customers = HashMap<String, Customer, foldhash::fast::RandomState>;

pub fn customers() -> Customers {
    by_email((0..CUSTOMERS).map(Customer::from_index))
}

/// The customers of a CSV file with a header.
pub fn read_customers(file: &Path) -> anyhow::Result<Customers> {
    let mut reader =
        csv::Reader::from_path(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let rows: Result<Vec<Customer>, _> = reader.deserialize().collect();
    Ok(by_email(rows?.into_iter()))
}

fn by_email(rows: impl Iterator<Item = Customer>) -> Customers {
    rows.map(|row| (row.email.clone(), row)).collect()
}

/// Opens a database read-only.
pub fn open_database(file: &Path) -> anyhow::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(file, flags).with_context(|| format!("cannot open `{}`", file.display()))
}

impl Customer {
    /// The same values as in the product's fixture.
    pub fn from_index(n: usize) -> Customer {
        // A thousand per year, 84 per month, three per day: in order, and every date is valid.
        let (year, month, day) = (2016 + n / 1000, 1 + n % 1000 / 84, 1 + n % 1000 % 84 / 3);
        Customer {
            email: email(n),
            plan: PLANS[n % PLANS.len()].name.to_owned(),
            signup_date: format!("{year:04}-{month:02}-{day:02}"),
        }
    }
}

pub fn email(n: usize) -> String {
    format!("user{n}@example.com")
}

/// The transport that the command line selects.
pub enum Transport {
    Http(SocketAddr),
    Stdio,
}

/// The value after `name` on the command line.
pub fn option_value(args: &[String], name: &str) -> Option<String> {
    let index = args.iter().position(|arg| arg == name)?;
    args.get(index + 1).cloned()
}

/// Reads `--bind ADDR` or `--stdio`.
pub fn parse_transport(args: &[String]) -> anyhow::Result<Transport> {
    if args.iter().any(|arg| arg == "--stdio") {
        return Ok(Transport::Stdio);
    }
    match option_value(args, "--bind") {
        Some(address) => {
            Ok(Transport::Http(address.parse().with_context(|| format!("`{address}` is not an address"))?))
        }
        None => bail!("expected `--bind ADDR` or `--stdio`"),
    }
}

/// One thread runs everything, because the bench pins a server to one core.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Serves HTTP/1.1 and calls `answer` for every request, until the process is stopped.
pub async fn serve<A, F, B>(address: SocketAddr, answer: A) -> anyhow::Result<()>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, std::convert::Infallible>(answer.await) }
            });
            // A client that disconnects is not an error.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
