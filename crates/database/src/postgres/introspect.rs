//! Reads the catalog of PostgreSQL.

use std::collections::HashMap;

use contract::source::ForeignKey;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};

use super::dialect::PostgresDialect;
use super::text_vector::TextVector;
use crate::column::Storage;
use crate::dialect::{Dialect, TABLE_ALIAS};
use crate::idempotency;
use crate::options::CallerMode;
use crate::schema::{Collation, ColumnInfo, RoleInfo, Schema, TableInfo, TextIndexKind};

/// With the collation that texts of the database are ordered by, as far as it is one of libc, or one of the server itself, which are
/// those of bytes.
const ROLE: &str = "SELECT current_user::text, r.rolsuper, r.rolcreaterole OR r.rolcreatedb, r.rolbypassrls, \
    pg_catalog.current_setting('server_version'), \
    CASE pg_catalog.to_jsonb(d) ->> 'datlocprovider' WHEN 'i' THEN '' WHEN 'b' THEN 'C' ELSE d.datcollate::text END, \
    has_database_privilege(current_database(), 'CREATE') \
    FROM pg_catalog.pg_roles r, pg_catalog.pg_database d \
    WHERE r.rolname = current_user AND d.datname = current_database()";
/// Those whose rights count: that of the connection, or every role that it may change to.
const ROLES: &str = "SELECT oid FROM pg_catalog.pg_roles \
    WHERE CASE WHEN $1 THEN pg_has_role(oid, 'MEMBER') AND NOT rolsuper AND NOT rolbypassrls ELSE rolname = current_user END";
/// Roles that the role of the connection may change to.
const MEMBERSHIPS: &str = "SELECT r.oid, r.rolname::text, r.rolsuper FROM pg_catalog.pg_roles own, pg_catalog.pg_roles r \
    WHERE own.rolname = current_user AND (r.oid = own.oid OR NOT own.rolsuper AND pg_has_role(r.oid, 'MEMBER')) ORDER BY r.rolname";
/// Roles of the server that write without a grant, or beside the database.
const WRITING_ROLES: [&str; 3] = ["pg_execute_server_program", "pg_write_all_data", "pg_write_server_files"];
/// Tables that one of these roles may write to, served or not: the first one, and how many there are.
const WRITABLE_TABLES: &str = "SELECT CASE WHEN pg_catalog.pg_table_is_visible(c.oid) THEN c.relname::text ELSE n.nspname || '.' || c.relname END, \
    count(*) OVER () FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' \
    AND c.relname <> '_spile_idempotency' AND EXISTS (SELECT FROM unnest($1::oid[]) r \
    WHERE has_schema_privilege(r, n.oid, 'USAGE') AND (c.relowner = r OR has_any_column_privilege(r, c.oid, 'INSERT, UPDATE') \
    OR has_table_privilege(r, c.oid, 'DELETE, TRUNCATE'))) \
    ORDER BY pg_catalog.pg_table_is_visible(c.oid) DESC, n.nspname, c.relname LIMIT 1";
/// Schemas in which one of these roles may create tables.
const WRITABLE_SCHEMAS: &str = "SELECT n.nspname::text FROM pg_catalog.pg_namespace n WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' \
    AND EXISTS (SELECT FROM unnest($1::oid[]) r WHERE has_schema_privilege(r, n.oid, 'CREATE')) ORDER BY n.nspname";
/// A table that another one hides in the search path needs its schema.
const TABLES: &str = "SELECT c.oid, n.nspname::text, c.relname::text, c.relkind::text, \
    pg_catalog.obj_description(c.oid, 'pg_class'), c.reltuples::float8, \
    (SELECT bool_or(has_any_column_privilege(r, c.oid, 'INSERT')) FROM unnest($2::oid[]) r), \
    (SELECT bool_or(has_any_column_privilege(r, c.oid, 'UPDATE')) FROM unnest($2::oid[]) r), \
    (SELECT bool_or(has_table_privilege(r, c.oid, 'DELETE')) FROM unnest($2::oid[]) r), \
    pg_catalog.pg_table_is_visible(c.oid), \
    c.relrowsecurity AND (c.relforcerowsecurity OR NOT pg_has_role(c.relowner, 'USAGE')) \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition \
    AND n.nspname = ANY(CASE WHEN cardinality($1::text[]) = 0 THEN pg_catalog.current_schemas(false)::text[] ELSE $1::text[] END) \
    AND c.relname <> '_spile_idempotency' AND EXISTS (SELECT FROM unnest($2::oid[]) r \
    WHERE has_schema_privilege(r, n.oid, 'USAGE') AND has_any_column_privilege(r, c.oid, 'SELECT')) \
    ORDER BY pg_catalog.pg_table_is_visible(c.oid) DESC, n.nspname, c.relname";
const COLUMNS: &str = "SELECT a.attrelid, a.attnum, a.attname::text, a.atttypid, \
    pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef, a.attidentity::text, \
    a.attgenerated::text, a.attcollation, l.collisdeterministic, pg_catalog.col_description(a.attrelid, a.attnum) \
    FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation \
    WHERE a.attrelid = ANY($1) AND a.attnum > 0 AND NOT a.attisdropped \
    AND EXISTS (SELECT FROM unnest($2::oid[]) r WHERE has_column_privilege(r, a.attrelid, a.attnum, 'SELECT')) \
    ORDER BY a.attrelid, a.attnum";
const TYPES: &str =
    "SELECT oid, typtype::text, typcategory::text, typbasetype, typnotnull FROM pg_catalog.pg_type";
/// What is unique in a table is not so in the tables that inherit from it, whose rows it has, too; partitions are different.
const UNIQUE: &str = "SELECT i.indrelid, i.indisprimary, (i.indkey::int2[])[0:i.indnkeyatts - 1], \
    (SELECT relname::text FROM pg_catalog.pg_class WHERE oid = i.indexrelid) FROM pg_catalog.pg_index i WHERE i.indrelid = ANY($1) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL \
    AND i.indexprs IS NULL AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits h JOIN pg_catalog.pg_class c ON c.oid = h.inhparent \
    WHERE c.oid = i.indrelid AND c.relkind = 'r') ORDER BY i.indrelid, i.indisprimary DESC, i.indexrelid";
/// Indexes over a `tsvector`: of a column that the database computes, or of an expression; and how it is computed.
const TEXT_INDEXES: &str = "SELECT i.indrelid, a.attname::text, \
    CASE WHEN a.attnum IS NULL THEN pg_catalog.pg_get_expr(i.indexprs, i.indrelid) ELSE pg_catalog.pg_get_expr(d.adbin, d.adrelid) END \
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam \
    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] AND a.attnum > 0 \
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated = 's' \
    JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[0] AND o.opcintype = 'pg_catalog.tsvector'::regtype \
    WHERE i.indrelid = ANY($1) AND i.indnatts = 1 AND i.indisvalid AND i.indpred IS NULL AND m.amname IN ('gin', 'gist') \
    AND (a.attnum IS NULL OR EXISTS (SELECT FROM unnest($2::oid[]) r WHERE has_column_privilege(r, a.attrelid, a.attnum, 'SELECT'))) \
    ORDER BY i.indrelid, i.indexrelid";
const FOREIGN_KEYS: &str = "SELECT conrelid, conkey, confrelid, confkey FROM pg_catalog.pg_constraint \
    WHERE contype = 'f' AND conrelid = ANY($1) ORDER BY conrelid, conname";
const LABELS: &str =
    "SELECT enumtypid, enumlabel::text FROM pg_catalog.pg_enum ORDER BY enumtypid, enumsortorder";

const IDEMPOTENCY: &str = "SELECT n.nspname::text, has_schema_privilege(n.oid, 'CREATE'), \
    (SELECT c.relkind = 'r' AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT') \
     AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE') \
     FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = $1) \
    FROM pg_catalog.pg_namespace n WHERE n.nspname = pg_catalog.current_schema()";

/// The two collations that compare bytes, and the one that stands for the database's.
const C_COLLATIONS: [u32; 2] = [950, 951];
const DEFAULT_COLLATION: u32 = 100;
/// PostgreSQL stores microseconds.
const FRACTION_DIGITS: u8 = 6;

/// What is known about a type.
struct TypeInfo {
    kind: String,
    category: String,
    base: u32,
    not_null: bool,
}

/// The catalogs of all tables.
struct Catalog {
    types: HashMap<u32, TypeInfo>,
    labels: HashMap<u32, Vec<String>>,
    is_database_c: bool,
}

pub(super) async fn read(client: &Client, schemas: &[String], callers: CallerMode) -> Result<Schema, Error> {
    let role = client.query_one(ROLE, &[]).await?;
    let collation: String = role.try_get(5)?;
    let mut catalog = Catalog {
        types: HashMap::new(),
        labels: HashMap::new(),
        is_database_c: collation == "C" || collation == "POSIX",
    };
    for row in client.query(TYPES, &[]).await? {
        let info = TypeInfo {
            kind: row.try_get(1)?,
            category: row.try_get(2)?,
            base: row.try_get(3)?,
            not_null: row.try_get(4)?,
        };
        catalog.types.insert(row.try_get(0)?, info);
    }
    for row in client.query(LABELS, &[]).await? {
        catalog.labels.entry(row.try_get(0)?).or_default().push(row.try_get(1)?);
    }
    let roles = client.query(ROLES, &[&(callers == CallerMode::Role)]).await?;
    let roles = roles.iter().map(|row| row.try_get(0)).collect::<Result<Vec<u32>, Error>>()?;
    let mut tables = Vec::new();
    let mut by_id = HashMap::new();
    for row in client.query(TABLES, &[&schemas, &roles]).await? {
        by_id.insert(row.try_get::<_, u32>(0)?, tables.len());
        let table = table(&row, &tables)?;
        tables.push(table);
    }
    let ids: Vec<u32> = by_id.keys().copied().collect();
    // The index of a column by its number, which has gaps where columns were dropped.
    let mut numbers: HashMap<(u32, i16), usize> = HashMap::new();
    for row in client.query(COLUMNS, &[&ids, &roles]).await? {
        let id: u32 = row.try_get(0)?;
        let columns = &mut tables[by_id[&id]].columns;
        numbers.insert((id, row.try_get(1)?), columns.len());
        columns.push(catalog.column(&row)?);
    }
    let places = |id: u32, wanted: &[i16]| -> Option<Vec<usize>> {
        wanted.iter().map(|number| numbers.get(&(id, *number)).copied()).collect()
    };
    for row in client.query(UNIQUE, &[&ids]).await? {
        let id: u32 = row.try_get(0)?;
        let Some(columns) = places(id, &row.try_get::<_, Vec<i16>>(2)?) else { continue };
        let table = &mut tables[by_id[&id]];
        let is_key = !columns.is_empty() && columns.iter().all(|at| !table.columns[*at].nullable);
        if !is_key {
            continue;
        }
        if table.key.is_empty() {
            table.key.clone_from(&columns);
            table.key_constraint = row.try_get(3)?;
        }
        table.unique.push(columns);
    }
    for row in client.query(FOREIGN_KEYS, &[&ids]).await? {
        let (id, other): (u32, u32) = (row.try_get(0)?, row.try_get(2)?);
        let columns = places(id, &row.try_get::<_, Vec<i16>>(1)?);
        let targets = places(other, &row.try_get::<_, Vec<i16>>(3)?);
        let (Some(columns), Some(targets), Some(target)) = (columns, targets, by_id.get(&other)) else {
            continue;
        };
        let target_columns = targets.iter().map(|at| tables[*target].columns[*at].name.clone()).collect();
        let foreign_key = ForeignKey { columns, table: tables[*target].name.clone(), target_columns };
        tables[by_id[&id]].foreign_keys.push(foreign_key);
    }
    for row in client.query(TEXT_INDEXES, &[&ids, &roles]).await? {
        let (column, computed): (Option<String>, Option<String>) = (row.try_get(1)?, row.try_get(2)?);
        let table = &mut tables[by_id[&row.try_get(0)?]];
        let Some(vector) = computed.and_then(|computed| TextVector::parse(&computed, &table.columns)) else {
            continue;
        };
        let indexed = column
            .map_or(vector.expression, |name| format!("{TABLE_ALIAS}.{}", PostgresDialect.quote(&name)));
        let kind = TextIndexKind::Vector { vector: indexed, dictionary: vector.dictionary };
        table.add_text_index(Some(vector.columns), kind);
    }
    let role_info = role_info(client, &role).await?;
    let idempotency = idempotency_table(client).await?;
    Ok(Schema {
        tables,
        role: role_info,
        idempotency,
        server: format!("PostgreSQL {}", role.try_get::<_, String>(4)?),
    })
}

/// In the schema that new tables of the role go to.
async fn idempotency_table(client: &Client) -> Result<Option<(String, bool)>, Error> {
    let Some(row) = client.query_opt(IDEMPOTENCY, &[&idempotency::TABLE]).await? else { return Ok(None) };
    let (schema, may_create, may_use): (String, bool, Option<bool>) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let name = format!("{}.{}", PostgresDialect.quote(&schema), PostgresDialect.quote(idempotency::TABLE));
    Ok(match may_use {
        Some(true) => Some((name, true)),
        None if may_create => Some((name, false)),
        Some(false) | None => None,
    })
}

/// What the role could do, also by changing to another role.
async fn role_info(client: &Client, role: &Row) -> Result<RoleInfo, Error> {
    let own: String = role.try_get(0)?;
    let mut powers = Vec::new();
    for (at, power) in
        [(1, "it is a superuser"), (2, "it may create roles or databases"), (3, "it bypasses row security")]
    {
        if role.try_get(at)? {
            powers.push(power.to_owned());
        }
    }
    if role.try_get(6)? {
        powers.push("it may create schemas".to_owned());
    }
    let mut roles: Vec<u32> = Vec::new();
    for row in client.query(MEMBERSHIPS, &[]).await? {
        let (id, name, is_superuser): (u32, String, bool) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        roles.push(id);
        if name != own && is_superuser {
            powers.push(format!("it may become the superuser `{name}`"));
        } else if WRITING_ROLES.contains(&name.as_str()) {
            powers.push(format!("it is a member of `{name}`"));
        }
    }
    let mut writes = Vec::new();
    if let Some(row) = client.query_opt(WRITABLE_TABLES, &[&roles]).await? {
        let (first, count): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        writes.push(RoleInfo::may_write_to(&first, usize::try_from(count).unwrap_or(1)));
    }
    let schemas = client.query(WRITABLE_SCHEMAS, &[&roles]).await?;
    let schemas = schemas.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, Error>>()?;
    match &schemas[..] {
        [] => {}
        [only] => writes.push(format!("it may create tables in the schema `{only}`")),
        [first, others @ ..] => {
            writes.push(format!("it may create tables in the schema `{first}` and {} more", others.len()));
        }
    }
    let ignores_policies = role.try_get::<_, bool>(1)? || role.try_get::<_, bool>(3)?;
    Ok(RoleInfo { name: own, writes, powers, ignores_policies })
}

/// `others` have their names already.
fn table(row: &Row, others: &[TableInfo]) -> Result<TableInfo, Error> {
    let (schema, name, kind): (String, String, String) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    let estimate: f64 = row.try_get(5)?;
    let is_found_by_name: bool = row.try_get(9)?;
    let quoted = format!("{}.{}", PostgresDialect.quote(&schema), PostgresDialect.quote(&name));
    let mut name = if is_found_by_name { name } else { format!("{schema}.{name}") };
    // `"a.b"` and `a.b` are two tables.
    if others.iter().any(|other| other.name == name) {
        name.clone_from(&quoted);
    }
    Ok(TableInfo {
        name,
        quoted,
        is_view: kind != "r" && kind != "p",
        comment: row.try_get(4)?,
        row_count: (estimate >= 0.0).then_some(estimate as u64),
        may_insert: row.try_get(6)?,
        may_update: row.try_get(7)?,
        may_delete: row.try_get(8)?,
        has_policies: row.try_get(10)?,
        ..TableInfo::default()
    })
}

impl Catalog {
    fn column(&self, row: &Row) -> Result<ColumnInfo, Error> {
        let declared: u32 = row.try_get(3)?;
        let (base, domain_not_null) = self.base_type(declared);
        let (identity, generated): (String, String) = (row.try_get(7)?, row.try_get(8)?);
        let collation: u32 = row.try_get(9)?;
        let is_bytes =
            C_COLLATIONS.contains(&collation) || (collation == DEFAULT_COLLATION && self.is_database_c);
        let is_deterministic = row.try_get::<_, Option<bool>>(10)?.unwrap_or(true);
        Ok(ColumnInfo {
            name: row.try_get(2)?,
            storage: self.storage(base),
            native_type: base,
            type_name: row.try_get(4)?,
            nullable: !row.try_get::<_, bool>(5)? && !domain_not_null,
            has_default: row.try_get::<_, bool>(6)? || !identity.is_empty(),
            read_only_reason: match (generated.as_str(), identity.as_str()) {
                _ if self.storage(base) == Storage::PrintedJson => {
                    Some("arrays and rows are only read".into())
                }
                ("s" | "v", _) => Some("the database computes it".into()),
                (_, "a") => Some("the database assigns it".into()),
                _ => None,
            },
            collation: match (is_bytes, is_deterministic) {
                (true, _) => Collation::Bytes,
                (false, true) => Collation::Deterministic,
                (false, false) => Collation::Other,
            },
            labels: self.labels.get(&base).cloned().unwrap_or_default(),
            comment: row.try_get(11)?,
            fraction_digits: FRACTION_DIGITS,
            is_wide: base == Type::INT8.oid(),
            is_boolean: false,
        })
    }

    /// The type behind domains, and whether one of them forbids NULL.
    fn base_type(&self, declared: u32) -> (u32, bool) {
        let (mut at, mut not_null) = (declared, false);
        while let Some(info) = self.types.get(&at).filter(|info| info.kind == "d") {
            not_null |= info.not_null;
            at = info.base;
        }
        (at, not_null)
    }

    fn storage(&self, oid: u32) -> Storage {
        Type::from_oid(oid).as_ref().and_then(plain_storage).unwrap_or_else(|| match self.types.get(&oid) {
            Some(info) if info.category == "A" || info.kind == "c" => Storage::PrintedJson,
            _ => Storage::Printed,
        })
    }
}

/// How values of a type are read that need no conversion.
pub(super) fn plain_storage(kind: &Type) -> Option<Storage> {
    Some(match *kind {
        Type::INT2 | Type::INT4 | Type::INT8 => Storage::Integer,
        Type::FLOAT4 => Storage::Float32,
        Type::FLOAT8 => Storage::Float64,
        Type::NUMERIC => Storage::Decimal,
        Type::BOOL => Storage::Boolean,
        Type::TEXT | Type::VARCHAR => Storage::Text,
        Type::BPCHAR => Storage::PaddedText,
        Type::DATE => Storage::Date,
        Type::TIMESTAMP => Storage::LocalTimestamp,
        Type::TIMESTAMPTZ => Storage::Timestamp,
        Type::UUID => Storage::Uuid,
        Type::BYTEA => Storage::Bytes,
        Type::JSON | Type::JSONB => Storage::Json,
        _ => return None,
    })
}
