//! Caches plans by the text of their statement, for all sessions.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::Statement;
use parking_lot::Mutex;

use crate::query::Plan;

/// Maximum cached statements.
const PLANS_MAX: usize = 512;
/// Maximum length of a cached statement, in bytes.
const SQL_BYTES_MAX: usize = 16 << 10;
/// Maximum memory of all cached plans, in bytes.
const WEIGHT_MAX: usize = 32 << 20;

/// A parsed statement with its newest plan.
#[derive(Clone)]
pub(crate) struct CachedPlan {
    pub(crate) statement: Arc<Statement>,
    pub(crate) plan: Arc<Plan>,
}

/// A bounded map. When full, the least recently used half is dropped.
#[derive(Default)]
pub(crate) struct PlanCache {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    clock: u64,
    weight: usize,
    by_sql: HashMap<String, (u64, CachedPlan)>,
}

impl PlanCache {
    /// Returns the plan of a statement, if it was made for this version of the catalog.
    pub(crate) fn get(&self, sql: &str, version: u64) -> Option<CachedPlan> {
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let clock = entries.clock;
        let (used, cached) = entries.by_sql.get_mut(sql)?;
        *used = clock;
        (cached.plan.version == version).then(|| cached.clone())
    }

    /// Caches a plan.
    pub(crate) fn put(&self, sql: &str, statement: &Arc<Statement>, plan: &Arc<Plan>) {
        let weight = plan.weight;
        if sql.len() > SQL_BYTES_MAX || weight > WEIGHT_MAX / 8 || !plan.reusable {
            return;
        }
        let cached = CachedPlan { statement: statement.clone(), plan: plan.clone() };
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let clock = entries.clock;
        let full = entries.by_sql.len() >= PLANS_MAX || entries.weight + weight > WEIGHT_MAX;
        if full && !entries.by_sql.contains_key(sql) {
            let mut uses: Vec<u64> = entries.by_sql.values().map(|(used, _)| *used).collect();
            uses.sort_unstable();
            let median = uses[uses.len() / 2];
            entries.by_sql.retain(|_, (used, _)| *used > median);
            entries.weight = entries.by_sql.values().map(|(_, cached)| cached.plan.weight).sum();
        }
        if let Some((_, before)) = entries.by_sql.insert(sql.to_owned(), (clock, cached)) {
            entries.weight = entries.weight.saturating_sub(before.plan.weight);
        }
        entries.weight += weight;
    }
}
