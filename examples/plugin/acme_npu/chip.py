"""The target `acme-npu`."""

from pathlib import Path

TARGET = Path(__file__).with_name("acme_npu.toml")
