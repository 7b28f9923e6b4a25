//! Random handlers that mix effects, questions and failures give the same result and the same effects,
//! however their rounds are cut and wherever each of them runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

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
    /// One of them fails, and nothing between them and `Promise.all` catches it: the others go on without anybody.
    ParallelFailing(Vec<Step>, Failing),
    Caught(Box<Step>),
    Throw,
}

/// What fails beside other steps.
#[derive(Debug, Clone, Copy)]
enum Failing {
    AtOnce,
    Fetch(u8),
    AfterQuestion,
}

/// What the user does with a question. Which one is asked first may differ, so the message decides.
#[derive(Debug, Clone, Copy)]
enum Reply {
    Accept,
    Decline,
    Cancel,
    /// An answer that does not match the schema, and a proper one when the question is asked again.
    InvalidOnce,
    Invalid,
}

#[derive(Debug, Clone)]
struct Scenario {
    steps: Vec<Step>,
    replies: Vec<Reply>,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let reply = prop_oneof![
        4 => Just(Reply::Accept),
        2 => Just(Reply::Decline),
        2 => Just(Reply::Cancel),
        2 => Just(Reply::InvalidOnce),
        1 => Just(Reply::Invalid),
    ];
    (steps(), proptest::collection::vec(reply, 1..5)).prop_map(|(steps, replies)| Scenario { steps, replies })
}

/// A user who answers each question as the scenario says.
struct User<'s> {
    replies: &'s [Reply],
    asked: Mutex<HashMap<String, u32>>,
}

impl<'s> User<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        Self { replies: &scenario.replies, asked: Mutex::default() }
    }

    fn answer(&self, request: &Value) -> Value {
        let message = request["params"]["message"].as_str().unwrap_or_default();
        if message.is_empty() {
            return accept(request);
        }
        let mut asked = self.asked.lock().expect("no panic before");
        let times = asked.entry(message.to_owned()).or_default();
        *times += 1;
        let sum: usize = message.bytes().map(usize::from).sum();
        match (self.replies[sum % self.replies.len()], *times) {
            (Reply::Decline, _) => json!({ "action": "decline" }),
            (Reply::Cancel, _) => json!({ "action": "cancel" }),
            (Reply::InvalidOnce, 1) | (Reply::Invalid, _) => {
                json!({ "action": "accept", "content": { "value": 7 } })
            }
            (Reply::Accept | Reply::InvalidOnce, _) => accept(request),
        }
    }
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
    let beside = prop_oneof![
        (0_u8..4).prop_map(Step::Fetch),
        (0_u8..4).prop_map(Step::FailingFetch),
        (4_u8..7).prop_map(Step::Ask),
        Just(Step::Random),
        Just(Step::Sleep),
        Just(Step::Log),
    ];
    let failing =
        prop_oneof![Just(Failing::AtOnce), (0_u8..4).prop_map(Failing::Fetch), Just(Failing::AfterQuestion),];
    let failing = (proptest::collection::vec(beside, 0..3), failing)
        .prop_map(|(beside, failing)| Step::ParallelFailing(caught(beside), failing));
    let leaf = prop_oneof![14 => leaf, 1 => failing];
    let step = leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            // Caught: which of several failures comes first is chance.
            proptest::collection::vec(inner.clone(), 1..4).prop_map(|steps| Step::Parallel(caught(steps))),
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

fn caught(steps: Vec<Step>) -> Vec<Step> {
    steps.into_iter().map(|step| Step::Caught(Box::new(step))).collect()
}

impl Step {
    /// Whether requests may be under way, or not begun, when the call ends: whether they are sent is chance then.
    fn leaves_others_behind(&self) -> bool {
        match self {
            Self::ParallelFailing(..) => true,
            Self::Parallel(steps) => steps.iter().any(Self::leaves_others_behind),
            Self::Caught(step) => step.leaves_others_behind(),
            _ => false,
        }
    }

    /// The first part of each path that it may request.
    fn paths(&self, paths: &mut Vec<String>) {
        match self {
            Self::Fetch(n) => paths.push(format!("f{n}")),
            Self::FailingFetch(n) => paths.push(format!("fail{n}")),
            Self::Tool(n) => paths.push(format!("nested{n}")),
            Self::Random => paths.push("r".into()),
            Self::Clock => paths.push("t".into()),
            Self::Parallel(steps) => steps.iter().for_each(|step| step.paths(paths)),
            Self::ParallelFailing(steps, failing) => {
                steps.iter().for_each(|step| step.paths(paths));
                if let Failing::Fetch(n) = failing {
                    paths.push(format!("fail{n}"));
                }
            }
            Self::Caught(step) => step.paths(paths),
            Self::Refused
            | Self::Ask(_)
            | Self::Sample(_)
            | Self::AskWithTimeout(_)
            | Self::Sleep
            | Self::Log
            | Self::Throw => {}
        }
    }

    fn code(&self) -> String {
        match self {
            Self::Fetch(n) => format!("await get('/f{n}')"),
            Self::FailingFetch(n) => format!("await get('/fail{n}')"),
            Self::Refused => "await ctx.fetch('https://undeclared.example/').catch((e) => e.name)".into(),
            Self::Ask(n) => format!("say(await ctx.elicit('k{n}', form('m{n}')))"),
            Self::Sample(n) => format!("(await ctx.sample('s{n}', 'p')).content.text"),
            Self::AskWithTimeout(n) => {
                format!("say(await Promise.race([ctx.elicit('t{n}', form('t{n}')), ctx.sleep(600000)]))")
            }
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
            Self::ParallelFailing(steps, failing) => {
                let failing = match failing {
                    Failing::AtOnce => "throw new Error('at once')".to_owned(),
                    Failing::Fetch(n) => format!("await get('/fail{n}')"),
                    Failing::AfterQuestion => {
                        "await ctx.elicit('last', form('last')); throw new Error('after a question')"
                            .to_owned()
                    }
                };
                let mut parts: Vec<String> =
                    steps.iter().map(|step| format!("(async () => {{ {} }})()", step.code())).collect();
                parts.insert(parts.len() / 2, format!("(async () => {{ {failing} }})()"));
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
        const say = (answer) => answer.action === "accept" ? answer.content.value : answer.action;
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
        return `${n} ${answer.action} ${answer.content?.value}`;
    };
"#;

/// The result, and the paths that were requested, without what is random.
fn summary(result: &Value, network: &CountingNetwork) -> (String, Vec<String>) {
    let requests = network.0.lock().expect("no panic before").clone();
    let mut paths: Vec<String> =
        requests.iter().map(|path| path.split('/').nth(1).unwrap_or_default().to_owned()).collect();
    // Requests that run in parallel may be sent in any order.
    paths.sort();
    (format!("{} {} {}", result["isError"], result["content"][0]["text"], result["message"]), paths)
}

/// The same result and the same requests; where the call ended beside others, no request more often than the handler makes it.
fn assert_same(
    scenario: &Scenario,
    expected: &(String, Vec<String>),
    actual: &(String, Vec<String>),
    how: &str,
) {
    assert_eq!(actual.0, expected.0, "{how}: {scenario:?}");
    if !scenario.steps.iter().any(Step::leaves_others_behind) {
        assert_eq!(actual.1, expected.1, "{how}: {scenario:?}");
        return;
    }
    let mut possible = Vec::new();
    scenario.steps.iter().for_each(|step| step.paths(&mut possible));
    for path in &actual.1 {
        let count = |paths: &[String]| paths.iter().filter(|one| *one == path).count();
        assert!(count(&actual.1) <= count(&possible), "{how}: `{path}` in {:?}: {scenario:?}", actual.1);
    }
}

/// The number of random handlers; `cargo xtask judges` sets more.
fn cases() -> u32 {
    std::env::var("SPILE_REPLAYS").map_or(24, |cases| cases.parse().expect("a number"))
}

#[test]
fn rounds_can_be_cut_anywhere() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
    let property = |scenario: Scenario| {
        runtime.block_on(is_the_same_everywhere(&scenario));
        Ok(())
    };
    TestRunner::new(config).run(&scenarios(), property).expect("the same result everywhere");
}

async fn is_the_same_everywhere(scenario: &Scenario) {
    let folder = folder(&[("tools/t.js", &handler(&scenario.steps)), ("tools/nested.js", NESTED)]);
    let keys = folder.path().join("keys");
    // Compiled twice: a process that was restarted shares nothing but the store and the keys.
    let (bundle, rebuilt) = (build(folder.path()), build(folder.path()));
    let network = Arc::new(CountingNetwork::default());
    let app = app_of(&bundle, &network, &keys);
    let user = User::new(scenario);
    let handshake = PipeClient::new(&app).call("t", "{}", |request| user.answer(request)).await;
    let expected = summary(&handshake, &network);

    // A stateless client; every round on a new server.
    let network = Arc::new(CountingNetwork::default());
    let store = AppOptions::default().store();
    let apps: [App; 65] = std::array::from_fn(|at| {
        app_sharing(if at % 2 == 0 { &bundle } else { &rebuilt }, &network, &keys, &store)
    });
    let user = User::new(scenario);
    let answer = |_: &str, request: &Value| user.answer(request);
    let rounds = call_stateless(|round| &apps[round as usize], "t", "{}", answer).await;
    assert_same(scenario, &expected, &summary(&rounds.result, &network), "one process per round");

    // All rounds on one server.
    let network = Arc::new(CountingNetwork::default());
    let app = app_of(&bundle, &network, &keys);
    let user = User::new(scenario);
    let answer = |_: &str, request: &Value| user.answer(request);
    let rounds = call_stateless(|_| &app, "t", "{}", answer).await;
    assert_same(scenario, &expected, &summary(&rounds.result, &network), "one process");
}
