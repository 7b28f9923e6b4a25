//! The operations of a document, and which of them are meant.

use anyhow::bail;
use contract::nearest;
use contract::request::Method;
use serde_json::Value;

use super::document::Document;

/// One operation, before its details are looked at.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    /// The operationId, or one made from method and path.
    pub(super) id: String,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) summary: String,
    pub(super) tags: Vec<String>,
    pub(super) is_deprecated: bool,
}

impl Operation {
    pub(super) fn label(&self) -> String {
        format!("{} ({} {})", self.id, self.method.as_str(), self.path)
    }
}

/// All operations, in the order of the document.
pub(super) fn list(document: &Document) -> Vec<Operation> {
    let mut operations = Vec::new();
    let paths = document.root.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten() {
        let Ok(item) = document.resolve(item) else { continue };
        for method in Method::ALL {
            let Some(value) = item.get(method.as_str().to_ascii_lowercase()) else { continue };
            let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
            let tags = value.get("tags").and_then(Value::as_array);
            let id = match text("operationId") {
                "" => {
                    format!("{}{}", method.as_str().to_ascii_lowercase(), path.replace(['/', '{', '}'], "_"))
                }
                id => id.to_owned(),
            };
            let summary = if text("summary").is_empty() { text("description") } else { text("summary") };
            operations.push(Operation {
                id,
                method,
                path: path.clone(),
                summary: summary.lines().next().unwrap_or_default().trim().to_owned(),
                tags: tags.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
                is_deprecated: value.get("deprecated").and_then(Value::as_bool).unwrap_or(false),
            });
        }
    }
    operations
}

/// The operations that match a pattern, each once. A pattern that matches none is an error.
pub(super) fn select<'o>(
    operations: &'o [Operation],
    patterns: &[String],
) -> anyhow::Result<Vec<&'o Operation>> {
    let mut is_chosen = vec![false; operations.len()];
    for pattern in patterns {
        let mut found = false;
        for (operation, is_chosen) in operations.iter().zip(&mut is_chosen) {
            if is_match(operation, pattern) {
                (*is_chosen, found) = (true, true);
            }
        }
        if !found {
            let near = nearest(pattern, operations.iter().map(|one| one.id.as_str()));
            let help = near
                .map_or_else(|| "; --list shows all".to_owned(), |near| format!("; did you mean `{near}`?"));
            bail!("no operation matches `{pattern}`{help}");
        }
    }
    Ok(operations.iter().zip(is_chosen).filter(|(_, is_chosen)| *is_chosen).map(|(one, _)| one).collect())
}

fn is_match(operation: &Operation, pattern: &str) -> bool {
    if let Some(tag) = pattern.strip_prefix("tag:") {
        return operation.tags.iter().any(|one| matches_glob(tag, one));
    }
    let place = format!("{} {}", operation.method.as_str(), operation.path);
    matches_glob(pattern, &operation.id)
        || matches_glob(pattern, &place)
        || matches_glob(pattern, &operation.path)
}

/// `*` stands for any characters.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    if !pattern.contains('*') {
        return rest.is_empty();
    }
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches_glob;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, expected) in [
            ("getOrder", "getOrder", true),
            ("getOrder", "getOrders", false),
            ("get*", "getOrders", true),
            ("*Orders", "listOrders", true),
            ("*Order*", "listOrders", true),
            ("GET /a/*/b", "GET /a/{id}/b", true),
            ("a*b*c", "abc", true),
            ("a*bc", "abc", true),
            ("a*bcd", "abc", false),
            ("*", "", true),
        ] {
            assert_eq!(matches_glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
