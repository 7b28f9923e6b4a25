//! The author's SQL statements: what the source says of each, checked against what the author declares.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::field::ColumnInputs;
use super::tools::{new_tool, title_from_name};
use super::{CompiledTool, Compiler, IntrospectedSource, suggest};
use crate::contract::{
    Argument, Collection, LONG_RUNNING_TIMEOUT_MS, NoticeSupport, Returns, Statement, ToolOperation,
};
use crate::data_type::DataType;
use crate::diagnostic::{Diagnostic, FileLocation};
use crate::field::Field;
use crate::manifest::{self, Literal, ToolBody};
use crate::names;
use crate::nearest::did_you_mean;
use crate::schemas;
use crate::source::{
    AcceptedValues, ColumnFacts, ColumnShape, StatementError, StatementFacts, StatementShape, TableShape,
    WriteCapabilities,
};
use crate::value::Value;

impl<'m> Compiler<'m> {
    /// Compiles every statement, and adds a tool for each that is not hidden.
    pub(super) fn compile_statements(
        &mut self,
        known: &[IntrospectedSource<'_>],
        tools: &mut Vec<CompiledTool<'m>>,
    ) -> Vec<Statement> {
        let mut statements = Vec::new();
        for declared_tool in &self.manifest.tools {
            let ToolBody::Statement(declared) = &declared_tool.body else { continue };
            let name = &declared_tool.name;
            // A source that could not be opened was reported then.
            let Some(source) = known.iter().find(|one| one.name == declared.source.value) else { continue };
            let described = source.statements.iter().find(|(tool, _)| *tool == name.value);
            let compiled = match described {
                Some((_, Ok(facts))) => self.compile_statement(declared_tool, declared, facts),
                Some((_, Err(error))) => {
                    self.report_statement_error(declared, error);
                    None
                }
                None => None,
            };
            let Some(statement) = compiled.filter(|_| !declared_tool.hidden) else { continue };
            let schemas =
                (schemas::statement_input_schema(&statement), schemas::statement_output_schema(&statement));
            let operation = ToolOperation::Statement { statement: statements.len() };
            let (title, description) = (title_from_name(&name.value), default_description(&statement));
            let mut tool = new_tool(name.value.clone(), title, description, schemas, operation);
            Self::apply_tool_settings(&mut tool, declared_tool, statement.shape.writes);
            let template = declared_tool.text_template.as_ref();
            tool.text_template = template.and_then(|text| self.parse_template(text, &statement.result));
            tools.push(CompiledTool { tool, name_location: Some(&name.location) });
            statements.push(statement);
        }
        statements
    }

    fn report_statement_error(&mut self, declared: &manifest::Statement, error: &StatementError) {
        let location = match &error.span {
            Some(span) => declared.sql.location.inside(&declared.sql.value, span.clone()),
            None => declared.sql.location.clone(),
        };
        let mut diagnostic = Diagnostic::error(error.message.clone()).at(&location);
        diagnostic.help.clone_from(&error.help);
        self.diagnostics.push(diagnostic);
    }

    fn compile_statement(
        &mut self,
        tool: &manifest::Tool,
        declared: &manifest::Statement,
        facts: &StatementFacts,
    ) -> Option<Statement> {
        let errors = self.error_count();
        self.check_writes(tool, declared, facts);
        let capabilities = facts.writes.unwrap_or(WriteCapabilities::NONE);
        if facts.writes.is_some() {
            self.check_tool_confirm(tool, &declared.source.value, capabilities);
        }
        let arguments = self.compile_arguments(declared, facts);
        self.check_assignments(declared, facts);
        self.check_limits(declared, facts);
        let (columns, fields) = self.compile_result(tool, declared, facts);
        let shape = StatementShape {
            sql: declared.sql.value.clone(),
            parameters: facts.parameters.clone(),
            parameter_types: arguments.iter().map(|argument| argument.field.data_type).collect(),
            columns,
            writes: facts.writes.is_some(),
            changes_max: u64::from(declared.changes_max),
            timeout_ms: tool.call_timeout_ms.or(tool.long_running.then_some(LONG_RUNNING_TIMEOUT_MS)),
        };
        let result = Collection {
            rules: None,
            name: tool.name.value.clone(),
            source: declared.source.value.clone(),
            shape: TableShape { table: String::new(), columns: shape.columns.clone(), key: Vec::new() },
            fields,
            rows_max: declared.rows_max as usize,
            bytes_max: declared.bytes_max as usize,
            write_policy: None,
            notices: NoticeSupport::default(),
            time_zone: None,
            links: Vec::new(),
        };
        let source = declared.source.value.clone();
        let statement =
            Statement { source, shape, capabilities, arguments, result, returns: declared.returns };
        (self.error_count() == errors).then_some(statement)
    }

    fn check_writes(
        &mut self,
        tool: &manifest::Tool,
        declared: &manifest::Statement,
        facts: &StatementFacts,
    ) {
        let writes = facts.writes.is_some();
        match (writes, declared.writes) {
            (true, false) => {
                let help = "add `writes = true` to allow it, or use a statement that only reads";
                self.error(
                    &declared.sql.location,
                    "this statement writes, and the tool does not have `writes = true`".into(),
                    help.into(),
                );
            }
            (false, true) => {
                let message = "this statement only reads".to_owned();
                self.warning(&tool.name.location, message, "leave `writes = true` out");
            }
            (true, true) | (false, false) => {}
        }
        if facts.columns.is_empty() && (!writes || declared.returns == Returns::One) {
            let message = "this statement returns no columns".to_owned();
            let help = if writes {
                "add `returning …`, or leave `returns = \"one\"` out"
            } else {
                "use a `select` statement"
            };
            self.error(&declared.sql.location, message, help.into());
        }
    }

    /// One argument for each parameter of the statement, in the statement's order.
    fn compile_arguments(&mut self, declared: &manifest::Statement, facts: &StatementFacts) -> Vec<Argument> {
        let names = || declared.arguments.iter().map(|argument| argument.name.value.as_str());
        for argument in &declared.arguments {
            let name = &argument.name;
            if !facts.parameters.contains(&name.value) {
                let undeclared = facts.parameters.iter().map(String::as_str);
                let undeclared = undeclared.filter(|parameter| names().all(|one| one != *parameter));
                let message = format!("the statement has no parameter `:{}`", name.value);
                if let Some(location) = quoted_parameter_location(declared, &name.value) {
                    let help =
                        format!("write `:{}` without quotes: in quotes it is a string literal", name.value);
                    self.error(&location, message, help);
                    continue;
                }
                let help = did_you_mean(&name.value, undeclared).unwrap_or_else(|| {
                    format!("use `:{}` in the statement, or remove the argument", name.value)
                });
                self.error(&name.location, message, help);
            }
        }
        let mut arguments = Vec::with_capacity(facts.parameters.len());
        for parameter in &facts.parameters {
            let mut indexed = declared.arguments.iter().enumerate();
            match indexed.find(|(_, argument)| argument.name.value == *parameter) {
                Some((index, argument)) => arguments.push(self.compile_argument(argument, index)),
                None => {
                    let at = parameter_location(declared, parameter);
                    let unused = names().filter(|name| facts.parameters.iter().all(|one| one != name));
                    let help = did_you_mean(parameter, unused)
                        .unwrap_or_else(|| format!("add `arguments.{parameter} = {{ type = \"string\" }}`"));
                    self.error(&at, format!("the parameter `:{parameter}` is not declared"), help);
                }
            }
        }
        arguments
    }

    /// Warns about an argument that goes into a column which does not accept all its values.
    fn check_assignments(&mut self, declared: &manifest::Statement, facts: &StatementFacts) {
        for one in &facts.assignments {
            let Some(argument) =
                declared.arguments.iter().find(|one_argument| one_argument.name.value == one.parameter)
            else {
                continue;
            };
            let (what, help) = match (argument.data_type, one.accepts) {
                (DataType::Boolean, AcceptedValues::Texts) => (
                    "true or false",
                    "the column rejects it, because the statement also uses the parameter elsewhere; write `iif(:…, 'true', 'false')`",
                ),
                (_, AcceptedValues::Texts)
                | (DataType::Integer | DataType::Int64 | DataType::Number | DataType::Boolean, _) => {
                    continue;
                }
                (DataType::Text, AcceptedValues::Numbers) => (
                    "a text",
                    "the column rejects texts that are not numbers, and texts such as `007`; declare a numeric `type`, \
                     or use `cast`",
                ),
                (DataType::Text, AcceptedValues::NumbersAndTexts) => (
                    "a text",
                    "the column rejects texts such as `007`; declare a numeric `type`, or use `cast`",
                ),
                (DataType::Json, AcceptedValues::Numbers) => {
                    ("JSON", "the column rejects JSON; declare the column as TEXT")
                }
                (DataType::Json, AcceptedValues::NumbersAndTexts) => {
                    ("JSON", "the column rejects a JSON number; declare a numeric `type`, or use `cast`")
                }
                (DataType::Decimal, AcceptedValues::Numbers | AcceptedValues::NumbersAndTexts) => (
                    "a decimal",
                    "the column rejects more than 15 digits; for exact digits declare the column as TEXT",
                ),
                (DataType::Date, AcceptedValues::Numbers) => {
                    ("a date", "the column rejects it; declare the column as DATE or TEXT")
                }
                (DataType::Timestamp | DataType::LocalTimestamp, AcceptedValues::Numbers) => {
                    ("a timestamp", "the column rejects it; declare the column as DATETIME or TEXT")
                }
                (DataType::Blob, AcceptedValues::Numbers) => {
                    ("a blob", "the column rejects it; declare the column as BLOB")
                }
                (
                    DataType::Date | DataType::Timestamp | DataType::LocalTimestamp | DataType::Blob,
                    AcceptedValues::NumbersAndTexts,
                ) => continue,
            };
            let stores = if one.accepts == AcceptedValues::Texts { "texts" } else { "numbers" };
            let message = format!(
                "`:{}` is {what}, but the column `{}`, declared as `{}`, stores {stores}",
                one.parameter, one.column, one.declared_type
            );
            self.warning(&argument.name.location, message, help);
        }
    }

    /// A LIMIT or OFFSET parameter must be an integer, or the statement fails when it is called.
    fn check_limits(&mut self, declared: &manifest::Statement, facts: &StatementFacts) {
        for limit in &facts.limit_parameters {
            let argument = declared.arguments.iter().find(|argument| argument.name.value == *limit);
            let Some(argument) = argument else { continue };
            if !matches!(argument.data_type, DataType::Integer | DataType::Int64) {
                let message =
                    format!("`:{limit}` is {}, but a limit must be an integer", argument.data_type.as_str());
                self.warning(&argument.name.location, message, "declare it with `type = \"integer\"`");
            } else if !argument.required && argument.default.is_none() {
                let message = format!("`:{limit}` is optional, but a limit that is NULL is an error");
                self.warning(&argument.name.location, message, "give it a `default`; -1 means no limit");
            }
        }
    }

    pub(super) fn compile_argument(
        &mut self,
        declared: &manifest::Argument,
        declared_index: usize,
    ) -> Argument {
        let mut field = Field::new(&declared.name.value, &declared.name.value, declared.data_type);
        field.description.clone_from(&declared.description);
        field.format = declared.format.as_ref().map(|format| format.value.to_owned());
        if let Some(format) = &declared.format
            && field.data_type != DataType::Text
        {
            let message = format!("`{}` is {}, which has no format", field.name, field.data_type.as_str());
            self.error(&format.location, message, "only text has a format; remove it".into());
        }
        self.set_allowed_values(&mut field, &declared.allowed);
        let default = match &declared.default {
            None => Value::Null,
            Some(literal) => self.compile_default(declared, &field, literal),
        };
        let required = declared.required && declared.default.is_none();
        // Many clients send `null` for an optional argument instead of omitting it.
        field.nullable = !required || declared.nullable.is_some();
        Argument { field, declared_index, required, default }
    }

    /// The value of an argument that the caller omits. It must be one that a caller could send.
    fn compile_default(&mut self, declared: &manifest::Argument, field: &Field, literal: &Literal) -> Value {
        let value = match (literal, field.data_type) {
            (Literal::Integer(n), DataType::Integer) => Some(Value::Integer(*n)),
            (Literal::Integer(n), DataType::Number) => Some(Value::Real(*n as f64)),
            (Literal::Number(digits), DataType::Number) => digits.parse().ok().map(Value::Real),
            (Literal::Boolean(yes), DataType::Boolean) => Some(Value::Integer((*yes).into())),
            (Literal::Text(text), DataType::Int64) => text.parse().ok().map(Value::Integer),
            (Literal::Text(text), DataType::Blob) => STANDARD.decode(text).ok().map(Value::Blob),
            (
                Literal::Text(text),
                DataType::Text
                | DataType::Decimal
                | DataType::Date
                | DataType::Timestamp
                | DataType::LocalTimestamp
                | DataType::Json,
            ) => Some(Value::Text(text.clone())),
            (Literal::Text(_) | Literal::Integer(_) | Literal::Number(_) | Literal::Boolean(_), _) => None,
        };
        let fits = value
            .as_ref()
            .is_some_and(|value| field.write_value(&mut Vec::new(), value.as_value_ref()).is_ok());
        if !fits {
            let name = &declared.name.value;
            let message = match field.allowed.first() {
                Some(_) => format!("the default of `{name}` is not in its `enum`"),
                None => format!("the default of `{name}` is not {}", field.data_type.with_article()),
            };
            let help = match field.allowed.first() {
                Some(_) => "choose one of the values in its `enum`".to_owned(),
                None => {
                    format!("write {}, or remove the default", field.data_type.with_article())
                }
            };
            self.error(&declared.name.location, message, help);
        }
        value.unwrap_or(Value::Null)
    }

    /// Warns about a text column that the author declares as another type while the table has values that do not fit;
    /// the statement may still exclude those rows.
    fn check_result_types(&mut self, declared: &manifest::Statement, facts: &StatementFacts) {
        for field in &declared.fields {
            let Some(kind) = field.data_type.as_ref().filter(|kind| kind.value != DataType::Text) else {
                continue;
            };
            let column = facts.columns.iter().find(|column| column.name == field.column.value);
            let Some(column) = column.filter(|column| column.data_type == DataType::Text) else { continue };
            let null = field.null_texts.iter().flatten().next().map(String::as_str);
            if column.possible_types.as_ref().is_none_or(|types| types.includes(kind.value, null)) {
                continue;
            }
            let message =
                format!("not every stored value of `{}` is of type {}", column.name, kind.value.as_str());
            let help = match column.distinct_values.iter().find(|text| Some(text.as_str()) != null) {
                Some(text) => {
                    format!(
                        "the column has texts such as `{text}`; remove `as`, or exclude those rows in the statement"
                    )
                }
                None => "remove `as`, or exclude those rows in the statement".to_owned(),
            };
            self.warning(&kind.location, message, &help);
        }
    }

    /// The visible columns of the result.
    fn compile_result(
        &mut self,
        tool: &manifest::Tool,
        declared: &manifest::Statement,
        facts: &StatementFacts,
    ) -> (Vec<ColumnShape>, Vec<Field>) {
        let headers: Vec<&str> = facts.columns.iter().map(|column| column.name.as_str()).collect();
        for (at, header) in headers.iter().enumerate() {
            if headers[..at].contains(header) {
                let message = format!("two columns of the result have the name `{header}`");
                self.error(&declared.sql.location, message, "rename one of them with `as`".into());
            }
        }
        for field in &declared.fields {
            if !headers.contains(&field.column.value.as_str()) {
                let message = format!("the statement returns no column `{}`", field.column.value);
                let help = suggest(&field.column.value, "column", headers.iter().copied());
                self.error(&field.column.location, message, help);
            }
        }
        self.check_result_types(declared, facts);
        let names = names::result_names(&headers);
        // The statement may select some of the values that its tables have.
        let without_values = |column: &ColumnFacts| ColumnFacts {
            distinct_values: Vec::new(),
            possible_types: None,
            ..column.clone()
        };
        let columns: Vec<ColumnFacts> = facts.columns.iter().map(without_values).collect();
        let fields = self.compile_fields(&ColumnInputs {
            declared: &declared.fields,
            facts: &columns,
            names: &names,
            row_count: None,
            null_texts: &[],
            reads_texts: false,
            has_native_numbers: true,
        });
        if fields.is_empty() && !facts.columns.is_empty() {
            let message = format!("`{}` has no visible field", tool.name.value);
            self.error(&tool.name.location, message, "remove `hidden = true` from one of its columns".into());
        }
        let columns = super::collection::column_shapes(&fields, &declared.fields, &facts.columns, &[]);
        (columns, fields.into_iter().map(|(_, field)| field).collect())
    }
}

/// For a statement whose author wrote no description.
fn default_description(statement: &Statement) -> String {
    let (tool, source) = (&statement.result.name, &statement.source);
    let names: Vec<&str> = statement.result.fields.iter().map(|field| field.name.as_str()).collect();
    let returns = match (&*names, statement.shape.writes) {
        ([], _) => "return the number of rows changed".to_owned(),
        (names, true) => format!("return the number of rows changed and their {}", names.join(", ")),
        (names, false) => format!("return {}", names.join(", ")),
    };
    format!("Run the SQL statement {tool} on {source} and {returns}.")
}

/// Where a parameter stands in quotes, which makes it a string literal.
fn quoted_parameter_location(declared: &manifest::Statement, parameter: &str) -> Option<FileLocation> {
    let sql = &declared.sql.value;
    let quoted = [format!("':{parameter}'"), format!("\":{parameter}\"")];
    let (at, length) = quoted.iter().find_map(|text| Some((sql.find(text)?, text.len())))?;
    Some(declared.sql.location.inside(sql, at..at + length))
}

/// Where a parameter first occurs in the statement.
fn parameter_location(declared: &manifest::Statement, parameter: &str) -> FileLocation {
    let sql = &declared.sql.value;
    let is_parameter = |at: &usize| {
        let rest = sql[at + 1..].strip_prefix(parameter);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let at = sql.match_indices([':', '@', '$']).map(|(at, _)| at).find(is_parameter);
    match at {
        Some(at) => declared.sql.location.inside(sql, at..at + 1 + parameter.len()),
        None => declared.sql.location.clone(),
    }
}
