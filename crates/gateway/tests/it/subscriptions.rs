//! A client that was told that it is subscribed misses nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gateway::GatewayOptions;
use tokio::time::Instant;
use wire::client::VersionPolicy;
use wire::{NotificationFilter, Version};

use crate::world::{Reply, SimClient, SimProvider, SimServer, run, start_gateway};

const SLOW: Duration = Duration::from_millis(700);
const URI: &str = "test://one";

fn filter() -> NotificationFilter {
    NotificationFilter { resource_uris: vec![URI.to_owned()], ..NotificationFilter::default() }
}

/// How many subscriptions the server had answered when two clients were told that they are subscribed, and when.
async fn subscribe_two_clients(
    server: VersionPolicy,
    client: Version,
    subscribing: Duration,
) -> [(u64, Duration); 2] {
    let provider = SimProvider { has_subscriptions: true, subscribing, ..SimProvider::new("s") };
    let server = SimServer::with_provider("s", server, 1, provider);
    let gateway = start_gateway(std::slice::from_ref(&server), GatewayOptions::default(), "", 1);
    gateway.gateway.manager().settled().await;
    gateway.gateway.refresh();
    let first = SimClient::open(&gateway.front, "c0", client, false).await;
    let second = SimClient::open(&gateway.front, "c1", client, false).await;
    // In the handshake era this opens a connection of the caller's own, which is subscribed as well.
    assert!(matches!(first.call("s", "c0-0", 1, false).await, Reply::Text(_)));
    let since = Instant::now();
    let (filter, answered) = (filter(), &server.provider.subscribed);
    let subscribe = async |client: &SimClient| {
        let subscription = client.connection.subscribe(&filter).await.expect("it is granted");
        assert_eq!(subscription.granted.resource_uris, [URI]);
        ((answered.load(Ordering::Relaxed), since.elapsed()), subscription)
    };
    // The second client finds the resource watched already, but not yet by the server.
    let ((one, _first), (two, _second)) = tokio::join!(subscribe(&first), subscribe(&second));
    gateway.gateway.close().await;
    [one, two]
}

#[test]
fn a_subscription_is_acknowledged_when_the_server_has_acknowledged_it() {
    run(async {
        for client in [Version::NEWEST_WITH_HANDSHAKE, Version::NEWEST] {
            for (server, connections) in [(VersionPolicy::HandshakeOnly, 2), (VersionPolicy::Any, 1)] {
                for (answered, after) in subscribe_two_clients(server, client, SLOW).await {
                    assert_eq!(answered, connections, "{client:?} to {server:?}");
                    assert!(after >= SLOW, "{client:?} to {server:?}: {after:?}");
                }
            }
        }
    });
}

#[test]
fn a_server_that_does_not_answer_a_subscription_delays_it_for_some_seconds_only() {
    run(async {
        for client in [Version::NEWEST_WITH_HANDSHAKE, Version::NEWEST] {
            for server in [VersionPolicy::HandshakeOnly, VersionPolicy::Any] {
                for (answered, after) in
                    subscribe_two_clients(server, client, Duration::from_secs(3600)).await
                {
                    assert_eq!((answered, after.as_secs()), (0, 5), "{client:?} to {server:?}");
                }
            }
        }
    });
}
