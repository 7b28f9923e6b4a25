//! What is told of a write: once when it is done, and the same again to whoever repeats it.

use call::ToolReply;
use json::Json;

use super::items::changed_rows;
use super::{RECORD_BYTES_MAX, Unfit, reply, whole, words};
use crate::cell::Cell;
use crate::contract::Collection;
use crate::line::Line;

/// What came of a write. `structured` is an object, kept with the claim of whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub structured: Vec<u8>,
    pub text: String,
}

impl Told {
    /// One record, and what became of it: `created`, `updated`, `unchanged` or `deleted`.
    pub fn record(
        collection: &Collection,
        line: Option<&Line>,
        outcome: &str,
        cells: &[Cell<'_>],
    ) -> Result<Self, Unfit> {
        let mut structured = format!("{{\"outcome\":\"{outcome}\",\"record\":").into_bytes();
        let version = whole(&mut structured, collection, cells)?;
        structured.push(b'}');
        bounded(&structured)?;
        let words = words(collection, line, cells, version.as_deref());
        Ok(Self { structured, text: format!("{outcome}: {words}") })
    }

    /// The only record that a statement gave, and how many rows it changed.
    pub fn changed_one(
        collection: &Collection,
        line: Option<&Line>,
        changed: u64,
        cells: &[Cell<'_>],
    ) -> Result<Self, Unfit> {
        let mut structured = format!("{{\"changed\":{changed},\"record\":").into_bytes();
        let version = whole(&mut structured, collection, cells)?;
        structured.push(b'}');
        bounded(&structured)?;
        let words = words(collection, line, cells, version.as_deref());
        Ok(Self { structured, text: format!("{}: {words}", changed_rows(changed)) })
    }
}

fn bounded(bytes: &[u8]) -> Result<(), Unfit> {
    if bytes.len() > RECORD_BYTES_MAX { Err(Unfit::TooLarge { bytes: bytes.len() }) } else { Ok(()) }
}

/// What was done, or would be.
pub fn told(told: Told, dry_run: bool) -> ToolReply {
    if dry_run {
        let text = format!("dry run, nothing was written: {}", told.text);
        return reply(text, with(told.structured, "dry_run"));
    }
    reply(told.text, told.structured)
}

/// What was told when it was done. `None` if that is nothing that we could have told.
pub fn replayed(kept: &[u8]) -> Option<ToolReply> {
    let json = Json::parse(std::str::from_utf8(kept).ok()?).ok().filter(Json::is_object)?;
    let text = "this was done before; nothing was written now. It was: ";
    let text = format!("{text}{json}");
    Some(reply(text, with(json.as_str().as_bytes().to_vec(), "replayed")))
}

/// The object with one more member, which is true.
fn with(mut object: Vec<u8>, member: &str) -> Vec<u8> {
    object.pop();
    if object.last() != Some(&b'{') {
        object.push(b',');
    }
    json::write::string(&mut object, member);
    object.extend_from_slice(b":true}");
    object
}
