"""Datasets of the hub, and folders, as the library ``datasets`` finds and reads them."""

import contextlib
import csv
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets import (
    BuilderConfig,
    Dataset,
    DatasetBuilder,
    DatasetDict,
    load_dataset_builder,
    load_from_disk,
)

from wawa_transformer.data.files import ENTRIES, TABLES, suffix_of


def is_saved(folder: str) -> bool:
    """True if the library saved a folder by ``save_to_disk``."""
    return any((Path(folder) / name).is_file() for name in ("state.json", "dataset_dict.json"))


def saved_splits(folder: str) -> dict[str, Dataset]:
    """Load what the library saved, by the names of its splits."""
    found = load_from_disk(folder)
    return found if isinstance(found, DatasetDict) else {"train": found}


def splits_of(folder: str, config: str | None) -> set[str]:
    """Name the splits of a local folder."""
    with contextlib.suppress(Exception):  # from_hub says what is wrong with it
        if is_saved(folder):
            return {*saved_splits(folder)}
        builder = load_dataset_builder(folder, config)
        return {*map(str, builder.config.data_files or builder.info.splits)}
    return set()


def files_of(builder: DatasetBuilder) -> dict[str, list[Path]]:
    """List the files of each split of a folder; none if only the library can read them."""
    found = builder.config.data_files or {}
    files = {str(split): [*map(Path, each)] for split, each in found.items()}
    formats = {suffix_of(path.name) for path in itertools.chain(*files.values())}
    # A README may set an encoding or another separator, which the library knows.
    usual, between = vars(type(builder.config)()), "\t" if ".tsv" in formats else ","
    read = {key for key, each in vars(builder.config).items() if each in (usual[key], between)}
    others = formats - {*TABLES, *ENTRIES} | formats & {".txt"}
    return {} if others or {*usual} - read - {*vars(BuilderConfig())} else files


def rows_of(builder: DatasetBuilder, names: list[str]) -> dict[str, Dataset]:
    """Let the library read the splits of a dataset, of which ``names`` are the columns."""
    if builder.name == "csv":  # in which NA and 007 are texts
        builder.config.na_filter = False
        builder.config.converters = dict.fromkeys(names, str)
        # In a table with tabs a quote is a character.
        if builder.config.sep == "\t" and ".csv" not in str(builder.config.data_files):
            builder.config.quoting = csv.QUOTE_NONE
    # Only downloads are cached: a changed file may have its old size and time.
    builder.download_and_prepare(download_mode="reuse_cache_if_exists")
    loaded = builder.as_dataset()
    # pandas takes the first columns for its index where rows have more than the header, and calls a
    # second column en en.1.
    odd = {f"{name}.1": f"it has the column {name} twice" for name in names}
    odd["__index_level_0__"] = "its rows have more columns than its header"
    found = {name for part in loaded.values() for name in part.column_names}
    if builder.name == "csv" and (said := [odd[name] for name in odd if name in found]):
        raise LookupError(said[0])
    return loaded


def dicts_of(split: Dataset) -> Iterator[dict[str, Any]]:
    """Yield the rows of a dataset."""
    if "Json(" in str(split.features):  # a column with values of several types
        yield from split
        return
    for table in split.with_format("arrow").iter(100):
        yield from table.to_pylist()
