//! Whether a module of the author may keep state between calls, by its syntax.
//!
//! The top level of most tools has functions and constants only. Everything else may be a counter or a cache.

use oxc::ast::ast::{
    Argument, ArrayExpressionElement, Declaration, ExportDefaultDeclarationKind, Expression,
    ObjectPropertyKind, Program, Statement, VariableDeclaration, VariableDeclarationKind,
};

/// What Spile reads once, before any call.
const DECLARATIONS: [&str; 2] = ["schema", "metadata"];

/// `false` only if nothing at the top level can change, as far as its syntax shows.
pub(super) fn may_keep_state(program: &Program<'_>) -> bool {
    program.body.iter().any(|statement| match statement {
        Statement::VariableDeclaration(declaration) => is_state(declaration),
        Statement::ExportDeclaration(export) => match &export.declaration {
            Declaration::VariableDeclaration(declaration) => is_state(declaration),
            Declaration::FunctionDeclaration(_) => false,
            _ => true,
        },
        Statement::ExportDefaultDeclaration(export) => match &export.declaration {
            ExportDefaultDeclarationKind::FunctionDeclaration(_) => false,
            kind => !kind.as_expression().is_some_and(is_constant),
        },
        Statement::FunctionDeclaration(_)
        | Statement::ImportDeclaration(_)
        | Statement::ExportAllDeclaration(_)
        | Statement::ExportNamedDeclaration(_)
        | Statement::ExportFromDeclaration(_)
        | Statement::EmptyStatement(_) => false,
        // A class may have static fields; another statement may do anything.
        _ => true,
    })
}

fn is_state(declaration: &VariableDeclaration<'_>) -> bool {
    declaration.kind != VariableDeclarationKind::Const
        || declaration.declarations.iter().any(|variable| {
            let name = variable.id.get_identifier_name();
            let is_declaration = name.is_some_and(|name| DECLARATIONS.contains(&name.as_str()));
            !is_declaration && !variable.init.as_ref().is_some_and(is_constant)
        })
}

/// An empty array or object is there to be filled.
fn is_constant(value: &Expression<'_>) -> bool {
    match value {
        Expression::StringLiteral(_)
        | Expression::NumericLiteral(_)
        | Expression::BooleanLiteral(_)
        | Expression::NullLiteral(_)
        | Expression::RegExpLiteral(_)
        | Expression::Identifier(_)
        | Expression::ArrowFunctionExpression(_)
        | Expression::FunctionExpression(_) => true,
        Expression::TemplateLiteral(template) => template.expressions.iter().all(is_constant),
        Expression::UnaryExpression(unary) => is_constant(&unary.argument),
        Expression::BinaryExpression(binary) => is_constant(&binary.left) && is_constant(&binary.right),
        Expression::ParenthesizedExpression(inner) => is_constant(&inner.expression),
        Expression::StaticMemberExpression(member) => is_constant(&member.object),
        Expression::ArrayExpression(array) => {
            !array.elements.is_empty()
                && array.elements.iter().all(|element| match element {
                    ArrayExpressionElement::SpreadElement(spread) => is_constant(&spread.argument),
                    ArrayExpressionElement::Elision(_) => true,
                    element => element.as_expression().is_some_and(is_constant),
                })
        }
        Expression::ObjectExpression(object) => {
            !object.properties.is_empty()
                && object.properties.iter().all(|property| match property {
                    ObjectPropertyKind::ObjectProperty(property) => is_constant(&property.value),
                    ObjectPropertyKind::SpreadProperty(spread) => is_constant(&spread.argument),
                })
        }
        Expression::CallExpression(call) => {
            let is_frozen = call.callee.is_specific_member_access("Object", "freeze");
            is_frozen && call.arguments.iter().all(|one: &Argument<'_>| one.is_expression())
        }
        _ => false,
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
            "class Counter { static count = 0; }",
            "export class Counter {}",
            "export default makeCounter();",
            "globalThis.count = 0;",
            "if (true) { var count = 0; }",
        ] {
            check(code, true);
        }
    }
}
