//! Changes of schedules by applications and operators.
//!
//! Each change has the same three steps: read the schedule and the database's time, decide its new
//! state (a pure function, below), and write it. If the schedule has changed since it was read, the
//! change starts again.

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

use crate::contract::Store;
use crate::error::StoreError;
use task_engine_core::schedule::history::ScheduleDetails;
use task_engine_core::schedule::row::{SchedulePause, ScheduleRow, ScheduleState, ScheduleWrite};
use task_engine_core::schedule::{
    InvalidDefinition, InvalidSchedule, Schedule, ScheduleDefinition,
};
use task_engine_core::unique::{Creation, Unique};

/// The schedules in a store.
#[derive(Debug, Clone, Copy)]
pub struct Schedules<'a> {
    store: &'a dyn Store,
}

/// The error of a change of a schedule: nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The new definition is invalid: see [`InvalidSchedule`].
    #[error(transparent)]
    Invalid(#[from] InvalidSchedule),
    /// A schedule with this name exists: choose another name, or change that schedule.
    #[error("there is a schedule {0:?} already")]
    Exists(String),
    /// No schedule has this name.
    #[error("there is no schedule {0:?}")]
    NotFound(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The answer to whether there was anything to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It was written.
    Changed,
    /// It was so already.
    Unchanged,
}

/// Each round means that another writer changed the schedule in between. Even a schedule
/// that fires ten times a second allows a write in fewer rounds.
const ROUNDS_MAX: u32 = 100;

impl<'a> Schedules<'a> {
    /// Creates an accessor of the schedules of this store.
    #[must_use]
    pub fn of(store: &'a dyn Store) -> Self {
        Self { store }
    }

    /// Stores a new schedule.
    pub async fn add(&self, schedule: &Schedule) -> Result<ChangeOutcome, ScheduleError> {
        let definition = schedule.definition()?;
        self.write(schedule.name(), |row, now| match row {
            Some(_) => Err(ScheduleError::Exists(schedule.name().to_owned())),
            None => Ok(Some(define_state(schedule.name(), None, &definition, now)?)),
        })
        .await
    }

    /// Declares a schedule of an application's code.
    ///
    /// If the declaration has changed since the last one, it replaces the stored definition. If
    /// not, later changes by an operator are kept.
    pub async fn declare(&self, schedule: &Schedule) -> Result<ChangeOutcome, ScheduleError> {
        let definition = schedule.definition()?;
        self.write(schedule.name(), |row, now| {
            Ok(declare_state(schedule.name(), row, &definition, now)?)
        })
        .await
    }

    /// Changes the definition.
    pub async fn change(
        &self,
        name: &str,
        change: impl Fn(&ScheduleDefinition) -> Result<ScheduleDefinition, InvalidSchedule>,
    ) -> Result<ChangeOutcome, ScheduleError> {
        self.write(name, |row, now| {
            let row = row.ok_or_else(|| ScheduleError::NotFound(name.to_owned()))?;
            let definition = change(&row.definition().map_err(|why| invalid(name, why))?)?;
            definition.check(name).map_err(|why| invalid(name, why))?;
            Ok(Some(define_state(name, Some(row), &definition, now)?))
        })
        .await
    }

    /// Stops a schedule from firing until it is resumed.
    pub async fn pause(
        &self,
        name: &str,
        reason: Option<&str>,
    ) -> Result<ChangeOutcome, ScheduleError> {
        self.write(name, |row, now| {
            let row = row.ok_or_else(|| ScheduleError::NotFound(name.to_owned()))?;
            let reason = reason.map(str::to_owned);
            if row.state.paused.as_ref().is_some_and(|pause| pause.reason == reason) {
                return Ok(None);
            }
            let paused = Some(SchedulePause { at: now, reason });
            Ok(Some(ScheduleState { paused, next_at: None, ..row.state.clone() }))
        })
        .await
    }

    /// Lets a paused schedule fire again; slots that passed in the meantime do not fire.
    ///
    /// This also clears an error of the schedule.
    pub async fn resume(&self, name: &str) -> Result<ChangeOutcome, ScheduleError> {
        self.write(name, |row, now| {
            let row = row.ok_or_else(|| ScheduleError::NotFound(name.to_owned()))?;
            if row.state.paused.is_none() && row.state.error.is_none() {
                return Ok(None);
            }
            let definition = row.definition().map_err(|why| invalid(name, why))?;
            Ok(Some(start_state(name, row.state.clone(), &definition, row.last_slot, now)?))
        })
        .await
    }

    /// Creates one task of the schedule outside of its slots; with a key, at most once.
    ///
    /// The history of the schedule records it with its requester.
    pub async fn run(
        &self,
        name: &str,
        unique: Option<Unique>,
        requested_by: Option<&str>,
    ) -> Result<Creation, ScheduleError> {
        let (row, _) = self.store.schedule(name).await?;
        let row = row.ok_or_else(|| ScheduleError::NotFound(name.to_owned()))?;
        let task = row.definition().and_then(|definition| definition.task(name, None));
        let mut task = task.map_err(|why| invalid(name, why))?;
        task.unique = unique;
        Ok(self.store.run_schedule(row.version.id, &task, requested_by).await?)
    }

    /// Removes it with its fired slots.
    ///
    /// Its tasks are kept.
    pub async fn remove(&self, name: &str) -> Result<(), ScheduleError> {
        if self.store.remove_schedule(name).await? {
            Ok(())
        } else {
            Err(ScheduleError::NotFound(name.to_owned()))
        }
    }

    /// Returns a schedule with the newest `limit` of its fired slots and of its events.
    pub async fn show(&self, name: &str, limit: u32) -> Result<ScheduleDetails, ScheduleError> {
        let (row, now) = self.store.schedule(name).await?;
        let row = row.ok_or_else(|| ScheduleError::NotFound(name.to_owned()))?;
        let fired = self.store.fired_slots(row.version.id, limit).await?;
        let events = self.store.schedule_events(row.version.id, limit).await?;
        Ok(ScheduleDetails { row, fired, events, now })
    }

    async fn write(
        &self,
        name: &str,
        decide: impl Fn(Option<&ScheduleRow>, Timestamp) -> Result<Option<ScheduleState>, ScheduleError>,
    ) -> Result<ChangeOutcome, ScheduleError> {
        for _ in 0..ROUNDS_MAX {
            let (row, now) = self.store.schedule(name).await?;
            let Some(state) = decide(row.as_ref(), now)? else {
                return Ok(ChangeOutcome::Unchanged);
            };
            let expected = row.map(|row| row.version);
            let write = ScheduleWrite { name: name.to_owned(), expected, state };
            if self.store.write_schedule(&write).await? {
                return Ok(ChangeOutcome::Changed);
            }
        }
        Err(ScheduleError::Store(StoreError::Unavailable(format!(
            "schedule {name:?} is changed by others all the time; try again"
        ))))
    }
}

fn invalid(name: &str, why: InvalidDefinition) -> InvalidSchedule {
    InvalidSchedule { name: name.to_owned(), why }
}

/// Returns the new state after a declaration; `None` if it does not change.
pub fn declare_state(
    name: &str,
    row: Option<&ScheduleRow>,
    definition: &ScheduleDefinition,
    now: Timestamp,
) -> Result<Option<ScheduleState>, InvalidSchedule> {
    let declaration = definition.to_declaration().map_err(|why| invalid(name, why.into()))?;
    if let Some(row) = row.filter(|row| row.state.declared.as_ref() == Some(&declaration)) {
        // Another version of the program may have found an error where this one
        // finds none.
        let can_start = row.state.error.is_some() && row.state.paused.is_none();
        return match row.definition() {
            Ok(stored) if can_start => {
                start_state(name, row.state.clone(), &stored, row.last_slot, now).map(Some)
            }
            _ => Ok(None),
        };
    }
    let state = define_state(name, row, definition, now)?;
    Ok(Some(ScheduleState { declared: Some(declaration), ..state }))
}

/// The new state after a new definition. A pause is kept. If the slots are the same as
/// before, the next one is kept, even if it has passed: it counts as missed. New slots
/// start now, and after the last one that fired.
fn define_state(
    name: &str,
    row: Option<&ScheduleRow>,
    definition: &ScheduleDefinition,
    now: Timestamp,
) -> Result<ScheduleState, InvalidSchedule> {
    let state = ScheduleState {
        definition: definition.to_json().map_err(|why| invalid(name, why.into()))?,
        declared: row.and_then(|row| row.state.declared.clone()),
        overlap: definition.overlap,
        anchor: row.map_or_else(|| whole_millisecond(now), |row| row.state.anchor),
        paused: row.and_then(|row| row.state.paused.clone()),
        error: None,
        next_at: None,
    };
    if state.paused.is_some() {
        return Ok(state);
    }
    let same = row.filter(|row| row.definition().is_ok_and(|old| old.has_slots_of(definition)));
    match same.and_then(|row| row.state.next_at) {
        Some(next_at) => Ok(ScheduleState { next_at: Some(next_at), ..state }),
        None => start_state(name, state, definition, row.and_then(|row| row.last_slot), now),
    }
}

/// Fires from now on.
fn start_state(
    name: &str,
    state: ScheduleState,
    definition: &ScheduleDefinition,
    last_slot: Option<Timestamp>,
    now: Timestamp,
) -> Result<ScheduleState, InvalidSchedule> {
    let timetable = definition.timetable(state.anchor).map_err(|why| invalid(name, why))?;
    // Even if the database's clock was set back, a slot fires once.
    let after = last_slot.map_or(now, |slot| slot.max(now));
    let Some(next_at) = timetable.next_after(after) else {
        return Err(invalid(name, InvalidDefinition::Never(definition.rule.clone())));
    };
    Ok(ScheduleState { paused: None, error: None, next_at: Some(next_at), ..state })
}

fn whole_millisecond(time: Timestamp) -> Timestamp {
    let down = TimestampRound::new().smallest(Unit::Millisecond).mode(RoundMode::Trunc);
    time.round(down).unwrap_or(time)
}

#[cfg(test)]
mod tests;
