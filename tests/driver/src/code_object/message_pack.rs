//! MessagePack, the binary JSON in which a code object describes its kernels.
//!
//! ```text
//!   81 a4 "name" 93 01 02 ff        a map of 1 pair, a text of 4 bytes, a list of 3 numbers
//!   { name: [1, 2, -1] }
//! ```
//!
//! Source: the MessagePack specification. A crate would do, but metadata needs little of it: there
//! are no floats, byte strings and extensions, so they are errors.

/// The most values within each other.
const DEPTH_MAX: u32 = 16;

/// A value.
#[derive(Debug, PartialEq, Eq)]
pub enum Value {
    Number(i64),
    Text(String),
    /// The values of a list, or the keys and values of a map by turns.
    Items(Vec<Value>),
    /// Nothing, true or false.
    Other,
}

impl Value {
    /// Returns what a map has under `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let pair = |pair: &&[Value]| pair[0].text() == Some(key);
        self.items().chunks_exact(2).find(pair).map(|pair| &pair[1])
    }

    /// Returns the number that a map has under `key`.
    pub fn number(&self, key: &str) -> Result<u32, String> {
        match self.get(key) {
            Some(Value::Number(number)) => u32::try_from(*number).map_err(|_| key.to_owned()),
            _ => Err(format!("metadata without {key}")),
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn items(&self) -> &[Value] {
        match self {
            Value::Items(items) => items,
            _ => &[],
        }
    }
}

/// Returns the value that `bytes` begin with.
///
/// # Errors
/// If they end within it, or are of a kind that metadata has not.
pub fn decode(mut bytes: &[u8]) -> Result<Value, String> {
    value(&mut bytes, DEPTH_MAX)
}

fn take<'a>(rest: &mut &'a [u8], size: u64) -> Result<&'a [u8], String> {
    let taken = usize::try_from(size).ok();
    let taken = taken.and_then(|size| rest.split_off(..size));
    taken.ok_or_else(|| "metadata that ends within a value".to_owned())
}

/// Reads a number of `size` bytes, at most 8, the high one first.
fn unsigned(rest: &mut &[u8], size: u64) -> Result<u64, String> {
    let bytes = take(rest, size)?.iter();
    Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn value(rest: &mut &[u8], depth: u32) -> Result<Value, String> {
    let kind = take(rest, 1)?[0];
    match kind {
        0x00..=0x7f | 0xe0..=0xff => Ok(Value::Number(kind.cast_signed().into())),
        0x80..=0x8f => items(rest, u64::from(kind & 15) * 2, depth),
        0x90..=0x9f => items(rest, u64::from(kind & 15), depth),
        0xa0..=0xbf => text(rest, u64::from(kind & 31)),
        0xc0 | 0xc2 | 0xc3 => Ok(Value::Other),
        0xcc..=0xcf => {
            let number = unsigned(rest, 1 << (kind & 3))?;
            Ok(Value::Number(number.cast_signed()))
        }
        0xd0..=0xd3 => {
            let above = 64 - (8 << (kind & 3));
            let number = unsigned(rest, 1 << (kind & 3))? << above;
            Ok(Value::Number(number.cast_signed() >> above))
        }
        0xd9..=0xdb => unsigned(rest, 1 << (kind - 0xd9)).and_then(|size| text(rest, size)),
        0xdc | 0xdd => unsigned(rest, 2 << (kind & 1)).and_then(|n| items(rest, n, depth)),
        0xde | 0xdf => unsigned(rest, 2 << (kind & 1)).and_then(|n| items(rest, n * 2, depth)),
        _ => Err(format!("metadata with a value of kind {kind:#x}")),
    }
}

fn text(rest: &mut &[u8], size: u64) -> Result<Value, String> {
    let text = String::from_utf8(take(rest, size)?.to_vec());
    text.map(Value::Text).map_err(|error| error.to_string())
}

fn items(rest: &mut &[u8], count: u64, depth: u32) -> Result<Value, String> {
    let depth = depth.checked_sub(1).ok_or("metadata nested too deep")?;
    let items = (0..count).map(|_| value(rest, depth));
    items.collect::<Result<_, _>>().map(Value::Items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        let numbers = b"\x96\x05\xff\xcc\xff\xcd\x01\x00\xd0\x80\xd1\xff\xfe";
        let expected = [5, -1, 255, 256, -128, -2].map(Value::Number);
        assert_eq!(decode(numbers), Ok(Value::Items(expected.into())));
        let map = decode(b"\x82\xa1a\xd9\x02bc\xa1d\xdc\x00\x02\xc0\x07").unwrap();
        assert_eq!(map.get("a").and_then(Value::text), Some("bc"));
        let list = map.get("d").map(Value::items);
        assert_eq!(list, Some(&[Value::Other, Value::Number(7)][..]));
    }

    #[test]
    fn what_is_broken_is_an_error() {
        let whole = b"\xde\x00\x01\xa1a\xdb\x00\x00\x00\x02bc";
        assert!(decode(whole).is_ok());
        assert!((0..whole.len()).all(|end| decode(&whole[..end]).is_err()));
        assert!(decode(&[0x91; 99]).is_err());
        assert!(decode(b"\xdf\xff\xff\xff\xff\x00").is_err());
        assert!(decode(b"\xca\x00\x00\x00\x00").is_err());
    }
}
