//! Servers that hang, or are down from the start: they come back to callers without anybody's help.

use std::time::Duration;

use gateway::GatewayOptions;
use servers::manager::state::Status;
use wire::client::VersionPolicy;
use wire::{ListKind, Version};

use crate::world::{Reply, SimClient, SimGateway, SimServer, run, start_gateway};

async fn started(server: &std::sync::Arc<SimServer>) -> SimGateway {
    let gateway = start_gateway(std::slice::from_ref(server), GatewayOptions::default(), "", 1);
    gateway.gateway.manager().settled().await;
    gateway.gateway.refresh();
    gateway
}

#[test]
fn a_connection_of_a_caller_that_hangs_is_replaced_after_one_call() {
    run(async {
        let server = SimServer::new("s", VersionPolicy::HandshakeOnly, 1);
        let gateway = started(&server).await;
        let client = SimClient::open(&gateway.front, "c", Version::NEWEST_WITH_HANDSHAKE, false).await;
        let other = SimClient::open(&gateway.front, "o", Version::NEWEST_WITH_HANDSHAKE, false).await;
        for (client, token) in [(&client, "c-0"), (&other, "o-0")] {
            let reply = client.call("s", token, 5, false).await;
            assert!(matches!(reply, Reply::Text(_)), "{reply:?}");
        }
        // One is the gateway's own, one is that of each caller; the newest is the other caller's.
        assert_eq!(server.connections(), 3);
        server.freeze_newest();
        let reply = other.call("s", "o-1", 5, false).await;
        let Reply::ToolError(reason) = &reply else { panic!("{reply:?}") };
        assert!(reason.contains("neither a result nor progress within 120000 ms"), "{reason}");
        // At once: it waits until it is known that the connection hangs.
        let reply = other.call("s", "o-2", 5, false).await;
        assert!(matches!(&reply, Reply::Text(text) if text == "s:o-2:-"), "{reply:?}");
        assert_eq!(server.connections(), 4);
        let reply = client.call("s", "c-1", 5, false).await;
        assert!(matches!(&reply, Reply::Text(text) if text == "s:c-1:-"), "{reply:?}");
        assert_eq!(server.connections(), 4, "the connection of the first caller was never in doubt");
        gateway.gateway.close().await;
    });
}

#[test]
fn a_call_that_takes_too_long_leaves_a_connection_that_answers() {
    run(async {
        let server = SimServer::new("s", VersionPolicy::HandshakeOnly, 1);
        let gateway = started(&server).await;
        let client = SimClient::open(&gateway.front, "c", Version::NEWEST_WITH_HANDSHAKE, false).await;
        let reply = client.call("s", "c-0", 200_000, false).await;
        assert!(matches!(reply, Reply::ToolError(_)), "{reply:?}");
        let reply = client.call("s", "c-1", 5, false).await;
        assert!(matches!(reply, Reply::Text(_)), "{reply:?}");
        assert_eq!(server.connections(), 2);
        gateway.gateway.close().await;
    });
}

#[test]
fn a_server_that_was_down_at_the_start_joins_when_a_client_looks() {
    run(async {
        let server = SimServer::new("s", VersionPolicy::Any, 1);
        server.crash(Duration::from_secs(3600));
        let gateway = started(&server).await;
        let manager = gateway.gateway.manager();
        manager.wait_for("s", Status::Error).await.expect("it is known");
        let client = SimClient::open(&gateway.front, "c", Version::NEWEST, false).await;
        let tools = async || client.connection.list(ListKind::Tools, None).await.expect("a list").len();
        assert_eq!(tools().await, 0);
        tokio::time::sleep(Duration::from_secs(4000)).await;
        assert_eq!(manager.status("s").expect("it is known").status, Status::Error, "nobody has looked");
        tools().await;
        manager.wait_for("s", Status::Connected).await.expect("it is known");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(tools().await, 1);
        gateway.gateway.close().await;
    });
}
