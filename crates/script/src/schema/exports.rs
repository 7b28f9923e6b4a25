//! Where a tool's file exports its handler, schema and metadata.

use oxc::allocator::Allocator;
use oxc::ast::ast::{Comment, Declaration, Program, Statement};
use oxc::parser::Parser;
use oxc::span::{GetSpan, SourceType};

/// Byte offsets in the author's file; `None` where the export is written in another way.
#[derive(Debug, Default)]
pub(super) struct Exports {
    pub(super) handler: Option<usize>,
    pub(super) schema: Option<usize>,
    pub(super) metadata: Option<usize>,
    /// The text of the comment above the handler.
    pub(super) handler_comment: Option<String>,
}

impl Exports {
    pub(super) fn find(file: &str, source: &str) -> Self {
        let Ok(source_type) = SourceType::from_path(file) else { return Self::default() };
        let arena = Allocator::default();
        let program = Parser::new(&arena, source, source_type).parse().program;
        let mut exports = Self::default();
        for statement in &program.body {
            let start = statement.span().start;
            match statement {
                Statement::ExportDefaultDeclaration(_) => {
                    exports.handler = Some(start as usize);
                    exports.handler_comment = doc_comment(&program, source, start).map(|doc| doc.description);
                }
                Statement::ExportDeclaration(export) => {
                    if let Declaration::VariableDeclaration(variables) = &export.declaration {
                        for variable in &variables.declarations {
                            match variable.id.get_identifier_name().as_deref() {
                                Some("schema") => exports.schema = Some(start as usize),
                                Some("metadata") => exports.metadata = Some(start as usize),
                                _ => {}
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        exports
    }
}

/// A JSDoc comment: its text, and its tags with their values.
pub(super) struct DocComment {
    pub(super) description: String,
    pub(super) tags: Vec<(String, String)>,
}

/// The JSDoc comment that stands directly above the node at `start`.
pub(super) fn doc_comment(program: &Program<'_>, source: &str, start: u32) -> Option<DocComment> {
    let belongs = |comment: &&Comment| comment.is_jsdoc() && comment.attached_to == start;
    let comment = program.comments.iter().rfind(belongs)?;
    let text = comment.content_span().source_text(source);
    let lines = text.lines().map(|line| line.trim().trim_start_matches('*').trim());
    let (mut description, mut tags) = (Vec::new(), Vec::new());
    for line in lines.filter(|line| !line.is_empty()) {
        match line.strip_prefix('@') {
            Some(tag) => {
                let (name, value) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
                tags.push((name.to_owned(), value.trim().to_owned()));
            }
            None if tags.is_empty() => description.push(line),
            None => {}
        }
    }
    Some(DocComment { description: description.join(" "), tags })
}
