use super::document::Document;
use super::{import_chosen, operations};

/// A document with these paths.
fn document(paths: &str) -> Document {
    let text = format!(
        r##"{{"openapi":"3.1.0","info":{{"title":"Pet Shop API"}},"servers":[{{"url":"https://{{host}}/v1/","variables":{{"host":{{"default":"api.example.com"}}}}}}],
        "components":{{"securitySchemes":{{"key":{{"type":"apiKey","in":"header","name":"X-Key"}}}},
          "parameters":{{"Id":{{"name":"pet-id","in":"path","required":true,"schema":{{"type":"integer"}}}}}},
          "schemas":{{
            "Base":{{"type":"object","required":["name"],"properties":{{"name":{{"type":"string"}},"id":{{"type":"integer","readOnly":true}}}}}},
            "Pet":{{"allOf":[{{"$ref":"#/components/schemas/Base"}},{{"properties":{{"tag":{{"type":["string","null"]}},"parent":{{"$ref":"#/components/schemas/Pet"}}}}}}]}},
            "Loop":{{"$ref":"#/components/schemas/Loop"}}}}}},
        "paths":{{{paths}}}}}"##
    );
    Document::parse(text.into_bytes(), None).expect("a document")
}

/// The manifest of all operations, and the reasons of those that are refused.
fn imported(document: &Document) -> (String, Vec<String>) {
    let operations = operations::list(document);
    let chosen: Vec<&operations::Operation> = operations.iter().collect();
    let imported = import_chosen(document, &chosen, None);
    let refused =
        imported.refused.iter().map(|(operation, reason)| format!("{}: {reason}", operation.id)).collect();
    (imported.manifest, refused)
}

#[test]
fn operations_become_readable_tools() {
    let document = document(
        r##""/pets/{pet-id}":{"parameters":[{"$ref":"#/components/parameters/Id"}],
          "get":{"operationId":"getPetById","summary":"Get a pet.","description":"Get a pet.\n\nLong story."},
          "put":{"operationId":"updatePet","summary":"Change a pet","requestBody":{"required":true,"content":{"application/json":{"schema":{"$ref":"#/components/schemas/Pet"}}}}},
          "delete":{"operationId":"deletePet","summary":"Remove <b>a pet</b>"}},
        "/pets":{"get":{"operationId":"listPets","tags":["pets"],"parameters":[
            {"name":"status","in":"query","schema":{"type":"string","enum":["sold","free"]}},
            {"name":"tags","in":"query","schema":{"type":"array","items":{"type":"string"}},"explode":false},
            {"name":"filter[since]","in":"query","schema":{"type":"string","format":"date"}},
            {"name":"id_or_name","in":"query","schema":{"oneOf":[{"type":"integer"},{"$ref":"#/components/parameters/Id/schema"},{"enum":["all"]}]}},
            {"name":"since","in":"header","schema":{"type":["string","number"]}},
            {"name":"deep","in":"query","style":"deepObject","schema":{"type":"object"}},
            {"name":"session","in":"cookie","schema":{"type":"string"}}]}}"##,
    );
    let (manifest, refused) = imported(&document);
    assert_eq!(refused, [] as [String; 0]);
    let expected = r##"[sources.pet_shop_api]
kind = "rest"
url = "https://api.example.com/v1"
auth = { header = { name = "X-Key", value = "${PET_SHOP_API_KEY}" } }

[tools.get_pet_by_id]
source = "pet_shop_api"
description = "Get a pet."
request = { method = "GET", path = "/pets/{pet_id}" }
[tools.get_pet_by_id.arguments]
pet_id = { type = "integer" }

[tools.update_pet]
source = "pet_shop_api"
description = "Change a pet"
request = { method = "PUT", path = "/pets/{pet_id}" }
[tools.update_pet.arguments]
pet_id = { type = "integer" }
"##;
    let (_, written) = manifest.split_once("\n\n").expect("a comment");
    assert!(written.starts_with(expected), "{written}");
    for line in [
        "tag = { type = \"string\", required = false }",
        "parent = { type = \"json\", required = false }",
        "name = { type = \"string\" }",
        "confirm = \"ask\"",
        "description = \"Remove a pet\"",
        "query = { status = \"{status}\", tags = \"{tags|csv}\", \"filter[since]\" = \"{filter_since}\", id_or_name = \"{id_or_name}\" }",
        "headers = { since = \"{since}\" }",
        "id_or_name = { type = \"string\", required = false }",
        "status = { type = \"string\", enum = [\"sold\", \"free\"], required = false }",
        "filter_since = { type = \"date\", required = false }",
        "# the parameter `deep` is left out: it has the style `deepObject`, which is not supported",
        "# the parameter `session` is left out: it is a cookie",
    ] {
        assert!(written.contains(line), "{line}\n{written}");
    }
    assert!(!written.contains("\nid = "), "read-only members are not arguments");
}

#[test]
fn required_members_that_may_be_null_take_null() {
    let document = document(
        r##""/moves":{"post":{"operationId":"move","requestBody":{"required":true,"content":{"application/json":{"schema":{
          "required":["a","b","c","d","e","f"],"properties":{
            "a":{"type":"string","nullable":true},
            "b":{"type":["integer","null"]},
            "c":{"anyOf":[{"type":"string","enum":["x"]},{"type":"null"}]},
            "d":{"type":"string"},
            "e":{"type":"string","nullable":false},
            "f":{"type":["object","null"]},
            "g":{"type":["string","null"]}}}}}}}}"##,
    );
    let (manifest, refused) = imported(&document);
    assert_eq!(refused, [] as [String; 0]);
    let (_, arguments) = manifest.split_once("[tools.move.arguments]\n").expect("arguments");
    assert_eq!(
        arguments,
        r#"a = { type = "string", nullable = true }
b = { type = "integer", nullable = true }
c = { type = "string", enum = ["x"], nullable = true }
d = { type = "string" }
e = { type = "string" }
f = { type = "json" }
g = { type = "string", required = false }
"#
    );
}

#[test]
fn what_cannot_be_imported_has_a_reason() {
    let operation = |id: &str, rest: &str| format!(r#""/{id}":{{"post":{{"operationId":"{id}",{rest}}}}}"#);
    let body = |media: &str| {
        format!(
            r#""requestBody":{{"required":true,"content":{{"{media}":{{"schema":{{"type":"object"}}}}}}}}"#
        )
    };
    let paths = [
        operation("upload", &body("multipart/form-data")),
        operation("xml", &body("application/xml")),
        operation("form", &body("application/x-www-form-urlencoded")),
        operation(
            "cookie",
            r#""parameters":[{"name":"s","in":"cookie","required":true,"schema":{"type":"string"}}]"#,
        ),
        operation("other", r#""parameters":[{"$ref":"other.json#/p"}]"#),
        operation("missing", r##""parameters":[{"$ref":"#/components/parameters/None"}]"##),
        operation(
            "circle",
            r##""requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/Loop"}}}}"##,
        ),
        operation("host", r#""servers":[{"url":"https://upload.example.com"}]"#),
        r#""/open/{id}":{"get":{"operationId":"open"}}"#.to_owned(),
        r#""/query?x=1":{"get":{"operationId":"query"}}"#.to_owned(),
    ];
    let (manifest, refused) = imported(&document(&paths.join(",")));
    assert!(!manifest.contains("[tools."), "{manifest}");
    assert_eq!(
        refused,
        [
            "upload: its body is multipart/form-data, which is not supported",
            "xml: its body is application/xml, which is not supported",
            "form: its form has no declared members",
            "cookie: its parameter `s` is a cookie",
            "other: it refers to another document (`other.json#/p`)",
            "missing: it refers to `/components/parameters/None`, which does not exist",
            "circle: its references lead in a circle",
            "host: its operation has a server of its own",
            "open: its path has the parameter `id`, which is not declared",
            "query: the path has a query",
        ]
    );
}

#[test]
fn documents_are_json_or_yaml_of_the_versions_that_are_known() {
    let yaml = "openapi: 3.0.3\ninfo: {title: T}\npaths:\n  /a:\n    get:\n      operationId: a\n      responses: {'200': {description: ok}}\n";
    let document = Document::parse(yaml.into(), None).expect("YAML");
    assert_eq!(operations::list(&document).len(), 1);
    for (text, expected) in [
        ("{", "not valid JSON"),
        ("openapi: [", "not valid YAML"),
        ("a: &x 1\nb: *x\n", "not valid YAML"),
        (r#"{"swagger":"2.0"}"#, "Swagger 2.0"),
        (r#"{"openapi":"4.0.0"}"#, "OpenAPI 4.0.0"),
        ("{}", "has no `openapi`"),
    ] {
        let error =
            Document::parse(text.into(), None).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
