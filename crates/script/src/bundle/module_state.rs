//! Whether a module of the author may keep state between calls, by its syntax.
//!
//! The top level of most tools has functions and constants only. Everything else may be a counter or a cache. A literal
//! such as `{ de: 0.19 }` is a constant if everything that the module does with it only reads its innermost values.

use oxc::ast::ast::{
    ArrayExpression, ArrayExpressionElement, AssignmentTargetPropertyIdentifier, BinaryOperator,
    CallExpression, Declaration, ExportDefaultDeclarationKind, Expression, ForOfStatement, MemberExpression,
    ObjectExpression, ObjectPropertyKind, Program, RegExpFlags, SimpleAssignmentTarget, SpreadElement,
    Statement, UnaryOperator, VariableDeclaration, VariableDeclarationKind, VariableDeclarator,
};
use oxc::ast_visit::{Visit, walk};

use super::hidden_state::SETTERS;

/// What Spile reads once, before any call.
const DECLARATIONS: [&str; 2] = ["schema", "metadata"];

/// `false` only if nothing at the top level can change, as far as its syntax shows.
pub(super) fn may_keep_state(program: &Program<'_>) -> bool {
    let schemas = Schemas::of(program);
    program.body.iter().any(|statement| schemas.is_state(statement)) || Uses::of(program).may_write
}

/// The names of schemas of zod, and of what makes them. A schema remembers nothing of what it checks.
struct Schemas(Vec<Box<str>>);

impl Schemas {
    fn of(program: &Program<'_>) -> Self {
        let mut schemas = Self(Vec::new());
        for statement in &program.body {
            match statement {
                Statement::ImportDeclaration(import)
                    if import.source.value.split('/').next() == Some("zod") =>
                {
                    let specifiers = import.specifiers.iter().flatten();
                    schemas.0.extend(specifiers.map(|one| one.local().name.as_str().into()));
                }
                Statement::VariableDeclaration(declaration) => schemas.declare(declaration),
                Statement::ExportDeclaration(export) => {
                    if let Declaration::VariableDeclaration(declaration) = &export.declaration {
                        schemas.declare(declaration);
                    }
                }
                _ => {}
            }
        }
        schemas
    }

    fn declare(&mut self, declaration: &VariableDeclaration<'_>) {
        for variable in &declaration.declarations {
            if let (Some(name), Some(value)) = (variable.id.get_identifier_name(), &variable.init)
                && self.is_schema(value)
            {
                self.0.push(name.as_str().into());
            }
        }
    }

    /// `z.string().min(1)`, or a schema by its name.
    fn is_schema(&self, value: &Expression<'_>) -> bool {
        match value.get_inner_expression() {
            Expression::Identifier(name) => self.0.iter().any(|one| **one == *name.name),
            Expression::StaticMemberExpression(member) => self.is_schema(&member.object),
            Expression::CallExpression(call) => {
                let is_setter = |member: &MemberExpression<'_>| {
                    member.static_property_name().is_none_or(|name| SETTERS.contains(&name))
                };
                self.is_schema(&call.callee)
                    && !call.callee.as_member_expression().is_some_and(is_setter)
                    && call
                        .arguments
                        .iter()
                        .all(|one| one.as_expression().is_some_and(|one| self.is_part(one)))
            }
            _ => false,
        }
    }

    /// What a schema may be made of.
    fn is_part(&self, value: &Expression<'_>) -> bool {
        match value {
            Expression::ObjectExpression(object) => object.properties.iter().all(|property| match property {
                ObjectPropertyKind::ObjectProperty(property) => self.is_part(&property.value),
                ObjectPropertyKind::SpreadProperty(spread) => self.is_part(&spread.argument),
            }),
            Expression::ArrayExpression(array) => array
                .elements
                .iter()
                .all(|element| element.as_expression().is_some_and(|value| self.is_part(value))),
            _ => self.is_constant(value),
        }
    }

    fn is_state(&self, statement: &Statement<'_>) -> bool {
        match statement {
            Statement::VariableDeclaration(declaration) => self.declares_state(declaration),
            Statement::ExportDeclaration(export) => match &export.declaration {
                Declaration::VariableDeclaration(declaration) => {
                    // Other files reach what it exports.
                    self.declares_state(declaration)
                        || declaration.declarations.iter().any(is_exported_literal)
                }
                Declaration::FunctionDeclaration(_) => false,
                _ => true,
            },
            Statement::ExportDefaultDeclaration(export) => match &export.declaration {
                ExportDefaultDeclarationKind::FunctionDeclaration(_) => false,
                kind => !kind
                    .as_expression()
                    .is_some_and(|value| self.is_constant(value) && literal_depth(value) == 0),
            },
            Statement::FunctionDeclaration(_)
            | Statement::ImportDeclaration(_)
            | Statement::ExportAllDeclaration(_)
            | Statement::ExportNamedDeclaration(_)
            | Statement::ExportFromDeclaration(_)
            | Statement::EmptyStatement(_) => false,
            // A class may have static fields; another statement may do anything.
            _ => true,
        }
    }

    fn declares_state(&self, declaration: &VariableDeclaration<'_>) -> bool {
        declaration.kind != VariableDeclarationKind::Const
            || declaration.declarations.iter().any(|variable| {
                !is_declaration(variable)
                    && !variable.init.as_ref().is_some_and(|value| self.is_constant(value))
            })
    }

    /// A value that cannot change, or a literal that does not unless code writes to it. An empty array or object is there
    /// to be filled.
    fn is_constant(&self, value: &Expression<'_>) -> bool {
        match value {
            Expression::StringLiteral(_)
            | Expression::NumericLiteral(_)
            | Expression::BooleanLiteral(_)
            | Expression::NullLiteral(_)
            | Expression::Identifier(_)
            | Expression::ArrowFunctionExpression(_)
            | Expression::FunctionExpression(_) => true,
            // With these flags it remembers where its last match ended.
            Expression::RegExpLiteral(literal) => {
                !literal.regex.flags.intersects(RegExpFlags::G | RegExpFlags::Y)
            }
            Expression::TemplateLiteral(template) => {
                template.expressions.iter().all(|value| self.is_constant(value))
            }
            Expression::UnaryExpression(unary) => self.is_constant(&unary.argument),
            Expression::BinaryExpression(binary) => {
                self.is_constant(&binary.left) && self.is_constant(&binary.right)
            }
            Expression::ParenthesizedExpression(inner) => self.is_constant(&inner.expression),
            Expression::StaticMemberExpression(member) => self.is_constant(&member.object),
            Expression::ArrayExpression(array) => {
                !array.elements.is_empty() && self.are_constant_elements(array)
            }
            Expression::ObjectExpression(object) => {
                !object.properties.is_empty() && self.are_constant_properties(object)
            }
            Expression::CallExpression(call) => {
                self.is_schema(value)
                    || frozen_literal(call).is_some_and(|literal| match literal {
                        Expression::ArrayExpression(array) => self.are_constant_elements(array),
                        Expression::ObjectExpression(object) => self.are_constant_properties(object),
                        _ => false,
                    })
            }
            _ => false,
        }
    }

    fn are_constant_elements(&self, array: &ArrayExpression<'_>) -> bool {
        array.elements.iter().all(|element| match element {
            ArrayExpressionElement::SpreadElement(spread) => self.is_constant(&spread.argument),
            ArrayExpressionElement::Elision(_) => true,
            element => element.as_expression().is_some_and(|value| self.is_constant(value)),
        })
    }

    fn are_constant_properties(&self, object: &ObjectExpression<'_>) -> bool {
        object.properties.iter().all(|property| match property {
            ObjectPropertyKind::ObjectProperty(property) => self.is_constant(&property.value),
            ObjectPropertyKind::SpreadProperty(spread) => self.is_constant(&spread.argument),
        })
    }
}

pub(super) fn is_declaration(variable: &VariableDeclarator<'_>) -> bool {
    variable.id.get_identifier_name().is_some_and(|name| DECLARATIONS.contains(&name.as_str()))
}

fn is_exported_literal(variable: &VariableDeclarator<'_>) -> bool {
    !is_declaration(variable) && variable.init.as_ref().is_some_and(|value| literal_depth(value) > 0)
}

/// A value that has no members to write to.
pub(super) fn is_primitive(value: &Expression<'_>) -> bool {
    match value.get_inner_expression() {
        Expression::StringLiteral(_)
        | Expression::NumericLiteral(_)
        | Expression::BooleanLiteral(_)
        | Expression::NullLiteral(_)
        | Expression::TemplateLiteral(_)
        | Expression::UnaryExpression(_)
        | Expression::BinaryExpression(_) => true,
        // `Math.PI`: what is built in is frozen.
        Expression::StaticMemberExpression(member) => {
            matches!(&member.object, Expression::Identifier(name) if matches!(name.name.as_str(), "Math" | "Number"))
        }
        _ => false,
    }
}

/// The argument of `Object.freeze`.
fn frozen_literal<'e, 'a>(call: &'e CallExpression<'a>) -> Option<&'e Expression<'a>> {
    let is_freeze = call.callee.is_specific_member_access("Object", "freeze");
    call.arguments.first().filter(|_| is_freeze && call.arguments.len() == 1)?.as_expression()
}

/// How many members lead from a literal to its innermost values; 0 for a value that cannot be written to. Freezing takes
/// one level away.
fn literal_depth(value: &Expression<'_>) -> usize {
    match value {
        Expression::ArrayExpression(array) => {
            1 + array.elements.iter().map(element_depth).max().unwrap_or_default()
        }
        Expression::ObjectExpression(object) => {
            let depths = object.properties.iter().map(|property| match property {
                ObjectPropertyKind::ObjectProperty(property) => literal_depth(&property.value),
                ObjectPropertyKind::SpreadProperty(_) => 0,
            });
            1 + depths.max().unwrap_or_default()
        }
        Expression::CallExpression(call) => match frozen_literal(call).map(literal_depth) {
            // Frozen all the way down.
            Some(0 | 1) => 0,
            Some(depth) => depth,
            None => 0,
        },
        Expression::ParenthesizedExpression(inner) => literal_depth(&inner.expression),
        _ => 0,
    }
}

fn element_depth(element: &ArrayExpressionElement<'_>) -> usize {
    element.as_expression().map_or(0, literal_depth)
}

/// Methods that change nothing, and give away nothing but what a flat array or text holds.
pub(super) const READING_METHODS: [&str; 18] = [
    "at",
    "concat",
    "every",
    "filter",
    "find",
    "findIndex",
    "flatMap",
    "forEach",
    "hasOwnProperty",
    "includes",
    "indexOf",
    "join",
    "lastIndexOf",
    "map",
    "reduce",
    "slice",
    "some",
    "toString",
];
pub(super) const WRITING_METHODS: [&str; 13] = [
    "push",
    "pop",
    "shift",
    "unshift",
    "splice",
    "sort",
    "reverse",
    "fill",
    "copyWithin",
    "set",
    "add",
    "delete",
    "clear",
];
/// Functions of `Object` and `JSON` that only read a flat object.
const READING_FUNCTIONS: [&str; 5] = ["keys", "values", "entries", "hasOwn", "stringify"];

/// Whether any code of the module may write to what its top level declares, by name: a local variable of the same name
/// counts, too.
struct Uses {
    /// Literals of the top level, and their depth.
    literals: Vec<(Box<str>, usize)>,
    /// Everything else that the top level declares or imports.
    others: Vec<Box<str>>,
    may_write: bool,
}

impl Uses {
    fn of(program: &Program<'_>) -> Self {
        let mut uses = Self { literals: Vec::new(), others: Vec::new(), may_write: false };
        for statement in &program.body {
            uses.declare(statement);
        }
        uses.visit_program(program);
        uses
    }

    fn declare(&mut self, statement: &Statement<'_>) {
        match statement {
            Statement::VariableDeclaration(declaration) => self.declare_variables(declaration),
            Statement::ExportDeclaration(export) => match &export.declaration {
                Declaration::VariableDeclaration(declaration) => self.declare_variables(declaration),
                Declaration::FunctionDeclaration(function) => {
                    self.others.extend(function.id.iter().map(|id| id.name.as_str().into()));
                }
                _ => {}
            },
            Statement::FunctionDeclaration(function) => {
                self.others.extend(function.id.iter().map(|id| id.name.as_str().into()));
            }
            Statement::ExportDefaultDeclaration(export) => {
                if let ExportDefaultDeclarationKind::FunctionDeclaration(function) = &export.declaration {
                    self.others.extend(function.id.iter().map(|id| id.name.as_str().into()));
                }
            }
            Statement::ImportDeclaration(import) => {
                let specifiers = import.specifiers.iter().flatten();
                self.others.extend(specifiers.map(|specifier| specifier.local().name.as_str().into()));
            }
            _ => {}
        }
    }

    fn declare_variables(&mut self, declaration: &VariableDeclaration<'_>) {
        for variable in &declaration.declarations {
            let Some(name) = variable.id.get_identifier_name() else { continue };
            match variable.init.as_ref().map_or(0, literal_depth) {
                depth if depth > 0 && !is_declaration(variable) => {
                    self.literals.push((name.as_str().into(), depth));
                }
                _ => self.others.push(name.as_str().into()),
            }
        }
    }

    fn depth_of(&self, name: &str) -> Option<usize> {
        self.literals.iter().find(|(literal, _)| **literal == *name).map(|(_, depth)| *depth)
    }

    /// A literal as a whole, where only its members are read and copied.
    fn is_flat_literal(&self, value: &Expression<'_>) -> bool {
        matches!(value, Expression::Identifier(name) if self.depth_of(&name.name) == Some(1))
    }

    fn is_declared(&self, name: &str) -> bool {
        self.depth_of(name).is_some() || self.others.iter().any(|other| **other == *name)
    }

    /// A member of something that the top level declares is written or removed.
    fn write_to(&mut self, target: &Expression<'_>) {
        if let Some((root, 1..)) = member_path(target) {
            self.may_write |= self.is_declared(root);
        }
    }
}

/// `a.b[c].d`: the name at its start, and the number of members.
fn member_path<'e>(value: &'e Expression<'_>) -> Option<(&'e str, usize)> {
    let object = match value {
        Expression::Identifier(name) => return Some((name.name.as_str(), 0)),
        Expression::StaticMemberExpression(member) => &member.object,
        Expression::ComputedMemberExpression(member) => &member.object,
        Expression::ParenthesizedExpression(inner) => return member_path(&inner.expression),
        _ => return None,
    };
    member_path(object).map(|(root, members)| (root, members + 1))
}

impl<'a> Visit<'a> for Uses {
    fn visit_expression(&mut self, value: &Expression<'a>) {
        match value {
            // A literal leaves the hands of this check: as an argument, a result, another variable.
            Expression::Identifier(name) => self.may_write |= self.depth_of(&name.name).is_some(),
            Expression::StaticMemberExpression(_) | Expression::ComputedMemberExpression(_) => {
                match member_path(value).and_then(|(root, members)| Some((self.depth_of(root)?, members))) {
                    Some((depth, members)) if members >= depth => visit_computed(self, value),
                    Some(_) => self.may_write = true,
                    None => walk::walk_expression(self, value),
                }
            }
            Expression::UnaryExpression(unary) if unary.operator == UnaryOperator::Delete => {
                self.write_to(&unary.argument);
                walk::walk_expression(self, value);
            }
            Expression::BinaryExpression(binary)
                if binary.operator == BinaryOperator::In && self.is_flat_literal(&binary.right) =>
            {
                self.visit_expression(&binary.left);
            }
            _ => walk::walk_expression(self, value),
        }
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        if let Some((object, method)) = call
            .callee
            .as_member_expression()
            .and_then(|member| Some((member.object(), member.static_property_name()?)))
        {
            if let Some((root, members)) = member_path(object) {
                match self.depth_of(root) {
                    Some(depth) if members + 1 >= depth && READING_METHODS.contains(&method) => {
                        visit_computed(self, object);
                        return walk::walk_arguments(self, &call.arguments);
                    }
                    Some(_) => self.may_write = true,
                    None => self.may_write |= self.is_declared(root) && WRITING_METHODS.contains(&method),
                }
            }
            let is_reading = matches!(object, Expression::Identifier(name) if matches!(name.name.as_str(), "Object" | "JSON"))
                && READING_FUNCTIONS.contains(&method);
            if is_reading {
                for argument in &call.arguments {
                    if !argument.as_expression().is_some_and(|value| self.is_flat_literal(value)) {
                        self.visit_argument(argument);
                    }
                }
                return;
            }
        }
        walk::walk_call_expression(self, call);
    }

    fn visit_spread_element(&mut self, spread: &SpreadElement<'a>) {
        if !self.is_flat_literal(&spread.argument) {
            walk::walk_spread_element(self, spread);
        }
    }

    fn visit_for_of_statement(&mut self, statement: &ForOfStatement<'a>) {
        self.visit_for_statement_left(&statement.left);
        if !self.is_flat_literal(&statement.right) {
            self.visit_expression(&statement.right);
        }
        self.visit_statement(&statement.body);
    }

    fn visit_assignment_target_property_identifier(
        &mut self,
        target: &AssignmentTargetPropertyIdentifier<'a>,
    ) {
        self.may_write |= self.is_declared(&target.binding.name);
        walk::walk_assignment_target_property_identifier(self, target);
    }

    fn visit_simple_assignment_target(&mut self, target: &SimpleAssignmentTarget<'a>) {
        // The name of a function can be given to something else.
        if let SimpleAssignmentTarget::AssignmentTargetIdentifier(name) = target {
            self.may_write |= self.is_declared(&name.name);
        }
        if let Some(member) = target.as_member_expression()
            && let Some((root, _)) = member_path(member.object())
        {
            self.may_write |= self.is_declared(root);
        }
        walk::walk_simple_assignment_target(self, target);
    }
}

/// The names in brackets of `a[b].c[d]`.
fn visit_computed<'a>(uses: &mut Uses, path: &Expression<'a>) {
    match path {
        Expression::StaticMemberExpression(member) => visit_computed(uses, &member.object),
        Expression::ComputedMemberExpression(member) => {
            uses.visit_expression(&member.expression);
            visit_computed(uses, &member.object);
        }
        Expression::ParenthesizedExpression(inner) => visit_computed(uses, &inner.expression),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use oxc::allocator::Allocator;
    use oxc::parser::Parser;
    use oxc::span::SourceType;

    #[track_caller]
    fn check(code: &str, expected: bool) {
        let arena = Allocator::default();
        let parsed = Parser::new(&arena, code, SourceType::mjs()).parse();
        assert!(parsed.diagnostics.is_empty(), "{code}");
        assert_eq!(super::may_keep_state(&parsed.program), expected, "{code}");
    }

    #[test]
    fn functions_and_constants_keep_no_state() {
        for code in [
            "export default ({ a }) => a;",
            "import { b } from './b.js'; export default async function (x) { let n = 0; n++; return b(n); }",
            "const PLANS = ['free', 'ruby']; const RATES = { de: 0.19, at: { full: 0.2 } };",
            "const DAY = 24 * 60 * 60 * 1000; const FLAGS = [...PLANS, !true, -1]; const NAME = `a${DAY}`;",
            "const EMPTY = Object.freeze({}); const ID = /^[a-z]+$/; const pi = Math.PI;",
            "export const schema = { input: { type: 'object', properties: {} } }; export const metadata = {};",
            "function f() {} export { f }; export * from './c.js'; export { g } from './g.js';",
            "const handler = ({ a }) => a; export default handler;",
            "const RATES = { de: 0.19 }; export default ({ c }) => RATES[c] ?? RATES.de;",
            "const RATES = { de: { full: 0.19 } }; export default ({ c, k }) => RATES[c][k];",
            "const PLANS = ['a']; export default ({ p }) => PLANS.includes(p) ? [...PLANS, p] : PLANS.length;",
            "const PLANS = ['a']; export default () => { for (const p of PLANS) f(p); return Object.keys(PLANS); };",
            "const RATES = { de: 1 }; export default ({ c }) => c in RATES && JSON.stringify(RATES);",
            "import { z } from 'zod'; const Base = z.object({ a: z.string().min(1) }); export const Input = Base.extend({ b: z.array(z.literal('x')).optional() }); export default (x) => Input.parse(x);",
            "import * as v from 'zod/mini'; const Input = v.object({}); export default (x) => v.parse(Input, x);",
            "const DEEP = Object.freeze({ a: Object.freeze([1]) }); export default () => DEEP;",
        ] {
            check(code, false);
        }
    }

    #[test]
    fn whatever_can_change_may_be_state() {
        for code in [
            "let count = 0; export default () => ++count;",
            "var count;",
            "export let count = 0;",
            "const cache = {};",
            "const seen = [];",
            "const cache = new Map();",
            "const settings = { cache: {} };",
            "const store = createStore();",
            "const { get } = createStore();",
            "function last() {} export default ({ a }) => { const was = last; last = a; return was; };",
            "export default function last({ a }) { const was = last; [last] = [a]; return was; }",
            "function last() {} export default (args) => { ({ last } = args); };",
            "function last() {} export default ({ list }) => { for (last of list) {} };",
            "class Counter { static count = 0; }",
            "export class Counter {}",
            "export default makeCounter();",
            "globalThis.count = 0;",
            "if (true) { var count = 0; }",
            "const state = { count: 0 }; export default () => ++state.count;",
            "const state = { count: 0 }; export default () => { state['count'] += 1; };",
            "const seen = ['first']; export default ({ a }) => { seen.push(a); };",
            "const seen = [0]; export default () => { [seen[0]] = [1]; };",
            "const state = { list: [1] }; export default () => { const { list } = state; list.push(1); };",
            "const state = { list: [1] }; export default () => state.list;",
            "const state = { count: 0 }; export default () => bump(state);",
            "const state = { count: 0 }; const same = state; export default () => ++same.count;",
            "const state = { count: 0 }; export default () => { delete state.count; };",
            "const state = { count: 0, add() { this.count++; } }; export default () => state.add();",
            "export const state = { count: 0 };",
            "export default { count: 0 };",
            "const state = Object.freeze({ list: [1] }); export default () => state.list;",
            "const cache = Object.freeze(new Map());",
            "const handler = () => { handler.count = 1; }; export default handler;",
            "import data from './data.json'; export default () => { data.count++; };",
            "import data from './data.json'; export default () => { data.list.push(1); };",
            "import { z } from 'zod'; const registry = z.registry();",
            "import { z } from 'zod'; const Input = z.string().transform(makeCounter());",
            "import { z } from 'other'; const Input = z.string();",
            "const WORD = /a/g; export default ({ a }) => WORD.test(a);",
        ] {
            check(code, true);
        }
    }
}
