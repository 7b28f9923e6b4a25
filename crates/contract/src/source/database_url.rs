//! The URL of a database. It may hold a password, which nothing shows.

use std::fmt;

/// The engines of databases behind a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatabaseEngine {
    Postgres,
    MySql,
}

impl DatabaseEngine {
    /// The engine of a scheme, as people write it.
    pub fn from_scheme(scheme: &str) -> Option<Self> {
        match scheme.to_ascii_lowercase().as_str() {
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::MySql),
            _ => None,
        }
    }
}

/// `postgres://user:password@host:5432/shop?sslmode=require`. Printed without its password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DatabaseUrl {
    engine: DatabaseEngine,
    text: String,
}

/// The names of parameters that never hold a secret; the values of others are not shown.
const SHOWN_PARAMETERS: [&str; 6] = ["host", "port", "sslmode", "ssl-mode", "socket", "application_name"];

impl DatabaseUrl {
    /// `None` if the text is not the URL of a database.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, _) = text.split_once("://")?;
        Some(Self { engine: DatabaseEngine::from_scheme(scheme)?, text: text.to_owned() })
    }

    pub fn engine(&self) -> DatabaseEngine {
        self.engine
    }

    /// With its password. For the driver only.
    pub fn secret_text(&self) -> &str {
        &self.text
    }

    /// The name of the database.
    pub fn database(&self) -> &str {
        let (_, path, _) = self.parts();
        match path.trim_matches('/') {
            "" => "database",
            name => name,
        }
    }

    /// Whether it has a password.
    pub fn has_password(&self) -> bool {
        let (authority, _, query) = self.parts();
        let has_parameter = query.split('&').any(|pair| pair.starts_with("password="));
        has_parameter || authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    }

    /// The authority with the user, the path, the parameters.
    fn parts(&self) -> (&str, &str, &str) {
        let (_, rest) = self.text.split_once("://").unwrap_or(("", &self.text));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may contain a slash that should have been escaped.
        let start = rest.rfind('@').unwrap_or(0);
        let at = rest[start..].find('/').map_or(rest.len(), |at| start + at);
        (&rest[..at], &rest[at..], query)
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.engine {
            DatabaseEngine::Postgres => "postgres",
            DatabaseEngine::MySql => "mysql",
        };
        let (authority, path, query) = self.parts();
        write!(f, "{scheme}://")?;
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if let Some(user) = user.split(':').next().filter(|user| !user.is_empty()) {
            write!(f, "{user}@")?;
        }
        write!(f, "{host}{path}")?;
        let shown = query.split('&').filter(|pair| {
            let name = pair.split('=').next().unwrap_or(pair);
            SHOWN_PARAMETERS.contains(&name)
        });
        shown.enumerate().try_for_each(|(at, pair)| write!(f, "{}{pair}", if at == 0 { '?' } else { '&' }))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

/// A text that nothing shows.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::DatabaseUrl;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (text, shown, database) in [
            ("postgres://eve:secret@db/crm", "postgres://eve@db/crm", "crm"),
            ("postgresql://db:5433/crm", "postgres://db:5433/crm", "crm"),
            ("POSTGRES://eve:se/cret@db/crm", "postgres://eve@db/crm", "crm"),
            ("postgres://eve:se@cret@db/crm", "postgres://eve@db/crm", "crm"),
            ("postgres:///crm?host=/run&password=secret", "postgres:///crm?host=/run", "crm"),
            ("mysql://eve:secret@db/shop?sslkey=secret&ssl-mode=x", "mysql://eve@db/shop?ssl-mode=x", "shop"),
            ("mariadb://db", "mysql://db", "database"),
        ] {
            let url = DatabaseUrl::parse(text).expect("a database");
            assert_eq!((url.to_string().as_str(), url.database()), (shown, database), "{text}");
            assert!(!format!("{url:?}").contains("cret"), "{text}");
            assert_eq!(
                url.has_password(),
                text.contains("cret") && !text.contains("sslkey=secret&") || text.contains("eve:"),
                "{text}"
            );
            assert_eq!(url.secret_text(), text);
        }
        for text in ["crm.db", "https://db/crm", "://x", "C:\\x"] {
            assert_eq!(DatabaseUrl::parse(text), None, "{text}");
        }
    }
}
