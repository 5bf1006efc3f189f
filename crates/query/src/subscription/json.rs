//! Messages of a subscription in JSON, for events and the WebSocket of the server.
//!
//! A step is sent in parts of limited size. Values are those of `POST /api/sql`.

use std::fmt::Write;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use strongback_store::text::put_json_text;
use tokio::sync::mpsc;

use crate::error::{QueryError, sqlstate};
use crate::query::Query;
use crate::query::answer::{RowWriter, SqlAnswer, Task, put_columns};
use crate::running::memory::SharedMemory;
use crate::subscription::class::Class;
use crate::subscription::follow::{Event, Step, StepKind, Subscription};
use crate::subscription::settings::SubscribeRequest;
use crate::wire::encode::timestamp_text;

/// Size of a part, in bytes, beyond which it is sent, unless a row is larger.
const PART_BYTES: usize = 128 << 10;
/// Rows between two yields.
const ROWS_AT_A_TIME: usize = 1_024;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveKind {
    /// Columns of the rows that follow; the first message.
    Columns,
    /// Rows of the class `rows`.
    Rows,
    /// Windows of the class `windows`.
    Window,
    /// A result of the class `result`.
    Result,
    /// The reason why the subscription ended; the last message.
    Error,
    /// Sign of life.
    Heartbeat,
}

impl LiveKind {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            LiveKind::Columns => "columns",
            LiveKind::Rows => "rows",
            LiveKind::Window => "window",
            LiveKind::Result => "result",
            LiveKind::Error => "error",
            LiveKind::Heartbeat => "heartbeat",
        }
    }
}

/// A message of a subscription.
#[derive(Debug)]
pub struct LiveMessage {
    /// Its kind, which is also in the body.
    pub kind: LiveKind,
    /// Position after the message, at which a later subscription can continue.
    pub position: Option<String>,
    /// Its JSON, one object without line ends.
    pub body: SqlAnswer,
}

/// Messages of a subscription. Dropping them ends it. They end after an error.
#[derive(Debug)]
pub struct LiveMessages {
    receiver: mpsc::Receiver<LiveMessage>,
}

impl Stream for LiveMessages {
    type Item = LiveMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<LiveMessage>> {
        self.receiver.poll_recv(context)
    }
}

impl Query {
    /// Subscribes to the result of a statement. With an `id`, each message carries it, and its position.
    ///
    /// # Errors
    /// If the request is invalid, the statement cannot be followed, or there are too many subscriptions.
    pub fn subscribe(
        &self,
        request: SubscribeRequest,
        id: Option<i64>,
    ) -> BoxFuture<'static, Result<LiveMessages, QueryError>> {
        let query = self.clone();
        Box::pin(async move {
            let threads = query.inner.wire.handle();
            let mut begin = Task(threads.spawn(Subscription::begin(query.clone(), request)));
            let subscription = (&mut begin.0).await.map_err(|_| defect())??;
            let (sender, receiver) = mpsc::channel(1);
            threads.spawn(serve(subscription, sender, id));
            Ok(LiveMessages { receiver })
        })
    }
}

/// Serves a subscription until its client leaves, or it fails.
async fn serve(subscription: Subscription, sender: mpsc::Sender<LiveMessage>, id: Option<i64>) {
    let memory = subscription.query().inner.answers.clone();
    let mut writer = Writer::new(sender.clone(), memory.clone(), id);
    let work = AssertUnwindSafe(async { writer.write(subscription).await }).catch_unwind();
    let error = tokio::select! {
        biased;
        () = sender.closed() => return,
        ended = work => match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => {
                tracing::error!("a subscription ended by a defect");
                defect()
            }
        },
    };
    // What the subscription held is dropped. An unread error holds nothing else.
    let _ = sender.send(error_message(&error, memory, id)).await;
}

fn defect() -> QueryError {
    QueryError::new(sqlstate::INTERNAL_ERROR, "the subscription ended by a defect of the server")
}

fn error_message(error: &QueryError, memory: Arc<SharedMemory>, id: Option<i64>) -> LiveMessage {
    let mut body = SqlAnswer::new(memory);
    put_head(&mut body.json, LiveKind::Error, id);
    body.json.push_str(",\"error\":");
    put_json_text(&mut body.json, &error.message);
    body.json.push_str(",\"code\":\"sql\",\"sqlstate\":");
    put_json_text(&mut body.json, error.sqlstate);
    if let Some(hint) = &error.hint {
        body.json.push_str(",\"hint\":");
        put_json_text(&mut body.json, hint);
    }
    body.json.push('}');
    LiveMessage { kind: LiveKind::Error, position: None, body }
}

fn put_head(json: &mut String, kind: LiveKind, id: Option<i64>) {
    let _ = write!(json, "{{\"type\":\"{}\"", kind.name());
    if let Some(id) = id {
        let _ = write!(json, ",\"id\":{id}");
    }
}

impl Step {
    /// Appends the fields that describe the step.
    pub(crate) fn put_fields(&self, json: &mut String) {
        let _ = write!(json, "\"step\":{}", self.number);
        match self.kind {
            StepKind::Rows { is_snapshot, expired } => {
                let _ = write!(json, ",\"snapshot\":{is_snapshot}");
                if expired > 0 {
                    let _ = write!(json, ",\"expired\":{expired}");
                }
            }
            StepKind::Windows { run, missed } => {
                match run.from_us {
                    Some(from) => _ = write!(json, ",\"from\":\"{}\"", time_text(from)),
                    None => json.push_str(",\"from\":null"),
                }
                let _ = write!(json, ",\"to\":\"{}\",\"correction\":{}", time_text(run.to_us), run.is_correction);
                if missed > 0 {
                    let _ = write!(json, ",\"late\":{missed}");
                }
            }
            StepKind::Result => {}
        }
    }

    fn message_kind(&self) -> LiveKind {
        match self.kind {
            StepKind::Rows { .. } => LiveKind::Rows,
            StepKind::Windows { .. } => LiveKind::Window,
            StepKind::Result => LiveKind::Result,
        }
    }
}

/// Returns a time in RFC 3339, as times in rows are.
fn time_text(time_us: i64) -> String {
    timestamp_text(time_us, true).replacen(' ', "T", 1).replace("+00", "Z")
}

/// Writes the messages of a subscription.
struct Writer {
    sender: mpsc::Sender<LiveMessage>,
    memory: Arc<SharedMemory>,
    id: Option<i64>,
    body: SqlAnswer,
    rows: RowWriter,
    /// Parts of the step that were sent.
    part: u64,
    /// Rows of the step that are written, and sent or in the body.
    written: u64,
    /// Rows in the body.
    in_body: usize,
}

impl Writer {
    fn new(sender: mpsc::Sender<LiveMessage>, memory: Arc<SharedMemory>, id: Option<i64>) -> Writer {
        let body = SqlAnswer::new(memory.clone());
        Writer { sender, memory, id, body, rows: RowWriter::default(), part: 0, written: 0, in_body: 0 }
    }

    async fn write(&mut self, mut subscription: Subscription) -> Result<(), QueryError> {
        let mut is_first = true;
        loop {
            match subscription.next().await? {
                Event::Columns(schema) => {
                    self.put_columns(&subscription, &schema, is_first)?;
                    is_first = false;
                    self.send(LiveKind::Columns, None).await;
                }
                Event::Begin => {
                    (self.part, self.written) = (0, subscription.skipped());
                    self.begin(&subscription);
                }
                Event::Rows(batch) => self.put_rows(&subscription, &batch).await?,
                Event::End => self.end(&subscription, true).await,
                Event::Quiet => {
                    self.clear();
                    put_head(&mut self.body.json, LiveKind::Heartbeat, self.id);
                    let _ = write!(self.body.json, ",\"step\":{}", subscription.step().number);
                    let position = subscription.position(0);
                    self.close(position.as_deref());
                    self.send(LiveKind::Heartbeat, position).await;
                }
            }
        }
    }

    fn clear(&mut self) {
        self.body = SqlAnswer::new(self.memory.clone());
        self.in_body = 0;
    }

    fn put_columns(
        &mut self,
        subscription: &Subscription,
        schema: &Arc<Schema>,
        is_first: bool,
    ) -> Result<(), QueryError> {
        self.clear();
        let (json, request) = (&mut self.body.json, subscription.request());
        put_head(json, LiveKind::Columns, self.id);
        let _ = write!(json, ",\"class\":\"{}\",\"columns\":[", subscription.class().name());
        put_columns(json, schema)?;
        let _ = write!(json, "],\"interval_ms\":{}", request.interval.as_millis());
        if let Class::Windows(windows) = subscription.class() {
            let _ = write!(json, ",\"lateness_ms\":{}", request.lateness.as_millis());
            if let Some(idle) = request.idle {
                let _ = write!(json, ",\"idle_ms\":{}", idle.as_millis());
            }
            let _ = write!(json, ",\"window_us\":\"{}\"", windows.length_us);
        }
        if is_first && request.resume.is_some() {
            let _ = write!(json, ",\"resumed\":{}", subscription.is_resumed());
        }
        json.push('}');
        Ok(())
    }

    /// Begins a part.
    fn begin(&mut self, subscription: &Subscription) {
        self.clear();
        let (json, step) = (&mut self.body.json, subscription.step());
        put_head(json, step.message_kind(), self.id);
        json.push(',');
        step.put_fields(json);
        let _ = write!(json, ",\"part\":{},\"rows\":[", self.part);
    }

    async fn put_rows(&mut self, subscription: &Subscription, batch: &RecordBatch) -> Result<(), QueryError> {
        self.rows.begin(batch);
        for row in 0..batch.num_rows() {
            if self.body.json.len() > PART_BYTES {
                self.end(subscription, false).await;
                self.begin(subscription);
            }
            self.rows.put(&mut self.body, batch, row, self.in_body == 0)?;
            (self.written, self.in_body) = (self.written + 1, self.in_body + 1);
            if row % ROWS_AT_A_TIME == ROWS_AT_A_TIME - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends a part.
    async fn end(&mut self, subscription: &Subscription, is_last: bool) {
        let _ = write!(self.body.json, "],\"last\":{is_last}");
        let position = subscription.position(self.written);
        self.close(position.as_deref());
        self.part += 1;
        self.send(subscription.step().message_kind(), position).await;
    }

    /// Ends the object, with the position if there is no other place for it.
    fn close(&mut self, position: Option<&str>) {
        if let (Some(_), Some(position)) = (self.id, position) {
            let _ = write!(self.body.json, ",\"position\":\"{position}\"");
        }
        self.body.json.push('}');
    }

    async fn send(&mut self, kind: LiveKind, position: Option<String>) {
        let body = std::mem::replace(&mut self.body, SqlAnswer::new(self.memory.clone()));
        // If no one reads any more, the subscription is about to be dropped.
        let _ = self.sender.send(LiveMessage { kind, position, body }).await;
    }
}
