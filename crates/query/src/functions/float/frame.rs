//! Aggregates of floats over frames that move. DataFusion subtracts what leaves a frame, which leaves rounding errors of
//! all rows before, and a NaN for ever. As in PostgreSQL, each frame is computed from its own rows.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

/// Pieces of a frame beyond which they are joined.
const PIECES_MAX: usize = 32;

/// Arguments of an accumulator, kept to make it again for each frame.
#[derive(Debug)]
struct KeptArgs {
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl KeptArgs {
    fn of(args: &AccumulatorArgs) -> KeptArgs {
        KeptArgs {
            return_field: args.return_field.clone(),
            schema: args.schema.clone(),
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys.to_vec(),
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            is_distinct: args.is_distinct,
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        }
    }

    fn args(&self) -> AccumulatorArgs<'_> {
        AccumulatorArgs {
            return_field: self.return_field.clone(),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        }
    }
}

/// Accumulator that keeps the rows of a frame.
#[derive(Debug)]
pub(super) struct FrameAccumulator {
    aggregate: Arc<AggregateUDF>,
    args: KeptArgs,
    /// Arguments of the rows of the frame, in pieces.
    pieces: VecDeque<Vec<ArrayRef>>,
}

impl FrameAccumulator {
    pub(super) fn new(aggregate: Arc<AggregateUDF>, args: &AccumulatorArgs) -> FrameAccumulator {
        FrameAccumulator { aggregate, args: KeptArgs::of(args), pieces: VecDeque::new() }
    }

    /// Returns an accumulator of the rows of the frame.
    fn of_rows(&self) -> Result<Box<dyn Accumulator>> {
        let mut accumulator = self.aggregate.accumulator(self.args.args())?;
        self.pieces.iter().try_for_each(|piece| accumulator.update_batch(piece))?;
        Ok(accumulator)
    }

    /// Joins the pieces, of which most hold a single row.
    fn join(&mut self) -> Result<()> {
        let columns = self.pieces.front().map_or(0, Vec::len);
        let column = |column: usize| -> Result<ArrayRef> {
            let parts: Vec<&dyn Array> =
                self.pieces.iter().filter_map(|piece| piece.get(column)).map(|array| array.as_ref()).collect();
            Ok(concat(&parts)?)
        };
        let joined = (0..columns).map(column).collect::<Result<Vec<ArrayRef>>>()?;
        self.pieces = VecDeque::from([joined]);
        Ok(())
    }
}

fn rows(piece: &[ArrayRef]) -> usize {
    piece.first().map_or(0, |array| array.len())
}

impl Accumulator for FrameAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if rows(values) > 0 {
            self.pieces.push_back(values.to_vec());
        }
        if self.pieces.len() > PIECES_MAX { self.join() } else { Ok(()) }
    }

    /// Removes the oldest rows, as many as `values` has.
    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut left = rows(values);
        while left > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            let count = rows(piece);
            if count <= left {
                left -= count;
                self.pieces.pop_front();
            } else {
                piece.iter_mut().for_each(|array| *array = array.slice(left, count - left));
                left = 0;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.of_rows()?.evaluate()
    }

    fn size(&self) -> usize {
        let bytes = |piece: &Vec<ArrayRef>| piece.iter().map(|array| array.get_array_memory_size()).sum::<usize>();
        size_of_val(self) + self.pieces.iter().map(bytes).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.of_rows()?.state()
    }

    /// Frames are never merged.
    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        datafusion::common::internal_err!("a frame of a window is not merged")
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}
