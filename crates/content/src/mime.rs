//! MIME types: by the name of a file, corrected by what its first bytes say.
//!
//! A known signature wins over a name that says something else, so that a PNG named `.txt` is a PNG. Containers such as
//! ZIP are an exception: `.docx` says more than the signature. Whether the content is text is decided when it is read.

/// By extension, in lower case.
const BY_EXTENSION: &[(&str, &str)] = &[
    ("md", "text/markdown"),
    ("markdown", "text/markdown"),
    ("txt", "text/plain"),
    ("text", "text/plain"),
    ("log", "text/plain"),
    ("csv", "text/csv"),
    ("tsv", "text/tab-separated-values"),
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("js", "text/javascript"),
    ("mjs", "text/javascript"),
    ("ts", "text/typescript"),
    ("py", "text/x-python"),
    ("rs", "text/x-rust"),
    ("go", "text/x-go"),
    ("java", "text/x-java"),
    ("c", "text/x-c"),
    ("h", "text/x-c"),
    ("cpp", "text/x-c++"),
    ("rb", "text/x-ruby"),
    ("sh", "text/x-shellscript"),
    ("sql", "application/sql"),
    ("json", "application/json"),
    ("jsonl", "application/x-ndjson"),
    ("ndjson", "application/x-ndjson"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("toml", "application/toml"),
    ("ics", "text/calendar"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("ico", "image/x-icon"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("wav", "audio/wav"),
    ("mp3", "audio/mpeg"),
    ("ogg", "audio/ogg"),
    ("oga", "audio/ogg"),
    ("flac", "audio/flac"),
    ("m4a", "audio/mp4"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("tar", "application/x-tar"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("epub", "application/epub+zip"),
    ("wasm", "application/wasm"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("sqlite", "application/vnd.sqlite3"),
    ("db", "application/vnd.sqlite3"),
];

/// The first bytes, at an offset, and what they say.
const BY_SIGNATURE: &[(usize, &[u8], &str)] = &[
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"SQLite format 3\0", "application/vnd.sqlite3"),
    (0, b"\0asm", "application/wasm"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
];

/// Signatures of containers: a known name says more.
const CONTAINERS: &[(usize, &[u8], &str)] =
    &[(0, b"PK\x03\x04", "application/zip"), (0, b"\x1f\x8b", "application/gzip")];

/// How much of a file [`mime_type`] looks at.
pub(crate) const SNIFF_BYTES: usize = 512;

/// The MIME type of a file with this name that starts with these bytes.
pub(crate) fn mime_type(name: &str, head: &[u8]) -> &'static str {
    let head = &head[..head.len().min(SNIFF_BYTES)];
    let matches = |(offset, bytes, _): &&(usize, &[u8], &str)| {
        let is_riff = *offset != 8 || head.starts_with(b"RIFF");
        head.get(*offset..).is_some_and(|rest| rest.starts_with(bytes)) && is_riff
    };
    if let Some((_, _, found)) = BY_SIGNATURE.iter().find(matches) {
        // Both are ISO media files, and the name knows which.
        let by_name = by_extension(name);
        return match (*found, by_name) {
            ("video/mp4", Some("audio/mp4")) => "audio/mp4",
            (found, _) => found,
        };
    }
    if let Some(by_name) = by_extension(name) {
        return by_name;
    }
    if let Some((_, _, found)) = CONTAINERS.iter().find(matches) {
        return found;
    }
    if is_text_head(head) { "text/plain" } else { "application/octet-stream" }
}

fn by_extension(name: &str) -> Option<&'static str> {
    let (stem, extension) = name.rsplit_once('.')?;
    if stem.is_empty() {
        return None;
    }
    let extension = extension.to_ascii_lowercase();
    BY_EXTENSION.iter().find(|(known, _)| *known == extension).map(|(_, mime_type)| *mime_type)
}

/// UTF-8 without control characters, except that a character may be cut at the end.
fn is_text_head(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}'))
}

/// Whether contents of this type are sent as text if they are UTF-8. Anything else is sent as base64.
pub(crate) fn is_text_type(mime_type: &str) -> bool {
    let essence = mime_type.split(';').next().unwrap_or_default().trim();
    let is_other_text = matches!(
        essence,
        "application/json"
            | "application/sql"
            | "application/x-ndjson"
            | "application/xml"
            | "application/yaml"
            | "application/toml"
            | "application/javascript"
    );
    essence.starts_with("text/") || essence.ends_with("+xml") || essence.ends_with("+json") || is_other_text
}

#[cfg(test)]
mod tests {
    use super::{BY_EXTENSION, is_text_type, mime_type};

    #[test]
    fn the_name_decides_unless_the_bytes_know_better() {
        const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
        let cases: &[(&str, &[u8], &str)] = &[
            ("guide.md", b"# Guide", "text/markdown"),
            ("GUIDE.MD", b"# Guide", "text/markdown"),
            ("a.b.csv", b"x,y", "text/csv"),
            ("logo.png", PNG, "image/png"),
            ("logo.txt", PNG, "image/png"),
            ("logo", PNG, "image/png"),
            ("logo.png", b"not an image", "image/png"),
            (
                "report.docx",
                b"PK\x03\x04rest",
                "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            ),
            ("archive", b"PK\x03\x04rest", "application/zip"),
            ("archive.unknown", b"\x1f\x8b\x08", "application/gzip"),
            ("sound.wav", b"RIFF\x10\0\0\0WAVEfmt ", "audio/wav"),
            ("picture", b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
            ("eight", b"12345678WAVE", "text/plain"),
            ("film", b"\0\0\0\x20ftypisom", "video/mp4"),
            ("song.m4a", b"\0\0\0\x20ftypmp42", "audio/mp4"),
            ("README", b"hello", "text/plain"),
            ("README", b"", "text/plain"),
            ("README", "größe".as_bytes(), "text/plain"),
            ("cut", b"gr\xc3", "text/plain"),
            ("latin", b"gr\xf6\xdfe", "application/octet-stream"),
            ("binary", b"a\0b", "application/octet-stream"),
            ("data.unknown", b"\x01\x02", "application/octet-stream"),
            (".md", b"hidden", "text/plain"),
            ("trailing.", b"x", "text/plain"),
        ];
        for (name, head, expected) in cases {
            assert_eq!(mime_type(name, head), *expected, "{name} {head:?}");
        }
    }

    #[test]
    fn a_character_that_is_cut_at_the_end_of_the_head_is_still_text() {
        let text = "é".repeat(400);
        assert_eq!(mime_type("x", &text.as_bytes()[..511]), "text/plain");
    }

    #[test]
    fn every_extension_is_lower_case_and_known_once() {
        for (index, (extension, mime)) in BY_EXTENSION.iter().enumerate() {
            assert_eq!(*extension, extension.to_ascii_lowercase());
            assert!(!BY_EXTENSION[..index].iter().any(|(other, _)| other == extension), "{extension}");
            assert_eq!(mime.split('/').count(), 2, "{mime}");
        }
    }

    #[test]
    fn text_types_are_known() {
        for mime in
            ["text/plain", "text/html;profile=mcp-app", "application/json", "image/svg+xml", "a/b+json"]
        {
            assert!(is_text_type(mime), "{mime}");
        }
        for mime in ["image/png", "application/octet-stream", "application/pdf", "", "textual/x"] {
            assert!(!is_text_type(mime), "{mime}");
        }
    }
}
