//! Clients × gateway × servers with crashes, delays and reconnects, determined by a seed: every call gets exactly one
//! reply, no reply or question reaches another caller, and no call runs twice.
//!
//! `SPILE_GATEWAY_SEED=7` repeats one seed; `SPILE_GATEWAY_SEEDS=10000` runs as many (`cargo xtask judges gateway`).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use gateway::GatewayOptions;
use wire::Version;
use wire::client::VersionPolicy;

use crate::world::{Random, Reply, SimClient, SimServer, run, start_gateway};

/// In CI.
const SEEDS: u64 = 300;
/// No call takes longer, whatever breaks: reconnecting is given up after five attempts.
const REPLY_LIMIT: Duration = Duration::from_secs(30 * 60);

#[test]
fn every_call_gets_one_reply_and_nobody_gets_anothers() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("SPILE_GATEWAY_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SPILE_GATEWAY_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(simulate(seed)))) {
            eprintln!("the seed is {seed}");
            resume_unwind(panic);
        }
    }
}

/// What a call may come to because its server crashed: each says whether the call may have run.
const CRASH_ERRORS: &[&str] = &[
    "was lost during the call, which may have been executed",
    "was lost before the call",
    "is not available: ",
    "did not reconnect within",
];

async fn simulate(seed: u64) {
    let random = Random::new(seed);
    // One seed in four has no faults: there everything must succeed.
    let has_faults = !random.one_in(4);
    let servers: Vec<Arc<SimServer>> = (0..1 + random.below(3))
        .map(|n| {
            let version = match random.one_in(2) {
                true => VersionPolicy::HandshakeOnly,
                false => VersionPolicy::Any,
            };
            SimServer::new(&format!("s{n}"), version, random.next())
        })
        .collect();
    let gateway = start_gateway(&servers, GatewayOptions::default(), "", seed);
    gateway.gateway.manager().settled().await;
    gateway.gateway.refresh();
    let mut clients = Vec::new();
    for n in 0..1 + random.below(3) {
        let version = if random.one_in(2) { Version::NEWEST } else { Version::NEWEST_WITH_HANDSHAKE };
        let client = SimClient::open(&gateway.front, &format!("c{n}"), version, !random.one_in(4)).await;
        clients.push(Arc::new(client));
    }
    let faults: Vec<_> =
        servers.iter().filter(|_| has_faults).map(|server| crash_plan(&random, server)).collect();
    let vanishing = (has_faults && clients.len() > 1 && random.one_in(3)).then(|| clients[0].clone());
    let mut calls = tokio::task::JoinSet::new();
    for client in &clients {
        for n in 0..1 + random.below(6) {
            let server = servers[random.below(servers.len() as u64) as usize].clone();
            let (start_ms, ms, asks) = (random.below(3000), random.below(2000), random.one_in(3));
            let patience_ms = random.one_in(4).then(|| random.below(2500));
            let (client, token) = (client.clone(), format!("{}-{n}", client.name));
            calls.spawn(async move {
                tokio::time::sleep(Duration::from_millis(start_ms)).await;
                let call = async {
                    match patience_ms {
                        Some(patience) => client.call_for(&server.name, &token, ms, asks, patience).await,
                        None => Some(client.call(&server.name, &token, ms, asks).await),
                    }
                };
                let reply = tokio::time::timeout(REPLY_LIMIT, call).await;
                let reply = reply.unwrap_or_else(|_| panic!("{token}: no reply from {}", server.name));
                (client, server, token, asks, reply)
            });
        }
    }
    if let Some(client) = &vanishing {
        let (client, after_ms) = (client.clone(), random.below(3000));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            client.vanish();
        });
    }
    while let Some(ended) = calls.join_next().await {
        let (client, server, token, asks, reply) = ended.expect("a call ends without a panic");
        let executions = server.provider.executions(&token);
        match reply {
            // Its client cancelled it.
            None => {}
            Some(Reply::Text(text)) => {
                assert_eq!(text, client.expected(&server.name, &token, asks), "{token}");
                assert_eq!(executions, 1, "{token} has a result");
            }
            Some(Reply::ToolError(text)) => {
                assert!(server.crashes() > 0, "{token}: {} did not crash: {text}", server.name);
                assert!(text.contains(&server.name), "{token}: whose fault is it? {text}");
                assert!(CRASH_ERRORS.iter().any(|known| text.contains(known)), "{token}: {text}");
            }
            Some(Reply::Error(error)) => {
                let has_gone = vanishing.as_ref().is_some_and(|gone| gone.name == client.name);
                // A call that waited in the gateway for an answer is gone with its server's connection.
                let text = error.to_string();
                let is_forgotten = server.crashes() > 0 && text.contains("no longer waits for this answer");
                assert!(has_gone || is_forgotten, "{token}: {text}");
            }
        }
        assert!(executions <= 1, "{token} ran {executions} times");
    }
    for client in &clients {
        assert_eq!(client.handler.mistakes(), Vec::<String>::new(), "{}", client.name);
    }
    drop(faults);
    // What nobody waits for any more is closed.
    let later = Duration::from_secs(20 * 60);
    tokio::time::sleep(later).await;
    assert_eq!(gateway.gateway.open_counts(), (0, 0), "calls and connections are left");
    gateway.gateway.close().await;
}

/// Crashes a server now and then.
fn crash_plan(random: &Random, server: &Arc<SimServer>) -> AbortOnDrop {
    let (server, random) = (server.clone(), Random::new(random.next()));
    let task = tokio::spawn(async move {
        for _ in 0..random.below(4) {
            tokio::time::sleep(Duration::from_millis(random.below(2500))).await;
            // Mostly for a moment, sometimes until the gateway gives up.
            let down_ms = if random.one_in(4) { 600_000 } else { random.below(3000) };
            server.crash(Duration::from_millis(down_ms));
        }
    });
    AbortOnDrop(task.abort_handle())
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
