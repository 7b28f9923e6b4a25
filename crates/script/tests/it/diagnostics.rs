//! What authors read when their code is wrong: in `check`, and when a call fails.

use script::{Bundle, BundleOptions};

use crate::harness::{App, AppOptions, build, folder, isolations, problems};

#[test]
fn a_broken_file_takes_no_other_tool_down() {
    let folder = folder(&[
        ("tools/broken.ts", "export default (args: { a: string }) => {\n  const b = ;\n};\n"),
        ("tools/good.ts", "export default () => 1;"),
    ]);
    let bundle = build(folder.path());
    let served: Vec<_> = bundle.served().map(|tool| tool.definition.name.as_str()).collect();
    assert_eq!(served, ["good"]);
}

#[test]
fn bad_author_code_is_reported_with_its_place_and_the_way_out() {
    let long = "a".repeat(129);
    let long = format!("tools/{long}.ts");
    for (name, files) in [
        ("syntax", vec![("tools/t.ts", "export default () => {\n\tconst total = 1 +;\n};")]),
        (
            "json",
            vec![
                ("tools/t.ts", "import d from '../d.json'; export default () => d;"),
                ("d.json", "{\n  \"a\": 1,\n}"),
            ],
        ),
        ("no_handler", vec![("tools/t.ts", "export const handler = 1;")]),
        ("not_a_function", vec![("tools/t.ts", "export default 7;")]),
        (
            "throws_at_load",
            vec![(
                "tools/t.ts",
                "interface X {}\n\nconst config = undefined as any;\nconst port = config.port;\nexport default () => port;",
            )],
        ),
        (
            "throws_in_helper",
            vec![
                (
                    "tools/t.ts",
                    "import { load } from '../lib/load.js';\nexport const x = load(\n  1,\n  2,\n);\nexport default () => 1;",
                ),
                (
                    "lib/load.ts",
                    "export type T = string;\nexport function load(a: number, b: number): T {\n  throw new Error(`no ${a + b}`);\n}",
                ),
            ],
        ),
        ("missing_file", vec![("tools/t.ts", "import x from './missing';\nexport default () => x;")]),
        (
            "missing_export",
            vec![
                ("tools/t.ts", "import { one } from '../lib/all';\nexport default () => one;"),
                ("lib/all.ts", "interface Unused {}\n\nexport { two, one } from './some';"),
                ("lib/some.ts", "export const two = 2;"),
            ],
        ),
        (
            "missing_default_export",
            vec![
                (
                    "tools/t.ts",
                    "// one\nimport { two } from '../lib/some';\nimport some from '../lib/some';\nexport default () => some + two;",
                ),
                ("lib/some.ts", "export const two = 2;"),
            ],
        ),
        ("missing_package", vec![("tools/t.ts", "import x from 'left-pad';\nexport default () => x;")]),
        ("outside", vec![("tools/t.ts", "import x from '/etc/passwd';\nexport default () => x;")]),
        (
            "node_builtin",
            vec![
                ("tools/t.ts", "import { read } from '../lib/read';\nexport default () => read();"),
                (
                    "lib/read.ts",
                    "import type { Stats } from 'fs';\nimport { readFileSync } from 'node:fs';\nexport const read = () => readFileSync('x');",
                ),
            ],
        ),
        (
            "node_builtin_in_package",
            vec![
                ("tools/t.ts", "import x from 'old';\nexport default () => x;"),
                ("node_modules/old/package.json", r#"{"name":"old","main":"index.js"}"#),
                ("node_modules/old/index.js", "const http = require('http');\nmodule.exports = http;"),
            ],
        ),
        (
            "sloppy_package",
            vec![
                ("tools/t.ts", "import x from 'sloppy';\nexport default () => x;"),
                ("node_modules/sloppy/package.json", r#"{"name":"sloppy","main":"index.js"}"#),
                ("node_modules/sloppy/index.js", "counter = 1;\nmodule.exports = counter;"),
            ],
        ),
        (
            "sloppy_with",
            vec![
                ("tools/t.ts", "import x from 'sloppy';\nexport default () => x;"),
                ("node_modules/sloppy/package.json", r#"{"name":"sloppy","main":"index.js"}"#),
                ("node_modules/sloppy/index.js", "with (Math) { module.exports = max(1, 2); }"),
            ],
        ),
        (
            "native_package",
            vec![
                ("tools/t.ts", "import { hash } from '../lib/hash';\nexport default () => hash('a');"),
                (
                    "lib/hash.ts",
                    "import fast from 'fast-hash';\n\nexport const hash = (text: string) => fast(text);",
                ),
                ("node_modules/fast-hash/package.json", r#"{"name":"fast-hash","main":"index.js"}"#),
                (
                    "node_modules/fast-hash/index.js",
                    "'use strict';\nmodule.exports = require('./build/Release/hash');",
                ),
                ("node_modules/fast-hash/build/Release/hash.node", "\u{7f}ELF\0\0"),
            ],
        ),
        (
            "native_package_of_webassembly",
            vec![
                ("tools/t.ts", "import sum from 'sum';\nexport default () => sum(1);"),
                ("node_modules/sum/package.json", r#"{"name":"sum","type":"module","main":"index.js"}"#),
                (
                    "node_modules/sum/index.js",
                    "import * as wasm from './sum_bg.wasm';\nexport default wasm.sum;",
                ),
                ("node_modules/sum/sum_bg.wasm", "\0asm"),
            ],
        ),
        (
            "native_package_without_an_extension",
            vec![
                ("tools/t.ts", "import run from 'runner';\nexport default () => run;"),
                ("node_modules/runner/package.json", r#"{"name":"runner","main":"bin/runner"}"#),
                ("node_modules/runner/bin/runner", "\u{7f}ELF\0\0"),
            ],
        ),
        (
            "native_file",
            vec![
                ("tools/t.ts", "import sum from './sum.wasm';\nexport default sum;"),
                ("tools/sum.wasm", "\0asm"),
            ],
        ),
        (
            "intl",
            vec![(
                "tools/t.ts",
                "export default () => {\n  const n = 5;\n  return n.toLocaleString('de-DE') + new Intl.NumberFormat('de').format(n);\n};",
            )],
        ),
        (
            "locale_compare",
            vec![(
                "tools/t.ts",
                "export default ({ a, b, l }) => [\n  a.localeCompare(b), a.localeCompare(b, 'en-GB'), a.localeCompare(b, undefined),\n  a.localeCompare(b, 'sv'),\n  a.localeCompare(b, undefined, { numeric: true }),\n  a.localeCompare(b, l),\n];",
            )],
        ),
        (
            "package_intl",
            vec![
                ("tools/t.ts", "import { money } from 'money';\nexport default () => money(1);"),
                ("node_modules/money/package.json", r#"{"name":"money","main":"index.mjs"}"#),
                (
                    "node_modules/money/index.mjs",
                    "import './more.mjs';\nexport const money = (n) =>\n  new Intl.NumberFormat('de').format(n);",
                ),
                ("node_modules/money/more.mjs", "export const list = () => new Intl.ListFormat('de');"),
            ],
        ),
        (
            "schema_root",
            vec![(
                "tools/t.ts",
                "\nexport const schema = { input: { type: 'string' } };\nexport default () => 1;",
            )],
        ),
        (
            "schema_invalid",
            vec![(
                "tools/t.ts",
                "export const schema = { input: { type: 'object', properties: { a: { type: 'wrong' } } } };\nexport default () => 1;",
            )],
        ),
        (
            "metadata_unknown",
            vec![("tools/t.ts", "export const metadata = { titel: 'x' };\nexport default () => 1;")],
        ),
        (
            "metadata_of_another_framework",
            vec![
                (
                    "tools/t.ts",
                    "export const metadata = { name: 'say-hello', annotations: { title: 'Hello', streamingHint: true } };\nexport default () => 1;",
                ),
                (
                    "prompts/p.ts",
                    "export const metadata = { name: 'review', role: 'user', arguments: [] };\nexport default () => 'x';",
                ),
            ],
        ),
        (
            "context_file",
            vec![
                ("tools/a.ts", "export default () => 1;"),
                ("tools/b.ts", "export default () => 1;"),
                ("prompts/p.ts", "export default () => 'x';"),
                ("src/context.ts", "export default function (request) {\n  return { user: request. };\n}"),
            ],
        ),
        (
            "metadata_task",
            vec![("tools/t.ts", "export const metadata = { task: 'always' };\nexport default () => 1;")],
        ),
        (
            "same_name",
            vec![("tools/t.ts", "export default () => 1;"), ("tools/t.js", "export default () => 1;")],
        ),
        ("long_name", vec![(long.as_str(), "export default () => 1;")]),
        (
            "effect_at_load",
            vec![(
                "tools/t.ts",
                "const answer = await fetch('https://example.com');\nexport default () => answer;",
            )],
        ),
        ("never_loads", vec![("tools/t.ts", "await new Promise(() => {});\nexport default () => 1;")]),
        ("loads_forever", vec![("tools/t.ts", "while (true) {}\nexport default () => 1;")]),
        (
            "context_broken",
            vec![("tools/t.ts", "export default () => 1;"), ("context.ts", "export const x = 1;")],
        ),
    ] {
        let folder = folder(&files);
        insta::assert_snapshot!(format!("bad_{name}"), problems(folder.path()));
    }
}

#[tokio::test]
async fn a_failing_call_tells_the_client_what_concerns_it_and_the_author_where_it_happened() {
    let folder = folder(&[(
        "tools/fails.ts",
        r#"
interface Order { id: number; customer?: { name: string } }

export const schema = { output: { type: "object", properties: { total: { type: "number" } }, required: ["total"] } };

export default async (args: { how: string }, ctx: any) => {
    const order: Order = { id: 1 };
    switch (args.how) {
        case "error": throw new Error("order 7 does not exist");
        case "bug": return (order as any).customer.name;
        case "mcp": throw new McpError(-32000, "busy", { retry: true });
        case "nothing": return undefined;
        case "mismatch": return { total: "12" };
        case "circular": { const a: any = {}; a.a = a; return a; }
        case "value": throw "plain text";
        case "unhandled": Promise.reject(new Error("nobody waits")); await 0; return { total: 1 };
        case "never": return new Promise(() => {});
        case "locale": return { total: (5).toLocaleString("de-DE") };
        case "undeclared": return await ctx.fetch("https://example.com/");
        case "operation": {
            const totals = await Promise.all([1].map(async (id) => {
                await ctx.sleep(1);
                const order = await ctx.collection("orders").get({ id });
                return order.total;
            }));
            return { total: totals[0] };
        }
        case "callback": [1].forEach((id) => {
            throw new Error(`order ${id} is gone`);
        });
    }
};
"#,
    )]);
    let app = App::new(folder.path());
    let mut seen = String::new();
    for how in [
        "error",
        "bug",
        "mcp",
        "nothing",
        "mismatch",
        "circular",
        "value",
        "unhandled",
        "never",
        "locale",
        "undeclared",
        "operation",
        "callback",
    ] {
        let mut result = app.call("fails", &format!(r#"{{"how":"{how}"}}"#)).await;
        if let Some(reference) = result.pointer_mut("/structuredContent/ref") {
            *reference = "REF".into();
        }
        let text =
            result["content"][0]["text"].as_str().map_or_else(|| result.to_string(), ToOwned::to_owned);
        let text = match text.find(r#","ref":""#) {
            Some(at) => format!("{}…", &text[..at]),
            None => text,
        };
        seen += &format!("## {how}\nclient: {text}\nauthor: {}\n\n", app.reports.take().join("\n"));
    }
    insta::assert_snapshot!("failing_calls", seen);
}

/// The author can only change their own file.
#[tokio::test]
async fn an_error_deep_in_a_package_is_reported_where_the_author_calls_it() {
    let folder = folder(&[
        ("node_modules/deep/package.json", r#"{"name":"deep","type":"module","main":"index.js"}"#),
        (
            "node_modules/deep/index.js",
            "export const deep = (n, what) => { if (n === 0) throw new TypeError(what); return deep(n - 1, what) + 1; };\n",
        ),
        (
            "tools/t.ts",
            "import { deep } from 'deep';\n\nexport default ({ n }: { n: number }) => {\n  const got = deep(n, 'too deep');\n  return got;\n};\n",
        ),
    ]);
    let app = App::new(folder.path());
    for n in [0, 1, 30] {
        app.call("t", &format!(r#"{{"n":{n}}}"#)).await;
        let reports = app.reports.take().join("\n");
        assert!(reports.contains("tools/t.ts:4:15: TypeError: too deep"), "{n}: {reports}");
    }
}

/// An error has no other limit than the memory of its call.
#[tokio::test]
async fn a_long_error_is_cut_for_the_client_and_for_the_author() {
    let folder = folder(&[(
        "tools/t.ts",
        r#"
export default async ({ how }: { how: string }, ctx: any) => {
    const long = "x".repeat(5e6);
    switch (how) {
        case "error": throw new Error(long);
        case "value": throw { long };
        case "mcp": throw new McpError(-32000, long);
        case "data": throw new McpError(-32000, "data", { long });
        case "unhandled": Promise.reject(new Error(long)); await 0; return 1;
        case "stack": throw Object.assign(new Error("stack"), { stack: long });
    }
};
"#,
    )]);
    for isolation in isolations() {
        let app = App::with(
            folder.path(),
            AppOptions {
                bundle: BundleOptions { isolation, ..BundleOptions::default() },
                ..AppOptions::default()
            },
        );
        for how in ["error", "value", "mcp", "data", "unhandled", "stack"] {
            let result = app.call("t", &format!(r#"{{"how":"{how}"}}"#)).await.to_string();
            let reports = app.reports.take().join("\n");
            assert!(
                result.len() < 50_000 && reports.len() < 50_000,
                "{how}: {} {}",
                result.len(),
                reports.len()
            );
        }
    }
}

/// A link to a file of the machine would run it, and say in its errors what is in it.
#[test]
fn a_link_that_leads_outside_the_folder_is_not_served() {
    let outside = folder(&[("secret.ts", "export default () => hunter2;")]);
    let folder =
        folder(&[("lib/shared.ts", "export default () => 1;"), ("tools/good.ts", "export default () => 1;")]);
    for (target, link) in [
        (outside.path().join("secret.ts"), "tools/outside.ts"),
        (folder.path().join("lib/shared.ts"), "tools/inside.ts"),
    ] {
        std::os::unix::fs::symlink(target, folder.path().join(link)).expect("a link");
    }
    let bundle = build(folder.path());
    let served: Vec<_> = bundle.served().map(|tool| tool.definition.name.as_str()).collect();
    assert_eq!(served, ["good", "inside"]);
    insta::assert_snapshot!("bad_link", problems(folder.path()));
}

#[test]
fn a_package_that_makes_code_from_text_is_named_with_the_tools_that_use_it() {
    let folder = folder(&[
        ("node_modules/maker/package.json", r#"{"name":"maker","type":"module","main":"index.js"}"#),
        (
            "node_modules/maker/index.js",
            "const root = Function(\"return this\")();\nexport const make = (text) => new Function(\"x\", text);\n",
        ),
        ("node_modules/finder/package.json", r#"{"name":"finder","type":"module","main":"index.js"}"#),
        ("node_modules/finder/index.js", "export const root = () => Function('return this')();\n"),
        ("tools/plain.ts", "import { root } from 'finder'; export default () => typeof root;"),
        ("tools/made.ts", "import { make } from 'maker'; export default () => make('return x')(1);"),
        ("tools/named.ts", "import { make } from 'maker'; export default () => make('return x')(1);"),
    ]);
    let options = BundleOptions { eval_tools: ["named".to_owned()].into(), ..BundleOptions::default() };
    let bundle = Bundle::build(folder.path(), &options);
    let warnings: Vec<String> = bundle.warnings.iter().map(ToString::to_string).collect();
    let [warning] = &warnings[..] else { panic!("one warning: {warnings:#?}") };
    for part in ["node_modules/maker/index.js:2:31", "the package `maker`", "`eval = [\"made\"]`"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

/// As in Node, where the package tries it and does without.
#[tokio::test]
async fn a_native_part_that_a_package_can_do_without_is_left_out() {
    let folder = folder(&[
        ("tools/t.ts", "import { mask } from 'socket';\nexport default () => mask;"),
        ("node_modules/socket/package.json", r#"{"name":"socket","main":"index.js"}"#),
        (
            "node_modules/socket/index.js",
            "'use strict';\nexports.mask = 'slow';\ntry { exports.mask = require('./mask.node'); } catch (error) {}",
        ),
        ("node_modules/socket/mask.node", "\u{7f}ELF\0\0"),
    ]);
    assert_eq!(problems(folder.path()), "");
    assert_eq!(App::new(folder.path()).text("t", "{}").await, "slow");
}
