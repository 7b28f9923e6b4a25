//! The author's requests to REST APIs: where each argument goes, and what callers get back.

use super::field::ColumnInputs;
use super::tools::{new_tool, title_from_name};
use super::{CompiledTool, Compiler, IntrospectedSource};
use crate::contract::{Argument, Collection, LONG_RUNNING_TIMEOUT_MS, NoticeSupport, Request, ToolOperation};
use crate::data_type::DataType;
use crate::field::Field;
use crate::manifest::{self, Returns, ToolBody};
use crate::names;
use crate::nearest::did_you_mean;
use crate::request::{
    ArrayStyle, BodyFormat, BodyTemplate, RequestShape, RequestTemplate, ResponseShape, TextPattern,
};
use crate::schemas;
use crate::source::{ColumnFacts, TableShape, WriteCapabilities};

/// The only member of a result without declared fields.
const RESULT_FIELD: &str = "result";

impl<'m> Compiler<'m> {
    /// Compiles every request, and adds a tool for each that is not hidden.
    pub(super) fn compile_requests(
        &mut self,
        known: &[IntrospectedSource<'_>],
        tools: &mut Vec<CompiledTool<'m>>,
    ) -> Vec<Request> {
        let mut requests = Vec::new();
        for declared_tool in &self.manifest.tools {
            let ToolBody::Request(declared) = &declared_tool.body else { continue };
            // A source that could not be opened was reported then.
            if known.iter().all(|one| one.name != declared.source.value) {
                continue;
            }
            let Some(request) = self.compile_request(declared_tool, declared) else { continue };
            if declared_tool.hidden {
                continue;
            }
            let name = &declared_tool.name;
            let schemas = (schemas::request_input_schema(&request), schemas::request_output_schema(&request));
            let operation = ToolOperation::Request { request: requests.len() };
            let (title, description) = (title_from_name(&name.value), default_description(&request));
            let mut tool = new_tool(name.value.clone(), title, description, schemas, operation);
            Self::apply_tool_settings(&mut tool, declared_tool, request.shape.writes);
            let template = declared_tool.text_template.as_ref();
            tool.text_template = template.and_then(|text| self.parse_template(text, &request.result));
            tools.push(CompiledTool { tool, name_location: Some(&name.location) });
            requests.push(request);
        }
        requests
    }

    fn compile_request(&mut self, tool: &manifest::Tool, declared: &manifest::Request) -> Option<Request> {
        let errors = self.error_count();
        let template = self.complete_template(declared);
        let mut capabilities = WriteCapabilities::NONE;
        if template.idempotency_header.is_some() {
            capabilities = capabilities.with(WriteCapabilities::IDEMPOTENCY);
        }
        if template.method.is_idempotent() {
            capabilities = capabilities.with(WriteCapabilities::REPEATABLE);
        }
        if declared.writes {
            self.check_tool_confirm(tool, &declared.source.value, capabilities);
        }
        let arguments: Vec<Argument> = declared
            .arguments
            .iter()
            .enumerate()
            .map(|(index, argument)| self.compile_argument(argument, index))
            .collect();
        self.check_places(declared, &template, &arguments);
        let (table, fields) = self.compile_response(tool, declared);
        let result = match (declared.fields.is_empty(), declared.returns) {
            (true, _) => ResponseShape::Value(declared.result.clone()),
            (false, Returns::One) => ResponseShape::Object(declared.result.clone()),
            (false, Returns::Many) => ResponseShape::Objects(declared.result.clone()),
        };
        let parameter = |argument: &Argument| (argument.field.name.clone(), argument.field.data_type);
        let shape = RequestShape {
            template,
            parameters: arguments.iter().map(parameter).collect(),
            writes: declared.writes,
            result,
            table: table.clone(),
            timeout_ms: tool.call_timeout_ms.or(tool.long_running.then_some(LONG_RUNNING_TIMEOUT_MS)),
        };
        let result = Collection {
            rules: None,
            name: tool.name.value.clone(),
            source: declared.source.value.clone(),
            shape: table,
            fields,
            rows_max: declared.rows_max as usize,
            bytes_max: declared.bytes_max as usize,
            write_policy: None,
            notices: NoticeSupport::default(),
            time_zone: None,
            links: Vec::new(),
        };
        let source = declared.source.value.clone();
        let request = Request { source, shape, capabilities, arguments, result, returns: declared.returns };
        (self.error_count() == errors).then_some(request)
    }

    /// The template with a place for every argument: those that it does not name go to the body, or to the query.
    fn complete_template(&mut self, declared: &manifest::Request) -> RequestTemplate {
        let mut template = declared.template.value.clone();
        let used: Vec<String> = template.names().into_iter().map(str::to_owned).collect();
        let unused = || declared.arguments.iter().filter(|one| !used.contains(&one.name.value));
        match (template.method.has_body(), &template.body) {
            // Without arguments to send there is no body.
            (true, None) if unused().next().is_none() => {}
            (true, None) => {
                let members =
                    unused().map(|one| (one.name.value.clone(), BodyTemplate::Value(one.name.value.clone())));
                template.body = Some(BodyTemplate::Object(members.collect()));
            }
            (false, _) => template.query.extend(unused().map(|one| {
                (one.name.value.clone(), TextPattern::value(&one.name.value, ArrayStyle::Repeated))
            })),
            (true, Some(_)) => {
                for one in unused() {
                    let message = format!("the request does not use the argument `{}`", one.name.value);
                    let help = format!("write `{{{}}}` where it belongs, or remove it", one.name.value);
                    self.error(&one.name.location, message, help);
                }
            }
        }
        for argument in &declared.arguments {
            let Some(at) = &argument.nullable else { continue };
            let name = &argument.name.value;
            let is_member = |body: &BodyTemplate| body.has_value(name);
            if template.body_format == BodyFormat::Json && template.body.as_ref().is_some_and(is_member) {
                template.nullable.push(name.clone());
            } else {
                let message =
                    format!("`{name}` cannot be null: it is not a value in the JSON body of the request");
                self.error(at, message, "remove `nullable`".into());
            }
        }
        for name in &used {
            if declared.arguments.iter().all(|one| one.name.value != *name) {
                let names = declared.arguments.iter().map(|one| one.name.value.as_str());
                let help = did_you_mean(name, names)
                    .unwrap_or_else(|| format!("add `arguments.{name} = {{ type = \"string\" }}`"));
                let message = format!("the argument `{{{name}}}` is not declared");
                self.error(&declared.template.location, message, help);
            }
        }
        template
    }

    /// Checks that the values of arguments fit their places.
    fn check_places(
        &mut self,
        declared: &manifest::Request,
        template: &RequestTemplate,
        arguments: &[Argument],
    ) {
        let found =
            |name: &str| arguments.iter().zip(&declared.arguments).find(|(one, _)| one.field.name == name);
        for name in template.path.names() {
            let Some((argument, declared)) = found(name) else { continue };
            if !argument.required && declared.default.is_none() {
                let message = format!("`{name}` is part of the path, so callers cannot omit it");
                self.error(
                    &declared.name.location,
                    message,
                    "remove `required = false`, or add a `default`".into(),
                );
            }
            if argument.field.data_type == DataType::Json {
                let message = format!("`{name}` is json, which cannot be part of a path");
                self.error(&declared.name.location, message, "declare it with `type = \"string\"`".into());
            }
        }
        let in_texts = template.query.iter().filter(|(_, pattern)| pattern.single_value().is_none());
        let in_texts = in_texts.chain(&template.headers).flat_map(|(_, pattern)| pattern.names());
        for name in in_texts {
            if let Some((argument, declared)) = found(name)
                && argument.field.data_type == DataType::Json
            {
                let message = format!("`{name}` is json, which cannot be part of a text");
                self.error(
                    &declared.name.location,
                    message,
                    "give it a parameter or a member of its own".into(),
                );
            }
        }
    }

    /// What callers get: the declared members of each record, or the JSON as it is.
    fn compile_response(
        &mut self,
        tool: &manifest::Tool,
        declared: &manifest::Request,
    ) -> (TableShape, Vec<Field>) {
        if declared.fields.is_empty() {
            let mut field = Field::new(RESULT_FIELD, RESULT_FIELD, DataType::Json);
            field.nullable = true;
            let facts = ColumnFacts { nullable: true, ..ColumnFacts::new(RESULT_FIELD, DataType::Json) };
            let columns = super::collection::column_shapes(&[(0, field.clone())], &[], &[facts], &[]);
            return (TableShape { table: tool.name.value.clone(), columns, key: Vec::new() }, vec![field]);
        }
        let facts = declared_columns(&declared.fields, &[]);
        let headers: Vec<&str> = facts.iter().map(|column| column.name.as_str()).collect();
        let names = names::result_names(&headers);
        let fields = self.compile_fields(&ColumnInputs {
            declared: &declared.fields,
            facts: &facts,
            names: &names,
            row_count: None,
            null_texts: &[],
            reads_texts: true,
            has_native_numbers: false,
        });
        if fields.is_empty() {
            let message = format!("`{}` has no visible field", tool.name.value);
            self.error(&tool.name.location, message, "remove `hidden = true` from one of its fields".into());
        }
        let columns = super::collection::column_shapes(&fields, &declared.fields, &facts, &[]);
        let table = TableShape { table: tool.name.value.clone(), columns, key: Vec::new() };
        (table, fields.into_iter().map(|(_, field)| field).collect())
    }
}

/// The columns of records that an API returns, as the author declares them: of the type `text` unless there is an `as`. `key` names
/// the columns that every record has.
pub fn declared_columns(fields: &[manifest::Field], key: &[&str]) -> Vec<ColumnFacts> {
    let column = |field: &manifest::Field| {
        let name = &field.column.value;
        let formatted = field.formats.as_ref().and_then(|formats| formats.value.iter().next());
        let data_type = match (&field.data_type, formatted) {
            (Some(data_type), _) => data_type.value,
            (None, Some(format)) => format.default_type(),
            (None, None) => declared_default(field),
        };
        let caller_name = field.name.as_ref().map_or(name, |own| &own.value);
        let is_key = key.iter().any(|part| part == name || part == caller_name);
        let is_nested = field.path.is_some();
        let is_read_only = field.read_only.as_ref().is_some_and(|read_only| read_only.value);
        let read_only_reason = match (is_read_only, is_nested) {
            (true, _) => Some("the API sets it".to_owned()),
            (false, true) => Some("it is inside nested JSON".to_owned()),
            (false, false) => None,
        };
        ColumnFacts {
            nullable: !field.required.as_ref().map_or(is_key, |required| required.value),
            read_only_reason,
            is_base64: data_type == DataType::Blob,
            ..ColumnFacts::new(name, data_type)
        }
    };
    fields.iter().map(column).collect()
}

/// The type of a field without `as`: that of its `enum`, else text.
fn declared_default(field: &manifest::Field) -> DataType {
    match field.allowed.first().map(|one| &one.value) {
        Some(manifest::Literal::Integer(_)) => DataType::Integer,
        _ => DataType::Text,
    }
}

/// For a request whose author wrote no description.
fn default_description(request: &Request) -> String {
    let (tool, source) = (&request.result.name, &request.source);
    let names: Vec<&str> = request.result.fields.iter().map(|field| field.name.as_str()).collect();
    format!("Send the request {tool} to {source} and return {}.", names.join(", "))
}
