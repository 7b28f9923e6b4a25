//! Who can reach an address: everybody, this network, or this machine.

use std::net::IpAddr;

use url::{Host, Url};

use crate::{Reach, is_loopback, is_public};

/// From far to near: what is at an address may know of places that are as near, and of those further away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkZone {
    /// Anybody on the internet.
    Public,
    /// Only this network, or nobody.
    Private,
    /// Only this machine.
    ThisMachine,
}

impl NetworkZone {
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        // Connecting to the unspecified address connects to this machine.
        if address.is_loopback() || address.is_unspecified() {
            Self::ThisMachine
        } else if is_public(address) {
            Self::Public
        } else {
            Self::Private
        }
    }

    /// What the URL itself says; `None` if its name must be looked up.
    pub fn of_literal(url: &Url) -> Option<Self> {
        match url.host()? {
            Host::Ipv4(ip) => Some(Self::of(IpAddr::V4(ip))),
            Host::Ipv6(ip) => Some(Self::of(IpAddr::V6(ip))),
            Host::Domain(_) if is_loopback(url) => Some(Self::ThisMachine),
            Host::Domain(_) => None,
        }
    }

    /// What addresses may be reached that somebody in this zone names.
    pub fn reach(self) -> Reach {
        match self {
            Self::Public => Reach::Public,
            Self::Private => Reach::NotThisMachine,
            Self::ThisMachine => Reach::NotLinkLocal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NetworkZone::{self, Private, Public, ThisMachine};

    #[test]
    fn a_zone_reaches_what_is_as_near_and_what_is_further_away() {
        for (address, zone, reached_from) in [
            ("8.8.8.8", Public, &[Public, Private, ThisMachine][..]),
            ("2606:2800:220:1::1", Public, &[Public, Private, ThisMachine]),
            ("10.0.0.1", Private, &[Private, ThisMachine]),
            ("100.64.0.1", Private, &[Private, ThisMachine]),
            ("100.100.100.200", Private, &[]),
            ("fd00:ec2::254", Private, &[]),
            ("fd12::1", Private, &[Private, ThisMachine]),
            ("::ffff:10.0.0.1", Private, &[Private, ThisMachine]),
            ("127.0.0.1", ThisMachine, &[ThisMachine]),
            ("127.8.0.1", ThisMachine, &[ThisMachine]),
            ("::1", ThisMachine, &[ThisMachine]),
            ("0.0.0.0", ThisMachine, &[ThisMachine]),
            ("::ffff:127.0.0.1", ThisMachine, &[ThisMachine]),
            // Nothing may name the metadata service of a cloud.
            ("169.254.169.254", Private, &[]),
            ("fe80::1", Private, &[]),
            ("64:ff9b::169.254.169.254", Private, &[]),
        ] {
            let ip = address.parse().expect("an address");
            assert_eq!(NetworkZone::of(ip), zone, "{address}");
            for from in [Public, Private, ThisMachine] {
                assert_eq!(from.reach().allows(ip), reached_from.contains(&from), "{address} from {from:?}");
            }
        }
    }

    #[test]
    fn a_name_says_nothing_about_its_zone_unless_it_is_this_machine() {
        for (url, expected) in [
            ("https://a.test/", None),
            ("https://localhost.a.test/", None),
            ("http://localhost/", Some(ThisMachine)),
            ("http://x.localhost/", Some(ThisMachine)),
            ("http://127.1/", Some(ThisMachine)),
            ("http://[::1]/", Some(ThisMachine)),
            ("https://10.1/", Some(Private)),
            ("https://8.8.8.8/", Some(Public)),
        ] {
            assert_eq!(NetworkZone::of_literal(&url.parse().expect("a URL")), expected, "{url}");
        }
    }
}
