//! From positions in the code that runs to positions in the file that its author wrote.

use oxc::allocator::Allocator;
use oxc::ast::ast::{ArrowFunctionExpression, CallExpression, Function, NewExpression};
use oxc::ast_visit::{Visit, walk};
use oxc::parser::Parser;
use oxc::span::{GetSpan, SourceType, Span};
use oxc::syntax::scope::ScopeFlags;

use crate::diagnostic::Position;

/// Pairs of (generated, original) positions, in the order of the generated code.
#[derive(Debug)]
pub(crate) struct SourceMap(Vec<(Position, Position)>);

impl SourceMap {
    pub(crate) fn new(mut tokens: Vec<(Position, Position)>) -> Self {
        tokens.sort_by_key(|(generated, _)| *generated);
        Self(tokens)
    }

    /// The original position of the token at or before `generated`, on the same line.
    pub(crate) fn lookup(&self, generated: Position) -> Option<Position> {
        let after = self.0.partition_point(|(at, _)| *at <= generated);
        let (at, original) = self.0.get(after.checked_sub(1)?)?;
        (at.line == generated.line).then_some(*original)
    }
}

/// What a frame of a stack stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where the error was made: perhaps a call, perhaps a part of one of its arguments.
    Error,
    /// The call of the frame above.
    Call,
}

/// QuickJS reports a call at its last argument. The position is moved to the name of the called function; where it is not
/// known to be a call, only if that is on an earlier line.
pub(crate) fn call_start(id: &str, source: &str, position: Position, place: Place) -> Position {
    let (Some(offset), Ok(source_type)) = (position.to_offset(source), SourceType::from_path(id)) else {
        return position;
    };
    let arena = Allocator::default();
    let parsed = Parser::new(&arena, source, source_type).parse();
    let mut innermost = InnermostCall { offset: offset as u32, arguments: None, start: None };
    innermost.visit_program(&parsed.program);
    match innermost.start {
        Some(start) => {
            let start = Position::of_offset(source, start as usize);
            if place == Place::Call || start.line < position.line { start } else { position }
        }
        None => position,
    }
}

/// Finds the smallest call whose arguments contain the offset, in the innermost function that does.
struct InnermostCall {
    offset: u32,
    arguments: Option<Span>,
    start: Option<u32>,
}

impl InnermostCall {
    /// `start` is where the name of the called function begins: after the dot in `a.b()`.
    fn see(&mut self, arguments: Span, start: u32) {
        let contains = arguments.start <= self.offset && self.offset <= arguments.end;
        if contains && self.arguments.is_none_or(|best| arguments.size() <= best.size()) {
            self.arguments = Some(arguments);
            self.start = Some(start);
        }
    }
}

impl InnermostCall {
    /// What calls around the function do is another frame's.
    fn enter_function(&mut self, function: Span) {
        if function.start <= self.offset && self.offset < function.end {
            self.arguments = None;
            self.start = None;
        }
    }
}

impl<'a> Visit<'a> for InnermostCall {
    fn visit_function(&mut self, function: &Function<'a>, flags: ScopeFlags) {
        self.enter_function(function.body.as_ref().map_or(function.span, |body| body.span));
        walk::walk_function(self, function, flags);
    }

    fn visit_arrow_function_expression(&mut self, arrow: &ArrowFunctionExpression<'a>) {
        self.enter_function(arrow.body.span());
        walk::walk_arrow_function_expression(self, arrow);
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        let callee = call.callee.span();
        let start = match call.callee.as_member_expression() {
            Some(member) => member.static_property_info().map_or(callee.start, |(span, _)| span.start),
            None => callee.start,
        };
        self.see(Span::new(callee.end, call.span.end), start);
        walk::walk_call_expression(self, call);
    }

    fn visit_new_expression(&mut self, new: &NewExpression<'a>) {
        self.see(Span::new(new.callee.span().end, new.span.end), new.span.start);
        walk::walk_new_expression(self, new);
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Position, call_start};

    #[test]
    fn a_call_of_another_frame_is_reported_at_its_name() {
        let source = "const a = schema.parse(input, other(a));\nrun(() => a, b);\nlog(a);\n";
        for (position, expected) in [
            // `other` is the last argument of `parse`.
            (Position { line: 1, column: 31 }, Position { line: 1, column: 18 }),
            (Position { line: 1, column: 37 }, Position { line: 1, column: 31 }),
            (Position { line: 2, column: 14 }, Position { line: 2, column: 1 }),
            (Position { line: 1, column: 7 }, Position { line: 1, column: 7 }),
        ] {
            assert_eq!(call_start("a.ts", source, position, Place::Call), expected, "{position:?}");
        }
    }

    #[test]
    fn a_function_that_is_an_argument_is_not_reported_at_the_call() {
        let source = "items.map((item) => {\n  throw new Error(item);\n});\nrun(function () {\n  stop(\n    1);\n});\nlist.map(\n  (x) => x.y);\n";
        for (position, expected) in [
            (Position { line: 2, column: 13 }, Position { line: 2, column: 13 }),
            (Position { line: 6, column: 5 }, Position { line: 5, column: 3 }),
            (Position { line: 9, column: 11 }, Position { line: 9, column: 11 }),
        ] {
            assert_eq!(call_start("a.ts", source, position, Place::Error), expected, "{position:?}");
        }
    }

    #[test]
    fn a_call_over_several_lines_is_reported_where_it_begins() {
        let source = "const a = 1;\nvalidate(\n  a,\n  other(a),\n);\nlog(a);\n";
        for (position, expected) in [
            // The last argument of `validate`.
            (Position { line: 4, column: 3 }, Position { line: 2, column: 1 }),
            // Inside `other(a)`, which is on one line.
            (Position { line: 4, column: 9 }, Position { line: 4, column: 9 }),
            (Position { line: 6, column: 5 }, Position { line: 6, column: 5 }),
            (Position { line: 99, column: 1 }, Position { line: 99, column: 1 }),
        ] {
            assert_eq!(call_start("a.ts", source, position, Place::Error), expected, "{position:?}");
        }
    }
}
