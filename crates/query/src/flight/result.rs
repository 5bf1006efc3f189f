//! Sends the rows of a statement as record batches.
//!
//! ```text
//! Rows ─> columns as announced ─> messages ─> channel of one message ─> gRPC
//! ```
//!
//! A client that reads slowly fills the channel, and the statement then gives its turn to others.

use std::fmt::Write;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow_flight::{FlightData, SchemaAsIpc};
use bytes::Bytes;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use futures::{FutureExt, Stream};
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::running::RunningStatement;
use super::statement;
use super::statement::{Statement, sent_schema};
use super::status::status;
use crate::error::{QueryError, sqlstate};
use crate::query::Query;
use crate::query::session::Session;
use crate::running::memory::{Share, SharedMemory};
use crate::running::size::Size;
use crate::running::watched::{Halt, Watched};
use crate::subscription::follow::{Event, Subscription};
use crate::subscription::settings::SubscribeRequest;

/// Size of a message, in bytes, beyond which a batch is divided, unless a row is larger.
const MESSAGE_BYTES: usize = 512 << 10;
/// Bytes of a message that do not count as answer memory.
const MESSAGE_BYTES_FREE: usize = 64 << 10;

/// A message with its memory.
type Sent = Result<(FlightData, Share), QueryError>;

/// Messages of one statement. Dropping them ends it.
pub(super) struct Results {
    messages: mpsc::Receiver<Sent>,
    /// Memory of the message returned last.
    under_way: Option<Share>,
}

impl Stream for Results {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.messages.poll_recv(context));
        self.under_way = None;
        Poll::Ready(next.map(|sent| {
            let (message, share) = sent.map_err(status)?;
            self.under_way = Some(share);
            Ok(message)
        }))
    }
}

/// Runs a statement in a task of its own, until it ends, is stopped, or its results are dropped.
pub(super) fn of_statement(
    session: Arc<Session>,
    statement: Statement,
    running: RunningStatement,
    stopped: watch::Receiver<bool>,
) -> Results {
    let (memory, deadline) = (session.query.inner.answers.clone(), session.deadline());
    let watched = Watched { cancel: running.cancelled(), stopped, deadline };
    produce(memory, watched, move |mut out| async move {
        let _running = running;
        let prepared = statement.prepare(&session).await?;
        let announced = sent_schema(&prepared.plan.schema);
        let runs = statement.runs(&prepared.plan)?;
        out.put_schema(&announced).await;
        for values in runs {
            let mut rows = statement::run(&session, &prepared, values).await?;
            while let Some(batch) = rows.next().await {
                out.put(&batch?, &announced).await?;
            }
        }
        Ok(())
    })
}

/// Runs a subscription in a task of its own, until it fails, is stopped, or its results are dropped. The metadata of each
/// batch names the class and the step, and whether the batch is the last of its step. A last batch has no rows.
pub(super) fn of_subscription(
    query: Query,
    request: SubscribeRequest,
    running: RunningStatement,
    stopped: watch::Receiver<bool>,
) -> Results {
    let memory = query.inner.answers.clone();
    let watched = Watched { cancel: running.cancelled(), stopped, deadline: None };
    produce(memory, watched, move |mut out| async move {
        let _running = running;
        let mut subscription = Subscription::begin(query, request).await?;
        let mut announced: Option<SchemaRef> = None;
        loop {
            match (subscription.next().await?, &announced) {
                (Event::Columns(schema), None) => {
                    let sent = sent_schema(&schema);
                    out.put_schema(&sent).await;
                    announced = Some(sent);
                }
                (Event::Columns(schema), Some(announced)) if *announced == sent_schema(&schema) => {}
                (Event::Columns(_), Some(_)) => {
                    let text = "the columns of the table changed, and a stream of record batches has one schema";
                    return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text)
                        .with_hint("Subscribe again, or select columns by name."));
                }
                (Event::Rows(batch), Some(announced)) => {
                    out.metadata = metadata(&subscription, false);
                    out.put(&batch, announced).await?;
                }
                (Event::End, Some(announced)) => {
                    out.metadata = metadata(&subscription, true);
                    out.put_empty(announced).await?;
                }
                (Event::Begin | Event::Quiet | Event::Rows(_) | Event::End, _) => {}
            }
        }
    })
}

fn metadata(subscription: &Subscription, is_last: bool) -> Bytes {
    let mut json = format!("{{\"class\":\"{}\",", subscription.class().name());
    subscription.step().put_fields(&mut json);
    let _ = write!(json, ",\"last\":{is_last}}}");
    json.into()
}

/// Runs `work`, which makes messages, in a task of its own, until it ends, is stopped, or its results are dropped.
pub(super) fn produce<F: Future<Output = Result<(), QueryError>> + Send>(
    memory: Arc<SharedMemory>,
    watched: Watched,
    work: impl FnOnce(Messages) -> F + Send + 'static,
) -> Results {
    let (sender, messages) = mpsc::channel(1);
    tokio::spawn(async move {
        let out = Messages::new(sender.clone(), memory);
        // Without an error, an end by a defect would look like the last row.
        let work = AssertUnwindSafe(async { work(out).await }).catch_unwind();
        let error = match watched.until(sender.closed(), work).await {
            Ok(Ok(Ok(()))) | Err(Halt::Gone) => return,
            Ok(Ok(Err(error))) | Err(Halt::Error(error) | Halt::Stopping(error)) => error,
            Ok(Err(_)) => QueryError::new(sqlstate::INTERNAL_ERROR, "the query ended by a defect of the server"),
        };
        // The work was dropped with its memory. An unread error holds nothing else.
        let _ = sender.send(Err(error)).await;
    });
    Results { messages, under_way: None }
}

/// Encodes messages and passes them on when there is room.
pub(super) struct Messages {
    sender: mpsc::Sender<Sent>,
    memory: Arc<SharedMemory>,
    options: IpcWriteOptions,
    generator: IpcDataGenerator,
    tracker: DictionaryTracker,
    context: IpcWriteContext,
    /// Metadata of each batch.
    metadata: Bytes,
}

impl Messages {
    fn new(sender: mpsc::Sender<Sent>, memory: Arc<SharedMemory>) -> Messages {
        Messages {
            sender,
            memory,
            options: IpcWriteOptions::default(),
            generator: IpcDataGenerator::default(),
            tracker: DictionaryTracker::new(false),
            context: IpcWriteContext::default(),
            metadata: Bytes::new(),
        }
    }

    /// Sends the columns, before any rows.
    pub(super) async fn put_schema(&mut self, schema: &Schema) {
        let message = FlightData::from(SchemaAsIpc::new(schema, &self.options));
        self.send(message, Share::new(self.memory.clone(), MESSAGE_BYTES_FREE)).await;
    }

    /// Sends the rows of a batch, in messages of limited size.
    ///
    /// # Errors
    /// If there is no memory for a row, or a value does not fit its announced column.
    pub(super) async fn put(&mut self, batch: &RecordBatch, announced: &SchemaRef) -> Result<(), QueryError> {
        let parts = Size::of_batch(batch).total.div_ceil(MESSAGE_BYTES).max(1);
        let (mut from, mut most) = (0, batch.num_rows().div_ceil(parts).max(1));
        while from < batch.num_rows() {
            let part = batch.slice(from, most.min(batch.num_rows() - from));
            let mut share = Share::new(self.memory.clone(), MESSAGE_BYTES_FREE);
            if !share.try_resize(Size::of_batch(&part).total) {
                // Smaller messages count less.
                if part.num_rows() > 1 {
                    most = part.num_rows() / 2;
                    continue;
                }
                let text = "no room for a wide row beside answers that are not read yet";
                return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text)
                    .with_hint("Ask for fewer of the wide columns, or read answers sooner."));
            }
            let message = self.encoded(&part, announced)?;
            self.send(message, share).await;
            from += part.num_rows();
        }
        Ok(())
    }

    /// Sends a batch without rows, for its metadata.
    async fn put_empty(&mut self, announced: &SchemaRef) -> Result<(), QueryError> {
        let message = self.encoded(&RecordBatch::new_empty(announced.clone()), announced)?;
        self.send(message, Share::new(self.memory.clone(), MESSAGE_BYTES_FREE)).await;
        Ok(())
    }

    fn encoded(&mut self, batch: &RecordBatch, announced: &SchemaRef) -> Result<FlightData, QueryError> {
        let batch = as_announced(batch, announced)?;
        let encoded = self.generator.encode(&batch, &mut self.tracker, &self.options, &mut self.context);
        let (_, encoded) = encoded.map_err(|error| QueryError::new(sqlstate::INTERNAL_ERROR, error.to_string()))?;
        Ok(FlightData { app_metadata: self.metadata.clone(), ..encoded.into() })
    }

    async fn send(&self, message: FlightData, share: Share) {
        // If no one reads any more, the work is about to be dropped.
        let _ = self.sender.send(Ok((message, share))).await;
    }
}

/// Returns a batch with the announced names and types.
fn as_announced(batch: &RecordBatch, announced: &SchemaRef) -> Result<RecordBatch, QueryError> {
    let column = |(column, field): (&ArrayRef, &FieldRef)| {
        if column.data_type() == field.data_type() {
            return Ok(column.clone());
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(column, field.data_type(), &options).map_err(|_| {
            let text = format!("with these parameters column {:?} is no longer a {}", field.name(), field.data_type());
            QueryError::new(sqlstate::DATATYPE_MISMATCH, text).with_hint("Cast the parameter, as in $1::float8.")
        })
    };
    let columns = batch.columns().iter().zip(announced.fields()).map(column).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(announced.clone(), columns, &options)
        .map_err(|error| QueryError::new(sqlstate::INTERNAL_ERROR, error.to_string()))
}
