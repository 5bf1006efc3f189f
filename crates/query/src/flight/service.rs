//! Answers the calls of one client.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, Command, CommandStatementIngest, DoPutPreparedStatementResult,
    DoPutUpdateResult, ProstMessageExt, TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, Criteria, Empty, FlightData,
    FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, IpcMessage, PollInfo, PutResult,
    SchemaAsIpc, SchemaResult, Ticket,
};
use bytes::Bytes;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use futures::{Stream, StreamExt, stream};
use prost::Message;
use tokio::sync::{Semaphore, watch};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::auth::FlightAuth;
use super::batch::BatchReader;
use super::catalog::CatalogCall;
use super::ingest;
use super::ingest::BulkSink;
use super::result;
use super::running::RunningStatements;
use super::statement::{Statement, VALUES_BYTES_MAX, parameter_schema, sent_schema};
use super::status::{malformed, status};
use crate::error::{QueryError, sqlstate};
use crate::query::Plan;
use crate::query::session::Session;
use crate::running::watched::{Halt, Watched, stopping};
use crate::sql::setting::MarkUse;

const CREATE_PREPARED_STATEMENT: &str = "CreatePreparedStatement";
const CLOSE_PREPARED_STATEMENT: &str = "ClosePreparedStatement";
const CANCEL_QUERY: &str = "CancelQuery";
const CANCEL_FLIGHT_INFO: &str = "CancelFlightInfo";
/// Header of a call that says how values marked bad are treated.
const MARKS_HEADER: &str = "strongback-marks";
/// Actions, with their descriptions.
const ACTIONS: [(&str, &str); 4] = [
    (CREATE_PREPARED_STATEMENT, "Plans a statement. Returns a handle for it, and its columns and parameters."),
    (CLOSE_PREPARED_STATEMENT, "Has no effect: the server keeps nothing of a prepared statement."),
    (CANCEL_FLIGHT_INFO, "Cancels the statement of a FlightInfo."),
    (CANCEL_QUERY, "Cancels the statement of a FlightInfo. Older form of CancelFlightInfo."),
];

/// Service for one connection.
pub(super) struct Service {
    pub(super) session: Arc<Session>,
    /// Address of the client.
    pub(super) peer: IpAddr,
    pub(super) auth: FlightAuth,
    pub(super) running: Arc<RunningStatements>,
    /// Destination of bulk writes; `None` if nothing may be written.
    pub(super) sink: Option<Arc<dyn BulkSink>>,
    /// Permits to hand a batch of a bulk write over.
    pub(super) writers: Arc<Semaphore>,
    /// Whether the server stops.
    pub(super) stopped: watch::Receiver<bool>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A call that returns rows.
enum Call {
    Statement(Statement),
    Catalog(CatalogCall),
}

/// Decodes a command or ticket.
fn command(bytes: &[u8]) -> Result<Command, QueryError> {
    let any = Any::decode(bytes).map_err(|error| malformed(&error.to_string()))?;
    Command::try_from(any).map_err(|error| malformed(&error.to_string()))
}

/// Returns the error for a command that is not offered.
fn refusal(command: &Command) -> QueryError {
    match command {
        Command::CommandStatementUpdate(_) | Command::CommandPreparedStatementUpdate(_) => {
            QueryError::read_only("an update")
        }
        Command::CommandStatementIngest(_) => QueryError::read_only("a bulk ingestion"),
        Command::CommandStatementSubstraitPlan(_) | Command::ActionCreatePreparedSubstraitPlanRequest(_) => {
            QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, "Substrait plans are not supported")
        }
        Command::Unknown(any) => {
            let text = format!("{:?} is not a command of Flight SQL", any.type_url);
            QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text)
        }
        _ => malformed("a command in the wrong place"),
    }
}

/// Returns the error for a call that is not offered.
fn not_offered(what: &str) -> Status {
    status(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not supported")))
}

fn ipc(schema: &Schema) -> Result<Bytes, QueryError> {
    let message = IpcMessage::try_from(SchemaAsIpc::new(schema, &IpcWriteOptions::default()));
    Ok(message.map_err(|error| QueryError::new(sqlstate::INTERNAL_ERROR, error.to_string()))?.0)
}

fn once<T: Send + 'static>(item: T) -> Response<Answers<T>> {
    Response::new(Box::pin(stream::iter([Ok(item)])))
}

impl Service {
    /// Does the work of a call that does not return rows, in the time that a statement has.
    async fn work<T>(&self, work: impl Future<Output = Result<T, QueryError>>) -> Result<T, Status> {
        // A call ends when its client leaves, because it is then dropped.
        let cancel = watch::Sender::new(false);
        let watched =
            Watched { cancel: cancel.subscribe(), stopped: self.stopped.clone(), deadline: self.session.deadline() };
        let ended = watched.until(std::future::pending(), work).await;
        ended
            .unwrap_or_else(|halt| match halt {
                Halt::Error(error) | Halt::Stopping(error) => Err(error),
                Halt::Gone => Err(QueryError::cancelled()),
            })
            .map_err(status)
    }

    /// Returns the call of a descriptor.
    fn call(descriptor: &FlightDescriptor) -> Result<Call, QueryError> {
        match command(&descriptor.cmd)? {
            Command::CommandStatementQuery(query) => Ok(Call::Statement(Statement::new(query.query))),
            Command::CommandPreparedStatementQuery(query) => {
                Ok(Call::Statement(Statement::of(&query.prepared_statement_handle)?))
            }
            other => CatalogCall::of(other).map(Call::Catalog).map_err(|command| refusal(&command)),
        }
    }

    async fn info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo, QueryError> {
        let (schema, ticket) = match Self::call(&descriptor)? {
            Call::Statement(statement) => {
                let plan = statement.prepare(&self.session).await?.plan;
                let statement_handle = statement.with_id()?.encode_to_vec().into();
                let ticket = TicketStatementQuery { statement_handle }.as_any().encode_to_vec().into();
                (sent_schema(&plan.schema), ticket)
            }
            Call::Catalog(call) => (call.schema(), descriptor.cmd.clone()),
        };
        let endpoint = FlightEndpoint::new().with_ticket(Ticket { ticket });
        let info = FlightInfo::new().with_endpoint(endpoint).with_descriptor(descriptor);
        Ok(FlightInfo { schema: ipc(&schema)?, ..info })
    }

    async fn schema(&self, descriptor: FlightDescriptor) -> Result<SchemaResult, QueryError> {
        let schema = match Self::call(&descriptor)? {
            Call::Statement(statement) => sent_schema(&statement.prepare(&self.session).await?.plan.schema),
            Call::Catalog(call) => call.schema(),
        };
        Ok(SchemaResult { schema: ipc(&schema)? })
    }

    /// Returns the session of a call. The header `strongback-marks` says how it treats values that are marked bad.
    fn session_of(&self, headers: &MetadataMap) -> Result<Arc<Session>, QueryError> {
        let Some(value) = headers.get(MARKS_HEADER) else { return Ok(self.session.clone()) };
        match value.to_str().ok().and_then(MarkUse::from_name) {
            Some(marks) => Ok(Arc::new(self.session.query.with_marks(marks).session())),
            None => {
                let text = format!("the header {MARKS_HEADER} must be apply or ignore");
                Err(QueryError::new(sqlstate::INVALID_PARAMETER, text))
            }
        }
    }

    fn get(&self, request: &Request<Ticket>) -> Result<Answers<FlightData>, QueryError> {
        let (session, ticket) = (self.session_of(request.metadata())?, request.get_ref());
        let statement = match command(&ticket.ticket)? {
            Command::TicketStatementQuery(ticket) => Statement::of(&ticket.statement_handle)?,
            Command::CommandPreparedStatementQuery(query) => Statement::of(&query.prepared_statement_handle)?,
            other => {
                let call = CatalogCall::of(other).map_err(|command| refusal(&command))?;
                return Ok(Box::pin(self.catalog(call)));
            }
        };
        let running = self.running.register(statement.id());
        let stopped = self.stopped.clone();
        Ok(Box::pin(match statement.subscription(&session, self.peer)? {
            None => result::of_statement(session, statement, running, stopped),
            Some(request) => result::of_subscription(session.query.clone(), request, running, stopped),
        }))
    }

    fn catalog(&self, call: CatalogCall) -> result::Results {
        let running = self.running.register(None);
        let deadline = self.session.deadline();
        let watched = Watched { cancel: running.cancelled(), stopped: self.stopped.clone(), deadline };
        let (query, writable) = (self.session.query.clone(), self.sink.is_some());
        result::produce(query.inner.answers.clone(), watched, move |mut out| async move {
            let _running = running;
            call.put(&query, writable, &mut out).await
        })
    }

    /// Plans a statement and returns its handle.
    async fn create(
        &self,
        request: ActionCreatePreparedStatementRequest,
    ) -> Result<ActionCreatePreparedStatementResult, QueryError> {
        let statement = Statement::new(request.query);
        let plan: Arc<Plan> = statement.prepare(&self.session).await?.plan;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: statement.encode_to_vec().into(),
            dataset_schema: ipc(&sent_schema(&plan.schema))?,
            parameter_schema: ipc(&parameter_schema(&plan))?,
        })
    }

    /// Reads the values of a prepared statement, and returns the handle that holds them.
    async fn bind(&self, handle: &[u8], mut data: Incoming) -> Result<DoPutPreparedStatementResult, QueryError> {
        let statement = Statement::of(handle)?;
        let plan = statement.prepare(&self.session).await?.plan;
        let (mut values, mut reader, mut bytes) = (Vec::new(), BatchReader::default(), 0);
        while let Some(message) = data.next().await {
            let message = message.map_err(|error| malformed(error.message()))?;
            bytes += message.data_header.len() + message.data_body.len();
            if bytes > VALUES_BYTES_MAX {
                let text = format!("the values of a statement have more than {VALUES_BYTES_MAX} bytes");
                return Err(QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
            }
            reader.read(&message)?;
            let FlightData { data_header, data_body, .. } = message;
            values.push(FlightData { data_header, data_body, ..FlightData::default() });
        }
        let statement = statement.with_values(values);
        statement.runs(&plan)?;
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(statement.encode_to_vec().into()) })
    }

    /// Stores the rows that a client sends, for as long as it sends any.
    async fn write(
        &self,
        sink: &Arc<dyn BulkSink>,
        command: CommandStatementIngest,
        data: Incoming,
    ) -> Result<i64, QueryError> {
        let mut stopped = self.stopped.clone();
        let to = (sink.as_ref(), self.writers.as_ref());
        tokio::select! {
            written = ingest::ingest(&self.session.query, to, command, data) => written,
            _ = stopped.wait_for(|stopped| *stopped) => Err(stopping()),
        }
    }

    /// Cancels the statements whose tickets are in a FlightInfo.
    fn cancel(&self, info: &FlightInfo) -> CancelStatus {
        let tickets = info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref());
        let ids = tickets.filter_map(|ticket| match command(&ticket.ticket) {
            Ok(Command::TicketStatementQuery(ticket)) => Statement::of(&ticket.statement_handle).ok()?.id(),
            _ => None,
        });
        let cancelled = ids.fold(false, |any, id| self.running.cancel(id) | any);
        if cancelled { CancelStatus::Cancelled } else { CancelStatus::NotCancellable }
    }

    async fn act(&self, action: &Action) -> Result<Option<Bytes>, QueryError> {
        let invalid = |error: prost::DecodeError| malformed(&error.to_string());
        match action.r#type.as_str() {
            CREATE_PREPARED_STATEMENT => {
                let request = unpack::<ActionCreatePreparedStatementRequest>(&action.body)?;
                let created = self.create(request).await?;
                Ok(Some(created.as_any().encode_to_vec().into()))
            }
            CLOSE_PREPARED_STATEMENT => Ok(None),
            CANCEL_QUERY => {
                let request = unpack::<ActionCancelQueryRequest>(&action.body)?;
                let cancelled = self.cancel(&FlightInfo::decode(request.info).map_err(invalid)?);
                // The results of both actions have the same numbers.
                let result = ActionCancelQueryResult { result: cancelled as i32 };
                Ok(Some(result.as_any().encode_to_vec().into()))
            }
            CANCEL_FLIGHT_INFO => {
                let request = CancelFlightInfoRequest::decode(action.body.clone()).map_err(invalid)?;
                let cancelled = request.info.map_or(CancelStatus::NotCancellable, |info| self.cancel(&info));
                Ok(Some(CancelFlightInfoResult::new(cancelled).encode_to_vec().into()))
            }
            "BeginTransaction" | "EndTransaction" | "BeginSavepoint" | "EndSavepoint" => {
                let text = "transactions are not supported: every statement reads one state of the store";
                Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text))
            }
            other => {
                let text = format!("the action {other:?} is not supported");
                Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text))
            }
        }
    }
}

fn unpack<T: ProstMessageExt>(body: &[u8]) -> Result<T, QueryError> {
    let any = Any::decode(body).map_err(|error| malformed(&error.to_string()))?;
    let unpacked = any.unpack().map_err(|error| malformed(&error.to_string()))?;
    unpacked.ok_or_else(|| malformed(&format!("{:?} in the place of {:?}", any.type_url, T::type_url())))
}

/// Messages of a client, with the first again before those after it.
type Incoming = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        // The call was authenticated, or it would not be here.
        let token = match &self.auth {
            FlightAuth::Token(token) => token.as_ref(),
            FlightAuth::Trust => "none",
        };
        let payload = Bytes::copy_from_slice(token.as_bytes());
        let mut response = once(HandshakeResponse { protocol_version: 0, payload });
        let bearer = format!("Bearer {token}").parse();
        let bearer = bearer.map_err(|_| Status::internal("the token is not ASCII"))?;
        response.metadata_mut().insert("authorization", bearer);
        Ok(response)
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(not_offered("ListFlights"))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        self.work(self.info(request.into_inner())).await.map(Response::new)
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        Err(not_offered("PollFlightInfo"))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        self.work(self.schema(request.into_inner())).await.map(Response::new)
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        self.get(&request).map(Response::new).map_err(status)
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        let mut data = request.into_inner();
        let first = data.next().await.ok_or_else(|| status(malformed("no messages")))??;
        let descriptor = first.flight_descriptor.clone();
        let descriptor = descriptor.ok_or_else(|| status(malformed("the first message has no descriptor")))?;
        let data: Incoming = Box::pin(stream::iter([Ok(first)]).chain(data));
        match (command(&descriptor.cmd).map_err(status)?, &self.sink) {
            (Command::CommandStatementIngest(command), Some(sink)) => {
                let written = self.write(sink, command, data).await.map_err(status)?;
                Ok(once(PutResult { app_metadata: DoPutUpdateResult { record_count: written }.encode_to_vec().into() }))
            }
            (Command::CommandPreparedStatementQuery(query), _) => {
                let bound = self.work(self.bind(&query.prepared_statement_handle, data)).await?;
                Ok(once(PutResult { app_metadata: bound.encode_to_vec().into() }))
            }
            (other, _) => Err(status(refusal(&other))),
        }
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(not_offered("DoExchange"))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let body = self.work(self.act(request.get_ref())).await?;
        let results = body.map(|body| Ok(arrow_flight::Result { body }));
        Ok(Response::new(Box::pin(stream::iter(results))))
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        let action = |(name, description): (&str, &str)| {
            Ok(ActionType { r#type: name.to_owned(), description: description.to_owned() })
        };
        Ok(Response::new(Box::pin(stream::iter(ACTIONS.map(action)))))
    }
}
