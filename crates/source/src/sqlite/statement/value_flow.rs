//! Traces which arguments of a statement may reach a column unchanged: directly, or through subqueries, common table
//! expressions and `VALUES`.
//!
//! This works on tokens and knows only as much SQL as it needs. SQLite has already accepted the statement, so a
//! construct that is not recognized is valid SQL: its value is then *untraced*, never assumed to be harmless. A value
//! that an operator or a function computes from an argument is untraced too, unless it is a number
//! (`numeric_expression`): numbers are checked after the statement ran (`read_back`).

use std::cell::{Cell, RefCell};
use std::ops::Range;

use crate::sqlite::lexer::{Token, TokenKind, TokenSlice};
use crate::sqlite::schema::{Schema, Table, TableKind};
use crate::sqlite::statement::numeric_expression;

/// Where a value may come from.
#[derive(Debug, Clone, Default)]
pub(super) struct Flow<'s> {
    pub(super) params: Vec<TracedParam<'s>>,
    /// Whether it may also come from an argument in a way that cannot be followed.
    pub(super) is_untraced: bool,
}

/// A parameter whose value may arrive unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TracedParam<'s> {
    pub(super) name: &'s str,
    /// The byte offset of its token.
    pub(super) offset: usize,
    /// Whether it passes through a column of a subquery, where the statement may use it in other ways too.
    pub(super) is_through_query: bool,
}

/// A column of the target table, and the origin of the value that the statement stores in it.
#[derive(Debug)]
pub(super) struct StoredValue<'s> {
    pub(super) column: String,
    pub(super) flow: Flow<'s>,
    /// The expression's bytes in the statement.
    pub(super) span: Range<usize>,
}

/// A named query of a `WITH` clause.
struct Cte<'s> {
    name: String,
    columns: Option<Vec<String>>,
    body: TokenSlice<'s>,
}

/// Output columns with the origins of their values.
type Outputs<'s> = Vec<(String, Flow<'s>)>;

/// One table, view, subquery or function of a `FROM` clause.
struct RowSource<'s, 't> {
    name: Option<String>,
    columns: SourceColumns<'s, 't>,
    /// Whether its columns are found only with its name before them: `excluded`.
    needs_qualifier: bool,
}

enum SourceColumns<'s, 't> {
    /// Rows that are stored already: none of their values comes from an argument.
    Stored(Option<&'t Table>),
    Query(Outputs<'s>),
    Unknown {
        is_untraced: bool,
    },
}

/// What names mean at some place in the statement.
struct Scope<'a, 's, 't> {
    ctes: &'a [Cte<'s>],
    sources: &'a [RowSource<'s, 't>],
    outer: Option<&'a Scope<'a, 's, 't>>,
}

struct Tracer<'t> {
    schema: &'t Schema,
    has_parameters: bool,
    steps_left: Cell<u32>,
    /// The CTEs that are being traced, by the offset of their bodies: one may refer to itself.
    open_ctes: RefCell<Vec<usize>>,
}

/// Nested queries may refer to each other many times over; beyond this the trace gives up.
const STEPS_MAX: u32 = 20_000;

/// Functions that return one of their arguments unchanged: the first and last index of those arguments.
const PASS_THROUGH_FUNCTIONS: [(&str, usize, usize); 17] = [
    ("coalesce", 0, usize::MAX),
    ("ifnull", 0, usize::MAX),
    ("nullif", 0, 0),
    ("iif", 1, usize::MAX),
    ("if", 1, usize::MAX),
    ("max", 0, usize::MAX),
    ("min", 0, usize::MAX),
    ("likely", 0, 0),
    ("unlikely", 0, 0),
    ("likelihood", 0, 0),
    ("first_value", 0, 0),
    ("last_value", 0, 0),
    ("nth_value", 0, 0),
    ("lag", 0, 0),
    ("lag", 2, 2),
    ("lead", 0, 0),
    ("lead", 2, 2),
];
const SET_OPERATORS: [&str; 3] = ["UNION", "INTERSECT", "EXCEPT"];
/// Keywords that end the result columns of a `SELECT` or the assignments of a `SET`.
const LIST_END_KEYWORDS: [&str; 11] =
    ["FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW", "RETURNING", "ON", "SET", "UNION"];
/// Keywords that end a `FROM` clause.
const FROM_END_KEYWORDS: [&str; 10] =
    ["WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW", "RETURNING", "UNION", "INTERSECT", "EXCEPT"];
/// Words after a table that are not its alias.
const NOT_AN_ALIAS: [&str; 14] = [
    "JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL", "OUTER", "ON", "USING", "INDEXED", "NOT",
    "SET", "VALUES",
];
/// Words before a name that make it a part of the expression, not an alias.
const EXPRESSION_KEYWORDS: [&str; 16] = [
    "AND", "OR", "NOT", "IS", "IN", "LIKE", "GLOB", "REGEXP", "MATCH", "BETWEEN", "COLLATE", "ESCAPE",
    "DISTINCT", "FROM", "CASE", "THEN",
];

/// The table that a statement writes, and where the values of its columns come from; `None` if it stores no values in
/// an ordinary table.
pub(super) fn stored_values<'s, 't>(
    sql: &'s str,
    tokens: &'s [Token],
    schema: &'t Schema,
) -> Option<(&'t Table, Vec<StoredValue<'s>>)> {
    let statement = TokenSlice { sql, tokens };
    let tracer = Tracer {
        schema,
        has_parameters: statement.has_parameter(),
        steps_left: Cell::new(STEPS_MAX),
        open_ctes: RefCell::default(),
    };
    tracer.statement(statement)
}

impl<'s> Flow<'s> {
    fn untraced(is_untraced: bool) -> Self {
        Self { params: Vec::new(), is_untraced }
    }

    fn merge(&mut self, other: Self) {
        for param in other.params {
            if !self.params.contains(&param) {
                self.params.push(param);
            }
        }
        self.is_untraced |= other.is_untraced;
    }

    fn through_query(mut self) -> Self {
        self.params.iter_mut().for_each(|param| param.is_through_query = true);
        self
    }
}

fn is_query(tokens: TokenSlice<'_>) -> bool {
    tokens.is_any_word(0, &["SELECT", "WITH", "VALUES"])
}

fn span_of(tokens: TokenSlice<'_>) -> Range<usize> {
    match tokens.tokens {
        [] => 0..0,
        [first, ..] => first.span.start..tokens.tokens.last().unwrap_or(first).span.end,
    }
}

impl<'t> Tracer<'t> {
    fn statement<'s>(&self, statement: TokenSlice<'s>) -> Option<(&'t Table, Vec<StoredValue<'s>>)> {
        let (ctes, start) =
            if statement.is_word(0, "WITH") { Self::ctes(statement)? } else { (Vec::new(), 0) };
        if !statement.is_any_word(start, &["INSERT", "REPLACE", "UPDATE"]) {
            return None;
        }
        let is_update = statement.is_word(start, "UPDATE");
        let mut index = start + if statement.is_word(start + 1, "OR") { 3 } else { 1 };
        index += usize::from(statement.is_word(index, "INTO"));
        let mut name = statement.name_at(index)?;
        if statement.is_symbol(index + 1, ".") {
            index += 2;
            name = statement.name_at(index)?;
        }
        index += 1;
        let table = self.schema.tables.iter().find(|table| table.name.eq_ignore_ascii_case(&name))?;
        if table.kind != TableKind::Ordinary {
            return None;
        }
        if statement.is_word(index, "AS") {
            name = statement.name_at(index + 1)?;
            index += 2;
        }
        let target = RowSource {
            name: Some(name),
            columns: SourceColumns::Stored(Some(table)),
            needs_qualifier: false,
        };
        let rest = statement.part(index, statement.tokens.len());
        let scope = Scope { ctes: &ctes, sources: &[], outer: None };
        let values = if is_update {
            self.update(rest, target, &scope)
        } else {
            self.insert(rest, table, target, &scope)
        };
        Some((table, values))
    }

    fn update<'s>(
        &self,
        rest: TokenSlice<'s>,
        target: RowSource<'s, 't>,
        scope: &Scope<'_, 's, 't>,
    ) -> Vec<StoredValue<'s>> {
        let set = rest.find_outside_parens(0, |index| rest.is_word(index, "SET"));
        let end = list_end(rest, set + 1);
        let mut sources = vec![target];
        if rest.is_word(end, "FROM") {
            sources.extend(self.parse_from_clause(rest.part(end + 1, rest.tokens.len()), scope));
        }
        let scope = Scope { ctes: &[], sources: &sources, outer: Some(scope) };
        self.assignments(rest.part(set + 1, end), &scope)
    }

    fn insert<'s>(
        &self,
        rest: TokenSlice<'s>,
        table: &Table,
        target: RowSource<'s, 't>,
        scope: &Scope<'_, 's, 't>,
    ) -> Vec<StoredValue<'s>> {
        let mut index = 0;
        let columns: Vec<String> = if rest.is_symbol(0, "(") {
            let close = rest.closing_paren(0).unwrap_or(rest.tokens.len());
            index = close + 1;
            let names = rest.part(1, close).split_at_commas();
            names.iter().map(|name| name.name_at(0).unwrap_or_default()).collect()
        } else {
            let settable = table.columns.iter().filter(|column| !column.is_generated);
            settable.map(|column| column.name.clone()).collect()
        };
        let end = rest.find_outside_parens(index, |index| {
            rest.is_word(index, "RETURNING") || is_upsert(rest, index) || rest.is_symbol(index, ";")
        });
        let query = rest.part(index, end);
        let span = span_of(query);
        let outputs = if is_query(query) { self.query(query, scope) } else { Some(Vec::new()) };
        let mut values: Vec<StoredValue<'s>> = match outputs {
            Some(outputs) => columns
                .into_iter()
                .zip(outputs)
                .map(|(column, (_, flow))| StoredValue { column, flow, span: span.clone() })
                .collect(),
            None => columns
                .into_iter()
                .map(|column| {
                    let flow = Flow::untraced(self.has_parameters);
                    StoredValue { column, flow, span: span.clone() }
                })
                .collect(),
        };
        let excluded = RowSource {
            name: Some("excluded".into()),
            columns: SourceColumns::Query(
                values.iter().map(|value| (value.column.clone(), value.flow.clone())).collect(),
            ),
            needs_qualifier: true,
        };
        let sources = [target, excluded];
        let scope = Scope { ctes: &[], sources: &sources, outer: Some(scope) };
        let mut index = end;
        while index < rest.tokens.len() {
            if rest.is_word(index, "SET") {
                let end = list_end(rest, index + 1);
                values.extend(self.assignments(rest.part(index + 1, end), &scope));
                index = end;
            } else {
                index = rest.skip(index);
            }
        }
        values
    }

    /// The assignments of a `SET`.
    fn assignments<'s>(&self, list: TokenSlice<'s>, scope: &Scope<'_, 's, 't>) -> Vec<StoredValue<'s>> {
        let mut values = Vec::new();
        for item in list.split_at_commas() {
            let equals = item.find_outside_parens(0, |index| item.is_symbol(index, "="));
            let (left, right) = (item.part(0, equals), item.part(equals + 1, item.tokens.len()));
            let span = span_of(right);
            if !left.is_symbol(0, "(") {
                let column = left.name_at(0).unwrap_or_default();
                values.push(StoredValue { column, flow: self.expression(right, scope), span });
                continue;
            }
            // `(a, b) = (:a, :b)` or `(a, b) = (SELECT …)`
            let names = left.part(1, left.tokens.len().saturating_sub(1)).split_at_commas();
            let inner = right.part(1, right.tokens.len().saturating_sub(1));
            let flows = if is_query(inner) {
                self.query(inner, scope).map(|outputs| outputs.into_iter().map(|(_, flow)| flow).collect())
            } else {
                Some(inner.split_at_commas().into_iter().map(|value| self.expression(value, scope)).collect())
            };
            let flows: Vec<Flow<'s>> =
                flows.unwrap_or_else(|| vec![Flow::untraced(self.has_parameters); names.len()]);
            for (name, flow) in names.iter().zip(flows) {
                let column = name.name_at(0).unwrap_or_default();
                values.push(StoredValue { column, flow, span: span.clone() });
            }
        }
        values
    }

    /// The named queries of a `WITH`, and the index behind them.
    fn ctes(query: TokenSlice<'_>) -> Option<(Vec<Cte<'_>>, usize)> {
        let mut index = 1 + usize::from(query.is_word(1, "RECURSIVE"));
        let mut ctes = Vec::new();
        loop {
            let name = query.name_at(index)?;
            index += 1;
            let columns = if query.is_symbol(index, "(") {
                let close = query.closing_paren(index)?;
                let names = query.part(index + 1, close).split_at_commas();
                index = close + 1;
                Some(names.iter().map(|name| name.name_at(0).unwrap_or_default()).collect())
            } else {
                None
            };
            // `AS`, `AS MATERIALIZED`, `AS NOT MATERIALIZED`
            while query.is_any_word(index, &["AS", "NOT", "MATERIALIZED"]) {
                index += 1;
            }
            let close = query.closing_paren(index).filter(|_| query.is_symbol(index, "("))?;
            ctes.push(Cte { name, columns, body: query.part(index + 1, close) });
            index = close + 1;
            if !query.is_symbol(index, ",") {
                return Some((ctes, index));
            }
            index += 1;
        }
    }

    /// The columns that a query returns; `None` if they cannot be known.
    fn query<'s>(&self, query: TokenSlice<'s>, scope: &Scope<'_, 's, 't>) -> Option<Outputs<'s>> {
        self.steps_left.set(self.steps_left.get().checked_sub(1)?);
        let (ctes, mut start) = if query.is_word(0, "WITH") { Self::ctes(query)? } else { (Vec::new(), 0) };
        let scope = Scope { ctes: &ctes, sources: &[], outer: Some(scope) };
        let mut outputs: Option<Outputs<'s>> = None;
        loop {
            let end = query.find_outside_parens(start, |index| query.is_any_word(index, &SET_OPERATORS));
            let branch = self.branch(query.part(start, end), &scope)?;
            match &mut outputs {
                None => outputs = Some(branch),
                Some(outputs) => {
                    for ((_, flow), (_, other)) in outputs.iter_mut().zip(branch) {
                        flow.merge(other);
                    }
                }
            }
            if end == query.tokens.len() {
                return outputs;
            }
            start = end + 1 + usize::from(query.is_word(end + 1, "ALL"));
        }
    }

    /// The columns of one `SELECT` or `VALUES`.
    fn branch<'s>(&self, branch: TokenSlice<'s>, scope: &Scope<'_, 's, 't>) -> Option<Outputs<'s>> {
        if branch.is_word(0, "VALUES") {
            return Some(self.rows(branch, scope));
        }
        if !branch.is_word(0, "SELECT") {
            return None;
        }
        let start = 1 + usize::from(branch.is_any_word(1, &["ALL", "DISTINCT"]));
        let end = list_end(branch, start);
        let sources = if branch.is_word(end, "FROM") {
            self.parse_from_clause(branch.part(end + 1, branch.tokens.len()), scope)
        } else {
            Vec::new()
        };
        let scope = Scope { ctes: &[], sources: &sources, outer: Some(scope) };
        let mut outputs = Vec::new();
        for item in branch.part(start, end).split_at_commas() {
            if item.is_symbol(item.tokens.len().wrapping_sub(1), "*") {
                let qualifier = if item.tokens.len() > 1 { item.name_at(0) } else { None };
                let is_meant = |source: &&RowSource<'s, 't>| {
                    qualifier.as_ref().is_none_or(|name| is_named(source.name.as_deref(), name))
                };
                for source in sources.iter().filter(is_meant) {
                    outputs.extend(source.all_columns()?);
                }
                continue;
            }
            let (alias, expression) = split_alias(item);
            let name = alias.or_else(|| column_name(expression)).unwrap_or_default();
            outputs.push((name, self.expression(expression, &scope)));
        }
        Some(outputs)
    }

    /// The columns of `VALUES (…), (…)`.
    fn rows<'s>(&self, values: TokenSlice<'s>, scope: &Scope<'_, 's, 't>) -> Outputs<'s> {
        let mut outputs: Outputs<'s> = Vec::new();
        let mut index = 1;
        while values.is_symbol(index, "(") {
            let close = values.closing_paren(index).unwrap_or(values.tokens.len());
            for (column, item) in values.part(index + 1, close).split_at_commas().into_iter().enumerate() {
                let flow = self.expression(item, scope);
                match outputs.get_mut(column) {
                    Some((_, known)) => known.merge(flow),
                    None => outputs.push((format!("column{}", column + 1), flow)),
                }
            }
            index = close + 1 + usize::from(values.is_symbol(close + 1, ","));
        }
        outputs
    }

    /// The sources of a `FROM` clause. `tokens` may go on behind it.
    fn parse_from_clause<'s>(
        &self,
        tokens: TokenSlice<'s>,
        scope: &Scope<'_, 's, 't>,
    ) -> Vec<RowSource<'s, 't>> {
        let mut sources: Vec<RowSource<'s, 't>> = Vec::new();
        let mut index = 0;
        while index < tokens.tokens.len() {
            let mut name = None;
            let columns = if tokens.is_symbol(index, "(") {
                let close = tokens.closing_paren(index).unwrap_or(tokens.tokens.len());
                let inner = tokens.part(index + 1, close);
                index = close + 1;
                if is_query(inner) {
                    self.source_columns(self.query(inner, scope))
                } else {
                    sources.extend(self.parse_from_clause(inner, scope));
                    SourceColumns::Stored(None)
                }
            } else {
                let is_qualified = tokens.is_symbol(index + 1, ".");
                index += if is_qualified { 2 } else { 0 };
                let Some(table) = tokens.name_at(index) else {
                    // Not a table: whatever it is may carry an argument.
                    sources.push(RowSource {
                        name: None,
                        columns: SourceColumns::Unknown { is_untraced: self.has_parameters },
                        needs_qualifier: false,
                    });
                    return sources;
                };
                index += 1;
                let columns = if tokens.is_symbol(index, "(") {
                    let close = tokens.closing_paren(index).unwrap_or(tokens.tokens.len());
                    let arguments = tokens.part(index + 1, close);
                    index = close + 1;
                    let is_untraced =
                        arguments.has_parameter() || sources.iter().any(RowSource::has_arguments);
                    SourceColumns::Unknown { is_untraced }
                } else if let Some(cte) = scope.cte(&table).filter(|_| !is_qualified) {
                    self.cte_columns(cte, scope)
                } else {
                    let mut tables = self.schema.tables.iter();
                    SourceColumns::Stored(tables.find(|known| known.name.eq_ignore_ascii_case(&table)))
                };
                name = Some(table);
                columns
            };
            if tokens.is_word(index, "AS") {
                name = tokens.name_at(index + 1);
            } else if !tokens.is_any_word(index, &NOT_AN_ALIAS)
                && !tokens.is_any_word(index, &FROM_END_KEYWORDS)
            {
                name = tokens.name_at(index).or(name);
            }
            sources.push(RowSource { name, columns, needs_qualifier: false });
            index = tokens.find_outside_parens(index, |index| {
                tokens.is_symbol(index, ",")
                    || tokens.is_word(index, "JOIN")
                    || tokens.is_any_word(index, &FROM_END_KEYWORDS)
                    || is_upsert(tokens, index)
            });
            if !tokens.is_symbol(index, ",") && !tokens.is_word(index, "JOIN") {
                break;
            }
            index += 1;
        }
        sources
    }

    fn source_columns<'s>(&self, outputs: Option<Outputs<'s>>) -> SourceColumns<'s, 't> {
        match outputs {
            Some(outputs) => SourceColumns::Query(outputs),
            None => SourceColumns::Unknown { is_untraced: self.has_parameters },
        }
    }

    fn cte_columns<'s>(&self, cte: &Cte<'s>, scope: &Scope<'_, 's, 't>) -> SourceColumns<'s, 't> {
        let offset = cte.body.tokens.first().map_or(0, |token| token.span.start);
        if self.open_ctes.borrow().contains(&offset) {
            // A recursive reference adds no values of its own.
            return SourceColumns::Stored(None);
        }
        self.open_ctes.borrow_mut().push(offset);
        let outputs = self.query(cte.body, scope);
        self.open_ctes.borrow_mut().pop();
        let outputs = outputs.map(|mut outputs| {
            for ((name, _), declared) in outputs.iter_mut().zip(cte.columns.iter().flatten()) {
                name.clone_from(declared);
            }
            outputs
        });
        self.source_columns(outputs)
    }

    /// The arguments that an expression may return unchanged.
    fn expression<'s>(&self, item: TokenSlice<'s>, scope: &Scope<'_, 's, 't>) -> Flow<'s> {
        let Some(left) = self.steps_left.get().checked_sub(1) else {
            return Flow::untraced(self.has_parameters);
        };
        self.steps_left.set(left);
        let tokens = item.tokens;
        let count = tokens.len();
        match tokens {
            [] => return Flow::default(),
            [value] if value.kind == TokenKind::Parameter => {
                let name = value.text(item.sql).trim_start_matches(':');
                let param = TracedParam { name, offset: value.span.start, is_through_query: false };
                return Flow { params: vec![param], is_untraced: false };
            }
            _ => {}
        }
        // `+x` and `x COLLATE c` are x.
        if item.is_symbol(0, "+") {
            return self.expression(item.part(1, count), scope);
        }
        if count > 2 && item.is_word(count - 2, "COLLATE") {
            return self.expression(item.part(0, count - 2), scope);
        }
        if item.is_word(0, "CASE") && item.is_word(count - 1, "END") {
            return self.all(case_branches(item), scope);
        }
        if item.is_symbol(0, "(") && item.closing_paren(0) == Some(count - 1) {
            let inner = item.part(1, count - 1);
            if !is_query(inner) {
                let parts = inner.split_at_commas();
                return if let [only] = parts[..] { self.expression(only, scope) } else { Flow::default() };
            }
            let first = self.query(inner, scope).map(|outputs| outputs.into_iter().next());
            return match first {
                Some(first) => first.map_or_else(Flow::default, |(_, flow)| flow),
                None => Flow::untraced(self.has_parameters),
            };
        }
        if let (Some(name), true) = (item.name_at(0), item.is_symbol(1, "(")) {
            let close = item.closing_paren(1).unwrap_or(count - 1);
            let is_call = close == count - 1 || item.is_any_word(close + 1, &["OVER", "FILTER"]);
            let arguments = item.part(2, close).split_at_commas();
            let passed = arguments.into_iter().enumerate().filter(|(index, _)| {
                PASS_THROUGH_FUNCTIONS.iter().any(|(known, first, last)| {
                    name.eq_ignore_ascii_case(known) && (first..=last).contains(&index)
                })
            });
            let passed = passed.map(|(_, argument)| argument).collect();
            let passed: Vec<TokenSlice<'s>> = passed;
            return if is_call && !passed.is_empty() {
                self.all(passed, scope)
            } else {
                self.computed(item, scope)
            };
        }
        match count {
            1 => item.name_at(0).map_or_else(Flow::default, |name| scope.column(None, &name)),
            3 | 5 if item.is_symbol(count - 2, ".") => {
                match (item.name_at(count - 3), item.name_at(count - 1)) {
                    (Some(table), Some(name)) => scope.column(Some(&table), &name),
                    _ => Flow::default(),
                }
            }
            _ => self.computed(item, scope),
        }
    }

    /// A value that an operator or a function returns.
    fn computed<'s>(&self, item: TokenSlice<'s>, scope: &Scope<'_, 's, 't>) -> Flow<'s> {
        Flow::untraced(!numeric_expression::is_numeric(item) && scope.uses_arguments(item))
    }

    fn all<'s>(&self, parts: Vec<TokenSlice<'s>>, scope: &Scope<'_, 's, 't>) -> Flow<'s> {
        let mut flow = Flow::default();
        parts.into_iter().for_each(|part| flow.merge(self.expression(part, scope)));
        flow
    }
}

impl<'s, 't> RowSource<'s, 't> {
    /// What `*` stands for; `None` if that cannot be known.
    fn all_columns(&self) -> Option<Outputs<'s>> {
        match &self.columns {
            SourceColumns::Stored(Some(table)) => {
                Some(table.columns.iter().map(|column| (column.name.clone(), Flow::default())).collect())
            }
            SourceColumns::Query(outputs) => {
                let columns = outputs.iter().cloned();
                Some(columns.map(|(name, flow)| (name, flow.through_query())).collect())
            }
            SourceColumns::Stored(None) | SourceColumns::Unknown { .. } => None,
        }
    }

    /// Whether some of its values may come from arguments.
    fn has_arguments(&self) -> bool {
        match &self.columns {
            SourceColumns::Stored(_) => false,
            SourceColumns::Query(outputs) => {
                outputs.iter().any(|(_, flow)| flow.is_untraced || !flow.params.is_empty())
            }
            SourceColumns::Unknown { is_untraced } => *is_untraced,
        }
    }
}

impl<'s, 't> Scope<'_, 's, 't> {
    fn cte(&self, name: &str) -> Option<&Cte<'s>> {
        let own = self.ctes.iter().find(|cte| cte.name.eq_ignore_ascii_case(name));
        own.or_else(|| self.outer?.cte(name))
    }

    /// Whether an expression has an argument in it, or a column whose value may come from one.
    fn uses_arguments(&self, item: TokenSlice<'s>) -> bool {
        let has_query = (0..item.tokens.len()).any(|index| item.is_word(index, "SELECT"));
        let names_argument = |index: usize| {
            let Some(name) = item.name_at(index).filter(|_| !item.is_symbol(index + 1, "(")) else {
                return false;
            };
            let is_qualified = index >= 2 && item.is_symbol(index - 1, ".");
            let qualifier = if is_qualified { item.name_at(index - 2) } else { None };
            let flow = self.column(qualifier.as_deref(), &name);
            flow.is_untraced || !flow.params.is_empty()
        };
        item.has_parameter()
            || (0..item.tokens.len()).any(names_argument)
            || has_query && self.has_arguments_nearby()
    }

    /// Whether a subquery could find an argument in a common table expression.
    fn has_arguments_nearby(&self) -> bool {
        self.ctes.iter().any(|cte| cte.body.has_parameter())
            || self.outer.is_some_and(|outer| outer.has_arguments_nearby())
    }

    /// The origin of a column's value, from the innermost query that has the column.
    fn column(&self, qualifier: Option<&str>, name: &str) -> Flow<'s> {
        let (mut found, mut unknown) = (None::<Flow<'s>>, None);
        for source in self.sources {
            match qualifier {
                Some(qualifier) if !is_named(source.name.as_deref(), qualifier) => continue,
                None if source.needs_qualifier => continue,
                Some(_) | None => {}
            }
            match &source.columns {
                SourceColumns::Query(outputs) => {
                    let same = |(known, _): &&(String, Flow<'s>)| known.eq_ignore_ascii_case(name);
                    if let Some((_, flow)) = outputs.iter().find(same) {
                        found.get_or_insert_default().merge(flow.clone().through_query());
                    }
                }
                SourceColumns::Stored(Some(table)) => {
                    if table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name)) {
                        found.get_or_insert_default();
                    }
                }
                SourceColumns::Stored(None) => unknown = unknown.or(Some(false)),
                SourceColumns::Unknown { is_untraced } => {
                    unknown = Some(*is_untraced || unknown == Some(true))
                }
            }
        }
        match (found, unknown, self.outer) {
            (Some(found), ..) => found,
            (None, Some(is_untraced), _) => Flow::untraced(is_untraced),
            (None, None, Some(outer)) => outer.column(qualifier, name),
            (None, None, None) => Flow::default(),
        }
    }
}

fn is_named(name: Option<&str>, wanted: &str) -> bool {
    name.is_some_and(|name| name.eq_ignore_ascii_case(wanted))
}

fn is_upsert(tokens: TokenSlice<'_>, index: usize) -> bool {
    tokens.is_word(index, "ON") && tokens.is_word(index + 1, "CONFLICT")
}

/// Where a list of result columns or assignments ends.
fn list_end(tokens: TokenSlice<'_>, from: usize) -> usize {
    tokens.find_outside_parens(from, |index| {
        // `IS DISTINCT FROM` is a comparison.
        let is_comparison =
            index > from && tokens.is_word(index, "FROM") && tokens.is_word(index - 1, "DISTINCT");
        tokens.is_symbol(index, ";") || (!is_comparison && tokens.is_any_word(index, &LIST_END_KEYWORDS))
    })
}

/// Splits `expression AS name` or `expression name`.
fn split_alias(item: TokenSlice<'_>) -> (Option<String>, TokenSlice<'_>) {
    let count = item.tokens.len();
    if count > 2 && item.is_word(count - 2, "AS") {
        return (item.name_at(count - 1), item.part(0, count - 2));
    }
    let Some(before) = count.checked_sub(2).map(|index| &item.tokens[index]) else { return (None, item) };
    let ends_expression = match before.kind {
        TokenKind::Parameter | TokenKind::Literal | TokenKind::Number | TokenKind::QuotedName => true,
        TokenKind::Word => !item.is_any_word(count - 2, &EXPRESSION_KEYWORDS),
        TokenKind::Symbol => before.is_symbol(item.sql, ")"),
    };
    let is_keyword = item.is_any_word(count - 1, &["END", "NULL", "ISNULL", "NOTNULL"]);
    match item.name_at(count - 1) {
        Some(name) if ends_expression && !is_keyword => (Some(name), item.part(0, count - 1)),
        _ => (None, item),
    }
}

/// The name of a result column without an alias: that of the column it returns.
fn column_name(expression: TokenSlice<'_>) -> Option<String> {
    let count = expression.tokens.len();
    let is_reference = count == 1 || (count > 2 && expression.is_symbol(count - 2, "."));
    if is_reference { expression.name_at(count - 1) } else { None }
}

/// The expressions after `THEN` and `ELSE` of a `CASE` that is the whole expression.
fn case_branches(item: TokenSlice<'_>) -> Vec<TokenSlice<'_>> {
    let (mut branches, mut begin, mut depth, mut index) = (Vec::new(), None, 0_usize, 0);
    while index < item.tokens.len() {
        if depth == 1 && item.is_any_word(index, &["WHEN", "ELSE", "END"]) {
            branches.extend(begin.take().map(|begin: usize| item.part(begin, index)));
        }
        if depth == 1 && item.is_any_word(index, &["THEN", "ELSE"]) {
            begin = Some(index + 1);
        }
        depth += usize::from(item.is_word(index, "CASE"));
        depth = depth.saturating_sub(usize::from(item.is_word(index, "END")));
        index = item.skip(index);
    }
    branches
}
