//! The per-minute counters of engines.

use rusqlite::types::Value;
use rusqlite::{Row, params, params_from_iter};
use task_engine_core::instance::InstanceId;
use task_engine_store::rollup::{
    BUCKETS, ClassMinute, KEPT, RollupQuery, RollupRow, TimeHistogram,
};

use crate::connection_thread::JobTransaction;
use crate::error::JobError;
use crate::moment::{between, micros};
use crate::value::read;

const SECOND: i64 = 1_000_000;
/// The columns where the histograms begin, after the step, the class and six numbers.
const RUN: usize = 8;
const WAIT: usize = RUN + BUCKETS;

pub(crate) fn write(
    tx: &JobTransaction<'_>,
    instance: InstanceId,
    rows: &[ClassMinute],
) -> Result<(), JobError> {
    let mut statement = tx.db.prepare_cached(sql!("engine/rollups", "write_rollups"))?;
    for row in rows {
        let counts = &row.counts;
        let (run, wait) = (&counts.run, &counts.wait);
        let numbers =
            [counts.ok, counts.failed, counts.other, counts.run_us, run.max_us, wait.max_us];
        let numbers = numbers.iter().chain(&run.counts).chain(&wait.counts);
        let key = [
            Value::from(row.minute.saturating_mul(60 * SECOND)),
            Value::from(row.class.clone()),
            Value::from(instance.0),
            Value::from(row.generation),
        ];
        let numbers = numbers.map(|number| Value::from(number.cast_signed()));
        statement.execute(params_from_iter(key.into_iter().chain(numbers)))?;
    }
    Ok(())
}

pub(crate) fn rollups(
    tx: &JobTransaction<'_>,
    look: RollupQuery,
) -> Result<Vec<RollupRow>, JobError> {
    let from = tx.now() - look.over_secs() * SECOND;
    let mut statement = tx.db.prepare_cached(sql!("engine/rollups", "rollups"))?;
    let rows = statement.query_map(params![from, tx.now(), look.step_secs() * SECOND], figure)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(crate) fn prune(tx: &JobTransaction<'_>, limit: u32) -> Result<u64, JobError> {
    let before = tx.now() - micros(KEPT);
    let pruned = tx
        .db
        .prepare_cached(sql!("engine/rollups", "prune_rollups"))?
        .execute(params![before, limit])?;
    Ok(pruned as u64)
}

fn figure(row: &Row<'_>) -> rusqlite::Result<RollupRow> {
    let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let histogram = |first, max_us| {
        let mut histogram = TimeHistogram { max_us: number(max_us)?, ..TimeHistogram::default() };
        for (n, bucket) in histogram.counts.iter_mut().enumerate() {
            *bucket = number(first + n)?;
        }
        Ok::<_, rusqlite::Error>(histogram)
    };
    Ok(RollupRow {
        at: read(row, 0)?,
        class: read(row, 1)?,
        ok: number(2)?,
        failed: number(3)?,
        other: number(4)?,
        run_secs_sum: between(0, read(row, 5)?).as_secs_f64(),
        run: histogram(RUN, 6)?,
        wait: histogram(WAIT, 7)?,
    })
}
