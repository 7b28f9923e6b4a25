//! One file as a module: types removed, imports found. Reads nothing; resolving is the graph's part.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use oxc::allocator::{Allocator, TakeIn, Vec as ArenaVec};
use oxc::ast::ast::{BigIntLiteral, BindingProperty, Expression, MemberExpression, NewExpression};
use oxc::ast::builder::AstBuilder;
use oxc::ast_visit::{Visit, VisitMut, walk, walk_mut};
use oxc::codegen::{Codegen, CodegenOptions};
use oxc::diagnostics::OxcDiagnostic;
use oxc::parser::{ParseOptions, Parser};
use oxc::semantic::SemanticBuilder;
use oxc::span::SourceType;
use oxc::syntax::module_record::{ExportImportName, ImportImportName};
use oxc::transformer::{TransformOptions, Transformer};

use super::common_js::{CommonJsScan, strict_mode_obstacle};
use super::hidden_state::HiddenState;
use super::module_state::may_keep_state;
use super::positions::SourceMap;
use crate::diagnostic::{Diagnostic, Position};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModuleKind {
    EsModule,
    CommonJs,
    Json,
}

/// One module of a program. `id` is its path inside the folder, so that no error shows a path of the machine.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) id: String,
    pub(crate) kind: ModuleKind,
    /// The file as its author wrote it.
    pub(crate) source: String,
    /// What the engine compiles. The same as `source` for JavaScript and JSON.
    pub(crate) code: Arc<str>,
    pub(crate) map: Option<SourceMap>,
    pub(crate) imports: Vec<Import>,
    /// The names that the module imports, by specifier: a CommonJS module exports what is asked of it.
    pub(crate) imported_names: Vec<(String, String)>,
    /// For CommonJS: the exported names that its text shows, and the modules whose exports it passes on.
    pub(crate) export_names: BTreeSet<String>,
    pub(crate) reexports: Vec<String>,
    /// Whether it uses a member named like a function of `ctx` that can end a round.
    pub(crate) may_ask: bool,
    /// Whether it uses a member named `detach`.
    pub(crate) may_detach: bool,
    /// Whether it uses a member named `request`.
    pub(crate) reads_request: bool,
    /// Whether its top level shows something that may change between calls.
    pub(crate) may_keep_state: bool,
    /// State that its top level does not show. Of files of the author only.
    pub(crate) hidden_state: HiddenState,
    /// Whether its text has big integers, whose operators cannot be interrupted.
    pub(crate) has_big_integers: bool,
}

/// A specifier that the module imports or requires.
#[derive(Debug, Clone)]
pub(crate) struct Import {
    pub(crate) specifier: String,
    /// In the module's `code`.
    pub(crate) offset: usize,
    /// A `require` inside `try`: it may fail at run time without harm.
    pub(crate) is_optional: bool,
}

impl Module {
    pub(crate) fn parse(id: &str, source: String) -> Result<Self, Box<Diagnostic>> {
        let mut module = Self {
            id: id.to_owned(),
            kind: ModuleKind::EsModule,
            code: Arc::from(""),
            source,
            map: None,
            imports: Vec::new(),
            imported_names: Vec::new(),
            export_names: BTreeSet::new(),
            reexports: Vec::new(),
            may_ask: false,
            may_detach: false,
            reads_request: false,
            may_keep_state: false,
            hidden_state: HiddenState::default(),
            has_big_integers: false,
        };
        if id.ends_with(".json") {
            module.kind = ModuleKind::Json;
            if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&module.source) {
                let position = Position { line: error.line() as u32, column: error.column().max(1) as u32 };
                let text = error.to_string();
                let reason = text.split(" at line").next().unwrap_or_default();
                let diagnostic = Diagnostic::error(id, format!("invalid JSON: {reason}"));
                return Err(Box::new(diagnostic.at(&module.source, position)));
            }
            module.code = module.source.as_str().into();
            return Ok(module);
        }
        let source_type = SourceType::from_path(id).map_err(|_| {
            Diagnostic::error(id, "not a file that can be imported: expected .ts, .js or .json")
        })?;
        if source_type.is_typescript() {
            let (code, map) = remove_types(id, &module.source, source_type)?;
            module.code = code.into();
            module.map = Some(map);
        } else {
            module.code = module.source.as_str().into();
        }
        module.find_imports(source_type)?;
        Ok(module)
    }

    /// The position in the author's file of an offset in `code`.
    pub(crate) fn source_position(&self, offset: usize) -> Position {
        let position = Position::of_offset(&self.code, offset);
        self.map.as_ref().and_then(|map| map.lookup(position)).unwrap_or(position)
    }

    /// Where the module imports or passes on `name` from one of the modules that `is_target` accepts. An offset in
    /// `code`.
    pub(crate) fn import_offset(&self, name: &str, is_target: impl Fn(&str) -> bool) -> Option<usize> {
        let arena = Allocator::default();
        let parsed = Parser::new(&arena, &self.code, SourceType::mjs()).parse();
        let record = &parsed.module_record;
        let imports = record.import_entries.iter().filter_map(|entry| {
            let (imported, span) = match &entry.import_name {
                ImportImportName::Name(name) => (name.name.as_str(), name.span),
                ImportImportName::Default(span) => ("default", *span),
                ImportImportName::NamespaceObject => return None,
            };
            Some((entry.module_request.name.as_str(), imported, span))
        });
        let exports = record.indirect_export_entries.iter().filter_map(|entry| {
            let (ExportImportName::Name(name), Some(from)) = (&entry.import_name, &entry.module_request)
            else {
                return None;
            };
            Some((from.name.as_str(), name.name.as_str(), name.span))
        });
        let mut found =
            imports.chain(exports).filter(|(from, imported, _)| *imported == name && is_target(from));
        found.next().map(|(_, _, span)| span.start as usize)
    }

    fn find_imports(&mut self, source_type: SourceType) -> Result<(), Box<Diagnostic>> {
        let is_module = source_type.is_typescript() || self.id.ends_with(".mjs");
        // `unambiguous` decides by syntax; what package.json says matters only for files without any import
        // or export.
        let source_type = match (is_module, self.id.ends_with(".cjs")) {
            (true, _) => SourceType::mjs(),
            (false, true) => SourceType::cjs(),
            (false, false) => SourceType::unambiguous(),
        };
        let arena = Allocator::default();
        let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
        let parsed = Parser::new(&arena, &self.code, source_type).with_options(options).parse();
        if let Some(error) = parsed.diagnostics.into_iter().next() {
            return Err(Box::new(syntax_error(&self.id, &self.source, &error)));
        }
        if package_name(&self.id).is_none() {
            let mut scan = MemberScan::default();
            scan.visit_program(&parsed.program);
            // The user may have to confirm a write.
            self.may_ask = scan.asks || (scan.uses_collection && scan.writes_records);
            self.may_detach = scan.detaches;
            self.reads_request = scan.reads_request;
            self.hidden_state = HiddenState::find(&parsed.program);
        }
        self.may_keep_state = may_keep_state(&parsed.program);
        let mut scan = BigIntegerScan::default();
        scan.visit_program(&parsed.program);
        self.has_big_integers = scan.found;
        let record = &parsed.module_record;
        for (specifier, requests) in &record.requested_modules {
            let offset = requests.first().map_or(0, |request| request.span.start as usize);
            self.imports.push(Import { specifier: specifier.to_string(), offset, is_optional: false });
        }
        for dynamic in &record.dynamic_imports {
            let text = dynamic.module_request.source_text(&self.code);
            let quoted = text.strip_prefix(['"', '\'']).and_then(|text| text.strip_suffix(['"', '\'']));
            if let Some(specifier) = quoted.filter(|text| !text.contains(['\\', '"', '\''])) {
                let offset = dynamic.module_request.start as usize;
                self.imports.push(Import { specifier: specifier.to_owned(), offset, is_optional: false });
            }
        }
        for entry in &record.import_entries {
            if let ImportImportName::Name(name) = &entry.import_name {
                self.imported_names.push((entry.module_request.name.to_string(), name.name.to_string()));
            }
        }
        for entry in &record.indirect_export_entries {
            if let (ExportImportName::Name(name), Some(from)) = (&entry.import_name, &entry.module_request) {
                self.imported_names.push((from.name.to_string(), name.name.to_string()));
            }
        }
        if !is_module && !record.has_module_syntax {
            self.kind = ModuleKind::CommonJs;
            if let Some((offset, obstacle)) = strict_mode_obstacle(&arena, &self.code, &parsed.program) {
                let message = format!("{} needs sloppy-mode JavaScript: {obstacle}", package_of(&self.id));
                let help = "use a version of the package that is written as ES modules or in strict mode";
                let diagnostic = Diagnostic::error(&self.id, message).with_help(help);
                return Err(Box::new(diagnostic.at_offset(&self.source, offset)));
            }
            let mut scan = CommonJsScan::default();
            scan.visit_program(&parsed.program);
            self.imports.extend(scan.requires);
            self.export_names = scan.export_names;
            self.reexports = scan.reexports;
        }
        // A required and an optional import of the same module: the required one counts.
        self.imports.sort_by(|a, b| (&a.specifier, a.is_optional).cmp(&(&b.specifier, b.is_optional)));
        self.imports.dedup_by(|a, b| a.specifier == b.specifier);
        Ok(())
    }
}

/// Finds `ctx.elicit`, `{ elicit } = ctx` and the like.
#[derive(Default)]
struct MemberScan {
    asks: bool,
    uses_collection: bool,
    writes_records: bool,
    detaches: bool,
    reads_request: bool,
}

impl MemberScan {
    fn see(&mut self, name: &str) {
        self.asks |= matches!(name, "elicit" | "sample" | "roots" | "tool");
        self.uses_collection |= name == "collection";
        self.writes_records |= matches!(name, "create" | "update" | "delete");
        self.detaches |= name == "detach";
        self.reads_request |= name == "request";
    }
}

impl<'a> Visit<'a> for MemberScan {
    fn visit_member_expression(&mut self, member: &MemberExpression<'a>) {
        if let Some(name) = member.static_property_name() {
            self.see(name.as_ref());
        }
        walk::walk_member_expression(self, member);
    }

    fn visit_binding_property(&mut self, property: &BindingProperty<'a>) {
        if let Some(name) = property.key.static_name() {
            self.see(&name);
        }
        walk::walk_binding_property(self, property);
    }
}

/// Finds `1n`. The prelude notices everything else that makes a big integer.
#[derive(Default)]
struct BigIntegerScan {
    found: bool,
}

impl<'a> Visit<'a> for BigIntegerScan {
    fn visit_big_int_literal(&mut self, _: &BigIntLiteral<'a>) {
        self.found = true;
    }
}

/// `the package `left-pad`` or `the file `lib/old.js``.
pub(crate) fn package_of(id: &str) -> String {
    match package_name(id) {
        Some(name) => format!("the package `{name}`"),
        None => format!("the file `{id}`"),
    }
}

/// The npm package that a module belongs to; `None` for the author's own files.
pub(crate) fn package_name(id: &str) -> Option<&str> {
    let at = id.rfind("node_modules/")? + "node_modules/".len();
    let rest = &id[at..];
    let mut ends = rest.match_indices('/').map(|(at, _)| at);
    let first = ends.next()?;
    let end = if rest.starts_with('@') { ends.next()? } else { first };
    Some(&rest[..end])
}

fn remove_types(
    id: &str,
    source: &str,
    source_type: SourceType,
) -> Result<(String, SourceMap), Box<Diagnostic>> {
    let arena = Allocator::default();
    let parsed = Parser::new(&arena, source, source_type).parse();
    let fail = |error: OxcDiagnostic| Box::new(syntax_error(id, source, &error));
    if let Some(error) = parsed.diagnostics.into_iter().next() {
        return Err(fail(error));
    }
    let mut program = parsed.program;
    let semantic = SemanticBuilder::new().with_check_syntax_error(true).with_enum_eval(true).build(&program);
    if let Some(error) = semantic.diagnostics.into_iter().next() {
        return Err(fail(error));
    }
    let options = TransformOptions::default();
    let transformed = Transformer::new(&arena, Path::new(id), &options)
        .build_with_scoping(semantic.semantic.into_scoping(), &mut program);
    if let Some(error) = transformed.diagnostics.into_iter().next() {
        return Err(fail(error));
    }
    ParenthesizeNew(AstBuilder::new(&arena)).visit_program(&mut program);
    let options = CodegenOptions { source_map_path: Some(id.into()), ..CodegenOptions::default() };
    let printed = Codegen::new().with_options(options).build(&program);
    let tokens = printed.map.map(|map| {
        let tokens = map.get_tokens().map(|token| {
            let at = |line: u32, column: u32| Position { line: line + 1, column: column + 1 };
            let generated = at(token.get_dst_line(), token.get_dst_col());
            (generated, at(token.get_src_line(), token.get_src_col()))
        });
        tokens.collect()
    });
    Ok((printed.code, SourceMap::new(tokens.unwrap_or_default())))
}

/// `new (new A() as any).B()` is printed as `new new A().B()`, which is right, but which QuickJS reads as
/// `new (new A())().B`.
struct ParenthesizeNew<'a>(AstBuilder<'a>);

impl<'a> ParenthesizeNew<'a> {
    /// `head` is what is called with `new`, or what it is a member of.
    fn parenthesize(&self, head: &mut Expression<'a>) {
        if let Expression::NewExpression(inner) = head {
            let span = inner.span;
            let inner = head.take_in(&self.0);
            // A sequence of one: the printer drops parentheses that the grammar does not need.
            let sequence = ArenaVec::from_value_in(inner, &self.0);
            *head = Expression::new_sequence_expression(span, sequence, &self.0);
            return;
        }
        if let Expression::ParenthesizedExpression(inner) = head {
            self.parenthesize(&mut inner.expression);
            return;
        }
        match head.as_member_expression_mut() {
            Some(MemberExpression::ComputedMemberExpression(member)) => self.parenthesize(&mut member.object),
            Some(MemberExpression::StaticMemberExpression(member)) => self.parenthesize(&mut member.object),
            Some(MemberExpression::PrivateFieldExpression(member)) => self.parenthesize(&mut member.object),
            None => {}
        }
    }
}

impl<'a> VisitMut<'a> for ParenthesizeNew<'a> {
    fn visit_new_expression(&mut self, new: &mut NewExpression<'a>) {
        self.parenthesize(&mut new.callee);
        walk_mut::walk_new_expression(self, new);
    }
}

fn syntax_error(id: &str, source: &str, error: &OxcDiagnostic) -> Diagnostic {
    let diagnostic = Diagnostic::error(id, error.message.to_string());
    let diagnostic = match error.labels.first() {
        Some(label) => diagnostic.at_offset(source, label.offset() as usize),
        None => diagnostic,
    };
    match &error.help {
        Some(help) => diagnostic.with_help(help.to_string()),
        None => diagnostic,
    }
}
