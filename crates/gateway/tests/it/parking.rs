//! Calls that wait for an answer in the gateway: how many, for how long, and for whom.

use std::sync::Arc;
use std::time::Duration;

use gateway::{ConnectionPoolLimits, GatewayOptions, Naming};
use json::Json;
use spile_core::{
    Call, CallContext, CallResult, Caller, ClientCapabilities, EventSink, Journal, NoTools, Outcome,
    Platform, Principal, Provider, Run,
};
use wire::client::VersionPolicy;

use crate::world::{SimGateway, SimPlatform, SimServer, run, start_gateway};

struct World {
    gateway: SimGateway,
    platform: Arc<dyn Platform>,
}

impl World {
    /// With a server that waits for answers in the middle of its calls.
    async fn new(options: GatewayOptions) -> Self {
        let server = SimServer::new("s", VersionPolicy::HandshakeOnly, 1);
        let gateway = start_gateway(std::slice::from_ref(&server), options, "", 1);
        gateway.gateway.manager().settled().await;
        gateway.gateway.refresh();
        Self { gateway, platform: SimPlatform::new(2) }
    }

    /// One round of a call of the tool that asks, or that takes a while.
    async fn call(&self, principal: &str, ms: u64, asks: bool, journal: &Journal) -> Outcome {
        let arguments = format!(r#"{{"token":"t","ms":{ms},"ask":{asks}}}"#);
        let call = Call::tool("mcp__s__echo", &Json::parse(&arguments).expect("JSON"));
        let caller = Caller {
            principal: Principal::local(principal).expect("a name"),
            capabilities: ClientCapabilities::ELICITATION_FORM,
        };
        let provider = self.gateway.gateway.provider("s", Naming::Public).expect("it is configured");
        let cx = CallContext {
            caller: &caller,
            journal,
            events: &EventSink::disabled(),
            platform: &self.platform,
            timeout_ms: 3_600_000,
            tools: &NoTools,
            request_head: None,
            session: None,
            address: None,
            wants_task: false,
        };
        match provider.run(&call, &cx) {
            Run::Now(outcome) => outcome,
            Run::Later(running) => running.await,
        }
    }

    /// Asks, and returns the journal of the next round, with the user's answer.
    async fn park(&self, principal: &str) -> Result<Journal, String> {
        match self.call(principal, 0, true, &Journal::default()).await {
            Outcome::InputRequired(mut requests) => {
                let mut journal = Journal::default();
                for (key, _) in requests.iter() {
                    let answer = r#"{"action":"accept","content":{"answer":"yes"}}"#;
                    journal.record(key, Json::parse(answer).expect("JSON"));
                }
                journal.set_memo(requests.take_memo());
                Ok(journal)
            }
            other => Err(shown(other)),
        }
    }

    async fn resume(&self, principal: &str, journal: &Journal) -> String {
        shown(self.call(principal, 0, true, journal).await)
    }

    fn waiting(&self) -> usize {
        self.gateway.gateway.open_counts().0
    }
}

fn shown(outcome: Outcome) -> String {
    match outcome {
        Outcome::Done(CallResult::Relayed(result)) => result.to_string(),
        Outcome::ToolFailed(error) => error.message,
        Outcome::Failed(error) => format!("{error:?}"),
        _ => panic!("the call has not ended"),
    }
}

#[test]
fn a_caller_has_at_most_32_waiting_calls_and_all_callers_1024() {
    run(async {
        let world = World::new(GatewayOptions::default()).await;
        for principal in 0..32 {
            for _ in 0..32 {
                world.park(&format!("p{principal}")).await.expect("there is room");
            }
            if principal == 0 {
                let refusal = world.park("p0").await.expect_err("a limit");
                assert!(refusal.contains("32 calls wait for answers already"), "{refusal}");
            }
        }
        assert_eq!(world.waiting(), 1024);
        let refusal = world.park("p32").await.expect_err("a limit");
        assert!(refusal.contains("1024 calls wait for answers already"), "{refusal}");
        assert_eq!(world.waiting(), 1024, "what was refused does not wait");
        world.gateway.gateway.close().await;
    });
}

#[test]
fn a_call_waits_for_ten_minutes() {
    run(async {
        let world = World::new(GatewayOptions::default()).await;
        let (in_time, late) =
            (world.park("ada").await.expect("asked"), world.park("ada").await.expect("asked"));
        tokio::time::sleep(Duration::from_secs(9 * 60 + 50)).await;
        let answered = world.resume("ada", &in_time).await;
        assert!(answered.contains("s:t:yes"), "{answered}");
        tokio::time::sleep(Duration::from_secs(11)).await;
        let answered = world.resume("ada", &late).await;
        assert!(answered.contains("no longer waits for this answer"), "{answered}");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(world.waiting(), 0);
        world.gateway.gateway.close().await;
    });
}

#[test]
fn a_waiting_call_is_answered_by_its_own_caller_alone_and_once() {
    run(async {
        let world = World::new(GatewayOptions::default()).await;
        let journal = world.park("ada").await.expect("asked");
        let stolen = world.resume("eve", &journal).await;
        assert!(stolen.contains("no longer waits for this answer"), "{stolen}");
        assert_eq!(world.waiting(), 1, "it waits on");
        let answered = world.resume("ada", &journal).await;
        assert!(answered.contains("s:t:yes"), "{answered}");
        let again = world.resume("ada", &journal).await;
        assert!(again.contains("no longer waits for this answer"), "{again}");
        world.gateway.gateway.close().await;
    });
}

#[test]
fn all_callers_together_have_a_limited_number_of_connections() {
    run(async {
        let connections = ConnectionPoolLimits { total_max: 2, ..ConnectionPoolLimits::default() };
        let world = World::new(GatewayOptions { connections, ..GatewayOptions::default() }).await;
        let none = Journal::default();
        let (one, other, third) = tokio::join!(
            world.call("ada", 1000, false, &none),
            world.call("bob", 1000, false, &none),
            async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                world.call("eve", 1, false, &none).await
            }
        );
        for outcome in [one, other] {
            let text = shown(outcome);
            assert!(text.contains("s:t:-"), "{text}");
        }
        let refusal = shown(third);
        assert!(refusal.contains("all 2 connections that all callers together may have"), "{refusal}");
        // One that is not used makes room.
        let text = shown(world.call("eve", 1, false, &none).await);
        assert!(text.contains("s:t:-"), "{text}");
        assert_eq!(world.gateway.gateway.open_counts(), (0, 2));
        world.gateway.gateway.close().await;
    });
}
