//! A server that supports one version only, as real servers of that time behave.

use serde_json::{Value, json};
use wire::version::{Feature, Version};

use super::FuzzInput;

/// What a server supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownVersions {
    All,
    Only(Version),
}

impl KnownVersions {
    pub(super) fn pick(input: &mut FuzzInput<'_>) -> Self {
        match input.below(3) {
            0 | 1 => Self::All,
            _ => Self::Only(input.choose(&Version::ALL).0),
        }
    }
}

/// Stands before the host and keeps from it messages that the older server would not understand.
pub(super) struct LegacyServer {
    known_versions: KnownVersions,
    refusal_style: usize,
}

/// What happens to a message.
pub(super) enum Interception {
    Forward(Vec<u8>),
    /// The response, and its status over HTTP.
    Respond(u16, Vec<u8>),
    /// Something that is not a response.
    Garbage(&'static [u8]),
    Drop,
}

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

impl LegacyServer {
    pub(super) fn new(known_versions: KnownVersions, input: &mut FuzzInput<'_>) -> Self {
        Self { known_versions, refusal_style: input.below(12) }
    }

    pub(super) fn intercept(&self, body: &[u8], message: &Value) -> Interception {
        let KnownVersions::Only(version) = self.known_versions else {
            return Interception::Forward(body.to_vec());
        };
        let (id, method) = (&message["id"], message["method"].as_str().unwrap_or_default());
        let is_enveloped = message["params"]["_meta"][VERSION_KEY].is_string();
        let refuse = |status, code, data: Value| {
            let error = json!({"code": code, "message": "what?", "data": data});
            Interception::Respond(
                status,
                json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().into(),
            )
        };
        if version.has(Feature::Handshake) {
            if is_enveloped {
                return match self.refusal_style {
                    0 => Interception::Drop,
                    1 => Interception::Garbage(b"Error: unknown method"),
                    // It complains about an id that was never sent.
                    2 => Interception::Respond(
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
                return Interception::Forward(capped.to_string().into());
            }
        } else if method == "initialize" {
            return match self.refusal_style {
                0..4 => refuse(404, -32601, Value::Null),
                4..8 => refuse(400, -32602, Value::Null),
                _ => refuse(400, -32022, json!({"supported": [version.as_str()], "requested": "?"})),
            };
        }
        Interception::Forward(body.to_vec())
    }
}
