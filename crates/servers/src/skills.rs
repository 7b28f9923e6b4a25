//! Skills of servers (`io.modelcontextprotocol/skills`): listed without reading any file, and read only when one is used.
//!
//! The list says what every file is: its size, its digest, and for `SKILL.md` its front matter. What a user approved is the
//! list, so a file that differs from it is not used.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json::{Json, Node};
use ring::digest::{SHA256, digest};
use spile_core::text::hex;
use upstream::Connection;
use wire::ListKind;
use wire::client::{ClientCall, ClientError};
use wire::method::Method;

/// A skill as its server lists it.
#[derive(Debug, Clone)]
pub struct ListedSkill {
    /// The address of its `SKILL.md`.
    pub uri: String,
    pub frontmatter: Json,
    pub files: Vec<ListedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    pub uri: String,
    /// `sha256:` and hexadecimal digits.
    pub digest: String,
    pub size: u64,
}

/// Why a skill cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    #[error("{0}")]
    Client(ClientError),
    #[error("the server lists a skill without {0}")]
    InvalidEntry(&'static str),
    #[error("the skill has no file `{0}`")]
    UnlistedFile(String),
    #[error("`{uri}` has no content")]
    NoContent { uri: String },
    #[error("`{uri}` has {actual} bytes, but the server listed {listed}; it is not used")]
    OtherSize { uri: String, listed: u64, actual: u64 },
    #[error("`{uri}` is not the file that the server listed: its digest differs; it is not used")]
    OtherDigest { uri: String },
    #[error("the front matter of `{uri}` differs from what the server listed; the skill is not used")]
    OtherFrontMatter { uri: String },
}

/// The skills of a server. No file is read.
pub async fn list(connection: &Connection) -> Result<Vec<ListedSkill>, SkillError> {
    let listed = connection.list(ListKind::Skills, None).await.map_err(SkillError::Client)?;
    listed.iter().map(ListedSkill::parse).collect()
}

impl ListedSkill {
    fn parse(entry: &Json) -> Result<Self, SkillError> {
        let doc = entry.to_doc();
        let root = doc.root();
        let text = |node: Node<'_>, key: &str| Some(node.get(key)?.str()?.into_owned());
        let frontmatter = root.get("frontmatter").filter(Node::is_object);
        let files = root.get("resources").into_iter().flat_map(|files| files.elements());
        let files = files.map(|file| {
            Some(ListedFile {
                uri: text(file, "uri")?,
                digest: text(file, "digest")?,
                size: file.get("size")?.u64()?,
            })
        });
        Ok(Self {
            uri: text(root, "uri").ok_or(SkillError::InvalidEntry("`uri`"))?,
            frontmatter: frontmatter.map(Json::from).ok_or(SkillError::InvalidEntry("`frontmatter`"))?,
            files: files
                .collect::<Option<_>>()
                .ok_or(SkillError::InvalidEntry("`uri`, `digest` and `size` of a file"))?,
        })
    }

    /// A member of the front matter that is a string, such as `name` or `description`.
    pub fn text(&self, key: &str) -> Option<String> {
        Some(self.frontmatter.to_doc().root().get(key)?.str()?.into_owned())
    }

    /// Reads its `SKILL.md`, if it is the one that was listed.
    pub async fn load(&self, connection: &Connection) -> Result<String, SkillError> {
        let bytes = self.read(connection, &self.uri).await?;
        let other = || SkillError::OtherFrontMatter { uri: self.uri.clone() };
        let text = String::from_utf8(bytes).map_err(|_| other())?;
        let found = content::front_matter_json(&text).ok_or_else(other)?;
        if canonical(&found) != canonical(&self.frontmatter) {
            return Err(other());
        }
        Ok(text)
    }

    /// Reads one of its files, if it is the one that was listed.
    pub async fn read(&self, connection: &Connection, uri: &str) -> Result<Vec<u8>, SkillError> {
        let file = self.files.iter().find(|file| file.uri == uri);
        let file = file.ok_or_else(|| SkillError::UnlistedFile(uri.to_owned()))?;
        let params = Json::object(|params| {
            params.str("uri", uri);
        });
        let answer = connection.call(ClientCall::new(Method::ResourcesRead, params), None).await;
        let answer = answer.map_err(SkillError::Client)?;
        let bytes = content_of(&answer.to_doc().root(), uri);
        file.verify(bytes.ok_or_else(|| SkillError::NoContent { uri: uri.to_owned() })?)
    }
}

impl ListedFile {
    fn verify(&self, bytes: Vec<u8>) -> Result<Vec<u8>, SkillError> {
        let actual = bytes.len() as u64;
        if actual != self.size {
            return Err(SkillError::OtherSize { uri: self.uri.clone(), listed: self.size, actual });
        }
        if format!("sha256:{}", hex(digest(&SHA256, &bytes).as_ref())) != self.digest {
            return Err(SkillError::OtherDigest { uri: self.uri.clone() });
        }
        Ok(bytes)
    }
}

fn content_of(result: &Node<'_>, uri: &str) -> Option<Vec<u8>> {
    let content = result
        .get("contents")?
        .elements()
        .find(|content| content.get("uri").is_some_and(|found| found.eq_str(uri)))?;
    match content.get("text") {
        Some(text) => Some(text.str()?.into_owned().into_bytes()),
        None => STANDARD.decode(&*content.get("blob")?.str()?).ok(),
    }
}

fn canonical(json: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    json.to_doc().root().write_canonical(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use json::Json;

    use super::{ListedFile, ListedSkill, SkillError, content_of};

    #[test]
    fn a_file_must_be_the_one_that_was_listed() {
        let digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let file = |digest: &str, size| ListedFile { uri: "skill://a".into(), digest: digest.into(), size };
        assert_eq!(file(digest, 3).verify(b"abc".to_vec()).expect("the same"), b"abc");
        for (file, text, expected) in [
            (file(digest, 3), "abcd", "`skill://a` has 4 bytes, but the server listed 3; it is not used"),
            (
                file(digest, 3),
                "abd",
                "`skill://a` is not the file that the server listed: its digest differs; it is not used",
            ),
            (
                file("md5:900150983cd24fb0", 3),
                "abc",
                "`skill://a` is not the file that the server listed: its digest differs; it is not used",
            ),
        ] {
            let error = file.verify(text.as_bytes().to_vec()).expect_err("refused").to_string();
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn entries_that_cannot_be_verified_are_refused() {
        for (entry, expected) in [
            (r#"{"frontmatter":{}}"#, "the server lists a skill without `uri`"),
            (r#"{"uri":"skill://a"}"#, "the server lists a skill without `frontmatter`"),
            (
                r#"{"uri":"skill://a","frontmatter":{},"resources":[{"uri":"skill://a","size":1}]}"#,
                "the server lists a skill without `uri`, `digest` and `size` of a file",
            ),
            (
                r#"{"uri":"skill://a","frontmatter":{},"resources":[{"uri":"a","digest":"x","size":-1}]}"#,
                "the server lists a skill without `uri`, `digest` and `size` of a file",
            ),
        ] {
            let error = ListedSkill::parse(&Json::parse(entry).expect("JSON")).expect_err("refused");
            assert!(matches!(error, SkillError::InvalidEntry(_)));
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn content_is_text_or_base64_of_the_file_that_was_asked_for() {
        for (result, expected) in [
            (r#"{"contents":[{"uri":"a","text":"x"}]}"#, Some("x")),
            (r#"{"contents":[{"uri":"b","text":"y"},{"uri":"a","blob":"eA=="}]}"#, Some("x")),
            (r#"{"contents":[{"uri":"b","text":"y"}]}"#, None),
            (r#"{"contents":[{"uri":"a","blob":"?"}]}"#, None),
            (r#"{"contents":[{"uri":"a"}]}"#, None),
            ("{}", None),
        ] {
            let json = Json::parse(result).expect("JSON");
            let found = content_of(&json.to_doc().root(), "a");
            assert_eq!(found, expected.map(|text| text.as_bytes().to_vec()), "{result}");
        }
    }
}
