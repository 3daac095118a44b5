//! Archives and types of files, as chunkers see them.

use onefold_chunk::context::Rules;
use onefold_chunk::fbc::{Fbc, Params, Segments};
use onefold_chunk::fixed::Fixed;
use onefold_chunk::tar::{Tar, Tars};
use onefold_chunk::{ChunkStream, Chunker};

use super::{Reach, Target};

/// Bytes of the dissertation's three Bloom filters of 800,000, and of all else that counting takes.
const FILTERS_BYTES: usize = 4 << 20;

pub fn targets() -> Vec<Target> {
    vec![
        Target::new("chunk/tar", vec![archive(), sparse()], |bytes| {
            let new = || Tar::new(Fixed::new(700), Tars::Magic);
            let mut whole = 0;
            new().cuts(bytes, true, &mut |length| whole += length);
            assert_eq!(whole, bytes.len(), "bytes are lost");
            let mut joined = Vec::new();
            let mut stream = ChunkStream::new(new());
            for piece in bytes.chunks(333) {
                stream.feed(piece, |chunk| joined.extend_from_slice(chunk));
            }
            stream.finish(|chunk| joined.extend_from_slice(chunk));
            assert!(joined == bytes, "bytes are changed");
            if Tars::Magic.take(bytes) {
                Reach::Inside
            } else {
                Reach::Door
            }
        })
        .mended(mend_headers),
        Target::new("chunk/rules", vec![rules(), archive()], |bytes| {
            let rules = Rules::with(&String::from_utf8_lossy(bytes)).unwrap_or_default();
            let name = &bytes[..bytes.len().min(3)];
            rules.choose(Some(name), bytes);
            rules.choose(None, bytes);
        }),
        Target::new("chunk/sketch", vec![sketch()], |bytes| {
            if let Ok(segments) = Segments::decode(bytes, 1000) {
                assert_eq!(segments.encode(), bytes, "one sketch in two forms");
                let params = Params {
                    modulo: segments.modulo(),
                    ..Params::new(segments.window_bytes())
                };
                let mut informed = Fbc::informed(8 << 10, segments.clone());
                informed.cut(bytes);
                Fbc::counting(params, segments).cut(bytes);
            }
        })
        .allowing(FILTERS_BYTES),
    ]
}

/// Returns the sketch of a stream that repeats itself.
fn sketch() -> Vec<u8> {
    let mut fbc = Fbc::one_pass(1 << 10);
    let piece: Vec<u8> = (0..40_000u32)
        .map(|n| (n.wrapping_mul(0x9e37_79b9) >> 13) as u8)
        .collect();
    for _ in 0..6 {
        fbc.cuts(&piece, true, &mut |_| {});
    }
    let sketch = fbc.segments().encode();
    assert!(sketch.len() > 40, "the sketch is empty");
    sketch
}

/// Makes the checksum of each header true again: of each block that has the magic.
fn mend_headers(bytes: &mut [u8]) {
    let blocks = bytes.chunks_exact_mut(512);
    let headers = blocks.filter(|block| block[257..].starts_with(b"ustar"));
    headers.for_each(seal);
}

fn rules() -> Vec<u8> {
    b"# mine\nwhole as-is jpg .png\nfixed compress img # images\ntar compress tar\n".to_vec()
}

/// A header: type, size as text, magic, checksum.
fn header(kind: u8, size: &str) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..4].copy_from_slice(b"name");
    block[124..124 + size.len()].copy_from_slice(size.as_bytes());
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut block);
    block
}

fn seal(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}

/// A folder, a file with pax records, one with a long name, the end.
fn archive() -> Vec<u8> {
    let mut all = header(b'5', "0");
    for (kind, about) in [(b'x', &b"12 size=600\n"[..]), (b'L', b"a long name\0")] {
        all.extend(header(kind, &format!("{:o}", about.len())));
        all.extend_from_slice(about);
        all.resize(all.len().next_multiple_of(512), 0);
        all.extend(header(b'0', "1130"));
        all.extend([7; 600]);
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.extend([0; 1024]);
    all
}

/// A sparse file whose map takes another block.
fn sparse() -> Vec<u8> {
    let mut all = header(b'S', "1000");
    all[482] = 1;
    seal(&mut all);
    all.extend([0; 512]);
    all.extend([1; 1024]);
    all
}
