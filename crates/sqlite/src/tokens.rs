//! Access tokens of the dashboard.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};
use task_engine_store::error::StoreError;
use task_engine_store::token::{NewToken, Role, TOUCH_EVERY, TokenHash, TokenRow};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::moment::{micros, timestamp};
use crate::value::read;

pub(crate) fn add(tx: &JobTransaction<'_>, new: &NewToken) -> Result<i64, JobError> {
    let expires_at = new.expires_in().map(|time| tx.moment.after(time));
    let added = tx.db.prepare_cached(sql!("operators/tokens", "token_add"))?.execute(params![
        new.name(),
        new.role().as_str(),
        new.hash(),
        tx.now(),
        expires_at,
    ])?;
    if added == 0 {
        return Err(JobError::Store(new.name_taken()));
    }
    Ok(tx.db.last_insert_rowid())
}

pub(crate) fn all(tx: &JobTransaction<'_>) -> Result<Vec<TokenRow>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("operators/tokens", "tokens"))?;
    let mut rows = statement.query([])?;
    let mut tokens = Vec::new();
    while let Some(row) = rows.next()? {
        tokens.push(token(row)??);
    }
    Ok(tokens)
}

pub(crate) fn revoke(tx: &JobTransaction<'_>, name: &str) -> Result<bool, JobError> {
    let revoked = tx
        .db
        .prepare_cached(sql!("operators/tokens", "token_revoke"))?
        .execute(params![name, tx.now()])?;
    Ok(revoked > 0)
}

/// The token, if it is good, and whether its use is to be noted.
pub(crate) fn by_hash(
    tx: &JobTransaction<'_>,
    hash: &TokenHash,
) -> Result<Option<(TokenRow, bool)>, JobError> {
    let mut statement = tx.db.prepare_cached(sql!("operators/tokens", "token_by_hash"))?;
    let found = statement.query_row(params![hash, tx.now()], token).optional()?;
    let Some(token) = found.transpose()? else { return Ok(None) };
    let fresh_from = timestamp(tx.now() - micros(TOUCH_EVERY));
    let is_stale = token.last_used_at.is_none_or(|used| used < fresh_from);
    Ok(Some((token, is_stale)))
}

pub(crate) fn touch(tx: &JobTransaction<'_>, id: i64) -> Result<Timestamp, JobError> {
    let fresh_from = tx.now() - micros(TOUCH_EVERY);
    tx.db.prepare_cached(sql!("operators/tokens", "token_touch"))?.execute([
        id,
        tx.now(),
        fresh_from,
    ])?;
    Ok(timestamp(tx.now()))
}

fn token(row: &Row<'_>) -> rusqlite::Result<Result<TokenRow, StoreError>> {
    let role = match read::<String>(row, 2)?.parse::<Role>() {
        Ok(role) => role,
        Err(bad) => return Ok(Err(StoreError::Version(bad.to_string()))),
    };
    Ok(Ok(TokenRow {
        id: read(row, 0)?,
        name: read(row, 1)?,
        role,
        created_at: read(row, 3)?,
        expires_at: read(row, 4)?,
        last_used_at: read(row, 5)?,
        revoked_at: read(row, 6)?,
    }))
}
