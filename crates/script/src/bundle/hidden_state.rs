//! Whether a file of the author may keep state that its top level does not show: on a function, on something it imported, on the
//! global object, or in a package.
//!
//! [`super::module_state`] finds what is declared to change. This looks for code that could change what seems constant. It
//! errs on the side of state: such code still runs, but an anonymous caller without a session gets a fresh context for
//! each call.

use std::collections::HashMap;

use oxc::ast::ast::{
    Argument, AssignmentExpression, AssignmentTarget, AssignmentTargetPropertyIdentifier, BinaryExpression,
    BindingIdentifier, CallExpression, Declaration, ExportDefaultDeclarationKind, Expression,
    IdentifierReference, ImportDeclaration, ImportDeclarationSpecifier, ImportExpression, ImportMeta,
    NewExpression, NewTarget, ObjectPropertyKind, Program, SimpleAssignmentTarget, Statement,
    TemplateLiteral, UnaryExpression, UnaryOperator, VariableDeclaration, VariableDeclarator,
};
use oxc::ast_visit::{Visit, walk};

use super::module_state::{READING_METHODS, WRITING_METHODS, is_declaration, is_primitive};

/// Packages whose functions keep nothing of what they are given, as far as they are not set up with one of [`SETTERS`].
const KNOWN_PACKAGES: [&str; 4] = ["zod", "date-fns", "lodash", "lodash-es"];
/// Functions of those packages that change the package itself.
pub(super) const SETTERS: [&str; 10] = [
    "config",
    "globalRegistry",
    "mixin",
    "register",
    "registry",
    "runInContext",
    "setDefaultOptions",
    "setErrorMap",
    "templateSettings",
    "uniqueId",
];
/// Functions that call what they are given, or make a text or number of it, and keep nothing.
const CALLING_METHODS: [&str; 24] = [
    "at",
    "catch",
    "every",
    "filter",
    "finally",
    "find",
    "findIndex",
    "findLast",
    "flatMap",
    "forEach",
    "from",
    "includes",
    "join",
    "map",
    "match",
    "matchAll",
    "reduce",
    "replace",
    "replaceAll",
    "some",
    "sort",
    "split",
    "then",
    "toSorted",
];
const READING_GLOBALS: [&str; 7] =
    ["Boolean", "Number", "String", "decodeURIComponent", "encodeURIComponent", "parseFloat", "parseInt"];
/// Functions of `Object` and `Reflect` that write to their first argument.
const WRITING_FUNCTIONS: [&str; 7] =
    ["assign", "defineProperties", "defineProperty", "deleteProperty", "set", "setPrototypeOf", "push"];
const GLOBAL_OBJECTS: [&str; 3] = ["globalThis", "self", "global"];

pub(super) fn keeps_nothing(package: &str) -> bool {
    KNOWN_PACKAGES.contains(&package)
}

/// What would have to come together for hidden state, in one file or in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HiddenState {
    /// A function of the top level, or something imported, is used as a value: it can go by another name elsewhere.
    hands_on: bool,
    /// A member is written of something that is not obviously made in the same call.
    writes: bool,
    /// The global object is written to or handed on, or a known package is set up.
    changes_globals: bool,
}

impl HiddenState {
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            hands_on: self.hands_on || other.hands_on,
            writes: self.writes || other.writes,
            changes_globals: self.changes_globals || other.changes_globals,
        }
    }

    pub(crate) fn may_exist(self) -> bool {
        self.changes_globals || (self.hands_on && self.writes)
    }

    pub(super) fn find(program: &Program<'_>) -> Self {
        let mut bindings = Bindings::default();
        bindings.visit_program(program);
        let mut scan = Scan::new(bindings);
        for statement in &program.body {
            scan.declare(statement);
        }
        for statement in &program.body {
            scan.visit_top_level(statement);
        }
        scan.found
    }
}

/// How often each name is declared, and how often with a value that is made there: a new array or object.
#[derive(Default)]
struct Bindings(HashMap<Box<str>, (u32, u32)>);

impl Bindings {
    fn is_declared(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn is_fresh(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|(declared, fresh)| declared == fresh)
    }
}

impl<'a> Visit<'a> for Bindings {
    fn visit_binding_identifier(&mut self, name: &BindingIdentifier<'a>) {
        self.0.entry(name.name.as_str().into()).or_default().0 += 1;
    }

    fn visit_variable_declarator(&mut self, variable: &VariableDeclarator<'a>) {
        if let (Some(name), Some(value)) = (variable.id.get_identifier_name(), &variable.init)
            && is_made_here(value)
        {
            self.0.entry(name.as_str().into()).or_default().1 += 1;
        }
        walk::walk_variable_declarator(self, variable);
    }

    fn visit_assignment_expression(&mut self, assignment: &AssignmentExpression<'a>) {
        // The name may mean something else from here on.
        if let AssignmentTarget::AssignmentTargetIdentifier(name) = &assignment.left
            && !is_made_here(&assignment.right)
        {
            self.0.entry(name.name.as_str().into()).and_modify(|(declared, _)| *declared += 1);
        }
        walk::walk_assignment_expression(self, assignment);
    }
}

fn is_made_here(value: &Expression<'_>) -> bool {
    matches!(
        value.get_inner_expression(),
        Expression::ArrayExpression(_) | Expression::ObjectExpression(_) | Expression::NewExpression(_)
    )
}

struct Scan {
    bindings: Bindings,
    /// Functions of the top level, and what is imported.
    watched: Vec<Box<str>>,
    imported: Vec<Box<str>>,
    /// Literals of the top level with functions in them.
    function_tables: Vec<Box<str>>,
    found: HiddenState,
}

impl Scan {
    fn new(bindings: Bindings) -> Self {
        let (watched, imported, function_tables) = Default::default();
        Self { bindings, watched, imported, function_tables, found: HiddenState::default() }
    }

    fn declare(&mut self, statement: &Statement<'_>) {
        match statement {
            Statement::VariableDeclaration(declaration) => self.declare_variables(declaration),
            Statement::FunctionDeclaration(function) => {
                self.watched.extend(function.name().iter().map(|name| name.as_str().into()));
            }
            Statement::ExportDeclaration(export) => match &export.declaration {
                Declaration::VariableDeclaration(declaration) => self.declare_variables(declaration),
                Declaration::FunctionDeclaration(function) => {
                    self.watched.extend(function.name().iter().map(|name| name.as_str().into()));
                }
                _ => {}
            },
            Statement::ExportDefaultDeclaration(export) => {
                if let ExportDefaultDeclarationKind::FunctionDeclaration(function) = &export.declaration {
                    self.watched.extend(function.name().iter().map(|name| name.as_str().into()));
                }
            }
            Statement::ImportDeclaration(import) => self.declare_imports(import),
            _ => {}
        }
    }

    fn declare_variables(&mut self, declaration: &VariableDeclaration<'_>) {
        for variable in &declaration.declarations {
            let is_primitive = variable.init.as_ref().is_some_and(is_primitive);
            if let (Some(name), false) = (variable.id.get_identifier_name(), is_primitive) {
                self.watched.push(name.as_str().into());
                if variable.init.as_ref().is_some_and(holds_functions) {
                    self.function_tables.push(name.as_str().into());
                }
            }
        }
    }

    fn declare_imports(&mut self, import: &ImportDeclaration<'_>) {
        let file = import.source.value.as_str().rsplit('/').next().unwrap_or_default();
        self.found.changes_globals |= SETTERS.contains(&file);
        for specifier in import.specifiers.iter().flatten() {
            let local: Box<str> = specifier.local().name.as_str().into();
            self.watched.push(local.clone());
            self.imported.push(local);
            if let ImportDeclarationSpecifier::ImportSpecifier(one) = specifier {
                self.found.changes_globals |= SETTERS.contains(&one.imported.name().as_str());
            }
        }
    }

    fn visit_top_level(&mut self, statement: &Statement<'_>) {
        match statement {
            Statement::ImportDeclaration(_)
            | Statement::ExportNamedDeclaration(_)
            | Statement::ExportFromDeclaration(_)
            | Statement::ExportAllDeclaration(_) => {}
            Statement::ExportDefaultDeclaration(export)
                if matches!(export.declaration, ExportDefaultDeclarationKind::Identifier(_)) => {}
            Statement::ExportDeclaration(export) => {
                if let Declaration::VariableDeclaration(declaration) = &export.declaration {
                    // The values of the others are read once, before any call.
                    for variable in declaration.declarations.iter().filter(|one| !is_declaration(one)) {
                        self.visit_variable_declarator(variable);
                    }
                } else {
                    self.visit_declaration(&export.declaration);
                }
            }
            _ => self.visit_statement(statement),
        }
    }

    fn is_watched(&self, name: &str) -> bool {
        self.watched.iter().any(|one| **one == *name)
    }

    /// Visits a value that is only called, or made a text of: what it is called is no secret.
    fn visit_unless_name(&mut self, value: &Expression<'_>) {
        if !matches!(value, Expression::Identifier(name) if !is_global_object(&name.name)) {
            self.visit_expression(value);
        }
    }

    fn visit_arguments(&mut self, arguments: &[Argument<'_>], keeps_nothing: bool) {
        for argument in arguments {
            match argument.as_expression() {
                Some(value) if keeps_nothing => self.visit_unless_name(value),
                _ => self.visit_argument(argument),
            }
        }
    }

    /// A member of `object` is written.
    fn write_to(&mut self, object: &Expression<'_>) {
        self.found.writes |= match object.get_inner_expression() {
            Expression::Identifier(name) if is_global_object(&name.name) => {
                self.found.changes_globals = true;
                true
            }
            Expression::Identifier(name) => !self.bindings.is_fresh(&name.name),
            // What it is depends on who calls the function.
            Expression::ThisExpression(_) => {
                self.found.hands_on = true;
                true
            }
            value => !is_made_here(value),
        };
    }
}

/// Whether a literal has functions among its values: they have members, too.
fn holds_functions(value: &Expression<'_>) -> bool {
    let is_function = |value: &Expression<'_>| {
        matches!(value, Expression::ArrowFunctionExpression(_) | Expression::FunctionExpression(_))
            || holds_functions(value)
    };
    match value.get_inner_expression() {
        Expression::ArrayExpression(array) => {
            array.elements.iter().filter_map(|element| element.as_expression()).any(is_function)
        }
        Expression::ObjectExpression(object) => object.properties.iter().any(|property| match property {
            ObjectPropertyKind::ObjectProperty(property) => is_function(&property.value),
            ObjectPropertyKind::SpreadProperty(_) => false,
        }),
        // `Object.freeze([…])`
        Expression::CallExpression(call) => {
            call.arguments.iter().filter_map(Argument::as_expression).any(holds_functions)
        }
        _ => false,
    }
}

fn is_global_object(name: &str) -> bool {
    GLOBAL_OBJECTS.contains(&name)
}

impl<'a> Visit<'a> for Scan {
    fn visit_identifier_reference(&mut self, name: &IdentifierReference<'a>) {
        self.found.hands_on |= self.is_watched(&name.name);
        self.found.changes_globals |= is_global_object(&name.name);
    }

    fn visit_expression(&mut self, value: &Expression<'a>) {
        if let Expression::FunctionExpression(function) = value {
            // Its name means the function inside it.
            self.watched.extend(function.name().iter().map(|name| name.as_str().into()));
        }
        if let Some(member) = value.as_member_expression()
            && matches!(member.object(), Expression::ImportMeta(_))
            && member.static_property_name().is_some()
        {
            return;
        }
        if let Some(member) = value.as_member_expression()
            && let Expression::Identifier(name) = member.object()
        {
            // `globalThis.crypto` is the name of a global.
            if is_global_object(&name.name) && member.static_property_name().is_some() {
                return;
            }
            let is_import = self.imported.iter().any(|one| **one == *name.name);
            let property = member.static_property_name();
            self.found.changes_globals |=
                is_import && property.is_some_and(|property| SETTERS.contains(&property));
        }
        walk::walk_expression(self, value);
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        let mut keeps_nothing = false;
        match call.callee.get_inner_expression() {
            Expression::Identifier(name) => keeps_nothing = READING_GLOBALS.contains(&name.name.as_str()),
            callee => {
                let method = callee
                    .as_member_expression()
                    .and_then(|member| Some((member.object(), member.static_property_name()?)));
                match method {
                    Some((object, method)) => {
                        keeps_nothing = CALLING_METHODS.contains(&method);
                        let of_object = matches!(object, Expression::Identifier(name) if matches!(name.name.as_str(), "Object" | "Reflect"));
                        if of_object && WRITING_FUNCTIONS.contains(&method) {
                            match call.arguments.first().and_then(Argument::as_expression) {
                                Some(target) => self.write_to(target),
                                None => self.found.writes = true,
                            }
                        } else if WRITING_METHODS.contains(&method) {
                            self.write_to(object);
                        }
                        let is_setter = matches!(object, Expression::Identifier(name) if self.imported.iter().any(|one| **one == *name.name))
                            && SETTERS.contains(&method);
                        self.found.changes_globals |= is_setter;
                        let is_table = matches!(object, Expression::Identifier(name) if self.function_tables.iter().any(|one| **one == *name.name));
                        self.found.hands_on |=
                            is_table && (keeps_nothing || READING_METHODS.contains(&method));
                        self.visit_unless_name(object);
                    }
                    None => match callee {
                        // A function of a table is called.
                        Expression::ComputedMemberExpression(member) => {
                            self.visit_unless_name(&member.object);
                            self.visit_expression(&member.expression);
                        }
                        callee => self.visit_expression(callee),
                    },
                }
            }
        }
        self.visit_arguments(&call.arguments, keeps_nothing);
    }

    fn visit_new_expression(&mut self, new: &NewExpression<'a>) {
        self.visit_unless_name(&new.callee);
        self.visit_arguments(&new.arguments, false);
    }

    fn visit_template_literal(&mut self, template: &TemplateLiteral<'a>) {
        template.expressions.iter().for_each(|value| self.visit_unless_name(value));
    }

    fn visit_binary_expression(&mut self, binary: &BinaryExpression<'a>) {
        self.visit_unless_name(&binary.left);
        self.visit_unless_name(&binary.right);
    }

    fn visit_unary_expression(&mut self, unary: &UnaryExpression<'a>) {
        if unary.operator == UnaryOperator::Delete {
            if let Some(member) = unary.argument.as_member_expression() {
                self.write_to(member.object());
            }
            walk::walk_unary_expression(self, unary);
        } else {
            self.visit_unless_name(&unary.argument);
        }
    }

    fn visit_import_meta(&mut self, _: &ImportMeta) {
        self.found.changes_globals = true;
    }

    fn visit_new_target(&mut self, _: &NewTarget) {
        self.found.hands_on = true;
    }

    fn visit_assignment_target_property_identifier(
        &mut self,
        target: &AssignmentTargetPropertyIdentifier<'a>,
    ) {
        self.found.changes_globals |= !self.bindings.is_declared(&target.binding.name);
        walk::walk_assignment_target_property_identifier(self, target);
    }

    fn visit_simple_assignment_target(&mut self, target: &SimpleAssignmentTarget<'a>) {
        // A global, such as `URL = 1`.
        if let SimpleAssignmentTarget::AssignmentTargetIdentifier(name) = target {
            self.found.changes_globals |= !self.bindings.is_declared(&name.name);
        }
        if let Some(member) = target.as_member_expression() {
            self.write_to(member.object());
        }
        walk::walk_simple_assignment_target(self, target);
    }

    fn visit_import_expression(&mut self, import: &ImportExpression<'a>) {
        self.found.hands_on = true;
        walk::walk_import_expression(self, import);
    }
}

#[cfg(test)]
mod tests {
    use oxc::allocator::Allocator;
    use oxc::parser::Parser;
    use oxc::span::SourceType;

    use super::HiddenState;

    #[track_caller]
    fn check(code: &str, expected: bool) {
        let arena = Allocator::default();
        let parsed = Parser::new(&arena, code, SourceType::mjs()).parse();
        assert!(parsed.diagnostics.is_empty(), "{code}");
        let found = HiddenState::find(&parsed.program);
        assert_eq!(found.may_exist(), expected, "{code}: {found:?}");
    }

    #[test]
    fn ordinary_tools_hide_nothing() {
        for code in [
            "export default ({ a, b }) => ({ sum: a + b });",
            "const twice = (n) => n * 2; export default ({ list }) => list.map(twice);",
            "import { slug } from './slug.js'; const SEP = '-'; export default ({ a }) => { const out = {}; out.slug = slug(a, SEP); return out; };",
            "import { z } from 'zod'; const Input = z.object({ a: z.string() }); export default (args) => { const seen = []; seen.push(Input.parse(args)); return seen; };",
            "import { BASE } from './base.js'; export default async ({ id }, ctx) => { const out = {}; out.url = `${BASE}/${id}`; return out; };",
            "const ID = /^[a-z]+$/; export default ({ id, out }) => { if (!ID.test(id)) throw new Error(id); return id.replace(ID, 'x'); };",
            "export default () => globalThis.crypto.randomUUID();",
            "export default () => new URL('./data', import.meta.url).href;",
            "const OPS = { add: (a, b) => a + b }; export default ({ op, a, b, out }) => { out.sum = OPS[op](a, b); return out; };",
            "export default ({ list }) => { let best; for (best of list) if (best > 3) break; let i = 0; i += 1; return best + i; };",
            "function handler(args) { return args; } export default handler; export { handler };",
            "import { format } from './format.js'; export const metadata = { title: format('a') }; export default ({ row }) => { row.name = format(row.name); return row; };",
        ] {
            check(code, false);
        }
    }

    #[test]
    fn what_can_change_under_another_name_may_be_state() {
        for code in [
            "function calls() { const own = calls; own.count = (own.count ?? 0) + 1; return own.count; } export default () => calls();",
            "const memo = () => 1; const bump = (f) => { f.n = 1; }; export default () => bump(memo);",
            "import data from './data.json'; export default ({ a }) => { const { list } = data; list.push(a); };",
            "import data from './data.json'; export default ({ a }) => Object.assign(data, { a });",
            "import * as all from './all.js'; export default ({ a }) => { const cache = all.cache; cache.a = a; };",
            "export default ({ a }) => { const last = globalThis.last; globalThis.last = a; return last; };",
            "export default ({ a }) => { const g = globalThis; g.last = a; };",
            "export default ({ a }) => Reflect.set(self, 'last', a);",
            "export default ({ k }) => { globalThis[k] = 1; };",
            "import { setDefaultOptions } from 'date-fns'; export default ({ locale }) => setDefaultOptions({ locale });",
            "import _ from 'lodash'; export default () => _.uniqueId();",
            "import next from 'lodash-es/uniqueId'; export default () => next();",
            "import { z } from 'zod'; export default ({ a }) => { z.config({ a }); };",
            "const all = [() => 1]; export default ({ a }) => { all.forEach((f) => { f.last = a; }); };",
            "const all = Object.freeze({ f: () => 1 }); export default ({ a }) => { Object.values(all).map((f) => { f.last = a; }); };",
            "const all = { f() { this.last = 1; } }; export default ({ name }) => all[name]();",
            "const f = function g({ a }) { const own = g; const was = own.last; own.last = a; return was; }; export default (args) => f(args);",
            "export default function h({ a }) { const was = h.last; h.last = a; return was; }",
            "function F() { new.target.made = (new.target.made ?? 0) + 1; this.made = new.target.made; } export default () => new F();",
            "export default ({ a }) => { const was = import.meta.last; import.meta.last = a; return was; };",
            "export default ({ a }) => { const was = URL; URL = a; return was; };",
            "export default ({ a }) => { ({ URL } = { URL: a }); };",
            "export default async ({ a }) => { const all = await import('./all.js'); all.cache.a = a; };",
        ] {
            check(code, true);
        }
    }
}
