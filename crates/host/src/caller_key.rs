//! Which requests count as one caller, for limits.

use std::net::{IpAddr, Ipv6Addr};

use spile_core::Principal;

use crate::server::CallerIdentity;

/// One caller: its principal, or for anonymous callers the network that it calls from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CallerKey {
    Named(Principal),
    /// `None` for a pipe.
    Anonymous(Option<IpAddr>),
}

impl CallerKey {
    pub(crate) fn new(identity: &CallerIdentity) -> Self {
        match &identity.principal {
            Principal::Named(_) => Self::Named(identity.principal.clone()),
            Principal::Anonymous => Self::Anonymous(identity.address.map(network_of)),
        }
    }
}

/// The address that counts as one caller: an IPv4 address, or the /64 network of an IPv6 address, because one machine
/// usually has all addresses of its /64.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{CallerIdentity, CallerKey};

    fn key(address: &str) -> CallerKey {
        CallerKey::new(&CallerIdentity {
            address: Some(address.parse().expect("an address")),
            ..CallerIdentity::default()
        })
    }

    #[test]
    fn anonymous_callers_count_by_ipv4_address_or_ipv6_network() {
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_ne!(key("::1"), key("::2"));
    }
}
