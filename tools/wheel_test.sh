#!/bin/sh
# Build wheel and sdist. Install each into a fresh environment of every Python in $PYTHONS, without
# extras, and run tools/smoke.py there. mypy then checks tools/typed_use.py against the last wheel.
set -eu
cd "$(dirname "$0")/.."
room=$PWD/.venv-wheel
rm -rf "$room" dist
first=${PYTHONS%% *}
"$first" -m venv "$room/build"
"$room/build/bin/python" -m pip install --quiet --disable-pip-version-check build 'mypy>=1.13'
"$room/build/bin/python" -m build --outdir dist . > "$room/build.log" || {
    cat "$room/build.log"
    exit 1
}
ls -l dist
for python in $PYTHONS; do
    for file in dist/*.whl dist/*.tar.gz; do
        "$python" -m venv --clear "$room/use"
        "$room/use/bin/python" -m pip install --quiet --disable-pip-version-check "$file"
        (cd "$room" && NUMBA_CACHE_DIR="$room/numba" use/bin/python -W error ../tools/smoke.py)
        case $file in
        *.whl) (
            cd "$room"
            build/bin/mypy --strict --cache-dir "$room/mypy" --python-executable use/bin/python \
                ../tools/typed_use.py
        ) ;;
        esac
    done
done
