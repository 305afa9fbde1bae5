//! The opcodes of the pickle interpreter.

use std::collections::HashMap;

use crate::cursor::{Cursor, utf8};
use crate::error::Problem;
use crate::limits;

use super::super::names::{self, Name};
use super::{Object, Span, Value, Values};

/// Opcodes that are rejected, with their names in Python's `pickletools`.
const REFUSED: &[(u8, &str)] = &[
    (b'I', "INT"),
    (b'L', "LONG"),
    (b'S', "STRING"),
    (b'V', "UNICODE"),
    (b'F', "FLOAT"),
    (b'P', "PERSID"),
    (b'p', "PUT"),
    (b'g', "GET"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (b'd', "DICT"),
    (b'l', "LIST"),
    (b'0', "POP"),
    (b'1', "POP_MARK"),
    (b'2', "DUP"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x96, "BYTEARRAY8"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
];

/// Runs a pickle until its `STOP` opcode.
pub(in super::super) fn run(pickle: &[u8]) -> Result<Values<'_>, Problem> {
    let mut machine = Machine {
        cursor: Cursor::new(pickle, 0),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        values: Values { pickle, objects: Vec::new(), top: Value::None },
    };
    for _ in 0..limits::MAX_PICKLE_STEPS {
        let code = machine.cursor.u8("pickle")?;
        if code == b'.' {
            machine.values.top = machine.pop()?;
            return Ok(machine.values);
        }
        machine.step(code)?;
    }
    let limit = limits::MAX_PICKLE_STEPS;
    Err(Problem::Limit { what: "instructions of the pickle", limit, found: limit + 1 })
}

/// State of the interpreter.
pub(super) struct Machine<'a> {
    cursor: Cursor<'a>,
    stack: Vec<Value>,
    /// Stack heights at which marks were set.
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    pub(super) values: Values<'a>,
}

impl Machine<'_> {
    /// Executes one opcode.
    fn step(&mut self, code: u8) -> Result<(), Problem> {
        match code {
            // Frames and the protocol number are skipped.
            0x80 => self.cursor.take(1, "PROTO").map(drop),
            0x95 => self.cursor.take(8, "FRAME").map(drop),
            b'N' => self.push(Value::None),
            0x88 | 0x89 => self.push(Value::Bool),
            b'K' | b'M' | b'J' | 0x8a | 0x8b => self.integer(code),
            b'G' => self.skip(8, "BINFLOAT"),
            b'X' | 0x8c | 0x8d | b'T' | b'U' => self.text(code),
            b'B' | b'C' | 0x8e => self.bytes(code),
            b')' => self.make(Object::Tuple(Vec::new())),
            0x85..=0x87 => {
                let items = self.pop_many(usize::from(code - 0x84))?;
                self.make(Object::Tuple(items))
            }
            b'(' => self.mark(),
            b't' => {
                let items = self.pop_to_mark()?;
                self.make(Object::Tuple(items))
            }
            b']' => self.make(Object::List(Vec::new())),
            b'}' => self.make(Object::Dict(Vec::new())),
            0x8f => self.make(Object::Inert),
            0x90 => self.pop_to_mark().map(drop),
            0x91 => {
                self.pop_to_mark()?;
                self.make(Object::Inert)
            }
            b'a' => {
                let items = self.pop_many(1)?;
                self.append(&items)
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.append(&items)
            }
            b's' => {
                let items = self.pop_many(2)?;
                self.set_items(&items)
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set_items(&items)
            }
            b'q' | b'r' | 0x94 => self.remember(code),
            b'h' | b'j' => self.recall(code),
            b'c' | 0x93 => self.name(code),
            b'R' | 0x81 => self.call(),
            0x92 => self.new_with_keywords(),
            b'b' => self.build(),
            b'Q' => self.persistent(),
            _ => Err(self.refuse(code)),
        }
    }

    fn refuse(&self, code: u8) -> Problem {
        let position = self.cursor.position() - 1;
        let name = REFUSED.iter().find(|(known, _)| *known == code).map_or("unknown", |x| x.1);
        Problem::Instruction { code, name, position }
    }

    pub(super) fn push(&mut self, value: Value) -> Result<(), Problem> {
        let found = self.stack.len() as u64 + 1;
        Problem::within("values on the pickle stack", limits::MAX_PICKLE_STACK as u64, found)?;
        self.stack.push(value);
        Ok(())
    }

    /// Adds an object to the table and pushes a reference to it.
    pub(super) fn make(&mut self, object: Object) -> Result<(), Problem> {
        let place = self.values.objects.len();
        let found = place as u64 + 1;
        Problem::within("objects of the pickle", limits::MAX_PICKLE_OBJECTS as u64, found)?;
        self.values.objects.push(object);
        self.push(Value::Object(place as u32))
    }

    fn empty(what: &str) -> Problem {
        Problem::invalid("pickle", what, "an empty stack")
    }

    /// Number of values that may be popped: those above the last mark.
    fn available(&self) -> usize {
        self.stack.len() - self.marks.last().copied().unwrap_or(0)
    }

    pub(super) fn pop(&mut self) -> Result<Value, Problem> {
        if self.available() == 0 {
            return Err(Self::empty("a value"));
        }
        self.stack.pop().ok_or_else(|| Self::empty("a value"))
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Value>, Problem> {
        if self.available() < count {
            return Err(Self::empty("more values"));
        }
        Ok(self.stack.split_off(self.stack.len() - count))
    }

    fn mark(&mut self) -> Result<(), Problem> {
        let found = self.marks.len() as u64 + 1;
        Problem::within("marks on the pickle stack", limits::MAX_PICKLE_MARKS as u64, found)?;
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, Problem> {
        let height = self.marks.pop().ok_or_else(|| Self::empty("a mark"))?;
        Ok(self.stack.split_off(height))
    }

    fn integer(&mut self, code: u8) -> Result<(), Problem> {
        let value = match code {
            b'K' => i64::from(self.cursor.u8("BININT1")?),
            b'M' => i64::from(self.cursor.u16("BININT2")?),
            b'J' => i64::from(self.cursor.u32("BININT")? as i32),
            _ => return self.long(code),
        };
        self.push(Value::Int(value))
    }

    /// A signed little-endian integer of any length; `Inert` if it exceeds 64 bits.
    fn long(&mut self, code: u8) -> Result<(), Problem> {
        let length = match code {
            0x8a => u32::from(self.cursor.u8("LONG1")?),
            _ => self.cursor.u32("LONG4")?,
        };
        let bytes = self.cursor.take(length.into(), "LONG1")?;
        if bytes.len() > 8 {
            return self.push(Value::Inert);
        }
        let negative = bytes.last().is_some_and(|&byte| byte & 0x80 != 0);
        let mut whole = [if negative { 0xff } else { 0 }; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(whole)))
    }

    fn skip(&mut self, length: u64, what: &str) -> Result<(), Problem> {
        self.cursor.take(length, what)?;
        self.push(Value::Inert)
    }

    fn text(&mut self, code: u8) -> Result<(), Problem> {
        let length = match code {
            0x8c | b'U' => u64::from(self.cursor.u8("SHORT_BINUNICODE")?),
            0x8d => self.cursor.u64("BINUNICODE8")?,
            _ => u64::from(self.cursor.u32("BINUNICODE")?),
        };
        let start = self.cursor.position() as u32;
        self.cursor.take(length, "BINUNICODE")?;
        // Both fit: the pickle is at most `limits::MAX_PICKLE_BYTES` long.
        self.push(Value::Text(Span { start, length: length as u32 }))
    }

    fn bytes(&mut self, code: u8) -> Result<(), Problem> {
        let length = match code {
            b'C' => u64::from(self.cursor.u8("SHORT_BINBYTES")?),
            b'B' => u64::from(self.cursor.u32("BINBYTES")?),
            _ => self.cursor.u64("BINBYTES8")?,
        };
        self.skip(length, "BINBYTES")
    }

    /// Appends items to the list on top of the stack.
    fn append(&mut self, items: &[Value]) -> Result<(), Problem> {
        match self.top_object()? {
            Object::List(list) => list.extend(items),
            Object::Inert => {}
            Object::Tuple(_) | Object::Dict(_) | Object::Storage(_) | Object::Tensor(_) => {
                return Err(Problem::invalid("APPEND", "a list", "another value"));
            }
        }
        Ok(())
    }

    /// Adds key-value pairs to the dict on top of the stack.
    fn set_items(&mut self, items: &[Value]) -> Result<(), Problem> {
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Problem::invalid("SETITEMS", "pairs", format!("{} values", items.len())));
        }
        match self.top_object()? {
            Object::Dict(dict) => dict.extend(pairs.iter().map(|&[key, value]| (key, value))),
            Object::Inert => {}
            Object::Tuple(_) | Object::List(_) | Object::Storage(_) | Object::Tensor(_) => {
                return Err(Problem::invalid("SETITEMS", "a dict", "another value"));
            }
        }
        Ok(())
    }

    fn top_object(&mut self) -> Result<&mut Object, Problem> {
        let top = if self.available() == 0 { None } else { self.stack.last() };
        let place = match top {
            Some(Value::Object(place)) => *place as usize,
            Some(_) | None => return Err(Problem::invalid("pickle", "a container", "none")),
        };
        self.values.objects.get_mut(place).ok_or_else(|| Self::empty("a container"))
    }

    fn remember(&mut self, code: u8) -> Result<(), Problem> {
        let key = match code {
            b'q' => u32::from(self.cursor.u8("BINPUT")?),
            b'r' => self.cursor.u32("LONG_BINPUT")?,
            _ => self.memo.len() as u32,
        };
        let value = self.pop()?;
        self.stack.push(value);
        self.memo.insert(key, value);
        let found = self.memo.len() as u64;
        Problem::within("values the pickle remembers", limits::MAX_PICKLE_MEMO as u64, found)?;
        Ok(())
    }

    fn recall(&mut self, code: u8) -> Result<(), Problem> {
        let key = match code {
            b'h' => u32::from(self.cursor.u8("BINGET")?),
            _ => self.cursor.u32("LONG_BINGET")?,
        };
        match self.memo.get(&key) {
            Some(&value) => self.push(value),
            None => Err(Problem::invalid("BINGET", "a value that was remembered", key)),
        }
    }

    /// Pushes a function or class of the allow-list, given by module and name.
    fn name(&mut self, code: u8) -> Result<(), Problem> {
        const WHAT: &str = "name in the pickle";
        let name = if code == b'c' {
            let module = utf8(self.cursor.line(limits::MAX_NAME_BYTES, WHAT)?, WHAT)?;
            let name = utf8(self.cursor.line(limits::MAX_NAME_BYTES, WHAT)?, WHAT)?;
            allowed(module, name)?
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            let (Value::Text(module), Value::Text(name)) = (module, name) else {
                return Err(Problem::invalid("STACK_GLOBAL", "two texts", "other values"));
            };
            allowed(self.values.text(module)?, self.values.text(name)?)?
        };
        self.push(Value::Name(name))
    }

    /// `NEWOBJ_EX`: class, arguments and keywords. Only for classes whose instances are ignored.
    fn new_with_keywords(&mut self) -> Result<(), Problem> {
        self.pop_many(2)?;
        if self.pop()? == Value::Name(Name::Inert) {
            return self.make(Object::Inert);
        }
        Err(Problem::invalid("NEWOBJ_EX", "a harmless class", "another value"))
    }

    /// `BUILD`: sets attributes of an object, such as `_metadata` of a state dict. They hold no tensors and are ignored.
    fn build(&mut self) -> Result<(), Problem> {
        self.pop()?;
        match self.top_object()? {
            Object::Dict(_) | Object::Inert | Object::Tensor(_) => Ok(()),
            Object::Tuple(_) | Object::List(_) | Object::Storage(_) => {
                Err(Problem::invalid("BUILD", "an object with attributes", "another value"))
            }
        }
    }
}

fn allowed(module: &str, name: &str) -> Result<Name, Problem> {
    let clip = |text: &str| text.chars().take(100).collect::<String>();
    names::find(module, name)
        .ok_or_else(|| Problem::Callable(format!("{}.{}", clip(module), clip(name))))
}
