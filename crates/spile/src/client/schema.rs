//! What a tool takes, as far as its schema says so in words that are understood here.
//!
//! Only as much of JSON Schema as a command line needs: names, kinds, choices. The server judges the rest.

use json::{Json, Kind, Node};

/// How deep a schema is followed.
const DEPTH_MAX: usize = 8;

/// The arguments of a tool.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    pub(crate) arguments: Vec<Argument>,
    pub(crate) others: Others,
}

/// Arguments that the schema does not name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// It does not say, so they are allowed, and most probably slips.
    #[default]
    Unsaid,
    Welcome,
    Forbidden,
}

#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) is_required: bool,
    pub(crate) shape: Shape,
}

/// What a value may be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    pub(crate) kinds: Kinds,
    /// If there are any, it is one of these.
    pub(crate) choices: Vec<Json>,
    /// Of an array.
    pub(crate) item: Option<Box<Shape>>,
    pub(crate) format: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) default: Option<Json>,
}

/// A set of JSON's kinds. An empty one says nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
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

    fn named(name: &str) -> Self {
        Self::NAMES.iter().find(|(_, known)| *known == name).map_or(Self(0), |(kind, _)| *kind)
    }

    fn of(node: Node<'_>) -> Self {
        match node.kind() {
            Kind::Null => Self::NULL,
            Kind::True | Kind::False => Self::BOOLEAN,
            Kind::Number => Self::NUMBER,
            Kind::String => Self::STRING,
            Kind::Array => Self::ARRAY,
            Kind::Object => Self::OBJECT,
        }
    }

    fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub(crate) fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }

    pub(crate) fn is_unsaid(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn without(self, kind: Self) -> Self {
        Self(self.0 & !kind.0)
    }

    fn words(self) -> Vec<&'static str> {
        Self::NAMES.iter().filter(|(kind, _)| self.has(*kind)).map(|(_, name)| *name).collect()
    }
}

impl Schema {
    pub(crate) fn read(root: Node<'_>) -> Self {
        let mut schema = Self::default();
        schema.gather(root, root, DEPTH_MAX);
        schema
    }

    /// A prompt's arguments are texts.
    pub(crate) fn of_prompt(prompt: Node<'_>) -> Self {
        let arguments = prompt.get("arguments").into_iter().flat_map(|all| all.elements());
        let read = |one: Node<'_>| {
            let is_required = one.get("required").and_then(|flag| flag.bool()).unwrap_or(false);
            let shape = Shape { kinds: Kinds::STRING, ..Shape::default() };
            Some(Argument { name: one.get("name")?.str()?.into_owned(), is_required, shape })
        };
        Self { arguments: arguments.filter_map(read).collect(), others: Others::Forbidden }
    }

    fn gather(&mut self, root: Node<'_>, node: Node<'_>, depth: usize) {
        if depth == 0 {
            return;
        }
        if let Some(there) = target(root, node) {
            self.gather(root, there, depth - 1);
        }
        for part in node.get("allOf").into_iter().flat_map(|parts| parts.elements()) {
            self.gather(root, part, depth - 1);
        }
        for (key, shape) in node.get("properties").into_iter().flat_map(|all| all.members()) {
            let name = key.str().unwrap_or_default().into_owned();
            let shape = Shape::read(root, shape);
            match self.arguments.iter_mut().find(|argument| argument.name == name) {
                Some(argument) => argument.shape = shape,
                None => self.arguments.push(Argument { name, is_required: false, shape }),
            }
        }
        for name in node.get("required").into_iter().flat_map(|names| names.elements()) {
            let Some(name) = name.str() else { continue };
            match self.arguments.iter_mut().find(|argument| argument.name == *name) {
                Some(argument) => argument.is_required = true,
                None => self.arguments.push(Argument {
                    name: name.into_owned(),
                    is_required: true,
                    shape: Shape::default(),
                }),
            }
        }
        match node.get("additionalProperties").map(|others| others.kind()) {
            Some(Kind::False) => self.others = Others::Forbidden,
            Some(_) => self.others = Others::Welcome,
            None if node.get("patternProperties").is_some() => self.others = Others::Welcome,
            None => {}
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.name == name)
    }

    /// `email* plan? limit?`
    pub(crate) fn in_short(&self) -> Vec<String> {
        self.arguments
            .iter()
            .map(|argument| format!("{}{}", argument.name, if argument.is_required { "*" } else { "?" }))
            .collect()
    }

    /// `spile call lookup_customer email=TEXT [plan=free|emerald|ruby]`
    pub(crate) fn usage(&self, tool: &str) -> String {
        let words = self.arguments.iter().map(|argument| {
            let word = format!("{}={}", argument.name, argument.shape.placeholder());
            if argument.is_required { word } else { format!("[{word}]") }
        });
        let words: Vec<String> = words.collect();
        format!("spile call {tool} {}", words.join(" ")).trim_end().to_owned()
    }
}

impl Shape {
    pub(crate) fn read(root: Node<'_>, node: Node<'_>) -> Self {
        Self::at(root, node, DEPTH_MAX)
    }

    fn at(root: Node<'_>, node: Node<'_>, depth: usize) -> Self {
        let mut shape = Self::default();
        if depth == 0 || !node.is_object() {
            return shape;
        }
        if let Some(there) = target(root, node) {
            shape = Self::at(root, there, depth - 1);
        }
        let text = |key: &str| node.get(key).and_then(|text| text.str()).map(|text| text.into_owned());
        match node.get("type") {
            Some(one) if one.kind() == Kind::String => {
                shape.kinds = Kinds::named(&one.str().unwrap_or_default())
            }
            Some(several) => {
                shape.kinds = several
                    .elements()
                    .filter_map(|kind| kind.str())
                    .fold(Kinds(0), |all, kind| all.and(Kinds::named(&kind)));
            }
            None => {}
        }
        if let Some(choices) = node.get("enum") {
            shape.choices = choices.elements().map(Json::from).collect();
        } else if let Some(only) = node.get("const") {
            shape.choices = vec![Json::from(only)];
        }
        for part in node.get("allOf").into_iter().flat_map(|parts| parts.elements()) {
            let part = Self::at(root, part, depth - 1);
            shape.take_missing(part);
        }
        for key in ["anyOf", "oneOf"] {
            let Some(parts) = node.get(key) else { continue };
            shape.take_missing(Self::either(parts.elements().map(|part| Self::at(root, part, depth - 1))));
        }
        if let Some(item) = node.get("items").filter(Node::is_object) {
            shape.item = Some(Box::new(Self::at(root, item, depth - 1)));
        }
        shape.format = text("format").or(shape.format);
        shape.description = text("description").or_else(|| text("title")).or(shape.description);
        shape.default = node.get("default").map(Json::from).or(shape.default);
        if shape.kinds.is_unsaid() {
            let kinds = shape.choices.iter().map(|choice| Kinds::of(choice.doc().root()));
            shape.kinds = kinds.fold(Kinds(0), Kinds::and);
        }
        shape
    }

    fn take_missing(&mut self, other: Self) {
        if self.kinds.is_unsaid() {
            self.kinds = other.kinds;
        }
        if self.choices.is_empty() {
            self.choices = other.choices;
        }
        self.item = self.item.take().or(other.item);
        self.format = self.format.take().or(other.format);
        self.description = self.description.take().or(other.description);
    }

    /// What is one of several.
    fn either(parts: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::default();
        let (mut says_all, mut chooses_all) = (true, true);
        for part in parts {
            says_all &= !part.kinds.is_unsaid();
            let is_null = part.kinds == Kinds::NULL;
            chooses_all &= is_null || !part.choices.is_empty();
            all.kinds = all.kinds.and(part.kinds);
            all.choices.extend(part.choices);
            if !is_null {
                all.format = all.format.or(part.format);
                all.item = all.item.or(part.item);
            }
        }
        if !says_all {
            all.kinds = Kinds(0);
        }
        if !chooses_all {
            all.choices.clear();
        }
        all
    }

    /// `string (email)`, `array of integer`, `free, emerald or ruby`
    pub(crate) fn in_words(&self) -> String {
        if !self.choices.is_empty() {
            let choices: Vec<String> = self.choices.iter().map(spoken).collect();
            return contract::words::some(&choices, 40);
        }
        let mut words = self.kinds.words().join(" or ");
        if words.is_empty() {
            words.push_str("anything");
        }
        if self.kinds.has(Kinds::ARRAY)
            && let Some(item) = &self.item
        {
            words.push_str(&format!(" of {}", item.in_words()));
        }
        if let Some(format) = &self.format {
            words.push_str(&format!(" ({format})"));
        }
        words
    }

    fn placeholder(&self) -> String {
        let kinds = self.kinds.without(Kinds::NULL);
        if !self.choices.is_empty() && self.choices.len() <= 4 {
            return self.choices.iter().map(spoken).collect::<Vec<_>>().join("|");
        }
        if kinds == Kinds::INTEGER || kinds == Kinds::NUMBER {
            "NUMBER".to_owned()
        } else if kinds == Kinds::BOOLEAN {
            "true|false".to_owned()
        } else if kinds == Kinds::ARRAY || kinds == Kinds::OBJECT {
            "JSON".to_owned()
        } else {
            "TEXT".to_owned()
        }
    }
}

/// A value as one types it.
pub(crate) fn spoken(value: &Json) -> String {
    let doc = value.doc();
    doc.root().str().map_or_else(|| value.as_str().to_owned(), |text| text.into_owned())
}

/// Where a `$ref` within the same schema points to. One that leaves it is not followed.
fn target<'d>(root: Node<'d>, node: Node<'d>) -> Option<Node<'d>> {
    let reference = node.get("$ref")?.str()?;
    let path = reference.strip_prefix("#/")?;
    path.split('/').try_fold(root, |at, step| at.get(&step.replace("~1", "/").replace("~0", "~")))
}

#[cfg(test)]
mod tests {
    use super::{Others, Schema};
    use json::Json;

    #[track_caller]
    fn check(schema: &str, expected: &str) {
        let json = Json::parse(schema).expect("JSON");
        let doc = json.doc();
        let schema = Schema::read(doc.root());
        let all: Vec<String> = schema
            .arguments
            .iter()
            .map(|one| {
                format!("{}{} {}", one.name, if one.is_required { "*" } else { "" }, one.shape.in_words())
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
            ("{}", Others::Unsaid),
            (r#"{"additionalProperties":false}"#, Others::Forbidden),
            (r#"{"additionalProperties":{"type":"string"}}"#, Others::Welcome),
            (r#"{"patternProperties":{"^x-":{}}}"#, Others::Welcome),
        ] {
            let json = Json::parse(schema).expect("JSON");
            let doc = json.doc();
            assert_eq!(Schema::read(doc.root()).others, expected, "{schema}");
        }
    }

    #[test]
    fn a_usage_line_can_be_typed() {
        let json = Json::parse(
            r#"{"properties":{"email":{"type":"string"},"plan":{"enum":["a","b"]},"n":{"type":"integer"},"on":{"type":"boolean"},"x":{"type":"object"}},"required":["email","n"]}"#,
        );
        let doc = json.expect("JSON").doc();
        let usage = Schema::read(doc.root()).usage("t");
        assert_eq!(usage, "spile call t email=TEXT [plan=a|b] n=NUMBER [on=true|false] [x=JSON]");
    }
}
