//! `spile access`: who may do what, as the manifest says and as the server would decide.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use contract::access::{Role, Roles};
use contract::manifest::Operation;
use contract::{Collection, Contract};
use spile_core::{CallerRoles as _, Principal};
use transport::AccessTokens;

use crate::client::output_style::OutputStyle;
use crate::layout::{ColumnFit, Table};
use crate::project::Project;
use crate::report::{print, print_diagnostics};

#[derive(Debug, Args)]
pub struct AccessArgs {
    /// A manifest, or a folder with one
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Only this role
    #[arg(long = "as", value_name = "ROLE")]
    role: Option<String>,
    /// Also list which role each caller of this token file has
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub fn run(args: &AccessArgs) -> anyhow::Result<ExitCode> {
    let scan = Project::find(&args.path)?.scan()?;
    let Some(compiled) = scan.compiled else {
        print_diagnostics(&scan.diagnostics);
        return Ok(ExitCode::FAILURE);
    };
    let Some(roles) = &compiled.contract.roles else {
        print("no roles: every caller may use every tool and sees every row and field\n")?;
        return Ok(ExitCode::SUCCESS);
    };
    let chosen: Vec<&Role> = match &args.role {
        None => roles.roles.iter().collect(),
        Some(name) => match roles.roles.iter().find(|role| role.name == *name) {
            Some(role) => vec![role],
            None => bail!("there is no role `{name}`; there are: {}", roles.names().join(", ")),
        },
    };
    let mut out = String::new();
    for role in chosen {
        out += &describe_role(role);
    }
    if let Some(file) = &args.token_file {
        out += &describe_callers(roles, &AccessTokens::from_file(file)?.principals());
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn describe_role(role: &Role) -> String {
    let mut out = format!("{}: {}\n", role.name, role.describe_condition());
    let mut table =
        Table::new(&["collection", "operations", "fields", "rows", "set"]).fit(0, ColumnFit::Keep);
    for (index, collection) in role.contract.collections.iter().enumerate() {
        let operations = operations(&role.contract, index);
        if operations.is_empty() {
            continue;
        }
        let rules = collection.rules.as_ref();
        table.rows.push(vec![
            collection.name.clone(),
            operations.join(", "),
            field_names(collection),
            rules.map_or_else(|| "all".to_owned(), ToString::to_string),
            rules.map(|rules| rules.describe_set().join(", ")).unwrap_or_default(),
        ]);
    }
    if !table.rows.is_empty() {
        out += &table.render(&OutputStyle::stdout(), 2);
    }
    let statements = role.contract.tools.iter().filter(|tool| tool.operation.collection().is_none());
    let code = role.items.tools.granted.iter().map(String::as_str);
    let mut tools: Vec<&str> = statements.map(|tool| tool.name.as_str()).chain(code).collect();
    tools.sort_unstable();
    tools.dedup();
    for (what, names) in [
        ("tools", tools),
        ("prompts", role.items.prompts.granted.iter().map(String::as_str).collect()),
        ("resources", role.items.resources.granted.iter().map(String::as_str).collect()),
    ] {
        if !names.is_empty() {
            out += &format!("  {what}: {}\n", names.join(", "));
        }
    }
    out.push('\n');
    out
}

fn operations(contract: &Contract, index: usize) -> Vec<&'static str> {
    let own = contract.tools.iter().filter(|tool| tool.operation.collection() == Some(index));
    let mut names: Vec<&'static str> =
        own.filter_map(|tool| tool.operation.operation()).map(Operation::as_str).collect();
    names.dedup();
    names
}

fn field_names(collection: &Collection) -> String {
    let names: Vec<&str> = collection.fields.iter().map(|field| field.name.as_str()).collect();
    names.join(", ")
}

fn describe_callers(roles: &Roles, principals: &[Principal]) -> String {
    let mut table = Table::new(&["caller", "role"]).fit(0, ColumnFit::Keep);
    for principal in principals {
        let role = roles.role_of(principal).and_then(|at| roles.roles.get(at));
        let role = role.map_or("none: may do nothing", |role| role.name.as_str());
        table.rows.push(vec![principal.display_name(), role.to_owned()]);
    }
    format!("callers\n{}", table.render(&OutputStyle::stdout(), 2))
}
