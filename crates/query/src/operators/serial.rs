//! Runs large unions sequentially.
//!
//! Each input of a union is a partition, and each partition that is merged with others runs as a separate task, beyond
//! the turns of its query. A large union has one partition instead. Each of its inputs has one as well, so that none of
//! them spawns tasks.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::{StreamExt, TryStreamExt, stream};

/// Maximum inputs of a union that run concurrently.
const INPUTS_MAX: usize = 32;

/// Rule that substitutes `Serial` for large unions. It must run before rules that handle partitions and orders.
#[derive(Debug)]
pub(crate) struct SerialUnions;

impl PhysicalOptimizerRule for SerialUnions {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let is_large = node.is::<UnionExec>() && node.children().len() > INPUTS_MAX;
            if !is_large {
                return Ok(Transformed::no(node));
            }
            let inputs = node.children().into_iter().cloned().collect();
            Ok(Transformed::yes(Arc::new(Serial::new(inputs, &node)) as Arc<dyn ExecutionPlan>))
        })
        .data()
    }

    fn name(&self) -> &str {
        "serial_unions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A union whose inputs run one after another.
#[derive(Clone, Debug)]
pub(crate) struct Serial {
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
}

impl Serial {
    fn new(inputs: Vec<Arc<dyn ExecutionPlan>>, union: &Arc<dyn ExecutionPlan>) -> Serial {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(union.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Serial { inputs, properties: Arc::new(properties) }
    }
}

impl DisplayAs for Serial {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SerialUnion: inputs={}", self.inputs.len())
    }
}

impl ExecutionPlan for Serial {
    fn name(&self) -> &str {
        "SerialUnion"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition; self.inputs.len()]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Serial { inputs, properties: self.properties.clone() }))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let inputs = stream::iter(self.inputs.clone());
        let rows = inputs.map(move |input| input.execute(0, context.clone())).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn numbers(sql: &str) -> (String, Vec<i64>) {
        let state = SessionContext::new().state();
        let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![Arc::new(SerialUnions)];
        rules.extend(state.physical_optimizers().iter().cloned());
        let state = SessionStateBuilder::new_from_existing(state).with_physical_optimizer_rules(rules).build();
        let context = SessionContext::new_with_state(state);
        let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        let batches = collect(plan, context.task_ctx()).await.unwrap();
        let numbers = batches.iter().flat_map(|b| b.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        (shown, numbers)
    }

    #[tokio::test]
    async fn large_unions_run_one_after_the_other() {
        let union = |count: i64| {
            let parts = (0..count).map(|n| format!("select v * {count} - {n} as w from generate_series(1, 5) g(v)"));
            parts.collect::<Vec<_>>().join(" union all ")
        };
        let (few, many) = (INPUTS_MAX as i64, INPUTS_MAX as i64 + 1);
        let all: Vec<i64> = (1..=5 * many).collect();
        let (shown, mut unordered) = numbers(&union(many)).await;
        assert!(shown.contains("SerialUnion"), "{shown}");
        unordered.sort();
        assert_eq!(unordered, all);
        assert_eq!(numbers(&format!("{} order by w", union(many))).await.1, all);
        let (shown, groups) = numbers(&format!("select w from ({}) u group by w order by w", union(many))).await;
        assert!(shown.contains("SerialUnion") && groups == all, "{shown}");
        let (shown, unordered) = numbers(&union(few)).await;
        assert!(!shown.contains("SerialUnion") && unordered.len() == 5 * INPUTS_MAX, "{shown}");
    }
}
