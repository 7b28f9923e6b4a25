//! A whole list as one text: CSV, or one JSON object per line.

use super::{RecordError, write_object};
use crate::field::{Field, TypeMismatch};
use crate::source::RowFlow;
use crate::value::ValueRef;

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// With a header line, as RFC 4180 describes it. A field that is empty without quotes has no value.
    Csv,
    /// Values as results have them.
    JsonLines,
}

impl ExportFormat {
    pub const ALL: [Self; 2] = [Self::Csv, Self::JsonLines];

    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
        }
    }

    pub fn mime_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv",
            Self::JsonLines => "application/jsonl",
        }
    }
}

/// Collects rows up to limits. For any rows that have fields: of a list, or of groups.
pub struct ExportWriter<'f> {
    /// The fields to write, with their positions in a row.
    fields: Vec<(usize, &'f Field)>,
    format: ExportFormat,
    out: Vec<u8>,
    rows: usize,
    limits: ExportLimits,
    error: Option<ExportError>,
}

#[derive(Debug, Clone, Copy)]
pub struct ExportLimits {
    pub rows_max: usize,
    pub bytes_max: usize,
}

/// Why there is no export: a part of one would pass for the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportError {
    TooManyRows,
    TooManyBytes,
    Record(RecordError),
}

impl<'f> ExportWriter<'f> {
    pub fn new(fields: Vec<(usize, &'f Field)>, format: ExportFormat, limits: ExportLimits) -> Self {
        let mut writer = Self { fields, format, out: Vec::new(), rows: 0, limits, error: None };
        match format {
            ExportFormat::Csv => {
                for (at, (_, field)) in writer.fields.iter().enumerate() {
                    if at > 0 {
                        writer.out.push(b',');
                    }
                    write_csv_text(&mut writer.out, field.name.as_bytes());
                }
                writer.out.extend_from_slice(b"\r\n");
            }
            ExportFormat::JsonLines => {}
        }
        writer
    }

    pub fn push(&mut self, cells: &[ValueRef<'_>]) -> RowFlow {
        let written = match self.format {
            _ if self.rows == self.limits.rows_max => Err(ExportError::TooManyRows),
            ExportFormat::Csv => self.write_csv(cells).map_err(mismatch),
            ExportFormat::JsonLines => {
                let members = self.fields.iter().map(|(at, field)| (*field, cells[*at]));
                write_object(&mut self.out, members).map_err(mismatch).inspect(|()| self.out.push(b'\n'))
            }
        };
        let is_too_long = self.out.len() > self.limits.bytes_max;
        let written = if is_too_long { written.and(Err(ExportError::TooManyBytes)) } else { written };
        match written {
            Ok(()) => {
                self.rows += 1;
                RowFlow::Continue
            }
            Err(error) => {
                self.error = Some(error);
                RowFlow::Stop
            }
        }
    }

    fn write_csv(&mut self, cells: &[ValueRef<'_>]) -> Result<(), &'f Field> {
        let mut json = Vec::new();
        for (position, (at, field)) in self.fields.iter().enumerate() {
            if position > 0 {
                self.out.push(b',');
            }
            json.clear();
            field.write_value(&mut json, cells[*at]).map_err(|TypeMismatch| *field)?;
            match (json.as_slice(), cells[*at]) {
                (b"null", ValueRef::Null) => {}
                ([b'"', ..], ValueRef::Text(text)) => write_csv_text(&mut self.out, text.as_bytes()),
                // Digits and base64, which need no escapes.
                ([b'"', text @ .., b'"'], _) => write_csv_text(&mut self.out, text),
                (json, _) => write_csv_text(&mut self.out, json),
            }
        }
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    pub fn finish(self) -> Result<String, ExportError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(String::from_utf8(self.out).expect("names, texts and JSON are UTF-8")),
        }
    }
}

fn mismatch(field: &Field) -> ExportError {
    let (field, row) = (field.name.clone(), "in an export".to_owned());
    ExportError::Record(RecordError::TypeMismatch { field, row })
}

/// In quotes where it must be, and where it is empty: an empty text is a value.
fn write_csv_text(out: &mut Vec<u8>, text: &[u8]) {
    let is_special = |byte: &u8| matches!(byte, b',' | b'"' | b'\n' | b'\r');
    let is_padded = text.first() == Some(&b' ') || text.last() == Some(&b' ');
    if !text.is_empty() && !is_padded && !text.iter().any(is_special) {
        return out.extend_from_slice(text);
    }
    out.push(b'"');
    for byte in text {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::{ExportError, ExportFormat, ExportLimits, ExportWriter};
    use crate::data_type::DataType;
    use crate::field::Field;
    use crate::source::RowFlow;
    use crate::value::ValueRef;

    const LIMITS: ExportLimits = ExportLimits { rows_max: 10, bytes_max: 1000 };

    fn fields() -> Vec<Field> {
        let mut fields = vec![
            Field::new("id", "id", DataType::Int64),
            Field::new("a \"note\"", "note", DataType::Text),
            Field::new("price", "price", DataType::Number),
            Field::new("more", "more", DataType::Json),
        ];
        fields[1..].iter_mut().for_each(|field| field.nullable = true);
        fields
    }

    fn export(
        format: ExportFormat,
        limits: ExportLimits,
        rows: &[[ValueRef<'_>; 4]],
    ) -> Result<String, ExportError> {
        let fields = fields();
        let mut writer = ExportWriter::new(fields.iter().enumerate().collect(), format, limits);
        for row in rows {
            if writer.push(row) == RowFlow::Stop {
                break;
            }
        }
        writer.finish()
    }

    const ROWS: [[ValueRef<'_>; 4]; 3] = [
        [
            ValueRef::Integer(9_007_199_254_740_993),
            ValueRef::Text("a, \"b\"\nc"),
            ValueRef::Real(0.1),
            ValueRef::Text(r#"{"k": [1, "x"]}"#),
        ],
        [ValueRef::Integer(2), ValueRef::Text(""), ValueRef::Null, ValueRef::Null],
        [ValueRef::Integer(-3), ValueRef::Text(" =1+1"), ValueRef::Integer(7), ValueRef::Text("null")],
    ];

    #[test]
    fn csv_distinguishes_no_value_from_an_empty_text() {
        let expected = "id,\"a \"\"note\"\"\",price,more\r\n\
                        9007199254740993,\"a, \"\"b\"\"\nc\",0.1,\"{\"\"k\"\":[1,\"\"x\"\"]}\"\r\n\
                        2,\"\",,\r\n\
                        -3,\" =1+1\",7,null\r\n";
        assert_eq!(export(ExportFormat::Csv, LIMITS, &ROWS).as_deref(), Ok(expected));
    }

    #[test]
    fn json_lines_have_the_values_of_results() {
        let expected = concat!(
            r#"{"id":"9007199254740993","a \"note\"":"a, \"b\"\nc","price":0.1,"more":{"k":[1,"x"]}}"#,
            "\n",
            r#"{"id":"2","a \"note\"":"","price":null,"more":null}"#,
            "\n",
            r#"{"id":"-3","a \"note\"":" =1+1","price":7,"more":null}"#,
            "\n",
        );
        assert_eq!(export(ExportFormat::JsonLines, LIMITS, &ROWS).as_deref(), Ok(expected));
    }

    #[test]
    fn an_export_is_whole_or_an_error() {
        for format in ExportFormat::ALL {
            let rows = ExportLimits { rows_max: 2, ..LIMITS };
            assert_eq!(export(format, rows, &ROWS), Err(ExportError::TooManyRows));
            let bytes = ExportLimits { bytes_max: 100, ..LIMITS };
            assert_eq!(export(format, bytes, &ROWS), Err(ExportError::TooManyBytes));
            assert!(export(format, LIMITS, &[[ValueRef::Null; 4]]).is_err(), "`id` has no null");
        }
    }
}
