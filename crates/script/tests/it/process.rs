//! Code in processes of its own: the same results as on threads, limits that the system holds, and no process left behind.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use script::{BundleOptions, EngineLimits, Isolation};
use serde_json::{Value, json};
use spile_core::Principal;

use crate::harness::{App, AppOptions, PipeClient, call_stateless, folder, helper, isolations};

fn app(folder: &Path, isolation: Isolation, limits: EngineLimits) -> App {
    let bundle = BundleOptions { engine_limits: limits.clone(), isolation, ..BundleOptions::default() };
    App::with(folder, AppOptions { limits, bundle, ..AppOptions::default() })
}

/// The same calls on a thread and in a process have the same results.
#[tokio::test]
async fn a_process_answers_as_a_thread_does() {
    let folder = folder(&[
        ("tools/add.ts", "export default ({ a, b }: { a: number; b: number }) => ({ sum: a + b });"),
        ("tools/count.js", "let n = 0; export default () => ++n;"),
        ("tools/fails.js", "export default () => { throw new TypeError('not this'); };"),
        ("tools/rpc.js", "export default () => { throw new McpError(-32000, 'mine', { a: 1 }); };"),
        (
            "tools/nests.js",
            "export default async (_, ctx) => (await ctx.tool('add', { a: 1, b: 2 })).structuredContent;",
        ),
        ("tools/reads.js", "export default (_, ctx) => ctx.env('UNDECLARED');"),
        (
            "tools/waits.js",
            "export default async (_, ctx) => { await ctx.sleep(1); return [1, 'é\u{1F600}', null]; };",
        ),
        ("tools/nothing.js", "export default () => undefined;"),
        ("lib/old.cjs", "module.exports = { twice: (n) => n * 2 };"),
        ("tools/common.js", "import old from '../lib/old.cjs'; export default () => old.twice(21);"),
    ]);
    let calls = [
        ("add", r#"{"a":1,"b":2.5}"#),
        ("add", r#"{"a":"1"}"#),
        ("count", "{}"),
        ("count", "{}"),
        ("fails", "{}"),
        ("rpc", "{}"),
        ("nests", "{}"),
        ("reads", "{}"),
        ("waits", "{}"),
        ("nothing", "{}"),
        ("common", "{}"),
    ];
    let mut results: Vec<Vec<Value>> = Vec::new();
    for isolation in isolations() {
        let app = app(folder.path(), isolation, EngineLimits::default());
        let mut of_one = Vec::new();
        for (tool, arguments) in calls {
            // One caller, so that module state is kept.
            let ann = Principal::local("ann").expect("a name");
            let mut result = app.call_by(ann, tool, arguments, "").await;
            // It differs for each call.
            if let Some(error) = result["structuredContent"].as_object_mut() {
                error.remove("ref");
            }
            of_one.push(result);
        }
        of_one.push(json!(app.reports.take()));
        results.push(of_one);
    }
    let names = calls.iter().map(|(tool, _)| *tool).chain(["the reports"]);
    for ((thread, process), name) in results[0].iter().zip(&results[1]).zip(names) {
        assert_eq!(thread, process, "{name}");
    }
    assert_eq!(results[1][3]["content"][0]["text"], "2", "module state is kept: {}", results[1][3]);
}

#[tokio::test]
async fn a_process_asks_in_both_eras() {
    let folder = folder(&[(
        "tools/ask.js",
        "export default async (_, ctx) => { const n = Math.random(); const a = await ctx.elicit('name', { message: 'Name?', \
         schema: { type: 'object', properties: { name: { type: 'string' } } } }); return `${a.content.name} ${n === n}`; };",
    )]);
    for isolation in isolations() {
        let app = app(folder.path(), isolation, EngineLimits::default());
        let answer = json!({"action": "accept", "content": {"name": "Ada"}});
        let modern = call_stateless(|_| &app, "ask", "{}", |_, _| answer.clone()).await;
        let legacy = PipeClient::new(&app).call("ask", "{}", |_| answer.clone()).await;
        for result in [modern.result, legacy] {
            assert_eq!(result["content"][0]["text"], "Ada true", "{result}");
        }
    }
}

#[tokio::test]
async fn memory_beyond_the_limit_of_the_process_ends_one_call() {
    let folder = folder(&[
        (
            "tools/greedy.js",
            "export default () => { const all = []; for (;;) all.push(new Uint8Array(1 << 20)); };",
        ),
        ("tools/add.js", "export default ({ a, b }) => a + b;"),
    ]);
    // The interpreter would allow more than the system does.
    let limits = EngineLimits {
        memory_bytes_max: 4 << 30,
        process_bytes_max: 96 << 20,
        cpu_ms_max: 10_000,
        ..EngineLimits::default()
    };
    let app = app(folder.path(), Isolation::Process(helper()), limits);
    let (greedy, sum) = tokio::join!(app.call("greedy", "{}"), app.text("add", r#"{"a":1,"b":2}"#));
    assert_eq!(greedy["isError"], true, "{greedy}");
    assert_eq!(sum, "3");
    assert_eq!(app.text("add", r#"{"a":2,"b":2}"#).await, "4");
}

/// A built-in that does not return is killed with its process; whoever does it too often is told to wait.
#[tokio::test]
async fn a_process_is_started_again_but_not_without_end() {
    let folder = folder(&[
        (
            "tools/stuck.js",
            "export default () => { const d = '9'.repeat(300000); let n = 0n; for (;;) n += BigInt(d); };",
        ),
        ("tools/add.js", "export default ({ a, b }) => a + b;"),
    ]);
    let limits = EngineLimits {
        threads: 1,
        // Enough to load a context; one conversion of that many digits takes longer.
        cpu_ms_max: 300,
        overstay_ms_max: 200,
        process_starts_per_minute_max: 3,
        ..EngineLimits::default()
    };
    let app = app(folder.path(), Isolation::Process(helper()), limits);
    for _ in 0..2 {
        let stuck = app.call("stuck", "{}").await;
        assert_eq!(stuck["isError"], true, "{stuck}");
        assert_eq!(app.text("add", r#"{"a":2,"b":2}"#).await, "4");
    }
    let stuck = app.call("stuck", "{}").await;
    assert_eq!(stuck["isError"], true, "{stuck}");
    let refused = app.call("add", r#"{"a":2,"b":2}"#).await;
    let code = &refused["structuredContent"]["code"];
    assert_eq!(code, "rate_limited", "no process is left, and none may be started: {refused}");
}

#[tokio::test]
async fn a_binary_that_is_not_there_is_a_diagnostic() {
    let folder = folder(&[("tools/add.js", "export default ({ a, b }) => a + b;")]);
    let isolation = Isolation::Process("/nowhere/spile".into());
    let bundle =
        script::Bundle::build(folder.path(), &BundleOptions { isolation, ..BundleOptions::default() });
    let problems: Vec<String> = bundle.errors().map(ToString::to_string).collect();
    assert!(
        problems.len() == 1 && problems[0].contains("a process for it cannot be started"),
        "{problems:?}"
    );
}

/// How long the system may take for what it does at once.
const PATIENCE: Duration = Duration::from_secs(30);

fn wait_for<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// The child of a process, by the second field after the name in /proc/PID/stat.
fn child_of(parent: u32) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.into_iter().find(|id| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().nth(1) == Some(&parent.to_string())
    })
}

fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // A zombie runs nothing.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
#[cfg(target_os = "linux")]
fn a_busy_worker_is_limited_and_ends_when_its_server_is_killed() {
    let folder = folder(&[("tools/endless.js", "for (;;) {}\nexport default () => 1;")]);
    let mut server: Child = Command::new(helper()).arg("hold").arg(folder.path()).spawn().expect("it starts");
    let worker = wait_for("a worker is started", || child_of(server.id()));
    let limits = wait_for("the worker limits itself", || {
        let limits = std::fs::read_to_string(format!("/proc/{worker}/limits")).ok()?;
        limits.contains("Max data size             1073741824").then_some(limits)
    });
    for (name, most) in
        [("Max open files", "3"), ("Max processes", "0"), ("Max file size", "0"), ("Max core file size", "0")]
    {
        let line = limits.lines().find(|line| line.starts_with(name)).expect("the limit is known");
        let values: Vec<&str> = line[name.len()..].split_whitespace().take(2).collect();
        assert_eq!(values, [most, most], "{name}");
    }
    let environment = std::fs::read(format!("/proc/{worker}/environ")).expect("it runs");
    assert!(environment.is_empty(), "the worker has no environment");
    server.kill().expect("it runs");
    server.wait().expect("it ended");
    wait_for("the worker ends", || (!is_alive(worker)).then_some(()));
}
