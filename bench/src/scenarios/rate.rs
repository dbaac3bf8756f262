//! Starts of tasks with a rate: how many start in any window of one second, by the clocks
//! of the engines, and how many of the possible starts happen.

use std::time::Duration;

use task_engine_core::limit::{LimitOptions, Rate};

use super::limited::set_limit;
use crate::database::BenchDatabase;
use crate::engine::{LIMITED_1MS, STAMPED_KEY};
use crate::engines::{EngineOptions, Engines};
use crate::error::BenchError;
use crate::metric::{Measurement, Metric};
use crate::options::BenchSettings;
use crate::tasks;

const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_US: i64 = 1_000_000;

pub(crate) async fn measure(
    database: &BenchDatabase,
    settings: &BenchSettings,
) -> Result<Measurement, BenchError> {
    let store = database.store().await?;
    let rate = Rate::new(settings.rate, WINDOW);
    set_limit(&*store, LIMITED_1MS, LimitOptions::rate(rate)).await?;
    let time_us = i64::try_from(settings.time.as_micros()).unwrap_or(i64::MAX);
    let possible = possible_starts(settings.rate, time_us);
    let keys = [STAMPED_KEY.to_owned()];
    // More than can start: the engines never lack tasks.
    tasks::create_keyed(&*store, LIMITED_1MS, &keys, possible + 2 * u64::from(settings.rate))
        .await?;
    drop(store);
    let options = EngineOptions::new(settings.engines, settings.workers);
    let mut engines = Engines::start_claiming(database, options).await?;
    let mut starts_us = vec![engines.began().await?.1];
    let until_us = starts_us[0] + time_us;
    loop {
        let (_, at_us) = engines.began().await?;
        if at_us >= until_us {
            break;
        }
        starts_us.push(at_us);
    }
    engines.stop().await?;
    let used = starts_us.len() as f64 * 100.0 / possible as f64;
    Ok(Measurement::default()
        .rate(starts_us.len() as u64, settings.time)
        .with(Metric::StartsInWindowMax, Some(most_in_window(starts_us) as f64))
        .with(Metric::StartsUsedPercent, Some(used)))
}

/// As many as a rate per second allows from the first start on: all starts of a second may
/// happen at its beginning.
fn possible_starts(rate: u32, time_us: i64) -> u64 {
    let windows = time_us.max(1).div_euclid(WINDOW_US) + i64::from(time_us % WINDOW_US > 0);
    u64::from(rate) * u64::try_from(windows).unwrap_or(0)
}

/// The most starts in any window, which includes one of its two ends.
fn most_in_window(mut starts_us: Vec<i64>) -> usize {
    starts_us.sort_unstable();
    let mut first = 0;
    let mut most = 0;
    for (last, at_us) in starts_us.iter().enumerate() {
        while at_us - starts_us[first] >= WINDOW_US {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_exclude_their_end() {
        assert_eq!(most_in_window(vec![0, 10, 1_000_000, 1_000_009]), 3);
        assert_eq!(most_in_window(vec![2_000_000, 0, 1_000_000]), 1);
        assert_eq!(most_in_window(Vec::new()), 0);
    }

    #[test]
    fn begun_seconds_allow_all_starts() {
        assert_eq!(possible_starts(100, 300_000), 100);
        assert_eq!(possible_starts(100, 60_000_000), 6000);
        assert_eq!(possible_starts(100, 60_000_001), 6100);
    }
}
