//! The overview of a server as a resource, and nothing else under its address.

use serde_json::json;

use crate::writing::client::{Client, ERAS};

#[tokio::test]
async fn the_overview_is_read_in_every_era() {
    for era in ERAS {
        let mut client = Client::new(era, "[collections.people.fields]\nsecret = { hidden = true }\n");
        let read = client.request("resources/read", &json!({"uri": "spile://overview"})).await;
        let contents = &read["result"]["contents"][0];
        let text = contents["text"].as_str().unwrap_or_else(|| panic!("{era:?}: {read}"));
        assert_eq!(contents["mimeType"], "text/markdown");
        assert!(text.contains("\n## people\n") && text.contains("\n- id: text, key\n"), "{era:?}: {text}");
        assert!(!text.contains("secret"), "{era:?}: {text}");
        for unknown in ["spile://overview/people", "spile://overview/", "spile://overviews"] {
            let read = client.request("resources/read", &json!({"uri": unknown})).await;
            let message = read["error"]["message"].as_str().unwrap_or_else(|| panic!("{era:?}: {read}"));
            assert_eq!(message, format!("unknown resource `{unknown}`"), "{era:?}: everything fits");
        }
    }
}
