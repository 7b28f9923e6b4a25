//! Sends a request that the manifest declares. An API cannot roll back, so the user is asked before anything is sent.

use std::sync::atomic::Ordering;

use contract::bind::{self, BoundValue};
use contract::results::{self, RowList};
use contract::source::{RowFlow, SourceError, TransactionOptions, WriteError};
use contract::{Returns, Tool, ValueRef, confirmation};
use spile_core::{Call, Outcome, Platform, ToolError, ToolErrorCode};
use state::keyring::digest_parts;

use super::confirm;
use super::error::{
    RetrySafety, record_error_outcome, rejected_value_error, source_error_outcome, write_error_outcome,
};
use super::write::idempotency_key;
use super::{BlockingContext, ProviderInner};

impl ProviderInner {
    pub(super) fn send_request(
        &self,
        tool: &Tool,
        index: usize,
        call: &Call,
        blocking: &BlockingContext,
        platform: &dyn Platform,
    ) -> Result<Outcome, Box<ToolError>> {
        let (request, prepared) = (&self.contract.requests[index], &*self.backends.requests[index]);
        let collection = &request.result;
        let (bound, write_options) = bind::request(request, call.arguments())?;
        let values: Vec<ValueRef<'_>> = bound.iter().map(BoundValue::as_value_ref).collect();
        let mut options = TransactionOptions {
            identity: None,
            now_ms: platform.now_ms(),
            cancelled: Some(blocking.cancelled.clone()),
            ..TransactionOptions::default()
        };
        if request.shape.writes {
            let digest = digest_parts(&[&bind::canonical_arguments(&request.arguments, &bound)]);
            if confirm::requires_confirmation(tool, false, &blocking.caller)? {
                let key = confirm::confirmation_key(tool, &[], &digest);
                let question = || confirmation::request_message(request, &values);
                if let Err(reason) = confirm::check_confirmed(&blocking.journal, key, question) {
                    return Ok(reason.into_outcome(collection, platform));
                }
            }
            options.idempotency_key = idempotency_key(tool, &write_options, blocking, digest, None);
        }
        let template = tool.text_template.as_ref();
        let mut rows = RowList::new(collection, template, None, collection.rows_max);
        let mut record = None;
        let sent = prepared.send(&values, &options, &mut |values| {
            blocking.rows_scanned.fetch_add(1, Ordering::Relaxed);
            match request.returns {
                Returns::Many => rows.push(values),
                Returns::One => {
                    record.get_or_insert_with(|| results::record(collection, template, values));
                    RowFlow::Stop
                }
            }
        });
        let not_found = || {
            let message = format!("`{}` found nothing for these arguments", tool.name);
            ToolError::new(ToolErrorCode::NotFound, message)
        };
        let argument_error = |parameter: Option<usize>, reason: &str| {
            let argument = parameter.and_then(|index| request.arguments.get(index));
            rejected_value_error(argument.map(|argument| &*argument.field.name), reason)
        };
        let result = match (sent, request.returns) {
            (Ok(()), Returns::Many) => rows.into_statement_result(),
            (Ok(()), Returns::One) => match record {
                Some(record) => record,
                None => return Ok(not_found().into()),
            },
            (Err(WriteError::NotFound), _) => return Ok(not_found().into()),
            (Err(WriteError::Rejected { column, reason }), _) => {
                return Ok(argument_error(column, &reason).into());
            }
            (Err(WriteError::Source(SourceError::InvalidArgument { parameter, reason })), _) => {
                return Ok(argument_error(parameter, &reason).into());
            }
            (Err(WriteError::Source(error)), _) => {
                return Ok(source_error_outcome(&error, collection, platform));
            }
            (Err(error), _) => {
                let retry_safety = RetrySafety::for_write(&write_options);
                return Ok(write_error_outcome(&error, collection, &[], retry_safety, platform));
            }
        };
        Ok(match result {
            Ok(result) => result.into(),
            Err(error) if request.shape.writes => {
                let message =
                    "the API accepted the request, but what it returned does not match the output schema"
                        .to_owned();
                let error = WriteError::ResultUnreadable { message, detail: error.to_string() };
                write_error_outcome(&error, collection, &[], RetrySafety::for_write(&write_options), platform)
            }
            Err(error) => record_error_outcome(&error, collection, platform),
        })
    }
}
