//! Arguments that a client repeats in HTTP headers, for the server.

use json::Json;
pub use spile_core::HeaderParam;

use crate::validate::SchemaError;

/// All `x-mcp-header` annotations of a schema. An error if one breaks a rule of 2026-07-28, Schema Extension.
pub fn header_params(schema: &Json) -> Result<Vec<HeaderParam>, SchemaError> {
    HeaderParam::read_all(schema.to_doc().root()).map_err(|error| SchemaError(error.to_string()))
}
