//! The gateway's own tools, which are beside those of its servers at `/mcp`: reading resources, for models whose clients
//! do not offer them; signing in; and, with `--tool-search`, finding and calling tools that are not listed.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use gateway::Gateway;
use host::{CallerIdentity, OfferedCatalog, Server};
use json::Json;
use servers::manager::state::Status;
use spile_core::{
    Call, CallContext, CallError, CallResult, Catalog, CatalogChange, ChangeListener, ContentBlock,
    Everything, ItemKind, Outcome, Provider, ResourceContents, RoleView, Run, Tool, ToolAnnotations,
    ToolError, ToolErrorCode, ToolResult,
};

use super::decisions::GatewayTable;
use super::sign_in::SignIns;
use super::tool_search;

pub(super) const LIST_RESOURCES: &str = "list_resources";
pub(super) const READ_RESOURCE: &str = "read_resource";
pub(super) const SIGN_IN: &str = "sign_in";
pub(super) const SEARCH_TOOLS: &str = "search_tools";
pub(super) const CALL_TOOL: &str = "call_tool";
/// The name of this provider; servers have other names.
pub(super) const PROVIDER: &str = "gateway's own tools";

const PAGE_ITEMS: usize = 100;
const FOUND_DEFAULT: u64 = 5;
const FOUND_MAX: u64 = 20;

pub(super) struct GatewayTools {
    gateway: Arc<Gateway>,
    table: Arc<GatewayTable>,
    main: OnceLock<Weak<Server>>,
    is_search: bool,
    /// `None` if callers may not sign in.
    sign_ins: Option<Arc<SignIns>>,
    catalog: Mutex<Arc<Catalog>>,
    listener: Mutex<Option<Arc<dyn ChangeListener>>>,
}

impl GatewayTools {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        table: Arc<GatewayTable>,
        is_search: bool,
        sign_ins: Option<Arc<SignIns>>,
    ) -> Arc<Self> {
        let tools = Self {
            gateway,
            table,
            main: OnceLock::new(),
            is_search,
            sign_ins,
            catalog: Mutex::default(),
            listener: Mutex::default(),
        };
        *tools.lock() = Arc::new(tools.current_catalog());
        Arc::new(tools)
    }

    /// Set once, when there is a server with everything.
    pub(super) fn set_main(&self, server: &Arc<Server>) {
        let _ = self.main.set(Arc::downgrade(server));
        self.refresh();
    }

    /// Offers what is useful now: no tool for resources where there are none, none to sign in where nobody has to.
    pub(super) fn refresh(&self) {
        let new = Arc::new(self.current_catalog());
        let old = std::mem::replace(&mut *self.lock(), new.clone());
        if old.tools != new.tools {
            let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(listener) = listener {
                listener.catalog_changed(CatalogChange::Tools);
            }
        }
    }

    fn current_catalog(&self) -> Catalog {
        self.definitions(self.table.has_resources())
    }

    /// What is offered if the servers have resources, or have none.
    pub(super) fn definitions(&self, has_resources: bool) -> Catalog {
        let mut tools = Vec::new();
        if self.is_search {
            tools.extend([search_tools_definition(), call_tool_definition()]);
        }
        if has_resources {
            tools.extend([list_resources_definition(), read_resource_definition()]);
        }
        let waiting: Vec<String> = match &self.sign_ins {
            Some(_) => self.servers_to_sign_in(),
            None => Vec::new(),
        };
        if !waiting.is_empty() {
            tools.push(sign_in_definition(&waiting));
        }
        let instructions = self.is_search.then(|| SEARCH_INSTRUCTIONS.to_owned());
        Catalog { tools, instructions, list_changed: true, ..Catalog::default() }
    }

    fn servers_to_sign_in(&self) -> Vec<String> {
        let statuses = self.gateway.manager().statuses().into_iter();
        statuses.filter(|one| one.status == Status::NeedsAuth).map(|one| one.name).collect()
    }

    fn offered(&self, cx: &CallContext<'_>) -> Option<OfferedCatalog> {
        let main = self.main.get().and_then(Weak::upgrade)?;
        let principal = cx.caller.principal.clone();
        Some(main.offered_catalog(&CallerIdentity { principal, address: None, request_head: None }))
    }

    fn list_resources(&self, call: &Call, cx: &CallContext<'_>) -> Outcome {
        let Some(offered) = self.offered(cx) else { return internal("there is no server yet") };
        let wanted = call.text_argument("server");
        if let Some(wanted) = &wanted
            && !self.table.has_server(wanted)
        {
            return ToolError::new(ToolErrorCode::NotFound, format!("there is no server `{wanted}`")).into();
        }
        let origin = |uri: &str| self.table.resource_server(uri);
        let is_wanted =
            |server: &Option<String>| wanted.as_ref().is_none_or(|wanted| server.as_deref() == Some(wanted));
        let resources = offered.resources().map(|one| {
            let about = (one.title.as_ref().unwrap_or(&one.name), &one.description, &one.mime_type);
            ("uri", &one.uri, about)
        });
        let templates = offered.resource_templates().map(|one| {
            let about = (one.title.as_ref().unwrap_or(&one.name), &one.description, &one.mime_type);
            ("uriTemplate", &one.uri_template, about)
        });
        let all: Vec<_> = resources
            .chain(templates)
            .map(|(key, uri, about)| (key, uri, about, origin(uri)))
            .filter(|(_, _, _, server)| is_wanted(server))
            .collect();
        let offset = match call.text_argument("cursor").as_deref().map(str::parse::<usize>) {
            None => 0,
            Some(Ok(offset)) => offset,
            Some(Err(_)) => {
                let message = "`cursor` is not the `nextCursor` of an earlier page";
                return ToolError::new(ToolErrorCode::InvalidArguments, message).into();
            }
        };
        let page = all.iter().skip(offset).take(PAGE_ITEMS);
        let next = offset.saturating_add(PAGE_ITEMS);
        let json = Json::object(|out| {
            out.array("resources", page, |out, (key, uri, (name, description, mime_type), server)| {
                let mut one = json::write::ObjectWriter::new(out);
                one.str(key, uri).str("name", name).maybe_str("server", server.as_deref());
                one.maybe_str("description", description.as_deref())
                    .maybe_str("mimeType", mime_type.as_deref());
                one.end();
            });
            if next < all.len() {
                out.str("nextCursor", &next.to_string());
            }
        });
        ToolResult::structured(json).into()
    }

    fn read_resource(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        let uri = call.text_argument("uri").unwrap_or_default().into_owned();
        let reading = cx.tools.read_resource(&uri, cx.journal.to_passed_on());
        Run::later(async move {
            match reading.await {
                Outcome::Done(result) => resource_result(&result),
                Outcome::Failed(CallError::UnknownItem { .. }) => {
                    let message =
                        format!("no server has the resource `{uri}`; `{LIST_RESOURCES}` shows what there is");
                    ToolError::new(ToolErrorCode::NotFound, message).into()
                }
                Outcome::Failed(CallError::Provider { message, .. }) => {
                    ToolError::new(ToolErrorCode::SourceUnavailable, message).into()
                }
                outcome => outcome,
            }
        })
    }

    fn search_tools(&self, call: &Call, cx: &CallContext<'_>) -> Outcome {
        let Some(offered) = self.offered(cx) else { return internal("there is no server yet") };
        self.gateway.looked_at();
        let query = call.text_argument("query").unwrap_or_default();
        let limit =
            call.arguments().and_then(|arguments| arguments.get("limit")?.u64()).unwrap_or(FOUND_DEFAULT);
        let tools: Vec<&Tool> = offered.unlisted_tools().collect();
        let found = tool_search::search(&tools, &query, limit.clamp(1, FOUND_MAX) as usize);
        let json = Json::object(|out| {
            out.array("tools", &found, |out, tool| {
                let server = self.table.tool_server(&tool.name);
                let definition = tool_search::definition(tool, server.as_deref());
                out.extend_from_slice(definition.as_str().as_bytes());
            });
            out.int("searched", tools.len() as i64);
        });
        ToolResult::structured(json).into()
    }

    fn call_tool(call: &Call, cx: &CallContext<'_>) -> Run {
        let name = call.text_argument("name").unwrap_or_default().into_owned();
        if [CALL_TOOL, SEARCH_TOOLS, LIST_RESOURCES, READ_RESOURCE, SIGN_IN].contains(&&*name) {
            let message = format!("`{name}` is listed; call it directly");
            return Run::now(ToolError::new(ToolErrorCode::InvalidArguments, message));
        }
        let arguments = call.arguments().and_then(|arguments| arguments.get("arguments"));
        let arguments = arguments.map_or_else(|| Json::object(|_| {}), Json::from);
        let running = cx.tools.pass_on(&name, arguments, cx.journal.to_passed_on());
        Run::later(async move {
            match running.await {
                Outcome::Failed(CallError::UnknownItem { kind: ItemKind::Tool, .. }) => {
                    let message = format!("there is no tool `{name}`; `{SEARCH_TOOLS}` finds names");
                    ToolError::new(ToolErrorCode::NotFound, message).into()
                }
                outcome => outcome,
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Catalog>> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provider for GatewayTools {
    fn catalog(&self) -> Arc<Catalog> {
        self.lock().clone()
    }

    fn run(&self, call: &Call, cx: &CallContext<'_>) -> Run {
        match (&*call.name(), &self.sign_ins) {
            (LIST_RESOURCES, _) => Run::Now(self.list_resources(call, cx)),
            (READ_RESOURCE, _) => self.read_resource(call, cx),
            (SEARCH_TOOLS, _) => Run::Now(self.search_tools(call, cx)),
            (CALL_TOOL, _) => Self::call_tool(call, cx),
            (SIGN_IN, Some(sign_ins)) => sign_ins.run(call, cx),
            (name, _) => {
                let unknown = CallError::UnknownItem { kind: ItemKind::Tool, name: name.to_owned() };
                Run::Now(Outcome::Failed(unknown))
            }
        }
    }

    /// What they find and call is the caller's.
    fn role_view(&self, _role: &str) -> RoleView {
        RoleView::Part(Arc::new(Everything))
    }

    fn set_change_listener(&self, listener: Arc<dyn ChangeListener>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }
}

fn internal(detail: &str) -> Outcome {
    CallError::Internal { detail: detail.to_owned() }.into()
}

/// What was read, as a tool returns it: text as text, pictures and sound as such.
fn resource_result(result: &CallResult) -> Outcome {
    let stored = wire::encode::stored_result(result);
    let doc = stored.to_doc();
    let contents = doc.root().get("contents").into_iter().flat_map(|contents| contents.elements());
    let blocks = contents.filter_map(|one| {
        let text = |key: &str| Some(one.get(key)?.str()?.into_owned());
        let mime_type = text("mimeType");
        if let Some(text) = text("text") {
            return Some(ContentBlock::Text(text));
        }
        let (base64, uri) = (text("blob")?, text("uri").unwrap_or_default());
        Some(match mime_type {
            Some(mime_type) if mime_type.starts_with("image/") => {
                ContentBlock::Image { data: base64, mime_type }
            }
            Some(mime_type) if mime_type.starts_with("audio/") => {
                ContentBlock::Audio { data: base64, mime_type }
            }
            mime_type => {
                ContentBlock::EmbeddedResource(ResourceContents::Blob { uri, mime_type, base64, meta: None })
            }
        })
    });
    ToolResult::blocks(blocks.collect()).into()
}

const SEARCH_INSTRUCTIONS: &str = "The tools of these servers are not listed. Find them with search_tools, in words of \
                                   the task, and run them with call_tool.";

const READ_ONLY: ToolAnnotations =
    ToolAnnotations { read_only: Some(true), destructive: None, idempotent: Some(true), open_world: None };

fn schema(text: &str) -> Json {
    Json::parse(text).expect("the schema is written here")
}

fn list_resources_definition() -> Tool {
    let input = r#"{"type":"object","properties":{"server":{"type":"string","description":"Only resources of this server."},"cursor":{"type":"string","description":"`nextCursor` of the page before."}},"additionalProperties":false}"#;
    Tool {
        title: Some("List resources".into()),
        annotations: READ_ONLY,
        ..Tool::new(
            LIST_RESOURCES,
            "List the resources of all connected servers: documents, files and records that can be read. An entry with \
             `uriTemplate` stands for many; replace the names in braces.",
            schema(input),
        )
    }
}

fn read_resource_definition() -> Tool {
    let input = r#"{"type":"object","properties":{"uri":{"type":"string","description":"The URI, as list_resources shows it."}},"required":["uri"],"additionalProperties":false}"#;
    Tool {
        title: Some("Read a resource".into()),
        annotations: READ_ONLY,
        ..Tool::new(READ_RESOURCE, "Read one resource of a connected server by its URI.", schema(input))
    }
}

fn search_tools_definition() -> Tool {
    let input = format!(
        r#"{{"type":"object","properties":{{"query":{{"type":"string","description":"What you want to do, in a few words."}},"limit":{{"type":"integer","minimum":1,"maximum":{FOUND_MAX},"description":"How many tools to return; {FOUND_DEFAULT} by default."}}}},"required":["query"],"additionalProperties":false}}"#
    );
    Tool {
        title: Some("Search tools".into()),
        annotations: READ_ONLY,
        ..Tool::new(
            SEARCH_TOOLS,
            "Find tools of the connected servers by what they do. Returns names, descriptions and input schemas; run a \
             tool with call_tool.",
            schema(&input),
        )
    }
}

fn call_tool_definition() -> Tool {
    let input = r#"{"type":"object","properties":{"name":{"type":"string","description":"The tool's name, from search_tools."},"arguments":{"type":"object","description":"Arguments that match the tool's input schema."}},"required":["name"],"additionalProperties":false}"#;
    Tool {
        title: Some("Call a tool".into()),
        ..Tool::new(
            CALL_TOOL,
            "Run a tool that search_tools found. The result is the tool's own.",
            schema(input),
        )
    }
}

fn sign_in_definition(servers: &[String]) -> Tool {
    let input = Json::object(|out| {
        out.str("type", "object").object("properties", |out| {
            out.object("server", |out| {
                out.str("type", "string").str("description", "The server to sign in to.");
                out.array("enum", servers, |out, name| json::write::string(out, name));
            });
            out.object("redirect_url", |out| {
                out.str("type", "string");
                out.str("description", "The address that the browser ended at, if it could not open it.");
            });
        });
        out.array("required", ["server"], json::write::string);
        out.bool("additionalProperties", false);
    });
    Tool {
        title: Some("Sign in to a server".into()),
        annotations: ToolAnnotations {
            read_only: Some(false),
            destructive: Some(false),
            idempotent: Some(true),
            open_world: Some(true),
        },
        ..Tool::new(
            SIGN_IN,
            "Start the sign-in to a server that needs it. Returns an address that the user must open in a browser; call it \
             again afterwards to see whether the sign-in is complete.",
            input,
        )
    }
}
