//! AMF0, the encoding of RTMP's commands.

/// The deepest nesting of objects.
const MAX_DEPTH: usize = 8;
/// The most values of a message, nested ones included.
const MAX_VALUES: usize = 512;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A truth value.
    Boolean(bool),
    /// A text. Bytes that are no UTF-8 are replaced.
    Text(String),
    /// An object or an associative array.
    Object(Vec<(String, Value)>),
    /// A list.
    List(Vec<Value>),
    /// Null, undefined, or a date, which nothing here reads.
    Null,
}

impl Value {
    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    /// A member of an object.
    pub fn member(&self, name: &str) -> Option<&Value> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }
}

/// Reads all values of a message. `None`: it is damaged, or nested too deeply, or has too many values.
pub fn decode(bytes: &[u8]) -> Option<Vec<Value>> {
    let mut reader = Reader { bytes, left: MAX_VALUES };
    let mut values = Vec::new();
    while !reader.bytes.is_empty() {
        values.push(reader.value(MAX_DEPTH)?);
    }
    Some(values)
}

/// Appends a value.
pub fn encode(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Number(number) => {
            to.push(0);
            to.extend(number.to_be_bytes());
        }
        Value::Boolean(boolean) => to.extend([1, u8::from(*boolean)]),
        Value::Text(text) => {
            to.push(2);
            put_name(text, to);
        }
        Value::Object(members) => {
            to.push(3);
            for (name, value) in members {
                put_name(name, to);
                encode(value, to);
            }
            to.extend([0, 0, 9]);
        }
        Value::List(values) => {
            to.push(10);
            to.extend((values.len() as u32).to_be_bytes());
            values.iter().for_each(|value| encode(value, to));
        }
        Value::Null => to.push(5),
    }
}

/// Appends a text with its length. A text of more than 65,535 bytes is cut.
fn put_name(text: &str, to: &mut Vec<u8>) {
    let bytes = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    to.extend((bytes.len() as u16).to_be_bytes());
    to.extend(bytes);
}

struct Reader<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N).map(|bytes| bytes.try_into().expect("as many as asked"))
    }

    fn text(&mut self, length: usize) -> Option<String> {
        self.take(length).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn name(&mut self) -> Option<String> {
        let length = u16::from_be_bytes(self.array()?);
        self.text(usize::from(length))
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.left = self.left.checked_sub(1)?;
        let depth = depth.checked_sub(1)?;
        Some(match self.array::<1>()?[0] {
            0 => Value::Number(f64::from_be_bytes(self.array()?)),
            1 => Value::Boolean(self.array::<1>()?[0] != 0),
            2 => Value::Text(self.name()?),
            3 => self.members(depth)?,
            5 | 6 => Value::Null,
            8 => {
                self.take(4)?;
                self.members(depth)?
            }
            10 => {
                let count = u32::from_be_bytes(self.array()?);
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(self.value(depth)?);
                }
                Value::List(values)
            }
            11 => {
                self.take(10)?;
                Value::Null
            }
            12 => {
                let length = u32::from_be_bytes(self.array()?);
                Value::Text(self.text(length as usize)?)
            }
            _ => return None,
        })
    }

    fn members(&mut self, depth: usize) -> Option<Value> {
        let mut members = Vec::new();
        loop {
            let name = self.name()?;
            if name.is_empty() && self.bytes.first() == Some(&9) {
                self.take(1)?;
                return Some(Value::Object(members));
            }
            members.push((name, self.value(depth)?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_written() {
        let object =
            Value::Object(vec![("app".into(), Value::Text("live".into())), ("n".into(), Value::Number(1.5))]);
        let values = vec![object, Value::Null, Value::Boolean(true), Value::List(vec![Value::Null])];
        let mut bytes = Vec::new();
        values.iter().for_each(|value| encode(value, &mut bytes));
        assert_eq!(decode(&bytes), Some(values));
        assert!((1..bytes.len() - 1).any(|end| decode(&bytes[..end]).is_none()));
    }

    #[test]
    fn nesting_and_claimed_counts_are_bounded() {
        assert_eq!(decode(&[10, 0, 0, 0, 1].repeat(1000)), None);
        assert_eq!(decode(&[10, 255, 255, 255, 255, 5, 5, 5]), None);
        assert_eq!(decode(&[5; MAX_VALUES + 1]), None);
    }
}
