#!/bin/sh
# dpkg calls it with "remove" or "upgrade", rpm with 0 or 1.
set -e
case "$1" in
remove | 0)
  if [ -d /run/systemd/system ]; then
    systemctl disable --now tributary.socket tributary.service
  fi
  ;;
esac
