//! A server that knows one version only, as real ones of its time behave.

use serde_json::{Value, json};
use wire::version::{Feature, Version};

use super::Dice;

/// What a server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knows {
    All,
    Only(Version),
}

impl Knows {
    pub(super) fn roll(dice: &mut Dice<'_>) -> Self {
        match dice.below(3) {
            0 | 1 => Self::All,
            _ => Self::Only(dice.pick(&Version::ALL).0),
        }
    }
}

/// It stands before the host and keeps from it what it would not have understood.
pub(super) struct Elder {
    knows: Knows,
    manner: usize,
}

/// What becomes of a message.
pub(super) enum Verdict {
    Passes(Vec<u8>),
    /// The answer, and its status over HTTP.
    Answered(u16, Vec<u8>),
    /// Something that is no answer at all.
    Blurted(&'static [u8]),
    Ignored,
}

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

impl Elder {
    pub(super) fn new(knows: Knows, dice: &mut Dice<'_>) -> Self {
        Self { knows, manner: dice.below(12) }
    }

    pub(super) fn judge(&self, body: &[u8], message: &Value) -> Verdict {
        let Knows::Only(version) = self.knows else { return Verdict::Passes(body.to_vec()) };
        let (id, method) = (&message["id"], message["method"].as_str().unwrap_or_default());
        let is_enveloped = message["params"]["_meta"][VERSION].is_string();
        let refuse = |status, code, data: Value| {
            let error = json!({"code": code, "message": "what?", "data": data});
            Verdict::Answered(status, json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().into())
        };
        if version.has(Feature::Handshake) {
            if is_enveloped {
                return match self.manner {
                    0 => Verdict::Ignored,
                    1 => Verdict::Blurted(b"Error: unknown method"),
                    // It complains of an id that nobody gave.
                    2 => Verdict::Answered(
                        400,
                        br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"bad request"}}"#
                            .to_vec(),
                    ),
                    3 => refuse(400, -32000, json!("not initialized")),
                    4 => refuse(200, -32603, Value::Null),
                    5..8 => refuse(400, -32602, Value::Null),
                    _ => refuse(404, -32601, Value::Null),
                };
            }
            if method == "initialize" {
                let mut capped = message.clone();
                capped["params"]["protocolVersion"] = version.as_str().into();
                return Verdict::Passes(capped.to_string().into());
            }
        } else if method == "initialize" {
            return match self.manner {
                0..4 => refuse(404, -32601, Value::Null),
                4..8 => refuse(400, -32602, Value::Null),
                _ => refuse(400, -32022, json!({"supported": [version.as_str()], "requested": "?"})),
            };
        }
        Verdict::Passes(body.to_vec())
    }
}
