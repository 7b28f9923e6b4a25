//! Changes one record of a collection. An API cannot roll back: what was sent has happened, and nothing here claims otherwise.

use std::sync::Arc;

use contract::manifest::rest::WriteEndpoint;
use contract::request::Method;
use contract::source::{
    IdempotencyKey, RowChange, RowTransaction, SourceError, Transaction, TransactionOptions, WriteError,
    Writer,
};
use contract::{Value, ValueRef};
use json::Json;
use spile_core::text::hex;

use crate::client::SendFailure;
use crate::limits::CallLimits;
use crate::reader::{CollectionReader, KeyValues};
use crate::render::{self, HttpRequest, NoValues, TypedValue, Values, append_query, write_json};
use crate::response::{self, Refusal};

pub(crate) struct CollectionWriter {
    pub(crate) reader: Arc<CollectionReader>,
    /// Names of columns that the API sets itself.
    pub(crate) read_only: Vec<String>,
}

impl Writer for CollectionWriter {
    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn RowTransaction + '_>, WriteError> {
        options.check_cancelled()?;
        Ok(Box::new(RecordChange {
            writer: self,
            options: options.clone(),
            before: None,
            after: After::Nothing,
        }))
    }
}

/// One change, from reading the record to reading it back.
struct RecordChange<'w> {
    writer: &'w CollectionWriter,
    options: TransactionOptions,
    /// The record before the change, as the API wrote it.
    before: Option<Json>,
    after: After,
}

/// A failure after the API accepted the change.
fn unreadable(message: &str, detail: String) -> WriteError {
    WriteError::ResultUnreadable { message: message.to_owned(), detail }
}

/// What is known of the record after the change.
enum After {
    Nothing,
    Deleted,
    /// The API returned it.
    Record(Json),
    /// It must be read again, by this key.
    Key(Vec<Value>),
}

impl RecordChange<'_> {
    fn reader(&self) -> &CollectionReader {
        &self.writer.reader
    }

    fn limits(&self) -> CallLimits<'_> {
        CallLimits::new(self.options.cancelled.as_ref(), None)
    }

    /// Sends the change, and returns the record of the response.
    fn send(
        &self,
        endpoint: &WriteEndpoint,
        values: &dyn Values,
        body: Option<Vec<u8>>,
        is_create: bool,
    ) -> Result<Option<Json>, WriteError> {
        let base = self.reader().client.base();
        let rejected = |error: render::RenderError| WriteError::Rejected {
            column: self
                .reader()
                .shape
                .columns
                .iter()
                .position(|column| Some(&column.name) == error.name.as_ref()),
            reason: error.reason,
        };
        let mut url = render::path(base, &endpoint.path, values).map_err(rejected)?;
        for (name, value) in &endpoint.query {
            append_query(&mut url, name, value);
        }
        let mut headers = Vec::new();
        let key = self.options.idempotency_key.as_ref();
        if let (Some(name), Some(key)) = (&endpoint.idempotency_header, key) {
            headers.push((name.clone(), hex(&key.key_digest[..16])));
        }
        if body.is_some() {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        let is_repeatable =
            endpoint.method.is_idempotent() || (endpoint.idempotency_header.is_some() && key.is_some());
        let request = HttpRequest {
            method: endpoint.method,
            endpoint: render::endpoint(endpoint.method, &endpoint.path),
            url,
            headers,
            body: body.unwrap_or_default(),
            is_repeatable,
        };
        let response = match self.reader().client.send(request, &self.limits()) {
            Ok(response) => response,
            // It was accepted. The record is read again.
            Err(SendFailure::Unreadable { .. }) => return Ok(None),
            Err(failure) => return Err(failure.into_write_error(is_repeatable)),
        };
        let may_be_repeated = response.may_be_repeated;
        match response::refusal(&response, endpoint.error.as_deref()) {
            None => {}
            // The record was there before; an earlier attempt of this request deleted it.
            Some(Refusal::NotFound) if may_be_repeated && endpoint.method == Method::Delete => {
                return Ok(None);
            }
            Some(Refusal::Conflict(_)) if is_create && !may_be_repeated => {
                return Err(WriteError::AlreadyExists);
            }
            Some(Refusal::NotFound) if is_create && !may_be_repeated => {
                return Err(WriteError::Source(Refusal::NotFound.into_source_error()));
            }
            Some(refusal) => return Err(refusal.into_write_error(is_repeatable, may_be_repeated)),
        }
        // A response that is not JSON is as good as none: the record is read again.
        Ok(response::object_at(&response.body, &endpoint.item).ok().flatten())
    }

    /// The values of a change as a JSON object, inside of what `body_at` says.
    fn body(&self, endpoint: &WriteEndpoint, values: &[(usize, ValueRef<'_>)]) -> Vec<u8> {
        let columns = &self.reader().shape.columns;
        let mut record = vec![b'{'];
        let mut push = |name: &str, write: &mut dyn FnMut(&mut Vec<u8>)| {
            if record.len() > 1 {
                record.push(b',');
            }
            json::write::string(&mut record, name);
            record.push(b':');
            write(&mut record);
        };
        let is_changed = |name: &str| values.iter().any(|(at, _)| columns[*at].name == name);
        if let (Method::Put, Some(before)) = (endpoint.method, &self.before) {
            for (name, member) in before.to_doc().root().members() {
                let name = name.str().unwrap_or_default();
                if !is_changed(&name) && !self.writer.read_only.iter().any(|one| *one == name) {
                    push(&name, &mut |out| out.extend_from_slice(member.raw().as_bytes()));
                }
            }
        }
        for (at, value) in values {
            let (column, value) = (&columns[*at], *value);
            let typed = TypedValue { data_type: column.data_type, value };
            push(&column.name, &mut |out| self.write_value(out, &column.name, typed));
        }
        record.push(b'}');
        for name in endpoint.body_at.split('/').skip(1).collect::<Vec<_>>().into_iter().rev() {
            let mut outer = vec![b'{'];
            json::write::string(&mut outer, &name.replace("~1", "/").replace("~0", "~"));
            outer.push(b':');
            outer.append(&mut record);
            outer.push(b'}');
            record = outer;
        }
        record
    }

    /// A number that the API wrote as text before is written as text again.
    fn write_value(&self, out: &mut Vec<u8>, name: &str, value: TypedValue<'_>) {
        let was_text = self.before.as_ref().is_some_and(|before| {
            let doc = before.to_doc();
            doc.root().get(name).is_some_and(|member| member.kind() == json::NodeKind::String)
        });
        match value.value {
            ValueRef::Null => out.extend_from_slice(b"null"),
            _ if was_text && value.data_type != contract::DataType::Json => {
                json::write::string(out, &render::plain_text(value))
            }
            _ => write_json(out, value),
        }
    }

    fn endpoint<'e>(&self, endpoint: &'e Option<WriteEndpoint>) -> Result<&'e WriteEndpoint, WriteError> {
        endpoint.as_ref().ok_or_else(|| WriteError::Source(SourceError::read_only()))
    }

    fn row_of(&self, record: &Json) -> Result<Option<Vec<Value>>, WriteError> {
        let mut row = None;
        let reader = self.reader().single_row(record)?;
        let query = contract::source::Query { rows_max: 1, ..Default::default() };
        reader.list(&query, &mut |values, _| {
            row = Some(values.iter().map(|value| value.to_value()).collect());
            contract::source::RowFlow::Stop
        })?;
        Ok(row)
    }

    /// The key of a record, if it has all parts of it.
    fn key_of(&self, record: &Json) -> Option<Vec<Value>> {
        let row = self.row_of(record).ok().flatten()?;
        let key: Vec<Value> = self.reader().shape.key.iter().map(|at| row[*at].clone()).collect();
        key.iter().all(|part| *part != Value::Null).then_some(key)
    }
}

impl Transaction for RecordChange<'_> {
    /// The API itself recognizes a repeated request.
    fn find_response(&mut self, _key: &IdempotencyKey) -> Result<Option<Vec<u8>>, WriteError> {
        Ok(None)
    }

    fn store_response(&mut self, _key: &IdempotencyKey, _response: &[u8]) -> Result<(), WriteError> {
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<(), WriteError> {
        Ok(())
    }

    fn roll_back(self: Box<Self>) {}
}

impl RowTransaction for RecordChange<'_> {
    fn row(&mut self, key: &[ValueRef<'_>]) -> Result<Option<Vec<Value>>, WriteError> {
        if self.reader().endpoints.get.is_some() {
            self.before = self.reader().record(key, &self.limits())?;
            return match &self.before {
                Some(record) => self.row_of(record),
                None => Ok(None),
            };
        }
        let mut row = None;
        if let Some(rows) = self.reader().rows_with_key(key, self.options.cancelled.as_ref())? {
            rows.get(key, &mut |values| row = Some(values.iter().map(|value| value.to_value()).collect()))?;
        }
        Ok(row)
    }

    fn apply(&mut self, change: &RowChange<'_>) -> Result<(), WriteError> {
        self.options.check_cancelled()?;
        let shape = &self.writer.reader.shape;
        let endpoints = &self.writer.reader.endpoints;
        self.after = match change {
            RowChange::Create { values } => {
                let endpoint = self.endpoint(&endpoints.create)?;
                let body = self.body(endpoint, values);
                let record = self.send(endpoint, &NoValues, Some(body), true)?;
                let given: Option<Vec<Value>> = shape
                    .key
                    .iter()
                    .map(|part| values.iter().find(|(at, _)| at == part).map(|(_, value)| value.to_value()))
                    .collect();
                match (record.filter(|record| self.key_of(record).is_some()), given) {
                    (Some(record), _) => After::Record(record),
                    (None, Some(key)) => After::Key(key),
                    (None, None) => {
                        return Err(unreadable(
                            "the API created the record, but did not return it, so that its key is unknown",
                            "see `item` of `create` in the manifest".to_owned(),
                        ));
                    }
                }
            }
            RowChange::Update { key, values } => {
                let endpoint = self.endpoint(&endpoints.update)?;
                let body = self.body(endpoint, values);
                let record = self.send(endpoint, &KeyValues { shape, key }, Some(body), false)?;
                let key: Vec<Value> = key.iter().map(|part| part.to_value()).collect();
                match record.filter(|record| self.key_of(record).as_deref() == Some(&key)) {
                    Some(record) => After::Record(record),
                    None => After::Key(key),
                }
            }
            RowChange::Delete { key } => {
                let endpoint = self.endpoint(&endpoints.delete)?;
                self.send(endpoint, &KeyValues { shape, key }, None, false)?;
                After::Deleted
            }
        };
        Ok(())
    }

    fn read_back(&mut self) -> Result<Option<Vec<Value>>, WriteError> {
        match &self.after {
            After::Nothing | After::Deleted => Ok(None),
            After::Record(record) => self.row_of(record).map_err(|error| {
                let message = format!("the API made the change, but its record cannot be used: {error}");
                unreadable(&message, format!("{error:?}"))
            }),
            After::Key(key) => {
                let key = key.clone();
                let key: Vec<ValueRef<'_>> = key.iter().map(Value::as_value_ref).collect();
                match self.row(&key) {
                    Ok(Some(row)) => Ok(Some(row)),
                    Ok(None) => {
                        let message = "the API accepted the change, but does not have the record now";
                        Err(unreadable(message, "reading it back found nothing".to_owned()))
                    }
                    Err(error) => {
                        let message = format!("the API made the change, but reading it back failed: {error}");
                        Err(unreadable(&message, format!("{error:?}")))
                    }
                }
            }
        }
    }
}
