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
        ("{ a: 1 | -2 | null }", "", object(r#""a":{"type":["integer","null"],"enum":[1,-2,null]}"#, r#","required":["a"]"#)),
        ("{ a: 1 | 2.5 | 'x' | true }", "", object(r#""a":{"type":["number","string","boolean"],"enum":[1,2.5,"x",true]}"#, r#","required":["a"]"#)),
        ("{ a: 7; b: 'x' | number }", "", object(
            r#""a":{"type":"integer","const":7},"b":{"anyOf":[{"type":"string","const":"x"},{"type":"number"}]}"#, r#","required":["a","b"]"#,
        )),
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
            r#""c":{"type":"string","enum":["red","blue"]}"#, r#","required":["c"]"#,
        )),
        (
            "{\n/**\n * How many.\n * @minimum 1\n * @default 10\n * @integer\n */\nlimit?: number }", "",
            object(r#""limit":{"type":"integer","description":"How many.","minimum":1,"default":10}"#, ""),
        ),
        ("Record<string, never>", "", r#"{"type":"object","additionalProperties":false}"#.into()),
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

/// Ways to export a handler whose first parameter is a `T`.
#[test]
fn the_type_is_found_however_the_handler_is_exported() {
    let expected = r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}"#;
    for source in [
        "export default (async (args: T) => 1) satisfies X;",
        "export default ((args: T) => 1) as unknown as X;",
        "export default (args => 1) as (args: T) => number;",
        "export default (async (args) => 1) satisfies Run;",
        "export default (<Run>(async (args) => 1));",
        "export default ((args: T) => 1)!;",
        "export const run = async (args: T) => 1; export default run;",
        "export function run(args: T) { return 1; } export default run;",
        "const run = (args: T) => 1; export { run as default };",
        "function run(args: T) { return 1; } export { run as default };",
        "function run(args: T): number; function run(args: T) { return 1; } export default run;",
        "const run: Run = async (args) => 1; export default run;",
        "const run: Tool<T> = async (args: T) => 1; export default run;",
        "function make() { return () => 1; } const run: (args: T) => number = make(); export { run as default };",
        "const first = (args: T) => 1; const run = first; export default run;",
    ] {
        let source = format!("type T = {{ a: string }}; type Run = (args: T) => Promise<number>;\n{source}");
        check_imported(&source, expected);
        check_imported(
            &format!("{}\nimport {{ T }} from '../lib/t2';", source.replace("type T = { a: string };", "")),
            expected,
        );
    }
    check_imported(
        "import type { Handler } from '../lib/t2';\nexport default ((args) => 1) satisfies Handler;",
        expected,
    );
}

#[test]
fn a_handler_whose_type_is_not_visible_is_refused_where_it_stands() {
    let prefix = "the input schema cannot be derived from the handler's types:";
    for (source, expected) in [
        (
            "export default wrap(async (args: { a: string }) => 1);",
            "tools/t.ts:1:16: PREFIX what a call returns shows no types",
        ),
        (
            "const run = wrap((args: { a: string }) => 1);\nexport default run;",
            "tools/t.ts:1:13: PREFIX what a call returns shows no types",
        ),
        (
            "import { run } from '../lib/t2';\nexport default run;",
            "tools/t.ts:2:16: PREFIX `run` is not a function of this file",
        ),
        (
            "import { run } from '../lib/t2';\nexport { run as default };",
            "tools/t.ts:2:10: PREFIX `run` is not a function of this file",
        ),
        (
            "export { run as default } from '../lib/t2';",
            "tools/t.ts:1:10: PREFIX the handler is in another file",
        ),
        (
            "const run: Tool<{ a: string }> = (args) => 1;\nexport default run;",
            "tools/t.ts:1:12: PREFIX this type cannot be read without the TypeScript compiler",
        ),
        (
            "export default ((args) => 1) satisfies Tool<{ a: string }>;",
            "tools/t.ts:1:40: PREFIX this type cannot be read without the TypeScript compiler",
        ),
        (
            "var a = b; var b = a; a = () => 1; export default a;",
            "tools/t.ts:1:20: PREFIX the handler is not a function of this file",
        ),
        (
            "const all = { run: (args: { a: string }) => 1 };\nexport default all.run;",
            "tools/t.ts:2:16: PREFIX the handler is not written as a function",
        ),
    ] {
        let source = format!("{source}\nfunction wrap(f: any) {{ return f; }}");
        check_imported(&source, &expected.replace("PREFIX", prefix));
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
        ("Missing", "", "tools/t.ts:2:23: PREFIX the type `Missing` is neither declared nor imported here"),
        ("{ a: bigint }", "", "tools/t.ts:2:28: PREFIX it is not JSON"),
        ("{ run(): void }", "", "tools/t.ts:2:25: PREFIX functions are not JSON"),
    ] {
        check(parameter, declarations, &expected.replace("PREFIX", prefix));
    }
}

/// Files beside `tools/t.ts` that its types come from.
const TYPES: &[(&str, &str)] = &[
    (
        "lib/types.ts",
        "import type { Id } from './ids';\n/** A place. */\nexport interface Place { id: Id; name?: string }\nexport type Tree = { left?: Tree };\ntype Hidden = { a: string };\nexport type { Id };",
    ),
    (
        "lib/ids.ts",
        "/** @pattern ^[a-z]+$ */\nexport type Id = string;\nexport type Broken = { at: Date };\nexport enum Kind { A = 'a', B = 'b' }",
    ),
    ("lib/circle.ts", "import { Round } from './circle2';\nexport { Round };"),
    ("lib/circle2.ts", "import { Round } from './circle';\nexport { Round };"),
    (
        "lib/t2.ts",
        "export type T = { a: string };\nexport type Handler = (args: T) => number;\nexport const run = (args: T) => 1;",
    ),
    ("lib/bad.ts", "export type Bad = {;"),
    ("lib/plain.js", "export const x = 1;"),
    ("node_modules/pkg/index.js", "export const x = 1;"),
    ("node_modules/pkg/package.json", r#"{"name":"pkg","main":"index.js"}"#),
];

fn check_imported(source: &str, expected: &str) {
    let files: Vec<(&str, &str)> = TYPES.iter().copied().chain([("tools/t.ts", source)]).collect();
    let folder = folder(&files);
    let bundle = build(folder.path());
    let actual = match &bundle.tools[0] {
        Ok(tool) => tool.definition.input_schema.to_string(),
        Err(diagnostic) => format!("{}: {}", diagnostic.location(), diagnostic.message),
    };
    assert_eq!(actual, expected, "{source}");
}

#[test]
fn types_of_other_files_are_read() {
    let place = concat!(
        r#"{"type":"object","properties":{"id":{"type":"string","pattern":"^[a-z]+$"},"name":{"type":"string"}},"#,
        r#""required":["id"],"additionalProperties":false,"description":"A place."}"#
    );
    for import in [
        "import type { Place } from '../lib/types';",
        "import { type Place } from '../lib/types';",
        "import { Place } from '../lib/types.js';",
        "import { Place as P, Tree } from '../lib/types.ts'; type Place = P;",
    ] {
        check_imported(&format!("{import}\nexport default (args: Place) => null;"), place);
    }
    check_imported(
        "import type { Place } from '../lib/types';\nimport { Kind } from '../lib/ids';\ninterface Input extends Omit2 { kind: Kind }\ntype Omit2 = Pick<Place, 'id'>;\nexport default (args: Input) => null;",
        r#"{"type":"object","properties":{"id":{"type":"string","pattern":"^[a-z]+$"},"kind":{"type":"string","enum":["a","b"]}},"required":["id","kind"],"additionalProperties":false}"#,
    );
    // The same name in two files.
    check_imported(
        "import { Tree as Other } from '../lib/types';\ntype Tree = { right?: Tree; other?: Other };\nexport default (args: { tree: Tree }) => null;",
        concat!(
            r##"{"type":"object","properties":{"tree":{"$ref":"#/$defs/Tree"}},"required":["tree"],"additionalProperties":false,"$defs":{"##,
            r##""Tree":{"type":"object","properties":{"right":{"$ref":"#/$defs/Tree"},"other":{"$ref":"#/$defs/Tree_1"}},"additionalProperties":false},"##,
            r##""Tree_1":{"type":"object","properties":{"left":{"$ref":"#/$defs/Tree_1"}},"additionalProperties":false}}}"##
        ),
    );
}

#[test]
fn types_of_other_files_that_cannot_be_read_are_refused_where_they_stand() {
    let prefix = "the input schema cannot be derived from the handler's types:";
    for (import, parameter, expected) in [
        (
            "import type { X } from 'pkg';",
            "X",
            "tools/t.ts:2:23: PREFIX the type `X` is imported from `pkg`, which is a package; only types of the folder's own files are read",
        ),
        (
            "import type { X } from './missing';",
            "X",
            "tools/t.ts:2:23: PREFIX the type `X` is imported from `./missing`, which cannot be found",
        ),
        (
            "import type { X } from '../../outside';",
            "X",
            "tools/t.ts:2:23: PREFIX the type `X` is imported from `../../outside`, which cannot be found",
        ),
        (
            "import type { X } from '../lib/types';",
            "{ a: X }",
            "tools/t.ts:2:28: PREFIX `lib/types.ts` does not declare the type `X`",
        ),
        (
            "import type X from '../lib/types';",
            "X",
            "tools/t.ts:2:23: PREFIX `X` is a default import or a whole module; import the type by its name",
        ),
        (
            "import type { Broken } from '../lib/ids';",
            "Broken",
            "lib/ids.ts:3:28: PREFIX a Date is not JSON; use a string with `@format date-time`",
        ),
        (
            "import type { Bad } from '../lib/bad';",
            "Bad",
            "tools/t.ts:2:23: PREFIX `lib/bad.ts` has syntax errors",
        ),
        (
            "import type { x } from '../lib/plain.js';",
            "x",
            "tools/t.ts:2:23: PREFIX the type `x` is imported from `../lib/plain.js`, which is not TypeScript",
        ),
        (
            "import type { Round } from '../lib/circle';",
            "Round",
            "tools/t.ts:2:23: PREFIX the imports of `Round` go round in a circle",
        ),
    ] {
        let source = format!("{import}\nexport default (args: {parameter}) => null;");
        check_imported(&source, &expected.replace("PREFIX", prefix));
    }
}

#[test]
fn a_changed_type_file_changes_the_schema_of_the_tools_that_use_it() {
    let folder = folder(&[
        ("types.ts", "export type A = { a: string };"),
        ("tools/t.ts", "import type { A } from '../types';\nexport default (args: A) => null;"),
    ]);
    let mut bundle = build(folder.path());
    crate::harness::write(folder.path(), "types.ts", "export type A = { b: number };");
    bundle.rebuild(folder.path(), &script::BundleOptions::default());
    let tool = bundle.tools[0].as_ref().unwrap_or_else(|error| panic!("{error}"));
    assert!(tool.definition.input_schema.to_string().contains(r#""b":{"type":"number"}"#));
}
