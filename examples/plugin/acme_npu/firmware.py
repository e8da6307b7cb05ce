"""The runtime `acme-firmware`."""

from pathlib import Path

RUNTIME = Path(__file__).with_name("acme_firmware.toml")
