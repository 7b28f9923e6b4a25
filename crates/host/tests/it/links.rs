//! How many questions a call with links asks of the source.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::writing::client::{Client, ERAS, Era};

/// So many people, each with a name of their own; a link leads to all who have it.
fn people(era: Era, count: usize) -> Client {
    let client = Client::new(
        era,
        "rows_max = 50\n[collections.people.related.namesakes]\ncollection = 'people'\nby = { name = 'name' }\n",
    );
    for number in 0..count {
        client.table.insert_person(&format!("p{number:03}"), &format!("Name {number}"));
    }
    client
}

#[tokio::test]
async fn included_rows_of_a_page_are_read_at_once() {
    for era in ERAS {
        for (rows, operation) in
            [(1, "list_people"), (7, "list_people"), (50, "list_people"), (50, "search_people")]
        {
            let mut client = people(era, rows);
            let arguments = match operation {
                "list_people" => json!({"include": "namesakes", "fields": ["id"], "limit": 50}),
                _ => json!({"query": "Name", "include": "namesakes", "fields": ["id"], "limit": 50}),
            };
            let params = json!({"name": operation, "arguments": arguments});
            let response = client.request("tools/call", &params).await;
            let items = response["result"]["structuredContent"]["items"].as_array().expect("rows").clone();
            assert_eq!(items.len(), rows, "{era:?} {response}");
            assert!(items.iter().all(|item| item["namesakes"]["total"] == 1), "{era:?} {response}");
            // The page and its linked rows. A search is not counted, but asks first whether its caller may list people.
            assert_eq!(client.table.reads.load(Ordering::SeqCst), 2, "{era:?}, {rows} rows, {operation}");
        }
    }
}
