#!/usr/bin/env bash
# Have llama-server, the real server of models that the tests talk to: build it once, keep it in a cache, and
# link it beside a Python as the command llama-server.
#
# usage: llama-server.sh [PYTHON]     default .venv/bin/python; it must have pip
#
# llama.cpp comes from the source package of llama-cpp-python, which holds all of it, server included: so
# pip is the only client of a network here. What is built is kept, its sources are not.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/env.sh

version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
python=${1:-.venv/bin/python}
shelf=${XDG_CACHE_HOME:-$HOME/.cache}/rnix-tests
# Another script, version or kind of machine builds another server.
kept=$shelf/llama-server-$version-$({ uname -m && cat .ci/llama-server.sh; } | sha256sum | cut -c 1-12)
server=$kept/llama-server

# Flags of others would build something else than what this script names.
unset CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CMAKE_GENERATOR CMAKE_TOOLCHAIN_FILE

works() {
    [ -x "$server" ] && timeout -s KILL 20 "$server" --version >/dev/null 2>&1
}

link() {
    local command
    command=$("$python" -I -c 'import sys; print(sys.prefix + "/bin/llama-server")')
    [ "$(readlink "$command")" = "$server" ] || ln -sfn "$server" "$command"
}

# Run a step of the build; its words are shown only if it fails: quietly NAME COMMAND...
quietly() {
    local name=$1
    shift
    "$@" >"$work/log" 2>&1 || {
        tail -n 40 "$work/log" >&2
        stop "llama-server $version: $name failed (its last words are above)."
    }
}

download() {
    # pip checks the sum before it runs anything of the package; --no-binary names only this one, so that
    # what pip needs to read its name and version is not compiled.
    printf 'llama-cpp-python==%s --hash=sha256:%s\n' "$version" "$sha256" >"$work/wanted"
    local fetch=("$python" -m pip download --no-deps --no-binary llama-cpp-python --progress-bar off
        --dest "$work" --requirement "$work/wanted")
    "${fetch[@]}" >"$work/log" 2>&1 || "${fetch[@]}" >"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        stop "pip could not download the source package of llama-cpp-python $version (its last words are above)." \
            "The tests need it to build llama-server; if it is the network, run the same command again."
    }
}

unpack() {
    local inner=llama_cpp_python-$version/vendor/llama.cpp
    tar -xzf "$work"/llama_cpp_python-*.tar.gz -C "$work" --strip-components=3 --one-top-level=source \
        --exclude="$inner"/{benches,docs,examples,models,tests} "$inner"
}

# Several sources are compiled as one and hardly optimised: it is the reading of headers that takes the time,
# a third of it this way. The few files that do not bear company stay alone, and what a token costs is
# computed in the libraries that are optimised.
merge() {
    cat >"$work/merge.cmake" <<'END'
function(merge)
    set(top "${CMAKE_SOURCE_DIR}")
    set_source_files_properties("${top}/common/json.cpp"
        TARGET_DIRECTORY llama-common PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set_source_files_properties("${top}/tools/mtmd/mtmd-helper.cpp" "${top}/tools/mtmd/mtmd-helper-gen.cpp"
        TARGET_DIRECTORY mtmd PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    file(GLOB core "${top}/src/*.cpp")
    set_source_files_properties(${core}
        TARGET_DIRECTORY llama PROPERTIES SKIP_UNITY_BUILD_INCLUSION OFF)
    foreach(library ggml-base ggml-cpu)
        target_compile_options(${library} PRIVATE -O1)
    endforeach()
endfunction()
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL merge)
END
}

configure() {
    local off=(  # each gets =OFF at its end
        # What is not needed: other programs, the network, pages, formats of weights that are not used.
        -DBUILD_SHARED_LIBS -DLLAMA_BUILD_APP -DLLAMA_BUILD_EXAMPLES -DLLAMA_BUILD_TESTS -DLLAMA_BUILD_UI
        -DLLAMA_USE_PREBUILT_UI -DLLAMA_CURL -DLLAMA_OPENSSL -DGGML_CCACHE -DGGML_CPU_REPACK -DGGML_LLAMAFILE -DGGML_OPENMP
        # What not every machine that shares the cache may have.
        -DGGML_NATIVE -DGGML_SSE42 -DGGML_AVX -DGGML_AVX2 -DGGML_BMI2 -DGGML_F16C -DGGML_FMA
    )
    cmake -S "$work/source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_C_FLAGS_RELEASE=-O0 -DCMAKE_CXX_FLAGS_RELEASE=-O0 \
        -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=10 \
        "-DCMAKE_PROJECT_llama.cpp_INCLUDE=$work/merge.cmake" \
        -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON "${off[@]/%/=OFF}"
}

compile() {
    # No more at once than there are cores: one takes up to a gigabyte.
    timeout -s KILL 1500 cmake --build "$work/build" --target llama-server --parallel "$(nproc)"
}

keep() {
    mkdir "$work/kept"
    strip -o "$work/kept/llama-server" "$work/build/bin/llama-server"
    cp "$work/source/LICENSE" "$work/kept/"
    # Whoever renames first wins, and a broken one that is in the way is gone before.
    rm -rf "$kept"
    mv -T "$work/kept" "$kept" 2>/dev/null || works
}

[ -x "$python" ] || stop "there is no $python to download and to link llama-server with; run 'make dev'."
mkdir -p "$shelf"
# Of two that come at once, one waits and then finds what the other has built.
exec 9>"$shelf/lock"
flock -w 1800 9 || stop "somebody else has been building llama-server for half an hour: see $shelf."
if works; then
    link
    say "llama-server: $version is there"
    exit 0
fi
for tool in cmake ninja g++ strip tar; do
    command -v "$tool" >/dev/null || stop "llama-server cannot be built without $tool; run 'make dev', which installs it."
done
work=$(mktemp -d "$shelf/building.XXXXXX")
trap 'rm -rf "$work"' EXIT
say "llama-server: building $version for the tests, once; a minute or two"
download
quietly "unpacking" unpack
merge
quietly "configuring" configure
quietly "compiling" compile
quietly "storing" keep
works || stop "llama-server $version was built, but '$server --version' fails."
link
say "llama-server: built"
