//! The input schema from the handler's types, as a table.

use crate::harness::{build, folder};

fn check(parameter: &str, declarations: &str, expected: &str) {
    let source = format!("{declarations}\nexport default (args: {parameter}) => null;");
    let folder = folder(&[("tools/t.ts", &source)]);
    let bundle = build(folder.path());
    let actual = match &bundle.tools[0] {
        Ok(tool) => tool.definition.input_schema.to_string(),
        Err(diagnostic) => format!("{}: {}", diagnostic.location(), diagnostic.message),
    };
    assert_eq!(actual, expected, "{parameter}");
}

#[test]
fn types_become_json_schema() {
    let object = |properties: &str, required: &str| {
        format!(r#"{{"type":"object","properties":{{{properties}}}{required},"additionalProperties":false}}"#)
    };
    for (parameter, declarations, expected) in [
        ("{ a: string; b?: number }", "", object(r#""a":{"type":"string"},"b":{"type":"number"}"#, r#","required":["a"]"#)),
        ("{ a: 'x' | 'y' }", "", object(r#""a":{"type":"string","enum":["x","y"]}"#, r#","required":["a"]"#)),
        ("{ a: 1 | -2 | null }", "", object(r#""a":{"enum":[1,-2,null]}"#, r#","required":["a"]"#)),
        ("{ a: string | number }", "", object(r#""a":{"type":["string","number"]}"#, r#","required":["a"]"#)),
        ("{ a: string | undefined }", "", object(r#""a":{"type":"string"}"#, "")),
        ("{ a: string[]; b: Array<boolean> }", "", object(
            r#""a":{"type":"array","items":{"type":"string"}},"b":{"type":"array","items":{"type":"boolean"}}"#,
            r#","required":["a","b"]"#,
        )),
        ("{ a: [string, number] }", "", object(
            r#""a":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"minItems":2,"maxItems":2}"#,
            r#","required":["a"]"#,
        )),
        ("Input", "interface Base { id: number }\ninterface Input extends Base { /** The name. */ name: string }", object(
            r#""id":{"type":"number"},"name":{"type":"string","description":"The name."}"#,
            r#","required":["id","name"]"#,
        )),
        ("A & { b: string }", "type A = { a: string };", object(
            r#""a":{"type":"string"},"b":{"type":"string"}"#, r#","required":["a","b"]"#,
        )),
        ("Partial<A>", "export type A = { a: string };", object(r#""a":{"type":"string"}"#, "")),
        ("Omit<A, 'b'>", "type A = { a: string; b: string };", object(r#""a":{"type":"string"}"#, r#","required":["a"]"#)),
        ("{ c: Colour }", "enum Colour { Red = 'red', Blue = 'blue' }", object(
            r#""c":{"enum":["red","blue"]}"#, r#","required":["c"]"#,
        )),
        (
            "{\n/**\n * How many.\n * @minimum 1\n * @default 10\n * @integer\n */\nlimit?: number }", "",
            object(r#""limit":{"type":"integer","description":"How many.","minimum":1,"default":10}"#, ""),
        ),
        ("Record<string, number>", "", r#"{"type":"object","additionalProperties":{"type":"number"}}"#.into()),
        ("any", "", r#"{"type":"object"}"#.into()),
        ("Tree", "type Tree = { value: string; children?: Tree[] };", concat!(
            r##"{"type":"object","properties":{"value":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/Tree"}}},"##,
            r##""required":["value"],"additionalProperties":false,"$defs":{"Tree":{"type":"object","properties":{"value":{"type":"string"},"##,
            r##""children":{"type":"array","items":{"$ref":"#/$defs/Tree"}}},"required":["value"],"additionalProperties":false}}}"##,
        ).into()),
    ] {
        check(parameter, declarations, &expected);
    }
}

#[test]
fn a_handler_without_types_takes_any_object_and_one_without_parameters_none() {
    for (source, expected) in [
        ("export default (args) => null", r#"{"type":"object"}"#),
        (
            "export default function () {}",
            r#"{"type":"object","properties":{},"additionalProperties":false}"#,
        ),
        (
            "const run = async (args: { a: string }) => 1; export default run;",
            r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}"#,
        ),
    ] {
        let folder = folder(&[("tools/t.ts", source)]);
        let bundle = build(folder.path());
        let tool = bundle.tools[0].as_ref().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(tool.definition.input_schema.to_string(), expected);
    }
}

#[test]
fn what_cannot_be_derived_is_refused_where_it_stands() {
    let prefix = "the input schema cannot be derived from the handler's types:";
    for (parameter, declarations, expected) in [
        (
            "string",
            "",
            "tools/t.ts:2:23: PREFIX the first parameter must be an object: clients send named arguments",
        ),
        (
            "{ a: Date }",
            "",
            "tools/t.ts:2:28: PREFIX a Date is not JSON; use a string with `@format date-time`",
        ),
        ("{ a: () => void }", "", "tools/t.ts:2:28: PREFIX it is not JSON"),
        (
            "{ a: keyof X }",
            "type X = {}",
            "tools/t.ts:2:28: PREFIX this type cannot be read without the TypeScript compiler",
        ),
        (
            "{ a: Box<string> }",
            "type Box<T> = { v: T }",
            "tools/t.ts:2:28: PREFIX the generic type `Box` is not supported",
        ),
        ("Missing", "", "tools/t.ts:2:23: PREFIX the type `Missing` is not declared in this file"),
        ("{ a: bigint }", "", "tools/t.ts:2:28: PREFIX it is not JSON"),
        ("{ run(): void }", "", "tools/t.ts:2:25: PREFIX functions are not JSON"),
    ] {
        check(parameter, declarations, &expected.replace("PREFIX", prefix));
    }
}
