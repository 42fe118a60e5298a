//! The codecs of the extension: a number stands for a table or a node of ours.
//!
//! ```text
//!  ParcelTable { 7 }, ParcelExec { 7 } ─▶ "horton" 7 ─▶ what parcel 7 holds
//!  all else ─▶ an error, which is how a session's chain of codecs hears "not mine"
//! ```

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, TableReference, not_impl_err, plan_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use super::device_join::DeviceJoin;
use super::parcel;
use super::transcript::{ParcelExec, ParcelTable};

const MARK: &[u8] = b"horton";

fn write(number: u64, buf: &mut Vec<u8>) {
    buf.extend_from_slice(MARK);
    buf.extend_from_slice(&number.to_le_bytes());
}

fn read(buf: &[u8]) -> Result<u64> {
    let number = buf.strip_prefix(MARK).map(TryInto::try_into);
    match number {
        Some(Ok(number)) => Ok(u64::from_le_bytes(number)),
        _ => Err(plan_datafusion_err!("these bytes are none of horton_join")),
    }
}

/// Both codecs.
#[derive(Debug)]
pub struct Codec;

impl LogicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        _buf: &[u8],
        _inputs: &[LogicalPlan],
        _ctx: &TaskContext,
    ) -> Result<Extension> {
        not_impl_err!("horton_join has no logical nodes")
    }

    fn try_encode(&self, _node: &Extension, _buf: &mut Vec<u8>) -> Result<()> {
        not_impl_err!("horton_join has no logical nodes")
    }

    fn try_decode_table_provider(
        &self,
        buf: &[u8],
        _table_ref: &TableReference,
        _schema: SchemaRef,
        _ctx: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(ParcelTable(read(buf)?)))
    }

    fn try_encode_table_provider(
        &self,
        _table_ref: &TableReference,
        node: Arc<dyn TableProvider>,
        buf: &mut Vec<u8>,
    ) -> Result<()> {
        match node.downcast_ref::<ParcelTable>() {
            Some(table) => write(table.0, buf),
            None => return not_impl_err!("the table is none of horton_join"),
        }
        Ok(())
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buf: &[u8],
        _inputs: &[Arc<dyn ExecutionPlan>],
        _ctx: &TaskContext,
        _proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        parcel::plan(read(buf)?)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        _proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        if let Some(node) = node.downcast_ref::<ParcelExec>() {
            write(node.number(), buf);
            return Ok(());
        }
        if node.is::<DeviceJoin>() {
            return not_impl_err!(
                "HortonJoinExec of horton_join.Extension cannot be sent elsewhere"
            );
        }
        not_impl_err!("{} is no node of horton_join", node.name())
    }
}
