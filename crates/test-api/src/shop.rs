//! The API of a small shop: customers and orders, with pages of every style, filters, changes, and refunds that happen once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

use crate::{ApiRequest, ApiResponse};

/// The token that the API accepts.
pub const TOKEN: &str = "shop-token";
const PAGE_SIZE_MAX: usize = 4;

/// The state of the shop. [`Shop::answer`] is its API.
pub struct Shop(Mutex<State>);

struct State {
    customers: Vec<Value>,
    orders: Vec<Value>,
    /// Answers to writes, by idempotency key.
    answers: HashMap<String, (u16, Value)>,
    refunds: usize,
}

impl Default for Shop {
    fn default() -> Self {
        let customers = [
            ("anna@example.test", "Anna", "CH"),
            ("bela@example.test", "Béla", "HU"),
            ("chi@example.test", "Chi", "VN"),
        ];
        let customers = customers.iter().map(|(email, name, country)| {
            json!({ "email": email, "name": name, "address": { "country": country } })
        });
        let order = |(id, customer, status, total, created): (u64, &str, &str, &str, &str)| {
            json!({
                "id": id,
                "customer": customer,
                "status": status,
                "total": total.parse::<f64>().expect("a number"),
                "created_at": created,
                "lines": [{ "sku": format!("sku-{id}"), "quantity": id % 3 + 1 }],
                "internal_note": "not for callers",
            })
        };
        let orders = [
            (1, "anna@example.test", "paid", "19.5", "2026-01-03T10:00:00Z"),
            (2, "anna@example.test", "open", "5.25", "2026-01-09T12:30:00Z"),
            (3, "bela@example.test", "paid", "100", "2026-02-01T00:00:00Z"),
            (4, "chi@example.test", "cancelled", "7.75", "2026-02-14T09:15:00Z"),
            (5, "bela@example.test", "paid", "42", "2026-03-01T23:59:59Z"),
            (6, "anna@example.test", "paid", "3.5", "2026-03-02T08:00:00Z"),
            (7, "chi@example.test", "open", "60", "2026-03-05T18:45:00Z"),
        ];
        let orders = orders.map(order).to_vec();
        Self(Mutex::new(State {
            customers: customers.collect(),
            orders,
            answers: HashMap::new(),
            refunds: 0,
        }))
    }
}

impl Shop {
    /// How many refunds really happened.
    pub fn refunds(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refunds
    }

    pub fn answer(&self, request: &ApiRequest) -> ApiResponse {
        if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return failure(401, "no valid token");
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = request.header("idempotency-key").map(str::to_owned);
        if let Some((status, answer)) = key.as_ref().and_then(|key| state.answers.get(key)) {
            return respond(*status, answer);
        }
        let (status, answer, headers) = state.answer(request);
        if let (Some(key), true) = (key, request.method != "GET") {
            state.answers.insert(key, (status, answer.clone()));
        }
        headers
            .into_iter()
            .fold(respond(status, &answer), |response, (name, value)| response.with_header(&name, value))
    }
}

type Answer = (u16, Value, Vec<(String, String)>);

impl State {
    fn answer(&mut self, request: &ApiRequest) -> Answer {
        let segments = request.segments();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let plain = |(status, answer): (u16, Value)| (status, answer, Vec::new());
        match (request.method.as_str(), segments.as_slice()) {
            ("GET", ["v1", "customers"]) => (200, json!(self.customers), Vec::new()),
            ("GET", ["v1", "customers", email]) => plain(find(&self.customers, "email", email)),
            ("GET", ["v1", "orders"]) => self.list_orders(request),
            ("GET", ["v1", "orders", id]) => plain(find(&self.orders, "id", id)),
            ("POST", ["v1", "orders"]) => plain(self.create(request)),
            ("PATCH" | "PUT", ["v1", "orders", id]) => plain(self.update(request, id)),
            ("DELETE", ["v1", "orders", id]) => {
                let before = self.orders.len();
                self.orders.retain(|order| !has_value(order, "id", id));
                plain(if self.orders.len() < before { (204, Value::Null) } else { missing() })
            }
            ("POST", ["v1", "orders", id, "refund"]) => plain(self.refund(request, id)),
            _ => plain(missing()),
        }
    }

    fn list_orders(&self, request: &ApiRequest) -> Answer {
        let is_in = |order: &&Value| {
            request.parameter("status").is_none_or(|status| order["status"] == status)
                && request.parameter("customer").is_none_or(|customer| order["customer"] == customer)
                && request
                    .parameter("created_after")
                    .is_none_or(|after| order["created_at"].as_str().is_some_and(|created| created >= after))
        };
        let orders: Vec<&Value> = self.orders.iter().filter(is_in).collect();
        let number = |name: &str| request.parameter(name).and_then(|text| text.parse::<usize>().ok());
        let size = number("per_page").unwrap_or(PAGE_SIZE_MAX).min(PAGE_SIZE_MAX);
        let start = match (number("page"), number("offset"), request.parameter("cursor")) {
            (Some(page), ..) => page.saturating_sub(1) * size,
            (_, Some(offset), _) => offset,
            (_, _, Some(cursor)) => cursor.trim_start_matches('c').parse().unwrap_or(usize::MAX),
            _ => 0,
        };
        let page: Vec<&&Value> = orders.iter().skip(start).take(size).collect();
        let end = start.saturating_add(page.len());
        let next = (end < orders.len()).then(|| format!("c{end}"));
        let answer = json!({
            "data": page,
            "meta": { "next_cursor": next, "total": orders.len(), "has_more": end < orders.len() },
        });
        let link = next.map(|_| {
            let host = request.header("host").unwrap_or("localhost");
            ("Link".to_owned(), format!("<http://{host}/v1/orders?offset={end}>; rel=\"next\""))
        });
        (200, answer, link.into_iter().collect())
    }

    fn create(&mut self, request: &ApiRequest) -> (u16, Value) {
        let Ok(Value::Object(given)) = serde_json::from_slice(&request.body) else {
            return invalid("not an object");
        };
        if !given.get("customer").is_some_and(Value::is_string) {
            return invalid("an order needs a customer");
        }
        let id = self.orders.iter().filter_map(|order| order["id"].as_u64()).max().unwrap_or(0) + 1;
        let mut order = Map::new();
        order.insert("id".into(), json!(id));
        order.insert("status".into(), json!("open"));
        order.insert("created_at".into(), json!("2026-04-01T00:00:00Z"));
        order.extend(given);
        self.orders.push(Value::Object(order.clone()));
        (201, Value::Object(order))
    }

    fn update(&mut self, request: &ApiRequest, id: &str) -> (u16, Value) {
        let Ok(Value::Object(given)) = serde_json::from_slice(&request.body) else {
            return invalid("not an object");
        };
        if given
            .get("status")
            .is_some_and(|status| !matches!(status.as_str(), Some("open" | "paid" | "cancelled")))
        {
            return invalid("unknown status");
        }
        let Some(order) = self.orders.iter_mut().find(|order| has_value(order, "id", id)) else {
            return missing();
        };
        let Value::Object(members) = order else { return missing() };
        members.extend(given);
        (200, order.clone())
    }

    fn refund(&mut self, request: &ApiRequest, id: &str) -> (u16, Value) {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let Some(order) = self.orders.iter().find(|order| has_value(order, "id", id)) else {
            return missing();
        };
        if order["status"] != "paid" {
            return (409, json!({ "error": { "message": format!("order {id} is not paid") } }));
        }
        self.refunds += 1;
        let amount = body.get("amount").cloned().unwrap_or_else(|| order["total"].clone());
        (200, json!({ "data": { "refund": self.refunds, "order": order["id"], "amount": amount } }))
    }
}

fn find(records: &[Value], key: &str, value: &str) -> (u16, Value) {
    let found = records.iter().find(|record| has_value(record, key, value));
    found.map_or_else(missing, |record| (200, record.clone()))
}

/// Whether a member of a record has this value, as a path spells it.
fn has_value(record: &Value, key: &str, value: &str) -> bool {
    match &record[key] {
        Value::String(text) => text == value,
        Value::Number(number) => number.as_u64() == value.parse().ok(),
        _ => false,
    }
}

fn missing() -> (u16, Value) {
    (404, json!({ "error": { "message": "not found" } }))
}

fn invalid(message: &str) -> (u16, Value) {
    (422, json!({ "error": { "message": message } }))
}

fn failure(status: u16, message: &str) -> ApiResponse {
    respond(status, &json!({ "error": { "message": message } }))
}

fn respond(status: u16, answer: &Value) -> ApiResponse {
    let body = if status == 204 { Vec::new() } else { answer.to_string().into_bytes() };
    ApiResponse::new(status, body).with_header("Content-Type", "application/json")
}
