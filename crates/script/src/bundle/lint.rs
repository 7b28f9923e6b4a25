//! Finds what cannot work here although it compiles: `Intl` and everything that needs it, and packages that make code from
//! text.

use oxc::allocator::Allocator;
use oxc::ast::ast::{Argument, CallExpression, Expression, IdentifierReference, NewExpression};
use oxc::ast_visit::{Visit, walk};
use oxc::parser::Parser;
use oxc::span::{SourceType, Span};

use super::entries::Entry;
use super::module::{Module, ModuleKind, package_name};
use crate::diagnostic::Diagnostic;

/// Methods whose result depends on a locale.
const LOCALE_METHODS: [&str; 5] =
    ["toLocaleString", "toLocaleDateString", "toLocaleTimeString", "toLocaleUpperCase", "toLocaleLowerCase"];

/// Checks the author's own files.
pub(super) fn check(module: &Module, warnings: &mut Vec<Diagnostic>) {
    let mentions = |word: &str| module.source.contains(word);
    if module.kind == ModuleKind::Json
        || package_name(&module.id).is_some()
        || !(mentions("Intl") || mentions("toLocale") || mentions("localeCompare"))
        || warnings.iter().any(|warning| warning.file == module.id)
    {
        return;
    }
    let Ok(source_type) = SourceType::from_path(&module.id) else { return };
    let arena = Allocator::default();
    let parsed = Parser::new(&arena, &module.source, source_type).parse();
    let mut uses = LocaleUses(Vec::new());
    uses.visit_program(&parsed.program);
    for (span, what) in uses.0 {
        let message = format!("{what} fails when it is called: this runtime has no locale data");
        let help = if what.starts_with(LOCALE_COMPARE) {
            "compare without them: Latin letters, digits and ASCII punctuation come in the order of English"
        } else {
            "format with `toFixed`, `toISOString` or a package such as date-fns"
        };
        let diagnostic = Diagnostic::warning(&module.id, message).with_help(help);
        warnings.push(diagnostic.at_offset(&module.source, span.start as usize));
    }
}

const LOCALE_COMPARE: &str = "`localeCompare` with a locale or options";

struct LocaleUses(Vec<(Span, String)>);

/// Whether `localeCompare` can do what these arguments ask for: English, whose order is that without a locale.
fn compares_as_english(arguments: &[Argument<'_>]) -> bool {
    match arguments {
        [] | [_] => true,
        [_, Argument::Identifier(name)] => name.name == "undefined",
        [_, Argument::StringLiteral(locale)] => {
            let region = locale.value.strip_prefix("en");
            region.is_some_and(|region| region.is_empty() || (region.len() == 3 && region.starts_with('-')))
        }
        _ => false,
    }
}

impl<'a> Visit<'a> for LocaleUses {
    fn visit_identifier_reference(&mut self, identifier: &IdentifierReference<'a>) {
        if identifier.name == "Intl" {
            self.0.push((identifier.span, "`Intl`".into()));
        }
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        if let Some(member) = call.callee.as_member_expression()
            && let Some((span, name)) = member.static_property_info()
        {
            if name == "localeCompare" && !compares_as_english(&call.arguments) {
                self.0.push((span, LOCALE_COMPARE.into()));
            }
            // Changing case without a locale needs no locale data.
            let needs_none = name.ends_with("Case") && call.arguments.is_empty();
            if LOCALE_METHODS.contains(&name) && !needs_none {
                self.0.push((span, format!("`{name}`")));
            }
        }
        walk::walk_call_expression(self, call);
    }
}

/// Packages that need no locale data for what most tools use them for: only functions that are made for locales fail.
const WORK_WITHOUT_INTL: [&str; 4] = ["date-fns", "lodash", "lodash-es", "zod"];

/// Checks whether a package uses `Intl`. Also asking whether it exists fails.
pub(super) fn check_package_locale(module: &Module, entry: &Entry, warnings: &mut Vec<Diagnostic>) {
    let Some(package) = package_name(&module.id) else { return };
    if module.kind == ModuleKind::Json
        || WORK_WITHOUT_INTL.contains(&package)
        || !module.source.contains("Intl")
    {
        return;
    }
    let name = &entry.name;
    let message = format!(
        "the package `{package}` uses `Intl`, which fails while `{name}` runs: this runtime has no locale data"
    );
    // Once for each tool and package.
    if warnings.iter().any(|warning| warning.message == message) {
        return;
    }
    let Ok(source_type) = SourceType::from_path(&module.id) else { return };
    let arena = Allocator::default();
    let parsed = Parser::new(&arena, &module.source, source_type).parse();
    let mut uses = IntlUse(None);
    uses.visit_program(&parsed.program);
    if let Some(span) = uses.0 {
        let help = format!("if `{name}` needs that part of the package, use another one");
        let diagnostic = Diagnostic::warning(&module.id, message).with_help(help);
        warnings.push(diagnostic.at_offset(&module.source, span.start as usize));
    }
}

struct IntlUse(Option<Span>);

impl<'a> Visit<'a> for IntlUse {
    fn visit_identifier_reference(&mut self, identifier: &IdentifierReference<'a>) {
        if identifier.name == "Intl" {
            self.0.get_or_insert(identifier.span);
        }
    }
}

/// Packages that work without it: they mention it where it is not used, or do something else when it is refused.
const WORK_WITHOUT_EVAL: [&str; 3] = ["lodash", "lodash-es", "zod"];

/// Checks whether a package makes code from text, which is refused unless the tool is named.
pub(super) fn check_package(module: &Module, entry: &Entry, warnings: &mut Vec<Diagnostic>) {
    let mentions = |word: &str| module.source.contains(word);
    let Some(package) = package_name(&module.id) else { return };
    if module.kind == ModuleKind::Json
        || WORK_WITHOUT_EVAL.contains(&package)
        || !(mentions("Function(") || mentions("eval("))
    {
        return;
    }
    let name = &entry.name;
    let message =
        format!("the package `{package}` makes code from text, which is refused while `{name}` runs");
    // Once for each tool and package.
    if warnings.iter().any(|warning| warning.message == message) {
        return;
    }
    let Ok(source_type) = SourceType::from_path(&module.id) else { return };
    let arena = Allocator::default();
    let parsed = Parser::new(&arena, &module.source, source_type).parse();
    let mut uses = EvalUses(None);
    uses.visit_program(&parsed.program);
    if let Some(span) = uses.0 {
        let help = format!(
            "if `{name}` needs that part of the package, permit it in spile.toml: `eval = [\"{name}\"]` below `[permissions]`"
        );
        let diagnostic = Diagnostic::warning(&module.id, message).with_help(help);
        warnings.push(diagnostic.at_offset(&module.source, span.start as usize));
    }
}

/// The first call of `Function` or `eval` with a text that is not written there: `Function("return this")` only finds the
/// global object.
struct EvalUses(Option<Span>);

impl EvalUses {
    fn see(&mut self, callee: &Expression<'_>, arguments: &[Argument<'_>], span: Span) {
        let is_eval =
            matches!(callee, Expression::Identifier(name) if name.name == "Function" || name.name == "eval");
        let is_fixed = arguments.last().is_none_or(|last| matches!(last, Argument::StringLiteral(_)));
        if is_eval && !is_fixed && self.0.is_none() {
            self.0 = Some(span);
        }
    }
}

impl<'a> Visit<'a> for EvalUses {
    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        self.see(&call.callee, &call.arguments, call.span);
        walk::walk_call_expression(self, call);
    }

    fn visit_new_expression(&mut self, new: &NewExpression<'a>) {
        self.see(&new.callee, &new.arguments, new.span);
        walk::walk_new_expression(self, new);
    }
}
