//! Names in SQL: schema `public` with the store's tables, `strongback` with the system tables, and for a table `a.b`
//! also schema `a` with a table `b`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::ObjectName;
use parking_lot::{Mutex, RwLock};
use strongback_store::{Channel, ChannelId, ChannelSpec, Interpolation, Layout, Store, Stream, StreamId, StreamSpec};

use crate::error::{NAMES_COMPARED_MAX, QueryError, nearest, sqlstate};
use crate::system::SystemRows;
use crate::system::information_schema::{INFORMATION, InformationSchema};
use crate::system::pg_catalog::PgCatalog;
use crate::system::tables::{SYSTEM_TABLES, SystemTable};
use crate::table::StoreTable;
use crate::table::column;
use crate::table::history::History;

/// Name of the database.
pub const DATABASE: &str = "strongback";
/// Schema of the store's tables.
pub(crate) const PUBLIC: &str = "public";
/// Schema of the system tables, which is also the reserved prefix of the store's internal tables.
pub(crate) const SYSTEM: &str = "strongback";

/// Tables of the store at one version of its catalog.
pub(crate) struct Tables {
    /// Version of the store's catalog.
    pub(crate) version: u64,
    streams: BTreeMap<String, Vec<Arc<Stream>>>,
    /// The server's own streams as declared, by table.
    declared: Arc<HashMap<String, Arc<Stream>>>,
    /// Exact names by their lower-case form.
    folded: HashMap<String, Vec<String>>,
    providers: Mutex<HashMap<String, Arc<StoreTable>>>,
    /// The store, and frames that are no longer in it.
    from: (Store, Option<Arc<dyn History>>),
}

impl Tables {
    /// Returns the table of an exact name.
    pub(crate) fn table(&self, name: &str) -> Option<Arc<StoreTable>> {
        let streams = self.streams.get(name)?;
        let mut providers = self.providers.lock();
        if let Some(table) = providers.get(name) {
            return Some(table.clone());
        }
        let declared = self.declared.get(name);
        let table = Arc::new(StoreTable::new(self.from.clone(), name.to_owned(), streams.clone(), declared));
        providers.insert(name.to_owned(), table.clone());
        Some(table)
    }

    /// Returns the exact names that equal a name case-insensitively.
    pub(crate) fn candidates(&self, name: &str) -> &[String] {
        self.folded.get(&name.to_lowercase()).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of columns of the widest table that a name in a statement may mean; 0 if there is none.
    pub(crate) fn columns_of(&self, name: &ObjectName) -> usize {
        let parts: Vec<&str> = name.0.iter().filter_map(|part| Some(part.as_ident()?.value.as_str())).collect();
        let named = (0..parts.len()).flat_map(|from| self.candidates(&parts[from..].join(".")));
        named.filter_map(|name| self.table(name)).map(|table| table.columns.len()).max().unwrap_or(0)
    }

    /// Iterates over the exact names, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.streams.keys()
    }

    /// Returns DataFusion's error for an unknown table under the name as written, with the nearest name as a hint, and
    /// any other error unchanged.
    pub(crate) fn with_nearest(&self, error: QueryError) -> QueryError {
        let full = error.message.strip_prefix("table '").and_then(|rest| rest.strip_suffix("' not found"));
        let Some(full) = full.filter(|_| error.sqlstate == sqlstate::UNDEFINED_TABLE) else { return error };
        let name = full.strip_prefix(DATABASE).and_then(|rest| rest.strip_prefix('.')).unwrap_or(full);
        let name = name.strip_prefix(PUBLIC).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
        let written = QueryError::new(error.sqlstate, format!("relation \"{name}\" does not exist"));
        match self.nearest(name) {
            Some(nearest) => written.with_hint(format!("Did you mean {nearest}?")),
            None => written,
        }
    }

    /// Returns the name most similar to an unknown one, if any is.
    fn nearest(&self, name: &str) -> Option<String> {
        let system: Vec<String> = SYSTEM_TABLES.iter().map(|table| format!("{SYSTEM}.{}", table.name())).collect();
        // A table of the schema of system tables, without its schema.
        if let Some(own) = system.iter().find(|own| own.split_once('.').is_some_and(|(_, table)| table == name)) {
            return Some(own.clone());
        }
        let known = system.iter().chain(self.names().take(NAMES_COMPARED_MAX));
        nearest(name, known.map(String::as_str)).map(str::to_owned)
    }
}

/// The database. It reads the store's catalog again whenever its version increased.
pub(crate) struct Database {
    store: Store,
    history: Option<Arc<dyn History>>,
    system: Arc<dyn SystemRows>,
    tables: Mutex<Option<Arc<Tables>>>,
    declared: Arc<HashMap<String, Arc<Stream>>>,
    registered: RwLock<BTreeMap<String, Arc<dyn SchemaProvider>>>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Database")
    }
}

impl Database {
    pub(crate) fn new(store: Store, history: Option<Arc<dyn History>>, system: Arc<dyn SystemRows>) -> Self {
        let declared = system.own_streams().into_iter().map(declared).collect();
        Database {
            store,
            history,
            system,
            tables: Mutex::new(None),
            declared: Arc::new(declared),
            registered: RwLock::default(),
        }
    }

    /// Returns the current tables of the store.
    pub(crate) fn tables(&self) -> Arc<Tables> {
        let catalog = self.store.catalog();
        let mut held = self.tables.lock();
        if let Some(tables) = held.as_ref().filter(|t| t.version == catalog.version) {
            return tables.clone();
        }
        let mut streams = column::tables(&catalog.streams);
        for table in self.declared.keys() {
            streams.entry(table.clone()).or_default();
        }
        let mut folded: HashMap<String, Vec<String>> = HashMap::new();
        for name in streams.keys() {
            folded.entry(name.to_lowercase()).or_default().push(name.clone());
        }
        let tables = Arc::new(Tables {
            version: catalog.version,
            streams,
            declared: self.declared.clone(),
            folded,
            providers: Mutex::default(),
            from: (self.store.clone(), self.history.clone()),
        });
        *held = Some(tables.clone());
        tables
    }
}

/// Returns a stream that has the columns of a definition, by the name of its table.
fn declared(spec: StreamSpec) -> (String, Arc<Stream>) {
    let channel = |(at, channel): (usize, ChannelSpec)| Channel {
        id: ChannelId(at as u32),
        source_name: channel.name.clone(),
        name: channel.name,
        channel_type: channel.channel_type,
        unit: channel.unit,
        description: channel.description,
        interpolation: Interpolation::Hold,
        reduction: channel.reduction,
    };
    let channels = spec.channels.into_iter().enumerate().map(channel).collect();
    let stream = Stream {
        // After all streams of the store, whose columns come first.
        id: StreamId(u32::MAX),
        source: spec.source,
        clock: spec.clock,
        expected_period_ns: spec.expected_period_ns,
        sequence_modulus: spec.sequence_modulus,
        layout: Arc::new(Layout { version: 0, channels }),
        key: spec.key,
    };
    (stream.key.table.clone(), Arc::new(stream))
}

impl CatalogProvider for DatabaseRef {
    fn schema_names(&self) -> Vec<String> {
        let mut names = vec![PUBLIC.to_owned(), SYSTEM.to_owned()];
        names.extend(self.0.registered.read().keys().cloned());
        names
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if let Some(schema) = self.0.registered.read().get(name) {
            return Some(schema.clone());
        }
        if name == INFORMATION {
            return Some(Arc::new(InformationSchema(self.clone())));
        }
        let prefix = match name {
            PUBLIC => String::new(),
            other => format!("{other}."),
        };
        let known = name == PUBLIC || name == SYSTEM || self.0.tables().names().any(|n| n.starts_with(&prefix));
        known.then(|| Arc::new(PrefixSchema { database: self.0.clone(), prefix }) as Arc<dyn SchemaProvider>)
    }

    fn register_schema(&self, name: &str, schema: Arc<dyn SchemaProvider>) -> Result<Option<Arc<dyn SchemaProvider>>> {
        let schema = if name == "pg_catalog" {
            Arc::new(PgCatalog { library: schema, database: Arc::downgrade(&self.0) })
        } else {
            schema
        };
        Ok(self.0.registered.write().insert(name.to_owned(), schema))
    }
}

/// Shared reference to the database, as a DataFusion catalog.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseRef(pub(crate) Arc<Database>);

/// Schema of the store's tables with a common name prefix, which is removed. Without a prefix, it is `public`.
#[derive(Debug)]
struct PrefixSchema {
    database: Arc<Database>,
    prefix: String,
}

impl PrefixSchema {
    fn is_system(&self) -> bool {
        self.prefix.strip_suffix('.') == Some(SYSTEM)
    }
}

#[async_trait]
impl SchemaProvider for PrefixSchema {
    fn table_names(&self) -> Vec<String> {
        let tables = self.database.tables();
        let reserved = format!("{SYSTEM}.");
        let mut names: Vec<String> = tables
            .names()
            .filter(|name| self.is_system() || !name.starts_with(&reserved))
            .filter_map(|name| name.strip_prefix(&self.prefix))
            .map(str::to_owned)
            .collect();
        if self.is_system() {
            names.extend(SYSTEM_TABLES.iter().map(|t| t.name().to_owned()));
            names.sort();
            names.dedup();
        }
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if self.is_system()
            && let Some(table) = SYSTEM_TABLES.iter().find(|t| t.name() == name)
        {
            let rows = SystemTable::new(*table, self.database.store.clone(), self.database.system.clone());
            return Ok(Some(Arc::new(rows)));
        }
        let exact = format!("{}{name}", self.prefix);
        Ok(self.database.tables().table(&exact).map(|table| table as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|have| have == name)
    }
}
