//! Writes PyTorch files as `torch.save` does, or deliberately invalid ones.

/// A pickle under construction, one method per opcode.
#[derive(Clone, Default)]
pub(crate) struct Pickle(Vec<u8>);

#[allow(dead_code, reason = "shared by several test binaries, each of which uses a part")]
impl Pickle {
    /// Starts a pickle of protocol 2, the one that `torch.save` writes.
    pub(crate) fn new() -> Self {
        Pickle(vec![0x80, 2])
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn global(self, module: &str, name: &str) -> Self {
        self.raw(format!("c{module}\n{name}\n").as_bytes())
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.raw(b"X").raw(&(text.len() as u32).to_le_bytes()).raw(text.as_bytes())
    }

    /// Pushes a number with the shortest opcode.
    pub(crate) fn int(self, number: i64) -> Self {
        if let Ok(number) = u8::try_from(number) {
            return self.raw(&[b'K', number]);
        }
        match i32::try_from(number) {
            Ok(number) => self.raw(b"J").raw(&number.to_le_bytes()),
            Err(_) => self.raw(&[0x8a, 8]).raw(&number.to_le_bytes()),
        }
    }

    pub(crate) fn tuple(mut self, numbers: &[i64]) -> Self {
        self = self.raw(b"(");
        for &number in numbers {
            self = self.int(number);
        }
        self.raw(b"t")
    }

    /// `('storage', torch.<kind>, key, 'cpu', elements)`.
    pub(crate) fn storage(self, kind: &str, key: &str, elements: i64) -> Self {
        let named = self.raw(b"(").text("storage").global("torch", kind).text(key).text("cpu");
        named.int(elements).raw(b"tQ")
    }

    /// `_rebuild_tensor_v2` of the storage that `storage` puts on the stack.
    pub(crate) fn tensor(
        self,
        storage: impl FnOnce(Self) -> Self,
        offset: i64,
        shape: &[i64],
        strides: &[i64],
    ) -> Self {
        let called = storage(self.global("torch._utils", "_rebuild_tensor_v2").raw(b"("));
        let placed = called.int(offset).tuple(shape).tuple(strides);
        placed.raw(b"\x89").global("collections", "OrderedDict").raw(b")Rt").raw(b"R")
    }

    /// The whole pickle.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.raw(b".").0
    }
}

/// A pickle of one dict, given the instructions for its keys and values.
#[allow(dead_code, reason = "see above")]
pub(crate) fn dict(items: impl FnOnce(Pickle) -> Pickle) -> Vec<u8> {
    items(Pickle::new().raw(b"}(")).raw(b"u").finish()
}

/// Form of a zip archive.
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code, reason = "see above")]
pub(crate) enum Zip {
    Stored,
    Deflated,
    /// Zip64: sizes and positions in the 64-bit fields.
    Wide,
}

/// A zip archive of these entries.
pub(crate) fn zip(entries: &[(&str, &[u8])], how: Zip) -> Vec<u8> {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for (name, content) in entries {
        let packed = if how == Zip::Deflated { deflate(content) } else { content.to_vec() };
        let header = file.len() as u64;
        let method = if how == Zip::Deflated { 8u16 } else { 0 };
        let mut common = Vec::new();
        common.extend([45, 0, 0, 0]);
        common.extend(method.to_le_bytes());
        common.extend([0; 4]);
        common.extend(checksum(content).to_le_bytes());
        let (short, extra) = sizes(how, content.len() as u64, packed.len() as u64, header);
        common.extend(short[0].to_le_bytes());
        common.extend(short[1].to_le_bytes());
        common.extend((name.len() as u16).to_le_bytes());
        file.extend(b"PK\x03\x04");
        file.extend(&common);
        file.extend(0u16.to_le_bytes());
        file.extend(name.as_bytes());
        file.extend(&packed);
        directory.extend(b"PK\x01\x02\x2d\0");
        directory.extend(&common);
        directory.extend((extra.len() as u16).to_le_bytes());
        directory.extend([0; 10]);
        directory.extend(short[2].to_le_bytes());
        directory.extend(name.as_bytes());
        directory.extend(&extra);
    }
    let start = file.len() as u64;
    let length = directory.len() as u64;
    file.extend(&directory);
    finish(file, how, [entries.len() as u64, length, start])
}

/// The 32-bit fields (packed size, size, position of the header) and the zip64 extra field.
fn sizes(how: Zip, size: u64, packed: u64, header: u64) -> ([u32; 3], Vec<u8>) {
    if how != Zip::Wide {
        return ([packed as u32, size as u32, header as u32], Vec::new());
    }
    let mut extra = vec![1, 0, 24, 0];
    extra.extend([size, packed, header].iter().flat_map(|field| field.to_le_bytes()));
    ([u32::MAX; 3], extra)
}

fn finish(mut file: Vec<u8>, how: Zip, [count, length, start]: [u64; 3]) -> Vec<u8> {
    let wide_end = file.len() as u64;
    if how == Zip::Wide {
        file.extend(b"PK\x06\x06");
        file.extend(44u64.to_le_bytes());
        file.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file.extend([count, count, length, start].iter().flat_map(|field| field.to_le_bytes()));
        file.extend(b"PK\x06\x07\0\0\0\0");
        file.extend(wide_end.to_le_bytes());
        file.extend([1, 0, 0, 0]);
    }
    let narrow = |field: u64| if how == Zip::Wide { u32::MAX } else { field as u32 };
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([narrow(count) as u16, narrow(count) as u16].iter().flat_map(|x| x.to_le_bytes()));
    file.extend([narrow(length), narrow(start)].iter().flat_map(|x| x.to_le_bytes()));
    file.extend([0, 0]);
    file
}

fn deflate(content: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut packed = Vec::new();
    let mut reader = flate2::read::DeflateEncoder::new(content, flate2::Compression::default());
    reader.read_to_end(&mut packed).expect("a vector takes every byte");
    packed
}

fn checksum(content: &[u8]) -> u32 {
    let mut checksum = flate2::Crc::new();
    checksum.update(content);
    checksum.sum()
}

/// A PyTorch file of a pickle and storages by key.
#[allow(dead_code, reason = "see above")]
pub(crate) fn torch_file(pickle: &[u8], storages: &[(&str, &[u8])], how: Zip) -> Vec<u8> {
    let names: Vec<String> = storages.iter().map(|(key, _)| format!("m/data/{key}")).collect();
    let mut entries: Vec<(&str, &[u8])> = vec![("m/data.pkl", pickle), ("m/byteorder", b"little")];
    entries.extend(names.iter().zip(storages).map(|(name, (_, bytes))| (name.as_str(), *bytes)));
    entries.push(("m/version", b"3\n"));
    zip(&entries, how)
}
