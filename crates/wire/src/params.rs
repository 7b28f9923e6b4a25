//! Where the parameters of a request lie: one pass, whatever the method.

use json::Node;

use crate::error::RpcError;

/// The lists that a client may read page by page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    Tools,
    Resources,
    Templates,
    Prompts,
}

#[derive(Debug)]
pub enum TaskRequest {
    Get(String),
    Update(String, Vec<(String, json::Json)>),
    Cancel(String),
    List(Option<String>),
    Result(String),
}

/// What a client wants to hear of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotificationFilter {
    pub tools_list_changed: bool,
    pub prompts_list_changed: bool,
    pub resources_list_changed: bool,
    pub resource_uris: Vec<String>,
    pub task_ids: Vec<String>,
}

impl NotificationFilter {
    pub(crate) fn write(&self, out: &mut json::write::ObjectWriter<'_>) {
        let flags = [
            ("toolsListChanged", self.tools_list_changed),
            ("promptsListChanged", self.prompts_list_changed),
            ("resourcesListChanged", self.resources_list_changed),
        ];
        for (key, _) in flags.iter().filter(|(_, on)| *on) {
            out.bool(key, true);
        }
        let lists = [("resourceSubscriptions", &self.resource_uris), ("taskIds", &self.task_ids)];
        for (key, texts) in lists.iter().filter(|(_, texts)| !texts.is_empty()) {
            out.array(key, *texts, |out, text| json::write::string(out, text));
        }
    }

    pub(crate) fn read(node: Option<Node<'_>>) -> Result<Self, RpcError> {
        let bad = |at: &str, why| RpcError::invalid_params(format!("`params.notifications{at}`: {why}"));
        let Some(node) = node else { return Err(bad("", "missing")) };
        if !node.is_object() {
            return Err(bad("", "expected an object"));
        }
        let mut filter = Self::default();
        for (key, value) in node.members() {
            let key = key.str().unwrap_or_default();
            let flag = || value.bool().ok_or_else(|| bad(&format!(".{key}"), "expected true or false"));
            let texts = || {
                let texts: Option<Vec<String>> =
                    value.elements().map(|text| text.str().map(|s| s.into_owned())).collect();
                texts
                    .filter(|_| value.kind() == json::NodeKind::Array)
                    .ok_or_else(|| bad(&format!(".{key}"), "expected a list of strings"))
            };
            match &*key {
                "toolsListChanged" => filter.tools_list_changed = flag()?,
                "promptsListChanged" => filter.prompts_list_changed = flag()?,
                "resourcesListChanged" => filter.resources_list_changed = flag()?,
                "resourceSubscriptions" => filter.resource_uris = texts()?,
                "taskIds" => filter.task_ids = texts()?,
                _ => {}
            }
        }
        Ok(filter)
    }
}

/// A struct of places, one for each key, and the one pass that finds them.
macro_rules! node_fields {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $key:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Default)]
        pub(crate) struct $name<'d> {
            $(pub(crate) $field: Option<Node<'d>>,)*
        }

        impl<'d> $name<'d> {
            #[inline]
            pub(crate) fn read(node: Option<Node<'d>>) -> Self {
                let mut places = Self::default();
                let Some(node) = node else { return places };
                for (key, value) in node.members() {
                    let escaped;
                    let key = match key.plain_str() {
                        Some(key) => key,
                        None => {
                            escaped = key.str().unwrap_or_default();
                            &*escaped
                        }
                    };
                    match key {
                        $($key => places.$field = Some(value),)*
                        _ => {}
                    }
                }
                places
            }
        }
    };
}

node_fields! {
    /// The parts of a message. `jsonrpc` is checked by whoever reads it.
    MessageFields {
        jsonrpc = "jsonrpc",
        id = "id",
        method = "method",
        params = "params",
        result = "result",
        error = "error",
    }
}

node_fields! {
    /// Everything that `params` may hold, in any method.
    Params {
        name = "name",
        arguments = "arguments",
        meta = "_meta",
        uri = "uri",
        cursor = "cursor",
        input_responses = "inputResponses",
        request_state = "requestState",
        task = "task",
        task_id = "taskId",
        reference = "ref",
        argument = "argument",
        context = "context",
        level = "level",
        notifications = "notifications",
        request_id = "requestId",
        protocol_version = "protocolVersion",
        capabilities = "capabilities",
    }
}

node_fields! {
    /// What of `_meta` is ours to understand.
    Meta {
        version = "io.modelcontextprotocol/protocolVersion",
        capabilities = "io.modelcontextprotocol/clientCapabilities",
        log_level = "io.modelcontextprotocol/logLevel",
        progress_token = "progressToken",
    }
}
