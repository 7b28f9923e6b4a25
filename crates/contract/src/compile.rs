//! Manifest and facts in, contract out. Everything that is wrong is told at once; what is only worth knowing
//! is told too.

use json::Json;
use ring::digest;

use crate::contract::{Collection, Contract, Operation, Tool};
use crate::diagnostic::{At, Diagnostic, Placed, Severity};
use crate::field::Field;
use crate::kind::Kind;
use crate::line::{BadLine, Line};
use crate::manifest::{self, Body, Choice, Confirm, Literal, Manifest, Uses};
use crate::names;
use crate::nearest::did_you_mean;
use crate::schemas;
use crate::source::{Facts, Shape, ShapeColumn, TableFacts};

/// Columns that a list can be filtered and sorted by, where the author says nothing: more arguments than
/// this cost every conversation more than they help.
pub const CHOSEN_MAX: usize = 20;

/// A manifest's source with what it holds.
pub struct Known<'a> {
    pub name: &'a str,
    pub facts: &'a Facts,
}

/// Compiles. Without errors there is a contract; notes and warnings come along either way.
pub fn compile(
    manifest: &Manifest,
    known: &[Known<'_>],
    default_name: &str,
) -> (Option<Contract>, Vec<Diagnostic>) {
    let mut compiler = Compiler { manifest, found: Vec::new() };
    let mut collections = Vec::new();
    let mut tools = Vec::new();
    for wanted in &manifest.collections {
        // What the sources lack was told when they were opened.
        let Some(facts) = known.iter().find(|one| one.name == wanted.source.value) else { continue };
        if let Some((collection, chosen)) = compiler.collection(wanted, facts.facts) {
            compiler.tools(wanted, &collection, &chosen, collections.len(), &mut tools);
            collections.push(collection);
        }
    }
    compiler.judge_names(&tools);
    if manifest.collections.is_empty() {
        let nothing = Diagnostic::error("there is nothing to serve: no collection is declared");
        compiler.found.push(nothing.help("add a [collections.NAME] with its source and table"));
    }
    let failed = compiler.found.iter().any(|one| one.severity == Severity::Error);
    let contract = (!failed).then(|| Contract {
        name: manifest.server.name.clone().unwrap_or_else(|| default_name.to_owned()),
        title: manifest.server.title.clone(),
        version: format!("0+{}", fingerprint(&tools)),
        instructions: manifest.server.instructions.clone(),
        rate: manifest.server.rate_limit,
        collections,
        statements: Vec::new(),
        tools: tools.into_iter().map(|made| made.tool).collect(),
    });
    (contract, compiler.found)
}

/// A tool and where its name stands, if an author gave it.
struct Made<'m> {
    tool: Tool,
    at: Option<&'m At>,
}

/// What was chosen for a collection's tools.
struct Chosen {
    /// What a list takes.
    filters: Vec<usize>,
    sorts: Vec<usize>,
    /// Why there is no key, if there is none.
    why_no_key: String,
}

struct Compiler<'m> {
    manifest: &'m Manifest,
    found: Vec<Diagnostic>,
}

impl<'m> Compiler<'m> {
    fn collection(
        &mut self,
        wanted: &'m manifest::Collection,
        facts: &Facts,
    ) -> Option<(Collection, Chosen)> {
        let table = self.table(wanted, facts)?;
        let errors = self.errors();
        self.judge_fields(wanted, table);
        let fields = self.fields(wanted, table);
        let key = self.key(wanted, table, &fields);
        let columns = fields.iter().map(|(at, field)| ShapeColumn {
            at: *at,
            name: field.column.clone(),
            kind: field.kind,
            nullable: field.nullable,
            mixed: field.mixed,
            null: null_text(wanted, &field.column),
        });
        let shape = Shape { table: table.name.clone(), columns: columns.collect(), key };
        let why_no_key = why_no_key(table, &fields);
        let fields: Vec<Field> = fields.into_iter().map(|(_, field)| field).collect();
        if fields.is_empty() {
            let message = format!("`{}` has no field to show", wanted.name.value);
            self.error(&wanted.name.at, message, "leave `hidden = true` out for one of its columns".into());
        }
        let chosen = Chosen {
            filters: self.choice(wanted, &wanted.filters, "filters", &fields),
            sorts: self.choice(wanted, &wanted.sort, "sort", &fields),
            why_no_key,
        };
        let collection = Collection {
            name: wanted.name.value.clone(),
            source: wanted.source.value.clone(),
            shape,
            fields,
            rows_max: wanted.rows_max as usize,
            bytes_max: wanted.bytes_max as usize,
            writes: None,
        };
        (self.errors() == errors).then_some((collection, chosen))
    }

    fn errors(&self) -> usize {
        self.found.iter().filter(|one| one.severity == Severity::Error).count()
    }

    /// Whatever is wrong has a way out.
    fn error(&mut self, at: &At, message: String, help: String) {
        self.found.push(Diagnostic::error(message).at(at).help(help));
    }

    /// The table that a collection means: the one it names, the one of its own name, or the only one.
    fn table<'f>(&mut self, wanted: &manifest::Collection, facts: &'f Facts) -> Option<&'f TableFacts> {
        let (name, at) = match &wanted.table {
            Some(table) => (&table.value, &table.at),
            None => (&wanted.name.value, &wanted.name.at),
        };
        if let Some(found) = facts.tables.iter().find(|table| table.name == *name) {
            return Some(found);
        }
        if let ([only], None) = (&*facts.tables, &wanted.table) {
            return Some(only);
        }
        if let Some(left_out) = facts.left_out.iter().find(|one| one.table == *name) {
            let message = format!("the table `{name}` cannot be served: {}", left_out.why);
            self.error(at, message, "leave the collection out, or make a table that can be read".into());
            return None;
        }
        let names = facts.tables.iter().map(|table| table.name.as_str());
        let message = format!("no table `{name}` in source `{}`", wanted.source.value);
        self.error(at, message, instead(name, names));
        None
    }

    /// What is said about columns that are not there, or twice under one name.
    fn judge_fields(&mut self, wanted: &manifest::Collection, table: &TableFacts) {
        for field in &wanted.fields {
            self.known_column(&field.column, table);
        }
    }

    fn known_column(&mut self, column: &Placed<String>, table: &TableFacts) -> bool {
        let names = || table.columns.iter().map(|one| one.name.as_str());
        if names().any(|name| name == column.value) {
            return true;
        }
        let message = format!("no column `{}` in `{}`", column.value, table.name);
        self.error(&column.at, message, instead(&column.value, names()));
        false
    }

    /// The fields that are shown, each with its column's place.
    fn fields(&mut self, wanted: &manifest::Collection, table: &TableFacts) -> Vec<(usize, Field)> {
        let headers: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let names = names::argument_names(&headers);
        let mut fields: Vec<(usize, Field)> = Vec::with_capacity(headers.len());
        for (at, (column, name)) in table.columns.iter().zip(&names).enumerate() {
            let said = wanted.fields.iter().find(|field| field.column.value == column.name);
            if said.is_some_and(|said| said.hidden) {
                continue;
            }
            let own = said.and_then(|said| said.name.as_ref());
            if let Some(own) = own
                && (names.contains(&own.value) && own.value != *name
                    || fields.iter().any(|(_, field)| field.name == own.value))
            {
                let message = format!("two fields would be called `{}`", own.value);
                self.error(&own.at, message, "give one of them another name".into());
            }
            let name = own.map_or(name, |own| &own.value);
            let kind = said.and_then(|said| said.kind.as_ref()).map_or(column.kind, |kind| kind.value);
            let mut field = Field::new(name, &column.name, kind);
            field.nullable = column.nullable || null_text(wanted, &column.name).is_some();
            // A kind that the author insists on has no strays: a value that is none is an error.
            field.mixed = column.mixed && kind == column.kind;
            field.seen.clone_from(&column.values);
            if let Some(said) = said {
                self.say(&mut field, said, column.kind);
            }
            // Values that hardly ever come twice are what rows are about, and no choice to be offered.
            if table.rows.is_none_or(|rows| rows < 3 * field.seen.len() as u64) {
                field.seen.clear();
            }
            fields.push((at, field));
        }
        fields
    }

    /// Takes over what the author says about a field.
    fn say(&mut self, field: &mut Field, said: &manifest::Field, found: Kind) {
        field.description.clone_from(&said.description);
        field.sensitive = said.sensitive;
        field.format = said.format.as_ref().map(|format| format.value.to_owned());
        if let Some(format) = &said.format
            && field.kind != Kind::Text
        {
            let message = format!("`{}` is {} here, and has no format", field.column, field.kind.as_str());
            let help = "formats are for text; leave it out, or say `type = \"text\"`";
            self.error(&format.at, message, help.into());
        }
        if let Some(kind) = &said.kind
            && kind.value != found
            && kind.value != Kind::Text
            && found == Kind::Text
            && !field.seen.is_empty()
        {
            let message = format!("not every value of `{}` is {}", field.column, kind.value.as_str());
            let help = format!(
                "it is text because of values such as `{}`; correct them, or leave the type out",
                field.seen[0]
            );
            self.error(&kind.at, message, help);
        }
        let unlisted = field.seen.iter().find(|seen| {
            let is_seen = |literal: &Placed<Literal>| match &literal.value {
                Literal::Text(text) => text == *seen,
                Literal::Integer(n) => n.to_string() == **seen,
            };
            !said.allowed.is_empty() && !seen.is_empty() && !said.allowed.iter().any(is_seen)
        });
        if let (Some(unlisted), Some(first)) = (unlisted, said.allowed.first()) {
            let message = format!("the data has `{unlisted}`, which this list of values leaves out");
            self.error(&first.at, message, "add it, or leave the list out".into());
        }
        for literal in &said.allowed {
            match (&literal.value, field.kind) {
                (Literal::Text(text), Kind::Text | Kind::Date | Kind::Decimal | Kind::Int64) => {
                    let mut out = Vec::with_capacity(text.len() + 2);
                    json::write::string(&mut out, text);
                    field.allowed.push(Json::written(out));
                }
                (Literal::Integer(n), Kind::Integer) => {
                    field.allowed.push(Json::written(n.to_string().into_bytes()));
                }
                (_, kind) => {
                    let message =
                        format!("`{}` is {} here, and this value is not", field.column, kind.as_str());
                    let help = match kind {
                        Kind::Integer => "write a whole number without quotes, or leave the list out",
                        Kind::Text | Kind::Date | Kind::Decimal | Kind::Int64 => {
                            "write it in quotes, or leave the list out"
                        }
                        Kind::Number
                        | Kind::Boolean
                        | Kind::Timestamp
                        | Kind::LocalTimestamp
                        | Kind::Json
                        | Kind::Blob => "leave the list out: it is for texts, dates and whole numbers",
                    };
                    self.error(&literal.at, message, help.into());
                }
            }
        }
    }

    /// Places in `fields` of the columns that tell rows apart.
    fn key(
        &mut self,
        wanted: &manifest::Collection,
        table: &TableFacts,
        fields: &[(usize, Field)],
    ) -> Vec<usize> {
        if wanted.key.is_empty() {
            let shown =
                |column: &usize| fields.iter().position(|(at, field)| at == column && field.kind.is_scalar());
            let key: Option<Vec<usize>> = table.key.iter().map(shown).collect();
            return key.unwrap_or_default();
        }
        let mut key = Vec::new();
        for part in &wanted.key {
            let named = |field: &Field| field.column == part.value || field.name == part.value;
            match fields.iter().position(|(_, field)| named(field)) {
                Some(at) if !fields[at].1.kind.is_scalar() => {
                    let message =
                        format!("`{}` cannot be a key: it is {}", part.value, fields[at].1.kind.as_str());
                    self.error(&part.at, message, "choose a column that callers can write down".into());
                }
                Some(at) => key.push(at),
                None if self.known_column(part, table) => {
                    let message = format!("the key `{}` is hidden", part.value);
                    let help = "a key must be seen to be asked for; show it, or choose another";
                    self.error(&part.at, message, help.into());
                }
                None => {}
            }
        }
        key
    }

    /// Places in `fields` that a list can be filtered or sorted by.
    fn choice(
        &mut self,
        wanted: &manifest::Collection,
        choice: &Choice,
        what: &str,
        fields: &[Field],
    ) -> Vec<usize> {
        let scalar = || fields.iter().enumerate().filter(|(_, field)| field.kind.is_scalar());
        match choice {
            Choice::None => Vec::new(),
            Choice::All => scalar().map(|(at, _)| at).collect(),
            Choice::Unsaid => {
                let rest: Vec<&str> =
                    scalar().skip(CHOSEN_MAX).map(|(_, field)| field.name.as_str()).collect();
                if !rest.is_empty() && what == "filters" {
                    let name = &wanted.name.value;
                    let message = format!("`{name}` cannot be filtered by: {}", rest.join(", "));
                    let help =
                        format!("there are more than {CHOSEN_MAX} columns; choose with filters = [\"…\"]");
                    self.found.push(Diagnostic::note(message).at(&wanted.name.at).help(help));
                }
                scalar().take(CHOSEN_MAX).map(|(at, _)| at).collect()
            }
            Choice::Only(names) => names.iter().filter_map(|name| self.chosen(name, what, fields)).collect(),
        }
    }

    fn chosen(&mut self, name: &Placed<String>, what: &str, fields: &[Field]) -> Option<usize> {
        let found = fields.iter().position(|field| field.name == name.value || field.column == name.value);
        match found {
            Some(at) if fields[at].kind.is_scalar() => return Some(at),
            Some(at) => {
                let message = format!("`{}` is {}: no use in {what}", name.value, fields[at].kind.as_str());
                self.error(&name.at, message, "leave it out".into());
            }
            None => {
                let names = fields.iter().map(|field| field.name.as_str());
                self.error(&name.at, format!("no field `{}`", name.value), instead(&name.value, names));
            }
        }
        None
    }

    fn tools(
        &mut self,
        wanted: &'m manifest::Collection,
        collection: &Collection,
        chosen: &Chosen,
        at: usize,
        tools: &mut Vec<Made<'m>>,
    ) {
        let has_key = !collection.shape.key.is_empty();
        for operation in manifest::Operation::DEFAULT {
            let asked = wanted.operations.as_ref().map(|all| all.iter().find(|one| one.value == operation));
            let named: Vec<(&manifest::Tool, &Placed<Uses>)> = self
                .uses()
                .filter(|(_, uses)| {
                    uses.value.collection == collection.name && uses.value.operation == operation
                })
                .collect();
            if asked.is_some_and(|asked| asked.is_none()) {
                for (_, uses) in named {
                    let message = format!("`{}` does not have `{}`", collection.name, operation.as_str());
                    self.error(&uses.at, message, "add it to the collection's operations".into());
                }
                continue;
            }
            if operation == manifest::Operation::Get && !has_key {
                self.no_key(wanted, &chosen.why_no_key, asked.flatten(), &named);
                continue;
            }
            if named.is_empty() {
                let name = names::tool_name(operation.as_str(), &collection.name);
                tools.push(Made { tool: made(name, wanted, collection, chosen, at, operation), at: None });
            }
            for (tool, _) in named.into_iter().filter(|(tool, _)| !tool.hidden) {
                let mut made = made(tool.name.value.clone(), wanted, collection, chosen, at, operation);
                made.title.clone_from(&tool.title);
                if let Some(description) = &tool.description {
                    made.description.clone_from(description);
                }
                made.text = tool.text.as_ref().and_then(|text| self.line(text, collection));
                tools.push(Made { tool: made, at: Some(&tool.name.at) });
            }
        }
    }

    /// The tools that rename something, each with what.
    fn uses(&self) -> impl Iterator<Item = (&'m manifest::Tool, &'m Placed<Uses>)> + use<'m> {
        self.manifest.tools.iter().filter_map(|tool| match &tool.body {
            Body::Uses(uses) => Some((tool, uses)),
            Body::Statement(_) => None,
        })
    }

    fn line(&mut self, text: &Placed<String>, collection: &Collection) -> Option<Line> {
        match Line::parse(&text.value, &collection.fields) {
            Ok(line) => return Some(line),
            Err(BadLine::Open(span)) => {
                let at = text.at.inside(&text.value, span);
                self.error(&at, "a `{` without its `}`".into(), "a brace itself is `{{`".into());
            }
            Err(BadLine::Unknown(name, span)) => {
                let at = text.at.inside(&text.value, span);
                let names = collection.fields.iter().map(|field| field.name.as_str());
                let message = format!("no field `{name}` in `{}`", collection.name);
                self.error(&at, message, instead(&name, names));
            }
        }
        None
    }

    /// Without a key there is nothing to get one record by.
    fn no_key(
        &mut self,
        wanted: &manifest::Collection,
        why: &str,
        asked: Option<&Placed<manifest::Operation>>,
        named: &[(&manifest::Tool, &Placed<Uses>)],
    ) {
        let message = format!("`{}` has no key: {why}", wanted.name.value);
        let help = "say which with key = \"…\", or key = [\"…\", \"…\"]";
        let at = asked.map(|asked| &asked.at).or(named.first().map(|(_, uses)| &uses.at));
        match at {
            Some(at) => self.error(at, message, help.into()),
            None => {
                let note = Diagnostic::note(format!("{message}; it can be listed only"));
                self.found.push(note.at(&wanted.name.at).help(help));
            }
        }
    }

    fn judge_names(&mut self, tools: &[Made<'m>]) {
        for (i, made) in tools.iter().enumerate() {
            let Some(first) = tools[..i].iter().find(|other| other.tool.name == made.tool.name) else {
                continue;
            };
            let message = format!("two tools are called `{}`", made.tool.name);
            match made.at.or(first.at) {
                Some(at) => self.error(at, message, "give one of them another name".into()),
                None => self.found.push(Diagnostic::error(message).help("rename one of the collections")),
            }
        }
        for (_, uses) in self.uses() {
            let of = &uses.value.collection;
            let collections = || self.manifest.collections.iter().map(|one| one.name.value.as_str());
            if !collections().any(|name| name == of) {
                let at = uses.at.inside(of, 0..of.len());
                self.error(&at, format!("no collection `{of}`"), instead(of, collections()));
            }
        }
    }
}

/// Why a collection has no key, for whoever wonders.
fn why_no_key(table: &TableFacts, fields: &[(usize, Field)]) -> String {
    let is_shown = |at: &usize| fields.iter().any(|(shown, _)| shown == at);
    match table.key.iter().find(|at| !is_shown(at)) {
        Some(hidden) => format!("its key `{}` is hidden", table.columns[*hidden].name),
        None if table.rows == Some(0) => "it has no rows in which one could be found".into(),
        None if table.rows.is_none() => "none is declared, and not all rows were seen".into(),
        None => "no column of text or whole numbers has a value in every row and none twice".into(),
    }
}

/// So many names are offered to whoever got one wrong.
const OFFERED_MAX: usize = 30;

/// What was probably meant, else what there is.
fn instead<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    did_you_mean(name, known.clone()).unwrap_or_else(|| {
        let more = known.clone().count().saturating_sub(OFFERED_MAX);
        let shown = known.take(OFFERED_MAX).collect::<Vec<_>>().join(", ");
        match more {
            _ if shown.is_empty() => "there is none to choose from".into(),
            0 => format!("there are: {shown}"),
            more => format!("there are: {shown} and {more} more"),
        }
    })
}

/// Text that means "no value" in a column.
fn null_text(wanted: &manifest::Collection, column: &str) -> Option<String> {
    let field = wanted.fields.iter().find(|field| field.column.value == column);
    field.and_then(|field| field.null.clone()).or_else(|| wanted.null.clone())
}

fn made(
    name: String,
    wanted: &manifest::Collection,
    collection: &Collection,
    chosen: &Chosen,
    at: usize,
    operation: manifest::Operation,
) -> Tool {
    let about = wanted.description.as_ref().map_or_else(String::new, |about| format!(" {about}"));
    let (description, input, output, operation) = match operation {
        manifest::Operation::Get => {
            let key: Vec<&str> = collection.key_fields().map(|field| field.name.as_str()).collect();
            let words = format!("One record of {} by {}.{about}", collection.name, key.join(" and "));
            (
                words,
                schemas::get_input(collection),
                schemas::get_output(collection),
                Operation::Get { collection: at },
            )
        }
        manifest::Operation::List => {
            let words = format!("Records of {}, a page at a time.{about}", collection.name);
            let (input, arguments) = schemas::list_input(collection, &chosen.filters, &chosen.sorts);
            (words, input, schemas::list_output(collection), Operation::List { collection: at, arguments })
        }
        manifest::Operation::Search
        | manifest::Operation::Create
        | manifest::Operation::Update
        | manifest::Operation::Delete => unreachable!("not compiled yet"),
    };
    Tool {
        name,
        title: None,
        description,
        input,
        output,
        operation,
        text: None,
        rate: None,
        call_timeout_ms: None,
        long_running: false,
        confirm: Confirm::Never,
    }
}

/// Tells one set of tools from another: all that callers can see of them.
fn fingerprint(tools: &[Made<'_>]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for Made { tool, .. } in tools {
        let title = tool.title.as_deref().unwrap_or_default();
        for piece in [&tool.name, title, &tool.description, tool.input.as_str(), tool.output.as_str()] {
            context.update(&(piece.len() as u64).to_be_bytes());
            context.update(piece.as_bytes());
        }
    }
    context.finish().as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}
