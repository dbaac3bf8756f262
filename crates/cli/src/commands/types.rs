//! `task-engine types`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use clap::{Args, ValueEnum};
use task_engine_operations::schemas::Schemas;
use task_engine_operations::schemas::types::{Language as TypesLanguage, generate};

use super::classes::missing;
use crate::console::Console;
use crate::error::CliError;
use crate::escape::escape;

/// Print the types of parameters in another language
///
/// They are generated from the schemas that live engines publish. Write them into a
/// file of your program: task-engine types typescript > tasks.ts
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The language: python (3.11, TypedDict) or typescript (interfaces)
    #[arg(value_name = "LANGUAGE")]
    language: Language,
    /// The classes [default: all that have a schema]
    #[arg(value_name = "CLASS")]
    classes: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Language {
    Python,
    #[value(alias = "ts")]
    Typescript,
}

const EXAMPLES: &str = "Examples:
  task-engine types python > tasks.py
  task-engine types typescript send_mail > send_mail.ts";

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    let store = console.open().await?;
    let engines = store.instances(None).await?;
    let schemas = Schemas::of(&engines);
    for class in &args.classes {
        if schemas.newest(class).is_none() {
            let live = engines.iter().filter(|engine| engine.is_alive());
            let known: BTreeSet<&str> =
                live.flat_map(|engine| engine.classes.keys()).map(String::as_str).collect();
            return Err(missing(class, known));
        }
    }
    let mut chosen = BTreeMap::new();
    for (class, published) in schemas.classes() {
        if !args.classes.is_empty() && !args.classes.iter().any(|one| one == class) {
            continue;
        }
        for warning in schemas.warnings(class) {
            console.message(format_args!("Warning: {}", escape(&warning)));
        }
        if published.len() > 1 {
            console.message(format_args!(
                "Live engines publish {} schemas of class {}; the newest is used.",
                published.len(),
                escape(class)
            ));
        }
        if let Some(schema) = schemas.newest(class) {
            chosen.insert(class, schema);
        }
    }
    if chosen.is_empty() {
        console.message("No live engine publishes a schema, so there are no types.");
    }
    let language = match args.language {
        Language::Python => TypesLanguage::Python,
        Language::Typescript => TypesLanguage::TypeScript,
    };
    // The text has no characters that a terminal interprets.
    let mut out = console.results();
    write!(out, "{}", generate(language, &chosen))?;
    Ok(out.flush()?)
}
