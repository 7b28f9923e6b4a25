//! Finds calls that cannot work here although they compile: `Intl`, and everything that needs it.

use oxc::allocator::Allocator;
use oxc::ast::ast::{CallExpression, IdentifierReference};
use oxc::ast_visit::{Visit, walk};
use oxc::parser::Parser;
use oxc::span::{SourceType, Span};

use super::module::{Module, ModuleKind, package_name};
use crate::diagnostic::Diagnostic;

/// Methods whose result depends on a locale.
const LOCALE_METHODS: [&str; 5] =
    ["toLocaleString", "toLocaleDateString", "toLocaleTimeString", "toLocaleUpperCase", "toLocaleLowerCase"];

/// Checks the author's own files; packages often mention `Intl` in code that is never used.
pub(super) fn check(module: &Module, warnings: &mut Vec<Diagnostic>) {
    let mentions = |word: &str| module.source.contains(word);
    if module.kind == ModuleKind::Json
        || package_name(&module.id).is_some()
        || !(mentions("Intl") || mentions("toLocale"))
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
        let message = format!("`{what}` fails when it is called: this runtime has no locale data");
        let diagnostic = Diagnostic::warning(&module.id, message)
            .with_help("format with `toFixed`, `toISOString` or a package such as date-fns");
        warnings.push(diagnostic.at_offset(&module.source, span.start as usize));
    }
}

struct LocaleUses(Vec<(Span, String)>);

impl<'a> Visit<'a> for LocaleUses {
    fn visit_identifier_reference(&mut self, identifier: &IdentifierReference<'a>) {
        if identifier.name == "Intl" {
            self.0.push((identifier.span, "Intl".into()));
        }
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        if let Some(member) = call.callee.as_member_expression()
            && let Some((span, name)) = member.static_property_info()
            && LOCALE_METHODS.contains(&name)
            // Changing case without a locale needs no locale data.
            && !(name.ends_with("Case") && call.arguments.is_empty())
        {
            self.0.push((span, name.to_owned()));
        }
        walk::walk_call_expression(self, call);
    }
}
