//! Links between collections: those of the manifest, then those that foreign keys make, in both directions.

use super::collection::{ToolFields, has_operation};
use super::{Compiler, IntrospectedSource, suggest};
use crate::contract::{Cardinality, Collection, Link};
use crate::diagnostic::{Diagnostic, Located};
use crate::humanize::pluralize;
use crate::manifest::{self, DeclaredLink, LINK_ROWS_MAX_DEFAULT, Operation};
use crate::names;
use crate::source::{Sort, are_linkable};

/// Foreign keys give a collection no more links than this: their names cost every conversation tokens.
const OFFERED_MAX: usize = 12;

/// A compiled collection, as its author declared it.
pub(super) struct CollectionEntry<'m> {
    pub(super) declared: &'m manifest::Collection,
    pub(super) tool_fields: ToolFields,
}

/// A foreign key between two collections, by index. Fields are pairs of one of each.
struct Reference {
    from: usize,
    to: usize,
    fields: Vec<(usize, usize)>,
}

/// A link that a foreign key makes, before it has a name.
struct OfferedLink {
    from: usize,
    to: usize,
    fields: Vec<(usize, usize)>,
    /// The best name, and what is added to it if a field has that name.
    name: String,
    longer_name: String,
}

impl<'m> Compiler<'m> {
    /// Sets the links of all collections.
    pub(super) fn compile_links(
        &mut self,
        known: &[IntrospectedSource<'_>],
        entries: &[CollectionEntry<'m>],
        collections: &mut [Collection],
    ) {
        let references = self.find_references(known, collections);
        let mut links: Vec<Vec<Link>> = vec![Vec::new(); collections.len()];
        for (index, entry) in entries.iter().enumerate() {
            for declared in entry.declared.related.iter().filter(|link| !link.hidden) {
                let link = self.declared_link(declared, index, entries, collections, &references);
                links[index].extend(link);
            }
        }
        let mut hidden: Vec<(usize, &Located<String>, bool)> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let removed = entry.declared.related.iter().filter(|link| link.hidden);
            hidden.extend(removed.map(|link| (index, &link.name, false)));
        }
        let mut dropped = vec![0_u64; collections.len()];
        for offered in offered_links(&references, collections) {
            let OfferedLink { from, to, .. } = offered;
            let is_declared =
                links[from].iter().any(|link| link.target == to && link.fields == offered.fields);
            if is_declared || !self.has_list_tool(entries[to].declared) {
                continue;
            }
            let name = free_name(&offered, &collections[from], &links[from]);
            if let Some((_, _, is_found)) =
                hidden.iter_mut().find(|(index, hidden, _)| *index == from && hidden.value == name)
            {
                *is_found = true;
                continue;
            }
            if links[from].len() >= OFFERED_MAX {
                dropped[from] += 1;
                continue;
            }
            let cardinality = match is_key(&collections[to], &offered.fields) {
                true => Cardinality::ToOne,
                false => Cardinality::ToMany { sort: Vec::new(), rows_max: LINK_ROWS_MAX_DEFAULT as usize },
            };
            let filters = entries[to].tool_fields.filters.clone();
            links[from].push(Link { name, target: to, fields: offered.fields, cardinality, filters });
        }
        for (index, name, is_found) in hidden {
            if !is_found {
                // Not an error: the other table may be what cannot be served now.
                let message = format!("`hidden` has no effect: no foreign key makes a link `{}`", name.value);
                let offered = links[index].iter().map(|link| link.name.as_str());
                self.warning(&name.location, message, &suggest(&name.value, "link", offered));
            }
        }
        for (index, dropped) in dropped.into_iter().enumerate().filter(|(_, dropped)| *dropped > 0) {
            let declared = entries[index].declared;
            let message = format!(
                "`{}` has {} too many from foreign keys",
                declared.name.value,
                pluralize(dropped, "link")
            );
            let help = format!(
                "{OFFERED_MAX} are offered; to choose, declare the ones you want: `[collections.{}.related.NAME]`",
                declared.name.value
            );
            self.diagnostics.push(Diagnostic::note(message).at(&declared.name.location).help(help));
        }
        for (collection, links) in collections.iter_mut().zip(links) {
            collection.links = links;
        }
    }

    /// Whether clients see a tool that lists the collection. Without one, its rows are not for them.
    fn has_list_tool(&self, declared: &manifest::Collection) -> bool {
        let mut renamed = self.renamed_tools().filter(|(_, uses)| {
            uses.value.collection == declared.name.value && uses.value.operation == Operation::List
        });
        let is_visible = match renamed.next() {
            None => true,
            Some((first, _)) => !first.hidden || renamed.any(|(tool, _)| !tool.hidden),
        };
        has_operation(declared, Operation::List) && is_visible
    }

    /// The foreign keys between collections whose fields are visible and can be compared.
    fn find_references(
        &mut self,
        known: &[IntrospectedSource<'_>],
        collections: &[Collection],
    ) -> Vec<Reference> {
        let mut references = Vec::new();
        for (from, collection) in collections.iter().enumerate() {
            let source = known.iter().find(|one| one.name == collection.source);
            let table = source.and_then(|source| {
                source.facts.tables.iter().find(|table| table.name == collection.shape.table)
            });
            for key in table.into_iter().flat_map(|table| &table.foreign_keys) {
                let is_target = |other: &Collection| {
                    other.source == collection.source && other.shape.table.eq_ignore_ascii_case(&key.table)
                };
                let Some(to) = collections.iter().position(is_target) else { continue };
                let own_field = |at: &usize| {
                    collection.shape.columns.iter().position(|column| column.source_index == *at)
                };
                let target_field = |name: &String| {
                    let columns = &collections[to].shape.columns;
                    columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
                };
                let pairs = key.columns.iter().zip(&key.target_columns);
                let fields: Option<Vec<(usize, usize)>> =
                    pairs.map(|(own, target)| Some((own_field(own)?, target_field(target)?))).collect();
                // A link by a hidden column would show what is hidden.
                let Some(fields) = fields.filter(|fields| !fields.is_empty()) else { continue };
                match mismatch(collection, &collections[to], &fields) {
                    None => references.push(Reference { from, to, fields }),
                    Some(problem) => {
                        let message =
                            format!("a foreign key of `{}` is not a link: {problem}", collection.name);
                        let help = "correct the values, or declare the type of one column with `as`";
                        self.diagnostics.push(Diagnostic::note(message).help(help));
                    }
                }
            }
        }
        references
    }

    fn declared_link(
        &mut self,
        declared: &DeclaredLink,
        from: usize,
        entries: &[CollectionEntry<'m>],
        collections: &[Collection],
        references: &[Reference],
    ) -> Option<Link> {
        let collection = &collections[from];
        let name = &declared.name;
        if collection.fields.iter().any(|field| field.name == name.value) {
            let message = format!("`{}` has a field `{}`", collection.name, name.value);
            self.error(&name.location, message, "a link needs a name that no field has".into());
            return None;
        }
        let to = match &declared.collection {
            Some(target) => self.find_collection(target, entries)?,
            None => match references.iter().filter(|one| one.from == from).collect::<Vec<_>>().as_slice() {
                [only] => only.to,
                _ => {
                    let message = format!("the link `{}` has no `collection`", name.value);
                    let help = "name the collection that it leads to: `collection = \"customers\"`";
                    self.error(&name.location, message, help.into());
                    return None;
                }
            },
        };
        let target = &collections[to];
        if !self.has_list_tool(entries[to].declared) {
            let message = format!("`{}` has no list, so its rows cannot be included", target.name);
            let at = declared.collection.as_ref().map_or(&name.location, |target| &target.location);
            self.error(at, message, "add `list` to its `operations`, or remove the link".into());
            return None;
        }
        let fields = match declared.by.is_empty() {
            true => self.fields_by_reference(declared, from, to, collections, references)?,
            false => {
                let mut fields = Vec::new();
                for (own, other) in &declared.by {
                    let own = self.find_field(own, &collection.fields);
                    let other = self.find_field(other, &target.fields);
                    fields.push((own?, other?));
                }
                fields
            }
        };
        if let Some(problem) = mismatch(collection, target, &fields) {
            let at = declared.by.first().map_or(&name.location, |(own, _)| &own.location);
            let help =
                "link columns of the same type: texts, integers or dates; `as` declares the type of a column";
            self.error(at, problem, help.into());
            return None;
        }
        let sort = self.resolve_link_sort(declared, target)?;
        let cardinality = match is_key(target, &fields) {
            true if !declared.sort.is_empty() => {
                let message = format!("`{}` leads to one row, so `sort` has no effect", name.value);
                self.warning(&declared.sort[0].location, message, "remove it");
                Cardinality::ToOne
            }
            true => Cardinality::ToOne,
            false => Cardinality::ToMany { sort, rows_max: declared.rows_max as usize },
        };
        let filters = entries[to].tool_fields.filters.clone();
        Some(Link { name: name.value.clone(), target: to, fields, cardinality, filters })
    }

    /// The collection of a link. One that does not exist is an error; one that could not be compiled was reported.
    fn find_collection(&mut self, name: &Located<String>, entries: &[CollectionEntry<'m>]) -> Option<usize> {
        let found = entries.iter().position(|entry| entry.declared.name.value == name.value);
        let declared = || self.manifest.collections.iter().map(|one| one.name.value.as_str());
        if found.is_none() && !declared().any(|known| known == name.value) {
            let help = suggest(&name.value, "collection", declared());
            self.error(&name.location, format!("unknown collection `{}`", name.value), help);
        }
        found
    }

    /// The fields of the only foreign key between two collections.
    fn fields_by_reference(
        &mut self,
        declared: &DeclaredLink,
        from: usize,
        to: usize,
        collections: &[Collection],
        references: &[Reference],
    ) -> Option<Vec<(usize, usize)>> {
        let forward = references.iter().filter(|one| (one.from, one.to) == (from, to));
        let back = references.iter().filter(|one| (one.from, one.to) == (to, from) && from != to);
        let all: Vec<Vec<(usize, usize)>> =
            forward.map(|one| one.fields.clone()).chain(back.map(|one| swapped(&one.fields))).collect();
        if let [only] = all.as_slice() {
            return Some(only.clone());
        }
        let (own, target) = (&collections[from].name, &collections[to].name);
        let which = if all.is_empty() { "is no foreign key" } else { "are several foreign keys" };
        let message = format!("there {which} between `{own}` and `{target}`");
        let column = collections[from].fields.first().map_or("id", |field| field.column.as_str());
        let help = format!("name the columns with equal values: `by = {{ {column} = \"…\" }}`");
        self.error(&declared.name.location, message, help);
        None
    }

    fn resolve_link_sort(&mut self, declared: &DeclaredLink, target: &Collection) -> Option<Vec<Sort>> {
        let mut sort = Vec::new();
        for by in &declared.sort {
            let (name, descending) = match by.value.strip_prefix('-') {
                Some(name) => (name, true),
                None => (by.value.as_str(), false),
            };
            let column =
                self.find_field(&Located::new(name.to_owned(), by.location.clone()), &target.fields)?;
            sort.push(Sort { column, descending });
        }
        Some(sort)
    }
}

/// Why rows cannot be linked by these fields.
fn mismatch(own: &Collection, target: &Collection, fields: &[(usize, usize)]) -> Option<String> {
    fields.iter().find_map(|(own_field, target_field)| {
        let (a, b) = (&own.fields[*own_field], &target.fields[*target_field]);
        (!are_linkable(a.data_type, b.data_type)).then(|| {
            format!(
                "`{}.{}` is {}, and `{}.{}` is {}",
                own.name,
                a.name,
                a.data_type.with_article(),
                target.name,
                b.name,
                b.data_type.with_article()
            )
        })
    })
}

/// Whether the fields of the target are its key.
fn is_key(target: &Collection, fields: &[(usize, usize)]) -> bool {
    let key = &target.shape.key;
    !key.is_empty()
        && key.len() == fields.len()
        && key.iter().all(|part| fields.iter().any(|(_, field)| field == part))
}

fn swapped(fields: &[(usize, usize)]) -> Vec<(usize, usize)> {
    fields.iter().map(|(own, target)| (*target, *own)).collect()
}

/// Both directions of every foreign key: first the rows that a row refers to, then those that refer to it.
fn offered_links(references: &[Reference], collections: &[Collection]) -> Vec<OfferedLink> {
    let forward = references.iter().map(|reference| {
        let target = &collections[reference.to].name;
        let name = match reference.fields.as_slice() {
            [(own, _)] => reference_name(&collections[reference.from].fields[*own].name, target),
            _ => target.clone(),
        };
        let longer_name = format!("{name}_{target}");
        OfferedLink {
            from: reference.from,
            to: reference.to,
            fields: reference.fields.clone(),
            name,
            longer_name,
        }
    });
    let back = references.iter().map(|reference| {
        let child = &collections[reference.from];
        let by: Vec<&str> =
            reference.fields.iter().map(|(own, _)| child.fields[*own].name.as_str()).collect();
        let longer_name = format!("{}_by_{}", child.name, by.join("_"));
        let same = references.iter().filter(|one| (one.from, one.to) == (reference.from, reference.to));
        let is_ambiguous = same.count() > 1 || reference.from == reference.to;
        OfferedLink {
            from: reference.to,
            to: reference.from,
            fields: swapped(&reference.fields),
            name: if is_ambiguous { longer_name.clone() } else { child.name.clone() },
            longer_name,
        }
    });
    forward.chain(back).collect()
}

/// `customer_id` refers to a `customer`.
fn reference_name(field: &str, target: &str) -> String {
    const SUFFIXES: [&str; 9] = ["_id", "_key", "_code", "_number", "_no", "_nr", "_fk", "_ref", "_uuid"];
    const PREFIXES: [&str; 2] = ["id_", "fk_"];
    let suffix = SUFFIXES.into_iter().find_map(|suffix| field.strip_suffix(suffix));
    let prefix = || PREFIXES.into_iter().find_map(|prefix| field.strip_prefix(prefix));
    // `customerid` of `customers`
    let glued = || field.strip_suffix("id").filter(|rest| rest.len() > 2 && target.starts_with(rest));
    let name = suffix.or_else(prefix).or_else(glued).filter(|name| !name.is_empty()).unwrap_or(field);
    name.to_owned()
}

/// A name that no field and no other link has.
fn free_name(offered: &OfferedLink, collection: &Collection, links: &[Link]) -> String {
    let is_free = |name: &str| {
        names::is_field_name(name)
            && collection.fields.iter().all(|field| field.name != name)
            && links.iter().all(|link| link.name != name)
    };
    let fitting = |name: &str, chars_max: usize| name.chars().take(chars_max).collect::<String>();
    let candidates = [&offered.name, &offered.longer_name];
    let candidates = candidates.map(|name| fitting(name, names::FIELD_CHARS_MAX));
    let numbered = || {
        let short = fitting(&offered.longer_name, names::FIELD_CHARS_MAX - 4);
        (2..).map(move |number| format!("{short}_{number}"))
    };
    candidates.into_iter().find(|name| is_free(name)).unwrap_or_else(|| {
        numbered().find(|name| is_free(name)).unwrap_or_else(|| offered.longer_name.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::reference_name;

    #[test]
    fn a_reference_is_named_after_its_column() {
        for (field, target, expected) in [
            ("customer_id", "customers", "customer"),
            ("support_rep_id", "employees", "support_rep"),
            ("reports_to", "employees", "reports_to"),
            ("customerid", "customers", "customer"),
            ("customerid", "people", "customerid"),
            ("paid", "payments", "paid"),
            ("id_cliente", "clientes", "cliente"),
            ("country_code", "countries", "country"),
            ("_id", "things", "_id"),
        ] {
            assert_eq!(reference_name(field, target), expected, "{field}");
        }
    }
}
