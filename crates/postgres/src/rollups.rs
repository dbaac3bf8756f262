//! The per-minute counters of engines.

use task_engine_core::instance::InstanceId;
use task_engine_store::error::StoreError;
use task_engine_store::rollup::{
    BUCKETS, ClassMinute, KEPT, RollupCounts, RollupQuery, RollupRow, TimeHistogram,
};
use task_engine_store::sql::statement;
use tokio_postgres::Row;

use crate::executor::Executor as _;
use crate::store::{StoreInner, from_micros, micros};
use crate::value::read;

const SQL: &str = include_str!("../sql/engine/rollups.sql");
const WRITE: &str = statement(SQL, "write_rollups");
const READ: &str = statement(SQL, "rollups");
const PRUNE: &str = statement(SQL, "prune_rollups");

impl StoreInner {
    pub(crate) async fn write_rollups(
        &self,
        instance: InstanceId,
        rows: &[ClassMinute],
    ) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let client = self.connections.work().await?;
        let minutes: Vec<i64> = rows.iter().map(|row| row.minute).collect();
        let classes: Vec<&str> = rows.iter().map(|row| row.class.as_str()).collect();
        let generations: Vec<i32> = rows.iter().map(|row| row.generation).collect();
        let of = |column: fn(&RollupCounts) -> u64| -> Vec<i64> {
            rows.iter().map(|row| column(&row.counts).cast_signed()).collect()
        };
        let all = |histogram: fn(&RollupCounts) -> &TimeHistogram| -> Vec<i64> {
            let counts = rows.iter().flat_map(|row| histogram(&row.counts).counts);
            counts.map(u64::cast_signed).collect()
        };
        client
            .query_cached(
                &self.schema.sql(WRITE),
                &[
                    &instance.0,
                    &minutes,
                    &classes,
                    &generations,
                    &of(|counts| counts.ok),
                    &of(|counts| counts.failed),
                    &of(|counts| counts.other),
                    &of(|counts| counts.run_us),
                    &of(|counts| counts.run.max_us),
                    &of(|counts| counts.wait.max_us),
                    &all(|counts| &counts.run),
                    &all(|counts| &counts.wait),
                ],
            )
            .await?;
        Ok(())
    }

    pub(crate) async fn rollups(&self, look: RollupQuery) -> Result<Vec<RollupRow>, StoreError> {
        let client = self.connections.work().await?;
        let rows =
            client.query(&self.schema.sql(READ), &[&look.over_secs(), &look.step_secs()]).await?;
        Ok(rows.iter().map(rollup_row).collect())
    }

    pub(crate) async fn prune_rollups(&self, limit: u32) -> Result<u64, StoreError> {
        let client = self.connections.work().await?;
        Ok(client.execute(&self.schema.sql(PRUNE), &[&micros(KEPT), &i64::from(limit)]).await?)
    }
}

fn rollup_row(row: &Row) -> RollupRow {
    let number = |column| row.get::<_, i64>(column).cast_unsigned();
    let histogram = |counts, max_us| {
        let mut histogram = TimeHistogram { counts: [0; BUCKETS], max_us: number(max_us) };
        for (bucket, number) in histogram.counts.iter_mut().zip(row.get::<_, Vec<i64>>(counts)) {
            *bucket = number.cast_unsigned();
        }
        histogram
    };
    RollupRow {
        at: read(row, "at"),
        class: read(row, "task_class"),
        ok: number("ok"),
        failed: number("failed"),
        other: number("other"),
        run_secs_sum: from_micros(read(row, "run_us")).as_secs_f64(),
        run: histogram("run", "run_max_us"),
        wait: histogram("wait", "wait_max_us"),
    }
}
