//! Code that tries to get out, or to take everything: refused or stopped, while its neighbours are served.

use std::path::Path;

use script::{BundleOptions, EngineLimits, Isolation};
use serde_json::Value;
use spile_core::Principal;

use crate::harness::{App, AppOptions, PipeClient, folder, isolations};

/// The server ends its calls with an error if they take longer.
const NEIGHBOUR: (&str, &str) = (
    "tools/neighbour.js",
    "export const metadata = { timeoutMs: 10000 };
     export default (args) => args.n * 2;",
);
/// It is under way on a script thread while the attack runs, perhaps on the same one.
const WAITING_NEIGHBOUR: (&str, &str) = (
    "tools/waiting-neighbour.js",
    "export const metadata = { timeoutMs: 10000 };
     export default async (args, ctx) => {
         const id = crypto.randomUUID();
         let sum = 0;
         for (let i = 0; i < 5; i++) { await ctx.sleep(20); sum += args.n; }
         return `${sum} ${id === crypto.randomUUID()}`;
     };",
);

fn limits() -> EngineLimits {
    EngineLimits {
        cpu_ms_max: 300,
        overstay_ms_max: 500,
        memory_bytes_max: 32 << 20,
        ..EngineLimits::default()
    }
}

fn app(folder: &Path, isolation: Isolation) -> App {
    let limits = limits();
    let bundle = BundleOptions { engine_limits: limits.clone(), isolation, ..BundleOptions::default() };
    App::with(folder, AppOptions { limits, bundle, ..AppOptions::default() })
}

/// Each attack is the body of a handler. It must end with an error, and neighbours are answered meanwhile and
/// afterwards.
async fn all_are_stopped(attacks: &[(&str, &str)]) {
    let arms: String =
        attacks.iter().map(|(name, code)| format!("case {name:?}: {{ {code} }} break;\n")).collect();
    let source = format!(
        "export default async (args, ctx) => {{ switch (args.how) {{ {arms} }} return 'got through'; }};"
    );
    let folder = folder(&[NEIGHBOUR, WAITING_NEIGHBOUR, ("tools/attack.js", &source)]);
    for isolation in isolations() {
        let app = app(folder.path(), isolation.clone());
        for (name, _) in attacks {
            let arguments = format!(r#"{{"how":{name:?}}}"#);
            let attack = app.call("attack", &arguments);
            let neighbours = async {
                for n in 0..20 {
                    assert_eq!(app.text("neighbour", &format!(r#"{{"n":{n}}}"#)).await, (n * 2).to_string());
                }
            };
            let waiting = futures_util::future::join_all((0..6).map(|n| {
                let app = &app;
                async move {
                    let text = app.text("waiting-neighbour", &format!(r#"{{"n":{n}}}"#)).await;
                    assert_eq!(text, format!("{} false", n * 5));
                }
            }));
            let (result, (), _) = tokio::join!(attack, neighbours, waiting);
            assert_eq!(result["isError"], true, "{name} ({isolation:?}): {result}");
            assert_eq!(app.text("neighbour", r#"{"n":21}"#).await, "42", "{name} ({isolation:?})");
        }
    }
    for (name, code) in attacks {
        is_stopped_after_quick_calls(name, code).await;
    }
}

/// The same by a tool that was harmless until now, so that it runs on the thread of its caller.
async fn is_stopped_after_quick_calls(name: &str, code: &str) {
    let source = format!(
        "export default async (args, ctx) => {{ if (args.how === 'attack') {{ {code} }} return 'harmless'; }};"
    );
    let folder = folder(&[NEIGHBOUR, ("tools/attack.js", &source)]);
    let limits =
        EngineLimits { quick_calls_min: 1, quick_call_ms_max: 60_000, quick_load_ms_max: 60_000, ..limits() };
    let app = App::with(folder.path(), AppOptions { limits, ..AppOptions::default() });
    for _ in 0..3 {
        assert_eq!(app.text("attack", r#"{"how":"nothing"}"#).await, "harmless");
        assert_eq!(app.text("neighbour", r#"{"n":1}"#).await, "2");
    }
    let result = app.call("attack", r#"{"how":"attack"}"#).await;
    assert_eq!(result["isError"], true, "{name}: {result}");
    assert_eq!(app.text("neighbour", r#"{"n":21}"#).await, "42", "{name}");
    assert_eq!(app.text("attack", r#"{"how":"nothing"}"#).await, "harmless", "{name}");
}

/// What the corpus relies on when it says that neighbours are answered within their deadline.
#[tokio::test]
async fn a_neighbour_that_overstays_its_deadline_gets_an_error() {
    let code = "export const metadata = { timeoutMs: 20 }; export default (args, ctx) => ctx.sleep(600000);";
    let folder = folder(&[("tools/neighbour.js", code)]);
    let result = app(folder.path(), Isolation::Thread).call("neighbour", "{}").await;
    assert!(result.to_string().contains("20 ms"), "{result}");
}

#[tokio::test]
async fn endless_work_is_stopped() {
    all_are_stopped(&[
        ("loop", "while (true) {}"),
        ("loop after await", "await 0; for (;;) {}"),
        ("loop in finally", "try { while (true) {} } finally { while (true) {} }"),
        ("loop that catches", "for (;;) { try { for (;;) {} } catch {} }"),
        ("microtasks", "const again = () => Promise.resolve().then(again); await again();"),
        ("generator", "for (const x of (function* () { for (;;) yield 1; })()) {}"),
        ("regex", "/(a+)+$/.test('a'.repeat(40) + '!');"),
        ("recursion", "const f = () => f() + 1; f();"),
        ("mutual recursion", "const a = { toString() { return `${a}`; } }; `${a}`;"),
        ("json recursion", "const a = { toJSON() { return JSON.stringify(a); } }; JSON.stringify(a);"),
        ("proxy", "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x;"),
        (
            "sort",
            "const a = Array.from({ length: 1e5 }, (_, i) => i); for (;;) a.sort(() => 0.5 - Math.random());",
        ),
        ("sparse array", "const a = []; a.length = 4294967295; a.indexOf(1);"),
        ("array-like", "Array.prototype.includes.call({ length: 2 ** 53 - 1 }, 1);"),
        ("needle", "for (;;) 'a'.repeat(4e5).indexOf('a'.repeat(2e5) + 'b');"),
        ("replaceAll", "for (;;) 'a'.repeat(2e5).replaceAll('a'.repeat(1e5) + 'b', '');"),
        ("comparator", "const a = [3, 1, 2]; a.sort(() => { for (;;) {} });"),
        ("bigint text", "(7n ** 300000n).toString();"),
        ("interval", "await new Promise(() => setInterval(() => { for (;;) {} }, 1));"),
    ])
    .await;
}

/// Each is work for seconds or hours inside a built-in that does not ask whether the time is up, unless it is replaced.
const WORK_IN_BUILT_INS: &[(&str, &str)] = &[
    ("last needle", "for (;;) 'a'.repeat(4e5).lastIndexOf('b' + 'a'.repeat(2e5));"),
    ("last needle, everywhere", "for (;;) 'a'.repeat(4e5).lastIndexOf('a'.repeat(100), 1);"),
    ("split", "for (;;) 'a'.repeat(4e5).split('a'.repeat(2e5) + 'b');"),
    ("short needle", "const t = 'a'.repeat(2e7); for (;;) t.includes('b');"),
    (
        "long texts",
        "const t = Array.from({ length: 16 }, () => 'x'.repeat(1e6)); const a = Array.from({ length: 2e5 }, (_, i) => t[i % 16]); a.sort(); for (;;) {}",
    ),
    (
        "texts of objects",
        "const t = ['x'.repeat(2e6) + 'a', 'x'.repeat(2e6) + 'b']; const a = Array.from({ length: 1e4 }, (_, i) => ({ toString: () => t[i % 2] })); a.sort(); for (;;) {}",
    ),
    ("numbers", "for (;;) new Float64Array(7e6).map((_, i) => -i).sort();"),
    ("long typed array", "new Uint8Array(3e7).sort();"),
    ("nested lists", "let a = []; for (let i = 0; i < 60; i++) a = [a, a]; a.flat(Infinity);"),
    ("marks", "('a' + '\\u0301\\u0316'.repeat(3e5)).normalize('NFD');"),
    ("half width marks", "('a' + '\\uff9e\\u0316'.repeat(3e5)).normalize('NFKD');"),
    ("template", "String.raw({ raw: { length: 2 ** 53 - 1 } });"),
    ("names to write", "const a = []; a.length = 4294967295; JSON.stringify({}, a);"),
    ("list to write", "const a = []; a.length = 4294967295; JSON.stringify(a);"),
    ("deep to write", "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; JSON.stringify(a);"),
    ("long list", "Array.from({ length: 1e9 });"),
    ("padding", "for (;;) 'x'.padStart(3e7, 'ab');"),
    ("normalized again and again", "const t = 'a\\u0301'.repeat(3e4); for (;;) t.normalize('NFD');"),
    ("parsed again and again", "const t = JSON.stringify(Array(3e4).fill(1)); for (;;) JSON.parse(t);"),
    (
        "big integers by another name",
        "const n = globalThis['Big' + 'Int']('9'.repeat(5000)); for (;;) n * n;",
    ),
];

#[tokio::test]
async fn work_inside_built_ins_ends_by_itself() {
    all_are_stopped(WORK_IN_BUILT_INS).await;
    let arms: String = WORK_IN_BUILT_INS
        .iter()
        .map(|(name, code)| format!("case {name:?}: {{ {code} }} break;\n"))
        .collect();
    let source = format!(
        "export default async (args, ctx) => {{ switch (args.how) {{ {arms} }} return 'got through'; }};"
    );
    let folder = folder(&[NEIGHBOUR, ("tools/attack.js", &source)]);
    let limits = EngineLimits { overstay_ms_max: 30_000, threads: 1, ..limits() };
    let app = App::with(folder.path(), AppOptions { limits, ..AppOptions::default() });
    for (name, _) in WORK_IN_BUILT_INS {
        let result = app.call("attack", &format!(r#"{{"how":{name:?}}}"#)).await;
        assert_eq!(result["isError"], true, "{name}: {result}");
        assert_eq!(app.text("neighbour", r#"{"n":21}"#).await, "42", "{name}");
        assert_eq!(app.engine.abandoned_threads(), 0, "{name}: its thread was given up");
    }
}

#[tokio::test]
async fn a_flood_of_memory_is_stopped() {
    all_are_stopped(&[
        ("text", "let s = 'x'; for (;;) s += s;"),
        ("arrays", "const a = []; for (;;) a.push(new Array(1e4).fill(1));"),
        ("gibibyte", "new Uint8Array(1 << 30);"),
        ("gibibyte of text", "'x'.repeat(1 << 30 - 1).padEnd(1 << 29);"),
        ("encoded", "const a = []; for (;;) a.push(new TextEncoder().encode('x'.repeat(1e6)));"),
        ("random", "const a = []; for (;;) a.push(crypto.getRandomValues(new Uint8Array(65536)));"),
        ("promises", "const a = []; for (let i = 0; i < 1e6; i++) a.push(new Promise(() => {})); await Promise.all(a);"),
        ("objects", "const m = new Map(); for (let i = 0; ; i++) m.set({ i }, { i });"),
        ("timers", "for (let i = 0; i < 1e6; i++) setTimeout(() => {}, 1e6); throw new Error('not limited');"),
        ("result", "return 'x'.repeat(5 << 20);"),
    ])
    .await;
}

/// What an attack reaches, as text; every one must be refused.
const PROBES: &str = r#"
eval("1")
new Function("return 1")()
Function("return 1")()
(() => {}).constructor("return 1")()
(async () => {}).constructor("return 1")()
(function* () {}).constructor("return 1")()
Object.getPrototypeOf(async function* () {}).constructor("return 1")()
Reflect.construct(Object.getPrototypeOf(function () {}).constructor, ["return 1"])
setTimeout("globalThis.x = 1", 1)
await import(args.none + "/etc/passwd")
await import(args.none + "file:///etc/passwd")
await import(args.none + "node:fs")
Object.keys(await import(args.none + "spile:" + "common-js")).join()
await import(args.none + "../tools/other" + ".js")
await import(args.none + "data:text/javascript,export default 1")
Object.prototype.polluted = 1
Array.prototype.map = () => 1
Object.defineProperty(Object.prototype, "x", { value: 1 })
({}).__proto__.polluted = 1
Object.setPrototypeOf(Object.prototype, { x: 1 })
JSON.parse = () => 1
Promise.prototype.then = () => 1
ctx.fetch = () => 1
ctx.files.read = () => 1
Date.now = () => 1
Math.random = () => 1
await ctx.fetch("https://example.com/")
await ctx.fetch("http://127.0.0.1/")
await ctx.fetch("http://2130706433/")
await ctx.fetch("http://[::ffff:127.0.0.1]/")
await ctx.fetch("http://169.254.169.254/latest/meta-data")
await ctx.fetch("file:///etc/passwd")
await ctx.files.read("/etc/passwd")
await ctx.files.read("../../../etc/passwd")
await ctx.env("HOME")
ctx.secret("KEY")
await ctx.tool("missing", {})
await ctx.collection("orders").list()
await ctx.sql`select 1`
process.exit(1)
require("fs")
new SharedArrayBuffer(8)
new WeakRef({})
Atomics.wait(new Int32Array(4), 0, 0)
"#;

#[tokio::test]
async fn every_way_out_is_refused() {
    let probes: Vec<&str> = PROBES.lines().filter(|line| !line.is_empty()).collect();
    let arms: String =
        probes.iter().enumerate().map(|(n, code)| format!("case {n}: return String({code});\n")).collect();
    let source = format!("export default async (args, ctx) => {{ switch (args.n) {{ {arms} }} }};");
    let folder =
        folder(&[("tools/attack.js", &source), ("tools/other.js", "export default () => 'secret';")]);
    let mut through = Vec::new();
    for isolation in isolations() {
        let app = app(folder.path(), isolation.clone());
        for (n, code) in probes.iter().enumerate() {
            let result = app.call("attack", &format!(r#"{{"n":{n},"none":""}}"#)).await;
            if result["isError"] != true {
                through.push(format!("{code} ({isolation:?})\n  {result}"));
            }
        }
    }
    assert!(through.is_empty(), "{}", through.join("\n"));
}

#[tokio::test]
async fn eval_exists_where_it_is_declared() {
    let folder =
        folder(&[("tools/t.js", "export default () => new Function('return 6 * 7')() + eval('0');")]);
    let bundle = BundleOptions { eval_tools: ["t".to_owned()].into(), ..BundleOptions::default() };
    let app = App::with(folder.path(), AppOptions { bundle, ..AppOptions::default() });
    assert_eq!(app.text("t", "{}").await, "42");
}

/// Parses a number of a million digits: one built-in that cannot be interrupted.
#[tokio::test]
async fn a_thread_that_does_not_come_back_is_replaced_and_its_other_calls_go_on() {
    let folder = folder(&[
        NEIGHBOUR,
        (
            "tools/stuck.js",
            "export default () => { const d = '9'.repeat(300000); let n = 0n; for (let i = 0; i < 100; i++) n += BigInt(d); return 'done'; };",
        ),
        (
            "tools/waits.js",
            "export default async (args, ctx) => { const id = crypto.randomUUID(); await ctx.sleep(args.ms); return `${id === crypto.randomUUID()} waited`; };",
        ),
    ]);
    for isolation in isolations() {
        let limits =
            EngineLimits { threads: 1, cpu_ms_max: 300, overstay_ms_max: 300, ..EngineLimits::default() };
        let bundle = BundleOptions { isolation, ..BundleOptions::default() };
        let app = App::with(folder.path(), AppOptions { limits, bundle, ..AppOptions::default() });
        let waiting = app.text("waits", r#"{"ms":3000}"#);
        let (waited, stuck) = tokio::join!(waiting, app.call("stuck", "{}"));
        assert_eq!(stuck["isError"], true, "{stuck}");
        assert_eq!(waited, "false waited");
        assert_eq!(app.text("neighbour", r#"{"n":21}"#).await, "42");
    }
}

/// Operators on big integers cannot be interrupted; together they take hours.
#[tokio::test]
async fn a_thread_is_not_replaced_once_too_many_were_given_up() {
    let stuck = "export default () => { const n = 2n ** 500000n - 1n; let m = 0n; for (let i = 0; i < 9000; i++) m = n * n; return `${m > 0n}`; };";
    let folder = folder(&[NEIGHBOUR, ("tools/stuck.js", stuck)]);
    let limits = EngineLimits {
        threads: 1,
        abandoned_threads_max: 2,
        cpu_ms_max: 100,
        overstay_ms_max: 100,
        ..EngineLimits::default()
    };
    let app = App::with(folder.path(), AppOptions { limits, ..AppOptions::default() });
    for given_up in 0..3 {
        assert_eq!(app.text("neighbour", r#"{"n":21}"#).await, "42", "after {given_up} threads");
        // The neighbour's call came after the watchdog had counted the thread.
        assert_eq!(app.engine.abandoned_threads(), given_up);
        let result = app.call("stuck", "{}").await;
        assert_eq!(result["isError"], true, "it is answered: {result}");
    }
    let busy = app.call("neighbour", r#"{"n":21}"#).await;
    assert_eq!(busy["structuredContent"]["code"], "rate_limited", "{busy}");
    assert_eq!(app.engine.abandoned_threads(), 3);
}

/// What keeps something of a call for the next one.
const KEEPERS: [(&str, &str); 6] = [
    ("variable", "let last = 'none'; export default ({ x }) => { const was = last; last = x; return was; };"),
    (
        "function",
        "function swap(x) { const own = swap; const was = own.last ?? 'none'; own.last = x; return was; }
         export default ({ x }) => swap(x);",
    ),
    (
        "global",
        "export default ({ x }) => { const was = globalThis.last ?? 'none'; globalThis.last = x; return was; };",
    ),
    (
        "json",
        "import data from '../data.json';
         export default ({ x }) => { const { list } = data; list.push(x); return list.at(-2) ?? 'none'; };",
    ),
    ("package", "import { swap } from 'keeps'; export default ({ x }) => swap(x);"),
    (
        "class",
        "class Kept { static last = 'none'; }
         export default ({ x }) => { const was = Kept.last; Kept.last = x; return was; };",
    ),
];

fn keepers() -> tempfile::TempDir {
    let tools: Vec<(String, &str)> =
        KEEPERS.iter().map(|(name, code)| (format!("tools/{name}.js"), *code)).collect();
    let mut files: Vec<(&str, &str)> = tools.iter().map(|(name, code)| (name.as_str(), *code)).collect();
    files.extend([
        ("data.json", r#"{"list":[]}"#),
        ("node_modules/keeps/package.json", r#"{"name":"keeps","type":"module","main":"index.js"}"#),
        (
            "node_modules/keeps/index.js",
            "let last = 'none'; export const swap = (x) => { const was = last; last = x; return was; };",
        ),
    ]);
    folder(&files)
}

fn text_of(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("a text: {result}")).to_owned()
}

#[tokio::test]
async fn anonymous_callers_see_nothing_that_others_left_behind() {
    let folder = keepers();
    for isolation in isolations() {
        // One thread, so that calls meet the same contexts; quick from the second call on, where that is possible.
        let limits = EngineLimits {
            threads: 1,
            quick_calls_min: 1,
            quick_call_ms_max: 60_000,
            quick_load_ms_max: 60_000,
            ..EngineLimits::default()
        };
        let bundle = BundleOptions { isolation: isolation.clone(), ..BundleOptions::default() };
        let app = App::with(folder.path(), AppOptions { limits, bundle, ..AppOptions::default() });
        for (tool, _) in KEEPERS {
            let what = format!("{tool} {isolation:?}");
            // An address may be that of a proxy: two people.
            for address in ["203.0.113.7", "203.0.113.7", "198.51.100.9", "203.0.113.7"] {
                let result = app.call_from(address, tool, r#"{"x":"secret"}"#).await;
                assert_eq!(text_of(&result), "none", "{what}");
            }
            assert_eq!(app.text(tool, r#"{"x":"secret"}"#).await, "none", "{what}");
            // A connection belongs to one client.
            let (ann, ben) = (PipeClient::new(&app), PipeClient::new(&app));
            for (client, expected) in
                [(&ann, "none"), (&ann, "mine"), (&ben, "none"), (&ann, "mine"), (&ben, "mine")]
            {
                let result = client.call(tool, r#"{"x":"mine"}"#, |_| Value::Null).await;
                assert_eq!(text_of(&result), expected, "{what}");
            }
            assert_eq!(app.text(tool, r#"{"x":"secret"}"#).await, "none", "{what}");
            // So does a name.
            let [ann, ben] = ["ann", "ben"].map(|name| Principal::local(name).expect("a name"));
            for (caller, expected) in [(&ann, "none"), (&ben, "none"), (&ann, "named"), (&ben, "named")] {
                let result = app.call_by(caller.clone(), tool, r#"{"x":"named"}"#, "").await;
                assert_eq!(text_of(&result), expected, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_tool_can_declare_that_all_callers_share_its_state() {
    let (_, code) = KEEPERS[0];
    let code = format!("export const metadata = {{ sharedState: true }}; {code}");
    let folder = folder(&[("tools/shared.js", &code)]);
    let limits = EngineLimits { threads: 1, ..EngineLimits::default() };
    let app = App::with(folder.path(), AppOptions { limits, ..AppOptions::default() });
    assert_eq!(app.text("shared", r#"{"x":"a"}"#).await, "none");
    assert_eq!(text_of(&app.call_from("203.0.113.7", "shared", r#"{"x":"b"}"#).await), "a");
    let ann = Principal::local("ann").expect("a name");
    assert_eq!(text_of(&app.call_by(ann, "shared", r#"{"x":"c"}"#, "").await), "b");
}

#[tokio::test]
async fn module_state_is_not_shared_between_tools_and_survives_between_calls_of_one_caller() {
    let counter = "globalThis.n ??= 0; export default () => ++globalThis.n;";
    let folder = folder(&[("tools/a.js", counter), ("tools/b.js", counter)]);
    let app = App::new(folder.path());
    let client = PipeClient::new(&app);
    let mut seen = Vec::new();
    for tool in ["a", "a", "b"] {
        seen.push(text_of(&client.call(tool, "{}", |_| Value::Null).await));
    }
    assert_eq!(seen, ["1", "2", "1"]);
}
