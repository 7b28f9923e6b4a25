//! What the other fixtures lack: everything that is encoded differently by version, and calls that wait.
//!
//! `hold` and `job` wait until `release` is called, so a transcript decides which calls are in flight when.

use std::sync::{Arc, OnceLock};

use json::Json;
use spile_core::{
    Call, CallContext, CallError, CallResult, CallTarget, Catalog, CatalogChange, ChangeListener,
    CompletionRef, CompletionResult, ContentBlock, ElicitResult, EventSink, InputRequest, InputRequests,
    InputResponse, ItemKind, LogLevel, Outcome, Prompt, PromptArgument, PromptMessage, PromptResult,
    Provider, Resource, ResourceContents, ResourceResult, ResourceTemplate, Role, Run, TaskSupport, Tool,
    ToolAnnotations, ToolResult,
};
use tokio::sync::watch;

pub struct TranscriptProvider {
    catalog: Arc<Catalog>,
    listener: OnceLock<Arc<dyn ChangeListener>>,
    releases: watch::Sender<u64>,
    waiting_calls: Arc<watch::Sender<usize>>,
}

impl Default for TranscriptProvider {
    fn default() -> Self {
        Self {
            catalog: Arc::new(catalog()),
            listener: OnceLock::new(),
            releases: watch::Sender::new(0),
            waiting_calls: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Provider for TranscriptProvider {
    /// Its handlers change nothing.
    fn repeats_rounds_safely(&self) -> bool {
        true
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        match call.target {
            CallTarget::Tool => self.run_tool(call, cx),
            CallTarget::Prompt => Run::now(prompt()),
            CallTarget::Resource => Run::now(read(call)),
            CallTarget::Completion {
                reference: CompletionRef::ResourceTemplate,
                value_index: value,
                context_index: context,
                ..
            } => {
                let typed = call.doc().node(value).str().unwrap_or_default();
                let floor = context.and_then(|location| call.doc().node(location).get("floor")?.str());
                let rooms = (0..150).map(|n| format!("{}{n}", floor.as_deref().unwrap_or("room-")));
                Run::now(CallResult::Completion(CompletionResult::from_values(
                    rooms.filter(|room| room.starts_with(&*typed)),
                )))
            }
            CallTarget::Completion { reference: CompletionRef::Prompt, .. } => {
                Run::now(CallResult::Completion(CompletionResult::default()))
            }
        }
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        let _first_wins = self.listener.set(listener);
    }
}

impl TranscriptProvider {
    fn run_tool(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        match &*call.name() {
            "decorated" => Run::now(ToolResult {
                meta: Some(parse_constant(r#"{"example.com/cost":3}"#)),
                ..ToolResult::structured(parse_constant(r#"{"n":1}"#))
            }),
            "numbers" => Run::now(ToolResult::structured(parse_constant("[1,2]"))),
            "link" => Run::now(ToolResult::blocks(vec![ContentBlock::ResourceLink(plan())])),
            "sound" => Run::now(ToolResult::blocks(vec![sound()])),
            "shout" => {
                shout(cx.events);
                Run::now(ToolResult::text("Shouted"))
            }
            "crash" => panic!("a handler of the stage breaks, as it always does"),
            "visit" => Run::now(visit(cx)),
            "think" => Run::now(think(cx)),
            "hold" => Run::later(self.wait_for_release()),
            "job" => {
                Run::now(Outcome::Detach(spile_core::DetachedWork::from_future(self.wait_for_release())))
            }
            "release" => {
                self.releases.send_modify(|count| *count += 1);
                Run::now(ToolResult::text("Released"))
            }
            "wait_for_none" => {
                let mut waiting = self.waiting_calls.subscribe();
                Run::later(async move {
                    // The sender lives as long as the provider.
                    let _none = waiting.wait_for(|count| *count == 0).await;
                    ToolResult::text("Nobody waits").into()
                })
            }
            "wait_for_some" => {
                let mut waiting = self.waiting_calls.subscribe();
                Run::later(async move {
                    let _some = waiting.wait_for(|count| *count > 0).await;
                    ToolResult::text("Somebody waits").into()
                })
            }
            "announce" => {
                if let Some(listener) = self.listener.get() {
                    listener.catalog_changed(CatalogChange::Resources);
                    listener.catalog_changed(CatalogChange::Resource(PLAN.into()));
                }
                Run::now(ToolResult::text("Announced"))
            }
            "route" => {
                let arguments = call.arguments().map(Json::from);
                Run::now(ToolResult::text(arguments.as_ref().map_or("{}", Json::as_str)))
            }
            name => Run::now(CallError::UnknownItem { kind: ItemKind::Tool, name: name.into() }),
        }
    }

    /// Waits for the next release; counted as in flight until it ends in any way.
    fn wait_for_release(&self) -> impl Future<Output = Outcome> + Send + 'static {
        let mut releases = self.releases.subscribe();
        let counted = WaitingGuard::new(&self.waiting_calls);
        async move {
            let _counted = counted;
            // The sender lives as long as the provider.
            let _released = releases.changed().await;
            ToolResult::text("Held until released").into()
        }
    }
}

struct WaitingGuard(Arc<watch::Sender<usize>>);

impl WaitingGuard {
    fn new(waiting: &Arc<watch::Sender<usize>>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting.clone())
    }
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

fn shout(events: &EventSink) {
    for (level, name) in LogLevel::ALL {
        events.log(level, Some("stage"), Json::object(|data| _ = data.str("said", name)));
    }
}

fn visit(cx: &CallContext<'_>) -> Outcome {
    let url =
        || InputRequest::Url { message: "Please sign in".into(), url: "https://example.com/sign-in".into() };
    match cx.journal.response("sign_in").as_ref().and_then(InputResponse::elicit_result) {
        None => Outcome::InputRequired(InputRequests::single("sign_in", url())),
        Some(ElicitResult::Accepted(_)) => ToolResult::text("Signed in").into(),
        Some(ElicitResult::Declined | ElicitResult::Cancelled) => {
            ToolResult::text("Not signed in").into_error().into()
        }
    }
}

fn think(cx: &CallContext<'_>) -> Outcome {
    match cx.journal.response("thought").as_ref().and_then(InputResponse::sampled_text) {
        None => Outcome::InputRequired(InputRequests::single(
            "thought",
            InputRequest::Sampling { params: parse_constant(THOUGHT) },
        )),
        Some(text) => ToolResult::text(format!("Thought: {text}")).into(),
    }
}

fn read(call: &Call) -> Outcome {
    if call.name() != PLAN {
        return CallError::UnknownItem { kind: ItemKind::Resource, name: call.name().into_owned() }.into();
    }
    let body = ResourceContents::Text {
        uri: PLAN.into(),
        mime_type: Some("text/plain".into()),
        text: "A plan".into(),
        meta: None,
    };
    CallResult::Resource(ResourceResult { contents: vec![body], ttl_ms: 5000, public: false }).into()
}

fn prompt() -> Outcome {
    let messages =
        [ContentBlock::ResourceLink(plan()), sound(), ContentBlock::Text("Look and listen".into())];
    let messages = messages.map(|block| PromptMessage { role: Role::User, content: block }).into();
    CallResult::Prompt(PromptResult { description: Some("What to look at".into()), messages }).into()
}

fn plan() -> Resource {
    Resource {
        uri: PLAN.into(),
        name: "plan".into(),
        title: Some("The Plan".into()),
        description: Some("What is to be done".into()),
        mime_type: Some("text/plain".into()),
        size: Some(6),
        annotations: Some(parse_constant(r#"{"audience":["user"],"priority":0.5}"#)),
        icons: Some(parse_constant(ICONS)),
        meta: Some(parse_constant(META)),
    }
}

fn sound() -> ContentBlock {
    ContentBlock::Audio { data: "UklGRg==".into(), mime_type: "audio/wav".into() }
}

fn catalog() -> Catalog {
    let plain = |name: &str| Tool::new(name, "A tool of the stage", parse_constant(r#"{"type":"object"}"#));
    let decorated = Tool {
        title: Some("Decorated".into()),
        input_schema: parse_constant(
            r#"{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}"#,
        ),
        output_schema: Some(parse_constant(
            r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#,
        )),
        annotations: ToolAnnotations {
            read_only: Some(true),
            destructive: Some(false),
            idempotent: Some(true),
            open_world: Some(false),
        },
        icons: Some(parse_constant(ICONS)),
        meta: Some(parse_constant(META)),
        ..plain("decorated")
    };
    let numbers = Tool {
        output_schema: Some(parse_constant(r#"{"type":"array","items":{"type":"integer"}}"#)),
        ..plain("numbers")
    };
    let route = Tool {
        input_schema: parse_constant(
            r#"{"type":"object","properties":{
                "count":{"type":"integer","x-mcp-header":"Count"},
                "urgent":{"type":"boolean","x-mcp-header":"Urgent"},
                "to":{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"City"}}}
            }}"#,
        ),
        ..plain("route")
    };
    let job = Tool { task_support: TaskSupport::Optional, ..plain("job") };
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
        rate_limit: None,
        is_open_ended: false,
        tools: [decorated, numbers, route, job].into_iter().chain(names.map(plain)).collect(),
        resources: vec![plan()],
        resource_templates: vec![ResourceTemplate {
            uri_template: "stage://rooms/{room}".into(),
            name: "rooms".into(),
            title: Some("Rooms".into()),
            description: Some("One room".into()),
            mime_type: Some("text/plain".into()),
            annotations: None,
            icons: Some(parse_constant(ICONS)),
            meta: Some(parse_constant(META)),
        }],
        skills: Vec::new(),
        directories: Vec::new(),
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
            icons: Some(parse_constant(ICONS)),
            meta: Some(parse_constant(META)),
        }],
        completions: true,
        logging: true,
        resource_subscriptions: true,
        list_changed: true,
        instructions: Some("Mind the step.".into()),
        reads_request_heads: false,
    }
}

const PLAN: &str = "stage://plan";
const ICONS: &str = r#"[{"src":"https://example.com/icon.png","mimeType":"image/png","sizes":["48x48"]}]"#;
const META: &str = r#"{"example.com/kept":true}"#;
const THOUGHT: &str = r#"{"messages":[{"role":"user","content":{"type":"text","text":"Think"}}],"maxTokens":10,"tools":[{"name":"calculate","inputSchema":{"type":"object"}}],"toolChoice":{"mode":"auto"}}"#;

fn parse_constant(text: &str) -> Json {
    Json::parse(text).expect("a constant of the stage is valid JSON")
}
