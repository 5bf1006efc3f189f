//! Arrays as parameters, in PostgreSQL's text form and in the binary one (its `array_recv`).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use pgwire::api::Type;

use crate::error::{QueryError, sqlstate};
use crate::plan::parameter;
use crate::sql::array::elements;

/// Decodes an array of one dimension. `element` is the wire type of its elements, `target` the type that the plan expects
/// of them.
///
/// # Errors
/// If the bytes are not such an array, or an element does not fit the target.
pub(super) fn decode(
    number: usize,
    bytes: &[u8],
    binary: bool,
    element: &Type,
    target: Option<&DataType>,
) -> Result<ScalarValue, QueryError> {
    let of = |bytes: Option<&[u8]>, wire: &Type| parameter::decode(number, bytes, binary, wire, target);
    let values: Vec<ScalarValue> = if binary {
        let (wire, elements) = binary_elements(number, bytes)?;
        elements.into_iter().map(|bytes| of(bytes, &wire)).collect::<Result<_, _>>()?
    } else {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| QueryError::new("22021", format!("parameter ${number} is not UTF-8")))?;
        let elements = elements(text)?;
        let bytes = |text: &Option<String>| text.as_ref().map(|text| text.clone().into_bytes());
        elements.iter().map(|text| of(bytes(text).as_deref(), element)).collect::<Result<_, _>>()?
    };
    let kind = match target {
        Some(kind) => kind.clone(),
        None => values.iter().find(|value| !value.is_null()).map_or(DataType::Utf8, ScalarValue::data_type),
    };
    let values = values.iter().map(|value| value.cast_to(&kind)).collect::<Result<Vec<_>, _>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list(&values, &kind, true)))
}

/// Bytes of the elements; `None` is NULL.
type Elements<'b> = Vec<Option<&'b [u8]>>;

/// Splits the binary form into the type and the bytes of its elements: dimensions, flags and type; for each dimension its
/// length and lower bound; for each element its length, −1 for NULL, and bytes. All numbers are 32 bits, big-endian.
fn binary_elements(number: usize, bytes: &[u8]) -> Result<(Type, Elements<'_>), QueryError> {
    let invalid = |what: &str| {
        QueryError::new(sqlstate::INVALID_BINARY, format!("parameter ${number}: {} bytes are {what}", bytes.len()))
    };
    let mut rest = bytes;
    let (Some(dimensions), Some(_), Some(oid)) = (word(&mut rest), word(&mut rest), word(&mut rest)) else {
        return Err(invalid("no array"));
    };
    let kind = Type::from_oid(oid as u32).ok_or_else(|| invalid("an array of an unknown type"))?;
    let count = match dimensions {
        0 => 0,
        1 => word(&mut rest).zip(word(&mut rest)).map(|(length, _)| length).ok_or_else(|| invalid("no array"))?,
        _ => return Err(invalid("an array of several dimensions, which is not offered")),
    };
    let mut elements = Vec::new();
    for _ in 0..count {
        let length = word(&mut rest).ok_or_else(|| invalid("no array"))?;
        elements.push(match usize::try_from(length) {
            Err(_) => None,
            Ok(length) => {
                let (element, after) = rest.split_at_checked(length).ok_or_else(|| invalid("no array"))?;
                rest = after;
                Some(element)
            }
        });
    }
    if rest.is_empty() { Ok((kind, elements)) } else { Err(invalid("no array")) }
}

/// Takes a number.
fn word(rest: &mut &[u8]) -> Option<i32> {
    let (word, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(i32::from_be_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_are_too_many_for_an_array() {
        let mut bytes = Vec::new();
        for word in [1i32, 0, Type::INT4.oid() as i32, i32::MAX, 1, 4, 7] {
            bytes.extend(word.to_be_bytes());
        }
        for len in 0..=bytes.len() {
            assert!(binary_elements(1, &bytes[..len]).is_err());
        }
        bytes[12..16].copy_from_slice(&1i32.to_be_bytes());
        let (kind, elements) = binary_elements(1, &bytes).expect("an array");
        assert_eq!((kind, elements), (Type::INT4, vec![Some(&7i32.to_be_bytes()[..])]));
    }
}
