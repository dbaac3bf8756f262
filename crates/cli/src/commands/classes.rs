//! `task-engine classes`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use clap::Args;
use serde::Serialize;
use task_engine_core::display::span;
use task_engine_core::instance::InstanceRow;
use task_engine_core::task::TaskOptions;
use task_engine_operations::schemas::Schemas;

use crate::console::Console;
use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::table::table;

/// List the classes that live engines know, with their options
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print the JSON Schema of the parameters of this class
    // `--schema` names the schema of PostgreSQL, for all commands.
    #[arg(long, value_name = "CLASS", conflicts_with = "json")]
    json_schema: Option<String>,
    /// Print JSON, one class a line
    #[arg(long, visible_alias = "jsonl")]
    json: bool,
}

/// A class as programs read it.
#[derive(Serialize)]
struct ClassLine<'a> {
    class: &'a str,
    engines: Vec<&'a str>,
    /// Those of the newest engine.
    options: &'a TaskOptions,
    /// Whether engines publish different schemas.
    schemas_differ: bool,
    /// Why schemas cannot be used.
    warnings: Vec<String>,
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let engines = store.instances(None).await?;
    let schemas = Schemas::of(&engines);
    let classes = classes(&engines, &schemas);
    if let Some(class) = &args.json_schema {
        return print_schema(console, class, &classes, &schemas);
    }
    if args.json {
        return console.print_json(classes.values());
    }
    if classes.is_empty() {
        console.message(format_args!(
            "No engine is alive on {}. Start one: {}",
            store.location(),
            console.command("start")
        ));
        return Ok(());
    }
    let rows = classes.values().map(|line| {
        let options = line.options;
        vec![
            summary(line.class, 40),
            summary(&line.engines.join(", "), 40),
            summary(&options.queue, 40),
            options.priority.to_string(),
            options.timeout.map_or_else(|| "none".to_owned(), span),
            options.retry.maximum.to_string(),
            schema_text(line, &schemas).to_owned(),
        ]
    });
    let header = ["CLASS", "ENGINES", "QUEUE", "PRIORITY", "TIMEOUT", "RETRIES", "SCHEMA"];
    let mut out = console.results();
    writeln!(out, "{}", table(&header, &[3, 5], rows.collect()))?;
    out.flush()?;
    for warning in classes.values().flat_map(|line| &line.warnings) {
        console.message(format_args!("Warning: {}", escape(warning)));
    }
    Ok(())
}

fn classes<'a>(engines: &'a [InstanceRow], schemas: &Schemas) -> BTreeMap<&'a str, ClassLine<'a>> {
    let mut classes: BTreeMap<&str, ClassLine<'_>> = BTreeMap::new();
    for engine in engines.iter().filter(|engine| engine.is_alive()) {
        for (class, options) in &engine.classes {
            let line = classes.entry(class).or_insert_with(|| ClassLine {
                class,
                engines: Vec::new(),
                options,
                schemas_differ: schemas.of_class(class).len() > 1,
                warnings: schemas.warnings(class),
            });
            line.engines.push(&engine.name);
        }
    }
    classes
}

fn schema_text(line: &ClassLine<'_>, schemas: &Schemas) -> &'static str {
    match schemas.of_class(line.class) {
        [] => "no",
        _ if schemas.newest(line.class).is_none() => "unusable",
        [_] => "yes",
        _ => "several",
    }
}

fn print_schema(
    console: &Console,
    class: &str,
    classes: &BTreeMap<&str, ClassLine<'_>>,
    schemas: &Schemas,
) -> Result<(), CliError> {
    let published = schemas.of_class(class);
    let first = published.first().map(|one| &one.schema);
    let Some(schema) = schemas.newest(class).or(first) else {
        return Err(missing(class, classes.keys().copied().collect()));
    };
    for warning in schemas.warnings(class) {
        console.message(format_args!("Warning: {}", escape(&warning)));
    }
    if published.len() > 1 {
        console.message(format_args!(
            "Live engines publish {} schemas of this class; this is the newest.",
            published.len()
        ));
    }
    console.print_json([schema])
}

/// The class is unknown, or has no schema.
pub(super) fn missing(class: &str, known: BTreeSet<&str>) -> CliError {
    let shown = escape(class);
    if known.contains(class) {
        return CliError::NotFound(format!(
            "class {shown} has no schema: its engines publish none"
        ));
    }
    let hint = task_engine_core::suggest::did_you_mean(class, known);
    CliError::NotFound(format!("no live engine knows class {shown}{}", escape(&hint)))
}
