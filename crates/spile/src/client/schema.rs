//! What a tool takes, as far as its schema says so in words that are understood here.
//!
//! Only as much of JSON Schema as a command line needs: names, kinds, choices. The server judges the rest.

use json::{Json, Node, NodeKind};

/// How deep a schema is followed.
const DEPTH_MAX: usize = 8;

/// The arguments of a tool.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) arguments: Vec<Argument>,
    pub(crate) additional: AdditionalProperties,
}

/// Arguments that the schema does not name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdditionalProperties {
    /// It does not say, so they are allowed, and most probably slips.
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

/// What a value may be.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueSchema {
    pub(crate) types: TypeSet,
    /// If there are any, it is one of these.
    pub(crate) choices: Vec<Json>,
    /// Of an array.
    pub(crate) item: Option<Box<ValueSchema>>,
    pub(crate) format: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) default: Option<Json>,
}

/// A set of JSON's kinds. An empty one says nothing.
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

    /// A prompt's arguments are texts.
    pub(crate) fn from_prompt(prompt: Node<'_>) -> Self {
        let arguments = prompt.get("arguments").into_iter().flat_map(|all| all.elements());
        let read = |one: Node<'_>| {
            let is_required = one.get("required").and_then(|flag| flag.bool()).unwrap_or(false);
            let shape = ValueSchema { types: TypeSet::STRING, ..ValueSchema::default() };
            Some(Argument { name: one.get("name")?.str()?.into_owned(), is_required, schema: shape })
        };
        Self { arguments: arguments.filter_map(read).collect(), additional: AdditionalProperties::Forbidden }
    }

    fn collect_arguments(&mut self, root: Node<'_>, node: Node<'_>, depth: usize) {
        if depth == 0 {
            return;
        }
        if let Some(there) = resolve_ref(root, node) {
            self.collect_arguments(root, there, depth - 1);
        }
        for part in node.get("allOf").into_iter().flat_map(|parts| parts.elements()) {
            self.collect_arguments(root, part, depth - 1);
        }
        for (key, shape) in node.get("properties").into_iter().flat_map(|all| all.members()) {
            let name = key.str().unwrap_or_default().into_owned();
            let shape = ValueSchema::parse(root, shape);
            match self.arguments.iter_mut().find(|argument| argument.name == name) {
                Some(argument) => argument.schema = shape,
                None => self.arguments.push(Argument { name, is_required: false, schema: shape }),
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
        match node.get("additionalProperties").map(|others| others.kind()) {
            Some(NodeKind::False) => self.additional = AdditionalProperties::Forbidden,
            Some(_) => self.additional = AdditionalProperties::Allowed,
            None if node.get("patternProperties").is_some() => {
                self.additional = AdditionalProperties::Allowed
            }
            None => {}
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.name == name)
    }

    /// `email* plan? limit?`
    pub(crate) fn summary(&self) -> Vec<String> {
        self.arguments
            .iter()
            .map(|argument| format!("{}{}", argument.name, if argument.is_required { "*" } else { "?" }))
            .collect()
    }

    /// `spile call lookup_customer email=TEXT [plan=free|emerald|ruby]`
    pub(crate) fn usage(&self, tool: &str) -> String {
        let words = self.arguments.iter().map(|argument| {
            let word = format!("{}={}", argument.name, argument.schema.placeholder());
            if argument.is_required { word } else { format!("[{word}]") }
        });
        let words: Vec<String> = words.collect();
        format!("spile call {tool} {}", words.join(" ")).trim_end().to_owned()
    }
}

impl ValueSchema {
    pub(crate) fn parse(root: Node<'_>, node: Node<'_>) -> Self {
        Self::parse_at_depth(root, node, DEPTH_MAX)
    }

    fn parse_at_depth(root: Node<'_>, node: Node<'_>, depth: usize) -> Self {
        let mut shape = Self::default();
        if depth == 0 || !node.is_object() {
            return shape;
        }
        if let Some(there) = resolve_ref(root, node) {
            shape = Self::parse_at_depth(root, there, depth - 1);
        }
        let text = |key: &str| node.get(key).and_then(|text| text.str()).map(|text| text.into_owned());
        match node.get("type") {
            Some(one) if one.kind() == NodeKind::String => {
                shape.types = TypeSet::from_name(&one.str().unwrap_or_default())
            }
            Some(several) => {
                shape.types = several
                    .elements()
                    .filter_map(|kind| kind.str())
                    .fold(TypeSet(0), |all, kind| all.union(TypeSet::from_name(&kind)));
            }
            None => {}
        }
        if let Some(choices) = node.get("enum") {
            shape.choices = choices.elements().map(Json::from).collect();
        } else if let Some(only) = node.get("const") {
            shape.choices = vec![Json::from(only)];
        }
        for part in node.get("allOf").into_iter().flat_map(|parts| parts.elements()) {
            let part = Self::parse_at_depth(root, part, depth - 1);
            shape.merge_missing(part);
        }
        for key in ["anyOf", "oneOf"] {
            let Some(parts) = node.get(key) else { continue };
            shape.merge_missing(Self::any_of(
                parts.elements().map(|part| Self::parse_at_depth(root, part, depth - 1)),
            ));
        }
        if let Some(item) = node.get("items").filter(Node::is_object) {
            shape.item = Some(Box::new(Self::parse_at_depth(root, item, depth - 1)));
        }
        shape.format = text("format").or(shape.format);
        shape.description = text("description").or_else(|| text("title")).or(shape.description);
        shape.default = node.get("default").map(Json::from).or(shape.default);
        if shape.types.is_empty() {
            let kinds = shape.choices.iter().map(|choice| TypeSet::of_value(choice.to_doc().root()));
            shape.types = kinds.fold(TypeSet(0), TypeSet::union);
        }
        shape
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

    /// What is one of several.
    fn any_of(parts: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::default();
        let (mut says_all, mut chooses_all) = (true, true);
        for part in parts {
            says_all &= !part.types.is_empty();
            let is_null = part.types == TypeSet::NULL;
            chooses_all &= is_null || !part.choices.is_empty();
            all.types = all.types.union(part.types);
            all.choices.extend(part.choices);
            if !is_null {
                all.format = all.format.or(part.format);
                all.item = all.item.or(part.item);
            }
        }
        if !says_all {
            all.types = TypeSet(0);
        }
        if !chooses_all {
            all.choices.clear();
        }
        all
    }

    /// `string (email)`, `array of integer`, `free, emerald or ruby`
    pub(crate) fn describe(&self) -> String {
        if !self.choices.is_empty() {
            let choices: Vec<String> = self.choices.iter().map(display_text).collect();
            return contract::humanize::join_truncated(&choices, 40);
        }
        let mut words = self.types.names().join(" or ");
        if words.is_empty() {
            words.push_str("anything");
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

    fn placeholder(&self) -> String {
        let kinds = self.types.without(TypeSet::NULL);
        if !self.choices.is_empty() && self.choices.len() <= 4 {
            return self.choices.iter().map(display_text).collect::<Vec<_>>().join("|");
        }
        if kinds == TypeSet::INTEGER || kinds == TypeSet::NUMBER {
            "NUMBER".to_owned()
        } else if kinds == TypeSet::BOOLEAN {
            "true|false".to_owned()
        } else if kinds == TypeSet::ARRAY || kinds == TypeSet::OBJECT {
            "JSON".to_owned()
        } else {
            "TEXT".to_owned()
        }
    }
}

/// A value as one types it.
pub(crate) fn display_text(value: &Json) -> String {
    let doc = value.to_doc();
    doc.root().str().map_or_else(|| value.as_str().to_owned(), |text| text.into_owned())
}

/// Where a `$ref` within the same schema points to. One that leaves it is not followed.
fn resolve_ref<'d>(root: Node<'d>, node: Node<'d>) -> Option<Node<'d>> {
    let reference = node.get("$ref")?.str()?;
    let path = reference.strip_prefix("#/")?;
    path.split('/').try_fold(root, |at, step| at.get(&step.replace("~1", "/").replace("~0", "~")))
}

#[cfg(test)]
mod tests {
    use super::{AdditionalProperties, Schema};
    use json::Json;

    #[track_caller]
    fn check(schema: &str, expected: &str) {
        let json = Json::parse(schema).expect("JSON");
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
    fn kinds_are_read_in_all_their_spellings() {
        check(r#"{"properties":{"a":{"type":"string"}},"required":["a"]}"#, "a* string");
        check(r#"{"properties":{"a":{"type":["integer","null"]}}}"#, "a integer or null");
        check(
            r#"{"properties":{"a":{"anyOf":[{"type":"string","format":"date"},{"type":"null"}]}}}"#,
            "a string or null (date)",
        );
        check(r#"{"properties":{"a":{"enum":["x","y",3]}}}"#, "a x, y, 3");
        check(r#"{"properties":{"a":{"oneOf":[{"const":"x","title":"X"},{"const":"y"}]}}}"#, "a x, y");
        check(r#"{"properties":{"a":{"type":"array","items":{"type":"number"}}}}"#, "a array of number");
        check(r#"{"properties":{"a":{}}}"#, "a anything");
        check(r##"{"$defs":{"d":{"type":"object"}},"properties":{"a":{"$ref":"#/$defs/d"}}}"##, "a object");
        check(
            r#"{"allOf":[{"properties":{"a":{"type":"boolean"}}},{"required":["a","b"]}]}"#,
            "a* boolean; b* anything",
        );
    }

    #[test]
    fn a_schema_may_be_anything() {
        check("true", "");
        check(r#"{"properties":7,"required":{"a":1}}"#, "");
        check(
            r#"{"properties":{"a":true,"b":{"type":7},"c":{"type":"tree"}}}"#,
            "a anything; b anything; c anything",
        );
        // It never ends, and is left at some point.
        check(r##"{"properties":{"a":{"$ref":"#/properties/a"}}}"##, "a anything");
        check(r#"{"properties":{"a":{"$ref":"https://example.com/a.json"}}}"#, "a anything");
    }

    #[test]
    fn what_else_is_welcome() {
        for (schema, expected) in [
            ("{}", AdditionalProperties::Unspecified),
            (r#"{"additionalProperties":false}"#, AdditionalProperties::Forbidden),
            (r#"{"additionalProperties":{"type":"string"}}"#, AdditionalProperties::Allowed),
            (r#"{"patternProperties":{"^x-":{}}}"#, AdditionalProperties::Allowed),
        ] {
            let json = Json::parse(schema).expect("JSON");
            let doc = json.to_doc();
            assert_eq!(Schema::parse(doc.root()).additional, expected, "{schema}");
        }
    }

    #[test]
    fn a_usage_line_can_be_typed() {
        let json = Json::parse(
            r#"{"properties":{"email":{"type":"string"},"plan":{"enum":["a","b"]},"n":{"type":"integer"},"on":{"type":"boolean"},"x":{"type":"object"}},"required":["email","n"]}"#,
        );
        let doc = json.expect("JSON").to_doc();
        let usage = Schema::parse(doc.root()).usage("t");
        assert_eq!(usage, "spile call t email=TEXT [plan=a|b] n=NUMBER [on=true|false] [x=JSON]");
    }
}
