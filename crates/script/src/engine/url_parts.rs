//! URLs for the prelude's `URL`: the host's parser, so that a URL means the same there and where requests are
//! made.

use url::{Url, quirks};

/// The parts of a URL as JSON text; `None` if it is not valid.
pub(super) fn parse(text: String, base: Option<String>) -> Option<String> {
    let base = match base {
        Some(base) => Some(Url::parse(&base).ok()?),
        None => None,
    };
    Url::options().base_url(base.as_ref()).parse(&text).ok().map(|url| parts(&url))
}

/// The parts after one of them was assigned, by the rules of the URL standard; `None` if the assignment has
/// no effect.
pub(super) fn set(href: String, part: String, value: String) -> Option<String> {
    let mut url = Url::parse(&href).ok()?;
    match part.as_str() {
        "href" => url = Url::parse(&value).ok()?,
        "protocol" => quirks::set_protocol(&mut url, &value).ok()?,
        "username" => quirks::set_username(&mut url, &value).ok()?,
        "password" => quirks::set_password(&mut url, &value).ok()?,
        "host" => quirks::set_host(&mut url, &value).ok()?,
        "hostname" => quirks::set_hostname(&mut url, &value).ok()?,
        "port" => quirks::set_port(&mut url, &value).ok()?,
        "pathname" => quirks::set_pathname(&mut url, &value),
        "search" => quirks::set_search(&mut url, &value),
        "hash" => quirks::set_hash(&mut url, &value),
        _ => return None,
    }
    Some(parts(&url))
}

fn parts(url: &Url) -> String {
    json::Json::object(|object| {
        object.str("href", quirks::href(url)).str("origin", &quirks::origin(url));
        object.str("protocol", quirks::protocol(url)).str("username", quirks::username(url));
        object.str("password", quirks::password(url)).str("host", quirks::host(url));
        object.str("hostname", quirks::hostname(url)).str("port", quirks::port(url));
        object.str("pathname", quirks::pathname(url)).str("search", quirks::search(url));
        object.str("hash", quirks::hash(url));
    })
    .to_string()
}
