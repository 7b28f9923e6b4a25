//! A model that the user configured: real programs and a real endpoint, also bad ones.

use json::Json;
use servers::config::SamplingSettings;
use servers::sampling::{Sampler, SamplingError};
use upstream::process::ProcessOptions;

use crate::harness::User;
use crate::http_server::{Response, serve};
use crate::manager::HELPER;

const OWN: &str = "home/.config/spile/servers.json";

fn settings(user: &User, sampling: &str) -> SamplingSettings {
    user.write(OWN, &format!(r#"{{"sampling": {sampling}}}"#));
    let configuration = user.load();
    configuration.sampling.unwrap_or_else(|| panic!("{:?}", configuration.problems))
}

fn sampler(sampling: &str) -> Sampler {
    let env = |name: &str| (name == "MODEL_KEY").then(|| "sk-secret".to_owned());
    let process = ProcessOptions { supervisor: Some(HELPER.into()), ..ProcessOptions::default() };
    Sampler::new(&settings(&User::new(&[]), sampling), &env, process).expect("valid settings")
}

fn shell(script: &str, more: &str) -> String {
    format!(r#"{{"command": "sh", "args": ["-c", {}]{more}}}"#, Json::string(script))
}

async fn answer(sampling: &str) -> Result<String, SamplingError> {
    let params = r#"{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":9,"_meta":{"x":1}}"#;
    sampler(sampling).answer(&Json::parse(params).expect("JSON")).await.map(|result| result.to_string())
}

#[tokio::test]
async fn a_program_gets_the_request_and_answers_with_text_or_a_result() {
    let text = answer(&shell("cat >/dev/null; echo hello", "")).await.expect("an answer");
    assert_eq!(
        text,
        r#"{"role":"assistant","content":{"type":"text","text":"hello"},"model":"unknown","stopReason":"endTurn"}"#
    );
    let result = r#"{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}"#;
    assert_eq!(
        answer(&shell(&format!("cat >/dev/null; printf '%s' '{result}'"), "")).await.expect("one"),
        result
    );
    // What it reads: nothing of our hop, and no more tokens than the settings allow.
    let read = answer(&shell("read -r line; echo \"got $line\"", r#", "maxTokens": 5"#)).await.expect("one");
    assert!(read.contains(r#"\"maxTokens\":5"#) && !read.contains("_meta"), "{read}");
    // It does not inherit our environment, and gets what the settings name.
    let env = shell(
        "cat >/dev/null; echo \"$MODEL_KEY/$CARGO_MANIFEST_DIR\"",
        r#", "env": {"MODEL_KEY": "${MODEL_KEY}"}"#,
    );
    assert!(answer(&env).await.expect("one").contains(r#""text":"sk-secret/""#));
}

#[tokio::test]
async fn a_program_that_fails_is_an_error_that_tells_servers_nothing() {
    for (script, expected) in [
        ("cat >/dev/null; echo sk-secret >&2; exit 3", "the model failed: exit code 3: sk-secret"),
        ("cat >/dev/null", "cannot be used: it is empty"),
        ("cat >/dev/null; printf '\\377'", "cannot be used: it is not UTF-8"),
        ("cat >/dev/null; echo '{\"a\":'", "cannot be used: it is not JSON"),
        ("cat >/dev/null; echo '{}'", "cannot be used: it has no `content`"),
        ("yes", "exceeds the limit of 1048576 bytes"),
        ("sleep 1000 & sleep 1000", "did not answer within 1000 ms"),
    ] {
        let error = answer(&shell(script, r#", "timeout": 1000"#)).await.expect_err(script);
        assert!(error.to_string().contains(expected), "{script}: {error}");
        assert_eq!(error.for_server(), "the model did not answer");
    }
    let missing = answer(r#"{"command": "/nonexistent/model"}"#).await.expect_err("it is not there");
    assert!(matches!(missing, SamplingError::Failed(_)), "{missing}");
}

#[tokio::test]
async fn an_endpoint_gets_the_request_in_its_format_with_headers_of_the_settings() {
    let origin = serve(|request| {
        if request.headers.get("x-api-key").map(String::as_str) != Some("sk-secret") {
            return Response::status(401);
        }
        match request.target.as_str() {
            "/v1/messages" => {
                assert_eq!(request.headers["anthropic-version"], "2023-06-01");
                assert!(request.body.contains(r#""model":"small""#), "{}", request.body);
                Response::json(
                    200,
                    r#"{"content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}"#.to_owned(),
                )
            }
            "/redirect" => Response::status(307).header("Location", "/v1/messages"),
            "/large" => Response::json(200, "x".repeat(2 << 20)),
            _ => Response::json(500, r#"{"error":"sk-secret"}"#.to_owned()),
        }
    })
    .await;
    let endpoint = |path: &str| {
        format!(
            r#"{{"url": "{origin}{path}", "format": "anthropic", "model": "small", "headers": {{"X-Api-Key": "${{MODEL_KEY}}"}}}}"#
        )
    };
    assert!(answer(&endpoint("/v1/messages")).await.expect("an answer").contains(r#""text":"x""#));
    for (path, expected) in [
        // A redirect would choose who gets the key.
        ("/redirect", "the model failed: the endpoint answered with status 307"),
        ("/large", "exceeds the limit of 1048576 bytes"),
        ("/broken", "the model failed: the endpoint answered with status 500"),
    ] {
        let error = answer(&endpoint(path)).await.expect_err(path).to_string();
        assert!(error.contains(expected) && !error.contains("sk-secret"), "{path}: {error}");
    }
}

#[test]
fn only_files_of_the_user_say_what_answers() {
    let sampling =
        |command: &str| format!(r#"{{"mcpServers": {{}}, "sampling": {{"command": "{command}"}}}}"#);
    let user = User::new(&[
        ("project/.mcp.json", &sampling("evil")),
        ("project/.claude/settings.json", &sampling("evil")),
        ("home/.claude.json", &sampling("other")),
    ]);
    assert_eq!(user.load().sampling, None);
    user.write(OWN, &sampling("mine"));
    assert!(format!("{:?}", user.load().sampling).contains("mine"));
    user.write("project/run.json", &sampling("named"));
    assert!(format!("{:?}", user.load_with(&["project/run.json"]).sampling).contains("named"));
    user.write(OWN, r#"{"mcpServers": {"a": {"command": "x"}}, "sampling": {"command": 7}}"#);
    let configuration = user.load();
    assert_eq!((configuration.sampling, configuration.servers.len()), (None, 1));
    assert!(configuration.problems[0].to_string().ends_with("`command` is not a text"));
    assert!(!configuration.problems[0].is_unreadable, "the servers of the file are read");
}

#[test]
fn a_variable_that_is_not_set_is_named_and_its_value_never_shown() {
    let user = User::new(&[]);
    let settings = settings(&user, r#"{"url": "http://127.0.0.1/", "headers": {"A": "Bearer ${NO_KEY}"}}"#);
    let error = Sampler::new(&settings, &|_| None, ProcessOptions::default()).err().expect("it is not set");
    assert_eq!(
        error.to_string(),
        "sampling: headers.A: the environment variable `NO_KEY` is not set; set it, or write `${NO_KEY:-default}`"
    );
}
