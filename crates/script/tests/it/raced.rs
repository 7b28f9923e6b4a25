//! Questions and timers in one handler: a question that nobody answers keeps no timer from firing.

use serde_json::{Value, json};

use crate::harness::{App, PipeClient, call_stateless, folder};
use crate::rounds::accept;

const HANDLERS: &[(&str, &str)] = &[
    (
        "tools/once.js",
        r#"
        const form = { message: "once", schema: { type: "object", properties: {} } };
        export default async ({ ms }, ctx) =>
            Promise.race([ctx.elicit("k", form).then((a) => a.action), ctx.sleep(ms).then(() => "timer")]);
        "#,
    ),
    // Asks the same until the fifth tick, and something else after the second.
    (
        "tools/ticks.js",
        r#"
        const form = (message) => ({ message, schema: { type: "object", properties: {} } });
        export default async (args, ctx) => {
            const answers = [ctx.elicit("first", form("first"))];
            let ticks = 0;
            const done = new Promise((resolve) => {
                const timer = setInterval(() => {
                    ctx.progress(++ticks);
                    if (ticks === 2) answers.push(ctx.elicit("second", form("second")));
                    if (ticks === 5) { clearInterval(timer); resolve(); }
                }, 1);
            });
            await Promise.race([done, Promise.all(answers)]);
            return `${ticks} ticks`;
        };
        "#,
    ),
    // The timer is of a tool that is called, and so is the question.
    (
        "tools/outer.js",
        r#"export default async (args, ctx) => (await ctx.tool("once", args)).content[0].text;"#,
    ),
    // After the timer it waits for the answer nevertheless.
    (
        "tools/patient.js",
        r#"
        const form = { message: "patient", schema: { type: "object", properties: {} } };
        export default async ({ ms }, ctx) => {
            const answer = ctx.elicit("k", form);
            const first = await Promise.race([answer.then(() => "answer"), ctx.sleep(ms).then(() => "timer")]);
            ctx.progress(1);
            return `${first}, ${(await answer).action}`;
        };
        "#,
    ),
];

fn app() -> App {
    App::new(folder(HANDLERS).path())
}

#[tokio::test]
async fn a_timer_fires_while_an_older_client_is_silent_and_the_question_is_cancelled() {
    let app = app();
    for (tool, text, asked) in [
        ("once", "timer", &["once"][..]),
        ("outer", "timer", &["once"]),
        ("ticks", "5 ticks", &["first", "second"]),
    ] {
        let client = PipeClient::new(&app);
        let result = client.call_answering(tool, r#"{"ms":20}"#, |_| None).await;
        assert_eq!(result["content"][0]["text"], text, "{result}");
        let requests = client.requests.lock().expect("no panic before");
        let messages: Vec<&Value> = requests.iter().map(|request| &request["params"]["message"]).collect();
        assert_eq!(messages, asked, "{tool}: each question is sent once");
        let notifications = client.notifications.lock().expect("no panic before");
        let cancelled: Vec<&Value> = notifications
            .iter()
            .filter(|one| one["method"] == "notifications/cancelled")
            .map(|one| &one["params"]["requestId"])
            .collect();
        let ids: Vec<&Value> = requests.iter().map(|request| &request["id"]).collect();
        assert_eq!(cancelled, ids, "{tool}: {notifications:?}");
    }
}

#[tokio::test]
async fn an_answer_in_time_wins_in_both_eras_and_cancels_nothing() {
    let app = app();
    for tool in ["once", "outer"] {
        let client = PipeClient::new(&app);
        let result = client.call(tool, r#"{"ms":600000}"#, accept).await;
        assert_eq!(result["content"][0]["text"], "accept", "{result}");
        assert!(client.notifications.lock().expect("no panic before").is_empty());
        let rounds = call_stateless(|_| &app, tool, r#"{"ms":600000}"#, |_, request| accept(request)).await;
        assert_eq!(rounds.result["content"][0]["text"], "accept", "{}", rounds.result);
    }
}

/// The answer comes when progress shows that the timer has fired; the request is the same one all the time.
#[tokio::test]
async fn a_question_stays_open_when_a_timer_fires_before_its_answer() {
    let app = app();
    let client = PipeClient::new(&app);
    let answer = |message: &Value| (message["method"] == "notifications/progress").then(|| accept(message));
    let result = client.call_answering("patient", r#"{"ms":20}"#, answer).await;
    assert_eq!(result["content"][0]["text"], "timer, accept", "{result}");
    assert_eq!(client.requests.lock().expect("no panic before").len(), 1);
    let notifications = client.notifications.lock().expect("no panic before").clone();
    assert!(notifications.iter().all(|one| one["method"] != "notifications/cancelled"), "{notifications:?}");

    let late = |_: &str, _: &Value| {
        std::thread::sleep(std::time::Duration::from_millis(25));
        json!({ "action": "accept", "content": {} })
    };
    let rounds = call_stateless(|_| &app, "patient", r#"{"ms":20}"#, late).await;
    assert_eq!(rounds.result["content"][0]["text"], "timer, accept", "{}", rounds.result);
}

#[tokio::test]
async fn progress_goes_on_while_a_question_is_open() {
    let app = app();
    let client = PipeClient::new(&app);
    client.call_answering("ticks", "{}", |_| None).await;
    let notifications = client.notifications.lock().expect("no panic before");
    let progress: Vec<f64> = notifications
        .iter()
        .filter(|one| one["method"] == "notifications/progress")
        .filter_map(|one| one["params"]["progress"].as_f64())
        .collect();
    assert_eq!(progress, [1.0, 2.0, 3.0, 4.0, 5.0]);
}
