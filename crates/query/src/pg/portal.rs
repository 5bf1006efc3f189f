//! State of a connection between messages: parsed statements, and statements with their values.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement;
use pgwire::api::Type;

use super::result::Running;
use crate::error::QueryError;
use crate::plan::parameter;
use crate::query::Plan;
use crate::sql::cursor::Cursor;
use crate::sql::footprint::Footprint;
use crate::wire::message::Formats;

/// A parsed statement.
pub(super) struct PreparedStatement {
    /// Text by which its plan is cached; `None` for a part of a longer text.
    pub(super) sql: Option<String>,
    /// Parsed statement; `None` for an empty text. For the declaration of a cursor, its query.
    pub(super) statement: Option<Arc<Statement>>,
    pub(super) footprint: Footprint,
    /// Plan, for statements that return rows.
    pub(super) plan: Option<Arc<Plan>>,
    /// Parameter types given by the client; 0 for those it left open.
    pub(super) given: Vec<u32>,
    /// Cursor that the statement declares.
    pub(super) cursor: Option<Cursor>,
    /// Whether it was prepared by SQL, and not by the protocol.
    pub(super) from_sql: bool,
    /// Time at which it was prepared, in microseconds since 1970.
    pub(super) created_us: i64,
}

impl PreparedStatement {
    /// Returns the types with which its parameters are announced.
    pub(super) fn parameter_types(&self) -> Vec<Type> {
        let plan = self.plan.as_deref();
        let inferred = |at| parameter::wire_type(plan.and_then(|plan| plan.parameter(at, false)));
        let given = |at| self.given(at).map(|oid| Type::from_oid(oid).unwrap_or(Type::UNKNOWN));
        (0..plan.map_or(0, |plan| plan.parameters.len())).map(|at| given(at).unwrap_or_else(|| inferred(at))).collect()
    }

    /// Returns the parameter type that the client gave, if it gave one.
    pub(super) fn given(&self, at: usize) -> Option<u32> {
        self.given.get(at).copied().filter(|oid| *oid != 0)
    }

    /// Decodes the value of a parameter, counted from 0, for a plan of the statement.
    ///
    /// # Errors
    /// If the bytes are not a value of the parameter's type.
    pub(super) fn decode(
        &self,
        at: usize,
        bytes: Option<&[u8]>,
        binary: bool,
        plan: Option<&Plan>,
    ) -> Result<ScalarValue, QueryError> {
        let given = self.given(at);
        let target = plan.and_then(|plan| plan.parameter(at, given.is_some()));
        let wire = match given {
            None => parameter::wire_type(target),
            Some(oid) => Type::from_oid(oid).unwrap_or(Type::UNKNOWN),
        };
        if plan.is_some_and(|plan| plan.is_argument(at)) && !binary && !is_number(&wire) {
            // Functions read texts themselves: times with nanoseconds, and intervals.
            return parameter::decode(at + 1, bytes, binary, &Type::TEXT, None);
        }
        parameter::decode(at + 1, bytes, binary, &wire, target)
    }

    /// Returns its approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let plan = self.plan.as_ref().map_or(4_096 + self.footprint.tree_bytes, |plan| plan.weight);
        self.sql.as_ref().map_or(0, String::len) + self.given.len() * 4 + plan
    }
}

/// Reports whether a type is that of numbers.
fn is_number(wire: &Type) -> bool {
    [Type::INT2, Type::INT4, Type::INT8, Type::FLOAT4, Type::FLOAT8, Type::NUMERIC].contains(wire)
}

/// A statement with its values.
pub(super) struct Bound {
    pub(super) prepared: Arc<PreparedStatement>,
    pub(super) plan: Option<Arc<Plan>>,
    pub(super) values: Vec<ScalarValue>,
}

/// A bound statement that is run in portions.
pub(super) struct Portal {
    pub(super) bound: Bound,
    pub(super) formats: Formats,
    pub(super) state: PortalState,
    /// Whether it is a cursor declared in SQL, and not what declares one.
    pub(super) is_cursor: bool,
    /// Number in the order of all portals of the connection.
    pub(super) number: u64,
    /// Rows sent or passed so far.
    pub(super) position: u64,
    /// Time at which it was made, in microseconds since 1970.
    pub(super) created_us: i64,
}

/// Progress of a portal.
pub(super) enum PortalState {
    Ready,
    Running(Box<Running>),
    Complete,
    /// Its statement failed.
    Failed,
}

impl Portal {
    /// Returns its approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        // Nothing else holds the statement of a cursor.
        let own = if self.is_cursor { self.bound.prepared.bytes() } else { 0 };
        1_024 + own + self.bound.values.iter().map(ScalarValue::size).sum::<usize>()
    }
}
