//! Finds tools by words: for a model that does not have all of them in its context.

use std::collections::{HashMap, HashSet};

use json::{Json, Node};
use spile_core::Tool;

/// A word in the name says more than one in the description.
const NAME_WEIGHT: f64 = 4.0;
const ARGUMENT_WEIGHT: f64 = 1.5;
const DESCRIPTION_WEIGHT: f64 = 1.0;
/// Words that stand in most questions and say nothing.
const STOP_WORDS: [&str; 22] = [
    "a", "all", "an", "and", "any", "for", "from", "how", "i", "in", "is", "it", "me", "my", "of", "on",
    "or", "the", "to", "tool", "what", "with",
];

/// The best matches, best first: tools with most of the words, rare words before common ones. An exact name wins.
pub(super) fn search<'t>(tools: &[&'t Tool], query: &str, limit: usize) -> Vec<&'t Tool> {
    let wanted: HashSet<String> = words(query).filter(|word| !STOP_WORDS.contains(&word.as_str())).collect();
    let indexed: Vec<IndexedTool> = tools.iter().map(|tool| IndexedTool::new(tool)).collect();
    let mut tools_with: HashMap<&str, usize> = HashMap::new();
    for word in &wanted {
        let count = indexed.iter().filter(|tool| tool.weight(word) > 0.0).count();
        tools_with.insert(word, count);
    }
    let rarity = |word: &str| {
        let count = tools_with.get(word).copied().unwrap_or(0);
        (1.0 + tools.len() as f64 / (1.0 + count as f64)).ln()
    };
    let query = query.trim().to_lowercase();
    let mut scored: Vec<(f64, usize)> = Vec::new();
    for (index, tool) in indexed.iter().enumerate() {
        let mut score: f64 = wanted.iter().map(|word| tool.weight(word) * rarity(word)).sum();
        if tools[index].name.to_lowercase() == query {
            score += 1000.0;
        }
        if score > 0.0 {
            scored.push((score, index));
        }
    }
    // Equal scores keep the order of the list.
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    scored.into_iter().take(limit).map(|(_, index)| tools[index]).collect()
}

struct IndexedTool {
    weights: HashMap<String, f64>,
}

impl IndexedTool {
    fn new(tool: &Tool) -> Self {
        let mut weights: HashMap<String, f64> = HashMap::new();
        let mut add = |text: &str, weight: f64| {
            for word in words(text) {
                let known = weights.entry(word).or_default();
                *known = known.max(weight);
            }
        };
        add(&tool.name, NAME_WEIGHT);
        add(tool.title.as_deref().unwrap_or_default(), NAME_WEIGHT / 2.0);
        add(tool.description.as_deref().unwrap_or_default(), DESCRIPTION_WEIGHT);
        let schema = tool.input_schema.to_doc();
        let arguments = schema.root().get("properties");
        for (name, about) in arguments.into_iter().flat_map(|arguments| arguments.members()) {
            add(&name.str().unwrap_or_default(), ARGUMENT_WEIGHT);
            let description = about.get("description").filter(|_| about.is_object());
            add(
                &description.and_then(|text: Node<'_>| text.str()).unwrap_or_default(),
                DESCRIPTION_WEIGHT / 2.0,
            );
        }
        Self { weights }
    }

    /// A word also counts where it is the beginning of one: `issue` finds `issues`.
    fn weight(&self, word: &str) -> f64 {
        if let Some(weight) = self.weights.get(word) {
            return *weight;
        }
        let is_related = |known: &str| {
            word.len() >= 4 && known.starts_with(word) || known.len() >= 4 && word.starts_with(known)
        };
        let related =
            self.weights.iter().filter(|(known, _)| is_related(known)).map(|(_, weight)| weight / 2.0);
        related.fold(0.0, f64::max)
    }
}

/// Lower-case words of a name or a text: `createIssue`, `create_issue` and `create issue` are the same two.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::with_capacity(text.len() + 8);
    let mut was_lower = false;
    for c in text.chars() {
        if c.is_uppercase() && was_lower {
            spaced.push(' ');
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
        spaced.push(if c.is_alphanumeric() { c } else { ' ' });
    }
    let lower = spaced.to_lowercase();
    lower.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// A tool as a model needs it to call it.
pub(super) fn definition(tool: &Tool, server: Option<&str>) -> Json {
    Json::object(|out| {
        out.str("name", &tool.name).maybe_str("server", server);
        out.maybe_str("description", tool.description.as_deref());
        out.raw("inputSchema", tool.input_schema.as_str());
        let hints = &tool.annotations;
        if let Some(read_only) = hints.read_only {
            out.bool("readOnly", read_only);
        }
        if let Some(destructive) = hints.destructive {
            out.bool("destructive", destructive);
        }
    })
}

#[cfg(test)]
mod tests {
    use json::Json;
    use spile_core::Tool;

    use super::search;

    fn tool(name: &str, description: &str, argument: &str) -> Tool {
        let schema = format!(r#"{{"type":"object","properties":{{"{argument}":{{"type":"string"}}}}}}"#);
        Tool::new(name, description, Json::parse(&schema).expect("JSON"))
    }

    fn check(query: &str, expected: &[&str]) {
        let all = [
            tool("mcp__github__create_issue", "Create an issue in a repository.", "repo"),
            tool("mcp__github__list_issues", "List the issues of a repository.", "repo"),
            tool("mcp__github__merge_pull_request", "Merge a pull request.", "repo"),
            tool("mcp__mail__sendMessage", "Send an email to somebody.", "recipient"),
            tool("mcp__weather__get_forecast", "Get the weather of the next days.", "city"),
        ];
        let tools: Vec<&Tool> = all.iter().collect();
        let found: Vec<&str> = search(&tools, query, 2).iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(found, expected, "{query}");
    }

    #[test]
    fn the_tool_that_is_meant_comes_first() {
        check("create an issue", &["mcp__github__create_issue", "mcp__github__list_issues"]);
        check("list issues of a repo", &["mcp__github__list_issues", "mcp__github__create_issue"]);
        check("send message", &["mcp__mail__sendMessage"]);
        check("email", &["mcp__mail__sendMessage"]);
        check("recipient", &["mcp__mail__sendMessage"]);
        check("what is the weather in Oslo", &["mcp__weather__get_forecast"]);
        check(
            "mcp__github__merge_pull_request",
            &["mcp__github__merge_pull_request", "mcp__github__create_issue"],
        );
    }

    #[test]
    fn words_that_no_tool_has_find_nothing() {
        for query in ["", "   ", "the of and", "quux", "!!!"] {
            check(query, &[]);
        }
    }
}
