//! What is told of a write: once when it is done, and the same again to whoever repeats it.

use json::Json;
use spile_core::ToolResult;

use super::items::rows_changed_text;
use super::{RECORD_BYTES_MAX, RecordError, record_text, tool_result, write_record};
use crate::contract::Collection;
use crate::text_template::TextTemplate;
use crate::value::ValueRef;

/// What came of a write. `structured` is an object, kept with the claim of whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteResult {
    pub structured: Vec<u8>,
    pub text: String,
}

impl WriteResult {
    /// One record, and what became of it: `created`, `updated`, `unchanged` or `deleted`.
    pub fn record(
        collection: &Collection,
        line: Option<&TextTemplate>,
        outcome: &str,
        cells: &[ValueRef<'_>],
    ) -> Result<Self, RecordError> {
        let mut structured = format!("{{\"outcome\":\"{outcome}\",\"record\":").into_bytes();
        let version = write_record(&mut structured, collection, cells)?;
        structured.push(b'}');
        check_size(&structured)?;
        let words = record_text(collection, line, cells, version.as_deref());
        Ok(Self { structured, text: format!("{outcome}: {words}") })
    }

    /// The only record that a statement gave, and how many rows it changed.
    pub fn statement_record(
        collection: &Collection,
        line: Option<&TextTemplate>,
        changed: u64,
        cells: &[ValueRef<'_>],
    ) -> Result<Self, RecordError> {
        let mut structured = format!("{{\"changed\":{changed},\"record\":").into_bytes();
        let version = write_record(&mut structured, collection, cells)?;
        structured.push(b'}');
        check_size(&structured)?;
        let words = record_text(collection, line, cells, version.as_deref());
        Ok(Self { structured, text: format!("{}: {words}", rows_changed_text(changed)) })
    }
}

fn check_size(bytes: &[u8]) -> Result<(), RecordError> {
    if bytes.len() > RECORD_BYTES_MAX { Err(RecordError::TooLarge { bytes: bytes.len() }) } else { Ok(()) }
}

/// What was done, or would be.
pub fn write_tool_result(told: WriteResult, dry_run: bool) -> ToolResult {
    if dry_run {
        let text = format!("dry run, nothing was written: {}", told.text);
        return tool_result(text, with_flag(told.structured, "dry_run"));
    }
    tool_result(told.text, told.structured)
}

/// What was told when it was done. `None` if that is nothing that we could have told.
pub fn replayed_tool_result(kept: &[u8]) -> Option<ToolResult> {
    let json = Json::parse(std::str::from_utf8(kept).ok()?).ok().filter(Json::is_object)?;
    let text = "this was done before; nothing was written now. It was: ";
    let text = format!("{text}{json}");
    Some(tool_result(text, with_flag(json.as_str().as_bytes().to_vec(), "replayed")))
}

/// The object with one more member, which is true.
fn with_flag(mut object: Vec<u8>, member: &str) -> Vec<u8> {
    object.pop();
    if object.last() != Some(&b'{') {
        object.push(b',');
    }
    json::write::string(&mut object, member);
    object.extend_from_slice(b":true}");
    object
}
