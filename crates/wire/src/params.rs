//! Where the parameters of a request lie: one pass, whatever the method.

use json::Node;

use crate::code::Told;

/// The lists that a client may read page by page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    Tools,
    Resources,
    Templates,
    Prompts,
}

#[derive(Debug)]
pub enum TaskOp {
    Get(String),
    Update(String, Vec<(String, json::Json)>),
    Cancel(String),
    List(Option<String>),
    Result(String),
}

/// What a client wants to hear of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub tools: bool,
    pub prompts: bool,
    pub resources: bool,
    pub uris: Vec<String>,
    pub tasks: Vec<String>,
}

impl Filter {
    pub(crate) fn write(&self, out: &mut json::write::Object<'_>) {
        let flags = [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ];
        for (key, _) in flags.iter().filter(|(_, on)| *on) {
            out.bool(key, true);
        }
        let lists = [("resourceSubscriptions", &self.uris), ("taskIds", &self.tasks)];
        for (key, texts) in lists.iter().filter(|(_, texts)| !texts.is_empty()) {
            out.array(key, *texts, |out, text| json::write::string(out, text));
        }
    }

    pub(crate) fn read(node: Option<Node<'_>>) -> Result<Self, Told> {
        let bad = |at: &str, why| Told::invalid_params(format!("`params.notifications{at}`: {why}"));
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
                    .filter(|_| value.kind() == json::Kind::Array)
                    .ok_or_else(|| bad(&format!(".{key}"), "expected a list of strings"))
            };
            match &*key {
                "toolsListChanged" => filter.tools = flag()?,
                "promptsListChanged" => filter.prompts = flag()?,
                "resourcesListChanged" => filter.resources = flag()?,
                "resourceSubscriptions" => filter.uris = texts()?,
                "taskIds" => filter.tasks = texts()?,
                _ => {}
            }
        }
        Ok(filter)
    }
}

/// A struct of places, one for each key, and the one pass that finds them.
macro_rules! places {
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
                    let key = match key.plain() {
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

places! {
    /// The parts of a message. `jsonrpc` is checked by whoever reads it.
    Parts {
        jsonrpc = "jsonrpc",
        id = "id",
        method = "method",
        params = "params",
        result = "result",
        error = "error",
    }
}

places! {
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

places! {
    /// What of `_meta` is ours to understand.
    Meta {
        version = "io.modelcontextprotocol/protocolVersion",
        caps = "io.modelcontextprotocol/clientCapabilities",
        level = "io.modelcontextprotocol/logLevel",
        progress = "progressToken",
    }
}
