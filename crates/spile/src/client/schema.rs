//! A tool's input schema, as far as a command line needs it: argument names, types and enum values.
//!
//! `contract::CompiledSchema` validates the rest of JSON Schema.

use json::{Json, Node, NodeKind};

/// Nested schemas and `$ref`s are followed to this depth.
const DEPTH_MAX: usize = 8;
/// A usage line shows this many optional arguments.
const USAGE_OPTIONAL_MAX: usize = 12;
/// A description shows this many enum values.
const CHOICES_SHOWN_MAX: usize = 12;

/// The arguments of a tool.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) arguments: Vec<Argument>,
    pub(crate) patterns: Vec<PatternProperty>,
    pub(crate) additional: AdditionalProperties,
    /// Arguments of tools that the tool's description refers to. They say of which type the names are that a pattern allows.
    pub(crate) described_elsewhere: Vec<Argument>,
}

/// An entry of `patternProperties`: arguments whose names match a regular expression.
#[derive(Debug)]
pub(crate) struct PatternProperty {
    pub(crate) pattern: String,
    schema: ValueSchema,
}

/// Arguments that the schema does not name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdditionalProperties {
    /// The schema does not say. They are allowed, but most probably typos.
    #[default]
    Unspecified,
    Allowed,
    Forbidden,
}

#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) is_required: bool,
    pub(crate) schema: ValueSchema,
}

/// The schema of one value.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueSchema {
    pub(crate) types: TypeSet,
    /// `enum` or `const`; empty if any value is allowed.
    pub(crate) choices: Vec<Json>,
    /// The items of an array.
    pub(crate) item: Option<Box<ValueSchema>>,
    pub(crate) format: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) default: Option<Json>,
}

/// A set of JSON Schema types. An empty set allows every type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TypeSet(u8);

impl TypeSet {
    pub(crate) const NULL: Self = Self(1);
    pub(crate) const BOOLEAN: Self = Self(1 << 1);
    pub(crate) const INTEGER: Self = Self(1 << 2);
    pub(crate) const NUMBER: Self = Self(1 << 3);
    pub(crate) const STRING: Self = Self(1 << 4);
    pub(crate) const ARRAY: Self = Self(1 << 5);
    pub(crate) const OBJECT: Self = Self(1 << 6);

    const NAMES: [(Self, &'static str); 7] = [
        (Self::STRING, "string"),
        (Self::INTEGER, "integer"),
        (Self::NUMBER, "number"),
        (Self::BOOLEAN, "boolean"),
        (Self::ARRAY, "array"),
        (Self::OBJECT, "object"),
        (Self::NULL, "null"),
    ];

    fn from_name(name: &str) -> Self {
        Self::NAMES.iter().find(|(_, known)| *known == name).map_or(Self(0), |(kind, _)| *kind)
    }

    fn of_value(node: Node<'_>) -> Self {
        match node.kind() {
            NodeKind::Null => Self::NULL,
            NodeKind::True | NodeKind::False => Self::BOOLEAN,
            NodeKind::Number => Self::NUMBER,
            NodeKind::String => Self::STRING,
            NodeKind::Array => Self::ARRAY,
            NodeKind::Object => Self::OBJECT,
        }
    }

    fn union(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub(crate) fn contains(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn without(self, kind: Self) -> Self {
        Self(self.0 & !kind.0)
    }

    fn with(self, kind: Self) -> Self {
        Self(self.0 | kind.0)
    }

    fn names(self) -> Vec<&'static str> {
        Self::NAMES.iter().filter(|(kind, _)| self.contains(*kind)).map(|(_, name)| *name).collect()
    }
}

impl Schema {
    pub(crate) fn parse(root: Node<'_>) -> Self {
        let mut schema = Self::default();
        schema.collect_arguments(root, root, DEPTH_MAX);
        schema
    }

    /// A prompt's arguments are all strings.
    pub(crate) fn from_prompt(prompt: Node<'_>) -> Self {
        let arguments = prompt.get("arguments").into_iter().flat_map(|all| all.elements());
        let parse = |one: Node<'_>| {
            let is_required = one.get("required").and_then(|flag| flag.bool()).unwrap_or(false);
            let schema = ValueSchema { types: TypeSet::STRING, ..ValueSchema::default() };
            Some(Argument { name: one.get("name")?.str()?.into_owned(), is_required, schema })
        };
        Self {
            arguments: arguments.filter_map(parse).collect(),
            patterns: Vec::new(),
            additional: AdditionalProperties::Forbidden,
            described_elsewhere: Vec::new(),
        }
    }

    fn collect_arguments(&mut self, root: Node<'_>, node: Node<'_>, depth: usize) {
        if depth == 0 {
            return;
        }
        if let Some(target) = resolve_ref(root, node) {
            self.collect_arguments(root, target, depth - 1);
        }
        for part in node.get("allOf").into_iter().flat_map(|parts| parts.elements()) {
            self.collect_arguments(root, part, depth - 1);
        }
        for (key, schema) in node.get("properties").into_iter().flat_map(|all| all.members()) {
            let name = key.str().unwrap_or_default().into_owned();
            let schema = ValueSchema::parse(root, schema);
            match self.arguments.iter_mut().find(|argument| argument.name == name) {
                Some(argument) => argument.schema = schema,
                None => self.arguments.push(Argument { name, is_required: false, schema }),
            }
        }
        for name in node.get("required").into_iter().flat_map(|names| names.elements()) {
            let Some(name) = name.str() else { continue };
            match self.arguments.iter_mut().find(|argument| argument.name == *name) {
                Some(argument) => argument.is_required = true,
                None => self.arguments.push(Argument {
                    name: name.into_owned(),
                    is_required: true,
                    schema: ValueSchema::default(),
                }),
            }
        }
        for (key, schema) in node.get("patternProperties").into_iter().flat_map(|all| all.members()) {
            let pattern = key.str().unwrap_or_default().into_owned();
            self.patterns.push(PatternProperty { pattern, schema: ValueSchema::parse(root, schema) });
        }
        match node.get("additionalProperties").map(|others| others.kind()) {
            Some(NodeKind::False) => self.additional = AdditionalProperties::Forbidden,
            Some(_) => self.additional = AdditionalProperties::Allowed,
            None => {}
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.name == name)
    }

    /// The schema of an argument that `patternProperties` allows. A pattern that does not state a type leaves it to the
    /// argument that the name extends: `price_min` is typed like `price`, and `price_null` is a boolean; or to an argument
    /// of a tool that the description refers to.
    pub(crate) fn find_by_pattern(&self, name: &str) -> Option<ValueSchema> {
        let property = self.patterns.iter().find(|property| property.matches(name))?;
        let own = &property.schema;
        if own.is_typed() {
            return Some(own.clone());
        }
        let elsewhere = self.described_elsewhere.iter().find(|argument| argument.name == name);
        let schema =
            elsewhere.map(|argument| argument.schema.clone()).or_else(|| self.extended_argument(name));
        Some(schema.unwrap_or_else(|| own.clone()))
    }

    /// The type of the argument that a name extends by `_` and a suffix. Its enum does not apply: `plan_contains=ru`.
    pub(crate) fn extended_argument(&self, name: &str) -> Option<ValueSchema> {
        const BOOLEAN_SUFFIX: &str = "_null";
        const RANGE_SUFFIXES: [&str; 2] = ["_min", "_max"];
        const SUFFIXES: [&str; 6] = ["_min", "_max", "_not", "_contains", "_starts", "_null"];
        const ANY_NAME: &str = "^.";
        // Where any name is allowed, `nonfarm_change` is not the argument `nonfarm` with a suffix.
        let allows_any = self.patterns.iter().any(|property| property.pattern == ANY_NAME);
        let is_suffix = |rest: &&str| match allows_any {
            true => SUFFIXES.contains(rest),
            false => rest.starts_with('_'),
        };
        let suffix_of = |argument: &Argument| {
            name.strip_prefix(argument.name.as_str()).filter(is_suffix).map(str::to_owned)
        };
        let known = self.arguments.iter().chain(&self.described_elsewhere);
        let longest = known.filter(|argument| suffix_of(argument).is_some());
        let longest = longest.max_by_key(|argument| argument.name.len())?;
        if suffix_of(longest)? == BOOLEAN_SUFFIX {
            return Some(ValueSchema { types: TypeSet::BOOLEAN, ..ValueSchema::default() });
        }
        let mut schema = ValueSchema { choices: Vec::new(), ..longest.schema.clone() };
        // An integer can be compared with a fraction: at least 1.5.
        if RANGE_SUFFIXES.contains(&suffix_of(longest)?.as_str()) && schema.types.contains(TypeSet::INTEGER) {
            schema.types = schema.types.without(TypeSet::INTEGER).with(TypeSet::NUMBER);
        }
        Some(schema)
    }

    /// `email* plan? limit?`
    pub(crate) fn summary(&self) -> Vec<String> {
        self.arguments
            .iter()
            .map(|argument| format!("{}{}", argument.name, if argument.is_required { "*" } else { "?" }))
            .collect()
    }

    /// `spile call lookup_customer email=TEXT [plan=free|emerald|ruby]`
    pub(crate) fn usage(&self, command: &str, name: &str) -> String {
        let mut usage = format!("spile {command} {name}");
        let mut optional_count = 0;
        for argument in &self.arguments {
            let word = format!("{}={}", argument.name, argument.schema.placeholder());
            // A list takes the argument several times.
            let again = if argument.schema.is_list() { "…" } else { "" };
            if argument.is_required {
                usage.push_str(&format!(" {word}{again}"));
            } else {
                optional_count += 1;
                if optional_count <= USAGE_OPTIONAL_MAX {
                    usage.push_str(&format!(" [{word}]{again}"));
                }
            }
        }
        if let more @ 1.. = optional_count.saturating_sub(USAGE_OPTIONAL_MAX) {
            usage.push_str(&format!(" [and {more} more]"));
        }
        for property in &self.patterns {
            usage.push_str(&format!(" [{}={}]…", property.placeholder(), property.schema.placeholder()));
        }
        usage
    }
}

impl PatternProperty {
    /// A pattern that is not supported here may be one that the server supports: it decides.
    fn matches(&self, name: &str) -> bool {
        let schema = Json::object(|out| {
            out.str("pattern", &self.pattern);
        });
        contract::CompiledSchema::compile(&schema).map_or(true, |schema| schema.is_valid(&Json::string(name)))
    }

    /// `NAME_min|_max` for `_(min|max)$`, else the pattern itself.
    pub(crate) fn placeholder(&self) -> String {
        let is_suffix =
            |suffix: &&str| !suffix.is_empty() && suffix.bytes().all(|c| c.is_ascii_alphanumeric());
        let suffixes = self.pattern.strip_prefix("_(").and_then(|rest| rest.strip_suffix(")$"));
        let suffixes: Option<Vec<&str>> = suffixes
            .map(|list| list.split('|').collect())
            .filter(|list: &Vec<&str>| list.iter().all(is_suffix));
        match (suffixes, self.pattern.as_str()) {
            (Some(list), _) => format!("NAME_{}", list.join("|_")),
            // Names of linked rows, and with them all suffixes.
            (None, "[.]") => "LINK.NAME".to_owned(),
            (None, "^.") => "NAME".to_owned(),
            (None, pattern) => pattern.to_owned(),
        }
    }
}

impl ValueSchema {
    pub(crate) fn parse(root: Node<'_>, node: Node<'_>) -> Self {
        Self::parse_at_depth(root, node, DEPTH_MAX)
    }

    fn parse_at_depth(root: Node<'_>, node: Node<'_>, depth: usize) -> Self {
        let mut schema = Self::default();
        if depth == 0 || !node.is_object() {
            return schema;
        }
        if let Some(target) = resolve_ref(root, node) {
            schema = Self::parse_at_depth(root, target, depth - 1);
        }
        let text = |key: &str| node.get(key).and_then(|text| text.str()).map(|text| text.into_owned());
        match node.get("type") {
            Some(one) if one.kind() == NodeKind::String => {
                schema.types = TypeSet::from_name(&one.str().unwrap_or_default())
            }
            Some(several) => {
                schema.types = several
                    .elements()
                    .filter_map(|kind| kind.str())
                    .fold(TypeSet(0), |all, kind| all.union(TypeSet::from_name(&kind)));
            }
            None => {}
        }
        if let Some(choices) = node.get("enum") {
            schema.choices = choices.elements().map(Json::from).collect();
        } else if let Some(only) = node.get("const") {
            schema.choices = vec![Json::from(only)];
        }
        for part in node.get("allOf").into_iter().flat_map(|parts| parts.elements()) {
            let part = Self::parse_at_depth(root, part, depth - 1);
            schema.merge_missing(part);
        }
        for key in ["anyOf", "oneOf"] {
            let Some(parts) = node.get(key) else { continue };
            schema.merge_missing(Self::any_of(
                parts.elements().map(|part| Self::parse_at_depth(root, part, depth - 1)),
            ));
        }
        if let Some(item) = node.get("items").filter(Node::is_object) {
            schema.item = Some(Box::new(Self::parse_at_depth(root, item, depth - 1)));
        }
        schema.format = text("format").or(schema.format);
        schema.description = text("description").or_else(|| text("title")).or(schema.description);
        schema.default = node.get("default").map(Json::from).or(schema.default);
        if schema.types.is_empty() {
            let types = schema.choices.iter().map(|choice| TypeSet::of_value(choice.to_doc().root()));
            schema.types = types.fold(TypeSet(0), TypeSet::union);
        }
        schema
    }

    fn is_typed(&self) -> bool {
        !self.types.is_empty() || !self.choices.is_empty()
    }

    fn merge_missing(&mut self, other: Self) {
        if self.types.is_empty() {
            self.types = other.types;
        }
        if self.choices.is_empty() {
            self.choices = other.choices;
        }
        self.item = self.item.take().or(other.item);
        self.format = self.format.take().or(other.format);
        self.description = self.description.take().or(other.description);
    }

    /// The union of several alternatives.
    fn any_of(parts: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::default();
        let (mut all_typed, mut all_enums) = (true, true);
        for part in parts {
            all_typed &= !part.types.is_empty();
            let is_null = part.types == TypeSet::NULL;
            all_enums &= is_null || !part.choices.is_empty();
            all.types = all.types.union(part.types);
            all.choices.extend(part.choices);
            if !is_null {
                all.format = all.format.or(part.format);
                all.item = all.item.or(part.item);
            }
        }
        if !all_typed {
            all.types = TypeSet(0);
        }
        if !all_enums {
            all.choices.clear();
        }
        all
    }

    /// `string (email)`, `array of integer`, `free, emerald or ruby`
    pub(crate) fn describe(&self) -> String {
        if !self.choices.is_empty() {
            let choices: Vec<String> = self.choices.iter().map(display_text).collect();
            return contract::humanize::join_truncated(&choices, CHOICES_SHOWN_MAX);
        }
        let mut words = self.types.names().join(" or ");
        if words.is_empty() {
            words.push_str("any type");
        }
        if self.types.contains(TypeSet::ARRAY)
            && let Some(item) = &self.item
        {
            words.push_str(&format!(" of {}", item.describe()));
        }
        if let Some(format) = &self.format {
            words.push_str(&format!(" ({format})"));
        }
        words
    }

    /// Whether it is an array of values that are not arrays or objects themselves.
    fn is_list(&self) -> bool {
        let is_nested = |item: &ValueSchema| {
            item.types.is_empty()
                || item.types.contains(TypeSet::ARRAY)
                || item.types.contains(TypeSet::OBJECT)
        };
        self.types.without(TypeSet::NULL) == TypeSet::ARRAY
            && self.item.as_ref().is_some_and(|item| !is_nested(item))
    }

    fn placeholder(&self) -> String {
        let types = self.types.without(TypeSet::NULL);
        let choices: Vec<String> = self.choices.iter().map(display_text).collect();
        let is_sort = || {
            let is_paired = |name: &String| choices.contains(&format!("-{}", name.trim_start_matches('-')));
            choices.iter().all(is_paired)
        };
        match &*choices {
            [] => {}
            few if few.len() <= 4 => return few.join("|"),
            _ if is_sort() => return "FIELD|-FIELD".to_owned(),
            many => return format!("{}|…", many[..3].join("|")),
        }
        match &self.item {
            Some(item) if self.is_list() && item.choices.len() > 4 => return "NAME".to_owned(),
            Some(item) if self.is_list() => return item.placeholder(),
            _ => {}
        }
        match self.format.as_deref() {
            Some("date") => return "DATE".to_owned(),
            Some("date-time" | "local-date-time") => return "DATETIME".to_owned(),
            _ => {}
        }
        if types == TypeSet::INTEGER || types == TypeSet::NUMBER {
            "NUMBER".to_owned()
        } else if types == TypeSet::BOOLEAN {
            "true|false".to_owned()
        } else if types == TypeSet::ARRAY || types == TypeSet::OBJECT {
            "JSON".to_owned()
        } else {
            "TEXT".to_owned()
        }
    }
}

/// A value as a person types it: a string without its quotes, anything else as JSON.
pub(crate) fn display_text(value: &Json) -> String {
    let doc = value.to_doc();
    doc.root().str().map_or_else(|| value.as_str().to_owned(), |text| text.into_owned())
}

/// Resolves a `$ref` within the same schema. References to other documents are not followed.
fn resolve_ref<'d>(root: Node<'d>, node: Node<'d>) -> Option<Node<'d>> {
    let reference = node.get("$ref")?.str()?;
    let path = reference.strip_prefix("#/")?;
    path.split('/').try_fold(root, |node, step| node.get(&step.replace("~1", "/").replace("~0", "~")))
}

#[cfg(test)]
mod tests {
    use super::{AdditionalProperties, Schema};
    use json::Json;

    #[track_caller]
    fn check(schema: &str, expected: &str) {
        let json = Json::parse(schema).expect("valid JSON");
        let doc = json.to_doc();
        let schema = Schema::parse(doc.root());
        let all: Vec<String> = schema
            .arguments
            .iter()
            .map(|one| {
                format!("{}{} {}", one.name, if one.is_required { "*" } else { "" }, one.schema.describe())
            })
            .collect();
        assert_eq!(all.join("; "), expected);
    }

    #[test]
    fn types_are_read_from_every_keyword_that_states_them() {
        check(r#"{"properties":{"a":{"type":"string"}},"required":["a"]}"#, "a* string");
        check(r#"{"properties":{"a":{"type":["integer","null"]}}}"#, "a integer or null");
        check(
            r#"{"properties":{"a":{"anyOf":[{"type":"string","format":"date"},{"type":"null"}]}}}"#,
            "a string or null (date)",
        );
        check(r#"{"properties":{"a":{"enum":["x","y",3]}}}"#, "a x, y, 3");
        check(r#"{"properties":{"a":{"oneOf":[{"const":"x","title":"X"},{"const":"y"}]}}}"#, "a x, y");
        check(r#"{"properties":{"a":{"type":"array","items":{"type":"number"}}}}"#, "a array of number");
        check(r#"{"properties":{"a":{}}}"#, "a any type");
        check(r##"{"$defs":{"d":{"type":"object"}},"properties":{"a":{"$ref":"#/$defs/d"}}}"##, "a object");
        check(
            r#"{"allOf":[{"properties":{"a":{"type":"boolean"}}},{"required":["a","b"]}]}"#,
            "a* boolean; b* any type",
        );
    }

    #[test]
    fn malformed_and_recursive_schemas_are_accepted() {
        check("true", "");
        check(r#"{"properties":7,"required":{"a":1}}"#, "");
        check(
            r#"{"properties":{"a":true,"b":{"type":7},"c":{"type":"tree"}}}"#,
            "a any type; b any type; c any type",
        );
        // A reference to itself.
        check(r##"{"properties":{"a":{"$ref":"#/properties/a"}}}"##, "a any type");
        check(r#"{"properties":{"a":{"$ref":"https://example.com/a.json"}}}"#, "a any type");
    }

    #[test]
    fn additional_properties_are_read() {
        for (schema, expected) in [
            ("{}", AdditionalProperties::Unspecified),
            (r#"{"additionalProperties":false}"#, AdditionalProperties::Forbidden),
            (r#"{"additionalProperties":{"type":"string"}}"#, AdditionalProperties::Allowed),
            (r#"{"patternProperties":{"^x-":{}}}"#, AdditionalProperties::Unspecified),
            (
                r#"{"patternProperties":{"^x-":{}},"additionalProperties":false}"#,
                AdditionalProperties::Forbidden,
            ),
        ] {
            let json = Json::parse(schema).expect("valid JSON");
            let doc = json.to_doc();
            assert_eq!(Schema::parse(doc.root()).additional, expected, "{schema}");
        }
    }

    #[test]
    fn names_that_match_a_pattern_have_its_type_or_that_of_the_argument_they_extend() {
        let schema = r#"{"properties":{"price":{"type":"number"},"price_net":{"type":["integer","null"]},
            "plan":{"enum":["free","ruby"]}},"patternProperties":{"_(min|max|contains|null)$":{},"^x-":{"type":"boolean"},
            "(?<!a)y$":{}},"additionalProperties":false}"#;
        let json = Json::parse(schema).expect("valid JSON");
        let schema = Schema::parse(json.to_doc().root());
        for (name, expected) in [
            ("price_min", Some("number")),
            ("price_net_max", Some("number or null")),
            ("price_null", Some("boolean")),
            ("price_net_null", Some("boolean")),
            // The values of the enum are not those of a part of it.
            ("plan_contains", Some("string")),
            ("other_min", Some("any type")),
            ("x-flag", Some("boolean")),
            // The pattern is one that only JavaScript knows.
            ("ay", Some("any type")),
            ("price_mid", Some("number")),
        ] {
            let found = schema.find_by_pattern(name).map(|schema| schema.describe());
            assert_eq!(found.as_deref(), expected, "{name}");
        }
        let any = r#"{"properties":{"price":{"type":"number"}},"patternProperties":{"^.":{}}}"#;
        let open = Schema::parse(Json::parse(any).expect("valid JSON").to_doc().root());
        for (name, expected) in [
            ("price_max", "number"),
            ("price_null", "boolean"),
            ("price_change", "any type"),
            ("price_change_min", "any type"),
        ] {
            let found = open.find_by_pattern(name).map(|schema| schema.describe());
            assert_eq!(found.as_deref(), Some(expected), "{name}");
        }
        let list = r#"{"properties":{"zip":{"type":"string"},"price":{"type":"integer"}}}"#;
        let list = Schema::parse(Json::parse(list).expect("valid JSON").to_doc().root());
        let search = Schema { described_elsewhere: list.arguments, ..open };
        for (name, expected) in
            [("zip", "string"), ("zip_min", "string"), ("price_max", "number"), ("other", "any type")]
        {
            let found = search.find_by_pattern(name).map(|schema| schema.describe());
            assert_eq!(found.as_deref(), Some(expected), "{name}");
        }
        let strict = Json::parse(r#"{"properties":{"a":{}},"patternProperties":{"_(min|max)$":{}}}"#);
        let strict = strict.expect("valid JSON");
        let strict = Schema::parse(strict.to_doc().root());
        assert!(strict.find_by_pattern("a_mid").is_none());
        assert_eq!(strict.usage("call", "t"), "spile call t [a=TEXT] [NAME_min|_max=TEXT]…");
        assert_eq!(schema.patterns[1].placeholder(), "^x-");
    }

    #[test]
    fn a_usage_line_shows_required_and_optional_arguments() {
        let json = Json::parse(
            r#"{"properties":{"email":{"type":"string"},"plan":{"enum":["a","b"]},"n":{"type":"integer"},"on":{"type":"boolean"},"x":{"type":"object"},"since":{"type":"string","format":"date"},"tags":{"type":"array","items":{"type":"string"}},"fields":{"type":"array","items":{"enum":["a","b","c","d","e"]}},"sort":{"enum":["a","-a","b","-b","c","-c"]},"many":{"enum":["a","b","c","d","e"]}},"required":["email","n"]}"#,
        );
        let doc = json.expect("valid JSON").to_doc();
        let usage = Schema::parse(doc.root()).usage("call", "t");
        assert_eq!(
            usage,
            "spile call t email=TEXT [plan=a|b] n=NUMBER [on=true|false] [x=JSON] [since=DATE] [tags=TEXT]… \
             [fields=NAME]… [sort=FIELD|-FIELD] [many=a|b|c|…]"
        );
    }
}
