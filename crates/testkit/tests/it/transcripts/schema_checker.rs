//! Validates every message of a transcript with the official JSON Schema of its version.
//!
//! The definition follows from the method of a message, and for a response from the method of its request. The schemas
//! come from the development cache; without it these tests fail, because a skipped test proves nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::Value;

use super::transcript::TransportKind;

/// Method, and the definitions of its request and its result.
const REQUESTS: &[(&str, &str, &str)] = &[
    ("initialize", "InitializeRequest", "InitializeResult"),
    ("ping", "PingRequest", "EmptyResult"),
    ("server/discover", "DiscoverRequest", "DiscoverResult"),
    ("subscriptions/listen", "SubscriptionsListenRequest", "SubscriptionsListenResult"),
    ("tools/list", "ListToolsRequest", "ListToolsResult"),
    ("tools/call", "CallToolRequest", "CallToolResult"),
    ("resources/list", "ListResourcesRequest", "ListResourcesResult"),
    ("resources/templates/list", "ListResourceTemplatesRequest", "ListResourceTemplatesResult"),
    ("resources/read", "ReadResourceRequest", "ReadResourceResult"),
    ("resources/subscribe", "SubscribeRequest", "EmptyResult"),
    ("resources/unsubscribe", "UnsubscribeRequest", "EmptyResult"),
    ("prompts/list", "ListPromptsRequest", "ListPromptsResult"),
    ("prompts/get", "GetPromptRequest", "GetPromptResult"),
    ("completion/complete", "CompleteRequest", "CompleteResult"),
    ("logging/setLevel", "SetLevelRequest", "EmptyResult"),
    ("tasks/get", "GetTaskRequest", "GetTaskResult"),
    ("tasks/list", "ListTasksRequest", "ListTasksResult"),
    ("tasks/cancel", "CancelTaskRequest", "CancelTaskResult"),
    // The result of the task's own request; only tools run as tasks here.
    ("tasks/result", "GetTaskPayloadRequest", "CallToolResult"),
    // From the server to the client.
    ("elicitation/create", "ElicitRequest", "ElicitResult"),
    ("sampling/createMessage", "CreateMessageRequest", "CreateMessageResult"),
    ("roots/list", "ListRootsRequest", "ListRootsResult"),
];

const NOTIFICATIONS: &[(&str, &str)] = &[
    ("notifications/initialized", "InitializedNotification"),
    ("notifications/cancelled", "CancelledNotification"),
    ("notifications/progress", "ProgressNotification"),
    ("notifications/message", "LoggingMessageNotification"),
    ("notifications/tools/list_changed", "ToolListChangedNotification"),
    ("notifications/prompts/list_changed", "PromptListChangedNotification"),
    ("notifications/resources/list_changed", "ResourceListChangedNotification"),
    ("notifications/resources/updated", "ResourceUpdatedNotification"),
    ("notifications/roots/list_changed", "RootsListChangedNotification"),
    ("notifications/subscriptions/acknowledged", "SubscriptionsAcknowledgedNotification"),
];

/// The tasks extension has a schema of its own, which is not among the official five: its messages are validated with
/// what all requests, results and notifications share.
const EXTENSION_METHODS: &[&str] = &["tasks/get", "tasks/update", "tasks/cancel", "notifications/tasks"];

/// Errors with a definition of their own.
const ERRORS: &[(i64, &str)] = &[
    (-32020, "HeaderMismatchError"),
    (-32021, "MissingRequiredClientCapabilityError"),
    (-32022, "UnsupportedProtocolVersionError"),
];

/// What is known of the requests in one conversation.
pub struct SchemaChecker {
    /// The version of a message that does not name one.
    pub version: String,
    transport: TransportKind,
    /// Requests by id: the method, and the version of the request. One id may have been used twice.
    requests: HashMap<String, Vec<(String, String)>>,
    /// Requests of the server, by raw id.
    server_requests: HashMap<String, String>,
    /// Progress tokens that belong to another version than `version`.
    progress_token_versions: HashMap<String, String>,
}

impl SchemaChecker {
    pub fn new(version: &str, transport: TransportKind) -> Self {
        Self {
            version: version.to_owned(),
            transport,
            requests: HashMap::new(),
            server_requests: HashMap::new(),
            progress_token_versions: HashMap::new(),
        }
    }

    /// Checks a message of the client. `conforms`: whether it must conform.
    pub fn check_client(&mut self, text: &str, conforms: bool) -> Result<(), String> {
        let verdict = match serde_json::from_str::<Value>(text) {
            Ok(message) => self.client_message(&message),
            Err(error) => Err(format!("not JSON: {error}")),
        };
        match (verdict, conforms) {
            (Ok(()), true) | (Err(_), false) => Ok(()),
            (Ok(()), false) => Err("this conforms to its schema; send it with `>`".into()),
            (Err(reason), true) => Err(format!("this does not conform to its schema; {reason}")),
        }
    }

    /// Records raw bytes of the client: a response to them needs a request.
    pub fn observe_raw(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let message = text.find('{').zip(text.rfind('}')).and_then(|(from, to)| text.get(from..=to));
        if let Some(message) = message.and_then(|text| serde_json::from_str(text).ok()) {
            // Raw bytes need not conform.
            let _either_way = self.client_message(&message);
        }
    }

    fn client_message(&mut self, message: &Value) -> Result<(), String> {
        if let Value::Array(items) = message {
            // A batch has requests and notifications, or responses: the two do not mix.
            let requests = items.iter().any(|item| item.get("method").is_some());
            let definition =
                if requests || items.is_empty() { "JSONRPCBatchRequest" } else { "JSONRPCBatchResponse" };
            let verdict = validate(&self.version, definition, message);
            return items.iter().fold(verdict, |so_far, item| so_far.and(self.client_message(item)));
        }
        let meta = &message["params"]["_meta"];
        let version = meta["io.modelcontextprotocol/protocolVersion"].as_str().unwrap_or(&self.version);
        // A message with an unknown version is checked with the newest: the envelope is the same.
        let version = if is_known(version) { version } else { wire::Version::NEWEST.as_str() }.to_owned();
        let id = message.get("id").map(Value::to_string);
        match (message["method"].as_str(), id) {
            (Some(method), Some(id)) => {
                if let Some(token) = meta.get("progressToken") {
                    self.progress_token_versions.insert(token.to_string(), version.clone());
                }
                self.requests.entry(id).or_default().push((method.to_owned(), version.clone()));
                check_request(&version, method, message)
            }
            (Some(method), None) => check_notification(&version, method, message),
            (None, Some(id)) if message.get("result").is_some() => {
                let method = self.server_requests.get(&id).ok_or("a response without a request")?;
                check_result(&version, method, message)
            }
            (None, Some(_)) => check_error(&version, message),
            (None, None) => Err("neither a method nor an id".into()),
        }
    }

    /// Checks a message of the server: it must conform, except for [`is_known_exception`].
    pub fn check_server(&mut self, text: &str) -> Result<(), String> {
        let message = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        self.server_message(&message)
    }

    fn server_message(&mut self, message: &Value) -> Result<(), String> {
        if let Value::Array(items) = message {
            if !items.iter().any(|item| is_known_exception(&self.version, item)) {
                validate(&self.version, "JSONRPCBatchResponse", message)?;
            }
            return items.iter().try_for_each(|item| self.server_message(item));
        }
        let id = message.get("id").map(Value::to_string);
        match (message["method"].as_str(), id) {
            (Some(method), Some(id)) => {
                self.server_requests.insert(id, method.to_owned());
                check_request(&self.version, method, message)
            }
            (Some(method), None) => {
                let params = &message["params"];
                let token = params
                    .get("progressToken")
                    .and_then(|token| self.progress_token_versions.get(&token.to_string()));
                let subscribed = params["_meta"].get("io.modelcontextprotocol/subscriptionId").is_some();
                let newest = subscribed.then(|| wire::Version::NEWEST.as_str());
                check_notification(
                    newest.or(token.map(String::as_str)).unwrap_or(&self.version),
                    method,
                    message,
                )
            }
            (None, id) => {
                let asked = id.as_ref().and_then(|id| self.requests.get(id).cloned()).unwrap_or_default();
                let Some(result_of) = message.get("result") else {
                    let version = asked.last().map_or(&self.version, |(_, version)| version);
                    return match (is_known_exception(version, message), self.transport, &id) {
                        (true, _, _) => Ok(()),
                        // 2025-03-26, Sending Messages: the body of a refusal over HTTP "MAY comprise a JSON-RPC
                        // error response that has no id", which only later schemas know.
                        (false, TransportKind::Http, None) => {
                            check_error(wire::Version::NEWEST.as_str(), message)
                        }
                        (false, _, _) => check_error(version, message),
                    };
                };
                let mut verdict = Err("this answers nothing that was asked".to_owned());
                for (method, version) in asked.iter().rev() {
                    let method = method.replace('.', "/");
                    verdict = if method == "initialize" {
                        self.version = result_of["protocolVersion"].as_str().unwrap_or_default().to_owned();
                        check_result(&self.version, &method, message)
                    } else {
                        check_result(version, &method, message)
                    };
                    if verdict.is_ok() {
                        break;
                    }
                }
                verdict
            }
        }
    }
}

/// What cannot conform, and why.
///
/// An error without a request: JSON-RPC 2.0 requires `"id":null`, which the schemas before 2025-11-25 do not allow. They
/// have no other way to express it, and TypeScript and Python clients of that time accept it.
fn is_known_exception(version: &str, message: &Value) -> bool {
    let knows_no_other_way =
        wire::Version::parse(version).is_some_and(|v| !v.has(wire::Feature::ErrorWithoutId));
    knows_no_other_way && message.get("id") == Some(&Value::Null) && message.get("error").is_some()
}

fn check_request(version: &str, method: &str, message: &Value) -> Result<(), String> {
    validate(version, "JSONRPCRequest", message)?;
    let row = REQUESTS.iter().find(|(name, ..)| *name == method);
    match row {
        Some((_, definition, _)) if has_definition(version, definition) => {
            validate(version, definition, message)
        }
        // A method that is unknown in this version: still a request.
        _ => Ok(()),
    }
}

fn check_notification(version: &str, method: &str, message: &Value) -> Result<(), String> {
    validate(version, "JSONRPCNotification", message)?;
    let row = NOTIFICATIONS.iter().find(|(name, _)| *name == method);
    match row {
        Some((_, definition)) if has_definition(version, definition) => {
            validate(version, definition, message)
        }
        _ => Ok(()),
    }
}

fn check_result(version: &str, method: &str, message: &Value) -> Result<(), String> {
    validate(version, first_defined(version, "JSONRPCResultResponse", "JSONRPCResponse"), message)?;
    let result = &message["result"];
    let extended = EXTENSION_METHODS.contains(&method) && has_definition(version, "DiscoverResult");
    match result["resultType"].as_str() {
        Some("input_required") if ["tools/call", "prompts/get", "resources/read"].contains(&method) => {
            return validate(version, "InputRequiredResult", result);
        }
        Some("task") if method == "tools/call" => return Ok(()),
        Some("complete") if extended => return Ok(()),
        Some("complete") | None => {}
        Some(other) => return Err(format!("`{method}` must not be answered with `{other}`")),
    }
    if method == "tools/call" && result.get("task").is_some() && has_definition(version, "CreateTaskResult") {
        return validate(version, "CreateTaskResult", result);
    }
    let row = REQUESTS.iter().find(|(name, ..)| *name == method);
    match row {
        Some((_, _, definition)) if has_definition(version, definition) => {
            validate(version, definition, result)
        }
        _ => Err(format!("`{method}` is no request of {version}, and has a result")),
    }
}

fn check_error(version: &str, message: &Value) -> Result<(), String> {
    validate(version, first_defined(version, "JSONRPCErrorResponse", "JSONRPCError"), message)?;
    let code = message["error"]["code"].as_i64();
    match ERRORS.iter().find(|(number, _)| Some(*number) == code) {
        Some((_, definition)) if has_definition(version, definition) => {
            validate(version, definition, message)
        }
        _ => Ok(()),
    }
}

fn first_defined(version: &str, one: &'static str, other: &'static str) -> &'static str {
    if has_definition(version, one) { one } else { other }
}

fn validate(version: &str, definition: &str, value: &Value) -> Result<(), String> {
    let validator = validator(version, definition)?;
    let reason: Vec<String> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    if reason.is_empty() { Ok(()) } else { Err(format!("{version} {definition}: {}", reason.join("; "))) }
}

type Validators = Mutex<HashMap<(String, String), Arc<Validator>>>;

fn validator(version: &str, definition: &str) -> Result<Arc<Validator>, String> {
    static COMPILED: LazyLock<Validators> = LazyLock::new(Validators::default);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (version.to_owned(), definition.to_owned());
    if let Some(validator) = compiled.get(&key) {
        return Ok(validator.clone());
    }
    if !has_definition(version, definition) {
        return Err(format!("{version} has no {definition}"));
    }
    let schema = schema(version);
    let mut whole = schema.clone();
    whole["$ref"] = format!("#/{}/{definition}", definitions_in(schema)).into();
    let validator = jsonschema::validator_for(&whole).map_err(|error| format!("{version}: {error}"))?;
    Ok(compiled.entry(key).or_insert(Arc::new(validator)).clone())
}

fn is_known(version: &str) -> bool {
    wire::Version::parse(version).is_some()
}

fn has_definition(version: &str, definition: &str) -> bool {
    let schema = schema(version);
    schema[definitions_in(schema)].get(definition).is_some()
}

fn definitions_in(schema: &Value) -> &'static str {
    if schema.get("$defs").is_some() { "$defs" } else { "definitions" }
}

/// The official schema of a version.
fn schema(version: &str) -> &'static Value {
    static SCHEMAS: LazyLock<HashMap<&str, Value>> = LazyLock::new(|| {
        let read = |(_, date): &(wire::Version, &'static str)| {
            let path = cached(&format!("schemas/{date}.json"));
            let text = std::fs::read_to_string(&path).expect("a schema is readable");
            (*date, serde_json::from_str(&text).expect("a schema is JSON"))
        };
        wire::Version::ALL.iter().map(read).collect()
    });
    SCHEMAS.get(version).unwrap_or_else(|| panic!("there is no version `{version}`"))
}

fn cached(path: &str) -> PathBuf {
    let root = std::env::var_os("SPILE_DEV_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let home = std::env::var_os("HOME").expect("HOME is set");
        Path::new(&home).join(".cache/spile-dev")
    });
    let file = root.join(path);
    assert!(file.exists(), "{} is missing: run `cargo xtask setup` once", file.display());
    file
}
