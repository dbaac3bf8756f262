//! The lanes of a group, with positions: for a queue with many dead rows.
//!
//! While another session holds a snapshot open, rows of taken tasks stay in the index, and a
//! probe for the first task of a lane reads past all of them. So once probes are slow, a
//! claimer remembers the lanes with their positions, and reads each lane from its position on.
//! New lanes are found by probes of the gaps between known ones. A complete scan reads every
//! lane from its beginning: tasks may have come before a position.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;

use crate::executor::{Executor as _, PooledConnection};
use crate::limited_lanes::{GroupId, LIMITED_LANES, NAMED_LANES, ReadLane, read_lane};
use crate::schema::Schema;
use crate::value::{RawTime, read};

const SQL: &str = include_str!("../sql/engine/limits.sql");
const NEW_LANES: &str = statement(SQL, "new_lanes");

/// Positions of more lanes are not kept.
const LANES_MAX: usize = 5_000;
/// A probe of a lane that takes longer reads dead rows. A read of few lanes says less: the
/// server may be busy, or far away.
const SLOW_PROBE: Duration = Duration::from_micros(40);
const SLOW_READ: Duration = Duration::from_millis(5);
const FEW_LANES: usize = 16;
const SLOW_READ_OF_FEW: Duration = Duration::from_millis(50);
/// How often gaps are probed.
const NEW_LANES_INTERVAL: Duration = Duration::from_millis(500);
/// How often all lanes are read from their beginnings; and at least this many times the
/// duration of such a scan.
const SCAN_INTERVAL: Duration = Duration::from_secs(2);
const SCAN_SHARE: u32 = 10;
/// How many new lanes one probe of the gaps finds in each gap, at most.
const NEW_IN_GAP_MAX: i32 = 100;

/// Before the first task of any lane.
pub(crate) const BEGINNING: (RawTime, i64) = (RawTime(i64::MIN), 0);

/// After all lane keys: they are lists.
const END: &str = "\\";

/// Whether a read of lanes was so slow that positions should be kept.
pub(crate) fn is_slow(took: Duration, lanes: usize) -> bool {
    if lanes < FEW_LANES {
        return took >= SLOW_READ_OF_FEW;
    }
    let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
    took >= SLOW_READ && took / lanes >= SLOW_PROBE
}

/// Where to read lanes of a group.
pub(crate) struct LaneReader<'a> {
    pub(crate) client: &'a PooledConnection,
    pub(crate) schema: &'a Schema,
    pub(crate) id: &'a GroupId,
}

impl LaneReader<'_> {
    /// The next lanes after a lane key, each from its beginning.
    pub(crate) async fn after(
        &self,
        position: &str,
        count: usize,
    ) -> Result<Vec<ReadLane>, StoreError> {
        let (queue, class, priority) = self.id;
        let most = i32::try_from(count).unwrap_or(i32::MAX);
        let rows = self
            .client
            .query_cached(
                &self.schema.sql(LIMITED_LANES),
                &[queue, class, priority, &position, &most],
            )
            .await?;
        Ok(rows.iter().map(read_lane).collect())
    }

    /// Those of the lanes that have a task at or after their position.
    pub(crate) async fn named(
        &self,
        lanes: &[(String, (RawTime, i64))],
    ) -> Result<Vec<ReadLane>, StoreError> {
        let (queue, class, priority) = self.id;
        let texts: Vec<&str> = lanes.iter().map(|(text, _)| text.as_str()).collect();
        let times: Vec<RawTime> = lanes.iter().map(|(_, position)| position.0).collect();
        let ids: Vec<i64> = lanes.iter().map(|(_, position)| position.1).collect();
        let rows = self
            .client
            .query_cached(
                &self.schema.sql(NAMED_LANES),
                &[queue, class, priority, &texts, &times, &ids],
            )
            .await?;
        Ok(rows.iter().map(read_lane).collect())
    }
}

/// The lanes of a group with their positions.
pub(crate) struct KnownLanes {
    /// A lane starts nothing before its position.
    positions: BTreeMap<String, (RawTime, i64)>,
    scanned_at: Instant,
    scan_took: Duration,
    gaps_probed_at: Instant,
}

impl KnownLanes {
    /// Reads all lanes from their beginnings. `None` if there are too many of them, or if that
    /// is fast: then no positions are needed.
    pub(crate) async fn scan(reader: &LaneReader<'_>) -> Result<Option<Self>, StoreError> {
        let began = Instant::now();
        let lanes = reader.after("", LANES_MAX + 1).await?;
        let took = began.elapsed();
        if lanes.len() > LANES_MAX || !is_slow(took, lanes.len()) {
            return Ok(None);
        }
        let positions = lanes.into_iter().map(|lane| (lane.text.clone(), lane.position()));
        Ok(Some(Self {
            positions: positions.collect(),
            scanned_at: began,
            scan_took: took,
            gaps_probed_at: began,
        }))
    }

    /// When all lanes should be read from their beginnings again.
    pub(crate) fn next_scan_at(&self) -> Instant {
        self.scanned_at + SCAN_INTERVAL.max(self.scan_took * SCAN_SHARE)
    }

    /// Whether new lanes were looked for since then.
    pub(crate) fn has_looked_since(&self, time: Instant) -> bool {
        self.gaps_probed_at >= time
    }

    /// Whether it is time to look for new lanes.
    pub(crate) fn should_look(&self) -> bool {
        self.gaps_probed_at.elapsed() >= NEW_LANES_INTERVAL
    }

    /// Finds lanes between the known ones.
    pub(crate) async fn look_for_new(&mut self, reader: &LaneReader<'_>) -> Result<(), StoreError> {
        let began = Instant::now();
        let (queue, class, priority) = reader.id;
        let known: Vec<&str> = self.positions.keys().map(String::as_str).collect();
        let after: Vec<&str> = std::iter::once("").chain(known.iter().copied()).collect();
        let before: Vec<&str> = known.iter().copied().chain(std::iter::once(END)).collect();
        let rows = reader
            .client
            .query_cached(
                &reader.schema.sql(NEW_LANES),
                &[queue, class, priority, &after, &before, &NEW_IN_GAP_MAX],
            )
            .await?;
        for row in &rows {
            let position = (row.get("due_at"), row.get("task_id"));
            self.positions.insert(read(row, "lane_key"), position);
        }
        self.gaps_probed_at = began;
        Ok(())
    }

    /// The next lanes with tasks after a lane key, each from its position. Fewer than `count`
    /// if there are no more.
    pub(crate) async fn after(
        &mut self,
        reader: &LaneReader<'_>,
        position: &str,
        count: usize,
    ) -> Result<Vec<ReadLane>, StoreError> {
        let mut found: Vec<ReadLane> = Vec::new();
        let mut after = position.to_owned();
        while found.len() < count {
            let range = (Bound::Excluded(after.as_str()), Bound::Unbounded);
            let asked: Vec<_> = self
                .positions
                .range::<str, _>(range)
                .take(count - found.len())
                .map(|(text, position)| (text.clone(), *position))
                .collect();
            let Some((last, _)) = asked.last() else { break };
            after.clone_from(last);
            let mut lanes = reader.named(&asked).await?;
            lanes.sort_unstable_by(|one, other| one.text.cmp(&other.text));
            // A lane without tasks keeps its position: its dead rows are not read again.
            for lane in &lanes {
                self.positions.insert(lane.text.clone(), lane.position());
            }
            found.append(&mut lanes);
        }
        Ok(found)
    }

    /// A lane has tasks that may come before its position.
    pub(crate) fn forget(&mut self, lane: &str) {
        self.positions.remove(lane);
    }
}
