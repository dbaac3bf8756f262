//! `task-engine tokens`.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use task_engine_operations::OperationError;
use task_engine_store::token::{NewToken, Role, TokenRow, TokenSecret};

use crate::console::{Console, now, quoted};
use crate::error::CliError;
use crate::escape::{escape, summary};
use crate::operations::operator;
use crate::table::table;
use crate::times::duration;
use task_engine_core::display::{clock_and_relative, relative};

/// Create, list and revoke tokens for the dashboard and the API
///
/// A token is printed once, when it is created; the database keeps only its hash.
/// Its role says what it allows: a viewer reads, an operator retries, cancels and
/// pauses, an admin may do everything.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: TokensCommand,
}

#[derive(Debug, Subcommand)]
enum TokensCommand {
    /// Create a token, and print it
    Create {
        /// Its name: who uses it, or what for
        #[arg(value_name = "NAME")]
        name: String,
        /// What it allows: viewer, operator or admin
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// When it expires, like 90days [default: when it is revoked]
        #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
        expires: Option<Duration>,
    },
    /// List tokens, newest first, with those that are revoked or expired
    List {
        /// Print JSON, one token a line
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token
    Revoke {
        /// The token
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub(crate) async fn run(console: &Console, args: Arguments) -> Result<(), CliError> {
    match args.command {
        TokensCommand::Create { name, role, expires } => create(console, name, role, expires).await,
        TokensCommand::List { json } => list(console, json).await,
        TokensCommand::Revoke { name } => revoke(console, &name).await,
    }
}

async fn create(
    console: &Console,
    name: String,
    role: Role,
    expires: Option<Duration>,
) -> Result<(), CliError> {
    let secret = TokenSecret::generate()?;
    let new = NewToken::new(name, role, secret.hash(), expires)
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let store = console.open().await?;
    operator(&store).create_token(&new).await.map_err(|error| match error {
        OperationError::Conflict(taken) => CliError::Conflict(format!(
            "{taken}; to revoke it: {}",
            console.command(&format!("tokens revoke {}", quoted(new.name())))
        )),
        error => error.into(),
    })?;
    let mut out = console.results();
    writeln!(out, "{}", secret.text())?;
    out.flush()?;
    let until = match expires {
        Some(time) => format!("expires {}", relative(Timestamp::now() + time, Timestamp::now())),
        None => "does not expire".to_owned(),
    };
    console.message(format_args!(
        "This is the token {}, for the role {role}. It {until}, and is not shown again.",
        escape(new.name())
    ));
    Ok(())
}

async fn list(console: &Console, json: bool) -> Result<(), CliError> {
    let store = console.open().await?;
    let tokens = store.tokens().await?;
    if json {
        return console.print_json(&tokens);
    }
    if tokens.is_empty() {
        console.message(format_args!(
            "There is no token on {}. Make one: {}",
            store.location(),
            console.command("tokens create NAME --role viewer")
        ));
        return Ok(());
    }
    let rows = tokens.iter().map(|token| line(token, now().timestamp())).collect();
    let header = ["NAME", "ROLE", "STATE", "CREATED", "LAST USED"];
    console.print(table(&header, &[], rows))
}

fn line(token: &TokenRow, now: Timestamp) -> Vec<String> {
    let state = match (token.revoked_at, token.expires_at) {
        (Some(revoked), _) => format!("revoked {}", relative(revoked, now)),
        (None, Some(expires)) if expires <= now => format!("expired {}", relative(expires, now)),
        (None, Some(expires)) => format!("expires {}", relative(expires, now)),
        (None, None) => "good".to_owned(),
    };
    vec![
        summary(&token.name, 50),
        token.role.to_string(),
        state,
        relative(token.created_at, now),
        token.last_used_at.map_or("never".to_owned(), |used| relative(used, now)),
    ]
}

async fn revoke(console: &Console, name: &str) -> Result<(), CliError> {
    let store = console.open().await?;
    let shown = escape(name);
    match operator(&store).revoke_token(name).await {
        Ok(_) => {
            let mut out = console.results();
            writeln!(out, "token {shown} was revoked")?;
            Ok(out.flush()?)
        }
        Err(missing @ OperationError::NotFound(_)) => {
            let tokens = store.tokens().await?;
            let Some(at) = tokens.iter().find(|it| it.name == name).and_then(|it| it.revoked_at)
            else {
                return Err(missing.into());
            };
            let when = clock_and_relative(at, now().timestamp(), now().time_zone());
            console.message(format_args!("token {shown} was revoked before, {when}"));
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
