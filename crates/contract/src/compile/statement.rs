//! Statements of the author's own: what their source says they take and give, held against what the author says.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::field::ColumnInputs;
use super::tools::new_tool;
use super::{CompiledTool, Compiler, KnownSource, suggest};
use crate::contract::{Argument, Collection, LONG_RUNNING_TIMEOUT_MS, Returns, Statement, ToolOperation};
use crate::data_type::DataType;
use crate::diagnostic::FileLocation;
use crate::field::Field;
use crate::manifest::{self, Literal, ToolBody};
use crate::names;
use crate::nearest::did_you_mean;
use crate::schemas;
use crate::source::{
    AcceptedValues, ColumnFacts, ColumnShape, StatementError, StatementFacts, StatementShape, TableShape,
};
use crate::value::Value;

impl<'m> Compiler<'m> {
    /// All statements, and a tool for each that is not hidden.
    pub(super) fn compile_statements(
        &mut self,
        known: &[KnownSource<'_>],
        tools: &mut Vec<CompiledTool<'m>>,
    ) -> Vec<Statement> {
        let mut statements = Vec::new();
        for tool in &self.manifest.tools {
            let ToolBody::Statement(wanted) = &tool.body else { continue };
            // What the sources lack was told when they were opened.
            let Some(source) = known.iter().find(|one| one.name == wanted.source.value) else { continue };
            let Some((_, examined)) = source.statements.iter().find(|(name, _)| *name == tool.name.value)
            else {
                continue;
            };
            let made = match examined {
                Ok(facts) => self.compile_statement(tool, wanted, facts),
                Err(bad) => {
                    self.report_statement_error(wanted, bad);
                    None
                }
            };
            let Some(statement) = made.filter(|_| !tool.hidden) else { continue };
            let (input, output) =
                (schemas::statement_input(&statement), schemas::statement_output(&statement));
            let names: Vec<&str> = statement.result.fields.iter().map(|field| field.name.as_str()).collect();
            let description = match (&*names, statement.shape.writes) {
                ([], _) => "Changes what its statement says, and tells how many rows.".to_owned(),
                (names, true) => format!("Changes rows, and gives their {}.", names.join(", ")),
                (names, false) => format!("Gives {}.", names.join(", ")),
            };
            let operation = ToolOperation::Statement { statement: statements.len() };
            let mut made = new_tool(tool.name.value.clone(), description, (input, output), operation);
            Self::apply_tool_settings(&mut made, tool, statement.shape.writes);
            made.text_template =
                tool.text_template.as_ref().and_then(|text| self.parse_template(text, &statement.result));
            tools.push(CompiledTool { tool: made, name_location: Some(&tool.name.location) });
            statements.push(statement);
        }
        statements
    }

    fn report_statement_error(&mut self, wanted: &manifest::Statement, bad: &StatementError) {
        let at = match &bad.span {
            Some(span) => wanted.sql.location.inside(&wanted.sql.value, span.clone()),
            None => wanted.sql.location.clone(),
        };
        let help = bad.help.clone().unwrap_or_else(|| "correct the statement".into());
        self.error(&at, bad.message.clone(), help);
    }

    fn compile_statement(
        &mut self,
        tool: &manifest::Tool,
        wanted: &manifest::Statement,
        facts: &StatementFacts,
    ) -> Option<Statement> {
        let errors = self.error_count();
        self.check_writes(tool, wanted, facts);
        let arguments = self.compile_arguments(wanted, facts);
        self.check_assignments(wanted, facts);
        self.check_limits(wanted, facts);
        let (columns, fields) = self.compile_result(tool, wanted, facts);
        let shape = StatementShape {
            sql: wanted.sql.value.clone(),
            parameters: facts.parameters.clone(),
            parameter_types: arguments.iter().map(|argument| argument.field.data_type).collect(),
            columns,
            writes: facts.writes,
            changes_max: u64::from(wanted.changes_max),
            timeout_ms: tool.call_timeout_ms.or(tool.long_running.then_some(LONG_RUNNING_TIMEOUT_MS)),
        };
        let result = Collection {
            name: tool.name.value.clone(),
            source: wanted.source.value.clone(),
            shape: TableShape { table: String::new(), columns: shape.columns.clone(), key: Vec::new() },
            fields,
            rows_max: wanted.rows_max as usize,
            bytes_max: wanted.bytes_max as usize,
            write_policy: None,
        };
        let source = wanted.source.value.clone();
        let statement = Statement { source, shape, arguments, result, returns: wanted.returns };
        (self.error_count() == errors).then_some(statement)
    }

    fn check_writes(&mut self, tool: &manifest::Tool, wanted: &manifest::Statement, facts: &StatementFacts) {
        match (facts.writes, wanted.writes) {
            (true, false) => {
                let help = "say `writes = true` if that is what you want, or let it only read";
                self.error(&wanted.sql.location, "this statement writes".into(), help.into());
            }
            (false, true) => {
                let message = "this statement only reads".to_owned();
                self.warning(&tool.name.location, message, "leave `writes = true` out");
            }
            (true, true) | (false, false) => {}
        }
        if facts.columns.is_empty() && (!facts.writes || wanted.returns == Returns::One) {
            let message = "this statement gives no columns".to_owned();
            let help = if facts.writes {
                "add `returning …`, or leave `returns = \"one\"` out"
            } else {
                "a statement that reads is a `select`"
            };
            self.error(&wanted.sql.location, message, help.into());
        }
    }

    /// One for each parameter of the statement, in its order.
    fn compile_arguments(&mut self, wanted: &manifest::Statement, facts: &StatementFacts) -> Vec<Argument> {
        let declared = || wanted.arguments.iter().map(|argument| argument.name.value.as_str());
        for argument in &wanted.arguments {
            let name = &argument.name;
            if !facts.parameters.contains(&name.value) {
                let open = facts.parameters.iter().map(String::as_str);
                let open = open.filter(|parameter| declared().all(|one| one != *parameter));
                let message = format!("the statement has no `:{}`", name.value);
                if let Some(place) = quoted_parameter_location(wanted, &name.value) {
                    let help = format!("write `:{}` without quotes: in quotes it is a text", name.value);
                    self.error(&place, message, help);
                    continue;
                }
                let help = did_you_mean(&name.value, open)
                    .unwrap_or_else(|| format!("write `:{}` where it belongs, or leave it out", name.value));
                self.error(&name.location, message, help);
            }
        }
        let mut arguments = Vec::with_capacity(facts.parameters.len());
        for parameter in &facts.parameters {
            match wanted.arguments.iter().find(|argument| argument.name.value == *parameter) {
                Some(argument) => arguments.push(self.compile_argument(argument)),
                None => {
                    let at = parameter_location(wanted, parameter);
                    let unused = declared().filter(|name| facts.parameters.iter().all(|one| one != name));
                    let help = did_you_mean(parameter, unused)
                        .unwrap_or_else(|| format!("add `arguments.{parameter} = {{ type = \"string\" }}`"));
                    self.error(&at, format!("nothing says what `:{parameter}` is"), help);
                }
            }
        }
        arguments
    }

    /// What goes into a column that does not keep everything may be refused when it comes.
    fn check_assignments(&mut self, wanted: &manifest::Statement, facts: &StatementFacts) {
        for one in &facts.assignments {
            let Some(said) = wanted.arguments.iter().find(|said| said.name.value == one.parameter) else {
                continue;
            };
            let (what, help) = match (said.data_type, one.accepts) {
                (DataType::Boolean, AcceptedValues::Texts) => (
                    "true or false",
                    "it is refused there, because the statement has it elsewhere too; write `iif(:…, 'true', 'false')`",
                ),
                (_, AcceptedValues::Texts)
                | (DataType::Integer | DataType::Int64 | DataType::Number | DataType::Boolean, _) => {
                    continue;
                }
                (DataType::Text, AcceptedValues::Numbers) => (
                    "a text",
                    "a text that is no number, and one such as `007`, is refused there; say what it is with `type`, \
                     or `cast` it",
                ),
                (DataType::Text, AcceptedValues::NumbersAndTexts) => (
                    "a text",
                    "a text such as `007` is refused there; say what it is with `type`, or `cast` it",
                ),
                (DataType::Json, AcceptedValues::Numbers) => {
                    ("JSON", "JSON is refused there; declare the column TEXT")
                }
                (DataType::Json, AcceptedValues::NumbersAndTexts) => {
                    ("JSON", "a number is refused there; say what it is with `type`, or `cast` it")
                }
                (DataType::Decimal, AcceptedValues::Numbers | AcceptedValues::NumbersAndTexts) => (
                    "a decimal",
                    "more than 15 digits are refused there; for exact digits declare the column TEXT",
                ),
                (DataType::Date, AcceptedValues::Numbers) => {
                    ("a date", "it is refused there; declare the column DATE or TEXT")
                }
                (DataType::Timestamp | DataType::LocalTimestamp, AcceptedValues::Numbers) => {
                    ("a time", "it is refused there; declare the column DATETIME or TEXT")
                }
                (DataType::Blob, AcceptedValues::Numbers) => {
                    ("bytes", "they are refused there; declare the column BLOB")
                }
                (
                    DataType::Date | DataType::Timestamp | DataType::LocalTimestamp | DataType::Blob,
                    AcceptedValues::NumbersAndTexts,
                ) => continue,
            };
            let keeps = if one.accepts == AcceptedValues::Texts { "texts" } else { "numbers" };
            let message = format!(
                "`:{}` is {what}, and the column `{}`, declared as `{}`, keeps {keeps}",
                one.parameter, one.column, one.declared_type
            );
            self.warning(&said.name.location, message, help);
        }
    }

    /// How many rows there are to be is an integer, or the statement fails when it is called.
    fn check_limits(&mut self, wanted: &manifest::Statement, facts: &StatementFacts) {
        for limit in &facts.limit_parameters {
            let Some(said) = wanted.arguments.iter().find(|said| said.name.value == *limit) else { continue };
            if !matches!(said.data_type, DataType::Integer | DataType::Int64) {
                let message =
                    format!("`:{limit}` is {}, and a limit has to be an integer", said.data_type.as_str());
                self.warning(&said.name.location, message, "say `type = \"integer\"`");
            } else if !said.required && said.default.is_none() {
                let message = format!("`:{limit}` may be left out, and a limit that is NULL is an error");
                self.warning(&said.name.location, message, "give it a `default`: -1 is no limit");
            }
        }
    }

    fn compile_argument(&mut self, said: &manifest::Argument) -> Argument {
        let mut field = Field::new(&said.name.value, &said.name.value, said.data_type);
        field.description.clone_from(&said.description);
        field.format = said.format.as_ref().map(|format| format.value.to_owned());
        if let Some(format) = &said.format
            && field.data_type != DataType::Text
        {
            let message = format!("`{}` is {} here, and has no format", field.name, field.data_type.as_str());
            self.error(&format.location, message, "formats are for text; leave it out".into());
        }
        self.set_allowed_values(&mut field, &said.allowed);
        let default = match &said.default {
            None => Value::Null,
            Some(literal) => self.compile_default(said, &field, literal),
        };
        let required = said.required && said.default.is_none();
        // Whoever has nothing to say may say so: many clients send `null` for what they leave out.
        field.nullable = !required;
        Argument { field, required, default }
    }

    /// What an argument is where nothing is said: a value that a caller could have said.
    fn compile_default(&mut self, said: &manifest::Argument, field: &Field, literal: &Literal) -> Value {
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
            let message = format!("the default of `{}` is not a value that it can have", said.name.value);
            let help = match field.allowed.first() {
                Some(_) => "choose one of the values of its `enum`".to_owned(),
                None => {
                    format!(
                        "it is {}; write such a value, or leave the default out",
                        field.data_type.as_str()
                    )
                }
            };
            self.error(&said.name.location, message, help);
        }
        value.unwrap_or(Value::Null)
    }

    /// A column of texts that is declared as something else can hold only if the statement leaves most of them out.
    fn check_result_types(&mut self, wanted: &manifest::Statement, facts: &StatementFacts) {
        for said in &wanted.fields {
            let Some(kind) = said.data_type.as_ref().filter(|kind| kind.value != DataType::Text) else {
                continue;
            };
            let column = facts.columns.iter().find(|column| column.name == said.column.value);
            let Some(column) = column.filter(|column| column.data_type == DataType::Text) else { continue };
            let null = said.null_text.as_deref();
            if column.possible_types.as_ref().is_none_or(|fits| fits.includes(kind.value, null)) {
                continue;
            }
            let message =
                format!("not every value of `{}` is {} as it is kept", column.name, kind.value.as_str());
            let help = match column.distinct_values.iter().find(|text| Some(text.as_str()) != null) {
                Some(text) => {
                    format!("its column has texts such as `{text}`; leave the type out, or such rows")
                }
                None => "leave the type out, or such rows".to_owned(),
            };
            self.warning(&kind.location, message, &help);
        }
    }

    /// The columns of the result that are shown.
    fn compile_result(
        &mut self,
        tool: &manifest::Tool,
        wanted: &manifest::Statement,
        facts: &StatementFacts,
    ) -> (Vec<ColumnShape>, Vec<Field>) {
        let headers: Vec<&str> = facts.columns.iter().map(|column| column.name.as_str()).collect();
        for (at, header) in headers.iter().enumerate() {
            if headers[..at].contains(header) {
                let message = format!("two columns of the result are called `{header}`");
                self.error(&wanted.sql.location, message, "name one of them with `as`".into());
            }
        }
        for field in &wanted.fields {
            if !headers.contains(&field.column.value.as_str()) {
                let message = format!("the statement gives no column `{}`", field.column.value);
                let help = suggest(&field.column.value, headers.iter().copied());
                self.error(&field.column.location, message, help);
            }
        }
        self.check_result_types(wanted, facts);
        let names = names::result_names(&headers);
        // The statement may choose among the values that its tables have.
        let unseen = |column: &ColumnFacts| ColumnFacts {
            distinct_values: Vec::new(),
            possible_types: None,
            ..column.clone()
        };
        let columns: Vec<ColumnFacts> = facts.columns.iter().map(unseen).collect();
        let fields = self.compile_fields(&ColumnInputs {
            declared: &wanted.fields,
            facts: &columns,
            names: &names,
            row_count: None,
            null_text: None,
            has_native_numbers: true,
        });
        if fields.is_empty() && !facts.columns.is_empty() {
            let message = format!("`{}` has no field to show", tool.name.value);
            self.error(
                &tool.name.location,
                message,
                "leave `hidden = true` out for one of its columns".into(),
            );
        }
        let columns = super::collection::column_shapes(&fields, &wanted.fields, None);
        (columns, fields.into_iter().map(|(_, field)| field).collect())
    }
}

/// Where a parameter stands in quotes, and so is none.
fn quoted_parameter_location(wanted: &manifest::Statement, parameter: &str) -> Option<FileLocation> {
    let sql = &wanted.sql.value;
    let quoted = [format!("':{parameter}'"), format!("\":{parameter}\"")];
    let (at, length) = quoted.iter().find_map(|text| Some((sql.find(text)?, text.len())))?;
    Some(wanted.sql.location.inside(sql, at..at + length))
}

/// Where a parameter stands in the statement, first of all.
fn parameter_location(wanted: &manifest::Statement, parameter: &str) -> FileLocation {
    let sql = &wanted.sql.value;
    let is_it = |at: &usize| {
        let behind = sql[at + 1..].strip_prefix(parameter);
        behind.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let at = sql.match_indices([':', '@', '$']).map(|(at, _)| at).find(is_it);
    match at {
        Some(at) => wanted.sql.location.inside(sql, at..at + 1 + parameter.len()),
        None => wanted.sql.location.clone(),
    }
}
