//! Writes HTML that cannot be broken by what it shows.
//!
//! Markup is `&'static str`, so it is ours; everything else is escaped. There is no way to write a foreign text as markup.

use std::fmt::{self, Write as _};

use spile_core::text::escape_unsafe;

#[derive(Default)]
pub struct HtmlWriter {
    out: String,
}

/// An attribute with a value that may come from strangers.
pub type Attribute<'a> = (&'static str, &'a str);

impl HtmlWriter {
    pub fn with_capacity(bytes: usize) -> Self {
        Self { out: String::with_capacity(bytes) }
    }

    /// Our own markup.
    pub fn markup(&mut self, html: &'static str) -> &mut Self {
        self.out.push_str(html);
        self
    }

    /// Text, escaped. Invisible and reordering characters are shown as `\u{202e}`; line breaks are kept.
    pub fn text(&mut self, text: &str) -> &mut Self {
        push_escaped(&mut self.out, text);
        self
    }

    pub fn display(&mut self, value: impl fmt::Display) -> &mut Self {
        let text = value.to_string();
        self.text(&text)
    }

    /// `<name attributes…>`
    pub fn open(&mut self, name: &'static str, attributes: &[Attribute<'_>]) -> &mut Self {
        let _ = write!(self.out, "<{name}");
        for (attribute, value) in attributes {
            let _ = write!(self.out, " {attribute}=\"");
            push_escaped(&mut self.out, value);
            self.out.push('"');
        }
        self.out.push('>');
        self
    }

    pub fn close(&mut self, name: &'static str) -> &mut Self {
        let _ = write!(self.out, "</{name}>");
        self
    }

    /// An element that contains only text.
    pub fn element(
        &mut self,
        name: &'static str,
        attributes: &[Attribute<'_>],
        text: impl fmt::Display,
    ) -> &mut Self {
        self.open(name, attributes).display(text).close(name)
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.out.into_bytes()
    }
}

fn push_escaped(out: &mut String, text: &str) {
    let text = escape_unsafe(text, |c| matches!(c, '\n' | '\t'), |out, c| out.extend(c.escape_default()));
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::HtmlWriter;

    #[test]
    fn text_and_attributes_are_escaped() {
        let mut html = HtmlWriter::default();
        html.open("a", &[("title", "\"><script>alert(1)</script>")]).text("<b>&'\u{202e}\0</b>\n").close("a");
        assert_eq!(
            String::from_utf8(html.into_bytes()).expect("text"),
            "<a title=\"&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\">\
             &lt;b&gt;&amp;&#39;\\u{202e}\\u{0}&lt;/b&gt;\n</a>"
        );
    }

    proptest! {
        #[test]
        fn no_text_becomes_markup(text in "\\PC{0,40}|[<>&'\"/=a-z \\u{0}-\\u{20}]{0,40}") {
            let mut html = HtmlWriter::default();
            html.open("p", &[("title", &text)]).text(&text).close("p");
            let out = String::from_utf8(html.into_bytes()).expect("text");
            let inner = out.strip_prefix("<p title=\"").and_then(|rest| rest.strip_suffix("</p>")).expect("a p");
            let (attribute, content) = inner.split_once("\">").expect("an end of the attribute");
            for part in [attribute, content] {
                prop_assert!(!part.contains(['<', '>', '"', '\'']), "{out}");
            }
        }
    }
}
