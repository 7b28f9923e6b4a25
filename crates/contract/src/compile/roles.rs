//! The contract of each role: the manifest without what the role may not do, compiled as any other.
//!
//! Nothing is removed from a finished contract: schemas, descriptions, links, instructions and the overview are made for the
//! role, so that they cannot mention what it may not see. Facts that come from rows, such as their number, are left out
//! where not all rows exist for the role.

use json::Json;

use super::{IntrospectedSource, compile_contract, suggest};
use crate::access::{
    self, ItemGrants, ItemSet, Role, Roles, RowRules, RuleCondition, RuleOperand, RuleValue, clause_count,
};
use crate::bind;
use crate::contract::{Collection, Contract};
use crate::diagnostic::{Diagnostic, FileLocation, Located, Severity};
use crate::field::Field;
use crate::manifest::{
    self, Assignment, FieldAccess, FieldSelection, ItemAccess, Literal, Manifest, Operand, Operation,
    ResourceOrigin, RowCondition, RowTest, ToolBody,
};
use crate::source::{Comparison, SourceFacts};
use crate::text_template::TextTemplate;

/// A predicate becomes no more filters than this.
const CLAUSES_MAX: usize = 64;

/// What one role may do with one collection, with everything that it includes.
struct Grant<'m> {
    operations: Vec<Operation>,
    /// Indexes into the fields of the collection.
    hidden: Vec<usize>,
    /// `None`: all rows.
    rows: Option<&'m [Vec<RowCondition>]>,
    set: &'m [Assignment],
}

/// The entry of a role, and those of the roles that it includes, that say something about the same collection.
type Entries<'m> = Vec<&'m manifest::CollectionAccess>;

pub(super) fn compile_roles(
    manifest: &Manifest,
    known: &[IntrospectedSource<'_>],
    default_name: &str,
    whole: &Contract,
) -> (Roles, Vec<Diagnostic>) {
    let mut compiler = RoleCompiler { manifest, known, whole, unhidden: None, diagnostics: Vec::new() };
    compiler.unhidden = compiler.compile_unhidden(default_name);
    let mut roles = Vec::new();
    for role in &manifest.roles {
        roles.extend(compiler.compile_role(role, default_name));
    }
    compiler.report_unused(&roles);
    (Roles { roles }, compiler.diagnostics)
}

/// The facts for a contract whose roles set columns: nobody else needs to.
pub(super) fn with_assigned_columns(
    manifest: &Manifest,
    known: &[IntrospectedSource<'_>],
) -> Vec<SourceFacts> {
    let mut all: Vec<SourceFacts> = known.iter().map(|one| one.facts.clone()).collect();
    for declared in &manifest.collections {
        let names: Vec<&str> = declared
            .access
            .iter()
            .flat_map(|access| &access.set)
            .map(|assignment| assignment.field.value.as_str())
            .collect();
        let source = known.iter().position(|one| one.name == declared.source.value);
        let Some(facts) = source.and_then(|at| all.get_mut(at)).filter(|_| !names.is_empty()) else {
            continue;
        };
        let table = declared.table.as_ref().unwrap_or(&declared.name);
        let is_only = facts.tables.len() == 1;
        let found = facts.tables.iter_mut().filter(|one| is_only || one.name == table.value);
        for column in found.flat_map(|table| &mut table.columns) {
            column.has_default |= names.contains(&column.name.as_str());
        }
    }
    all
}

struct RoleCompiler<'m> {
    manifest: &'m Manifest,
    known: &'m [IntrospectedSource<'m>],
    /// The contract without roles.
    whole: &'m Contract,
    /// The same with the hidden columns that rules use, if there are any.
    unhidden: Option<Contract>,
    diagnostics: Vec<Diagnostic>,
}

impl<'m> RoleCompiler<'m> {
    fn error(&mut self, at: &FileLocation, message: String, help: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error(message).at(at).help(help));
    }

    fn warning(&mut self, at: &FileLocation, message: String, help: &str) {
        self.diagnostics.push(Diagnostic::warning(message).at(at).help(help).code("access"));
    }

    /// Rules may use columns that the manifest hides from everybody.
    fn compile_unhidden(&self, default_name: &str) -> Option<Contract> {
        let mut manifest = without_roles(self.manifest);
        let mut is_changed = false;
        for (collection, declared) in manifest.collections.iter_mut().zip(&self.manifest.collections) {
            let named = |column: &str| {
                declared.access.iter().any(|access| {
                    let conditions = access.rows.iter().flatten().flatten();
                    let mut names =
                        conditions.map(|one| &one.field).chain(access.set.iter().map(|one| &one.field));
                    names.any(|name| name.value == column)
                })
            };
            for field in collection.fields.iter_mut().filter(|field| field.hidden) {
                if named(&field.column.value) {
                    field.hidden = false;
                    is_changed = true;
                }
            }
        }
        if !is_changed {
            return None;
        }
        compile_contract(&manifest, self.known, default_name).0
    }

    fn unhidden_collection(&self, name: &str) -> Option<&Collection> {
        let contract = self.unhidden.as_ref().unwrap_or(self.whole);
        contract.collections.iter().find(|one| one.name == name)
    }

    fn compile_role(&mut self, role: &'m manifest::Role, default_name: &str) -> Option<Role> {
        let errors = self.error_count();
        let included = self.manifest.included_roles(role)?;
        let names: Vec<&str> = included.iter().map(|one| one.name.value.as_str()).collect();
        let mut grants: Vec<Option<Grant<'m>>> = Vec::new();
        for declared in &self.manifest.collections {
            grants.push(self.grant(role, &names, declared));
        }
        if self.error_count() > errors {
            return None;
        }
        let items = self.item_grants(&names, &grants);
        let reduced = self.reduced_manifest(&grants, &items);
        let facts = self.reduced_facts(&grants);
        let known: Vec<IntrospectedSource<'_>> = self
            .known
            .iter()
            .zip(&facts)
            .map(|(one, facts)| IntrospectedSource { name: one.name, facts, statements: one.statements })
            .collect();
        let (contract, found) = compile_contract(&reduced, &known, default_name);
        for one in found.into_iter().filter(|one| one.severity == Severity::Error) {
            let message = format!("role `{}`: {}", role.name.value, one.message);
            let at = one.location.clone().unwrap_or_else(|| role.name.location.clone());
            self.diagnostics.push(Diagnostic { message, ..one }.at(&at));
        }
        let mut contract = contract?;
        for collection in &mut contract.collections {
            let at = self.manifest.collections.iter().position(|one| one.name.value == collection.name)?;
            let grant = grants[at].as_ref()?;
            self.add_rules(role, collection, grant);
        }
        if self.error_count() > errors {
            return None;
        }
        let scopes = role.scopes.clone();
        Some(Role { name: role.name.value.clone(), when: role.when.clone(), scopes, contract, items })
    }

    fn error_count(&self) -> usize {
        self.diagnostics.iter().filter(|one| one.severity == Severity::Error).count()
    }

    /// `None` if the role may do nothing with the collection.
    fn grant(
        &mut self,
        role: &manifest::Role,
        names: &[&str],
        declared: &'m manifest::Collection,
    ) -> Option<Grant<'m>> {
        // A collection whose source cannot be opened is in no contract.
        let collection = self.whole.collections.iter().find(|one| one.name == declared.name.value)?;
        let of = |name: &str| declared.access.iter().find(|access| access.role.value == name);
        let entries: Entries<'m> = names.iter().filter_map(|name| of(name)).collect();
        let first = *entries.first()?;
        let own = of(&role.name.value);
        let offered = self.offered_operations(collection);
        let mut operations = Vec::new();
        for entry in &entries {
            for operation in entry.operations.iter().flatten() {
                if !offered.contains(&operation.value) {
                    let word = operation.value.as_str();
                    let message = format!("`{}` has no operation `{word}`", declared.name.value);
                    let help = format!("add `{word}` to the operations of the collection, or remove it here");
                    self.error(&operation.location, message, help);
                }
                operations.push(operation.value);
            }
        }
        if operations.is_empty() {
            operations.extend(Operation::DEFAULT.into_iter().filter(|one| offered.contains(one)));
        }
        operations.dedup();
        let fields = self.choose(role, own, &entries, declared, "hidden", |entry| match &entry.fields {
            FieldAccess::Unspecified => None,
            fields => Some(fields),
        });
        let rows = self.choose(role, own, &entries, declared, "where", |entry| entry.rows.as_ref());
        let set = self.choose(role, own, &entries, declared, "set", |entry| {
            (!entry.set.is_empty()).then_some(&entry.set)
        });
        let hidden = self.hidden_fields(collection, fields);
        let key: Vec<usize> = collection.shape.key.clone();
        let needs_key = |operation: &Operation| *operation != Operation::Aggregate;
        if let (Some(at), true) =
            (hidden.iter().find(|at| key.contains(at)), operations.iter().any(needs_key))
        {
            let name = &collection.fields[*at].name;
            let message = format!("the role `{}` does not see `{name}`, which is the key", role.name.value);
            let help =
                "without the key only `aggregate` is possible; show the field, or grant only `aggregate`";
            self.error(&first.role.location, message, help);
        }
        let rows = rows.map(Vec::as_slice).filter(|rows| !rows.iter().all(Vec::is_empty));
        Some(Grant { operations, hidden, rows, set: set.map_or(&[], Vec::as_slice) })
    }

    /// What the role itself says, else what the roles that it includes say, if they agree: two of them together must not
    /// grant what neither does.
    fn choose<T>(
        &mut self,
        role: &manifest::Role,
        own: Option<&'m manifest::CollectionAccess>,
        entries: &Entries<'m>,
        declared: &manifest::Collection,
        key: &str,
        part: impl Fn(&'m manifest::CollectionAccess) -> Option<&'m T>,
    ) -> Option<&'m T> {
        if let Some(own) = own.and_then(&part) {
            return Some(own);
        }
        let included: Entries<'m> = entries
            .iter()
            .copied()
            .filter(|entry| own.is_none_or(|own| !std::ptr::eq(*entry, own)))
            .collect();
        let parts: Vec<Option<&'m T>> = included.iter().map(|entry| part(entry)).collect();
        if included.len() > 1 && parts.iter().any(Option::is_some) {
            let message = format!(
                "`{}` includes several roles that may use `{}`, and does not say which `{key}` counts",
                role.name.value, declared.name.value
            );
            let help = format!(
                "write `{key}` below `[collections.{}.access.{}]`",
                declared.name.value, role.name.value
            );
            self.error(&role.name.location, message, help);
        }
        parts.into_iter().flatten().next()
    }

    fn offered_operations(&self, collection: &Collection) -> Vec<Operation> {
        let index = self.whole.collections.iter().position(|one| one.name == collection.name);
        let tools =
            self.whole.tools.iter().filter(|tool| tool.operation.collection() == index && index.is_some());
        tools.filter_map(|tool| tool.operation.operation()).collect()
    }

    fn hidden_fields(&mut self, collection: &Collection, fields: Option<&FieldAccess>) -> Vec<usize> {
        let mut resolve = |names: &[Located<String>]| -> Vec<usize> {
            names.iter().filter_map(|name| self.find_field(collection, name)).collect()
        };
        match fields {
            None | Some(FieldAccess::Unspecified) => Vec::new(),
            Some(FieldAccess::AllBut(names)) => resolve(names),
            Some(FieldAccess::Only(names)) => {
                let visible = resolve(names);
                (0..collection.fields.len()).filter(|at| !visible.contains(at)).collect()
            }
        }
    }

    fn find_field(&mut self, collection: &Collection, name: &Located<String>) -> Option<usize> {
        let is_it = |field: &Field| field.name == name.value || field.column == name.value;
        let found = collection.fields.iter().position(is_it);
        if found.is_none() {
            let names = collection.fields.iter().map(|field| field.name.as_str());
            let help = suggest(&name.value, "field", names);
            self.error(&name.location, format!("`{}` has no field `{}`", collection.name, name.value), help);
        }
        found
    }

    fn item_grants(&self, names: &[&str], grants: &[Option<Grant<'_>>]) -> ItemGrants {
        let set = |items: &[ItemAccess]| {
            let is_granted = |item: &&ItemAccess| names.iter().any(|name| item.has(name));
            let (granted, withheld): (Vec<_>, Vec<_>) = items.iter().partition(is_granted);
            let names =
                |items: Vec<&ItemAccess>| items.into_iter().map(|item| item.name.value.clone()).collect();
            ItemSet { granted: names(granted), withheld: names(withheld) }
        };
        let can_get = |collection: &str| {
            let at = self.manifest.collections.iter().position(|one| one.name.value == collection);
            let grant = at.and_then(|at| grants[at].as_ref());
            grant.is_some_and(|grant| grant.operations.contains(&Operation::Get))
        };
        let resources = set(&self.manifest.resource_access);
        let is_withheld = |one: &&manifest::Resource| match resources.grant(&one.name.value) {
            access::Grant::Granted => {
                matches!(&one.origin, ResourceOrigin::Collection(name) if !can_get(&name.value))
            }
            access::Grant::Withheld => true,
            access::Grant::Unspecified => match &one.origin {
                ResourceOrigin::File(_) => false,
                ResourceOrigin::Collection(name) => !can_get(&name.value),
                ResourceOrigin::Script(_) => true,
            },
        };
        let withheld = self.manifest.resources.iter().filter(is_withheld);
        // The parser requires the URI of a resource with `access`.
        let uri = |one: &manifest::Resource| one.uri.as_ref().map(|uri| uri.value.clone());
        ItemGrants {
            tools: set(&self.manifest.tool_access),
            prompts: set(&self.manifest.prompt_access),
            withheld_uris: withheld.filter_map(uri).collect(),
            resources,
        }
    }

    /// The manifest without what the role may not do.
    fn reduced_manifest(&self, grants: &[Option<Grant<'_>>], items: &ItemGrants) -> Manifest {
        let mut reduced = without_roles(self.manifest);
        reduced.may_be_empty = true;
        let grant_of = |name: &str| {
            let at = self.manifest.collections.iter().position(|one| one.name.value == name)?;
            grants[at].as_ref()
        };
        reduced.collections.retain(|declared| grant_of(&declared.name.value).is_some());
        for declared in &mut reduced.collections {
            if let Some(grant) = grant_of(&declared.name.value) {
                self.reduce_collection(declared, grant, &grant_of);
            }
        }
        reduced.tools.retain_mut(|tool| match &tool.body {
            ToolBody::Statement(_) | ToolBody::Request(_) => {
                items.tools.grant(&tool.name.value) == access::Grant::Granted
            }
            ToolBody::Uses(uses) => {
                let Some(grant) = grant_of(&uses.value.collection) else { return false };
                let collection = self.whole.collections.iter().find(|one| one.name == uses.value.collection);
                if let (Some(text), Some(collection)) = (&tool.text_template, collection)
                    && TextTemplate::parse(&text.value, &visible_fields(collection, grant)).is_err()
                {
                    tool.text_template = None;
                }
                grant.operations.contains(&uses.value.operation)
                    && items.tools.grant(&tool.name.value) != access::Grant::Withheld
            }
        });
        reduced
    }

    fn reduce_collection<'g>(
        &self,
        declared: &mut manifest::Collection,
        grant: &Grant<'_>,
        grant_of: &dyn Fn(&str) -> Option<&'g Grant<'m>>,
    ) where
        'm: 'g,
    {
        let Some(collection) = self.whole.collections.iter().find(|one| one.name == declared.name.value)
        else {
            return;
        };
        let offers = |operation: &Operation| match &declared.operations {
            Some(operations) => operations.iter().any(|one| one.value == *operation),
            None => Operation::DEFAULT.contains(operation),
        };
        let located = |operation: Operation| {
            let known = declared.operations.iter().flatten().find(|one| one.value == operation);
            let at = known.map_or(&declared.name.location, |one| &one.location);
            Located::new(operation, at.clone())
        };
        let operations = grant.operations.iter().copied().filter(&offers);
        declared.operations = Some(operations.map(located).collect());
        let hidden: Vec<&Field> = grant.hidden.iter().map(|at| &collection.fields[*at]).collect();
        let is_hidden = |name: &str| hidden.iter().any(|field| field.name == name || field.column == name);
        for field in &hidden {
            match declared.fields.iter_mut().find(|one| one.column.value == field.column) {
                Some(declared) => declared.hidden = true,
                None => declared.fields.push(hidden_field(&field.column, &declared.name.location)),
            }
        }
        if grant.rows.is_some() {
            declared.fields.iter_mut().for_each(|field| field.show_values = None);
        }
        for selection in [
            &mut declared.filters,
            &mut declared.sort,
            &mut declared.search,
            &mut declared.group,
            &mut declared.measures,
        ] {
            if let FieldSelection::Only(names) = selection {
                names.retain(|name| !is_hidden(&name.value));
                if names.is_empty() {
                    *selection = FieldSelection::None;
                }
            }
        }
        if declared.key.iter().any(|part| is_hidden(&part.value)) {
            declared.key.clear();
        }
        declared.related.retain(|link| {
            let Some(compiled) = collection.links.iter().find(|one| one.name == link.name.value) else {
                return link.hidden;
            };
            let Some(target) = grant_of(&self.whole.collections[compiled.target].name) else { return false };
            let is_visible =
                |(own, other): &(usize, usize)| !grant.hidden.contains(own) && !target.hidden.contains(other);
            let is_sorted_by_hidden = link.sort.iter().any(|name| {
                let fields = &self.whole.collections[compiled.target].fields;
                let name = name.value.trim_start_matches('-');
                target.hidden.iter().any(|at| fields[*at].name == name || fields[*at].column == name)
            });
            target.operations.contains(&Operation::List)
                && compiled.fields.iter().all(is_visible)
                && !is_sorted_by_hidden
        });
    }

    /// What is known about the sources, without what only other rows say.
    fn reduced_facts(&self, grants: &[Option<Grant<'_>>]) -> Vec<SourceFacts> {
        let mut all: Vec<SourceFacts> = self.known.iter().map(|one| one.facts.clone()).collect();
        for (declared, grant) in self.manifest.collections.iter().zip(grants) {
            let Some(grant) = grant else { continue };
            let Some(collection) = self.unhidden_collection(&declared.name.value) else { continue };
            let source = self.known.iter().position(|one| one.name == collection.source);
            let facts = source.and_then(|at| all.get_mut(at));
            let tables = facts.into_iter().flat_map(|facts| &mut facts.tables);
            for table in tables.filter(|table| table.name == collection.shape.table) {
                if grant.rows.is_some() {
                    table.row_count = None;
                    table.columns.iter_mut().for_each(|column| column.distinct_values.clear());
                }
                for assignment in grant.set {
                    let field = collection.fields.iter().find(|field| {
                        field.name == assignment.field.value || field.column == assignment.field.value
                    });
                    let column = field.and_then(|field| {
                        table.columns.iter_mut().find(|column| column.name == field.column)
                    });
                    if let Some(column) = column.filter(|column| column.read_only_reason.is_none()) {
                        column.has_default = true;
                        column.read_only_reason = Some("the server sets it".into());
                    }
                }
            }
        }
        all
    }

    /// Adds the columns that rules need and callers do not see, and the rules.
    fn add_rules(&mut self, role: &manifest::Role, collection: &mut Collection, grant: &Grant<'m>) {
        let (rows, set) = (grant.rows, grant.set);
        if let Some(rows) = rows {
            let lengths = rows.iter().map(|conditions| {
                conditions.iter().map(|one| if is_two_sided(&one.test) { 2 } else { 1 }).sum()
            });
            if clause_count(lengths) > CLAUSES_MAX
                && let Some(first) = rows.iter().flatten().next()
            {
                let message = "the tables of `where` have too many combinations of conditions".to_owned();
                self.error(&first.field.location, message, "use fewer tables, or fewer fields in each");
                return;
            }
        }
        let mut alternatives = Vec::new();
        for conditions in rows.into_iter().flatten() {
            let mut all = Vec::new();
            for condition in conditions {
                self.compile_condition(collection, condition, &mut all);
            }
            alternatives.push(all);
        }
        let mut values = Vec::new();
        for assignment in set {
            values.extend(self.compile_assignment(collection, assignment));
        }
        self.check_create(role, collection, grant);
        collection.rules = Some(RowRules {
            role: role.name.value.clone(),
            alternatives: rows.map(|_| alternatives),
            set: values,
            time_zone: collection.time_zone,
            identity: collection.rules.take().and_then(|rules| rules.identity),
        });
    }

    /// The index of a column in the shape, which gets it if it does not have it, and its field.
    fn rule_column(&mut self, collection: &mut Collection, name: &Located<String>) -> Option<(usize, Field)> {
        let unhidden = self.unhidden_collection(&collection.name)?.clone();
        let at = self.find_field(&unhidden, name)?;
        let (field, column) = (unhidden.fields[at].clone(), unhidden.shape.columns[at].clone());
        let columns = &mut collection.shape.columns;
        let index = columns.iter().position(|one| one.source_index == column.source_index);
        let index = index.unwrap_or_else(|| {
            columns.push(column);
            columns.len() - 1
        });
        Some((index, field))
    }

    fn compile_condition(
        &mut self,
        collection: &mut Collection,
        condition: &RowCondition,
        out: &mut Vec<RuleCondition>,
    ) {
        let Some((column, field)) = self.rule_column(collection, &condition.field) else { return };
        let at = &condition.field.location;
        if !field.data_type.is_scalar() {
            let message = format!(
                "`{}` cannot decide about rows: it is {}",
                field.name,
                field.data_type.with_article()
            );
            return self.error(at, message, "use a field of texts, numbers, dates or booleans");
        }
        let mut push = |comparison, operands: Vec<RuleOperand>| {
            out.push(RuleCondition { column, field: field.clone(), comparison, operands });
        };
        match &condition.test {
            RowTest::OneOf(operands) => {
                push(Comparison::Equals, self.compile_operands(&field, operands, bind::bind_comparable));
            }
            RowTest::NoneOf(operands) => {
                push(Comparison::NotEquals, self.compile_operands(&field, operands, bind::bind_comparable));
            }
            RowTest::IsNull => push(Comparison::IsNull, Vec::new()),
            RowTest::IsNotNull => push(Comparison::IsNotNull, Vec::new()),
            RowTest::Range { .. } if !field.data_type.has_range() => {
                let message = format!(
                    "`min` and `max` need numbers, dates or timestamps; `{}` is {}",
                    field.name,
                    field.data_type.with_article()
                );
                self.error(at, message, "write a value or an array of values");
            }
            RowTest::Range { min, max } => {
                let bounds = [(min, Comparison::AtLeast), (max, Comparison::AtMost)];
                for (bound, comparison) in bounds {
                    if let Some(bound) = bound {
                        push(
                            comparison,
                            self.compile_operands(&field, std::slice::from_ref(bound), bind_bound),
                        );
                    }
                }
            }
        }
    }

    fn compile_operands(
        &mut self,
        field: &Field,
        operands: &[Located<Operand>],
        bind: Bind,
    ) -> Vec<RuleOperand> {
        let mut all = Vec::new();
        for operand in operands {
            all.extend(self.compile_operand(field, operand, bind));
        }
        all
    }

    fn compile_operand(
        &mut self,
        field: &Field,
        operand: &Located<Operand>,
        bind: Bind,
    ) -> Option<RuleOperand> {
        let literal = match &operand.value {
            Operand::Claim(pointer) => return Some(RuleOperand::Claim(pointer.clone())),
            Operand::Literal(literal) => literal,
        };
        let json = match literal {
            Literal::Text(text) => Json::string(text),
            Literal::Integer(n) => Json::from_written_bytes(n.to_string().into_bytes()),
            Literal::Number(digits) => Json::parse(digits).ok()?,
            Literal::Boolean(value) => Json::from_written_bytes(value.to_string().into_bytes()),
        };
        if let Err(error) = bind(field, &field.name, json.to_doc().root()) {
            let help = format!("its type is {}", field.data_type.as_str());
            self.error(&operand.location, error.message.clone(), help);
            return None;
        }
        Some(RuleOperand::Value(json))
    }

    fn compile_assignment(
        &mut self,
        collection: &mut Collection,
        assignment: &Assignment,
    ) -> Option<RuleValue> {
        let name = &assignment.field;
        let (column, field) = self.rule_column(collection, name)?;
        let facts = self.known.iter().find(|one| one.name == collection.source)?.facts;
        let table = facts.tables.iter().find(|table| table.name == collection.shape.table)?;
        let source_index = collection.shape.columns[column].source_index;
        if let Some(reason) = table.columns.get(source_index).and_then(|one| one.read_only_reason.as_ref()) {
            self.error(&name.location, format!("`{}` cannot be set: {reason}", field.name), "remove it");
            return None;
        }
        if collection.write_policy.is_none() {
            let message = format!("`set` has no effect: the role does not write `{}`", collection.name);
            self.warning(&name.location, message, "remove it, or grant `create` or `update`");
        }
        let operand = self.compile_operand(&field, &assignment.value, bind::bind_stored)?;
        Some(RuleValue { column, field, operand })
    }

    /// A row that the role creates must be one of its own rows.
    fn check_create(&mut self, role: &manifest::Role, collection: &Collection, grant: &Grant<'_>) {
        let Some([conditions]) = grant.rows.filter(|_| grant.operations.contains(&Operation::Create)) else {
            return;
        };
        for condition in conditions.iter().filter(|one| matches!(one.test, RowTest::OneOf(_))) {
            let name = &condition.field.value;
            let is_it = |field: &Field| field.name == *name || field.column == *name;
            let is_visible = collection.fields.iter().any(is_it);
            let is_set = grant.set.iter().any(|one| one.field.value == *name);
            if !is_visible && !is_set {
                let message = format!(
                    "the role `{}` cannot create a row of `{}`: it does not see `{name}`, which `where` needs",
                    role.name.value, collection.name
                );
                let help = "let the server set it: `set = { … }` with the same value";
                self.warning(&condition.field.location, message, help);
            }
        }
    }

    /// Warns about roles that have nothing, and about what no role has.
    fn report_unused(&mut self, roles: &[Role]) {
        for declared in &self.manifest.roles {
            let at = &declared.name.location;
            let name = &declared.name.value;
            let is_included =
                self.manifest.roles.iter().any(|one| one.includes.iter().any(|two| two.value == *name));
            if declared.when.is_none() && !is_included {
                let message =
                    format!("nobody has the role `{name}`: it has no `when`, and no role includes it");
                self.warning(at, message, "write `when = …`, or remove the role");
            }
            let Some(role) = roles.iter().find(|role| role.name == *name) else { continue };
            let items = &role.items;
            let has_items =
                [&items.tools, &items.prompts, &items.resources].iter().any(|set| !set.granted.is_empty());
            if role.contract.tools.is_empty() && !has_items {
                let message = format!("nothing is granted to the role `{name}`");
                self.warning(at, message, "add `[collections.NAME.access.ROLE]`, or remove the role");
            }
        }
        if roles.len() < self.manifest.roles.len() {
            return;
        }
        let reachable = |role: &&Role| role.when.is_some();
        for collection in &self.whole.collections {
            let has =
                |contract: &Contract| contract.collections.iter().any(|one| one.name == collection.name);
            let declared = self.manifest.collections.iter().find(|one| one.name.value == collection.name);
            if let (false, Some(declared)) =
                (roles.iter().filter(reachable).any(|role| has(&role.contract)), declared)
            {
                let message = format!("no role can read `{}`", collection.name);
                let help = format!("add `[collections.{}.access.ROLE]`", collection.name);
                self.warning(&declared.name.location, message, &help);
            }
        }
        for tool in &self.manifest.tools {
            let is_statement =
                matches!(tool.body, ToolBody::Statement(_) | ToolBody::Request(_)) && !tool.hidden;
            let has = |role: &Role| role.contract.tools.iter().any(|one| one.name == tool.name.value);
            if is_statement && !roles.iter().any(has) {
                let message = format!("no role can call `{}`", tool.name.value);
                let help = format!("add `[tools.{}.access]` with `roles = [\"…\"]`", tool.name.value);
                self.warning(&tool.name.location, message, &help);
            }
        }
    }
}

/// How a value of the manifest becomes one of a column.
type Bind =
    for<'n> fn(&Field, &str, json::Node<'n>) -> Result<bind::BoundValue<'n>, Box<spile_core::ToolError>>;

fn bind_bound<'n>(
    field: &Field,
    name: &str,
    node: json::Node<'n>,
) -> Result<bind::BoundValue<'n>, Box<spile_core::ToolError>> {
    bind::bind_bound(field, name, node, f64::ceil)
}

fn is_two_sided(test: &RowTest) -> bool {
    matches!(test, RowTest::Range { min: Some(_), max: Some(_) })
}

fn visible_fields(collection: &Collection, grant: &Grant<'_>) -> Vec<Field> {
    let all = collection.fields.iter().enumerate();
    all.filter(|(at, _)| !grant.hidden.contains(at)).map(|(_, field)| field.clone()).collect()
}

fn hidden_field(column: &str, at: &FileLocation) -> manifest::Field {
    manifest::Field {
        column: Located::new(column.to_owned(), at.clone()),
        data_type: None,
        format: None,
        description: None,
        allowed: Vec::new(),
        hidden: true,
        sensitive: false,
        show_values: None,
        name: None,
        null_texts: None,
        formats: None,
        fill_down: false,
        path: None,
        read_only: Default::default(),
        required: Default::default(),
    }
}

fn without_roles(manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.roles.clear();
    manifest.collections.iter_mut().for_each(|one| one.access.clear());
    manifest
}
