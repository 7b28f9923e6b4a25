//! What a gateway lists: rendered once, whatever its servers do meanwhile.

use std::sync::Arc;
use std::time::Duration;

use gateway::GatewayOptions;
use wire::client::VersionPolicy;
use wire::{ListKind, Version};

use crate::world::{SimClient, SimProvider, SimServer, run, start_gateway};

#[test]
fn twenty_servers_with_fifty_tools_are_one_page_even_if_all_of_them_are_away() {
    run(async {
        let servers: Vec<Arc<SimServer>> = (0..20)
            .map(|n| {
                let name = format!("s{n:02}");
                let version = if n % 2 == 0 { VersionPolicy::Any } else { VersionPolicy::HandshakeOnly };
                let provider = SimProvider { fillers: 49, ..SimProvider::new(&name) };
                SimServer::with_provider(&name, version, n, provider)
            })
            .collect();
        let gateway = start_gateway(&servers, GatewayOptions::default(), "", 1);
        gateway.gateway.manager().settled().await;
        gateway.gateway.refresh();
        let connections: u64 = servers.iter().map(|server| server.connections()).sum();
        assert_eq!(connections, 20);
        servers.iter().for_each(|server| server.crash(Duration::from_secs(3600)));
        for version in [Version::NEWEST, Version::NEWEST_WITH_HANDSHAKE] {
            let client = SimClient::open(&gateway.front, "c0", version, false).await;
            let tools =
                client.connection.list(ListKind::Tools, Some(1000)).await.expect("the gateway answers");
            let name = |tool: &json::Json| Some(tool.to_doc().root().get("name")?.str()?.into_owned());
            let names: Vec<String> =
                tools.iter().map(|tool| name(tool).expect("a tool has a name")).collect();
            assert_eq!(names.len(), 1000);
            // In the order of the servers' names, whoever was connected first.
            let some = (&*names[0], &*names[50], &*names[999]);
            assert_eq!(some, ("mcp__s00__echo", "mcp__s01__echo", "mcp__s19__filler_48"));
        }
        gateway.gateway.close().await;
    });
}
