//! JSON Schema from the type of the handler's first parameter, by its syntax alone. What would need the type
//! checker is refused with its position, never guessed.

use std::collections::{BTreeMap, BTreeSet};

use json::{Json, write};
use oxc::allocator::Allocator;
use oxc::ast::ast::{
    Declaration, ExportDefaultDeclarationKind, Expression, FormalParameters, Program, Statement,
    TSEnumDeclaration, TSInterfaceDeclaration, TSLiteral, TSSignature, TSType, TSTypeAliasDeclaration,
    TSTypeName, TSTypeOperatorOperator, TSTypeReference,
};
use oxc::parser::Parser;
use oxc::span::{GetSpan, SourceType};

use super::exports::doc_comment;
use crate::diagnostic::Diagnostic;

/// The schema of the handler's first parameter. Without a type, every object is accepted.
pub(super) fn input_schema(file: &str, source: &str) -> Result<Json, Diagnostic> {
    let any_object = || Schema::new().with_text("type", "object").to_json();
    let Ok(source_type) = SourceType::from_path(file) else { return Ok(any_object()) };
    let arena = Allocator::default();
    let program = Parser::new(&arena, source, source_type).parse().program;
    let Some(parameters) = handler_parameters(&program) else { return Ok(any_object()) };
    let Some(parameter) = parameters.items.first() else {
        let none = Schema::new().with_text("type", "object").with("properties", Schema::new().to_json());
        return Ok(none.with_bool("additionalProperties", false).to_json());
    };
    let Some(annotation) = &parameter.type_annotation else { return Ok(any_object()) };
    let mut types = Types::new(file, source, &program);
    let schema = types.of(&annotation.type_annotation, 0)?;
    // `any` and `unknown` say nothing about the arguments.
    let schema = if schema.members.is_empty() { schema.with_text("type", "object") } else { schema };
    let schema = types.finish(schema);
    if schema.get("type") != Some("\"object\"") {
        let start = annotation.type_annotation.span().start;
        return Err(
            types.refuse(start, "the first parameter must be an object: clients send named arguments")
        );
    }
    Ok(schema.to_json())
}

/// A schema under construction: members in order, as JSON texts.
#[derive(Debug, Clone, Default)]
struct Schema {
    members: Vec<(String, String)>,
}

impl Schema {
    fn new() -> Self {
        Self::default()
    }

    fn set(&mut self, key: &str, json: String) {
        match self.members.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = json,
            None => self.members.push((key.to_owned(), json)),
        }
    }

    fn with(mut self, key: &str, json: Json) -> Self {
        self.set(key, json.to_string());
        self
    }

    fn with_text(self, key: &str, text: &str) -> Self {
        self.with(key, Json::string(text))
    }

    fn with_bool(mut self, key: &str, value: bool) -> Self {
        self.set(key, value.to_string());
        self
    }

    fn with_list(mut self, key: &str, items: impl IntoIterator<Item = String>) -> Self {
        let items: Vec<String> = items.into_iter().collect();
        self.set(key, format!("[{}]", items.join(",")));
        self
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.members.iter().find(|(name, _)| name == key).map(|(_, json)| json.as_str())
    }

    fn to_json(&self) -> Json {
        let mut out = Vec::new();
        let mut object = write::ObjectWriter::new(&mut out);
        for (key, json) in &self.members {
            object.raw(key, json);
        }
        object.end();
        Json::from_written_bytes(out)
    }

    fn text(&self) -> String {
        self.to_json().to_string()
    }
}

/// The members of an object type.
#[derive(Debug, Clone, Default)]
struct ObjectType {
    properties: Vec<(String, Schema)>,
    required: BTreeSet<String>,
    additional: Option<Schema>,
}

impl ObjectType {
    fn merge(&mut self, other: Self) {
        for (name, schema) in other.properties {
            self.properties.retain(|(own, _)| *own != name);
            self.properties.push((name, schema));
        }
        self.required.extend(other.required);
        self.additional = other.additional.or(self.additional.take());
    }

    fn to_schema(&self) -> Schema {
        let properties = Json::object(|object| {
            for (name, schema) in &self.properties {
                object.raw(name, &schema.text());
            }
        });
        let mut schema = Schema::new().with_text("type", "object").with("properties", properties);
        let required = self.properties.iter().filter(|(name, _)| self.required.contains(name));
        let required: Vec<String> = required.map(|(name, _)| Json::string(name).to_string()).collect();
        if !required.is_empty() {
            schema = schema.with_list("required", required);
        }
        match &self.additional {
            Some(additional) => schema.set("additionalProperties", additional.text()),
            None => schema.set("additionalProperties", "false".into()),
        }
        schema
    }
}

enum Definition<'a> {
    Alias(&'a TSTypeAliasDeclaration<'a>),
    Interface(&'a TSInterfaceDeclaration<'a>),
    Enum(&'a TSEnumDeclaration<'a>),
    Imported,
}

struct Types<'a> {
    file: &'a str,
    source: &'a str,
    program: &'a Program<'a>,
    definitions: BTreeMap<String, Definition<'a>>,
    /// Names that are being derived, to notice recursion.
    open: Vec<String>,
    recursive: BTreeSet<String>,
    shared: BTreeMap<String, Schema>,
}

/// Types inside types: more is a mistake or an attack.
const DEPTH_MAX: u32 = 32;
const NEEDS_CHECKER: &str = "this type cannot be read without the TypeScript compiler";

impl<'a> Types<'a> {
    fn new(file: &'a str, source: &'a str, program: &'a Program<'a>) -> Self {
        let mut definitions = BTreeMap::new();
        for statement in &program.body {
            match statement {
                Statement::ImportDeclaration(import) => {
                    for specifier in import.specifiers.iter().flatten() {
                        definitions.insert(specifier.local().name.to_string(), Definition::Imported);
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
        let (open, recursive, shared) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        Self { file, source, program, definitions, open, recursive, shared }
    }

    fn refuse(&self, start: u32, reason: &str) -> Diagnostic {
        let message = format!("the input schema cannot be derived from the handler's types: {reason}");
        Diagnostic::error(self.file, message).at_offset(self.source, start as usize).with_help(
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
                Some(text) => Schema { members: vec![("const".into(), text)] },
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
            (own, []) if self.definitions.contains_key(own) => self.named(own, start, depth),
            ("Array" | "ReadonlyArray", [item]) => {
                let items = self.of(item, depth + 1)?;
                Ok(Schema::new().with_text("type", "array").with("items", items.to_json()))
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
                Err(self.refuse(start, &format!("the type `{other}` is not declared in this file")))
            }
            (other, _) => Err(self.refuse(start, &format!("the generic type `{other}` is not supported"))),
        }
    }

    /// A type that this file declares, inlined unless it contains itself.
    fn named(&mut self, name: &str, start: u32, depth: u32) -> Result<Schema, Diagnostic> {
        let reference = || Schema::new().with_text("$ref", &format!("#/$defs/{name}"));
        if self.open.iter().any(|open| open == name) {
            self.recursive.insert(name.to_owned());
            return Ok(reference());
        }
        if self.shared.contains_key(name) {
            return Ok(reference());
        }
        self.open.push(name.to_owned());
        let derived = self.definition(name, start, depth);
        self.open.pop();
        let derived = derived?;
        if self.recursive.contains(name) {
            self.shared.insert(name.to_owned(), derived);
            return Ok(reference());
        }
        Ok(derived)
    }

    fn definition(&mut self, name: &str, start: u32, depth: u32) -> Result<Schema, Diagnostic> {
        let (schema, declared_at) = match self.definitions.get(name) {
            Some(Definition::Alias(alias)) if alias.type_parameters.is_none() => {
                let (annotation, at) = (&alias.type_annotation, alias.span.start);
                (self.of(annotation, depth + 1)?, at)
            }
            Some(Definition::Interface(interface)) if interface.type_parameters.is_none() => {
                let interface = *interface;
                (self.interface(interface, depth)?.to_schema(), interface.span.start)
            }
            Some(Definition::Enum(declaration)) => {
                let declaration = *declaration;
                (self.enumeration(declaration)?, declaration.span.start)
            }
            Some(Definition::Imported) => {
                let reason =
                    format!("the type `{name}` is imported; only types of the tool's own file are read");
                return Err(self.refuse(start, &reason));
            }
            _ => return Err(self.refuse(start, &format!("the generic type `{name}` is not supported"))),
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
        Ok(Schema::new().with_list("enum", values))
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
                    (own, []) => match self.definitions.get(own) {
                        Some(Definition::Interface(interface)) if interface.type_parameters.is_none() => {
                            let interface = *interface;
                            self.interface(interface, depth + 1)
                        }
                        Some(Definition::Alias(alias)) if alias.type_parameters.is_none() => {
                            let annotation = &alias.type_annotation;
                            self.object(annotation, depth + 1)
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
            match self.definitions.get(name.name.as_str()) {
                Some(Definition::Interface(parent))
                    if parent.type_parameters.is_none() && depth < DEPTH_MAX =>
                {
                    let parent = *parent;
                    all.merge(self.interface(parent, depth + 1)?);
                }
                Some(Definition::Alias(alias)) if alias.type_parameters.is_none() => {
                    let annotation = &alias.type_annotation;
                    all.merge(self.object(annotation, depth + 1)?);
                }
                _ => {
                    return Err(
                        self.refuse(start, &format!("`{}` is not an interface of this file", name.name))
                    );
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
        let exported = self.source.get(..start as usize).and_then(|before| before.strip_suffix("export "));
        let doc = doc_comment(self.program, self.source, start)
            .or_else(|| doc_comment(self.program, self.source, exported?.len() as u32));
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

/// One schema for several: their values if all are literals, their types if all are plain.
fn unite(mut parts: Vec<Schema>) -> Schema {
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return only;
    }
    let literal = |part: &Schema| match part.get("const") {
        Some(text) => Some(text.to_owned()),
        None if part.get("type") == Some("\"null\"") => Some("null".to_owned()),
        None => None,
    };
    let literals: Option<Vec<String>> = parts.iter().map(literal).collect();
    if let Some(literals) = literals {
        let is_text = literals.iter().all(|text| text.starts_with('"'));
        let schema = if is_text { Schema::new().with_text("type", "string") } else { Schema::new() };
        return schema.with_list("enum", literals);
    }
    let plain =
        |part: &Schema| (part.members.len() == 1).then(|| part.get("type").map(ToOwned::to_owned)).flatten();
    let plain: Option<Vec<String>> = parts.iter().map(plain).collect();
    match plain {
        Some(types) => Schema::new().with_list("type", types),
        None => Schema::new().with_list("anyOf", parts.iter().map(Schema::text)),
    }
}

fn define<'a>(definitions: &mut BTreeMap<String, Definition<'a>>, declaration: &'a Declaration<'a>) {
    match declaration {
        Declaration::TSTypeAliasDeclaration(alias) => {
            definitions.insert(alias.id.name.to_string(), Definition::Alias(alias));
        }
        Declaration::TSInterfaceDeclaration(interface) => {
            definitions.insert(interface.id.name.to_string(), Definition::Interface(interface));
        }
        Declaration::TSEnumDeclaration(declaration) => {
            definitions.insert(declaration.id.name.to_string(), Definition::Enum(declaration));
        }
        _ => {}
    }
}

/// The parameters of the default export, if it is written as a function here.
fn handler_parameters<'a>(program: &'a Program<'a>) -> Option<&'a FormalParameters<'a>> {
    let exported = program.body.iter().find_map(|statement| match statement {
        Statement::ExportDefaultDeclaration(export) => Some(&export.declaration),
        _ => None,
    })?;
    match exported {
        ExportDefaultDeclarationKind::FunctionDeclaration(function) => Some(&function.params),
        kind => match kind.as_expression()? {
            Expression::Identifier(name) => named_function(program, name.name.as_str()),
            expression => function_parameters(expression),
        },
    }
}

/// `const handler = …; export default handler;`
fn named_function<'a>(program: &'a Program<'a>, name: &str) -> Option<&'a FormalParameters<'a>> {
    program.body.iter().find_map(|statement| match statement.as_declaration()? {
        Declaration::FunctionDeclaration(function)
            if function.id.as_ref().is_some_and(|id| id.name == name) =>
        {
            Some(&*function.params)
        }
        Declaration::VariableDeclaration(variables) => variables.declarations.iter().find_map(|variable| {
            let is_named = variable.id.get_identifier_name().is_some_and(|own| own == name);
            variable.init.as_ref().filter(|_| is_named).and_then(function_parameters)
        }),
        _ => None,
    })
}

fn function_parameters<'a>(expression: &'a Expression<'a>) -> Option<&'a FormalParameters<'a>> {
    match expression {
        Expression::ArrowFunctionExpression(arrow) => Some(&arrow.params),
        Expression::FunctionExpression(function) => Some(&function.params),
        Expression::ParenthesizedExpression(inner) => function_parameters(&inner.expression),
        _ => None,
    }
}

fn number_text(number: f64) -> String {
    let mut out = Vec::new();
    write::number(&mut out, number);
    String::from_utf8(out).unwrap_or_default()
}

fn literal_text(literal: &TSLiteral<'_>) -> Option<String> {
    match literal {
        TSLiteral::StringLiteral(text) => Some(Json::string(&text.value).to_string()),
        TSLiteral::NumericLiteral(number) => Some(number_text(number.value)),
        TSLiteral::BooleanLiteral(value) => Some(value.value.to_string()),
        TSLiteral::UnaryExpression(unary) => match &unary.argument {
            Expression::NumericLiteral(number) => Some(number_text(-number.value)),
            _ => None,
        },
        _ => None,
    }
}
