//! Reads a value of any type as the template of a JSON body.

use toml::Spanned;
use toml::de::DeValue;

use super::{COLUMN_CHARS_MAX, Entry, ManifestReader, TextLength, TomlTable, ValueType};
use crate::diagnostic::Located;
use crate::request::{BodyTemplate, TextPattern};

impl ManifestReader<'_> {
    /// A value of any type, with `{name}` for arguments, and where it is.
    pub(in crate::manifest) fn json_template(
        &mut self,
        table: &mut TomlTable<'_>,
        name: &str,
    ) -> Option<Located<BodyTemplate>> {
        let (key, entry) = table.take(name);
        let ValueType::JsonTemplate = key.value_type else { unreachable!("`{name}` is a template") };
        let entry = entry?;
        let template = self.template_value(&entry, entry.value)?;
        Some(Located::new(template, entry.value_location(self)))
    }

    fn template_value(&mut self, entry: &Entry<'_>, value: &Spanned<DeValue<'_>>) -> Option<BodyTemplate> {
        let inner = Entry { value, ..entry.clone() };
        Some(match value.get_ref() {
            DeValue::String(_) => {
                let text = self.entry_text(&inner, TextLength::Any(COLUMN_CHARS_MAX))?;
                match TextPattern::parse(&text.value) {
                    Ok(pattern) => match (pattern.single_value(), pattern.literal()) {
                        (Some((name, _)), _) => BodyTemplate::Value(name.to_owned()),
                        (None, Some(literal)) => {
                            BodyTemplate::Literal(json::Json::string(literal).as_str().to_owned())
                        }
                        (None, None) => BodyTemplate::Text(pattern),
                    },
                    Err(error) => {
                        let (message, help) = error.explain();
                        self.error(&text.location, message, help);
                        return None;
                    }
                }
            }
            DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
                Ok(value) => BodyTemplate::Literal(value.to_string()),
                Err(_) => {
                    let at = inner.value_location(self);
                    self.too_large(&at);
                    return None;
                }
            },
            DeValue::Float(digits) => {
                let digits = digits.as_str().replace('_', "");
                let digits = digits.trim_start_matches('+').to_owned();
                if json::Json::parse(&digits).is_err() {
                    self.type_error(&inner, "a value that JSON has");
                    return None;
                }
                BodyTemplate::Literal(digits)
            }
            DeValue::Boolean(value) => BodyTemplate::Literal(value.to_string()),
            DeValue::Datetime(when) => {
                let help = format!("write it in quotes: `\"{when}\"`");
                self.type_error_with_help(&inner, "a value that JSON has", Some(help));
                return None;
            }
            DeValue::Array(items) => {
                let items: Option<Vec<BodyTemplate>> =
                    items.iter().map(|item| self.template_value(entry, item)).collect();
                BodyTemplate::Array(items?)
            }
            DeValue::Table(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_key(|(name, _)| name.span().start);
                let members: Option<Vec<(String, BodyTemplate)>> = members
                    .into_iter()
                    .map(|(name, value)| {
                        Some((name.get_ref().to_string(), self.template_value(entry, value)?))
                    })
                    .collect();
                BodyTemplate::Object(members?)
            }
        })
    }
}
