//! The template of a prompt: parsed once, rendered with the caller's arguments.
//!
//! | tag | meaning |
//! |---|---|
//! | `{{name}}` | the value of an argument, as text |
//! | `{{#if name}}…{{else}}…{{/if}}` | depends on whether the argument has a value |
//! | `{{#each name}}…{{this}}…{{/each}}` | once for each item of a list argument |
//! | `{{role user}}`, `{{role assistant}}` | starts a message of this role |
//! | `{{resource uri}}` | embeds a resource: a URI, a path, or an argument that has one |
//! | `![text](file.png)` on a line of its own | the image or audio file |
//! | `{{! comment }}` | nothing |
//! | `\{{` | two braces |
//!
//! A value is inserted as it is and never read as a template. Rendering takes a bounded number of steps and bytes.

use std::ops::Range;

use spile_core::Role;

use crate::front_matter::Reporter;
use crate::limits::ContentLimits;

/// Names that an argument cannot have, because tags use them.
pub(crate) const RESERVED_NAMES: [&str; 4] = ["this", "else", "role", "resource"];

const DEPTH_MAX: usize = 16;

/// What a template may refer to.
pub(crate) struct Scope<'a> {
    pub(crate) arguments: Vec<&'a str>,
    /// Which of them are lists.
    pub(crate) lists: Vec<bool>,
    pub(crate) files: &'a dyn TemplateFiles,
}

/// The files and resources that a template may name.
pub(crate) trait TemplateFiles {
    /// The media file that a path of this template means, or why there is none.
    fn find_media(&self, path: &str) -> Result<MediaFile, String>;

    /// Whether a URI or path names a resource.
    fn is_resource(&self, reference: &str) -> bool;
}

/// A file that is inserted as an image or as audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MediaFile {
    pub(crate) folder: usize,
    pub(crate) path: String,
    pub(crate) mime_type: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template(Vec<Node>);

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Text(String),
    Value(Value),
    If { condition: Value, then: Vec<Node>, otherwise: Vec<Node> },
    Each { list: usize, body: Vec<Node> },
    Role(Role),
    Resource(ResourceRef),
    Media(MediaFile),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Argument(usize),
    /// The item of the innermost loop.
    Item,
}

#[derive(Debug, Clone, PartialEq)]
enum ResourceRef {
    Literal(String),
    Value(Value),
}

/// A part of a rendered prompt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub(crate) role: Role,
    pub(crate) content: PieceContent,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PieceContent {
    Text(String),
    /// The reference, and the argument that it came from.
    Resource(String, Option<usize>),
    Media(MediaFile),
}

/// The value of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ArgumentValue {
    Absent,
    Text(String),
    List(Vec<String>),
}

/// Rendering exceeded a limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Template {
    /// Parses `text[body_start..]`, and reports every problem.
    pub(crate) fn parse(body_start: usize, scope: &Scope<'_>, reporter: &mut Reporter) -> Self {
        let file = reporter.file.clone();
        let tokens = tokenize(&file.text, body_start, reporter);
        let mut parser = Parser { tokens: tokens.into_iter(), scope, reporter, is_aborted: false };
        let nodes = parser.nodes(None, 0, false);
        Self(nodes)
    }

    /// Whether rendering inserts this argument somewhere, or depends on it.
    pub(crate) fn uses_argument(&self, index: usize) -> bool {
        fn uses(nodes: &[Node], index: usize) -> bool {
            nodes.iter().any(|node| match node {
                Node::Value(value) | Node::Resource(ResourceRef::Value(value)) => {
                    *value == Value::Argument(index)
                }
                Node::If { condition, then, otherwise } => {
                    *condition == Value::Argument(index) || uses(then, index) || uses(otherwise, index)
                }
                Node::Each { list, body } => *list == index || uses(body, index),
                Node::Text(_) | Node::Role(_) | Node::Resource(_) | Node::Media(_) => false,
            })
        }
        uses(&self.0, index)
    }

    pub(crate) fn render(
        &self,
        arguments: &[ArgumentValue],
        limits: &ContentLimits,
    ) -> Result<Vec<Piece>, TooLarge> {
        let mut renderer = Renderer {
            arguments,
            pieces: Vec::new(),
            role: Role::User,
            text: String::new(),
            first_value_at: None,
            last_value_end: 0,
            bytes_left: limits.rendered_bytes_max,
            steps_left: limits.render_steps_max,
        };
        renderer.nodes(&self.0, None)?;
        renderer.flush();
        Ok(renderer.pieces)
    }
}

struct Renderer<'a> {
    arguments: &'a [ArgumentValue],
    pieces: Vec<Piece>,
    role: Role,
    /// The text block that is being built.
    text: String,
    /// Where the first value starts in it, and where the last one ends: only the template's own blanks are trimmed.
    first_value_at: Option<usize>,
    last_value_end: usize,
    bytes_left: usize,
    steps_left: usize,
}

impl<'a> Renderer<'a> {
    fn nodes(&mut self, nodes: &[Node], item: Option<&str>) -> Result<(), TooLarge> {
        for node in nodes {
            self.steps_left = self.steps_left.checked_sub(1).ok_or(TooLarge)?;
            match node {
                Node::Text(text) => self.push(text)?,
                Node::Value(value) => {
                    self.first_value_at.get_or_insert(self.text.len());
                    match self.value(*value, item) {
                        ValueRef::Absent => {}
                        ValueRef::Text(text) => self.push(text)?,
                        ValueRef::List(items) => {
                            for (index, item) in items.iter().enumerate() {
                                self.push(if index == 0 { "" } else { ", " })?;
                                self.push(item)?;
                            }
                        }
                    }
                    self.last_value_end = self.text.len();
                }
                Node::If { condition, then, otherwise } => {
                    let is_set = match self.value(*condition, item) {
                        ValueRef::Absent => false,
                        ValueRef::Text(text) => !text.is_empty(),
                        ValueRef::List(items) => !items.is_empty(),
                    };
                    self.nodes(if is_set { then } else { otherwise }, item)?;
                }
                Node::Each { list, body } => {
                    if let Some(ArgumentValue::List(items)) = self.arguments.get(*list) {
                        for item in items {
                            self.steps_left = self.steps_left.checked_sub(1).ok_or(TooLarge)?;
                            self.nodes(body, Some(item))?;
                        }
                    }
                }
                Node::Role(role) => {
                    self.flush();
                    self.role = *role;
                }
                Node::Resource(reference) => {
                    let (uri, argument) = match reference {
                        ResourceRef::Literal(uri) => (uri.clone(), None),
                        ResourceRef::Value(value) => {
                            let argument = match value {
                                Value::Argument(index) => Some(*index),
                                Value::Item => None,
                            };
                            match self.value(*value, item) {
                                // An optional argument without a value embeds nothing.
                                ValueRef::Absent | ValueRef::List(_) => continue,
                                ValueRef::Text("") => continue,
                                ValueRef::Text(text) => (text.to_owned(), argument),
                            }
                        }
                    };
                    self.take_bytes(uri.len())?;
                    self.flush();
                    self.push_piece(PieceContent::Resource(uri, argument));
                }
                Node::Media(media) => {
                    self.take_bytes(media.path.len())?;
                    self.flush();
                    self.push_piece(PieceContent::Media(media.clone()));
                }
            }
        }
        Ok(())
    }

    fn value<'v>(&self, value: Value, item: Option<&'v str>) -> ValueRef<'v>
    where
        'a: 'v,
    {
        match value {
            Value::Item => item.map_or(ValueRef::Absent, ValueRef::Text),
            Value::Argument(index) => match self.arguments.get(index) {
                None | Some(ArgumentValue::Absent) => ValueRef::Absent,
                Some(ArgumentValue::Text(text)) => ValueRef::Text(text),
                Some(ArgumentValue::List(items)) => ValueRef::List(items),
            },
        }
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(TooLarge)?;
        Ok(())
    }

    fn push(&mut self, text: &str) -> Result<(), TooLarge> {
        self.take_bytes(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    /// Ends the text block. Blank lines around it belong to the file and not to the message.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        let first_value_at = self.first_value_at.take();
        let last_value_end = std::mem::take(&mut self.last_value_end);
        let end = text.trim_end().len().max(if first_value_at.is_some() { last_value_end } else { 0 });
        let start = (text.len() - text.trim_start().len()).min(first_value_at.unwrap_or(usize::MAX)).min(end);
        if start < end {
            self.push_piece(PieceContent::Text(text[start..end].to_owned()));
        }
    }

    fn push_piece(&mut self, content: PieceContent) {
        self.pieces.push(Piece { role: self.role, content });
    }
}

enum ValueRef<'v> {
    Absent,
    Text(&'v str),
    List(&'v [String]),
}

/// A tag or a text between tags.
#[derive(Debug)]
struct Token {
    kind: TokenKind,
    /// Its bytes in the file.
    span: Range<usize>,
}

#[derive(Debug)]
enum TokenKind {
    Text(String),
    /// The text between the braces, trimmed.
    Tag(String),
    /// The path of an image that stands alone on its line.
    Media(String),
}

impl TokenKind {
    /// Whether a line with nothing else disappears with the tag.
    fn takes_its_line(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Media(_) => true,
            Self::Tag(tag) => {
                tag.starts_with(['#', '/', '!'])
                    || tag == "else"
                    || tag.starts_with("role ")
                    || tag.starts_with("resource ")
            }
        }
    }
}

fn tokenize(text: &str, body_start: usize, reporter: &mut Reporter) -> Vec<Token> {
    let media = standalone_media(text, body_start);
    let mut media = media.into_iter().peekable();
    let mut tokens: Vec<Token> = Vec::new();
    let mut at = body_start;
    let mut literal = String::new();
    let mut literal_start = at;
    let flush = |tokens: &mut Vec<Token>, literal: &mut String, span: Range<usize>| {
        if !literal.is_empty() {
            tokens.push(Token { kind: TokenKind::Text(std::mem::take(literal)), span });
        }
    };
    while at < text.len() {
        if let Some((span, path)) = media.next_if(|(span, _)| span.start <= at) {
            if span.start == at {
                flush(&mut tokens, &mut literal, literal_start..at);
                at = span.end;
                literal_start = at;
                tokens.push(Token { kind: TokenKind::Media(path), span });
            }
            continue;
        }
        let stop = media.peek().map_or(text.len(), |(span, _)| span.start);
        let Some(found) = text[at..stop].find("{{") else {
            literal.push_str(&text[at..stop]);
            at = stop;
            continue;
        };
        let open = at + found;
        if text[..open].ends_with('\\') && open > at {
            literal.push_str(&text[at..open - 1]);
            literal.push_str("{{");
            at = open + 2;
            continue;
        }
        literal.push_str(&text[at..open]);
        let Some(length) = text[open..stop].find("}}") else {
            let help = "close the tag, or write `\\{{` for two braces";
            reporter.error(open..open + 2, "`{{` without `}}`", help);
            literal.push_str("{{");
            at = open + 2;
            continue;
        };
        flush(&mut tokens, &mut literal, literal_start..open);
        let end = open + length + 2;
        let tag = text[open + 2..end - 2].trim().to_owned();
        tokens.push(Token { kind: TokenKind::Tag(tag), span: open..end });
        at = end;
        literal_start = at;
    }
    flush(&mut tokens, &mut literal, literal_start..at);
    remove_tag_lines(&mut tokens);
    tokens
}

/// Removes the rest of each line that has nothing but one block tag.
fn remove_tag_lines(tokens: &mut [Token]) {
    let text_of = |token: Option<&Token>| match token {
        Some(Token { kind: TokenKind::Text(text), .. }) => Some(text.clone()),
        _ => None,
    };
    // Decided on the texts as they were: removing one line must not make its neighbour look empty.
    let is_blank = |text: &str| text.chars().all(|c| c == ' ' || c == '\t' || c == '\r');
    let mut cuts: Vec<(usize, usize, usize)> = Vec::new();
    for index in 0..tokens.len() {
        if !tokens[index].kind.takes_its_line() {
            continue;
        }
        let before = index.checked_sub(1).and_then(|before| tokens.get(before));
        let after = tokens.get(index + 1);
        let blank_before = match (before, text_of(before)) {
            (None, _) => Some(0),
            (Some(_), Some(text)) => match text.rfind('\n') {
                Some(newline) if is_blank(&text[newline + 1..]) => Some(text.len() - newline - 1),
                None if index == 1 && is_blank(&text) => Some(text.len()),
                Some(_) | None => None,
            },
            (Some(_), None) => None,
        };
        let blank_after = match (after, text_of(after)) {
            (None, _) => Some(0),
            (Some(_), Some(text)) => match text.find('\n') {
                Some(newline) if is_blank(&text[..newline]) => Some(newline + 1),
                None if index + 2 == tokens.len() && is_blank(&text) => Some(text.len()),
                Some(_) | None => None,
            },
            (Some(_), None) => None,
        };
        if let (Some(before), Some(after)) = (blank_before, blank_after) {
            cuts.push((index, before, after));
        }
    }
    for (index, before, after) in cuts {
        if before > 0
            && let Some(Token { kind: TokenKind::Text(text), .. }) = tokens.get_mut(index - 1)
        {
            let length = text.len().saturating_sub(before);
            text.truncate(length);
        }
        if after > 0
            && let Some(Token { kind: TokenKind::Text(text), .. }) = tokens.get_mut(index + 1)
        {
            text.drain(..after.min(text.len()));
        }
    }
}

/// Lines outside fenced code that are nothing but `![…](path)` of a local file: the bytes of the image, and its path.
fn standalone_media(text: &str, body_start: usize) -> Vec<(Range<usize>, String)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    let mut at = body_start;
    for line in text[body_start..].split_inclusive('\n') {
        let start = at;
        at += line.len();
        let trimmed = line.trim();
        if let Some(marker) = ["```", "~~~"].into_iter().find(|marker| trimmed.starts_with(marker)) {
            match fence {
                None => fence = Some(marker),
                Some(open) if open == marker => fence = None,
                Some(_) => {}
            }
            continue;
        }
        if fence.is_some() {
            continue;
        }
        let image = trimmed.strip_prefix("![").and_then(|rest| rest.strip_suffix(')'));
        let Some((_, path)) = image.and_then(|rest| rest.split_once("](")) else { continue };
        // A title may follow the path.
        let path = path.split_once(" \"").map_or(path, |(path, _)| path).trim();
        let is_local =
            !path.is_empty() && !path.contains("{{") && !path.contains(':') && !path.starts_with(['/', '#']);
        if is_local && !trimmed.contains("{{") {
            let start = start + (line.len() - line.trim_start().len());
            found.push((start..start + trimmed.len(), path.to_owned()));
        }
    }
    found
}

struct Parser<'a, 'r> {
    tokens: std::vec::IntoIter<Token>,
    scope: &'a Scope<'a>,
    reporter: &'r mut Reporter,
    /// The rest of the file is not read: it would only repeat the error.
    is_aborted: bool,
}

/// How a block ended.
enum BlockEnd {
    Else,
    End,
}

impl Parser<'_, '_> {
    /// Reads up to the end of `block`, or of the file.
    fn nodes(&mut self, block: Option<(&str, Range<usize>)>, depth: usize, in_each: bool) -> Vec<Node> {
        self.block(block, depth, in_each).0
    }

    fn block(
        &mut self,
        block: Option<(&str, Range<usize>)>,
        depth: usize,
        in_each: bool,
    ) -> (Vec<Node>, BlockEnd) {
        let mut nodes = Vec::new();
        while let Some(Token { kind, span }) = self.tokens.next() {
            let tag = match kind {
                TokenKind::Text(text) => {
                    if !text.is_empty() {
                        nodes.push(Node::Text(text));
                    }
                    continue;
                }
                TokenKind::Media(path) => {
                    match self.scope.files.find_media(&path) {
                        Ok(media) => nodes.push(Node::Media(media)),
                        Err(reason) => {
                            let message = format!("cannot insert `{path}`: {reason}");
                            let help = "name an image or audio file in `prompts/` or `resources/`";
                            self.reporter.error(span, message, help);
                        }
                    }
                    continue;
                }
                TokenKind::Tag(tag) => tag,
            };
            let (word, rest) = match tag.split_once(char::is_whitespace) {
                Some((word, rest)) => (word, rest.trim()),
                None => (tag.as_str(), ""),
            };
            match word {
                _ if tag.starts_with('!') => {}
                "#if" | "#each" if depth >= DEPTH_MAX => {
                    self.reporter.error(span, "blocks are nested too deeply", "use fewer levels");
                    self.tokens.by_ref().for_each(drop);
                    self.is_aborted = true;
                }
                "#if" => {
                    let condition = self.value(rest, &span, in_each);
                    let (then, end) = self.block(Some(("if", span.clone())), depth + 1, in_each);
                    let otherwise = match end {
                        BlockEnd::End => Vec::new(),
                        BlockEnd::Else => {
                            let (otherwise, end) = self.block(Some(("if", span.clone())), depth + 1, in_each);
                            if let BlockEnd::Else = end {
                                self.reporter.error(span, "this block has two `{{else}}`", "remove one");
                                self.block(Some(("if", 0..0)), depth + 1, in_each);
                            }
                            otherwise
                        }
                    };
                    if let Some(condition) = condition {
                        nodes.push(Node::If { condition, then, otherwise });
                    }
                }
                "#each" => {
                    let list = self.list(rest, &span);
                    let (body, end) = self.block(Some(("each", span.clone())), depth + 1, true);
                    if let BlockEnd::Else = end {
                        let help = "put `{{#if}}` around the loop";
                        self.reporter.error(span, "`{{#each}}` has no `{{else}}`", help);
                        self.block(Some(("each", 0..0)), depth + 1, true);
                    }
                    if let Some(list) = list {
                        nodes.push(Node::Each { list, body });
                    }
                }
                "else" if rest.is_empty() && block.is_some() => return (nodes, BlockEnd::Else),
                "else" => {
                    let help = "write it between `{{#if …}}` and `{{/if}}`";
                    self.reporter.error(span, "`{{else}}` outside `{{#if}}`", help);
                }
                _ if word.starts_with('/') => {
                    let name = word[1..].trim_start();
                    match &block {
                        Some((open, _)) if *open == name => return (nodes, BlockEnd::End),
                        Some((open, _)) => {
                            let message = format!("`{{{{{word}}}}}` closes nothing");
                            let help = format!("the open block is closed by `{{{{/{open}}}}}`");
                            self.reporter.error(span, message, help);
                        }
                        None => {
                            let message = format!("`{{{{{word}}}}}` closes nothing");
                            self.reporter.error(span, message, "remove it, or open the block first");
                        }
                    }
                }
                _ if word.starts_with('#') => {
                    let message = format!("unknown block `{word}`");
                    self.reporter.error(span, message, "known blocks: `{{#if name}}` and `{{#each name}}`");
                }
                "role" => match rest {
                    "user" => nodes.push(Node::Role(Role::User)),
                    "assistant" => nodes.push(Node::Role(Role::Assistant)),
                    _ => {
                        let message = format!("unknown role `{rest}`");
                        let help =
                            "write `{{role user}}` or `{{role assistant}}`; MCP prompts have no other role";
                        self.reporter.error(span, message, help);
                    }
                },
                "resource" => nodes.extend(self.resource(rest, &span, in_each).map(Node::Resource)),
                _ => nodes.extend(self.value(&tag, &span, in_each).map(Node::Value)),
            }
        }
        if let Some((name, span)) = block.filter(|(_, span)| !span.is_empty() && !self.is_aborted) {
            let message = format!("`{{{{#{name}}}}}` is not closed");
            self.reporter.error(span, message, format!("add `{{{{/{name}}}}}`"));
        }
        (nodes, BlockEnd::End)
    }

    fn value(&mut self, name: &str, span: &Range<usize>, in_each: bool) -> Option<Value> {
        if name == "this" {
            if !in_each {
                let help = "use it between `{{#each name}}` and `{{/each}}`";
                self.reporter.error(span.clone(), "`this` is the item of a loop", help);
                return None;
            }
            return Some(Value::Item);
        }
        self.argument(name, span).map(Value::Argument)
    }

    fn argument(&mut self, name: &str, span: &Range<usize>) -> Option<usize> {
        if let Some(index) = self.scope.arguments.iter().position(|argument| *argument == name) {
            return Some(index);
        }
        if name.is_empty() {
            let help = "name an argument, or write `\\{{` for two braces";
            self.reporter.error(span.clone(), "the tag names no argument", help);
            return None;
        }
        let help = match contract::nearest(name, self.scope.arguments.iter().copied()) {
            Some(known) => format!("did you mean `{known}`?"),
            None => "add it to `arguments` in the front matter, or write `\\{{` for two braces".into(),
        };
        self.reporter.error(span.clone(), format!("unknown argument `{name}`"), help);
        None
    }

    fn list(&mut self, name: &str, span: &Range<usize>) -> Option<usize> {
        let index = self.argument(name, span)?;
        if self.scope.lists[index] {
            return Some(index);
        }
        let message = format!("`{name}` is one text, not a list");
        self.reporter.error(span.clone(), message, "add `list: true` to the argument in the front matter");
        None
    }

    fn resource(&mut self, text: &str, span: &Range<usize>, in_each: bool) -> Option<ResourceRef> {
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let is_argument = self.scope.arguments.contains(&text) || text == "this" || text.is_empty();
        if quoted.is_none() && is_argument {
            return self.value(text, span, in_each).map(ResourceRef::Value);
        }
        let literal = quoted.unwrap_or(text);
        if !self.scope.files.is_resource(literal) {
            let message = format!("unknown resource `{literal}`");
            let help = "name a resource of this folder by its URI or path, or an argument that has one";
            self.reporter.error(span.clone(), message, help);
            return None;
        }
        Some(ResourceRef::Literal(literal.to_owned()))
    }
}
