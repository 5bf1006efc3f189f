//! Tickets and handles: a statement with its values, as the client brings it back.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::FlightData;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, IntervalMonthDayNano, Schema, SchemaRef, TimeUnit};
use datafusion::common::ScalarValue;
use prost::Message;

use super::batch::BatchReader;
use super::running::ID_BYTES;
use crate::error::{QueryError, sqlstate};
use crate::plan::parameter;
use crate::query::cache::CachedPlan;
use crate::query::session::Session;
use crate::query::{Plan, Rows};
use crate::sql::subscribe;
use crate::subscription::class::Followed;
use crate::subscription::settings::{SUBSCRIBE_INTERVAL, SUBSCRIBE_LATENESS, SubscribeRequest};

/// Maximum time for a step of a subscription if statements have no timeout.
const STEP_TIMEOUT: Duration = Duration::from_secs(3_600);
/// Maximum rows of values for one statement, which then runs once for each.
const VALUE_ROWS_MAX: usize = 1_000;
/// Maximum size of the values of a statement, in bytes.
pub(super) const VALUES_BYTES_MAX: usize = 1 << 20;

/// A statement with its values. Its bytes are the handle of a prepared statement, and with an identifier the ticket of
/// one run.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Statement {
    /// Identifier, by which a run can be cancelled.
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
    #[prost(string, tag = "2")]
    sql: String,
    /// Schema and record batches of its rows of values; empty if there are none.
    #[prost(message, repeated, tag = "3")]
    values: Vec<FlightData>,
}

impl Statement {
    /// Creates a statement without values.
    pub(super) fn new(sql: String) -> Statement {
        Statement { id: Vec::new(), sql, values: Vec::new() }
    }

    /// Decodes a handle or ticket.
    ///
    /// # Errors
    /// If it is not one of this server.
    pub(super) fn of(handle: &[u8]) -> Result<Statement, QueryError> {
        Statement::decode(handle).map_err(|_| {
            QueryError::new(sqlstate::INVALID_STATEMENT_NAME, "the handle is not one of this server's statements")
        })
    }

    /// Returns the statement with an identifier, as a ticket.
    ///
    /// # Errors
    /// If the system cannot provide random bytes.
    pub(super) fn with_id(self) -> Result<Statement, QueryError> {
        let mut id = vec![0; ID_BYTES];
        getrandom::fill(&mut id)
            .map_err(|error| QueryError::new(sqlstate::INTERNAL_ERROR, format!("no randomness: {error}")))?;
        Ok(Statement { id, ..self })
    }

    /// Returns its identifier, if it has one.
    pub(super) fn id(&self) -> Option<[u8; ID_BYTES]> {
        self.id.as_slice().try_into().ok()
    }

    /// Returns the statement with the messages of its rows of values.
    pub(super) fn with_values(self, values: Vec<FlightData>) -> Statement {
        Statement { values, ..self }
    }

    /// Plans the statement.
    ///
    /// # Errors
    /// If it is not a read-only statement, or cannot be planned.
    pub(super) async fn prepare(&self, session: &Session) -> Result<CachedPlan, QueryError> {
        match subscribe::parse(&self.sql)? {
            None => session.prepare(&self.sql).await,
            Some(subscribe) => {
                let prepared = session.prepare(subscribe.select).await?;
                Followed::of(&prepared.plan)?;
                Ok(prepared)
            }
        }
    }

    /// Returns the request of the subscription that the statement is, or `None` if it is another one.
    ///
    /// # Errors
    /// If its text is invalid.
    pub(super) fn subscription(
        &self,
        session: &Session,
        address: IpAddr,
    ) -> Result<Option<SubscribeRequest>, QueryError> {
        let Some(subscribe) = subscribe::parse(&self.sql)? else { return Ok(None) };
        if !self.values.is_empty() {
            let text = "values are not bound in a subscription: write them in the statement";
            return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text));
        }
        Ok(Some(SubscribeRequest {
            sql: subscribe.select.to_owned(),
            interval: subscribe.every.unwrap_or(SUBSCRIBE_INTERVAL),
            lateness: subscribe.lateness.unwrap_or(SUBSCRIBE_LATENESS),
            idle: subscribe.idle,
            resume: None,
            timeout: session.query.inner.options.statement_timeout.unwrap_or(STEP_TIMEOUT),
            address,
        }))
    }

    /// Returns the values of each run of the statement: one run without values, or one for each row.
    ///
    /// # Errors
    /// If they do not fit the statement.
    pub(super) fn runs(&self, plan: &Plan) -> Result<Vec<Vec<ScalarValue>>, QueryError> {
        let wanted = plan.parameters.len();
        if self.values.is_empty() {
            if wanted > 0 {
                let text = format!("the statement needs values for {wanted} parameters, and none are bound");
                return Err(QueryError::new(sqlstate::UNDEFINED_PARAMETER, text)
                    .with_hint("A client must go on with the handle that it gets when it binds values."));
            }
            return Ok(vec![Vec::new()]);
        }
        let (mut runs, mut reader) = (Vec::new(), BatchReader::default());
        for message in &self.values {
            let Some(values) = reader.read(message)? else { continue };
            if values.num_columns() != wanted {
                let text = format!("{} values are bound, but the statement has {wanted}", values.num_columns());
                return Err(QueryError::new(sqlstate::PROTOCOL_VIOLATION, text));
            }
            if runs.len() + values.num_rows() > VALUE_ROWS_MAX {
                let text = format!("more than {VALUE_ROWS_MAX} rows of values for one statement");
                return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
            }
            for row in 0..values.num_rows() {
                let value = |(at, column): (usize, &ArrayRef)| {
                    parameter::fit(at + 1, plain(column, row)?, plan.parameter(at, plan.is_argument(at)))
                };
                runs.push(values.columns().iter().enumerate().map(value).collect::<Result<_, _>>()?);
            }
        }
        Ok(runs)
    }
}

/// Returns a value in one of the types that parameters have.
fn plain(column: &ArrayRef, row: usize) -> Result<ScalarValue, QueryError> {
    if column.is_null(row) {
        return Ok(ScalarValue::Utf8(None));
    }
    Ok(match column.data_type() {
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            let at = dictionary.normalized_keys()[row];
            return plain(dictionary.values(), at);
        }
        DataType::LargeUtf8 | DataType::Utf8View => {
            ScalarValue::try_from_array(column, row)?.cast_to(&DataType::Utf8)?
        }
        // A cast to an interval would take its number for months.
        DataType::Duration(_) => {
            let length =
                ScalarValue::try_from_array(column, row)?.cast_to(&DataType::Duration(TimeUnit::Nanosecond))?;
            let ScalarValue::DurationNanosecond(length_ns) = length else { return Ok(ScalarValue::Utf8(None)) };
            ScalarValue::IntervalMonthDayNano(length_ns.map(|ns| IntervalMonthDayNano::new(0, 0, ns)))
        }
        _ => ScalarValue::try_from_array(column, row)?,
    })
}

/// Starts one run of a statement.
///
/// # Errors
/// If it cannot be planned with these values.
pub(super) async fn run(
    session: &Session,
    prepared: &CachedPlan,
    values: Vec<ScalarValue>,
) -> Result<Rows, QueryError> {
    let CachedPlan { statement, plan } = prepared;
    if !plan.depends_on(&values) {
        return session.run(plan, values).await;
    }
    let plan = session.replan(statement, plan.footprint, &values).await?;
    let values = if plan.parameters.is_empty() { Vec::new() } else { values };
    session.run(&plan, values).await
}

/// Returns the columns of a schema as they are sent: texts instead of dictionaries.
pub(super) fn sent_schema(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| Field::new(field.name(), sent_type(field.data_type()), field.is_nullable());
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

fn sent_type(kind: &DataType) -> DataType {
    let element = |field: &Arc<Field>| {
        let plain = sent_type(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(plain))
    };
    match kind {
        DataType::Dictionary(_, value) => sent_type(value),
        DataType::List(field) => DataType::List(element(field)),
        DataType::LargeList(field) => DataType::LargeList(element(field)),
        DataType::FixedSizeList(field, length) => DataType::FixedSizeList(element(field), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(element).collect()),
        other => other.clone(),
    }
}

/// Returns the parameters of a plan as columns.
pub(super) fn parameter_schema(plan: &Plan) -> Schema {
    let field = |at: usize| {
        let kind = match plan.parameter(at, false) {
            None => DataType::Utf8,
            Some(DataType::Dictionary(_, value)) => value.as_ref().clone(),
            Some(kind) => kind.clone(),
        };
        Field::new(format!("${}", at + 1), kind, true)
    };
    Schema::new((0..plan.parameters.len()).map(field).collect::<Vec<_>>())
}
