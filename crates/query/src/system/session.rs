//! Functions that clients ask about settings, types and sizes, or by which they quote texts.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{AsArray, Int32Array, StringArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion_pg_catalog::pg_catalog::oid_field::{kind, oid_field};
use pgwire::api::Type;

use crate::error::{QueryError, sqlstate};
use crate::functions::large::LARGE_BYTES;
use crate::sql::setting::SharedSettings;
use crate::wire::encode::{array_of, elements_of_type, wire_type};

/// The function `set_config(name, value, is_local)`, which sets a setting of its session and returns the value. It lasts
/// for the session in any case.
#[derive(Debug)]
pub(crate) struct SetConfig {
    signature: Signature,
    settings: SharedSettings,
}

impl SetConfig {
    pub(crate) fn new(settings: SharedSettings) -> Self {
        let arguments = vec![DataType::Utf8, DataType::Utf8, DataType::Boolean];
        SetConfig { signature: Signature::exact(arguments, Volatility::Volatile), settings }
    }
}

impl PartialEq for SetConfig {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.settings, &other.settings)
    }
}
impl Eq for SetConfig {}
impl std::hash::Hash for SetConfig {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.settings).hash(state);
    }
}

impl ScalarUDFImpl for SetConfig {
    fn name(&self) -> &str {
        "set_config"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args[..2])?;
        let mut values = StringBuilder::new();
        for (name, value) in arrays[0].as_string::<i32>().iter().zip(arrays[1].as_string::<i32>()) {
            let Some(name) = name else {
                let error = QueryError::new(sqlstate::NULL_NOT_ALLOWED, "SET requires parameter name");
                return Err(error.into_datafusion());
            };
            let mut settings = self.settings.lock();
            settings.set(name, value).map_err(QueryError::into_datafusion)?;
            values.append_option(settings.get(name));
            if values.values_slice().len() > LARGE_BYTES {
                let text = format!("set_config: the settings of a batch of rows take more than {LARGE_BYTES} bytes");
                return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion());
            }
        }
        Ok(ColumnarValue::Array(Arc::new(values.finish())))
    }
}

/// The function `pg_typeof(any)`, which returns the name of its argument's type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TypeOf {
    signature: Signature,
}

impl TypeOf {
    pub(crate) fn new() -> Self {
        TypeOf { signature: Signature::any(1, Volatility::Stable) }
    }
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &str {
        "pg_typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let kind = match args.arg_fields.first() {
            Some(field) if !field.data_type().is_null() => {
                type_text(&wire_type(field).map_err(QueryError::into_datafusion)?)
            }
            _ => "unknown".to_owned(),
        };
        Ok(ColumnarValue::Scalar(ScalarValue::from(kind)))
    }
}

/// Types that a client may ask for by name.
const KNOWN_TYPES: [Type; 22] = [
    Type::BOOL,
    Type::BYTEA,
    Type::NAME,
    Type::INT8,
    Type::INT2,
    Type::INT4,
    Type::TEXT,
    Type::OID,
    Type::JSON,
    Type::FLOAT4,
    Type::FLOAT8,
    Type::BPCHAR,
    Type::VARCHAR,
    Type::DATE,
    Type::TIME,
    Type::TIMESTAMP,
    Type::TIMESTAMPTZ,
    Type::INTERVAL,
    Type::TIMETZ,
    Type::NUMERIC,
    Type::UUID,
    Type::JSONB,
];

/// A function of one text.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum OfText {
    /// `to_regtype(text)`: the number of a type, or NULL if there is none of the name.
    ToRegtype,
    /// `regtype(text)`: the number of a type, as a cast to `regtype` gives it.
    Regtype,
    /// `quote_literal(text)`: the text as a constant in SQL.
    QuoteLiteral,
}

impl ScalarUDFImpl for OfText {
    fn name(&self) -> &str {
        match self {
            OfText::ToRegtype => "to_regtype",
            OfText::Regtype => "regtype",
            OfText::QuoteLiteral => "quote_literal",
        }
    }

    fn signature(&self) -> &Signature {
        static SIGNATURE: LazyLock<Signature> =
            LazyLock::new(|| Signature::exact(vec![DataType::Utf8], Volatility::Stable));
        &SIGNATURE
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self {
            OfText::ToRegtype | OfText::Regtype => DataType::Int32,
            OfText::QuoteLiteral => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let texts = arrays[0].as_string::<i32>().iter();
        Ok(ColumnarValue::Array(match self {
            OfText::ToRegtype => Arc::new(Int32Array::from_iter(texts.map(|name| regtype(name?)))),
            OfText::Regtype => {
                let known = |name: &str| {
                    regtype(name).ok_or_else(|| {
                        let text = format!("type \"{name}\" does not exist");
                        QueryError::new(sqlstate::UNDEFINED_OBJECT, text).into_datafusion()
                    })
                };
                Arc::new(texts.map(|name| name.map(known).transpose()).collect::<Result<Int32Array>>()?)
            }
            OfText::QuoteLiteral => Arc::new(StringArray::from_iter(texts.map(|text| text.map(quoted)))),
        }))
    }
}

/// The function `oid(int)`, which returns its argument as the number of an object: to clients, an `oid`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct OidOf {
    signature: Signature,
}

impl OidOf {
    pub(crate) fn new() -> Self {
        OidOf { signature: Signature::exact(vec![DataType::Int32], Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OidOf {
    fn name(&self) -> &str {
        "oid"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(oid_field(self.name(), kind::OID, true)))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}

/// Returns the number of the type with a name.
fn regtype(name: &str) -> Option<i32> {
    let name = name.trim().to_lowercase();
    let plain = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    if let Ok(number) = plain.parse() {
        return Some(number);
    }
    let is_of_array = |plain: &str| plain.len() > 1 && plain.starts_with('_');
    let (plain, is_array) = match plain.strip_suffix("[]") {
        Some(element) => (element, true),
        None if is_of_array(plain) => (&plain[1..], true),
        None => (plain, false),
    };
    let known = KNOWN_TYPES.iter().find(|kind| kind.name() == plain || type_text(kind) == plain)?;
    let kind = if is_array { array_of(known)? } else { known.clone() };
    i32::try_from(kind.oid()).ok()
}

/// Returns a text in quotes, as a constant in SQL.
fn quoted(text: &str) -> String {
    let escape = if text.contains('\\') { "E" } else { "" };
    format!("{escape}'{}'", text.replace('\'', "''").replace('\\', "\\\\"))
}

/// The function `pg_size_pretty(bigint)`, which returns a size in bytes with a unit.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct SizePretty {
    signature: Signature,
}

impl SizePretty {
    pub(crate) fn new() -> Self {
        SizePretty { signature: Signature::exact(vec![DataType::Int64], Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for SizePretty {
    fn name(&self) -> &str {
        "pg_size_pretty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let sizes = arrays[0].as_primitive::<Int64Type>().iter();
        Ok(ColumnarValue::Array(Arc::new(StringArray::from_iter(sizes.map(|size| size.map(size_text))))))
    }
}

/// Returns a size in the largest unit in which it has at least ten, as PostgreSQL does.
fn size_text(bytes: i64) -> String {
    let mut rest = i128::from(bytes);
    for unit in ["bytes", "kB", "MB", "GB", "TB"] {
        let limit = if unit == "bytes" { 10 * 1_024 } else { 20 * 1_024 - 1 };
        let half = if unit == "bytes" { 1 } else { 2 };
        if rest.abs() < limit {
            // Beyond bytes, the rest counts halves of a unit, for rounding.
            let rounded = if half == 1 { rest } else { (rest + rest.signum()) / 2 };
            return format!("{rounded} {unit}");
        }
        rest /= if half == 1 { 512 } else { 1_024 };
    }
    format!("{} PB", (rest + rest.signum()) / 2)
}

/// Returns the name of a type in SQL.
pub(crate) fn type_text(kind: &Type) -> String {
    if let Some(element) = elements_of_type(kind) {
        return format!("{}[]", type_text(&element));
    }
    let name = match *kind {
        Type::BOOL => "boolean",
        Type::INT2 => "smallint",
        Type::INT4 => "integer",
        Type::INT8 => "bigint",
        Type::FLOAT4 => "real",
        Type::FLOAT8 => "double precision",
        Type::VARCHAR => "character varying",
        Type::BPCHAR => "character",
        Type::TIMESTAMP => "timestamp without time zone",
        Type::TIMESTAMPTZ => "timestamp with time zone",
        Type::TIME => "time without time zone",
        Type::TIMETZ => "time with time zone",
        _ => kind.name(),
    };
    name.to_owned()
}
