//! A provider that passes on another server's results, and the check of what providers promise.

use json::Json;
use spile_core::{CallResult, Run, Tool, ToolResult};

use super::{object_schema, provider, respond, server, stateless_call, text_of};

#[tokio::test]
async fn a_relayed_result_is_passed_on_unchanged() {
    const RAW: &str = concat!(
        r#""content":[{"type":"text","text":"7","annotations":{"audience":["user"],"priority":0.50}},"#,
        r#"{"type":"resource_link","uri":"f:a","name":"a","size":3}],"#,
        r#""structuredContent":{"n":7.10},"isError":false,"vendor":[1,2]"#
    );
    let relay = provider(super::tools(&["relay"]), |_, _| {
        let json = Json::parse(&format!(r#"{{{RAW},"_meta":{{"trace":"t1"}}}}"#)).expect("JSON");
        Run::now(CallResult::Relayed(json))
    });
    let response = respond(&server(vec![relay]), &stateless_call("relay", "")).await;
    let text = response.text();
    assert!(text.contains(RAW), "{text}");
    assert!(text.contains(r#""trace":"t1""#) && text.contains(r#""resultType":"complete""#), "{text}");
}

#[tokio::test]
async fn a_result_that_breaks_its_output_schema_is_an_error_of_the_server() {
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
    let tool = Tool {
        output_schema: Some(Json::parse(schema).expect("JSON")),
        ..Tool::new("count", "", object_schema())
    };
    for (structured, is_good) in
        [(Some(r#"{"n":1}"#), true), (Some(r#"{"n":"one"}"#), false), (Some("{}"), false), (None, false)]
    {
        for relayed in [false, true] {
            let run = move |_: &spile_core::Call, _: &spile_core::CallContext<'_>| match (relayed, structured)
            {
                (false, Some(json)) => Run::now(ToolResult::structured(Json::parse(json).expect("JSON"))),
                (false, None) => Run::now(ToolResult::text("one")),
                (true, json) => {
                    let structured = json.map(|json| format!(r#","structuredContent":{json}"#));
                    let structured = structured.unwrap_or_default();
                    let result = format!(r#"{{"content":[{{"type":"text","text":"one"}}]{structured}}}"#);
                    Run::now(CallResult::Relayed(Json::parse(&result).expect("JSON")))
                }
            };
            let server = server(vec![provider(vec![tool.clone()], run)]);
            let response = respond(&server, &stateless_call("count", "")).await;
            let is_error = response.text().contains(r#""isError":true"#);
            assert_eq!(is_error, !is_good, "{}", response.text());
            if !is_good {
                assert!(text_of(&response).starts_with("Internal: "), "{}", response.text());
            }
        }
    }
}
