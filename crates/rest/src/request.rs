//! Sends the request of a tool, and returns what its author declared of the response.

use std::sync::Arc;

use contract::request::{RequestShape, ResponseShape};
use contract::source::{
    PreparedRequest, Query, RowFlow, SourceError, TableOptions, TransactionOptions, WriteError,
};
use contract::{DataType, ValueRef};
use json::NodeKind;
use source::MemoryRows;
use spile_core::text::hex;

use crate::client::RestClient;
use crate::limits::CallLimits;
use crate::render::{self, Parameters, RenderError};
use crate::response::{self, incompatible};

pub(crate) struct ToolRequest {
    pub(crate) client: Arc<RestClient>,
    pub(crate) shape: RequestShape,
    pub(crate) options: TableOptions,
}

impl ToolRequest {
    fn rejected(&self, error: RenderError) -> WriteError {
        let is_it = |(name, _): &(String, DataType)| Some(name) == error.name.as_ref();
        WriteError::Rejected { column: self.shape.parameters.iter().position(is_it), reason: error.reason }
    }

    /// The declared part of a response, as an array of records.
    fn records(&self, body: Vec<u8>) -> Result<Vec<u8>, SourceError> {
        let (ResponseShape::Object(at) | ResponseShape::Objects(at) | ResponseShape::Value(at)) =
            &self.shape.result;
        if body.trim_ascii().is_empty() {
            match self.shape.result {
                ResponseShape::Value(_) => return Ok(br#"[{"result":null}]"#.to_vec()),
                // What was changed is not "not found".
                ResponseShape::Object(_) if self.shape.writes => {
                    return Err(incompatible("its response is empty", "see `result` in the manifest"));
                }
                ResponseShape::Object(_) | ResponseShape::Objects(_) => return Ok(b"[]".to_vec()),
            }
        }
        let doc = response::parse(body)?;
        let found = response::pointer(doc.root(), at);
        let missing = |what: &str| {
            let place = if at.is_empty() { "in the response".to_owned() } else { format!("at `{at}`") };
            incompatible(format!("the API returned no {what} {place}"), "see `result` in the manifest")
        };
        match (&self.shape.result, found) {
            (ResponseShape::Value(_), found) => {
                let raw = found.map_or("null", |node| node.raw());
                Ok(format!(r#"[{{"result":{raw}}}]"#).into_bytes())
            }
            (ResponseShape::Object(_), Some(node)) if node.is_object() => {
                Ok(format!("[{}]", node.raw()).into_bytes())
            }
            (ResponseShape::Object(_), _) => Err(missing("object")),
            (ResponseShape::Objects(_), Some(node)) if node.kind() == NodeKind::Array => {
                Ok(node.raw().into())
            }
            (ResponseShape::Objects(_), _) => Err(missing("array of objects")),
        }
    }

    /// The sensitive value `result` of any JSON has no rows to filter: it is passed on as it is.
    fn pass_rows(
        &self,
        records: Vec<u8>,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), SourceError> {
        let rows = MemoryRows::json(&self.shape.table.table, records, self.options.clone())?;
        let reader = rows.reader(&self.shape.table)?;
        let query = Query { rows_max: usize::MAX, ..Query::default() };
        reader.list(&query, &mut |values, _| row(values)).map(drop)
    }
}

impl PreparedRequest for ToolRequest {
    fn send(
        &self,
        arguments: &[ValueRef<'_>],
        options: &TransactionOptions,
        row: &mut dyn FnMut(&[ValueRef<'_>]) -> RowFlow,
    ) -> Result<(), WriteError> {
        options.check_cancelled()?;
        let values = Parameters { names: &self.shape.parameters, values: arguments };
        let key = options.idempotency_key.as_ref().map(|key| hex(&key.key_digest[..16]));
        let request = render::request(self.client.base(), &self.shape.template, &values, key.as_deref())
            .map_err(|error| self.rejected(error))?;
        let limits = CallLimits::new(options.cancelled.as_ref(), self.shape.timeout_ms);
        let is_repeatable = request.is_repeatable || !self.shape.writes;
        let request = render::HttpRequest { is_repeatable, ..request };
        let response =
            self.client.send(request, &limits).map_err(|failure| failure.into_write_error(is_repeatable))?;
        if let Some(refusal) = response::refusal(&response, self.shape.template.error_pointer.as_deref()) {
            let may_be_repeated = response.may_be_repeated && self.shape.writes;
            return Err(refusal.into_write_error(is_repeatable, may_be_repeated));
        }
        let read = self.records(response.body).and_then(|records| self.pass_rows(records, row));
        read.map_err(|error| match self.shape.writes {
            true => response::accepted(response.status, &error.to_string(), format!("{error:?}")),
            false => error.into(),
        })
    }
}
