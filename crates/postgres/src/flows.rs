//! Flows: tasks that depend on others.

use task_engine_core::dependency::{
    AddMembersOutcome, BlockedTasks, CreatedFlow, DependencyCondition, DependencyRef,
    DependencyRow, FlowCounts, FlowRow, FlowsQuery, NewFlow, NewMembers,
};
use task_engine_core::task::TaskId;
use task_engine_core::unique::Creation;
use task_engine_store::error::StoreError;
use task_engine_store::sql::statement;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::create::TaskColumns;
use crate::error::{must_repeat, store_error};
use crate::executor::{Executor as _, PgTransaction};
#[cfg(feature = "sqlx")]
use crate::json::JsonIn;
use crate::read::status;
use crate::schema::Schema;
use crate::store::StoreInner;
use crate::value::read;

const SQL: &str = include_str!("../sql/engine/flows.sql");
const CREATE_FLOW: &str = statement(SQL, "create_flow");
const MEMBER_FENCE: &str = statement(SQL, "member_fence");
const LOCK_DEPENDENTS: &str = statement(SQL, "lock_dependents");
const ADD_MEMBER_DEPENDENCIES: &str = statement(SQL, "add_member_dependencies");
const DEPENDENTS_TO_EXTEND: &str = statement(SQL, "dependents_to_extend");
const DEPENDENCIES: &str = statement(SQL, "dependencies");
const DEPENDENTS: &str = statement(SQL, "dependents");
const BLOCKED_TASKS: &str = statement(SQL, "blocked_tasks");
const FLOWS: &str = statement(SQL, "flows");
const LOCK_FLOWS_TO_PRUNE: &str = statement(SQL, "lock_flows_to_prune");
const PRUNE_FLOWS: &str = statement(SQL, "prune_flows");
const RANDOM_FLOW: &str = statement(SQL, "random_flow");

/// How many flows one call looks at, of the oldest and from a random place on. Flows whose
/// tasks are kept for long do not hide the others.
const FLOWS_LOOKED_AT: i64 = 1000;

impl StoreInner {
    pub(crate) async fn create_flow(&self, flow: &NewFlow) -> Result<CreatedFlow, StoreError> {
        let client = self.connections.work().await?;
        let sql = self.schema.sql(CREATE_FLOW);
        let columns = FlowColumns::of(flow);
        loop {
            match client.query_cached(&sql, &columns.parameters(flow)).await {
                Err(e) if must_repeat(&e) => {}
                Err(e) => return Err(flow_error(&e)),
                Ok(rows) => return Ok(created_flow(&rows)),
            }
        }
    }

    pub(crate) async fn add_members(
        &self,
        members: &NewMembers,
    ) -> Result<AddMembersOutcome, StoreError> {
        let mut client = self.connections.work().await?;
        let (added, dependents) = loop {
            let transaction = client.transaction().await?;
            match self.add_members_in(&transaction, members).await? {
                MembersStep::Added(added, dependents) => match transaction.commit().await {
                    Err(e) if must_repeat(&e) => {}
                    committed => {
                        committed?;
                        break (added, dependents);
                    }
                },
                refused => {
                    transaction.rollback().await?;
                    if let MembersStep::Refused(refused) = refused {
                        return Ok(refused);
                    }
                }
            }
        };
        drop(client);
        // Engines leave tasks alone that are locked here.
        self.resolve_dependents_of(dependents).await;
        Ok(AddMembersOutcome::Added(added))
    }

    async fn add_members_in(
        &self,
        transaction: &PgTransaction<'_>,
        members: &NewMembers,
    ) -> Result<MembersStep, StoreError> {
        let (task, attempt, claim) = (members.id.task_id.0, members.id.attempt, members.claim_id.0);
        let fence = async || {
            let sql = self.schema.sql(MEMBER_FENCE);
            let row = transaction.query_one(&sql, &[&task, &attempt, &claim]).await;
            Ok::<_, StoreError>(read::<bool>(&row?, "held"))
        };
        if !fence().await? {
            return Ok(MembersStep::Refused(AddMembersOutcome::AttemptOver));
        }
        match transaction.query(&self.schema.sql(LOCK_DEPENDENTS), &[&task]).await {
            Err(e) if must_repeat(&e) => return Ok(MembersStep::Repeat),
            locked => locked?,
        };
        let rows = transaction.query(&self.schema.sql(DEPENDENTS_TO_EXTEND), &[&task]).await?;
        if !rows.iter().any(|row| read(row, "is_blocked")) {
            return Ok(MembersStep::Refused(AddMembersOutcome::NoDependents));
        }
        if let Some(member) = members.tasks.iter().find(|member| member.unique.is_some()) {
            return Err(StoreError::Refused(format!(
                "a member of class {:?} has a unique key, and members are always new tasks",
                member.class
            )));
        }
        let dependents: Vec<i64> = rows.iter().map(|row| read(row, "task_id")).collect();
        let created = self.schema.create_each_in(transaction.client(), &members.tasks).await?;
        let ids: Vec<i64> = created.iter().map(|one| one.id().0).collect();
        transaction
            .execute(&self.schema.sql(ADD_MEMBER_DEPENDENCIES), &[&task, &dependents, &ids])
            .await?;
        // Once more: creation may have taken long, and recovery may have ended the attempt.
        if !fence().await? {
            return Ok(MembersStep::Refused(AddMembersOutcome::AttemptOver));
        }
        let added = created.into_iter().map(Creation::id).collect();
        Ok(MembersStep::Added(added, dependents))
    }

    pub(crate) async fn dependencies(
        &self,
        tasks: &[TaskId],
        limit: u32,
    ) -> Result<Vec<DependencyRow>, StoreError> {
        let client = self.connections.work().await?;
        let ids: Vec<i64> = tasks.iter().map(|id| id.0).collect();
        let sql = self.schema.sql(DEPENDENCIES);
        let rows = client.query_cached(&sql, &[&ids, &i64::from(limit)]).await?;
        Ok(rows.iter().filter_map(dependency_row).collect())
    }

    pub(crate) async fn dependents(
        &self,
        task: TaskId,
        limit: u32,
    ) -> Result<Vec<DependencyRow>, StoreError> {
        let client = self.connections.work().await?;
        let rows =
            client.query(&self.schema.sql(DEPENDENTS), &[&task.0, &i64::from(limit)]).await?;
        Ok(rows.iter().filter_map(dependency_row).collect())
    }

    pub(crate) async fn blocked_tasks(&self, limit: u32) -> Result<BlockedTasks, StoreError> {
        let client = self.connections.work().await?;
        let limit = i64::from(limit);
        let rows = client.query(&self.schema.sql(BLOCKED_TASKS), &[&(limit + 1)]).await?;
        let found = rows.iter().map(|row| (TaskId(row.get("task_id")), row.get("is_overdue")));
        Ok(BlockedTasks::of(limit, found))
    }

    pub(crate) async fn flows(&self, query: &FlowsQuery) -> Result<Vec<FlowRow>, StoreError> {
        let client = self.connections.work().await?;
        let before = query.before.unwrap_or(i64::MAX);
        let (limit, counted) = (i64::from(query.limit), i64::from(query.tasks_counted_max));
        let parameters: [&(dyn ToSql + Sync); 4] =
            [&query.correlation_id, &before, &limit, &counted];
        let rows = client.query(&self.schema.sql(FLOWS), &parameters).await?;
        Ok(rows.iter().map(flow_row).collect())
    }

    pub(crate) async fn prune_flows(&self, limit: u32) -> Result<u64, StoreError> {
        let mut client = self.connections.work().await?;
        let row = client.query_one(&self.schema.sql(RANDOM_FLOW), &[]).await?;
        let (first, last): (i64, i64) = (read(&row, "first"), read(&row, "last"));
        let mut removed = 0;
        for from in [first, fastrand::i64(first..=last)] {
            let transaction = client.transaction().await?;
            let rest = i64::from(limit) - i64::try_from(removed).unwrap_or(i64::MAX);
            let locked = transaction
                .query(&self.schema.sql(LOCK_FLOWS_TO_PRUNE), &[&from, &FLOWS_LOOKED_AT, &rest])
                .await?;
            let ids: Vec<i64> = locked.iter().map(|row| row.get(0)).collect();
            if ids.is_empty() {
                continue;
            }
            let gone = transaction.execute(&self.schema.sql(PRUNE_FLOWS), &[&ids]).await;
            removed += gone?;
            transaction.commit().await?;
        }
        Ok(removed)
    }
}

/// What one try to add members has done.
enum MembersStep {
    /// The members, and the tasks that depend on them.
    Added(Vec<TaskId>, Vec<i64>),
    Refused(AddMembersOutcome),
    /// The transaction is to be run again.
    Repeat,
}

impl Schema {
    /// Creates the tasks of a flow, all or none, in a transaction of tokio-postgres.
    ///
    /// They exist, and engines are woken, when it commits.
    ///
    /// Existing tasks that they depend on are locked until then, and do not start before.
    pub async fn create_flow_in(
        &self,
        transaction: &impl GenericClient,
        flow: &NewFlow,
    ) -> Result<CreatedFlow, StoreError> {
        let columns = FlowColumns::of(flow);
        let parameters: Vec<_> = columns.parameters(flow).into_iter().zip(TYPES).collect();
        // Not prepared: that would be another way to the server and back.
        let rows = transaction.query_typed(&self.sql(CREATE_FLOW), &parameters).await;
        Ok(created_flow(&rows.map_err(|e| flow_error(&e))?))
    }

    /// Creates a flow like [`Schema::create_flow_in`], with sqlx.
    #[cfg(feature = "sqlx")]
    pub async fn create_flow_in_sqlx(
        &self,
        connection: &mut sqlx::PgConnection,
        flow: &NewFlow,
    ) -> Result<CreatedFlow, StoreError> {
        use sqlx::Row as _;
        let FlowColumns { tasks, dependents, places, ids, conditions } = FlowColumns::of(flow);
        // Times and JSON go as text: no feature of sqlx is needed for them.
        let times: Vec<Option<String>> =
            tasks.times.iter().map(|time| time.map(|time| time.to_string())).collect();
        let text = |column: &[JsonIn<'_>]| -> Vec<String> {
            column.iter().map(|json| json.0.to_owned()).collect()
        };
        let sql = self.sql(const { statement(SQL, "create_flow_from_text") }).into_owned();
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(flow.name.clone())
            .bind(flow.correlation_id.clone())
            .bind(tasks.classes)
            .bind(text(&tasks.parameters))
            .bind(times)
            .bind(tasks.waits)
            .bind(tasks.priorities)
            .bind(tasks.queues)
            .bind(text(&tasks.contexts))
            .bind(tasks.keys.keys)
            .bind(tasks.keys.scopes)
            .bind(tasks.keys.answers)
            .bind(dependents)
            .bind(places)
            .bind(ids)
            .bind(conditions)
            .fetch_all(connection)
            .await
            .map_err(|error| match error.as_database_error() {
                Some(db) if db.code().as_deref() == Some(INVALID) => {
                    StoreError::Refused(db.message().to_owned())
                }
                _ => crate::create::sqlx_error(&error),
            })?;
        let correlation_id = rows.first().map_or_else(String::new, |row| row.get(1));
        Ok(CreatedFlow { correlation_id, ids: rows.iter().map(|row| TaskId(row.get(0))).collect() })
    }
}

/// The server's code for what a flow cannot be.
#[cfg(feature = "sqlx")]
const INVALID: &str = "22023";

const TYPES: [Type; 16] = [
    Type::TEXT,
    Type::TEXT,
    Type::TEXT_ARRAY,
    Type::JSONB_ARRAY,
    Type::TIMESTAMPTZ_ARRAY,
    Type::INT8_ARRAY,
    Type::INT4_ARRAY,
    Type::TEXT_ARRAY,
    Type::JSONB_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT4_ARRAY,
    Type::INT4_ARRAY,
    Type::INT8_ARRAY,
    Type::TEXT_ARRAY,
];

/// The tasks of a flow as columns, and its dependencies, side by side.
struct FlowColumns<'a> {
    tasks: TaskColumns<'a>,
    /// The places of the dependent tasks, from 1.
    dependents: Vec<i32>,
    /// The place of the task that each depends on, or its id.
    places: Vec<Option<i32>>,
    ids: Vec<Option<i64>>,
    conditions: Vec<&'static str>,
}

impl<'a> FlowColumns<'a> {
    fn of(flow: &'a NewFlow) -> Self {
        let place = |place: usize| i32::try_from(place + 1).unwrap_or(i32::MAX);
        let mut columns = Self {
            tasks: TaskColumns::of_each(&flow.tasks.iter().map(|task| &task.task)),
            dependents: Vec::new(),
            places: Vec::new(),
            ids: Vec::new(),
            conditions: Vec::new(),
        };
        for (n, task) in flow.tasks.iter().enumerate() {
            for dependency in &task.dependencies {
                let (in_flow, id) = match dependency.on {
                    DependencyRef::InFlow(on) => (Some(place(on)), None),
                    DependencyRef::Existing(id) => (None, Some(id.0)),
                };
                columns.dependents.push(place(n));
                columns.places.push(in_flow);
                columns.ids.push(id);
                columns.conditions.push(dependency.condition.as_str());
            }
        }
        columns
    }

    fn parameters<'p>(&'p self, flow: &'p NewFlow) -> Vec<&'p (dyn ToSql + Sync)> {
        vec![
            &flow.name,
            &flow.correlation_id,
            &self.tasks.classes,
            &self.tasks.parameters,
            &self.tasks.times,
            &self.tasks.waits,
            &self.tasks.priorities,
            &self.tasks.queues,
            &self.tasks.contexts,
            &self.tasks.keys.keys,
            &self.tasks.keys.scopes,
            &self.tasks.keys.answers,
            &self.dependents,
            &self.places,
            &self.ids,
            &self.conditions,
        ]
    }
}

fn created_flow(rows: &[Row]) -> CreatedFlow {
    let correlation_id = rows.first().map_or_else(String::new, |row| row.get(1));
    CreatedFlow { correlation_id, ids: rows.iter().map(|row| TaskId(row.get(0))).collect() }
}

/// What a flow cannot be is refused with the message of the function.
fn flow_error(error: &tokio_postgres::Error) -> StoreError {
    match error.as_db_error() {
        Some(db) if *db.code() == SqlState::INVALID_PARAMETER_VALUE => {
            StoreError::Refused(db.message().to_owned())
        }
        _ => store_error(error),
    }
}

/// `None` for a condition that a later version of this program has written.
fn dependency_row(row: &Row) -> Option<DependencyRow> {
    Some(DependencyRow::new(
        TaskId(read(row, "task_id")),
        TaskId(read(row, "depends_on")),
        DependencyCondition::from_token(row.get("condition"))?,
        read(row, "name"),
        row.get::<_, Option<&str>>("status").and_then(status),
    ))
}

fn flow_row(row: &Row) -> FlowRow {
    let count = |name| u32::try_from(read::<i64>(row, name)).unwrap_or(u32::MAX);
    FlowRow {
        id: read(row, "id"),
        correlation_id: read(row, "correlation_id"),
        name: read(row, "name"),
        created_at: read(row, "created_at"),
        counts: FlowCounts {
            blocked: count("blocked"),
            waiting: count("waiting"),
            running: count("running"),
            stopped: count("stopped"),
            failed: count("failed"),
            cancelled: count("cancelled"),
            not_needed: count("not_needed"),
            and_more: read(row, "and_more"),
        },
    }
}
