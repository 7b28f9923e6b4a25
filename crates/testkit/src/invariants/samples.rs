//! Messages made from dice: mostly well formed, wrong in every place where a message can be wrong.

use wire::Version;
use wire::method::Method;

use super::Dice;

const NOTICES: [&str; 5] = [
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

const META: &str = "io.modelcontextprotocol/";

/// A message, or a batch of them.
pub(super) fn message(dice: &mut Dice<'_>) -> String {
    let mut out = String::new();
    if dice.once_in(8) {
        out.push('[');
        for i in 0..dice.below(5) {
            out.push_str(if i > 0 { "," } else { "" });
            one(dice, &mut out);
        }
        out.push(']');
    } else {
        one(dice, &mut out);
    }
    out
}

/// The members of one object; a key is written once in nearly every case.
struct Members<'o> {
    out: &'o mut String,
    empty: bool,
}

impl<'o> Members<'o> {
    fn new(out: &'o mut String) -> Self {
        out.push('{');
        Self { out, empty: true }
    }

    fn key(&mut self, key: &str) -> &mut String {
        if !self.empty {
            self.out.push(',');
        }
        self.empty = false;
        self.out.push('"');
        self.out.push_str(key);
        self.out.push_str("\":");
        self.out
    }

    fn end(self) {
        self.out.push('}');
    }
}

fn one(dice: &mut Dice<'_>, out: &mut String) {
    if dice.once_in(16) {
        return dice.json(3, out);
    }
    let mut message = Members::new(out);
    if !dice.once_in(16) {
        message.key("jsonrpc").push_str(if dice.once_in(16) { "2.0" } else { r#""2.0""# });
    }
    if !dice.once_in(4) {
        let id = dice.pick(&IDS);
        message.key(if dice.once_in(16) { "\\u0069d" } else { "id" }).push_str(id);
    }
    if !dice.once_in(8) {
        method(dice, message.key("method"));
    }
    if !dice.once_in(8) {
        let value = message.key("params");
        if dice.once_in(16) { dice.json(1, value) } else { params(dice, value) }
    }
    for key in ["result", "error", "id"] {
        if dice.once_in(16) {
            dice.json(2, message.key(key));
        }
    }
    message.end();
}

fn method(dice: &mut Dice<'_>, out: &mut String) {
    match dice.below(8) {
        0 => dice.json(1, out),
        1 => quoted(out, dice.pick(&NOTICES)),
        2 => quoted(out, &dice.pick(&Method::TABLE).1.replace('/', ".")),
        _ => quoted(out, dice.pick(&Method::TABLE).1),
    }
}

fn quoted(out: &mut String, plain: &str) {
    out.push('"');
    out.push_str(plain);
    out.push('"');
}

fn params(dice: &mut Dice<'_>, out: &mut String) {
    let mut params = Members::new(out);
    for _ in 0..dice.below(5) {
        let key = dice.pick(&[
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
        if dice.once_in(6) {
            dice.json(2, value);
            continue;
        }
        match key {
            "arguments" | "inputResponses" => object(dice, value),
            "task" => value.push_str(r#"{"ttl":60}"#),
            "ref" => value.push_str(dice.pick(&[
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
            "requestId" => value.push_str(dice.pick(&IDS)),
            "protocolVersion" => version(dice, value),
            "capabilities" => value.push_str(r#"{"roots":{},"elicitation":{},"tools":{}}"#),
            "level" => quoted(value, dice.pick(&["debug", "error", "loud"])),
            _ => quoted(value, dice.pick(&["a", "b:c", "", "é", "a\\nb", "\\u0061"])),
        }
    }
    if !dice.once_in(3) {
        let mut meta = Members::new(params.key("_meta"));
        if !dice.once_in(3) {
            version(dice, meta.key(&format!("{META}protocolVersion")));
        }
        if !dice.once_in(4) {
            let value = meta.key(&format!("{META}clientCapabilities"));
            if dice.once_in(8) { dice.json(1, value) } else { object(dice, value) }
        }
        if dice.once_in(4) {
            quoted(meta.key(&format!("{META}logLevel")), dice.pick(&["info", "loud"]));
        }
        if dice.once_in(3) {
            meta.key("progressToken").push_str(dice.pick(&IDS));
        }
        meta.end();
    }
    params.end();
}

fn object(dice: &mut Dice<'_>, out: &mut String) {
    let mut object = Members::new(out);
    for key in ["a", "b", "c"] {
        if dice.once_in(2) {
            dice.json(1, object.key(key));
        }
    }
    object.end();
}

fn version(dice: &mut Dice<'_>, out: &mut String) {
    match dice.below(8) {
        0 => quoted(out, "2020-01-01"),
        1 => quoted(out, Version::NEWEST_WITH_HANDSHAKE.as_str()),
        2 => quoted(out, dice.pick(&Version::ALL).1),
        _ => quoted(out, Version::NEWEST.as_str()),
    }
}
