//! SQL in the server: its engine, rebuilt when the store is reopened, the PostgreSQL wire, and Flight SQL.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use strongback_query::{FlightOptions, PgAuth, Query, QueryOptions, SystemRows};

use crate::ingest::Ingest;
use crate::server::{Server, stopped};

/// The SQL engine over the current store.
pub struct Engine {
    ingest: Arc<Ingest>,
    rows: Arc<dyn SystemRows>,
    options: QueryOptions,
    /// Count of reopenings when the engine was made, and the engine.
    newest: Mutex<(u64, Arc<Query>)>,
}

impl Engine {
    /// Starts the engine. `rows` provides the tables that are not in the store.
    ///
    /// # Errors
    /// If its threads cannot be started.
    pub fn start(ingest: Arc<Ingest>, rows: Arc<dyn SystemRows>, options: QueryOptions) -> io::Result<Engine> {
        let opening = ingest.reopenings();
        let query = Query::new((*ingest.store()).clone(), rows.clone(), options.clone())?;
        Ok(Engine { ingest, rows, options, newest: Mutex::new((opening, Arc::new(query))) })
    }

    /// Returns the engine, rebuilt if the store was replaced, because rows of the old store may be void.
    pub fn now(&self) -> Arc<Query> {
        let opening = self.ingest.reopenings();
        let mut newest = self.newest.lock();
        if newest.0 != opening {
            match Query::new((*self.ingest.store()).clone(), self.rows.clone(), self.options.clone()) {
                Ok(query) => *newest = (opening, Arc::new(query)),
                Err(error) => tracing::error!(%error, "SQL reads the store as it was before the disk failed"),
            }
        }
        newest.1.clone()
    }
}

/// The parts needed to serve clients of SQL.
pub struct Sql {
    /// The server.
    pub server: Arc<Server>,
    /// Authentication of PostgreSQL clients.
    pub auth: PgAuth,
    /// Listener of PostgreSQL clients, unless off.
    pub pg: Option<TcpListener>,
    /// Options of Flight SQL.
    pub options: FlightOptions,
    /// Listener of Flight SQL clients, unless off.
    pub flight: Option<TcpListener>,
}

impl Sql {
    /// Serves until the server stops. When the store is reopened, connections end, because they hold the engine over
    /// the old one, and clients connect again.
    pub async fn serve(self) {
        let mut reopened = self.server.ingest.reopened();
        let mut stopping = self.server.stopping.subscribe();
        loop {
            let engine = self.server.query.now();
            let until = || {
                let (mut again, mut stop) = (reopened.clone(), stopping.clone());
                Box::pin(async move {
                    tokio::select! {
                        _ = again.changed() => {}
                        () = stopped(&mut stop) => {}
                    }
                })
            };
            let serve_pg = |wire| engine.serve_pg(wire, self.auth.clone(), until());
            let serve_flight = |wire| engine.serve_flight(wire, self.options.clone(), until());
            let pg = serve_listener("the PostgreSQL wire", self.pg.as_ref(), serve_pg);
            let flight = serve_listener("Flight SQL", self.flight.as_ref(), serve_flight);
            tokio::join!(pg, flight, until());
            if *stopping.borrow_and_update() {
                return;
            }
            reopened.borrow_and_update();
        }
    }
}

/// Serves a listener, if there is one.
async fn serve_listener(
    name: &str,
    listener: Option<&TcpListener>,
    serve: impl FnOnce(TcpListener) -> BoxFuture<'static, io::Result<()>>,
) {
    let Some(listener) = listener else { return };
    let served = match listener.try_clone() {
        Ok(listener) => serve(listener).await,
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        tracing::error!(%error, "{name} ended");
    }
}
