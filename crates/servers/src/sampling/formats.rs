//! `sampling/createMessage` in the words of model endpoints: the parameters as a request, the answer as a result.
//!
//! Nothing of a request or an answer passes that is not named here.

use json::write::ObjectWriter;
use json::{Json, Node, NodeKind};

use crate::config::SamplingFormat;

/// The parameters that a model needs, with at most so many tokens. What belongs to one hop is left out.
pub(super) fn known_params(params: &Json, tokens_max: u64) -> Json {
    const KEPT: [&str; 6] =
        ["messages", "modelPreferences", "systemPrompt", "temperature", "stopSequences", "metadata"];
    let doc = params.to_doc();
    let root = doc.root();
    Json::object(|out| {
        for key in KEPT {
            out.maybe_raw(key, root.get(key).map(|value| value.raw()));
        }
        let wanted = root.get("maxTokens").and_then(|tokens| tokens.u64()).unwrap_or(tokens_max);
        out.int("maxTokens", i64::try_from(wanted.min(tokens_max)).unwrap_or(i64::MAX));
    })
}

/// Headers that an endpoint needs, unless the settings have them.
pub(super) fn default_headers(format: SamplingFormat) -> &'static [(&'static str, &'static str)] {
    match format {
        SamplingFormat::Mcp | SamplingFormat::OpenAi => &[],
        SamplingFormat::Anthropic => &[("anthropic-version", "2023-06-01")],
    }
}

/// `Err`: why the endpoint cannot be asked this.
pub(super) fn request(format: SamplingFormat, model: &str, params: &Json) -> Result<Json, &'static str> {
    let doc = params.to_doc();
    let root = doc.root();
    let messages = match format {
        SamplingFormat::Mcp => return Ok(params.clone()),
        SamplingFormat::OpenAi | SamplingFormat::Anthropic => read_messages(root)?,
    };
    let system = root.get("systemPrompt").and_then(|text| text.str());
    let raw = |key: &str| root.get(key).map(|value| value.raw());
    Ok(Json::object(|out| {
        out.str("model", model);
        out.raw("max_tokens", raw("maxTokens").unwrap_or("1"));
        out.maybe_raw("temperature", raw("temperature"));
        match format {
            SamplingFormat::Mcp | SamplingFormat::OpenAi => {
                out.maybe_raw("stop", raw("stopSequences"));
                let system =
                    system.map(|text| Message { role: "system", parts: vec![Part::Text(text.into_owned())] });
                let all: Vec<&Message> = system.iter().chain(&messages).collect();
                out.array("messages", all, write_openai);
            }
            SamplingFormat::Anthropic => {
                out.maybe_raw("stop_sequences", raw("stopSequences"));
                out.maybe_str("system", system.as_deref());
                out.array("messages", &messages, write_anthropic);
            }
        }
    }))
}

struct Message {
    role: &'static str,
    parts: Vec<Part>,
}

enum Part {
    Text(String),
    Image { mime_type: String, data: String },
}

fn read_messages(params: Node<'_>) -> Result<Vec<Message>, &'static str> {
    let messages = params.get("messages").filter(|list| list.kind() == NodeKind::Array);
    messages.ok_or("it has no messages")?.elements().map(read_message).collect()
}

fn read_message(message: Node<'_>) -> Result<Message, &'static str> {
    let role = match message.get("role").and_then(|role| role.str()).as_deref() {
        Some("user") => "user",
        Some("assistant") => "assistant",
        _ => return Err("a message has an unknown role"),
    };
    let content = message.get("content").ok_or("a message has no content")?;
    // 2025-11-25: one block, or a list of them.
    let blocks: Vec<Node<'_>> = match content.kind() {
        NodeKind::Array => content.elements().collect(),
        _ => vec![content],
    };
    let parts = blocks.into_iter().map(|block| {
        let text = |key: &str| block.get(key).and_then(|value| value.str()).map(|text| text.into_owned());
        match text("type").as_deref() {
            Some("text") => text("text").map(Part::Text).ok_or("a text block has no text"),
            Some("image") => match (text("mimeType"), text("data")) {
                (Some(mime_type), Some(data)) => Ok(Part::Image { mime_type, data }),
                _ => Err("an image has no data"),
            },
            Some("audio") => Err("this model endpoint takes no audio"),
            _ => Err("a message has content of an unknown type"),
        }
    });
    Ok(Message { role, parts: parts.collect::<Result<_, _>>()? })
}

fn write_openai(out: &mut Vec<u8>, Message { role, parts }: &Message) {
    let mut message = ObjectWriter::new(out);
    message.str("role", role);
    if let [Part::Text(text)] = parts.as_slice() {
        message.str("content", text);
    } else {
        message.array("content", parts, |out, part| {
            let mut block = ObjectWriter::new(out);
            match part {
                Part::Text(text) => block.str("type", "text").str("text", text),
                Part::Image { mime_type, data } => {
                    block.str("type", "image_url").object("image_url", |image| {
                        image.str("url", &format!("data:{mime_type};base64,{data}"));
                    })
                }
            };
            block.end();
        });
    }
    message.end();
}

fn write_anthropic(out: &mut Vec<u8>, Message { role, parts }: &Message) {
    let mut message = ObjectWriter::new(out);
    message.str("role", role).array("content", parts, |out, part| {
        let mut block = ObjectWriter::new(out);
        match part {
            Part::Text(text) => block.str("type", "text").str("text", text),
            Part::Image { mime_type, data } => block.str("type", "image").object("source", |source| {
                source.str("type", "base64").str("media_type", mime_type).str("data", data);
            }),
        };
        block.end();
    });
    message.end();
}

/// The result of `sampling/createMessage`. `Err`: what is wrong with the answer.
pub(super) fn result(format: SamplingFormat, model: &str, answer: &str) -> Result<Json, &'static str> {
    let doc = Json::parse(answer).map_err(|_| "it is not JSON")?.to_doc();
    let root = doc.root();
    let text = |node: Option<Node<'_>>| node.and_then(|node| node.str()).map(|text| text.into_owned());
    let model = text(root.get("model")).unwrap_or_else(|| model.to_owned());
    match format {
        SamplingFormat::Mcp => {
            let content = root.get("content").filter(|content| {
                matches!(content.kind(), NodeKind::Object | NodeKind::Array) && !content.is_empty()
            });
            let content = content.ok_or("it has no `content`")?;
            Ok(Json::object(|out| {
                out.str("role", "assistant").raw("content", content.raw()).str("model", named(&model));
                out.maybe_str("stopReason", text(root.get("stopReason")).as_deref());
            }))
        }
        SamplingFormat::OpenAi => {
            let choice = root.get("choices").and_then(|choices| choices.elements().next());
            let choice = choice.ok_or("it has no `choices`")?;
            let content = choice.get("message").and_then(|message| message.get("content"));
            let content =
                joined_text(content.ok_or("it has no `message.content`")?).ok_or("it has no text")?;
            let reason = text(choice.get("finish_reason"));
            Ok(text_result(&content, &model, stop_reason(reason.as_deref())))
        }
        SamplingFormat::Anthropic => {
            let content = root.get("content").ok_or("it has no `content`")?;
            let content = joined_text(content).ok_or("it has no text")?;
            let reason = text(root.get("stop_reason"));
            Ok(text_result(&content, &model, stop_reason(reason.as_deref())))
        }
    }
}

/// A text, or the text blocks of a list.
fn joined_text(content: Node<'_>) -> Option<String> {
    if let Some(text) = content.str() {
        return Some(text.into_owned());
    }
    let blocks = content.elements().filter_map(|block| block.get("text")?.str());
    let joined: String = blocks.collect();
    (!joined.is_empty()).then_some(joined)
}

fn stop_reason(reason: Option<&str>) -> &str {
    match reason {
        Some("stop" | "end_turn") | None => "endTurn",
        Some("length" | "max_tokens") => "maxTokens",
        Some("stop_sequence") => "stopSequence",
        Some(other) => other,
    }
}

pub(super) fn text_result(text: &str, model: &str, stop_reason: &str) -> Json {
    Json::object(|out| {
        out.str("role", "assistant");
        out.object("content", |content| {
            content.str("type", "text").str("text", text);
        });
        out.str("model", named(model)).str("stopReason", stop_reason);
    })
}

/// The protocol requires a name.
fn named(model: &str) -> &str {
    if model.is_empty() { "unknown" } else { model }
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{known_params, request, result};
    use crate::config::SamplingFormat::{self, Anthropic, Mcp, OpenAi};

    const PARAMS: &str = r#"{"messages":[{"role":"user","content":{"type":"text","text":"hi"}},
        {"role":"assistant","content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AA=="}]}],
        "systemPrompt":"be brief","temperature":0.5,"stopSequences":["x"],"maxTokens":50,"_meta":{"k":1},"tools":[]}"#;

    fn check_request(format: SamplingFormat, params: &str, expected: &str) {
        let params = known_params(&Json::parse(params).expect("JSON"), 20);
        let shown = match request(format, "m", &params) {
            Ok(request) => request.to_string(),
            Err(reason) => format!("error: {reason}"),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn requests_have_the_form_of_the_endpoint_and_bounded_tokens() {
        check_request(
            Mcp,
            r#"{"messages":[],"_meta":{"k":1},"tools":[]}"#,
            r#"{"messages":[],"maxTokens":20}"#,
        );
        check_request(
            OpenAi,
            PARAMS,
            concat!(
                r#"{"model":"m","max_tokens":20,"temperature":0.5,"stop":["x"],"messages":["#,
                r#"{"role":"system","content":"be brief"},{"role":"user","content":"hi"},"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"a"},"#,
                r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}"#
            ),
        );
        check_request(
            Anthropic,
            PARAMS,
            concat!(
                r#"{"model":"m","max_tokens":20,"temperature":0.5,"stop_sequences":["x"],"system":"be brief","messages":["#,
                r#"{"role":"user","content":[{"type":"text","text":"hi"}]},"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"a"},"#,
                r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}]}"#
            ),
        );
    }

    #[test]
    fn what_an_endpoint_cannot_be_asked_is_named() {
        for (params, expected) in [
            ("{}", "error: it has no messages"),
            (r#"{"messages":[{"role":"system","content":{}}]}"#, "error: a message has an unknown role"),
            (r#"{"messages":[{"role":"user"}]}"#, "error: a message has no content"),
            (
                r#"{"messages":[{"role":"user","content":{"type":"audio","data":"","mimeType":"audio/wav"}}]}"#,
                "error: this model endpoint takes no audio",
            ),
            (
                r#"{"messages":[{"role":"user","content":{"type":"tool_use"}}]}"#,
                "error: a message has content of an unknown type",
            ),
        ] {
            check_request(OpenAi, params, expected);
        }
    }

    fn check_result(format: SamplingFormat, answer: &str, expected: &str) {
        let shown = match result(format, "m", answer) {
            Ok(result) => result.to_string(),
            Err(reason) => format!("error: {reason}"),
        };
        assert_eq!(shown, expected, "{answer}");
    }

    #[test]
    fn answers_become_results() {
        check_result(
            Mcp,
            r#"{"role":"user","content":{"type":"text","text":"x"},"stopReason":"endTurn","extra":1}"#,
            r#"{"role":"assistant","content":{"type":"text","text":"x"},"model":"m","stopReason":"endTurn"}"#,
        );
        check_result(
            OpenAi,
            r#"{"model":"gpt","choices":[{"message":{"content":"x"},"finish_reason":"length"}]}"#,
            r#"{"role":"assistant","content":{"type":"text","text":"x"},"model":"gpt","stopReason":"maxTokens"}"#,
        );
        check_result(
            Anthropic,
            r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"stop_reason":"end_turn"}"#,
            r#"{"role":"assistant","content":{"type":"text","text":"ab"},"model":"m","stopReason":"endTurn"}"#,
        );
        for (format, answer, expected) in [
            (Mcp, "nonsense", "error: it is not JSON"),
            (Mcp, "{}", "error: it has no `content`"),
            (Mcp, r#"{"content":"x"}"#, "error: it has no `content`"),
            (OpenAi, r#"{"choices":[]}"#, "error: it has no `choices`"),
            (OpenAi, r#"{"choices":[{"message":{"content":null}}]}"#, "error: it has no text"),
            (OpenAi, r#"{"error":{"message":"key sk-1"}}"#, "error: it has no `choices`"),
            (Anthropic, r#"{"content":[{"type":"tool_use"}]}"#, "error: it has no text"),
        ] {
            check_result(format, answer, expected);
        }
    }
}
