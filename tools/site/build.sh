#!/bin/sh
# build.sh builds the site into bin/site: the README and all pages of docs, with search.
# It needs Node with npm. A dead link makes it fail. It installs the packages of
# package-lock.json once into bin/site-build.
set -eu
cd "$(dirname "$0")/../.."
command -v npm >/dev/null || { echo "make site needs Node with npm, because VitePress runs on Node" >&2; exit 1; }
build=bin/site-build
mkdir -p $build
cp -R tools/site/. $build
if ! cmp -s $build/package-lock.json $build/installed.json; then
	npm ci --prefix $build --no-audit --no-fund
	cp $build/package-lock.json $build/installed.json
fi
(cd $build && node_modules/.bin/vitepress build .)
node $build/check.mjs
