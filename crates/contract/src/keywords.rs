//! Keywords that Spile implements itself.
//!
//! The library reads the numbers of a schema as `f64` and compares numbers as `f64`, so that `8.99999999999999999999`
//! would pass for 9. It also compares an instance with each value of an `enum` in turn. [`rewrite`] moves the affected
//! keywords of a schema to private names, with their values as text, so that no digit is lost. [`register`] installs
//! the implementations of the private names.

use std::borrow::Cow;
use std::cmp::Ordering;

use json::{Decimal, Json, Node, NodeKind};
use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError, ValidationOptions};
use serde_json::{Map, Value};

use crate::canonical::write_canonical;
use crate::tape::{Tape, TapeNode};
use crate::validate::SchemaError;
use crate::validation_budget;

/// The prefix of private names.
const PREFIX: &str = "!spile:";

/// A keyword under a private name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrivateKeyword {
    Minimum,
    Maximum,
    ExclusiveMinimum,
    ExclusiveMaximum,
    MultipleOf,
    Const,
    Enum,
}

impl PrivateKeyword {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Minimum, "!spile:minimum"),
        (Self::Maximum, "!spile:maximum"),
        (Self::ExclusiveMinimum, "!spile:exclusiveMinimum"),
        (Self::ExclusiveMaximum, "!spile:exclusiveMaximum"),
        (Self::MultipleOf, "!spile:multipleOf"),
        (Self::Const, "!spile:const"),
        (Self::Enum, "!spile:enum"),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(keyword, _)| *keyword)
    }
}

/// The schema as a `serde_json` value, with keywords under private names.
pub(crate) fn rewrite(schema: &Json) -> Result<Value, SchemaError> {
    let doc = schema.to_doc();
    let dialect = doc.root().get("$schema").and_then(|dialect| dialect.str());
    let is_draft4 = dialect.is_some_and(|dialect| dialect.contains("draft-04"));
    Rewriter { is_draft4 }.schema(doc.root())
}

struct Rewriter {
    /// In draft 4, `exclusiveMinimum` is a flag beside `minimum`.
    is_draft4: bool,
}

impl Rewriter {
    fn schema(&self, node: Node<'_>) -> Result<Value, SchemaError> {
        match node.kind() {
            NodeKind::Object => {}
            NodeKind::Array => return node.elements().map(|item| self.schema(item)).collect(),
            _ => return Ok(plain_value(node)),
        }
        let mut rewritten = Map::new();
        for (key, value) in node.members() {
            let key = key.str().unwrap_or_default();
            match &*key {
                // A schema must not use the private names itself.
                key if key.starts_with(PREFIX) => {}
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                    if let Some((key, value)) = self.number_keyword(&key, value, node)? {
                        rewritten.insert(key, value);
                    }
                }
                "const" if needs_exact_comparison(value) => {
                    rewritten
                        .insert(PrivateKeyword::Const.name().to_owned(), Value::String(value.raw().into()));
                }
                "enum" if value.elements().any(needs_exact_comparison) => {
                    rewritten
                        .insert(PrivateKeyword::Enum.name().to_owned(), Value::String(value.raw().into()));
                }
                "const" | "enum" | "default" | "examples" => {
                    rewritten.insert(key.into_owned(), plain_value(value));
                }
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                | "dependencies"
                    if value.is_object() =>
                {
                    let schemas = value.members().map(|(name, schema)| {
                        Ok((name.str().unwrap_or_default().into_owned(), self.schema(schema)?))
                    });
                    let schemas = schemas.collect::<Result<Map<_, _>, SchemaError>>()?;
                    rewritten.insert(key.into_owned(), Value::Object(schemas));
                }
                _ => {
                    rewritten.insert(key.into_owned(), self.schema(value)?);
                }
            }
        }
        Ok(Value::Object(rewritten))
    }

    /// A keyword that compares numbers. `None` if it has no effect of its own.
    fn number_keyword(
        &self,
        key: &str,
        value: Node<'_>,
        schema: Node<'_>,
    ) -> Result<Option<(String, Value)>, SchemaError> {
        let is_set = |flag: &str| schema.get(flag).and_then(|flag| flag.bool()) == Some(true);
        let Some(number) = value.decimal() else {
            // Draft 4: `minimum` and `maximum` take care of the flag.
            let is_flag = self.is_draft4 && value.bool().is_some() && key != "multipleOf";
            // Anything else is invalid, and the library says so.
            return Ok((!is_flag).then(|| (key.to_owned(), plain_value(value))));
        };
        let keyword = match key {
            "minimum" if self.is_draft4 && is_set("exclusiveMinimum") => PrivateKeyword::ExclusiveMinimum,
            "maximum" if self.is_draft4 && is_set("exclusiveMaximum") => PrivateKeyword::ExclusiveMaximum,
            "minimum" => PrivateKeyword::Minimum,
            "maximum" => PrivateKeyword::Maximum,
            "exclusiveMinimum" => PrivateKeyword::ExclusiveMinimum,
            "exclusiveMaximum" => PrivateKeyword::ExclusiveMaximum,
            // Invalid, and the library says so.
            _ if number.is_zero() || number.is_negative() => {
                return Ok(Some((key.to_owned(), plain_value(value))));
            }
            _ if number.is_multiple_of(&number).is_none() => {
                return Err(SchemaError(format!(
                    "`multipleOf` exceeds the limit of 18 digits: {}",
                    value.raw()
                )));
            }
            _ => PrivateKeyword::MultipleOf,
        };
        Ok(Some((keyword.name().to_owned(), Value::String(value.raw().to_owned()))))
    }
}

/// Whether the library's comparison with this value would be inexact or slow.
fn needs_exact_comparison(value: Node<'_>) -> bool {
    matches!(value.kind(), NodeKind::Number | NodeKind::Array | NodeKind::Object)
}

/// A value without numbers that matter. `serde_json` rejects numbers beyond `f64`: the library then says what it
/// expects instead of `null`.
fn plain_value(node: Node<'_>) -> Value {
    serde_json::from_str(node.raw()).unwrap_or(Value::Null)
}

/// Installs the private keywords.
pub(crate) fn register<R>(options: ValidationOptions<'_, R, Tape>) -> ValidationOptions<'_, R, Tape> {
    PrivateKeyword::ALL.into_iter().fold(options, |options, (keyword, name)| {
        options
            .with_keyword(name, move |_, value, _: Location| Ok(Box::new(ExactKeyword::new(keyword, value))))
    })
}

/// The implementation of a private keyword.
struct ExactKeyword {
    keyword: PrivateKeyword,
    /// The number, value or array of values, as in the schema.
    operand: Box<str>,
    /// The number, if it is an integer: most limits and most numbers are.
    integer: Option<i64>,
    /// The canonical forms of the allowed values, sorted.
    allowed: Vec<Vec<u8>>,
}

impl ExactKeyword {
    fn new(keyword: PrivateKeyword, value: &Value) -> Self {
        // Always a text that `rewrite` took from valid JSON.
        let operand = value.as_str().unwrap_or("null");
        let doc = json::parse(
            operand.as_bytes().to_vec(),
            &json::ParseLimits { depth_max: 256, values_max: usize::MAX },
        );
        let canonical = |node: Node<'_>| {
            let mut out = Vec::new();
            write_canonical(&mut out, node);
            out
        };
        let mut allowed: Vec<Vec<u8>> = match (keyword, &doc) {
            (PrivateKeyword::Const, Ok(doc)) => vec![canonical(doc.root())],
            (PrivateKeyword::Enum, Ok(doc)) => doc.root().elements().map(canonical).collect(),
            _ => Vec::new(),
        };
        allowed.sort_unstable();
        let integer = Decimal::parse(operand).and_then(|number| number.to_i64());
        Self { keyword, operand: operand.into(), integer, allowed }
    }

    #[inline]
    fn matches(&self, instance: TapeNode<'_>) -> bool {
        match self.keyword {
            PrivateKeyword::Minimum => self.compare(instance, Ordering::is_ge),
            PrivateKeyword::Maximum => self.compare(instance, Ordering::is_le),
            PrivateKeyword::ExclusiveMinimum => self.compare(instance, Ordering::is_gt),
            PrivateKeyword::ExclusiveMaximum => self.compare(instance, Ordering::is_lt),
            PrivateKeyword::MultipleOf => {
                let (number, divisor) = (instance.decimal(), Decimal::parse(&self.operand));
                let (Some(number), Some(divisor)) = (number, divisor) else { return true };
                validation_budget::charge(1 + instance.len_bytes() / 64)
                    && number.is_multiple_of(&divisor) == Some(true)
            }
            PrivateKeyword::Const | PrivateKeyword::Enum => {
                validation_budget::charge(1 + instance.len_bytes() / 16)
                    && self.allowed.binary_search(&instance.canonical()).is_ok()
            }
        }
    }

    #[inline]
    fn compare(&self, instance: TapeNode<'_>, is_allowed: fn(Ordering) -> bool) -> bool {
        if let (Some(limit), Some(number)) = (self.integer, instance.plain_i64()) {
            return is_allowed(number.cmp(&limit));
        }
        match (instance.decimal(), Decimal::parse(&self.operand)) {
            (Some(number), Some(limit)) => is_allowed(number.cmp(&limit)),
            // The keyword applies to numbers only.
            _ => true,
        }
    }
}

impl<'i> Keyword<'i, Tape> for ExactKeyword {
    /// The message of the error is the operand, from which [`describe`] makes a text.
    fn validate(&self, instance: TapeNode<'i>) -> Result<(), ValidationError<'i>> {
        if self.matches(instance) { Ok(()) } else { Err(ValidationError::custom(&*self.operand)) }
    }

    #[inline]
    fn is_valid(&self, instance: TapeNode<'i>) -> bool {
        self.matches(instance)
    }
}

/// What a private keyword expects, as text. `operand` is the message of its error.
pub(crate) fn describe(keyword: PrivateKeyword, operand: &str) -> Cow<'static, str> {
    match keyword {
        PrivateKeyword::Minimum => Cow::Owned(format!("must be at least {operand}")),
        PrivateKeyword::Maximum => Cow::Owned(format!("must be at most {operand}")),
        PrivateKeyword::ExclusiveMinimum => Cow::Owned(format!("must be greater than {operand}")),
        PrivateKeyword::ExclusiveMaximum => Cow::Owned(format!("must be less than {operand}")),
        PrivateKeyword::MultipleOf => Cow::Owned(format!("must be a multiple of {operand}")),
        PrivateKeyword::Const => Cow::Owned(format!("must be {operand}")),
        PrivateKeyword::Enum => {
            let Ok(options) = Json::parse(operand) else { return Cow::Borrowed("is not allowed") };
            let doc = options.to_doc();
            let format = |option: Node<'_>| match option.str() {
                Some(text) => format!("`{text}`"),
                None => option.raw().to_owned(),
            };
            let shown: Vec<String> = doc.root().elements().take(OPTIONS_SHOWN_MAX).map(format).collect();
            let more = doc.root().len().saturating_sub(OPTIONS_SHOWN_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Cow::Owned(format!("must be one of {}{more}", shown.join(", ")))
        }
    }
}

/// How many values of an `enum` an error lists.
const OPTIONS_SHOWN_MAX: usize = 24;
