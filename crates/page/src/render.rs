//! The document: one function for each section.

use json::Json;
use spile_core::calendar::DateTime;
use spile_core::{Prompt, Resource, ResourceTemplate, TaskSupport, Tool};

use crate::html::HtmlWriter;
use crate::schema::{self, PropertyRow};
use crate::view::{CallView, PageView, ReloadView, ServerView, SourceView, UnservedView, UpstreamView};

/// A list shows at most this many items; clients get all of them.
const ITEMS_SHOWN_MAX: usize = 500;
/// A longer text is cut.
const TEXT_CHARS_MAX: usize = 8 << 10;

/// The page as a whole.
pub fn render(view: &PageView<'_>) -> Vec<u8> {
    let mut html = HtmlWriter::with_capacity(32 << 10);
    let title = match &*view.servers {
        [only] => only.name.to_owned(),
        servers => format!("{} servers", servers.len()),
    };
    begin(&mut html, &title);
    html.markup("<header><div class=\"wrap\">\n");
    match &*view.servers {
        [only] => server_heading(&mut html, only, "h1"),
        _ => {
            html.element("h1", &[], &title).markup("\n");
            server_links(&mut html, view);
        }
    }
    html.markup("</div></header>\n<main id=\"main\" class=\"wrap\">\n");
    failed_servers(&mut html, &view.failed_servers);
    upstreams(&mut html, &view.upstreams);
    let is_single = view.servers.len() == 1;
    for (index, server) in view.servers.iter().enumerate() {
        let id = format!("server-{index}");
        html.open("article", &[("id", &id), ("data-server", server.name)]).markup("\n");
        if !is_single {
            server_heading(&mut html, server, "h2");
        }
        let heading = if is_single { "h2" } else { "h3" };
        server_sections(&mut html, server, &Section { heading, server: index }, view.requires_token);
        html.markup("</article>\n");
    }
    html.markup("</main>\n<footer class=\"wrap\"><p>This page only reads. ");
    html.markup("It shows no arguments and no results of calls.</p>");
    html.markup("<p id=\"live\" role=\"status\"></p></footer>\n</body>\n</html>\n");
    html.into_bytes()
}

/// What a browser shows when its user gave no token.
pub fn render_unauthorized(reason: &str) -> Vec<u8> {
    let mut html = HtmlWriter::default();
    begin(&mut html, "Token required");
    html.markup("<main id=\"main\" class=\"wrap\">\n<h1>Token required</h1>\n<p>");
    html.text(reason).markup(".</p>\n<p>Reload this page and enter the server’s token as the password. ");
    html.markup("The user name does not matter.</p>\n</main>\n</body>\n</html>\n");
    html.into_bytes()
}

fn begin(html: &mut HtmlWriter, title: &str) {
    html.markup("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.markup("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.markup("<meta name=\"color-scheme\" content=\"light dark\">\n");
    html.markup("<meta name=\"robots\" content=\"noindex\">\n");
    html.markup("<title>").text(title).markup(" · Spile</title>\n");
    html.markup("<link rel=\"icon\" href=\"/-/icon.svg\" type=\"image/svg+xml\">\n");
    html.markup("<link rel=\"stylesheet\" href=\"/-/page.css\">\n");
    html.markup("<script src=\"/-/page.js\" defer></script>\n</head>\n<body>\n");
    html.markup("<a class=\"skip\" href=\"#main\">Skip to content</a>\n");
}

/// The level of headings and the number of the server, which makes ids unique.
struct Section {
    heading: &'static str,
    server: usize,
}

impl Section {
    /// Opens a section that its heading names.
    fn open(&self, html: &mut HtmlWriter, name: &str, title: &str, count: Option<usize>) {
        let id = format!("{name}-{}", self.server);
        html.open("section", &[("aria-labelledby", &id), ("class", name)]);
        html.open(self.heading, &[("id", &id)]).text(title);
        if let Some(count) = count {
            html.markup(" ").element("span", &[("class", "count")], count);
        }
        html.close(self.heading).markup("\n");
    }
}

fn server_heading(html: &mut HtmlWriter, server: &ServerView<'_>, heading: &'static str) {
    html.open(heading, &[("class", "name")]).open("bdi", &[]).text(server.name).close("bdi");
    html.markup(" ").element("span", &[("class", "version")], server.version).close(heading).markup("\n");
    html.open("p", &[("class", "facts")]);
    html.element(
        "span",
        &[("class", &format!("state {}", state_class(server.health))), ("data-live", "status")],
        server.health,
    );
    let resources = server.resources.len() + server.resource_templates.len();
    let counts = [(server.tools.len(), "tool"), (resources, "resource"), (server.prompts.len(), "prompt")];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        html.markup(" ").element("span", &[], plural(count, what));
    }
    html.markup(" ").element("span", &[], format!("up {}", duration(server.uptime_ms)));
    html.markup(" ").open("span", &[("data-live", "calls")]);
    html.display(plural_u64(server.calls_total, "call")).close("span").close("p").markup("\n");
    if let Some(text) = server.instructions {
        let is_long =
            text.len() > INSTRUCTIONS_SHOWN_BYTES || text.lines().count() > INSTRUCTIONS_SHOWN_LINES;
        if is_long {
            html.markup("<details><summary>Instructions for models</summary>\n");
        }
        html.element("p", &[("class", "instructions"), ("dir", "auto")], cut(text));
        html.markup(if is_long { "</details>\n" } else { "\n" });
    }
}

/// Longer instructions, such as those of all servers behind a gateway, are folded: what people came for is below.
const INSTRUCTIONS_SHOWN_BYTES: usize = 500;
const INSTRUCTIONS_SHOWN_LINES: usize = 6;

fn state_class(health: &str) -> &'static str {
    match health {
        "ok" => "good",
        "degraded" => "warn",
        _ => "bad",
    }
}

fn server_links(html: &mut HtmlWriter, view: &PageView<'_>) {
    html.markup("<nav aria-label=\"Servers\"><ul class=\"links\">");
    for (index, server) in view.servers.iter().enumerate() {
        let target = format!("#server-{index}");
        html.markup("<li>").open("a", &[("href", &target)]).text(server.name).markup("</a></li>");
    }
    html.markup("</ul></nav>\n");
}

fn failed_servers(html: &mut HtmlWriter, failed: &[SourceView<'_>]) {
    if failed.is_empty() {
        return;
    }
    html.markup("<section class=\"problems\" aria-labelledby=\"failed\">");
    html.markup("<h2 id=\"failed\">Not served</h2>\n<ul>\n");
    for one in failed {
        html.markup("<li>")
            .element("code", &[], one.name)
            .markup(": ")
            .text(&cut(one.reason))
            .markup("</li>\n");
    }
    html.markup("</ul></section>\n");
}

/// The servers behind a gateway: one row each.
fn upstreams(html: &mut HtmlWriter, upstreams: &[UpstreamView]) {
    if upstreams.is_empty() {
        return;
    }
    let tokens: usize = upstreams.iter().map(|one| one.tokens).sum();
    html.markup("<section class=\"upstreams\" aria-labelledby=\"upstreams\">");
    html.markup("<h2 id=\"upstreams\">Servers behind this gateway ");
    html.element("span", &[("class", "count")], upstreams.len()).markup("</h2>\n");
    html.markup("<p class=\"hint\">Their tools and instructions cost about ");
    html.element("span", &[("data-live", "tokens")], tokens).markup(" tokens in every conversation.</p>\n");
    html.markup("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Servers behind this gateway\"><table>\n");
    html.markup("<thead><tr><th scope=\"col\">Server</th><th scope=\"col\">State</th>");
    html.markup(
        "<th scope=\"col\" class=\"number\">Tools</th><th scope=\"col\" class=\"number\">Tokens</th>",
    );
    html.markup("<th scope=\"col\" class=\"number\">Reconnects</th><th scope=\"col\" class=\"after\">Details</th></tr></thead>\n");
    html.markup("<tbody data-live=\"upstreams\">\n");
    upstreams.iter().take(ITEMS_SHOWN_MAX).for_each(|upstream| upstream_row(html, upstream));
    html.markup("</tbody></table></div>\n");
    more(html, upstreams.len());
    html.markup("</section>\n");
}

fn upstream_row(html: &mut HtmlWriter, upstream: &UpstreamView) {
    let UpstreamView { name, url, state, health, reconnects, tools, tokens, .. } = upstream;
    html.open("tr", &[]).open("th", &[("scope", "row"), ("title", url)]);
    html.element("code", &[], cut(name)).markup("</th><td>");
    html.element("span", &[("class", &format!("label {}", health.class()))], *state).markup("</td>");
    for number in [*tools as u64, *tokens as u64, *reconnects] {
        html.element("td", &[("class", "number")], number);
    }
    html.element("td", &[("class", "after"), ("dir", "auto")], cut(&upstream_detail(upstream)));
    html.markup("</tr>\n");
}

/// What a person should know or do about it.
pub(crate) fn upstream_detail(upstream: &UpstreamView) -> String {
    let UpstreamView { name, detail, unapproved, .. } = upstream;
    match &**unapproved {
        [] => detail.clone(),
        tools => {
            let names: Vec<&str> = tools.iter().take(5).map(String::as_str).collect();
            let rest = if tools.len() > names.len() { ", …" } else { "" };
            let waiting = format!(
                "{} for approval: {}{rest}. Review with: spile mcp approve {name} --definitions",
                match tools.len() {
                    1 => "1 definition waits".to_owned(),
                    count => format!("{count} definitions wait"),
                },
                names.join(", ")
            );
            if detail.is_empty() { waiting } else { format!("{waiting}. {detail}") }
        }
    }
}

fn server_sections(html: &mut HtmlWriter, server: &ServerView<'_>, section: &Section, requires_token: bool) {
    problems(html, server, section);
    connect(html, server, section, requires_token);
    tools(html, server, section);
    resources(html, server, section);
    prompts(html, server, section);
    calls(html, server, section);
    sources(html, server, section);
}

fn problems(html: &mut HtmlWriter, server: &ServerView<'_>, section: &Section) {
    if server.unserved.is_empty() {
        return;
    }
    section.open(html, "problems", "Not served", Some(server.unserved.len()));
    html.markup("<ul>\n");
    for UnservedView { kind, name, reason } in server.unserved.iter().take(ITEMS_SHOWN_MAX) {
        html.markup("<li>").text(kind).markup(" ").element("code", &[], name);
        html.markup(": ").text(&cut(reason)).markup("</li>\n");
    }
    more(html, server.unserved.len());
    html.markup("</ul></section>\n");
}

fn connect(html: &mut HtmlWriter, server: &ServerView<'_>, section: &Section, requires_token: bool) {
    section.open(html, "connect", "Connect", None);
    html.markup("<p>Endpoint ").element("code", &[("class", "url")], &server.url).markup("</p>\n");
    if requires_token {
        html.markup("<p>Clients send the server’s token: replace <code>TOKEN</code> below.</p>\n");
    }
    for (index, snippet) in server.snippets.iter().enumerate() {
        // The first one shows what the others contain.
        let open: &[(&str, &str)] = if index == 0 { &[("open", "")] } else { &[] };
        html.open("details", open).markup("<summary>").text(snippet.client);
        html.markup(" ").element("span", &[("class", "hint")], snippet.place).markup("</summary>\n");
        // Settings are easier to read, and to merge, with one member on a line.
        let text =
            Json::parse(&snippet.text).map_or_else(|_| snippet.text.clone(), |json| schema::pretty(&json));
        html.element("pre", &[("class", "copy"), ("tabindex", "0")], text).markup("</details>\n");
    }
    html.markup("</section>\n");
}

fn tools(html: &mut HtmlWriter, server: &ServerView<'_>, section: &Section) {
    section.open(html, "tools", "Tools", Some(server.tools.len()));
    if server.tools.is_empty() {
        html.markup("<p class=\"none\">No tools.</p>\n");
    }
    server.tools.iter().take(ITEMS_SHOWN_MAX).for_each(|tool| tool_details(html, tool));
    more(html, server.tools.len());
    html.markup("</section>\n");
}

fn tool_details(html: &mut HtmlWriter, tool: &Tool) {
    html.open("details", &[("class", "item"), ("data-name", &tool.name)]).markup("<summary>");
    html.element("code", &[], &tool.name);
    if let Some(title) = tool.title.as_deref().filter(|title| *title != tool.name) {
        html.markup(" ").element("span", &[("class", "hint"), ("dir", "auto")], cut(title));
    }
    for (label, class) in labels(tool) {
        html.markup(" ").element("span", &[("class", class)], label);
    }
    html.markup("</summary>\n");
    description(html, tool.description.as_deref());
    properties(html, "Arguments", &schema::properties(&tool.input_schema));
    raw_schema(html, "Input schema", &schema::pretty(&tool.input_schema));
    if let Some(output) = &tool.output_schema {
        raw_schema(html, "Output schema", &schema::pretty(output));
    }
    html.markup("</details>\n");
}

/// What the annotations of a tool say, with the class of the label.
fn labels(tool: &Tool) -> Vec<(&'static str, &'static str)> {
    let annotations = &tool.annotations;
    let mut labels = Vec::new();
    match (annotations.read_only, annotations.destructive) {
        (Some(true), _) => labels.push(("reads", "label good")),
        (_, Some(true)) => labels.push(("destructive", "label bad")),
        (Some(false), _) => labels.push(("writes", "label warn")),
        (None, _) => {}
    }
    if tool.requires_confirmation {
        labels.push(("asks first", "label"));
    }
    match tool.task_support {
        TaskSupport::Forbidden => {}
        TaskSupport::Optional => labels.push(("task possible", "label")),
        TaskSupport::Required => labels.push(("task", "label")),
    }
    labels
}

fn properties(html: &mut HtmlWriter, caption: &'static str, rows: &[PropertyRow]) {
    if rows.is_empty() {
        html.markup("<p class=\"none\">No arguments.</p>\n");
        return;
    }
    html.markup(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Arguments\"><table><caption>",
    );
    html.markup(caption)
        .markup("</caption>\n<thead><tr><th scope=\"col\">Name</th><th scope=\"col\">Type</th>");
    html.markup("<th scope=\"col\">Description</th></tr></thead>\n<tbody>\n");
    for PropertyRow { name, data_type, is_required, description } in rows {
        html.markup("<tr><th scope=\"row\">").element("code", &[], name);
        if *is_required {
            html.markup(" <span class=\"label\">required</span>");
        }
        html.markup("</th><td>").text(&cut(data_type)).markup("</td>");
        html.element("td", &[("dir", "auto")], cut(description)).markup("</tr>\n");
    }
    html.markup("</tbody></table></div>\n");
}

fn raw_schema(html: &mut HtmlWriter, title: &'static str, text: &str) {
    html.markup("<details class=\"schema\"><summary>").markup(title).markup("</summary>\n");
    html.element("pre", &[("tabindex", "0")], text).markup("</details>\n");
}

fn description(html: &mut HtmlWriter, text: Option<&str>) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        html.element("p", &[("class", "text"), ("dir", "auto")], cut(text)).markup("\n");
    }
}

fn resources(html: &mut HtmlWriter, server: &ServerView<'_>, section: &Section) {
    let count = server.resources.len() + server.resource_templates.len();
    if count == 0 {
        return;
    }
    section.open(html, "resources", "Resources", Some(count));
    for Resource { uri, name, title, description: about, mime_type, .. } in
        server.resources.iter().take(ITEMS_SHOWN_MAX)
    {
        resource_details(html, uri, title.as_ref().unwrap_or(name), mime_type.as_deref(), about.as_deref());
    }
    for ResourceTemplate { uri_template, name, title, description: about, mime_type, .. } in
        server.resource_templates.iter().take(ITEMS_SHOWN_MAX)
    {
        let title = title.as_ref().unwrap_or(name);
        resource_details(html, uri_template, title, mime_type.as_deref(), about.as_deref());
    }
    more(html, server.resources.len().max(server.resource_templates.len()));
    html.markup("</section>\n");
}

fn resource_details(html: &mut HtmlWriter, uri: &str, title: &str, mime: Option<&str>, about: Option<&str>) {
    html.open("details", &[("class", "item"), ("data-name", uri)]).markup("<summary>");
    html.element("code", &[], cut(uri)).markup(" ");
    html.element("span", &[("class", "hint"), ("dir", "auto")], cut(title)).markup("</summary>\n");
    description(html, about);
    if let Some(mime) = mime {
        html.markup("<p>Type ").element("code", &[], cut(mime)).markup("</p>\n");
    }
    html.markup("</details>\n");
}

fn prompts(html: &mut HtmlWriter, server: &ServerView<'_>, section: &Section) {
    if server.prompts.is_empty() {
        return;
    }
    section.open(html, "prompts", "Prompts", Some(server.prompts.len()));
    for Prompt { name, title, description: about, arguments, .. } in
        server.prompts.iter().take(ITEMS_SHOWN_MAX)
    {
        html.open("details", &[("class", "item"), ("data-name", name)]).markup("<summary>");
        html.element("code", &[], name);
        if let Some(title) = title {
            html.markup(" ").element("span", &[("class", "hint"), ("dir", "auto")], cut(title));
        }
        html.markup("</summary>\n");
        description(html, about.as_deref());
        let rows: Vec<PropertyRow> = arguments
            .iter()
            .map(|argument| PropertyRow {
                name: argument.name.clone(),
                data_type: "string".to_owned(),
                is_required: argument.required,
                description: argument.description.clone().unwrap_or_default(),
            })
            .collect();
        properties(html, "Arguments", &rows);
        html.markup("</details>\n");
    }
    more(html, server.prompts.len());
    html.markup("</section>\n");
}

fn calls(html: &mut HtmlWriter, server: &ServerView<'_>, section: &Section) {
    section.open(html, "calls", "Recent calls", None);
    let since = clock_time(server.recorded_since_ms);
    html.markup("<p class=\"hint\">Your calls since ")
        .element("span", &[], since)
        .markup(" UTC, newest first.</p>\n");
    html.markup("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Recent calls\"><table>\n");
    html.markup("<thead><tr><th scope=\"col\">Time (UTC)</th><th scope=\"col\">Item</th><th scope=\"col\">Outcome</th>");
    html.markup("<th scope=\"col\" class=\"number\">Duration</th><th scope=\"col\" class=\"number\">Response</th></tr></thead>\n");
    html.markup("<tbody data-live=\"recent\">\n");
    if server.recent_calls.is_empty() {
        html.markup("<tr><td colspan=\"5\" class=\"none\">No calls yet.</td></tr>\n");
    }
    server.recent_calls.iter().for_each(|call| call_row(html, call));
    html.markup("</tbody></table></div></section>\n");
}

fn call_row(html: &mut HtmlWriter, call: &CallView<'_>) {
    html.markup("<tr><td>").text(&clock_time(call.at_ms)).markup("</td><td>");
    let (kind, nested) = (call.kind, if call.is_nested { " (by a tool)" } else { "" });
    match call.name {
        Some(name) => html.text(kind).markup(" ").element("code", &[], cut(name)),
        None => html.text("unlisted ").text(kind),
    };
    html.markup(nested).markup("</td><td>");
    html.element("span", &[("class", &format!("label {}", call.outcome.class()))], call.outcome.text());
    html.markup("</td><td class=\"number\">").display(call.duration_ms).markup(" ms</td>");
    html.markup("<td class=\"number\">").text(&bytes(call.response_bytes)).markup("</td></tr>\n");
}

fn sources(html: &mut HtmlWriter, server: &ServerView<'_>, section: &Section) {
    if server.source_count == 0 && server.reload.is_none() {
        return;
    }
    section.open(html, "sources", "Sources", Some(server.source_count));
    html.markup("<ul data-live=\"sources\">\n");
    if server.unavailable_sources.is_empty() {
        html.markup("<li>").text(&all_available(server.source_count)).markup("</li>\n");
    }
    for SourceView { name, reason, is_readable } in server.unavailable_sources.iter().take(ITEMS_SHOWN_MAX) {
        let (state, class) = match is_readable {
            true => ("read only", "label warn"),
            false => ("not available", "label bad"),
        };
        html.markup("<li>").element("code", &[], name).markup(" ").element(
            "span",
            &[("class", class)],
            state,
        );
        html.markup(" ").text(&cut(reason)).markup("</li>\n");
    }
    html.markup("</ul>\n");
    if let Some(ReloadView { at_ms, outcome, message }) = &server.reload {
        html.markup("<p>Last reload at ").text(&clock_time(*at_ms)).markup(" UTC: ").text(outcome);
        if let Some(message) = message {
            html.markup(". ").text(&cut(message));
        }
        html.markup("</p>\n");
    }
    html.markup("</section>\n");
}

fn all_available(count: usize) -> String {
    match count {
        1 => "Available.".to_owned(),
        count => format!("All {count} are available."),
    }
}

fn more(html: &mut HtmlWriter, count: usize) {
    if let Some(hidden) = count.checked_sub(ITEMS_SHOWN_MAX).filter(|hidden| *hidden > 0) {
        html.markup("<p class=\"hint\">And ").display(hidden).markup(" more.</p>\n");
    }
}

/// `14:03:59`
pub(crate) fn clock_time(ms: u64) -> String {
    DateTime::from_unix_ms(ms).map_or_else(String::new, |at| {
        format!("{:02}:{:02}:{:02}", at.time.hour(), at.time.minute(), at.time.second())
    })
}

fn duration(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

fn bytes(count: usize) -> String {
    match count {
        0..1000 => format!("{count} B"),
        1000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

fn plural(count: usize, what: &str) -> String {
    plural_u64(count as u64, what)
}

fn plural_u64(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
