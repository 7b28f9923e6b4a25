//! Lists that were cut, read as a whole through the link in their result.

use serde_json::{Value, json};

use crate::writing::client::{Client, ERAS, Era};

/// Five people and 200 with the same name; a page holds two, and their secrets are never returned.
fn people(era: Era) -> Client {
    let client = Client::new(
        era,
        "rows_max = 2\nfilters = [\"name\"]\n[collections.people.fields]\nsecret = { hidden = true }\n",
    );
    for (id, name) in [("c", "Cem"), ("a", "Ada, \"the\" first"), ("b", "Bea"), ("e", "Bea"), ("d", "Bea")] {
        client.table.insert_person(id, name);
    }
    // Only a list with very many rows has a link.
    for number in 0..200 {
        client.table.insert_person(&format!("A{number:03}"), "Zoe");
    }
    client
}

async fn list(client: &mut Client, arguments: Value) -> Value {
    let response =
        client.request("tools/call", &json!({"name": "list_people", "arguments": arguments})).await;
    response["result"].clone()
}

/// The URI in the result of a list, if it has one.
fn link(result: &Value) -> Option<String> {
    let blocks = result["content"].as_array().expect("blocks");
    let block = blocks.iter().find(|block| block["type"] == "resource_link")?;
    assert_eq!((&block["mimeType"], &block["name"]), (&json!("text/csv"), &json!("people.csv")));
    Some(block["uri"].as_str().expect("a URI").to_owned())
}

/// The text of an export, or code and message of the error.
async fn read(client: &mut Client, uri: &str) -> Result<String, String> {
    let response = client.request("resources/read", &json!({"uri": uri})).await;
    match &response["error"] {
        Value::Null => {
            let contents = &response["result"]["contents"];
            assert_eq!(contents[0]["uri"], uri);
            Ok(contents[0]["text"].as_str().expect("a text").to_owned())
        }
        error => Err(format!("{} {}", error["code"], error["message"].as_str().unwrap_or_default())),
    }
}

#[tokio::test]
async fn a_list_that_was_cut_can_be_read_whole() {
    for era in ERAS {
        let mut client = people(era);
        let result = list(&mut client, json!({"fields": ["id", "name"], "sort": "-id", "limit": 1})).await;
        assert_eq!(result["structuredContent"]["items"].as_array().map(Vec::len), Some(1));
        let uri = link(&result).expect("it was cut");
        let csv =
            "id,name\r\ne,Bea\r\nd,Bea\r\nc,Cem\r\nb,Bea\r\na,\"Ada, \"\"the\"\" first\"\r\nA199,Zoe\r\n";
        let all = read(&mut client, &uri).await.expect("an export");
        assert!(all.starts_with(csv), "{era:?}: {all}");
        let lines = read(&mut client, &uri.replace(".csv", ".jsonl")).await.expect("an export");
        assert_eq!(lines.lines().count(), 205);
        assert!(lines.starts_with("{\"id\":\"e\",\"name\":\"Bea\"}\n"), "{lines}");
        let uri = link(&list(&mut client, json!({"name": "Zoe"})).await).expect("it was cut");
        let all = read(&mut client, &uri).await.expect("an export");
        assert_eq!(all.lines().count(), 1 + 200, "the filter applies");
        assert!(all.starts_with("id,name,age,") && !all.contains("secret"), "{all}");
    }
}

#[tokio::test]
async fn only_the_first_page_of_a_list_that_was_cut_has_a_link() {
    let mut client = people(Era::Newest);
    let first = list(&mut client, json!({})).await;
    assert!(link(&first).is_some());
    let cursor = first["structuredContent"]["nextCursor"].clone();
    let second = list(&mut client, json!({"cursor": cursor})).await;
    assert!(second["structuredContent"]["nextCursor"].is_string() && link(&second).is_none());
    assert!(link(&list(&mut client, json!({"name": "Bea"})).await).is_none(), "a few rows are read in pages");
    let long = "x".repeat(600);
    assert!(link(&list(&mut client, json!({"name": long})).await).is_none());
}

#[tokio::test]
async fn a_link_is_for_its_principal_and_for_a_quarter_of_an_hour() {
    for era in ERAS {
        let mut client = people(era);
        client.become_user("ada");
        let uri = link(&list(&mut client, json!({})).await).expect("it was cut");
        let unknown = |uri: &str| Err(format!("unknown resource `{uri}`"));
        let message = |result: Result<String, String>| {
            result.map_err(|error| error.split_once(' ').expect("a code").1.to_owned())
        };
        client.become_user("bob");
        assert_eq!(message(read(&mut client, &uri).await), unknown(&uri), "another principal");
        client.become_user("ada");
        let invented = uri.replace("export/", "export/A");
        assert_eq!(message(read(&mut client, &invented).await), unknown(&invented));
        let other_format = uri.replace(".csv", ".xlsx");
        assert_eq!(message(read(&mut client, &other_format).await), unknown(&other_format));
        client.platform.advance_ms(15 * 60 * 1000 - 1);
        assert!(read(&mut client, &uri).await.is_ok());
        client.platform.advance_ms(1);
        let expired = "`params`: the export has expired; call list_people again for a new link".to_owned();
        assert_eq!(message(read(&mut client, &uri).await), Err(expired));
    }
}

#[tokio::test]
async fn an_export_has_the_rows_of_the_moment_and_fails_as_a_list_does() {
    let mut client = people(Era::Newest);
    let uri = link(&list(&mut client, json!({"fields": ["id"]})).await).expect("it was cut");
    client.table.insert_person("f", "Fay");
    assert_eq!(read(&mut client, &uri).await.expect("an export").lines().count(), 1 + 206);
    for at in 0..100_001 {
        client.table.insert_person(&format!("x{at}"), "X");
    }
    let list = list(&mut client, json!({"fields": ["id"]})).await;
    assert_eq!(link(&list), None, "a link could only fail");
    let last = list["content"].as_array().and_then(|blocks| blocks.last()).expect("a block");
    assert_eq!(
        last["text"],
        "An export has at most 100000 rows, so there is no link to all of these; add filters, or ask for an aggregate."
    );
    let error = read(&mut client, &uri).await.expect_err("too many rows");
    assert!(
        error.contains("this exceeds the limit of an export, 100000 rows; narrow its filters"),
        "{error}"
    );
}
