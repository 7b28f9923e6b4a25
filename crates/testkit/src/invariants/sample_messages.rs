//! Generated messages: mostly well formed, wrong in every place where a message can be wrong.

use wire::Version;
use wire::method::Method;

use super::FuzzInput;

const NOTIFICATIONS: [&str; 5] = [
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/canceled",
    "notifications/roots/list_changed",
    "notifications.initialized",
];

const IDS: [&str; 16] = [
    "1",
    "2",
    r#""a""#,
    r#""\u0061""#,
    r#""""#,
    "0",
    "-1",
    "-0",
    "9007199254740993",
    "123456789012345678901234567890",
    r#""a long id that does not fit inline \ud834\udd1e""#,
    "1.0",
    "1e2",
    "null",
    "true",
    "{}",
];

const META_PREFIX: &str = "io.modelcontextprotocol/";

/// A message, or a batch of them.
pub(super) fn message(input: &mut FuzzInput<'_>) -> String {
    let mut out = String::new();
    if input.one_in(8) {
        out.push('[');
        for i in 0..input.below(5) {
            out.push_str(if i > 0 { "," } else { "" });
            write_message(input, &mut out);
        }
        out.push(']');
    } else {
        write_message(input, &mut out);
    }
    out
}

/// The members of one object; a key is nearly always written once.
struct ObjectWriter<'o> {
    out: &'o mut String,
    is_empty: bool,
}

impl<'o> ObjectWriter<'o> {
    fn new(out: &'o mut String) -> Self {
        out.push('{');
        Self { out, is_empty: true }
    }

    fn key(&mut self, key: &str) -> &mut String {
        if !self.is_empty {
            self.out.push(',');
        }
        self.is_empty = false;
        self.out.push('"');
        self.out.push_str(key);
        self.out.push_str("\":");
        self.out
    }

    fn end(self) {
        self.out.push('}');
    }
}

fn write_message(input: &mut FuzzInput<'_>, out: &mut String) {
    if input.one_in(16) {
        return input.json(3, out);
    }
    let mut message = ObjectWriter::new(out);
    if !input.one_in(16) {
        message.key("jsonrpc").push_str(if input.one_in(16) { "2.0" } else { r#""2.0""# });
    }
    if !input.one_in(4) {
        let id = input.choose(&IDS);
        message.key(if input.one_in(16) { "\\u0069d" } else { "id" }).push_str(id);
    }
    if !input.one_in(8) {
        write_method(input, message.key("method"));
    }
    if !input.one_in(8) {
        let value = message.key("params");
        if input.one_in(16) { input.json(1, value) } else { write_params(input, value) }
    }
    for key in ["result", "error", "id"] {
        if input.one_in(16) {
            input.json(2, message.key(key));
        }
    }
    message.end();
}

fn write_method(input: &mut FuzzInput<'_>, out: &mut String) {
    match input.below(8) {
        0 => input.json(1, out),
        1 => write_quoted(out, input.choose(&NOTIFICATIONS)),
        2 => write_quoted(out, &input.choose(&Method::TABLE).1.replace('/', ".")),
        _ => write_quoted(out, input.choose(&Method::TABLE).1),
    }
}

fn write_quoted(out: &mut String, plain: &str) {
    out.push('"');
    out.push_str(plain);
    out.push('"');
}

fn write_params(input: &mut FuzzInput<'_>, out: &mut String) {
    let mut params = ObjectWriter::new(out);
    for _ in 0..input.below(5) {
        let key = input.choose(&[
            "name",
            "arguments",
            "uri",
            "cursor",
            "inputResponses",
            "requestState",
            "task",
            "taskId",
            "ref",
            "argument",
            "context",
            "level",
            "notifications",
            "requestId",
            "protocolVersion",
            "capabilities",
            "other",
            "\\u006eame",
        ]);
        let value = params.key(key);
        if input.one_in(6) {
            input.json(2, value);
            continue;
        }
        match key {
            "arguments" | "inputResponses" => write_object(input, value),
            "task" => value.push_str(r#"{"ttl":60}"#),
            "ref" => value.push_str(input.choose(&[
                r#"{"type":"ref/prompt","name":"p"}"#,
                r#"{"type":"ref/resource","uri":"a:{b}"}"#,
                r#"{"type":"ref/other"}"#,
            ])),
            "argument" => value.push_str(r#"{"name":"b","value":"v"}"#),
            "context" => value.push_str(r#"{"arguments":{"c":"d"}}"#),
            "notifications" => {
                value
                    .push_str(r#"{"toolsListChanged":true,"resourceSubscriptions":["a:b"],"taskIds":["t"]}"#);
            }
            "requestId" => value.push_str(input.choose(&IDS)),
            "protocolVersion" => write_version(input, value),
            "capabilities" => value.push_str(r#"{"roots":{},"elicitation":{},"tools":{}}"#),
            "level" => write_quoted(value, input.choose(&["debug", "error", "loud"])),
            _ => write_quoted(value, input.choose(&["a", "b:c", "", "é", "a\\nb", "\\u0061"])),
        }
    }
    if !input.one_in(3) {
        let mut meta = ObjectWriter::new(params.key("_meta"));
        if !input.one_in(3) {
            write_version(input, meta.key(&format!("{META_PREFIX}protocolVersion")));
        }
        if !input.one_in(4) {
            let value = meta.key(&format!("{META_PREFIX}clientCapabilities"));
            if input.one_in(8) { input.json(1, value) } else { write_object(input, value) }
        }
        if input.one_in(4) {
            write_quoted(meta.key(&format!("{META_PREFIX}logLevel")), input.choose(&["info", "loud"]));
        }
        if input.one_in(3) {
            meta.key("progressToken").push_str(input.choose(&IDS));
        }
        meta.end();
    }
    params.end();
}

fn write_object(input: &mut FuzzInput<'_>, out: &mut String) {
    let mut object = ObjectWriter::new(out);
    for key in ["a", "b", "c"] {
        if input.one_in(2) {
            input.json(1, object.key(key));
        }
    }
    object.end();
}

fn write_version(input: &mut FuzzInput<'_>, out: &mut String) {
    match input.below(8) {
        0 => write_quoted(out, "2020-01-01"),
        1 => write_quoted(out, Version::NEWEST_WITH_HANDSHAKE.as_str()),
        2 => write_quoted(out, input.choose(&Version::ALL).1),
        _ => write_quoted(out, Version::NEWEST.as_str()),
    }
}
