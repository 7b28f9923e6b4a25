//! Validates arguments against a tool's schema, and explains what is wrong.

use json::{Doc, Json, Node, ParseLimits};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use spile_core::{ArgumentErrorKind, ToolError, ToolErrorCode};

use crate::bind::EMPTY_QUERY;
use crate::field;
use crate::humanize::{join_truncated, pluralize};
use crate::keywords::{self, PrivateKeyword};
use crate::nearest::nearest;
use crate::ref_cycles::has_ref_cycle;
use crate::schema_complexity::measure;
use crate::schemas;
use crate::tape::{Tape, TapeNode};
use crate::validation_budget;

/// A compiled schema.
pub struct CompiledSchema {
    validator: Validator<Tape>,
    /// The number of subschemas that apply to one value.
    subschemas_per_value: u64,
    /// The property names at the root, for suggestions.
    property_names: Vec<String>,
    /// The arguments of a call without `arguments`.
    empty_object: Doc,
}

/// Why a schema cannot be used.
#[derive(Debug)]
pub struct SchemaError(pub String);

impl std::fmt::Display for SchemaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SchemaError {}

/// Limits on a schema, which may come from an untrusted server.
const SCHEMA_BYTES_MAX: usize = 256 << 10;
/// The compiled size of one regular expression, and of all of them.
const PATTERN_BYTES_MAX: usize = 1 << 20;
const PATTERNS_BYTES_MAX: usize = 64 << 20;
/// How many errors are compared to find the most helpful one.
const ERRORS_MAX: usize = 8;
/// How many argument names an error lists.
const ARGUMENTS_SHOWN_MAX: usize = 24;

impl CompiledSchema {
    pub fn compile(schema: &Json) -> Result<Self, SchemaError> {
        if schema.as_str().len() > SCHEMA_BYTES_MAX {
            return Err(SchemaError(format!("the schema exceeds the limit of {SCHEMA_BYTES_MAX} bytes")));
        }
        let value = keywords::rewrite(schema)?;
        let shape = measure(&value)?;
        if has_ref_cycle(&value) {
            return Err(SchemaError(
                "a `$ref` cycle applies a schema to the same value again, or a chain of references is too long".into(),
            ));
        }
        let pattern_bytes_max = (PATTERNS_BYTES_MAX / shape.patterns.max(1)).min(PATTERN_BYTES_MAX);
        let options = jsonschema::options_for::<Tape>()
            .with_retriever(RejectRemoteRefs)
            .should_validate_formats(true)
            // Linear time for every pattern: a schema may come from an untrusted server.
            .with_pattern_options(PatternOptions::regex().size_limit(pattern_bytes_max));
        let validator = keywords::register(options).build(&value).map_err(|error| {
            let path = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
            SchemaError(if path.is_empty() { error.to_string() } else { format!("`{path}`: {error}") })
        })?;
        let property_names =
            value["properties"].as_object().map_or_else(Vec::new, |p| p.keys().cloned().collect());
        let empty_object =
            json::parse(b"{}".to_vec(), &ParseLimits::default()).expect("an empty object is JSON");
        Ok(Self { validator, subschemas_per_value: shape.subschemas_per_value, property_names, empty_object })
    }

    /// Validates arguments. `None` means an empty object.
    #[inline]
    pub fn validate(&self, arguments: Option<Node<'_>>) -> Result<(), Box<ToolError>> {
        let arguments = arguments.unwrap_or_else(|| self.empty_object.root());
        match self.matches(arguments) {
            true => Ok(()),
            false => Err(self.explain(arguments)),
        }
    }

    /// Whether a JSON value is valid.
    pub fn is_valid(&self, json: &Json) -> bool {
        self.matches(json.to_doc().root())
    }

    #[inline]
    fn matches(&self, node: Node<'_>) -> bool {
        validation_budget::start(node.slot_count(), self.subschemas_per_value)
            && self.validator.is_valid(TapeNode::Value(node))
            // Without its budget the validator overlooks errors.
            && !validation_budget::is_exhausted()
    }

    #[cold]
    fn explain(&self, arguments: Node<'_>) -> Box<ToolError> {
        if validation_budget::is_exhausted() {
            let message =
                "the arguments are too large or too deeply nested for this tool's schema; send less";
            return Box::new(ToolError {
                reason: Some(ArgumentErrorKind::TooLong),
                ..ToolError::new(ToolErrorCode::InvalidArguments, message)
            });
        }
        validation_budget::start_explaining();
        // `required` is more helpful than `minProperties`.
        let is_vague =
            |error: &ValidationError<'_>| matches!(error.kind(), ValidationErrorKind::MinProperties { .. });
        let mut errors: Vec<_> =
            self.validator.iter_errors(TapeNode::Value(arguments)).take(ERRORS_MAX).collect();
        errors.sort_by_key(is_vague);
        let Some(error) = errors.into_iter().next() else {
            // `is_valid` and `iter_errors` should not disagree. If they do, this is all there is to say.
            return Box::new(ToolError::new(
                ToolErrorCode::InvalidArguments,
                "the arguments do not match the schema",
            ));
        };
        let path = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
        let (path, kind, reason, allowed) = self.describe_error(&error, path);
        let message = match kind {
            // An object that allows no members is at fault itself.
            ArgumentErrorKind::UnknownArgument if path.is_empty() => {
                reason.trim_start_matches("; ").to_owned()
            }
            ArgumentErrorKind::UnknownArgument => format!("unknown argument `{path}`{reason}"),
            _ if path.is_empty() => format!("the value {reason}"),
            _ => format!("`{path}` {reason}"),
        };
        let field = (!path.is_empty()).then_some(path);
        Box::new(ToolError {
            field,
            reason: Some(kind),
            allowed,
            ..ToolError::new(ToolErrorCode::InvalidArguments, message)
        })
    }

    /// The argument's path, the kind of error, the end of a sentence that begins with the path, and the allowed values.
    fn describe_error(
        &self,
        error: &ValidationError<'_>,
        path: String,
    ) -> (String, ArgumentErrorKind, String, Option<Json>) {
        let member = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let list = |options: &Value| Json::parse(&options.to_string()).ok();
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                (member(name), ArgumentErrorKind::MissingRequired, "is required".into(), None)
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let name = unexpected.first().map_or("", String::as_str);
                let reason = match nearest(name, self.property_names.iter().map(String::as_str)) {
                    Some(meant) => format!("; did you mean `{meant}`?"),
                    None if self.property_names.is_empty() => "; this tool takes no arguments".into(),
                    None => format!(
                        "; the arguments are: {}",
                        join_truncated(&self.property_names, ARGUMENTS_SHOWN_MAX)
                    ),
                };
                (member(name), ArgumentErrorKind::UnknownArgument, reason, None)
            }
            // A schema with `additionalProperties: false` and no properties.
            ValidationErrorKind::FalseSchema if self.property_names.is_empty() => {
                (path, ArgumentErrorKind::UnknownArgument, "; this tool takes no arguments".into(), None)
            }
            ValidationErrorKind::FalseSchema => {
                (path, ArgumentErrorKind::NotAllowed, "is not allowed".into(), None)
            }
            ValidationErrorKind::Type { kind } => {
                let expected = match kind {
                    TypeKind::Single(single) => with_article(&single.to_string()),
                    TypeKind::Multiple(types) => {
                        let names: Vec<String> = types.iter().map(|t| with_article(&t.to_string())).collect();
                        names.join(" or ")
                    }
                };
                (path, ArgumentErrorKind::WrongType, format!("must be {expected}"), None)
            }
            ValidationErrorKind::Enum { options } => (
                path,
                ArgumentErrorKind::NotAllowed,
                format!("must be one of {}", format_options(options)),
                list(options),
            ),
            ValidationErrorKind::Constant { expected_value } => {
                let allowed = Json::parse(&format!("[{expected_value}]")).ok();
                (path, ArgumentErrorKind::NotAllowed, format!("must be {expected_value}"), allowed)
            }
            ValidationErrorKind::Format { format } => {
                (path, ArgumentErrorKind::BadFormat, describe_format(format), None)
            }
            ValidationErrorKind::Pattern { pattern } => {
                let reason = match field::describe_pattern(pattern) {
                    Some(expected) => expected.to_owned(),
                    None if pattern == schemas::QUERY_PATTERN && path == "query" => EMPTY_QUERY.to_owned(),
                    None => format!("must match the pattern `{pattern}`"),
                };
                (path, ArgumentErrorKind::BadFormat, reason, None)
            }
            ValidationErrorKind::MaxLength { limit } => {
                let reason = format!("exceeds the limit of {}", pluralize(*limit, "character"));
                (path, ArgumentErrorKind::TooLong, reason, None)
            }
            ValidationErrorKind::MaxItems { limit } => {
                let reason = format!("exceeds the limit of {}", pluralize(*limit, "item"));
                (path, ArgumentErrorKind::TooLong, reason, None)
            }
            ValidationErrorKind::MinLength { limit: 1 } | ValidationErrorKind::MinItems { limit: 1 } => {
                (path, ArgumentErrorKind::OutOfRange, "must not be empty".into(), None)
            }
            ValidationErrorKind::MinLength { limit } => {
                let reason = format!("must have at least {}", pluralize(*limit, "character"));
                (path, ArgumentErrorKind::OutOfRange, reason, None)
            }
            ValidationErrorKind::MinItems { limit } => {
                let reason = format!("must have at least {}", pluralize(*limit, "item"));
                (path, ArgumentErrorKind::OutOfRange, reason, None)
            }
            ValidationErrorKind::UniqueItems => {
                (path, ArgumentErrorKind::NotAllowed, "has duplicate items".into(), None)
            }
            ValidationErrorKind::MinProperties { limit } => {
                let reason = format!("must have at least {}", pluralize(*limit, "member"));
                (path, ArgumentErrorKind::MissingRequired, reason, None)
            }
            ValidationErrorKind::Custom { keyword, message: operand } => {
                let Some(keyword) = PrivateKeyword::from_name(keyword) else {
                    return (path, ArgumentErrorKind::NotAllowed, "is not allowed".into(), None);
                };
                let (kind, allowed) = match keyword {
                    PrivateKeyword::Const => {
                        (ArgumentErrorKind::NotAllowed, Json::parse(&format!("[{operand}]")).ok())
                    }
                    PrivateKeyword::Enum => (ArgumentErrorKind::NotAllowed, Json::parse(operand).ok()),
                    PrivateKeyword::Minimum
                    | PrivateKeyword::Maximum
                    | PrivateKeyword::ExclusiveMinimum
                    | PrivateKeyword::ExclusiveMaximum
                    | PrivateKeyword::MultipleOf => (ArgumentErrorKind::OutOfRange, None),
                };
                (path, kind, keywords::describe(keyword, operand).into_owned(), allowed)
            }
            other => (
                path,
                ArgumentErrorKind::NotAllowed,
                format!("must match `{}` of the schema", other.keyword()),
                None,
            ),
        }
    }
}

/// `an integer`, `a string`, `null`
fn with_article(json_type: &str) -> String {
    match json_type {
        "null" => "null".to_owned(),
        "array" | "integer" | "object" => format!("an {json_type}"),
        other => format!("a {other}"),
    }
}

/// What a value of the wrong format is not, with an example.
fn describe_format(format: &str) -> String {
    let (what, example) = match format {
        "email" | "idn-email" => ("email address", "dana@acme.test"),
        "date" => ("date", "2026-02-28"),
        "time" => ("time", "10:00:00Z"),
        "date-time" => ("date and time with a time zone", "2026-02-28T10:00:00Z"),
        "uri" | "iri" => ("URI", "https://acme.test/a"),
        "hostname" | "idn-hostname" => ("host name", "acme.test"),
        "ipv4" => ("IPv4 address", "192.0.2.1"),
        "ipv6" => ("IPv6 address", "2001:db8::1"),
        "uuid" => ("UUID", "123e4567-e89b-12d3-a456-426614174000"),
        other => return format!("is not a valid {other}"),
    };
    format!("is not a valid {what}, such as `{example}`")
}

/// The values as a readable list: `free`, `emerald`, 7.
fn format_options(options: &Value) -> String {
    let format =
        |option: &Value| option.as_str().map_or_else(|| option.to_string(), |text| format!("`{text}`"));
    let formatted = options.as_array().map(|options| options.iter().map(format).collect::<Vec<_>>());
    formatted.map_or_else(|| options.to_string(), |formatted| formatted.join(", "))
}

/// 2026-07-28, `$ref` Resolution: implementations MUST NOT dereference what resolves to a network URI.
struct RejectRemoteRefs;

impl jsonschema::Retrieve for RejectRemoteRefs {
    fn retrieve(
        &self,
        uri: &jsonschema::Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("`$ref` to `{uri}` points outside the schema; put the definition into `$defs`").into())
    }
}
