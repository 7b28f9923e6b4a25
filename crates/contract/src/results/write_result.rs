//! The result of a write, and its replay for a repeated idempotency key.

use json::Json;
use spile_core::ToolResult;

use super::items::rows_changed_text;
use super::{RECORD_BYTES_MAX, RecordError, append_member, record_text, tool_result, write_record};
use crate::contract::Collection;
use crate::text_template::TextTemplate;
use crate::value::ValueRef;

/// The result of a write. `structured` is a JSON object; it is stored with the idempotency record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteResult {
    pub structured: Vec<u8>,
    pub text: String,
}

impl WriteResult {
    /// The result for one row. `outcome` is `created`, `updated`, `unchanged` or `deleted`.
    pub fn record(
        collection: &Collection,
        template: Option<&TextTemplate>,
        outcome: &str,
        cells: &[ValueRef<'_>],
    ) -> Result<Self, RecordError> {
        let mut structured = format!("{{\"outcome\":\"{outcome}\",\"record\":").into_bytes();
        let version = write_record(&mut structured, collection, cells)?;
        structured.push(b'}');
        check_size(&structured)?;
        let text = record_text(collection, template, cells, version.as_deref());
        Ok(Self { structured, text: format!("{outcome}: {text}") })
    }

    /// The result of a statement that returned one row.
    pub fn statement_record(
        collection: &Collection,
        template: Option<&TextTemplate>,
        changed: u64,
        cells: &[ValueRef<'_>],
    ) -> Result<Self, RecordError> {
        let mut structured = format!("{{\"changed\":{changed},\"record\":").into_bytes();
        let version = write_record(&mut structured, collection, cells)?;
        structured.push(b'}');
        check_size(&structured)?;
        let text = record_text(collection, template, cells, version.as_deref());
        Ok(Self { structured, text: format!("{}: {text}", rows_changed_text(changed)) })
    }
}

fn check_size(bytes: &[u8]) -> Result<(), RecordError> {
    if bytes.len() > RECORD_BYTES_MAX { Err(RecordError::TooLarge { bytes: bytes.len() }) } else { Ok(()) }
}

/// The tool result of a write or of its preview.
pub fn write_tool_result(result: WriteResult, dry_run: bool) -> ToolResult {
    if dry_run {
        let text = format!("dry run, nothing was written: {}", result.text);
        return tool_result(text, with_flag(result.structured, "dry_run"));
    }
    tool_result(result.text, result.structured)
}

/// The stored result of an earlier call. `None` if it is not a JSON object, which we never store.
pub fn replayed_tool_result(stored: &[u8]) -> Option<ToolResult> {
    let json = Json::parse(std::str::from_utf8(stored).ok()?).ok().filter(Json::is_object)?;
    let text = format!(
        "an earlier call with this idempotency_key did this; nothing was written now. Its result: {json}"
    );
    Some(tool_result(text, with_flag(json.as_str().as_bytes().to_vec(), "replayed")))
}

/// Adds a member with the value `true` to an object.
fn with_flag(mut object: Vec<u8>, member: &str) -> Vec<u8> {
    append_member(&mut object, member, |out| out.extend_from_slice(b"true"));
    object
}
