//! The limit of a read from PostgreSQL over HTTP: hyper, tokio-postgres, one prepared statement, and nothing between them.
//!
//! Takes the customer out of the request without parsing it, reads the row, and writes a `tools/call` response. It is not an MCP
//! server: it checks nothing. All requests share one connection, on which their statements follow each other without waiting.
//!
//! `peer-postgres URL --bind ADDR`

use std::sync::Arc;

use anyhow::Context;
use bench_peers::Transport;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};
use tokio_postgres::{Client, NoTls, Statement};

struct Database {
    client: Client,
    lookup: Statement,
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let url = args.first().context("expected a URL")?.clone();
    let Transport::Http(address) = bench_peers::parse_transport(&args)? else {
        anyhow::bail!("expected `URL --bind ADDR`")
    };
    bench_peers::block_on(async move {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(async move { drop(connection.await) });
        let lookup =
            client.prepare("SELECT email, plan, signup_date::text FROM customers WHERE email = $1").await?;
        let database = Arc::new(Database { client, lookup });
        bench_peers::serve(address, move |request| answer(Arc::clone(&database), request)).await
    })
}

async fn answer(database: Arc<Database>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let found = find(&database, request).await;
    let body = found.unwrap_or_else(|| r#"{"error":"no such customer"}"#.to_owned());
    let mut response = Response::new(Full::new(Bytes::from(body)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn find(database: &Database, request: Request<Incoming>) -> Option<String> {
    let body = request.into_body().collect().await.ok()?.to_bytes();
    let body = std::str::from_utf8(&body).ok()?;
    let (id, email) = (after(body, r#""id":"#, ',')?, after(body, r#""email":""#, '"')?);
    let row = database.client.query_opt(&database.lookup, &[&email]).await.ok()??;
    let (email, plan, date): (&str, &str, &str) =
        (row.try_get(0).ok()?, row.try_get(1).ok()?, row.try_get(2).ok()?);
    Some(format!(
        concat!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{{\"email\":\"{email}\","#,
            r#"\"plan\":\"{plan}\",\"signup_date\":\"{date}\"}}"}}],"structuredContent":{{"email":"{email}","#,
            r#""plan":"{plan}","signup_date":"{date}"}},"isError":false}}}}"#,
        ),
        id = id,
        email = email,
        plan = plan,
        date = date,
    ))
}

/// The text between `start` and `end`.
fn after<'a>(text: &'a str, start: &str, end: char) -> Option<&'a str> {
    let rest = &text[text.find(start)? + start.len()..];
    Some(&rest[..rest.find(end)?])
}
