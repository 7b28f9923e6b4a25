//! What a person is shown about a request of a server, and about the model's answer: text that is safe to print, and bounded.

use json::{Json, Node, NodeKind};
use spile_core::text::escape_line;

/// More of one text is not shown.
const TEXT_CHARS_MAX: usize = 2000;
/// More messages are not shown.
const MESSAGES_MAX: usize = 20;

/// The system prompt and the messages, one paragraph each, and how long the answer may be.
pub fn review_request(params: &Json) -> String {
    let doc = params.to_doc();
    let root = doc.root();
    let mut paragraphs = Vec::new();
    if let Some(system) = root.get("systemPrompt").and_then(|text| text.str()) {
        paragraphs.push(format!("system: {}", shown(&system)));
    }
    let messages: Vec<Node<'_>> =
        root.get("messages").into_iter().flat_map(|messages| messages.elements()).collect();
    for message in messages.iter().take(MESSAGES_MAX) {
        let role = message.get("role").and_then(|role| role.str()).unwrap_or_default();
        let role = shown(&role);
        paragraphs.extend(blocks(message.get("content")).map(|block| format!("{role}: {block}")));
    }
    if messages.len() > MESSAGES_MAX {
        paragraphs.push(format!("… and {} more messages", messages.len() - MESSAGES_MAX));
    }
    if let Some(tokens) = root.get("maxTokens").and_then(|tokens| tokens.u64()) {
        paragraphs.push(format!("(at most {tokens} tokens)"));
    }
    paragraphs.join("\n")
}

/// The blocks of the model's answer.
pub fn review_answer(result: &Json) -> String {
    blocks(result.to_doc().root().get("content")).collect::<Vec<_>>().join("\n")
}

fn blocks(content: Option<Node<'_>>) -> impl Iterator<Item = String> {
    let blocks: Vec<Node<'_>> = match content {
        Some(list) if list.kind() == NodeKind::Array => list.elements().collect(),
        one => one.into_iter().collect(),
    };
    let shown: Vec<String> = blocks.into_iter().take(MESSAGES_MAX).map(block_text).collect();
    shown.into_iter()
}

fn block_text(block: Node<'_>) -> String {
    let text = |key: &str| block.get(key).and_then(|value| value.str());
    match text("text") {
        Some(text) => shown(&text),
        None => {
            let kind = text("type").unwrap_or_else(|| "unknown".into());
            let bytes = text("data").map_or(0, |data| data.len() / 4 * 3);
            format!("[{}, about {bytes} bytes]", shown(&kind))
        }
    }
}

/// Lines stay lines; everything else that a terminal could act on is escaped.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(TEXT_CHARS_MAX).collect();
    let is_cut = cut.len() < text.len();
    let lines: Vec<String> = cut.lines().map(|line| escape_line(line).into_owned()).collect();
    format!("{}{}", lines.join("\n  "), if is_cut { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{review_answer, review_request};

    #[test]
    fn everything_that_the_model_gets_is_shown_and_nothing_acts_on_a_terminal() {
        let params = r#"{"systemPrompt":"be\u001b[2J brief","messages":[
            {"role":"user","content":{"type":"text","text":"one\ntwo"}},
            {"role":"user","content":[{"type":"image","data":"AAAAAAAA","mimeType":"image/png"},{"type":"text","text":"x"}]}],
            "maxTokens":7}"#;
        assert_eq!(
            review_request(&Json::parse(params).expect("JSON")),
            "system: be\\u{1b}[2J brief\nuser: one\n  two\nuser: [image, about 6 bytes]\nuser: x\n(at most 7 tokens)"
        );
        let long = format!(r#"{{"content":{{"type":"text","text":"{}"}}}}"#, "x".repeat(3000));
        let shown = review_answer(&Json::parse(&long).expect("JSON"));
        assert!(shown.ends_with("x…") && shown.len() < 2010, "{}", shown.len());
        assert_eq!(review_request(&Json::parse("[]").expect("JSON")), "");
    }
}
