//! What identifies the plan of a column, for the key of an import. The key outlives the process, so it is made of bytes that a later
//! build writes, too.

use contract::DataType;
use contract::column_format::ColumnFormat;

use crate::snapshot_reader::column_lookup::Requirement;

/// The parts of a plan that every format has, as bytes.
pub(crate) struct PlanIdentity<'p> {
    pub(crate) position: usize,
    pub(crate) name: &'p str,
    pub(crate) data_type: DataType,
    pub(crate) mixed: bool,
    pub(crate) null_texts: &'p [String],
    pub(crate) format: Option<&'p ColumnFormat>,
    pub(crate) requirement: Requirement,
}

impl PlanIdentity<'_> {
    pub(crate) fn write(&self, part: &mut dyn FnMut(&[u8])) {
        let Self { position, name, data_type, mixed, null_texts, format, requirement } = self;
        part(&(*position as u64).to_be_bytes());
        part(name.as_bytes());
        part(data_type.as_str().as_bytes());
        part(&[u8::from(*mixed), requirement.code()]);
        part(&(null_texts.len() as u64).to_be_bytes());
        null_texts.iter().for_each(|text| part(text.as_bytes()));
        // As a manifest says it: two formats never have the same text.
        part(format.map_or("", |format| format.key()).as_bytes());
        part(format.map(|format| format.to_string()).unwrap_or_default().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use contract::DataType;
    use contract::column_format::{BooleanFormat, ColumnFormat};

    use super::PlanIdentity;
    use crate::snapshot_reader::column_lookup::Requirement;

    fn parts(plan: &PlanIdentity<'_>) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        plan.write(&mut |part| parts.push(part.to_vec()));
        parts
    }

    #[test]
    fn plans_that_differ_have_different_identities() {
        let (nothing, dash) = ([], ["-".to_owned()]);
        let format = ColumnFormat::Boolean(BooleanFormat::new("yes", "no").expect("two words"));
        let plan = || PlanIdentity {
            position: 1,
            name: "total",
            data_type: DataType::Integer,
            mixed: false,
            null_texts: &nothing,
            format: None,
            requirement: Requirement::Value,
        };
        let all = [
            plan(),
            PlanIdentity { position: 2, ..plan() },
            PlanIdentity { name: "sum", ..plan() },
            PlanIdentity { data_type: DataType::Int64, ..plan() },
            PlanIdentity { mixed: true, ..plan() },
            PlanIdentity { null_texts: &dash, ..plan() },
            PlanIdentity { format: Some(&format), ..plan() },
            PlanIdentity { requirement: Requirement::Optional, ..plan() },
            PlanIdentity { requirement: Requirement::Key, ..plan() },
        ];
        for (at, one) in all.iter().enumerate() {
            for other in &all[..at] {
                assert_ne!(parts(one), parts(other), "case {at}");
            }
        }
        let expected: [&[u8]; 7] =
            [&[0, 0, 0, 0, 0, 0, 0, 1], b"total", b"integer", &[0, 1], &[0; 8], b"", b""];
        assert_eq!(parts(&all[0]), expected);
    }
}
