//! Links Hyperscan, or Vectorscan, which goes by the same name.

fn main() {
    println!("cargo:rustc-link-lib=dylib=hs");
}
