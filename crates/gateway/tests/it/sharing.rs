//! Whose connection a call uses: one for all callers, or one for each session, and how many of them there may be.

use gateway::{ConnectionPoolLimits, GatewayOptions};
use wire::Version;
use wire::client::VersionPolicy;

use crate::world::{Reply, SimClient, SimGateway, SimProvider, SimServer, run, start_gateway};

const OLD: VersionPolicy = VersionPolicy::HandshakeOnly;

async fn ready(gateway: &SimGateway) {
    gateway.gateway.manager().settled().await;
    gateway.gateway.refresh();
}

/// How many connections a server has had after three clients called it twice each, and what the gateway says about it.
async fn connections_of_three_clients(
    version: VersionPolicy,
    entry: &str,
    has_subscriptions: bool,
    asks: bool,
) -> (u64, Option<&'static str>) {
    let provider = SimProvider { has_subscriptions, ..SimProvider::new("s") };
    let server = SimServer::with_provider("s", version, 1, provider);
    let gateway = start_gateway(std::slice::from_ref(&server), GatewayOptions::default(), entry, 1);
    ready(&gateway).await;
    for n in 0..3 {
        let name = format!("c{n}");
        let client = SimClient::open(&gateway.front, &name, Version::NEWEST_WITH_HANDSHAKE, true).await;
        for call in 0..2 {
            let token = format!("{name}-{call}");
            let reply = client.call("s", &token, 5, asks).await;
            assert!(
                matches!(&reply, Reply::Text(text) if text.starts_with(&format!("s:{token}:"))),
                "{reply:?}"
            );
        }
        assert_eq!(client.handler.mistakes(), Vec::<String>::new());
    }
    let warning = gateway.gateway.warning("s");
    gateway.gateway.close().await;
    (server.connections(), warning)
}

#[test]
fn older_servers_have_a_connection_for_each_session_and_newer_ones_one_for_all() {
    run(async {
        // One more is the gateway's own, from which the lists come.
        assert_eq!(connections_of_three_clients(OLD, "", false, false).await, (4, None));
        assert_eq!(connections_of_three_clients(VersionPolicy::Any, "", false, false).await, (1, None));
    });
}

#[test]
fn shared_means_one_connection_unless_something_belongs_to_a_session() {
    run(async {
        let shared = r#","shared":true"#;
        assert_eq!(connections_of_three_clients(OLD, shared, false, false).await, (1, None));
        let (connections, warning) = connections_of_three_clients(OLD, shared, true, false).await;
        assert_eq!(connections, 4);
        assert!(warning.is_some_and(|warning| warning.contains("subscriptions")), "{warning:?}");
        // Nothing is asked on a shared connection: the server is told that nobody can be.
        assert_eq!(connections_of_three_clients(OLD, shared, false, true).await.0, 1);
    });
}

#[test]
fn connections_are_limited_for_each_caller_and_in_all_and_close_when_they_are_idle() {
    run(async {
        let server = SimServer::new("s", OLD, 1);
        let limits = ConnectionPoolLimits { per_principal_max: 2, total_max: 8, idle_ms: 60_000 };
        let options = GatewayOptions { connections: limits, ..GatewayOptions::default() };
        let gateway = start_gateway(std::slice::from_ref(&server), options, "", 1);
        ready(&gateway).await;
        let mut clients = Vec::new();
        for n in 0..3 {
            let name = format!("c{n}");
            clients.push(SimClient::open(&gateway.front, &name, Version::NEWEST_WITH_HANDSHAKE, false).await);
        }
        // Two calls keep both connections in use.
        let (one, other, third) = tokio::join!(
            clients[0].call("s", "c0-0", 1000, false),
            clients[1].call("s", "c1-0", 1000, false),
            async {
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                clients[2].call("s", "c2-0", 10, false).await
            }
        );
        assert!(matches!(one, Reply::Text(_)) && matches!(other, Reply::Text(_)), "{one:?} {other:?}");
        let Reply::ToolError(refusal) = third else { panic!("{third:?}") };
        assert!(refusal.contains("all 2 connections that one caller may have"), "{refusal}");
        assert_eq!(gateway.gateway.open_counts(), (0, 2));
        // An unused one makes room.
        let again = clients[2].call("s", "c2-1", 10, false).await;
        assert!(matches!(again, Reply::Text(_)), "{again:?}");
        assert_eq!(gateway.gateway.open_counts(), (0, 2));
        tokio::time::sleep(std::time::Duration::from_secs(70)).await;
        assert_eq!(gateway.gateway.open_counts(), (0, 0), "idle connections are closed");
        gateway.gateway.close().await;
    });
}
