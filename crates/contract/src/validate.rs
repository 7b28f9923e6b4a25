//! Whether arguments are what a tool's schema says, and if not, what would be right.

use json::{Doc, Json, Node, ScanLimits};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use spile_core::{ArgumentErrorKind, ToolError, ToolErrorCode};

use crate::humanize::join_truncated;
use crate::nearest::nearest;
use crate::ref_cycles::has_ref_cycle;
use crate::tape::{Tape, TapeNode};

/// A compiled schema.
pub struct CompiledSchema {
    validator: Validator<Tape>,
    /// The names at the root, to guess from.
    property_names: Vec<String>,
    /// What a call without arguments is judged as.
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

/// A schema is walked at compile time and partly on each call; these keep both short.
const SCHEMA_BYTES_MAX: usize = 256 << 10;
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// So many faults are looked at to find the one that helps most.
const ERRORS_MAX: usize = 8;
/// So many arguments are named to whoever gets one wrong.
const ARGUMENTS_SHOWN_MAX: usize = 24;

impl CompiledSchema {
    pub fn compile(schema: &Json) -> Result<Self, SchemaError> {
        if schema.as_str().len() > SCHEMA_BYTES_MAX {
            return Err(SchemaError(format!("schema longer than {SCHEMA_BYTES_MAX} bytes")));
        }
        let value: Value = serde_json::from_str(schema.as_str()).map_err(|e| SchemaError(e.to_string()))?;
        if has_ref_cycle(&value) {
            return Err(SchemaError(
                "a `$ref` leads back to itself without going deeper into the value".into(),
            ));
        }
        let validator = jsonschema::options_for::<Tape>()
            .with_retriever(RejectRemoteRefs)
            .should_validate_formats(true)
            // Linear time whatever the pattern: a tool's schema may come from somebody else.
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .build(&value)
            .map_err(|e| SchemaError(e.to_string()))?;
        let known = value["properties"].as_object().map_or_else(Vec::new, |p| p.keys().cloned().collect());
        let nothing = json::scan(b"{}".to_vec(), &ScanLimits::default()).expect("an empty object is JSON");
        Ok(Self { validator, property_names: known, empty_object: nothing })
    }

    /// Judges arguments. No arguments are an empty object.
    #[inline]
    pub fn validate(&self, arguments: Option<Node<'_>>) -> Result<(), Box<ToolError>> {
        let arguments = arguments.unwrap_or_else(|| self.empty_object.root());
        if self.validator.is_valid(TapeNode::Value(arguments)) {
            Ok(())
        } else {
            Err(self.explain(arguments))
        }
    }

    /// Whether a piece of JSON matches.
    pub fn is_valid(&self, json: &Json) -> bool {
        self.validator.is_valid(TapeNode::Value(json.to_doc().root()))
    }

    #[cold]
    fn explain(&self, arguments: Node<'_>) -> Box<ToolError> {
        // What is missing says more than that there is too little.
        let is_vague =
            |error: &ValidationError<'_>| matches!(error.kind(), ValidationErrorKind::MinProperties { .. });
        let mut errors: Vec<_> =
            self.validator.iter_errors(TapeNode::Value(arguments)).take(ERRORS_MAX).collect();
        errors.sort_by_key(is_vague);
        let Some(error) = errors.into_iter().next() else {
            // The two entry points of one validator cannot disagree; if they do, say the little we know.
            return Box::new(ToolError::new(
                ToolErrorCode::InvalidArguments,
                "the arguments do not match the schema",
            ));
        };
        let at = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
        let (at, reason, why, allowed) = self.describe_error(&error, at);
        let message = match reason {
            _ if at.is_empty() => why,
            ArgumentErrorKind::MissingRequired => format!("`{at}` is required"),
            _ => format!("`{at}`: {why}"),
        };
        let field = (!at.is_empty()).then_some(at);
        Box::new(ToolError {
            field,
            reason: Some(reason),
            allowed,
            ..ToolError::new(ToolErrorCode::InvalidArguments, message)
        })
    }

    /// Where, why (as a word and as a sentence), and what would have been allowed.
    fn describe_error(
        &self,
        error: &ValidationError<'_>,
        at: String,
    ) -> (String, ArgumentErrorKind, String, Option<Json>) {
        let under = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        let list = |options: &Value| Json::parse(&options.to_string()).ok();
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                (under(name), ArgumentErrorKind::MissingRequired, "missing".into(), None)
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let name = unexpected.first().map_or("", String::as_str);
                let why = match nearest(name, self.property_names.iter().map(String::as_str)) {
                    Some(meant) => format!("unknown argument; did you mean `{meant}`?"),
                    None => format!(
                        "unknown argument; known are: {}",
                        join_truncated(&self.property_names, ARGUMENTS_SHOWN_MAX)
                    ),
                };
                (under(name), ArgumentErrorKind::UnknownArgument, why, None)
            }
            // What `additionalProperties: false` alone comes down to.
            ValidationErrorKind::FalseSchema => (
                at,
                ArgumentErrorKind::UnknownArgument,
                "there are no arguments; leave them out".into(),
                None,
            ),
            ValidationErrorKind::Type { kind } => {
                let wanted = match kind {
                    TypeKind::Single(one) => one.to_string(),
                    TypeKind::Multiple(several) => {
                        several.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(" or ")
                    }
                };
                (at, ArgumentErrorKind::WrongType, format!("expected {wanted}"), None)
            }
            ValidationErrorKind::Enum { options } => (
                at,
                ArgumentErrorKind::NotAllowed,
                format!("expected one of {}", format_options(options)),
                list(options),
            ),
            ValidationErrorKind::Constant { expected_value } => {
                let allowed = Json::parse(&format!("[{expected_value}]")).ok();
                (at, ArgumentErrorKind::NotAllowed, format!("expected {expected_value}"), allowed)
            }
            ValidationErrorKind::Format { format } => {
                (at, ArgumentErrorKind::BadFormat, format!("not a valid {format}"), None)
            }
            ValidationErrorKind::Pattern { pattern } => {
                (at, ArgumentErrorKind::BadFormat, format!("does not match `{pattern}`"), None)
            }
            ValidationErrorKind::MaxLength { limit } => {
                (at, ArgumentErrorKind::TooLong, format!("longer than {limit} characters"), None)
            }
            ValidationErrorKind::MaxItems { limit } => {
                (at, ArgumentErrorKind::TooLong, format!("more than {limit} items"), None)
            }
            ValidationErrorKind::Minimum { limit } => {
                (at, ArgumentErrorKind::OutOfRange, format!("less than {limit}"), None)
            }
            ValidationErrorKind::Maximum { limit } => {
                (at, ArgumentErrorKind::OutOfRange, format!("more than {limit}"), None)
            }
            ValidationErrorKind::ExclusiveMinimum { limit } => {
                (at, ArgumentErrorKind::OutOfRange, format!("must be more than {limit}"), None)
            }
            ValidationErrorKind::ExclusiveMaximum { limit } => {
                (at, ArgumentErrorKind::OutOfRange, format!("must be less than {limit}"), None)
            }
            ValidationErrorKind::MinLength { limit } => {
                (at, ArgumentErrorKind::OutOfRange, format!("shorter than {limit} characters"), None)
            }
            ValidationErrorKind::MinItems { limit } => {
                (at, ArgumentErrorKind::OutOfRange, format!("fewer than {limit} items"), None)
            }
            ValidationErrorKind::UniqueItems => {
                (at, ArgumentErrorKind::NotAllowed, "has the same item twice; name each once".into(), None)
            }
            ValidationErrorKind::MinProperties { limit } => {
                let why = format!("too few arguments: at least {limit} are wanted");
                (at, ArgumentErrorKind::MissingRequired, why, None)
            }
            ValidationErrorKind::MultipleOf { multiple_of } => {
                (at, ArgumentErrorKind::OutOfRange, format!("not a multiple of {multiple_of}"), None)
            }
            other => (
                at,
                ArgumentErrorKind::NotAllowed,
                format!("does not match `{}` of the schema", other.keyword()),
                None,
            ),
        }
    }
}

/// Values as people read them: `free`, `emerald`, 7.
fn format_options(options: &Value) -> String {
    let word =
        |option: &Value| option.as_str().map_or_else(|| option.to_string(), |text| format!("`{text}`"));
    let words = options.as_array().map(|options| options.iter().map(word).collect::<Vec<_>>());
    words.map_or_else(|| options.to_string(), |words| words.join(", "))
}

/// 2026-07-28, `$ref` Resolution: implementations MUST NOT dereference what resolves to a network URI.
struct RejectRemoteRefs;

impl jsonschema::Retrieve for RejectRemoteRefs {
    fn retrieve(
        &self,
        uri: &jsonschema::Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("`$ref` to `{uri}` leaves the schema; put the definition into `$defs`").into())
    }
}
