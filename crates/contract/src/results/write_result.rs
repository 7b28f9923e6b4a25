//! The result of a write, and its replay for a repeated idempotency key.

use json::Json;
use spile_core::ToolResult;

use super::{RECORD_BYTES_MAX, RecordError, append_member, record_text, tool_result, write_record};
use crate::contract::Collection;
use crate::humanize::pluralize;
use crate::text_template::TextTemplate;
use crate::value::ValueRef;

/// The result of a write. `structured` is a JSON object; it is stored with the idempotency record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteResult {
    pub structured: Vec<u8>,
    /// For people and models, after the write.
    pub text: String,
    /// The same for a write that was only previewed.
    preview_text: String,
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
        let row = record_text(collection, template, cells, version.as_deref());
        let preview = match outcome {
            "updated" => "This row would be updated to",
            "unchanged" => "This row would not change",
            "deleted" => "This row would be deleted",
            _ => "This row would be created",
        };
        let preview_text = format!("{PREVIEW} {preview}: {row}");
        Ok(Self { structured, text: format!("{outcome}: {row}"), preview_text })
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
        let row = record_text(collection, template, cells, version.as_deref());
        Ok(Self::statement(structured, changed, &format!(": {row}")))
    }
}

impl WriteResult {
    /// The result of a statement. `rows` follows the number of rows changed.
    pub(super) fn statement(structured: Vec<u8>, changed: u64, rows: &str) -> Self {
        let count = pluralize(changed, "row");
        let text = format!("{count} changed{rows}");
        Self { structured, text, preview_text: format!("{PREVIEW} {count} would be changed{rows}") }
    }
}

const PREVIEW: &str = "Preview only, nothing was written.";

fn check_size(bytes: &[u8]) -> Result<(), RecordError> {
    if bytes.len() > RECORD_BYTES_MAX { Err(RecordError::TooLarge { bytes: bytes.len() }) } else { Ok(()) }
}

/// The tool result of a write or of its preview.
pub fn write_tool_result(result: WriteResult, dry_run: bool) -> ToolResult {
    if dry_run {
        return tool_result(result.preview_text, with_flag(result.structured, "dry_run"));
    }
    tool_result(result.text, result.structured)
}

/// The stored result of an earlier call. `None` if it is not a JSON object, which we never store.
pub fn replayed_tool_result(stored: &[u8]) -> Option<ToolResult> {
    let json = Json::parse(std::str::from_utf8(stored).ok()?).ok().filter(Json::is_object)?;
    let text = format!(
        "Already applied by an earlier call with this idempotency_key; this call wrote nothing. \
         Result of the earlier call: {json}"
    );
    Some(tool_result(text, with_flag(json.as_str().as_bytes().to_vec(), "replayed")))
}

/// Adds a member with the value `true` to an object.
fn with_flag(mut object: Vec<u8>, member: &str) -> Vec<u8> {
    append_member(&mut object, member, |out| out.extend_from_slice(b"true"));
    object
}
