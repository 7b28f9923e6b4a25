//! What the compiler makes: immutable, and the only truth there is about a server's tools.

use call::Annotations;
use json::Json;

use crate::field::Field;
use crate::line::Line;
use crate::source::{Shape, Test};

/// A compiled server.
#[derive(Debug, Clone)]
pub struct Contract {
    pub name: String,
    pub title: Option<String>,
    /// Tells one set of tools from another.
    pub version: String,
    pub instructions: Option<String>,
    pub collections: Vec<Collection>,
    pub tools: Vec<Tool>,
}

/// A typed set of records.
#[derive(Debug, Clone)]
pub struct Collection {
    pub name: String,
    /// The source's name in the manifest.
    pub source: String,
    /// How the source is read; its columns are `fields`, one by one.
    pub shape: Shape,
    pub fields: Vec<Field>,
    pub rows_max: usize,
    pub bytes_max: usize,
}

/// A tool, bound to an operation on a collection.
#[derive(Debug, Clone)]
pub struct Tool {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub input: Json,
    pub output: Json,
    /// The place in [`Contract::collections`].
    pub collection: usize,
    pub operation: Operation,
    /// The line that a record reads as.
    pub text: Option<Line>,
}

#[derive(Debug, Clone)]
pub enum Operation {
    /// One record by its key; each part of the key is an argument.
    Get,
    /// Records in pages. What each argument means, by its name.
    List { arguments: Vec<(String, Meaning)> },
}

/// What an argument of a list means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Cursor,
    Limit,
    Sort,
    Fields,
    Filter { column: usize, test: Test },
}

impl Tool {
    /// As a provider offers it. Nothing here writes, and nothing leaves the source.
    pub fn offered(&self) -> call::Tool {
        call::Tool {
            title: self.title.clone(),
            output: Some(self.output.clone()),
            annotations: Annotations {
                read_only: Some(true),
                open_world: Some(false),
                ..Annotations::default()
            },
            ..call::Tool::new(&self.name, &self.description, self.input.clone())
        }
    }
}

impl Collection {
    pub fn key_fields(&self) -> impl Iterator<Item = &Field> {
        self.shape.key.iter().map(|at| &self.fields[*at])
    }
}
