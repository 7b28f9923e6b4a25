//! JSON Schema from the type of the handler's first parameter, by its syntax alone. What would need the type
//! checker is refused with its position, never guessed.

use std::collections::{BTreeMap, BTreeSet};

use json::Json;
use oxc::allocator::Allocator;
use oxc::ast::ast::{
    Declaration, ExportDefaultDeclarationKind, ExportSpecifier, Expression, FormalParameters,
    ImportDeclarationSpecifier, Program, Statement, TSEnumDeclaration, TSInterfaceDeclaration, TSLiteral,
    TSSignature, TSType, TSTypeAliasDeclaration, TSTypeName, TSTypeOperatorOperator, TSTypeReference,
};
use oxc::parser::Parser;
use oxc::span::{GetSpan, SourceType};

use super::exports::doc_comment;
use super::json_schema::{ObjectType, Schema, literal_text, number_text, one_of, type_of_literal, unite};
use super::{TypeFile, TypeFiles};
use crate::diagnostic::Diagnostic;

/// The schema of the handler's first parameter, and the other files that it was read from. Without a type, every object is
/// accepted.
pub(super) fn input_schema(
    file: &str,
    source: &str,
    files: &dyn TypeFiles,
) -> Result<(Json, Vec<TypeFile>), Diagnostic> {
    let any_object = || (Schema::new().with_text("type", "object").to_json(), Vec::new());
    let Ok(source_type) = SourceType::from_path(file) else { return Ok(any_object()) };
    let arena = Allocator::default();
    let program: &Program<'_> = arena.alloc(Parser::new(&arena, source, source_type).parse().program);
    // JavaScript has no types, and what it does not show is no mistake.
    let is_typed = source_type.is_typescript();
    let mut types = Types::new(&arena, files, Scope::new(file, source, program));
    let Some(handler) = default_export(program) else { return Ok(any_object()) };
    let parameter = match types.first_parameter(program, handler, 0) {
        Ok(parameter) => parameter,
        Err(_) if !is_typed => return Ok(any_object()),
        Err(diagnostic) => return Err(diagnostic),
    };
    let annotation = match parameter {
        FirstParameter::Missing => {
            let none = Schema::new().with_text("type", "object").with("properties", Schema::new().to_json());
            return Ok((none.with_bool("additionalProperties", false).to_json(), Vec::new()));
        }
        FirstParameter::Untyped => return Ok(any_object()),
        FirstParameter::Typed(annotation) => annotation,
    };
    let schema = types.of(annotation, 0)?;
    // `any` and `unknown` say nothing about the arguments.
    let schema = if schema.members.is_empty() { schema.with_text("type", "object") } else { schema };
    let schema = types.finish(schema);
    if schema.get("type") != Some("\"object\"") {
        let start = annotation.span().start;
        return Err(
            types.refuse(start, "the first parameter must be an object: clients send named arguments")
        );
    }
    Ok((schema.to_json(), types.into_read_files()))
}

#[derive(Clone, Copy)]
enum Definition<'a> {
    Alias(&'a TSTypeAliasDeclaration<'a>),
    Interface(&'a TSInterfaceDeclaration<'a>),
    Enum(&'a TSEnumDeclaration<'a>),
    /// From another file, under the name that it has there; `None` for a default or a whole module.
    Imported {
        specifier: &'a str,
        name: Option<&'a str>,
    },
}

/// The types of one file.
struct Scope<'a> {
    file: &'a str,
    source: &'a str,
    program: &'a Program<'a>,
    definitions: BTreeMap<&'a str, Definition<'a>>,
}

struct Types<'a> {
    arena: &'a Allocator,
    files: &'a dyn TypeFiles,
    /// The tool's own file first.
    scopes: Vec<Scope<'a>>,
    /// The file whose types are being read.
    current: usize,
    /// Names that are being derived, to notice recursion.
    open: Vec<String>,
    recursive: BTreeSet<String>,
    shared: BTreeMap<String, Schema>,
}

/// Types inside types: more is a mistake or an attack.
const DEPTH_MAX: u32 = 32;
/// Files that the types of one handler come from.
const FILES_MAX: usize = 64;
const NEEDS_CHECKER: &str = "this type cannot be read without the TypeScript compiler";

impl<'a> Scope<'a> {
    fn new(file: &'a str, source: &'a str, program: &'a Program<'a>) -> Self {
        let mut definitions = BTreeMap::new();
        for statement in &program.body {
            match statement {
                Statement::ImportDeclaration(import) => {
                    let from = import.source.value.as_str();
                    for specifier in import.specifiers.iter().flatten() {
                        let name = match specifier {
                            ImportDeclarationSpecifier::ImportSpecifier(named) => {
                                Some(named.imported.name().as_str())
                            }
                            _ => None,
                        };
                        let imported = Definition::Imported { specifier: from, name };
                        definitions.insert(specifier.local().name.as_str(), imported);
                    }
                }
                Statement::ExportDeclaration(export) => define(&mut definitions, &export.declaration),
                _ => {
                    if let Some(declaration) = statement.as_declaration() {
                        define(&mut definitions, declaration);
                    }
                }
            }
        }
        Self { file, source, program, definitions }
    }
}

impl<'a> Types<'a> {
    fn new(arena: &'a Allocator, files: &'a dyn TypeFiles, own: Scope<'a>) -> Self {
        let (open, recursive, shared) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        Self { arena, files, scopes: vec![own], current: 0, open, recursive, shared }
    }

    fn scope(&self) -> &Scope<'a> {
        &self.scopes[self.current]
    }

    fn into_read_files(self) -> Vec<TypeFile> {
        let others = self.scopes.into_iter().skip(1);
        others.map(|one| TypeFile { file: one.file.to_owned(), source: one.source.to_owned() }).collect()
    }

    /// The definition that a name has in the current file, and the file that it is in.
    fn find(
        &mut self,
        name: &str,
        start: u32,
    ) -> Result<Option<(usize, &'a str, Definition<'a>)>, Diagnostic> {
        let (mut at, mut wanted) = (self.current, None);
        // An import of an import, and so on.
        for _ in 0..DEPTH_MAX {
            let found = self.scopes[at].definitions.get_key_value(wanted.unwrap_or(name));
            match found.map(|(key, definition)| (*key, *definition)) {
                None if at == self.current => return Ok(None),
                None => {
                    let (name, file) = (wanted.unwrap_or(name), self.scopes[at].file);
                    let reason = format!("`{file}` does not declare the type `{name}`");
                    return Err(self.refuse(start, &reason));
                }
                Some((_, Definition::Imported { specifier, name: Some(imported) })) => {
                    at = self.open_file(at, specifier, imported, start)?;
                    wanted = Some(imported);
                }
                Some((_, Definition::Imported { name: None, .. })) => {
                    let reason = format!(
                        "`{name}` is a default import or a whole module; import the type by its name"
                    );
                    return Err(self.refuse(start, &reason));
                }
                Some((key, definition)) => return Ok(Some((at, key, definition))),
            }
        }
        Err(self.refuse(start, &format!("the imports of `{name}` go round in a circle")))
    }

    /// The scope of the file that `specifier` means in the file of another scope.
    fn open_file(
        &mut self,
        from: usize,
        specifier: &str,
        name: &str,
        start: u32,
    ) -> Result<usize, Diagnostic> {
        let read = self.files.read(self.scopes[from].file, specifier);
        let read = read.map_err(|reason| {
            self.refuse(start, &format!("the type `{name}` is imported from `{specifier}`, {reason}"))
        })?;
        if let Some(at) = self.scopes.iter().position(|scope| scope.file == read.file) {
            return Ok(at);
        }
        if self.scopes.len() >= FILES_MAX {
            return Err(self.refuse(start, &format!("its types are in more than {FILES_MAX} files")));
        }
        let Ok(source_type) = SourceType::from_path(&read.file) else {
            return Err(self.refuse(start, &format!("`{}` is not TypeScript", read.file)));
        };
        let (file, source) = (self.arena.alloc_str(&read.file), self.arena.alloc_str(&read.source));
        let parsed = Parser::new(self.arena, source, source_type).parse();
        if !parsed.diagnostics.is_empty() {
            return Err(self.refuse(start, &format!("`{file}` has syntax errors")));
        }
        let program: &'a Program<'a> = self.arena.alloc(parsed.program);
        self.scopes.push(Scope::new(file, source, program));
        Ok(self.scopes.len() - 1)
    }

    /// Reads types of another file, and comes back.
    fn within<T>(&mut self, scope: usize, read: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.current, scope);
        let result = read(self);
        self.current = before;
        result
    }

    fn refuse(&self, start: u32, reason: &str) -> Diagnostic {
        let message = format!("the input schema cannot be derived from the handler's types: {reason}");
        let Scope { file, source, .. } = self.scope();
        Diagnostic::error(file, message).at_offset(source, start as usize).with_help(
            "use a simpler type, or declare it: `export const schema = { input: { type: \"object\", … } }`",
        )
    }

    /// Adds the definitions that refer to themselves.
    fn finish(&mut self, schema: Schema) -> Schema {
        let mut schema = match schema.get("$ref").map(ToOwned::to_owned) {
            Some(reference) => {
                let name = reference.trim_matches('"').trim_start_matches("#/$defs/").to_owned();
                self.shared.get(&name).cloned().unwrap_or(schema)
            }
            None => schema,
        };
        if !self.shared.is_empty() {
            let definitions = Json::object(|object| {
                for (name, schema) in &self.shared {
                    object.raw(name, &schema.text());
                }
            });
            schema = schema.with("$defs", definitions);
        }
        schema
    }

    fn of(&mut self, kind: &'a TSType<'a>, depth: u32) -> Result<Schema, Diagnostic> {
        if depth > DEPTH_MAX {
            return Err(self.refuse(kind.span().start, "the types are too deeply nested"));
        }
        let typed = |name: &str| Schema::new().with_text("type", name);
        Ok(match kind {
            TSType::TSStringKeyword(_) => typed("string"),
            TSType::TSNumberKeyword(_) => typed("number"),
            TSType::TSBooleanKeyword(_) => typed("boolean"),
            TSType::TSNullKeyword(_) => typed("null"),
            TSType::TSObjectKeyword(_) => typed("object"),
            TSType::TSUnknownKeyword(_) | TSType::TSAnyKeyword(_) => Schema::new(),
            TSType::TSParenthesizedType(inner) => self.of(&inner.type_annotation, depth + 1)?,
            TSType::TSTypeOperatorType(operator) if operator.operator == TSTypeOperatorOperator::Readonly => {
                self.of(&operator.type_annotation, depth + 1)?
            }
            TSType::TSArrayType(array) => {
                let items = self.of(&array.element_type, depth + 1)?;
                typed("array").with("items", items.to_json())
            }
            TSType::TSTupleType(tuple) => {
                let mut items = Vec::new();
                for element in &tuple.element_types {
                    let Some(element) = element.as_ts_type() else {
                        let reason = "optional and rest elements of tuples are not supported";
                        return Err(self.refuse(element.span().start, reason));
                    };
                    items.push(self.of(element, depth + 1)?.text());
                }
                let count = items.len().to_string();
                let mut schema = typed("array").with_list("prefixItems", items);
                schema.set("minItems", count.clone());
                schema.set("maxItems", count);
                schema
            }
            TSType::TSLiteralType(literal) => match literal_text(&literal.literal) {
                Some(text) => {
                    let mut schema = typed(type_of_literal(&text));
                    schema.set("const", text);
                    schema
                }
                None => return Err(self.refuse(literal.span.start, "this literal is not JSON")),
            },
            TSType::TSTypeLiteral(_) | TSType::TSIntersectionType(_) => self.object(kind, depth)?.to_schema(),
            TSType::TSUnionType(union) => {
                let parts = union.types.iter().filter(|part| !matches!(part, TSType::TSUndefinedKeyword(_)));
                let parts = parts.map(|part| self.of(part, depth + 1)).collect::<Result<Vec<_>, _>>()?;
                unite(parts)
            }
            TSType::TSTypeReference(reference) => self.reference(reference, kind, depth)?,
            TSType::TSBigIntKeyword(_) | TSType::TSSymbolKeyword(_) | TSType::TSFunctionType(_) => {
                return Err(self.refuse(kind.span().start, "it is not JSON"));
            }
            _ => return Err(self.refuse(kind.span().start, NEEDS_CHECKER)),
        })
    }

    fn reference(
        &mut self,
        reference: &'a TSTypeReference<'a>,
        kind: &'a TSType<'a>,
        depth: u32,
    ) -> Result<Schema, Diagnostic> {
        let start = reference.span.start;
        let TSTypeName::IdentifierReference(name) = &reference.type_name else {
            return Err(self.refuse(start, NEEDS_CHECKER));
        };
        let arguments: Vec<&TSType<'a>> =
            reference.type_arguments.iter().flat_map(|arguments| arguments.params.iter()).collect();
        match (name.name.as_str(), &arguments[..]) {
            (own, []) if self.scope().definitions.contains_key(own) => self.named(own, start, depth),
            ("Array" | "ReadonlyArray", [item]) => {
                let items = self.of(item, depth + 1)?;
                Ok(Schema::new().with_text("type", "array").with("items", items.to_json()))
            }
            // What linters recommend instead of `{}`.
            ("Record", [_, TSType::TSNeverKeyword(_)]) => {
                Ok(Schema::new().with_text("type", "object").with_bool("additionalProperties", false))
            }
            ("Record", [_, value]) => {
                let value = self.of(value, depth + 1)?;
                Ok(Schema::new().with_text("type", "object").with("additionalProperties", value.to_json()))
            }
            ("Partial" | "Required" | "Readonly" | "Pick" | "Omit", [_, ..]) => {
                Ok(self.object(kind, depth)?.to_schema())
            }
            ("Date", []) => {
                Err(self.refuse(start, "a Date is not JSON; use a string with `@format date-time`"))
            }
            ("Map" | "Set", _) => Err(self.refuse(start, &format!("a {} is not JSON", name.name))),
            (other, []) => {
                Err(self.refuse(start, &format!("the type `{other}` is neither declared nor imported here")))
            }
            (other, _) => Err(self.refuse(start, &format!("the generic type `{other}` is not supported"))),
        }
    }

    /// A type with a name, inlined unless it contains itself.
    fn named(&mut self, name: &str, start: u32, depth: u32) -> Result<Schema, Diagnostic> {
        let Some((scope, name, definition)) = self.find(name, start)? else {
            return Err(self.refuse(start, NEEDS_CHECKER));
        };
        // Two files may use the same name.
        let key = if scope == 0 { name.to_owned() } else { format!("{name}_{scope}") };
        let reference = || Schema::new().with_text("$ref", &format!("#/$defs/{key}"));
        if self.open.contains(&key) {
            self.recursive.insert(key.clone());
            return Ok(reference());
        }
        if self.shared.contains_key(&key) {
            return Ok(reference());
        }
        self.open.push(key.clone());
        let derived = self.within(scope, |types| types.definition(name, definition, start, depth));
        self.open.pop();
        let derived = derived?;
        if self.recursive.contains(&key) {
            let reference = reference();
            self.shared.insert(key, derived);
            return Ok(reference);
        }
        Ok(derived)
    }

    fn definition(
        &mut self,
        name: &str,
        definition: Definition<'a>,
        start: u32,
        depth: u32,
    ) -> Result<Schema, Diagnostic> {
        let (schema, declared_at) = match definition {
            Definition::Alias(alias) if alias.type_parameters.is_none() => {
                (self.of(&alias.type_annotation, depth + 1)?, alias.span.start)
            }
            Definition::Interface(interface) if interface.type_parameters.is_none() => {
                (self.interface(interface, depth)?.to_schema(), interface.span.start)
            }
            Definition::Enum(declaration) => (self.enumeration(declaration)?, declaration.span.start),
            Definition::Alias(_) | Definition::Interface(_) | Definition::Imported { .. } => {
                return Err(self.refuse(start, &format!("the generic type `{name}` is not supported")));
            }
        };
        Ok(self.annotate(schema, declared_at))
    }

    fn enumeration(&self, declaration: &TSEnumDeclaration<'_>) -> Result<Schema, Diagnostic> {
        let mut values = Vec::new();
        for (at, member) in declaration.body.members.iter().enumerate() {
            values.push(match &member.initializer {
                Some(Expression::StringLiteral(text)) => Json::string(&text.value).to_string(),
                Some(Expression::NumericLiteral(number)) => number_text(number.value),
                None if values.len() == at => at.to_string(),
                _ => return Err(self.refuse(member.span.start, "members of an enum need literal values")),
            });
        }
        Ok(one_of(values))
    }

    /// A type whose members are needed one by one.
    fn object(&mut self, kind: &'a TSType<'a>, depth: u32) -> Result<ObjectType, Diagnostic> {
        let start = kind.span().start;
        if depth > DEPTH_MAX {
            return Err(self.refuse(start, "the types are too deeply nested"));
        }
        match kind {
            TSType::TSParenthesizedType(inner) => self.object(&inner.type_annotation, depth + 1),
            TSType::TSTypeLiteral(literal) => self.members(&literal.members, depth),
            TSType::TSIntersectionType(intersection) => {
                let mut all = ObjectType::default();
                for part in &intersection.types {
                    all.merge(self.object(part, depth + 1)?);
                }
                Ok(all)
            }
            TSType::TSTypeReference(reference) => {
                let TSTypeName::IdentifierReference(name) = &reference.type_name else {
                    return Err(self.refuse(start, NEEDS_CHECKER));
                };
                let arguments: Vec<&TSType<'a>> =
                    reference.type_arguments.iter().flat_map(|arguments| arguments.params.iter()).collect();
                match (name.name.as_str(), &arguments[..]) {
                    ("Readonly", [of]) => self.object(of, depth + 1),
                    ("Partial", [of]) => {
                        let object = self.object(of, depth + 1)?;
                        Ok(ObjectType { required: BTreeSet::new(), ..object })
                    }
                    ("Required", [of]) => {
                        let object = self.object(of, depth + 1)?;
                        let required = object.properties.iter().map(|(name, _)| name.clone()).collect();
                        Ok(ObjectType { required, ..object })
                    }
                    (verb @ ("Pick" | "Omit"), [of, keys]) => {
                        let mut object = self.object(of, depth + 1)?;
                        let keys = self.literal_keys(keys)?;
                        object.properties.retain(|(name, _)| keys.contains(name) == (verb == "Pick"));
                        Ok(object)
                    }
                    (own, []) => match self.find(own, start)? {
                        Some((scope, _, Definition::Interface(interface)))
                            if interface.type_parameters.is_none() =>
                        {
                            self.within(scope, |types| types.interface(interface, depth + 1))
                        }
                        Some((scope, _, Definition::Alias(alias))) if alias.type_parameters.is_none() => {
                            self.within(scope, |types| types.object(&alias.type_annotation, depth + 1))
                        }
                        _ => self.reference(reference, kind, depth).map(|_| ObjectType::default()),
                    },
                    _ => Err(self.refuse(start, NEEDS_CHECKER)),
                }
            }
            _ => Err(self.refuse(start, "only object types can be combined")),
        }
    }

    fn interface(
        &mut self,
        interface: &'a TSInterfaceDeclaration<'a>,
        depth: u32,
    ) -> Result<ObjectType, Diagnostic> {
        let mut all = ObjectType::default();
        for parent in &interface.extends {
            let start = parent.span.start;
            let TSTypeName::IdentifierReference(name) = &parent.type_name else {
                return Err(self.refuse(start, NEEDS_CHECKER));
            };
            match self.find(name.name.as_str(), start)? {
                Some((scope, _, Definition::Interface(parent)))
                    if parent.type_parameters.is_none() && depth < DEPTH_MAX =>
                {
                    all.merge(self.within(scope, |types| types.interface(parent, depth + 1))?);
                }
                Some((scope, _, Definition::Alias(alias))) if alias.type_parameters.is_none() => {
                    all.merge(self.within(scope, |types| types.object(&alias.type_annotation, depth + 1))?);
                }
                _ => {
                    let reason = format!("`{}` is not an interface that can be read here", name.name);
                    return Err(self.refuse(start, &reason));
                }
            }
        }
        all.merge(self.members(&interface.body.body, depth)?);
        Ok(all)
    }

    fn members(&mut self, members: &'a [TSSignature<'a>], depth: u32) -> Result<ObjectType, Diagnostic> {
        let mut object = ObjectType::default();
        for member in members {
            match member {
                TSSignature::TSPropertySignature(property) => {
                    let start = property.span.start;
                    let Some(name) = property.key.static_name().filter(|_| !property.computed) else {
                        return Err(self.refuse(start, "computed property names are not supported"));
                    };
                    let schema = match &property.type_annotation {
                        Some(annotation) => self.of(&annotation.type_annotation, depth + 1)?,
                        None => Schema::new(),
                    };
                    let accepts_undefined = matches!(&property.type_annotation, Some(annotation)
                        if matches!(&annotation.type_annotation, TSType::TSUnionType(union)
                            if union.types.iter().any(|part| matches!(part, TSType::TSUndefinedKeyword(_)))));
                    if !property.optional && !accepts_undefined {
                        object.required.insert(name.to_string());
                    }
                    let schema = self.annotate(schema, start);
                    object.properties.push((name.to_string(), schema));
                }
                TSSignature::TSIndexSignature(index) => {
                    object.additional = Some(self.of(&index.type_annotation.type_annotation, depth + 1)?);
                }
                other => return Err(self.refuse(other.span().start, "functions are not JSON")),
            }
        }
        Ok(object)
    }

    fn literal_keys(&self, keys: &TSType<'_>) -> Result<BTreeSet<String>, Diagnostic> {
        let parts = match keys {
            TSType::TSUnionType(union) => union.types.iter().collect(),
            other => vec![other],
        };
        let key = |part: &TSType<'_>| match part {
            TSType::TSLiteralType(literal) => match &literal.literal {
                TSLiteral::StringLiteral(text) => Ok(text.value.to_string()),
                _ => Err(self.refuse(part.span().start, "expected names of properties")),
            },
            _ => Err(self.refuse(part.span().start, "expected names of properties")),
        };
        parts.into_iter().map(key).collect()
    }

    /// Adds the JSDoc comment above a declaration: its text, and the tags that are keywords.
    fn annotate(&self, mut schema: Schema, start: u32) -> Schema {
        // A comment above `export interface` is attached to the `export`.
        let Scope { source, program, .. } = self.scope();
        let exported = source.get(..start as usize).and_then(|before| before.strip_suffix("export "));
        let doc = doc_comment(program, source, start)
            .or_else(|| doc_comment(program, source, exported?.len() as u32));
        let Some(doc) = doc else { return schema };
        if !doc.description.is_empty() {
            schema = schema.with_text("description", &doc.description);
        }
        for (name, value) in doc.tags {
            match name.as_str() {
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf"
                | "minLength" | "maxLength" | "minItems" | "maxItems"
                    if value.parse::<f64>().is_ok() =>
                {
                    schema.set(&name, value);
                }
                "format" | "pattern" | "title" => schema = schema.with_text(&name, &value),
                // TypeScript has no integers.
                "integer" if schema.get("type") == Some("\"number\"") => {
                    schema = schema.with_text("type", "integer")
                }
                "default" | "examples" | "example" => {
                    let json = Json::parse(&value).unwrap_or_else(|_| Json::string(&value));
                    match name.as_str() {
                        "default" => schema = schema.with("default", json),
                        "examples" if json.as_str().starts_with('[') => {
                            schema = schema.with("examples", json)
                        }
                        _ => schema = schema.with_list("examples", [json.to_string()]),
                    }
                }
                _ => {}
            }
        }
        schema
    }
}

fn define<'a>(definitions: &mut BTreeMap<&'a str, Definition<'a>>, declaration: &'a Declaration<'a>) {
    match declaration {
        Declaration::TSTypeAliasDeclaration(alias) => {
            definitions.insert(alias.id.name.as_str(), Definition::Alias(alias));
        }
        Declaration::TSInterfaceDeclaration(interface) => {
            definitions.insert(interface.id.name.as_str(), Definition::Interface(interface));
        }
        Declaration::TSEnumDeclaration(declaration) => {
            definitions.insert(declaration.id.name.as_str(), Definition::Enum(declaration));
        }
        _ => {}
    }
}

/// What the file exports as its default.
#[derive(Clone, Copy)]
enum Handler<'a> {
    Function(&'a FormalParameters<'a>),
    Expression(&'a Expression<'a>),
    /// Something of this file, by its name.
    Named {
        name: &'a str,
        start: u32,
    },
    /// `export { default } from "…"`.
    Elsewhere {
        start: u32,
    },
}

#[derive(Clone, Copy)]
enum FirstParameter<'a> {
    /// The handler takes no arguments.
    Missing,
    Untyped,
    Typed(&'a TSType<'a>),
}

fn default_export<'a>(program: &'a Program<'a>) -> Option<Handler<'a>> {
    program.body.iter().find_map(|statement| match statement {
        Statement::ExportDefaultDeclaration(export) => Some(match &export.declaration {
            ExportDefaultDeclarationKind::FunctionDeclaration(function) => {
                Handler::Function(&function.params)
            }
            other => Handler::Expression(other.as_expression()?),
        }),
        // `export { run as default }`
        Statement::ExportNamedDeclaration(export) => {
            let default = find_default(&export.specifiers)?;
            let name = default.local.identifier_name()?.as_str();
            Some(Handler::Named { name, start: default.span.start })
        }
        Statement::ExportFromDeclaration(export) => {
            Some(Handler::Elsewhere { start: find_default(&export.specifiers)?.span.start })
        }
        _ => None,
    })
}

fn find_default<'a>(specifiers: &'a [ExportSpecifier<'a>]) -> Option<&'a ExportSpecifier<'a>> {
    specifiers.iter().find(|specifier| specifier.exported.name() == "default")
}

impl<'a> Types<'a> {
    fn first_parameter(
        &mut self,
        program: &'a Program<'a>,
        handler: Handler<'a>,
        depth: u32,
    ) -> Result<FirstParameter<'a>, Diagnostic> {
        match handler {
            Handler::Function(parameters) => Ok(first_of(parameters)),
            Handler::Expression(Expression::Identifier(name)) => {
                let (name, start) = (name.name.as_str(), name.span.start);
                self.first_parameter(program, Handler::Named { name, start }, depth + 1)
            }
            Handler::Expression(expression) => self.parameter_of_expression(program, expression, depth),
            Handler::Named { start, .. } if depth > DEPTH_MAX => {
                Err(self.refuse(start, "the handler is not a function of this file"))
            }
            Handler::Named { name, start } => match find_value(program, name) {
                Some(NamedValue::Function(parameters)) => Ok(first_of(parameters)),
                Some(NamedValue::Variable { value, kind }) => {
                    let found = self.first_parameter(program, Handler::Expression(value), depth + 1);
                    match (found, kind) {
                        (Ok(FirstParameter::Typed(annotation)), _) => Ok(FirstParameter::Typed(annotation)),
                        (_, Some(kind)) => self.parameter_of_type(kind, depth + 1),
                        (found, None) => found,
                    }
                }
                None => Err(self.refuse(start, &format!("`{name}` is not a function of this file"))),
            },
            Handler::Elsewhere { start } => Err(self.refuse(start, "the handler is in another file")),
        }
    }

    fn parameter_of_expression(
        &mut self,
        program: &'a Program<'a>,
        expression: &'a Expression<'a>,
        depth: u32,
    ) -> Result<FirstParameter<'a>, Diagnostic> {
        let (inner, kind) = match expression {
            Expression::ArrowFunctionExpression(arrow) => return Ok(first_of(&arrow.params)),
            Expression::FunctionExpression(function) => return Ok(first_of(&function.params)),
            Expression::ParenthesizedExpression(inner) => (&inner.expression, None),
            Expression::TSNonNullExpression(inner) => (&inner.expression, None),
            Expression::TSAsExpression(inner) => (&inner.expression, Some(&inner.type_annotation)),
            Expression::TSSatisfiesExpression(inner) => (&inner.expression, Some(&inner.type_annotation)),
            Expression::TSTypeAssertion(inner) => (&inner.expression, Some(&inner.type_annotation)),
            Expression::CallExpression(call) => {
                return Err(self.refuse(call.span.start, "what a call returns shows no types"));
            }
            other => return Err(self.refuse(other.span().start, "the handler is not written as a function")),
        };
        // What the function itself says is the most exact.
        match (self.first_parameter(program, Handler::Expression(inner), depth + 1), kind) {
            (Ok(FirstParameter::Typed(annotation)), _) => Ok(FirstParameter::Typed(annotation)),
            (_, Some(kind)) => self.parameter_of_type(kind, depth + 1),
            (found, None) => found,
        }
    }

    /// The first parameter of the type of a function.
    fn parameter_of_type(
        &mut self,
        kind: &'a TSType<'a>,
        depth: u32,
    ) -> Result<FirstParameter<'a>, Diagnostic> {
        let start = kind.span().start;
        match kind {
            TSType::TSFunctionType(function) => Ok(first_of(&function.params)),
            TSType::TSParenthesizedType(inner) if depth <= DEPTH_MAX => {
                self.parameter_of_type(&inner.type_annotation, depth + 1)
            }
            TSType::TSTypeReference(reference)
                if depth <= DEPTH_MAX && reference.type_arguments.is_none() =>
            {
                let TSTypeName::IdentifierReference(name) = &reference.type_name else {
                    return Err(self.refuse(start, NEEDS_CHECKER));
                };
                match self.find(name.name.as_str(), start)? {
                    Some((scope, _, Definition::Alias(alias))) if alias.type_parameters.is_none() => {
                        // Its names mean what they mean in its own file.
                        self.current = scope;
                        self.parameter_of_type(&alias.type_annotation, depth + 1)
                    }
                    _ => Err(self.refuse(start, NEEDS_CHECKER)),
                }
            }
            _ => Err(self.refuse(start, NEEDS_CHECKER)),
        }
    }
}

fn first_of<'a>(parameters: &'a FormalParameters<'a>) -> FirstParameter<'a> {
    match (parameters.items.first(), &parameters.rest) {
        (None, None) => FirstParameter::Missing,
        (None, Some(_)) => FirstParameter::Untyped,
        (Some(parameter), _) => match &parameter.type_annotation {
            Some(annotation) => FirstParameter::Typed(&annotation.type_annotation),
            None => FirstParameter::Untyped,
        },
    }
}

enum NamedValue<'a> {
    Function(&'a FormalParameters<'a>),
    Variable { value: &'a Expression<'a>, kind: Option<&'a TSType<'a>> },
}

/// `const handler = …; export default handler;`
fn find_value<'a>(program: &'a Program<'a>, name: &str) -> Option<NamedValue<'a>> {
    program.body.iter().find_map(|statement| {
        let declaration = match statement {
            Statement::ExportDeclaration(export) => &export.declaration,
            other => other.as_declaration()?,
        };
        match declaration {
            Declaration::FunctionDeclaration(function)
                if function.body.is_some() && function.id.as_ref().is_some_and(|id| id.name == name) =>
            {
                Some(NamedValue::Function(&function.params))
            }
            Declaration::VariableDeclaration(variables) => {
                variables.declarations.iter().find_map(|variable| {
                    let is_named = variable.id.get_identifier_name().is_some_and(|own| own == name);
                    let value = variable.init.as_ref().filter(|_| is_named)?;
                    let kind =
                        variable.type_annotation.as_ref().map(|annotation| &annotation.type_annotation);
                    Some(NamedValue::Variable { value, kind })
                })
            }
            _ => None,
        }
    })
}
