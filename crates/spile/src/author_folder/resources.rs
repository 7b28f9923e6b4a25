//! `[resources.NAME]` of the manifest, as the content folder and the code need it.

use content::{Annotations, CompletionSource, Loaded, ResourceSettings, TemplateSettings, TemplateSource};
use contract::Contract;
use contract::diagnostic::{Diagnostic, Located};
use contract::manifest::{Resource, ResourceCompletion, ResourceOrigin};

/// The files of code, each once.
pub(super) fn script_files(resources: &[Resource]) -> Vec<String> {
    let scripts = resources.iter().filter_map(|resource| match &resource.origin {
        ResourceOrigin::Script(file) => Some(file.value.clone()),
        ResourceOrigin::File(_) | ResourceOrigin::Collection(_) => None,
    });
    let mut files: Vec<String> = scripts.collect();
    files.sort();
    files.dedup();
    files
}

/// Code below `resources/` is not a resource itself: its paths there.
pub(super) fn code_in_folder(resources: &[Resource], folder: &str) -> Vec<String> {
    let files = script_files(resources).into_iter();
    files.filter_map(|file| Some(file.strip_prefix(folder)?.strip_prefix('/')?.to_owned())).collect()
}

fn annotations(resource: &Resource) -> Annotations {
    Annotations {
        audience: resource.audience.clone(),
        priority: resource.priority.clone(),
        last_modified: None,
    }
}

pub(super) fn file_settings(resources: &[Resource]) -> Vec<ResourceSettings> {
    let settings = resources.iter().filter_map(|resource| match &resource.origin {
        ResourceOrigin::File(path) => Some(ResourceSettings {
            path: path.value.clone(),
            uri: resource.uri.as_ref().map(|uri| uri.value.clone()),
            name: Some(resource.name.value.clone()),
            title: resource.title.clone(),
            description: resource.description.clone(),
            mime_type: resource.mime_type.clone(),
            annotations: annotations(resource),
            icons: None,
            listed: resource.listed,
        }),
        ResourceOrigin::Collection(_) | ResourceOrigin::Script(_) => None,
    });
    settings.collect()
}

pub(super) fn template_settings(resources: &[Resource]) -> Vec<TemplateSettings> {
    let settings = resources.iter().filter_map(|resource| {
        let (source, mime_type) = match &resource.origin {
            ResourceOrigin::File(_) => return None,
            ResourceOrigin::Collection(name) => (
                TemplateSource::Collection { collection: name.value.clone() },
                Some(resource.mime_type.clone().unwrap_or_else(|| "application/json".into())),
            ),
            ResourceOrigin::Script(file) => {
                (TemplateSource::Script { file: file.value.clone() }, resource.mime_type.clone())
            }
        };
        let completions = resource.completions.iter().map(|(variable, completion)| {
            let source = match completion.clone() {
                ResourceCompletion::Values(values) => CompletionSource::Values(values),
                ResourceCompletion::Collection { collection, field } => {
                    CompletionSource::Collection { collection, field }
                }
                ResourceCompletion::Files { folder } => CompletionSource::Files { folder },
            };
            (variable.value.clone(), source)
        });
        Some(TemplateSettings {
            uri_template: resource.uri.as_ref().map(|uri| uri.value.clone()).unwrap_or_default(),
            name: resource.name.value.clone(),
            title: resource.title.clone(),
            description: resource.description.clone(),
            mime_type,
            annotations: annotations(resource),
            icons: None,
            source,
            listed: resource.listed.unwrap_or(true),
            completions: completions.collect(),
            location: Some(
                resource
                    .uri
                    .as_ref()
                    .map_or_else(|| resource.name.location.clone(), |uri| uri.location.clone()),
            ),
        })
    });
    settings.collect()
}

/// Collections and fields that resources and completions name must exist, and a URI must have the key of its collection.
pub(super) fn check_references(
    resources: &[Resource],
    content: &Loaded,
    contract: &Contract,
) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for resource in resources {
        let ResourceOrigin::Collection(name) = &resource.origin else { continue };
        match contract.collections.iter().find(|one| one.name == name.value) {
            None => diagnostics.push(unknown_collection(&name.value, contract).at(&name.location)),
            Some(collection) => {
                diagnostics.extend(missing_keys(resource.uri.as_ref(), collection));
            }
        }
    }
    for source in content.completion_sources() {
        let CompletionSource::Collection { collection, field } = source else { continue };
        let Some(found) = contract.collections.iter().find(|one| one.name == *collection) else {
            diagnostics.push(unknown_collection(collection, contract));
            continue;
        };
        match found.fields.iter().find(|one| one.name == *field) {
            None => {
                let names = found.fields.iter().map(|one| one.name.as_str());
                let help = match contract::nearest(field, names.clone()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("its fields: {}", names.collect::<Vec<_>>().join(", ")),
                };
                let message = format!("completion: the collection `{collection}` has no field `{field}`");
                diagnostics.push(Diagnostic::error(message).help(help));
            }
            Some(found) if found.sensitive => {
                let message = format!("completion: `{field}` of `{collection}` is sensitive");
                diagnostics.push(Diagnostic::error(message).help("complete from another field"));
            }
            Some(_) => {}
        }
    }
    diagnostics
}

fn unknown_collection(name: &str, contract: &Contract) -> Diagnostic {
    let names = contract.collections.iter().map(|one| one.name.as_str());
    let help = match contract::nearest(name, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the collections: {}", names.collect::<Vec<_>>().join(", ")),
    };
    Diagnostic::error(format!("there is no collection `{name}`")).help(help)
}

fn missing_keys(uri: Option<&Located<String>>, collection: &contract::Collection) -> Option<Diagnostic> {
    let uri = uri?;
    let keys = super::collections::key_names(collection);
    if keys.is_empty() {
        let message = format!("`{}` has no key, so that no URI can name one record", collection.name);
        return Some(Diagnostic::error(message).at(&uri.location).help("give the collection a `key`"));
    }
    let missing: Vec<&str> = keys.into_iter().filter(|key| !mentions_variable(&uri.value, key)).collect();
    (!missing.is_empty()).then(|| {
        let message = format!("the URI has no variable for the key `{}`", missing.join("`, `"));
        let help = format!("write `{{{}}}` where its value belongs", missing[0]);
        Diagnostic::error(message).at(&uri.location).help(help)
    })
}

fn mentions_variable(uri: &str, name: &str) -> bool {
    let expressions = uri.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    expressions
        .flat_map(|expression| expression.trim_start_matches(['+', '?', '&']).split(','))
        .any(|v| v == name)
}
