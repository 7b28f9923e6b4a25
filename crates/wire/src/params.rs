//! Finds the parameters of a request in one pass, for any method.

use json::Node;

use crate::error::RpcError;

/// A paginated list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    Tools,
    Resources,
    Templates,
    Prompts,
    Skills,
}

#[derive(Debug)]
pub enum TaskRequest {
    Get(String),
    Update(String, Vec<(String, json::Json)>),
    Cancel(String),
    List(Option<String>),
    Result(String),
}

/// The notifications that a client subscribes to.
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
        let invalid =
            |path: &str, reason| RpcError::invalid_params(format!("`params.notifications{path}`: {reason}"));
        let Some(node) = node else { return Err(invalid("", "missing")) };
        if !node.is_object() {
            return Err(invalid("", "expected an object"));
        }
        let mut filter = Self::default();
        for (key, value) in node.members() {
            let key = key.str().unwrap_or_default();
            let flag = || value.bool().ok_or_else(|| invalid(&format!(".{key}"), "expected true or false"));
            let texts = || {
                let texts: Option<Vec<String>> =
                    value.elements().map(|text| text.str().map(|s| s.into_owned())).collect();
                texts
                    .filter(|_| value.kind() == json::NodeKind::Array)
                    .ok_or_else(|| invalid(&format!(".{key}"), "expected a list of strings"))
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

/// Defines a struct with one optional node per key, and the pass that fills it.
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
                let mut fields = Self::default();
                let Some(node) = node else { return fields };
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
                        $($key => fields.$field = Some(value),)*
                        _ => {}
                    }
                }
                fields
            }
        }
    };
}

node_fields! {
    /// The members of a message. The caller checks `jsonrpc`.
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
    /// All members that `params` may have, for any method.
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
    /// The members of `_meta` that Spile reads.
    Meta {
        version = "io.modelcontextprotocol/protocolVersion",
        capabilities = "io.modelcontextprotocol/clientCapabilities",
        log_level = "io.modelcontextprotocol/logLevel",
        progress_token = "progressToken",
    }
}
