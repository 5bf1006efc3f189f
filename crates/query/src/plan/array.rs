//! Arrays as parameters, in PostgreSQL's text form and in the binary one (its `array_recv`).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use pgwire::api::Type;

use crate::error::{QueryError, sqlstate};
use crate::plan::parameter;
use crate::sql::array::{ELEMENTS_MAX, elements, too_many};
use crate::wire::encode::elements_of_type;

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
        let elements = elements(parameter::text_of(number, bytes)?)?;
        let of_text = |text: &Option<String>| of(text.as_ref().map(String::as_bytes), element);
        elements.iter().map(of_text).collect::<Result<_, _>>()?
    };
    // Numbers that the expected type does not hold are compared as they are.
    let is_held = |kind: &DataType, value: &ScalarValue| {
        let back = value.cast_to(kind).and_then(|cast| cast.cast_to(&value.data_type()));
        value.is_null() || back.is_ok_and(|back| back == *value)
    };
    let kind = match target {
        Some(kind) => values.iter().find(|value| !is_held(kind, value)).map_or(kind.clone(), ScalarValue::data_type),
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
    // Each level would be decoded within the one around it.
    if elements_of_type(&kind).is_some() {
        return Err(invalid("an array of arrays"));
    }
    let count = match dimensions {
        0 => 0,
        1 => word(&mut rest).zip(word(&mut rest)).map(|(length, _)| length).ok_or_else(|| invalid("no array"))?,
        _ => return Err(invalid("an array of several dimensions, which is not offered")),
    };
    if count > ELEMENTS_MAX as i32 {
        return Err(too_many());
    }
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
        assert_eq!(binary_elements(1, &bytes).unwrap_err().sqlstate, "54000");
        bytes[12..16].copy_from_slice(&1i32.to_be_bytes());
        let (kind, elements) = binary_elements(1, &bytes).expect("an array");
        assert_eq!((kind, elements), (Type::INT4, vec![Some(&7i32.to_be_bytes()[..])]));
    }

    #[test]
    fn arrays_within_arrays_are_refused() {
        let mut bytes = Vec::new();
        for _ in 0..50_000 {
            let header = [1, 0, Type::INT4_ARRAY.oid() as i32, 1, 1, bytes.len() as i32];
            bytes.splice(..0, header.into_iter().flat_map(i32::to_be_bytes).collect::<Vec<u8>>());
            if bytes.len() > 24 << 10 {
                break;
            }
        }
        let refused = decode(1, &bytes, true, &Type::INT4, None).unwrap_err();
        assert_eq!(refused.sqlstate, sqlstate::INVALID_BINARY);
    }
}
