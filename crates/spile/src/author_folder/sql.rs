//! `ctx.sql`: statements of author code on the sources that `permissions.sql` names. They only read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use contract::source::{
    CancelFlag, ColumnFacts, ColumnShape, PreparedStatement, RowFlow, Source, SourceIdentity, StatementError,
    StatementShape,
};
use contract::{DataType, Value, ValueRef, field::Field};
use json::{Json, NodeKind};
use script::{EffectFailure, EffectFuture};

use super::collections::StopOnDrop;

/// Rows of one result. Beyond it the statement fails: code that computes with a part would be wrong.
const ROWS_MAX: usize = 10_000;
const RESULT_BYTES_MAX: usize = 4 << 20;
/// Statements that are kept prepared.
const PREPARED_MAX: usize = 64;

/// Statements that were prepared before; the most recently used last.
#[derive(Default)]
pub(super) struct PreparedSql(Mutex<VecDeque<Arc<ReadyStatement>>>);

/// A statement that is ready to run.
struct ReadyStatement {
    source: Arc<dyn Source>,
    sql: String,
    types: Vec<DataType>,
    fields: Vec<Field>,
    prepared: Arc<dyn PreparedStatement>,
}

/// A statement of author code: its text between the values, and the values.
pub(super) struct Statement {
    pub(super) source: Arc<dyn Source>,
    pub(super) parts: Vec<String>,
    pub(super) values: Vec<Json>,
    /// Who the caller is, for a source that asks.
    pub(super) identity: Option<SourceIdentity>,
}

/// Runs a statement. Dropping the future stops it.
pub(super) fn run(cache: &Arc<PreparedSql>, statement: Statement) -> EffectFuture {
    let (cache, cancelled) = (cache.clone(), CancelFlag::default());
    let stop = StopOnDrop(cancelled.clone());
    Box::pin(async move {
        let _stop = stop;
        let run = tokio::task::spawn_blocking(move || execute(&cache, &statement, &cancelled));
        run.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a statement of author code failed");
            Err(EffectFailure::new("the statement failed"))
        })
    })
}

fn execute(
    cache: &PreparedSql,
    Statement { source, parts, values, identity }: &Statement,
    cancelled: &CancelFlag,
) -> Result<Json, EffectFailure> {
    let bound = values.iter().enumerate().map(|(at, json)| bind(at, json)).collect::<Result<Vec<_>, _>>()?;
    let types: Vec<DataType> = bound.iter().map(|(data_type, _)| *data_type).collect();
    let statement = cache.get(source, join(parts), types)?;
    let arguments: Vec<_> = bound.iter().map(|(_, value)| value.as_value_ref()).collect();
    let (mut out, mut rows, mut problem) = (b"[".to_vec(), 0, None);
    let mut row = |cells: &[ValueRef<'_>]| {
        if rows == ROWS_MAX || out.len() > RESULT_BYTES_MAX {
            let limits = format!("{ROWS_MAX} rows or {RESULT_BYTES_MAX} bytes");
            problem = Some(format!(
                "ctx.sql: the result exceeds the limit of {limits}; add a LIMIT, or select fewer columns"
            ));
            return RowFlow::Stop;
        }
        out.extend_from_slice(if rows == 0 { b"{" } else { b",{" });
        rows += 1;
        for (at, (field, cell)) in statement.fields.iter().zip(cells).enumerate() {
            if at > 0 {
                out.push(b',');
            }
            if field.write_member(&mut out, *cell).is_err() {
                problem = Some(format!("ctx.sql: the column `{}` has a value of another type", field.name));
                return RowFlow::Stop;
            }
        }
        out.push(b'}');
        RowFlow::Continue
    };
    let read = match identity {
        None => statement.prepared.read(&arguments, Some(cancelled), &mut row),
        Some(identity) => statement.prepared.read_as(identity, &arguments, Some(cancelled), &mut row),
    };
    read.map_err(|error| EffectFailure::new(format!("ctx.sql: {error}")))?;
    match problem {
        Some(message) => Err(EffectFailure::new(message)),
        None => {
            out.push(b']');
            Ok(Json::from_written_bytes(out))
        }
    }
}

/// The values are parameters. They never become part of the text.
fn join(parts: &[String]) -> String {
    let mut sql = String::new();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            sql += &parameter(at - 1);
        }
        sql += part;
    }
    sql
}

fn parameter(at: usize) -> String {
    format!(":v{}", at + 1)
}

fn bind(at: usize, json: &Json) -> Result<(DataType, Value), EffectFailure> {
    let doc = json.to_doc();
    let root = doc.root();
    Ok(match root.kind() {
        NodeKind::Null => (DataType::Text, Value::Null),
        NodeKind::String => (DataType::Text, Value::Text(root.str().unwrap_or_default().into_owned())),
        NodeKind::True => (DataType::Boolean, Value::Integer(1)),
        NodeKind::False => (DataType::Boolean, Value::Integer(0)),
        NodeKind::Number => match (root.raw().parse::<i64>(), root.raw().parse::<f64>()) {
            (Ok(integer), _) => (DataType::Integer, Value::Integer(integer)),
            (Err(_), Ok(real)) => (DataType::Number, Value::Real(real)),
            (Err(_), Err(_)) => return Err(unusable(at)),
        },
        NodeKind::Array | NodeKind::Object => return Err(unusable(at)),
    })
}

fn unusable(at: usize) -> EffectFailure {
    let message = format!("ctx.sql: value {} must be a text, a number, a boolean or null", at + 1);
    EffectFailure::new(message)
}

impl PreparedSql {
    fn get(
        &self,
        source: &Arc<dyn Source>,
        sql: String,
        types: Vec<DataType>,
    ) -> Result<Arc<ReadyStatement>, EffectFailure> {
        let is_it = |one: &Arc<ReadyStatement>| {
            Arc::ptr_eq(&one.source, source) && one.sql == sql && one.types == types
        };
        let found = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let at = kept.iter().position(is_it);
            at.and_then(|at| kept.remove(at))
        };
        let ready = match found {
            Some(ready) => ready,
            None => Arc::new(ReadyStatement::prepare(source, sql, types)?),
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= PREPARED_MAX {
            kept.pop_front();
        }
        kept.push_back(ready.clone());
        Ok(ready)
    }
}

impl ReadyStatement {
    fn prepare(source: &Arc<dyn Source>, sql: String, types: Vec<DataType>) -> Result<Self, EffectFailure> {
        let facts = source.describe_statement(&sql).map_err(|error| statement_failure(&error))?;
        let expected: Vec<String> = (0..types.len()).map(|at| parameter(at)[1..].to_owned()).collect();
        if facts.parameters != expected {
            let message = "ctx.sql: every value must be written as `${value}`, outside of quotes and comments, and nothing \
                           else may be a parameter";
            return Err(EffectFailure::new(message));
        }
        if facts.writes.is_some() {
            let message = "ctx.sql only reads; declare the statement as a tool with `sql` and `writes = true`, and call \
                           it with ctx.tool";
            return Err(EffectFailure::new(message));
        }
        let mut names: Vec<&str> = facts.columns.iter().map(|column| column.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("ctx.sql: two columns are named `{}`; rename one with `AS`", pair[0]);
            return Err(EffectFailure::new(message));
        }
        let shape = StatementShape {
            parameters: facts.parameters,
            parameter_types: types.clone(),
            columns: facts.columns.iter().enumerate().map(column_shape).collect(),
            writes: false,
            changes_max: 0,
            timeout_ms: None,
            sql,
        };
        let prepared =
            source.prepare(&shape).map_err(|error| EffectFailure::new(format!("ctx.sql: {error}")))?;
        let field = |column: &ColumnFacts| {
            let mut field = Field::new(&column.name, &column.name, column.data_type);
            (field.nullable, field.mixed) = (true, true);
            field
        };
        let fields: Vec<Field> = facts.columns.iter().map(field).collect();
        Ok(Self { source: source.clone(), sql: shape.sql, types, fields, prepared })
    }
}

/// What the table promises of a column does not matter here: whatever is stored is returned.
fn column_shape((at, column): (usize, &ColumnFacts)) -> ColumnShape {
    ColumnShape {
        source_index: at,
        name: column.name.clone(),
        data_type: column.data_type,
        nullable: true,
        mixed: true,
        null_texts: Vec::new(),
        format: None,
    }
}

fn statement_failure(error: &StatementError) -> EffectFailure {
    let help = error.help.as_ref().map_or_else(String::new, |help| format!("; {help}"));
    EffectFailure::new(format!("ctx.sql: {}{help}", error.message))
}
