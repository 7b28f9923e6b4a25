//! CommonJS files: what they require and export, read from their syntax, and whether strict mode would break
//! them.
//!
//! The engine compiles every file as strict code. A file that needs sloppy mode is refused by the name of its
//! package instead of failing somewhere inside.

use std::collections::BTreeSet;

use oxc::allocator::Allocator;
use oxc::ast::ast::{
    Argument, AssignmentExpression, AssignmentTarget, CallExpression, Expression, ObjectPropertyKind,
    Program, StaticMemberExpression, TryStatement,
};
use oxc::ast_visit::{Visit, walk};
use oxc::parser::{ParseOptions, Parser};
use oxc::semantic::SemanticBuilder;
use oxc::span::SourceType;

use super::module::Import;

#[derive(Default)]
pub(super) struct CommonJsScan {
    pub(super) requires: Vec<Import>,
    pub(super) export_names: BTreeSet<String>,
    pub(super) reexports: Vec<String>,
    try_depth: u32,
}

fn is_exports(expression: &Expression<'_>) -> bool {
    match expression {
        Expression::Identifier(identifier) => identifier.name == "exports",
        Expression::StaticMemberExpression(member) => is_module_exports(member),
        _ => false,
    }
}

fn is_module_exports(member: &StaticMemberExpression<'_>) -> bool {
    member.property.name == "exports" && member.object.is_specific_id("module")
}

/// The specifier of `require("…")`.
fn required_specifier(expression: &Expression<'_>) -> Option<String> {
    match expression {
        Expression::CallExpression(call) => specifier_of_call(call),
        _ => None,
    }
}

fn specifier_of_call(call: &CallExpression<'_>) -> Option<String> {
    match call.arguments.first()? {
        Argument::StringLiteral(text) if call.callee.is_specific_id("require") => {
            Some(text.value.to_string())
        }
        _ => None,
    }
}

impl<'a> Visit<'a> for CommonJsScan {
    fn visit_try_statement(&mut self, statement: &TryStatement<'a>) {
        self.try_depth += 1;
        walk::walk_try_statement(self, statement);
        self.try_depth -= 1;
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        if let Some(specifier) = specifier_of_call(call) {
            let is_optional = self.try_depth > 0;
            self.requires.push(Import { specifier, offset: call.span.start as usize, is_optional });
        }
        if let [first, second, ..] = &call.arguments[..]
            && let Some(first) = first.as_expression()
        {
            // `__exportStar(require("x"), exports)` and the other helpers that compilers emit.
            if second.as_expression().is_some_and(is_exports) {
                self.reexports.extend(required_specifier(first));
            }
            // `Object.defineProperty(exports, "x", …)`
            if is_exports(first)
                && let Argument::StringLiteral(name) = second
            {
                self.export_names.insert(name.value.to_string());
            }
        }
        walk::walk_call_expression(self, call);
    }

    fn visit_assignment_expression(&mut self, assignment: &AssignmentExpression<'a>) {
        if let AssignmentTarget::StaticMemberExpression(member) = &assignment.left {
            if is_exports(&member.object) {
                self.export_names.insert(member.property.name.to_string());
            } else if is_module_exports(member) {
                self.reexports.extend(required_specifier(&assignment.right));
                if let Expression::ObjectExpression(object) = &assignment.right {
                    let names = object.properties.iter().filter_map(|property| match property {
                        ObjectPropertyKind::ObjectProperty(property) => property.key.static_name(),
                        ObjectPropertyKind::SpreadProperty(_) => None,
                    });
                    self.export_names.extend(names.map(|name| name.to_string()));
                }
            }
        }
        walk::walk_assignment_expression(self, assignment);
    }
}

/// Names that the wrapper around a CommonJS file defines.
const WRAPPER_NAMES: [&str; 5] = ["exports", "require", "module", "__filename", "__dirname"];

/// Where and why the file cannot run as strict code; `None` if it can.
pub(super) fn strict_mode_obstacle(
    arena: &Allocator,
    code: &str,
    program: &Program<'_>,
) -> Option<(usize, String)> {
    // Strict mode by itself: `with`, octal literals, `delete name`, duplicate parameters.
    let strict = format!("\"use strict\";{code}");
    let shift = strict.len() - code.len();
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    let parsed =
        Parser::new(arena, arena.alloc_str(&strict), SourceType::cjs()).with_options(options).parse();
    let mut errors = parsed.diagnostics.into_iter().collect::<Vec<_>>();
    if errors.is_empty() {
        let checked = SemanticBuilder::new().with_check_syntax_error(true).build(&parsed.program);
        errors = checked.diagnostics.into_iter().collect();
    }
    if let Some(error) = errors.first() {
        let offset = error.labels.first().map_or(0, |label| label.offset() as usize);
        return Some((offset.saturating_sub(shift), error.message.to_string()));
    }
    // Assignments that would create a global variable.
    let semantic = SemanticBuilder::new().with_build_nodes(true).build(program).semantic;
    let scoping = semantic.scoping();
    for (name, references) in scoping.root_unresolved_references() {
        if WRAPPER_NAMES.contains(&name.as_str()) {
            continue;
        }
        for id in references {
            if scoping.get_reference(*id).flags().is_write() {
                use oxc::span::GetSpan;
                let offset = semantic.nodes().kind(scoping.get_reference(*id).node_id()).span().start;
                return Some((offset as usize, format!("it assigns to the undeclared variable `{name}`")));
            }
        }
    }
    let mut callee = ArgumentsCallee(None);
    callee.visit_program(program);
    callee.0.map(|offset| (offset as usize, "it uses `arguments.callee`".to_owned()))
}

struct ArgumentsCallee(Option<u32>);

impl<'a> Visit<'a> for ArgumentsCallee {
    fn visit_static_member_expression(&mut self, member: &StaticMemberExpression<'a>) {
        if member.property.name == "callee" && member.object.is_specific_id("arguments") {
            self.0.get_or_insert(member.span.start);
        }
        walk::walk_static_member_expression(self, member);
    }
}
