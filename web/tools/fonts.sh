#!/usr/bin/env bash
# Makes the fonts of the page, src/style/fonts/*.woff2, from the packages of Inter and JetBrains Mono: Latin-1 and the signs
# that the page writes, weights 400 to 700, without ligatures and stylistic sets. Half the bytes of the packages' own
# Latin subsets. Run it when a package is updated; needs fonttools with brotli (pip install fonttools brotli).
set -euo pipefail
cd "$(dirname "$0")/.."
unicodes="U+0020-007E,U+00A0-00FF,U+0131,U+0152-0153,U+02C6,U+02DA,U+02DC,U+2002-200A,U+2013-2014,U+2018-201E,U+2020-2022,U+2026,U+202F,U+2030,U+2032-2033,U+2039-203A,U+20AC,U+2122,U+2190-2193,U+2212,U+221E,U+2248,U+2260,U+2264-2265,U+0394,U+03A9,U+03BC,U+03C0,U+207B,U+2070-2079,U+2080-2089"
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
subset() {
  fonttools varLib.instancer --quiet "$1" wght=400:700 -o "$temporary/font.ttf"
  pyftsubset "$temporary/font.ttf" --unicodes="$unicodes" --layout-features="$2" --flavor=woff2 --no-hinting \
    --desubroutinize --name-IDs='0,1,2,13,14' --output-file="src/style/fonts/$3"
}
subset node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2 "kern,tnum,calt,ccmp,mark,locl" inter.woff2
subset node_modules/@fontsource-variable/jetbrains-mono/files/jetbrains-mono-latin-wght-normal.woff2 "zero,ccmp,mark,locl" jetbrains-mono.woff2
ls -l src/style/fonts
