//! What both engines need to know about the URL of a database.

use contract::source::SourceError;

pub(crate) fn invalid_url(reason: &str) -> SourceError {
    SourceError::Incompatible {
        message: format!("the URL of the database cannot be used: {reason}"),
        detail: reason.to_owned(),
    }
}

pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// The URL without these parameters, and the value of the first: drivers know other values of them than people write, or none.
pub(crate) fn split_parameter(url: &str, names: &[&str]) -> (String, Option<String>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let is_named = |pair: &&str| pair.split_once('=').is_some_and(|(name, _)| names.contains(&name));
    let (named, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_named);
    let value = named.first().and_then(|pair| pair.split_once('=')).map(|(_, value)| value.to_owned());
    match others.is_empty() {
        true => (base.to_owned(), value),
        false => (format!("{base}?{}", others.join("&")), value),
    }
}
