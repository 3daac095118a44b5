//! The instruction sets of the linear pass.

/// The instructions that compute the linear bits.
///
/// ```
/// use onefold_chunk::{Chunks, sieve::{SieveIsa, Sieve}};
///
/// let data: Vec<u8> = (0..50_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()).collect();
/// let chunks = |isa| Chunks::new(Sieve::new(4096).on(isa).unwrap(), &data).count();
/// assert!(SieveIsa::available().into_iter().all(|isa| chunks(isa) == chunks(SieveIsa::Scalar)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SieveIsa {
    /// Eight positions at a time in a 64-bit register, on every CPU.
    Scalar,
    /// 128 bits at a time.
    Pclmul,
    /// 256 bits at a time.
    Avx2,
    /// 512 bits at a time.
    Avx512,
    /// 128 bits at a time, on AArch64.
    Neon,
}
