//! The compatibility of changes, as a table.

use std::collections::BTreeMap;

use contract::Confirm;
use contract::compatibility::{
    Compatibility, ContractInterface, ToolInterface, compare_interfaces, overall_compatibility,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use spile_core::{TaskSupport, ToolAnnotations};

fn tool_interface(input: Value, output: Value) -> ToolInterface {
    let (words, annotations) = (String::new(), ToolAnnotations::default());
    ToolInterface {
        text_digest: words,
        annotations,
        confirm: Confirm::Never,
        task_support: TaskSupport::Forbidden,
        input_schema: input,
        output_schema: output,
    }
}

fn contract_with(promise: ToolInterface) -> ContractInterface {
    ContractInterface {
        instructions_digest: String::new(),
        tools: BTreeMap::from([("t".to_owned(), promise)]),
        roles: BTreeMap::new(),
    }
}

/// An object schema with these properties, some of them required.
fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

#[track_caller]
fn assert_differences(
    old: &ContractInterface,
    new: &ContractInterface,
    verdict: Compatibility,
    lines: &[&str],
) {
    let found = compare_interfaces(old, new);
    let all: Vec<String> = found.iter().map(|one| format!("{} {one}", one.compatibility.as_str())).collect();
    assert_eq!(all, lines);
    assert_eq!(overall_compatibility(&found), verdict);
    // A schema has no differences from itself.
    assert_eq!((compare_interfaces(old, old), compare_interfaces(new, new)), (vec![], vec![]));
}

/// The schema as an argument `a`.
#[track_caller]
fn assert_input_change(was: Value, is: Value, verdict: Compatibility, line: &str) {
    let whole = |a: Value| contract_with(tool_interface(object(json!({ "a": a }), &[]), json!({})));
    assert_differences(&whole(was), &whole(is), verdict, &[line]);
}

/// The schema as a field `a` of the items of a list.
#[track_caller]
fn assert_output_change(was: Value, is: Value, verdict: Compatibility, line: &str) {
    let list = |a: Value| {
        let item = object(json!({ "a": a }), &["a"]);
        let page = object(json!({"items": {"type": "array", "items": item}}), &["items"]);
        let failure = json!({"properties": {"code": {"type": "string"}}, "required": ["code"]});
        contract_with(tool_interface(json!({}), json!({"type": "object", "anyOf": [page, failure]})))
    };
    assert_differences(&list(was), &list(is), verdict, &[line]);
}

use Compatibility::{Breaking, Compatible, TextOnly};

const TAKES_MORE: &str = "it accepts more than before";
const TAKES_LESS: &str = "arguments that were valid may be refused";
const TELLS_LESS: &str = "it returns nothing new";
const TELLS_MORE: &str = "clients may receive values that they do not expect";

/// Asserts the compatibility of a keyword that narrows from left to right, on both sides and in both directions.
#[track_caller]
fn assert_narrowing(wide: Value, narrow: Value, narrower: &str, wider: &str) {
    let of = |side: &str, verdict: &str, what: &str, why: &str| format!("{verdict} t {side}: {what}; {why}");
    let (a, b) = (wide, narrow);
    assert_input_change(a.clone(), b.clone(), Breaking, &of("input.a", "breaking", narrower, TAKES_LESS));
    assert_input_change(b.clone(), a.clone(), Compatible, &of("input.a", "compatible", wider, TAKES_MORE));
    assert_output_change(
        a.clone(),
        b.clone(),
        Compatible,
        &of("output.items[].a", "compatible", narrower, TELLS_LESS),
    );
    assert_output_change(b, a, Breaking, &of("output.items[].a", "breaking", wider, TELLS_MORE));
}

#[test]
fn a_narrower_input_and_a_wider_output_are_breaking() {
    let text = || json!({"type": "string"});
    assert_narrowing(
        json!({"type": ["string", "null"]}),
        text(),
        "it is never null any more",
        "it may be null too",
    );
    assert_narrowing(
        json!({"type": "number"}),
        json!({"type": "integer"}),
        "it is never number any more",
        "it may be number too",
    );
    assert_narrowing(
        json!({}),
        text(),
        "it is never array or boolean or integer or null or number or object any more",
        "it may be array or boolean or integer or null or number or object too",
    );
    assert_narrowing(
        json!({"enum": ["free", "ruby", 7]}),
        json!({"enum": [7, "free"]}),
        "\"ruby\" is no longer allowed",
        "\"ruby\" is allowed now",
    );
    assert_narrowing(
        json!({"enum": ["x", "y"]}),
        json!({"const": "x"}),
        "\"y\" is no longer allowed",
        "\"y\" is allowed now",
    );
    assert_narrowing(
        text(),
        json!({"type": "string", "enum": ["a"]}),
        "only some values are allowed now",
        "every value is allowed now",
    );
    for (least, low, high) in
        [("minimum", 0, 1), ("minLength", 1, 2), ("minItems", 0, 3), ("exclusiveMinimum", 4, 5)]
    {
        assert_narrowing(
            json!({least: low}),
            json!({least: high}),
            &format!("`{least}` was {low} and is {high} now"),
            &format!("`{least}` was {high} and is {low} now"),
        );
    }
    for most in ["maximum", "maxLength", "exclusiveMaximum", "maxProperties"] {
        assert_narrowing(
            json!({most: 100}),
            json!({most: 50}),
            &format!("`{most}` was 100 and is 50 now"),
            &format!("`{most}` was 50 and is 100 now"),
        );
        assert_narrowing(
            json!({}),
            json!({most: 50}),
            &format!("`{most}` is 50 now"),
            &format!("`{most}` was 50 and was removed"),
        );
    }
    assert_narrowing(
        text(),
        json!({"type": "string", "format": "email"}),
        "`format` is \"email\" now",
        "`format` was \"email\" and was removed",
    );
    assert_narrowing(
        text(),
        json!({"type": "string", "pattern": "^x$"}),
        "`pattern` is \"^x$\" now",
        "`pattern` was \"^x$\" and was removed",
    );
    assert_narrowing(
        json!({"type": "array"}),
        json!({"type": "array", "uniqueItems": true}),
        "duplicates are no longer allowed",
        "duplicates are allowed now",
    );
    assert_narrowing(
        json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        json!({"anyOf": [{"type": "string"}]}),
        "a shape is no longer allowed",
        "another shape is allowed too",
    );
    assert_narrowing(
        json!({}),
        json!({"anyOf": [{"type": "string"}]}),
        "only some shapes are allowed now",
        "every shape is allowed now",
    );
}

#[test]
fn an_unknown_keyword_is_breaking_on_both_sides() {
    const UNSHOWN: &str = "compatibility cannot be determined";
    for (was, is, what) in [
        (json!({"format": "date"}), json!({"format": "email"}), "`format` was \"date\" and is \"email\" now"),
        (json!({"pattern": "a"}), json!({"pattern": "b"}), "`pattern` was \"a\" and is \"b\" now"),
        (json!({"not": {}}), json!({}), "`not` was {} and was removed"),
        (json!({}), json!({"$ref": "#/x"}), "`$ref` is \"#/x\" now"),
        (json!({"oneOf": []}), json!({"oneOf": [{}]}), "`oneOf` was [] and is [{}] now"),
        (
            json!({"x-mcp-header": "A"}),
            json!({"x-mcp-header": "B"}),
            "`x-mcp-header` was \"A\" and is \"B\" now",
        ),
        (json!({"maximum": 1}), json!({"maximum": "2"}), "`maximum` was 1 and is \"2\" now"),
        (json!({"anyOf": 1}), json!({"anyOf": []}), "`anyOf` is not a list"),
        (
            json!({"anyOf": [{"type": "string"}]}),
            json!({"anyOf": [{"type": "null"}, {"type": "integer"}]}),
            "its shapes changed",
        ),
        (json!(false), json!({}), "a schema that is `false` was added or removed"),
    ] {
        assert_input_change(
            was.clone(),
            is.clone(),
            Breaking,
            &format!("breaking t input.a: {what}; {UNSHOWN}"),
        );
        assert_output_change(was, is, Breaking, &format!("breaking t output.items[].a: {what}; {UNSHOWN}"));
    }
    let other = "it was string and is integer now";
    assert_input_change(
        json!({"type": "string"}),
        json!({"type": "integer"}),
        Breaking,
        &format!("breaking t input.a: {other}"),
    );
    assert_output_change(
        json!({"type": "string"}),
        json!({"type": "integer"}),
        Breaking,
        &format!("breaking t output.items[].a: {other}"),
    );
}

#[test]
fn a_changed_default_is_compatible() {
    let why = "`default` was 100 and is 50 now; calls without it behave differently";
    assert_input_change(
        json!({"default": 100}),
        json!({"default": 50}),
        Compatible,
        &format!("compatible t input.a: {why}"),
    );
}

#[test]
fn a_longer_list_is_compatible_in_the_output() {
    let (short, long, any) = (json!({"maxItems": 50}), json!({"maxItems": 100}), json!({}));
    let of = |side: &str, what: &str, why: &str| format!("{side}.a: `maxItems` {what}; {why}");
    let longer = "a list may be longer; a client that validates results with the old schema must list the tools \
                  again";
    for (was, is, what) in
        [(&short, &long, "was 50 and is 100 now"), (&long, &any, "was 100 and was removed")]
    {
        let (reader, caller) = ("compatible t output.items[]", "compatible t input");
        assert_output_change(was.clone(), is.clone(), Compatible, &of(reader, what, longer));
        assert_input_change(was.clone(), is.clone(), Compatible, &of(caller, what, TAKES_MORE));
    }
    for (was, is, what) in [(&long, &short, "was 100 and is 50 now"), (&any, &long, "is 100 now")] {
        let (reader, caller) = ("compatible t output.items[]", "breaking t input");
        assert_output_change(was.clone(), is.clone(), Compatible, &of(reader, what, TELLS_LESS));
        assert_input_change(was.clone(), is.clone(), Breaking, &of(caller, what, TAKES_LESS));
    }
    // No generated schema has such a value.
    let why =
        "breaking t output.items[].a: `maxItems` was 50 and is \"9\" now; compatibility cannot be determined";
    assert_output_change(short, json!({"maxItems": "9"}), Breaking, why);
}

#[test]
fn a_changed_sensitive_flag_is_text_only() {
    let (open, sensitive) = (json!({"type": "string"}), json!({"type": "string", "x-sensitive": true}));
    for (was, is, why) in [
        (&open, &sensitive, "it is sensitive now and must not be logged"),
        (&sensitive, &open, "it is no longer sensitive"),
    ] {
        assert_input_change(was.clone(), is.clone(), TextOnly, &format!("text-only t input.a: {why}"));
        assert_output_change(
            was.clone(),
            is.clone(),
            TextOnly,
            &format!("text-only t output.items[].a: {why}"),
        );
    }
}

#[test]
fn added_and_removed_arguments() {
    let text = || json!({"type": "string"});
    let of = |properties: Value, required: &[&str]| {
        contract_with(tool_interface(object(properties, required), json!({})))
    };
    let (a, b) = (of(json!({"a": text()}), &["a"]), of(json!({"a": text(), "b": text()}), &["a"]));
    assert_differences(&a, &b, Compatible, &["compatible t input.b: a new optional argument"]);
    assert_differences(
        &b,
        &a,
        Breaking,
        &["breaking t input.b: the argument was removed; calls with it are refused"],
    );
    let must = of(json!({"a": text(), "b": text()}), &["b", "a"]);
    let why = "breaking t input.b: a new required argument; calls without it are refused";
    assert_differences(&a, &must, Breaking, &[why]);
    assert_differences(
        &b,
        &must,
        Breaking,
        &["breaking t input.b: it is required now; calls without it are refused"],
    );
    assert_differences(&must, &b, Compatible, &["compatible t input.b: it is optional now"]);
    // With or without a description.
    let unnamed = of(json!({"a": text()}), &["a", "c"]);
    assert_differences(
        &a,
        &unnamed,
        Breaking,
        &["breaking t input.c: it is required now; calls without it are refused"],
    );
    let open = |properties: Value| {
        contract_with(tool_interface(json!({"type": "object", "properties": properties}), json!({})))
    };
    let why = "breaking t input.a: the argument was removed; calls with it ignore it";
    assert_differences(&open(json!({"a": {}})), &open(json!({})), Breaking, &[why]);
    assert_differences(
        &of(json!({}), &[]),
        &open(json!({})),
        Compatible,
        &["compatible t input: other names are allowed now; it accepts more than before"],
    );
    assert_differences(
        &open(json!({})),
        &of(json!({}), &[]),
        Breaking,
        &["breaking t input: other names are no longer allowed; arguments that were valid may be refused"],
    );
}

#[test]
fn added_and_removed_fields() {
    let of = |properties: Value, required: &[&str]| {
        contract_with(tool_interface(json!({}), object(properties, required)))
    };
    let (a, b) = (of(json!({"a": {}}), &["a"]), of(json!({"a": {}, "b": {}}), &["a", "b"]));
    let why = "compatible t output.b: a new field; a client that validates results with the old schema must list \
               the tools again";
    assert_differences(&a, &b, Compatible, &[why]);
    assert_differences(
        &b,
        &a,
        Breaking,
        &["breaking t output.b: the field was removed; clients that read it find nothing"],
    );
    let may = of(json!({"a": {}, "b": {}}), &["a"]);
    assert_differences(
        &b,
        &may,
        Breaking,
        &["breaking t output.b: it may be missing now; clients that rely on it find nothing"],
    );
    assert_differences(&may, &b, Compatible, &["compatible t output.b: it is always present now"]);
    let open = contract_with(tool_interface(
        json!({}),
        json!({"type": "object", "properties": {"a": {}}, "required": ["a"]}),
    ));
    let why = "compatible t output: other fields may occur now; clients ignore them";
    assert_differences(&a, &open, Compatible, &[why]);
    let other = |what: Value| contract_with(tool_interface(json!({}), json!({"additionalProperties": what})));
    assert_differences(
        &other(json!({"type": "string"})),
        &other(json!({"type": ["string", "null"]})),
        Breaking,
        &["breaking t output.*: it may be null too; clients may receive values that they do not expect"],
    );
    assert_differences(
        &other(json!({})),
        &other(json!(false)),
        Breaking,
        &["breaking t output: the schema of other names changed; compatibility cannot be determined"],
    );
}

#[test]
fn added_and_removed_tools() {
    let tool = || tool_interface(json!({}), json!({}));
    let none = ContractInterface::default();
    assert_differences(&none, &contract_with(tool()), Compatible, &["compatible t: the tool is new"]);
    assert_differences(
        &contract_with(tool()),
        &none,
        Breaking,
        &["breaking t: the tool was removed; calls to it fail"],
    );
    let words = contract_with(ToolInterface { text_digest: "other".into(), ..tool() });
    assert_differences(&contract_with(tool()), &words, TextOnly, &["text-only t: a description changed"]);
    let instructed = ContractInterface { instructions_digest: "x".into(), ..contract_with(tool()) };
    assert_differences(
        &contract_with(tool()),
        &instructed,
        TextOnly,
        &["text-only the instructions changed"],
    );
}

#[test]
fn changed_hints_are_classified() {
    let hinted =
        |annotations| contract_with(ToolInterface { annotations, ..tool_interface(json!({}), json!({})) });
    let reads = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    let writes = ToolAnnotations { read_only: Some(false), ..ToolAnnotations::default() };
    let unsaid = ToolAnnotations::default();
    let why = "breaking t readOnlyHint: the tool writes now; a client that allows reads without asking would not ask";
    assert_differences(&hinted(reads), &hinted(writes), Breaking, &[why]);
    assert_differences(&hinted(reads), &hinted(unsaid), Breaking, &[why]);
    assert_differences(&hinted(unsaid), &hinted(writes), Compatibility::Same, &[]);
    assert_differences(
        &hinted(writes),
        &hinted(reads),
        Compatible,
        &["compatible t readOnlyHint: the hint is true now"],
    );
    let adds = ToolAnnotations { destructive: Some(false), ..writes };
    let why = "breaking t destructiveHint: the tool can destroy data now; a client that allows additions without asking would not ask";
    assert_differences(&hinted(adds), &hinted(writes), Breaking, &[why]);
    assert_differences(
        &hinted(writes),
        &hinted(adds),
        Compatible,
        &["compatible t destructiveHint: the hint is false now"],
    );
    let again = ToolAnnotations { idempotent: Some(true), ..writes };
    let why = "breaking t idempotentHint: the tool is not idempotent any more; a client that retries it would repeat its effect";
    assert_differences(&hinted(again), &hinted(writes), Breaking, &[why]);
    let far = ToolAnnotations { open_world: Some(true), ..writes };
    let near = ToolAnnotations { open_world: Some(false), ..writes };
    assert_differences(
        &hinted(near),
        &hinted(far),
        Compatible,
        &["compatible t openWorldHint: the hint is true now"],
    );
}

#[test]
fn a_new_confirmation_is_breaking() {
    let tool = |confirm| contract_with(ToolInterface { confirm, ..tool_interface(json!({}), json!({})) });
    let (never, ask) = (tool(Confirm::Never), tool(Confirm::Ask));
    let why = "breaking t confirm: the user must confirm now; a client without elicitation is refused";
    assert_differences(&never, &ask, Breaking, &[why]);
    assert_differences(
        &ask,
        &never,
        Compatible,
        &["compatible t confirm: the user no longer has to confirm"],
    );
    assert_ne!(never.tools["t"].hash(), ask.tools["t"].hash());
}

#[test]
fn a_task_that_must_be_or_cannot_be_is_breaking() {
    let tool =
        |task_support| contract_with(ToolInterface { task_support, ..tool_interface(json!({}), json!({})) });
    let [forbidden, optional, required] =
        [TaskSupport::Forbidden, TaskSupport::Optional, TaskSupport::Required].map(tool);
    let must = "breaking t task: calls must become tasks now; a client without tasks is refused";
    let cannot = "breaking t task: calls cannot become tasks any more; a client that asks for one is refused";
    for (was, is, compatibility, why) in [
        (&forbidden, &optional, Compatible, "compatible t task: calls may become tasks now"),
        (&required, &optional, Compatible, "compatible t task: calls no longer have to become tasks"),
        (&forbidden, &required, Breaking, must),
        (&optional, &required, Breaking, must),
        (&optional, &forbidden, Breaking, cannot),
        (&required, &forbidden, Breaking, cannot),
    ] {
        assert_differences(was, is, compatibility, &[why]);
        assert_ne!(was.tools["t"].hash(), is.tools["t"].hash());
    }
}

/// Schemas like the generated ones.
fn schema() -> impl Strategy<Value = Value> {
    let types = prop::sample::subsequence(vec!["string", "integer", "number", "null"], 1..=4);
    let leaf = (types, prop::option::of(0..3i64), prop::option::of(3..6i64)).prop_map(|(types, min, max)| {
        let mut schema = json!({ "type": types });
        for (keyword, bound) in [("minimum", min), ("maximum", max)] {
            if let Some(bound) = bound {
                schema[keyword] = json!(bound);
            }
        }
        schema
    });
    let members = prop::collection::btree_map("[abc]", (leaf, any::<bool>()), 0..3);
    members.prop_map(|members| {
        let required: Vec<&String> = members.iter().filter(|(_, (_, must))| *must).map(|(name, _)| name).collect();
        let properties: BTreeMap<&String, &Value> = members.iter().map(|(name, (schema, _))| (name, schema)).collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!("x")),
        Just(json!(null)),
        (-1..8i64).prop_map(|n| json!(n)),
        Just(json!(2.5)),
    ];
    prop::collection::btree_map("[abc]", leaf, 0..4).prop_map(|members| json!(members))
}

fn is_valid(schema: &Value, value: &Value) -> bool {
    let schema = json::Json::parse(&schema.to_string()).expect("JSON");
    let check = contract::CompiledSchema::compile(&schema).expect("a schema");
    check.is_valid(&json::Json::parse(&value.to_string()).expect("JSON"))
}

proptest! {
    /// If the change is compatible, the new schema accepts everything that the old one accepts.
    #[test]
    fn a_compatible_input_accepts_everything_the_old_one_accepted(was in schema(), is in schema(), values in prop::collection::vec(value(), 20)) {
        let of = |input: &Value| contract_with(tool_interface(input.clone(), json!({})));
        if overall_compatibility(&compare_interfaces(&of(&was), &of(&is))) < Breaking {
            for value in &values {
                prop_assert!(!is_valid(&was, value) || is_valid(&is, value), "{value} fits {was} and not {is}");
            }
        }
    }

    /// If the change is compatible, the old schema accepts everything that the new one accepts, except new fields.
    #[test]
    fn a_compatible_output_is_valid_for_the_old_schema(was in schema(), is in schema(), values in prop::collection::vec(value(), 20)) {
        let of = |output: &Value| contract_with(tool_interface(json!({}), output.clone()));
        if overall_compatibility(&compare_interfaces(&of(&was), &of(&is))) < Breaking {
            for value in &values {
                let mut known = value.clone();
                known.as_object_mut().expect("an object").retain(|name, _| was["properties"].get(name).is_some());
                prop_assert!(!is_valid(&is, value) || is_valid(&was, &known), "{value} fits {is} and not {was}");
            }
        }
    }
}

#[test]
fn an_argument_that_a_new_pattern_allows_is_still_there() {
    let old = object(json!({"price": {"type": "string"}, "price_min": {"type": "string"}}), &[]);
    let mut new = object(json!({"price": {"type": ["string", "array"]}}), &[]);
    new["patternProperties"] = json!({"_(min|max)$": {}});
    let interface = |input: &Value| contract_with(tool_interface(input.clone(), json!({})));
    assert_differences(
        &interface(&old),
        &interface(&new),
        Compatible,
        &[
            "compatible t input.price: it may be array too; it accepts more than before",
            "compatible t input.price_min: it may be array or boolean or integer or null or number or object too; it \
             accepts more than before",
            "compatible t input: names that match `_(min|max)$` are allowed now; it accepts more than before",
        ],
    );
    let found = compare_interfaces(&interface(&new), &interface(&old));
    assert_eq!(overall_compatibility(&found), Breaking);

    let mut any = new.clone();
    any["patternProperties"] = json!({"^.": {}});
    assert_differences(
        &interface(&new),
        &interface(&any),
        Compatible,
        &["compatible t input: names that match `^.` are allowed now; it accepts more than before"],
    );
    let found = compare_interfaces(&interface(&any), &interface(&new));
    assert_eq!(overall_compatibility(&found), Breaking);
}
