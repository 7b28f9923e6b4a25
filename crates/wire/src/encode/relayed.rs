//! Results of another server, passed on: every member, annotation and `_meta` as it came, except where the receiving
//! client's version has no word for it.

use json::{Json, Node, NodeKind, write};

use super::results::{write_structured, write_text_block};
use super::{RenderedServerInfo, write_cache_hints};
use crate::version::{Feature, Version};

/// Writes the result object.
pub(super) fn write_relayed_result(
    out: &mut Vec<u8>,
    version: Version,
    server_info: &RenderedServerInfo,
    result: &Json,
) {
    let doc = result.to_doc();
    let root = doc.root();
    let is_resource = root.get("contents").is_some();
    let mut is_empty = true;
    let mut meta = None;
    out.push(b'{');
    for (key, value) in root.members() {
        let name = key.str().unwrap_or_default();
        match &*name {
            // Each version writes its own.
            "resultType" => continue,
            "_meta" => {
                meta = Some(value);
                continue;
            }
            "ttlMs" | "cacheScope" if !version.has(Feature::CacheHints) => continue,
            "structuredContent" if !version.has(Feature::StructuredResult) => continue,
            _ => {}
        }
        if !std::mem::take(&mut is_empty) {
            out.push(b',');
        }
        write::string(out, &name);
        out.push(b':');
        match &*name {
            "content" if value.kind() == NodeKind::Array => {
                write_blocks(out, version, &value, root.get("structuredContent"))
            }
            "structuredContent" => write_structured(out, version, value.raw(), value.is_object()),
            "messages" if value.kind() == NodeKind::Array => write_messages(out, version, &value),
            _ => out.extend_from_slice(value.raw().as_bytes()),
        }
    }
    if is_resource && root.get("ttlMs").is_none() {
        write_cache_hints(out, version, 0, false);
    }
    match meta {
        None => server_info.close_result(out, version, is_empty),
        Some(meta) => {
            if !is_empty {
                out.push(b',');
            }
            if version.has(Feature::ResultType) {
                out.extend_from_slice(br#""resultType":"complete","_meta":"#);
                server_info.write_meta(out, Some(&Json::from_written_bytes(meta.raw().as_bytes().to_vec())));
            } else {
                out.extend_from_slice(br#""_meta":"#);
                out.extend_from_slice(meta.raw().as_bytes());
            }
            out.push(b'}');
        }
    }
}

fn write_blocks(out: &mut Vec<u8>, version: Version, blocks: &Node<'_>, structured: Option<Node<'_>>) {
    out.push(b'[');
    let mut is_first = true;
    for block in blocks.elements() {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        write_block(out, version, &block);
    }
    // A client of a version without structured content gets the data as a text, unless it has it already.
    if let Some(json) = structured.filter(|_| !version.has(Feature::StructuredResult)) {
        let has_text =
            blocks.elements().any(|block| block.get("type").is_some_and(|kind| kind.eq_str("text")));
        if !has_text {
            if !is_first {
                out.push(b',');
            }
            write_text_block(out, json.raw());
        }
    }
    out.push(b']');
}

fn write_messages(out: &mut Vec<u8>, version: Version, messages: &Node<'_>) {
    out.push(b'[');
    let mut is_first = true;
    for message in messages.elements() {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        out.push(b'{');
        let mut is_first_member = true;
        for (key, value) in message.members() {
            if !std::mem::take(&mut is_first_member) {
                out.push(b',');
            }
            let name = key.str().unwrap_or_default();
            write::string(out, &name);
            out.push(b':');
            match &*name {
                "content" => write_block(out, version, &value),
                _ => out.extend_from_slice(value.raw().as_bytes()),
            }
        }
        out.push(b'}');
    }
    out.push(b']');
}

/// A block that the version does not know would break its client: audio becomes an embedded resource with the same bytes,
/// a link becomes text.
fn write_block(out: &mut Vec<u8>, version: Version, block: &Node<'_>) {
    let kind = block.get("type").and_then(|kind| kind.str()).unwrap_or_default();
    let text = |name: &str| block.get(name).and_then(|value| value.str()).unwrap_or_default();
    match &*kind {
        "audio" if !version.has(Feature::Audio) => {
            out.extend_from_slice(br#"{"type":"resource","resource":{"uri":"content:audio","mimeType":"#);
            write::string(out, &text("mimeType"));
            out.extend_from_slice(br#","blob":"#);
            write::string(out, &text("data"));
            out.extend_from_slice(b"}}");
        }
        "resource_link" if !version.has(Feature::ResourceLinks) => {
            let description = text("description");
            let description =
                if description.is_empty() { String::new() } else { format!(" ({description})") };
            write_text_block(out, &format!("{}: {}{description}", text("name"), text("uri")));
        }
        _ => out.extend_from_slice(block.raw().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use json::Json;
    use spile_core::CallResult;

    use crate::encode::{CallResponseRef, RenderedServerInfo, ReplyTo, call_response};
    use crate::id::RequestId;
    use crate::version::Version;

    fn check(version: Version, result: &str, expected: &str) {
        let to = ReplyTo { version, id: RequestId::from_number(1), progress_token: None };
        let mut out = Vec::new();
        let result = CallResult::Relayed(Json::parse(result).expect("JSON"));
        call_response(&mut out, &to, &RenderedServerInfo::new("s", "1"), &CallResponseRef::Result(&result));
        let doc = Json::from_written_bytes(out).to_doc();
        assert_eq!(doc.root().get("result").expect("a result").raw(), expected, "{version:?}");
    }

    const META: &str = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}"#;

    #[test]
    fn members_annotations_and_meta_pass_unchanged() {
        let result = concat!(
            r#"{"content":[{"type":"text","text":"a\u00e9","annotations":{"audience":["user"],"priority":0.50}}],"#,
            r#""structuredContent":{"n":1.10},"isError":false,"vendor":{"x":[1,2]},"_meta":{"trace":"t1"}}"#
        );
        check(Version::V2025_11_25, result, result);
        let newest = result.replace(
            r#""_meta":{"trace":"t1"}}"#,
            &format!(r#""resultType":"complete",{META},"trace":"t1"}}}}"#),
        );
        check(Version::NEWEST, result, &newest);
        check(
            Version::NEWEST,
            &result.replace(r#"{"content""#, r#"{"resultType":"complete","content""#),
            &newest,
        );
    }

    #[test]
    fn what_a_version_does_not_know_is_translated() {
        let audio = r#"{"content":[{"type":"audio","data":"AA==","mimeType":"audio/wav"}]}"#;
        let blob = r#"{"content":[{"type":"resource","resource":{"uri":"content:audio","mimeType":"audio/wav","blob":"AA=="}}]}"#;
        check(Version::V2024_11_05, audio, blob);
        check(Version::V2025_06_18, audio, audio);
        let link = r#"{"content":[{"type":"resource_link","uri":"f:a","name":"a","description":"one"}]}"#;
        check(Version::V2025_03_26, link, r#"{"content":[{"type":"text","text":"a: f:a (one)"}]}"#);
        check(Version::V2025_06_18, link, link);
        let structured = r#"{"content":[],"structuredContent":{"a":1}}"#;
        check(Version::V2024_11_05, structured, r#"{"content":[{"type":"text","text":"{\"a\":1}"}]}"#);
        let list = r#"{"content":[{"type":"text","text":"[1]"}],"structuredContent":[1]}"#;
        let wrapped = list.replace(":[1]}", r#":{"result":[1]}}"#);
        check(Version::V2025_11_25, list, &wrapped);
        check(Version::V2024_11_05, list, r#"{"content":[{"type":"text","text":"[1]"}]}"#);
    }

    #[test]
    fn a_resource_gets_the_cache_hints_of_the_version() {
        let plain = r#"{"contents":[{"uri":"f:a","text":"x"}]}"#;
        let hinted = r#"{"contents":[{"uri":"f:a","text":"x"}],"ttlMs":5,"cacheScope":"public"}"#;
        check(Version::V2025_11_25, plain, plain);
        check(Version::V2025_11_25, hinted, plain);
        let newest = |ttl: &str| {
            format!(r#"{{"contents":[{{"uri":"f:a","text":"x"}}],{ttl},"resultType":"complete",{META}}}}}"#)
        };
        check(Version::NEWEST, plain, &newest(r#""ttlMs":0,"cacheScope":"private""#));
        check(Version::NEWEST, hinted, &newest(r#""ttlMs":5,"cacheScope":"public""#));
    }

    #[test]
    fn an_empty_or_odd_result_stays_json() {
        check(Version::V2025_11_25, "{}", "{}");
        check(Version::V2025_11_25, r#"{"content":5,"_meta":{}}"#, r#"{"content":5,"_meta":{}}"#);
        check(Version::V2025_11_25, r#"{"_meta":{"a":1}}"#, r#"{"_meta":{"a":1}}"#);
        check(
            Version::V2024_11_05,
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"a"}}]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"a"}}]}"#,
        );
    }
}
