//! Whether arguments are what a tool's schema says, and if not, what would be right.

use call::{Failure, Problem, Reason};
use json::{Doc, Json, Node, ScanLimits};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use crate::loops::has_loop;
use crate::nearest::nearest;
use crate::tape::{On, Tape};
use crate::words::some;

/// A compiled schema.
pub struct Check {
    validator: Validator<Tape>,
    /// The names at the root, to guess from.
    known: Vec<String>,
    /// What a call without arguments is judged as.
    nothing: Doc,
}

/// Why a schema cannot be used.
#[derive(Debug)]
pub struct BadSchema(pub String);

impl std::fmt::Display for BadSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSchema {}

/// A schema is walked at compile time and partly on each call; these keep both short.
const SCHEMA_BYTES_MAX: usize = 256 << 10;
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// So many faults are looked at to find the one that helps most.
const ERRORS_MAX: usize = 8;
/// So many arguments are named to whoever gets one wrong.
const KNOWN_SHOWN_MAX: usize = 24;

impl Check {
    pub fn compile(schema: &Json) -> Result<Self, BadSchema> {
        if schema.as_str().len() > SCHEMA_BYTES_MAX {
            return Err(BadSchema(format!("schema longer than {SCHEMA_BYTES_MAX} bytes")));
        }
        let value: Value = serde_json::from_str(schema.as_str()).map_err(|e| BadSchema(e.to_string()))?;
        if has_loop(&value) {
            return Err(BadSchema(
                "a `$ref` leads back to itself without going deeper into the value".into(),
            ));
        }
        let validator = jsonschema::options_for::<Tape>()
            .with_retriever(Nowhere)
            .should_validate_formats(true)
            // Linear time whatever the pattern: a tool's schema may come from somebody else.
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .build(&value)
            .map_err(|e| BadSchema(e.to_string()))?;
        let known = value["properties"].as_object().map_or_else(Vec::new, |p| p.keys().cloned().collect());
        let nothing = json::scan(b"{}".to_vec(), &ScanLimits::default()).expect("an empty object is JSON");
        Ok(Self { validator, known, nothing })
    }

    /// Judges arguments. No arguments are an empty object.
    #[inline]
    pub fn check(&self, arguments: Option<Node<'_>>) -> Result<(), Box<Problem>> {
        let arguments = arguments.unwrap_or_else(|| self.nothing.root());
        if self.validator.is_valid(On::Tape(arguments)) { Ok(()) } else { Err(self.explain(arguments)) }
    }

    /// Whether a piece of JSON matches.
    pub fn admits(&self, json: &Json) -> bool {
        self.validator.is_valid(On::Tape(json.doc().root()))
    }

    #[cold]
    fn explain(&self, arguments: Node<'_>) -> Box<Problem> {
        // What is missing says more than that there is too little.
        let is_vague =
            |error: &ValidationError<'_>| matches!(error.kind(), ValidationErrorKind::MinProperties { .. });
        let mut errors: Vec<_> = self.validator.iter_errors(On::Tape(arguments)).take(ERRORS_MAX).collect();
        errors.sort_by_key(is_vague);
        let Some(error) = errors.into_iter().next() else {
            // The two entry points of one validator cannot disagree; if they do, say the little we know.
            return Box::new(Problem::new(
                Failure::InvalidArguments,
                "the arguments do not match the schema",
            ));
        };
        let at = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
        let (at, reason, why, allowed) = self.words(&error, at);
        let message = match reason {
            _ if at.is_empty() => why,
            Reason::MissingRequired => format!("`{at}` is required"),
            _ => format!("`{at}`: {why}"),
        };
        let field = (!at.is_empty()).then_some(at);
        Box::new(Problem {
            field,
            reason: Some(reason),
            allowed,
            ..Problem::new(Failure::InvalidArguments, message)
        })
    }

    /// Where, why (as a word and as a sentence), and what would have been allowed.
    fn words(&self, error: &ValidationError<'_>, at: String) -> (String, Reason, String, Option<Json>) {
        let under = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        let list = |options: &Value| Json::parse(&options.to_string()).ok();
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                (under(name), Reason::MissingRequired, "missing".into(), None)
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let name = unexpected.first().map_or("", String::as_str);
                let why = match nearest(name, self.known.iter().map(String::as_str)) {
                    Some(meant) => format!("unknown argument; did you mean `{meant}`?"),
                    None => format!("unknown argument; known are: {}", some(&self.known, KNOWN_SHOWN_MAX)),
                };
                (under(name), Reason::UnknownArgument, why, None)
            }
            // What `additionalProperties: false` alone comes down to.
            ValidationErrorKind::FalseSchema => {
                (at, Reason::UnknownArgument, "there are no arguments; leave them out".into(), None)
            }
            ValidationErrorKind::Type { kind } => {
                let wanted = match kind {
                    TypeKind::Single(one) => one.to_string(),
                    TypeKind::Multiple(several) => {
                        several.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(" or ")
                    }
                };
                (at, Reason::WrongType, format!("expected {wanted}"), None)
            }
            ValidationErrorKind::Enum { options } => {
                (at, Reason::NotAllowed, format!("expected one of {}", in_words(options)), list(options))
            }
            ValidationErrorKind::Constant { expected_value } => {
                let allowed = Json::parse(&format!("[{expected_value}]")).ok();
                (at, Reason::NotAllowed, format!("expected {expected_value}"), allowed)
            }
            ValidationErrorKind::Format { format } => {
                (at, Reason::BadFormat, format!("not a valid {format}"), None)
            }
            ValidationErrorKind::Pattern { pattern } => {
                (at, Reason::BadFormat, format!("does not match `{pattern}`"), None)
            }
            ValidationErrorKind::MaxLength { limit } => {
                (at, Reason::TooLong, format!("longer than {limit} characters"), None)
            }
            ValidationErrorKind::MaxItems { limit } => {
                (at, Reason::TooLong, format!("more than {limit} items"), None)
            }
            ValidationErrorKind::Minimum { limit } => {
                (at, Reason::OutOfRange, format!("less than {limit}"), None)
            }
            ValidationErrorKind::Maximum { limit } => {
                (at, Reason::OutOfRange, format!("more than {limit}"), None)
            }
            ValidationErrorKind::ExclusiveMinimum { limit } => {
                (at, Reason::OutOfRange, format!("must be more than {limit}"), None)
            }
            ValidationErrorKind::ExclusiveMaximum { limit } => {
                (at, Reason::OutOfRange, format!("must be less than {limit}"), None)
            }
            ValidationErrorKind::MinLength { limit } => {
                (at, Reason::OutOfRange, format!("shorter than {limit} characters"), None)
            }
            ValidationErrorKind::MinItems { limit } => {
                (at, Reason::OutOfRange, format!("fewer than {limit} items"), None)
            }
            ValidationErrorKind::UniqueItems => {
                (at, Reason::NotAllowed, "has the same item twice; name each once".into(), None)
            }
            ValidationErrorKind::MinProperties { limit } => {
                let why = format!("too few arguments: at least {limit} are wanted");
                (at, Reason::MissingRequired, why, None)
            }
            ValidationErrorKind::MultipleOf { multiple_of } => {
                (at, Reason::OutOfRange, format!("not a multiple of {multiple_of}"), None)
            }
            other => {
                (at, Reason::NotAllowed, format!("does not match `{}` of the schema", other.keyword()), None)
            }
        }
    }
}

/// Values as people read them: `free`, `emerald`, 7.
fn in_words(options: &Value) -> String {
    let word =
        |option: &Value| option.as_str().map_or_else(|| option.to_string(), |text| format!("`{text}`"));
    let words = options.as_array().map(|options| options.iter().map(word).collect::<Vec<_>>());
    words.map_or_else(|| options.to_string(), |words| words.join(", "))
}

/// 2026-07-28, `$ref` Resolution: implementations MUST NOT dereference what resolves to a network URI.
struct Nowhere;

impl jsonschema::Retrieve for Nowhere {
    fn retrieve(
        &self,
        uri: &jsonschema::Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("`$ref` to `{uri}` leaves the schema; put the definition into `$defs`").into())
    }
}
