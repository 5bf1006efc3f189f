//! SQL in the server: its engine, rebuilt when the store is reopened, and the PostgreSQL wire.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use strongback_query::{PgAuth, Query, QueryOptions, SystemRows};

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

/// The parts needed to serve the PostgreSQL wire.
pub struct Sql {
    /// The server.
    pub server: Arc<Server>,
    /// Authentication of clients.
    pub auth: PgAuth,
    /// Listener of PostgreSQL clients, unless off.
    pub listener: Option<std::net::TcpListener>,
}

impl Sql {
    /// Serves until the server stops. When the store is reopened, PostgreSQL connections end, because they hold the
    /// engine over the old one, and clients connect again.
    pub async fn serve(self) {
        let mut reopened = self.server.ingest.reopened();
        let mut stopping = self.server.stopping.subscribe();
        loop {
            let wire = self.listener.as_ref().map(std::net::TcpListener::try_clone).transpose();
            let wire = match wire {
                Ok(wire) => wire,
                Err(error) => {
                    tracing::error!(%error, "the PostgreSQL wire cannot be served any more");
                    None
                }
            };
            let (mut again, mut stop) = (reopened.clone(), stopping.clone());
            let until = async move {
                tokio::select! {
                    _ = again.changed() => {}
                    () = stopped(&mut stop) => {}
                }
            };
            match wire {
                None => until.await,
                Some(wire) => {
                    let engine = self.server.query.now();
                    if let Err(error) = engine.serve_pg(wire, self.auth.clone(), Box::pin(until)).await {
                        tracing::error!(%error, "the PostgreSQL wire ended");
                        stopped(&mut stopping).await;
                    }
                }
            }
            if *stopping.borrow_and_update() {
                return;
            }
            reopened.borrow_and_update();
        }
    }
}
