//! The forms of operations. Each performs one and returns to its page, which shows
//! the outcome from the audit.

use axum::extract::rejection::RawFormRejection;
use axum::extract::{FromRequest, RawForm, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use task_engine_core::ParseError;
use task_engine_core::filter::Filter;
use task_engine_operations::tasks::{Selection, TaskOperation};
use task_engine_operations::{Actor, OperationError, OperationReport, Operator};

use super::links;
use crate::app::App;
use crate::error::ApiError;
use crate::operation::{NamedOperation, perform};
use crate::routes::Routes;

/// The fields of a form, or of the query of an address, in order; some may come several times.
#[derive(Debug, Default)]
pub(crate) struct FormFields(Vec<(String, String)>);

impl<S: Send + Sync> FromRequest<S> for FormFields {
    type Rejection = RawFormRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::read(&RawForm::from_request(request, state).await?))
    }
}

impl FormFields {
    pub(crate) fn read(RawForm(bytes): &RawForm) -> Self {
        let pairs = form_urlencoded::parse(bytes);
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let of_name =
            move |(key, value): &'a (String, String)| (key == name).then_some(value.as_str());
        self.0.iter().filter_map(of_name)
    }

    /// The first field of this name that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).map(str::trim).find(|value| !value.is_empty())
    }

    pub(crate) fn need(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name)
            .ok_or_else(|| ApiError::field(format!("/{name}"), format!("{name} is missing.")))
    }

    /// The name as it is: spaces at its ends belong to it.
    pub(crate) fn name(&self) -> Result<&str, ApiError> {
        let name = self.all("name").next().filter(|name| !name.is_empty());
        name.ok_or_else(|| ApiError::field("/name", "name is missing."))
    }

    /// Tasks by their ids, or by a filter if there are none.
    pub(crate) fn selection(&self, app: &App) -> Result<Selection, ApiError> {
        let ids: Vec<_> = self.all("ids").collect();
        if ids.is_empty() {
            let filter = self.need("filter")?;
            let filter = Filter::parse(filter, &app.zone)
                .map_err(|bad| ApiError::field("/filter", bad.to_string()))?;
            return Ok(Selection::Filter(filter));
        }
        let ids = ids
            .into_iter()
            .map(|id| id.parse().map_err(|why: ParseError| ApiError::field("/ids", why)));
        Ok(Selection::Ids(ids.collect::<Result<_, _>>()?))
    }
}

/// Performs an operation, and goes back; or to the task it has created, if the form wants that.
pub(crate) async fn perform_and_return<W>(
    app: &App,
    actor: &Actor,
    fields: &FormFields,
    work: impl FnOnce(Operator) -> W,
) -> Result<Response, ApiError>
where
    W: Future<Output = Result<OperationReport, OperationError>> + Send + 'static,
{
    let report = perform(app, actor, fields.get("reason"), work).await?;
    let to = match (fields.get("then"), &report.task_ids[..]) {
        (Some("created"), [id]) => app.path(&format!("/tasks/{id}")),
        _ => links::return_to(app, fields.get("back").unwrap_or("/")),
    };
    let (path, query) = to.split_once('?').unwrap_or((&to, ""));
    let joint = if query.is_empty() { "" } else { "&" };
    let to = format!("{path}?{query}{joint}done={}", report.audit_id);
    Ok(Redirect::to(&to).into_response())
}

pub(crate) fn routes(mut routes: Routes) -> Routes {
    for (path, operation) in [
        ("/operations/retry", TaskOperation::Retry),
        ("/operations/cancel", TaskOperation::Cancel),
        ("/operations/rerun", TaskOperation::Rerun),
        ("/operations/delete", TaskOperation::Delete),
    ] {
        let change = move |app: State<App>, actor: Actor, fields: FormFields| {
            change_tasks(app, actor, fields, operation)
        };
        routes = routes.post(path, operation.needs(), change);
    }
    for (path, operation) in [
        ("/operations/pause-queue", NamedOperation::PauseQueue),
        ("/operations/resume-queue", NamedOperation::ResumeQueue),
        ("/operations/recover", NamedOperation::Recover),
        ("/operations/clear-limit", NamedOperation::ClearLimit),
        ("/operations/pause-schedule", NamedOperation::PauseSchedule),
        ("/operations/resume-schedule", NamedOperation::ResumeSchedule),
        ("/operations/remove-schedule", NamedOperation::RemoveSchedule),
        ("/operations/revoke-token", NamedOperation::RevokeToken),
    ] {
        let change = move |app: State<App>, actor: Actor, fields: FormFields| {
            change_named(app, actor, fields, operation)
        };
        routes = routes.post(path, operation.needs(), change);
    }
    routes
}

async fn change_tasks(
    State(app): State<App>,
    actor: Actor,
    fields: FormFields,
    operation: TaskOperation,
) -> Result<Response, ApiError> {
    let selection = fields.selection(&app)?;
    perform_and_return(&app, &actor, &fields, |operator| async move {
        operator.change_tasks(operation, &selection).await
    })
    .await
}

async fn change_named(
    State(app): State<App>,
    actor: Actor,
    fields: FormFields,
    operation: NamedOperation,
) -> Result<Response, ApiError> {
    let name = fields.name()?.to_owned();
    // The user types the name of a queue to pause. All other names come from a page.
    let name = if operation == NamedOperation::PauseQueue { name.trim().to_owned() } else { name };
    perform_and_return(&app, &actor, &fields, |operator| operation.perform(operator, name)).await
}
