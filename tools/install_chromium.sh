#!/usr/bin/env bash
# Install Chromium if there is none and this machine allows it; otherwise tests of pages are skipped.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" > /dev/null; then
        exit 0
    fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    if apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium > /dev/null; then
        exit 0
    fi
fi
echo "Chromium is not installed and cannot be installed here: tests of pages will be skipped" >&2
