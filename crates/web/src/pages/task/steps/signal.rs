//! The form that sends a signal to a task.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use task_engine_core::display::StepEntry;
use task_engine_core::step::SignalTarget;
use task_engine_core::task::TaskId;

use super::{ApiError, App, Timestamp, Viewer, deadline, parts};
use crate::access::Actor;
use crate::layout;
use crate::pages::operations::{FormFields, perform_and_return};
use crate::pages::task::id_of;
use crate::pages::task_form::{self, FormError, JsonField};

pub(in crate::pages::task) async fn send(
    State(app): State<App>,
    viewer: Viewer,
    actor: Actor,
    fields: FormFields,
) -> Result<Response, ApiError> {
    let id = id_of(fields.need("id")?)?;
    let name = fields.name()?;
    let text = fields.get("payload").unwrap_or_default();
    match task_form::payload(text) {
        Ok(payload) => {
            let (target, name) = (SignalTarget::Id(id), name.to_owned());
            perform_and_return(&app, &actor, &fields, |operator| async move {
                operator.signal(&target, &name, &payload).await.map(|sent| sent.report)
            })
            .await
        }
        Err(error) => {
            let form = SignalForm { id, number: 0, name, payload: text };
            let main = html! {
                h1 { "Send a signal to task " (id) }
                section .card { (form.show(&app, Some(&error))) }
                p { "Back to task " (parts::task_link(&app, id)) }
            };
            let page = layout::page(&app, &viewer, "Send a signal", "/tasks", main).await;
            Ok((StatusCode::BAD_REQUEST, page).into_response())
        }
    }
}

/// A wait for a signal, and the form that sends it.
pub(super) fn form(app: &App, id: TaskId, wait: &StepEntry, now: Timestamp) -> Markup {
    let form = SignalForm { id, number: wait.number, name: &wait.name, payload: "" };
    html! {
        div .signal data-key={ "wait-" (wait.number) } {
            p { "The task waits for signal " b .name { (wait.name) }
                @if let Some(until) = wait.until { " until " (deadline(app, until, now)) } "." }
            (form.show(app, None))
        }
    }
}

struct SignalForm<'a> {
    id: TaskId,
    /// Of the step that waits: each form has its own ids.
    number: u32,
    name: &'a str,
    payload: &'a str,
}

impl SignalForm<'_> {
    fn show(&self, app: &App, error: Option<&FormError>) -> Markup {
        let (name_id, payload_id) =
            (format!("signal-{}", self.number), format!("payload-{}", self.number));
        let payload = JsonField {
            id: &payload_id,
            name: "payload",
            label: "Payload (JSON)",
            hint: "Any JSON value, like {\"by\": \"ada\"}. Empty: null.",
            value: self.payload,
            rows: 3,
        };
        html! {
            form id={ "send-" (self.number) } method="post" action=(app.path("/operations/signal")) {
                input type="hidden" name="id" value=(self.id);
                input type="hidden" name="back" value={ "/tasks/" (self.id) };
                div .fields {
                    div {
                        label for=(name_id) { "Signal" }
                        input id=(name_id) type="text" name="name" value=(self.name) required autocomplete="off";
                    }
                    (payload.show(error))
                }
                button { "Send signal" }
            }
        }
    }
}
