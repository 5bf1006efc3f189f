//! The query engine through Flight SQL, with the client of arrow-flight.

use std::net::SocketAddr;
use std::sync::Arc;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    Any, CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo, CommandStatementQuery,
    ProstMessageExt, SqlInfo,
};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor, FlightInfo,
};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int16Type, Int32Type, Int64Type, Schema, TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use prost::Message;
use strongback_query::{FlightAuth, FlightOptions, PgAuth, QueryOptions};
use strongback_store::{ChannelType, Value};
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::{Fixture, MS, T0};

const TOKEN: &str = "0123456789abcdef";

type Client = FlightSqlServiceClient<Channel>;

/// A fixture that also serves Flight SQL.
struct Flight {
    fixture: Fixture,
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Flight {
    async fn start() -> Flight {
        Flight::with(QueryOptions::default(), FlightAuth::Trust, 10).await
    }

    async fn with(options: QueryOptions, auth: FlightAuth, connections_max: usize) -> Flight {
        let fixture = Fixture::with(options, PgAuth::Trust).await;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let options = FlightOptions { auth, connections_max, sink: None };
        tokio::spawn(fixture.query.serve_flight(listener, options, Box::pin(shutdown)));
        Flight { fixture, address, _stop: stop }
    }

    async fn client(&self) -> Client {
        let channel = Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap();
        FlightSqlServiceClient::new_from_inner(FlightServiceClient::new(channel).max_decoding_message_size(64 << 20))
    }
}

async fn stream_of(client: &mut Client, info: FlightInfo) -> FlightRecordBatchStream {
    client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap()
}

async fn rows_of(client: &mut Client, info: FlightInfo) -> Result<RecordBatch, Status> {
    let announced: Schema = info.clone().try_decode_schema().unwrap();
    let mut stream = stream_of(client, info).await;
    let mut batches = Vec::new();
    while let Some(batch) = stream.try_next().await.map_err(Status::from)? {
        batches.push(batch);
    }
    let schema = stream.schema().unwrap().clone();
    assert_eq!(*schema, announced);
    Ok(concat_batches(&schema, &batches).unwrap())
}

async fn rows(client: &mut Client, sql: &str) -> RecordBatch {
    let info = client.execute(sql.to_owned(), None).await.unwrap();
    rows_of(client, info).await.unwrap()
}

/// The status of a statement that fails, at once or while it runs.
async fn failure(client: &mut Client, sql: &str) -> Status {
    match client.execute(sql.to_owned(), None).await {
        Err(error) => Status::from(error),
        Ok(info) => rows_of(client, info).await.unwrap_err(),
    }
}

fn column(batch: &RecordBatch, at: usize) -> Vec<String> {
    let column = batch.column(at);
    (0..column.len()).map(|row| array_value_to_string(column, row).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_arrive_as_record_batches_with_the_types_of_their_columns() {
    let flight = Flight::start().await;
    let kinds = [("p", ChannelType::F64), ("n", ChannelType::I32), ("u", ChannelType::U64), ("c", ChannelType::U8)];
    let (stream, at) = flight.fixture.stream("tank", &[("bay", "A 1")], &kinds);
    for row in 0..20_000 {
        let mut cells = vec![(at[0], Value::F64(row as f64 / 4.0)), (at[1], Value::I32(row as i32))];
        if row % 2 == 0 {
            cells.extend([(at[2], Value::U64(u64::MAX)), (at[3], Value::U8(255))]);
        }
        flight.fixture.append(&stream, T0 + row * MS + 999, &cells);
    }
    let mut client = flight.client().await;
    let batch = rows(&mut client, "select time, time_ns, bay, p, n, u, c from tank order by time").await;
    let kinds: Vec<DataType> = batch.schema().fields().iter().map(|field| field.data_type().clone()).collect();
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()));
    let number = [DataType::Float64, DataType::Int32, DataType::Decimal128(20, 0), DataType::Int16];
    assert_eq!(kinds, [vec![time, DataType::Int64, DataType::Utf8], number.to_vec()].concat());
    assert_eq!(batch.num_rows(), 20_000);
    for row in [0, 1, 8_191, 8_192, 19_999] {
        assert_eq!(
            batch.column(0).as_primitive::<TimestampMicrosecondType>().value(row),
            T0 / 1_000 + row as i64 * 1_000
        );
        assert_eq!(batch.column(1).as_primitive::<Int64Type>().value(row), T0 + row as i64 * MS + 999);
        assert_eq!(batch.column(2).as_string::<i32>().value(row), "A 1");
        assert_eq!(batch.column(3).as_primitive::<Float64Type>().value(row), row as f64 / 4.0);
        assert_eq!(batch.column(4).as_primitive::<Int32Type>().value(row), row as i32);
        assert_eq!(batch.column(5).is_null(row), row % 2 == 1);
    }
    assert_eq!(batch.column(6).as_primitive::<Int16Type>().value(0), 255);
    let summed = rows(&mut client, "select count(*), sum(n), bay from tank group by bay").await;
    assert_eq!(summed.schema().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["count", "sum", "bay"]);
    assert_eq!(column(&summed, 0), ["20000"]);
    assert_eq!(rows(&mut client, "select p from tank where p < 0").await.num_rows(), 0);
    let state = rows(&mut client, "select channel, number from latest('tank.p')").await;
    assert_eq!(column(&state, 1), ["4999.75"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_take_values_in_rows() {
    let flight = Flight::start().await;
    flight.fixture.pad(10);
    let mut client = flight.client().await;
    let mut prepared = client.prepare("select x, y from pad where x = $1 and y > $2".to_owned(), None).await.unwrap();
    let kinds: Vec<_> = prepared.parameter_schema().unwrap().fields().iter().map(|f| f.data_type().clone()).collect();
    assert_eq!(kinds, [DataType::Int32, DataType::Float64]);
    assert_eq!(prepared.dataset_schema().unwrap().field(1).name(), "y");
    let of = |x: Vec<i64>, y: Vec<f64>| {
        let columns: [(&str, ArrayRef); 2] =
            [("1", Arc::new(Int64Array::from(x))), ("2", Arc::new(Float64Array::from(y)))];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    for (x, y, found) in [(vec![4], vec![0.0], vec!["4"]), (vec![1, 3, 8], vec![0.0; 3], vec!["1", "8"])] {
        prepared.set_parameters(of(x, y)).unwrap();
        let info = prepared.execute().await.unwrap();
        assert_eq!(column(&rows_of(&mut client, info).await.unwrap(), 0), found);
    }
    prepared.close().await.unwrap();
    // Text is read as PostgreSQL reads it, also in table functions.
    let text = |values: &[&str]| {
        let columns = values
            .iter()
            .enumerate()
            .map(|(at, value)| (format!("{at}"), Arc::new(StringArray::from(vec![*value])) as ArrayRef));
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let mut prepared = client.prepare("select x from pad where time >= $1 and x < $2".to_owned(), None).await.unwrap();
    prepared.set_parameters(text(&["2026-11-20 00:00:00.007", "9"])).unwrap();
    let info = prepared.execute().await.unwrap();
    assert_eq!(column(&rows_of(&mut client, info).await.unwrap(), 0), ["7", "8"]);
    let mut prepared = client.prepare("select channel from state_at($1, $2)".to_owned(), None).await.unwrap();
    prepared.set_parameters(text(&["2026-11-20 00:00:01", "pad.x"])).unwrap();
    let info = prepared.execute().await.unwrap();
    assert_eq!(column(&rows_of(&mut client, info).await.unwrap(), 0), ["pad.x"]);
    // Without values, or with too few.
    let mut unbound = client.prepare("select $1::int + $2::int".to_owned(), None).await.unwrap();
    let info = unbound.execute().await.unwrap();
    let missing = rows_of(&mut client, info).await.unwrap_err();
    assert!(missing.message().contains("needs values for 2 parameters"), "{missing:?}");
    unbound.set_parameters(text(&["1"])).unwrap();
    let missing = Status::from(unbound.execute().await.unwrap_err());
    assert!(missing.message().contains("1 values are bound"), "{missing:?}");
    unbound.set_parameters(text(&["1", "x"])).unwrap();
    let wrong = Status::from(unbound.execute().await.unwrap_err());
    assert!(wrong.message().contains("invalid input syntax for type integer: \"x\""), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_codes_and_nothing_writes() {
    let flight = Flight::start().await;
    flight.fixture.pad(10);
    let mut client = flight.client().await;
    for (sql, code, state) in [
        ("select nothing from pad", Code::InvalidArgument, "42703"),
        ("select x from pat", Code::NotFound, "42P01"),
        ("selec x from pad", Code::InvalidArgument, "42601"),
        ("select 1; select 2", Code::InvalidArgument, "42601"),
        ("select x / (x - x) from pad", Code::InvalidArgument, "22012"),
        ("insert into pad values (1)", Code::FailedPrecondition, "25006"),
        ("drop table pad", Code::FailedPrecondition, "25006"),
        ("copy pad to '/tmp/pad'", Code::FailedPrecondition, "25006"),
    ] {
        let error = failure(&mut client, sql).await;
        assert_eq!(error.code(), code, "{sql}: {error:?}");
        assert!(error.message().contains(&format!("(SQLSTATE {state})")), "{sql}: {error:?}");
    }
    assert!(failure(&mut client, "select x from pat").await.message().ends_with("Did you mean pad?"));
    let update = Status::from(client.execute_update("delete from pad".to_owned(), None).await.unwrap_err());
    assert_eq!(update.code(), Code::FailedPrecondition, "{update:?}");
    let transaction = Status::from(client.begin_transaction().await.unwrap_err());
    assert_eq!(transaction.code(), Code::Unimplemented, "{transaction:?}");
    assert_eq!(column(&rows(&mut client, "select count(*) from pad").await, 0), ["10"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_lists_tables_with_their_columns() {
    let flight = Flight::start().await;
    flight.fixture.pad(1);
    flight.fixture.stream("avionics.values", &[("acu", "1")], &[("v", ChannelType::F32)]);
    let mut client = flight.client().await;
    let info = client.get_catalogs().await.unwrap();
    assert_eq!(column(&rows_of(&mut client, info).await.unwrap(), 0), ["strongback"]);
    let info = client.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
    let schemas = column(&rows_of(&mut client, info).await.unwrap(), 1);
    assert!(["public", "strongback"].iter().all(|name| schemas.contains(&name.to_string())), "{schemas:?}");
    let tables = CommandGetTables {
        db_schema_filter_pattern: Some("pub%".to_owned()),
        include_schema: true,
        ..CommandGetTables::default()
    };
    let info = client.get_tables(tables).await.unwrap();
    let batch = rows_of(&mut client, info).await.unwrap();
    assert_eq!(column(&batch, 2), ["avionics.values", "pad"]);
    assert_eq!(column(&batch, 3), ["TABLE", "TABLE"]);
    let schema = batch.column(4).as_binary::<i32>().value(0).to_vec();
    let schema = Schema::try_from(arrow_flight::IpcMessage(schema.into())).unwrap();
    assert_eq!(schema.field_with_name("acu").unwrap().data_type(), &DataType::Utf8);
    assert_eq!(schema.field_with_name("v").unwrap().data_type(), &DataType::Float32);
    let system = CommandGetTables { table_types: vec!["SYSTEM TABLE".to_owned()], ..CommandGetTables::default() };
    let info = client.get_tables(system).await.unwrap();
    let names = column(&rows_of(&mut client, info).await.unwrap(), 2);
    assert!(names.contains(&"gaps".to_owned()) && !names.contains(&"pad".to_owned()), "{names:?}");
    let info = client.get_table_types().await.unwrap();
    assert_eq!(column(&rows_of(&mut client, info).await.unwrap(), 0), ["SYSTEM TABLE", "TABLE"]);
    let info = client.get_sql_info(vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerReadOnly]).await.unwrap();
    assert!(column(&rows_of(&mut client, info).await.unwrap(), 1)[0].contains("Strongback"));
    let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo::default()).await.unwrap();
    assert!(column(&rows_of(&mut client, info).await.unwrap(), 0).contains(&"timestamptz".to_owned()));
    let keys = CommandGetPrimaryKeys { table: "pad".to_owned(), ..CommandGetPrimaryKeys::default() };
    let info = client.get_primary_keys(keys).await.unwrap();
    assert_eq!(rows_of(&mut client, info).await.unwrap().num_rows(), 0);
    // The columns of a statement without running it.
    let query = CommandStatementQuery { query: "select x from pad".to_owned(), transaction_id: None };
    let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
    let schema = client.inner_mut().get_schema(descriptor).await.unwrap().into_inner();
    assert_eq!(Schema::try_from(schema).unwrap().field(0).name(), "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_show_the_token() {
    let flight = Flight::with(QueryOptions::default(), FlightAuth::Token(TOKEN.into()), 10).await;
    let mut client = flight.client().await;
    for token in [None, Some("0123456789abcdeg")] {
        token.into_iter().for_each(|token| client.set_token(token.to_owned()));
        let error = Status::from(client.execute("select 1".to_owned(), None).await.unwrap_err());
        assert_eq!(error.code(), Code::Unauthenticated, "{error:?}");
    }
    let mut client = flight.client().await;
    client.set_token(TOKEN.to_owned());
    assert_eq!(column(&rows(&mut client, "select 1 as one").await, 0), ["1"]);
    let mut client = flight.client().await;
    assert!(client.handshake("anyone", "wrong").await.is_err());
    client.handshake("anyone", TOKEN).await.unwrap();
    assert_eq!(client.token().map(String::as_str), Some(TOKEN));
    assert_eq!(column(&rows(&mut client, "select 2 as two").await, 0), ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_so_many_connections_and_no_more() {
    let flight = Flight::with(QueryOptions::default(), FlightAuth::Trust, 2).await;
    let (mut one, mut two, mut three) = (flight.client().await, flight.client().await, flight.client().await);
    rows(&mut one, "select 1").await;
    rows(&mut two, "select 1").await;
    let error = failure(&mut three, "select 1").await;
    assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}");
    drop(one);
    while three.execute("select 1".to_owned(), None).await.is_err() {}
    rows(&mut three, "select 1").await;
}

/// A statement that does not end within any test.
const ENDLESS: &str = "select n, repeat('x', 1000) as t from generate_series(1, 1000000000000) s(n)";

#[tokio::test(flavor = "multi_thread")]
async fn a_call_cancels_the_statement_of_a_ticket() {
    let flight = Flight::start().await;
    flight.fixture.pad(1_000);
    let mut client = flight.client().await;
    let info = client.execute(ENDLESS.to_owned(), None).await.unwrap();
    let other = client.execute(ENDLESS.to_owned(), None).await.unwrap();
    let mut stream = stream_of(&mut client, info.clone()).await;
    assert!(stream.try_next().await.unwrap().is_some());
    let mut cancel = async |info: FlightInfo| {
        let body = CancelFlightInfoRequest::new(info).encode_to_vec();
        let mut results = client.do_action(Action::new("CancelFlightInfo", body)).await.unwrap();
        let result = results.message().await.unwrap().unwrap();
        CancelFlightInfoResult::decode(result.body).unwrap().status()
    };
    assert_eq!(cancel(other).await, CancelStatus::NotCancellable);
    assert_eq!(cancel(info.clone()).await, CancelStatus::Cancelled);
    let error = loop {
        match stream.try_next().await {
            Ok(batch) => assert!(batch.is_some(), "a cancelled statement has no end"),
            Err(error) => break Status::from(error),
        }
    };
    assert_eq!(error.code(), Code::Cancelled, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_stream_gives_its_memory_to_others() {
    let options = QueryOptions { memory_bytes: 16 << 20, ..QueryOptions::default() };
    let flight = Flight::with(options, FlightAuth::Trust, 400).await;
    let (stream, at) = flight.fixture.stream("wide", &[], &[("t", ChannelType::String)]);
    // More than the windows of a connection take.
    for row in 0..20 {
        flight.fixture.append(&stream, T0 + row * MS, &[(at[0], Value::String(&"x".repeat(900_000)))]);
        flight.fixture.store.commit(T0).unwrap();
        while flight.fixture.store.maintain(T0).unwrap() {}
    }
    let sql = "select t from wide";
    let mut unread = Vec::new();
    // Rows wait for clients that do not read, until there is no room for those of another.
    let full = loop {
        let mut client = flight.client().await;
        let info = client.execute(sql.to_owned(), None).await.unwrap();
        let mut stream = stream_of(&mut client, info).await;
        match stream.try_next().await {
            Ok(batch) => assert!(batch.is_some()),
            Err(error) => break Status::from(error),
        }
        unread.push((client, stream));
        // On a busy machine the server sends later than clients come.
        assert!(unread.len() < 300, "unread rows are not counted");
    };
    assert_eq!(full.code(), Code::ResourceExhausted, "{full:?}");
    assert!(!unread.is_empty());
    drop(unread);
    let mut client = flight.client().await;
    loop {
        let info = client.execute(sql.to_owned(), None).await.unwrap();
        match rows_of(&mut client, info).await {
            Ok(batch) => break assert_eq!(batch.num_rows(), 20),
            Err(error) => assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_ends_when_its_time_is_over() {
    let timeout = Some(std::time::Duration::from_millis(200));
    let options = QueryOptions { statement_timeout: timeout, ..QueryOptions::default() };
    let flight = Flight::with(options, FlightAuth::Trust, 10).await;
    flight.fixture.pad(1_000);
    let mut client = flight.client().await;
    let error = failure(&mut client, "select count(*) from pad a, pad b, pad c, pad d").await;
    assert_eq!(error.message(), "canceling statement due to statement timeout (SQLSTATE 57014)");
}

const COMMANDS: [&str; 6] = [
    "CommandStatementQuery",
    "CommandPreparedStatementQuery",
    "TicketStatementQuery",
    "CommandGetTables",
    "CommandGetSqlInfo",
    "CommandStatementIngest",
];

#[tokio::test(flavor = "multi_thread")]
async fn malformed_calls_are_errors() {
    let flight = Flight::start().await;
    let mut client = flight.client().await;
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..300 {
        let bytes: Vec<u8> = (0..random.usize(..60)).map(|_| random.u8(..)).collect();
        let name = COMMANDS[random.usize(..COMMANDS.len())];
        let type_url = format!("type.googleapis.com/arrow.flight.protocol.sql.{name}");
        let any = Any { type_url, value: bytes.clone().into() };
        for cmd in [bytes, any.encode_to_vec()] {
            let descriptor = FlightDescriptor::new_cmd(cmd.clone());
            let info = client.inner_mut().get_flight_info(descriptor).await;
            if let Ok(info) = info {
                // A command about the catalog without fields.
                assert!(!info.into_inner().endpoint.is_empty());
            }
            let _ = client.inner_mut().do_get(arrow_flight::Ticket::new(cmd.clone())).await;
            let _ = client.do_action(Action::new("CancelFlightInfo", cmd)).await;
        }
    }
    assert_eq!(column(&rows(&mut client, "select 1 as one").await, 0), ["1"]);
}
