//! Statements of the author's own: what their source says they take and give, held against what the author says.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::field::Columns;
use super::tools::plain;
use super::{Compiler, Known, Made, instead};
use crate::cell::Value;
use crate::contract::{Argument, Collection, LONG_RUNNING_MS, Operation, Returns, Statement};
use crate::diagnostic::At;
use crate::field::Field;
use crate::kind::Kind;
use crate::manifest::{self, Body, Literal};
use crate::names;
use crate::nearest::did_you_mean;
use crate::schemas;
use crate::source::{BadStatement, ColumnFacts, Keeps, Shape, ShapeColumn, StatementFacts, StatementShape};

impl<'m> Compiler<'m> {
    /// All statements, and a tool for each that is not hidden.
    pub(super) fn statements(&mut self, known: &[Known<'_>], tools: &mut Vec<Made<'m>>) -> Vec<Statement> {
        let mut statements = Vec::new();
        for tool in &self.manifest.tools {
            let Body::Statement(wanted) = &tool.body else { continue };
            // What the sources lack was told when they were opened.
            let Some(source) = known.iter().find(|one| one.name == wanted.source.value) else { continue };
            let Some((_, examined)) = source.statements.iter().find(|(name, _)| *name == tool.name.value)
            else {
                continue;
            };
            let made = match examined {
                Ok(facts) => self.statement(tool, wanted, facts),
                Err(bad) => {
                    self.bad(wanted, bad);
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
            let operation = Operation::Statement { statement: statements.len() };
            let mut made = plain(tool.name.value.clone(), description, (input, output), operation);
            Self::said(&mut made, tool, statement.shape.writes);
            made.text = tool.text.as_ref().and_then(|text| self.line(text, &statement.result));
            tools.push(Made { tool: made, at: Some(&tool.name.at) });
            statements.push(statement);
        }
        statements
    }

    fn bad(&mut self, wanted: &manifest::Statement, bad: &BadStatement) {
        let at = match &bad.at {
            Some(span) => wanted.sql.at.inside(&wanted.sql.value, span.clone()),
            None => wanted.sql.at.clone(),
        };
        let help = bad.help.clone().unwrap_or_else(|| "correct the statement".into());
        self.error(&at, bad.message.clone(), help);
    }

    fn statement(
        &mut self,
        tool: &manifest::Tool,
        wanted: &manifest::Statement,
        facts: &StatementFacts,
    ) -> Option<Statement> {
        let errors = self.errors();
        self.judge_writing(tool, wanted, facts);
        let arguments = self.arguments(wanted, facts);
        self.judge_kept(wanted, facts);
        self.judge_limits(wanted, facts);
        let (columns, fields) = self.result(tool, wanted, facts);
        let shape = StatementShape {
            sql: wanted.sql.value.clone(),
            parameters: facts.parameters.clone(),
            kinds: arguments.iter().map(|argument| argument.field.kind).collect(),
            columns,
            writes: facts.writes,
            changes_max: u64::from(wanted.changes_max),
            time_ms: tool.call_timeout_ms.or(tool.long_running.then_some(LONG_RUNNING_MS)),
        };
        let result = Collection {
            name: tool.name.value.clone(),
            source: wanted.source.value.clone(),
            shape: Shape { table: String::new(), columns: shape.columns.clone(), key: Vec::new() },
            fields,
            rows_max: wanted.rows_max as usize,
            bytes_max: wanted.bytes_max as usize,
            writes: None,
        };
        let source = wanted.source.value.clone();
        let statement = Statement { source, shape, arguments, result, returns: wanted.returns };
        (self.errors() == errors).then_some(statement)
    }

    fn judge_writing(&mut self, tool: &manifest::Tool, wanted: &manifest::Statement, facts: &StatementFacts) {
        match (facts.writes, wanted.writes) {
            (true, false) => {
                let help = "say `writes = true` if that is what you want, or let it only read";
                self.error(&wanted.sql.at, "this statement writes".into(), help.into());
            }
            (false, true) => {
                let message = "this statement only reads".to_owned();
                self.warning(&tool.name.at, message, "leave `writes = true` out");
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
            self.error(&wanted.sql.at, message, help.into());
        }
    }

    /// One for each parameter of the statement, in its order.
    fn arguments(&mut self, wanted: &manifest::Statement, facts: &StatementFacts) -> Vec<Argument> {
        let declared = || wanted.arguments.iter().map(|argument| argument.name.value.as_str());
        for argument in &wanted.arguments {
            let name = &argument.name;
            if !facts.parameters.contains(&name.value) {
                let open = facts.parameters.iter().map(String::as_str);
                let open = open.filter(|parameter| declared().all(|one| one != *parameter));
                let message = format!("the statement has no `:{}`", name.value);
                if let Some(place) = quoted_place(wanted, &name.value) {
                    let help = format!("write `:{}` without quotes: in quotes it is a text", name.value);
                    self.error(&place, message, help);
                    continue;
                }
                let help = did_you_mean(&name.value, open)
                    .unwrap_or_else(|| format!("write `:{}` where it belongs, or leave it out", name.value));
                self.error(&name.at, message, help);
            }
        }
        let mut arguments = Vec::with_capacity(facts.parameters.len());
        for parameter in &facts.parameters {
            match wanted.arguments.iter().find(|argument| argument.name.value == *parameter) {
                Some(argument) => arguments.push(self.argument(argument)),
                None => {
                    let at = place_of(wanted, parameter);
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
    fn judge_kept(&mut self, wanted: &manifest::Statement, facts: &StatementFacts) {
        for one in &facts.kept {
            let Some(said) = wanted.arguments.iter().find(|said| said.name.value == one.parameter) else {
                continue;
            };
            let (what, help) = match (said.kind, one.keeps) {
                (Kind::Boolean, Keeps::Texts) => (
                    "true or false",
                    "it is refused there, because the statement has it elsewhere too; write `iif(:…, 'true', 'false')`",
                ),
                (_, Keeps::Texts) | (Kind::Integer | Kind::Int64 | Kind::Number | Kind::Boolean, _) => {
                    continue;
                }
                (Kind::Text, Keeps::Numbers) => (
                    "a text",
                    "a text that is no number, and one such as `007`, is refused there; say what it is with `type`, \
                     or `cast` it",
                ),
                (Kind::Text, Keeps::NumbersAndTexts) => (
                    "a text",
                    "a text such as `007` is refused there; say what it is with `type`, or `cast` it",
                ),
                (Kind::Json, Keeps::Numbers) => ("JSON", "JSON is refused there; declare the column TEXT"),
                (Kind::Json, Keeps::NumbersAndTexts) => {
                    ("JSON", "a number is refused there; say what it is with `type`, or `cast` it")
                }
                (Kind::Decimal, Keeps::Numbers | Keeps::NumbersAndTexts) => (
                    "a decimal",
                    "more than 15 digits are refused there; for exact digits declare the column TEXT",
                ),
                (Kind::Date, Keeps::Numbers) => {
                    ("a date", "it is refused there; declare the column DATE or TEXT")
                }
                (Kind::Timestamp | Kind::LocalTimestamp, Keeps::Numbers) => {
                    ("a time", "it is refused there; declare the column DATETIME or TEXT")
                }
                (Kind::Blob, Keeps::Numbers) => ("bytes", "they are refused there; declare the column BLOB"),
                (
                    Kind::Date | Kind::Timestamp | Kind::LocalTimestamp | Kind::Blob,
                    Keeps::NumbersAndTexts,
                ) => continue,
            };
            let keeps = if one.keeps == Keeps::Texts { "texts" } else { "numbers" };
            let message = format!(
                "`:{}` is {what}, and the column `{}`, declared as `{}`, keeps {keeps}",
                one.parameter, one.column, one.declared
            );
            self.warning(&said.name.at, message, help);
        }
    }

    /// How many rows there are to be is an integer, or the statement fails when it is called.
    fn judge_limits(&mut self, wanted: &manifest::Statement, facts: &StatementFacts) {
        for limit in &facts.limits {
            let Some(said) = wanted.arguments.iter().find(|said| said.name.value == *limit) else { continue };
            if !matches!(said.kind, Kind::Integer | Kind::Int64) {
                let message =
                    format!("`:{limit}` is {}, and a limit has to be an integer", said.kind.as_str());
                self.warning(&said.name.at, message, "say `type = \"integer\"`");
            } else if !said.required && said.default.is_none() {
                let message = format!("`:{limit}` may be left out, and a limit that is NULL is an error");
                self.warning(&said.name.at, message, "give it a `default`: -1 is no limit");
            }
        }
    }

    fn argument(&mut self, said: &manifest::Argument) -> Argument {
        let mut field = Field::new(&said.name.value, &said.name.value, said.kind);
        field.description.clone_from(&said.description);
        field.format = said.format.as_ref().map(|format| format.value.to_owned());
        if let Some(format) = &said.format
            && field.kind != Kind::Text
        {
            let message = format!("`{}` is {} here, and has no format", field.name, field.kind.as_str());
            self.error(&format.at, message, "formats are for text; leave it out".into());
        }
        self.allow(&mut field, &said.allowed);
        let default = match &said.default {
            None => Value::Null,
            Some(literal) => self.default(said, &field, literal),
        };
        let required = said.required && said.default.is_none();
        // Whoever has nothing to say may say so: many clients send `null` for what they leave out.
        field.nullable = !required;
        Argument { field, required, default }
    }

    /// What an argument is where nothing is said: a value that a caller could have said.
    fn default(&mut self, said: &manifest::Argument, field: &Field, literal: &Literal) -> Value {
        let value = match (literal, field.kind) {
            (Literal::Integer(n), Kind::Integer) => Some(Value::Integer(*n)),
            (Literal::Integer(n), Kind::Number) => Some(Value::Real(*n as f64)),
            (Literal::Number(digits), Kind::Number) => digits.parse().ok().map(Value::Real),
            (Literal::Boolean(yes), Kind::Boolean) => Some(Value::Integer((*yes).into())),
            (Literal::Text(text), Kind::Int64) => text.parse().ok().map(Value::Integer),
            (Literal::Text(text), Kind::Blob) => STANDARD.decode(text).ok().map(Value::Blob),
            (
                Literal::Text(text),
                Kind::Text | Kind::Decimal | Kind::Date | Kind::Timestamp | Kind::LocalTimestamp | Kind::Json,
            ) => Some(Value::Text(text.clone())),
            (Literal::Text(_) | Literal::Integer(_) | Literal::Number(_) | Literal::Boolean(_), _) => None,
        };
        let fits = value.as_ref().is_some_and(|value| field.value(&mut Vec::new(), value.as_cell()).is_ok());
        if !fits {
            let message = format!("the default of `{}` is not a value that it can have", said.name.value);
            let help = match field.allowed.first() {
                Some(_) => "choose one of the values of its `enum`".to_owned(),
                None => {
                    format!("it is {}; write such a value, or leave the default out", field.kind.as_str())
                }
            };
            self.error(&said.name.at, message, help);
        }
        value.unwrap_or(Value::Null)
    }

    /// A column of texts that is declared as something else can hold only if the statement leaves most of them out.
    fn judge_kinds(&mut self, wanted: &manifest::Statement, facts: &StatementFacts) {
        for said in &wanted.fields {
            let Some(kind) = said.kind.as_ref().filter(|kind| kind.value != Kind::Text) else { continue };
            let column = facts.columns.iter().find(|column| column.name == said.column.value);
            let Some(column) = column.filter(|column| column.kind == Kind::Text) else { continue };
            let null = said.null.as_deref();
            if column.fits.as_ref().is_none_or(|fits| fits.has(kind.value, null)) {
                continue;
            }
            let message =
                format!("not every value of `{}` is {} as it is kept", column.name, kind.value.as_str());
            let help = match column.values.iter().find(|text| Some(text.as_str()) != null) {
                Some(text) => {
                    format!("its column has texts such as `{text}`; leave the type out, or such rows")
                }
                None => "leave the type out, or such rows".to_owned(),
            };
            self.warning(&kind.at, message, &help);
        }
    }

    /// The columns of the result that are shown.
    fn result(
        &mut self,
        tool: &manifest::Tool,
        wanted: &manifest::Statement,
        facts: &StatementFacts,
    ) -> (Vec<ShapeColumn>, Vec<Field>) {
        let headers: Vec<&str> = facts.columns.iter().map(|column| column.name.as_str()).collect();
        for (at, header) in headers.iter().enumerate() {
            if headers[..at].contains(header) {
                let message = format!("two columns of the result are called `{header}`");
                self.error(&wanted.sql.at, message, "name one of them with `as`".into());
            }
        }
        for field in &wanted.fields {
            if !headers.contains(&field.column.value.as_str()) {
                let message = format!("the statement gives no column `{}`", field.column.value);
                let help = instead(&field.column.value, headers.iter().copied());
                self.error(&field.column.at, message, help);
            }
        }
        self.judge_kinds(wanted, facts);
        let names = names::result_names(&headers);
        // The statement may choose among the values that its tables have.
        let unseen = |column: &ColumnFacts| ColumnFacts { values: Vec::new(), fits: None, ..column.clone() };
        let columns: Vec<ColumnFacts> = facts.columns.iter().map(unseen).collect();
        let fields = self.fields(&Columns {
            said: &wanted.fields,
            facts: &columns,
            names: &names,
            rows: None,
            null: None,
            has_numbers: true,
        });
        if fields.is_empty() && !facts.columns.is_empty() {
            let message = format!("`{}` has no field to show", tool.name.value);
            self.error(&tool.name.at, message, "leave `hidden = true` out for one of its columns".into());
        }
        let columns = super::collection::columns(&fields, &wanted.fields, None);
        (columns, fields.into_iter().map(|(_, field)| field).collect())
    }
}

/// Where a parameter stands in quotes, and so is none.
fn quoted_place(wanted: &manifest::Statement, parameter: &str) -> Option<At> {
    let sql = &wanted.sql.value;
    let quoted = [format!("':{parameter}'"), format!("\":{parameter}\"")];
    let (at, length) = quoted.iter().find_map(|text| Some((sql.find(text)?, text.len())))?;
    Some(wanted.sql.at.inside(sql, at..at + length))
}

/// Where a parameter stands in the statement, first of all.
fn place_of(wanted: &manifest::Statement, parameter: &str) -> At {
    let sql = &wanted.sql.value;
    let is_it = |at: &usize| {
        let behind = sql[at + 1..].strip_prefix(parameter);
        behind.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let at = sql.match_indices([':', '@', '$']).map(|(at, _)| at).find(is_it);
    match at {
        Some(at) => wanted.sql.at.inside(sql, at..at + 1 + parameter.len()),
        None => wanted.sql.at.clone(),
    }
}
