//! Type inference and writing never change a value.

use contract::field::{Field, SchemaUse};
use contract::infer::TypeInference;
use contract::{CompiledSchema, DataType, ValueRef};
use json::Json;
use proptest::prelude::*;

/// Numbers in many spellings, dates and invalid dates, words.
fn cell() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        (-1000_i64..1000).prop_map(|n| n.to_string()),
        "-?[0-9]{1,20}",
        "-?[0-9]{1,12}\\.[0-9]{1,8}",
        "[0-9]{4}-[0-9]{2}-[0-9]{2}",
        "20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])",
        "20[0-9]{2}-0[1-9]-1[0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,3})?(Z|\\+0[0-9]:00)?",
        "(true|false|TRUE|yes|no|1|0)",
        "(|NaN|Infinity|-0|1e5|\\+1|007|1,5| 1|1 )",
        any::<String>(),
    ]
}

/// A column of mostly one type: others would always be inferred as text.
fn column() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        prop::collection::vec(cell(), 0..6),
        prop::collection::vec("-?[1-9][0-9]{0,18}", 1..6),
        prop::collection::vec("(0|-?[1-9][0-9]{0,5})(\\.[0-9]{1,4})?", 1..6),
        prop::collection::vec("20[0-9]{2}-0[1-9]-1[0-9]", 1..6),
        prop::collection::vec("(true|false)", 1..6),
    ]
}

proptest! {
    #[test]
    fn an_inferred_type_prints_every_text_back(texts in column()) {
        let mut inference = TypeInference::default();
        texts.iter().for_each(|text| inference.observe(0, text));
        let kind = inference.data_type();
        let field = Field::new("f", "f", kind);
        let schema = Json::object(|o| field.write_schema(o, SchemaUse::Output, None));
        let check = CompiledSchema::compile(&schema).expect("a schema");
        for text in &texts {
            let mut out = Vec::new();
            field.write_value(&mut out, ValueRef::Text(text)).expect("the kind was found in these very texts");
            let told = Json::from_written_bytes(out);
            prop_assert!(check.is_valid(&told), "{kind:?}: {told}");
            let doc = told.to_doc();
            let back = doc.root().str().map_or_else(|| told.as_str().to_owned(), |text| text.into_owned());
            prop_assert_eq!(&back, text, "{:?}", kind);
        }
    }

    /// The input schema accepts a value that was read.
    #[test]
    fn a_value_that_was_read_matches_a_filter_for_itself(texts in column()) {
        let mut inference = TypeInference::default();
        texts.iter().for_each(|text| inference.observe(0, text));
        let field = Field::new("f", "f", inference.data_type());
        let schema = Json::object(|o| field.write_schema(o, SchemaUse::Lookup, None));
        let check = CompiledSchema::compile(&schema).expect("a schema");
        for text in &texts {
            let mut out = Vec::new();
            field.write_value(&mut out, ValueRef::Text(text)).expect("the kind was found in these very texts");
            let told = Json::from_written_bytes(out);
            prop_assert!(check.is_valid(&told), "{:?}: {} by {}", inference.data_type(), told, schema);
        }
    }

    #[test]
    fn a_value_of_another_type_is_never_written(kind in 0..DataType::ALL.len(), text in cell()) {
        let field = Field::new("f", "f", DataType::ALL[kind]);
        let schema = Json::object(|o| field.write_schema(o, SchemaUse::Output, None));
        let check = CompiledSchema::compile(&schema).expect("a schema");
        let mut out = Vec::new();
        if field.write_value(&mut out, ValueRef::Text(&text)).is_ok() {
            let told = Json::from_written_bytes(out);
            prop_assert!(check.is_valid(&told), "{:?}: {}", field.data_type, told);
        }
    }
}
