//! What the attempts of one life work with, and where their endings go.

use std::sync::Arc;

use task_engine_core::instance::InstanceId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::execute::Bench;
use crate::figures::Figures;
use crate::life::Life;
use crate::pools::Freed;
use crate::record::{Record, Recorder, Unwritten};
use crate::report::Reports;
use crate::running::{Claims, Running};
use crate::settle::Settler;

pub(crate) struct Workplace<S> {
    /// Recording ends when the last attempt has let go of this.
    pub(crate) bench: Arc<Bench<S>>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) unwritten: Arc<Unwritten>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) figures: Arc<Figures>,
}

impl<S: Send + Sync + 'static> Life<S> {
    /// The workplace, and the recording of what is done there.
    pub(crate) fn equip(
        &self,
        instance: InstanceId,
        freed: Freed,
        running: &Arc<Running>,
        forced: CancellationToken,
    ) -> (Workplace<S>, impl Future<Output = Record> + Send + use<S>) {
        let (claims, unwritten) = (Arc::<Claims>::default(), Arc::<Unwritten>::default());
        let reports = Reports::new(self.store.clone());
        let figures = Figures::new(self.store.clone(), instance, self.classes.by_number());
        let (endings, to_record) = mpsc::unbounded_channel();
        let (unsettled, to_settle) = mpsc::unbounded_channel();
        let recorder = Recorder {
            store: self.store.clone(),
            claims: claims.clone(),
            stop: self.stop.watch(),
            unwritten: unwritten.clone(),
            reports: reports.clone(),
            figures: figures.clone(),
            uncounted: Vec::new(),
            stopping_since: None,
        };
        let settler = Settler {
            store: self.store.clone(),
            claims: claims.clone(),
            stop: self.stop.watch(),
            unwritten: unwritten.clone(),
            reports: reports.clone(),
            figures: figures.clone(),
            last_error: None,
        };
        let bench = Arc::new(Bench {
            state: self.state.clone(),
            client: self.client.clone(),
            instance,
            running: running.clone(),
            endings,
            unsettled,
            schema: self.store.schema_name().into(),
            freed,
            reports: reports.clone(),
            forced,
        });
        let recording = async move {
            let (record, settled) = tokio::join!(recorder.run(to_record), settler.run(to_settle));
            record.and(&settled)
        };
        (Workplace { bench, claims, unwritten, reports, figures }, recording)
    }
}
