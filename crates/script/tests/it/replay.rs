//! Random handlers that mix effects, questions and failures give the same result and the same effects,
//! however their rounds are cut and wherever each of them runs.

use std::sync::Arc;

use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use crate::harness::{App, AppOptions, PipeClient, build, call_stateless, folder};
use crate::rounds::{CountingNetwork, accept, app_of, app_sharing};

/// One step of a handler. Parallel steps run in `Promise.all`.
#[derive(Debug, Clone)]
enum Step {
    Fetch(u8),
    FailingFetch(u8),
    Refused,
    Ask(u8),
    Sample(u8),
    /// A question with a timeout that is never reached.
    AskWithTimeout(u8),
    /// Another tool, which makes a request and asks.
    Tool(u8),
    Random,
    Clock,
    Sleep,
    Log,
    Parallel(Vec<Step>),
    Caught(Box<Step>),
    Throw,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop_oneof![
        3 => (0_u8..4).prop_map(Step::Fetch),
        1 => (0_u8..4).prop_map(Step::FailingFetch),
        1 => Just(Step::Refused),
        3 => (0_u8..3).prop_map(Step::Ask),
        1 => (0_u8..3).prop_map(Step::Sample),
        1 => (0_u8..3).prop_map(Step::AskWithTimeout),
        2 => (0_u8..3).prop_map(Step::Tool),
        1 => Just(Step::Random),
        1 => Just(Step::Clock),
        1 => Just(Step::Sleep),
        1 => Just(Step::Log),
    ];
    let step = leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            // Caught: after a failure the call ends, and whether what ran beside it was sent already is chance.
            proptest::collection::vec(inner.clone(), 1..4).prop_map(|steps| {
                Step::Parallel(steps.into_iter().map(|step| Step::Caught(Box::new(step))).collect())
            }),
            inner.prop_map(|step| Step::Caught(Box::new(step))),
        ]
    });
    (proptest::collection::vec(step, 1..7), proptest::bool::weighted(0.2)).prop_map(|(mut steps, throws)| {
        if throws {
            steps.push(Step::Throw);
        }
        steps
    })
}

impl Step {
    fn code(&self) -> String {
        match self {
            Self::Fetch(n) => format!("await get('/f{n}')"),
            Self::FailingFetch(n) => format!("await get('/fail{n}')"),
            Self::Refused => "await ctx.fetch('https://undeclared.example/').catch((e) => e.name)".into(),
            Self::Ask(n) => format!("(await ctx.elicit('k{n}', form('m{n}'))).content.value"),
            Self::Sample(n) => format!("(await ctx.sample('s{n}', 'p')).content.text"),
            Self::AskWithTimeout(n) => format!(
                "(await Promise.race([ctx.elicit('t{n}', form('t{n}')), ctx.sleep(600000)])).content.value"
            ),
            Self::Tool(n) => format!("(await ctx.tool('nested', {{ n: {n} }})).content[0].text"),
            // A replayed value that differs would change the path of the next request.
            Self::Random => "(await get(`/r/${Math.random()}/${crypto.randomUUID()}`), 'random')".into(),
            Self::Clock => "(await get(`/t/${Date.now()}`), 'clock')".into(),
            Self::Sleep => "await ctx.sleep(1)".into(),
            Self::Log => "ctx.log('info', 'x')".into(),
            Self::Parallel(steps) => {
                let parts: Vec<String> =
                    steps.iter().map(|step| format!("(async () => {})()", step.code())).collect();
                format!("await Promise.all([{}])", parts.join(", "))
            }
            Self::Caught(step) => {
                format!("await (async () => {})().catch((e) => `caught ${{e.message}}`)", step.code())
            }
            Self::Throw => "(() => { throw new Error('thrown') })()".into(),
        }
    }
}

fn handler(steps: &[Step]) -> String {
    let body: String = steps.iter().map(|step| format!("seen.push({});\n", step.code())).collect();
    format!(
        r#"
        const form = (message) => ({{ message, schema: {{ type: "object", properties: {{ value: {{ type: "string" }} }} }} }});
        export default async (args, ctx) => {{
            const seen = [];
            const get = async (path) => {{
                const answer = await ctx.fetch(`https://api.example.com${{path}}`);
                if (!answer.ok) throw new Error(`failed ${{path}}`);
                return path.split("/")[1];
            }};
            {body}
            return JSON.stringify(seen);
        }};"#
    )
}

/// What [`Step::Tool`] calls; it fails for 2.
const NESTED: &str = r#"
    export default async ({ n }, ctx) => {
        await ctx.fetch(`https://api.example.com/nested${n}`);
        if (n === 2) throw new Error("nested failed");
        const schema = { type: "object", properties: { value: { type: "string" } } };
        const answer = await ctx.elicit("nested", { message: `nested ${n}`, schema });
        return `${n} ${answer.content.value}`;
    };
"#;

/// The result, and the paths that were requested, without what is random.
fn summary(result: &Value, network: &CountingNetwork) -> (String, Vec<String>) {
    let requests = network.0.lock().expect("no panic before").clone();
    let mut paths: Vec<String> =
        requests.iter().map(|path| path.split('/').nth(1).unwrap_or_default().to_owned()).collect();
    // Requests that run in parallel may be sent in any order.
    paths.sort();
    (format!("{} {}", result["isError"], result["content"][0]["text"]), paths)
}

#[test]
fn rounds_can_be_cut_anywhere() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let property = |steps: Vec<Step>| {
        let folder = folder(&[("tools/t.js", &handler(&steps)), ("tools/nested.js", NESTED)]);
        let keys = folder.path().join("keys");
        // Compiled twice: a process that was restarted shares nothing but the store and the keys.
        let (bundle, rebuilt) = (build(folder.path()), build(folder.path()));
        runtime.block_on(async {
            let network = Arc::new(CountingNetwork::default());
            let app = app_of(&bundle, &network, &keys);
            let handshake = PipeClient::new(&app).call("t", "{}", accept).await;
            let expected = summary(&handshake, &network);

            // A stateless client; every round on a new server.
            let network = Arc::new(CountingNetwork::default());
            let store = AppOptions::default().store();
            let apps: [App; 33] = std::array::from_fn(|at| {
                app_sharing(if at % 2 == 0 { &bundle } else { &rebuilt }, &network, &keys, &store)
            });
            let answer = |_: &str, request: &Value| accept(request);
            let rounds = call_stateless(|round| &apps[round as usize], "t", "{}", answer).await;
            assert_eq!(
                summary(&rounds.result, &network),
                expected,
                "one process per round: {}",
                rounds.result
            );

            // All rounds on one server.
            let network = Arc::new(CountingNetwork::default());
            let app = app_of(&bundle, &network, &keys);
            let rounds = call_stateless(|_| &app, "t", "{}", answer).await;
            assert_eq!(summary(&rounds.result, &network), expected, "one process: {}", rounds.result);
        });
        Ok(())
    };
    runner.run(&steps(), property).expect("the same result everywhere");
}
