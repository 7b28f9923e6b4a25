//! Each fixture provider behaves as documented, called without host, wire or transport.

mod script;

use std::sync::{Arc, Mutex};

use spile_core::{CatalogChange, ChangeListener, Provider, TaskSupport};
use testkit::bench::BenchProvider;
use testkit::conformance::ConformanceProvider;

use self::script::{run_script, validator};

#[test]
fn the_first_tool_takes_no_arguments() {
    check(
        "
        > tool test_simple_text
        < text This is a simple text response for testing.
        > tool test_simple_text {}
        < text This is a simple text response for testing.
        ",
    );
    assert_eq!(ConformanceProvider::default().catalog().tools[0].name, "test_simple_text");
}

#[test]
fn tools_return_content_of_every_kind() {
    check(
        r#"
        > tool test_image_content {}
        < image image/png 96 bytes
        > tool test_audio_content {}
        < audio audio/wav 60 bytes
        > tool test_embedded_resource {}
        < resource test://embedded-resource text/plain This is an embedded resource content.
        > tool test_multiple_content_types {}
        < text Multiple content types test:
        < image image/png 96 bytes
        < resource test://mixed-content-resource application/json {"test":"data","value":123}
        > tool test_error_handling {}
        < error
        < text This tool intentionally returns an error for testing
        "#,
    );
}

#[test]
fn progress_logs_and_a_pause_come_before_the_result() {
    check(
        r#"
        > tool test_tool_with_logging {}
        < log info "Tool execution started"
        < log info "Tool processing data"
        < log info "Tool execution completed"
        < text Tool with logging executed successfully
        > tool test_tool_with_progress {}
        < progress 0 of 100: Completed step 0 of 100
        < progress 50 of 100: Completed step 50 of 100
        < progress 100 of 100: Completed step 100 of 100
        < text Tool with progress executed successfully
        > tool test_logging_tool {}
        < log info "Diagnostic trace logging activated"
        < text Logging evaluated
        > tool test_reconnection {}
        < pause 500
        < text Reconnection test completed successfully: the stream ended and was taken up again
        "#,
    );
}

#[test]
fn a_tool_echoes_its_arguments() {
    check(
        r#"
        > tool json_schema_2020_12_tool {"name": "Ada", "email": "a@b.c"}
        < text JSON Schema 2020-12 tool called with: {"name":"Ada","email":"a@b.c"}
        > tool test_custom_header {"value": "Hello"}
        < text Custom header value: `Hello`
        > tool test_custom_header {}
        < text Custom header value: ``
        > tool greet {"name": "World"}
        < text Hello, World!
        "#,
    );
}

#[test]
fn a_missing_capability_is_an_error() {
    check(
        "
        can elicit_form
        > tool test_missing_capability {}
        < call_error MissingCapability(ClientCapabilities(2))
        can sampling
        > tool test_missing_capability {}
        < text Success
        ",
    );
}

#[test]
fn sampling_returns_the_text_of_the_model() {
    check(
        r#"
        > tool test_sampling {"prompt": "Say \"hi\""}
        < ask completion: sample {"messages":[{"role":"user","content":{"type":"text","text":"Say \"hi\""}}],"maxTokens":100}
        = completion {"role":"assistant","content":{"type":"text","text":"hi"},"model":"m","stopReason":"endTurn"}
        < text LLM response: hi
        "#,
    );
}

#[test]
fn elicitation_returns_the_action_of_the_user() {
    check(
        r#"
        > tool test_elicitation {"message": "Who are you?"}
        < ask form: form Who are you? {"type":"object","properties":{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}
        = form {"action":"accept","content":{"username":"u","email":"e"}}
        < text User response: action=accept, content={"username":"u","email":"e"}
        = form {"action":"decline"}
        < text User response: action=decline, content={}
        = form {"action":"cancel"}
        < text User response: action=cancel, content={}
        = form {"action":"shrug"}
        < ask form: form Who are you? {"type":"object","properties":{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}
        > tool test_elicitation_sep1034_defaults {}
        < ask form: form Please review and update the form fields with defaults {"type":"object","properties":{"name":{"type":"string","description":"User name","default":"John Doe"},"age":{"type":"integer","description":"User age","default":30},"score":{"type":"number","description":"User score","default":95.5},"status":{"type":"string","description":"User status","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","description":"Verification status","default":true}},"required":[]}
        = form {"action":"accept","content":{"name":"Jane"}}
        < text Elicitation completed: action=accept, content={"name":"Jane"}
        > tool test_elicitation_sep1330_enums {}
        < ask form: form Please select options from the enum fields {"type":"object","properties":{"untitledSingle":{"type":"string","description":"Select one option","enum":["option1","option2","option3"]},"titledSingle":{"type":"string","description":"Select one option with titles","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},"legacyEnum":{"type":"string","description":"Select one option (legacy)","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},"untitledMulti":{"type":"array","description":"Select multiple options","minItems":1,"maxItems":3,"items":{"type":"string","enum":["option1","option2","option3"]}},"titledMulti":{"type":"array","description":"Select multiple options with titles","minItems":1,"maxItems":3,"items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}},"required":[]}
        = form {"action":"accept"}
        < text Elicitation completed: action=accept, content={}
        "#,
    );
}

#[test]
fn a_missing_name_is_requested_again() {
    check(
        r#"
        > tool test_input_required_result_elicitation {}
        < ask user_name: form What is your name? {"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}
        = user_name {"action":"accept","content":{"name":"Alice"}}
        < text Hello, Alice!
        > tool test_input_required_result_elicitation {}
        = wrong_key {"action":"accept","content":{"data":"wrong"}}
        < ask user_name: form What is your name? {"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}
        = user_name 12345
        < ask user_name: form What is your name? {"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}
        = user_name {"action":"accept","content":{"name":7}}
        < ask user_name: form What is your name? {"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}
        = user_name {"action":"accept","content":{"name":"Alice"}}
        = unknown_extra_key {"action":"accept","content":{"foo":"bar"}}
        < text Hello, Alice!
        = user_name {"action":"decline"}
        < text The user declined to answer.
        = user_name {"action":"cancel"}
        < text The user closed the question.
        "#,
    );
}

#[test]
fn tools_request_sampling_and_roots() {
    check(
        r#"
        > tool test_input_required_result_sampling {}
        < ask capital_question: sample {"messages":[{"role":"user","content":{"type":"text","text":"What is the capital of France?"}}],"maxTokens":100}
        = capital_question {"role":"assistant","content":{"type":"text","text":"Paris"},"model":"m"}
        < text Sampling result: Paris
        > tool test_input_required_result_list_roots {}
        < ask client_roots: roots
        = client_roots {"roots":[{"uri":"file:///a"},{"uri":"file:///b","name":"B"}]}
        < text Found 2 root(s): file:///a, file:///b
        = client_roots {"roots":[{"name":"no uri"}]}
        < ask client_roots: roots
        "#,
    );
}

#[test]
fn a_request_state_is_confirmed() {
    check(
        r#"
        > tool test_input_required_result_request_state {}
        < ask confirm: form Please confirm {"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}
        = confirm {"action":"accept","content":{"ok":true}}
        < text state-ok: requestState validated, confirmed: true
        > tool test_input_required_result_tampered_state {}
        < ask confirm: form Please confirm {"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}
        = confirm {"action":"accept","content":{"ok":true}}
        < text integrity-ok: state verified, confirmed: true
        "#,
    );
}

#[test]
fn three_inputs_are_requested_together_and_only_missing_ones_again() {
    check(
        r#"
        > tool test_input_required_result_multiple_inputs {}
        < ask user_name: form What is your name? {"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}
        < ask greeting: sample {"messages":[{"role":"user","content":{"type":"text","text":"Generate a greeting"}}],"maxTokens":50}
        < ask client_roots: roots
        = user_name {"action":"accept","content":{"name":"Alice"}}
        = greeting {"role":"assistant","content":{"type":"text","text":"Hello there!"},"model":"m"}
        < ask client_roots: roots
        = client_roots {"roots":[{"uri":"file:///test/root","name":"Test Root"}]}
        < text Name: Alice; Greeting: Hello there!; Roots: 1
        = user_name {"action":"decline"}
        < text The user declined to answer.
        "#,
    );
}

#[test]
fn inputs_are_requested_one_after_the_other() {
    check(
        r#"
        > tool test_input_required_result_multi_round {}
        < ask step1: form Step 1: What is your name? {"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}
        = step1 {"action":"accept","content":{"name":"Alice"}}
        < ask step2: form Step 2: What is your favorite color? {"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}
        = step2 {"action":"accept","content":{"color":"blue"}}
        < text Multi-round complete for Alice who likes blue
        "#,
    );
}

#[test]
fn only_input_within_the_capabilities_of_the_client_is_requested() {
    check(
        r#"
        can sampling
        > tool test_input_required_result_capabilities {}
        < ask sample_input: sample {"messages":[{"role":"user","content":{"type":"text","text":"Sample request"}}],"maxTokens":50}
        = sample_input {"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}
        < text capabilities-ok: received sample_input
        can sampling elicit_form
        > tool test_input_required_result_capabilities {}
        < ask elicit_input: form Elicitation input {"type":"object","properties":{"value":{"type":"string"}},"required":["value"]}
        < ask sample_input: sample {"messages":[{"role":"user","content":{"type":"text","text":"Sample request"}}],"maxTokens":50}
        can
        > tool test_input_required_result_capabilities {}
        < text No supported capabilities declared
        "#,
    );
}

#[test]
fn a_stream_may_carry_logs_before_the_input_request() {
    check(
        r#"
        > tool test_streaming_elicitation {}
        < progress 50 of 100
        < ask user_name: form What is your name? {"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}
        = user_name {"action":"accept","content":{"name":"Alice"}}
        < progress 50 of 100
        < text Streaming complete, Alice
        "#,
    );
}

#[test]
fn jobs_detach_until_they_are_done() {
    check(
        r#"
        > tool slow_compute {"seconds": 60, "label": "sum"}
        < detached
        < text Computed `sum` in 60 s
        > tool slow_compute {}
        < detached
        < text Computed `` in 0 s
        > tool failing_job {}
        < detached
        < error
        < text The job failed, as it always does
        > tool protocol_error_job {}
        < detached
        < call_error Provider { code: -32603, message: "the job ended in a protocol error, as it always does", data: None }
        "#,
    );
}

#[test]
fn a_job_can_request_input_while_it_runs() {
    check(
        r#"
        > tool confirm_delete {"filename": "a.txt"}
        < detached
        < ask confirm: form Delete a.txt? {"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}
        = confirm {"action":"accept","content":{"confirm":true}}
        < detached
        < text Deleted a.txt
        = confirm {"action":"accept","content":{"confirm":false}}
        < detached
        < text Kept a.txt
        > tool multi_input {}
        < detached
        < ask name: form What is your name? {"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}
        < ask confirm: form Are you sure? {"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}
        = name {"action":"accept","content":{"name":"partial-1","confirm":true}}
        = confirm {"action":"accept","content":{"name":"partial-2","confirm":true}}
        < detached
        < text partial-1 is sure
        "#,
    );
}

#[test]
fn a_job_can_request_input_before_it_detaches() {
    check(
        r#"
        > tool test_tool_with_task {}
        < ask user_name: form What is your name? {"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}
        = user_name {"action":"accept","content":{"name":"Alice"}}
        < detached
        < text Task finished for Alice
        "#,
    );
}

#[test]
fn changes_of_tools_prompts_and_resources_are_reported() {
    let (conformance, heard) = (ConformanceProvider::default(), RecordingListener::default());
    conformance.set_change_listener(Arc::new(heard.clone()));
    let has = |name: &str| {
        let catalog = conformance.catalog();
        catalog.tools.iter().any(|tool| tool.name == name)
            || catalog.prompts.iter().any(|prompt| prompt.name == name)
    };
    let before = (has("test_dynamic_tool"), has("test_dynamic_prompt"));
    run_script(
        &conformance,
        "
        > read test://watched-resource
        < resource test://watched-resource text/plain Watched resource content, edition 0
        > tool test_trigger_tool_change {}
        < text Mutation triggered
        > tool test_dynamic_tool {}
        < text The dynamic tool is here.
        > tool test_trigger_prompt_change {}
        < text Mutation triggered
        > prompt test_dynamic_prompt
        < user text The dynamic prompt is here.
        > tool test_trigger_resource_change {}
        < text Mutation triggered
        > read test://watched-resource
        < resource test://watched-resource text/plain Watched resource content, edition 1
        ",
    );
    assert_eq!(before, (false, false));
    assert_eq!((has("test_dynamic_tool"), has("test_dynamic_prompt")), (true, true));
    let watched = CatalogChange::Resource("test://watched-resource".into());
    assert_eq!(*heard.0.lock().expect("no panic"), [CatalogChange::Tools, CatalogChange::Prompts, watched]);

    run_script(&conformance, "> tool test_trigger_tool_change {}\n< text Mutation triggered");
    assert_eq!((has("test_dynamic_tool"), has("test_dynamic_prompt")), (false, true));
}

#[test]
fn resources_and_templates_can_be_read() {
    check(
        r#"
        > read test://static-text
        < resource test://static-text text/plain This is the content of the static text resource.
        > read test://static-binary
        < blob test://static-binary image/png 96 bytes
        > read test://template/123/data
        < resource test://template/123/data application/json {"id":"123","templateTest":true,"data":"Data for ID: 123"}
        > read test://template//data
        < call_error UnknownItem { kind: Resource, name: "test://template//data" }
        > read test://template/1/2/data
        < call_error UnknownItem { kind: Resource, name: "test://template/1/2/data" }
        > read test://nonexistent
        < call_error UnknownItem { kind: Resource, name: "test://nonexistent" }
        "#,
    );
}

#[test]
fn prompts_use_their_arguments() {
    check(
        r#"
        > prompt test_simple_prompt
        < user text This is a simple prompt for testing.
        > prompt test_prompt_with_arguments {"arg1": "hello", "arg2": "world"}
        < user text Prompt with arguments: arg1='hello', arg2='world'
        > prompt test_prompt_with_embedded_resource {"resourceUri": "test://example-resource"}
        < user resource test://example-resource text/plain Embedded resource content for testing.
        < user text Please process the embedded resource above.
        > prompt test_prompt_with_image
        < user image image/png 96 bytes
        < user text Please analyze the image above.
        > prompt test_input_required_result_prompt
        < ask user_context: form What context should the prompt use? {"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}
        = user_context {"action":"accept","content":{"context":"test context"}}
        < user text Prompt with context: test context
        = user_context {"action":"decline"}
        < user text Prompt with context: none
        > prompt nonesuch
        < call_error UnknownItem { kind: Prompt, name: "nonesuch" }
        "#,
    );
}

#[test]
fn arguments_complete_from_a_prefix() {
    check(
        r#"
        > complete prompt test_prompt_with_arguments arg1 test
        < values test, testing, testValue1 of 3
        > complete prompt test_prompt_with_arguments arg2 x
        < values  of 0
        > complete prompt test_simple_prompt any x
        < values  of 0
        > complete template test://template/{id}/data id 12
        < values 123, 124 of 2
        > complete prompt nonesuch arg1 x
        < call_error UnknownItem { kind: Prompt, name: "nonesuch" }
        > complete template test://nonesuch id 1
        < call_error UnknownItem { kind: Resource, name: "test://nonesuch" }
        "#,
    );
}

#[test]
fn an_unknown_tool_is_an_error() {
    check(
        r#"> tool nonesuch {}
             < call_error UnknownItem { kind: Tool, name: "nonesuch" }"#,
    );
}

#[test]
fn every_tool_and_prompt_has_its_script() {
    let scripts = include_str!("fixtures.rs");
    let catalog = ConformanceProvider::default().catalog();
    let names = catalog.tools.iter().map(|tool| format!("> tool {}", tool.name));
    let names = names.chain(catalog.prompts.iter().map(|prompt| format!("> prompt {}", prompt.name)));
    for name in names {
        assert!(scripts.contains(&name), "no script says `{name}`");
    }
}

#[test]
fn every_listed_item_follows_the_rules_of_the_suite() {
    let catalog = ConformanceProvider::default().catalog();
    for tool in &catalog.tools {
        // The suite's rule for names is stricter than the protocol's.
        assert!(tool.name.len() <= 64 && tool.name.bytes().all(|c| c == b'_' || c.is_ascii_alphanumeric()));
        assert!(tool.description.is_some(), "`{}` has no description", tool.name);
        validator(&tool.input_schema);
    }
    assert!(catalog.prompts.iter().all(|prompt| prompt.description.is_some()));
    assert!(catalog.completions && catalog.logging && catalog.resource_subscriptions && catalog.list_changed);
    let tasks = |wanted| {
        let tools = catalog.tools.iter().filter(move |tool| tool.task_support == wanted);
        tools.map(|tool| tool.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(tasks(TaskSupport::Required), ["failing_job", "test_tool_with_task"]);
    let optional = ["slow_compute", "protocol_error_job", "confirm_delete", "multi_input"];
    assert_eq!(tasks(TaskSupport::Optional), optional);
}

#[test]
fn lookup_customer_returns_the_customer() {
    run_script(
        &BenchProvider::default(),
        r#"
        > tool lookup_customer {"email": "user0@example.com"}
        < structured {"email":"user0@example.com","plan":"free","signup_date":"2016-01-01"}
        > tool lookup_customer {"email": "user4321@example.com"}
        < structured {"email":"user4321@example.com","plan":"emerald","signup_date":"2020-04-24"}
        > tool lookup_customer {"email": "user\u0039999@example.com"}
        < structured {"email":"user9999@example.com","plan":"free","signup_date":"2025-12-26"}
        > tool lookup_customer {"email": "user10000@example.com"}
        < error
        < structured {"code":"not_found","message":"no customer has this address","field":"email","retryable":false}
        "#,
    );
}

#[test]
fn the_other_nine_tools_use_the_same_customers() {
    run_script(
        &BenchProvider::default(),
        r#"
        > tool list_plans
        < structured {"plans":[{"name":"free","monthly_cents":0,"seats":1},{"name":"emerald","monthly_cents":1900,"seats":5},{"name":"ruby","monthly_cents":9900,"seats":50}]}
        > tool get_plan {"plan":"ruby"}
        < structured {"name":"ruby","monthly_cents":9900,"seats":50}
        > tool count_customers {}
        < structured {"count":10000}
        > tool count_customers {"plan":"free"}
        < structured {"count":3334}
        > tool list_customers {"offset":9998,"limit":5}
        < structured {"customers":[{"email":"user9998@example.com","plan":"ruby","signup_date":"2025-12-25"},{"email":"user9999@example.com","plan":"free","signup_date":"2025-12-26"}],"total":10000}
        > tool get_invoice {"email":"user1@example.com","month":"2026-01"}
        < structured {"email":"user1@example.com","month":"2026-01","amount_cents":1900,"currency":"EUR"}
        > tool get_invoice {"email":"user1@example.com","month":"2015-12"}
        < error
        < structured {"code":"not_found","message":"the customer had not signed up yet","field":"month","retryable":false}
        > tool next_renewal {"email":"user27@example.com"}
        < structured {"email":"user27@example.com","day_of_month":10}
        > tool count_signups {"year":2020}
        < structured {"year":2020,"count":1000}
        > tool monthly_revenue {"plan":"ruby"}
        < structured {"amount_cents":32996700,"currency":"EUR"}
        > tool quote_upgrade {"email":"user1@example.com","plan":"ruby"}
        < structured {"email":"user1@example.com","difference_cents":8000,"currency":"EUR"}
        > tool quote_upgrade {"email":"user1@example.com","plan":"opal"}
        < error
        < structured {"code":"not_found","message":"there is no such plan","field":"plan","retryable":false}
        "#,
    );
}

#[test]
fn with_tools_gives_exactly_that_many_tools() {
    let names = |bench: BenchProvider| {
        let catalog = bench.catalog();
        catalog.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(BenchProvider::default()).len(), 10);
    assert_eq!(names(BenchProvider::with_tools(1)), ["lookup_customer"]);
    let many = names(BenchProvider::with_tools(1000));
    assert_eq!((many.len(), many[10].as_str(), many[999].as_str()), (1000, "filler_0000", "filler_0989"));
    run_script(&BenchProvider::with_tools(11), "> tool filler_0000 {}\n< text filler 0000 did nothing");
}

#[track_caller]
fn check(script: &str) {
    run_script(&ConformanceProvider::default(), script);
}

#[derive(Clone, Default)]
struct RecordingListener(Arc<Mutex<Vec<CatalogChange>>>);

impl ChangeListener for RecordingListener {
    fn catalog_changed(&self, change: CatalogChange) {
        self.0.lock().expect("no panic").push(change);
    }
}
