//! The requests of the bench, and how their responses are checked.
//!
//! A request is a template with placeholders of fixed width for the id and the customer, so that the next one costs
//! the driver two small copies. Ids have seven digits and customers four.

use anyhow::{bail, ensure};
use memchr::memmem;

/// The protocol version and session mode of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// 2026-07-28: `_meta` and Mcp-* headers.
    M26,
    /// 2025-11-25 by its header alone, without a session.
    J25,
    /// 2025-11-25 with a session.
    S25,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Protocol::M26 => "m26",
            Protocol::J25 => "j25",
            Protocol::S25 => "s25",
        }
    }
}

/// The method that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Call,
    List,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Call => "call",
            Operation::List => "list",
        }
    }
}

/// Which responses are correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expectation {
    /// The canned response of the floor.
    Canned,
    /// This id, no error, this customer.
    Customer,
    /// The same without structured content: the customer is JSON in a text.
    CustomerText,
    /// This id, no error, a list of tools.
    Tools,
    /// A session, or a refusal to open more of them.
    Session,
    /// The acknowledgement that opens a listen stream.
    Acknowledged,
}

/// A request that can be repeated.
#[derive(Clone)]
pub struct RequestTemplate {
    bytes: Vec<u8>,
    id_offset: usize,
    customer_offset: Option<usize>,
    expectation: Expectation,
}

const ID: &str = "1000000";
const ID_FIRST: u64 = 1_000_000;
const ID_COUNT: u64 = 9_000_000;
const CUSTOMER: &str = "user1000";
const META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},"#,
    r#""io.modelcontextprotocol/clientCapabilities":{}}"#,
);

pub const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1000000,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}}}"#,
);
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

impl RequestTemplate {
    /// `work` over HTTP, a call with `tool`, on a session if the mode has one.
    pub fn http(work: Operation, dress: Protocol, tool: &str, session: Option<&str>) -> RequestTemplate {
        let headers = match (dress, work) {
            (Protocol::M26, Operation::Call) => {
                format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n")
            }
            (Protocol::M26, Operation::List) => {
                "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n".to_owned()
            }
            (Protocol::J25 | Protocol::S25, _) => "MCP-Protocol-Version: 2025-11-25\r\n".to_owned(),
        };
        let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
        let right = match work {
            Operation::Call => Expectation::Customer,
            Operation::List => Expectation::Tools,
        };
        RequestTemplate::new(http_post(&(headers + &session), &request_body(work, dress, tool)), right)
    }

    /// A list of tools, whose response is large, with a head that is larger by this many bytes.
    pub fn with_large_head(bytes: usize) -> RequestTemplate {
        let headers = format!(
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\nX-Filler: {}\r\n",
            "f".repeat(bytes)
        );
        let body = request_body(Operation::List, Protocol::M26, "");
        RequestTemplate::new(http_post(&headers, &body), Expectation::Tools)
    }

    /// `work` as one line on a pipe, a call with `tool`, after the 2025-11-25 handshake.
    pub fn stdio_line(work: Operation, tool: &str) -> RequestTemplate {
        let right = match work {
            Operation::Call => Expectation::Customer,
            Operation::List => Expectation::Tools,
        };
        RequestTemplate::new(request_body(work, Protocol::J25, tool) + "\n", right)
    }

    /// Opens a new legacy session.
    pub fn initialize() -> RequestTemplate {
        RequestTemplate::new(http_post("", INITIALIZE), Expectation::Session)
    }

    /// The notification that ends a session's handshake; the response is only a status.
    pub fn initialized(session: &str) -> Vec<u8> {
        let headers = format!("MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: {session}\r\n");
        http_post(&headers, INITIALIZED).into_bytes()
    }

    /// A stream of change notifications, which stays open.
    pub fn listen() -> RequestTemplate {
        let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n";
        let body = format!(
            concat!(
                r#"{{"jsonrpc":"2.0","id":{},"method":"subscriptions/listen","params":{{"#,
                r#""notifications":{{"toolsListChanged":true}},{}}}}}"#
            ),
            ID, META
        );
        RequestTemplate::new(http_post(headers, &body), Expectation::Acknowledged)
    }

    /// The same request to the floor, which always sends the same response.
    pub fn expect_canned(mut self) -> RequestTemplate {
        self.expectation = Expectation::Canned;
        self
    }

    /// The same request to a server whose results are only text.
    pub fn expect_text(mut self) -> RequestTemplate {
        self.expectation = Expectation::CustomerText;
        self
    }

    fn new(text: String, expectation: Expectation) -> RequestTemplate {
        let id_offset = text.find(ID).expect("every request of this file carries the id");
        let customer_offset = text.find(CUSTOMER).map(|at| at + "user".len());
        RequestTemplate { bytes: text.into_bytes(), id_offset, customer_offset, expectation }
    }

    /// The bytes of request number `n`.
    pub fn bytes_for(&mut self, n: u64) -> &[u8] {
        write_digits(&mut self.bytes[self.id_offset..self.id_offset + ID.len()], id(n));
        if let Some(at) = self.customer_offset {
            write_digits(&mut self.bytes[at..at + 4], customer(n));
        }
        &self.bytes
    }

    /// The number of the request that `answer` responds to; `None` for the floor, whose response fits any.
    pub fn request_number(&self, answer: &[u8]) -> Option<u64> {
        const KEY: &[u8] = br#""id":"#;
        if self.expectation == Expectation::Canned {
            return None;
        }
        let at = memmem::find(answer, KEY)? + KEY.len();
        let id = std::str::from_utf8(answer.get(at..at + ID.len())?).ok()?;
        id.parse::<u64>().ok()?.checked_sub(ID_FIRST)
    }

    /// Whether `body`, with HTTP status `status`, answers request number `n`.
    pub fn check_response(&self, n: u64, status: u16, body: &[u8]) -> anyhow::Result<()> {
        if self.expectation == Expectation::Session && matches!(status, 429 | 503) {
            return Ok(());
        }
        ensure!(status == 200, "request {n}: status {status}: {}", excerpt(body));
        let mut id_text = *br#""id":0000000"#;
        write_digits(&mut id_text[5..], id(n));
        let has = |needle: &[u8]| memmem::find(body, needle).is_some();
        let right = match self.expectation {
            Expectation::Canned => has(br#""result""#),
            Expectation::Customer => {
                let mut email = *br#""email":"user0000@example.com""#;
                write_digits(&mut email[13..17], customer(n));
                has(&id_text) && has(&email) && has(br#""structuredContent":{"#) && has_no_error(body)
            }
            Expectation::CustomerText => {
                let mut email = *br#"\"email\":\"user0000@example.com\""#;
                write_digits(&mut email[16..20], customer(n));
                has(&id_text) && has(&email) && has_no_error(body)
            }
            Expectation::Tools => {
                // A gateway lists it under a public name.
                has(&id_text) && has(br#""tools":["#) && has(br#"lookup_customer""#) && has_no_error(body)
            }
            Expectation::Session => {
                has(&id_text) && has(br#""protocolVersion":"2025-11-25""#) && has_no_error(body)
            }
            Expectation::Acknowledged => has(b"notifications/subscriptions/acknowledged"),
        };
        if !right {
            bail!("request {n}: wrong answer: {}", excerpt(body));
        }
        Ok(())
    }
}

/// One call of `tool` over HTTP with these arguments, in the newest protocol.
pub fn call(tool: &str, arguments: &serde_json::Value) -> Vec<u8> {
    let headers =
        format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n");
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{ID},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},{META}}}}}"#
    );
    http_post(&headers, &body).into_bytes()
}

fn has_no_error(body: &[u8]) -> bool {
    memmem::find(body, br#""error":"#).is_none() && memmem::find(body, br#""isError":true"#).is_none()
}

fn id(n: u64) -> u64 {
    ID_FIRST + n % ID_COUNT
}

/// A customer with a number of four digits, different each time.
fn customer(n: u64) -> u64 {
    1000 + n * 7919 % 9000
}

fn write_digits(hole: &mut [u8], mut number: u64) {
    for byte in hole.iter_mut().rev() {
        *byte = b'0' + u8::try_from(number % 10).expect("a remainder of ten is a digit");
        number /= 10;
    }
}

fn excerpt(body: &[u8]) -> String {
    let end = body.len().min(400);
    String::from_utf8_lossy(&body[..end]).into_owned()
}

fn request_body(work: Operation, dress: Protocol, tool: &str) -> String {
    let meta = if dress == Protocol::M26 { META } else { "" };
    match work {
        Operation::Call => {
            let comma = if meta.is_empty() { "" } else { "," };
            format!(
                concat!(
                    r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"{}","#,
                    r#""arguments":{{"email":"{}@example.com"}}{}{}}}}}"#
                ),
                ID, tool, CUSTOMER, comma, meta
            )
        }
        Operation::List => {
            format!(r#"{{"jsonrpc":"2.0","id":{ID},"method":"tools/list","params":{{{meta}}}}}"#)
        }
    }
}

fn http_post(headers: &str, body: &str) -> String {
    format!(
        concat!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n",
            "Accept: application/json, text/event-stream\r\n{}Content-Length: {}\r\n\r\n{}"
        ),
        headers,
        body.len(),
        body
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_own_id_and_customer() {
        let mut ask = RequestTemplate::http(Operation::Call, Protocol::M26, "lookup_customer", None);
        let first = String::from_utf8(ask.bytes_for(0).to_vec()).unwrap();
        assert!(first.contains(r#""id":1000000,"#) && first.contains("user1000@"));
        let second = String::from_utf8(ask.bytes_for(1).to_vec()).unwrap();
        assert!(second.contains(r#""id":1000001,"#) && second.contains("user8919@"));
        assert_eq!(first.len(), second.len());
    }

    #[test]
    fn another_customer_or_an_error_is_a_wrong_answer() {
        let ask = RequestTemplate::http(Operation::Call, Protocol::J25, "lookup_customer", None);
        let answer = |id: &str, email: &str, rest: &str| {
            format!(r#"{{"id":{id},"result":{{"structuredContent":{{"email":"{email}"}}{rest}}}}}"#)
        };
        let check = |status, text: String| ask.check_response(0, status, text.as_bytes()).is_ok();
        assert!(check(200, answer("1000000", "user1000@example.com", "")));
        assert!(!check(500, answer("1000000", "user1000@example.com", "")));
        assert!(!check(200, answer("1000001", "user1000@example.com", "")));
        assert!(!check(200, answer("1000000", "user1001@example.com", "")));
        assert!(!check(200, answer("1000000", "user1000@example.com", r#","isError":true"#)));
    }
}
