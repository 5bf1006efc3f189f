//! `COPY … TO STDOUT`.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::Statement;

use super::connection::{Connection, columns_of};
use super::copy_data::CopyData;
use super::watched::Failure;
use crate::error::{QueryError, sqlstate};
use crate::sql::copy::CopyForm;
use crate::sql::footprint::Footprint;
use crate::wire::message::Formats;

impl Connection {
    /// Runs a query and sends its rows as copy data.
    pub(super) async fn copy_out(
        &mut self,
        query: Arc<Statement>,
        footprint: Footprint,
        form: CopyForm,
    ) -> Result<(), Failure> {
        let plan = self.planned(&query, footprint).await?;
        if !plan.parameters.is_empty() {
            return Err(QueryError::new(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1").into());
        }
        let columns = columns_of(&plan)?;
        let copy = CopyData::new(form, &columns)?;
        let deadline = self.session.deadline();
        let running = self.start(&plan, &[], Formats::default(), deadline).await?;
        copy.put_response(&mut self.client.output, &columns);
        self.finish(running.into_copy(copy), deadline).await
    }
}
