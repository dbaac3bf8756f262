//! What can be refused before anything is done, so that it leaves nothing behind.
//! Each action checks all of it again itself: things may change in between, and
//! then the audit says that it was refused.

use task_engine_core::change::EditReport;
use task_engine_core::task::{TaskId, TaskStatus};
use task_engine_operations::recover::RecoverError;
use task_engine_store::contract::Store;
use task_engine_store::schedules::ScheduleError;

use super::{Action, edited, no_task, no_token, schedule_problem, stray_placeholder, tasks};
use crate::app::App;
use crate::error::ApiError;

pub(super) async fn check(app: &App, action: &Action) -> Result<(), ApiError> {
    let store = &*app.store;
    match action {
        Action::Tasks(_, choice) => {
            tasks::check(choice)?;
            match choice {
                tasks::Choice::Ids(ids) if ids.len() == 1 => exists(store, ids[0]).await,
                _ => Ok(()),
            }
        }
        Action::Reveal(id) => exists(store, *id).await,
        Action::Edit(id, _) => match store.task(*id).await? {
            None => edited(*id, EditReport::NotFound).map(drop),
            Some(task) if task.row.status != TaskStatus::Waiting => {
                edited(*id, EditReport::NotWaiting(task.row.status)).map(drop)
            }
            Some(_) => Ok(()),
        },
        Action::AddSchedule(schedule) => match store.schedule(schedule.name()).await?.0 {
            Some(row) => Err(schedule_problem(ScheduleError::Exists(row.name))),
            None => Ok(()),
        },
        Action::SetSchedule(schedule) => {
            let row = schedule_of(store, schedule.name()).await?;
            let stored = row.definition().map_err(|why| ApiError::conflict(why.to_string()))?;
            let mut new =
                schedule.definition().map_err(|bad| ApiError::bad_request(bad.to_string()))?;
            let restored = app.secrets().await?.restore(&mut new, &stored);
            restored.map_err(|stray| stray_placeholder("/parameters", &stray))
        }
        Action::PauseSchedule(name, _)
        | Action::ResumeSchedule(name)
        | Action::RunSchedule(name, _)
        | Action::RemoveSchedule(name) => schedule_of(store, name).await.map(drop),
        Action::Recover(name) => recoverable(store, name).await,
        Action::AddToken(token) => {
            let taken = |row: &task_engine_store::token::TokenRow| {
                row.name == token.name() && row.revoked_at.is_none()
            };
            match store.tokens().await?.iter().any(taken) {
                true => Err(ApiError::conflict(token.name_taken().to_string())),
                false => Ok(()),
            }
        }
        Action::RevokeToken(name) => {
            let is_it = |row: &task_engine_store::token::TokenRow| {
                row.name == *name && row.revoked_at.is_none()
            };
            if store.tokens().await?.iter().any(is_it) { Ok(()) } else { Err(no_token(name)) }
        }
        Action::Create(_)
        | Action::CreateOnce(..)
        | Action::PauseQueue(_)
        | Action::ResumeQueue(_) => Ok(()),
    }
}

async fn exists(store: &dyn Store, id: TaskId) -> Result<(), ApiError> {
    store.task(id).await?.map(drop).ok_or_else(|| no_task(id))
}

async fn schedule_of(
    store: &dyn Store,
    name: &str,
) -> Result<task_engine_core::schedule::row::ScheduleRow, ApiError> {
    let row = store.schedule(name).await?.0;
    row.ok_or_else(|| schedule_problem(ScheduleError::NotFound(name.to_owned())))
}

async fn recoverable(store: &dyn Store, name: &str) -> Result<(), ApiError> {
    let lives = store.instances(Some(name)).await?;
    let is_live =
        |life: &task_engine_core::instance::InstanceRow| life.is_alive() && !life.process_gone;
    if lives.is_empty() {
        return Err(ApiError::not_found(format!("No engine is known by the name {name}.")));
    }
    if lives.iter().any(|life| !life.has_ended() && !is_live(life)) {
        return Ok(());
    }
    match lives.into_iter().find(is_live) {
        Some(life) => Err(ApiError::conflict(RecoverError::Alive(Box::new(life)).to_string())),
        None => Ok(()),
    }
}
