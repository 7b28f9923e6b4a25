//! What the other fixtures lack: everything that is shaped differently by version, and work that waits.
//!
//! `hold` and `job` wait until `release` is called, so a transcript decides what is under way when.

use std::sync::{Arc, OnceLock};

use call::{
    Annotations, Answer, Ask, Asks, Block, Body, Call, Catalog, Change, Completion, CompletionOf, Contents,
    Cx, Elicited, Emit, Fault, Level, Listener, Message, Outcome, Prompt, PromptArgument, PromptReply,
    Provider, Reply, Resource, Role, Run, Target, TaskUse, Template, Thing, Tool, ToolReply,
};
use json::Json;
use tokio::sync::watch;

pub struct Stage {
    catalog: Arc<Catalog>,
    listener: OnceLock<Arc<dyn Listener>>,
    releases: watch::Sender<u64>,
    waiting: Arc<watch::Sender<usize>>,
}

impl Default for Stage {
    fn default() -> Self {
        Self {
            catalog: Arc::new(catalog()),
            listener: OnceLock::new(),
            releases: watch::Sender::new(0),
            waiting: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Provider for Stage {
    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    fn run(&self, call: &Call, cx: &Cx<'_>) -> Run {
        match call.target {
            Target::Tool => self.tool(call, cx),
            Target::Prompt => Run::now(prompt()),
            Target::Resource => Run::now(read(call)),
            Target::Completion { of: CompletionOf::Template, value, context, .. } => {
                let typed = call.doc().node(value).str().unwrap_or_default();
                let floor = context.and_then(|at| call.doc().node(at).get("floor")?.str());
                let rooms = (0..150).map(|n| format!("{}{n}", floor.as_deref().unwrap_or("room-")));
                Run::now(Reply::Completion(Completion::of(rooms.filter(|room| room.starts_with(&*typed)))))
            }
            Target::Completion { of: CompletionOf::Prompt, .. } => {
                Run::now(Reply::Completion(Completion::default()))
            }
        }
    }

    fn attach(&self, listener: Arc<dyn Listener>) {
        let _first_wins = self.listener.set(listener);
    }
}

impl Stage {
    fn tool(&self, call: &Call, cx: &Cx<'_>) -> Run {
        match &*call.name() {
            "decorated" => Run::now(ToolReply {
                meta: Some(constant(r#"{"example.com/cost":3}"#)),
                ..ToolReply::structured(constant(r#"{"n":1}"#))
            }),
            "numbers" => Run::now(ToolReply::structured(constant("[1,2]"))),
            "link" => Run::now(ToolReply::blocks(vec![Block::Link(plan())])),
            "sound" => Run::now(ToolReply::blocks(vec![sound()])),
            "shout" => {
                shout(cx.emit);
                Run::now(ToolReply::text("Shouted"))
            }
            "crash" => panic!("a handler of the stage breaks, as it always does"),
            "visit" => Run::now(visit(cx)),
            "think" => Run::now(think(cx)),
            "hold" => Run::later(self.held()),
            "job" => Run::now(Outcome::Detach(Box::pin(self.held()))),
            "release" => {
                self.releases.send_modify(|count| *count += 1);
                Run::now(ToolReply::text("Released"))
            }
            "wait_for_none" => {
                let mut waiting = self.waiting.subscribe();
                Run::later(async move {
                    // The sender lives as long as the stage.
                    let _none = waiting.wait_for(|count| *count == 0).await;
                    ToolReply::text("Nobody waits").into()
                })
            }
            "wait_for_some" => {
                let mut waiting = self.waiting.subscribe();
                Run::later(async move {
                    let _some = waiting.wait_for(|count| *count > 0).await;
                    ToolReply::text("Somebody waits").into()
                })
            }
            "announce" => {
                if let Some(listener) = self.listener.get() {
                    listener.changed(Change::Resources);
                    listener.changed(Change::Resource(PLAN.into()));
                }
                Run::now(ToolReply::text("Announced"))
            }
            "route" => {
                let arguments = call.arguments().map(Json::from);
                Run::now(ToolReply::text(arguments.as_ref().map_or("{}", Json::as_str)))
            }
            name => Run::now(Fault::Unknown { what: Thing::Tool, name: name.into() }),
        }
    }

    /// Waits for the next release; counted until it ends, whichever way.
    fn held(&self) -> impl Future<Output = Outcome> + Send + 'static {
        let mut releases = self.releases.subscribe();
        let counted = Counted::new(&self.waiting);
        async move {
            let _counted = counted;
            // The sender lives as long as the stage.
            let _released = releases.changed().await;
            ToolReply::text("Held until released").into()
        }
    }
}

struct Counted(Arc<watch::Sender<usize>>);

impl Counted {
    fn new(waiting: &Arc<watch::Sender<usize>>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

fn shout(emit: &Emit) {
    for (level, name) in Level::ALL {
        emit.log(level, Some("stage"), Json::object(|data| _ = data.str("said", name)));
    }
}

fn visit(cx: &Cx<'_>) -> Outcome {
    let url = || Ask::Url { message: "Please sign in".into(), url: "https://example.com/sign-in".into() };
    match cx.journal.answer("sign_in").as_ref().and_then(Answer::elicited) {
        None => Outcome::NeedInput(Asks::one("sign_in", url())),
        Some(Elicited::Accepted(_)) => ToolReply::text("Signed in").into(),
        Some(Elicited::Declined | Elicited::Cancelled) => ToolReply::text("Not signed in").failed().into(),
    }
}

fn think(cx: &Cx<'_>) -> Outcome {
    match cx.journal.answer("thought").as_ref().and_then(Answer::sampled) {
        None => Outcome::NeedInput(Asks::one("thought", Ask::Sample { params: constant(THOUGHT) })),
        Some(text) => ToolReply::text(format!("Thought: {text}")).into(),
    }
}

fn read(call: &Call) -> Outcome {
    if call.name() != PLAN {
        return Fault::Unknown { what: Thing::Resource, name: call.name().into_owned() }.into();
    }
    let body = Body::Text { uri: PLAN.into(), mime: Some("text/plain".into()), text: "A plan".into() };
    Reply::Resource(Contents { bodies: vec![body], ttl_ms: 5000, public: false }).into()
}

fn prompt() -> Outcome {
    let messages = [Block::Link(plan()), sound(), Block::Text("Look and listen".into())];
    let messages = messages.map(|block| Message { role: Role::User, block }).into();
    Reply::Prompt(PromptReply { description: Some("What to look at".into()), messages }).into()
}

fn plan() -> Resource {
    Resource {
        uri: PLAN.into(),
        name: "plan".into(),
        title: Some("The Plan".into()),
        description: Some("What is to be done".into()),
        mime: Some("text/plain".into()),
        size: Some(6),
        annotations: Some(constant(r#"{"audience":["user"],"priority":0.5}"#)),
        icons: Some(constant(ICONS)),
        meta: Some(constant(META)),
    }
}

fn sound() -> Block {
    Block::Audio { data: "UklGRg==".into(), mime: "audio/wav".into() }
}

fn catalog() -> Catalog {
    let plain = |name: &str| Tool::new(name, "A tool of the stage", constant(r#"{"type":"object"}"#));
    let decorated = Tool {
        title: Some("Decorated".into()),
        input: constant(
            r#"{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}"#,
        ),
        output: Some(constant(r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#)),
        annotations: Annotations {
            read_only: Some(true),
            destructive: Some(false),
            idempotent: Some(true),
            open_world: Some(false),
        },
        icons: Some(constant(ICONS)),
        meta: Some(constant(META)),
        ..plain("decorated")
    };
    let numbers =
        Tool { output: Some(constant(r#"{"type":"array","items":{"type":"integer"}}"#)), ..plain("numbers") };
    let route = Tool {
        input: constant(
            r#"{"type":"object","properties":{
                "count":{"type":"integer","x-mcp-header":"Count"},
                "urgent":{"type":"boolean","x-mcp-header":"Urgent"},
                "to":{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"City"}}}
            }}"#,
        ),
        ..plain("route")
    };
    let job = Tool { task: TaskUse::Optional, ..plain("job") };
    let names = [
        "link",
        "sound",
        "shout",
        "crash",
        "visit",
        "think",
        "hold",
        "release",
        "wait_for_some",
        "wait_for_none",
        "announce",
    ];
    Catalog {
        rate: None,
        tools: [decorated, numbers, route, job].into_iter().chain(names.map(plain)).collect(),
        resources: vec![plan()],
        templates: vec![Template {
            uri_template: "stage://rooms/{room}".into(),
            name: "rooms".into(),
            title: Some("Rooms".into()),
            description: Some("One room".into()),
            mime: Some("text/plain".into()),
            annotations: None,
            icons: Some(constant(ICONS)),
            meta: Some(constant(META)),
        }],
        prompts: vec![Prompt {
            name: "look".into(),
            title: Some("Look and listen".into()),
            description: Some("Content of the newer kinds".into()),
            arguments: vec![PromptArgument {
                name: "where".into(),
                title: Some("Where to look".into()),
                description: None,
                required: false,
            }],
            icons: Some(constant(ICONS)),
            meta: Some(constant(META)),
        }],
        completes: true,
        logs: true,
        watches: true,
        changes: true,
        instructions: Some("Mind the step.".into()),
    }
}

const PLAN: &str = "stage://plan";
const ICONS: &str = r#"[{"src":"https://example.com/icon.png","mimeType":"image/png","sizes":["48x48"]}]"#;
const META: &str = r#"{"example.com/kept":true}"#;
const THOUGHT: &str = r#"{"messages":[{"role":"user","content":{"type":"text","text":"Think"}}],"maxTokens":10,"tools":[{"name":"calculate","inputSchema":{"type":"object"}}],"toolChoice":{"mode":"auto"}}"#;

fn constant(text: &str) -> Json {
    Json::parse(text).expect("a constant of the stage is valid JSON")
}
